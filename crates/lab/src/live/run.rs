//! One live run: creates the network, starts the router and the traffic, waits, and removes
//! everything, no matter whether the run ends normally, with an error or by request.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sluice_core::packet::SPLIT_BELOW;
use sluice_core::{Span, Stop, Time};
use sluice_load::program::Service;
use sluice_load::{Identity, TrafficError, tcp};
use sluice_loader::{Ending, HookWatch};
use sluice_net::Clock;
use sluice_net::cores::{CoreError, Stay};
use sluice_net::namespace::{NamespaceError, Privilege};
use sluice_net::port::{Pool, PoolError, PoolSize, Spin};

use sluice_router::process::watch::Watcher;
use sluice_router::process::watch::links::watch_links;

use super::chain::{FlowPath, ends_of, nets};
use super::observations::{NOT_RECORDED, ObservationReceiver, observations};
use super::router::{Observation, RouterReport, RouterSettings, route};
use super::topology::{Host, MOST_WAYS, PathEnds, Topology, TopologyError};
use crate::flow::{self, Ends, FlowReport, RunningFlow};
use sluice_recording::NO_FLOW;
use sluice_scenario::{Direction, Flow, FlowInstance, Scenario};

/// The reason why a live run could not start, or ended with an error.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// The process has no permission to create namespaces.
    #[error("a live run creates network namespaces: {0}")]
    Privilege(Privilege),
    /// The network could not be created.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// The router's core could not be used.
    #[error(transparent)]
    Core(#[from] CoreError),
    /// There is too little memory for the packets.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The router's thread could not start.
    #[error(transparent)]
    Router(#[from] NamespaceError),
    /// The router cannot be watched.
    #[error("cannot create a pair of sockets to watch the router: {0}")]
    Watch(std::io::Error),
    /// The live backend lacks something that the scenario requires.
    #[error(
        "{}{what} is not possible with the live backend; the simulator (`--backend sim`) has it",
        at(.place)
    )]
    Unsupported {
        /// The place in the scenario, if it is one flow's.
        place: Option<String>,
        /// The setting.
        what: String,
    },
    /// The kernel lacks something that a flow requires, and the simulator has.
    #[error("{}flow `{flow}`: {error}; the simulator (`--backend sim`) has it", at(.place))]
    OnlySimulated {
        /// The place in the scenario.
        place: Option<String>,
        /// The flow.
        flow: String,
        /// The missing feature.
        error: TrafficError,
    },
    /// A flow could not start, or ended with an error.
    #[error("{}flow `{flow}`: {error}", at(.place))]
    Traffic {
        /// The place in the scenario.
        place: Option<String>,
        /// The flow.
        flow: String,
        /// The error.
        error: TrafficError,
    },
    /// A flow failed; its measurements are recorded.
    #[error("{}flow `{flow}`: {reason}", at(.place))]
    Failed {
        /// The place in the scenario.
        place: Option<String>,
        /// The flow.
        flow: String,
        /// The failure.
        reason: String,
    },
}

/// Returns a place as the beginning of a message.
fn at(place: &Option<String>) -> String {
    place
        .as_ref()
        .map_or_else(String::new, |at| format!("{at}: "))
}

/// The measurements of a run.
#[derive(Debug)]
pub struct LiveRun {
    /// The measurements of each flow, by its number.
    pub flows: Vec<FlowReport>,
    /// The counters of the router.
    pub router: RouterReport,
    /// The instant at which everything had ended.
    pub end: Time,
    /// Whether the run was ended early by request.
    pub is_interrupted: bool,
    /// The reason, if an algorithm ended the run.
    pub failure: Option<String>,
    /// The algorithms from files that an error stopped, in words.
    pub stopped: Vec<String>,
    /// The failures of its flows, the first cause first.
    pub failed: Option<LiveError>,
}

/// A report of a run in progress.
pub trait Listener {
    /// Receives an observation of the router. Packets have the number of their flow in the
    /// scenario, or [`NO_FLOW`].
    fn observe(&mut self, observation: Observation);
    /// Receives the elapsed part of the run.
    fn progress(&mut self, elapsed: Span);
}

/// Checks before the start that the process has the privileges, and that the kernel has the
/// congestion controls that `scenario` names.
///
/// # Errors
/// The missing privilege or congestion control, and how to get it.
pub fn check(scenario: &Scenario) -> Result<(), LiveError> {
    check_support(scenario)?;
    match Privilege::probe() {
        Privilege::Capable => {}
        missing => return Err(LiveError::Privilege(missing)),
    }
    let here = sluice_net::namespace::Namespace::current()?;
    for instance in scenario.instances() {
        let of_its = flow::of(&instance.flow.kind).check();
        of_its.map_err(|error| traffic_error(&instance, error))?;
        if let Some(name) = instance.flow.kind.tcp().map(|(cc, _)| cc.0.as_str()) {
            let place = instance.flow.places.first(&["cc"]).map(str::to_owned);
            let flow = instance.name.clone();
            let refused = |error| match sluice_tcp::cc::find(name) {
                Some(_) => LiveError::OnlySimulated { place, flow, error },
                None => LiveError::Traffic { place, flow, error },
            };
            tcp::check_congestion_control(&here, name).map_err(refused)?;
        }
    }
    Ok(())
}

fn traffic_error(instance: &FlowInstance<'_>, error: TrafficError) -> LiveError {
    LiveError::Traffic {
        place: instance.flow.place().map(str::to_owned),
        flow: instance.name.clone(),
        error,
    }
}

/// The error that the live backend lacks `what`, a setting of `flow` by one of `keys`.
fn unsupported(flow: &Flow, keys: &[&str], what: String) -> LiveError {
    LiveError::Unsupported {
        place: flow.places.first(keys).map(str::to_owned),
        what,
    }
}

fn check_support(scenario: &Scenario) -> Result<(), LiveError> {
    let (ways, way_of_flow) = ways(scenario);
    if ways.len() > MOST_WAYS {
        let what = format!(
            "a run with {} different `rtt`, `class`, `hops`, `initial_window` and hosts of flows, or programs",
            ways.len()
        );
        return Err(LiveError::Unsupported { place: None, what });
    }
    if scenario.hosts.are_several() {
        check_hosts(scenario, &nets(&ways), &way_of_flow)?;
    }
    for flow in &scenario.flows {
        if let Some((key, setting, reason)) = flow.beyond_kernel() {
            let what = format!("`{setting}` of flow `{}` ({reason})", flow.name);
            return Err(unsupported(flow, &[key], what));
        }
    }
    // Such flows have their own addresses, for which the rules have no entries.
    let mut flows = scenario.flows.iter();
    let has_window = flows.find(|flow| flow.kind.initial_window().is_some());
    if let (Some(_), Some(flow)) = (&scenario.rules, has_window) {
        let what = format!(
            "the `initial_window` of flow `{}` behind `rules`",
            flow.name
        );
        return Err(unsupported(flow, &["initial_window"], what));
    }
    Ok(())
}

/// Checks that every host has one address, so that a queue recognises it.
fn check_hosts(scenario: &Scenario, nets: &[u8], way_of_flow: &[usize]) -> Result<(), LiveError> {
    for (flow, way) in scenario.flows.iter().zip(way_of_flow) {
        if flow.kind.has_own_addresses() {
            continue;
        }
        if flow.kind.initial_window().is_some() {
            // The window belongs to the route to an address, which other hosts use, too.
            let what = format!(
                "the `initial_window` of flow `{}` with several hosts",
                flow.name
            );
            return Err(unsupported(flow, &["initial_window"], what));
        }
        if nets[*way] > 0 {
            let what = format!(
                "with several hosts, an `rtt`, `class` or `hops` of flow `{}` that other flows between its hosts \
                 do not have",
                flow.name
            );
            return Err(unsupported(flow, &["rtt", "class", "hops"], what));
        }
    }
    Ok(())
}

/// Returns the settings of the router for `scenario`.
pub(crate) fn router_settings(scenario: &Scenario) -> RouterSettings {
    RouterSettings {
        scenario: scenario.clone(),
        ways: ways(scenario).0,
        split_below: SPLIT_BELOW,
        spin: Spin::Adaptive,
    }
}

/// Returns the different paths of flows, the common one first, and the index of each flow's path.
fn ways(scenario: &Scenario) -> (Vec<FlowPath>, Vec<usize>) {
    let mut ways = vec![FlowPath::whole(scenario.hops.len() + 1)];
    // Rules refer only to the addresses of the common path.
    let is_ruled = scenario.rules.is_some();
    let number = |(index, flow): (usize, &Flow)| {
        let mut way = FlowPath {
            hops: scenario.hops_of(flow),
            extra: scenario.extra_rtt(flow),
            class: flow.class as u32,
            initial_window: flow.kind.initial_window(),
            owner: None,
            hosts: (flow.host_up, flow.host_down),
        };
        if flow.kind.has_own_addresses() && !is_ruled {
            let first = ways.len();
            for number in 0..flow.count {
                way.owner = Some((index, number));
                ways.push(way.clone());
            }
            return first;
        }
        let known = ways.iter().position(|other| *other == way);
        known.unwrap_or_else(|| {
            ways.push(way);
            ways.len() - 1
        })
    };
    let numbers = scenario.flows.iter().enumerate().map(number).collect();
    (ways, numbers)
}

/// How live runs are made.
#[derive(Clone, Copy, Default)]
pub struct LiveOptions<'a> {
    /// The core that the router is pinned to; `None` leaves the choice to the kernel.
    pub core: Option<usize>,
    /// Receives a watcher of the router when it starts; `None` for a run that nobody watches.
    pub watch: Option<&'a dyn Fn(Watcher)>,
}

/// Runs `scenario` until its end, or until `interrupt`.
///
/// # Errors
/// [`LiveError`]; nothing is left running or configured.
pub fn run(
    scenario: &Scenario,
    options: LiveOptions<'_>,
    interrupt: &Stop,
    listener: &mut dyn Listener,
) -> Result<LiveRun, LiveError> {
    check(scenario)?;
    let (ways, way_of_flow) = ways(scenario);
    let ends = ends_of(&ways);
    let topology = Topology::create(&ends)?;
    for (ends, way) in ends.iter().zip(&ways) {
        if let Some(segments) = way.initial_window {
            topology.set_initial_window(*ends, segments)?;
        }
    }
    // While this exists, new threads inherit the core. Of the threads started meanwhile, only the
    // router's keeps running. So it stays on the core, with its memory near it.
    let stay = options.core.map(|core| Stay::on(&[core])).transpose()?;
    // Make the memory resident first, since this may take a while.
    let pool = Pool::new(pool_size(scenario))?;
    let instances: Vec<FlowInstance<'_>> = scenario.instances().collect();
    let paths: Vec<Path<'_>> = instances
        .iter()
        .map(|instance| Path::of(instance, scenario, &topology, &way_of_flow, &ends))
        .collect();
    let traffic_stop = Stop::new();
    let mut services = Vec::with_capacity(instances.len());
    for (instance, path) in instances.iter().zip(&paths) {
        let (from, to) = (&path.from.namespace, path.to.address(path.addresses));
        let service = flow::of(&instance.flow.kind).prepare(from, to, interrupt);
        services.push(service.map_err(|error| traffic_error(instance, error))?);
    }
    let clock = Clock::starting_in(LEAD);
    let mut router = Router::start(scenario, &topology, pool, &clock, options.watch)?;
    drop(stay);
    let mut flows = Vec::new();
    for ((instance, path), service) in instances.iter().zip(&paths).zip(services) {
        let ends = path.ends(instance, scenario, service, &clock, &traffic_stop);
        match flow::of(&instance.flow.kind).start(instance, &ends) {
            Ok(flow) => flows.push((instance, flow)),
            Err(error) => {
                // Nothing has been sent yet: all flows wait for time zero.
                traffic_stop.stop();
                for (_, flow) in flows {
                    let _ = flow.join();
                }
                router.finish(listener);
                return Err(traffic_error(instance, error));
            }
        }
    }
    router.identities = flows.iter().map(|(_, flow)| flow.identity()).collect();
    let mut is_interrupted = false;
    let is_service = |flow: &dyn RunningFlow| flow.is_service();
    let serve_all = flows.iter().all(|(_, flow)| is_service(flow.as_ref()));
    while flows.iter().any(|(_, flow)| !flow.is_finished()) {
        let mut others = flows.iter().filter(|(_, flow)| !is_service(flow.as_ref()));
        if !serve_all && others.all(|(_, flow)| flow.is_finished()) {
            // No flow is left that uses a service.
            traffic_stop.stop();
        }
        router.listen(listener, Duration::from_millis(20));
        let has_failed = router.ending.why().is_some();
        if (interrupt.is_stopped() || has_failed) && !traffic_stop.is_stopped() {
            is_interrupted = !has_failed;
            traffic_stop.stop();
        }
        listener.progress(clock.now().since(Time::ZERO).min(scenario.duration));
    }
    let mut reports = Vec::with_capacity(flows.len());
    let mut broken = None;
    let mut failed = None;
    for (instance, flow) in flows {
        match flow.join() {
            Ok(report) => {
                if let Some(reason) = report.failure() {
                    failed.get_or_insert(LiveError::Failed {
                        place: instance.flow.place().map(str::to_owned),
                        flow: instance.name.clone(),
                        reason,
                    });
                }
                reports.push(report);
            }
            Err(error) => {
                broken.get_or_insert(traffic_error(instance, error));
            }
        }
    }
    let failure = router.ending.why().map(str::to_owned);
    let ending = router.ending.clone();
    let router = router.finish(listener);
    match broken {
        Some(error) => Err(error),
        None => Ok(LiveRun {
            flows: reports,
            router,
            end: clock.now(),
            is_interrupted,
            failure,
            stopped: ending.stopped(),
            // A flow that the user has cut short has not failed.
            failed: failed.filter(|_| !is_interrupted),
        }),
    }
}

/// The hosts of a flow, and the addresses of its path.
struct Path<'a> {
    from: &'a Host,
    to: &'a Host,
    addresses: PathEnds,
}

impl<'a> Path<'a> {
    fn of(
        instance: &FlowInstance<'_>,
        scenario: &Scenario,
        topology: &'a Topology,
        way_of_flow: &[usize],
        ends: &[PathEnds],
    ) -> Path<'a> {
        let flow = instance.flow;
        let (from, to) = match flow::of(&flow.kind).host(flow.direction) {
            Direction::Up => (&topology.h2, &topology.h3),
            Direction::Down => (&topology.h3, &topology.h2),
        };
        let is_its = |other: &Flow| std::ptr::eq(other, flow);
        let number = scenario.flows.iter().position(is_its).unwrap_or(0);
        let of_its_own = flow.kind.has_own_addresses() && scenario.rules.is_none();
        let further = if of_its_own { instance.number } else { 0 };
        Path {
            from,
            to,
            addresses: ends[way_of_flow[number] + further],
        }
    }

    fn ends(
        &self,
        instance: &FlowInstance<'_>,
        scenario: &Scenario,
        service: Option<Service>,
        clock: &'a Clock,
        all: &'a Stop,
    ) -> Ends<'a> {
        Ends {
            from: (&self.from.namespace, self.from.address(self.addresses)),
            to: (&self.to.namespace, self.to.address(self.addresses)),
            start: Time::ZERO + instance.start,
            stop: Time::ZERO + instance.stop,
            // The random streams of flows differ from one another and from the router's, which are
            // numbered from 1.
            seed: scenario.seed.wrapping_add(u64::from(instance.id) << 32),
            interval: scenario.measure.interval,
            service: Cell::new(service),
            clock,
            all,
        }
    }
}

/// The router's thread, and the flows that packets belong to.
struct Router {
    stop: Stop,
    ending: Ending,
    hooks: HookWatch,
    thread: JoinHandle<RouterReport>,
    observations: ObservationReceiver,
    /// The identities, indexed by flow number.
    identities: Vec<Identity>,
    numbers: BTreeMap<u32, u32>,
}

impl Router {
    fn start(
        scenario: &Scenario,
        topology: &Topology,
        pool: Pool,
        clock: &Clock,
        watch: Option<&dyn Fn(Watcher)>,
    ) -> Result<Router, LiveError> {
        let settings = router_settings(scenario);
        let (inner, outer) = topology.ports(clock)?;
        let stop = Stop::new();
        let (sender, observations) = observations();
        let (router_stop, clock) = (stop.clone(), *clock);
        let ending = Ending::new();
        let of_thread = ending.clone();
        let (watcher, inbox) = match watch {
            Some(_) => {
                let (watcher, inbox) = watch_links().map_err(LiveError::Watch)?;
                (Some(watcher), Some(inbox))
            }
            None => (None, None),
        };
        let thread = topology.router().spawn("router", move || {
            of_thread.within(|| {
                let stop = &router_stop;
                route(&settings, inner, outer, pool, &clock, stop, &sender, inbox)
            })
        })?;
        if let Some((watch, watcher)) = watch.zip(watcher) {
            watch(watcher);
        }
        Ok(Router {
            stop,
            hooks: HookWatch::new(&ending, Instant::now()),
            ending,
            thread,
            observations,
            identities: Vec::new(),
            numbers: BTreeMap::new(),
        })
    }

    /// Passes on the observations of the router for `time`. Reports a hook that does not return.
    fn listen(&mut self, listener: &mut dyn Listener, time: Duration) {
        if let Some(why) = self.hooks.news(Instant::now()) {
            sluice_loader::report(&why);
        }
        if let Ok(first) = self.observations.recv_timeout(time) {
            self.pass_on(first, listener);
            while let Some(more) = self.observations.try_next() {
                self.pass_on(more, listener);
            }
        }
    }

    fn pass_on(&mut self, mut observation: Observation, listener: &mut dyn Listener) {
        match &mut observation {
            Observation::Flow(hash, key) => {
                let find = |is_exact: bool| {
                    self.identities.iter().position(|identity| {
                        identity.protocol.is_some() == is_exact
                            && identity.matches(key.protocol, key.source, key.destination)
                    })
                };
                // The packets of a program are those on its path that belong to no other flow.
                if let Some(number) = find(true).or_else(|| find(false)) {
                    self.numbers.insert(*hash, number as u32);
                }
            }
            Observation::Packets(_, records) => {
                for record in records {
                    record.flow = self.numbers.get(&record.flow).copied().unwrap_or(NO_FLOW);
                }
            }
            Observation::Queue { .. } | Observation::Releases(_) | Observation::Arrivals(_) => {}
        }
        listener.observe(observation);
    }

    fn finish(mut self, listener: &mut dyn Listener) -> RouterReport {
        self.stop.stop();
        while !self.thread.is_finished() {
            self.listen(listener, Duration::from_millis(1));
        }
        while let Some(more) = self.observations.try_next() {
            self.pass_on(more, listener);
        }
        let mut report = self
            .thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let rows = self.observations.not_recorded();
        if rows > 0 {
            report.up.lost.insert(NOT_RECORDED.to_owned(), rows);
        }
        report
    }
}

/// The memory for the contents of the queues, the packets in the delay lines, and a burst.
fn pool_size(scenario: &Scenario) -> PoolSize {
    let mut slots = 4096;
    let mut large = 256;
    let flows = scenario.flows.iter();
    let farthest = flows.map(|flow| scenario.extra_rtt(flow)).max();
    for (_, pipe) in scenario.pipes() {
        let rate = pipe.rate.highest();
        let limit = match pipe.queue.0.value("limit") {
            Some(sluice_core::param::Value::Count(limit)) => limit.min(MOST_QUEUED),
            _ => MOST_QUEUED,
        };
        let in_flight = if rate.is_unlimited() {
            MOST_QUEUED
        } else {
            (rate.bytes_in(pipe.delay.longest() + farthest.unwrap_or_default()) / 1000)
                .min(MOST_QUEUED)
        };
        slots += limit + in_flight;
        if rate >= SPLIT_BELOW {
            large += (limit + in_flight) / 16;
        }
    }
    PoolSize {
        slots: slots as u32,
        large: large as u32,
    }
}

/// Time for the setup before time zero.
const LEAD: Span = Span::from_ms(200);
/// The number of packets for which each queue and each delay line has memory: 128 MB of slots.
const MOST_QUEUED: u64 = 65_536;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_growth_that_the_kernel_does_not_have_is_refused_with_the_backend_that_has_it() {
        let check = |cc: &str| {
            let text = format!(
                "duration = \"2s\"\n[link]\nrate = \"1Mbit/s\"\n[[flow]]\ntype = \"tcp\"\nname = \"bulk\"\n\
                 cc = \"{cc}\"\ngrowth = \"bytes\"\n"
            );
            let variants = Scenario::parse("x.toml", &text, &[]).unwrap();
            check_support(&variants[0].scenario).map_err(|error| error.to_string())
        };
        assert_eq!(
            check("cubic").unwrap_err(),
            "x.toml:8:10: `growth = \"bytes\"` of flow `bulk` (the kernel's CUBIC grows by whole segments) is \
             not possible with the live backend; the simulator (`--backend sim`) has it"
        );
        // With other congestion controls the setting has no effect and causes a warning.
        assert_eq!(check("reno"), Ok(()));
    }

    #[test]
    fn with_several_hosts_each_has_one_address() {
        let check = |keys: &str| {
            let text = format!(
                "duration = \"2s\"\n[link]\nrate = \"1Mbit/s\"\n[hosts]\nup = 2\n\
                 [[flow]]\ntype = \"tcp\"\nname = \"a\"\n\
                 [[flow]]\ntype = \"tcp\"\nname = \"b\"\n{keys}\n"
            );
            let variants = Scenario::parse("x.toml", &text, &[]).unwrap();
            check_support(&variants[0].scenario).map_err(|error| error.to_string())
        };
        let tail = " is not possible with the live backend; the simulator (`--backend sim`) has it";
        assert_eq!(check("host_up = 2"), Ok(()));
        // A different pair of hosts has its own path.
        assert_eq!(check("host_up = 2\nrtt = \"50ms\""), Ok(()));
        assert_eq!(
            check("rtt = \"50ms\""),
            Err(format!(
                "x.toml:12:7: with several hosts, an `rtt`, `class` or `hops` of flow `b` that other flows \
                 between its hosts do not have{tail}"
            ))
        );
        assert_eq!(
            check("host_up = 2\ninitial_window = 4"),
            Err(format!(
                "x.toml:13:18: the `initial_window` of flow `b` with several hosts{tail}"
            ))
        );
    }

    #[test]
    fn settings_that_the_kernel_lacks_are_refused_with_its_behaviour() {
        let check = |keys: &str| {
            let text = format!(
                "duration = \"2s\"\n[link]\nrate = \"1Mbit/s\"\n[[flow]]\ntype = \"rr\"\n{keys}\n"
            );
            let variants = Scenario::parse("x.toml", &text, &[]).unwrap();
            check_support(&variants[0].scenario).map_err(|error| error.to_string())
        };
        for (keys, expected) in [
            (
                "abe = true",
                "6:7: `abe = true` of flow `rr` (the kernel treats a mark as a loss)",
            ),
            (
                "slow_start = \"standard\"",
                "6:14: `slow_start = \"standard\"` of flow `rr` (the kernel's `cubic` ends slow start in another way)",
            ),
            (
                "pacing = true",
                "6:10: `pacing = true` of flow `rr` (the kernel's `cubic` does not pace)",
            ),
            (
                "cc = \"bbr\"\npacing = false",
                "7:10: `pacing = false` of flow `rr` (the kernel's `bbr` paces)",
            ),
            (
                "rto_floor = { total = \"1s\" }",
                "6:13: `rto_floor = { total = \"1s\" }` of flow `rr` (the kernel's is 200ms beyond the smoothed RTT)",
            ),
        ] {
            let expected = format!(
                "x.toml:{expected} is not possible with the live backend; the simulator (`--backend sim`) has it"
            );
            assert_eq!(check(keys), Err(expected));
        }
        // Values that equal the kernel's behaviour are accepted.
        let own = "abe = false\nslow_start = \"hystart\"\npacing = false\nrto_floor = \"200ms\"";
        assert_eq!(check(own), Ok(()));
    }
}
