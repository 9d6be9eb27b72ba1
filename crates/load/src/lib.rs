//! Live end hosts and their traffic: the kernel's TCP, UDP and ICMP, and programs.
//!
//! Each source runs in a given [`Namespace`] on threads of its own; all its times are on the shared
//! [`Clock`]. Its `start` function refuses impossible settings before anything runs, and returns a
//! [`Running`]; stopping and joining that returns a plain report with samples.
//!
//! Delays end at the kernel's own receive timestamps. The kernel enables these in the background
//! when the first socket requests them, which takes up to 100 ms on a busy machine: let
//! measurements begin 100 ms after their `start` call. Packets that arrive without a timestamp
//! before that are counted as such, and have no delay rather than a wrong one.

pub mod bulk;
pub mod ping;
pub mod program;
pub mod rr;
pub mod tcp;
pub mod udp;
pub mod web;

use sluice_core::{Span, Stop, Time, spelling};
use sluice_net::Clock;
use sluice_net::namespace::{Namespace, NamespaceError};
use sluice_net::socket::TimedReceiver;
use socket2::Socket;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The addresses that identify a source's packets, in the direction in which the source sends. In
/// the opposite direction, the two ends are exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Number of the transport protocol; `None` for any.
    pub protocol: Option<u8>,
    /// The source. For ICMP the port is the identifier of the messages; 0 means any.
    pub source: SocketAddr,
    /// The destination, likewise.
    pub destination: SocketAddr,
}

impl Identity {
    fn new(protocol: i32, source: SocketAddr, destination: SocketAddr) -> Identity {
        Identity {
            protocol: Some(protocol as u8),
            source,
            destination,
        }
    }

    /// Returns the identity of all packets between two addresses.
    fn of_host(source: IpAddr, destination: IpAddr) -> Identity {
        Identity {
            protocol: None,
            source: SocketAddr::new(source, 0),
            destination: SocketAddr::new(destination, 0),
        }
    }

    /// Returns whether packets between these ends, either way, belong to it.
    pub fn matches(&self, protocol: u8, source: SocketAddr, destination: SocketAddr) -> bool {
        let is_end = |own: SocketAddr, end: SocketAddr| {
            own.ip() == end.ip() && (own.port() == 0 || own.port() == end.port())
        };
        let is_way = |from, to| is_end(self.source, from) && is_end(self.destination, to);
        self.protocol.is_none_or(|own| own == protocol)
            && (is_way(source, destination) || is_way(destination, source))
    }
}

/// Running traffic.
pub struct Running<R> {
    identity: Identity,
    stop: Stop,
    finished: Arc<AtomicBool>,
    is_service: bool,
    join: Box<dyn FnOnce() -> Result<R, TrafficError> + Send>,
}

/// The reason why traffic could not start, or ended with an error.
#[derive(Debug, thiserror::Error)]
pub enum TrafficError {
    /// A namespace could not be entered.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// The kernel has no such congestion control.
    #[error(
        "the kernel has no congestion control {name:?}; {}it has {}",
        meant(.name, .available),
        .available.join(", ")
    )]
    CongestionControl {
        /// The requested value.
        name: String,
        /// The available ones.
        available: Vec<String>,
    },
    /// A packet size that cannot carry what the measurement needs, or that IP cannot carry.
    #[error("packet payload of {size} bytes is outside {least} to {most}")]
    Size {
        /// The requested value.
        size: usize,
        /// The least that works.
        least: usize,
        /// The most that works.
        most: usize,
    },
    /// A codepoint outside of its field.
    #[error("{field} {value} is above {most}")]
    Field {
        /// "dscp" or "ecn".
        field: &'static str,
        /// The requested value.
        value: u8,
        /// The largest value.
        most: u8,
    },
    /// Both ends must speak the same IP version.
    #[error("source {source_address} and destination {destination} have different IP versions")]
    Families {
        /// The source address.
        source_address: IpAddr,
        /// The destination address.
        destination: IpAddr,
    },
    /// An interval of zero.
    #[error("the {0} interval must be more than zero")]
    Interval(&'static str),
    /// A program cannot be started, or a service is not ready.
    #[error("{reason}")]
    Program {
        /// The program and the reason.
        reason: String,
    },
    /// The kernel refused a step.
    #[error("cannot {step} in namespace {namespace:?}: {source}")]
    Kernel {
        /// The step.
        step: String,
        /// The namespace.
        namespace: String,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// Returns the question whether the nearest of `available` is meant; empty if none is near.
fn meant(name: &str, available: &[String]) -> String {
    let question = spelling::question(name, available.iter().map(String::as_str));
    question.map_or_else(String::new, |question| format!("{question} "))
}

impl<R> Running<R> {
    /// Returns the identity of its packets.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Requests the end of this traffic and of everything else that shares its [`Stop`].
    pub fn stop(&self) {
        self.stop.stop();
    }

    /// Returns whether it has ended by itself or by request.
    pub fn is_finished(&self) -> bool {
        self.finished.load(Ordering::Acquire)
    }

    /// Returns whether it only serves other traffic, and may end with that.
    pub fn is_service(&self) -> bool {
        self.is_service
    }

    /// Waits for the end, and returns the measurements.
    ///
    /// # Errors
    /// The kernel refused a step.
    pub fn join(self) -> Result<R, TrafficError> {
        (self.join)()
    }
}

/// The state that the threads of one source share.
#[derive(Clone)]
struct Context {
    clock: Clock,
    stop: Stop,
    namespace: String,
}

impl Context {
    fn new(namespace: &Namespace, clock: &Clock, stop: &Stop) -> Context {
        Context {
            clock: *clock,
            stop: stop.clone(),
            namespace: namespace.name().to_owned(),
        }
    }

    fn error(&self, step: impl Into<String>) -> impl FnOnce(io::Error) -> TrafficError {
        let (step, namespace) = (step.into(), self.namespace.clone());
        move |source| TrafficError::Kernel {
            step,
            namespace,
            source,
        }
    }

    /// Returns a receiver that stamps what arrives at a socket of `address`.
    fn timed(&self, socket: &Socket, address: IpAddr) -> Result<TimedReceiver, TrafficError> {
        TimedReceiver::new(socket, address.is_ipv4()).map_err(self.error("enable timestamps"))
    }

    /// Sleeps until `time`, and checks the stop flag at intervals. Returns whether `time` was
    /// reached.
    fn sleep_until(&self, time: Time) -> bool {
        loop {
            if self.stop.is_stopped() {
                return false;
            }
            // `now` returns zero before the clock starts, so with `now` a flow that starts at zero
            // would open its connection before the router forwards.
            if self.clock.has_reached(time) {
                return true;
            }
            let check_at = self.clock.now() + STOP_CHECK;
            self.clock.sleep_until(time.min(check_at), Span::ZERO);
        }
    }
}

/// Starts the two threads of a flow, each in a namespace and under a name. The sink ends after the
/// source, whose end it sees in a flag.
fn start_pair<S, K, R>(
    identity: Identity,
    stop: &Stop,
    (source_namespace, source_name): (&Namespace, &str),
    source: impl FnOnce() -> Result<S, TrafficError> + Send + 'static,
    (sink_namespace, sink_name): (&Namespace, &str),
    sink: impl FnOnce(&AtomicBool) -> Result<K, TrafficError> + Send + 'static,
    merge: impl FnOnce(S, K) -> R + Send + 'static,
) -> Result<Running<R>, TrafficError>
where
    S: Send + 'static,
    K: Send + 'static,
{
    let (finished, source_done) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    let done = SetOnDrop(source_done.clone());
    let source = source_namespace.spawn(source_name, move || {
        let _done = done;
        source()
    })?;
    let done = SetOnDrop(finished.clone());
    let sink = sink_namespace.spawn(sink_name, move || {
        let _done = done;
        sink(&source_done)
    })?;
    let join = move || {
        let source = source
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let sink = sink
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok(merge(source?, sink?))
    };
    Ok(Running {
        identity,
        stop: stop.clone(),
        finished,
        is_service: false,
        join: Box::new(join),
    })
}

/// Sets a flag when its thread ends, even by a panic.
struct SetOnDrop(Arc<AtomicBool>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

fn check_families(source_address: IpAddr, destination: IpAddr) -> Result<(), TrafficError> {
    if source_address.is_ipv4() != destination.is_ipv4() {
        return Err(TrafficError::Families {
            source_address,
            destination,
        });
    }
    Ok(())
}

fn check_field(field: &'static str, value: u8, most: u8) -> Result<(), TrafficError> {
    if value > most {
        return Err(TrafficError::Field { field, value, most });
    }
    Ok(())
}

/// A transfer, a page or an exchange that is complete, or a page that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The instant of the request.
    pub start: Time,
    /// Until its last byte had arrived; of an open page, until the end.
    pub took: Span,
    /// Payload bytes; of an open page, those of its complete objects.
    pub bytes: u64,
}

/// The longest time until a request to stop is noticed.
const STOP_CHECK: Span = Span::from_ms(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_congestion_control_is_answered_with_the_nearest() {
        let error = |name: &str| {
            let error = TrafficError::CongestionControl {
                name: name.to_owned(),
                available: ["reno", "cubic"].map(str::to_owned).to_vec(),
            };
            error.to_string()
        };
        assert_eq!(
            error("cubik"),
            "the kernel has no congestion control \"cubik\"; did you mean `cubic`? it has reno, cubic"
        );
        assert_eq!(
            error("vegas"),
            "the kernel has no congestion control \"vegas\"; it has reno, cubic"
        );
    }
}
