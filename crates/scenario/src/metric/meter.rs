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
pub trait PipeMeter {
    /// Counts a packet that left the queue or was dropped after the warm-up. Packets come in the
    /// order of these events.
    fn packet(&mut self, record: &PacketRecord);

    /// Returns the figure in its unit, times in nanoseconds; `None` if nothing was measured.
    fn finish(&mut self) -> Option<f64>;
}

/// The information that a meter has before the first packet.
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
    /// Creates the meter of a run.
    pub new: for<'a> fn(Measured<'a>) -> Box<dyn PipeMeter + 'a>,
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
