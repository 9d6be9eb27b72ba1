//! The ports of a router, and the time that its loop follows.

use sluice_core::{Span, Time};
use sluice_net::Clock;
use sluice_net::namespace::Namespace;
use sluice_net::port::pcap::{PcapSpec, Speed, check_apart};
use sluice_net::port::registry::{Playback, Sharing, Site};
use sluice_net::port::{Pool, Port, PortSpec, Promiscuity};
use sluice_wire::frame::Link;

use super::{MOST_PORTS, PortChoice, StartError};

/// The ports of a loop.
pub(super) type PortList = Vec<Box<dyn Port + Send>>;

/// What the ports of all workers have in common.
pub(super) struct Ports {
    /// Remarks for the user.
    pub(super) remarks: Vec<String>,
    /// The kind chosen for each port, and the reason.
    pub(super) choices: Vec<PortChoice>,
    pub(super) time: PortTime,
    /// Whether both directions of a flow arrive at the same worker.
    pub(super) keeps_flows: bool,
}

/// The time that the loop follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PortTime {
    /// The machine's time, indefinitely.
    Machine,
    /// The machine's time, until the files end.
    Played,
    /// The time of the files, as fast as possible.
    Files,
}

/// Checks what the ports say by themselves.
pub(super) fn check(ports: &[PortSpec]) -> Result<(), StartError> {
    if ports.is_empty() || !ports.len().is_multiple_of(2) {
        return Err(StartError::Odd(ports.len()));
    }
    if ports.len() > MOST_PORTS {
        return Err(StartError::Many(ports.len()));
    }
    for (place, port) in ports.iter().enumerate() {
        if ports[..place]
            .iter()
            .any(|other| other.argument() == port.argument())
        {
            return Err(StartError::Twice(port.clone()));
        }
    }
    let captures = ports
        .iter()
        .filter(|port| port.kind().is_some_and(|kind| kind.name == "pcap"));
    let files: Vec<PcapSpec> = captures
        .filter_map(|port| port.argument().parse().ok())
        .collect();
    Ok(check_apart(&files)?)
}

/// Opens all ports, or none.
pub(super) fn open(
    specs: &[PortSpec],
    namespace: &Namespace,
    pool: &mut Pool,
    clock: &Clock,
) -> Result<(Ports, PortList), StartError> {
    // One lane serves all ports, so all frames must start with the same header.
    let mut link: Option<(Link, usize)> = None;
    for (number, spec) in specs.iter().enumerate() {
        let Some(own) = spec.link()? else { continue };
        match link {
            None => link = Some((own, number)),
            Some((other, _)) if other == own => {}
            Some((_, first)) => {
                let (other, spec) = (specs[first].clone(), spec.clone());
                return Err(match first / 2 == number / 2 {
                    true => StartError::Unlike(other, spec),
                    false => StartError::Mixed(other, spec),
                });
            }
        }
    }
    let mut site = Site {
        namespace,
        pool,
        clock: *clock,
        link: link.map(|(link, _)| link),
    };
    let mut all: Vec<Box<dyn Port + Send>> = Vec::with_capacity(specs.len());
    let mut choices = Vec::with_capacity(specs.len());
    let mut remarks = Vec::new();
    for spec in specs {
        let opened = spec.open(&mut site)?;
        if let Promiscuity::Refused(why) = opened.port.promiscuity() {
            remarks.push(not_promiscuous(spec, &why));
        }
        all.push(opened.port);
        remarks.extend(opened.remarks);
        choices.push(PortChoice {
            name: spec.to_string(),
            kind: opened.kind.name.to_owned(),
            reason: opened.reason,
            cannot: opened.cannot,
        });
    }
    let time = begin(&mut all, clock);
    let common = Ports {
        remarks,
        choices,
        time,
        keeps_flows: true,
    };
    Ok((common, all))
}

/// Opens all ports for several workers, or none. Each worker receives from the ports of its bridge if
/// `by_bridge`, and from all of them otherwise. Returns the ports of each worker.
pub(super) fn open_groups(
    specs: &[PortSpec],
    namespace: &Namespace,
    clock: &Clock,
    pools: &mut [&mut Pool],
    by_bridge: bool,
) -> Result<(Ports, Vec<PortList>), StartError> {
    let mut of_workers: Vec<PortList> = pools.iter().map(|_| Vec::new()).collect();
    let (mut choices, mut remarks) = (Vec::new(), Vec::new());
    let mut keeps_flows = true;
    for (number, spec) in specs.iter().enumerate() {
        let (sharing, receiver) = match by_bridge {
            true => (Sharing::One(number / 2), number / 2),
            false => (Sharing::Flows, 0),
        };
        let opened = spec.open_group(namespace, *clock, pools, sharing)?;
        keeps_flows &= opened.keeps_flows;
        let receiver = opened.ports.get(receiver).map(|port| port.promiscuity());
        if let Some(Promiscuity::Refused(why)) = receiver {
            remarks.push(not_promiscuous(spec, &why));
        }
        for (ports, port) in of_workers.iter_mut().zip(opened.ports) {
            ports.push(port);
        }
        choices.push(PortChoice {
            name: spec.to_string(),
            kind: opened.kind.name.to_owned(),
            reason: opened.reason,
            cannot: opened.cannot,
        });
    }
    let common = Ports {
        remarks,
        choices,
        time: PortTime::Machine,
        keeps_flows,
    };
    Ok((common, of_workers))
}

fn not_promiscuous(spec: &PortSpec, why: &impl std::fmt::Display) -> String {
    format!(
        "{spec}: the kernel refuses promiscuous mode: {why}. Frames for other addresses than the \
         interface's own may be lost before they reach the router, and no counter shows them"
    )
}

/// Starts all recordings among the ports together. Returns the time that the loop follows.
fn begin(ports: &mut [Box<dyn Port + Send>], clock: &Clock) -> PortTime {
    let count = ports.len();
    let mut played: Vec<&mut dyn Playback> = ports
        .iter_mut()
        .filter_map(|port| port.playback())
        .collect();
    let time = if played.len() < count {
        PortTime::Machine
    } else if played.iter().all(|port| port.speed() == Speed::Full) {
        PortTime::Files
    } else {
        PortTime::Played
    };
    // Captures of one event share a clock.
    let first_ns = played.iter().filter_map(|port| port.first_ns());
    if let Some(first_ns) = first_ns.min() {
        let start = match time {
            PortTime::Files => Time::ZERO,
            PortTime::Machine | PortTime::Played => clock.now() + LEAD,
        };
        for port in &mut played {
            port.begin(first_ns, start);
        }
    }
    time
}

/// Time for the loop to start before the first packet of a file arrives.
const LEAD: Span = Span::from_ms(20);
