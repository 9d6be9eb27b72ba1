//! The delay line: packets in flight, in the order in which they arrive.

use alloc::collections::VecDeque;

use crate::packet::Packet;
use crate::units::Time;

/// A queue that stores its first packet in place. A link without delay, or one whose packets are
/// further apart than its delay, never holds a second packet. It then has no buffer to be fetched
/// from memory besides the pipe itself.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct Line {
    /// Older than all of `rest`. Filled only while the line is empty, so that no packet is moved
    /// twice.
    first: Option<(Time, Packet)>,
    rest: VecDeque<(Time, Packet)>,
}

impl Line {
    /// Returns the bytes that have been allocated.
    pub(super) fn allocated(&self) -> usize {
        self.rest.capacity() * size_of::<(Time, Packet)>()
    }

    /// Returns when the next packet arrives.
    #[inline]
    pub(super) fn first_due(&self) -> Option<Time> {
        let first = self.first.as_ref().or_else(|| self.rest.front());
        first.map(|(due, _)| *due)
    }

    /// Returns when the last packet arrives.
    #[inline]
    pub(super) fn last_due(&self) -> Option<Time> {
        let last = self.rest.back().or(self.first.as_ref());
        last.map(|(due, _)| *due)
    }

    /// Appends a packet that arrives after all others.
    #[inline]
    pub(super) fn push(&mut self, due: Time, packet: Packet) {
        if self.first.is_none() && self.rest.is_empty() {
            self.first = Some((due, packet.moved()));
        } else {
            self.rest.push_back((due, packet.moved()));
        }
    }

    /// Removes the next packet.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<(Time, Packet)> {
        self.first.take().or_else(|| self.rest.pop_front())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn a_line_is_first_in_first_out() {
        let (mut line, mut plain) = (Line::default(), VecDeque::new());
        let mut rng = Rng::from_seed(1);
        for n in 0..1000_u32 {
            let due = Time::from_ns(u64::from(n));
            if rng.below(2) == 0 {
                line.push(due, Packet::new(n, 100));
                plain.push_back(n);
            } else {
                let popped = line.pop().map(|(_, packet)| packet.slot);
                assert_eq!(popped, plain.pop_front());
            }
            let ends = [plain.front(), plain.back()];
            let ends = ends.map(|n| n.map(|n| Time::from_ns(u64::from(*n))));
            assert_eq!([line.first_due(), line.last_due()], ends);
        }
    }
}
