//! Rank functions: subclasses of `sluice.Rank`, on the push-in queue of `pifo` and `pieo`.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use pyo3::prelude::*;

use super::class::{Class, State, in_full, why};
use super::views::Views;
use sluice_core::event::{Backlog, StateValue};
use sluice_core::param::{ParamError, Value, Values};
use sluice_core::registry::OutsideDiscipline;
use sluice_core::sched::push_in::PushIn;
use sluice_core::sched::rank::{Place, Rank};
use sluice_core::{Cx, Discipline, Packet, Time, Wake};
use sluice_loader::Failures;

/// A class that ranks packets.
pub(super) struct RankClass(pub Class);

impl OutsideDiscipline for RankClass {
    fn build(&self, values: &Values) -> Result<Box<dyn Discipline>, ParamError> {
        let factory = self.0.factory(values)?;
        let Some(Value::Count(limit)) = values.find("limit") else {
            unreachable!("every discipline of Python has a limit");
        };
        let made = Python::attach(|py| -> PyResult<_> {
            let of = factory.instance(py)?;
            let hooks = Hooks {
                rank: of.own(py, "rank")?.expect("the class defines it"),
                on_enqueue: of.own(py, "on_enqueue")?,
                on_dequeue: of.own(py, "on_dequeue")?,
                views: Views::new(py)?,
            };
            Ok((hooks, State::new(of.own(py, "state")?)))
        });
        let (hooks, state) = made
            .map_err(|error| ParamError::Contradiction(Python::attach(|py| in_full(py, &error))))?;
        let passing = Rc::new(Passing {
            wants_left: hooks.on_dequeue.is_some(),
            ..Passing::default()
        });
        Ok(Box::new(Ranked {
            queue: PushIn::new(limit, Noted(Rc::clone(&passing))),
            passing,
            hooks,
            state,
            failures: RefCell::new(factory.failures(CONSEQUENCE)),
        }))
    }
}

/// What happens to the packets when a rank function is stopped.
const CONSEQUENCE: &str =
    "packets that arrive from now on leave in the order of their arrival, after those with a rank";

/// The place of a packet that has no rank.
const LAST: Place = Place::now(u64::MAX);

struct Hooks {
    rank: Py<PyAny>,
    on_enqueue: Option<Py<PyAny>>,
    on_dequeue: Option<Py<PyAny>>,
    views: Views,
}

/// What the push-in queue and the instance tell each other about the packet of the call.
#[derive(Default)]
struct Passing {
    /// The place that the instance gave the arriving packet.
    place: Cell<Option<Place>>,
    is_accepted: Cell<bool>,
    /// A copy of the packet that left, and its rank, if the instance wants to know.
    left: RefCell<Option<(Packet, u64)>>,
    wants_left: bool,
}

/// The rank of the packet, which is computed before it arrives.
struct Noted(Rc<Passing>);

impl Rank for Noted {
    fn place(&self, _packet: &Packet, _now: Time) -> Place {
        self.0.place.get().unwrap_or(LAST)
    }

    fn accepted(&mut self, _packet: &Packet, _place: Place) {
        self.0.is_accepted.set(true);
    }

    fn left(&mut self, packet: &Packet, rank: u64) {
        if self.0.wants_left {
            *self.0.left.borrow_mut() = Some((Packet { ..*packet }, rank));
        }
    }
}

/// A push-in queue whose ranks are computed in Python.
struct Ranked {
    queue: PushIn<Noted>,
    passing: Rc<Passing>,
    hooks: Hooks,
    state: State,
    failures: RefCell<Failures>,
}

impl Ranked {
    /// Calls the instance, unless it is stopped.
    fn call<R>(
        &mut self,
        cx: &mut Cx<'_>,
        call: impl FnOnce(Python<'_>, &Hooks) -> PyResult<Result<R, String>>,
    ) -> Option<R> {
        if self.failures.get_mut().is_stopped() {
            return None;
        }
        let hooks = &self.hooks;
        let outcome = Python::attach(|py| {
            let called = hooks.views.within(py, cx, || call(py, hooks));
            called.map_err(|error| why(py, &error))
        });
        let why = match outcome {
            Ok(Ok(result)) => return Some(result),
            Ok(Err(why)) | Err(Some(why)) => why,
            Err(None) => return None,
        };
        let failures = self.failures.get_mut();
        failures.fail(&format!(" at {} ns", cx.now.as_ns()), &why);
        cx.state("errors", || StateValue::Count(failures.count()));
        cx.state("stopped", || StateValue::Flag(failures.is_stopped()));
        None
    }

    fn place(&mut self, packet: &Packet, cx: &mut Cx<'_>) -> Option<Place> {
        let now = cx.now;
        self.call(cx, |py, hooks| {
            let views = &hooks.views;
            views.fill_packet(py, packet, now);
            let returned = hooks.rank.call1(py, (&views.packet, &views.context))?;
            Ok(place_of(returned.bind(py)))
        })
    }
}

/// Reads a rank, or a rank and the instant from which the packet may leave.
fn place_of(returned: &Bound<'_, PyAny>) -> Result<Place, String> {
    if let Ok(rank) = returned.extract::<u64>() {
        return Ok(Place::now(rank));
    }
    match returned.extract::<(u64, u64)>() {
        Ok((rank, eligible)) => Ok(Place {
            rank,
            eligible: Time::from_ns(eligible),
        }),
        Err(_) => Err(format!(
            "`rank` returned {returned}, which is neither a number from 0 to 2^64 - 1 nor a pair of \
             such a number and the time in nanoseconds before which the packet must not leave"
        )),
    }
}

impl Discipline for Ranked {
    fn enqueue(&mut self, packet: Packet, cx: &mut Cx<'_>) {
        let place = self.place(&packet, cx);
        self.passing.place.set(place);
        self.passing.is_accepted.set(false);
        self.queue.enqueue(packet, cx);
        let Some(place) = place.filter(|_| self.passing.is_accepted.get()) else {
            return;
        };
        if self.hooks.on_enqueue.is_some() {
            self.call(cx, |py, hooks| {
                // The view still has the packet.
                let (hook, views) = (hooks.on_enqueue.as_ref(), &hooks.views);
                let arguments = (&views.packet, place.rank, &views.context);
                hook.expect("it is there").call1(py, arguments)?;
                Ok(Ok(()))
            });
        }
    }

    fn dequeue(&mut self, cx: &mut Cx<'_>) -> Option<Packet> {
        let packet = self.queue.dequeue(cx)?;
        if let Some((left, rank)) = self.passing.left.take() {
            let now = cx.now;
            self.call(cx, |py, hooks| {
                let (hook, views) = (hooks.on_dequeue.as_ref(), &hooks.views);
                views.fill_packet(py, &left, now);
                let arguments = (&views.packet, rank, &views.context);
                hook.expect("it is there").call1(py, arguments)?;
                Ok(Ok(()))
            });
        }
        Some(packet)
    }

    fn next_wake(&self) -> Wake {
        self.queue.next_wake()
    }

    fn pull(&mut self) -> Option<Packet> {
        self.queue.pull()
    }

    fn backlog(&self) -> Backlog {
        self.queue.backlog()
    }

    fn state(&self, visit: &mut dyn FnMut(u32, &'static str, StateValue)) {
        self.state
            .visit(&self.failures, &mut |name, value| visit(0, name, value));
    }
}
