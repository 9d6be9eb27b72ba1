//! The reference page of the figures, made from their declarations.

use std::fmt::Write as _;

use sluice_core::DropReason;

use super::vocabulary::{FLOW_METRICS, MetricDecl, RUN_METRICS, pipe_metrics};
use crate::flow_types_with;

/// Every figure, as Markdown.
pub fn reference() -> String {
    let mut page = String::from(INTRODUCTION);
    page.push_str("\n## Of a flow: `NAME.figure`\n\n");
    page.push_str("| figure | of type | unit | meaning | source |\n|---|---|---|---|---|\n");
    for metric in FLOW_METRICS {
        let types = flow_types_with(metric.name).join(", ");
        let (name, unit) = (metric.name, metric.unit.name());
        let (doc, source) = (metric.doc, metric.source);
        let _ = writeln!(page, "| `{name}` | {types} | {unit} | {doc} | {source} |");
    }
    page.push_str("\n## Of a direction of the link: `up.figure`, `down.figure`\n\n");
    figures(&mut page, pipe_metrics());
    let reasons: Vec<String> = DropReason::ALL
        .iter()
        .map(|reason| format!("`{}`", reason.name()))
        .collect();
    let _ = writeln!(
        page,
        "| `drops.REASON` | count | those dropped for one reason: {} | events of the queue (packets.parquet) |",
        reasons.join(", ")
    );
    page.push_str("\n## Of the run\n\n");
    figures(&mut page, RUN_METRICS);
    page.push_str(REPETITIONS);
    page
}

fn figures<T: 'static>(
    page: &mut String,
    metrics: impl IntoIterator<Item = &'static MetricDecl<T>>,
) {
    page.push_str("| figure | unit | meaning | source |\n|---|---|---|---|\n");
    for metric in metrics {
        let (name, unit) = (metric.name, metric.unit.name());
        let (doc, source) = (metric.doc, metric.source);
        let _ = writeln!(page, "| `{name}` | {unit} | {doc} | {source} |");
    }
}

const INTRODUCTION: &str = "\
# Figures

What a run comes to. `[[expect]]` of a scenario, the table at the end of a run, `summary.json` and comparisons
use these names. This page is made from the declarations that the program itself reads.

- Figures leave out the warm-up (`[measure] warmup`): of the run for the link, of each flow for the flow. A flow with
  `bytes` is measured whole.
- A flow with a `count` has the figures of each (`bulk-1.goodput`) and of all together (`bulk.goodput`): rates and
  counts added up, percentiles over all values, jitter and scores averaged.
- Percentiles are values that occurred: the smallest for which at least that part of all values is not larger (RFC
  2330 section 11.3).
- Packets of the link are IP packets; goodput counts payload only. A super-packet counts as its wire packets.
- A figure that was not measured is none, and fails an expectation.
";

const REPETITIONS: &str = "
## Over repetitions

Repetitions differ in their seed only. A figure is told as its median with the smallest and largest value, and as its
mean with the 95 % confidence interval of Student's t distribution with n - 1 degrees of freedom. Two sets of
repetitions differ when Welch's t test says so at the 5 % level; with one repetition nothing is said. The interval
and the test assume that means are about normal; median and range assume nothing.
";
