//! Storage of the queues: pages that come into being with their first packet.
//!
//! Of the 1024 queues of a subscriber's link hardly ever more than a few have seen a packet. With pages
//! such a link takes kilobytes instead of 64 KiB, and is made without touching them; a hundred thousand
//! links fit in memory. A queue that is reached through its page costs one more load, of a pointer
//! that stays in the cache.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

use super::Queue;
use crate::aqm::AqmAlgorithm;

/// Queues per page: one page of CoDel queues is 1 KiB.
const PAGE: usize = 16;

/// All queues of a discipline, by number.
pub(super) struct Queues<A: AqmAlgorithm> {
    pages: Vec<Option<Box<[Queue<A>; PAGE]>>>,
    len: usize,
    /// How a queue is that has not seen a packet.
    blank: Queue<A>,
    params: Arc<A::Params>,
}

impl<A: AqmAlgorithm> Queues<A> {
    /// So many queues, none of which takes memory yet.
    pub(super) fn new(len: usize, params: A::Params) -> Self {
        let params = Arc::new(params);
        let mut pages = Vec::new();
        pages.resize_with(len.div_ceil(PAGE), || None);
        Queues {
            pages,
            len,
            blank: Queue::new(&params),
            params,
        }
    }

    /// How many there are.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }
}

impl<A: AqmAlgorithm> Index<usize> for Queues<A> {
    type Output = Queue<A>;

    #[inline]
    fn index(&self, queue: usize) -> &Queue<A> {
        match &self.pages[queue / PAGE] {
            Some(page) => &page[queue % PAGE],
            None => &self.blank,
        }
    }
}

impl<A: AqmAlgorithm> IndexMut<usize> for Queues<A> {
    #[inline]
    fn index_mut(&mut self, queue: usize) -> &mut Queue<A> {
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
