//! Running many scenarios: every variant of every file, on one backend or both, with several seeds.
//!
//! A [`Request`] becomes a [`Suite`] of planned runs, each with its folder, before any run starts.
//! [`execute`] executes them: simulations in parallel on all cores, live runs one after another,
//! since they measure. A run that fails does not stop the others. Live runs of other settings are not
//! replaced ([`Suite::keep_live_runs`]).
//!
//! | runs | folder |
//! |---|---|
//! | the first seed | `OUTPUT/VARIANT` |
//! | another seed | `OUTPUT/VARIANT.seed-N` |
//! | live, beside a simulation of the same | `OUTPUT/VARIANT.live`, `OUTPUT/VARIANT.live.seed-N` |
//!
//! For a single file, `OUTPUT` is the request's output folder. For several files and folders, it is
//! a folder below that, named by the path of the file within its folder. It contains
//! `summary.json`, the results of all its runs, `agreement.json` if there are both simulations and
//! live runs, and `report.html` for a few runs or on request.

mod execute;
mod plan;
mod replaced;
#[cfg(test)]
mod tests;

pub use execute::{Executed, MOST_WITH_PACKETS, MOST_WITH_PAGES, Options, Progress, execute};
pub use plan::{Backends, Experiment, Failure, PlanError, Planned, PrepareError, Request, Suite};
pub use replaced::LiveRuns;
