//! TUN and TAP devices with offload headers.
//!
//! The other side of such a device is this process: packets that the stack routes to the device
//! arrive here, and packets sent here appear to arrive on the device. Works in an unprivileged user
//! namespace. With `IFF_VNET_HDR` super-packets cross whole. See
//! Documentation/networking/tuntap.rst of Linux.
#![allow(unsafe_code)]

use super::pool::LARGE_LEN;
use super::registry::{Kind, Named, OpenError, Opened, OpenedGroup, Playback, Role, Sharing, Site};
use super::remedy::remedy;
use super::{Capabilities, Counters, Loss, Pool, Port, Promiscuity, Slot};
use crate::clock::Clock;
use crate::namespace::{LinkError, Namespace, NamespaceError};
use crate::sys;
use sluice_core::Span;
use sluice_wire::frame::{Link, VnetHeader};
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;

/// The settings of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunOptions {
    /// The link header of the frames: [`Link::Ip`] for TUN, [`Link::Ethernet`] for TAP.
    pub link: Link,
    /// Let super-packets and open checksums through.
    pub offloads: bool,
    /// Largest number of frames of one [`Port::receive`]; each costs a system call.
    pub batch: usize,
}

impl Default for TunOptions {
    fn default() -> TunOptions {
        TunOptions {
            link: Link::Ip,
            offloads: true,
            batch: 32,
        }
    }
}

/// The reasons why a device cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum TunError {
    /// The namespace could not be entered.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// The device does not exist after its creation.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The name is empty, or longer than the 15 bytes that the kernel allows.
    #[error("interface name {0:?} must have 1 to 15 bytes")]
    Name(String),
    /// The device file cannot be opened.
    #[error(
        "cannot open /dev/net/tun: {0} (it must exist, and be readable and writable by this user)"
    )]
    Open(io::Error),
    /// The kernel refused a step.
    #[error("cannot {step} of {interface:?} in namespace {namespace:?}: {source}{}", remedy(.source))]
    Kernel {
        /// The step.
        step: &'static str,
        /// The device.
        interface: String,
        /// The namespace.
        namespace: String,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// The process's side of a TUN or TAP device. The device ceases to exist when it is closed. If it
/// is deleted before, nothing arrives any more, and frames to send are lost as [`Loss::Down`].
pub struct TunPort {
    file: File,
    /// The descriptor to wait on after the device was deleted, which never has anything to read.
    /// The file has an error to report for good.
    silent: Option<OwnedFd>,
    interface: String,
    link: Link,
    capabilities: Capabilities,
    vnet_len: usize,
    large: Option<u32>,
    slot: Option<Slot>,
    scratch: Box<[u8]>,
    counters: Counters,
}

impl TunPort {
    /// Creates a device called `interface` in `namespace`, still down.
    ///
    /// # Errors
    /// The name is in use, or the process lacks CAP_NET_ADMIN in the namespace.
    pub fn create(
        namespace: &Namespace,
        interface: &str,
        options: TunOptions,
    ) -> Result<TunPort, TunError> {
        TunPort::attach(namespace, interface, options, IFF_TUN_EXCL)
    }

    /// Creates a device with a queue for each of `count` ports, for as many threads. The kernel gives a
    /// packet for the device to the queue through which the last packet of its flow was sent, or to one
    /// by a hash (`tun_automq_select_queue` in Linux's drivers/net/tun.c).
    ///
    /// # Errors
    /// As for [`TunPort::create`], or there are more ports than queues.
    pub fn create_group(
        namespace: &Namespace,
        interface: &str,
        options: TunOptions,
        count: usize,
    ) -> Result<Vec<TunPort>, TunError> {
        let queue = libc::IFF_MULTI_QUEUE;
        // The first one creates the device; the others find it.
        let flags = std::iter::once(queue | IFF_TUN_EXCL).chain(std::iter::repeat(queue));
        let attach = |flags| TunPort::attach(namespace, interface, options, flags);
        flags.take(count).map(attach).collect()
    }

    fn attach(
        namespace: &Namespace,
        interface: &str,
        options: TunOptions,
        flags: libc::c_int,
    ) -> Result<TunPort, TunError> {
        if interface.is_empty() || interface.len() >= libc::IFNAMSIZ {
            return Err(TunError::Name(interface.to_owned()));
        }
        let error = |step: &'static str| {
            move |source| TunError::Kernel {
                step,
                interface: interface.to_owned(),
                namespace: namespace.name().to_owned(),
                source,
            }
        };
        // The device will be in the namespace of the thread that opened the file.
        let open = || {
            OpenOptions::new()
                .read(true)
                .write(true)
                .custom_flags(libc::O_NONBLOCK)
                .open("/dev/net/tun")
        };
        let file = namespace.enter(open)?.map_err(TunError::Open)?;
        attach(&file, interface, options, flags)
            .map_err(error("create the device (needs CAP_NET_ADMIN)"))?;
        if options.offloads {
            set_offloads(&file).map_err(error("set the offloads"))?;
        }
        let mtu = namespace.links()?.interface(interface)?.mtu;
        Ok(TunPort {
            file,
            silent: None,
            interface: interface.to_owned(),
            link: options.link,
            capabilities: Capabilities {
                super_packets: options.offloads,
                partial_checksums: options.offloads,
                batch: options.batch.max(1),
                mtu,
                kernel_queue: 0,
            },
            vnet_len: VnetHeader::LEN,
            large: None,
            slot: None,
            scratch: vec![0; LARGE_LEN].into(),
            counters: Counters::default(),
        })
    }
}

impl TunPort {
    /// Opens another port on the same device, for another thread: one of the two may receive while
    /// the other sends.
    ///
    /// # Errors
    /// The process has too many open files.
    pub fn try_clone(&self) -> io::Result<TunPort> {
        Ok(TunPort {
            file: self.file.try_clone()?,
            silent: None,
            interface: self.interface.clone(),
            large: None,
            slot: None,
            scratch: vec![0; LARGE_LEN].into(),
            counters: Counters::default(),
            ..*self
        })
    }
}

impl Port for TunPort {
    fn name(&self) -> &str {
        &self.interface
    }

    fn link(&self) -> Link {
        self.link
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn receive(&mut self, pool: &mut Pool, into: &mut Vec<Slot>) -> usize {
        if self.silent.is_some() {
            return 0;
        }
        let before = into.len();
        for _ in 0..self.capabilities.batch {
            self.slot = self.slot.or_else(|| pool.allocate());
            self.large = self.large.or_else(|| pool.allocate_large());
            let Some(slot) = self.slot else {
                // The first read, however short, removes the frame from the device.
                match self.file.read(&mut self.scratch) {
                    Ok(_) => self.counters.lose(Loss::NoSlot, 1),
                    Err(error) => {
                        self.end_batch(&error);
                        break;
                    }
                }
                continue;
            };
            let (room, large) = pool.receive_rooms(slot, self.vnet_len, self.large);
            let rest = if large.is_empty() {
                &mut self.scratch[..]
            } else {
                large
            };
            let mut parts = [IoSliceMut::new(room), IoSliceMut::new(rest)];
            let length = match self.file.read_vectored(&mut parts) {
                Ok(length) => length.saturating_sub(self.vnet_len),
                Err(error) => {
                    self.end_batch(&error);
                    break;
                }
            };
            if length > super::HEAD_LEN && self.large.is_none() {
                self.counters.lose(Loss::NoLargeSlot, 1);
                continue;
            }
            if pool.set_received(slot, length as u32, self.vnet_len, self.large) {
                self.large = None;
            }
            self.slot = None;
            self.counters.received += 1;
            self.counters.received_bytes += length as u64;
            self.counters.received_super += u64::from(pool.vnet(slot).gso().is_some());
            into.push(slot);
        }
        into.len() - before
    }

    fn transmit(&mut self, pool: &mut Pool, slots: &[Slot]) -> usize {
        for (index, slot) in slots.iter().enumerate() {
            let length = pool.frame_len(*slot);
            let (head, tail) = pool.send_parts(*slot, self.vnet_len);
            let parts = [IoSlice::new(head), IoSlice::new(tail)];
            loop {
                match self.file.write_vectored(&parts) {
                    Ok(_) => {
                        self.counters.sent += 1;
                        self.counters.sent_bytes += length as u64;
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        self.counters.blocked += 1;
                        return index;
                    }
                    Err(error) => self.counters.lose(Loss::of(&error), 1),
                }
                break;
            }
            pool.free(*slot);
        }
        slots.len()
    }

    fn counters(&mut self) -> Counters {
        self.counters
    }

    fn release(&mut self, pool: &mut Pool) {
        if let Some(slot) = self.slot.take() {
            pool.free(slot);
        }
        if let Some(large) = self.large.take() {
            pool.free_large(large);
        }
    }

    fn kept(&self) -> usize {
        usize::from(self.slot.is_some())
    }

    fn has_waiting(&self) -> bool {
        false
    }

    fn looks_within(&self) -> Option<Span> {
        None
    }

    fn playback(&mut self) -> Option<&mut dyn Playback> {
        None
    }

    fn let_super_packets_in(&mut self, _whole: bool) {}

    fn promiscuity(&self) -> Promiscuity {
        Promiscuity::NotAsked
    }
}

impl TunPort {
    /// Handles the error of a read.
    fn end_batch(&mut self, error: &io::Error) {
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR) => {}
            // The device was deleted. This loses no frame.
            Some(libc::EBADFD) => self.silent = sys::event().ok(),
            _ => self.counters.lose(Loss::of(error), 1),
        }
    }
}

impl AsFd for TunPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.silent {
            Some(silent) => silent.as_fd(),
            None => self.file.as_fd(),
        }
    }
}

/// `tun:NAME`.
pub static TUN: Kind = Kind {
    name: "tun",
    argument: "NAME",
    doc: "a device of IP packets that the port creates",
    super_packets: Some("whole"),
    arrivals: "no",
    needs: "CAP_NET_ADMIN, `/dev/net/tun`",
    in_user_namespace: true,
    parse: Some(|name| Ok(device(name, Link::Ip, &TUN))),
    role: Role::Device(Link::Ip),
};

/// `tap:NAME`.
pub static TAP: Kind = Kind {
    name: "tap",
    doc: "a device of Ethernet frames that the port creates",
    parse: Some(|name| Ok(device(name, Link::Ethernet, &TAP))),
    role: Role::Device(Link::Ethernet),
    ..TUN
};

fn device(name: &str, link: Link, kind: &'static Kind) -> Arc<dyn Named> {
    Arc::new(Device {
        name: name.to_owned(),
        link,
        kind,
    })
}

/// A device that is to be created.
#[derive(Debug)]
struct Device {
    name: String,
    link: Link,
    kind: &'static Kind,
}

impl Named for Device {
    fn interface(&self, _number: usize) -> String {
        self.name.clone()
    }

    fn link(&self) -> Result<Option<Link>, OpenError> {
        Ok(Some(self.link))
    }

    /// Creates the device and sets it up.
    fn open(&self, site: &mut Site<'_>) -> Result<Opened, OpenError> {
        let options = TunOptions {
            link: self.link,
            ..TunOptions::default()
        };
        let port = TunPort::create(site.namespace, &self.name, options)?;
        site.namespace.links()?.set_up(&self.name, true)?;
        Ok(Opened {
            port: Box::new(port),
            kind: self.kind,
            reason: "created by this router".to_owned(),
            cannot: Vec::new(),
            remarks: Vec::new(),
        })
    }

    fn open_group(
        &self,
        namespace: &Namespace,
        _clock: Clock,
        pools: &mut [&mut Pool],
        sharing: Sharing,
    ) -> Option<Result<OpenedGroup, OpenError>> {
        if sharing != Sharing::Flows {
            return Some(Err(Sharing::refusal(self.kind)));
        }
        let options = TunOptions {
            link: self.link,
            ..TunOptions::default()
        };
        let open = || -> Result<OpenedGroup, OpenError> {
            let ports = TunPort::create_group(namespace, &self.name, options, pools.len())?;
            namespace.links()?.set_up(&self.name, true)?;
            let boxed = |port| -> Box<dyn Port + Send> { Box::new(port) };
            Ok(OpenedGroup {
                ports: ports.into_iter().map(boxed).collect(),
                kind: self.kind,
                reason: "created by this router, with a queue for each worker".to_owned(),
                cannot: Vec::new(),
                // A packet that a worker sends draws the answers to that worker.
                keeps_flows: false,
            })
        };
        Some(open())
    }
}

fn attach(file: &File, interface: &str, options: TunOptions, flags: libc::c_int) -> io::Result<()> {
    let kind = match options.link {
        Link::Ip => libc::IFF_TUN,
        Link::Ethernet => libc::IFF_TAP,
    };
    // SAFETY: all-zero bytes are a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags =
        (kind | libc::IFF_NO_PI | libc::IFF_VNET_HDR | flags) as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes an ifreq, which outlives the call and names a
    // zero-terminated interface (its length was checked).
    sys::check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &mut request) })
        .map(drop)
}

fn set_offloads(file: &File) -> io::Result<()> {
    let set = |flags: libc::c_uint| {
        // SAFETY: TUNSETOFFLOAD takes its flags by value.
        sys::check(unsafe {
            libc::ioctl(
                file.as_raw_fd(),
                libc::TUNSETOFFLOAD as _,
                libc::c_ulong::from(flags),
            )
        })
    };
    // UDP segmentation came with Linux 6.2.
    set(OFFLOADS | USO).or_else(|_| set(OFFLOADS)).map(drop)
}

/// linux/if_tun.h: refuse an existing device instead of attaching to it.
const IFF_TUN_EXCL: libc::c_int = 0x8000;
/// linux/if_tun.h: TUN_F_CSUM, TUN_F_TSO4, TUN_F_TSO6, TUN_F_TSO_ECN.
const OFFLOADS: libc::c_uint = 0x01 | 0x02 | 0x04 | 0x08;
/// linux/if_tun.h: TUN_F_USO4, TUN_F_USO6.
const USO: libc::c_uint = 0x20 | 0x40;
