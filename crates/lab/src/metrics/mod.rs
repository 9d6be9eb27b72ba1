//! From a recording to figures.
//!
//! Figures are taken over the measured time: the run without its warm-up, and each flow without its
//! own. Delays are in nanoseconds, and their percentiles are values that occurred ([`percentiles`]).

mod accuracy;
mod goodput;
mod measure;
mod percentile;
mod summary;
#[cfg(test)]
pub(crate) mod tests;
mod vocabulary;

pub use accuracy::AccuracyMeter;
pub use goodput::{Arrived, RatePoint, goodput, goodput_series};
pub use percentile::{jain, percentiles};
pub use summary::{
    Accuracy, DirectionSummary, FlowSummary, Percentiles, PipeSummary, Summary, Window,
};
pub use vocabulary::{
    FLOW_METRICS, Metric, MetricDecl, MetricError, PIPE_METRICS, RUN_METRICS, Unit,
};
