//! Running many scenarios: every variant of every file, on one backend or both, with several seeds.
//!
//! A [`Request`] becomes a [`Suite`] of planned runs, each with its folder, before anything is started;
//! [`execute`] carries them out: simulations side by side on all cores, live runs one after another,
//! since they measure. What cannot be run does not keep the rest from running.
//!
//! | runs | folder |
//! |---|---|
//! | the first seed | `OUTPUT/VARIANT` |
//! | another seed | `OUTPUT/VARIANT.seed-N` |
//! | live, beside a simulation of the same | `OUTPUT/VARIANT.live`, `OUTPUT/VARIANT.live.seed-N` |
//!
//! `OUTPUT` is that of the request for a single file; below it, for several files and folders, the
//! path of the file within its folder. It holds `summary.json`, the results of all its runs,
//! `report.html`, and `agreement.json` if there are both simulations and live runs.

mod execute;
mod plan;
#[cfg(test)]
mod tests;

pub use execute::{Executed, Options, Progress, execute};
pub use plan::{Backends, Experiment, Failure, PlanError, Planned, Request, Suite};
