//! Storage of the queues that have seen a packet: in a short list, or in pages.
//!
//! Of the 1024 queues of a subscriber's link rarely more than a few have seen a packet. The first
//! [`FEW`] are in a list, and their numbers are stored with the discipline. A packet on a link that
//! is in no cache fetches one line of the list, and the link takes hundreds of bytes instead of 64
//! KiB. Beyond that, queues are in pages, which are allocated with their first packet. A queue
//! reached through its page costs one more load, of a pointer that stays in the cache.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::pool::NONE;
use super::queue::Queue;
use crate::aqm::FlowAqm;
use crate::sched::allocated;

/// Queues without pages.
const FEW: usize = 8;

/// Queues per page: one page of CoDel queues is 1 KiB.
const PAGE: usize = 16;

/// All queues of a discipline, by number.
#[repr(C)]
pub(super) struct Queues<A: FlowAqm> {
    len: u32,
    /// Mask for a flow's hash: all ones, unless the number of queues is a power of two.
    mask: u32,
    /// The number of the queue that was changed last and its place in `few`. The next queue is
    /// usually the same.
    last: (u32, u32),
    few: Vec<Queue<A>>,
    /// Empty as long as the few are not too many.
    pages: Vec<Option<Box<[Queue<A>; PAGE]>>>,
    /// The numbers of those in `few`.
    numbers: [u16; FEW],
    params: Arc<A::Shared>,
}

impl<A: FlowAqm> Queues<A> {
    /// Creates `len` queues, none of which takes memory yet.
    pub(super) fn new(len: usize, params: Arc<A::Shared>) -> Self {
        Queues {
            len: len as u32,
            mask: match len.is_power_of_two() {
                true => len as u32 - 1,
                false => u32::MAX,
            },
            few: Vec::new(),
            last: (u32::MAX, 0),
            numbers: [0; FEW],
            pages: Vec::new(),
            params,
        }
    }

    /// Returns the bytes that have been allocated.
    pub(super) fn memory(&self) -> usize {
        let pages = self.pages.iter().flatten().count();
        // What an AQM has allocated is the same in all queues.
        let any = self
            .few
            .first()
            .or_else(|| Some(&self.pages.iter().flatten().next()?[0]));
        let of_aqm = any.map_or(0, |queue| queue.aqm.memory());
        allocated(&self.few)
            + allocated(&self.pages)
            + pages * size_of::<[Queue<A>; PAGE]>()
            + (self.few.len() + pages * PAGE) * of_aqm
    }

    /// Returns the number of queues.
    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns the parameters that the AQMs share.
    pub(super) const fn params(&self) -> &Arc<A::Shared> {
        &self.params
    }

    /// Returns the queue of a flow.
    #[inline]
    pub(super) fn number(&self, flow: u32) -> u32 {
        let number = flow & self.mask;
        if number < self.len {
            number
        } else {
            number % self.len
        }
    }

    /// Returns whether too many queues have seen a packet for a list.
    #[inline]
    pub(super) fn are_many(&self) -> bool {
        !self.pages.is_empty()
    }

    /// Returns whether the queue may be missing from the few.
    #[inline]
    pub(super) fn may_lack(&self, queue: u32) -> bool {
        queue as usize / PAGE >= self.pages.len() && self.last.0 != queue
    }

    /// Finds a queue among the few or adds it. Returns `false` if they are too many.
    pub(super) fn ensure(&mut self, queue: usize) -> bool {
        let place = self.place(queue).or_else(|| self.add(queue));
        if let Some(at) = place {
            self.last = (queue as u32, at as u32);
        }
        place.is_some()
    }

    /// Returns the one of the few that holds packets and has the largest weight; of equal ones the
    /// lowest number.
    pub(super) fn fattest_of_few(&self, weight: impl Fn(&Queue<A>) -> u64) -> u32 {
        let few = self.numbers.iter().zip(&self.few);
        let fattest = few
            .filter(|(_, queue)| queue.head != NONE)
            .max_by_key(|(number, queue)| (weight(queue), u16::MAX - **number));
        let (number, _) = fattest.expect("somebody holds packets");
        u32::from(*number)
    }

    /// Moves the few into pages and returns their numbers.
    pub(super) fn spread(&mut self) -> [u16; FEW] {
        let pages = self.len().div_ceil(PAGE);
        self.pages.resize_with(pages, || None);
        for (number, queue) in self.numbers.iter().zip(core::mem::take(&mut self.few)) {
            let page = &mut self.pages[usize::from(*number) / PAGE];
            let page = page.get_or_insert_with(|| make_page(&self.params));
            page[usize::from(*number) % PAGE] = queue;
        }
        self.numbers
    }

    /// Returns the place of a queue among the few.
    #[inline(never)]
    fn place(&self, queue: usize) -> Option<usize> {
        let numbers = &self.numbers[..self.few.len()];
        numbers.iter().position(|n| usize::from(*n) == queue)
    }

    /// Adds a queue to the few. Returns its place, or `None` if they are too many.
    #[cold]
    fn add(&mut self, queue: usize) -> Option<usize> {
        if self.few.len() == FEW {
            return None;
        }
        if self.few.is_empty() {
            // Of very many links, most have one flow at a time, so this allocates room for one
            // queue, not for four.
            self.few.reserve_exact(1);
        }
        // `flows` is at most 65536.
        self.numbers[self.few.len()] = queue as u16;
        self.few.push(Queue::new(&self.params));
        Some(self.few.len() - 1)
    }
}

impl<A: FlowAqm> Queues<A> {
    /// Returns a queue if it, or another one of its page, has seen a packet.
    pub(super) fn get(&self, queue: u32) -> Option<&Queue<A>> {
        let queue = queue as usize;
        match self.pages.get(queue / PAGE) {
            Some(page) => page.as_ref().map(|page| &page[queue % PAGE]),
            None => self.place(queue).map(|at| &self.few[at]),
        }
    }

    /// Returns a queue. One that is not among the few has been added before.
    #[inline]
    pub(super) fn at(&mut self, queue: u32) -> &mut Queue<A> {
        let queue = queue as usize;
        if queue / PAGE >= self.pages.len() {
            if self.last.0 as usize != queue {
                let is_there = self.ensure(queue);
                assert!(is_there, "more queues than a few are spread first");
            }
            return &mut self.few[self.last.1 as usize];
        }
        let page = &mut self.pages[queue / PAGE];
        let page = match page {
            Some(page) => page,
            None => page.insert(make_page(&self.params)),
        };
        &mut page[queue % PAGE]
    }
}

#[cold]
fn make_page<A: FlowAqm>(params: &Arc<A::Shared>) -> Box<[Queue<A>; PAGE]> {
    Box::new(core::array::from_fn(|_| Queue::new(params)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aqm::droptail::DropTail;
    use crate::event::{Cx, DropReason, Sink};
    use crate::packet::Packet;
    use crate::param::NoParams;
    use crate::rng::Rng;
    use crate::sched::Discipline;
    use crate::sched::fq::{Fq, FqParams};
    use crate::units::Time;

    /// The slots of what was dropped.
    #[derive(Default)]
    struct Dropped(Vec<u32>);

    impl Sink for Dropped {
        fn discard(&mut self, _now: Time, packet: Packet, _reason: DropReason) {
            self.0.push(packet.slot);
        }
    }

    #[test]
    fn the_fattest_drops_however_many_queues_have_seen_a_packet() {
        for others in 1..=2 * FEW as u32 {
            let params = FqParams {
                limit: u64::from(others) + 3,
                ..FqParams::default()
            };
            let mut fq = Fq::<DropTail>::new(&params, NoParams);
            let (mut rng, mut sink) = (Rng::from_seed(1), Dropped::default());
            // Three packets of flow 700 in slots 0 to 2, then one of each other flow, and one too
            // many.
            for slot in 0..others + 4 {
                let mut packet = Packet::new(slot, 1000);
                packet.flow = if slot < 3 { 700 } else { 37 * slot };
                fq.enqueue(packet, &mut Cx::new(Time::ZERO, &mut rng, &mut sink));
            }
            // RFC 8290 section 4.1.2: half of its packets, rounded down, from its head.
            assert_eq!(sink.0, [0], "{others} other queues");
            assert_eq!(fq.backlog().packets, u64::from(others) + 3);
        }
    }
}
