//! The loop itself.

mod files;
mod handed;
mod substitute;

pub use files::FileTime;

use std::os::fd::BorrowedFd;

use sluice_core::{Cx, Rng, Span, Time};
use sluice_net::Clock;
use sluice_net::guardian::Bridging;
use sluice_net::port::{CacheWarmer, Counters, Interest, Pool, Port, Slot, Spin, Waiter, Watch};
use sluice_wire::frame::FlowHasher;

use self::substitute::Substitute;
use super::{Exchange, Lane, LaneCounts, Lateness, LostFrame, Observer, PortNumber, Queueing};

/// The ports, the memory of their frames, and the lanes between them: everything that one thread
/// forwards.
pub struct Forwarder<P, Q: Queueing, O = ()> {
    ports: Vec<P>,
    pool: Pool,
    lanes: Vec<Lane<Q, O>>,
    /// For each port, the lane that receives its arrivals.
    lane_of: Vec<Option<usize>>,
    /// For each port, the frames to be sent.
    outboxes: Vec<Outbox>,
    waiter: Waiter,
    clock: Clock,
    received: Vec<Slot>,
    /// Ports that may have frames: bit `i` for port `i`.
    ready: u64,
    /// Consecutive turns in which the kernel was not asked which ports are ready.
    unasked: u32,
    /// Keeps the caches warm while the loop is idle.
    warmer: Option<CacheWarmer>,
    /// Whether each port has a share of the pool.
    has_shares: bool,
    /// The exchange with other workers.
    exchange: Option<Exchange>,
    /// What forwards while this hangs.
    substitute: Option<Substitute>,
}

/// The options of a lane.
pub struct LaneOptions<'a> {
    /// The ports whose arrivals the lane receives. No two lanes share a port.
    pub from: &'a [PortNumber],
    /// Seeds the flow hash.
    pub seed: u64,
    /// The random numbers of the queues.
    pub rng: Rng,
}

/// Frames to be sent through one port.
pub(super) struct Outbox {
    slots: Vec<Slot>,
    notes: Vec<Note>,
}

/// The lane of a frame and, unless the frame bypassed the queues, its due time and its length on
/// the link.
struct Note {
    lane: usize,
    due: Option<(Time, u32)>,
}

impl Outbox {
    pub(super) fn new(capacity: usize) -> Self {
        Outbox {
            slots: Vec::with_capacity(capacity),
            notes: Vec::with_capacity(capacity),
        }
    }

    pub(super) fn push(&mut self, slot: Slot, lane: usize, due: Option<(Time, u32)>) {
        self.slots.push(slot);
        self.notes.push(Note { lane, due });
    }

    /// Removes all frames, each with its due time if it was queued.
    #[cfg(test)]
    pub(super) fn drain(&mut self) -> impl Iterator<Item = (Slot, Option<(Time, u32)>)> {
        let dues = self.notes.drain(..).map(|note| note.due);
        self.slots.drain(..).zip(dues)
    }
}

impl<P: Port, Q: Queueing, O: Observer> Forwarder<P, Q, O> {
    /// Creates a forwarder between `ports`, without lanes. Frames that arrive at a port without a
    /// lane stay in the kernel.
    ///
    /// # Panics
    /// For more than 63 ports.
    pub fn new(ports: Vec<P>, pool: Pool, clock: Clock, spin: Spin) -> Self {
        assert!(ports.len() < 64, "readiness is a mask of 64 bits");
        Forwarder {
            lane_of: vec![None; ports.len()],
            outboxes: ports.iter().map(|_| Outbox::new(BATCH)).collect(),
            ports,
            pool,
            lanes: Vec::new(),
            waiter: Waiter::new(spin),
            clock,
            received: Vec::with_capacity(BATCH),
            ready: 0,
            unasked: 0,
            warmer: None,
            has_shares: false,
            exchange: None,
            substitute: None,
        }
    }

    /// Lets packets leave up to `slack` after they are due, so that one turn and one wake-up serve
    /// several. No packet leaves before it is due, and the queues decide as without slack, because
    /// they act at the times at which something is due. A busy-polling loop ([`Spin::Always`])
    /// ignores the slack.
    pub const fn set_slack(&mut self, slack: Span) {
        self.waiter.set_slack(slack);
    }

    /// Keeps a real-time loop from sleeping as an ordinary thread; see [`Waiter::keep_priority`].
    pub const fn keep_priority(&mut self) {
        self.waiter.keep_priority();
    }

    /// Limits the frames from each port to a share of the pool ([`Pool::charge`]), so that a flood
    /// at one port leaves memory for the others.
    pub fn share_pool(&mut self) {
        self.has_shares = true;
    }

    /// Discards frames that kernel bridges between the same ports have forwarded while this loop hung
    /// ([`LostFrame::Bridged`]). Expects a turn every 100 ms at least.
    pub fn resume_after(&mut self, bridging: Bridging) {
        self.substitute = Some(Substitute::new(bridging, self.clock.now()));
    }

    /// Sets what keeps the kernel's send path in the processor's caches while the loop busy-polls
    /// and has nothing to forward.
    pub fn keep_warm(&mut self, warmer: Option<CacheWarmer>) {
        self.warmer = warmer;
    }

    /// Adds a lane that receives the arrivals of some ports. Returns its number.
    ///
    /// # Panics
    /// If another lane receives from one of the ports, or the ports have different link headers.
    pub fn add_lane(&mut self, queueing: Q, observer: O, options: LaneOptions<'_>) -> usize {
        let number = self.lanes.len();
        let links = options.from.iter().map(|from| self.ports[*from].link());
        let link = links
            .reduce(|a, b| {
                assert_eq!(a, b, "the frames of a lane begin with the same header");
                a
            })
            .expect("a lane takes from a port");
        for from in options.from {
            let taken = self.lane_of[*from].replace(number);
            assert!(taken.is_none(), "one lane takes what arrives at a port");
        }
        self.lanes.push(Lane::new(
            queueing,
            observer,
            number,
            options.rng,
            FlowHasher::new(options.seed),
            link,
        ));
        number
    }

    /// Forwards once: receives the frames that have arrived and sends those that are due. Then
    /// waits for more, at most until `until`, and not at all if more have already arrived. The wait
    /// also ends when `also` becomes readable. Returns whether it has.
    pub fn turn(&mut self, until: Option<Time>, also: Option<BorrowedFd<'_>>) -> bool {
        let start = self.clock.now();
        if let Some(substitute) = &mut self.substitute {
            substitute.note_turn(start, &self.clock);
        }
        self.receive_handed();
        self.receive();
        let now = self.clock.now();
        for lane in &mut self.lanes {
            lane.collect(now, &mut self.pool, &mut self.outboxes);
        }
        self.hand_over();
        self.send();
        let due = self.lanes.iter().filter_map(Lane::next_wake).min();
        // What is left of a full batch does not wait.
        let has_paused = self.ready == 0 && self.waiter.pause_after(start, due, &self.clock);
        if self.knows_of_more() {
            return false;
        }
        // Frames left behind by a full batch are received in the next turn, after the other ports
        // had theirs.
        let pending = (self.ready != 0 || has_paused).then_some(Time::ZERO);
        let (looking, look_within) = self.looking();
        let look = look_within.map(|within| now + within);
        let deadline = due
            .into_iter()
            .chain(until)
            .chain(pending)
            .chain(look)
            .min();
        if self.waiter.stays_awake() && self.look_at_ports(deadline) {
            return false;
        }
        if self.exchange.as_mut().is_some_and(|own| !own.sleep()) {
            return false;
        }
        let watch = |descriptor, interest| Watch {
            descriptor,
            interest,
        };
        let ports = self.ports.iter().zip(&self.lane_of).map(|(port, lane)| {
            // Frames that no lane receives would end every wait.
            let interest = lane.map_or(Interest::Nothing, |_| Interest::Readable);
            watch(port.as_fd(), interest)
        });
        let also = also.map(|descriptor| watch(descriptor, Interest::Readable));
        let watches = ports.chain(also);
        let wake = if self.waiter.stays_awake() {
            self.waiter.look_at_any(watches, deadline, &self.clock)
        } else {
            self.waiter.wait_for_any(watches, deadline, &self.clock)
        };
        if let Some(exchange) = &self.exchange {
            exchange.wake_up();
        }
        self.ready |= looking | wake.ready & ((1 << self.ports.len()) - 1);
        wake.ready >> self.ports.len() & 1 == 1
    }

    /// Polls the ports without asking the kernel which of them is ready: the call that finds frames
    /// also receives them. Returns true if frames were received or `deadline` is reached. Returns
    /// false after some rounds, because the other descriptors must be checked too.
    fn look_at_ports(&mut self, deadline: Option<Time>) -> bool {
        let lanes = self.lane_of.iter().enumerate();
        let taken_from = lanes.fold(0, |mask, (number, lane)| {
            mask | u64::from(lane.is_some()) << number
        });
        let mut before = self.clock.now();
        for _ in 0..MOST_LOOKS {
            if self.waiter.owes_rest(before, deadline) {
                return false;
            }
            // Receives before checking the deadline, because a fast pipe always has a packet due.
            self.ready |= taken_from;
            if self.receive() > 0 || self.exchange.as_mut().is_some_and(Exchange::has_waiting) {
                return true;
            }
            let now = self.clock.now();
            // The next round is assumed to take as long as this one, unless that was interrupted.
            let look_takes = now.since(before).min(LONGEST_LOOK);
            if Waiter::spin_if_near(now, deadline, look_takes, &self.clock).is_some() {
                return true;
            }
            let has_sent = match &mut self.warmer {
                Some(warmer) => warmer.send_if_due(now, deadline),
                None => false,
            };
            before = if has_sent { self.clock.now() } else { now };
        }
        false
    }

    /// Returns a mask of the ports that must be called from time to time without being ready, and
    /// the shortest such time.
    fn looking(&self) -> (u64, Option<Span>) {
        let ports = self.ports.iter().enumerate();
        let looking = ports.filter_map(|(number, port)| Some((number, port.looks_within()?)));
        looking.fold((0, None), |(mask, soonest), (number, within)| {
            let soonest = soonest.map_or(within, |soonest: Span| soonest.min(within));
            (mask | 1 << number, Some(soonest))
        })
    }

    /// Calls a lane's queues between turns, for example for a command that changes them.
    pub fn with<T>(&mut self, lane: usize, work: impl FnOnce(&mut Q, &mut Cx<'_>) -> T) -> T {
        let now = self.clock.now();
        self.lanes[lane].with(now, &mut self.pool, work)
    }

    /// Treats a port as ready in the next turn, whatever its descriptor says.
    #[cfg(test)]
    pub(super) const fn look_at(&mut self, port: PortNumber) {
        self.ready |= 1 << port;
    }

    /// Returns the lanes, in the order in which they were added.
    pub fn lanes(&self) -> &[Lane<Q, O>] {
        &self.lanes
    }

    /// Returns the lanes mutably, to take what their observers have collected.
    pub fn lanes_mut(&mut self) -> &mut [Lane<Q, O>] {
        &mut self.lanes
    }

    /// Sets whether super-packets may arrive whole at ports that cannot split them later.
    pub fn let_super_packets_in(&mut self, whole: bool) {
        for port in &mut self.ports {
            port.let_super_packets_in(whole);
        }
    }

    /// Returns the ports.
    pub fn ports(&self) -> &[P] {
        &self.ports
    }

    /// Returns the counters of frames passed and lost at a port.
    pub fn counters(&mut self, port: PortNumber) -> Counters {
        self.ports[port].counters()
    }

    /// Returns the system's answer to the last write, if the file of a port refused it
    /// ([`Playback::write_error`](sluice_net::port::registry::Playback::write_error)).
    pub fn write_error(&mut self, port: PortNumber) -> Option<String> {
        self.ports[port].playback()?.write_error()
    }

    /// Returns the number of requests sent to keep the send path warm; `None` if the loop sends
    /// none.
    pub fn warmth_requests(&mut self) -> Option<u64> {
        self.warmer.as_mut().map(CacheWarmer::requests)
    }

    /// Returns the memory of the frames.
    pub const fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Ends forwarding. Returns the parts and counts of each lane, in order, and each port's
    /// counters.
    pub fn finish(mut self) -> Finished<Q, O> {
        for port in &mut self.ports {
            port.release(&mut self.pool);
        }
        let counters = self.ports.iter_mut().map(Port::counters).collect();
        let lanes = self.lanes.into_iter().map(Lane::into_parts).collect();
        (lanes, counters)
    }

    /// Returns whether a port knows without a system call that frames have arrived, so that the
    /// next turn can start at once. Returns false every few turns, because other descriptors must
    /// be checked too.
    fn knows_of_more(&mut self) -> bool {
        let ports = self.ports.iter().zip(&self.lane_of).enumerate();
        let waiting = ports.filter(|(_, (port, lane))| lane.is_some() && port.has_waiting());
        let waiting = waiting.fold(0, |mask, (number, _)| mask | 1 << number);
        self.ready |= waiting;
        let more = waiting != 0 && self.unasked < MOST_UNASKED;
        self.unasked = if more { self.unasked + 1 } else { 0 };
        more
    }

    /// Receives a batch from every ready port and admits it. Returns the number of frames.
    fn receive(&mut self) -> usize {
        let mut total = 0;
        let ready = std::mem::take(&mut self.ready);
        for (number, port) in self.ports.iter_mut().enumerate() {
            if ready & 1 << number == 0 {
                continue;
            }
            let Some(lane) = self.lane_of[number] else {
                continue;
            };
            let most = port.capabilities().batch;
            let count = port.receive(&mut self.pool, &mut self.received);
            if count == 0 {
                continue;
            }
            total += count;
            if count == most {
                self.ready |= 1 << number;
            }
            if self.has_shares {
                let over = charge(&mut self.received, number, &mut self.pool);
                if over > 0 {
                    let counts = self.lanes[lane].counts_mut();
                    counts.lose_at(number, LostFrame::OverShare, over);
                }
            }
            let now = self.clock.now();
            let substitute = self.substitute.as_mut().map(|substitute| {
                substitute.note_turn(now, &self.clock);
                &*substitute
            });
            self.lanes[lane].expect(&self.received, number, &self.pool);
            for slot in self.received.drain(..) {
                // No arrival may be in the future, whatever a port's stamps say: the queues would
                // wait for it.
                let arrival = self.pool.arrival(slot).map_or(now, |stamp| stamp.min(now));
                let (pool, outboxes) = (&mut self.pool, &mut self.outboxes);
                if substitute.is_some_and(|substitute| substitute.has_forwarded(arrival)) {
                    let counts = self.lanes[lane].counts_mut();
                    counts.lose_at(number, LostFrame::Bridged, 1);
                    pool.free(slot);
                    continue;
                }
                if !self.lanes[lane].is_astray(slot, number, arrival, pool) {
                    self.lanes[lane].admit(slot, number, arrival, pool, outboxes);
                }
            }
        }
        total
    }

    /// Sends the outboxes, and records the lateness of their packets. Packets that wait in the kernel
    /// and were dropped here leave it at once.
    fn send(&mut self) {
        let has_abandoned = self.pool.has_abandoned();
        let outward = self.ports.iter_mut().zip(&mut self.outboxes);
        for (number, (port, outbox)) in outward.enumerate() {
            if outbox.slots.is_empty() && !has_abandoned {
                continue;
            }
            let sent = port.transmit(&mut self.pool, &outbox.slots);
            let now = self.clock.now();
            if let Some(warmer) = &mut self.warmer {
                warmer.note_sent(now);
            }
            for slot in outbox.slots.drain(..).skip(sent) {
                self.pool.free(slot);
            }
            for (index, note) in outbox.notes.drain(..).enumerate() {
                let lane = &mut self.lanes[note.lane];
                if index >= sent {
                    lane.counts_mut().lose_at(number, LostFrame::Blocked, 1);
                    continue;
                }
                lane.counts_mut().sent += 1;
                if let Some((due, len)) = note.due {
                    lane.released(due, len, now);
                }
            }
        }
    }
}

/// Charges received frames to their port, and frees those above its share. Returns their number.
fn charge(received: &mut Vec<Slot>, port: PortNumber, pool: &mut Pool) -> u64 {
    let before = received.len();
    let account = u8::try_from(port).expect("there are fewer than 64 ports");
    received.retain(|slot| {
        let is_charged = pool.charge(*slot, account);
        if !is_charged {
            pool.free(*slot);
        }
        is_charged
    });
    (before - received.len()) as u64
}

/// The result of a [`Forwarder`]: its lanes' parts, and the counters of its ports.
pub type Finished<Q, O> = (Vec<(Q, O, LaneCounts, Lateness)>, Vec<Counters>);

/// Consecutive rounds over the ports in which a busy-polling loop does not ask the kernel: about
/// 0.1 ms.
const MOST_LOOKS: u32 = 64;
/// Polling one port takes less than a microsecond, and there are at most 63.
const LONGEST_LOOK: Span = Span::from_us(50);
/// Consecutive turns in which the kernel is not asked.
const MOST_UNASKED: u32 = 8;
/// Initial capacity of the loop's own lists, in frames.
const BATCH: usize = 256;
