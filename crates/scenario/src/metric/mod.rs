//! Figures: their names and units, and the values that they are read from.
//!
//! A [`Summary`] has the results of a run. The vocabulary ([`RUN_METRICS`], [`pipe_metrics`],
//! [`FLOW_METRICS`]) declares every figure: its name, unit, meaning, source, value and chart. The
//! reference pages, `[[expect]]`, the tables of figures and the report's page read these
//! declarations. A figure that does not follow from other fields of the summary has a [`PipeMeter`]
//! of its own ([`METERS`]). [`Metric`] parses the name of a figure as `[[expect]]` writes it.

mod chart;
mod meter;
mod reference;
mod summary;
mod vocabulary;

pub use crate::unit::Unit;
pub use chart::{Chart, ChartLink};
pub use meter::{METERS, Measured, Meter, PipeMeter};
pub(crate) use reference::FURTHER_LINKS;
pub use reference::reference;
pub use summary::{
    Accuracy, DirectionSummary, FlowSummary, MOST_TRANSFERS, Percentiles, PipeSummary, Reported,
    Summary, Window,
};
pub use vocabulary::{
    FLOW_METRICS, Key, Metric, MetricDecl, MetricError, RUN_METRICS, pipe_metrics,
};
