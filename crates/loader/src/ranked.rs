//! A push-in queue whose ranks are computed by an algorithm from a file.

use std::cell::Cell;
use std::rc::Rc;

use sluice_core::event::{Backlog, StateValue};
use sluice_core::sched::push_in::PushIn;
use sluice_core::sched::rank::{Place, Rank};
use sluice_core::{Cx, Discipline, Packet, Time, Wake};

/// Ranks the packets of one queue. The backlogs that it gets are without the packet in question.
pub trait Ranks {
    /// Returns the place of a packet that arrives, or `None` after an error.
    fn place(&mut self, packet: &Packet, queue: Backlog, cx: &mut Cx<'_>) -> Option<Place>;

    /// Called when the packet was accepted with `rank`.
    fn accepted(&mut self, packet: &Packet, rank: u64, queue: Backlog, cx: &mut Cx<'_>);

    /// Called when the packet, which had `rank`, leaves.
    fn left(&mut self, packet: &Packet, rank: u64, queue: Backlog, cx: &mut Cx<'_>);

    /// Returns the bytes that the ranks have allocated besides their own size.
    fn memory(&self) -> usize;

    /// Visits the variables.
    fn state(&self, visit: &mut dyn FnMut(&'static str, StateValue));
}

/// What happens to the packets when the ranks are stopped by an error.
pub const CONSEQUENCE_FOR_RANKS: &str =
    "packets that arrive from now on leave in the order of their arrival, after those with a rank";

/// The queue of `pifo` and `pieo`, with the ranks of `R`.
pub struct Ranked<R> {
    queue: PushIn<Noted>,
    note: Rc<Note>,
    ranks: R,
}

/// What the push-in queue and the ranks pass to each other about the packet of the call.
#[derive(Default)]
struct Note {
    /// The place of the arriving packet.
    place: Cell<Option<Place>>,
    is_accepted: Cell<bool>,
    /// The rank of the packet that left, unless it has none.
    left: Cell<Option<u64>>,
}

/// The place of the packet, which is computed before the queue gets it: only then is there a
/// context.
struct Noted(Rc<Note>);

impl Rank for Noted {
    fn place(&self, _packet: &Packet, _now: Time) -> Place {
        self.0.place.get().unwrap_or(LAST)
    }

    fn accepted(&mut self, _packet: &Packet, _place: Place) {
        self.0.is_accepted.set(true);
    }

    fn left(&mut self, _packet: &Packet, rank: u64) {
        self.0.left.set(Some(rank));
    }
}

/// The place of a packet that has no rank.
const LAST: Place = Place::now(u64::MAX);

impl<R: Ranks> Ranked<R> {
    /// Creates an empty queue for `limit` wire packets.
    pub fn new(limit: u64, ranks: R) -> Self {
        let note = Rc::default();
        Ranked {
            queue: PushIn::new(limit, Noted(Rc::clone(&note))),
            note,
            ranks,
        }
    }
}

impl<R: Ranks> Discipline for Ranked<R> {
    fn enqueue(&mut self, packet: Packet, cx: &mut Cx<'_>) {
        let place = self.ranks.place(&packet, self.queue.backlog(), cx);
        self.note.place.set(place);
        self.note.is_accepted.set(false);
        let arrived = Packet { ..packet };
        self.queue.enqueue(packet, cx);
        if let Some(place) = place.filter(|_| self.note.is_accepted.get()) {
            let mut others = self.queue.backlog();
            others.remove(&arrived);
            self.ranks.accepted(&arrived, place.rank, others, cx);
        }
    }

    fn dequeue(&mut self, cx: &mut Cx<'_>) -> Option<Packet> {
        let packet = self.queue.dequeue(cx)?;
        if let Some(rank) = self.note.left.take() {
            self.ranks.left(&packet, rank, self.queue.backlog(), cx);
        }
        Some(packet)
    }

    fn next_wake(&self) -> Wake {
        self.queue.next_wake()
    }

    fn pull(&mut self) -> Option<Packet> {
        self.queue.pull()
    }

    fn backlog(&self) -> Backlog {
        self.queue.backlog()
    }

    fn memory(&self) -> usize {
        size_of::<Self>() - size_of_val(&self.queue)
            + size_of::<Note>()
            + self.queue.memory()
            + self.ranks.memory()
    }

    fn state(&self, visit: &mut dyn FnMut(u32, &'static str, StateValue)) {
        self.ranks.state(&mut |name, value| visit(0, name, value));
    }
}

#[cfg(test)]
mod tests {
    use sluice_core::{DropCounter, Rng};

    use super::*;

    /// Ranks by the class; none for class 9. Notes what it is called with.
    #[derive(Default)]
    struct ByClass(Rc<std::cell::RefCell<Vec<String>>>);

    impl Ranks for ByClass {
        fn place(&mut self, packet: &Packet, queue: Backlog, _cx: &mut Cx<'_>) -> Option<Place> {
            let class = packet.class;
            self.0
                .borrow_mut()
                .push(format!("place {class} beside {}", queue.packets));
            (class != 9).then(|| Place::now(u64::from(class)))
        }
        fn accepted(&mut self, packet: &Packet, rank: u64, queue: Backlog, _cx: &mut Cx<'_>) {
            let (slot, others) = (packet.slot, queue.packets);
            self.0
                .borrow_mut()
                .push(format!("accepted {slot} at {rank} beside {others}"));
        }
        fn left(&mut self, packet: &Packet, rank: u64, queue: Backlog, _cx: &mut Cx<'_>) {
            let (slot, others) = (packet.slot, queue.packets);
            self.0
                .borrow_mut()
                .push(format!("left {slot} at {rank} beside {others}"));
        }
        fn memory(&self) -> usize {
            100_000
        }
        fn state(&self, _visit: &mut dyn FnMut(&'static str, StateValue)) {}
    }

    #[test]
    fn the_memory_is_that_of_the_ranks_and_of_the_packets() {
        let mut queue = Ranked::new(1000, ByClass::default());
        let empty = queue.memory();
        assert!(empty > 100_000, "{empty}");
        let (mut rng, mut dropped) = (Rng::from_seed(1), DropCounter::default());
        let mut cx = Cx::new(Time::ZERO, &mut rng, &mut dropped);
        for slot in 0..1000 {
            queue.enqueue(Packet::new(slot, 100), &mut cx);
        }
        let held = queue.memory() - empty;
        assert!(held >= 1000 * size_of::<Packet>(), "{held}");
    }

    #[test]
    fn the_lowest_rank_leaves_first_and_the_ranks_hear_of_it() {
        let ranks = ByClass::default();
        let said = Rc::clone(&ranks.0);
        let mut queue = Ranked::new(2, ranks);
        let (mut rng, mut dropped) = (Rng::from_seed(1), DropCounter::default());
        let mut cx = Cx::new(Time::ZERO, &mut rng, &mut dropped);
        // The third finds the queue full and has the highest rank. The last one has none.
        for (slot, class) in [(0, 5), (1, 2), (2, 7)] {
            let mut packet = Packet::new(slot, 100);
            packet.class = class;
            queue.enqueue(packet, &mut cx);
        }
        assert_eq!(queue.dequeue(&mut cx).map(|p| p.slot), Some(1));
        let mut without = Packet::new(3, 100);
        without.class = 9;
        queue.enqueue(without, &mut cx);
        let left: Vec<u32> =
            std::iter::from_fn(|| queue.dequeue(&mut cx).map(|p| p.slot)).collect();
        assert_eq!(left, [0, 3]);
        assert_eq!(
            *said.borrow(),
            [
                "place 5 beside 0",
                "accepted 0 at 5 beside 0",
                "place 2 beside 1",
                "accepted 1 at 2 beside 1",
                "place 7 beside 2",
                "left 1 at 2 beside 1",
                "place 9 beside 1",
                "left 0 at 5 beside 1",
                &format!("left 3 at {} beside 0", u64::MAX),
            ]
        );
    }
}
