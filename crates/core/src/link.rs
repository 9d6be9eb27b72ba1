//! Links: everything between a queue and the far end.
//!
//! A [`Link`] applies all effects of a path to a packet, in this order:
//!
//! ```text
//! arrival -> loss -> duplicate -> corrupt -> queue -> driver -> rate, framing, profile -> delay, jitter -> far end
//!            pattern, chain, chance                             (the link is occupied)    reorder
//! ```
//!
//! The effects before the queue apply to packets on their path to the bottleneck, as in netem and
//! in dummynet's `plr`: a lost packet takes no room in the queue and no time on the link. The rest
//! is a [`Pipe`] with its [`Medium`]. A profile's loss comes after its transmission, as in
//! dummynet.
//!
//! Each effect is one file with its parameters. It draws from its own stream of randomness, forked
//! from one seed, and is off unless set. [`LinkParams`] holds the parameters of all effects and
//! parses them from words. [`LinkFiles`] holds what comes from files: a rate that changes, a
//! profile, a table of deviations.

use alloc::boxed::Box;
use alloc::rc::Rc;
use core::cell::Cell;

use crate::aqm::droptail::DropTail;
use crate::event::{Backlog, Cx, DropReason};
use crate::packet::Packet;
use crate::prefetch::Place;
use crate::rng::Rng;
use crate::sched::fifo::{Fifo, FifoParams};
use crate::sched::{Discipline, Wake};
use crate::units::Bytes;

pub mod corrupt;
pub mod driver;
pub mod duplicate;
pub mod gilbert;
pub mod jitter;
mod line;
pub mod loss;
pub mod medium;
pub mod opportunities;
pub mod params;
pub mod pattern;
pub mod pipe;
pub mod profile;
pub mod reorder;
pub mod replay;
pub mod schedule;
pub mod text;

pub use crate::framing::{Cells, FramingParams};
pub use corrupt::CorruptParams;
pub use driver::DriverParams;
pub use duplicate::DuplicateParams;
pub use gilbert::{Gilbert, GilbertParams};
pub use jitter::{Distribution, JitterParams, Table};
pub use loss::{Chance, LossParams};
pub use medium::{Medium, RateSource};
pub use opportunities::Opportunities;
pub use params::{LinkError, LinkErrorKind, LinkFiles, LinkParams};
pub use pattern::{Pattern, PatternParams};
pub use pipe::{Departure, Pipe, PipeParams};
pub use profile::{Profile, ProfileError, ProfileErrorKind};
pub use reorder::ReorderParams;
pub use replay::{Outlet, Replay, ReplayError};
pub use schedule::Schedule;
pub use text::{TextError, TextErrorKind};

use medium::stream;

/// Counters of a link's effects. A super-packet counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounts {
    /// Packets lost before the queue.
    pub lost: u64,
    /// Copies made.
    pub duplicated: u64,
    /// Copies that the host could not make.
    pub uncopied: u64,
    /// Packets with a flipped bit.
    pub corrupted: u64,
}

/// One direction of a link with all its effects.
///
/// The methods are those of a [`Pipe`]. An effect applies to a handle as a whole, so a host splits
/// super-packets before a link with effects.
#[repr(C)]
pub struct Link {
    entry: Option<Box<Entry>>,
    pipe: Pipe,
    /// The limit of the device's queue; `None` if the link never had one.
    driver: Option<driver::Limit>,
    counts: LinkCounts,
}

/// The states of a link's effects and their streams of randomness, of a link that is made again
/// later. See [`Link::effects`].
#[derive(Clone)]
pub struct Effects {
    entry: Option<Box<Entry>>,
    medium: Option<Box<Medium>>,
}

/// The effects before the queue.
#[derive(Clone)]
struct Entry {
    pattern: Pattern,
    gilbert: Option<(Gilbert, Rng)>,
    loss: Option<(Chance, Rng)>,
    duplicate: Option<(Chance, Rng)>,
    corrupt: Option<(Chance, Rng)>,
}

impl Link {
    /// Creates an idle link with `queue`. Its effects draw from streams forked from `rng`.
    pub fn new(
        params: &LinkParams,
        files: LinkFiles,
        queue: Box<dyn Discipline>,
        rng: &Rng,
    ) -> Self {
        let pipe = match params.medium(files, rng) {
            (pipe_params, Some(medium)) => Pipe::with_medium(&pipe_params, medium, queue),
            (pipe_params, None) => Pipe::new(&pipe_params, queue),
        };
        let mut link = Link {
            entry: Entry::new(params, rng),
            pipe,
            driver: None,
            counts: LinkCounts::default(),
        };
        link.set_driver(params.driver.driver);
        link
    }

    /// Enqueues a packet at `cx.now`. [`Link::poll`] returns the packets that arrive as a result.
    // Inlined into the function that fills the packet: a copy would wait for the stores to its
    // fields.
    #[inline]
    pub fn enqueue(&mut self, packet: Packet, cx: &mut Cx<'_>) {
        if self.entry.is_none() {
            self.pipe.enqueue(packet, cx);
        } else {
            self.admit(packet, cx);
        }
    }

    /// Enqueues a packet after the effects at the entry.
    fn admit(&mut self, packet: Packet, cx: &mut Cx<'_>) {
        let Some(entry) = &mut self.entry else {
            self.pipe.enqueue(packet, cx);
            return;
        };
        self.pipe.catch_up(cx);
        if entry.loses() {
            self.counts.lost += 1;
            cx.discard(packet, DropReason::Loss);
            return;
        }
        let mut copy = None;
        if draw(&mut entry.duplicate) {
            copy = cx.copy(&packet);
            match copy {
                Some(_) => self.counts.duplicated += 1,
                None => self.counts.uncopied += 1,
            }
        }
        for packet in core::iter::once(packet).chain(copy) {
            if draw(&mut entry.corrupt)
                && let Some((_, rng)) = &mut entry.corrupt
            {
                let bits = u64::from(packet.len.max(1)) * 8;
                cx.corrupt(&packet, rng.below(bits));
                self.counts.corrupted += 1;
            }
            self.pipe.enqueue(packet, cx);
        }
    }

    /// Processes everything that is due up to `cx.now` and returns the next packet that has arrived
    /// at the far end. Call it until it returns `None`.
    pub fn poll(&mut self, cx: &mut Cx<'_>) -> Option<Departure> {
        self.pipe.poll(cx)
    }

    /// Returns when [`Link::poll`] next has something to do.
    pub fn next_wake(&self) -> Wake {
        self.pipe.next_wake()
    }

    /// Returns the memory that [`Link::enqueue`] will probably need for the next packet of `flow`; see
    /// [`prefetch`](crate::prefetch).
    pub fn places(&self, flow: u32) -> [Place; 4] {
        let queue = self.pipe.queue();
        let [first, second] = queue.places(flow);
        [Place::of(self), Place::of(queue), first, second]
    }

    /// Returns the backlog of the queue.
    pub fn backlog(&self) -> Backlog {
        self.pipe.backlog()
    }

    /// Returns the packets and bytes on the link and in the delay line.
    pub fn in_flight(&self) -> Backlog {
        self.pipe.in_flight()
    }

    /// Returns the packet that is being transmitted.
    pub fn on_wire(&self) -> Option<&Packet> {
        self.pipe.on_wire()
    }

    /// Returns the bytes of memory that the link and its queue hold ([`Discipline::memory`]).
    pub fn memory(&self) -> usize {
        let entry = self.entry.as_ref().map_or(0, |_| size_of::<Entry>());
        size_of::<Self>() + entry + self.pipe.allocated()
    }

    /// Returns the counters of the effects.
    pub const fn counts(&self) -> LinkCounts {
        self.counts
    }

    /// Returns the queue.
    pub fn queue(&self) -> &dyn Discipline {
        self.pipe.queue()
    }

    /// Returns the queue for changes at `cx.now`: to its classes, or to pull packets out of it.
    pub fn queue_mut(&mut self, cx: &mut Cx<'_>) -> &mut dyn Discipline {
        self.pipe.queue_mut(cx)
    }

    /// Changes all parameters from `cx.now` on. Effects draw on from their streams of randomness.
    /// Chains, patterns and correlations restart if their own parameters change. Packets that wait or
    /// are in flight are unaffected; those that the device holds beyond a smaller limit, it sends.
    pub fn set_params(&mut self, params: &LinkParams, files: LinkFiles, cx: &mut Cx<'_>) {
        let rng = cx.rng.fork(stream::LOSS);
        let (pipe_params, medium) = params.medium(files, &rng);
        let mut entry = Entry::new(params, &rng);
        if entry.is_some() || medium.as_ref().is_some_and(Medium::draws) {
            // The next link that is changed gets other streams.
            cx.rng.go_past_fork();
        }
        self.pipe.set_link(&pipe_params, medium, cx);
        if let (Some(entry), Some(old)) = (&mut entry, self.entry.take()) {
            entry.go_on_from(*old);
        }
        self.entry = entry;
        self.set_driver(params.driver.driver);
    }

    /// Changes how many bytes the device holds.
    fn set_driver(&mut self, limit: Bytes) {
        match &self.driver {
            Some(driver) => driver.set(limit.as_u64()),
            None if limit == Bytes::ZERO => {}
            None => {
                self.driver = Some(Rc::new(Cell::new(limit.as_u64())));
                let empty = Box::new(Fifo::new(&FifoParams::default(), DropTail));
                let queue = self.pipe.swap_queue(empty);
                self.pipe.swap_queue(self.behind(queue));
            }
        }
    }

    /// Returns `queue`, followed by the queue of the device if there is one.
    fn behind(&self, queue: Box<dyn Discipline>) -> Box<dyn Discipline> {
        let Some(limit) = &self.driver else {
            return queue;
        };
        let sending = self.on_wire().map_or(0, |packet| u64::from(packet.len));
        Box::new(driver::Driver::new(queue, limit, sending))
    }

    /// Returns the states of the effects; `None` if there is none that draws or counts.
    pub fn effects(&mut self) -> Option<Effects> {
        let medium = self.pipe.medium_mut().filter(|medium| medium.draws());
        let effects = Effects {
            entry: self.entry.clone(),
            medium: medium.map(|medium| Box::new(medium.states())),
        };
        (effects.entry.is_some() || effects.medium.is_some()).then_some(effects)
    }

    /// Lets the effects draw on from the streams of `effects`. Those with the same parameters keep
    /// their state.
    pub fn go_on_from(&mut self, effects: Effects) {
        if let (Some(entry), Some(old)) = (&mut self.entry, effects.entry) {
            entry.go_on_from(*old);
        }
        if let (Some(medium), Some(old)) = (self.pipe.medium_mut(), effects.medium) {
            medium.go_on_from(*old);
        }
    }

    /// Changes rate, delay and burst from `cx.now` on. The effects stay as they are.
    pub fn set_pipe(&mut self, params: &PipeParams, cx: &mut Cx<'_>) {
        self.pipe.set_params(params, cx);
    }

    /// Returns the rate, delay and burst in force.
    pub const fn pipe_params(&self) -> &PipeParams {
        self.pipe.params()
    }

    /// Replaces the queue by `queue` and moves the backlog to it.
    pub fn replace_queue(&mut self, queue: Box<dyn Discipline>, cx: &mut Cx<'_>) {
        self.pipe.catch_up(cx);
        self.pipe.replace_queue(self.behind(queue), cx);
    }
}

impl Effects {
    /// Returns the bytes of memory that they hold.
    pub fn memory(&self) -> usize {
        let entry = self.entry.as_ref().map_or(0, |_| size_of::<Entry>());
        let medium = self.medium.as_ref().map_or(0, |_| size_of::<Medium>());
        size_of::<Self>() + entry + medium
    }
}

impl Entry {
    /// Creates the effects that are on; `None` if all are off.
    fn new(params: &LinkParams, rng: &Rng) -> Option<Box<Self>> {
        let chance = |probability: crate::param::Ratio, correlation, stream| {
            (probability.as_billionths() > 0)
                .then(|| (Chance::new(probability, correlation), rng.fork(stream)))
        };
        let (loss, duplicate, corrupt) = (&params.loss, &params.duplicate, &params.corrupt);
        let entry = Entry {
            pattern: Pattern::new(&params.pattern),
            gilbert: (!params.gilbert.is_off())
                .then(|| (Gilbert::new(&params.gilbert), rng.fork(stream::GILBERT))),
            loss: chance(loss.loss, loss.loss_correlation, stream::LOSS),
            duplicate: chance(
                duplicate.duplicate,
                duplicate.duplicate_correlation,
                stream::DUPLICATE,
            ),
            corrupt: chance(
                corrupt.corrupt,
                corrupt.corrupt_correlation,
                stream::CORRUPT,
            ),
        };
        let is_off = params.pattern.lose_every == 0
            && entry.gilbert.is_none()
            && entry.loss.is_none()
            && entry.duplicate.is_none()
            && entry.corrupt.is_none();
        (!is_off).then(|| Box::new(entry))
    }

    /// Draws on from the streams of `old`. Effects with the same parameters keep their state.
    fn go_on_from(&mut self, old: Entry) {
        self.pattern.go_on_from(old.pattern);
        if let (Some((gilbert, rng)), Some((old, stream))) = (&mut self.gilbert, old.gilbert) {
            gilbert.go_on_from(&old);
            *rng = stream;
        }
        let chances = [
            (&mut self.loss, old.loss),
            (&mut self.duplicate, old.duplicate),
            (&mut self.corrupt, old.corrupt),
        ];
        for chance in chances {
            if let (Some((chance, rng)), Some((old, stream))) = chance {
                chance.go_on_from(old);
                *rng = stream;
            }
        }
    }

    /// Returns whether the next packet is lost. Pattern, chain and independent loss each see every
    /// packet, so that none affects the draws of another.
    fn loses(&mut self) -> bool {
        let by_pattern = self.pattern.loses();
        let by_chain = match &mut self.gilbert {
            Some((gilbert, rng)) => gilbert.loses(rng),
            None => false,
        };
        by_pattern | by_chain | draw(&mut self.loss)
    }
}

fn draw(effect: &mut Option<(Chance, Rng)>) -> bool {
    match effect {
        Some((chance, rng)) => chance.draw(rng),
        None => false,
    }
}
