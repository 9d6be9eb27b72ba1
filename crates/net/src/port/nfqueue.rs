//! Packets of this host's own stack, through NFQUEUE.
//!
//! An nft rule sends packets to a numbered queue of the kernel. Each packet waits there until this
//! process gives its verdict, in any order, when the discipline decides. So a host's own or
//! forwarded traffic can be shaped without another interface. Super-packets arrive whole; a CE mark
//! is returned with the verdict.
//!
//! Limitations: a packet has one verdict, so super-packets cannot be split here (without
//! [`NfqueueOptions::offloads`] the kernel splits them before); packets of another port cannot be
//! sent; the kernel does not report the size of a super-packet's segments, so they are assumed to
//! fill the MTU. With [`NfqueueOptions::headers_only`] payloads never leave the kernel. That is
//! fastest for super-packets, but packets cannot be marked, so AQMs drop instead. Needs
//! CAP_NET_ADMIN in the namespace.
#![allow(unsafe_code)]

#[cfg(test)]
mod fuzz;
mod interfaces;
mod message;
mod rule;
mod socket;

pub use interfaces::StackPath;
pub use rule::{Hook, IfDead, Mark, Traffic};

use super::messages::{Messages, expected_after};
use super::pool::{LARGE_LEN, Watcher};
use super::registry::{Kind, Playback, Role};
use super::remedy::remedy;
use super::{Capabilities, Counters, Loss, Pool, Port, Promiscuity, Slot};
use crate::namespace::{Namespace, NamespaceError};
use interfaces::Interfaces;
use message::{FAMILY_HEADER, Writer, attributes, messages, number};
use sluice_core::Span;
use sluice_wire::frame::{Link, Transport, View, VnetHeader, parse_head};
use socket::{Installed, QUEUE, bind_queue, install, receive, send};
use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The settings of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NfqueueOptions {
    /// The queue's number, as in `queue num 0`.
    pub number: u16,
    /// The packets that a rule sends to the queue; `None` if the user has already installed a rule.
    pub traffic: Option<Traffic>,
    /// The fate of packets when this process has died. Without `traffic` it has no effect.
    pub if_dead: IfDead,
    /// The names of the interfaces that [`Pool::path`] refers to; without names, packets have no
    /// path.
    pub interfaces: Vec<String>,
    /// Let super-packets through whole.
    pub offloads: bool,
    /// Let packets pass, instead of losing them, when the kernel's queue is full.
    pub fail_open: bool,
    /// Fetch the headers only and leave payloads in the kernel. Headers fetched alone cannot be
    /// changed: such packets count as not ECN-capable ([`Pool::is_cut`]), and are not corrupted.
    pub headers_only: bool,
    /// Largest number of packets that may wait for a verdict.
    pub most_waiting: u32,
    /// Largest number of packets of one [`Port::receive`]; each costs a system call.
    pub batch: usize,
    /// Bytes that may wait in the kernel for [`Port::receive`].
    pub receive_buffer: usize,
    /// The MTU that segments of super-packets will have.
    pub mtu: u32,
}

impl Default for NfqueueOptions {
    fn default() -> NfqueueOptions {
        NfqueueOptions {
            number: 0,
            traffic: None,
            if_dead: IfDead::default(),
            interfaces: Vec::new(),
            offloads: true,
            fail_open: false,
            headers_only: false,
            most_waiting: 16_384,
            batch: 32,
            receive_buffer: 8 << 20,
            mtu: 1500,
        }
    }
}

/// The reasons why a queue cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum NfqueueError {
    /// The namespace could not be entered.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// The interface's name is empty, or longer than the 15 bytes that the kernel allows.
    #[error("interface name {0:?} must have 1 to 15 bytes")]
    Name(String),
    /// The kernel refused a step.
    #[error("cannot {step} for queue {number} in namespace {namespace:?}: {source}{}", remedy(.source))]
    Kernel {
        /// The step.
        step: &'static str,
        /// The queue.
        number: u16,
        /// The namespace.
        namespace: String,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// One queue of the kernel.
pub struct NfqueuePort {
    /// The rules are removed first, so that no packet finds the queue unattended.
    rules: Option<Installed>,
    socket: OwnedFd,
    interfaces: Interfaces,
    /// The queue's own counters: /proc/net/netfilter/nfnetlink_queue of the namespace.
    statistics: Option<File>,
    name: String,
    number: u16,
    capabilities: Capabilities,
    /// The packets that wait for a verdict, by slot number.
    waiting: Vec<Option<Waiting>>,
    /// Reports which of these packets the router has dropped; created by the first call with a
    /// pool.
    watcher: Option<Watcher>,
    /// Room for one whole packet, or for a batch of headers.
    room: Box<[u8]>,
    headers_only: bool,
    /// Headers are received in batches.
    incoming: Option<Messages>,
    writer: Writer,
    counters: Counters,
}

/// A packet that waits for its verdict.
#[derive(Clone, Copy)]
struct Waiting {
    id: u32,
    /// The bytes that a CE mark changes, as they arrived.
    marks: [u8; 4],
    is_whole: bool,
}

impl NfqueuePort {
    /// Opens a queue of `namespace`.
    ///
    /// # Errors
    /// The number is in use, the rule is refused, or the process lacks the privilege
    /// (CAP_NET_ADMIN).
    pub fn open(
        namespace: &Namespace,
        options: &NfqueueOptions,
    ) -> Result<NfqueuePort, NfqueueError> {
        let names = options.traffic.iter().flat_map(Traffic::interfaces);
        for name in names {
            if name.is_empty() || name.len() >= libc::IFNAMSIZ {
                return Err(NfqueueError::Name(name.to_owned()));
            }
        }
        let open = || -> Result<NfqueuePort, (&'static str, io::Error)> {
            let socket = bind_queue(options)?;
            let rules = match &options.traffic {
                Some(traffic) => Some(install(traffic, options.number, options.if_dead)?),
                None => None,
            };
            Ok(NfqueuePort {
                rules,
                socket,
                interfaces: Interfaces::new(options.interfaces.clone()),
                statistics: File::open("/proc/thread-self/net/netfilter/nfnetlink_queue").ok(),
                name: format!("nfqueue {}", options.number),
                number: options.number,
                capabilities: Capabilities {
                    super_packets: options.offloads,
                    partial_checksums: true,
                    batch: options.batch.max(1),
                    mtu: options.mtu,
                },
                waiting: Vec::new(),
                watcher: None,
                room: match options.headers_only {
                    true => vec![0; HEADERS_ROOM * options.batch.max(1)].into(),
                    false => vec![0; ROOM].into(),
                },
                headers_only: options.headers_only,
                incoming: options
                    .headers_only
                    .then(|| Messages::new(options.batch.max(1))),
                writer: Writer::default(),
                counters: Counters::default(),
            })
        };
        namespace
            .enter(open)?
            .map_err(|(step, source)| NfqueueError::Kernel {
                step,
                number: options.number,
                namespace: namespace.name().to_owned(),
                source,
            })
    }

    /// Returns whether the port replaced rules that a killed process had left.
    pub fn took_over(&self) -> bool {
        self.rules.as_ref().is_some_and(|rules| rules.took_over)
    }

    /// Gives the kernel a drop verdict for every packet that the router has dropped.
    fn drop_abandoned(&mut self, pool: &mut Pool) {
        let watcher = *self.watcher.get_or_insert_with(|| pool.watcher());
        while let Some(slot) = pool.next_abandoned(watcher) {
            let waiting = self.waiting.get_mut(slot.number() as usize);
            if let Some(waiting) = waiting.and_then(Option::take) {
                self.verdict(waiting.id, NF_DROP, None);
            }
        }
        self.send_verdicts();
    }

    fn verdict(&mut self, id: u32, verdict: u32, payload: Option<(&[u8], &[u8])>) {
        self.writer.begin(QUEUE_VERDICT, 0, 0, self.number);
        let mut header = [0; 8];
        header[..4].copy_from_slice(&verdict.to_be_bytes());
        header[4..].copy_from_slice(&id.to_be_bytes());
        self.writer.attribute(2, &header, &[]);
        if let Some((head, tail)) = payload {
            self.writer.attribute(10, head, tail);
        }
        self.writer.end();
    }

    fn send_verdicts(&mut self) {
        if self.writer.bytes().is_empty() {
            return;
        }
        // The kernel processes verdicts within the call, so the call never blocks, and processes all
        // of them or none.
        match send(self.socket.as_fd(), self.writer.bytes()) {
            // Without its verdict a packet would stay in the kernel.
            Err(error) if !is_permanent(&error) => {
                self.counters.blocked += 1;
                return;
            }
            Err(error) => {
                let verdicts = messages(self.writer.bytes()).count();
                self.counters.lose(Loss::of(&error), verdicts as u64);
            }
            Ok(()) => {}
        }
        self.writer.clear();
    }

    /// Stores one of the kernel's packets in the pool; returns `None` if there is no room.
    fn store(&mut self, pool: &mut Pool, packet: &Packet<'_>) -> Result<Slot, Loss> {
        let slot = if self.headers_only {
            let slot = pool.allocate().ok_or(Loss::NoSlot)?;
            pool.set_cut(slot, packet.payload, packet.length as u32);
            slot
        } else {
            let length = packet.payload.len().min(packet.length);
            pool.store(&packet.payload[..length])?
        };
        if !self.interfaces.is_empty() {
            let socket = self.socket.as_fd();
            let path = self
                .interfaces
                .path(socket, packet.hook, packet.entered, packet.leaves);
            pool.set_path(slot, path);
        }
        self.note(pool, slot, packet);
        Ok(slot)
    }

    /// Records the packet in the kernel that waits for the verdict on a slot.
    fn note(&mut self, pool: &mut Pool, slot: Slot, packet: &Packet<'_>) {
        let view = parse_head(pool.head(slot), pool.frame_len(slot), Link::Ip);
        pool.set_vnet(slot, self.offload_state(&view, packet));
        pool.watch(
            slot,
            self.watcher
                .expect("the port has been called with its pool"),
        );
        let index = slot.number() as usize;
        if self.waiting.len() <= index {
            self.waiting.resize(index + 1, None);
        }
        self.waiting[index] = Some(Waiting {
            id: packet.id,
            marks: mark_bytes(pool.head(slot)),
            is_whole: packet.is_whole,
        });
    }

    fn receive_whole(&mut self, pool: &mut Pool, into: &mut Vec<Slot>, room: &mut [u8]) {
        for _ in 0..self.capabilities.batch {
            match receive(self.socket.as_fd(), room) {
                Ok(length) => self.take(pool, into, &room[..length]),
                // ENOBUFS means that messages were lost; the queue's statistics count them.
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {}
                Err(error) => {
                    self.lose_unless_waiting(&error);
                    break;
                }
            }
        }
    }

    fn receive_headers(
        &mut self,
        pool: &mut Pool,
        into: &mut Vec<Slot>,
        room: &mut [u8],
        incoming: &mut Messages,
    ) {
        incoming.clear();
        let rooms = room.chunks_exact_mut(HEADERS_ROOM);
        let most = rooms.len();
        for room in rooms.take(self.capabilities.batch) {
            // SAFETY: the buffers do not overlap, and nobody touches them before `receive` has
            // returned.
            unsafe { incoming.push(room, &mut []) };
        }
        match incoming.receive(self.socket.as_fd()) {
            Ok(count) => {
                self.capabilities.batch = expected_after(count, most);
                for (index, room) in room.chunks_exact(HEADERS_ROOM).take(count).enumerate() {
                    let length = incoming.received(index).length.min(room.len());
                    self.take(pool, into, &room[..length]);
                }
            }
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {}
            Err(error) => {
                self.capabilities.batch = expected_after(0, most);
                self.lose_unless_waiting(&error);
            }
        }
    }

    /// Receives the packets in one of the kernel's datagrams.
    fn take(&mut self, pool: &mut Pool, into: &mut Vec<Slot>, datagram: &[u8]) {
        for message in messages(datagram) {
            let Some(packet) = Packet::read(&message) else {
                continue;
            };
            match self.store(pool, &packet) {
                Ok(slot) => {
                    self.counters.received += 1;
                    self.counters.received_bytes += packet.length as u64;
                    self.counters.received_super += u64::from(packet.is_super);
                    into.push(slot);
                }
                Err(loss) => {
                    self.counters.lose(loss, 1);
                    self.verdict(packet.id, NF_DROP, None);
                }
            }
        }
    }

    fn lose_unless_waiting(&mut self, error: &io::Error) {
        if error.kind() != io::ErrorKind::WouldBlock {
            self.counters.lose(Loss::of(error), 1);
        }
    }

    fn offload_state(&self, view: &View, packet: &Packet<'_>) -> VnetHeader {
        let mut vnet = VnetHeader::default();
        let (kind, csum_offset, header) = match view.transport {
            Transport::Tcp { header_len, .. } => {
                let is_v4 = packet.payload.first().is_some_and(|byte| byte >> 4 == 4);
                (if is_v4 { 1 } else { 4 }, 16, u16::from(header_len))
            }
            Transport::Udp { .. } => (5, 6, 8),
            _ => return vnet,
        };
        if packet.has_open_checksum {
            vnet.flags = VnetHeader::NEEDS_CSUM;
            vnet.csum_start = view.transport_at;
            vnet.csum_offset = csum_offset;
        }
        let headers = view.transport_at + header;
        let segment = self.capabilities.mtu.saturating_sub(u32::from(headers));
        if packet.is_super && segment > 0 {
            vnet.gso_type = kind;
            vnet.hdr_len = headers;
            vnet.gso_size = segment.min(u32::from(u16::MAX)) as u16;
        }
        vnet
    }
}

impl Port for NfqueuePort {
    fn name(&self) -> &str {
        &self.name
    }

    fn link(&self) -> Link {
        Link::Ip
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn receive(&mut self, pool: &mut Pool, into: &mut Vec<Slot>) -> usize {
        self.drop_abandoned(pool);
        let before = into.len();
        let mut room = std::mem::take(&mut self.room);
        match self.incoming.take() {
            Some(mut incoming) => {
                self.receive_headers(pool, into, &mut room, &mut incoming);
                self.incoming = Some(incoming);
            }
            None => self.receive_whole(pool, into, &mut room),
        }
        self.room = room;
        self.send_verdicts();
        into.len() - before
    }

    fn transmit(&mut self, pool: &mut Pool, slots: &[Slot]) -> usize {
        self.drop_abandoned(pool);
        let mut taken = 0;
        for slot in slots {
            if self.writer.bytes().len() > MOST_VERDICT_BYTES {
                self.send_verdicts();
                if !self.writer.bytes().is_empty() {
                    break;
                }
            }
            taken += 1;
            let waiting = self.waiting.get_mut(slot.number() as usize);
            let Some(waiting) = waiting.and_then(Option::take) else {
                self.counters.lose(Loss::Offload, 1);
                pool.free(*slot);
                continue;
            };
            self.counters.sent += 1;
            self.counters.sent_bytes += pool.frame_len(*slot) as u64;
            // The kernel sends its own copy, unless the packet was changed.
            let is_changed =
                pool.is_flipped(*slot) || waiting.marks != mark_bytes(pool.head(*slot));
            if !is_changed || !waiting.is_whole {
                self.verdict(waiting.id, NF_ACCEPT, None);
            } else {
                // A modified packet counts as one whose checksum is complete. The kernel computes
                // the checksums of a super-packet's segments itself.
                if pool.vnet(*slot).gso().is_none() {
                    pool.complete_checksum(*slot);
                }
                let payload = (pool.head(*slot), pool.tail(*slot));
                self.verdict(waiting.id, NF_ACCEPT, Some(payload));
            }
            pool.unwatch(*slot);
            pool.free(*slot);
        }
        self.send_verdicts();
        taken
    }

    fn counters(&mut self) -> Counters {
        let mut counters = self.counters;
        let mut text = String::new();
        if let Some(file) = &mut self.statistics
            && file.rewind().is_ok()
            && file.read_to_string(&mut text).is_ok()
            && let Some((queue, user)) = dropped(&text, self.number)
        {
            counters.lose(Loss::Refused, queue);
            counters.lose(Loss::KernelQueue, user);
        }
        counters
    }

    fn release(&mut self, pool: &mut Pool) {
        self.drop_abandoned(pool);
    }

    fn has_waiting(&self) -> bool {
        false
    }

    /// Verdicts that the kernel had no memory for are sent again.
    fn looks_within(&self) -> Option<Span> {
        (!self.writer.bytes().is_empty()).then_some(RETRY_WITHIN)
    }

    fn let_super_packets_in(&mut self, whole: bool) {
        if self.capabilities.super_packets != whole {
            self.capabilities.super_packets = whole;
            socket::write_offloads(&mut self.writer, self.number, whole);
            self.send_verdicts();
        }
    }

    fn playback(&mut self) -> Option<&mut dyn Playback> {
        None
    }

    fn promiscuity(&self) -> Promiscuity {
        Promiscuity::NotAsked
    }
}

/// Returns whether the kernel will never accept these verdicts.
fn is_permanent(error: &io::Error) -> bool {
    let kinds = [
        libc::EPERM,
        libc::EINVAL,
        libc::EMSGSIZE,
        libc::EBADF,
        libc::EPIPE,
        libc::ECONNREFUSED,
    ];
    error
        .raw_os_error()
        .is_some_and(|kind| kinds.contains(&kind))
}

/// Only [`NfqueuePort::open`] opens it: packets leave through the port that they came from.
pub static KIND: Kind = Kind {
    name: "nfqueue",
    argument: "NUMBER",
    doc: "packets of this host's own stack",
    super_packets: Some("whole, one verdict each"),
    arrivals: "no",
    needs: "CAP_NET_ADMIN",
    in_user_namespace: true,
    parse: None,
    role: Role::Queue,
};

impl AsFd for NfqueuePort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A packet as the kernel describes it.
struct Packet<'a> {
    id: u32,
    payload: &'a [u8],
    is_super: bool,
    has_open_checksum: bool,
    /// Length of the packet in bytes, whether fetched or not.
    length: usize,
    is_whole: bool,
    /// The number of the hook.
    hook: u8,
    /// The kernel's index of the interface of arrival.
    entered: Option<u32>,
    /// The kernel's index of the interface of departure.
    leaves: Option<u32>,
}

impl<'a> Packet<'a> {
    fn read(message: &message::Message<'a>) -> Option<Packet<'a>> {
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

/// The bytes that hold the ECN field, and for IPv4 the header checksum over it.
fn mark_bytes(packet: &[u8]) -> [u8; 4] {
    let byte = |at: usize| packet.get(at).copied().unwrap_or(0);
    match byte(0) >> 4 {
        4 => [byte(0), byte(1), byte(10), byte(11)],
        _ => [byte(0), byte(1), 0, 0],
    }
}

/// Returns the number of packets that queue `number` lost because the queue was full, and the
/// number that it lost because the socket was full.
/// Columns: number, owner, waiting, mode, range, dropped, lost to the socket, last id, 1.
fn dropped(text: &str, number: u16) -> Option<(u64, u64)> {
    text.lines().find_map(|line| {
        let columns: Vec<u64> = line
            .split_whitespace()
            .map_while(|word| word.parse().ok())
            .collect();
        match columns[..] {
            [queue, _, _, _, _, dropped, lost, ..] if queue == u64::from(number) => {
                Some((dropped, lost))
            }
            _ => None,
        }
    })
}

/// The longest packet with the kernel's metadata.
const ROOM: usize = LARGE_LEN + 4096;
/// The headers with the kernel's metadata.
const HEADERS_ROOM: usize = 512;
/// The interval at which refused verdicts are sent again.
const RETRY_WITHIN: Span = Span::from_ms(5);
/// Verdicts are sent after this many bytes; a socket accepts at most its send buffer at once.
const MOST_VERDICT_BYTES: usize = 32_768;

const NF_DROP: u32 = 0;
const NF_ACCEPT: u32 = 1;
const QUEUE_PACKET: u16 = QUEUE;
const QUEUE_VERDICT: u16 = QUEUE | 1;
const SKB_CHECKSUM_NOT_READY: u32 = 1;
const SKB_GSO: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_statistics_of_the_right_queue_are_found() {
        let text =
            "    0  31337     2 2 65531     4     5       99  1\n    7 1 0 2 65531 1 0 3 1\n";
        assert_eq!(dropped(text, 0), Some((4, 5)));
        assert_eq!(dropped(text, 7), Some((1, 0)));
        assert_eq!(dropped(text, 8), None);
    }
}
