//! The proxy's thread: one loop over sockets, the link and timers.

mod api;
mod asking;
mod listeners;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use sluice_core::{Span, Time};
use sluice_exec::{Capture, DirectionReport, Verdict};
use sluice_net::process::OpenFiles;
use sluice_net::{Clock, precise_wakeups};
use sluice_router::forward::Lateness;
use sluice_scenario::Link;

use crate::bell::Bell;
use crate::client::Client;
use crate::engine::{Engine, HostDelay, Id, Observations, Side};
use crate::hub::{Hub, Rules};
use crate::names;
use crate::outside::Outside;
use crate::request::{Destination, Host};
use crate::settings::{ProxyError, Settings};
use crate::stream::Stream;
use api::Control;
use asking::Asking;
use listeners::{Listener, Purpose};

/// A proxy that listens. Before it runs, it can be moved to another thread.
pub struct Proxy {
    settings: Settings,
    links: Vec<Link>,
    /// The seed of the links' random numbers.
    seed: u64,
    epoll: OwnedFd,
    bell: Bell,
    timer: OwnedFd,
    listeners: BTreeMap<u64, Listener>,
    flags: Arc<Flags>,
    observations: Option<Observations>,
    clock: Clock,
    capture: Option<Capture>,
}

/// A running proxy.
struct Server {
    hub: Hub,
    settings: Settings,
    clock: Clock,
    timer: OwnedFd,
    /// The instant to which the timer is set.
    timer_at: Time,
    listeners: BTreeMap<u64, Listener>,
    /// Listeners that cannot accept connections now, and the times at which they try again.
    resting: BTreeMap<u64, Time>,
    clients: BTreeMap<u64, Client>,
    /// The clients by their connections across the link.
    nears: BTreeMap<Id, u64>,
    outsides: BTreeMap<u64, Outside>,
    fars: BTreeMap<Id, u64>,
    controls: BTreeMap<u64, Control>,
    /// Clients without an accepted request, and connections to the control API.
    asking: Asking,
    /// The numbers of sockets that could continue at once.
    more: Vec<u64>,
    lateness: [Lateness; 2],
    too_late: [u64; 2],
    flags: Arc<Flags>,
}

/// Requests of other threads to the proxy.
#[derive(Debug, Default)]
struct Flags {
    has_ended: AtomicBool,
    /// Nor wait for the reader of the capture.
    is_urgent: AtomicBool,
    /// End once the data that programs have sent has crossed the link.
    is_draining: AtomicBool,
}

/// Ends a proxy from another thread.
#[derive(Clone, Debug)]
pub struct Handle {
    bell: Bell,
    flags: Arc<Flags>,
}

impl Handle {
    /// Ends the proxy. Its connections are closed. From the second call on, a capture's reader is waited
    /// for only a second more.
    pub fn end(&self) {
        if self.flags.has_ended.swap(true, Ordering::AcqRel) {
            self.flags.is_urgent.store(true, Ordering::Release);
        }
        self.bell.ring();
    }

    /// Ends the proxy once the data that programs have sent has crossed the link, after 10 s at the
    /// latest.
    pub fn drain(&self) {
        self.flags.is_draining.store(true, Ordering::Release);
        self.bell.ring();
    }
}

/// The addresses on which a proxy listens.
#[derive(Clone, Debug, Default)]
pub struct Addresses {
    /// The addresses for SOCKS5 and HTTP.
    pub proxy: Vec<SocketAddr>,
    /// The addresses of maps, each with its destination.
    pub maps: Vec<(SocketAddr, String)>,
    /// The addresses of the control API.
    pub control: Vec<SocketAddr>,
}

impl Proxy {
    /// Opens the sockets of a proxy. [`Proxy::run`] then serves them.
    ///
    /// # Errors
    /// [`ProxyError`]; nothing is left behind.
    pub fn open(settings: Settings) -> Result<Proxy, ProxyError> {
        settings.check()?;
        let scenario = settings.link.scenario()?;
        for map in &settings.maps {
            // Check the name now: if it cannot be resolved, each connection would fail.
            if let Host::Name(name) = &map.destination.host
                && name != "host.sluice"
            {
                names::resolve(name, map.destination.port).map_err(|source| {
                    let name = name.clone();
                    ProxyError::Unresolved { name, source }
                })?;
            }
        }
        let _ = OpenFiles::raise();
        let bell = Bell::new().map_err(kernel("create an eventfd"))?;
        let epoll = epoll::create(CreateFlags::CLOEXEC);
        let epoll = epoll.map_err(|error| kernel("create an epoll")(error.into()))?;
        let timer = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        );
        let timer = timer.map_err(|error| kernel("create a timer")(error.into()))?;
        let watch = |fd: std::os::fd::BorrowedFd<'_>, number, flags| {
            let added = epoll::add(&epoll, fd, EventData::new_u64(number), flags);
            added.map_err(|error| kernel("watch a descriptor")(error.into()))
        };
        watch(bell.as_fd(), BELL, EventFlags::IN)?;
        watch(timer.as_fd(), TIMER, EventFlags::IN | EventFlags::ET)?;
        let mut proxy = Proxy {
            settings,
            links: scenario.links().cloned().collect(),
            seed: scenario.seed,
            epoll,
            bell,
            timer,
            listeners: BTreeMap::new(),
            flags: Arc::default(),
            observations: None,
            clock: Clock::start(),
            capture: None,
        };
        for listen in proxy.settings.listen.clone() {
            proxy.listen(&listen, &Purpose::Proxy)?;
        }
        for map in proxy.settings.maps.clone() {
            proxy.listen(&map.listen, &Purpose::Map(map.destination))?;
        }
        if let Some(control) = proxy.settings.control {
            proxy.listen(&control, &Purpose::Control)?;
        }
        if let Some(path) = &proxy.settings.capture {
            proxy.capture = Some(Capture::create(path, &proxy.clock)?);
        }
        Ok(proxy)
    }

    fn listen(
        &mut self,
        listen: &crate::settings::Listen,
        purpose: &Purpose,
    ) -> Result<(), ProxyError> {
        let mut port = listen.port;
        for (index, address) in listen.addresses().into_iter().enumerate() {
            let address = SocketAddr::new(address.ip(), port);
            let number = FIRST + self.listeners.len() as u64;
            match Listener::open(address, purpose.clone(), &self.epoll, number) {
                Ok(listener) => {
                    port = listener.address().port();
                    self.listeners.insert(number, listener);
                }
                // A machine without IPv6 has one loopback address.
                Err(error) if index > 0 && error.kind() != io::ErrorKind::AddrInUse => {}
                Err(source) => return Err(ProxyError::Listen { address, source }),
            }
        }
        Ok(())
    }

    /// Reports what passes the link to `observations`.
    pub fn observe(&mut self, observations: Observations) {
        self.observations = Some(observations);
    }

    /// Returns the settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the capture, which is not open yet if it is a pipe without a reader.
    pub fn capture(&mut self) -> Option<&mut Capture> {
        self.capture.as_mut()
    }

    /// Returns a handle that ends the proxy.
    pub fn handle(&self) -> Handle {
        Handle {
            bell: self.bell.clone(),
            flags: self.flags.clone(),
        }
    }

    /// Returns the addresses on which the proxy listens.
    pub fn addresses(&self) -> Addresses {
        let mut addresses = Addresses::default();
        for listener in self.listeners.values() {
            let address = listener.address();
            match listener.purpose() {
                Purpose::Proxy => addresses.proxy.push(address),
                Purpose::Map(to) => addresses.maps.push((address, to.to_string())),
                Purpose::Control => addresses.control.push(address),
            }
        }
        addresses
    }

    /// Runs until [`Handle::end`] is called or an algorithm ends the proxy. Returns how exact the
    /// emulation was.
    ///
    /// # Errors
    /// The capture could not be written.
    pub fn run(mut self) -> Result<Verdict, ProxyError> {
        let ending = self.settings.ending.clone();
        let (capture, flags) = (self.capture.take(), self.flags.clone());
        let mut server = Server::new(self);
        if let Some(capture) = &capture {
            server.hub.engine.capture(capture.frames());
        }
        let verdict = ending.within(|| server.run());
        let is_asked = |pause| {
            std::thread::sleep(pause);
            flags.is_urgent.load(Ordering::Acquire)
        };
        capture.map_or(Ok(()), |capture| capture.finish(is_asked))?;
        Ok(verdict)
    }
}

impl Server {
    fn new(proxy: Proxy) -> Server {
        let settings = proxy.settings;
        let mut listens = settings.listen.iter();
        let rules = Rules {
            has_host: settings.has_host,
            is_open: listens.any(|listen| listen.is_open().is_some()),
        };
        let mut engine = Engine::new(&proxy.links, settings.tcp(), HostDelay::TYPICAL, proxy.seed);
        if let Some(observations) = proxy.observations {
            engine.observe(observations);
        }
        let token = settings.token.clone();
        let taken = FIRST + proxy.listeners.len() as u64;
        Server {
            hub: Hub::new(engine, proxy.epoll, proxy.bell, token, rules, taken),
            clock: proxy.clock,
            timer: proxy.timer,
            timer_at: Time::MAX,
            listeners: proxy.listeners,
            resting: BTreeMap::new(),
            clients: BTreeMap::new(),
            nears: BTreeMap::new(),
            outsides: BTreeMap::new(),
            fars: BTreeMap::new(),
            controls: BTreeMap::new(),
            asking: Asking::new(),
            more: Vec::new(),
            lateness: Default::default(),
            too_late: [0; 2],
            flags: proxy.flags,
            settings,
        }
    }

    /// Runs the loop until the proxy ends.
    fn run(mut self) -> Verdict {
        precise_wakeups();
        let mut events = Vec::with_capacity(256);
        let mut drain_until = None;
        let mut quiet_rounds = 0;
        while !self.flags.has_ended.load(Ordering::Acquire) && self.settings.ending.why().is_none()
        {
            if self.flags.is_draining.load(Ordering::Acquire) {
                let until: Time =
                    *drain_until.get_or_insert_with(|| self.clock.now().saturating_add(LINGER));
                // The first rounds read what a program has left in its sockets.
                quiet_rounds = if self.is_sending() {
                    0
                } else {
                    quiet_rounds + 1
                };
                if quiet_rounds > QUIET_ROUNDS || self.clock.now() >= until {
                    break;
                }
            }
            self.wait(&mut events, drain_until.is_some());
            self.advance();
            for event in &events {
                self.on_event(event.data.u64(), event.flags);
            }
            for number in std::mem::take(&mut self.more) {
                self.pump(number);
            }
            self.settle();
        }
        let verdict = Verdict::new(self.reports(), self.settings.max_late);
        self.hub.engine.end_observation();
        self.hub.engine.end_capture();
        verdict
    }

    fn is_sending(&self) -> bool {
        let mut clients = self.clients.values();
        self.hub.engine.is_sending() || clients.any(|client| client.is_sending())
    }

    fn reports(&self) -> [DirectionReport; 2] {
        Side::BOTH.map(|to| {
            let counts = self.hub.engine.counts(to);
            DirectionReport {
                packets: counts.packets,
                bytes: counts.bytes,
                dropped: counts.dropped,
                too_late: self.too_late[to.index()],
                lost: 0,
                lateness: self.lateness[to.index()],
            }
        })
    }

    /// Waits for events of sockets, or until an event of the network is due.
    fn wait(&mut self, events: &mut Vec<epoll::Event>, is_draining: bool) {
        let due = self.hub.engine.next_due();
        let others = self.hub.next_question().into_iter();
        let others = others.chain(self.resting.values().copied());
        let others = others.chain(self.asking.next_due());
        let others = others.chain(self.hub.attempts.values().copied());
        let due = due.into_iter().chain(others).min();
        let mut timeout = is_draining.then_some(Duration::from_millis(5));
        // What has arrived in the last round of `settle` is not announced by another event.
        if !self.more.is_empty() || self.hub.engine.has_news() {
            timeout = Some(Duration::ZERO);
        } else if let Some(due) = due {
            if self.clock.has_reached(due) {
                timeout = Some(Duration::ZERO);
            } else {
                self.set_timer(due);
            }
        }
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: timeout.as_secs() as i64,
            tv_nsec: i64::from(timeout.subsec_nanos()),
        });
        events.clear();
        let spare = rustix::buffer::spare_capacity(events);
        // The only possible error is an interruption by a signal.
        let _ = epoll::wait(&self.hub.epoll, spare, timeout.as_ref());
    }

    fn set_timer(&mut self, due: Time) {
        if self.timer_at == due {
            return;
        }
        let ns = self.clock.monotonic_ns(due);
        let value = Itimerspec {
            it_interval: Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value: Timespec {
                tv_sec: (ns / 1_000_000_000) as i64,
                tv_nsec: (ns % 1_000_000_000) as i64,
            },
        };
        // The time is valid, and so is the descriptor.
        if timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &value).is_ok() {
            self.timer_at = due;
        }
    }

    /// Advances the network to the current time.
    fn advance(&mut self) {
        let now = self.clock.now();
        let most = self.settings.max_late.unwrap_or(Span::MAX);
        let (lateness, too_late) = (&mut self.lateness, &mut self.too_late);
        self.hub.engine.advance(now, |to, due| {
            let late = now.since(due);
            lateness[to.index()].note(late);
            too_late[to.index()] += u64::from(late > most);
        });
        if self.timer_at <= now {
            self.timer_at = Time::MAX;
        }
        for (client, question, answer) in self.hub.ask_again(now) {
            self.resolved(client, question, answer);
        }
        let attempts = self.hub.attempts.iter();
        let due = attempts.filter(|(_, at)| **at <= now);
        let due: Vec<u64> = due.map(|(number, _)| *number).collect();
        for number in due {
            self.hub.attempts.remove(&number);
            self.pump(number);
        }
        while let Some(number) = self.asking.take_due(now) {
            self.drop_asking(number);
        }
        let (epoll, listeners) = (&self.hub.epoll, &self.listeners);
        self.resting.retain(|number, at| {
            let is_resting = *at > now;
            if !is_resting {
                listeners[number].set_watched(true, epoll, *number);
            }
            is_resting
        });
    }

    /// Passes on everything that has arrived, until nothing more arrives at this instant.
    fn settle(&mut self) {
        for _ in 0..ROUNDS {
            for (client, question, answer) in self.hub.answers() {
                self.resolved(client, question, answer);
            }
            let changed = self.hub.engine.take_changed();
            if changed.is_empty() {
                break;
            }
            for id in changed {
                self.on_change(id);
            }
            // On a link without delay, everything happens at once.
            if self
                .hub
                .engine
                .next_due()
                .is_some_and(|due| self.clock.has_reached(due))
            {
                self.advance();
            }
        }
    }

    fn resolved(&mut self, number: u64, question: Id, answer: names::Answer) {
        if let Some(client) = self.clients.get_mut(&number) {
            client.resolved(question, answer, &mut self.hub);
            self.pump(number);
        }
    }

    fn on_change(&mut self, id: Id) {
        if self.hub.engine.is_asking(id) && !self.fars.contains_key(&id) {
            let number = self.hub.number();
            if let Some(outside) = Outside::dial(id, number, &mut self.hub, self.clock.now()) {
                self.outsides.insert(number, outside);
                self.fars.insert(id, number);
            }
        }
        let ends = [self.nears.get(&id), self.fars.get(&id)].map(Option::<&u64>::copied);
        for number in ends.into_iter().flatten() {
            self.pump(number);
        }
    }

    fn on_event(&mut self, number: u64, flags: EventFlags) {
        match number {
            BELL => return self.hub.bell.quiet(),
            TIMER => return,
            _ => {}
        }
        if self.listeners.contains_key(&number) {
            return self.accept(number);
        }
        if let Some(client) = self.clients.get_mut(&number) {
            client.note(flags);
        } else if let Some(outside) = self.outsides.get_mut(&number) {
            outside.note(flags);
        } else if let Some(control) = self.controls.get_mut(&number) {
            control.note(flags);
        }
        self.pump(number);
    }

    /// Continues a connection as far as possible.
    fn pump(&mut self, number: u64) {
        let now = self.clock.now();
        if let Some(client) = self.clients.remove(&number) {
            let before = client.id();
            let after = client.pump(&mut self.hub, now);
            let id = after.as_ref().and_then(|(client, _)| client.id());
            if let Some(before) = before.filter(|before| Some(*before) != id) {
                self.nears.remove(&before);
            }
            if let Some(id) = id {
                self.nears.insert(id, number);
            }
            if after.as_ref().is_none_or(|(client, _)| client.has_asked()) {
                self.asking.remove(number);
            }
            if let Some((client, has_more)) = after {
                self.clients.insert(number, client);
                self.more.extend(has_more.then_some(number));
            }
        } else if let Some(outside) = self.outsides.remove(&number) {
            let id = outside.id();
            match outside.pump(number, &mut self.hub, now) {
                Some((outside, has_more)) => {
                    self.outsides.insert(number, outside);
                    self.more.extend(has_more.then_some(number));
                }
                None => {
                    self.fars.remove(&id);
                }
            }
        } else if self.controls.contains_key(&number) {
            self.pump_control(number);
            if !self.controls.contains_key(&number) {
                self.asking.remove(number);
            }
        }
    }

    /// Closes a connection that has nothing on the link.
    fn drop_asking(&mut self, number: u64) {
        self.clients.remove(&number);
        self.controls.remove(&number);
    }

    fn accept(&mut self, number: u64) {
        let Some(listener) = self.listeners.get(&number) else {
            return;
        };
        let purpose = listener.purpose().clone();
        let (sockets, has_more) = listener.accept_all();
        if has_more {
            // Otherwise the loop would wake up again and again until a descriptor is closed.
            listener.set_watched(false, &self.hub.epoll, number);
            let at = self.clock.now().saturating_add(REST);
            self.resting.insert(number, at);
        }
        for socket in sockets {
            let number = self.hub.number();
            let Ok(stream) = Stream::new(socket, &self.hub.epoll, number) else {
                continue;
            };
            let now = self.clock.now();
            let has_asked = match &purpose {
                Purpose::Control => {
                    self.controls.insert(number, Control::new(stream));
                    false
                }
                Purpose::Proxy => self.add_client(number, stream, None, now),
                Purpose::Map(destination) => {
                    self.add_client(number, stream, Some(destination.clone()), now)
                }
            };
            let oldest = (!has_asked).then(|| self.asking.add(number, now)).flatten();
            if let Some(oldest) = oldest {
                self.drop_asking(oldest);
            }
        }
    }

    /// Adds a client; `fixed` is the destination of a map. Returns whether it has a destination.
    fn add_client(
        &mut self,
        number: u64,
        stream: Stream,
        fixed: Option<Destination>,
        now: Time,
    ) -> bool {
        let client = Client::new(number, stream, fixed, &mut self.hub, now);
        if let Some(id) = client.id() {
            self.nears.insert(id, number);
        }
        let has_asked = client.has_asked();
        self.clients.insert(number, client);
        has_asked
    }
}

fn kernel(step: &'static str) -> impl Fn(io::Error) -> ProxyError {
    move |source| ProxyError::Kernel { step, source }
}

/// The time that a listener waits for free descriptors.
const REST: Span = Span::from_ms(50);
/// The numbers of the bell and the timer among the sockets.
const BELL: u64 = 1;
const TIMER: u64 = 2;
/// The number of the first listener.
const FIRST: u64 = 3;
/// The most rounds in which connections may cause changes of other connections before sockets have
/// their turn.
const ROUNDS: usize = 64;
/// A draining proxy ends after this number of rounds without data to send. A round takes up to 5
/// ms.
const QUIET_ROUNDS: u32 = 3;
/// The time within which the last bytes of programs must cross the link.
const LINGER: Span = Span::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Target;
    use crate::settings::{Listen, congestion_control};
    use sluice_exec::link::LinkWords;

    fn proxy(link: LinkWords) -> Proxy {
        let settings = Settings {
            link,
            congestion_control: congestion_control(None).unwrap(),
            listen: vec![Listen {
                address: None,
                port: 0,
            }],
            maps: Vec::new(),
            control: None,
            token: None,
            has_host: false,
            max_late: None,
            capture: None,
            ending: Default::default(),
        };
        Proxy::open(settings).unwrap()
    }

    #[test]
    fn the_seed_is_that_of_the_link() {
        let link = LinkWords {
            sets: vec![("seed".to_owned(), "7".to_owned())],
            ..LinkWords::default()
        };
        assert_eq!(proxy(link).seed, 7);
    }

    #[test]
    fn what_has_arrived_after_the_last_round_waits_for_no_other_event() {
        let mut server = Server::new(proxy(LinkWords::default()));
        let name = "198.51.100.7:80";
        server.hub.engine.open(&Target {
            name: name.to_owned(),
            address: name.parse().unwrap(),
            host: 7,
        });
        // The link has no delay.
        while !server.hub.engine.has_news() {
            server.advance();
        }
        let mut events = Vec::with_capacity(256);
        server.wait(&mut events, false);
        // The next event would be the timer's, which repeats the SYN after 1 s (RFC 6298 section 2).
        assert!(events.is_empty());
    }
}
