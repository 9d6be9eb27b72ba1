//! The reference page of the figures, generated from their declarations.

use std::fmt::Write as _;

use sluice_core::DropReason;

use super::vocabulary::{FLOW_METRICS, MetricDecl, RUN_METRICS, pipe_metrics};
use crate::flow_types_with;

/// Returns the reference of all figures, as Markdown.
pub fn reference() -> String {
    let mut page = String::from(INTRODUCTION);
    page.push_str("\n## Figures of a flow: `NAME.figure`\n\n");
    page.push_str("| figure | of type | unit | meaning | source |\n|---|---|---|---|---|\n");
    for metric in FLOW_METRICS {
        let types = flow_types_with(metric.name).join(", ");
        let (name, unit) = (metric.name, metric.unit.name());
        let (doc, source) = (metric.doc, metric.source);
        let _ = writeln!(page, "| `{name}` | {types} | {unit} | {doc} | {source} |");
    }
    page.push_str("\n## Figures of a direction of the link: `up.figure`, `down.figure`\n\n");
    page.push_str(FURTHER_LINKS);
    figures(&mut page, pipe_metrics());
    let reasons: Vec<String> = DropReason::ALL
        .iter()
        .map(|reason| format!("`{}`", reason.name()))
        .collect();
    let _ = writeln!(
        page,
        "| `drops.REASON` | count | wire packets dropped for one reason: {} | events of the queue (packets.parquet) |",
        reasons.join(", ")
    );
    page.push_str("\n## Figures of the run\n\n");
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

The figures of a run. `[[expect]]` of a scenario, the table at the end of a run, `summary.json` and
comparisons use these names. This page is generated from the declarations that the program uses.

- Figures leave out the warm-up (`[measure] warmup`). For figures of the link, it begins at the
  start of the run; for figures of a flow, at the start of the flow. A transfer of
  `bytes` without `pause` has no warm-up.
- A flow with a `count` has figures for each of its flows (`bulk-1.goodput`) and for all of them
  together (`bulk.goodput`). Counts are added, percentiles are taken over all values, and
  jitter and scores are averaged.
- Goodput is payload divided by time, and pauses of a flow count as time. A transfer of `bytes`
  without `pause` is measured until it is complete, any other flow until its `stop`. For several
  flows and for `total.goodput`, the time begins when the first of them is measured, but not before the
  warm-up of the run is over, and ends with the last of them. All payload that arrives in this time counts,
  including that of a flow that is still in its own warm-up.
- A transfer, a page or an exchange that is open at the end and has lasted longer than every one that
  ended counts with its age in `fct.p50` to `fct.max` and in the percentiles of `rr`, so that a queue
  that starves a flow exceeds a bound. `transfers` counts complete ones only. The number of transfers and
  pages that were open is in the table at the end of a run, and in `summary.json` as `open`.
- A percentile is an observed value: the smallest value such that at least that part of all values
  is not larger (RFC 2330 section 11.3).
- The packets of a link are IP packets; goodput counts payload only. A super-packet counts as its
  wire packets.
- A figure that was not measured has no value, and an expectation of it fails. Of several runs, one
  without the figure counts as outside the bounds.
";

/// The figures of the links of `[[hop]]`, on both pages.
pub(crate) const FURTHER_LINKS: &str = "\
With `[[hop]]`, these are the figures of `[link]`. Those of the first `[[hop]]` are `up2.figure` and
`down2.figure`, those of the second `up3.figure` and `down3.figure`, and so on.

";

const REPETITIONS: &str = "
## Over repetitions

Repetitions differ in their seed only. A figure is reported as its median with the smallest and the
largest value, and as its mean with the 95 % confidence interval from Student's t distribution with
n - 1 degrees of freedom. Two sets of repetitions differ if Welch's t test, two-sided and with the
degrees of freedom of Welch and Satterthwaite (not rounded), rejects equal means at the 5 % level;
with only one repetition, no test is made. The interval and the test assume that the means are about
normally distributed. The median and the range need no assumption.
";
