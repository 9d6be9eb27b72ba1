//! When flows start, stop and send: datagrams, echoes, pages, and the clocks of applications.

use crate::cargo::{Datagram, Tag};
use crate::config::{Direction, ListedDatagram, Spacing, Traffic};
use crate::observe::{self, Echo, Observer};
use crate::random::exponential;
use crate::simulation::{Simulation, kind};
use sluice_core::{Ecn, Span, Time};
use std::collections::BTreeMap;

/// What a flow's source remembers.
#[derive(Debug, Default)]
pub(crate) struct Source {
    /// Datagrams or requests sent.
    sent: u64,
    /// Those of the present burst, and when it began and ends.
    burst_sent: u64,
    burst_start: Time,
    burst_end: Time,
    /// The connection of a TCP flow, while it is open, and what its application has written.
    pub connection: Option<u32>,
    pub written: u64,
    /// Connections opened so far.
    pub connections: u32,
    pub next_page: u64,
    /// Pages being fetched.
    pub pages: BTreeMap<u64, Page>,
}

/// A page being fetched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Page {
    pub start: Time,
    /// Objects that have not arrived.
    pub objects: u32,
    pub bytes: u64,
}

/// IP and UDP headers; IP and ICMP headers are as long.
const DATAGRAM_HEADERS: u32 = 28;

impl Simulation {
    pub(crate) fn start_flow(&mut self, flow: u32, observer: &mut impl Observer) {
        let now = self.now;
        let state = &mut self.flows[flow as usize];
        if state.is_stopped {
            return;
        }
        match &state.config.traffic {
            Traffic::Tcp(_) => self.open_transfer(flow, observer),
            Traffic::Udp(udp) if udp.listed.is_some() => {
                state.source.burst_start = now;
                self.await_listed(flow);
            }
            Traffic::Udp(udp) => {
                state.source.burst_start = now;
                state.source.burst_end = match udp.spacing {
                    Spacing::Constant | Spacing::Poisson => Time::MAX,
                    Spacing::OnOff { on, .. } => now + on,
                    Spacing::RandomOnOff { on, .. } => now + exponential(&mut state.rng, on),
                };
                self.send_next(flow, observer);
            }
            Traffic::Ping(_) => self.send_request(flow, observer),
            Traffic::Exchange(_) => self.open_exchange(flow, observer),
            Traffic::Web(web) => {
                let wait = exponential(&mut state.rng, web.interval);
                self.schedule(now + wait, kind::SOURCE, flow);
            }
        }
    }

    pub(crate) fn stop_flow(&mut self, flow: u32, observer: &mut impl Observer) {
        self.flows[flow as usize].is_stopped = true;
        self.close_transfer(flow, observer);
    }

    pub(crate) fn handle_source(&mut self, flow: u32, observer: &mut impl Observer) {
        let state = &mut self.flows[flow as usize];
        if state.is_stopped {
            return;
        }
        match &state.config.traffic {
            Traffic::Tcp(tcp) if tcp.repeat.is_some() => self.open_transfer(flow, observer),
            Traffic::Tcp(_) => self.write_more(flow, observer),
            Traffic::Exchange(_) => self.ask_again(flow, observer),
            Traffic::Udp(udp) if udp.listed.is_some() => self.send_listed(flow, observer),
            Traffic::Udp(_) => self.send_next(flow, observer),
            Traffic::Ping(_) => self.send_request(flow, observer),
            Traffic::Web(web) => {
                let wait = exponential(&mut state.rng, web.interval);
                let at = self.now + wait;
                self.schedule(at, kind::SOURCE, flow);
                self.open_page(flow, observer);
            }
        }
    }

    fn send_next(&mut self, flow: u32, observer: &mut impl Observer) {
        let now = self.now;
        let state = &mut self.flows[flow as usize];
        let Traffic::Udp(udp) = &state.config.traffic else {
            return;
        };
        let ip_len = udp.payload + DATAGRAM_HEADERS;
        let (to_server, ecn) = (udp.direction == Direction::Up, udp.ecn);
        let source = &mut state.source;
        let sequence = source.sent;
        source.sent += 1;
        source.burst_sent += 1;
        // Packet i of a burst is due at its start + i * bits / rate, so that no rounding adds up.
        let bits = u128::from(ip_len) * 8_000_000_000;
        let due = |n: u64| {
            let ns = u128::from(n) * bits / u128::from(udp.rate.as_bps());
            Span::from_ns(u64::try_from(ns).unwrap_or(u64::MAX))
        };
        let mut at = match udp.spacing {
            Spacing::Poisson => now + exponential(&mut state.rng, due(1)),
            _ => source.burst_start.saturating_add(due(source.burst_sent)),
        };
        if at >= source.burst_end {
            let (on, off) = match udp.spacing {
                Spacing::RandomOnOff { on, off } => (
                    exponential(&mut state.rng, on),
                    exponential(&mut state.rng, off),
                ),
                Spacing::OnOff { on, off } => (on, off),
                Spacing::Constant | Spacing::Poisson => (Span::MAX, Span::ZERO),
            };
            at = at.max(source.burst_end + off);
            source.burst_start = at;
            source.burst_end = at.saturating_add(on);
            source.burst_sent = 0;
        }
        self.schedule(at, kind::SOURCE, flow);
        let datagram = Datagram {
            sequence,
            sent: now,
            reached: Time::MAX,
        };
        self.send_datagram(flow, to_server, ip_len, ecn, datagram, observer);
    }

    /// The next datagram of a list, and how long after the start it is due.
    fn listed(&self, flow: u32) -> Option<(ListedDatagram, Time)> {
        let state = &self.flows[flow as usize];
        let Traffic::Udp(udp) = &state.config.traffic else {
            return None;
        };
        let number = usize::try_from(state.source.sent).ok()?;
        let datagram = *udp.listed.as_ref()?.get(number)?;
        let due = state.source.burst_start.saturating_add(datagram.after);
        Some((datagram, due))
    }

    fn await_listed(&mut self, flow: u32) {
        if let Some((_, due)) = self.listed(flow) {
            self.schedule(due, kind::SOURCE, flow);
        }
    }

    fn send_listed(&mut self, flow: u32, observer: &mut impl Observer) {
        let Some((listed, _)) = self.listed(flow) else {
            return;
        };
        let state = &mut self.flows[flow as usize];
        let Traffic::Udp(udp) = &state.config.traffic else {
            return;
        };
        let to_server = udp.direction == Direction::Up;
        let datagram = Datagram {
            sequence: state.source.sent,
            sent: self.now,
            reached: Time::MAX,
        };
        state.source.sent += 1;
        self.await_listed(flow);
        let ip_len = listed.payload + DATAGRAM_HEADERS;
        self.send_datagram(flow, to_server, ip_len, listed.ecn, datagram, observer);
    }

    fn send_request(&mut self, flow: u32, observer: &mut impl Observer) {
        let now = self.now;
        let state = &mut self.flows[flow as usize];
        let Traffic::Ping(ping) = &state.config.traffic else {
            return;
        };
        let ip_len = ping.payload + DATAGRAM_HEADERS;
        let sequence = state.source.sent;
        state.source.sent += 1;
        if ping.count.is_none_or(|count| state.source.sent < count) {
            let at = now + ping.interval;
            self.schedule(at, kind::SOURCE, flow);
        }
        let request = Datagram {
            sequence,
            sent: now,
            reached: Time::MAX,
        };
        self.send_datagram(flow, true, ip_len, Ecn::NotEct, request, observer);
    }

    /// A datagram or an echo has arrived at its host.
    pub(crate) fn handle_datagram(
        &mut self,
        tag: &Tag,
        datagram: Datagram,
        observer: &mut impl Observer,
    ) {
        let now = self.now;
        let flow = tag.flow;
        let state = &mut self.flows[flow as usize];
        let ip_len = tag.len - self.frame_overhead;
        let Datagram {
            sequence,
            sent,
            reached,
        } = datagram;
        if !matches!(state.config.traffic, Traffic::Ping(_)) {
            state.totals.bytes_received += u64::from(ip_len - DATAGRAM_HEADERS);
            let arrival = observe::Datagram {
                sequence,
                sent,
                received: now,
                is_marked: tag.ecn == Ecn::Ce,
            };
            observer.on_datagram(flow as usize, &arrival);
        } else if tag.to_server {
            let reply = Datagram {
                reached: now,
                ..datagram
            };
            self.send_datagram(flow, false, ip_len, Ecn::NotEct, reply, observer);
        } else {
            state.totals.completions += 1;
            let echo = Echo {
                sequence,
                sent,
                forward: reached.since(sent),
                round_trip: now.since(sent),
            };
            observer.on_echo(flow as usize, &echo);
        }
    }
}
