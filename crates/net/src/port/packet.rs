//! AF_PACKET sockets with offload headers, in batches.
//!
//! The socket sees everything that arrives on one interface and sends as if from the stack;
//! the interface keeps its addresses and its other users. With `PACKET_VNET_HDR` super-packets
//! cross whole and checksums may stay open, which is worth ten times the throughput of
//! one 1500-byte packet at a time. See packet(7).

use super::messages::Messages;
use super::{Capabilities, Counters, Loss, Pool, Port, Slot};
use crate::frame::{Link, VnetHeader, complete_checksum};
use crate::namespace::{LinkError, Namespace, NamespaceError};
use crate::sys;
use socket2::{Domain, Socket, Type};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// How to open a packet port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketOptions {
    /// Let super-packets and open checksums through.
    pub offloads: bool,
    /// Most frames of one system call.
    pub batch: usize,
    /// Bytes that may wait in the kernel for [`Port::receive`]; the kernel may grant less to
    /// an unprivileged process (`net.core.rmem_max`).
    pub receive_buffer: usize,
    /// Bytes that may be under way in the kernel after [`Port::transmit`].
    pub send_buffer: usize,
    /// Send past the interface's queueing discipline: it must not queue a second time.
    pub bypass_qdisc: bool,
}

impl Default for PacketOptions {
    fn default() -> PacketOptions {
        PacketOptions {
            offloads: true,
            batch: 32,
            receive_buffer: 32 << 20,
            send_buffer: 8 << 20,
            bypass_qdisc: true,
        }
    }
}

/// Why a packet port could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum PacketError {
    /// The namespace could not be entered.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// There is no such interface.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The kernel refused a step.
    #[error("cannot {step} for interface {interface:?} in namespace {namespace:?}: {source}")]
    Kernel {
        /// Which step.
        step: &'static str,
        /// Which interface.
        interface: String,
        /// Where.
        namespace: String,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// One interface through an AF_PACKET socket.
pub struct PacketPort {
    socket: Socket,
    interface: String,
    capabilities: Capabilities,
    vnet_len: usize,
    posted: Vec<Posted>,
    incoming: Messages,
    outgoing: Messages,
    counters: Counters,
}

/// Room that waits for a frame.
#[derive(Clone, Copy)]
struct Posted {
    slot: Slot,
    large: Option<u32>,
}

impl PacketPort {
    /// Opens a port on `interface` of `namespace`.
    ///
    /// # Errors
    /// When there is no such interface, or the process may not (CAP_NET_RAW).
    pub fn open(
        namespace: &Namespace,
        interface: &str,
        options: PacketOptions,
    ) -> Result<PacketPort, PacketError> {
        let error = |step: &'static str| {
            move |source| PacketError::Kernel {
                step,
                interface: interface.to_owned(),
                namespace: namespace.name().to_owned(),
                source,
            }
        };
        let link = namespace.links()?.interface(interface)?;
        // Protocol 0 receives nothing until it is bound, so no frame of another interface
        // slips in.
        let socket = namespace
            .enter(|| Socket::new(Domain::PACKET, Type::RAW, None))?
            .map_err(error("open a packet socket (needs CAP_NET_RAW)"))?;
        socket
            .set_nonblocking(true)
            .map_err(error("switch waiting off"))?;
        let switch = |name, value: i32, step| {
            sys::set_option(&socket, libc::SOL_PACKET, name, &value).map_err(error(step))
        };
        switch(libc::PACKET_IGNORE_OUTGOING, 1, "ignore outgoing frames")?;
        switch(libc::PACKET_AUXDATA, 1, "ask for tags")?;
        if options.offloads {
            switch(libc::PACKET_VNET_HDR, 1, "switch offload headers on")?;
        }
        if options.bypass_qdisc {
            switch(libc::PACKET_QDISC_BYPASS, 1, "bypass the interface's queue")?;
        }
        grant_buffer(
            &socket,
            libc::SO_RCVBUFFORCE,
            libc::SO_RCVBUF,
            options.receive_buffer,
        )
        .map_err(error("size the receive buffer"))?;
        grant_buffer(
            &socket,
            libc::SO_SNDBUFFORCE,
            libc::SO_SNDBUF,
            options.send_buffer,
        )
        .map_err(error("size the send buffer"))?;
        bind(&socket, link.index).map_err(error("bind the packet socket"))?;
        Ok(PacketPort {
            socket,
            interface: interface.to_owned(),
            capabilities: Capabilities {
                super_packets: options.offloads,
                partial_checksums: options.offloads,
                batch: options.batch.max(1),
                mtu: link.mtu,
            },
            vnet_len: if options.offloads { VnetHeader::LEN } else { 0 },
            posted: Vec::with_capacity(options.batch.max(1)),
            incoming: Messages::new(options.batch.max(1)),
            outgoing: Messages::new(options.batch.max(1)),
            counters: Counters::default(),
        })
    }

    /// Bytes that the kernel granted for frames that wait.
    ///
    /// # Errors
    /// Only when the socket is broken.
    pub fn receive_buffer(&self) -> io::Result<usize> {
        self.socket.recv_buffer_size()
    }

    /// Posts as much room as there is, up to a batch. Room for long frames is refilled too,
    /// since it may have run out when the slot was posted.
    fn post(&mut self, pool: &mut Pool) {
        for posted in &mut self.posted {
            if posted.large.is_none() {
                posted.large = pool.allocate_large();
            }
        }
        while self.posted.len() < self.capabilities.batch {
            let Some(slot) = pool.allocate() else { break };
            let large = pool.allocate_large();
            self.posted.push(Posted { slot, large });
        }
    }

    /// Reads frames for which there is no slot, and drops them.
    fn discard(&mut self) {
        self.incoming.clear();
        let mut nothing: [u8; 0] = [];
        while !self.incoming.is_full() {
            // SAFETY: an empty slice has no bytes that could become invalid.
            #[allow(unsafe_code)]
            unsafe {
                self.incoming.push(&mut nothing, &mut []);
            }
        }
        match self.incoming.receive(self.socket.as_fd()) {
            Ok(count) => self.counters.lose(Loss::NoSlot, count as u64),
            Err(error) => self.receive_failed(&error),
        }
    }

    fn receive_failed(&mut self, error: &io::Error) {
        if error.kind() != io::ErrorKind::WouldBlock && error.kind() != io::ErrorKind::Interrupted {
            self.counters.lose(Loss::of(error), 1);
        }
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
        self.post(pool);
        if self.posted.is_empty() {
            self.discard();
            return 0;
        }
        self.incoming.clear();
        for posted in &self.posted {
            let (room, large) = pool.receive_rooms(posted.slot, self.vnet_len, posted.large);
            // SAFETY: the rooms are parts of `pool`, which is borrowed until this function
            // returns; no two posted slots share one, and none is looked at before.
            #[allow(unsafe_code)]
            unsafe {
                self.incoming.push(room, large);
            }
        }
        let count = match self.incoming.receive(self.socket.as_fd()) {
            Ok(count) => count,
            Err(error) => {
                self.receive_failed(&error);
                return 0;
            }
        };
        let before = into.len();
        let mut kept = 0;
        for index in 0..count {
            let posted = self.posted[index];
            let received = self.incoming.received(index);
            if received.is_truncated || received.length < self.vnet_len {
                let reason = match posted.large {
                    None => Loss::NoLargeSlot,
                    Some(_) => Loss::Oversize,
                };
                self.counters.lose(reason, 1);
                self.posted[kept] = posted;
                kept += 1;
                continue;
            }
            let length = received.length - self.vnet_len;
            if !pool.set_received(posted.slot, length as u32, self.vnet_len, posted.large)
                && let Some(large) = posted.large
            {
                pool.free_large(large);
            }
            if let Some((protocol, tci)) = received.tag {
                pool.insert_tag(posted.slot, protocol, tci);
            }
            self.counters.received += 1;
            self.counters.received_bytes += pool.frame_len(posted.slot) as u64;
            self.counters.received_super += u64::from(pool.vnet(posted.slot).gso().is_some());
            into.push(posted.slot);
        }
        // Rooms that were not filled stay posted, and so do those of dropped frames.
        self.posted.drain(kept..count);
        into.len() - before
    }

    fn transmit(&mut self, pool: &mut Pool, slots: &[Slot]) -> usize {
        let mut taken = 0;
        while taken < slots.len() {
            let batch = &slots[taken..slots.len().min(taken + self.capabilities.batch)];
            self.outgoing.clear();
            for slot in batch {
                if self.vnet_len == 0 {
                    let vnet = pool.vnet(*slot);
                    let (head, tail) = pool.parts_mut(*slot);
                    complete_checksum(head, tail, &vnet);
                }
                let (head, tail) = pool.send_parts(*slot, self.vnet_len);
                // SAFETY: the parts are of `pool`, which is borrowed until this function
                // returns; each slot is sent once, and none is changed before.
                #[allow(unsafe_code)]
                unsafe {
                    self.outgoing.push(head, tail);
                }
            }
            let mut done = 0;
            while done < batch.len() {
                match self.outgoing.send(self.socket.as_fd(), done) {
                    Ok(count) => {
                        for slot in &batch[done..done + count] {
                            self.counters.sent += 1;
                            self.counters.sent_bytes += pool.frame_len(*slot) as u64;
                        }
                        done += count;
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        self.counters.blocked += 1;
                        for slot in &batch[..done] {
                            pool.free(*slot);
                        }
                        return taken + done;
                    }
                    Err(error) => {
                        // It concerns the first message that was not sent.
                        self.counters.lose(Loss::of(&error), 1);
                        done += 1;
                    }
                }
            }
            for slot in batch {
                pool.free(*slot);
            }
            taken += batch.len();
        }
        taken
    }

    fn counters(&mut self) -> Counters {
        // packet(7), PACKET_STATISTICS: reading sets the kernel's count back to zero.
        let mut statistics = Statistics::default();
        // SAFETY: `Statistics` is two integers.
        #[allow(unsafe_code)]
        let read = unsafe {
            sys::option(
                &self.socket,
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                &mut statistics,
            )
        };
        if read.is_ok() {
            self.counters
                .lose(Loss::KernelQueue, u64::from(statistics.dropped));
        }
        self.counters
    }

    fn release(&mut self, pool: &mut Pool) {
        for posted in self.posted.drain(..) {
            pool.free(posted.slot);
            if let Some(large) = posted.large {
                pool.free_large(large);
            }
        }
    }
}

impl AsFd for PacketPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// linux/if_packet.h: `struct tpacket_stats`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Statistics {
    packets: u32,
    dropped: u32,
}

/// Forces a buffer size where allowed, and else takes what the limits give.
fn grant_buffer(
    socket: &Socket,
    force: libc::c_int,
    ask: libc::c_int,
    bytes: usize,
) -> io::Result<()> {
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
    sys::set_option(socket, libc::SOL_SOCKET, force, &bytes)
        .or_else(|_| sys::set_option(socket, libc::SOL_SOCKET, ask, &bytes))
}

fn bind(socket: &Socket, index: u32) -> io::Result<()> {
    // SAFETY: all-zero bytes are a valid address storage; a sockaddr_ll is smaller and starts
    // with the same family field.
    #[allow(unsafe_code)]
    let ((), address) = unsafe {
        socket2::SockAddr::try_init(|storage, length| {
            let mut address: libc::sockaddr_ll = std::mem::zeroed();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
            address.sll_ifindex = index as i32;
            storage.cast::<libc::sockaddr_ll>().write(address);
            *length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
            Ok(())
        })?
    };
    socket.bind(&address)
}
