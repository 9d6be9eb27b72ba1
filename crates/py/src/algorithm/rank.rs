//! Rank functions: subclasses of `sluice.Rank`, on the push-in queue of `pifo` and `pieo`.

use pyo3::prelude::*;

use super::class::{Account, Class, INSTANCE_BYTES, Method};
use super::views::Views;
use sluice_core::event::{Backlog, StateValue};
use sluice_core::param::{ParamError, Values};
use sluice_core::registry::OutsideDiscipline;
use sluice_core::sched::rank::Place;
use sluice_core::{Cx, Discipline, Packet, Time};
use sluice_loader::{CONSEQUENCE_FOR_RANKS, Ranked, Ranks, limit_of};

/// A class that defines a rank function.
pub(super) struct RankClass(pub Class);

impl OutsideDiscipline for RankClass {
    fn build(&self, values: &Values) -> Result<Box<dyn Discipline>, ParamError> {
        let factory = self.0.factory(values)?;
        let made = factory.begin(CONSEQUENCE_FOR_RANKS, |py, of| {
            Ok(Hooks {
                rank: of.own(py, "rank")?.expect("the class defines it"),
                on_enqueue: of.own(py, "on_enqueue")?,
                on_dequeue: of.own(py, "on_dequeue")?,
                views: Views::new(py)?,
            })
        });
        let (hooks, account) = made.map_err(ParamError::Contradiction)?;
        Ok(Box::new(Ranked::new(
            limit_of(values),
            InQueue { hooks, account },
        )))
    }
}

struct Hooks {
    rank: Method,
    on_enqueue: Option<Method>,
    on_dequeue: Option<Method>,
    views: Views,
}

/// The ranks of one queue.
struct InQueue {
    hooks: Hooks,
    account: Account,
}

impl InQueue {
    /// Calls a hook, if the class has it, with a packet and its rank.
    fn note(
        &mut self,
        hook: impl FnOnce(&Hooks) -> Option<&Method>,
        packet: &Packet,
        rank: u64,
        cx: &mut Cx<'_>,
    ) {
        let views = &self.hooks.views;
        let Some(hook) = hook(&self.hooks) else {
            return;
        };
        let now = cx.now;
        self.account.call(cx, hook.name, &views.context, |py| {
            views.fill_packet(py, packet, now);
            let arguments = (&views.packet, rank, &views.context);
            hook.function.call1(py, arguments)?;
            Ok(Ok(()))
        });
    }
}

impl Ranks for InQueue {
    fn place(&mut self, packet: &Packet, _queue: Backlog, cx: &mut Cx<'_>) -> Option<Place> {
        let (rank, views, now) = (&self.hooks.rank, &self.hooks.views, cx.now);
        self.account.call(cx, rank.name, &views.context, |py| {
            views.fill_packet(py, packet, now);
            let arguments = (&views.packet, &views.context);
            let returned = rank.function.call1(py, arguments)?;
            Ok(place_of(returned.bind(py)))
        })
    }

    fn accepted(&mut self, packet: &Packet, rank: u64, _queue: Backlog, cx: &mut Cx<'_>) {
        self.note(|hooks| hooks.on_enqueue.as_ref(), packet, rank, cx);
    }

    fn left(&mut self, packet: &Packet, rank: u64, _queue: Backlog, cx: &mut Cx<'_>) {
        self.note(|hooks| hooks.on_dequeue.as_ref(), packet, rank, cx);
    }

    fn memory(&self) -> usize {
        INSTANCE_BYTES
    }

    fn state(&self, visit: &mut dyn FnMut(&'static str, StateValue)) {
        self.account.visit(visit);
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
