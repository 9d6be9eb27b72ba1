//! `synchronisation`: the degree to which flows lose packets together.
//!
//! Source: RFC 7928 section 2.4. An event lasts one round trip of the empty path, and at least 1 ms.

use std::collections::BTreeSet;

use sluice_core::record::{Fate, PacketRecord};
use sluice_core::{Span, Time};

use super::{Measured, Meter, PipeMeter};
use crate::metric::{Chart, Key, MetricDecl, PipeSummary, Unit};
use crate::{FlowInstance, FlowKind};

pub(super) static FIGURE: Meter = Meter {
    figure: MetricDecl {
        name: "synchronisation",
        unit: Unit::Ratio,
        chart: Chart::Packets,
        key: Key::No,
        doc: "share of the bulk TCP flows through the link that lost a packet in the same loss event; the mean over all events, each of which lasts one round trip of the empty path, the shortest of these flows; not with `rules`, whose delays have no such time",
        source: "RFC 7928 section 2.4",
        value: PipeSummary::metered,
    },
    drops_only: true,
    new: || Box::new(Synchronisation::default()),
};

/// Gathers the losses of a direction.
#[derive(Default)]
struct Synchronisation {
    losses: Vec<Loss>,
}

impl PipeMeter for Synchronisation {
    fn packet(&mut self, record: &PacketRecord) {
        if let Fate::Dropped(_) = record.fate {
            self.losses.push((record.at, record.flow));
        }
    }

    fn finish(&mut self, run: &Measured<'_>) -> Option<f64> {
        // The bulk TCP flows through the link in its direction, which send as much as they can.
        let hop = run.pipe.hop();
        let is_bulk = |instance: &FlowInstance<'_>| {
            let kind = &instance.flow.kind;
            run.pipe.direction() == instance.flow.direction
                && run.scenario.hops_of(instance.flow).contains(&hop)
                && matches!(kind, FlowKind::Tcp(tcp) if tcp.bytes.is_none())
        };
        let bulk: Vec<FlowInstance<'_>> = run.scenario.instances().filter(is_bulk).collect();
        let is_active = |flow: &&FlowInstance<'_>, at: Time| {
            let stop = run.to.min(Time::ZERO + flow.stop);
            (Time::ZERO + flow.start..=stop).contains(&at)
        };
        let active = |at| {
            let flows = bulk.iter().filter(|flow| is_active(flow, at));
            flows.map(|flow| flow.id).collect()
        };
        if run.scenario.rules.is_some() {
            return None;
        }
        let empty = |flow: &FlowInstance<'_>| {
            let links = run.scenario.links_rtt(flow.flow);
            links.saturating_add(run.scenario.extra_rtt(flow.flow))
        };
        let shortest = bulk.iter().map(empty).min()?;
        // Two packets lost in the same millisecond are one event on a path without delay.
        let round_trip = shortest.max(Span::from_ms(1));
        synchronisation(&mut self.losses, round_trip, active)
    }
}

/// A dropped packet of a flow.
type Loss = (Time, u32);

/// Returns the global synchronisation ratio (RFC 7928 section 2.4): the mean, over all loss events,
/// of the part of the active flows that lost a packet in the event.
///
/// An event begins with a drop that belongs to no earlier event and lasts `event`, one round trip
/// of the empty path: senders react to all losses within a round trip as to one signal. Losses of a
/// flow that is not `active` do not count. Returns `None` if there was no event with at least two
/// active flows.
fn synchronisation(
    losses: &mut [Loss],
    event: Span,
    active: impl Fn(Time) -> BTreeSet<u32>,
) -> Option<f64> {
    losses.sort_unstable();
    let (mut sum, mut events) = (0.0, 0_u32);
    let mut rest = &losses[..];
    while let Some((begin, _)) = rest.first() {
        let end = begin.saturating_add(event);
        let inside = rest.partition_point(|(at, _)| *at < end).max(1);
        let flows = active(*begin);
        let hit: BTreeSet<u32> = rest[..inside].iter().map(|(_, flow)| *flow).collect();
        let hit = hit.intersection(&flows).count();
        rest = &rest[inside..];
        if flows.len() > 1 && hit > 0 {
            sum += hit as f64 / flows.len() as f64;
            events += 1;
        }
    }
    (events > 0).then(|| sum / f64::from(events))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PipeId;

    #[test]
    fn an_event_lasts_one_round_trip() {
        let at = |ms: u64| Time::from_ns(ms * 1_000_000);
        // Events at 0 ms (flows 0 and 1, twice), 25 ms (flow 2) and 60 ms (all four); 4 flows are
        // active: (2/4 + 1/4 + 4/4) / 3 = 7/12.
        let mut losses: Vec<Loss> = [
            (60, 3),
            (0, 0),
            (5, 1),
            (19, 0),
            (25, 2),
            (60, 0),
            (61, 1),
            (62, 2),
        ]
        .map(|(ms, flow)| (at(ms), flow))
        .into();
        let four = |_| (0..4).collect();
        let ratio = synchronisation(&mut losses, Span::from_ms(20), four).unwrap();
        assert!((ratio - 7.0 / 12.0).abs() < 1e-12, "{ratio}");
        let one = |_| BTreeSet::from([0]);
        assert_eq!(synchronisation(&mut losses, Span::from_ms(20), one), None);
    }

    /// Two flows lose a packet each, 50 ms apart: one event for round trips of 100 ms, whichever
    /// setting makes them so long.
    #[test]
    fn the_round_trip_is_that_of_the_flows() {
        let ratio = |text: &str| {
            let text = format!("duration = \"10s\"\n{text}");
            let scenario = crate::Scenario::parse("x.toml", &text, &[])
                .unwrap()
                .remove(0);
            let mut meter = Synchronisation::default();
            let at = |ms: u64| Time::from_ns(ms * 1_000_000);
            meter.losses = vec![(at(2000), 0), (at(2050), 1)];
            meter.finish(&Measured {
                scenario: &scenario.scenario,
                pipe: crate::Direction::Up.into(),
                from: at(1000),
                to: at(10_000),
            })
        };
        let flow = "[[flow]]\ntype = \"tcp\"\ncount = 2\n";
        let link = "[link]\nrate = \"10Mbit/s\"\n";
        assert_eq!(ratio(&format!("{link}rtt = \"100ms\"\n{flow}")), Some(1.0));
        let of_flows = format!("{link}rtt = \"1ms\"\n{flow}rtt = \"100ms\"\n");
        assert_eq!(ratio(&of_flows), Some(1.0));
        let hops =
            format!("{link}rtt = \"1ms\"\n[[hop]]\nrate = \"10Mbit/s\"\nrtt = \"99ms\"\n{flow}");
        assert_eq!(ratio(&hops), Some(1.0));
        assert_eq!(ratio(&format!("{link}rtt = \"1ms\"\n{flow}")), Some(0.5));
        let rules = "rules = \"\"\"\npipe 1 config bw 10Mbit/s delay 50ms\nadd 1 pipe 1 ip from any to any out\n\"\"\"\n";
        assert_eq!(ratio(&format!("{rules}{flow}")), None);
    }

    /// Two links: flow 0 passes both, flow 1 the first and flow 2 the second.
    #[test]
    fn flows_of_other_links_do_not_count() {
        let text = "duration = \"10s\"\n[link]\nrate = \"10Mbit/s\"\nrtt = \"50ms\"\n\
                    [[hop]]\nrate = \"10Mbit/s\"\nrtt = \"1ms\"\n\
                    [[flow]]\ntype = \"tcp\"\nname = \"both\"\n\
                    [[flow]]\ntype = \"tcp\"\nname = \"first\"\nhops = 1\n";
        let ratio = |text: &str, hop, losses: &[Loss]| {
            let scenario = crate::Scenario::parse("x.toml", text, &[])
                .unwrap()
                .remove(0);
            let mut meter = Synchronisation {
                losses: losses.into(),
            };
            meter.finish(&Measured {
                scenario: &scenario.scenario,
                pipe: PipeId::new(crate::Direction::Up, hop),
                from: Time::ZERO,
                to: Time::from_ns(10_000_000_000),
            })
        };
        let at = |ms: u64| Time::from_ns(ms * 1_000_000);
        let three = format!("{text}[[flow]]\ntype = \"tcp\"\nname = \"second\"\nhops = 2\n");
        // Both flows of the first link lose a packet within its 50 ms: 2/2. The round trip of
        // `second` is 1 ms, and it would be the third flow.
        let both = [(at(2000), 0), (at(2030), 1)];
        assert_eq!(ratio(&three, 0, &both), Some(1.0));
        // Two events of the second link, 1 ms each: 1/2 and 1/2.
        let second = [(at(2000), 0), (at(2030), 2)];
        assert_eq!(ratio(&three, 1, &second), Some(0.5));
        // One flow alone is never synchronised.
        assert_eq!(ratio(text, 1, &[(at(2000), 0)]), None);
    }
}
