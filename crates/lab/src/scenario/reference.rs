//! The reference page of the scenario file, made from the declarations of its keys.

use std::fmt::Write as _;

use super::schema::{KeyDecl, Keys, Presence};
use super::{Measure, RootKeys, expect, flow, link};
use crate::metrics::{FLOW_METRICS, MetricDecl, PIPE_METRICS, RUN_METRICS, Unit};

/// Everything that can stand in a scenario, as Markdown.
pub fn reference() -> String {
    let mut page = String::from(INTRODUCTION);
    let mut section = |title: &str, text: &str, keys: &[KeyDecl]| {
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
    };
    section("Outside all tables", "", RootKeys::KEYS);
    section("`[link]`", LINK, link::Pipe::KEYS);
    section("`rtt` in `[link]`", "", link::LinkKeys::KEYS);
    section("`[measure]`", "", Measure::KEYS);
    section("`[[flow]]`", FLOW, flow::FlowKeys::KEYS);
    for (name, doc, keys, _) in flow::TYPES {
        section(&format!("`type = \"{name}\"`"), doc, keys);
    }
    section("`[matrix]`", MATRIX, &[]);
    section("`[[expect]]`", EXPECT, expect::KEYS);
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
    figures(&mut page, PIPE_METRICS);
    let drops = "| `drops.REASON` | count | those dropped for one reason: ";
    let reasons: Vec<String> = sluice_core::DropReason::ALL
        .iter()
        .map(|reason| format!("`{}`", reason.name()))
        .collect();
    let _ = writeln!(page, "{drops}{} |", reasons.join(", "));
    page.push_str("\n### Figures of the run\n\n");
    figures(&mut page, RUN_METRICS);
    page.push_str(OVERRIDES);
    page
}

fn figures<T>(page: &mut String, metrics: &[MetricDecl<T>]) {
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

const FLOW: &str = "\
Each `[[flow]]` is a flow, or several that are alike. Its `type` must be given, and decides about the other
keys.";

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
