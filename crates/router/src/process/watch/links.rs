//! What a watcher sees of a loop that no router process runs: links without rules, such as those of
//! `sluice exec`, and rules of a live run.
//!
//! A [`LinkWatch`] answers a [`Watcher`] instead of a router's loop. The queues of each
//! direction are [`Watched`], which counts their packets while somebody watches, and otherwise adds
//! up totals. Each direction appears as a pipe.

mod rules;
mod status;

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;

use sluice_core::event::StateValue;
use sluice_core::{Backlog, Cx, DropReason, Event, Packet, Rate, Sink, Span, Time};
use sluice_ipfw::show::{CounterState, FlowState, LinkState};
use sluice_ipfw::watch::{Detail, ObjectName, Place, Seen, Tally, WatchTable};
use sluice_ipfw::{Direction, Headers, InterfaceId};
use sluice_net::port::Port;
use sluice_wire::frame::View;

pub use rules::{RuleWatch, WatchedRules};
use status::status_of;

use super::Watcher;
use crate::control::{Answered, Builder, Inbox, Watched as Exchanged, Work, inbox};
use crate::forward::{Departure, Forwarder, Lane, Observer, Origin, PortNumber, Queueing};
use crate::process::Status;
use crate::process::ruled::headers;

/// Creates a watcher of links, and the end that the links' loop needs.
///
/// # Errors
/// The process cannot open more files.
pub fn watch_links() -> io::Result<(Watcher, LinkInbox)> {
    let (inbox, orders) = inbox(Builder::default())?;
    Ok((Watcher::new(orders), LinkInbox(inbox)))
}

/// The loop's end of a watcher of links, on its way to the loop's thread.
pub struct LinkInbox(Inbox<Status>);

/// What a watcher reads about a loop.
#[derive(Clone, Debug, Default)]
pub struct LinkNames {
    /// For each lane, the number of the pipe as which it appears, and its links in words.
    pub lanes: Vec<(u32, String)>,
    /// The ports.
    pub ports: Vec<&'static str>,
}

/// Answers a watcher, on the loop's thread.
pub struct LinkWatch {
    inbox: Inbox<Status>,
    names: LinkNames,
    table: Table,
}

/// The table of the current interval, while somebody watches.
type Table = Rc<RefCell<Option<Box<WatchTable>>>>;

/// The links of one direction at an instant.
#[derive(Clone, Debug, Default)]
pub struct LinkView {
    /// The number of consecutive links.
    pub links: usize,
    /// The lowest rate; unlimited if it is not known.
    pub rate: Option<Rate>,
    /// The sum of their delays.
    pub delay: Span,
    /// The contents of the queues.
    pub backlog: Backlog,
    /// The packets on the links.
    pub in_flight: Backlog,
    /// The variables of the algorithms: queue, name, value.
    pub variables: Vec<(u32, &'static str, StateValue)>,
}

/// The totals of one direction since the start.
#[derive(Clone, Debug, Default)]
pub struct LinkTotals {
    packets: u64,
    bytes: u64,
    departed: u64,
    marked: u64,
    dropped: [u64; DropReason::ALL.len()],
}

/// A lane that appears as a pipe.
struct LinkRow<'a> {
    number: u32,
    words: &'a str,
    view: LinkView,
    totals: LinkTotals,
}

impl LinkWatch {
    /// Creates the end of a loop with these names.
    pub fn new(inbox: LinkInbox, names: LinkNames) -> LinkWatch {
        LinkWatch {
            inbox: inbox.0,
            names,
            table: Table::default(),
        }
    }

    /// Counts the packets of `queue`, which is that of `lane`. `links` is the number of consecutive
    /// links in it.
    pub fn watched<Q>(&self, lane: usize, links: usize, queue: Q) -> Watched<Q> {
        Watched {
            queue,
            counting: Some(Box::new(Counting {
                number: self.names.lanes[lane].0,
                is_single: links == 1,
                table: Rc::clone(&self.table),
                headers: Vec::new(),
                totals: LinkTotals::default(),
            })),
        }
    }

    /// Answers the watcher, if it has asked. `view` returns what it sees of the links of a lane.
    pub fn answer<P: Port, Q: Queueing, O: Observer>(
        &mut self,
        forwarder: &mut Forwarder<P, Watched<Q>, O>,
        view: impl Fn(&Q) -> LinkView,
        is_real_time: bool,
        now: Time,
    ) {
        while let Some(order) = self.inbox.take() {
            let (status, lateness) = status_of(forwarder, &self.names.ports, is_real_time, now);
            match order.work {
                Work::Watch(mut watching) => {
                    let lanes = forwarder.lanes().iter().map(Lane::queueing);
                    let rows = lanes.zip(&self.names.lanes);
                    let rows = rows.map(|(queue, (number, words))| {
                        row(LinkRow {
                            number: *number,
                            words,
                            view: view(queue.queue()),
                            totals: queue.totals(),
                        })
                    });
                    let table = self.table.borrow_mut().take();
                    *self.table.borrow_mut() = watching.exchange(table, rows.collect(), now);
                    order.answer.send(Answered::Watched(Box::new(Exchanged {
                        watching: *watching,
                        status,
                        lateness,
                        rtt: None,
                    })));
                }
                Work::Status => order.answer.send(Answered::Status(Box::new(status))),
                // Links have no commands. The sender sees that nobody answers.
                Work::Commands { .. }
                | Work::Replace(_)
                | Work::Draft
                | Work::Report
                | Work::Exchange(_) => {
                    drop(order.answer);
                }
            }
        }
    }
}

fn row(link: LinkRow<'_>) -> (Tally, Detail) {
    let LinkRow {
        number,
        words,
        view,
        totals,
    } = link;
    let (place, object) = (Place::Link(number), ObjectName::Pipe(number));
    let dropped = totals.dropped.iter().sum();
    let tally = Tally {
        place,
        object,
        bytes: totals.bytes,
        dropped,
        queued_packets: view.backlog.packets,
    };
    let unspecified = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let reasons = DropReason::ALL.iter().zip(totals.dropped);
    let state = FlowState {
        bucket: 0,
        has_extra: false,
        flowset: 0,
        proto: 0,
        src: unspecified,
        src_port: 0,
        dst: unspecified,
        dst_port: 0,
        flow_label: 0,
        is_active: true,
        counters: CounterState {
            packets: totals.packets,
            bytes: totals.bytes,
            departed: totals.departed,
            marked: totals.marked,
            dropped,
            dropped_for: reasons
                .map(|(reason, count)| (reason.name(), count))
                .filter(|(_, count)| *count > 0)
                .collect(),
        },
        queued_packets: view.backlog.packets,
        queued_bytes: view.backlog.bytes,
        in_flight_packets: view.in_flight.packets,
        in_flight_bytes: view.in_flight.bytes,
        rate_bps: 0,
        wait: None,
        variables: view.variables,
    };
    let rate = view.rate.filter(|rate| !rate.is_unlimited());
    let detail = Detail {
        place,
        object,
        parent: None,
        link: LinkState {
            number,
            rate_bps: rate.map_or(0, Rate::as_bps),
            delay_ns: view.delay.as_ns(),
            burst_bytes: 0,
            profile: None,
            effects: Vec::new(),
        },
        words: words.to_owned(),
        is_masked: false,
        state,
    };
    (tally, detail)
}

/// Queues whose packets are counted for a watcher.
pub struct Watched<Q> {
    queue: Q,
    counting: Option<Box<Counting>>,
}

struct Counting {
    number: u32,
    /// A packet leaves the queue of a single link at one instant. Behind several links, it counts
    /// as having left when it leaves the last one.
    is_single: bool,
    table: Table,
    /// The headers of the packet in each slot.
    headers: Vec<Option<Headers>>,
    totals: LinkTotals,
}

impl<Q> Watched<Q> {
    /// Wraps queues that nobody can watch.
    pub const fn by_nobody(queue: Q) -> Watched<Q> {
        Watched {
            queue,
            counting: None,
        }
    }

    /// Returns the queues.
    pub const fn queue(&self) -> &Q {
        &self.queue
    }

    /// Returns the queues mutably.
    pub const fn queue_mut(&mut self) -> &mut Q {
        &mut self.queue
    }

    /// Returns the queues at the end.
    pub fn into_queue(self) -> Q {
        self.queue
    }

    /// Returns the totals since the start.
    pub fn totals(&self) -> LinkTotals {
        self.counting
            .as_ref()
            .map(|counting| counting.totals.clone())
            .unwrap_or_default()
    }

    fn with<T>(&mut self, cx: &mut Cx<'_>, work: impl FnOnce(&mut Q, &mut Cx<'_>) -> T) -> T {
        let Some(counting) = &mut self.counting else {
            return work(&mut self.queue, cx);
        };
        let now = cx.now;
        let (rng, sink) = cx.parts();
        let mut ear = Ear { counting, sink };
        work(&mut self.queue, &mut Cx::new(now, rng, &mut ear))
    }
}

impl Counting {
    fn is_watched(&self) -> bool {
        self.table.borrow().is_some()
    }

    /// Counts a packet in the table of the interval.
    fn count(&self, packet: &Packet, seen: Seen) {
        if let Some(table) = &mut *self.table.borrow_mut() {
            // A packet that arrived before the watch began has no headers here.
            let known = self
                .headers
                .get(packet.slot as usize)
                .and_then(Option::as_ref);
            let unknown = || {
                let unspecified = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
                Headers::new(Direction::In, 0, unspecified, unspecified)
            };
            match known {
                Some(headers) => table.count(self.number, packet, headers, seen),
                None => table.count(self.number, packet, &unknown(), seen),
            }
        }
    }

    fn arrive(&mut self, packet: &Packet, headers: Option<&Headers>) {
        self.totals.packets += u64::from(packet.segments);
        self.totals.bytes += u64::from(packet.len);
        if headers.is_some() || !self.headers.is_empty() {
            self.set_headers(packet.slot, headers.cloned());
        }
        self.count(packet, Seen::Arrived);
    }

    fn set_headers(&mut self, slot: u32, headers: Option<Headers>) {
        let slot = slot as usize;
        if self.headers.len() <= slot {
            self.headers.resize(slot + 1, None);
        }
        self.headers[slot] = headers;
    }
}

impl<Q: Queueing> Queueing for Watched<Q> {
    type Key = (Q::Key, Option<Headers>);

    fn key(&self, from: Origin, view: &View, head: &[u8]) -> Self::Key {
        let watched = self.counting.as_ref().filter(|it| it.is_watched());
        let headers = watched.map(|_| headers(InterfaceId(0), view, head));
        (self.queue.key(from, view, head), headers)
    }

    fn splits(&mut self, from: PortNumber, key: &Self::Key, at: Time) -> bool {
        self.queue.splits(from, &key.0, at)
    }

    fn set_free_packets(&mut self, packets: u64) {
        self.queue.set_free_packets(packets);
    }

    fn is_strict(&self) -> bool {
        self.queue.is_strict()
    }

    fn observes(&self) -> bool {
        self.queue.observes()
    }

    fn observe(&mut self, key: &Self::Key, view: &View, head: &[u8], at: Time) {
        self.queue.observe(&key.0, view, head, at);
    }

    fn admit(&mut self, packet: Packet, key: &Self::Key, cx: &mut Cx<'_>) {
        if let Some(counting) = &mut self.counting {
            counting.arrive(&packet, key.1.as_ref());
        }
        self.with(cx, |queue, cx| queue.admit(packet, &key.0, cx));
    }

    fn poll(&mut self, cx: &mut Cx<'_>) -> Option<Departure> {
        let departure = self.with(cx, Q::poll)?;
        if let Some(counting) = &mut self.counting {
            let packet = &departure.packet;
            counting.totals.departed += u64::from(packet.segments);
            if !counting.is_single {
                counting.count(packet, Seen::Left);
            }
        }
        Some(departure)
    }

    fn next_wake(&self) -> Option<Time> {
        self.queue.next_wake()
    }

    fn passes(&mut self, from: PortNumber, view: &View, cx: &mut Cx<'_>) -> bool {
        self.queue.passes(from, view, cx)
    }

    fn bypass(&self, from: PortNumber) -> Option<PortNumber> {
        self.queue.bypass(from)
    }
}

/// Counts what a queue reports, and passes it on.
struct Ear<'a> {
    counting: &'a mut Counting,
    sink: &'a mut dyn Sink,
}

impl Sink for Ear<'_> {
    fn discard(&mut self, now: Time, packet: Packet, reason: DropReason) {
        self.counting.totals.dropped[reason as usize] += u64::from(packet.segments);
        self.counting.count(&packet, Seen::Dropped(reason));
        self.sink.discard(now, packet, reason);
    }

    fn copy(&mut self, now: Time, packet: &Packet) -> Option<u32> {
        let slot = self.sink.copy(now, packet)?;
        if let Some(headers) = self.counting.headers.get(packet.slot as usize) {
            let headers = headers.clone();
            self.counting.set_headers(slot, headers);
        }
        Some(slot)
    }

    fn corrupt(&mut self, now: Time, packet: &Packet, bit: u64) {
        self.sink.corrupt(now, packet, bit);
    }

    fn is_pure_ack(&self, packet: &Packet) -> bool {
        self.sink.is_pure_ack(packet)
    }

    fn supersedes(&self, newer: &Packet, older: &Packet) -> bool {
        self.sink.supersedes(newer, older)
    }

    fn pipe_name(&self) -> Option<String> {
        self.sink.pipe_name()
    }

    fn packet_number(&self, packet: &Packet) -> Option<u64> {
        self.sink.packet_number(packet)
    }

    fn is_listening(&self) -> bool {
        true
    }

    fn on_event(&mut self, now: Time, event: &Event<'_>) {
        match event {
            Event::Dequeue { packet } => {
                let waited = Seen::Waited(packet.sojourn(now));
                self.counting.count(packet, waited);
                if self.counting.is_single {
                    self.counting.count(packet, Seen::Left);
                }
            }
            Event::Mark { packet } => {
                self.counting.totals.marked += u64::from(packet.segments);
                self.counting.count(packet, Seen::Marked);
            }
            Event::Enqueue { .. } | Event::State { .. } => {}
        }
        if self.sink.is_listening() {
            self.sink.on_event(now, event);
        }
    }
}
