//! The engine: packets in, packets out, commands.

use std::collections::VecDeque;

use sluice_core::event::{Cx, DropReason};
use sluice_core::packet::Packet;
use sluice_core::sched::Wake;
use sluice_core::units::{Rate, Time};
use sluice_core::{Rng, link};

use crate::grammar::{CommandError, Warning};
use crate::hash::KeyedHash;
use crate::headers::{Direction, Headers, Interface, InterfaceId};
use crate::objects::layout::{Layout, STRIDE};
use crate::objects::packets::Passage;
use crate::objects::runtime::Runtime;
use crate::rules::{LogEntry, Outcome, RuleId, Rules, Walk};
use crate::show::Snapshot;
use crate::variables::Variables;

/// How an engine starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// What the built-in rule 65535 does: it denies unless this is set, as ipfw.
    pub accepts_by_default: bool,
    /// Whether dummynet is followed where we knowingly differ; the variable
    /// `net.inet.ip.dummynet.compat` changes it later.
    pub compat: bool,
    /// Seed of what is not drawn per packet: the links' streams of randomness, and the key of hashes if there is none.
    pub seed: u64,
    /// Key of hashes over what strangers choose, such as addresses. Who knows it can aim all flows at one place of a
    /// table, so a router among strangers needs one that is drawn anew. Drawn from the seed if `None`, for runs
    /// that repeat.
    pub hash_key: Option<u64>,
    /// Seconds from the epoch of dates to the origin of virtual time, for the dates of `-t`.
    pub origin_s: u64,
}

/// Rules, pipes, queues and schedulers as one object that is handed time, packets and commands.
///
/// It never asks for the time and keeps no packet's bytes. What it holds leaves in three ways:
/// given back by [`Firewall::handle`], given by [`Firewall::poll`], or handed to the sink of the
/// context. Like a [`Pipe`](link::Pipe) it lives in the instants at which something is due, not in
/// those at which it is polled: late and spurious polls change nothing. At one instant the order is
/// arrivals, timers of AQMs, links; calls come in the order of time.
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
/// // 1250 B at 1 Mbit/s take 10 ms, and the far end is 5 ms away.
/// cx.now = Time::from_ns(15_000_000);
/// assert_eq!(firewall.poll(&mut cx).map(|d| d.packet.len), Some(1250));
/// ```
pub struct Firewall {
    pub(crate) layout: Layout,
    pub(crate) runtime: Runtime,
    pub(crate) rules: Rules,
    pub(crate) variables: Variables,
    pub(crate) settings: Settings,
    pub(crate) switches: Switches,
    /// By interface, through which one what comes in there leaves; see [`Firewall::connect`].
    ways_out: Vec<Option<InterfaceId>>,
    out: VecDeque<Departure>,
    /// Scratch of [`Firewall::advance`].
    arrived: Vec<link::Departure>,
    log: Vec<LogEntry>,
}

/// Variables that every packet asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Switches {
    one_pass: bool,
    /// IPv4, IPv6.
    is_enabled: [bool; 2],
    logs: bool,
    pub is_compat: bool,
    expire: u64,
}

/// What became of a packet that was handed in.
#[derive(Debug)]
pub enum Disposition {
    /// It passes; here it is.
    Pass(Packet),
    /// It went into a pipe or queue, and comes out of [`Firewall::poll`] unless it is dropped there.
    Taken,
    /// It was dropped and handed to the sink.
    Dropped(DropReason),
}

/// A packet that has come through its pipes, and passes.
#[derive(Debug)]
pub struct Departure {
    /// The packet.
    pub packet: Packet,
    /// When it was due; a host that polls later than that is late.
    pub due: Time,
    /// In which pass through the rules it was taken.
    pub direction: Direction,
    /// The interface that it leaves through, if it was on its way out.
    pub xmit: Option<InterfaceId>,
}

/// How a text is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// As one command; messages do not say on which line.
    Command,
    /// Line by line, until one is refused; those before it stay in force.
    Batch,
    /// All lines at one instant, or none.
    Atomic,
    /// As [`Mode::Atomic`], in the place of everything that was configured before. Packets inside stay
    /// as far as there still is a place for them, rules that stay keep their counters.
    Replace,
}

/// What a command says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Output {
    /// The text of its standard output.
    pub stdout: String,
    /// What it was accepted with although it does not do what it seems to say.
    pub warnings: Vec<Warning>,
    /// The state, if `--json` asked for it.
    pub snapshot: Option<Box<Snapshot>>,
}

/// Pipes that one packet may go through: more is a ruleset that goes round in circles.
const MOST_PIPES: u16 = 1000;
/// Packets whose memory is fetched at one time: more than a processor has misses under way, few enough
/// that what was fetched first is still there.
const EXPECTED: usize = 32;
/// Log entries that are kept for a host that does not take them.
const MOST_LOG: usize = 1024;

impl Firewall {
    /// An engine without pipes, and with the built-in rule only.
    pub fn new(settings: &Settings) -> Self {
        let variables = Variables::starting(settings.compat);
        let mut rng = Rng::from_seed(settings.seed);
        let drawn = rng.next_u64();
        let hash = KeyedHash(settings.hash_key.unwrap_or(drawn));
        let switches = Switches::of(&variables);
        Firewall {
            layout: Layout::default(),
            runtime: Runtime::new(&rng, hash),
            rules: Rules::new(settings.accepts_by_default, hash),
            variables,
            settings: *settings,
            switches,
            ways_out: Vec::new(),
            out: VecDeque::new(),
            arrived: Vec::new(),
            log: Vec::new(),
        }
    }

    /// Tells the engine the host's interfaces. [`Headers`] name them by their place in this list.
    pub fn set_interfaces(&mut self, interfaces: Vec<Interface>) {
        self.rules.set_interfaces(interfaces);
    }

    /// The interfaces as they were told.
    pub fn interfaces(&self) -> &[Interface] {
        self.rules.interfaces()
    }

    /// Makes the engine send packets that come in through `from` out through `to`: they cross the
    /// rules twice, the second time at the instant at which the first pass ends. A host that routes by
    /// something else makes the second pass itself.
    pub fn connect(&mut self, from: InterfaceId, to: InterfaceId) {
        let place = usize::from(from.0);
        if self.ways_out.len() <= place {
            self.ways_out.resize(place + 1, None);
        }
        self.ways_out[place] = Some(to);
    }

    /// Whether there is a link or queue for which super-packets must be split: slower than
    /// `threshold`, or with something that strikes packets one by one (loss, reordering, a profile).
    pub fn splits_any(&self, threshold: Rate) -> bool {
        let mut links = self.layout.links.values();
        links.any(|link| link.wants_single_packets(threshold))
            || self.layout.flowsets.values().any(|f| f.loss.is_some())
    }

    /// Whether a super-packet with these headers must be split: its flow may come, in either pass, to
    /// what [`Firewall::splits_any`] looks for. Where the rules cannot tell beforehand (states, a
    /// table's value that depends on the packet, rules behind a pipe that are asked too) any such link
    /// counts.
    pub fn splits(&mut self, headers: &Headers, threshold: Rate) -> bool {
        let way_out = self.second_pass(headers);
        let mut splits = false;
        for pass in std::iter::once(headers).chain(&way_out) {
            let runtime = &self.runtime;
            let is_certain = self.switches.one_pass
                && self.rules.targets(pass, |is_pipe, number| {
                    let flowset = if is_pipe { number + 2 * STRIDE } else { number };
                    splits |= runtime.wants_single_packets(flowset, threshold);
                });
            if !is_certain {
                return self.splits_any(threshold);
            }
        }
        splits
    }

    /// Takes a packet at `cx.now` for one pass through the rules. Its slot is a small number that no
    /// other packet inside has.
    pub fn handle(&mut self, packet: Packet, headers: &Headers, cx: &mut Cx<'_>) -> Disposition {
        let now = cx.now;
        self.advance(|at| at < now, cx);
        self.runtime
            .sweep(self.switches.expire, self.switches.is_compat, cx);
        if !self.switches.is_enabled[usize::from(headers.src.is_ipv6())] {
            return Disposition::Pass(packet);
        }
        self.route(packet, headers, RuleId::START, 0, cx)
    }

    /// Whether there are so many pipes and queues that [`Firewall::expect`] is worth its cost.
    pub fn is_wide(&self) -> bool {
        self.runtime.is_wide()
    }

    /// Reads the memory that packets with these headers and flow hashes
    /// ([`Packet::flow`](sluice_core::Packet)) will need, and changes nothing. With very many pipes at
    /// work each packet meets one that nothing has touched for long, and waits for memory half a dozen
    /// times, one after another. A host that takes packets in batches tells them first; then a batch
    /// waits for all of them at one time.
    pub fn expect(&self, coming: &[(Headers, u32)]) {
        let mut read = 0;
        for coming in coming.chunks(EXPECTED) {
            // One step for all packets, then the next step, which needs the first one's result. What is
            // computed stands apart from what is read: the fewer instructions between two reads, the
            // more of them a processor has under way.
            let mut places = [0; EXPECTED];
            for ((headers, _), place) in coming.iter().zip(&mut places) {
                *place = self.rules.place(headers);
            }
            for place in &places[..coming.len()] {
                read ^= self.rules.touch(*place);
            }
            let mut instances = [0; EXPECTED];
            for ((headers, _), instance) in coming.iter().zip(&mut instances) {
                *instance = self.runtime.hinted(self.rules.hint(headers));
            }
            for instance in &instances[..coming.len()] {
                read ^= self.runtime.touch_record(*instance);
            }
            for instance in &instances[..coming.len()] {
                read ^= self.runtime.touch_link(*instance);
            }
            for ((_, flow), instance) in coming.iter().zip(&instances) {
                read ^= self.runtime.touch_queue(*instance, *flow);
            }
        }
        std::hint::black_box(read);
    }

    /// With which headers a packet that comes in asks the rules a second time, on its way out.
    pub fn second_pass(&self, headers: &Headers) -> Option<Headers> {
        self.way_out(headers).map(|xmit| Headers {
            direction: Direction::Out,
            xmit: Some(xmit),
            ..headers.clone()
        })
    }

    /// Works off everything that is due up to `cx.now`, and gives the next packet that has come
    /// through its pipes, in the order in which they were due. To be called until it gives none.
    pub fn poll(&mut self, cx: &mut Cx<'_>) -> Option<Departure> {
        let now = cx.now;
        self.advance(|at| at <= now, cx);
        self.out.pop_front()
    }

    /// When [`Firewall::poll`] has something to do next.
    pub fn next_wake(&self) -> Wake {
        if !self.out.is_empty() {
            return Wake::Now;
        }
        self.runtime.next_event().map_or(Wake::OnEnqueue, Wake::At)
    }

    /// Takes what `log` rules have seen since the last call, as far as it was kept.
    pub fn take_log(&mut self) -> Vec<LogEntry> {
        std::mem::take(&mut self.log)
    }

    pub(crate) fn refresh_switches(&mut self) {
        self.switches = Switches::of(&self.variables);
    }

    /// Works off, in the order of time, what `is_due`.
    pub(crate) fn advance(&mut self, is_due: impl Fn(Time) -> bool, cx: &mut Cx<'_>) {
        let mut arrived = std::mem::take(&mut self.arrived);
        while self.runtime.advance(&is_due, &mut arrived, cx) {
            for departure in arrived.drain(..) {
                self.leave(departure, cx);
            }
        }
        self.arrived = arrived;
    }

    /// A packet has come out of a pipe: it passes, or asks the rules behind the one that sent it.
    fn leave(&mut self, departure: link::Departure, cx: &mut Cx<'_>) {
        let link::Departure { packet, due } = departure;
        let passage = self.runtime.passages.of(&packet);
        let (one_pass, rule, pipes) = (passage.one_pass, passage.rule, passage.pipes);
        let way_out = self.way_out(&passage.headers);
        let direction = way_out.map_or(passage.headers.direction, |_| Direction::Out);
        let xmit = way_out.or(passage.headers.xmit);
        let mut packet = packet;
        if !one_pass || way_out.is_some() {
            let mut headers = passage.headers.clone();
            headers.tos = headers.tos & !3 | packet.ecn as u8;
            let now = std::mem::replace(&mut cx.now, due);
            let disposition = if one_pass {
                self.pass(packet, &headers, pipes, cx)
            } else {
                self.route(packet, &headers, rule, pipes, cx)
            };
            cx.now = now;
            let Disposition::Pass(passed) = disposition else {
                return;
            };
            packet = passed;
        }
        self.out.push_back(Departure {
            packet,
            due,
            direction,
            xmit,
        });
    }

    /// Where a packet goes on that has passed on its way in.
    fn way_out(&self, headers: &Headers) -> Option<InterfaceId> {
        let recv = headers
            .recv
            .filter(|_| headers.direction == Direction::In)?;
        self.ways_out.get(usize::from(recv.0)).copied().flatten()
    }

    /// A packet has passed: that was it, or it goes on with its way out.
    fn pass(
        &mut self,
        packet: Packet,
        headers: &Headers,
        pipes: u16,
        cx: &mut Cx<'_>,
    ) -> Disposition {
        let Some(headers) = self.second_pass(headers) else {
            return Disposition::Pass(packet);
        };
        self.route(packet, &headers, RuleId::START, pipes, cx)
    }

    /// Asks the rules behind `after`, and does what they say.
    fn route(
        &mut self,
        packet: Packet,
        headers: &Headers,
        after: RuleId,
        pipes: u16,
        cx: &mut Cx<'_>,
    ) -> Disposition {
        let keeps_log = self.switches.logs && self.log.len() < MOST_LOG;
        let walk = Walk {
            now: cx.now,
            rng: &mut *cx.rng,
            packets: packet.segments,
            log: keeps_log.then_some(&mut self.log),
        };
        let (outcome, cached) = self.rules.walk(headers, after, walk);
        let (is_pipe, number, rule) = match outcome {
            Outcome::Allow => return self.pass(packet, headers, pipes, cx),
            Outcome::Deny => {
                cx.discard(packet, DropReason::Denied);
                return Disposition::Dropped(DropReason::Denied);
            }
            Outcome::Into {
                is_pipe,
                number,
                rule,
            } => (is_pipe, number, rule),
        };
        let is_refused = self.switches.is_compat && headers.is_link_local();
        if is_refused || pipes >= MOST_PIPES {
            cx.discard(packet, DropReason::NoRoute);
            return Disposition::Dropped(DropReason::NoRoute);
        }
        let flowset = if is_pipe { number + 2 * STRIDE } else { number };
        let passage = Passage {
            headers: headers.clone(),
            flowset,
            rule,
            one_pass: self.switches.one_pass,
            pipes: pipes + 1,
        };
        let place = self
            .runtime
            .enter(packet, flowset, passage, cached.hint, cx);
        if place != cached.hint {
            self.rules.leave_hint(cached.place, place);
        }
        Disposition::Taken
    }

    /// Executes a line, or several: as [`Firewall::batch`], without the numbers of lines in front of
    /// messages where there is only one.
    ///
    /// # Errors
    /// What was refused and why. Nothing is changed by the command that was refused.
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

    /// Executes lines, one command each, until one is refused. With `is_atomic` all of them take
    /// effect at one instant, or none does: a text that deletes everything and configures it anew
    /// leaves what comes out the same untouched, packets included.
    ///
    /// # Errors
    /// As [`Firewall::command`]; the message begins with the line.
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
