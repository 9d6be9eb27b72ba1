//! The few netlink messages that a queue needs: attributes in network byte order after a header.
//!
//! Layouts: linux/netlink.h, linux/netfilter/nfnetlink.h, linux/netfilter/nfnetlink_queue.h.

/// Messages under construction, one after the other in one buffer.
#[derive(Default)]
pub(super) struct Writer {
    bytes: Vec<u8>,
    sequence: u32,
    message: usize,
}

impl Writer {
    /// Clears the buffer.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Begins a message. Returns its sequence number. `resource` is the queue's number.
    pub(super) fn begin(&mut self, kind: u16, flags: u16, family: u8, resource: u16) -> u32 {
        self.message = self.bytes.len();
        self.sequence = self.sequence.wrapping_add(1);
        self.bytes.extend(0u32.to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend((flags | REQUEST).to_ne_bytes());
        self.bytes.extend(self.sequence.to_ne_bytes());
        self.bytes.extend(0u32.to_ne_bytes());
        self.bytes.extend([family, 0]);
        self.bytes.extend(resource.to_be_bytes());
        self.sequence
    }

    /// Ends the message begun last.
    pub(super) fn end(&mut self) {
        let length = (self.bytes.len() - self.message) as u32;
        self.bytes[self.message..self.message + 4].copy_from_slice(&length.to_ne_bytes());
    }

    /// Adds an attribute that is in one or two pieces.
    pub(super) fn attribute(&mut self, kind: u16, value: &[u8], rest: &[u8]) {
        // There are no longer ones: a packet has at most 65 535 bytes, headers included.
        let length = (4 + value.len() + rest.len()) as u16;
        self.bytes.extend(length.to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend(value);
        self.bytes.extend(rest);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    pub(super) fn number(&mut self, kind: u16, value: u32) {
        self.attribute(kind, &value.to_be_bytes(), &[]);
    }

    /// Adds a name, with the zero at its end that the kernel expects.
    pub(super) fn name(&mut self, kind: u16, value: &str) {
        self.attribute(kind, value.as_bytes(), &[0]);
    }

    /// Adds an attribute that consists of those that `inner` adds.
    pub(super) fn nested(&mut self, kind: u16, inner: impl FnOnce(&mut Writer)) {
        let at = self.bytes.len();
        self.bytes.extend(0u16.to_ne_bytes());
        self.bytes.extend((kind | NESTED).to_ne_bytes());
        inner(self);
        let length = (self.bytes.len() - at) as u16;
        self.bytes[at..at + 2].copy_from_slice(&length.to_ne_bytes());
    }
}

/// A received message, with its attributes still to be read.
pub(super) struct Message<'a> {
    pub kind: u16,
    pub sequence: u32,
    /// The part after the netlink header.
    pub body: &'a [u8],
}

/// Returns the messages in `bytes`; ends at the first that does not fit.
pub(super) fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let length = u32_at(bytes, 0)? as usize;
        let body = bytes.get(HEADER..length)?;
        let message = Message {
            kind: u16_at(bytes, 4)?,
            sequence: u32_at(bytes, 8)?,
            body,
        };
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        Some(message)
    })
}

/// Returns the attributes in `bytes`, by kind; ends at the first that does not fit.
pub(super) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(bytes, 0)?);
        let value = bytes.get(4..length)?;
        let kind = u16_at(bytes, 2)? & KIND;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        Some((kind, value))
    })
}

/// A number in network byte order.
pub(super) fn number(value: &[u8]) -> Option<u32> {
    value.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u16::from_ne_bytes(*bytes))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*bytes))
}

const HEADER: usize = 16;
const REQUEST: u16 = 1;
const NESTED: u16 = 1 << 15;
const KIND: u16 = 0x3fff;

/// Requests an answer also for success.
pub(super) const ACK: u16 = 4;
/// NLM_F_CREATE.
pub(super) const CREATE: u16 = 0x400;
/// NLM_F_APPEND.
pub(super) const APPEND: u16 = 0x800;
/// NLMSG_ERROR: an answer, with errno 0 for "done".
pub(super) const ANSWER: u16 = 2;
/// Bytes of `struct nfgenmsg`, which begins each message's body.
pub(super) const FAMILY_HEADER: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read() {
        let mut writer = Writer::default();
        for number in [7, 9] {
            writer.begin(0x302, ACK, 2, number);
            writer.number(1, 0x0102_0304);
            writer.nested(2, |inner| inner.name(3, "abc"));
            writer.attribute(4, &[1, 2], &[3]);
            writer.end();
        }
        let read: Vec<_> = messages(writer.bytes()).collect();
        assert_eq!(read.len(), 2);
        for message in read {
            assert_eq!(message.kind, 0x302);
            let found: Vec<_> = attributes(&message.body[FAMILY_HEADER..]).collect();
            assert_eq!(number(found[0].1), Some(0x0102_0304));
            assert_eq!(attributes(found[1].1).next(), Some((3, &b"abc\0"[..])));
            assert_eq!(found[2], (4, &[1, 2, 3][..]));
            assert_eq!(found.len(), 3);
        }
    }

    #[test]
    fn any_bytes_end_the_reading() {
        let mut writer = Writer::default();
        writer.begin(0x300, 0, 0, 0);
        writer.number(1, 5);
        writer.end();
        let bytes = writer.bytes().to_vec();
        for length in 0..bytes.len() {
            assert_eq!(messages(&bytes[..length]).count(), 0);
        }
        for value in 0..=255 {
            for at in 0..bytes.len() {
                let mut bytes = bytes.clone();
                bytes[at] = value;
                for message in messages(&bytes).take(100) {
                    let body = message.body.get(FAMILY_HEADER..).unwrap_or(&[]);
                    assert!(attributes(body).take(100).count() < 100);
                }
            }
        }
    }
}
