//! Storage of the queues: those that have seen a packet, beside one another or in pages.
//!
//! Of the 1024 queues of a subscriber's link hardly ever more than a few have seen a packet. The first
//! [`FEW`] stand in a list, their numbers with the discipline: a packet of a link that nothing has
//! touched for long pays for one line of it, and the link takes hundreds of bytes instead of 64 KiB.
//! From then on queues are in pages that come into being with their first packet. A queue that is
//! reached through its page costs one more load, of a pointer that stays in the cache.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

use super::Queue;
use crate::aqm::AqmAlgorithm;

/// Queues without pages.
const FEW: usize = 8;

/// Queues per page: one page of CoDel queues is 1 KiB.
const PAGE: usize = 16;

/// All queues of a discipline, by number.
#[repr(C)]
pub(super) struct Queues<A: AqmAlgorithm> {
    /// How a queue is that has not seen a packet.
    blank: Queue<A>,
    len: usize,
    few: Vec<Queue<A>>,
    /// The number of the queue that was changed last and its place in `few`, which it mostly is again.
    last: (u32, u32),
    /// The numbers of those in `few`.
    numbers: [u16; FEW],
    /// Empty as long as the few are not too many.
    pages: Vec<Option<Box<[Queue<A>; PAGE]>>>,
    params: Arc<A::Params>,
}

impl<A: AqmAlgorithm> Queues<A> {
    /// So many queues, none of which takes memory yet.
    pub(super) fn new(len: usize, params: Arc<A::Params>) -> Self {
        Queues {
            blank: Queue::new(&params),
            len,
            few: Vec::new(),
            last: (u32::MAX, 0),
            numbers: [0; FEW],
            pages: Vec::new(),
            params,
        }
    }

    /// How many there are.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// What their AQMs share.
    pub(super) const fn params(&self) -> &Arc<A::Params> {
        &self.params
    }

    /// Where among the few a queue is.
    #[inline(never)]
    fn place(&self, queue: usize) -> Option<usize> {
        let numbers = &self.numbers[..self.few.len()];
        numbers.iter().position(|n| usize::from(*n) == queue)
    }

    /// Takes a queue into the few; its place, or none if they are too many.
    #[cold]
    fn add(&mut self, queue: usize) -> Option<usize> {
        if self.few.len() == FEW {
            return None;
        }
        if self.few.is_empty() {
            // Most links of very many have one flow at a time: room for one, not for four.
            self.few.reserve_exact(1);
        }
        // `flows` is at most 65536.
        self.numbers[self.few.len()] = queue as u16;
        self.few.push(Queue::new(&self.params));
        Some(self.few.len() - 1)
    }

    #[cold]
    fn spread(&mut self) {
        self.pages.resize_with(self.len.div_ceil(PAGE), || None);
        for (number, queue) in self.numbers.iter().zip(core::mem::take(&mut self.few)) {
            let page = &mut self.pages[usize::from(*number) / PAGE];
            let page = page.get_or_insert_with(|| make_page(&self.params));
            page[usize::from(*number) % PAGE] = queue;
        }
    }
}

impl<A: AqmAlgorithm> Index<usize> for Queues<A> {
    type Output = Queue<A>;

    #[inline]
    fn index(&self, queue: usize) -> &Queue<A> {
        // One comparison tells both the few from the many and a number from none.
        match self.pages.get(queue / PAGE) {
            Some(Some(page)) => &page[queue % PAGE],
            Some(None) => &self.blank,
            None if self.last.0 as usize == queue => &self.few[self.last.1 as usize],
            None => self.place(queue).map_or(&self.blank, |at| &self.few[at]),
        }
    }
}

impl<A: AqmAlgorithm> IndexMut<usize> for Queues<A> {
    #[inline]
    fn index_mut(&mut self, queue: usize) -> &mut Queue<A> {
        if queue / PAGE >= self.pages.len() {
            if self.last.0 as usize == queue {
                return &mut self.few[self.last.1 as usize];
            }
            if let Some(at) = self.place(queue).or_else(|| self.add(queue)) {
                self.last = (queue as u32, at as u32);
                return &mut self.few[at];
            }
            self.spread();
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
fn make_page<A: AqmAlgorithm>(params: &Arc<A::Params>) -> Box<[Queue<A>; PAGE]> {
    Box::new(core::array::from_fn(|_| Queue::new(params)))
}
