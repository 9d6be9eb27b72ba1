//! The loop's thread: forwards packets, and executes orders between two batches.

mod limits;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::SystemTime;

use sluice_core::{Cx, DropReason, Rate, Rng, Span, Stop, Time};
use sluice_ipfw::watch::Watching;
use sluice_ipfw::{Batch, Draft, Firewall, Interface, LogEntry, Output, Survey, Worker};
use sluice_net::Clock;
use sluice_net::confine::{Confined, Keep};
use sluice_net::guardian::Bridging;
use sluice_net::port::{CacheWarmer, Loss, Pool, Port, Spin};

use super::ports::PortTime;
use super::{Config, Health, PortChoice, PortStatus, Ruled, Status};
use crate::control::{
    Answer, Answered, Attached, Inbox, Order, TurnedAway, Watched, Work, origin_s,
};
use crate::forward::{Astray, Exchange, FileTime, Forwarder, LaneOptions, LostFrame};

/// The arguments of the loop's thread.
pub(super) struct LoopSettings {
    pub(super) engine: sluice_ipfw::Settings,
    pub(super) interfaces: Vec<Interface>,
    pub(super) choices: Vec<PortChoice>,
    pub(super) config: Config,
    /// Whether the only port is a queue of the kernel's own stack.
    pub(super) is_hooked: bool,
    pub(super) split_below: Rate,
    pub(super) is_strict: bool,
    pub(super) measures_rtt: bool,
    pub(super) spin: Spin,
    pub(super) slack: Span,
    pub(super) cpu_latency: Option<Span>,
    pub(super) time: PortTime,
    pub(super) warmer: Option<CacheWarmer>,
    /// Whether the loop requests priority over ordinary threads.
    pub(super) wants_real_time: bool,
    pub(super) log: SyncSender<LogEntry>,
    pub(super) turned_away: Arc<TurnedAway>,
    /// The number of commands so far.
    pub(super) commands: Arc<AtomicU64>,
    /// Which of several workers this is, and its end of their exchange.
    pub(super) worker: Option<(Worker, Exchange)>,
    /// The ports whose arrivals this loop receives; all of them if `None`.
    pub(super) receives_from: Option<[usize; 2]>,
    /// Whether both directions of a flow with ports arrive at the same worker.
    pub(super) keeps_flows: bool,
    pub(super) health: Arc<Health>,
    /// When a guardian's bridges forwarded in place of this loop.
    pub(super) bridging: Option<Bridging>,
}

/// The loop's thread.
pub(super) struct Loop {
    forwarder: Forwarder<Box<dyn Port + Send>, Ruled>,
    inbox: Inbox<Status>,
    clock: Clock,
    choices: Vec<PortChoice>,
    commands: Arc<AtomicU64>,
    is_real_time: bool,
    cpu_latency: Option<Span>,
    time: PortTime,
    files: FileTime,
    log: SyncSender<LogEntry>,
    logged: u64,
    log_lost: u64,
    turned_away: Arc<TurnedAway>,
    health: Arc<Health>,
    confined: Option<Confined>,
}

impl Loop {
    pub(super) fn new(
        start: LoopSettings,
        ports: Vec<Box<dyn Port + Send>>,
        pool: Pool,
        clock: Clock,
        inbox: Inbox<Status>,
    ) -> Loop {
        let is_real_time = start.wants_real_time
            && start.time != PortTime::Files
            && sluice_net::real_time(REAL_TIME_PRIORITY).is_ok();
        let all: Vec<usize> = (0..ports.len()).collect();
        let partners = all.iter().map(|port| port ^ 1).collect();
        let engine = firewall(&start.engine, &start.interfaces);
        let ruled = match start.is_hooked {
            true => Ruled::hooked(engine, start.split_below),
            false => Ruled::new(engine, partners, start.split_below),
        };
        let mut ruled = ruled
            .strict(start.is_strict)
            .measuring_rtt(start.measures_rtt);
        let mut rng = Rng::from_seed(start.engine.seed);
        let mut exchange = None;
        if let Some((worker, end)) = start.worker {
            let astray = match (&start.receives_from, start.keeps_flows) {
                // All packets of a bridge arrive at its worker.
                (Some(_), _) => None,
                (None, true) => Some(Astray::Tunnelled),
                (None, false) => Some(Astray::All),
            };
            ruled = ruled.sharing(worker, astray);
            rng = rng.fork(u64::from(worker.number));
            exchange = Some(end);
        }
        let mut forwarder = Forwarder::new(ports, pool, clock, start.spin);
        forwarder.set_slack(start.slack);
        forwarder.keep_warm(start.warmer);
        forwarder.share_pool();
        if let Some(bridging) = start.bridging {
            forwarder.resume_after(bridging);
        }
        let lane = LaneOptions {
            from: start.receives_from.as_ref().map_or(&all[..], |own| own),
            seed: start.engine.hash_key.unwrap_or(start.engine.seed),
            rng,
        };
        forwarder.add_lane(ruled, (), lane);
        if let Some(exchange) = exchange {
            forwarder.join(exchange);
        }
        let mut own = Loop {
            forwarder,
            inbox,
            clock,
            choices: start.choices,
            commands: start.commands,
            is_real_time,
            cpu_latency: start.cpu_latency,
            time: start.time,
            files: FileTime::default(),
            log: start.log,
            logged: 0,
            log_lost: 0,
            turned_away: start.turned_away,
            health: start.health,
            confined: None,
        };
        own.with(|ruled, cx| {
            let (_, result) = start.config.apply(ruled.firewall_mut(), cx);
            ruled.commands_applied();
            result.expect("an equal engine has accepted this configuration");
        });
        own
    }

    /// Calls the engine between two batches.
    fn with<T>(&mut self, work: impl FnOnce(&mut Ruled, &mut Cx<'_>) -> T) -> T {
        let result = match self.time {
            PortTime::Files => self.files.with(&mut self.forwarder, LANE, work),
            PortTime::Machine | PortTime::Played => self.forwarder.with(LANE, work),
        };
        self.configuration_applied();
        result
    }

    /// Passes to the ports what depends on the engine's configuration.
    fn configuration_applied(&mut self) {
        let whole = self.forwarder.lanes()[LANE]
            .queueing()
            .takes_super_packets();
        self.forwarder.let_super_packets_in(whole);
    }

    /// Forwards once, in the ports' time. Returns whether there is nothing more to do.
    fn turn(&mut self, until: Option<Time>) -> bool {
        let bell = std::os::fd::AsFd::as_fd(&self.inbox);
        match self.time {
            PortTime::Machine => {
                let rings = self.forwarder.turn(until, Some(bell));
                self.inbox.has_rung(rings);
            }
            PortTime::Files => {
                if !self.files.advance(&mut self.forwarder, INSTANTS) {
                    self.time = PortTime::Machine;
                    return true;
                }
            }
            PortTime::Played => {
                let soon = self.clock.now() + LOOK_EVERY;
                let rings = self.forwarder.turn(Some(until.unwrap_or(soon)), Some(bell));
                self.inbox.has_rung(rings);
                if self.forwarder.is_through() {
                    self.time = PortTime::Machine;
                    return true;
                }
            }
        }
        false
    }

    pub(super) fn run(
        mut self,
        stop: &Stop,
        (through, pulse): (&AtomicBool, &AtomicU64),
        started: impl FnOnce() -> Option<Confined>,
    ) -> Status {
        self.confined = started();
        if self
            .confined
            .is_some_and(|confined| !confined.regains_priority)
        {
            self.forwarder.keep_priority();
        }
        // What is executed in several pieces; the next order waits for its end.
        let mut under_way: Option<Pieces> = None;
        loop {
            // One order, or one piece of it, per turn, so that packets are forwarded in between.
            let mut until = Some(Time::ZERO);
            if let Some(pieces) = under_way.take() {
                // A bell that goes on ringing would end each wait for packets at once.
                self.inbox.quiet();
                under_way = self.next_piece(pieces);
                // The loop has priority over all threads of its core, among them those of the kernel
                // that bring packets. While it executes pieces, it leaves them half of the time.
                until = Some(self.clock.now() + COMMANDS_PER_TURN);
            } else if self.has_change() {
                // The next order waits for it.
                until = None;
            } else if let Some(order) = self.inbox.take() {
                under_way = self.begin(order);
            } else {
                until = None;
            }
            // This comes after the inbox, which also resets the bell that is rung for it.
            if stop.is_stopped() {
                break;
            }
            let had_change = self.has_change();
            let is_through = self.turn(until);
            if had_change && !self.has_change() {
                self.configuration_applied();
            }
            pulse.fetch_add(1, Ordering::Relaxed);
            self.pass_log();
            if is_through {
                self.forwarder.release_ports();
                through.store(true, Ordering::Release);
            }
        }
        self.forwarder.release_ports();
        self.status()
    }

    /// Hands the entries of `log` rules to the thread that writes them. If that thread is behind,
    /// they are lost and counted: packets do not wait for it.
    fn pass_log(&mut self) {
        if !self.forwarder.lanes()[LANE].queueing().firewall().has_log() {
            return;
        }
        let (entries, lost) = self.with(|ruled, _| ruled.firewall_mut().take_log());
        self.log_lost += lost;
        for entry in entries {
            match self.log.try_send(entry) {
                Ok(()) => self.logged += 1,
                Err(_) => self.log_lost += 1,
            }
        }
    }

    /// Executes an order, or starts one that is executed in pieces.
    fn begin(&mut self, order: Order<Status>) -> Option<Pieces> {
        let Order { work, answer, at } = order;
        if let Some(at) = at {
            self.schedule(at, work, answer);
            return None;
        }
        let (text, mode, mut files) = match work {
            Work::Commands { text, mode, files } => (text, mode, files),
            Work::Status => {
                answer.send(Answered::Status(Box::new(self.status())));
                return None;
            }
            Work::Watch(watching) => return Some(Pieces::Watch { watching, answer }),
            Work::Draft | Work::Report => {
                let is_report = matches!(work, Work::Report);
                let draft = self.with(|ruled, _| match is_report {
                    true => ruled.firewall().report(),
                    false => ruled.firewall().draft(),
                });
                let draft = Box::new(draft);
                return self.next_piece(Pieces::Draft { draft, answer });
            }
            Work::Exchange(amended) => {
                let exchanged = self.with(|ruled, cx| {
                    let exchanged = ruled.firewall_mut().exchange(*amended, cx);
                    ruled.commands_applied();
                    exchanged
                });
                answer.send(match exchanged {
                    Ok(replaced) => Answered::Replaced(Box::new(replaced)),
                    Err(amended) => Answered::Stale(amended),
                });
                return None;
            }
            Work::Replace(prepared) => {
                let replaced = self.with(|ruled, cx| {
                    let replaced = ruled.firewall_mut().replace(*prepared, cx);
                    ruled.commands_applied();
                    replaced
                });
                answer.send(Answered::Replaced(Box::new(replaced)));
                return None;
            }
        };
        let origin_s = origin_s(SystemTime::now(), self.clock.now());
        let survey = |ruled: &mut Ruled, cx: &mut Cx<'_>| {
            ruled.firewall_mut().set_origin(origin_s);
            ruled.firewall_mut().survey(&text, cx)
        };
        if let Some(survey) = self.with(survey) {
            let survey = Box::new(survey);
            return Some(Pieces::Survey { survey, answer });
        }
        let batch = |ruled: &mut Ruled, _: &mut Cx<'_>| {
            let firewall = ruled.firewall();
            firewall.begin_batch(&text, mode, &mut files)
        };
        if let Some(batch) = self.with(batch) {
            return self.next_piece(Pieces::Batch {
                files,
                batch: Box::new(batch),
                answer,
            });
        }
        let mut output = Output::default();
        let result = self.with(|ruled, cx| {
            let firewall = ruled.firewall_mut();
            let result = firewall.execute(&text, mode, &mut files, &mut output, cx);
            ruled.commands_applied();
            result
        });
        answer.send(Answered::Commands(Box::new(output), result));
        None
    }

    fn has_change(&self) -> bool {
        self.forwarder.lanes()[LANE].queueing().has_change()
    }

    /// Lets an order take effect at an instant, as at all other workers.
    fn schedule(&mut self, at: Time, work: Work, answer: Answer<Status>) {
        let change = move |firewall: &mut Firewall, cx: &mut Cx<'_>| {
            answer.send(match work {
                Work::Commands {
                    text,
                    mode,
                    mut files,
                } => {
                    let mut output = Output::default();
                    let result = firewall.execute(&text, mode, &mut files, &mut output, cx);
                    Answered::Commands(Box::new(output), result)
                }
                Work::Replace(prepared) => {
                    Answered::Replaced(Box::new(firewall.replace(*prepared, cx)))
                }
                Work::Exchange(amended) => match firewall.exchange(*amended, cx) {
                    Ok(replaced) => Answered::Replaced(Box::new(replaced)),
                    Err(amended) => Answered::Stale(amended),
                },
                Work::Draft | Work::Report | Work::Status | Work::Watch(_) => {
                    unreachable!("only a change has an instant")
                }
            });
        };
        self.with(|ruled, cx| ruled.schedule(at, Box::new(change), cx.now));
    }

    /// Executes the next piece, and returns the remaining pieces.
    fn next_piece(&mut self, pieces: Pieces) -> Option<Pieces> {
        match pieces {
            Pieces::Survey { mut survey, answer } => {
                let look = |ruled: &mut Ruled, cx: &mut Cx<'_>| {
                    ruled.firewall_mut().look(&mut survey, FLOWS_PER_TURN, cx)
                };
                if self.with(look) {
                    return Some(Pieces::Survey { survey, answer });
                }
                answer.send(Answered::Survey(survey));
            }
            Pieces::Watch {
                mut watching,
                answer,
            } => {
                let watch = |ruled: &mut Ruled, cx: &mut Cx<'_>| {
                    ruled.firewall_mut().watch(&mut watching, cx)
                };
                if self.with(watch) {
                    return Some(Pieces::Watch { watching, answer });
                }
                let rtt = self.with(|ruled, _| ruled.take_rtt());
                answer.send(Answered::Watched(Box::new(Watched {
                    watching: *watching,
                    status: self.status(),
                    lateness: *self.forwarder.lanes()[LANE].lateness(),
                    rtt: rtt.map(Box::new),
                })));
            }
            Pieces::Draft { mut draft, answer } => {
                let clock = self.clock;
                let enough_at = clock.now() + COMMANDS_PER_TURN;
                let is_left = self.with(|ruled, _| {
                    let firewall = ruled.firewall();
                    while firewall.continue_draft(&mut draft) {
                        if clock.now() >= enough_at {
                            return true;
                        }
                    }
                    false
                });
                if is_left {
                    return Some(Pieces::Draft { draft, answer });
                }
                answer.send(Answered::Draft(draft));
            }
            Pieces::Batch {
                mut files,
                mut batch,
                answer,
            } => {
                let clock = self.clock;
                let enough_at = clock.now() + COMMANDS_PER_TURN;
                let result = self.with(|ruled, cx| {
                    let firewall = ruled.firewall_mut();
                    let is_enough = || clock.now() >= enough_at;
                    let result = firewall.continue_batch(&mut batch, &mut files, is_enough, cx);
                    ruled.commands_applied();
                    result
                });
                match result {
                    Some(result) => {
                        answer.send(Answered::Commands(Box::new(batch.output), result));
                    }
                    None => {
                        return Some(Pieces::Batch {
                            files,
                            batch,
                            answer,
                        });
                    }
                }
            }
        }
        None
    }

    fn status(&mut self) -> Status {
        let counters: Vec<_> = (0..self.choices.len())
            .map(|port| {
                let counters = self.forwarder.counters(port);
                (counters, self.forwarder.write_error(port))
            })
            .collect();
        let opened = self.forwarder.ports().iter().zip(counters);
        let ports = self
            .choices
            .iter()
            .zip(opened)
            .map(|(choice, (port, (counters, error)))| {
                let lost = Loss::ALL
                    .into_iter()
                    .map(|loss| (loss.name(), counters.lost(loss)));
                PortStatus {
                    name: choice.name.clone(),
                    kind: choice.kind.clone(),
                    reason: choice.reason.clone(),
                    interface: None,
                    promiscuous: port.promiscuity().is_on(),
                    received: counters.received,
                    received_bytes: counters.received_bytes,
                    sent: counters.sent,
                    sent_bytes: counters.sent_bytes,
                    sent_trains: counters.sent_trains,
                    lost: lost
                        .filter(|(_, n)| *n > 0)
                        .map(|(k, n)| (k.to_owned(), n))
                        .collect(),
                    limits: limits::sizes_of(port.as_ref()),
                    attach_error: port.attach_error(),
                    write_error: error,
                }
            });
        let lane = &self.forwarder.lanes()[LANE];
        let (counts, lateness) = (lane.counts(), lane.lateness());
        let dropped = DropReason::ALL
            .iter()
            .map(|reason| (reason.name(), counts.dropped(*reason)));
        let lost = LostFrame::ALL
            .iter()
            .map(|cause| (cause.name(), counts.lost(*cause)));
        let refused = lane.queueing().firewall().refusals().counts();
        let named = |(name, n): (&str, u64)| (n > 0).then(|| (name.to_owned(), n));
        let pool = self.forwarder.pool();
        let kept = self.forwarder.ports().iter().map(|port| port.kept() as u64);
        let mut status = Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_unix_ms: None,
            uptime_ns: self.clock.now().as_ns(),
            ports: ports.collect(),
            admitted: counts.admitted,
            bypassed: counts.bypassed,
            sent: counts.sent,
            workers: Vec::new(),
            handed_over: counts.handed_over,
            dropped: dropped.filter_map(named).collect(),
            lost: lost.filter_map(named).collect(),
            refused: refused.into_iter().filter_map(named).collect(),
            slots: pool.size().slots.into(),
            free_slots: pool.available() as u64,
            port_slots: kept.sum(),
            limits: limits::sizes(pool, lane.queueing().firewall(), self.forwarder.ports()),
            last_refused: limits::last_refused(lane.queueing().firewall(), counts, &self.choices),
            clients_refused: self.turned_away.counts(),
            damaged: counts.faulty().filter_map(named).collect(),
            late_p50_ns: lateness.bound(500).as_ns(),
            late_p99_ns: lateness.bound(990).as_ns(),
            commands: self.commands.load(Ordering::Relaxed),
            is_real_time: self.is_real_time,
            warmth_requests: self.forwarder.warmth_requests(),
            cpu_latency_ns: self.cpu_latency.map(Span::as_ns),
            logged: self.logged,
            log_lost: self.log_lost,
            given_up: given_up(self.confined),
            fail_open: None,
        };
        self.health.complete(&mut status);
        status
    }
}

fn given_up(confined: Option<Confined>) -> Vec<String> {
    let Some(confined) = confined else {
        return Vec::new();
    };
    let keeps_none = confined.kept == Keep::Nothing;
    let names = [
        ("capabilities", keeps_none),
        ("capabilities_but_net_admin", !keeps_none),
        ("system_calls", true),
        ("files", confined.has_no_files),
        ("user", confined.is_other_user),
    ];
    let given_up = names.into_iter().filter(|(_, is_given_up)| *is_given_up);
    given_up.map(|(name, _)| name.to_owned()).collect()
}

/// An order that is executed in pieces, with packets forwarded in between.
enum Pieces {
    /// A command that only shows flows.
    Survey {
        survey: Box<Survey>,
        answer: Answer<Status>,
    },
    /// An exchange of the watchers' tables.
    Watch {
        watching: Box<Watching>,
        answer: Answer<Status>,
    },
    /// A copy of the configuration.
    Draft {
        draft: Box<Draft>,
        answer: Answer<Status>,
    },
    /// Lines that take effect one by one.
    Batch {
        files: Attached,
        batch: Box<Batch>,
        answer: Answer<Status>,
    },
}

/// Returns an engine that knows the interfaces.
pub(super) fn firewall(settings: &sluice_ipfw::Settings, interfaces: &[Interface]) -> Firewall {
    let mut firewall = Firewall::new(settings);
    firewall.set_interfaces(interfaces.to_vec());
    firewall
}

/// Flows that a `show` visits between two batches of packets: some tens of microseconds.
const FLOWS_PER_TURN: u32 = 128;
/// Time for lines of commands between two batches of packets. A single line may take longer.
const COMMANDS_PER_TURN: Span = Span::from_us(200);
/// Steps in the files' time between two checks of the inbox.
const INSTANTS: usize = 256;
/// The interval at which a loop that plays files checks whether they have ended.
const LOOK_EVERY: Span = Span::from_ms(50);
/// All ports share one lane, because one engine has all rules.
const LANE: usize = 0;
/// Above all ordinary threads, below everything with a higher real-time priority.
const REAL_TIME_PRIORITY: u8 = 1;

#[cfg(test)]
mod tests;
