//! The reference page of the scenario file, made from the declarations of its keys.

use std::fmt::Write as _;

use sluice_core::param::{Kind, Value as CoreValue};

use super::effects::Effects;
use super::field::show_span;
use super::schema::{KeyDecl, Keys, Presence};
use super::{Hosts, Measure, RootKeys, expect, flow, link};
use crate::metric::{FLOW_METRICS, MetricDecl, RUN_METRICS, Unit, pipe_metrics};

/// Everything that can stand in a scenario, as Markdown.
pub fn reference() -> String {
    let mut text = String::from(INTRODUCTION);
    let page = &mut text;
    section(page, "Outside all tables", "", RootKeys::KEYS);
    section(page, "`[link]`", LINK, link::PipeKeys::KEYS);
    section(page, "`rtt` in `[link]`", "", link::LinkKeys::KEYS);
    section(page, "Effects in `[link]`", EFFECTS, &[]);
    effects(page);
    section(page, "`[[hop]]`", HOP, &[]);
    section(page, "`rules`", RULES, &[]);
    section(
        page,
        "`[hosts]`: what only the simulator has",
        HOSTS,
        Hosts::KEYS,
    );
    section(page, "`[measure]`", "", Measure::KEYS);
    section(page, "`[[flow]]`", FLOW, flow::FlowKeys::KEYS);
    for (name, doc, keys, _) in flow::TYPES {
        section(page, &format!("`type = \"{name}\"`"), doc, keys);
    }
    let title = "`[[flow]]` over TCP: what only the simulator has";
    section(page, title, TCP_SETTINGS, flow::TcpSettings::KEYS);
    section(page, "`[matrix]`", MATRIX, &[]);
    section(page, "`[[expect]]`", EXPECT, expect::KEYS);
    page.push_str("\n### Figures of a flow: `NAME.figure`\n\n");
    page.push_str("| figure | of type | unit | meaning |\n|---|---|---|---|\n");
    for metric in FLOW_METRICS {
        let has = |(name, _, _, metrics): &(&'static str, _, _, &[&str])| {
            metrics.contains(&metric.name).then_some(*name)
        };
        let types: Vec<&str> = flow::TYPES.iter().filter_map(has).collect();
        let (name, unit, doc) = (metric.name, metric.unit.name(), metric.doc);
        let _ = writeln!(page, "| `{name}` | {} | {unit} | {doc} |", types.join(", "));
    }
    page.push_str("\n### Figures of a direction of the link: `up.figure`, `down.figure`\n\n");
    figures(page, pipe_metrics());
    let drops = "| `drops.REASON` | count | those dropped for one reason: ";
    let reasons: Vec<String> = sluice_core::DropReason::ALL
        .iter()
        .map(|reason| format!("`{}`", reason.name()))
        .collect();
    let _ = writeln!(page, "{drops}{} |", reasons.join(", "));
    page.push_str("\n### Figures of the run\n\n");
    figures(page, RUN_METRICS);
    page.push_str(OVERRIDES);
    text
}

fn section(page: &mut String, title: &str, text: &str, keys: &[KeyDecl]) {
    let _ = write!(page, "\n## {title}\n");
    if !text.is_empty() {
        let _ = write!(page, "\n{text}\n");
    }
    if !keys.is_empty() {
        page.push_str("\n| key | takes | if not given | range | meaning |\n");
        page.push_str("|---|---|---|---|---|\n");
    }
    for key in keys {
        let _ = writeln!(page, "{}", row(key));
    }
}

/// The parameters of a link as its core declares them.
fn effects(page: &mut String) {
    page.push_str("\n| key | takes | if not given | range | meaning |\n");
    page.push_str("|---|---|---|---|---|\n");
    for decl in Effects::decls() {
        let takes = match decl.kind {
            Kind::Span => "time".to_owned(),
            Kind::Rate => "rate".to_owned(),
            Kind::Bytes => "size".to_owned(),
            Kind::Count => "whole number".to_owned(),
            Kind::Ratio => "ratio".to_owned(),
            Kind::Flag => "boolean".to_owned(),
            Kind::Choice(words) => {
                let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
                words.join(", ")
            }
        };
        let default = match decl.default {
            CoreValue::Span(span) => show_span(&span),
            CoreValue::Flag(flag) => flag.to_string(),
            value => value.to_string(),
        };
        let range = decl.range.map_or(String::new(), |(low, high)| {
            let show = |value| match value {
                CoreValue::Span(span) => show_span(&span),
                value => value.to_string(),
            };
            format!("{} to {}", show(low), show(high))
        });
        let (name, doc) = (decl.name, decl.doc);
        let _ = writeln!(
            page,
            "| `{name}` | {takes} | `{default}` | {range} | {doc} |"
        );
    }
}

fn figures<T: 'static>(
    page: &mut String,
    metrics: impl IntoIterator<Item = &'static MetricDecl<T>>,
) {
    page.push_str("| figure | unit | meaning |\n|---|---|---|\n");
    for metric in metrics {
        let unit: Unit = metric.unit;
        let _ = writeln!(
            page,
            "| `{}` | {} | {} |",
            metric.name,
            unit.name(),
            metric.doc
        );
    }
}

fn row(key: &KeyDecl) -> String {
    let presence = match (key.presence)() {
        Presence::Required => "must be given".to_owned(),
        Presence::Optional => "nothing".to_owned(),
        Presence::Default(value) => format!("`{value}`"),
    };
    let range = (key.range)().map_or(String::new(), |(low, high)| format!("{low} to {high}"));
    format!(
        "| `{}` | {} | {presence} | {range} | {} |",
        key.name, key.kind, key.doc
    )
}

const INTRODUCTION: &str = r#"# The scenario file

One TOML file describes an experiment: a link with a queue at each end, the traffic over it, what to
vary, and what must come out. The same file runs in the simulator and on live packets.

```toml
title = "First light"
duration = "15s"

[link]
rate = "10Mbit/s"
rtt = "20ms"

[matrix]
"link.queue" = ["fifo limit 1000", "codel", "fq_codel"]

[[flow]]
type = "tcp"
name = "bulk"

[[flow]]
type = "ping"

[[expect]]
metric = "ping.p50"
variant = "fq_codel"
max = "23ms"
```

Times, rates and sizes are strings with a unit: `ns us ms s min h`, `bit/s kbit/s Mbit/s Gbit/s Tbit/s
B/s kB/s MB/s GB/s`, `B kB MB GB KiB MiB GiB`. Inside the words of a queue (`"codel target 5"`) the unit may be
left out: a bare time counts milliseconds there, as in dummynet, and a bare size counts bytes. This page is made from the declarations that the program
itself reads the file with.
"#;

const LINK: &str = "\
The link under test joins host `h2` to host `h3` through the router. Each direction is a pipe with a queue
of its own: packets from `h2` to `h3` go `up`, the others `down`. What stands in `[link]` holds for both
directions, so that the acknowledgements of a transfer meet the same rate and the same queue as its data, and a
flow either way meets the queue under test. `[link.up]` and `[link.down]` take the same keys and override
`[link]` for one direction: a slower uplink, or a plain `fifo` for the acknowledgements.";

const EFFECTS: &str = "\
What else happens to the packets of a link, each effect off unless it is set. Packets pass loss, duplication and
damage before the queue, as in netem; then the queue, the link itself with its framing, and the delay with its
jitter.

`rate` can change with time in four ways:

| written | means |
|---|---|
| `[[\"0s\", \"100Mbit/s\"], [\"15s\", \"10Mbit/s\"], [\"20s\", \"outage\"]]` | each rate from its instant on; \
nothing is sent during an outage |
| `{ every = \"20s\", rates = [\"100Mbit/s\", \"10Mbit/s\"] }` | these rates in turn, to the end of the run |
| `{ csv = \"FILE\" }` | lines of `time_ns,bits_per_second`; 0 is an outage |
| `{ trace = \"FILE\" }` | a Mahimahi trace: each line is a time in ms at which 1500 bytes may pass; after the last \
one it starts again |

Paths are relative to the scenario's own file. What the files say is kept in the recording.";

const HOSTS: &str = "\
Simulated hosts take no time to compute. Real ones wake up late, now and then very late; live runs have the hosts
of their machine, whatever stands here. How much this matters is in [Validation](explanation/validation.md).";

const HOP: &str = "\
Each `[[hop]]` is one more link of the path, with the same keys as `[link]` and queues of its own: packets that go
up pass `[link]`, then the hops in their order; packets that go down pass them the other way round. A flow passes
all of them unless its `hops` names some, so that traffic can cross one router of several. In `[matrix]` and
`--set` the first `[[hop]]` is `hop.2`, since `[link]` is the first link.";

const RULES: &str = "\
The router can be a dummynet configuration in the place of links: the commands of `ipfw` and `dnctl`, one in each
line. Its interfaces are called `h2` and `h3`, after the hosts that they lead to, whose addresses are 10.0.23.2 and
10.0.23.3. A packet meets the rules twice, as it comes `in` from one side and goes `out` to the other.

```toml
rules = \"\"\"
pipe 1 config bw 10Mbit/s delay 10ms
add 1000 pipe 1 all from 10.0.23.2 to any out
add 2000 allow all from any to any
\"\"\"
```";

const FLOW: &str = "\
Each `[[flow]]` is a flow, or several that are alike. Its `type` must be given, and decides about the other
keys.";

const TCP_SETTINGS: &str = "\
These keys belong to `tcp`, `rr` and `web` and concern both ends. The kernel's TCP cannot be asked for them, so a
live run refuses what it does not do by itself.";

const MATRIX: &str = r#"Each key here is the path of another key (`link.queue`, `link.up.rate`, `flow.NAME.cc`, `duration`), and lists
the values that it takes in turn. Several keys are crossed; the last one varies fastest. A variant is named after
its values: `fifo limit 1000` is called `fifo` if no other value begins with that word, `true` for `ecn` is called
`ecn=true`. Names can be given instead: `"link.queue" = { short = "fifo limit 10", long = "fifo limit 1000" }`.
Without a matrix there is one variant, named after its queue."#;

const EXPECT: &str = "\
Each `[[expect]]` bounds a figure. A run whose figures are out of bounds fails.";

const OVERRIDES: &str = "
## Overrides

`--set KEY=VALUE` sets a key by its path, as in `[matrix]`: `--set link.rate=1Mbit/s --set flow.bulk.cc=reno`.
Strings need no quotes. A key that is set is no longer varied by the matrix, and what was expected of the variants
that are gone is not asked for; `--set 'matrix.link.queue=[\"pie\", \"codel\"]'` varies it anew.
";
