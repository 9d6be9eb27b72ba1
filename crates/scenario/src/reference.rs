//! The reference page of the scenario file, generated from the declarations of its keys.

use std::fmt::Write as _;

use sluice_core::param::{Kind, Value as CoreValue};

use super::effects::Effects;
use super::field::show_span;
use super::schema::{KeyDecl, Keys, Presence};
use super::{Direction, Hosts, Measure, Preset, RootKeys, expect, flow, link};
use crate::metric::{FLOW_METRICS, FURTHER_LINKS, MetricDecl, RUN_METRICS, Unit, pipe_metrics};

/// Returns the reference of all keys of a scenario, as Markdown.
pub fn reference() -> String {
    let mut text = String::from(INTRODUCTION);
    let page = &mut text;
    section(page, "Top level", "", RootKeys::KEYS);
    section(page, "`[link]`", LINK, link::PipeKeys::KEYS);
    section(
        page,
        "`rtt` and `preset` in `[link]`",
        "",
        link::LinkKeys::KEYS,
    );
    presets(page);
    section(page, "Effects in `[link]`", EFFECTS, &[]);
    effects(page);
    section(page, "`[[hop]]`", HOP, &[]);
    section(page, "`rules`", RULES, &[]);
    section(page, "`[hosts]`: the end hosts", HOSTS, Hosts::KEYS);
    section(page, "`[measure]`", "", Measure::KEYS);
    section(page, "`[[flow]]`", FLOW, flow::FlowKeys::KEYS);
    for (name, doc, keys, _) in flow::TYPES {
        section(page, &format!("`type = \"{name}\"`"), doc, keys);
    }
    let title = "`[[flow]]` over TCP: settings of the simulator only";
    section(page, title, TCP_SETTINGS, flow::TcpSettings::KEYS);
    section(page, "`[matrix]`", MATRIX, &[]);
    section(page, "`[[variant]]`", VARIANT, &[]);
    section(page, "`[[picture]]`", PICTURE, super::Picture::KEYS);
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
    page.push_str(FURTHER_LINKS);
    figures(page, pipe_metrics());
    let drops = "| `drops.REASON` | count | wire packets dropped for one reason: ";
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
        page.push_str("\n| key | value | default | range | meaning |\n");
        page.push_str("|---|---|---|---|---|\n");
    }
    for key in keys {
        let _ = writeln!(page, "{}", row(key));
    }
}

/// Adds the named links.
fn presets(page: &mut String) {
    page.push_str(PRESETS);
    page.push_str("\n| name | down / up | round trip | loss | FIFO of | source |\n");
    page.push_str("|---|---|---|---|---|---|\n");
    for preset in Preset::all() {
        let names: Vec<String> = preset.names().iter().map(|n| format!("`{n}`")).collect();
        let (down, up) = (preset.rate(Direction::Down), preset.rate(Direction::Up));
        let mut fifo = preset.queue().to_string();
        let remarks = preset.remarks();
        if !remarks.is_empty() {
            let _ = write!(fifo, "; {remarks}");
        }
        let _ = writeln!(
            page,
            "| {} | {down} / {up} | {} | {} | {fifo} | {} |",
            names.join(", "),
            preset.rtt(),
            preset.loss(),
            preset.source(),
        );
    }
}

/// Adds the effects of a link, as the core declares them.
fn effects(page: &mut String) {
    page.push_str("\n| key | value | default | range | meaning |\n");
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
        Presence::Required => "required".to_owned(),
        Presence::Optional => "none".to_owned(),
        Presence::Default(value) => format!("`{value}`"),
    };
    let range = (key.range)().map_or(String::new(), |(low, high)| format!("{low} to {high}"));
    format!(
        "| `{}` | {} | {presence} | {range} | {} |",
        key.name, key.kind, key.doc
    )
}

const INTRODUCTION: &str = r#"# The scenario file

One TOML file describes an experiment: a link with a queue at each end, the traffic over it, the
settings to vary, and the expected results. The same file runs in the simulator and with live
packets.

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
B/s kB/s MB/s GB/s`, `B kB MB GB KiB MiB GiB`. In the words of a queue (`"codel target 5"`) the unit
may be left out: a time is then in milliseconds, as in dummynet, and a size in bytes. This page is
generated from the declarations with which the program reads the file.
"#;

const LINK: &str = "\
The link under test connects host `h2` to host `h3` through the router. Each direction is a pipe
with a queue of its own: packets from `h2` to `h3` go `up`, the others `down`. The keys of `[link]`
apply to both directions. So the acknowledgements of a transfer pass the same rate and the same
queue as its data, and flows in both directions pass the queue under test. `[link.up]` and
`[link.down]` have the same keys and override `[link]` for one direction, for example for a slower
uplink, or for a plain `fifo` for the acknowledgements. A key of `[link]` that `--set`, `[matrix]` or
`[[variant]]` sets (`link.rate`) applies to both directions, also where `[link.up]` has its own.";

const PRESETS: &str = "
`preset` names a link. Every other key of `[link]`, `[link.up]` and `[link.down]` replaces that of the named link:
`preset = \"lte\"` with `down.queue = \"fq_codel\"` is an LTE link with another queue. `sluice list links` lists the
names, and `sluice list NAME` prints a link as keys of a scenario. Sources name no queues; each link has the FIFO
that such equipment usually has, given as the time that it takes to drain. Rates and round trips that change are
given as means.
";

const EFFECTS: &str = "\
Other effects on the packets of a link. Each effect is off unless it is set. Loss, duplication and
corruption come before the queue, as in netem. Then follow the queue, the link itself with its
framing, and the delay with its jitter.

`rate` can change with time in four ways:

| value | meaning |
|---|---|
| `[[\"0s\", \"100Mbit/s\"], [\"15s\", \"10Mbit/s\"], [\"20s\", \"outage\"]]` | each rate applies from its \
instant on; nothing is sent during an outage |
| `{ every = \"20s\", rates = [\"100Mbit/s\", \"10Mbit/s\"] }` | these rates in turn, until the end of the run |
| `{ csv = \"FILE\" }` | lines of `time_ns,bits_per_second`; 0 is an outage, and in the last line, an outage \
until the end of the run. At least one rate must not be 0 |
| `{ trace = \"FILE\" }` | a Mahimahi trace: each line is a time in ms at which 1500 bytes may pass; after the last \
line it starts again |

Paths are relative to the scenario's own file. The recording has a copy of each file's content.";

const HOSTS: &str = "\
`up` and `down` give a side more hosts, for queues that are fair to hosts: `cake` with its
`isolation`, or the `mask` of a dummynet queue. `host_up` and `host_down` of a flow name its hosts by
their numbers. The hosts of the side `up` have the addresses 10.0.23.2, 10.0.23.4, 10.0.23.6 and so
on, those of the side `down` 10.0.23.3, 10.0.23.5 and so on. In a live run all hosts of a side are
addresses of one kernel, so flows between the same two hosts cannot differ in `rtt`, `class` or
`hops`, and none has an `initial_window`.

The other keys apply to the simulator only. Simulated hosts compute in no time, whereas real hosts
wake up late, and sometimes very late. [Validation](explanation/validation.md) says how much this
matters.";

const HOP: &str = "\
Each `[[hop]]` is a further link on the path, with the same keys as `[link]` and queues of its own.
Packets that go up pass `[link]` and then the hops in their order; packets that go down pass them in
the opposite order. A flow passes all of them unless its `hops` selects some, so that traffic can
cross only one of several routers. In `[matrix]` and `--set` the first `[[hop]]` is `hop.2`, because
`[link]` is the first link. Its figures begin with `up2` and `down2`, such as `up2.utilisation`.";

const RULES: &str = "\
A dummynet configuration can replace the links: the commands of `ipfw` and `dnctl`, one per line.
The router's interfaces are called `h2` and `h3`, after the hosts that they lead to. The hosts have
the addresses 10.0.23.2 and 10.0.23.3, and further ones (`[hosts]`) those that follow. A packet
passes the rules twice: when it comes `in` from one side and when it goes `out` to the other. In the
simulator, a bulk transfer that no pipe slows down ends the run with an error.

The path of an algorithm such as `wasm:my.wasm` is relative to the scenario's file, like all paths of
a scenario, even if the commands are in a file in another folder.

```toml
rules = \"\"\"
pipe 1 config bw 10Mbit/s delay 10ms
add 1000 pipe 1 all from 10.0.23.2 to any out
add 2000 allow all from any to any
\"\"\"
```";

const FLOW: &str = "\
Each `[[flow]]` is a flow, or several equal ones. `type` is required, and determines the other
keys.";

const TCP_SETTINGS: &str = "\
These keys belong to `tcp`, `rr` and `web`, and apply to both ends. The kernel's TCP does not have
these settings, so a live run refuses values that differ from the kernel's behaviour.";

const VARIANT: &str = "\
Each row sets several keys together, and has a `name`. Rows and the keys of `[matrix]` are crossed; a
key cannot be set by both. `{rate}` in a queue stands for the rate of its own link:

```toml
[[variant]]
name = \"cake\"
\"link.queue\" = \"cake bandwidth {rate}\"

[[variant]]
name = \"docsis\"
\"link.up.queue\" = \"pie preset docsis limit 60\"
\"link.down.queue\" = \"fifo limit 250\"
```

`--set variant=cake` runs only this row. A key that `--set` gives is no longer varied by the
rows. If two rows then describe the same run, `--set` is refused.";

const PICTURE: &str = "\
`sluice run` draws these pictures into the folder of the recordings when all runs are over, and
`sluice report FOLDER --pictures FILE` draws them again. What they need is checked before the first
run, also by `--check`: axes, figures, traffic, and the level of recording (`--record`). A picture that
cannot be drawn all the same is named at the end, with status 1; everything else is written.";

const MATRIX: &str = r#"Each key of `[matrix]` is the path of another key (`link.queue`,
`link.up.rate`, `flow.NAME.cc`, `duration`) and has a list of values for it. Several keys are
combined in every way; the last key varies fastest. A variant is named after its values: `fifo limit 1000` is called `fifo` if no other
value begins with that word, and `true` for `ecn` is called `ecn=true`. Values can be given names
instead: `"link.queue" = { short = "fifo limit 10", long = "fifo limit 1000" }`. A single word of a queue is
a key, too: `"link.queue.target" = ["1ms", "5ms", "20ms"]` sets the word `target` in the queues of
both directions, whichever queue another axis chose. Without a matrix there is one variant, which is named after its queue."#;

const EXPECT: &str = "\
Each `[[expect]]` gives bounds for a figure. A run with a figure outside its bounds fails. A figure that
no run can measure is refused before the first one: `fct` of a flow without `bytes`, or `jain` without
two bulk TCP flows of one direction.";

const OVERRIDES: &str = "
## Overrides

`--set KEY=VALUE` sets a key by its path, as in `[matrix]`: `--set link.rate=1Mbit/s --set
flow.bulk.cc=reno`. Strings need no quotes. If the matrix varies the key, it no longer does, and
expectations of the variants that no longer exist are ignored. If an option sets a key of a flow, an
expectation of a figure that no run measures any more is not refused: the runs start, and it fails
because the figure is not measured.
`--set 'matrix.link.queue=[\"pie\", \"codel\"]'` varies the key with other values.
";
