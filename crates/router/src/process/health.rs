//! What a router depends on besides its own threads: the interfaces of its ports, and its guardian. Also the
//! time of its start, which its loops have in common.
//!
//! The code that asks for the status lets [`Health::look`] ask the kernel before. The loops only read the
//! answer, so that they never wait for the kernel's configuration.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use sluice_net::namespace::{Interface, LinkError, Links, Namespace};
use sluice_net::port::PortSpec;
use sluice_net::port::registry::Role;

use super::Status;

/// The state of a port's interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InterfaceState {
    /// It is up.
    Up,
    /// It is down: nothing arrives or leaves.
    Down,
    /// There is no interface of this name.
    Gone,
}

/// What is known, for all threads.
pub(super) struct Health {
    /// The start, in milliseconds since the Unix epoch.
    started_unix_ms: u64,
    namespace: Arc<Namespace>,
    ports: Vec<PortHealth>,
    /// The connection for questions.
    links: Mutex<Connection>,
    /// Told when the connection is free.
    is_free: Condvar,
    /// Whether the router was started with a guardian, and whether that lives.
    has_guardian: AtomicBool,
    is_guarded: AtomicBool,
}

/// The connection for questions, of which one thread asks at a time.
#[derive(Default)]
struct Connection {
    is_asking: bool,
    /// Kept for the next question.
    links: Option<Links>,
}

/// How long a thread waits until another one has got its answers. A kernel that changes interfaces lets
/// both wait; the status then has the last known states.
const PATIENCE: Duration = Duration::from_secs(1);

struct PortHealth {
    /// The name of the interface; `None` for a port without one.
    interface: Option<String>,
    /// The place of its state in [`STATES`].
    state: AtomicU8,
}

/// The states of an interface, the unknown one first.
const STATES: [Option<InterfaceState>; 4] = [
    None,
    Some(InterfaceState::Up),
    Some(InterfaceState::Down),
    Some(InterfaceState::Gone),
];

impl Health {
    /// Notes the start of the router; nothing else is known yet.
    pub(super) fn new(ports: &[PortSpec], namespace: Arc<Namespace>) -> Health {
        let port = |(number, port): (usize, &PortSpec)| PortHealth {
            interface: has_interface(port).then(|| port.interface(number)),
            state: AtomicU8::new(0),
        };
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Health {
            started_unix_ms: since.map_or(0, |since| since.as_millis() as u64),
            namespace,
            ports: ports.iter().enumerate().map(port).collect(),
            links: Mutex::default(),
            is_free: Condvar::new(),
            has_guardian: AtomicBool::new(false),
            is_guarded: AtomicBool::new(false),
        }
    }

    /// Notes whether the guardian lives.
    pub(super) fn note_guardian(&self, is_alive: bool) {
        self.is_guarded.store(is_alive, Ordering::Relaxed);
        self.has_guardian.store(true, Ordering::Release);
    }

    /// Returns whether there is a guardian that lives.
    pub(super) fn is_guarded(&self) -> bool {
        self.has_guardian.load(Ordering::Acquire) && self.is_guarded.load(Ordering::Relaxed)
    }

    /// Asks the kernel for the interfaces, after another thread that does at this moment.
    pub(super) fn look(&self) {
        if self.ports.iter().all(|port| port.interface.is_none()) {
            return;
        }
        let connection = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut connection, _) = self
            .is_free
            .wait_timeout_while(connection, PATIENCE, |connection| connection.is_asking)
            .unwrap_or_else(PoisonError::into_inner);
        if connection.is_asking {
            return;
        }
        connection.is_asking = true;
        let links = connection.links.take();
        drop(connection);
        let links = self.ask(links);
        let mut connection = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        connection.links = links;
        connection.is_asking = false;
        drop(connection);
        self.is_free.notify_one();
    }

    /// Notes what the kernel says. Returns the connection for the next question; after an error, none.
    fn ask(&self, links: Option<Links>) -> Option<Links> {
        let mut links = links.or_else(|| self.namespace.links().ok())?;
        let mut is_answered = true;
        for port in &self.ports {
            let Some(name) = &port.interface else {
                continue;
            };
            let state = state_of(links.interface(name));
            is_answered &= state.is_some();
            let place = STATES.iter().position(|known| *known == state);
            let place = place.expect("the list has all states");
            port.state.store(place as u8, Ordering::Relaxed);
        }
        is_answered.then_some(links)
    }

    /// Adds to a status what is known.
    pub(super) fn complete(&self, status: &mut Status) {
        status.started_unix_ms = Some(self.started_unix_ms);
        let has_guardian = self.has_guardian.load(Ordering::Acquire);
        status.fail_open = has_guardian.then(|| self.is_guarded.load(Ordering::Relaxed));
        for (number, port) in status.ports.iter_mut().enumerate() {
            port.interface = self.interface(number);
            if port.interface == Some(InterfaceState::Gone) {
                port.promiscuous = None;
            }
        }
    }

    /// Returns the last known state of a port's interface; `None` for a port without one.
    fn interface(&self, port: usize) -> Option<InterfaceState> {
        let port = self.ports.get(port)?;
        STATES[usize::from(port.state.load(Ordering::Relaxed))]
    }
}

/// Returns whether a port is an interface, its own or another one.
fn has_interface(port: &PortSpec) -> bool {
    // Without a kind, it names an interface.
    port.kind().is_none_or(|kind| match kind.role {
        Role::Interface(_) | Role::Device(_) => true,
        Role::Queue | Role::Files => false,
    })
}

/// Returns the state of an interface that was looked up; `None` if the kernel did not say.
fn state_of(found: Result<Interface, LinkError>) -> Option<InterfaceState> {
    match found {
        Ok(link) if link.is_up => Some(InterfaceState::Up),
        Ok(_) => Some(InterfaceState::Down),
        Err(error) => error.is_absence().then_some(InterfaceState::Gone),
    }
}

#[cfg(test)]
mod tests {
    use super::super::PortStatus;
    use super::*;

    fn health(ports: &[&str]) -> Health {
        let ports: Vec<PortSpec> = ports.iter().map(|port| port.parse().unwrap()).collect();
        Health::new(&ports, Arc::new(Namespace::current().unwrap()))
    }

    /// The loopback interface exists in every namespace, and no interface can have a slash in its name.
    #[test]
    fn a_missing_interface_is_gone_and_a_port_without_one_has_no_state() {
        let health = health(&[
            "packet:lo",
            "packet:no/such",
            "pcap:in.pcap:",
            "pcap::out.pcap",
        ]);
        let states = || [0, 1, 2, 3, 4].map(|port| health.interface(port));
        assert_eq!(states(), [None; 5], "nobody has asked");
        health.look();
        let [lo, missing, files @ ..] = states();
        assert!(
            matches!(lo, Some(InterfaceState::Up | InterfaceState::Down)),
            "{lo:?}"
        );
        assert_eq!(missing, Some(InterfaceState::Gone));
        assert_eq!(files, [None; 3]);
        let port = PortStatus {
            promiscuous: Some(true),
            ..PortStatus::default()
        };
        let mut status = Status {
            ports: vec![port; 2],
            ..Status::default()
        };
        health.complete(&mut status);
        let told = status
            .ports
            .iter()
            .map(|port| (port.interface, port.promiscuous));
        assert_eq!(
            told.collect::<Vec<_>>(),
            [(lo, Some(true)), (missing, None)],
            "an interface that is gone is in no mode"
        );
    }

    #[test]
    fn a_thread_that_waits_for_the_kernel_holds_up_no_other_for_long() {
        let health = health(&["packet:lo"]);
        health.links.lock().unwrap().is_asking = true;
        health.look();
        assert_eq!(health.interface(0), None, "nobody has answered");
        health.links.lock().unwrap().is_asking = false;
        health.look();
        assert!(health.interface(0).is_some());
    }

    /// A caller that looks while another thread does gets an answer not older than its question.
    #[test]
    fn a_look_waits_for_that_of_another_thread() {
        let health = health(&["packet:lo"]);
        health.links.lock().unwrap().is_asking = true;
        std::thread::scope(|scope| {
            let look = scope.spawn(|| health.look());
            std::thread::sleep(PATIENCE / 10);
            health.links.lock().unwrap().is_asking = false;
            health.is_free.notify_one();
            look.join().unwrap();
        });
        assert!(health.interface(0).is_some());
    }

    #[test]
    fn the_status_says_whether_the_guardian_lives_if_there_is_one() {
        let health = health(&[]);
        let told = || {
            let mut status = Status::default();
            health.complete(&mut status);
            status.fail_open
        };
        assert_eq!((told(), health.is_guarded()), (None, false));
        health.note_guardian(true);
        assert_eq!((told(), health.is_guarded()), (Some(true), true));
        health.note_guardian(false);
        assert_eq!((told(), health.is_guarded()), (Some(false), false));
    }

    /// The clock of the system may be set meanwhile.
    #[test]
    fn the_start_of_the_router_does_not_move() {
        let mut health = health(&[]);
        health.started_unix_ms = 1_700_000_000_123;
        let mut status = Status::default();
        assert_eq!(
            status.started_unix_ms, None,
            "links have no router's process"
        );
        health.complete(&mut status);
        assert_eq!(status.started_unix_ms, Some(1_700_000_000_123));
    }

    #[test]
    fn states_have_these_names_in_json() {
        let names = [
            (InterfaceState::Up, "\"up\""),
            (InterfaceState::Down, "\"down\""),
            (InterfaceState::Gone, "\"gone\""),
        ];
        for (state, name) in names {
            assert_eq!(serde_json::to_string(&state).unwrap(), name);
        }
    }
}
