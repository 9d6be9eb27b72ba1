//! Computes figures from a recording.
//!
//! Figures are taken over the measured time: the run without its warm-up, and each flow without its
//! own. Delays are in nanoseconds, and their percentiles are observed values ([`percentiles`]).

mod accuracy;
mod confidence;
mod fairness;
mod flow_meter;
mod goodput;
mod jitter;
mod meters;
mod packet_counts;
mod percentile;
mod pipe_meter;
mod samples;
#[cfg(test)]
mod tests;
mod voip;

pub use accuracy::AccuracyMeter;
pub use confidence::Spread;
pub use fairness::{Greedy, Shares, convergence, shares};
pub use goodput::{Arrived, RatePoint, goodput, goodput_series, longest_gap};
pub use jitter::Jitter;
pub(crate) use meters::Meters;
pub use meters::measure;
pub use percentile::{jain, percentile, percentiles};
pub use voip::mean_opinion_score;
