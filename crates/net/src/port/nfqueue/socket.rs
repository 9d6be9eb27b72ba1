//! The netlink sockets of a queue: binding it, installing its rule, and the system calls.
#![allow(unsafe_code)]

use super::NfqueueOptions;
use super::message::{ACK, ANSWER, FAMILY_HEADER, Writer, attributes, messages};
use super::rule::{self, Form, IfDead, Ownership, Queues, Traffic};
use crate::namespace::effective_capabilities;
use crate::sys;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// The step that failed, and the kernel's answer.
pub(super) type Failed = (&'static str, io::Error);

/// Binds a new socket to a queue, on a thread inside the namespace.
pub(super) fn bind_queue(number: u16, options: &NfqueueOptions) -> Result<OwnedFd, Failed> {
    let socket = netfilter_socket().map_err(at("open a netfilter socket"))?;
    let bytes = i32::try_from(options.receive_buffer).unwrap_or(i32::MAX);
    sys::set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &bytes)
        .or_else(|_| sys::set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, &bytes))
        .map_err(at("set the size of the receive buffer"))?;
    let mut writer = Writer::default();
    let bind = writer.begin(QUEUE_CONFIG, ACK, 0, number);
    writer.attribute(1, &[1, 0, 0, 0], &[]);
    writer.end();
    ask(socket.as_fd(), &mut writer, bind, bind)
        .map_err(|error| ("bind", taken_or(error, number)))?;
    let configure = write_config(&mut writer, number, options);
    ask(socket.as_fd(), &mut writer, configure, configure).map_err(at("configure"))?;
    Ok(socket)
}

/// Explains the kernel's refusal to a process that has the capability: `EPERM` means then that
/// another socket has the queue (nfnetlink_queue.c, `nfqnl_recv_config`).
fn taken_or(error: io::Error, number: u16) -> io::Error {
    let may_bind = effective_capabilities().is_ok_and(|held| held & 1 << CAP_NET_ADMIN != 0);
    if error.raw_os_error() != Some(libc::EPERM) || !may_bind {
        return error;
    }
    let text = format!(
        "another program has queue {number}, such as another router: choose another number"
    );
    io::Error::new(io::ErrorKind::AddrInUse, text)
}

/// linux/capability.h.
const CAP_NET_ADMIN: u32 = 12;

/// Writes the configuration of a bound queue. Returns its sequence number.
fn write_config(writer: &mut Writer, number: u16, options: &NfqueueOptions) -> u32 {
    let mut flags = 0;
    if options.offloads {
        flags |= CONFIG_GSO;
    }
    if options.fail_open {
        flags |= CONFIG_FAIL_OPEN;
    }
    let configure = writer.begin(QUEUE_CONFIG, ACK, 0, number);
    // Copy mode 2 (packets) and the number of bytes to copy: the largest range, or all headers.
    let range = if options.headers_only {
        HEADERS_LEN
    } else {
        u32::MAX
    };
    let [a, b, c, d] = range.to_be_bytes();
    writer.attribute(2, &[a, b, c, d, 2], &[]);
    writer.number(3, options.most_waiting);
    writer.number(4, CONFIG_GSO | CONFIG_FAIL_OPEN);
    writer.number(5, flags);
    writer.end();
    configure
}

/// Writes the request that super-packets arrive whole, or split. It asks for no answer, since
/// packets arrive on the same socket.
pub(super) fn write_offloads(writer: &mut Writer, number: u16, offloads: bool) {
    writer.begin(QUEUE_CONFIG, 0, 0, number);
    writer.number(4, CONFIG_GSO);
    writer.number(5, if offloads { CONFIG_GSO } else { 0 });
    writer.end();
}

/// The rules that send packets to queues; removed when this is dropped.
#[derive(Debug)]
pub(super) struct Installed {
    socket: OwnedFd,
    /// The table to remove; `None` if the kernel removes it with the socket.
    table: Option<String>,
    /// Whether a table that a killed process left was replaced.
    pub(super) took_over: bool,
    /// Whether other processes cannot remove the table.
    pub(super) is_owned: bool,
}

impl Drop for Installed {
    fn drop(&mut self) {
        if let Some(table) = &self.table {
            let mut writer = Writer::default();
            let removal = rule::write_only_removal(&mut writer, table);
            // Best effort: someone else may have removed the table.
            let _ = ask(self.socket.as_fd(), &mut writer, removal, removal);
        }
    }
}

/// Installs the rules for queues that are already bound: so no living process serves them, and a
/// table of the same name is a remnant.
pub(super) fn install(
    traffic: &Traffic,
    queues: Queues,
    if_dead: IfDead,
) -> Result<Installed, Failed> {
    let table = rule::table(queues);
    let exists = match find(&table).map_err(at("look for a table in nftables"))? {
        Found::Nothing => false,
        Found::Ours => true,
        Found::Foreign => {
            return Err((
                "install rules: the nft table that it would use (`sluice`, or `sluiceN` for queue N) \
                 exists and was not created by Sluice; remove it, or choose another queue",
                io::ErrorKind::AlreadyExists.into(),
            ));
        }
    };
    let attempt = |form, ownership: Ownership| {
        let socket = netfilter_socket()?;
        let mut writer = Writer::default();
        let fate = (if_dead, ownership);
        let (first, last) = traffic.write(&mut writer, queues, form, fate, exists);
        ask(socket.as_fd(), &mut writer, first, last)?;
        Ok(Installed {
            socket,
            table: (if_dead == IfDead::Closed).then(|| table.clone()),
            took_over: exists,
            is_owned: ownership != Ownership::Nobody,
        })
    };
    let in_any_form = |ownership| {
        attempt(Form::Expression, ownership).or_else(|error: io::Error| match error.kind() {
            // A kernel without the queue expression of nft may have the target of iptables.
            io::ErrorKind::NotFound => attempt(Form::Target, ownership),
            _ => Err(error),
        })
    };
    let installed = match if_dead {
        IfDead::Bypass => in_any_form(Ownership::UntilClosed),
        IfDead::Closed => {
            in_any_form(Ownership::Lasting).or_else(|error| match error.raw_os_error() {
                // A kernel before Linux 6.9 does not know the flag (`nf_tables_newtable`).
                Some(libc::EOPNOTSUPP) => in_any_form(Ownership::Nobody),
                _ => Err(error),
            })
        }
    };
    installed.map_err(at(match queues.is_one() {
        true => {
            "install rules in nftables (needs Linux 5.12 with CONFIG_NF_TABLES and \
                 CONFIG_NFT_QUEUE)"
        }
        false => {
            "install rules in nftables (needs Linux 5.12 with CONFIG_NF_TABLES, CONFIG_NFT_QUEUE \
                 and, for several workers, CONFIG_NFT_HASH)"
        }
    }))
}

/// What exists under the name of a table.
enum Found {
    Nothing,
    Ours,
    Foreign,
}

fn find(table: &str) -> io::Result<Found> {
    let socket = netfilter_socket()?;
    let mut writer = Writer::default();
    let request = rule::write_request(&mut writer, table);
    let mut found = Found::Foreign;
    let answer = converse(socket.as_fd(), &mut writer, request, request, |body| {
        if rule::is_ours(attributes(body.get(FAMILY_HEADER..).unwrap_or(&[]))) {
            found = Found::Ours;
        }
    });
    match answer {
        Ok(()) => Ok(found),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Found::Nothing),
        Err(error) => Err(error),
    }
}

fn at(step: &'static str) -> impl FnOnce(io::Error) -> Failed {
    move |error| (step, error)
}

/// Sends the written messages and reads the answers `first` to `last`.
fn ask(socket: BorrowedFd<'_>, writer: &mut Writer, first: u32, last: u32) -> io::Result<()> {
    converse(socket, writer, first, last, |_| {})
}

/// Like [`ask`], and gives the bodies of other messages to `read`.
fn converse(
    socket: BorrowedFd<'_>,
    writer: &mut Writer,
    first: u32,
    last: u32,
    mut read: impl FnMut(&[u8]),
) -> io::Result<()> {
    send(socket, writer.bytes())?;
    writer.clear();
    let mut room = vec![0; 8192];
    let mut next = first;
    while next <= last {
        let mut polls = [libc::pollfd {
            fd: socket.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        }];
        if sys::poll(&mut polls, Some(std::time::Duration::from_secs(2))) == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let length = receive(socket, &mut room)?;
        for message in messages(&room[..length]) {
            if message.kind != ANSWER {
                read(message.body);
                continue;
            }
            let code = message
                .body
                .first_chunk()
                .copied()
                .map_or(0, i32::from_ne_bytes);
            if code != 0 {
                return Err(io::Error::from_raw_os_error(-code));
            }
            if message.sequence >= next {
                next = message.sequence + 1;
            }
        }
    }
    Ok(())
}

fn netfilter_socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: takes no pointers; a result that is not negative is a new descriptor of ours.
    unsafe {
        let descriptor = sys::check(libc::socket(
            libc::AF_NETLINK,
            kind,
            libc::NETLINK_NETFILTER,
        ))?;
        Ok(OwnedFd::from_raw_fd(descriptor))
    }
}

/// Sends messages at once.
pub(super) fn send(socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<()> {
    // SAFETY: the buffer is valid for reading during the call.
    let sent = unsafe { libc::send(socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), 0) };
    usize::try_from(sent)
        .map(drop)
        .map_err(|_| io::Error::last_os_error())
}

/// Receives without waiting.
pub(super) fn receive(socket: BorrowedFd<'_>, room: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the buffer is valid for writing during the call.
    let length = unsafe {
        libc::recv(
            socket.as_raw_fd(),
            room.as_mut_ptr().cast(),
            room.len(),
            libc::MSG_DONTWAIT,
        )
    };
    usize::try_from(length).map_err(|_| io::Error::last_os_error())
}

/// Bytes that hold all headers: IPv6 with extensions and TCP with options.
const HEADERS_LEN: u32 = 192;

/// The subsystem of a message's type: nfnetlink_queue.
pub(super) const QUEUE: u16 = 3 << 8;
const QUEUE_CONFIG: u16 = QUEUE | 2;
const CONFIG_FAIL_OPEN: u32 = 1;
const CONFIG_GSO: u32 = 4;
