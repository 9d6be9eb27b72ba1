//! AQMs: subclasses of `sluice.Aqm`.

use std::cell::Cell;
use std::rc::Rc;

use pyo3::prelude::*;
use pyo3::types::PyBool;

use super::class::{
    Account, Class, Factory, INSTANCE_BYTES, Instance, Method, PER_CALL, instant_of, shown,
};
use super::views::Views;
use sluice_core::aqm::{Aqm, QueueView, Verdict};
use sluice_core::event::StateValue;
use sluice_core::param::{ParamError, Values};
use sluice_core::registry::{Outside, Started};
use sluice_core::{Cx, DropReason, Packet, Time};
use sluice_loader::{Allowance, described, in_hook};

/// A class that is an AQM.
pub(super) struct AqmClass(pub Class);

impl Outside for AqmClass {
    fn start(&self, values: &Values) -> Result<Box<dyn Started>, ParamError> {
        Ok(Box::new(Instances {
            factory: self.0.factory(values)?,
            timers: Rc::default(),
        }))
    }
}

struct Instances {
    factory: Factory,
    /// What the timers of all queues may do.
    timers: Rc<Cell<Allowance>>,
}

impl Started for Instances {
    fn aqm(&self) -> Box<dyn Aqm> {
        let made = self.factory.begin(CONSEQUENCE, |py, of| {
            let hooks = Hooks::new(py, of, self.factory.name)?;
            let timer = hooks.timer(py)?;
            Ok(timer.map(|timer| (hooks, timer)))
        });
        let made = made.and_then(|(made, account)| Ok((made?, account)));
        Box::new(match made {
            Ok(((hooks, timer), account)) => InQueue {
                hooks: Some(hooks),
                unreported: None,
                account,
                timer,
                timers: Rc::clone(&self.timers),
            },
            Err(why) => InQueue {
                hooks: None,
                unreported: Some(why),
                account: self.factory.account(CONSEQUENCE, None),
                timer: None,
                timers: Rc::clone(&self.timers),
            },
        })
    }
}

/// The fate of the packets after an AQM was stopped, for messages.
const CONSEQUENCE: &str = "its queue passes every packet from now on";

/// The methods of an instance, and the objects that they receive.
struct Hooks {
    /// The name of the class.
    of: &'static str,
    on_enqueue: Option<Method>,
    on_dequeue: Option<Method>,
    on_refused: Option<Method>,
    on_empty: Option<Method>,
    on_overflow: Option<Method>,
    on_activate: Option<Method>,
    on_deactivate: Option<Method>,
    next_timer: Option<Method>,
    on_timer: Option<Method>,
    views: Views,
}

impl Hooks {
    fn new(py: Python<'_>, of: &Instance, name: &'static str) -> PyResult<Hooks> {
        Ok(Hooks {
            of: name,
            on_enqueue: of.own(py, "on_enqueue")?,
            on_dequeue: of.own(py, "on_dequeue")?,
            on_refused: of.own(py, "on_refused")?,
            on_empty: of.own(py, "on_empty")?,
            on_overflow: of.own(py, "on_overflow")?,
            on_activate: of.own(py, "on_activate")?,
            on_deactivate: of.own(py, "on_deactivate")?,
            next_timer: of.own(py, "next_timer")?,
            on_timer: of.own(py, "on_timer")?,
            views: Views::new(py)?,
        })
    }

    /// Calls the method that returns the next timer.
    fn timer(&self, py: Python<'_>) -> PyResult<Result<Option<Time>, String>> {
        let Some(next) = &self.next_timer else {
            return Ok(Ok(None));
        };
        let returned = in_hook(self.of, next.name, || next.function.call0(py))?;
        Ok(instant_of(next.name, returned.bind(py)))
    }
}

/// The values that a hook about a packet may return.
const VERDICTS: &str = "sluice.PASS, sluice.MARK and sluice.DROP";

/// Calls a hook whose only argument is the context.
fn with_context(py: Python<'_>, hooks: &Hooks, hook: &Method) -> PyResult<()> {
    let arguments = (&hooks.views.context,);
    hook.function.call1(py, arguments).map(drop)
}

/// The AQM of one queue.
struct InQueue {
    /// `None` if no instance could be created.
    hooks: Option<Hooks>,
    /// Why no instance could be created, until the first packet.
    unreported: Option<String>,
    account: Account,
    timer: Option<Time>,
    /// What the timers of all queues may do.
    timers: Rc<Cell<Allowance>>,
}

impl InQueue {
    /// Calls a hook, if the class defines it, and then asks the instance for its next timer.
    fn call<R>(
        &mut self,
        cx: &mut Cx<'_>,
        hook: impl FnOnce(&Hooks) -> Option<&Method>,
        call: impl FnOnce(Python<'_>, &Hooks, &Method) -> PyResult<R>,
    ) -> Option<R> {
        if let Some(why) = self.unreported.take() {
            self.account.fail_at_start(&why, cx);
        }
        let hooks = self.hooks.as_ref()?;
        let hook = hook(hooks)?;
        let context = &hooks.views.context;
        let called = self.account.call(cx, hook.name, context, |py| {
            let result = call(py, hooks, hook)?;
            Ok(hooks.timer(py)?.map(|timer| (result, timer)))
        });
        self.timer = called.as_ref().and_then(|(_, timer)| *timer);
        called.map(|(result, _)| result)
    }

    #[cold]
    fn fail(&mut self, why: &str, cx: &mut Cx<'_>) {
        self.timer = None;
        self.account.fail(why, cx);
    }

    /// Takes a call of the timer from what all queues may do; returns whether there was so much.
    fn may_expire(&self, now: Time) -> bool {
        let mut timers = self.timers.get();
        let is_left = timers.take(PER_CALL, now);
        self.timers.set(timers);
        is_left
    }

    /// Asks the hook `name`, which `hook` finds, for a verdict.
    fn verdict(
        &mut self,
        name: &str,
        packet: &Packet,
        queue: &QueueView,
        cx: &mut Cx<'_>,
        hook: impl FnOnce(&Hooks) -> Option<&Method>,
    ) -> Verdict {
        let now = cx.now;
        let returned = self.call(cx, hook, |py, hooks, hook| {
            let views = &hooks.views;
            views.fill_packet(py, packet, now);
            views.fill_queue(py, queue);
            let arguments = (&views.packet, &views.queue, &views.context);
            let verdict = hook.function.call1(py, arguments)?;
            let verdict = verdict.bind(py);
            // True and False are numbers, too.
            if verdict.is_instance_of::<PyBool>() {
                return Ok(Err(format!(
                    "{}, a bool (True would be MARK)",
                    shown(verdict)
                )));
            }
            Ok(verdict.extract::<i64>().map_err(|_| shown(verdict)))
        });
        let capable = packet.ecn.is_capable();
        let what = match returned {
            None | Some(Ok(0)) => return Verdict::Pass,
            Some(Ok(1)) if capable => return Verdict::Mark,
            Some(Ok(2)) => return Verdict::Drop(DropReason::Congestion),
            Some(Ok(1)) => {
                "MARK, but the packet is not ECN-capable: test `packet.ecn_capable`".to_owned()
            }
            Some(Ok(other)) => format!("{other}, which is none of {VERDICTS}"),
            Some(Err(other)) => format!("{other}, which is none of {VERDICTS}"),
        };
        let why = format!(
            "in `{name}`, for {}, it returned {what}",
            described(packet, cx)
        );
        self.fail(&why, cx);
        Verdict::Pass
    }
}

impl Aqm for InQueue {
    fn on_enqueue(&mut self, packet: &Packet, queue: &QueueView, cx: &mut Cx<'_>) -> Verdict {
        self.verdict("on_enqueue", packet, queue, cx, |hooks| {
            hooks.on_enqueue.as_ref()
        })
    }

    fn on_dequeue(&mut self, packet: &Packet, queue: &QueueView, cx: &mut Cx<'_>) -> Verdict {
        self.verdict("on_dequeue", packet, queue, cx, |hooks| {
            hooks.on_dequeue.as_ref()
        })
    }

    fn on_refused(&mut self, packet: &Packet, queue: &QueueView, cx: &mut Cx<'_>) {
        let now = cx.now;
        self.call(
            cx,
            |hooks| hooks.on_refused.as_ref(),
            |py, hooks, hook| {
                let views = &hooks.views;
                views.fill_packet(py, packet, now);
                views.fill_queue(py, queue);
                let arguments = (&views.packet, &views.queue, &views.context);
                hook.function.call1(py, arguments).map(drop)
            },
        );
    }

    fn on_empty(&mut self, cx: &mut Cx<'_>) {
        self.call(cx, |hooks| hooks.on_empty.as_ref(), with_context);
    }

    fn on_overflow(&mut self, packets: u32, cx: &mut Cx<'_>) {
        let hook = |py: Python<'_>, hooks: &Hooks, hook: &Method| {
            let arguments = (packets, &hooks.views.context);
            hook.function.call1(py, arguments).map(drop)
        };
        self.call(cx, |hooks| hooks.on_overflow.as_ref(), hook);
    }

    fn on_activate(&mut self, cx: &mut Cx<'_>) {
        self.call(cx, |hooks| hooks.on_activate.as_ref(), with_context);
    }

    fn on_deactivate(&mut self, cx: &mut Cx<'_>) {
        self.call(cx, |hooks| hooks.on_deactivate.as_ref(), with_context);
    }

    fn next_timer(&self) -> Option<Time> {
        self.timer
    }

    fn on_timer(&mut self, queue: &QueueView, cx: &mut Cx<'_>) {
        self.timer = None;
        let hook = |py: Python<'_>, hooks: &Hooks, hook: &Method| {
            hooks.views.fill_queue(py, queue);
            let arguments = (&hooks.views.queue, &hooks.views.context);
            hook.function.call1(py, arguments).map(drop)
        };
        self.call(cx, |hooks| hooks.on_timer.as_ref(), hook);
        let Some(next) = self.timer else { return };
        let (at, now, later) = (next.as_ns(), cx.now.as_ns(), next.since(cx.now).as_ns());
        if next <= cx.now {
            let why = format!("`next_timer` returned {at}, which is not later than now, {now}");
            self.fail(&why, cx);
        } else if !self.may_expire(cx.now) {
            let most = PER_CALL.as_ns() / 1_000;
            let why = format!(
                "`next_timer` returned {at}, {later} ns later than now, and timers have expired too \
                 often: on average, {most} us must pass between two calls of `on_timer`, those of all \
                 flow queues counted; times are in nanoseconds"
            );
            self.fail(&why, cx);
        }
    }

    fn memory(&self) -> usize {
        INSTANCE_BYTES
    }

    fn state(&self, visit: &mut dyn FnMut(&'static str, StateValue)) {
        self.account.visit(visit);
    }
}
