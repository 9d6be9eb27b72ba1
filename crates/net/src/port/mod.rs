//! Ports: where packets enter and leave a router.
//!
//! The host owns the bytes: a [`Port`] receives batches of frames into slots of the host's [`Pool`]
//! and transmits slots from it. With offloads on, a frame may be a super-packet; its
//! [`VnetHeader`](sluice_wire::frame::VnetHeader) is stored with the slot.
//!
//! Nothing is lost silently. Frames that a port cannot deliver are counted under a [`Loss`], and
//! the packet path returns no `Result`.

mod cache_warmer;
pub mod choose;
mod hold;
mod inject;
mod messages;
mod name_watch;
mod pool;
mod promiscuous;
pub mod registry;
mod remedy;
mod trains;
mod wait;

pub use cache_warmer::CacheWarmer;
pub use hold::HoldError;
pub use inject::Injector;
pub use nfqueue::NfqueuePort;
pub use packet::PacketPort;
pub use pcap::{PcapPort, create_capture};
pub use pool::{Carried, HEAD_LEN, LONGEST, Pool, PoolError, PoolSize, Slot};
pub use promiscuous::Promiscuity;
pub use registry::{OpenError, PortSpec, PortSpecError};
pub use tun::TunPort;
pub use wait::{Interest, Spin, Waiter, Wake, Watch, wake_time};
pub use xdp::XdpPort;

use registry::Playback;
use sluice_core::Span;
use sluice_wire::frame::Link;
use std::os::fd::AsFd;

#[cfg(test)]
mod live;

/// Declares the module of each kind of port and lists its kinds in [`KINDS`].
macro_rules! kinds {
    ($($module:ident: $($kind:ident),+;)+) => {
        $(pub mod $module;)+

        /// Every kind of port.
        ///
        /// Where several kinds attach to an interface, [`choose`](mod@choose) takes the last one
        /// that does not decline: put a kind that serves fewer interfaces, but better, further
        /// down.
        pub static KINDS: &[&registry::Kind] = &[$($(&$module::$kind,)+)+];
    };
}

kinds! {
    packet: KIND;
    xdp: KIND;
    tun: TUN, TAP;
    nfqueue: KIND;
    pcap: KIND;
}

/// A place where frames enter and leave. One file per kind, and a line in `kinds!` above.
///
/// No method has a default: a wrapper that forwards to another port, as `Box` does, cannot forget
/// one.
pub trait Port: AsFd {
    /// Returns the interface's name.
    fn name(&self) -> &str;

    /// Returns the link header that the port's frames start with.
    fn link(&self) -> Link;

    /// Returns the capabilities of the port.
    fn capabilities(&self) -> Capabilities;

    /// Receives up to one batch of waiting frames into slots of `pool` and appends the slots to
    /// `into`. Returns the number of frames. Never blocks.
    ///
    /// When `pool` has no free slot, waiting frames are read and dropped, so that overload shows up
    /// as [`Loss::NoSlot`] and not as hidden delay.
    fn receive(&mut self, pool: &mut Pool, into: &mut Vec<Slot>) -> usize;

    /// Returns whether frames are waiting, as far as the port knows without a system call; `false`
    /// if it does not know.
    fn has_waiting(&self) -> bool;

    /// Sends `slots` in order and frees them in `pool`. Returns the number of slots sent. The other
    /// slots are untouched, because the port would block ([`Counters::blocked`]): the caller tries
    /// again when the port is writable, or drops them.
    fn transmit(&mut self, pool: &mut Pool, slots: &[Slot]) -> usize;

    /// Returns the counters of frames passed and lost since the port was opened.
    fn counters(&mut self) -> Counters;

    /// Returns to the pool the slots that the port keeps for future frames.
    fn release(&mut self, pool: &mut Pool);

    /// Returns the number of slots that the port keeps for future frames, or that it has lent to the
    /// kernel. A port that takes a slot when a frame arrives, and frees it in [`Port::transmit`], keeps
    /// none.
    fn kept(&self) -> usize {
        0
    }

    /// Returns the time within which [`Port::receive`] must be called even if the port is not ready:
    /// because the port waits for its interface to come back, or because its descriptor does not
    /// report that the interface has gone.
    fn looks_within(&self) -> Option<Span>;

    /// Sets whether super-packets may arrive whole. Only a port whose super-packets cannot be split
    /// once they have arrived obeys; the kernel then splits them before.
    fn let_super_packets_in(&mut self, whole: bool);

    /// Returns whether the interface passes on frames for all addresses, as a bridge needs it.
    fn promiscuity(&self) -> Promiscuity;

    /// Returns why the port cannot attach to its interface, although there is one that is up, and has not been
    /// able to for half a second.
    fn attach_error(&self) -> Option<String> {
        None
    }

    /// Returns the port as a player of a recording, if it is one.
    fn playback(&mut self) -> Option<&mut dyn Playback>;
}

impl<P: Port + ?Sized> Port for Box<P> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn link(&self) -> Link {
        (**self).link()
    }

    fn capabilities(&self) -> Capabilities {
        (**self).capabilities()
    }

    fn receive(&mut self, pool: &mut Pool, into: &mut Vec<Slot>) -> usize {
        (**self).receive(pool, into)
    }

    fn has_waiting(&self) -> bool {
        (**self).has_waiting()
    }

    fn transmit(&mut self, pool: &mut Pool, slots: &[Slot]) -> usize {
        (**self).transmit(pool, slots)
    }

    fn counters(&mut self) -> Counters {
        (**self).counters()
    }

    fn release(&mut self, pool: &mut Pool) {
        (**self).release(pool);
    }

    fn kept(&self) -> usize {
        (**self).kept()
    }

    fn looks_within(&self) -> Option<Span> {
        (**self).looks_within()
    }

    fn let_super_packets_in(&mut self, whole: bool) {
        (**self).let_super_packets_in(whole);
    }

    fn promiscuity(&self) -> Promiscuity {
        (**self).promiscuity()
    }

    fn attach_error(&self) -> Option<String> {
        (**self).attach_error()
    }

    fn playback(&mut self) -> Option<&mut dyn Playback> {
        (**self).playback()
    }
}

/// The capabilities of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Super-packets may arrive and may be sent.
    pub super_packets: bool,
    /// Frames may be sent with their transport checksum left open.
    pub partial_checksums: bool,
    /// Largest number of frames of the next [`Port::receive`]. If it returns that many, more may
    /// wait.
    pub batch: usize,
    /// Largest network packet. Ports of the kinds `packet` and `xdp` know a change within half a second;
    /// while such a port has no interface, it is that of the last one, or 0.
    pub mtu: u32,
    /// Bytes of the kernel's memory for frames that the port has not received yet; 0 if the port has no
    /// such memory of its own.
    pub kernel_queue: usize,
}

/// Counters of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames received.
    pub received: u64,
    /// Bytes of the frames received, with link headers; of a super-packet its own length.
    pub received_bytes: u64,
    /// Frames received that were super-packets.
    pub received_super: u64,
    /// Frames that the kernel accepted.
    pub sent: u64,
    /// Bytes of the frames sent, with link headers.
    pub sent_bytes: u64,
    /// Super-packets that the port built from several frames each, and that the kernel segments
    /// again.
    pub sent_trains: u64,
    /// The number of transmissions that would have blocked.
    pub blocked: u64,
    /// Frames lost, by reason.
    lost: [u64; Loss::ALL.len()],
}

/// The reasons why a port loses a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The pool had no slot for a frame that waited.
    NoSlot,
    /// The pool had no room for a frame longer than [`HEAD_LEN`].
    NoLargeSlot,
    /// The frame was longer than any slot.
    Oversize,
    /// The kernel's receive queue was full: the host read it too late.
    KernelQueue,
    /// The kernel could not describe the frame's offload state.
    Offload,
    /// The interface was down or gone, or the port could not attach to it.
    Down,
    /// The frame was longer than the interface sends.
    TooLong,
    /// The interface, its kernel queue or the disk refused the frame.
    Refused,
    /// The port has no file to write the frame to.
    NoFile,
    /// Another error of the kernel.
    Other,
}

impl Loss {
    /// Every reason, in the order of the counters.
    pub const ALL: [Loss; 10] = [
        Loss::NoSlot,
        Loss::NoLargeSlot,
        Loss::Oversize,
        Loss::KernelQueue,
        Loss::Offload,
        Loss::Down,
        Loss::TooLong,
        Loss::Refused,
        Loss::NoFile,
        Loss::Other,
    ];

    /// Returns the reason as one word.
    pub const fn name(self) -> &'static str {
        match self {
            Loss::NoSlot => "no_slot",
            Loss::NoLargeSlot => "no_large_slot",
            Loss::Oversize => "oversize",
            Loss::KernelQueue => "kernel_queue",
            Loss::Offload => "offload",
            Loss::Down => "down",
            Loss::TooLong => "too_long",
            Loss::Refused => "refused",
            Loss::NoFile => "no_file",
            Loss::Other => "other",
        }
    }

    /// Returns the reason that an error of a send or receive call stands for.
    fn of(error: &std::io::Error) -> Loss {
        match error.raw_os_error() {
            Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV | libc::EBADFD | libc::EIO) => {
                Loss::Down
            }
            Some(libc::EMSGSIZE) => Loss::TooLong,
            Some(libc::ENOBUFS | libc::ENOMEM) => Loss::Refused,
            Some(libc::EINVAL) => Loss::Offload,
            _ => Loss::Other,
        }
    }
}

impl Counters {
    /// Returns the number of frames lost for `reason`.
    pub fn lost(&self, reason: Loss) -> u64 {
        self.lost[reason as usize]
    }

    /// Returns the number of frames lost for any reason.
    pub fn lost_total(&self) -> u64 {
        self.lost.iter().sum()
    }

    fn lose(&mut self, reason: Loss, frames: u64) {
        self.lost[reason as usize] += frames;
    }
}
