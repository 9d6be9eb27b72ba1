//! The event loop.

use crate::calendar::CalendarEvent;
use crate::config::Config;
use crate::error::ConfigError;
use crate::haste::Haste;
use crate::ids::{FlowId, LinkId};
use crate::network::{Network, kind};
use crate::observe::{FlowTotals, LinkSample, Observer, OpenPage};
use crate::packets::{NOT_TCP, Tag};
use crate::stage::Engine;
use crate::traffic::{AnySource, Host, Source};
use sluice_core::{Backlog, Cx, Discipline, DropCounter, Rate, Span, Time};
use sluice_ipfw::{CommandError, Firewall, Output};
use std::collections::BTreeSet;

/// A network in virtual time.
///
/// ```
/// use sluice_core::{Rate, Span, registry::Spec};
/// use sluice_sim::{Config, Flow, Simulation, Tcp, dumbbell, dumbbell_route};
/// use sluice_tcp::cc;
///
/// let queue = Spec::parse("fq_codel").unwrap();
/// let flow = Flow::new(Tcp::bulk(&cc::CUBIC), dumbbell_route(Span::ZERO));
/// let config = Config {
///     duration: Span::from_secs(5),
///     links: dumbbell(Rate::from_bps(10_000_000), Span::from_ms(20), &queue),
///     flows: vec![flow],
///     ..Config::default()
/// };
/// let mut simulation = Simulation::new(&config).unwrap();
/// simulation.run(&mut ());
/// // 10 Mbit/s * 5 s, less headers (1448 of 1514 bytes) and slow start: about 5.9 MB
/// let received = simulation.totals(0).bytes_received;
/// assert!((5_600_000..5_980_000).contains(&received));
/// ```
pub struct Simulation {
    network: Network,
    /// The source of each flow.
    sources: Vec<AnySource>,
    end: Time,
    sample_interval: Option<Span>,
    events: u64,
    haste: Haste,
}

impl Simulation {
    /// Builds the network at its start.
    ///
    /// # Errors
    /// Those of [`Config::validate`], and parameters of a queue that contradict each other.
    pub fn new(config: &Config) -> Result<Self, ConfigError> {
        config.validate()?;
        let sources = config.flows.iter().map(|flow| flow.traffic.source());
        Ok(Simulation {
            network: Network::new(config)?,
            sources: sources.collect(),
            end: Time::ZERO + config.duration,
            sample_interval: config.sample_interval,
            events: 0,
            haste: Haste::new(!config.routers.is_empty()),
        })
    }

    /// Replaces the queue of a link, for an algorithm that is not in the registry. Call it before
    /// the first packet. Does nothing to a router.
    pub fn set_queue(&mut self, link: LinkId, queue: Box<dyn Discipline>) {
        let stage = &mut self.network.stages[link];
        if let Engine::Link(engine) = &mut stage.engine {
            // The queue is empty, so nothing can be dropped.
            let (rng, mut sink) = (&mut self.network.draws[link], DropCounter::default());
            engine.replace_queue(queue, &mut Cx::new(self.network.now, rng, &mut sink));
        }
    }

    /// Sets the rate of a link from now on; returns whether it could be set. A rate that follows a
    /// schedule or a trace cannot, nor can that of a router.
    pub fn set_rate(&mut self, link: LinkId, rate: Rate, observer: &mut impl Observer) -> bool {
        self.network
            .with_stage(link, observer, |stage, cx| stage.set_rate(rate, cx))
    }

    /// Replaces the queue of a link from now on and moves the backlog to the new one. Returns whether
    /// there is such a queue: a router has none.
    pub fn replace_queue(
        &mut self,
        link: LinkId,
        queue: Box<dyn Discipline>,
        observer: &mut impl Observer,
    ) -> bool {
        self.network.with_stage(link, observer, |stage, cx| {
            let Engine::Link(engine) = &mut stage.engine else {
                return false;
            };
            engine.replace_queue(queue, cx);
            true
        })
    }

    /// Executes commands of a router now, one per line, until one is refused; the lines before it stay in
    /// force. Returns `None` for a link.
    pub fn command(
        &mut self,
        router: LinkId,
        commands: &str,
        observer: &mut impl Observer,
    ) -> Option<Result<Output, CommandError>> {
        self.network
            .with_stage(router, observer, |stage, cx| stage.execute(commands, cx))
    }

    /// The queue of a link, for the variables of its algorithm; a router has none.
    pub fn queue(&self, link: LinkId) -> Option<&dyn Discipline> {
        match &self.network.stages.get(link)?.engine {
            Engine::Link(engine) => Some(engine.queue()),
            Engine::Router(_) => None,
        }
    }

    /// Returns the current rate of a link; the mean rate of a trace.
    pub fn rate(&mut self, link: LinkId) -> Rate {
        self.network.stages[link].rate(self.network.now)
    }

    /// A router, to show its state.
    pub fn router(&self, link: LinkId) -> Option<&Firewall> {
        match &self.network.stages.get(link)?.engine {
            Engine::Router(firewall) => Some(firewall),
            Engine::Link(_) => None,
        }
    }

    /// Runs to the end.
    pub fn run(&mut self, observer: &mut impl Observer) {
        self.run_until(Time::MAX, observer);
    }

    /// Runs until `until` or the end, whichever comes first; returns whether the end has been
    /// reached, or cannot be because of [`Simulation::hasty_flow`].
    pub fn run_until(&mut self, until: Time, observer: &mut impl Observer) -> bool {
        let until = until.min(self.end);
        loop {
            if self.events >= self.haste.next_look {
                self.look_for_haste();
            }
            if self.haste.found().is_some() {
                return true;
            }
            let (link_at, link) = self.network.next_wake();
            let limit = link_at.min(until);
            // At one instant arrivals and timers come first, then links.
            if let Some(at) = self.network.calendar.next_until(limit) {
                self.advance_to(at);
                self.network.prefetch();
                if let Some(what) = self.network.calendar.pop() {
                    self.handle(what, observer);
                }
            } else if link_at <= until {
                self.advance_to(link_at);
                self.network.serve(link, observer);
            } else {
                break;
            }
        }
        self.network.now = until;
        self.network.now == self.end
    }

    /// Returns a flow that no pipe slows down, so that the run would take too long. The simulation has
    /// ended early.
    pub fn hasty_flow(&self) -> Option<FlowId> {
        self.haste.found()
    }

    #[cold]
    fn look_for_haste(&mut self) {
        let flows = (0..self.network.flows.len()).map(|flow| {
            let packets = self.totals(flow).packets_sent;
            (packets, self.network.flows[flow].is_shaped)
        });
        let flows: Vec<(u64, bool)> = flows.collect();
        self.haste.look(self.network.now, &flows);
    }

    /// Returns the current virtual time.
    pub fn now(&self) -> Time {
        self.network.now
    }

    /// Events processed so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Number of packets in flight and of scheduled events, for conservation checks and progress.
    pub fn in_flight(&self) -> (usize, usize) {
        (self.network.packets.len(), self.network.calendar.len())
    }

    /// Returns for each flow the numbers of its datagrams that are neither delivered nor dropped yet.
    /// The copies that a link has made have one number.
    pub fn datagrams_in_flight(&self) -> Vec<BTreeSet<u64>> {
        let mut numbers = vec![BTreeSet::new(); self.network.flows.len()];
        for (tag, datagram) in self.network.packets.in_flight() {
            if tag.connection == NOT_TCP {
                numbers[tag.flow as usize].insert(datagram.sequence);
            }
        }
        numbers
    }

    /// Totals of a flow so far.
    pub fn totals(&self, flow: FlowId) -> FlowTotals {
        self.network.totals(flow)
    }

    /// Returns the pages of a flow that are not complete, or were not when it stopped.
    pub fn open_pages(&self, flow: FlowId) -> Vec<OpenPage> {
        self.sources[flow].open_pages()
    }

    /// The backlog of a link's queue.
    pub fn backlog(&self, link: LinkId) -> Backlog {
        self.network.stages[link].backlog()
    }

    /// Bytes that a link has sent.
    pub fn sent_bytes(&self, link: LinkId) -> u64 {
        self.network.stages[link].sent_bytes
    }

    fn advance_to(&mut self, at: Time) {
        debug_assert!(at >= self.network.now, "time does not go back");
        self.network.now = at;
        self.events += 1;
    }

    fn handle(&mut self, event: CalendarEvent, observer: &mut impl Observer) {
        let index = event.index;
        match event.kind {
            kind::DELIVER => self.deliver(index, observer),
            kind::FORWARD => self.network.dispatch(index, observer),
            kind::TIMER => self.network.handle_timer(index, observer),
            kind::SOURCE => self.wake_source(index, observer),
            kind::START => self.start_flow(index, observer),
            kind::STOP => self.stop_flow(index, observer),
            kind::CHANGE => self.change(index as usize, observer),
            _ => self.sample(observer),
        }
    }

    /// Returns the source of a flow, and the network that it acts on.
    fn source<'a, O: Observer>(
        &'a mut self,
        flow: u32,
        observer: &'a mut O,
    ) -> (&'a mut AnySource, Host<'a, O>) {
        let host = Host {
            network: &mut self.network,
            flow,
            observer,
        };
        (&mut self.sources[flow as usize], host)
    }

    fn start_flow(&mut self, flow: u32, observer: &mut impl Observer) {
        if !self.network.flows[flow as usize].is_stopped {
            let (source, mut host) = self.source(flow, observer);
            source.start(&mut host);
        }
    }

    fn stop_flow(&mut self, flow: u32, observer: &mut impl Observer) {
        self.network.flows[flow as usize].is_stopped = true;
        let (source, mut host) = self.source(flow, observer);
        source.stop(&mut host);
    }

    fn wake_source(&mut self, flow: u32, observer: &mut impl Observer) {
        if !self.network.flows[flow as usize].is_stopped {
            let (source, mut host) = self.source(flow, observer);
            source.wake(&mut host);
        }
    }

    /// The receiving host processes a packet.
    fn deliver(&mut self, slot: u32, observer: &mut impl Observer) {
        let network = &mut self.network;
        let transit = network.packets.free(slot);
        let tag = Tag {
            ecn: transit.ecn,
            ..*network.packets.tag(slot)
        };
        if transit.is_corrupt {
            network.flows[tag.flow as usize].totals.packets_corrupted += 1;
        } else if tag.connection == NOT_TCP {
            network.count_arrival(&tag);
            let datagram = *network.packets.datagram(slot);
            let (source, mut host) = self.source(tag.flow, observer);
            source.on_datagram(&tag, datagram, &mut host);
        } else {
            let segment = network.packets.segment(slot);
            let Some(concerns_application) = network.handle_segment(&tag, &segment) else {
                return;
            };
            if concerns_application {
                let (source, mut host) = self.source(tag.flow, observer);
                source.on_segment(tag.connection, &mut host);
            }
            self.network.pump(tag.connection, tag.to_server, observer);
        }
    }

    /// The next delay of a link takes effect, or the next command of a router is executed.
    fn change(&mut self, link: LinkId, observer: &mut impl Observer) {
        let network = &mut self.network;
        let result = network.with_stage(link, observer, |stage, cx| {
            stage.change_delay(cx);
            stage.execute_next(cx)
        });
        if let Some(result) = result {
            observer.on_command(link, network.now, &result);
        }
        if let Some(at) = network.stages[link].next_change() {
            network.schedule(at, kind::CHANGE, link as u32);
        }
    }

    fn sample(&mut self, observer: &mut impl Observer) {
        let now = self.network.now;
        for (id, stage) in self.network.stages.iter_mut().enumerate() {
            let rate = stage.rate(now);
            if let Engine::Link(link) = &stage.engine {
                let sample = LinkSample {
                    time: now,
                    backlog: link.backlog(),
                    queue: link.queue(),
                    rate,
                    sent_bytes: stage.sent_bytes,
                };
                observer.on_link(id, &sample);
            }
        }
        for connection in &self.network.connections {
            let flow = connection.flow as usize;
            if connection.is_open && self.sources[flow].is_reported(connection) {
                let retransmits = self.totals(flow).retransmits;
                observer.on_tcp(flow, &connection.sample(now, retransmits));
            }
        }
        for (flow, source) in self.sources.iter().enumerate() {
            if source.is_receiving() {
                observer.on_received(flow, now, self.totals(flow).bytes_received);
            }
        }
        if let Some(interval) = self.sample_interval {
            self.network.schedule(now + interval, kind::SAMPLE, 0);
        }
    }
}
