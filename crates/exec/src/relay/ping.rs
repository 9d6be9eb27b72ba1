//! Echo requests. If the system allows unprivileged pings, a request is answered when the host
//! outside answers.
//!
//! The gate holds the request while a copy goes out through a ping socket (icmp(7)). When the host
//! outside has answered, the request is released, and the far side's kernel answers it. Without a
//! ping socket (`net.ipv4.ping_group_range`) the far side answers at once: the time is that of the
//! link alone.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use sluice_wire::frame::{self, Link};
use socket2::{Protocol, SockAddr, Socket, Type};

use super::{Dial, Outlets, Token, bound};
use crate::gate::Held;
use crate::network::Place;

/// All requests.
pub struct Pings {
    /// The ping sockets for IPv4 and IPv6, where the system allows them.
    sockets: [Option<Socket>; 2],
    numbers: [u64; 2],
    /// The requests by IP version and the relay's own sequence number.
    waiting: BTreeMap<(usize, u16), (Vec<u8>, Instant)>,
    sequence: u16,
}

impl Pings {
    /// Opens the sockets that the system allows.
    pub fn open(outlets: &mut Outlets) -> Pings {
        let mut numbers = [0; 2];
        let addresses: [SocketAddr; 2] = [
            (Ipv4Addr::UNSPECIFIED, 0).into(),
            (Ipv6Addr::UNSPECIFIED, 0).into(),
        ];
        let protocols = [Protocol::ICMPV4, Protocol::ICMPV6];
        let sockets = [0, 1].map(|version| {
            let protocol = Some(protocols[version]);
            let socket = bound(Type::DGRAM, protocol, addresses[version]).ok()?;
            numbers[version] = outlets.number();
            outlets.watch(&socket, (numbers[version], 0)).ok()?;
            Some(socket)
        });
        Pings {
            sockets,
            numbers,
            waiting: BTreeMap::new(),
            sequence: 0,
        }
    }

    /// Handles a request.
    pub fn on_request(&mut self, held: Held, outlets: &Outlets) {
        let Held { ends, frame, .. } = held;
        if Place::of(ends.outside.ip()) == Some(Place::Far) {
            return outlets.release(&frame);
        }
        let address = match outlets.routes.target(ends.outside).dial() {
            Ok((Dial::Machine, addresses)) => addresses[0],
            Ok(_) => return outlets.release(&frame),
            Err(refusal) => return outlets.refuse(&frame, refusal),
        };
        let version = usize::from(address.is_ipv6());
        let Some(socket) = &self.sockets[version] else {
            return outlets.release(&frame);
        };
        let view = frame::parse_head(&frame, frame.len(), Link::Ethernet);
        let start = usize::from(view.transport_at);
        let end = usize::from(view.network) + view.ip_len as usize;
        let Some(message) = frame.get(start..end).filter(|message| message.len() >= 8) else {
            return;
        };
        self.sequence = self.sequence.wrapping_add(1);
        let mut message = message.to_owned();
        message[6..8].copy_from_slice(&self.sequence.to_be_bytes());
        match socket.send_to(&message, &SockAddr::from(address)) {
            Ok(_) => {
                let waiting = (frame, Instant::now());
                self.waiting.insert((version, self.sequence), waiting);
            }
            Err(error) => outlets.refuse(&frame, super::Refusal::of(&error)),
        }
    }

    /// Handles answers. Returns whether the event belongs to a ping.
    pub fn on_event(&mut self, (number, _): Token, outlets: &Outlets) -> bool {
        let Some(version) = self.numbers.iter().position(|own| *own == number) else {
            return false;
        };
        let Some(socket) = &self.sockets[version] else {
            return false;
        };
        let reply = REPLIES[version];
        let mut message = [0; 2048];
        loop {
            match rustix::io::read(socket, &mut message) {
                Ok(length) if length >= 8 && message[0] == reply => {
                    let sequence = u16::from_be_bytes([message[6], message[7]]);
                    if let Some((frame, _)) = self.waiting.remove(&(version, sequence)) {
                        outlets.release(&frame);
                    }
                }
                Ok(_) => {}
                Err(rustix::io::Errno::AGAIN) => return true,
                Err(_) => {}
            }
        }
    }

    /// Forgets requests without an answer.
    pub fn on_tick(&mut self, now: Instant) {
        self.waiting
            .retain(|_, (_, since)| now.duration_since(*since) < PATIENCE);
    }
}

/// The types of echo replies (RFC 792, RFC 4443 section 4.2).
const REPLIES: [u8; 2] = [0, 129];
/// The time within which an answer must arrive.
const PATIENCE: Duration = Duration::from_secs(60);
