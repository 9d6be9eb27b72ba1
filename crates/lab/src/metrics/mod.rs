//! From a recording to figures.

mod summary;
mod vocabulary;

pub use summary::{Accuracy, FlowSummary, Percentiles, PipeSummary, Summary, Window};
pub use vocabulary::{
    FLOW_METRICS, Metric, MetricDecl, MetricError, PIPE_METRICS, RUN_METRICS, Unit,
};
