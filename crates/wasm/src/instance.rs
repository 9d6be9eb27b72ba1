//! An instance of a module, which all queues of a discipline share.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use wasmi::{Caller, Linker, Store, TrapCode, TypedFunc, ValType};

use sluice_core::aqm::{Aqm, QueueView, Verdict};
use sluice_core::event::{Cx, DropReason, StateValue};
use sluice_core::registry::Started;
use sluice_core::sched::rank::Place;
use sluice_core::{Packet, Rng, Span, Time};
use sluice_loader::{Allowance, Failures, OnError, Told, described, place};

use crate::abi::{self, PacketArgs, RankedArgs};
use crate::declare::VariableKind;
use crate::limits::{Limits, MEMORY};

/// The units of work that one call may do, about one per instruction.
pub const FUEL: u64 = 100_000;

/// The time that a unit of work of a timer takes from the allowance of the instance: four times what it
/// takes on a slow machine, so that timers do not keep the packet loop busy.
const PER_UNIT: Span = Span::from_ns(4);

/// The units that a call of a timer counts besides its own. A call that does nothing takes 100 ns.
const PER_TIMER: u64 = 100;

const I: ValType = ValType::I32;
const L: ValType = ValType::I64;
const PACKET: &[ValType] = &[I, L, I, I, I, L, L, L];
const RANKED: &[ValType] = &[I, L, I, I, I, L, L, L, L];

/// A compiled module.
pub(crate) struct Compiled {
    /// Its path, for messages.
    pub path: String,
    pub module: wasmi::Module,
    /// The length of the file.
    pub len: usize,
    /// Its variables, in the order of their numbers.
    pub variables: Vec<(&'static str, VariableKind)>,
}

/// A function that a module may export: name, parameters, results.
pub(crate) type Export = (&'static str, &'static [ValType], &'static [ValType]);

/// Exports of a scheduler.
pub(crate) const OF_SCHEDULER: &[Export] = &[
    ("create", &[], &[I]),
    ("set_param", &[I, L], &[]),
    ("variable", &[I, I], &[L]),
    ("rank", PACKET, &[L]),
    ("on_enqueue", RANKED, &[]),
    ("on_dequeue", RANKED, &[]),
];

/// Exports of an AQM.
pub(crate) const OF_AQM: &[Export] = &[
    ("create", &[], &[I]),
    ("set_param", &[I, L], &[]),
    ("variable", &[I, I], &[L]),
    ("on_enqueue", PACKET, &[I]),
    ("on_dequeue", PACKET, &[I]),
    ("on_refused", PACKET, &[]),
    ("on_empty", &[I, L], &[]),
    ("on_overflow", &[I, L, I], &[]),
    ("on_activate", &[I, L], &[]),
    ("on_deactivate", &[I, L], &[]),
    ("next_timer", &[I], &[L]),
    ("on_timer", &[I, L, L, L], &[]),
];

/// The state that the imports of a module read.
struct Host {
    /// The randomness of the call; it belongs to the caller between two calls.
    rng: Rng,
    queue: QueueView,
    /// The packet of the call.
    packet: Packet,
    /// The instant before which the packet of the call must not leave.
    hold_until: Time,
    limits: Limits,
}

struct Instance {
    store: Store<Host>,
    /// The units of work of the calls since the timer expired, without those that read variables.
    work: u64,
    draws: bool,
    create: TypedFunc<(), i32>,
    variable: Option<TypedFunc<(i32, i32), i64>>,
    on_enqueue: Option<TypedFunc<PacketArgs, i32>>,
    on_dequeue: Option<TypedFunc<PacketArgs, i32>>,
    on_refused: Option<TypedFunc<PacketArgs, ()>>,
    on_empty: Option<TypedFunc<(i32, i64), ()>>,
    on_overflow: Option<TypedFunc<(i32, i64, i32), ()>>,
    on_activate: Option<TypedFunc<(i32, i64), ()>>,
    on_deactivate: Option<TypedFunc<(i32, i64), ()>>,
    next_timer: Option<TypedFunc<i32, i64>>,
    on_timer: Option<TypedFunc<(i32, i64, i64, i64), ()>>,
    rank: Option<TypedFunc<PacketArgs, i64>>,
    on_accepted: Option<TypedFunc<RankedArgs, ()>>,
    on_left: Option<TypedFunc<RankedArgs, ()>>,
}

/// An instance, with its module and its errors.
#[derive(Clone)]
pub(crate) struct Shared(Rc<Inner>);

struct Inner {
    variables: Vec<(&'static str, VariableKind)>,
    failures: RefCell<Failures>,
    instance: RefCell<Instance>,
    /// What the timers of all queues may do.
    timers: Cell<Allowance>,
    /// The queues that share the instance.
    queues: Cell<usize>,
    /// Bytes of the instance beside the memory and the tables of the module.
    own_bytes: usize,
}

impl Shared {
    /// Starts the module with the values of its parameters.
    pub(crate) fn new(
        module: &Compiled,
        params: &[i64],
        on_error: OnError,
        consequence: &'static str,
    ) -> Result<Self, String> {
        let engine = module.module.engine();
        let host = Host {
            rng: Rng::from_seed(0),
            queue: QueueView::default(),
            packet: Packet::new(0, 0),
            hold_until: Time::ZERO,
            limits: Limits::new(),
        };
        let mut store = Store::new(engine, host);
        store.limiter(|host| &mut host.limits);
        refuel(&mut store);
        let linker = imports(engine);
        let instance = linker
            .instantiate_and_start(&mut store, &module.module)
            .map_err(|error| match error.to_string() {
                text if text.contains("memory") => format!(
                    "{text}; a module may have {MEMORY} bytes (`-z stack-size=8192` makes it smaller)"
                ),
                text => text,
            })?;
        let draws = module
            .module
            .imports()
            .any(|import| import.name() == "random");
        macro_rules! func {
            ($name:literal) => {
                instance.get_typed_func(&store, $name).ok()
            };
        }
        let set = func!("set_param");
        let mut instance = Instance {
            work: 0,
            draws,
            create: func!("create").expect("the exports are checked"),
            variable: func!("variable"),
            on_enqueue: func!("on_enqueue"),
            on_dequeue: func!("on_dequeue"),
            on_refused: func!("on_refused"),
            on_empty: func!("on_empty"),
            on_overflow: func!("on_overflow"),
            on_activate: func!("on_activate"),
            on_deactivate: func!("on_deactivate"),
            next_timer: func!("next_timer"),
            on_timer: func!("on_timer"),
            rank: func!("rank"),
            on_accepted: func!("on_enqueue"),
            on_left: func!("on_dequeue"),
            store,
        };
        let set: Option<TypedFunc<(i32, i64), ()>> = set;
        if let Some(set) = set {
            for (number, value) in (0..).zip(params) {
                instance
                    .call(&set, (number, *value))
                    .map_err(|why| format!("`set_param` {why}"))?;
            }
        }
        let failures = Failures::new(module.path.clone(), consequence, on_error);
        Ok(Shared(Rc::new(Inner {
            variables: module.variables.clone(),
            failures: RefCell::new(failures),
            instance: RefCell::new(instance),
            timers: Cell::default(),
            queues: Cell::new(0),
            own_bytes: OWN_BYTES + PER_BYTE * module.len,
        })))
    }

    /// Creates the state of a queue and returns its handle.
    pub(crate) fn create(&self) -> Result<i32, String> {
        let mut instance = self.0.instance.borrow_mut();
        let create = instance.create;
        let handle = instance.call(&create, ());
        handle.map_err(|why| format!("`create` {why}"))
    }

    /// Counts an error, which may stop the module.
    #[cold]
    fn fail(&self, at: &str, why: &str, cx: &mut Cx<'_>) {
        let mut failures = self.0.failures.borrow_mut();
        failures.fail(&format!(": {at} {}", place(cx)), why);
        for (name, value) in failures.variables() {
            cx.state(name, || value);
        }
    }

    fn is_stopped(&self) -> bool {
        self.0.failures.borrow().is_stopped()
    }

    /// Returns the bytes of the instance.
    fn bytes(&self) -> usize {
        self.0.own_bytes + self.0.instance.borrow().store.data().limits.bytes()
    }
}

/// Bytes of an instance without functions, beside its memory and tables: 4220 were measured.
const OWN_BYTES: usize = 8 << 10;
/// Bytes of an instance for each byte of its module: a function takes 105, and has 40 in the module at
/// least.
const PER_BYTE: usize = 3;

/// The fate of the packets when an AQM is stopped.
pub(crate) const CONSEQUENCE: &str = "its queues pass every packet from now on";

impl Instance {
    fn call<P, R>(&mut self, func: &TypedFunc<P, R>, args: P) -> Result<R, String>
    where
        P: wasmi::WasmParams,
        R: wasmi::WasmResults,
    {
        refuel(&mut self.store);
        let result = func.call(&mut self.store, args);
        let left = self.store.get_fuel().expect("fuel is counted");
        self.work = self.work.saturating_add(FUEL.saturating_sub(left));
        result.map_err(|error| why(&error))
    }
}

#[cold]
fn why(error: &wasmi::Error) -> String {
    match error.as_trap_code() {
        Some(TrapCode::OutOfFuel) => format!("did not end within {FUEL} units of work"),
        Some(TrapCode::GrowthOperationLimited) => {
            format!("asked for more memory than the {MEMORY} bytes that a module may have")
        }
        _ => format!("failed: {error}"),
    }
}

fn refuel(store: &mut Store<Host>) {
    store.set_fuel(FUEL).expect("fuel is counted");
}

/// Returns the functions that a module may import.
fn imports(engine: &wasmi::Engine) -> Linker<Host> {
    let mut linker = Linker::new(engine);
    macro_rules! import {
        ($name:literal, $value:expr) => {
            let value: fn(&mut Host) -> i64 = $value;
            linker
                .func_wrap(abi::IMPORTS, $name, move |mut caller: Caller<'_, Host>| {
                    value(caller.data_mut())
                })
                .expect("every import has a name of its own");
        };
    }
    import!("random", |host| host.rng.next_u64() as i64);
    import!("total_bytes", |host| host.queue.total_bytes as i64);
    import!("limit_packets", |host| clamp(host.queue.limit_packets));
    import!("limit_bytes", |host| clamp(host.queue.limit_bytes));
    import!("segments", |host| i64::from(host.packet.segments));
    import!("dscp", |host| i64::from(host.packet.dscp));
    import!("class", |host| i64::from(host.packet.class));
    import!("tag", |host| i64::from(host.packet.tag));
    import!("src", |host| i64::from(host.packet.src));
    import!("dst", |host| i64::from(host.packet.dst));
    let hold = |mut caller: Caller<'_, Host>, until: i64| {
        caller.data_mut().hold_until = Time::from_ns(until.max(0) as u64);
    };
    linker
        .func_wrap(abi::IMPORTS, "hold_until", hold)
        .expect("every import has a name of its own");
    linker
}

fn clamp(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl Started for Shared {
    fn aqm(&self) -> Box<dyn Aqm> {
        Box::new(InQueue::new(self))
    }
}

/// The algorithm of one queue: a handle.
pub(crate) struct InQueue {
    shared: Shared,
    state: i32,
    /// Whether the module has created the queue's state. If not, the first packet stops the module.
    has_state: bool,
    timer: Option<Time>,
    told: Told,
}

impl InQueue {
    pub(crate) fn new(shared: &Shared) -> InQueue {
        let state = shared.create();
        shared.0.queues.set(shared.0.queues.get() + 1);
        InQueue {
            has_state: state.is_ok(),
            state: state.unwrap_or_default(),
            timer: None,
            told: Told::default(),
            shared: shared.clone(),
        }
    }

    /// Calls `func` of the module with the packet and asks for the next timer. Stops the module if
    /// that fails.
    fn call<P, R>(
        &mut self,
        name: &str,
        packet: Option<&Packet>,
        queue: Option<&QueueView>,
        cx: &mut Cx<'_>,
        func: impl FnOnce(&Instance) -> Option<TypedFunc<P, R>>,
        args: P,
    ) -> Option<R>
    where
        P: wasmi::WasmParams,
        R: wasmi::WasmResults,
    {
        if self.shared.is_stopped() {
            return None;
        }
        let mut instance = self.shared.0.instance.borrow_mut();
        let func = func(&instance)?;
        if !self.has_state {
            drop(instance);
            self.fail(name, packet, "`create` failed for this queue", cx);
            return None;
        }
        let draws = instance.draws;
        let host = instance.store.data_mut();
        if let Some(queue) = queue {
            host.queue = *queue;
        }
        if let Some(packet) = packet {
            host.packet = Packet { ..*packet };
        }
        if draws {
            std::mem::swap(&mut host.rng, cx.rng);
        }
        let mut outcome = instance.call(&func, args);
        if let (Some(next), Ok(_)) = (instance.next_timer, &outcome) {
            match instance.call(&next, self.state) {
                Ok(at) => self.timer = u64::try_from(at).ok().map(Time::from_ns),
                Err(why) => outcome = Err(format!("`next_timer` {why}")),
            }
        }
        if draws {
            std::mem::swap(&mut instance.store.data_mut().rng, cx.rng);
        }
        drop(instance);
        let result = match outcome {
            Ok(result) => Some(result),
            Err(why) => {
                self.fail(name, packet, &why, cx);
                None
            }
        };
        if cx.wants_state() {
            self.tell(cx);
        }
        result
    }

    /// Reports the variables that have changed since the last report.
    #[cold]
    fn tell(&mut self, cx: &mut Cx<'_>) {
        let mut told = std::mem::take(&mut self.told);
        self.state(&mut |name, value| told.tell(name, value, cx));
        self.told = told;
    }

    #[cold]
    fn fail(&mut self, name: &str, packet: Option<&Packet>, why: &str, cx: &mut Cx<'_>) {
        self.timer = None;
        let at = match packet {
            Some(packet) => format!("`{name}` of {}", described(packet, cx)),
            None => format!("`{name}`"),
        };
        self.shared.fail(&at, why, cx);
        for (name, value) in self.shared.0.failures.borrow().variables() {
            self.told.note(name, value);
        }
    }

    /// Checks the timer after a call of `on_timer`.
    fn check_timer(&mut self, at: Time, cx: &mut Cx<'_>) {
        if at <= cx.now {
            let why = "the next timer is not later than now";
            self.fail("next_timer", None, why, cx);
            return;
        }
        let work = self.shared.0.instance.borrow().work;
        let mut timers = self.shared.0.timers.get();
        let time = Span::from_ns(PER_UNIT.as_ns().saturating_mul(work));
        let is_left = timers.take(time, cx.now);
        self.shared.0.timers.set(timers);
        if !is_left {
            let later = at.since(cx.now).as_ns();
            let most = 1_000 / PER_UNIT.as_ns();
            let why = format!(
                "timers expire too often: the next one is {later} ns later, and together they may do \
                 {most} units of work per us, of which each call takes {PER_TIMER} and its own; times \
                 are in nanoseconds"
            );
            self.fail("next_timer", None, &why, cx);
        }
    }

    fn verdict(
        &mut self,
        name: &str,
        packet: &Packet,
        queue: &QueueView,
        cx: &mut Cx<'_>,
        func: impl FnOnce(&Instance) -> Option<TypedFunc<PacketArgs, i32>>,
    ) -> Verdict {
        let args = args(self.state, packet, queue, cx.now);
        let Some(number) = self.call(name, Some(packet), Some(queue), cx, func, args) else {
            return Verdict::Pass;
        };
        match number {
            abi::PASS => Verdict::Pass,
            abi::MARK if packet.ecn.is_capable() => Verdict::Mark,
            abi::DROP => Verdict::Drop(DropReason::Congestion),
            abi::MARK => {
                let why = "returned MARK (1) for a packet that is not ECN-capable";
                self.fail(name, Some(packet), why, cx);
                Verdict::Pass
            }
            other => {
                let why = format!("returned {other}, not PASS (0), MARK (1) or DROP (2)");
                self.fail(name, Some(packet), &why, cx);
                Verdict::Pass
            }
        }
    }
}

/// A call that informs a scheduler about a packet.
#[derive(Clone, Copy)]
pub(crate) enum Note {
    /// The packet was accepted.
    Accepted,
    /// The packet leaves.
    Left,
}

impl InQueue {
    /// Asks for the place of a packet; `None` after an error.
    pub(crate) fn place(
        &mut self,
        packet: &Packet,
        queue: &QueueView,
        cx: &mut Cx<'_>,
    ) -> Option<Place> {
        let args = args(self.state, packet, queue, cx.now);
        self.shared
            .0
            .instance
            .borrow_mut()
            .store
            .data_mut()
            .hold_until = Time::ZERO;
        let rank = self.call("rank", Some(packet), Some(queue), cx, |i| i.rank, args)?;
        Some(Place {
            rank: rank as u64,
            eligible: self.shared.0.instance.borrow().store.data().hold_until,
        })
    }

    /// Reports a packet, if the module wants to know.
    pub(crate) fn note(
        &mut self,
        note: Note,
        packet: &Packet,
        rank: u64,
        queue: &QueueView,
        cx: &mut Cx<'_>,
    ) {
        let (state, now, length, ecn, flow, sojourn, packets, bytes) =
            args(self.state, packet, queue, cx.now);
        let args = (
            state,
            now,
            length,
            ecn,
            flow,
            sojourn,
            packets,
            bytes,
            rank as i64,
        );
        let name = match note {
            Note::Accepted => "on_enqueue",
            Note::Left => "on_dequeue",
        };
        let func = |i: &Instance| match note {
            Note::Accepted => i.on_accepted,
            Note::Left => i.on_left,
        };
        self.call(name, Some(packet), Some(queue), cx, func, args);
    }
}

fn args(state: i32, packet: &Packet, queue: &QueueView, now: Time) -> PacketArgs {
    (
        state,
        clamp(now.as_ns()),
        packet.len as i32,
        packet.ecn as i32,
        packet.flow as i32,
        clamp(packet.sojourn(now).as_ns()),
        clamp(queue.packets),
        clamp(queue.bytes),
    )
}

impl Drop for InQueue {
    fn drop(&mut self) {
        let queues = &self.shared.0.queues;
        queues.set(queues.get() - 1);
    }
}

impl Aqm for InQueue {
    fn on_enqueue(&mut self, packet: &Packet, queue: &QueueView, cx: &mut Cx<'_>) -> Verdict {
        self.verdict("on_enqueue", packet, queue, cx, |i| i.on_enqueue)
    }

    fn on_dequeue(&mut self, packet: &Packet, queue: &QueueView, cx: &mut Cx<'_>) -> Verdict {
        self.verdict("on_dequeue", packet, queue, cx, |i| i.on_dequeue)
    }

    fn on_refused(&mut self, packet: &Packet, queue: &QueueView, cx: &mut Cx<'_>) {
        let args = args(self.state, packet, queue, cx.now);
        let (packet, queue) = (Some(packet), Some(queue));
        self.call("on_refused", packet, queue, cx, |i| i.on_refused, args);
    }

    fn on_empty(&mut self, cx: &mut Cx<'_>) {
        let args = (self.state, clamp(cx.now.as_ns()));
        self.call("on_empty", None, None, cx, |i| i.on_empty, args);
    }

    fn on_overflow(&mut self, packets: u32, cx: &mut Cx<'_>) {
        let args = (self.state, clamp(cx.now.as_ns()), packets as i32);
        self.call("on_overflow", None, None, cx, |i| i.on_overflow, args);
    }

    fn on_activate(&mut self, cx: &mut Cx<'_>) {
        let args = (self.state, clamp(cx.now.as_ns()));
        self.call("on_activate", None, None, cx, |i| i.on_activate, args);
    }

    fn on_deactivate(&mut self, cx: &mut Cx<'_>) {
        let args = (self.state, clamp(cx.now.as_ns()));
        self.call("on_deactivate", None, None, cx, |i| i.on_deactivate, args);
    }

    fn next_timer(&self) -> Option<Time> {
        self.timer
    }

    fn on_timer(&mut self, queue: &QueueView, cx: &mut Cx<'_>) {
        let before = self.timer.take();
        let (now, packets, bytes) = (cx.now.as_ns(), queue.packets, queue.bytes);
        let args = (self.state, clamp(now), clamp(packets), clamp(bytes));
        self.shared.0.instance.borrow_mut().work = PER_TIMER;
        self.call("on_timer", None, Some(queue), cx, |i| i.on_timer, args);
        if let Some(at) = self.timer {
            self.check_timer(at, cx);
        }
        debug_assert!(before.is_none_or(|at| at <= cx.now), "no timer fires early");
    }

    /// Returns an equal part of the instance's memory for each queue.
    fn memory(&self) -> usize {
        self.shared.bytes().div_ceil(self.shared.0.queues.get())
    }

    fn state(&self, visit: &mut dyn FnMut(&'static str, StateValue)) {
        let failures = self.shared.0.failures.borrow();
        if failures.count() > 0 {
            for (name, value) in failures.variables() {
                visit(name, value);
            }
        }
        if failures.is_stopped() || !self.has_state {
            return;
        }
        drop(failures);
        let mut instance = self.shared.0.instance.borrow_mut();
        let Some(variable) = instance.variable else {
            return;
        };
        let work = instance.work;
        for (number, (name, kind)) in (0..).zip(&self.shared.0.variables) {
            if let Ok(value) = instance.call(&variable, (self.state, number)) {
                visit(name, kind.value(value));
            }
        }
        // A listener changes nothing.
        instance.work = work;
    }
}
