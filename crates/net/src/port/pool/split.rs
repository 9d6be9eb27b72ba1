//! Segments of super-packets, each in a slot of its own.

use super::{Frame, Pool, SLOT_LEN, START, Slot};
use sluice_wire::frame::{Checksums, Gather, SuperPacket};

impl Pool {
    /// Writes segment `index` of `whole`, the super-packet in `from`, into the empty slot `to`.
    /// Returns the segment's length, or `None` if the frame is shorter than its headers claim; `to`
    /// then stays empty.
    ///
    /// The segment's checksum is left partial ([`Checksums::Partial`]). A segment that fits a slot
    /// is copied. The payload of a longer one stays where it is, and `from` must not be modified
    /// any more.
    pub fn write_segment(
        &mut self,
        from: Slot,
        whole: &SuperPacket,
        index: u32,
        to: Slot,
    ) -> Option<u32> {
        let length = whole.segment_len(index);
        // The segment starts where the super-packet does: after a tag was put back, that is
        // earlier. So whatever does not fit the slot lies in the large slot.
        let start = self.frames[from.index()].start.min(START);
        let room_len = SLOT_LEN - usize::from(start);
        let room = self.base(to) + usize::from(start);
        let (head, tail) = (self.head_range(from), self.tail_range(from));
        let (head, room) = self.slots.pair(head, room..room + room_len);
        if length as usize <= room_len {
            let frame = Gather {
                head,
                tail: &self.large[tail],
            };
            let (_, vnet) = whole.write_segment(index, frame, Checksums::Partial, room)?;
            let frame = &mut self.frames[to.index()];
            frame.length = length;
            frame.start = start;
            frame.head_len = length as u16;
            frame.vnet = vnet;
            return Some(length);
        }
        let (header_len, payload) = (whole.header_len() as usize, whole.payload(index));
        let near = payload.start.min(head.len())..payload.end.min(head.len());
        let far = payload.start.max(head.len())..payload.end.max(head.len());
        if far.end > head.len() + tail.len() {
            return None;
        }
        let vnet = whole.write_headers(index, head, room)?;
        let head_len = header_len + near.len();
        let tail_at = far.start - head.len();
        room.get_mut(header_len..head_len)?
            .copy_from_slice(&head[near]);
        let Frame {
            large,
            tail_at: base,
            ..
        } = self.frames[from.index()];
        *self.sharers.get_mut(large as usize)? += 1;
        let frame = &mut self.frames[to.index()];
        frame.length = length;
        frame.large = large;
        frame.start = start;
        frame.head_len = head_len as u16;
        frame.tail_at = base + tail_at as u16;
        frame.vnet = vnet;
        Some(length)
    }
}
