//! The longest queue of a discipline, at no cost until one overflows.

use super::fq::fattest::Fattest;

/// Finds the longest of a fixed number of queues.
///
/// The tree that knows it is filled at the first overflow and kept up until as many packets as
/// there are queues have arrived without another: so filling it costs less than a visit per packet,
/// and a discipline that does not overflow pays one comparison.
#[derive(Debug)]
pub(crate) struct Longest {
    tree: Option<Fattest>,
    queues: u32,
    /// Arrivals for which the tree is still kept up.
    kept_for: u32,
}

impl Longest {
    pub(crate) const fn new(queues: u32) -> Self {
        Longest {
            tree: None,
            queues,
            kept_for: 0,
        }
    }

    /// A packet has arrived.
    #[inline]
    pub(crate) fn arrived(&mut self) {
        self.kept_for = self.kept_for.saturating_sub(1);
    }

    /// The length of `queue` is now `length`.
    #[inline]
    pub(crate) fn set(&mut self, queue: u32, length: u64) {
        if self.kept_for > 0
            && let Some(tree) = &mut self.tree
        {
            tree.set(queue, weight(length));
        }
    }

    /// The longest queue, of equal ones that with the lowest number. `lengths` are those of all
    /// queues, and are asked for only when the tree has to be filled.
    pub(crate) fn find<I: Iterator<Item = u64>>(&mut self, lengths: impl FnOnce() -> I) -> u32 {
        let queues = self.queues as usize;
        let tree = self.tree.get_or_insert_with(|| Fattest::new(queues));
        if self.kept_for == 0 {
            tree.fill(lengths().map(weight));
        }
        self.kept_for = self.queues;
        tree.find()
    }
}

/// Queues of 4 GiB and more are equally long.
fn weight(length: u64) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
