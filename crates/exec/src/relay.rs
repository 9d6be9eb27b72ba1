//! The relay: accepts every connection of the program on the far side, and connects to its
//! destination from the machine's own network.
//!
//! One thread in the machine's network namespace serves all sockets. A [`Resident`] opens the
//! sockets of the far side in that namespace. The relay first does outside what a held packet
//! requests, and then releases the packet ([`gate`](crate::gate)). So the program sees the
//! refusals, resets and delays of the hosts outside.
//!
//! Events are edge-triggered: each handler works until its sockets would block. A handler whose sockets
//! always have more stops at a bound, and goes on after the others.

pub(crate) mod answer;
mod carry;
mod ping;
mod resident;
mod route;
mod tcp;
mod udp;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use sluice_net::namespace::{Namespace, NamespaceError};
use sluice_net::port::Injector;
use socket2::{Domain, Protocol, SockAddr, Socket, TcpKeepalive, Type};

use crate::gate::{FlowChange, Held, Opening};
use crate::pulse::Pulse;
use answer::Unreachable;
use ping::Pings;
use resident::Resident;
pub use route::Routes;
use route::{Refusal, Target};
use tcp::Connections;
use udp::Flows;

/// The reason why the relay cannot start.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    /// A namespace cannot be entered.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// The port of `--forward` cannot be opened.
    #[error("cannot listen on {address} for --forward: {source}")]
    Forward {
        /// Which address of the machine.
        address: SocketAddr,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The kernel refused a step.
    #[error("cannot {step}: {source}")]
    Kernel {
        /// Which step.
        step: &'static str,
        /// Its answer.
        source: io::Error,
    },
}

/// The namespaces and channels of the relay.
pub struct Surroundings<'a> {
    /// The program's namespace.
    pub near: &'a Namespace,
    /// The far side.
    pub far: &'a Namespace,
    /// The server's namespace.
    pub server: Option<&'a Namespace>,
    /// Injectors of frames, towards the far side's kernel and towards the router.
    pub injectors: (Injector, Injector),
    /// The packets that the gate holds.
    pub held: Receiver<Held>,
    /// Informs the gate of flows that open and close.
    pub changes: Sender<FlowChange>,
    /// Receives the answers of resolvers.
    pub names: Sender<Vec<u8>>,
    /// Rings when the gate holds a packet.
    pub pulse: Pulse,
}

/// The relay.
pub struct Relay {
    outlets: Outlets,
    pulse: Pulse,
    held: Receiver<Held>,
    connections: Connections,
    flows: Flows,
    pings: Pings,
    is_sending: Arc<AtomicBool>,
    /// The forwarded ports, by the program's ends of their connections.
    forwards: BTreeMap<SocketAddr, u16>,
}

/// The outlets that all parts of the relay share.
struct Outlets {
    epoll: OwnedFd,
    next: u64,
    far: Resident,
    near: Resident,
    server: Option<Resident>,
    inward: Injector,
    outward: Injector,
    routes: Routes,
}

/// The number of an entry, and the index of the socket that had an event.
type Token = (u64, usize);

impl Relay {
    /// Opens the relay. `forwards` are ports of the machine's loopback that lead to the same ports
    /// of the program; one that is given twice is forwarded once.
    ///
    /// # Errors
    /// [`RelayError`].
    pub fn new(
        around: Surroundings<'_>,
        routes: Routes,
        forwards: &[u16],
    ) -> Result<Relay, RelayError> {
        let kernel = |step| {
            move |source: rustix::io::Errno| RelayError::Kernel {
                step,
                source: source.into(),
            }
        };
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(kernel("create an epoll"))?;
        let data = EventData::new_u64(BELL);
        epoll::add(&epoll, &*around.pulse.bell, data, EventFlags::IN)
            .map_err(kernel("watch the bell"))?;
        let server = around
            .server
            .map(|server| Resident::new(server, "in-server"));
        let mut outlets = Outlets {
            epoll,
            next: BELL + 1,
            far: Resident::new(around.far, "in-far")?,
            near: Resident::new(around.near, "in-near")?,
            server: server.transpose()?,
            inward: around.injectors.0,
            outward: around.injectors.1,
            routes,
        };
        let mut connections = Connections::default();
        let ports: BTreeSet<u16> = forwards.iter().copied().collect();
        let mut forwards = BTreeMap::new();
        for port in ports {
            forwards.insert(connections.forward(port, &mut outlets)?, port);
        }
        let pings = Pings::open(&mut outlets);
        Ok(Relay {
            outlets,
            pulse: around.pulse,
            held: around.held,
            connections,
            flows: Flows::new(around.changes, around.names),
            pings,
            is_sending: Arc::default(),
            forwards,
        })
    }

    /// Returns the forwarded ports, by the program's ends of their connections.
    pub fn forwards(&self) -> &BTreeMap<SocketAddr, u16> {
        &self.forwards
    }

    /// Returns a flag that is true while bytes of the program wait for the outside.
    pub fn is_sending(&self) -> Arc<AtomicBool> {
        self.is_sending.clone()
    }

    /// Relays until `has_ended` is true. A ring of the pulse ends a wait. Returns how many connections
    /// were refused because the process had no free descriptor.
    pub fn run(mut self, has_ended: &AtomicBool) -> u64 {
        let mut events = Vec::with_capacity(256);
        let mut tick = Instant::now() + TICK;
        while !has_ended.load(Ordering::Acquire) {
            let wait = match self.connections.has_more() || self.flows.has_more() {
                true => Duration::ZERO,
                false => tick.saturating_duration_since(Instant::now()),
            };
            let wait = wait.min(self.connections.longest_wait());
            let wait = rustix::time::Timespec {
                tv_sec: wait.as_secs() as i64,
                tv_nsec: i64::from(wait.subsec_nanos()),
            };
            events.clear();
            let ready = epoll::wait(
                &self.outlets.epoll,
                rustix::buffer::spare_capacity(&mut events),
                Some(&wait),
            );
            if ready.is_err() {
                // A signal; there is no other error.
                continue;
            }
            for event in &events {
                let number = event.data.u64();
                if number == BELL {
                    self.let_in();
                    continue;
                }
                let token: Token = (number >> 1, number as usize & 1);
                let is_done = self.connections.on_event(token, &mut self.outlets)
                    || self.flows.on_event(token, &self.outlets);
                if !is_done {
                    self.pings.on_event(token, &self.outlets);
                }
            }
            self.connections.go_on();
            self.flows.go_on(&self.outlets);
            self.is_sending
                .store(self.connections.is_sending(), Ordering::Release);
            self.pulse.beat();
            let now = Instant::now();
            if now >= tick {
                tick = now + TICK;
                self.connections.on_tick(now, &mut self.outlets);
                self.flows.on_tick(now);
                self.pings.on_tick(now);
            }
        }
        self.connections.refused()
    }

    /// Handles the packets that the gate holds.
    fn let_in(&mut self) {
        self.pulse.quiet();
        for held in self.held.try_iter() {
            match held.kind {
                Opening::Connection => self.connections.on_syn(held, &mut self.outlets),
                Opening::Datagram => self.flows.on_datagram(held, &mut self.outlets),
                Opening::Echo => self.pings.on_request(held, &self.outlets),
            }
        }
    }
}

impl Outlets {
    /// Returns a new entry's number.
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Starts to report events of a socket under a token.
    fn watch(&self, socket: &Socket, (number, side): Token) -> io::Result<()> {
        let data = EventData::new_u64(number << 1 | side as u64);
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        Ok(epoll::add(&self.epoll, socket.as_fd(), data, flags)?)
    }

    /// Stops reporting events of a socket.
    fn unwatch(&self, socket: &Socket) {
        // A socket that was just accepted is not watched yet.
        let _ = epoll::delete(&self.epoll, socket.as_fd());
    }

    /// Releases a held packet to the far side's kernel.
    fn release(&self, frame: &[u8]) {
        // If the interface's queue is full, the packet is dropped, as on any link.
        let _ = self.inward.send(frame);
    }

    /// Refuses a held packet in the name of its destination.
    fn refuse(&self, frame: &[u8], refusal: Refusal) {
        let answer = match refusal {
            // UDP has no resets (RFC 1122 section 4.1.3.1).
            Refusal::Closed => {
                answer::reset(frame).or_else(|| answer::unreachable(frame, Unreachable::Port))
            }
            Refusal::Unreachable(why) => answer::unreachable(frame, why),
            Refusal::Silence => None,
        };
        if let Some(answer) = answer {
            let _ = self.outward.send(&answer);
        }
    }

    /// Starts connecting to an address from `place`.
    fn dial(&self, kind: Type, place: Dial, address: SocketAddr) -> io::Result<Socket> {
        let open = move || connecting(kind, address);
        match place {
            Dial::Machine => {
                let socket = open()?;
                if kind == Type::STREAM {
                    keep_alive(&socket);
                }
                Ok(socket)
            }
            Dial::Near => self.near.run(open),
            Dial::Far => self.far.run(open),
            Dial::Server => match &self.server {
                Some(server) => server.run(open),
                None => Err(io::ErrorKind::ConnectionRefused.into()),
            },
        }
    }
}

/// The place from which a connection is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dial {
    Machine,
    Near,
    Far,
    Server,
}

impl Target {
    /// Returns the place to connect from, and the addresses to try.
    fn dial(self) -> Result<(Dial, Vec<SocketAddr>), Refusal> {
        match self {
            Target::Machine(addresses) => Ok((Dial::Machine, addresses)),
            Target::Server(addresses) => Ok((Dial::Server, addresses)),
            Target::None(refusal) => Err(refusal),
        }
    }
}

/// Returns a socket that is connecting.
fn connecting(kind: Type, address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), kind.nonblocking(), None)?;
    match socket.connect(&SockAddr::from(address)) {
        Err(error)
            if error.raw_os_error() != Some(rustix::io::Errno::INPROGRESS.raw_os_error()) =>
        {
            Err(error)
        }
        _ => Ok(socket),
    }
}

/// Makes the kernel probe the peer of a TCP socket when it is silent: a peer that has vanished is noticed
/// within two minutes, and translators of addresses between them do not forget the connection.
pub fn keep_alive(socket: &Socket) {
    let probes = TcpKeepalive::new()
        .with_time(Duration::from_secs(60))
        .with_interval(Duration::from_secs(10))
        .with_retries(6);
    // Where the kernel refuses this, the connection stays until something is sent.
    let _ = socket.set_tcp_keepalive(&probes);
}

/// Returns a socket that is bound to `address`, which no interface needs to have.
fn bound(kind: Type, protocol: Option<Protocol>, address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), kind.nonblocking(), protocol)?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
        socket.set_freebind_v6(true)?;
    } else {
        socket.set_freebind_v4(true)?;
    }
    socket.bind(&SockAddr::from(address))?;
    Ok(socket)
}

/// Values by the number of their entry.
type Entries<T> = BTreeMap<u64, T>;

/// The token of the bell.
const BELL: u64 = 0;
/// The interval between checks for timeouts.
const TICK: Duration = Duration::from_secs(1);
