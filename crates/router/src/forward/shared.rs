//! One link's rate, shared by workers on several cores.
//!
//! Workers share nothing but the link's time: one word that holds the instant from which the link
//! is free. A worker with a backlog leases a slice of time from that instant, sends in it, and
//! leases the next; its queue, its delay line and its packets are its own. Workers communicate only
//! by one atomic operation per slice.
//!
//! Slices never overlap, so together the workers send exactly as one link would, and
//! - they never send more than the rate allows, over any interval;
//! - a packet waits for at most one slice of each other worker that has a backlog:
//!   [`SharedLink::lease`] times the number of workers;
//! - link time is lost only when a worker's queue drains within its slice and other workers have
//!   leased later slices: at most the rest of the slice each time. Otherwise the rest is returned.
//!
//! Each worker's AQM sees its own queue, as if the link had the share of the rate that the worker
//! gets.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sluice_core::sched::Discipline;
use sluice_core::{Cx, Packet, Rate, Span, Time, Wake};
use sluice_wire::frame::View;

use super::{Departure, Origin, PortNumber, Queueing};

/// The time of one link.
#[derive(Debug)]
pub struct SharedLink {
    rate: Rate,
    delay: Span,
    lease: Span,
    /// The link is free from this instant. Relaxed ordering suffices: the word guards nothing else.
    free_at_ns: AtomicU64,
}

impl SharedLink {
    /// Creates a link of `rate`, whose far end is `delay` away and whose time is leased in slices
    /// of `lease`.
    pub const fn new(rate: Rate, delay: Span, lease: Span) -> Self {
        SharedLink {
            rate,
            delay,
            lease,
            free_at_ns: AtomicU64::new(0),
        }
    }

    /// Returns the length of a slice.
    pub const fn lease(&self) -> Span {
        self.lease
    }

    /// Leases `span` of the link's time, starting at `from` or later. Returns the start of the
    /// slice.
    fn take(&self, from: Time, span: Span) -> Time {
        let start = |free_at: u64| free_at.max(from.as_ns());
        let before = self
            .free_at_ns
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free_at| {
                Some(start(free_at).saturating_add(span.as_ns()))
            })
            .expect("the update never declines");
        Time::from_ns(start(before))
    }

    /// Returns the rest of a slice, if no other worker has leased a later one.
    fn give_back(&self, slice: Slice) {
        let (now, end) = (slice.next.as_ns(), slice.end.as_ns());
        let _ = self
            .free_at_ns
            .compare_exchange(end, now, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Link time that a worker has leased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slice {
    next: Time,
    end: Time,
}

/// A worker's end of a [`SharedLink`]: its queue, and a delay line.
pub struct SharedPipe {
    link: Arc<SharedLink>,
    queue: Box<dyn Discipline>,
    slice: Option<Slice>,
    line: VecDeque<(Time, Packet)>,
    to: PortNumber,
    split_below: Rate,
    /// The last instant that was processed.
    clock: Time,
}

impl SharedPipe {
    /// Creates a worker's end with its own queue; packets leave through port `to`. Super-packets
    /// are split if the link's rate is below `split_below`.
    pub fn new(
        link: Arc<SharedLink>,
        queue: Box<dyn Discipline>,
        to: PortNumber,
        split_below: Rate,
    ) -> Self {
        SharedPipe {
            link,
            queue,
            slice: None,
            line: VecDeque::new(),
            to,
            split_below,
            clock: Time::ZERO,
        }
    }

    /// Returns the queue.
    pub fn queue(&self) -> &dyn Discipline {
        &*self.queue
    }

    /// Returns the packets in flight to the far end.
    pub fn in_flight(&self) -> usize {
        self.line.len()
    }

    /// Processes, in the order of time, the events that are due according to `is_due`.
    fn advance(&mut self, cx: &mut Cx<'_>, is_due: fn(Time, Time) -> bool) {
        let now = cx.now;
        while let Some((at, is_timer)) = self.next_due() {
            if !is_due(at, now) {
                break;
            }
            self.clock = at;
            cx.now = at;
            if is_timer {
                self.queue.on_timer(cx);
            } else {
                self.serve(cx);
            }
        }
        cx.now = now;
    }

    /// Returns the instant of the next event of the queue's timer or the link, and whether it is
    /// the timer's.
    fn next_due(&self) -> Option<(Time, bool)> {
        let timer = self.queue.next_timer();
        let asked = match self.queue.next_wake() {
            Wake::Now => Some(self.clock),
            Wake::At(at) => Some(at),
            Wake::OnEnqueue => None,
        };
        let link = match self.slice {
            // A slice is also processed without a backlog, so that it is given back.
            Some(slice) => Some(asked.map_or(slice.next, |at| at.max(slice.next))),
            None => asked,
        };
        match (timer, link) {
            (Some(timer), link) if link.is_none_or(|link| timer <= link) => {
                Some((timer.max(self.clock), true))
            }
            (_, Some(link)) => Some((link.max(self.clock), false)),
            (_, None) => None,
        }
    }

    /// Uses a slice of the link's time for the next packet, leases one if there is none, and gives
    /// it back if no packet is queued.
    fn serve(&mut self, cx: &mut Cx<'_>) {
        let slice = match self.slice.take() {
            // The slice's time passes whether it is used or not.
            Some(slice) if cx.now < slice.end => Slice {
                next: slice.next.max(cx.now),
                ..slice
            },
            _ => {
                let start = self.link.take(cx.now, self.link.lease);
                let slice = Slice {
                    next: start,
                    end: start + self.link.lease,
                };
                if start > cx.now {
                    self.slice = Some(slice);
                    return;
                }
                slice
            }
        };
        let Some(packet) = self.queue.dequeue(cx) else {
            self.link.give_back(slice);
            return;
        };
        let end = self.transmit(slice, &packet);
        self.line.push_back((end + self.link.delay, packet));
    }

    /// Uses the link's time for a packet, and leases more if the slice is too short. Returns the
    /// instant at which the packet has left.
    fn transmit(&mut self, slice: Slice, packet: &Packet) -> Time {
        let needs = self.link.rate.transmission(u64::from(packet.len));
        let has = slice.end.since(slice.next);
        let slice = if needs <= has {
            Slice {
                next: slice.next + needs,
                ..slice
            }
        } else {
            // The packet continues in the next slice, so that the end of a slice is not lost.
            let rest = needs.saturating_sub(has);
            let span = rest.max(self.link.lease);
            let start = self.link.take(slice.end, span);
            Slice {
                next: start + rest,
                end: start + span,
            }
        };
        self.slice = Some(slice);
        slice.next
    }
}

impl Queueing for SharedPipe {
    type Key = ();

    fn key(&self, _from: Origin, _view: &View, _head: &[u8]) {}

    fn splits(&mut self, _from: PortNumber, (): &(), _at: Time) -> bool {
        self.link.rate < self.split_below
    }

    fn admit(&mut self, packet: Packet, (): &(), cx: &mut Cx<'_>) {
        self.advance(cx, |due, now| due < now);
        self.clock = self.clock.max(cx.now);
        self.queue.enqueue(packet, cx);
    }

    fn poll(&mut self, cx: &mut Cx<'_>) -> Option<Departure> {
        self.advance(cx, |due, now| due <= now);
        self.line.front().filter(|(due, _)| *due <= cx.now)?;
        let (due, packet) = self.line.pop_front()?;
        Some(Departure {
            packet,
            due,
            to: self.to,
        })
    }

    fn next_wake(&self) -> Option<Time> {
        let due = self.next_due().map(|(at, _)| at);
        let line = self.line.front().map(|(at, _)| *at);
        due.into_iter().chain(line).min()
    }

    fn bypass(&self, _from: PortNumber) -> Option<PortNumber> {
        Some(self.to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_core::registry::Spec;
    use sluice_core::{DropCounter, Rng};

    const LEASE: Span = Span::from_us(100);

    /// Workers on a link of 100 Mbit/s: 1250 bytes take 100 us, 125 bytes 10 us.
    struct Workers {
        pipes: Vec<SharedPipe>,
        rng: Rng,
        drops: DropCounter,
    }

    impl Workers {
        fn new(count: usize) -> Self {
            let rate = Rate::from_bps(100_000_000);
            let link = Arc::new(SharedLink::new(rate, Span::ZERO, LEASE));
            let pipe = |_| {
                let queue = Spec::parse("fifo limit 100000").unwrap().build().unwrap();
                SharedPipe::new(Arc::clone(&link), queue, 1, Rate::from_bps(1))
            };
            Workers {
                pipes: (0..count).map(pipe).collect(),
                rng: Rng::from_seed(1),
                drops: DropCounter::default(),
            }
        }

        fn admit(&mut self, worker: usize, at: Time, packets: u32, len: u32) {
            let mut cx = Cx::new(at, &mut self.rng, &mut self.drops);
            for slot in 0..packets {
                self.pipes[worker].admit(Packet::new(slot, len), &(), &mut cx);
            }
        }

        /// Polls every worker at its own wake-ups until `end`. Returns (worker, due, length) in the
        /// order in which packets left.
        fn run(&mut self, end: Time) -> Vec<(usize, Time, u32)> {
            let mut left = Vec::new();
            loop {
                let wakes = self.pipes.iter().enumerate();
                let next = wakes.filter_map(|(worker, pipe)| Some((pipe.next_wake()?, worker)));
                let Some((at, worker)) = next.min().filter(|(at, _)| *at <= end) else {
                    return left;
                };
                let mut cx = Cx::new(at, &mut self.rng, &mut self.drops);
                while let Some(departure) = self.pipes[worker].poll(&mut cx) {
                    left.push((worker, departure.due, departure.packet.len));
                }
            }
        }
    }

    fn ms(ms: u64) -> Time {
        Time::ZERO + Span::from_ms(ms)
    }

    fn bytes(left: &[(usize, Time, u32)], worker: usize) -> u64 {
        let own = left.iter().filter(|(by, _, _)| *by == worker);
        own.map(|(_, _, len)| u64::from(*len)).sum()
    }

    #[test]
    fn together_two_workers_send_at_the_rate_and_equally() {
        let mut workers = Workers::new(2);
        // 600 bytes take 48 us, and no multiple of that fills a slice of 100 us.
        workers.admit(0, Time::ZERO, 20_000, 600);
        workers.admit(1, Time::ZERO, 20_000, 600);
        let left = workers.run(ms(1000));
        // 100 Mbit/s for 1 s are 12.5 MB; each worker may be in the middle of a packet, or wait
        // for the other's slice.
        let sent = [bytes(&left, 0), bytes(&left, 1)];
        let total = sent[0] + sent[1];
        assert!((12_497_000..=12_500_000).contains(&total), "{total}");
        assert!(sent[0].abs_diff(sent[1]) <= 2 * 1250, "{sent:?}");
    }

    #[test]
    fn over_no_interval_is_more_sent_than_the_rate_allows() {
        let mut workers = Workers::new(3);
        for worker in 0..3 {
            workers.admit(worker, Time::ZERO, 300, 125 * (worker as u32 + 1));
            workers.admit(worker, ms(20 + worker as u64), 100, 900);
        }
        let mut left = workers.run(ms(500));
        left.sort_by_key(|(_, due, _)| *due);
        let total: u64 = left.iter().map(|(_, _, len)| u64::from(*len)).sum();
        assert_eq!(
            total,
            300 * (125 + 250 + 375) + 300 * 900,
            "everything is sent"
        );
        // A packet counts when its transmission ends. Bytes that end in (a, b] started later than a
        // minus the longest packet of another worker.
        for (index, (_, start, _)) in left.iter().enumerate() {
            let mut sum = 0;
            for (_, due, len) in &left[index + 1..] {
                sum += u64::from(*len);
                let allowed = Rate::from_bps(100_000_000).bytes_in(due.since(*start));
                assert!(sum <= allowed + 3 * 900, "{sum} bytes in {allowed}");
            }
        }
    }

    #[test]
    fn a_lone_worker_has_the_whole_link() {
        let mut workers = Workers::new(2);
        workers.admit(1, Time::ZERO, 1000, 125);
        let left = workers.run(ms(1000));
        // 125 kB at 100 Mbit/s: 10 ms, with no gap between slices.
        assert_eq!(left.last().map(|(_, due, _)| *due), Some(ms(10)));
    }

    #[test]
    fn the_rest_of_a_slice_is_given_back_if_nobody_waits_behind_it() {
        let mut workers = Workers::new(2);
        workers.admit(0, Time::ZERO, 1, 125);
        workers.run(ms(1));
        // The slice was of 100 us, of which the packet took 10.
        workers.admit(1, Time::ZERO + Span::from_us(10), 1, 125);
        let left = workers.run(ms(2));
        let due = Time::ZERO + Span::from_us(20);
        assert_eq!(left, [(1, due, 125)]);
    }

    #[test]
    fn workers_on_two_threads_never_have_the_same_time() {
        let link = SharedLink::new(Rate::from_bps(1), Span::ZERO, LEASE);
        let slices: Vec<Time> = std::thread::scope(|scope| {
            let lease = || (0..10_000).map(|_| link.take(Time::ZERO, LEASE)).collect();
            let threads: Vec<_> = (0..2)
                .map(|_| scope.spawn(lease))
                .collect::<Vec<std::thread::ScopedJoinHandle<'_, Vec<Time>>>>();
            let joined = threads.into_iter().map(|thread| thread.join().unwrap());
            joined.flatten().collect()
        });
        let mut starts: Vec<u64> = slices.iter().map(|start| start.as_ns()).collect();
        starts.sort_unstable();
        let expected: Vec<u64> = (0..20_000).map(|slice| slice * LEASE.as_ns()).collect();
        assert_eq!(starts, expected);
    }
}
