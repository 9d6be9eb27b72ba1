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
    #[inline]
    fn place(&self, queue: usize) -> Option<usize> {
        let numbers = &self.numbers[..self.few.len()];
        numbers.iter().position(|n| usize::from(*n) == queue)
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
        if self.pages.is_empty() {
            return self.place(queue).map_or(&self.blank, |at| &self.few[at]);
        }
        match &self.pages[queue / PAGE] {
            Some(page) => &page[queue % PAGE],
            None => &self.blank,
        }
    }
}

impl<A: AqmAlgorithm> IndexMut<usize> for Queues<A> {
    #[inline]
    fn index_mut(&mut self, queue: usize) -> &mut Queue<A> {
        if self.pages.is_empty() {
            if let Some(at) = self.place(queue) {
                return &mut self.few[at];
            }
            if self.few.len() < FEW {
                // `flows` is at most 65536.
                self.numbers[self.few.len()] = queue as u16;
                self.few.push(Queue::new(&self.params));
                return self.few.last_mut().expect("it was just pushed");
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
