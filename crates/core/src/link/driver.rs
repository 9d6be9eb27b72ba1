//! A device queue: packets that the device takes from the queue before it can send them.
//!
//! Between a queue and the wire lies the device's own queue. No AQM can drop the packets in it and
//! no scheduler can overtake them, so its bytes add to the delay of every packet. Linux limits it
//! (BQL, byte queue limits): the device takes packets as long as the bytes that it holds, including
//! those on the wire, are below the limit; the last packet may exceed it. With a limit of one
//! packet or less, the device holds only the packet on the wire, as a link without a device queue
//! does.
//!
//! Sources: the rule is that of Linux' `dql_avail` with a fixed limit (`limit_min` = `limit_max`).
//! The adaptation of the limit to a device's interrupts is not modelled, because the virtual device
//! reports every packet at once.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use core::cell::Cell;

use crate::event::{Backlog, Cx, StateValue};
use crate::packet::Packet;
use crate::params;
use crate::prefetch::{self, Place};
use crate::sched::{Classful, Discipline, Wake};
use crate::units::{Bytes, Rate, Time};

params! {
    /// Parameters of the device queue behind the queue under test.
    pub struct DriverParams {
        /// bytes that the device may hold, including those that it is sending
        driver: Bytes = Bytes(Bytes::ZERO), Bytes(Bytes::ZERO) => Bytes(Bytes::new(1 << 30)), "none: a packet leaves the queue when its transmission starts";
    }
}

/// The bytes that a device may hold, which its link can change.
pub(super) type Limit = Rc<Cell<u64>>;

/// A discipline with a device queue behind it.
pub(super) struct Driver {
    queue: Box<dyn Discipline>,
    limit: Limit,
    /// Packets taken from the queue and not yet on the wire.
    ring: VecDeque<Packet>,
    held: Backlog,
    /// Bytes of the packet on the wire.
    sending: u64,
}

impl Driver {
    /// Puts a device that holds up to `limit` bytes behind `queue`, while `sending` bytes are on the
    /// wire. It takes packets at the next arrival, or when it needs one to send.
    pub(super) fn new(queue: Box<dyn Discipline>, limit: &Limit, sending: u64) -> Self {
        Driver {
            queue,
            limit: Rc::clone(limit),
            ring: VecDeque::new(),
            held: Backlog::default(),
            sending,
        }
    }

    fn fill(&mut self, cx: &mut Cx<'_>) {
        while self.held.bytes + self.sending < self.limit.get() {
            let Some(packet) = self.queue.dequeue(cx) else {
                break;
            };
            self.held.add(&packet);
            self.ring.push_back(packet);
        }
    }

    fn take(&mut self) -> Option<Packet> {
        let packet = self.ring.pop_front()?;
        self.held.remove(&packet);
        Some(packet)
    }
}

// A missing method would silently fall back to its default. Clippy makes that an error.
#[deny(clippy::missing_trait_methods)]
impl Discipline for Driver {
    fn enqueue(&mut self, packet: Packet, cx: &mut Cx<'_>) {
        self.queue.enqueue(packet, cx);
        self.fill(cx);
    }

    /// The link calls this when it has sent the previous packet, so nothing is on the wire at that
    /// time.
    fn dequeue(&mut self, cx: &mut Cx<'_>) -> Option<Packet> {
        self.sending = 0;
        self.fill(cx);
        let next = self.take().or_else(|| self.queue.dequeue(cx));
        if let Some(packet) = &next {
            self.sending = u64::from(packet.len);
            self.fill(cx);
        }
        next
    }

    fn next_wake(&self) -> Wake {
        if self.ring.is_empty() {
            self.queue.next_wake()
        } else {
            Wake::Now
        }
    }

    fn next_timer(&self) -> Option<Time> {
        self.queue.next_timer()
    }

    fn on_timer(&mut self, cx: &mut Cx<'_>) {
        self.queue.on_timer(cx);
    }

    fn on_rate(&mut self, rate: Rate) {
        self.queue.on_rate(rate);
    }

    fn pull(&mut self) -> Option<Packet> {
        self.take().or_else(|| self.queue.pull())
    }

    fn memory(&self) -> usize {
        size_of::<Self>() + self.queue.memory() + self.ring.capacity() * size_of::<Packet>()
    }

    fn backlog(&self) -> Backlog {
        let queued = self.queue.backlog();
        Backlog {
            packets: queued.packets + self.held.packets,
            bytes: queued.bytes + self.held.bytes,
        }
    }

    fn state(&self, visit: &mut dyn FnMut(u32, &'static str, StateValue)) {
        self.queue.state(visit);
    }

    fn as_classful(&mut self) -> Option<&mut dyn Classful> {
        self.queue.as_classful()
    }

    fn blank(&self) -> Option<Box<dyn Discipline>> {
        let queue = self.queue.blank()?;
        let limit = Rc::new(Cell::new(self.limit.get()));
        Some(Box::new(Driver::new(queue, &limit, 0)))
    }

    fn places(&self, flow: u32) -> [Place; 2] {
        let [first, _] = self.queue.places(flow);
        [Place::of(&*self.queue), first]
    }

    fn prefetch_dequeue(&self) {
        match self.ring.front() {
            Some(packet) => prefetch::line(packet),
            None => self.queue.prefetch_dequeue(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::DropCounter;
    use crate::link::{Link, LinkFiles, LinkParams};
    use crate::registry::Spec;
    use crate::rng::Rng;
    use alloc::vec::Vec;

    /// Returns when 1500 B packets that all arrive at time zero leave a `fifo` and reach the far
    /// end at 12 Mbit/s, where each takes 1 ms.
    fn run(text: &str, packets: u32) -> (Backlog, Vec<u64>) {
        let params = LinkParams::parse(text).unwrap();
        let queue = Spec::parse("fifo").unwrap().build().unwrap();
        let rng = Rng::from_seed(1);
        let mut link = Link::new(&params, LinkFiles::default(), queue, &rng);
        let (mut draws, mut sink) = (rng.clone(), DropCounter::default());
        let mut cx = Cx::new(Time::ZERO, &mut draws, &mut sink);
        for slot in 0..packets {
            link.enqueue(Packet::new(slot, 1500), &mut cx);
        }
        assert!(link.poll(&mut cx).is_none());
        let queued = link.backlog();
        cx.now = Time::from_ns(u64::from(packets) * 1_000_000);
        let mut due = Vec::new();
        while let Some(departure) = link.poll(&mut cx) {
            due.push(departure.due.as_ns() / 1_000_000);
        }
        (queued, due)
    }

    #[test]
    fn a_device_delays_nothing_that_waits_in_one_line() {
        let plain = run("rate 12Mbit/s", 5);
        assert_eq!(plain.1, [1, 2, 3, 4, 5]);
        assert_eq!(run("rate 12Mbit/s driver 3000", 5), plain);
    }

    /// Shows that a packet that could overtake others in the queue cannot overtake those in the
    /// device.
    fn overtaken(driver: &str) -> usize {
        let params = LinkParams::parse(&alloc::format!("rate 12Mbit/s {driver}")).unwrap();
        let queue = Spec::parse("prio").unwrap().build().unwrap();
        let rng = Rng::from_seed(1);
        let mut link = Link::new(&params, LinkFiles::default(), queue, &rng);
        let (mut draws, mut sink) = (rng.clone(), DropCounter::default());
        let mut cx = Cx::new(Time::ZERO, &mut draws, &mut sink);
        for slot in 0..10 {
            let mut packet = Packet::new(slot, 1500);
            packet.class = 1;
            link.enqueue(packet, &mut cx);
        }
        assert!(link.poll(&mut cx).is_none(), "the first is on the wire");
        link.enqueue(Packet::new(10, 100), &mut cx);
        cx.now = Time::from_ns(1_000_000_000);
        let mut place = 0;
        while let Some(departure) = link.poll(&mut cx) {
            if departure.packet.slot == 10 {
                return place;
            }
            place += 1;
        }
        panic!("the packet arrives");
    }

    /// Like [`overtaken`], of 20 packets: the device is `before` while the first three leave and
    /// `after` from then on, and the packet that could overtake arrives after three more.
    fn overtaken_after(before: &str, after: &str) -> usize {
        let params =
            |driver: &str| LinkParams::parse(&alloc::format!("rate 12Mbit/s {driver}")).unwrap();
        let queue = Spec::parse("prio").unwrap().build().unwrap();
        let rng = Rng::from_seed(1);
        let mut link = Link::new(&params(before), LinkFiles::default(), queue, &rng);
        let (mut draws, mut sink) = (rng.clone(), DropCounter::default());
        let mut cx = Cx::new(Time::ZERO, &mut draws, &mut sink);
        for slot in 0..20 {
            let mut packet = Packet::new(slot, 1500);
            packet.class = 1;
            link.enqueue(packet, &mut cx);
        }
        let leave = |ms: u64, link: &mut Link, cx: &mut Cx<'_>| {
            cx.now = Time::from_ns(ms * 1_000_000);
            let slots = core::iter::from_fn(|| link.poll(cx)).map(|gone| gone.packet.slot);
            slots.collect::<Vec<u32>>()
        };
        assert_eq!(leave(3, &mut link, &mut cx), [0, 1, 2]);
        link.set_params(&params(after), LinkFiles::default(), &mut cx);
        assert_eq!(leave(6, &mut link, &mut cx), [3, 4, 5]);
        link.enqueue(Packet::new(20, 100), &mut cx);
        let rest = leave(100, &mut link, &mut cx);
        assert_eq!(rest.len(), 15, "nothing is lost");
        let place = rest.iter().position(|slot| *slot == 20);
        place.expect("the packet arrives")
    }

    #[test]
    fn a_device_changes_while_packets_wait() {
        for (after, place) in [("", 1), ("driver 3000", 2), ("driver 4501", 4)] {
            // As if the device had been so from the start.
            for before in ["", "driver 1500", "driver 3000", "driver 4501"] {
                let found = overtaken_after(before, after);
                assert_eq!(found, place, "{before} to {after}");
            }
            // One of 15 000 B holds nine packets beside the one on the wire. Three of them are sent
            // before the arrival, and the other six after it.
            let found = overtaken_after("driver 15000", after);
            assert_eq!(found, 7, "{after}");
        }
    }

    #[test]
    fn what_the_device_has_is_not_overtaken() {
        // One packet is on the wire. A device of 1500 B has no room beside it, one of 3000 B for
        // one more. One of 4501 B takes a third and, being below its limit by one byte, a fourth.
        assert_eq!(overtaken(""), 1);
        assert_eq!(overtaken("driver 1500"), 1);
        assert_eq!(overtaken("driver 3000"), 2);
        assert_eq!(overtaken("driver 4501"), 4);
    }
}
