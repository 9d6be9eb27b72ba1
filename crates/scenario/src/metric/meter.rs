//! Figures of a direction that have a meter of their own.
//!
//! Adding one is one file in `meter/`, which declares the figure as `FIGURE`, and one line in
//! [`meters!`] below.

use sluice_core::Time;
use sluice_core::record::PacketRecord;

use super::summary::PipeSummary;
use super::vocabulary::MetricDecl;
use crate::{PipeId, Scenario};

/// Measures one figure of a direction from the packets of its queue.
pub trait PipeMeter: Send {
    /// Counts a packet that left the queue or was dropped after the warm-up. Packets come in the
    /// order of these events.
    fn packet(&mut self, record: &PacketRecord);

    /// Returns the figure of `run` in its unit, times in nanoseconds; `None` if nothing was
    /// measured.
    fn finish(&mut self, run: &Measured<'_>) -> Option<f64>;
}

/// The run that a meter has measured, and the direction.
#[derive(Clone, Copy, Debug)]
pub struct Measured<'a> {
    /// The scenario of the run.
    pub scenario: &'a Scenario,
    /// The direction of the link.
    pub pipe: PipeId,
    /// The end of the warm-up.
    pub from: Time,
    /// The actual end of the run, which is earlier than planned if the run was stopped.
    pub to: Time,
}

/// A figure and its meter.
pub struct Meter {
    /// The figure; its `value` is [`PipeSummary::metered`].
    pub figure: MetricDecl<PipeSummary>,
    /// Whether it counts drops only. Then it is not called for other packets, which are most.
    pub drops_only: bool,
    /// Creates the meter, without packets.
    pub new: fn() -> Box<dyn PipeMeter>,
}

macro_rules! meters {
    ($($module:ident,)+) => {
        $(mod $module;)+

        /// Every meter.
        pub static METERS: &[&Meter] = &[$(&$module::FIGURE),+];
    };
}

meters! {
    synchronisation,
}
