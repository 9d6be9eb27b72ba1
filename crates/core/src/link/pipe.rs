//! The pipe: one direction of a link, with a rate, burst credit and a delay line behind a queue.
//!
//! A packet leaves the queue at the start of its transmission slot, occupies the link for
//! `ceil(len * 8e9 / rate)` ns, and is delivered `delay` after the slot's end, as on a wire. The
//! sojourn time therefore excludes the packet's own transmission.
//!
//! A pipe acts at the instants at which something is due, not at those at which it is polled: a
//! late poll processes each event in order and at its own time. So the long-run rate is exact, a
//! spurious poll changes nothing, and a live router and the simulator give the same arrivals the
//! same verdicts. At one instant the order is: arrivals, then timers of AQMs, then the link.
//!
//! If the rate changes during a transmission, the bits that are left pass at the new rate.
//!
//! Burst credit: an idle link saves up to `burst` bytes, which then pass at once, as in a token
//! bucket.
//!
//! Everything else that a link does (framing, a rate that changes, profiles, jitter, reordering) is
//! in its [`Medium`]. Without one, it costs one branch.

use alloc::boxed::Box;
use alloc::collections::BinaryHeap;
use core::cmp::Reverse;

use super::line::Line;
use super::medium::{Medium, RateSource, Transmission};
use super::schedule::Work;
use crate::event::{Backlog, Cx, DropReason};
use crate::packet::Packet;
use crate::params;
use crate::sched::{Discipline, Wake};
use crate::units::{Bytes, Rate, Span, Time};

params! {
    /// Parameters of a pipe.
    pub struct PipeParams {
        /// bits per second on the link
        rate: Rate = Rate(Rate::UNLIMITED), Rate(Rate::from_bps(1)) => Rate(Rate::UNLIMITED), "dummynet: bw 0 is unlimited";
        /// propagation delay after the transmission
        delay: Span = Span(Span::ZERO), Span(Span::ZERO) => Span(Span::from_secs(3600)), "dummynet: 0";
        /// bytes that pass at once after an idle period
        burst: Bytes = Bytes(Bytes::ZERO), Bytes(Bytes::ZERO) => Bytes(Bytes::new(1 << 48)), "dummynet: 0 to 2^48-1";
    }
}

/// A packet that has arrived at the far end.
#[derive(Debug)]
pub struct Departure {
    /// The packet.
    pub packet: Packet,
    /// The due time of the packet there. A host that polls later delivers the packet late.
    pub due: Time,
}

/// A queue, a link and a delay line.
///
/// The fields that every packet needs come first.
#[repr(C)]
pub struct Pipe {
    /// The next due time, so that most calls need not ask the queue; [`Time::MAX`] if there is
    /// none. `None` after the queue was lent out.
    due: Option<Time>,
    /// The last instant that was processed.
    clock: Time,
    /// The instant at which the saved time of the link is used up: the end of the last slot,
    /// without burst credit.
    free_at: Time,
    /// An instant at which the idle link must ask the queue.
    ask_at: Option<Time>,
    queue: Box<dyn Discipline>,
    /// The packet that occupies the link, and when its slot ends.
    on_wire: Option<(Time, Packet)>,
    in_flight: Backlog,
    line: Line,
    params: PipeParams,
    medium: Option<Box<Beyond>>,
}

/// A medium and its state.
struct Beyond {
    medium: Medium,
    /// Whether the packet on the link will not arrive.
    loses_current: bool,
    /// If a schedule gives the rate: the work of the packet on the link, and when it began.
    work: (Time, Work),
    /// The part of the delay line whose packets may overtake others.
    loose: BinaryHeap<Reverse<Loose>>,
    /// Packets that have joined `loose`.
    joined: u64,
}

/// A packet of the delay line that may overtake others. Of two that are due together, the one that
/// left earlier comes first.
struct Loose {
    due: Time,
    order: u64,
    packet: Packet,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Due {
    Timer,
    Link,
}

impl Pipe {
    /// Creates an idle pipe behind `queue`.
    pub fn new(params: &PipeParams, queue: Box<dyn Discipline>) -> Self {
        Pipe {
            params: params.clone(),
            queue,
            on_wire: None,
            free_at: Time::ZERO,
            ask_at: None,
            line: Line::default(),
            in_flight: Backlog::default(),
            clock: Time::ZERO,
            due: None,
            medium: None,
        }
    }

    /// Creates an idle pipe whose link has the effects of `medium`.
    pub fn with_medium(params: &PipeParams, medium: Medium, queue: Box<dyn Discipline>) -> Self {
        let mut pipe = Pipe::new(params, queue);
        pipe.medium = Some(Box::new(Beyond::new(medium)));
        pipe
    }

    /// Enqueues a packet at `cx.now`. [`Pipe::poll`] returns the packets that arrive as a result.
    #[inline]
    pub fn enqueue(&mut self, packet: Packet, cx: &mut Cx<'_>) {
        self.advance(cx, |due, now| due < now);
        self.clock = self.clock.max(cx.now);
        self.queue.enqueue(packet, cx);
        if self.on_wire.is_none() {
            self.ask_at = Some(self.clock);
        }
        self.due = Some(self.first_due());
    }

    /// Processes everything that is due up to `cx.now` and returns the next packet that has arrived
    /// at the far end. Call it until it returns `None`.
    pub fn poll(&mut self, cx: &mut Cx<'_>) -> Option<Departure> {
        if self.due.is_some_and(|due| due > cx.now) {
            return None;
        }
        self.advance(cx, |due, now| due <= now);
        let departure = self.arrived(cx.now);
        self.due = Some(self.first_due());
        departure
    }

    /// Returns the next packet that has arrived at the far end by `now`.
    fn arrived(&mut self, now: Time) -> Option<Departure> {
        let in_order = self.line.first_due();
        let loose = self.medium.as_ref().and_then(|beyond| beyond.next_due());
        let (due, packet) = match (in_order, loose) {
            (Some(a), b) if a <= now && b.is_none_or(|b| a <= b) => self.line.pop()?,
            (_, Some(b)) if b <= now => {
                let Reverse(next) = self.medium.as_mut()?.loose.pop()?;
                (next.due, next.packet)
            }
            _ => return None,
        };
        self.in_flight.remove(&packet);
        Some(Departure { packet, due })
    }

    /// Returns when [`Pipe::poll`] next has something to do.
    pub fn next_wake(&self) -> Wake {
        match self.due.unwrap_or_else(|| self.first_due()) {
            Time::MAX => Wake::OnEnqueue,
            at => Wake::At(at),
        }
    }

    fn first_due(&self) -> Time {
        let mut first = self.next_due().map_or(Time::MAX, |(at, _)| at);
        if let Some(at) = self.line.first_due() {
            first = first.min(at);
        }
        if let Some(at) = self.medium.as_ref().and_then(|beyond| beyond.next_due()) {
            first = first.min(at);
        }
        first
    }

    /// Returns the backlog of the queue.
    pub fn backlog(&self) -> Backlog {
        self.queue.backlog()
    }

    /// Returns the packets and bytes on the link and in the delay line.
    pub fn in_flight(&self) -> Backlog {
        let mut all = self.in_flight;
        if let Some((_, packet)) = &self.on_wire {
            all.add(packet);
        }
        all
    }

    /// Returns the packet that is being transmitted.
    pub fn on_wire(&self) -> Option<&Packet> {
        self.on_wire.as_ref().map(|(_, packet)| packet)
    }

    /// Returns the parameters in force.
    pub const fn params(&self) -> &PipeParams {
        &self.params
    }

    /// Returns the bytes that the pipe holds besides its own size.
    pub(super) fn allocated(&self) -> usize {
        let medium = self.medium.as_ref().map_or(0, |beyond| {
            size_of::<Beyond>() + beyond.loose.capacity() * size_of::<Reverse<Loose>>()
        });
        self.queue.memory() + self.line.allocated() + medium
    }

    /// Returns the queue.
    pub fn queue(&self) -> &dyn Discipline {
        &*self.queue
    }

    /// Returns the queue for changes at `cx.now`: to its classes, or to pull packets out of it.
    pub fn queue_mut(&mut self, cx: &mut Cx<'_>) -> &mut dyn Discipline {
        self.advance(cx, |due, now| due < now);
        &mut *self.queue
    }

    /// Changes rate, delay and burst from `cx.now` on. The rest of a transmission in progress has
    /// the new rate, and no packet overtakes another in the delay line.
    pub fn set_params(&mut self, params: &PipeParams, cx: &mut Cx<'_>) {
        self.advance(cx, |due, now| due < now);
        let rest = self.rest(cx.now);
        self.params = params.clone();
        self.resume(rest, cx.now);
    }

    /// Changes rate, delay and burst, and replaces or removes the medium of the link, from `cx.now`
    /// on. Packets in the delay line stay. Effects draw on from their streams, and those with the
    /// same parameters keep their state.
    pub fn set_link(&mut self, params: &PipeParams, medium: Option<Medium>, cx: &mut Cx<'_>) {
        self.advance(cx, |due, now| due < now);
        let rest = self.rest(cx.now);
        self.params = params.clone();
        match (&mut self.medium, medium) {
            (Some(beyond), medium) => {
                let medium = medium.unwrap_or_else(|| Medium::new(cx.rng));
                let old = core::mem::replace(&mut beyond.medium, medium);
                beyond.medium.go_on_from(old);
            }
            (none, Some(medium)) => *none = Some(Box::new(Beyond::new(medium))),
            (None, None) => {}
        }
        self.resume(rest, cx.now);
    }

    /// Returns what is left at `now` of the transmission in progress; `None` if there is none, or
    /// if it waits for opportunities.
    fn rest(&self, now: Time) -> Option<Work> {
        let (end, _) = self.on_wire.as_ref()?;
        let beyond = self.medium.as_deref();
        match beyond.and_then(|beyond| beyond.medium.rate.as_ref()) {
            Some(RateSource::Opportunities(_)) => None,
            Some(RateSource::Schedule(schedule)) => {
                let (begun, work) = beyond?.work;
                Some(schedule.rest(begun, work, now))
            }
            None => Some(Work::of(self.params.rate, end.since(now))),
        }
    }

    /// Continues the transmission in progress, of which `rest` is left, with the rate in force from
    /// `now` on.
    fn resume(&mut self, rest: Option<Work>, now: Time) {
        let (Some(rest), Some((end, _))) = (rest, &mut self.on_wire) else {
            return;
        };
        if rest == Work::default() {
            return;
        }
        let mut beyond = self.medium.as_deref_mut();
        *end = match beyond.as_mut().and_then(|b| b.medium.rate.as_mut()) {
            Some(RateSource::Opportunities(trace)) => trace.transmit(now, rest.bytes()),
            Some(RateSource::Schedule(schedule)) => schedule.finish(now, rest),
            None => now.saturating_add(rest.span_at(self.params.rate)),
        };
        self.free_at = *end;
        if let Some(beyond) = beyond {
            beyond.work = (now, rest);
        }
    }

    /// Returns the medium, if there is one.
    pub(super) fn medium_mut(&mut self) -> Option<&mut Medium> {
        self.medium.as_mut().map(|beyond| &mut beyond.medium)
    }

    /// Replaces the queue by `queue` at `cx.now` and moves the backlog to it. Packets for which the
    /// new queue has no room go to the sink.
    pub fn replace_queue(&mut self, queue: Box<dyn Discipline>, cx: &mut Cx<'_>) {
        self.advance(cx, |due, now| due < now);
        let mut old = core::mem::replace(&mut self.queue, queue);
        while let Some(packet) = old.pull() {
            self.queue.enqueue(packet, cx);
        }
        if self.on_wire.is_none() {
            self.ask_at = Some(self.clock.max(cx.now));
        }
    }

    /// Replaces the queue by `queue` and returns the old one with its packets.
    pub(super) fn swap_queue(&mut self, queue: Box<dyn Discipline>) -> Box<dyn Discipline> {
        core::mem::replace(&mut self.queue, queue)
    }

    /// Processes the events due before `cx.now`, so that a sink receives all events in the order of
    /// time.
    pub(super) fn catch_up(&mut self, cx: &mut Cx<'_>) {
        self.advance(cx, |due, now| due < now);
    }

    /// Processes, in the order of time, everything for which `is_due` holds.
    fn advance(&mut self, cx: &mut Cx<'_>, is_due: fn(Time, Time) -> bool) {
        let now = cx.now;
        // The caller is about to change something, so the next instant may differ.
        if self.due.take().is_some_and(|due| !is_due(due, now)) {
            return;
        }
        while let Some((at, due)) = self.next_due() {
            if !is_due(at, now) {
                break;
            }
            self.clock = at;
            cx.now = at;
            match due {
                Due::Timer => self.queue.on_timer(cx),
                Due::Link => self.serve(cx),
            }
        }
        cx.now = now;
    }

    fn next_due(&self) -> Option<(Time, Due)> {
        let timer = self.queue.next_timer();
        let link = match (&self.on_wire, self.ask_at) {
            (Some((end, _)), _) => Some(*end),
            (None, Some(at)) => Some(at),
            (None, None) => match self.queue.next_wake() {
                Wake::Now => Some(self.clock),
                Wake::At(at) => Some(at),
                Wake::OnEnqueue => None,
            },
        };
        // Events that became due while there were no calls are processed at the current instant,
        // never earlier.
        match (timer, link) {
            (Some(t), Some(l)) if t <= l => Some((t.max(self.clock), Due::Timer)),
            (_, Some(l)) => Some((l.max(self.clock), Due::Link)),
            (Some(t), None) => Some((t.max(self.clock), Due::Timer)),
            (None, None) => None,
        }
    }

    /// Delivers what the link carried, if anything, and asks the queue once. The link is idle.
    fn serve(&mut self, cx: &mut Cx<'_>) {
        if let Some((end, packet)) = self.on_wire.take() {
            self.launch(end, packet, cx);
        }
        if let Some(source) = self.rate_source() {
            let ready = source.ready_at(cx.now);
            if ready > cx.now {
                self.ask_at = Some(ready);
                return;
            }
        }
        self.ask_at = None;
        if let Some(packet) = self.queue.dequeue(cx) {
            let end = self.transmit(&packet, cx.now);
            self.on_wire = Some((end, packet));
        }
    }

    /// Starts a transmission at `now` and returns when it ends.
    fn transmit(&mut self, packet: &Packet, now: Time) -> Time {
        let mut rate = self.params.rate;
        let mut span = None;
        if let Some(beyond) = &mut self.medium {
            if let Some(RateSource::Opportunities(opportunities)) = &mut beyond.medium.rate {
                return opportunities.transmit(now, beyond.medium.framing.wire_len(packet));
            }
            rate = beyond.medium.rate_at(now, rate);
            let Transmission { span: all, is_lost } = beyond.medium.transmission(packet, rate);
            beyond.loses_current = is_lost;
            span = Some(all);
        }
        let span = span.unwrap_or_else(|| rate.transmission(u64::from(packet.len)));
        let credit = rate.transmission(self.params.burst.as_u64());
        let earliest = Time::from_ns(now.as_ns().saturating_sub(credit.as_ns()));
        let begun = self.free_at.max(earliest);
        self.free_at = begun.saturating_add(span);
        if let Some(beyond) = &mut self.medium
            && let Some(RateSource::Schedule(schedule)) = &mut beyond.medium.rate
        {
            // What the credit pays for has the present rate.
            beyond.work = (begun, Work::of(rate, span));
            if self.free_at > schedule.next_change() {
                self.free_at = schedule.finish(begun, beyond.work.1);
            }
        }
        self.free_at.max(now)
    }

    /// Sends a packet, whose transmission ended at `end`, down the delay line.
    fn launch(&mut self, end: Time, packet: Packet, cx: &mut Cx<'_>) {
        let mut delay = self.params.delay;
        if let Some(beyond) = &mut self.medium {
            if core::mem::replace(&mut beyond.loses_current, false) {
                cx.discard(packet, DropReason::Loss);
                return;
            }
            let flight = beyond.medium.flight(delay);
            if flight.may_overtake {
                self.in_flight.add(&packet);
                beyond.join(end.saturating_add(flight.delay), packet);
                return;
            }
            delay = flight.delay;
        }
        let mut due = end.saturating_add(delay);
        if let Some(last) = self.line.last_due() {
            due = due.max(last);
        }
        self.in_flight.add(&packet);
        self.line.push(due, packet);
    }

    fn rate_source(&mut self) -> Option<&mut RateSource> {
        self.medium.as_mut()?.medium.rate.as_mut()
    }
}

impl Beyond {
    fn new(medium: Medium) -> Self {
        Beyond {
            medium,
            loses_current: false,
            work: (Time::ZERO, Work::default()),
            loose: BinaryHeap::new(),
            joined: 0,
        }
    }

    fn next_due(&self) -> Option<Time> {
        self.loose.peek().map(|Reverse(next)| next.due)
    }

    fn join(&mut self, due: Time, packet: Packet) {
        self.joined += 1;
        self.loose.push(Reverse(Loose {
            due,
            order: self.joined,
            packet,
        }));
    }
}

impl Ord for Loose {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        (self.due, self.order).cmp(&(other.due, other.order))
    }
}

impl PartialOrd for Loose {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Loose {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Loose {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::DropCounter;
    use crate::registry::Spec;
    use crate::rng::Rng;
    use alloc::vec::Vec;

    fn pipe(params: &PipeParams) -> Pipe {
        Pipe::new(params, Spec::parse("fifo").unwrap().build().unwrap())
    }

    /// Feeds `(time, bytes)`, polls at the pipe's own wake-ups, and returns when each packet was
    /// due.
    fn run(pipe: &mut Pipe, arrivals: &[(u64, u32)], extra_polls: &[u64]) -> Vec<u64> {
        let (mut rng, mut sink) = (Rng::from_seed(1), DropCounter::default());
        let mut out = Vec::new();
        let mut calls: Vec<(u64, Option<u32>)> =
            arrivals.iter().map(|(t, b)| (*t, Some(*b))).collect();
        calls.extend(extra_polls.iter().map(|t| (*t, None)));
        calls.sort_by_key(|(t, b)| (*t, b.is_none()));
        for (t, bytes) in calls {
            let mut cx = Cx::new(Time::from_ns(t), &mut rng, &mut sink);
            if let Some(bytes) = bytes {
                let mut packet = Packet::new(0, bytes);
                packet.arrival = Time::from_ns(t);
                pipe.enqueue(packet, &mut cx);
            }
            while let Some(departure) = pipe.poll(&mut cx) {
                out.push(departure.due.as_ns());
            }
        }
        while let Wake::At(at) = pipe.next_wake() {
            let mut cx = Cx::new(at, &mut rng, &mut sink);
            while let Some(departure) = pipe.poll(&mut cx) {
                out.push(departure.due.as_ns());
            }
        }
        out
    }

    const MS: u64 = 1_000_000;

    #[test]
    fn a_packet_is_delivered_after_its_slot_and_the_delay() {
        // 1250 B at 10 Mbit/s take 1 ms. With 5 ms of delay the first packet is due at 6 ms; the
        // second waits for the link and is due at 7 ms.
        let params = PipeParams {
            rate: Rate::from_bps(10_000_000),
            delay: Span::from_ms(5),
            ..PipeParams::default()
        };
        let due = run(&mut pipe(&params), &[(0, 1250), (0, 1250)], &[]);
        assert_eq!(due, [6 * MS, 7 * MS]);
    }

    #[test]
    fn late_and_spurious_polls_change_no_instant() {
        let params = PipeParams {
            rate: Rate::from_bps(8_000_000),
            delay: Span::from_ms(1),
            ..PipeParams::default()
        };
        let arrivals: Vec<(u64, u32)> = (0..50).map(|i| (i * MS / 2, 1000)).collect();
        let plain = run(&mut pipe(&params), &arrivals, &[]);
        let spurious: Vec<u64> = (0..500).map(|i| i * 70_001).collect();
        assert_eq!(run(&mut pipe(&params), &arrivals, &spurious), plain);
        // 1000 B at 8 Mbit/s take 1 ms: 50 packets back to back, delivered 1 ms later.
        let expected: Vec<u64> = (0..50).map(|i| (i + 2) * MS).collect();
        assert_eq!(plain, expected);
    }

    #[test]
    fn an_idle_link_saves_its_burst_credit() {
        // After 100 ms of idleness 3000 B of credit pass at once. The third packet of 1500 B takes
        // its 1.2 ms at 10 Mbit/s.
        let params = PipeParams {
            rate: Rate::from_bps(10_000_000),
            burst: Bytes::new(3000),
            ..PipeParams::default()
        };
        let t = 100 * MS;
        let due = run(&mut pipe(&params), &[(t, 1500), (t, 1500), (t, 1500)], &[]);
        assert_eq!(due, [t, t, t + 1_200_000]);
    }

    #[test]
    fn an_unlimited_pipe_only_delays() {
        let params = PipeParams {
            delay: Span::from_ms(3),
            ..PipeParams::default()
        };
        let due = run(&mut pipe(&params), &[(0, 1500), (0, 1500)], &[]);
        assert_eq!(due, [3 * MS, 3 * MS]);
    }

    #[test]
    fn a_shorter_delay_lets_no_packet_overtake() {
        let mut pipe = pipe(&PipeParams {
            delay: Span::from_ms(10),
            ..PipeParams::default()
        });
        let (mut rng, mut sink) = (Rng::from_seed(1), DropCounter::default());
        let mut cx = Cx::new(Time::ZERO, &mut rng, &mut sink);
        pipe.enqueue(Packet::new(0, 100), &mut cx);
        assert!(pipe.poll(&mut cx).is_none());
        pipe.set_params(&PipeParams::default(), &mut cx);
        cx.now = Time::from_ns(MS);
        pipe.enqueue(Packet::new(1, 100), &mut cx);
        assert!(pipe.poll(&mut cx).is_none());
        cx.now = Time::from_ns(10 * MS);
        let slots: Vec<u32> = core::iter::from_fn(|| pipe.poll(&mut cx))
            .map(|d| d.packet.slot)
            .collect();
        assert_eq!(slots, [0, 1]);
    }
}
