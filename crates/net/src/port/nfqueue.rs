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
mod packet;
mod rule;
mod socket;

pub use interfaces::StackPath;
pub use rule::{Hook, IfDead, Mark, Queues, Traffic};

use super::messages::{Messages, expected_after};
use super::pool::{LARGE_LEN, Ticket, Watcher};
use super::registry::{Kind, Playback, Role};
use super::remedy::remedy;
use super::{Capabilities, Counters, HEAD_LEN, Loss, Pool, Port, Promiscuity, Slot};
use crate::namespace::{Namespace, NamespaceError};
use interfaces::{Interfaces, MOST_NAMES};
use message::{Writer, messages};
use packet::{Packet, mark_bytes};
use sluice_core::Span;
use sluice_wire::frame::{Link, Transport, View, VnetHeader, parse_head};
use socket::{Failed, Installed, QUEUE, bind_queue, install, receive, send};
use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// The settings of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NfqueueOptions {
    /// The queue's number, as in `queue num 0`; that of the first queue of a group.
    pub number: u16,
    /// The packets that a rule sends to the queue; `None` if the user has already installed a rule.
    pub traffic: Option<Traffic>,
    /// The fate of packets when this process has died. Without `traffic` it has no effect.
    pub if_dead: IfDead,
    /// The names of the interfaces that [`Pool::path`] refers to, at most 65 535; without names, packets
    /// have no path.
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
    /// There are not so many numbers.
    #[error("there are no {count} queues from number {first} on: the last one is 65535")]
    Queues {
        /// The number of the first queue.
        first: u16,
        /// The number of queues.
        count: usize,
    },
    /// Paths have no numbers for so many interfaces.
    #[error(
        "{0} interfaces were named for the paths of packets; at most {MOST_NAMES} can be distinguished"
    )]
    Names(usize),
    /// The kernel refused a step.
    #[error("cannot {step} for queue {queues} in namespace {namespace:?}: {source}{}", remedy(.source))]
    Kernel {
        /// The step.
        step: &'static str,
        /// The queues.
        queues: Queues,
        /// The namespace.
        namespace: String,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// The queues of the kernel that the ports of one router serve, each on a socket of its own.
///
/// The kernel accepts a verdict from the socket that the packet's queue is bound to
/// (`verdict_instance_lookup` in net/netfilter/nfnetlink_queue.c), from any thread. So the port that
/// decides about a packet sends the verdict itself, whichever port received the packet.
struct Group {
    /// The rules are removed first, so that no packet finds a queue unattended.
    rules: Option<Installed>,
    sockets: Vec<OwnedFd>,
}

/// One queue of the kernel.
pub struct NfqueuePort {
    group: Arc<Group>,
    /// The place of this port's queue in the group.
    own: usize,
    queues: Queues,
    interfaces: Interfaces,
    /// The queue's own counters: /proc/net/netfilter/nfnetlink_queue of the namespace.
    statistics: Option<File>,
    /// What they had counted when they were read last.
    counted: [u32; 2],
    name: String,
    capabilities: Capabilities,
    /// Reports which packets the router has dropped; created by the first call with a pool.
    watcher: Option<Watcher>,
    /// Room for one whole packet, or for a batch of headers.
    room: Box<[u8]>,
    headers_only: bool,
    /// Headers are received in batches.
    incoming: Option<Messages>,
    /// Verdicts to be sent, by queue of the group.
    writers: Vec<Writer>,
    counters: Counters,
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
        let mut ports = NfqueuePort::open_group(namespace, options, 1)?;
        Ok(ports.pop().expect("a group of one has one port"))
    }

    /// Opens `count` consecutive queues of `namespace`, for as many workers. The rule gives each flow to
    /// one of them, in both directions the same (`symhash` of nft, a hash of addresses and ports). A
    /// port also gives verdicts on packets that another port of the group received, if their frames
    /// were carried to its pool ([`Pool::carry`]).
    ///
    /// # Errors
    /// As for [`NfqueuePort::open`], or there are not so many numbers.
    pub fn open_group(
        namespace: &Namespace,
        options: &NfqueueOptions,
        count: usize,
    ) -> Result<Vec<NfqueuePort>, NfqueueError> {
        let names = options.traffic.iter().flat_map(Traffic::interfaces);
        for name in names {
            if name.is_empty() || name.len() >= libc::IFNAMSIZ {
                return Err(NfqueueError::Name(name.to_owned()));
            }
        }
        if options.interfaces.len() > MOST_NAMES {
            return Err(NfqueueError::Names(options.interfaces.len()));
        }
        let queues = Queues::new(options.number, count).ok_or(NfqueueError::Queues {
            first: options.number,
            count,
        })?;
        let open = || -> Result<Vec<NfqueuePort>, Failed> {
            let sockets: Result<Vec<OwnedFd>, Failed> = queues
                .numbers()
                .map(|number| bind_queue(number, options))
                .collect();
            let sockets = sockets?;
            let rules = match &options.traffic {
                Some(traffic) => Some(install(traffic, queues, options.if_dead)?),
                None => None,
            };
            let group = Arc::new(Group { rules, sockets });
            let ports = 0..count;
            Ok(ports
                .map(|own| NfqueuePort::new(&group, own, queues, options))
                .collect())
        };
        namespace
            .enter(open)?
            .map_err(|(step, source)| NfqueueError::Kernel {
                step,
                queues,
                namespace: namespace.name().to_owned(),
                source,
            })
    }

    fn new(group: &Arc<Group>, own: usize, queues: Queues, options: &NfqueueOptions) -> Self {
        let batch = options.batch.max(1);
        NfqueuePort {
            group: Arc::clone(group),
            own,
            queues,
            interfaces: Interfaces::new(&options.interfaces),
            statistics: File::open("/proc/thread-self/net/netfilter/nfnetlink_queue").ok(),
            counted: [0; 2],
            name: format!("nfqueue {queues}"),
            capabilities: Capabilities {
                super_packets: options.offloads,
                partial_checksums: true,
                batch,
                mtu: options.mtu,
                kernel_queue: options.receive_buffer,
            },
            watcher: None,
            room: match options.headers_only {
                true => vec![0; HEADERS_ROOM * batch].into(),
                false => vec![0; ROOM].into(),
            },
            headers_only: options.headers_only,
            incoming: options.headers_only.then(|| Messages::new(batch)),
            writers: queues.numbers().map(|_| Writer::default()).collect(),
            counters: Counters::default(),
        }
    }

    /// Returns whether the group replaced rules that a killed process had left.
    pub fn took_over(&self) -> bool {
        let rules = self.group.rules.as_ref();
        rules.is_some_and(|rules| rules.took_over)
    }

    /// Returns whether other processes can remove the group's rules, as `nft flush ruleset` does:
    /// [`IfDead::Closed`] before Linux 6.9. Packets then pass unqueued.
    pub fn can_be_flushed(&self) -> bool {
        let rules = self.group.rules.as_ref();
        rules.is_some_and(|rules| !rules.is_owned)
    }

    fn socket(&self) -> BorrowedFd<'_> {
        self.group.sockets[self.own].as_fd()
    }

    fn watcher(&mut self, pool: &mut Pool) -> Watcher {
        *self.watcher.get_or_insert_with(|| pool.watcher())
    }

    /// Writes a drop verdict for every packet that the router has dropped, as far as the kernel accepts
    /// verdicts.
    fn drop_abandoned(&mut self, pool: &mut Pool) {
        let watcher = self.watcher(pool);
        while let Some(ticket) = pool.next_abandoned(watcher) {
            self.verdict(ticket, NF_DROP, None);
            if !self.has_room(ticket.queue) {
                break;
            }
        }
    }

    fn verdict(&mut self, ticket: Ticket, verdict: u32, payload: Option<(&[u8], &[u8])>) {
        let number = self.queues.number(ticket.queue);
        let writer = &mut self.writers[usize::from(ticket.queue)];
        writer.begin(QUEUE_VERDICT, 0, 0, number);
        let mut header = [0; 8];
        header[..4].copy_from_slice(&verdict.to_be_bytes());
        header[4..].copy_from_slice(&ticket.id.to_be_bytes());
        writer.attribute(VERDICT, &header, &[]);
        if let Some((head, tail)) = payload {
            writer.attribute(10, head, tail);
        }
        writer.end();
    }

    /// Sends the verdicts for all queues. Those that the kernel has no memory for remain.
    fn send_verdicts(&mut self) {
        let counters = &mut self.counters;
        for (writer, socket) in self.writers.iter_mut().zip(&self.group.sockets) {
            if writer.bytes().is_empty() {
                continue;
            }
            // The kernel processes verdicts within the call, so the call never blocks, and processes
            // all of them or none.
            match send(socket.as_fd(), writer.bytes()) {
                // Without its verdict a packet would stay in the kernel.
                Err(error) if !is_permanent(&error) => {
                    counters.blocked += 1;
                    continue;
                }
                Err(error) => {
                    let verdicts = messages(writer.bytes()).count();
                    counters.lose(Loss::of(&error), verdicts as u64);
                }
                Ok(()) => {}
            }
            writer.clear();
        }
    }

    /// Stores one of the kernel's packets in the pool; returns `None` if there is no room.
    fn store(&mut self, pool: &mut Pool, packet: &Packet<'_>) -> Result<Slot, Loss> {
        let payload = &packet.payload[..packet.payload.len().min(packet.length)];
        // The kernel copies at most 65 531 bytes, whatever the request (`NFQNL_MAX_COPY_RANGE` in
        // nfnetlink_queue.c).
        let slot = if self.headers_only || payload.len() < packet.length {
            let slot = pool.allocate().ok_or(Loss::NoSlot)?;
            let head = &payload[..payload.len().min(HEAD_LEN)];
            pool.set_cut(slot, head, packet.length as u32);
            slot
        } else {
            pool.store(payload)?
        };
        if !self.interfaces.is_empty() {
            let socket = self.group.sockets[self.own].as_fd();
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
        let watcher = self
            .watcher
            .expect("the port has been called with its pool");
        let ticket = Ticket {
            marks: mark_bytes(pool.head(slot)),
            is_whole: packet.is_whole,
            ..self.ticket(packet)
        };
        pool.set_ticket(slot, watcher, ticket);
    }

    fn ticket(&self, packet: &Packet<'_>) -> Ticket {
        Ticket {
            id: packet.id,
            // Numbers of queues have 16 bits.
            queue: self.own as u16,
            ..Ticket::default()
        }
    }

    fn receive_whole(&mut self, pool: &mut Pool, into: &mut Vec<Slot>, room: &mut [u8]) {
        for _ in 0..self.capabilities.batch {
            match receive(self.socket(), room) {
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
        match incoming.receive(self.socket()) {
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
                if packet::is_gone(&message) {
                    self.counters.sent = self.counters.sent.saturating_sub(1);
                    self.counters.lose(Loss::Down, 1);
                }
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
                    self.verdict(self.ticket(&packet), NF_DROP, None);
                }
            }
        }
    }

    /// Returns whether another verdict for this queue fits the next call, after sending those that fill
    /// one.
    fn has_room(&mut self, queue: u16) -> bool {
        let queue = usize::from(queue);
        if self.writers[queue].bytes().len() > MOST_VERDICT_BYTES {
            self.send_verdicts();
        }
        self.writers[queue].bytes().len() <= MOST_VERDICT_BYTES
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
        let watcher = self.watcher(pool);
        let mut taken = 0;
        for slot in slots {
            let Some(ticket) = pool.ticket(*slot, watcher) else {
                taken += 1;
                self.counters.lose(Loss::Offload, 1);
                pool.free(*slot);
                continue;
            };
            if !self.has_room(ticket.queue) {
                break;
            }
            taken += 1;
            self.counters.sent += 1;
            self.counters.sent_bytes += pool.frame_len(*slot) as u64;
            // The kernel sends its own copy, unless the packet was changed.
            let is_changed = pool.is_flipped(*slot) || ticket.marks != mark_bytes(pool.head(*slot));
            if !is_changed || !ticket.is_whole {
                self.verdict(ticket, NF_ACCEPT, None);
            } else {
                // A modified packet counts as one whose checksum is complete. The kernel computes
                // the checksums of a super-packet's segments itself.
                if pool.vnet(*slot).gso().is_none() {
                    pool.complete_checksum(*slot);
                }
                let payload = (pool.head(*slot), pool.tail(*slot));
                self.verdict(ticket, NF_ACCEPT, Some(payload));
            }
            pool.free_settled(*slot);
        }
        self.send_verdicts();
        taken
    }

    fn counters(&mut self) -> Counters {
        let mut text = String::new();
        if let Some(file) = &mut self.statistics
            && file.rewind().is_ok()
            && file.read_to_string(&mut text).is_ok()
            && let Some(counted) = dropped(&text, self.queues.number(self.own as u16))
        {
            let [queue, user] = more(&mut self.counted, counted);
            self.counters.lose(Loss::Refused, queue);
            self.counters.lose(Loss::KernelQueue, user);
        }
        self.counters
    }

    fn release(&mut self, pool: &mut Pool) {
        self.drop_abandoned(pool);
        self.send_verdicts();
    }

    fn has_waiting(&self) -> bool {
        false
    }

    /// Verdicts that the kernel had no memory for are sent again.
    fn looks_within(&self) -> Option<Span> {
        let mut writers = self.writers.iter();
        let has_verdicts = writers.any(|writer| !writer.bytes().is_empty());
        has_verdicts.then_some(RETRY_WITHIN)
    }

    fn let_super_packets_in(&mut self, whole: bool) {
        if self.capabilities.super_packets != whole {
            self.capabilities.super_packets = whole;
            let number = self.queues.number(self.own as u16);
            socket::write_offloads(&mut self.writers[self.own], number, whole);
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
    doc: "packets that the kernel forwards, sends or receives",
    super_packets: Some("whole, one verdict each"),
    arrivals: "no",
    needs: "CAP_NET_ADMIN",
    in_user_namespace: true,
    parse: None,
    role: Role::Queue,
};

impl AsFd for NfqueuePort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket()
    }
}

/// Returns the number of packets that queue `number` lost because the queue was full, and the
/// number that it lost because the socket was full.
/// Columns: number, owner, waiting, mode, range, dropped, lost to the socket, last id, 1.
fn dropped(text: &str, number: u16) -> Option<[u32; 2]> {
    text.lines().find_map(|line| {
        let columns: Vec<u32> = line
            .split_whitespace()
            .map_while(|word| word.parse().ok())
            .collect();
        match columns[..] {
            [queue, _, _, _, _, dropped, lost, ..] if queue == u32::from(number) => {
                Some([dropped, lost])
            }
            _ => None,
        }
    })
}

/// Returns how much the kernel's counters have grown since `before`, which becomes `now`. They have 32
/// bits and begin at 0 again (`struct nfqnl_instance` in nfnetlink_queue.c).
fn more(before: &mut [u32; 2], now: [u32; 2]) -> [u64; 2] {
    let before = std::mem::replace(before, now);
    [0, 1].map(|at| u64::from(now[at].wrapping_sub(before[at])))
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
/// NFQA_VERDICT_HDR.
const VERDICT: u16 = 2;
const QUEUE_VERDICT: u16 = QUEUE | 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_statistics_of_the_right_queue_are_found() {
        let text =
            "    0  31337     2 2 65531     4     5       99  1\n    7 1 0 2 65531 1 0 3 1\n";
        assert_eq!(dropped(text, 0), Some([4, 5]));
        assert_eq!(dropped(text, 7), Some([1, 0]));
        assert_eq!(dropped(text, 8), None);
    }

    #[test]
    fn losses_are_counted_beyond_the_32_bits_of_the_kernel() {
        let mut before = [0; 2];
        assert_eq!(more(&mut before, [u32::MAX, 3]), [4_294_967_295, 3]);
        // The first counter has passed 2^32 - 1, and 0 to 4: five more.
        assert_eq!(more(&mut before, [4, 3]), [5, 0]);
        assert_eq!(before, [4, 3]);
    }
}
