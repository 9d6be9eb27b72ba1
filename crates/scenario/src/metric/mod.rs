//! Figures: their names and units, and the values that they are read from.
//!
//! A [`Summary`] holds what was measured in a run. The vocabulary ([`RUN_METRICS`], [`PIPE_METRICS`],
//! [`FLOW_METRICS`]) gives every figure a name, and [`Metric`] reads such a name, as `[[expect]]` writes it.

mod chart;
mod reference;
mod summary;
mod vocabulary;

pub use chart::Chart;
pub use reference::reference;
pub use summary::{
    Accuracy, DirectionSummary, FlowSummary, Percentiles, PipeSummary, Summary, Window,
};
pub use vocabulary::{
    FLOW_METRICS, Metric, MetricDecl, MetricError, PIPE_METRICS, RUN_METRICS, Unit,
};
