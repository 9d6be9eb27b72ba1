//! Disciplines: subclasses of `sluice.Discipline`, which hold packets themselves.
//!
//! The packets stay in Rust. The instance receives an object for each packet and returns it. So no
//! packet can be lost, whatever the class does. If an object is collected before its packet has
//! left, this is an error of the class. After an error, the packets leave in the order of their
//! arrival.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;

use super::class::{Account, Class, INSTANCE_BYTES, Method, PER_CALL, instant_of};
use super::views::{Context, PacketFields};
use crate::error;
use sluice_core::event::{Backlog, StateValue};
use sluice_core::param::{ParamError, Values};
use sluice_core::registry::OutsideDiscipline;
use sluice_core::{Cx, Discipline, DropReason, Packet, Time, Wake};
use sluice_loader::{Allowance, described, in_hook, limit_of, moment};

/// A class that is a discipline.
pub(super) struct DisciplineClass(pub Class);

impl OutsideDiscipline for DisciplineClass {
    fn build(&self, values: &Values) -> Result<Box<dyn Discipline>, ParamError> {
        let factory = self.0.factory(values)?;
        let collected = Collected::default();
        let made = factory.begin(CONSEQUENCE, |py, of| {
            let context = QueueContext {
                queue: Arc::clone(&collected),
                orders: Vec::new(),
            };
            let context = Bound::new(py, (context, Context::new()))?;
            Ok(Hooks {
                enqueue: of.own(py, "enqueue")?.expect("the class defines it"),
                dequeue: of.own(py, "dequeue")?.expect("the class defines it"),
                next_wake: of.own(py, "next_wake")?,
                base: context.as_super().clone().unbind(),
                context: context.unbind(),
            })
        });
        let (hooks, account) = made.map_err(ParamError::Contradiction)?;
        Ok(Box::new(Held {
            hooks,
            account,
            limit: limit_of(values),
            packets: BTreeMap::new(),
            pulled: BTreeSet::new(),
            arrivals: 0,
            backlog: Backlog::default(),
            wake: None,
            vain: Allowance::default(),
            is_interrupted: false,
            collected,
        }))
    }
}

/// The fate of the packets after a discipline was stopped, for messages.
const CONSEQUENCE: &str = "its packets leave in the order of their arrival from now on";

/// The bytes of a packet in the queue, and an estimate of those of its object.
const HELD_BYTES: usize = 2 * size_of::<(u64, Packet)>() + 256;

/// Numbers of the packets whose objects were collected.
type Collected = Arc<Mutex<Vec<u64>>>;

/// A packet of a queue, which may have left.
#[derive(Clone, Copy)]
struct Reference {
    /// The packet's number in the order of arrival.
    number: u64,
    /// The packet's number in the recording of the host, if it has one.
    recorded: Option<u64>,
    arrival: Time,
}

impl Reference {
    /// Returns the message for an order about a packet that has left.
    fn left(self, what: &str) -> String {
        match self.recorded {
            Some(number) => format!("packet {number} was {what} after it had left"),
            None => {
                let arrival = moment(self.arrival);
                format!("the packet that arrived at {arrival} was {what} after it had left")
            }
        }
    }
}

/// A packet in a discipline.
#[pyclass(extends = PacketFields, name = "Packet")]
pub struct HeldPacket {
    of: Reference,
    /// The queue that holds the packet.
    queue: Collected,
}

impl Drop for HeldPacket {
    fn drop(&mut self) {
        lock(&self.queue).push(self.of.number);
    }
}

fn lock(collected: &Collected) -> std::sync::MutexGuard<'_, Vec<u64>> {
    collected.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A request of a discipline about a packet.
enum Order {
    Drop(Reference, DropReason),
    Mark(Reference),
}

/// The time, the randomness of the run, and operations on packets.
#[pyclass(extends = Context)]
pub struct QueueContext {
    /// The queue whose packets the operations are about.
    queue: Collected,
    orders: Vec<Order>,
}

impl QueueContext {
    /// Refuses a packet of another queue: its number is that of a different packet here.
    fn check_own(&self, packet: &HeldPacket, operation: &str) -> PyResult<()> {
        if Arc::ptr_eq(&packet.queue, &self.queue) {
            return Ok(());
        }
        Err(error::of(format!(
            "`cx.{operation}` got a packet of another queue: use the `cx` of the queue that holds \
             the packet"
        )))
    }
}

#[pymethods]
impl QueueContext {
    /// Drop a packet that the discipline holds. `reason` is the word in recordings.
    #[pyo3(signature = (packet, reason = "congestion"))]
    fn drop(&mut self, packet: &HeldPacket, reason: &str) -> PyResult<()> {
        self.check_own(packet, "drop")?;
        let known = REASONS.iter().find(|known| known.name() == reason);
        let Some(known) = known else {
            let all: Vec<&str> = REASONS.iter().map(|known| known.name()).collect();
            let all = all.join(", ");
            return Err(error::of(format!(
                "`{reason}` is no reason of a queue; one of: {all}"
            )));
        };
        self.orders.push(Order::Drop(packet.of, *known));
        Ok(())
    }

    /// Set the CE codepoint of an ECN-capable packet that the discipline holds or is about to
    /// return.
    fn mark(&mut self, packet: PyRef<'_, HeldPacket>) -> PyResult<()> {
        self.check_own(&packet, "mark")?;
        if !packet.as_super().ecn_capable {
            return Err(error::of(
                "a packet that is not ECN-capable cannot be marked: test `packet.ecn_capable`",
            ));
        }
        self.orders.push(Order::Mark(packet.of));
        Ok(())
    }
}

/// Reasons that a discipline may give.
const REASONS: [DropReason; 4] = [
    DropReason::Congestion,
    DropReason::Overflow,
    DropReason::Evicted,
    DropReason::Overload,
];

struct Hooks {
    enqueue: Method,
    dequeue: Method,
    next_wake: Option<Method>,
    context: Py<QueueContext>,
    /// The same object.
    base: Py<Context>,
}

/// A queue whose order is decided in Python.
struct Held {
    hooks: Hooks,
    account: Account,
    limit: u64,
    /// The packets, by their numbers.
    packets: BTreeMap<u64, Packet>,
    /// Packets that the host removed without a call of the instance. The instance still holds their
    /// objects.
    pulled: BTreeSet<u64>,
    arrivals: u64,
    backlog: Backlog,
    /// The instant at which the next packet may leave, as the instance last returned it.
    wake: Option<Time>,
    /// The calls of `dequeue` that may return nothing.
    vain: Allowance,
    collected: Collected,
    /// Whether Ctrl-C has ended a call, so that the instance and the packets no longer agree.
    is_interrupted: bool,
}

/// The result of a call of the instance: the packet that it returned.
type Returned = Result<Option<Reference>, String>;

impl Held {
    /// Calls a method of the instance by `call`, and executes the orders of the instance. Returns the
    /// packet that the instance returned. An error stops the instance.
    fn call(
        &mut self,
        cx: &mut Cx<'_>,
        hook: impl FnOnce(&Hooks) -> &Method,
        call: impl FnOnce(Python<'_>, &Hooks, &Method) -> PyResult<Returned>,
    ) -> Option<Reference> {
        let (hooks, name) = (&self.hooks, self.account.name);
        let hook = hook(hooks);
        let called = self.account.call(cx, hook.name, &hooks.base, |py| {
            let returned = call(py, hooks, hook);
            let orders = std::mem::take(&mut hooks.context.borrow_mut(py).orders);
            let returned = returned?;
            let wake = match &hooks.next_wake {
                Some(next) => {
                    let asked = in_hook(name, next.name, || next.function.call0(py))?;
                    match instant_of(next.name, asked.bind(py)) {
                        Ok(wake) => wake,
                        Err(why) => return Ok(Err(why)),
                    }
                }
                None => None,
            };
            Ok(Ok((returned, orders, wake)))
        });
        let Some((returned, orders, wake)) = called else {
            self.is_interrupted |= !self.account.is_stopped();
            return None;
        };
        self.wake = wake;
        let mut orders = orders.into_iter();
        let carried_out = orders.try_for_each(|order| self.carry_out(order, cx));
        match carried_out.and(returned) {
            Ok(returned) => returned,
            Err(why) => {
                self.account.fail(&why, cx);
                None
            }
        }
    }

    fn carry_out(&mut self, order: Order, cx: &mut Cx<'_>) -> Result<(), String> {
        match order {
            Order::Drop(of, reason) => {
                if self.pulled.remove(&of.number) {
                    return Ok(());
                }
                let packet = self.take(of.number).ok_or_else(|| of.left("dropped"))?;
                cx.discard(packet, reason);
            }
            Order::Mark(of) if self.pulled.contains(&of.number) => {}
            Order::Mark(of) => {
                let packet = self.packets.get_mut(&of.number);
                cx.mark(packet.ok_or_else(|| of.left("marked"))?);
            }
        }
        Ok(())
    }

    /// Whether the instance is no longer called, and packets leave in the order of their arrival.
    fn is_left(&self) -> bool {
        self.is_interrupted || self.account.is_stopped()
    }

    fn take(&mut self, number: u64) -> Option<Packet> {
        let packet = self.packets.remove(&number)?;
        self.backlog.remove(&packet);
        Some(packet)
    }

    /// Stops the instance if it has forgotten a packet that it held.
    fn check_collected(&mut self, cx: &mut Cx<'_>) {
        let collected = std::mem::take(&mut *lock(&self.collected));
        let mut lost = None;
        for number in collected {
            self.pulled.remove(&number);
            if let Some(packet) = self.packets.get(&number) {
                lost.get_or_insert_with(|| described(packet, cx));
            }
        }
        if let Some(lost) = lost
            && !self.is_left()
        {
            let why = format!(
                "it lost {lost}: a packet is kept, returned by `dequeue` or dropped with `cx.drop`"
            );
            self.account.fail(&why, cx);
        }
    }
}

impl Discipline for Held {
    fn enqueue(&mut self, packet: Packet, cx: &mut Cx<'_>) {
        if self.backlog.packets + u64::from(packet.segments) > self.limit {
            cx.discard(packet, DropReason::Overflow);
            return;
        }
        let number = self.arrivals;
        self.arrivals += 1;
        let object = (!self.is_left()).then(|| {
            let of = Reference {
                number,
                recorded: cx.packet_number(&packet),
                arrival: packet.arrival,
            };
            let queue = Arc::clone(&self.collected);
            (HeldPacket { of, queue }, PacketFields::of(&packet))
        });
        self.backlog.add(&packet);
        self.packets.insert(number, packet);
        if let Some(object) = object {
            let enqueue = |py: Python<'_>, hooks: &Hooks, hook: &Method| -> PyResult<Returned> {
                let arguments = (Py::new(py, object)?, &hooks.context);
                hook.function.call1(py, arguments)?;
                Ok(Ok(None))
            };
            self.call(cx, |hooks| &hooks.enqueue, enqueue);
            self.check_collected(cx);
        }
        if let Some(packet) = self.packets.get(&number) {
            cx.enqueued(packet);
        }
    }

    fn dequeue(&mut self, cx: &mut Cx<'_>) -> Option<Packet> {
        let packet = loop {
            let (&first, _) = self.packets.first_key_value()?;
            if self.is_left() {
                break self.take(first)?;
            }
            if self.wake.is_some_and(|at| at > cx.now) {
                return None;
            }
            let held = self.packets.len();
            let queue = Arc::clone(&self.collected);
            let dequeue = |py: Python<'_>, hooks: &Hooks, hook: &Method| -> PyResult<Returned> {
                let returned = hook.function.call1(py, (&hooks.context,))?;
                Ok(packet_of(returned.bind(py), &queue))
            };
            match self.call(cx, |hooks| &hooks.dequeue, dequeue) {
                Some(of) if self.pulled.remove(&of.number) => {}
                Some(of) => match self.take(of.number) {
                    Some(packet) => {
                        self.check_collected(cx);
                        break packet;
                    }
                    None => self.account.fail(&of.left("returned"), cx),
                },
                None => {
                    self.check_collected(cx);
                    let later = self.wake.filter(|at| *at > cx.now);
                    let has_dropped = self.packets.len() < held;
                    if self.is_left() {
                        continue;
                    }
                    if later.is_none() && !has_dropped {
                        let why = format!(
                            "`dequeue` returned None while it holds {held} packets; a discipline that \
                             holds packets back returns from `next_wake` a later time"
                        );
                        self.account.fail(&why, cx);
                        continue;
                    }
                    let Some(wake) = later else { continue };
                    if has_dropped || self.vain.take(PER_CALL, cx.now) {
                        return None;
                    }
                    let (later, most) = (wake.since(cx.now).as_ns(), PER_CALL.as_ns() / 1_000);
                    let why = format!(
                        "`dequeue` returned None too often: `next_wake` asks for the next call {later} \
                         ns later, and on average, {most} us pass between two calls that return None; \
                         times are in nanoseconds"
                    );
                    self.account.fail(&why, cx);
                }
            }
        };
        cx.dequeued(&packet);
        Some(packet)
    }

    fn next_wake(&self) -> Wake {
        match self.wake {
            _ if self.packets.is_empty() => Wake::OnEnqueue,
            Some(at) if !self.is_left() => Wake::At(at),
            _ => Wake::Now,
        }
    }

    fn pull(&mut self) -> Option<Packet> {
        let (&first, _) = self.packets.first_key_value()?;
        self.pulled.insert(first);
        self.take(first)
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }

    fn memory(&self) -> usize {
        size_of::<Self>() + INSTANCE_BYTES + self.packets.len() * HELD_BYTES
    }

    fn state(&self, visit: &mut dyn FnMut(u32, &'static str, StateValue)) {
        self.account.visit(&mut |name, value| visit(0, name, value));
    }
}

/// Returns the packet that `dequeue` returned.
fn packet_of(returned: &Bound<'_, PyAny>, queue: &Collected) -> Returned {
    if returned.is_none() {
        return Ok(None);
    }
    let Ok(packet) = returned.cast::<HeldPacket>() else {
        return Err(format!(
            "`dequeue` returned {returned}, which is neither a packet nor None"
        ));
    };
    let packet = packet.borrow();
    if !Arc::ptr_eq(&packet.queue, queue) {
        return Err("`dequeue` returned a packet of another queue".to_owned());
    }
    Ok(Some(packet.of))
}
