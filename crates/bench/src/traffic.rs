//! The traffic of a bench and its measurements.

use rustix::time::{ClockId, clock_gettime};
use sluice_core::{Rate, Span, Stop, Time};
use sluice_load::Running;
use sluice_load::bulk::Bulk;
use sluice_load::ping::{Ping, PingReport};
use sluice_load::tcp::{Goodput, TcpFlow, TcpReport, TcpSettings};
use sluice_load::udp::{UdpFlow, UdpReport};
use sluice_net::Clock;

use super::BenchError;
use super::network::{H2, H3, Network};
use super::statistics::{median, quantile, slope};

/// The joint measurements of concurrent transfers.
pub struct Transfers {
    /// The payload that arrived, bits per second, over the same time for all flows.
    pub bps: f64,
    /// The same for each flow.
    pub each_bps: Vec<f64>,
    /// The rate of all flows as the slope of a line through the bytes that had arrived every 10 ms.
    pub line_bps: f64,
    /// Processor time of the process, which is both hosts and the forwarder, per payload bit.
    pub cpu_s_per_bit: f64,
    /// Round trips of a ping during the transfers in microseconds, sorted.
    pub ping_us: Vec<f64>,
}

/// The threads that serve the flows of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hosts {
    /// One thread serves all flows, as in common load generators: this measures the path.
    OneThread,
    /// Each flow has a thread, so that the hosts use every core beside the router.
    ThreadPerFlow,
}

/// Runs `flows` transfers of congestion control `cc` and a ping at the same time, for `length`
/// after a warm-up that is not counted.
pub fn transfers(
    network: &Network,
    hosts: Hosts,
    cc: &str,
    flows: usize,
    warm_up: Span,
    length: Span,
    interrupt: &Stop,
) -> Result<Transfers, BenchError> {
    let clock = Clock::start();
    let start = Time::ZERO + LEAD;
    let (from, to) = (start + warm_up, start + warm_up + length);
    let ping = Ping {
        stop: Some(to),
        linger: LINGER,
        ..Ping::new(H2, H3, Span::from_ms(5), from)
    };
    let ping = ping.start(&network.h2, &network.h3, &clock, interrupt)?;
    let cpu = process_seconds();
    let goodput: Vec<Vec<Goodput>> = match hosts {
        Hosts::OneThread => {
            let bulk = Bulk {
                congestion_control: Some(cc.to_owned()),
                ..Bulk::new(H2, H3, flows, start, to + OVERRUN)
            };
            let running = bulk.start(&network.h2, &network.h3, &clock, interrupt)?;
            running.join()?.goodput
        }
        Hosts::ThreadPerFlow => {
            let flow = TcpFlow {
                tcp: TcpSettings::with_congestion_control(cc),
                stop: Some(to + OVERRUN),
                ..TcpFlow::new(H2, H3, start)
            };
            let running = (0..flows)
                .map(|_| flow.start(&network.h2, &network.h3, &clock, interrupt))
                .collect::<Result<Vec<Running<TcpReport>>, _>>()?;
            let reports = running.into_iter().map(Running::join);
            reports
                .map(|report| Ok(report?.goodput))
                .collect::<Result<_, BenchError>>()?
        }
    };
    let cpu = process_seconds() - cpu;
    let ping = ping.join()?;
    let last = goodput.iter().filter_map(|notes| notes.last());
    let total: u64 = last.map(|note| note.bytes).sum();
    let each_bps: Vec<f64> = goodput
        .iter()
        .map(|notes| (bytes_at(notes, to) - bytes_at(notes, from)) * 8.0 / length.as_secs_f64())
        .collect();
    let instants = (0..=length.as_ns() / EVERY.as_ns()).map(|step| from + EVERY * step);
    let arrived = instants.map(|time| {
        let bytes: f64 = goodput.iter().map(|notes| bytes_at(notes, time)).sum();
        (time.since(from).as_secs_f64(), bytes)
    });
    Ok(Transfers {
        bps: each_bps.iter().sum(),
        line_bps: slope(&arrived.collect::<Vec<_>>()) * 8.0,
        each_bps,
        cpu_s_per_bit: cpu / (total.max(1) as f64 * 8.0),
        ping_us: round_trips_us(&ping),
    })
}

/// Returns the payload that had arrived by `time`, interpolated between two samples. Rates of flows
/// may be added only if they cover the same time, which the flows' own first and last samples do
/// not.
fn bytes_at(notes: &[Goodput], time: Time) -> f64 {
    let next = notes.partition_point(|note| note.time < time);
    match (next.checked_sub(1).map(|last| notes[last]), notes.get(next)) {
        (Some(a), Some(b)) => {
            let share = time.since(a.time).as_secs_f64() / b.time.since(a.time).as_secs_f64();
            a.bytes as f64 + (b.bytes - a.bytes) as f64 * share
        }
        (Some(a), None) => a.bytes as f64,
        (None, _) => 0.0,
    }
}

/// Returns the median round trip of an idle network in microseconds.
pub fn idle_ping_us(network: &Network, interrupt: &Stop) -> Result<f64, BenchError> {
    let clock = Clock::start();
    let start = Time::ZERO + LEAD;
    let ping = Ping {
        stop: Some(start + Span::from_ms(400)),
        linger: LINGER,
        ..Ping::new(H2, H3, Span::from_ms(4), start)
    };
    let report = ping
        .start(&network.h2, &network.h3, &clock, interrupt)?
        .join()?;
    Ok(median(&round_trips_us(&report)))
}

/// The measurements of a flood.
#[derive(Clone, Copy, Debug)]
pub struct Flood {
    /// Packets delivered per second.
    pub pps: f64,
    /// The share of the packets that were lost on the path, and not at either end.
    pub loss: f64,
}

/// Sends packets of `size` bytes at `pps`, or with `None` as fast as one thread can.
pub fn flood(
    network: &Network,
    size: usize,
    pps: Option<f64>,
    length: Span,
    interrupt: &Stop,
) -> Result<Flood, BenchError> {
    // The sender sends everything that is due, so a flood takes longer if the sender cannot keep
    // up.
    let rate = Rate::from_bps((pps.unwrap_or(FLOOD_PPS) * size as f64 * 8.0) as u64);
    let flow = UdpFlow {
        sample_every: SAMPLED,
        ..udp_flow(size, rate, length)
    };
    let report = udp(network, &flow, interrupt)?;
    let offered = (report.sent - report.refused - report.overflowed).max(1) as f64;
    let arrivals = report.samples.iter().filter_map(|sample| sample.received);
    let took = match (arrivals.clone().min(), arrivals.max()) {
        (Some(first), Some(last)) if last > first => last.since(first),
        _ => length,
    };
    Ok(Flood {
        pps: (report.received + report.overflowed) as f64 / took.as_secs_f64(),
        loss: (1.0 - report.received as f64 / offered).max(0.0),
    })
}

/// A flow of packets of `size` bytes, IP header included, at `rate`.
pub fn udp_flow(size: usize, rate: Rate, length: Span) -> UdpFlow {
    let start = Time::ZERO + LEAD;
    UdpFlow {
        stop: Some(start + length),
        linger: LINGER,
        ..UdpFlow::new(H2, H3, rate, size - UDP_HEADERS, start)
    }
}

/// Sends a flow and returns what arrived.
pub fn udp(network: &Network, flow: &UdpFlow, interrupt: &Stop) -> Result<UdpReport, BenchError> {
    let clock = Clock::start();
    let running = flow.start(&network.h2, &network.h3, &clock, interrupt)?;
    Ok(running.join()?)
}

/// Returns round trips in microseconds, sorted.
fn round_trips_us(report: &PingReport) -> Vec<f64> {
    let mut all: Vec<f64> = report
        .samples
        .iter()
        .filter_map(|sample| Some(sample.round_trip?.as_ns() as f64 / 1e3))
        .collect();
    all.sort_by(f64::total_cmp);
    all
}

/// Returns median and 99th percentile of sorted values.
pub fn p50_p99(sorted: &[f64]) -> (f64, f64) {
    (quantile(sorted, 0.5), quantile(sorted, 0.99))
}

/// Returns the processor time of this process so far, in seconds.
pub fn process_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Interval between the samples through which the line is drawn.
const EVERY: Span = Span::from_ms(10);
/// Time for the kernel to switch its timestamps on.
const LEAD: Span = Span::from_ms(100);
/// Transfers continue for this long after the counted time: two samples of a rate are 10 ms apart,
/// and the rate must be the same between those around the end.
const OVERRUN: Span = Span::from_ms(20);
/// The time to wait for the last packets.
const LINGER: Span = Span::from_ms(200);
/// Rates above the limit of one thread that sends packet by packet.
const FLOOD_PPS: f64 = 800_000.0;
/// In a flood, one packet of this number reports its arrival time.
const SAMPLED: u64 = 64;
/// Bytes of the headers of IPv4 and UDP.
const UDP_HEADERS: usize = 28;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_between_two_notes_are_in_proportion() {
        let note = |ms, bytes| Goodput {
            time: Time::ZERO + Span::from_ms(ms),
            bytes,
        };
        let notes = [note(10, 100), note(30, 300)];
        let at = |ms| bytes_at(&notes, Time::ZERO + Span::from_ms(ms));
        assert_eq!([at(5), at(15), at(40)], [0.0, 150.0, 300.0]);
    }
}
