//! The engine: packets in, packets out, commands.

use std::collections::VecDeque;

use sluice_core::event::{Cx, DropReason};
use sluice_core::packet::Packet;
use sluice_core::sched::Wake;
use sluice_core::units::{Rate, Time};
use sluice_core::{Rng, link};

use crate::ahead::Ahead;
use crate::execute::Beside;
use crate::grammar::{CommandError, Warning};
use crate::hash::KeyedHash;
use crate::headers::{Direction, Headers, Interface, InterfaceId};
use crate::log::{Log, LogEntry};
use crate::objects::budget::{LastRefused, Limits, Refusals};
use crate::objects::instance::NONE;
use crate::objects::layout::{Layout, STRIDE, Trial};
use crate::objects::packets::{Passage, Trail};
use crate::objects::runtime::{MOST, Runtime};
use crate::objects::share::Purpose;
use crate::objects::watch::ObjectName;
use crate::rules::{MOST_CALLS, Outcome, Place, Rules, Walk};
use crate::show::Snapshot;
use crate::variables::Variables;

/// The settings of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Whether the built-in rule 65535 allows packets; it denies them by default, as in ipfw.
    pub accepts_by_default: bool,
    /// Whether the engine follows dummynet where Sluice deliberately differs. The variable
    /// `net.inet.ip.dummynet.compat` changes this later.
    pub compat: bool,
    /// Seed of what is not drawn per packet: the links' random streams, and the hash key if
    /// `hash_key` is `None`.
    pub seed: u64,
    /// Key of the hashes over fields that senders choose, such as addresses. A sender that knows
    /// the key can aim all its flows at one bucket, so a router on a real network needs a random
    /// key. `None` derives the key from the seed, so that runs can be repeated.
    pub hash_key: Option<u64>,
    /// Seconds from the Unix epoch to the origin of virtual time, for the dates of `-t`.
    pub origin_s: u64,
    /// Most bytes of memory for the pipes and queues that masks create.
    pub dynamic_bytes: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            accepts_by_default: false,
            compat: false,
            seed: 0,
            hash_key: None,
            origin_s: 0,
            dynamic_bytes: DYNAMIC_BYTES,
        }
    }
}

/// The default of [`Settings::dynamic_bytes`]: 262 144 pipes of `fq_codel`, at 1.8 KB each, take 470
/// MB.
pub const DYNAMIC_BYTES: u64 = 512 << 20;

/// Rules, pipes, queues and schedulers as one object that receives time, packets and commands.
///
/// The engine has no clock and stores no packet bytes. A packet leaves it in one of three ways:
/// [`Firewall::handle`] returns it, [`Firewall::poll`] returns it, or the sink of the context
/// receives it. Like a [`Pipe`](link::Pipe), the engine acts at the instants at which something is
/// due, not at those at which it is polled: late and spurious polls change nothing. Events at the
/// same instant happen in the order arrivals, AQM timers, links. Calls must come in order of time.
///
/// ```
/// use sluice_core::{Cx, DropCounter, Packet, Rng, Time};
/// use sluice_ipfw::{Direction, Disposition, Firewall, Headers, NoFiles, Settings};
///
/// let mut firewall = Firewall::new(&Settings::default());
/// let (mut rng, mut dropped) = (Rng::from_seed(1), DropCounter::default());
/// let mut cx = Cx::new(Time::ZERO, &mut rng, &mut dropped);
/// for line in ["pipe 1 config bw 1Mbit/s delay 5", "add 100 pipe 1 ip from any to any"] {
///     firewall.command(line, &mut NoFiles, &mut cx).unwrap();
/// }
/// let address = "192.0.2.1".parse().unwrap();
/// let headers = Headers::new(Direction::In, 17, address, address);
/// let taken = firewall.handle(Packet::new(0, 1250), &headers, &mut cx);
/// assert!(matches!(taken, Disposition::Taken));
/// // 1250 B take 10 ms at 1 Mbit/s, and the delay of the pipe is 5 ms.
/// cx.now = Time::from_ns(15_000_000);
/// assert_eq!(firewall.poll(&mut cx).map(|d| d.packet.len), Some(1250));
/// ```
pub struct Firewall {
    pub(crate) layout: Layout,
    pub(crate) trial: Trial,
    pub(crate) runtime: Runtime,
    pub(crate) rules: Rules,
    pub(crate) variables: Variables,
    pub(crate) settings: Settings,
    pub(crate) switches: Switches,
    /// For each interface, the one through which packets that arrived there leave; see
    /// [`Firewall::connect`].
    ways_out: Vec<Option<InterfaceId>>,
    out: VecDeque<Departure>,
    /// The packets that come next.
    ahead: Ahead,
    /// Scratch space of [`Firewall::advance`].
    arrived: Vec<link::Departure>,
    log: Log,
    /// Grows with each command that may change the configuration.
    pub(crate) revision: u64,
    /// Set while commands are executed on a copy of a configuration, beside an engine.
    pub(crate) beside: Option<Beside>,
}

/// Variables that are read for every packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Switches {
    one_pass: bool,
    /// IPv4, IPv6.
    is_enabled: [bool; 2],
    logs: bool,
    pub is_compat: bool,
    expire: u64,
}

/// The outcome for a packet passed to the engine.
#[derive(Debug)]
pub enum Disposition {
    /// The packet passes.
    Pass(Packet),
    /// The packet entered a pipe or queue. [`Firewall::poll`] returns it unless it is dropped
    /// there, or [`Firewall::take_handed`] if the pipe belongs to another worker.
    Taken,
    /// The packet was dropped; the sink received it.
    Dropped(DropReason),
}

/// A packet that has left its pipes and passes.
#[derive(Debug)]
pub struct Departure {
    /// The packet.
    pub packet: Packet,
    /// The instant at which the packet was due. A host that polls later is late.
    pub due: Time,
    /// The pass through the rules in which the packet entered the pipe.
    pub direction: Direction,
    /// The interface through which the packet leaves, if it was in the outgoing pass.
    pub xmit: Option<InterfaceId>,
}

/// How a text is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// As one command; messages carry no line number.
    Command,
    /// Line by line until one is refused; the lines before it stay in force.
    Batch,
    /// All lines at one instant, or none.
    Atomic,
    /// Like [`Mode::Atomic`], but replaces the whole configuration. Packets stay in pipes and
    /// queues that the new configuration has too, and rules that it has too keep their counters.
    Replace,
}

/// The result of a command.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Output {
    /// The text for standard output.
    pub stdout: String,
    /// Warnings: reasons why the command does not do what it appears to say.
    pub warnings: Vec<Warning>,
    /// The state, if the command asked for it with `--json`.
    pub snapshot: Option<Box<Snapshot>>,
}

impl Output {
    /// Forgets the output of commands that do not take effect, from a length of the text on. Their
    /// warnings stay.
    pub(crate) fn take_back(&mut self, length: usize) {
        self.stdout.truncate(length);
        self.snapshot = None;
    }
}

/// The most pipes that one packet may pass through; a ruleset that needs more is a loop.
const MOST_PIPES: u16 = 1000;

impl Firewall {
    /// Creates an engine without pipes and with the built-in rule only.
    pub fn new(settings: &Settings) -> Self {
        let variables = Variables::starting(settings.compat);
        let mut rng = Rng::from_seed(settings.seed);
        let drawn = rng.next_u64();
        let hash = KeyedHash(settings.hash_key.unwrap_or(drawn));
        let switches = Switches::of(&variables);
        Firewall {
            layout: Layout::default(),
            trial: Trial::default(),
            runtime: Runtime::new(&rng, hash, settings.dynamic_bytes),
            rules: Rules::new(settings.accepts_by_default, hash),
            variables,
            settings: *settings,
            switches,
            ways_out: Vec::new(),
            out: VecDeque::new(),
            ahead: Ahead::default(),
            arrived: Vec::new(),
            log: Log::default(),
            revision: 0,
            beside: None,
        }
    }

    /// Sets [`Settings::origin_s`], after the host's date was set.
    pub const fn set_origin(&mut self, origin_s: u64) {
        self.settings.origin_s = origin_s;
    }

    /// Tells for how many more packets the host has room. A pipe holds at most four times as many, so
    /// that a single pipe cannot take all memory. Without this call there is no such limit.
    pub fn set_free_packets(&mut self, packets: u64) {
        self.runtime.set_free_packets(packets);
    }

    /// Returns the packets that limits of the whole engine refused. They are among the dropped ones, except
    /// where the counter says otherwise.
    pub const fn refusals(&self) -> Refusals {
        let states = self.rules.states.refusals;
        Refusals {
            states_full: states.full,
            states_evicted: states.evicted,
            states_source: states.source,
            states_limit: states.limit,
            call_loop: self.rules.refused_calls,
            ..self.runtime.refusals()
        }
    }

    /// Returns what met a limit last.
    pub const fn last_refused(&self) -> LastRefused {
        LastRefused {
            pipe_share: self.runtime.last_over_share(),
            states_limit: self.rules.states.last_limit,
        }
    }

    /// Returns the limits of the whole engine.
    pub const fn limits(&self) -> Limits {
        Limits {
            dynamic_memory: self.runtime.dynamic_bytes(),
            dynamic_number: MOST as u64,
            states_full: self.rules.lifetimes.most as u64,
            states_source: self.rules.lifetimes.per_source as u64,
            pipe_loop: MOST_PIPES as u64,
            call_loop: MOST_CALLS as u64,
        }
    }

    /// Returns the number of packets that the queues of all pipes may hold together, if each mask has
    /// a single flow.
    pub fn most_queued(&self) -> u64 {
        self.layout.most_queued()
    }

    /// Sets the host's interfaces. [`Headers`] refer to them by their index in this list.
    pub fn set_interfaces(&mut self, interfaces: Vec<Interface>) {
        self.revision += 1;
        self.rules.set_interfaces(interfaces);
    }

    /// Returns the interfaces of the host.
    pub fn interfaces(&self) -> &[Interface] {
        self.rules.interfaces()
    }

    /// Makes the engine send packets that come in through `from` out through `to`. They cross the
    /// rules twice; the second pass happens at the instant at which the first one ends. A host that
    /// routes by other means gives [`Headers::xmit`] in the incoming pass, or performs the second
    /// pass itself.
    pub fn connect(&mut self, from: InterfaceId, to: InterfaceId) {
        let place = usize::from(from.0);
        if self.ways_out.len() <= place {
            self.ways_out.resize(place + 1, None);
        }
        self.ways_out[place] = Some(to);
    }

    /// Whether some link or queue needs super-packets to be split: one slower than `threshold`, or
    /// one that treats packets individually (loss, reordering, a profile).
    pub fn splits_any(&self, threshold: Rate) -> bool {
        let mut links = self.layout.links.values();
        links.any(|link| link.wants_single_packets(threshold))
            || self.layout.flowsets.values().any(|f| f.loss.is_some())
    }

    /// Whether a super-packet with these headers must be split because its flow may reach, in
    /// either pass, a link or queue as described at [`Firewall::splits_any`]. Where the rules
    /// cannot decide in advance (states, a table value that depends on the packet, rules that are
    /// evaluated again behind a pipe), any such link counts.
    pub fn splits(&mut self, headers: &Headers, threshold: Rate) -> bool {
        let way_out = self.second_pass(headers);
        let mut splits = false;
        for pass in std::iter::once(headers).chain(&way_out) {
            let (runtime, layout) = (&self.runtime, &self.layout);
            let is_certain = self.switches.one_pass
                && self.rules.targets(pass, |is_pipe, number| {
                    let flowset = if is_pipe { number + 2 * STRIDE } else { number };
                    splits |= runtime
                        .wants_single_packets(flowset, threshold)
                        .unwrap_or_else(|| layout.wants_single_packets(flowset, threshold));
                });
            if !is_certain {
                return self.splits_any(threshold);
            }
        }
        splits
    }

    /// Returns the pipe or queue that packets with these headers enter first, in either pass. `None`
    /// if there is none, or if the rules cannot decide in advance.
    pub fn first_object(&mut self, headers: &Headers) -> Option<ObjectName> {
        let way_out = self.second_pass(headers);
        for pass in std::iter::once(headers).chain(&way_out) {
            let mut first = None;
            let is_certain = self.rules.targets(pass, |is_pipe, number| {
                let object = if is_pipe {
                    ObjectName::Pipe
                } else {
                    ObjectName::Queue
                };
                first.get_or_insert(object(number));
            });
            if !is_certain || first.is_some() {
                return first.filter(|_| is_certain);
            }
        }
        None
    }

    /// Handles a packet at `cx.now` for one pass through the rules. The packet's slot is a small
    /// number that no other packet inside the engine has.
    pub fn handle(&mut self, packet: Packet, headers: &Headers, cx: &mut Cx<'_>) -> Disposition {
        let now = cx.now;
        self.runtime.is_announced = self.ahead.step(&self.rules, &self.runtime);
        self.advance(|at| at < now, cx);
        self.runtime
            .sweep(self.switches.expire, self.switches.is_compat, cx);
        if !self.switches.is_enabled[usize::from(headers.src.is_ipv6())] {
            return Disposition::Pass(packet);
        }
        let trail = Trail {
            pipes: 0,
            home: self.runtime.worker.map_or(0, |worker| worker.number as u16),
        };
        self.route(packet, headers, &Place::START, trail, cx)
    }

    /// Whether there are so many pipes and queues that [`Firewall::expect`] is worth its cost.
    pub fn is_wide(&self) -> bool {
        self.runtime.is_wide()
    }

    /// Announces the packets that the next calls of [`Firewall::handle`] will bring, in their order, by
    /// their headers. Those announced before are forgotten. Nothing that a caller could observe
    /// depends on it; see [`prefetch`](sluice_core::prefetch).
    ///
    /// With very many pipes each packet uses one whose memory is in no cache. A host that receives
    /// packets in batches announces a batch first, and the memory of the packets that come next is
    /// fetched while one is handled.
    pub fn expect<'a>(&mut self, coming: impl IntoIterator<Item = &'a Headers>) {
        self.ahead.clear();
        for headers in coming {
            let second = self.second_pass(headers);
            self.ahead.announce(headers, second.as_ref(), &self.rules);
        }
        self.ahead.begin(&self.rules, &self.runtime);
    }

    /// Returns the headers for the second pass, on the way out, of a packet that came in with
    /// `headers`.
    pub fn second_pass(&self, headers: &Headers) -> Option<Headers> {
        self.way_out(headers).map(|xmit| Headers {
            direction: Direction::Out,
            xmit: Some(xmit),
            ..headers.clone()
        })
    }

    /// Returns whether an Ethernet frame that is not IP passes: rules with `mac-type` decide, in both
    /// passes ([`Firewall::second_pass`]), and a frame that none of them matches passes. It enters no
    /// pipe.
    pub fn passes(&mut self, headers: &Headers, cx: &mut Cx<'_>) -> bool {
        if !self.switches.is_enabled[0] {
            return true;
        }
        let out = self.second_pass(headers);
        std::iter::once(headers).chain(&out).all(|pass| {
            let walk = Walk {
                now: cx.now,
                rng: &mut *cx.rng,
                packets: 1,
                one_pass: true,
                log: self.switches.logs.then_some(&mut self.log),
            };
            self.rules.passes(pass, walk)
        })
    }

    /// Processes everything due up to `cx.now` and returns the next packet that left its pipes, in
    /// the order of their due times. Call this until it returns `None`.
    pub fn poll(&mut self, cx: &mut Cx<'_>) -> Option<Departure> {
        let now = cx.now;
        self.advance(|at| at <= now, cx);
        self.out.pop_front()
    }

    /// Returns when [`Firewall::poll`] has work to do next.
    pub fn next_wake(&self) -> Wake {
        if !self.out.is_empty() {
            return Wake::Now;
        }
        self.runtime.next_event().map_or(Wake::OnEnqueue, Wake::At)
    }

    /// Returns whether `log` rules have recorded packets since the last [`Firewall::take_log`].
    pub fn has_log(&self) -> bool {
        !self.log.is_empty()
    }

    /// Returns what `log` rules have recorded since the last call, and the number of entries that
    /// found no room. Rules record while the variable `net.inet.ip.fw.verbose` is not 0, each up to
    /// its own `logamount` or the variable `net.inet.ip.fw.verbose_limit`.
    pub fn take_log(&mut self) -> (Vec<LogEntry>, u64) {
        let (mut entries, lost) = self.log.take();
        for entry in &mut entries {
            entry.interface = self.rules.interface_of(&entry.headers);
        }
        (entries, lost)
    }

    pub(crate) fn refresh_switches(&mut self) {
        self.switches = Switches::of(&self.variables);
    }

    /// Processes, in order of time, every event for which `is_due` holds.
    pub(crate) fn advance(&mut self, is_due: impl Fn(Time) -> bool, cx: &mut Cx<'_>) {
        let mut arrived = std::mem::take(&mut self.arrived);
        while self.runtime.advance(&is_due, &mut arrived, cx) {
            for departure in arrived.drain(..) {
                self.leave(departure, cx);
            }
        }
        self.arrived = arrived;
    }

    /// Handles a packet that came out of a pipe: it passes, or continues behind the rule that sent
    /// it.
    fn leave(&mut self, departure: link::Departure, cx: &mut Cx<'_>) {
        let link::Departure { packet, due } = departure;
        let passage = self.runtime.passages.of(&packet);
        if passage.one_pass && self.way_out(&passage.headers).is_none() {
            self.out.push_back(Departure {
                direction: passage.headers.direction,
                xmit: passage.headers.xmit,
                packet,
                due,
            });
            return;
        }
        let passage = passage.clone();
        let home = u32::from(passage.trail.home);
        let is_away = self.runtime.worker.is_some_and(|own| own.number != home);
        if is_away && self.rules.has_states() {
            self.runtime
                .hand_over(home, packet, passage, Purpose::Continue, due);
            return;
        }
        self.proceed(packet, &passage, due, cx);
    }

    /// Applies the rules behind a pipe to a packet that left it at `due`.
    pub(crate) fn proceed(
        &mut self,
        packet: Packet,
        passage: &Passage,
        due: Time,
        cx: &mut Cx<'_>,
    ) {
        let way_out = self.way_out(&passage.headers);
        let direction = way_out.map_or(passage.headers.direction, |_| Direction::Out);
        let xmit = way_out.or(passage.headers.xmit);
        let mut headers = passage.headers.clone();
        headers.tos = headers.tos & !3 | packet.ecn as u8;
        let now = std::mem::replace(&mut cx.now, due);
        let disposition = if passage.one_pass {
            self.pass(packet, &headers, passage.trail, cx)
        } else {
            self.route(packet, &headers, &passage.from, passage.trail, cx)
        };
        cx.now = now;
        let Disposition::Pass(packet) = disposition else {
            return;
        };
        self.out.push_back(Departure {
            packet,
            due,
            direction,
            xmit,
        });
    }

    /// Returns the interface through which a packet of the incoming pass leaves: the one that the
    /// host has chosen for this packet, or the one that [`Firewall::connect`] has set.
    fn way_out(&self, headers: &Headers) -> Option<InterfaceId> {
        let recv = headers
            .recv
            .filter(|_| headers.direction == Direction::In)?;
        headers
            .xmit
            .or_else(|| self.ways_out.get(usize::from(recv.0)).copied().flatten())
    }

    /// Lets a packet pass, or starts its second pass on the way out.
    fn pass(
        &mut self,
        packet: Packet,
        headers: &Headers,
        trail: Trail,
        cx: &mut Cx<'_>,
    ) -> Disposition {
        let Some(headers) = self.second_pass(headers) else {
            return Disposition::Pass(packet);
        };
        self.route(packet, &headers, &Place::START, trail, cx)
    }

    /// Evaluates the rules behind `after` and applies the result.
    fn route(
        &mut self,
        packet: Packet,
        headers: &Headers,
        after: &Place,
        trail: Trail,
        cx: &mut Cx<'_>,
    ) -> Disposition {
        let walk = Walk {
            now: cx.now,
            rng: &mut *cx.rng,
            packets: packet.segments,
            one_pass: self.switches.one_pass,
            log: self.switches.logs.then_some(&mut self.log),
        };
        let (outcome, cached) = self.rules.walk(headers, after, walk);
        let (is_pipe, number, from) = match outcome {
            Outcome::Allow => return self.pass(packet, headers, trail, cx),
            Outcome::Deny => {
                cx.discard(packet, DropReason::Denied);
                return Disposition::Dropped(DropReason::Denied);
            }
            Outcome::Into {
                is_pipe,
                number,
                from,
            } => (is_pipe, number, from),
        };
        let is_refused = self.switches.is_compat && headers.is_link_local();
        let is_loop = trail.pipes >= MOST_PIPES;
        if is_loop && !is_refused {
            self.runtime.refuse_loop();
        }
        if is_refused || is_loop {
            cx.discard(packet, DropReason::NoRoute);
            return Disposition::Dropped(DropReason::NoRoute);
        }
        let flowset = if is_pipe { number + 2 * STRIDE } else { number };
        let passage = Passage {
            headers: headers.clone(),
            flowset,
            from,
            one_pass: self.switches.one_pass,
            trail: Trail {
                pipes: trail.pipes + 1,
                ..trail
            },
            holder: NONE,
        };
        self.runtime.ensure(flowset, &self.layout);
        let place = self
            .runtime
            .enter(packet, flowset, passage, cached.hint, cx);
        if place != cached.hint {
            self.rules.leave_hint(cached.place, place);
        }
        Disposition::Taken
    }

    /// Executes one or several lines. This is [`Firewall::batch`] without line numbers in messages
    /// if there is only one line.
    ///
    /// # Errors
    ///
    /// The reason for the refusal, and its place. A refused command changes nothing.
    pub fn command(
        &mut self,
        text: &str,
        files: &mut dyn crate::Files,
        cx: &mut Cx<'_>,
    ) -> Result<Output, CommandError> {
        let is_batch = text.trim_end().contains('\n');
        let mode = if is_batch { Mode::Batch } else { Mode::Command };
        let mut output = Output::default();
        self.execute(text, mode, files, &mut output, cx)
            .map(|()| output)
    }

    /// Executes lines, one command each, until one is refused. With `is_atomic` all lines take
    /// effect at one instant, or none does. A text that deletes everything and configures it again
    /// leaves objects that end up the same untouched, including the packets in them.
    ///
    /// # Errors
    ///
    /// As [`Firewall::command`]; the message starts with the line number.
    pub fn batch(
        &mut self,
        text: &str,
        is_atomic: bool,
        files: &mut dyn crate::Files,
        cx: &mut Cx<'_>,
    ) -> Result<Output, CommandError> {
        let mode = if is_atomic { Mode::Atomic } else { Mode::Batch };
        let mut output = Output::default();
        self.execute(text, mode, files, &mut output, cx)
            .map(|()| output)
    }
}

impl Switches {
    fn of(variables: &Variables) -> Self {
        Switches {
            one_pass: variables.is_on("net.inet.ip.fw.one_pass"),
            is_enabled: [
                variables.is_on("net.inet.ip.fw.enable"),
                variables.is_on("net.inet6.ip6.fw.enable"),
            ],
            logs: variables.is_on("net.inet.ip.fw.verbose"),
            is_compat: variables.is_on("net.inet.ip.dummynet.compat"),
            expire: variables.value("net.inet.ip.dummynet.expire"),
        }
    }
}
