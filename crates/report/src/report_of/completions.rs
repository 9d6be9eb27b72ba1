//! Completion times: of flows with a fixed size, and of the transfers that other flows started after
//! their warm-up.

use sluice_core::Time;

use super::seconds;
use crate::model::Cdf;
use sluice_recording::{ReadError, Recording, if_recorded};
use sluice_scenario::metric::Summary;
use sluice_scenario::{FlowInstance, Measured};

/// Returns the start in seconds and the completion time in milliseconds of each.
///
/// # Errors
/// The table of transfers cannot be read.
pub fn of(
    recording: &Recording,
    summary: &Summary,
    instances: &[FlowInstance<'_>],
) -> Result<Vec<(f64, f64)>, ReadError> {
    let once = instances.iter().zip(&summary.flows);
    let mut all: Vec<(f64, f64)> = once
        .filter_map(|(instance, figures)| {
            let took = figures.fct_ns? as f64 / 1e6;
            Some((instance.start.as_secs_f64(), took))
        })
        .collect();
    let warmup = recording.run().scenario.measure.warmup;
    for transfer in if_recorded(recording.transfers())? {
        let transfer = transfer?;
        let instance = instances.get(transfer.flow as usize);
        let flow = instance.map(|instance| instance.flow);
        // The transfer of a flow with a fixed size is counted above; exchanges are shown as probes.
        let is_counted = flow
            .is_none_or(|flow| flow.kind.is_sized() || flow.kind.measured() == Measured::Delays);
        let warm = instance.map(|i| Time::ZERO + i.start.saturating_add(warmup));
        if !is_counted && !transfer.is_open() && warm.is_some_and(|warm| transfer.start >= warm) {
            all.push((seconds(transfer.start), transfer.took.as_ms_f64()));
        }
    }
    Ok(all)
}

/// Returns their distribution; `None` if there are none.
pub fn distribution(completions: &[(f64, f64)]) -> Option<Cdf> {
    let cdf = Cdf::of(completions.iter().map(|(_, took_ms)| *took_ms).collect());
    (cdf.count > 0).then_some(cdf)
}
