//! AF_PACKET sockets with offload headers, in batches.
//!
//! The socket receives everything that arrives on one interface, and sends as the stack does; the
//! interface keeps its addresses and its other users. With `PACKET_VNET_HDR`, super-packets pass
//! whole and checksums may stay partial. That gives ten times the throughput of one 1500-byte
//! packet at a time. See packet(7).

mod absence;
mod group;
mod inward;
mod kind;
mod ring;

pub use group::Fanout;
pub use kind::KIND;

use super::hold::{Hold, HoldError};
use super::messages::Messages;
use super::name_watch::{NameWatch, Refusals};
use super::registry::Playback;
use super::remedy::remedy;
use super::trains::Trains;
use super::{Capabilities, Counters, Loss, Pool, Port, Promiscuity, Slot};
use crate::clock::Clock;
use crate::errand::{drop_elsewhere, keep_helper};
use crate::namespace::{Interface, LinkError, Namespace, NamespaceError};
use crate::sys;
use absence::Absence;
use group::Member;
use inward::Inward;
use sluice_core::Span;
use sluice_wire::frame::{Link, SuperPacket, VnetHeader, parse_head};
use socket2::{Domain, Socket, Type};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// The settings of a packet port.
#[derive(Clone, Copy, Debug)]
pub struct PacketOptions {
    /// Accept and send super-packets and partial checksums.
    pub offloads: bool,
    /// Largest number of frames per system call. For super-packets the number is smaller, so that a
    /// batch is sent while it is still in the cache.
    pub batch: usize,
    /// Bytes that may be queued in the kernel for [`Port::receive`]. The kernel may grant less to
    /// an unprivileged process (`net.core.rmem_max`). With a ring, this buffer holds only longer
    /// frames.
    pub receive_buffer: usize,
    /// Bytes of additional memory shared with the kernel, in which frames of up to 1650 bytes are
    /// queued. Checking and reading this ring needs no system call. Without it, or if the kernel
    /// refuses it, these frames are queued with the others.
    pub ring: usize,
    /// Bytes that may be queued in the kernel after [`Port::transmit`].
    pub send_buffer: usize,
    /// Bypass the interface's queueing discipline, which would queue a second time.
    pub bypass_qdisc: bool,
    /// Send consecutive segments of a flow as one super-packet if the interface neither segments
    /// super-packets itself nor has a queue. The receiver gets the same frames, at lower cost.
    pub trains: bool,
    /// Receive frames. For a port that only sends, the kernel makes no copies of arriving frames.
    /// With one port per direction, two threads can share an interface.
    pub receives: bool,
    /// Request promiscuous mode if the port receives. Without it, a network card delivers only
    /// frames for its own addresses, which is not enough for a bridge.
    pub promiscuous: bool,
    /// Share arriving frames with the other ports of a group on the interface. All packets of a flow,
    /// in both directions, go to the same port, so several workers can serve one interface.
    pub fanout: Option<Fanout>,
    /// Record when the kernel received each frame ([`Pool::arrival`]), on this clock. Delays
    /// counted from that time are exact even if the loop wakes up late. Costs a control message for
    /// each frame that does not come through the ring.
    pub timestamps: Option<Clock>,
}

impl Default for PacketOptions {
    fn default() -> PacketOptions {
        PacketOptions {
            offloads: true,
            batch: 32,
            receive_buffer: 8 << 20,
            ring: 8 << 20,
            send_buffer: 8 << 20,
            bypass_qdisc: true,
            trains: true,
            receives: true,
            promiscuous: true,
            fanout: None,
            timestamps: None,
        }
    }
}

impl PacketOptions {
    /// Returns the length of the header that accompanies each frame.
    const fn vnet_len(&self) -> usize {
        if self.offloads { VnetHeader::LEN } else { 0 }
    }

    /// Returns whether the port requests frames for all addresses.
    const fn wants_all(&self) -> bool {
        self.receives && self.promiscuous
    }
}

/// The reasons why a packet port cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum PacketError {
    /// The namespace could not be entered.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// There is no such interface.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The interface cannot be this port.
    #[error(transparent)]
    Hold(#[from] HoldError),
    /// The kernel refused a step.
    #[error("cannot {step} for interface {interface:?} in namespace {namespace:?}: {source}{}", remedy(.source))]
    Kernel {
        /// The step.
        step: &'static str,
        /// The interface.
        interface: String,
        /// The namespace.
        namespace: String,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// One interface, through an AF_PACKET socket.
pub struct PacketPort {
    socket: Socket,
    /// Sends super-packets on an interface that does not segment them. A socket that bypasses the
    /// queueing discipline could not: the kernel segments nothing for it.
    segmenting: Option<Socket>,
    /// Whether that socket sends all frames, since the other one could not send a super-packet. From
    /// then on, so that no frame overtakes another of its flow.
    is_segmenting: bool,
    interface: String,
    /// The interface's index, which changes when the interface is removed and created again; 0 while the
    /// sockets are attached to none.
    index: u32,
    /// Whether the sockets are on an interface that has lost the port's name.
    is_astray: bool,
    hold: Hold,
    watch: NameWatch,
    refusals: Refusals,
    /// The protocol that the socket is bound to.
    protocol: libc::c_int,
    options: PacketOptions,
    /// Largest number of frames per system call.
    most: usize,
    /// `Some` while the interface is down or gone.
    absence: Option<Absence>,
    namespace: Namespace,
    capabilities: Capabilities,
    vnet_len: usize,
    /// `Some` on interfaces where trains pay off.
    trains: Option<Trains>,
    promiscuity: Promiscuity,
    inward: Inward,
    outgoing: Messages,
    counters: Counters,
    /// The place among the ports of several workers.
    member: Option<Member>,
}

impl PacketPort {
    /// Opens a port on `interface` of `namespace`.
    ///
    /// # Errors
    /// There is no such interface, it carries no Ethernet frames, it is a port by another name, or the process
    /// lacks CAP_NET_RAW.
    pub fn open(
        namespace: &Namespace,
        interface: &str,
        options: PacketOptions,
    ) -> Result<PacketPort, PacketError> {
        let mut links = namespace.links()?;
        let link = links.interface(interface)?;
        let hold = Hold::take_link(namespace, interface, &link, &mut links)?;
        PacketPort::open_at(namespace, interface, options, Some((&link, hold)))
    }

    /// Opens a port on an interface that was looked up, or one that is not attached to any.
    fn open_at(
        namespace: &Namespace,
        interface: &str,
        options: PacketOptions,
        at: Option<(&Interface, Hold)>,
    ) -> Result<PacketPort, PacketError> {
        let error = |step: &'static str| {
            move |source| PacketError::Kernel {
                step,
                interface: interface.to_owned(),
                namespace: namespace.name().to_owned(),
                source,
            }
        };
        let (link, hold) = match at {
            Some((link, hold)) => (Some(link), hold),
            None => (None, Hold::default()),
        };
        let index = link.map_or(0, |link| link.index);
        // With protocol 0 the socket receives nothing until it is bound, so it never sees a frame
        // of another interface.
        let socket = namespace
            .enter(|| Socket::new(Domain::PACKET, Type::RAW, None))?
            .map_err(error("open a packet socket (needs CAP_NET_RAW)"))?;
        socket
            .set_nonblocking(true)
            .map_err(error("make the socket non-blocking"))?;
        let switch = |name, value: i32, step| {
            sys::set_option(&socket, libc::SOL_PACKET, name, &value).map_err(error(step))
        };
        switch(libc::PACKET_IGNORE_OUTGOING, 1, "ignore outgoing frames")?;
        switch(libc::PACKET_AUXDATA, 1, "request VLAN tags")?;
        if options.offloads {
            switch(libc::PACKET_VNET_HDR, 1, "enable offload headers")?;
        }
        if options.bypass_qdisc {
            switch(libc::PACKET_QDISC_BYPASS, 1, "bypass the interface's queue")?;
        }
        if options.timestamps.is_some() {
            sys::switch_timestamps_on(&socket).map_err(error("enable timestamps"))?;
        }
        let segmenting = match options.offloads && options.bypass_qdisc {
            true => {
                let opened = open_segmenting(namespace, index, options.send_buffer)?;
                Some(opened.map_err(error("open a packet socket that segments"))?)
            }
            false => None,
        };
        sys::grant_receive_buffer(&socket, options.receive_buffer)
            .map_err(error("set the size of the receive buffer"))?;
        sys::grant_send_buffer(&socket, options.send_buffer)
            .map_err(error("set the size of the send buffer"))?;
        let inward = Inward::open(&socket, &options);
        let protocol = protocol(options.receives);
        if link.is_some() {
            bind(&socket, index, protocol).map_err(error("bind the packet socket"))?;
        }
        if let (Some(_), Some(group)) = (link, options.fanout) {
            switch(libc::PACKET_FANOUT, group.value(), "join the fanout group")?;
        }
        let promiscuity = match link.is_some() && options.wants_all() {
            true => Promiscuity::ask_in(&socket, namespace, interface, index),
            false => Promiscuity::NotAsked,
        };
        // Only now: a caller whose port was refused may go on to a namespace, which only a process of a
        // single thread may create.
        keep_helper();
        Ok(PacketPort {
            interface: interface.to_owned(),
            index,
            is_astray: false,
            hold,
            watch: NameWatch::new(),
            refusals: Refusals::default(),
            protocol,
            options,
            most: options.batch.max(1),
            absence: None,
            namespace: namespace.try_clone()?,
            capabilities: Capabilities {
                super_packets: options.offloads,
                partial_checksums: options.offloads,
                batch: options.batch.max(1),
                mtu: link.map_or(0, |link| link.mtu),
                kernel_queue: match inward.wants_looks() {
                    true => options.ring,
                    false => socket.recv_buffer_size().unwrap_or(options.receive_buffer),
                },
            },
            vnet_len: options.vnet_len(),
            trains: link
                .filter(|_| options.trains)
                .and_then(|link| Trains::open(namespace, link)),
            promiscuity,
            inward,
            socket,
            segmenting,
            is_segmenting: false,
            outgoing: Messages::new(options.batch.max(1)),
            counters: Counters::default(),
            member: None,
        })
    }

    /// Returns the number of the group of ports that share the interface's frames, if there is one.
    ///
    /// # Errors
    /// The port is in no group.
    pub fn group(&self) -> io::Result<u16> {
        let mut value = 0i32;
        // SAFETY: any bytes are a valid integer.
        #[allow(unsafe_code)]
        let read = unsafe {
            sys::option(
                &self.socket,
                libc::SOL_PACKET,
                libc::PACKET_FANOUT,
                &mut value,
            )
        };
        read.map(|_| (value & 0xffff) as u16)
    }

    /// Bytes that the kernel granted for frames that wait.
    ///
    /// # Errors
    /// Only when the socket is broken.
    pub fn receive_buffer(&self) -> io::Result<usize> {
        self.socket.recv_buffer_size()
    }

    /// Continues with a port on new sockets: at the same place of a new group, or for an interface that has
    /// another name.
    fn continue_with(&mut self, mut new: PacketPort, pool: &mut Pool) {
        self.inward.count_dropped(&self.socket, &mut self.counters);
        self.inward.release(pool);
        new.counters = self.counters;
        new.member = self.member.take();
        new.absence = self.absence.take();
        new.refusals = std::mem::take(&mut self.refusals);
        if let Some(trains) = &mut new.trains {
            trains.begin(&new.counters);
        }
        drop_elsewhere(std::mem::replace(self, new));
    }

    /// Returns whether the interface is to send the segments of a super-packet. The kernel compares only the
    /// length of a single packet with the MTU: the device then sends segments that are too long, or drops
    /// them without an error.
    fn fits(&self, pool: &Pool, slot: Slot) -> bool {
        let (vnet, mtu) = (pool.vnet(slot), self.capabilities.mtu);
        if vnet.gso().is_none() || mtu == 0 {
            return true;
        }
        let view = parse_head(pool.head(slot), pool.frame_len(slot), Link::Ethernet);
        let Ok(whole) = SuperPacket::new(&view, &vnet) else {
            return true;
        };
        whole.segment_len(0) - u32::from(view.network) <= mtu
    }

    /// Sends a batch with trains, if the batch has any. Returns whether it has.
    fn transmit_trains(&mut self, pool: &mut Pool, batch: &[Slot]) -> bool {
        let Some(trains) = &mut self.trains else {
            return false;
        };
        if !trains.find(pool, batch, &mut self.counters) {
            return false;
        }
        if !trains.send(pool, batch, &mut self.counters) {
            self.absence.get_or_insert_default().errors += 1;
        }
        true
    }

    /// Like [`Port::transmit`], for the frames of one system call.
    fn transmit_batch(&mut self, pool: &mut Pool, batch: &[Slot]) -> usize {
        self.outgoing.clear();
        for slot in batch {
            if self.vnet_len == 0 {
                pool.complete_checksum(*slot);
            }
            let (head, tail) = pool.send_parts(*slot, self.vnet_len);
            // SAFETY: the parts are of `pool`, which is borrowed until this function
            // returns; each slot is sent once, and none is changed before.
            #[allow(unsafe_code)]
            unsafe {
                self.outgoing.push(head, tail);
            }
        }
        let (counters, absence) = (&mut self.counters, &mut self.absence);
        let mut tell = |index: usize, error: Option<io::Error>| match error {
            None => {
                counters.sent += 1;
                counters.sent_bytes += pool.frame_len(batch[index]) as u64;
            }
            Some(error) => lose(&error, counters, absence),
        };
        let mut done = 0;
        if let (Some(_), false) = (&self.segmenting, self.is_segmenting) {
            let mut is_refused = false;
            let socket = self.socket.as_fd();
            done = self.outgoing.send_from(socket, 0, |index, error| {
                let is_super = || pool.vnet(batch[index]).gso().is_some();
                is_refused = error.as_ref().map(Loss::of) == Some(Loss::Refused) && is_super();
                if !is_refused {
                    tell(index, error);
                }
                !is_refused
            });
            self.is_segmenting = is_refused;
        }
        if self.segmenting.is_none() || self.is_segmenting {
            let socket = self.segmenting.as_ref().unwrap_or(&self.socket).as_fd();
            done = self.outgoing.send_from(socket, done, |index, error| {
                tell(index, error);
                true
            });
        }
        self.counters.blocked += u64::from(done < batch.len());
        batch[..done].iter().for_each(|slot| pool.free(*slot));
        done
    }
}

impl Port for PacketPort {
    fn name(&self) -> &str {
        &self.interface
    }

    fn link(&self) -> Link {
        Link::Ethernet
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn receive(&mut self, pool: &mut Pool, into: &mut Vec<Slot>) -> usize {
        self.follow_name();
        self.look_for_it(pool);
        let (before, counters) = (into.len(), self.counters);
        let mut result = self
            .inward
            .receive(&self.socket, pool, &mut self.counters, into);
        if self.is_astray {
            // They are from an interface of another name.
            into.drain(before..).for_each(|slot| pool.free(slot));
            self.counters = counters;
            return 0;
        }
        if self.absence.is_some() && result.is_ok() {
            // The error that the next transmission would return.
            result = self
                .socket
                .take_error()
                .and_then(|error| error.map_or(Ok(()), Err));
        }
        if let Err(error) = result
            && !matches!(
                error.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
            )
        {
            // The error of an interface that is down stands for no frame.
            match Loss::of(&error) {
                Loss::Down => self.absence.get_or_insert_default().errors += 1,
                reason => self.counters.lose(reason, 1),
            }
        }
        self.capabilities.batch = self.inward.batch();
        into.len() - before
    }

    fn has_waiting(&self) -> bool {
        self.inward.has_waiting()
    }

    fn transmit(&mut self, pool: &mut Pool, slots: &[Slot]) -> usize {
        // On a port that only sends, no other function is called.
        self.follow_name();
        self.look_for_it(pool);
        if self.is_astray {
            self.counters.lose(Loss::Down, slots.len() as u64);
            slots.iter().for_each(|slot| pool.free(*slot));
            return slots.len();
        }
        let mut taken = 0;
        while taken < slots.len() {
            let most = match self.trains {
                Some(_) => self.most.min(Trains::MOST),
                None => self.most,
            };
            let batch = &slots[taken..slots.len().min(taken + most)];
            let fitting = batch.iter().take_while(|slot| self.fits(pool, **slot));
            let batch = &batch[..fitting.count()];
            if batch.is_empty() {
                self.counters.lose(Loss::TooLong, 1);
                pool.free(slots[taken]);
                taken += 1;
                continue;
            }
            let sent = if self.transmit_trains(pool, batch) {
                batch.len()
            } else {
                self.transmit_batch(pool, batch)
            };
            taken += sent;
            if sent < batch.len() {
                break;
            }
        }
        taken
    }

    fn counters(&mut self) -> Counters {
        self.follow_name();
        if let Some(trains) = &mut self.trains {
            trains.look(&mut self.counters);
        }
        self.inward.count_dropped(&self.socket, &mut self.counters);
        self.counters
    }

    fn looks_within(&self) -> Option<Span> {
        match &self.absence {
            Some(absence) => Some(absence.looks_within()),
            None => self.options.receives.then_some(LOOK_EVERY),
        }
    }

    fn let_super_packets_in(&mut self, _whole: bool) {}

    fn promiscuity(&self) -> Promiscuity {
        self.promiscuity.clone()
    }

    fn attach_error(&self) -> Option<String> {
        self.refusals.lasting()
    }

    fn release(&mut self, pool: &mut Pool) {
        if let Some(trains) = &mut self.trains {
            trains.conclude(&mut self.counters);
        }
        self.inward.release(pool);
    }

    fn kept(&self) -> usize {
        self.inward.kept()
    }

    fn playback(&mut self) -> Option<&mut dyn Playback> {
        None
    }
}

impl AsFd for PacketPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

const LOOK_EVERY: Span = Span::from_ms(100);

/// Counts a frame lost to an error.
fn lose(error: &io::Error, counters: &mut Counters, absence: &mut Option<Absence>) {
    let reason = Loss::of(error);
    counters.lose(reason, 1);
    if reason == Loss::Down {
        absence.get_or_insert_default().errors += 1;
    }
}

/// Opens a socket that sends through the interface's queueing discipline, before which the kernel
/// segments what the interface does not.
pub(super) fn open_segmenting(
    namespace: &Namespace,
    index: u32,
    send_buffer: usize,
) -> Result<io::Result<Socket>, NamespaceError> {
    namespace.enter(|| {
        let socket = Socket::new(Domain::PACKET, Type::RAW, None)?;
        socket.set_nonblocking(true)?;
        sys::set_option(&socket, libc::SOL_PACKET, libc::PACKET_VNET_HDR, &1i32)?;
        sys::grant_send_buffer(&socket, send_buffer)?;
        bind(&socket, index, protocol(false))?;
        Ok(socket)
    })
}

/// Returns the protocol to bind to. A socket bound to protocol 0 only sends.
pub(super) const fn protocol(receives: bool) -> libc::c_int {
    if receives { libc::ETH_P_ALL } else { 0 }
}

pub(super) fn bind(socket: &Socket, index: u32, protocol: libc::c_int) -> io::Result<()> {
    // SAFETY: all-zero bytes are a valid address storage; a sockaddr_ll is smaller and starts
    // with the same family field.
    #[allow(unsafe_code)]
    let ((), address) = unsafe {
        socket2::SockAddr::try_init(|storage, length| {
            let mut address: libc::sockaddr_ll = std::mem::zeroed();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_protocol = (protocol as u16).to_be();
            address.sll_ifindex = index as i32;
            storage.cast::<libc::sockaddr_ll>().write(address);
            *length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
            Ok(())
        })?
    };
    socket.bind(&address)
}

/// Returns whether the socket is still attached to the interface with this index. The kernel
/// detaches it when the interface is removed or moved to another namespace (`packet_notifier` in
/// Linux's net/packet/af_packet.c), and reports index -1 from then on.
fn is_bound(socket: &Socket, index: u32) -> bool {
    let Ok(address) = socket.local_addr() else {
        return false;
    };
    // SAFETY: the kernel wrote a sockaddr_ll into the storage, which is larger and aligned for
    // every kind of address; all of its fields are integers.
    #[allow(unsafe_code)]
    let address = unsafe { address.as_ptr().cast::<libc::sockaddr_ll>().read() };
    u32::try_from(address.sll_ifindex).is_ok_and(|bound| bound == index)
}
