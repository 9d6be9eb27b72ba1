//! A packet as the kernel describes it: linux/netfilter/nfnetlink_queue.h.

use super::message::{ANSWER, FAMILY_HEADER, Message, attributes, messages, number};
use super::socket::QUEUE;
use super::{NF_ACCEPT, VERDICT};

/// A packet as the kernel describes it.
pub(super) struct Packet<'a> {
    pub(super) id: u32,
    pub(super) payload: &'a [u8],
    pub(super) is_super: bool,
    pub(super) has_open_checksum: bool,
    /// Length of the packet in bytes, whether fetched or not.
    pub(super) length: usize,
    pub(super) is_whole: bool,
    /// The number of the hook.
    pub(super) hook: u8,
    /// The kernel's index of the interface of arrival.
    pub(super) entered: Option<u32>,
    /// The kernel's index of the interface of departure.
    pub(super) leaves: Option<u32>,
}

impl<'a> Packet<'a> {
    /// Reads a message; `None` if it describes no packet.
    pub(super) fn read(message: &Message<'a>) -> Option<Packet<'a>> {
        if message.kind != QUEUE_PACKET {
            return None;
        }
        let (mut id, mut payload, mut flags, mut length) = (None, None::<&[u8]>, 0, None);
        let (mut hook, mut entered, mut leaves) = (0, None, None);
        for (kind, value) in attributes(message.body.get(FAMILY_HEADER..)?) {
            match kind {
                // `struct nfqnl_msg_packet_hdr`: the id, the protocol, and the hook.
                1 => {
                    id = number(value);
                    hook = value.get(6).copied().unwrap_or(0);
                }
                5 => entered = number(value),
                6 => leaves = number(value),
                10 => payload = Some(value),
                // NFQA_CAP_LEN is present if the payload was cut, and is the whole length.
                13 => length = Some(number(value)? as usize),
                14 => flags = number(value)?,
                _ => {}
            }
        }
        let payload = payload?;
        Some(Packet {
            id: id?,
            length: length.unwrap_or(payload.len()),
            payload,
            is_super: flags & SKB_GSO != 0,
            has_open_checksum: flags & SKB_CHECKSUM_NOT_READY != 0,
            is_whole: length.is_none(),
            hook,
            entered,
            leaves,
        })
    }
}

/// Returns whether a message answers that a packet, which was to be sent, is not there any more: its
/// interface went down, and the kernel has dropped it.
pub(super) fn is_gone(message: &Message<'_>) -> bool {
    let answers = || {
        // `struct nlmsgerr`: the error, and the message that it is about.
        let (error, verdict) = message.body.split_first_chunk()?;
        let error = i32::from_ne_bytes(*error);
        let verdict = messages(verdict).next()?;
        let mut attributes = attributes(verdict.body.get(FAMILY_HEADER..)?);
        let (_, header) = attributes.find(|(kind, _)| *kind == VERDICT)?;
        Some(error == -libc::ENOENT && number(header)? == NF_ACCEPT)
    };
    message.kind == ANSWER && answers() == Some(true)
}

/// The bytes that hold the ECN field, and for IPv4 the header checksum over it.
pub(super) fn mark_bytes(packet: &[u8]) -> [u8; 4] {
    let byte = |at: usize| packet.get(at).copied().unwrap_or(0);
    match byte(0) >> 4 {
        4 => [byte(0), byte(1), byte(10), byte(11)],
        _ => [byte(0), byte(1), 0, 0],
    }
}

const QUEUE_PACKET: u16 = QUEUE;
const SKB_CHECKSUM_NOT_READY: u32 = 1;
const SKB_GSO: u32 = 2;
