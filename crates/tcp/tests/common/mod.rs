//! A deterministic network of two endpoints for the tests: a link in each direction with a rate, a
//! queue and a delay, and a judge that decides the fate of each segment.
#![allow(dead_code, reason = "each test file uses its own part")]

use sluice_core::{Ecn, Rate, Span, Time};
use sluice_tcp::{Config, Endpoint, Segment};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The fate of a segment in the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Deliver,
    Drop,
    /// Arrives later by this span.
    Late(Span),
    /// Arrives twice, the second time later by this span.
    Twice(Span),
    Mark,
}

/// A segment in flight.
struct InFlight {
    at: Time,
    order: u64,
    to_server: bool,
    segment: Segment,
}

impl PartialEq for InFlight {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}
impl Eq for InFlight {}
impl PartialOrd for InFlight {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for InFlight {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// One line of a trace.
#[derive(Clone, Debug)]
pub struct Line {
    pub at: Time,
    pub to_server: bool,
    pub segment: Segment,
    pub fate: Fate,
}

/// Decides about a segment to the server (true) or to the client.
type Judge<'a> = Box<dyn FnMut(bool, &Segment) -> Fate + 'a>;

/// Client, server and the network between them.
pub struct Net<'a> {
    pub now: Time,
    pub client: Endpoint,
    pub server: Endpoint,
    /// One-way delay.
    pub delay: Span,
    /// Rate towards the server; the other direction is not limited.
    pub rate: Rate,
    /// Segments that the queue holds; more are dropped.
    pub queue_limit: usize,
    free_at: Time,
    departures: std::collections::VecDeque<Time>,
    order: u64,
    air: BinaryHeap<Reverse<InFlight>>,
    judge: Judge<'a>,
    pub trace: Option<Vec<Line>>,
    /// Events handled so far.
    pub events: u64,
    pub queue_drops: u64,
    /// Calls the timeout handlers of both ends at this interval, due or not.
    pub spurious: Option<Span>,
}

impl<'a> Net<'a> {
    pub fn new(
        client: &Config,
        server: &Config,
        delay: Span,
        judge: impl FnMut(bool, &Segment) -> Fate + 'a,
    ) -> Self {
        Net {
            now: Time::ZERO,
            client: Endpoint::client(client).unwrap(),
            server: Endpoint::server(server).unwrap(),
            delay,
            rate: Rate::UNLIMITED,
            queue_limit: usize::MAX,
            free_at: Time::ZERO,
            departures: std::collections::VecDeque::new(),
            order: 0,
            air: BinaryHeap::new(),
            judge: Box::new(judge),
            trace: None,
            events: 0,
            queue_drops: 0,
            spurious: None,
        }
    }

    fn send(&mut self, to_server: bool, mut segment: Segment) {
        let mut fate = (self.judge)(to_server, &segment);
        let mut departure = self.now;
        if to_server && fate != Fate::Drop {
            while self.departures.front().is_some_and(|at| *at <= self.now) {
                self.departures.pop_front();
            }
            if self.departures.len() > self.queue_limit {
                fate = Fate::Drop;
                self.queue_drops += 1;
            } else {
                let transmission = self.rate.transmission(u64::from(segment.ip_len()));
                self.free_at = self.free_at.max(self.now) + transmission;
                departure = self.free_at;
                self.departures.push_back(departure);
            }
        }
        if let Some(trace) = &mut self.trace {
            trace.push(Line {
                at: self.now,
                to_server,
                segment,
                fate,
            });
        }
        let at = departure + self.delay;
        match fate {
            Fate::Drop => {}
            Fate::Deliver => self.put(at, to_server, segment),
            Fate::Late(extra) => self.put(at + extra, to_server, segment),
            Fate::Twice(extra) => {
                self.put(at, to_server, segment);
                self.put(at + extra, to_server, segment);
            }
            Fate::Mark => {
                if segment.ecn != Ecn::NotEct {
                    segment.ecn = Ecn::Ce;
                }
                self.put(at, to_server, segment);
            }
        }
    }

    fn put(&mut self, at: Time, to_server: bool, segment: Segment) {
        self.order += 1;
        self.air.push(Reverse(InFlight {
            at,
            order: self.order,
            to_server,
            segment,
        }));
    }

    /// Lets both ends send what they can.
    pub fn flush(&mut self) {
        while let Some(segment) = self.client.poll_transmit(self.now) {
            self.send(true, segment);
        }
        while let Some(segment) = self.server.poll_transmit(self.now) {
            self.send(false, segment);
        }
    }

    /// Handles the next event; returns false if there is none before `until`.
    pub fn step(&mut self, until: Time) -> bool {
        let arrival = self.air.peek().map_or(Time::MAX, |Reverse(f)| f.at);
        let timer = self.client.next_timeout().min(self.server.next_timeout());
        let next = arrival.min(timer);
        if next > until || next == Time::MAX {
            return false;
        }
        self.events += 1;
        if let Some(interval) = self.spurious {
            while self.now + interval < next {
                self.now += interval;
                self.client.handle_timeout(self.now);
                self.server.handle_timeout(self.now);
                self.flush();
            }
        }
        self.now = self.now.max(next);
        if arrival <= timer {
            let Reverse(flight) = self.air.pop().unwrap();
            if flight.to_server {
                self.server.handle_segment(self.now, &flight.segment);
            } else {
                self.client.handle_segment(self.now, &flight.segment);
            }
        } else {
            self.client.handle_timeout(self.now);
            self.server.handle_timeout(self.now);
        }
        self.flush();
        true
    }

    /// Runs until both ends are closed or `limit` has passed; returns whether they closed.
    pub fn run(&mut self, limit: Time) -> bool {
        self.flush();
        while !(self.client.is_closed() && self.server.is_closed()) {
            if !self.step(limit) {
                return false;
            }
        }
        true
    }

    /// Runs until `until`.
    pub fn run_until(&mut self, until: Time) {
        self.flush();
        while self.step(until) {}
        self.now = until;
    }
}

/// A client that sends `bytes` and closes; the server closes as well.
pub fn transfer<'a>(
    config: &Config,
    bytes: u64,
    delay: Span,
    judge: impl FnMut(bool, &Segment) -> Fate + 'a,
) -> Net<'a> {
    let mut net = Net::new(config, config, delay, judge);
    net.client.open(Time::ZERO);
    net.client.write(bytes);
    net.client.close();
    net.server.close();
    net
}

/// A small generator for drop patterns (xorshift64*).
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

pub const fn secs(s: u64) -> Time {
    Time::from_ns(s * 1_000_000_000)
}
