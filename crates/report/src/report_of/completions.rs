//! Completion times: of flows with a fixed size, and of the transfers that other flows started after
//! their warm-up.

use sluice_core::Time;

use super::{quantiles, seconds};
use crate::model::{Cdf, Transfers};
use sluice_recording::{ReadError, Recording, if_recorded};
use sluice_scenario::metric::{FlowSummary, MOST_TRANSFERS, Summary};
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
    for transfer in if_recorded(recording.transfers())?.bounded()? {
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

/// Returns the quantiles for each flow of the scenario that has transfers or pages; those of many flows of
/// one type and direction are taken together.
pub fn by_flow(summary: &Summary) -> Vec<Transfers> {
    let of = |flow: &FlowSummary| Transfers {
        name: flow.name.clone(),
        is_pages: flow.is_pages(),
        direction: flow.way(),
        completion_ms: flow.fct.map(|times| quantiles(times, 1e6)),
        open: flow.open,
    };
    let flows = summary.transfers(MOST_TRANSFERS).into_iter();
    flows.map(of).collect()
}

/// Returns their distribution; `None` if there are none.
pub fn distribution(completions: &[(f64, f64)]) -> Option<Cdf> {
    let cdf = Cdf::of(completions.iter().map(|(_, took_ms)| *took_ms).collect());
    (cdf.count > 0).then_some(cdf)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Direction, Quantiles};
    use sluice_core::Span;
    use sluice_recording::metrics::measure;
    use sluice_recording::testing::recording;
    use sluice_recording::{End, Environment, RunWriter, Transfer};
    use sluice_scenario::{Backend, Scenario};

    #[test]
    fn a_flow_has_the_times_of_its_pages_with_those_that_are_open() {
        let temp = tempfile::tempdir().unwrap();
        let text = "duration = \"10s\"\n[link]\nrate = \"1Mbit/s\"\n[measure]\nwarmup = \"0s\"\n\
            [[flow]]\ntype = \"tcp\"\nname = \"bulk\"\n\
            [[flow]]\ntype = \"web\"\nname = \"pages\"\ninterval = \"1s\"\ncount = 2\n\
            direction = \"down\"\n";
        let variant = Scenario::parse("x.toml", text, &[]).unwrap().remove(0);
        let environment = Environment::here(Backend::Sim, "2026-01-02T03:04:05Z".into());
        let mut writer = RunWriter::create(temp.path(), &variant, &environment).unwrap();
        let pages = [
            (1, 1000, 200, false),
            (1, 2000, 400, false),
            (2, 3000, 600, false),
            (2, 9000, 1000, true),
        ];
        for (seq, (flow, start_ms, took_ms, is_open)) in (0..).zip(pages) {
            let page = Transfer {
                start: Time::from_ns(start_ms * 1_000_000),
                flow,
                seq,
                took: Span::from_ms(took_ms),
                bytes: 100_000,
                open: Some(is_open),
            };
            writer.transfer(&page).unwrap();
        }
        let end = End::complete(Time::from_ns(10_000_000_000));
        let summary = measure(&writer.finish(end).unwrap()).unwrap();
        // Of four times, the second is the median, and the fourth the 95th percentile: 0.95 * 4 = 3.8.
        // Three pages are complete. The bulk flow has no transfers.
        let expected = Transfers {
            name: "pages".into(),
            is_pages: true,
            direction: Direction::Down,
            completion_ms: Some(Quantiles {
                count: 3,
                p50: 400.0,
                p95: 1000.0,
                p99: 1000.0,
                max: 1000.0,
            }),
            open: Some(1),
        };
        assert_eq!(by_flow(&summary), [expected]);
    }

    #[test]
    fn a_transfer_of_a_number_of_bytes_has_its_time() {
        let temp = tempfile::tempdir().unwrap();
        let summary = measure(&recording(temp.path())).unwrap();
        let all = by_flow(&summary);
        let [file] = all.as_slice() else {
            panic!("one flow has a number of bytes: {all:?}");
        };
        // From 1 s to 1.24 s.
        let times = file.completion_ms.unwrap();
        assert_eq!((times.count, times.p50, times.p95), (1, 240.0, 240.0));
        assert_eq!((file.name.as_str(), file.is_pages), ("page", false));
        assert_eq!(file.open, Some(0));
    }

    #[test]
    fn many_flows_of_a_type_and_direction_have_one_entry() {
        let temp = tempfile::tempdir().unwrap();
        let mut summary = measure(&recording(temp.path())).unwrap();
        let file = summary.transfers(8)[0].clone();
        let named = |name: &str| FlowSummary {
            name: name.into(),
            ..file.clone()
        };
        summary.crowds = vec![named("9 flows")];
        // With the first, these are eight.
        let more = ["b", "c", "d", "e", "f", "g", "h"].map(named);
        summary.flows.extend(more);
        assert_eq!(by_flow(&summary).len(), 8);
        summary.flows.push(named("i"));
        let all = by_flow(&summary);
        let names: Vec<&str> = all.iter().map(|flow| flow.name.as_str()).collect();
        assert_eq!(names, ["9 flows"]);
    }
}
