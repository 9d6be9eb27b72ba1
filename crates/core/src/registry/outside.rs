//! Algorithms that are not compiled into the program.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;

use super::Algorithm;
use crate::aqm::{Aqm, FlowAqm, Overflow};
use crate::param::{ParamError, Params, Values};
use crate::sched::Discipline;
use crate::sched::fifo::{Fifo, FifoParams};
use crate::sched::fq::{Fq, FqParams};

/// An AQM that was loaded at run time: a module, or a class of another language.
pub trait Outside: Send + Sync {
    /// Starts the AQM for one discipline. `values` has all of its parameters.
    ///
    /// # Errors
    /// Returns [`ParamError::Contradiction`] when it refuses the values or cannot start.
    fn start(&self, values: &Values) -> Result<Box<dyn Started>, ParamError>;
}

/// An AQM that was started for one discipline.
pub trait Started {
    /// Creates the AQM of one queue. All AQMs of a discipline may share memory. Each then reports an
    /// equal part of it ([`Aqm::memory`]).
    fn aqm(&self) -> Box<dyn Aqm>;
}

/// A discipline that was loaded at run time.
pub trait OutsideDiscipline: Send + Sync {
    /// Builds an empty queue. `values` has all of the discipline's parameters.
    ///
    /// # Errors
    /// Returns [`ParamError::Contradiction`] when it refuses the values or cannot start.
    fn build(&self, values: &Values) -> Result<Box<dyn Discipline>, ParamError>;
}

/// Finds algorithms by words such as `wasm:my.wasm`.
pub trait Loaders {
    /// Returns the algorithm that `name` loads, or why it cannot be loaded. Returns `None` if
    /// `name` is not such a word.
    fn load(&self, name: &str) -> Option<Result<&'static Algorithm, String>>;
}

/// Loads nothing.
#[derive(Clone, Copy, Debug)]
pub struct NoLoaders;

impl Loaders for NoLoaders {
    fn load(&self, _name: &str) -> Option<Result<&'static Algorithm, String>> {
        None
    }
}

/// Builds the plain form.
pub(super) fn plain(
    module: &dyn Outside,
    values: &Values,
) -> Result<Box<dyn Discipline>, ParamError> {
    let limits = FifoParams::from_values(values)?;
    Ok(Box::new(Fifo::new(&limits, module.start(values)?.aqm())))
}

/// Builds the flow-queued form.
pub(super) fn flow_queued(
    module: &dyn Outside,
    values: &Values,
) -> Result<Box<dyn Discipline>, ParamError> {
    let params = FqParams::from_values(values)?;
    Ok(Box::new(Fq::<Box<dyn Aqm>>::new(
        &params,
        module.start(values)?,
    )))
}

impl FlowAqm for Box<dyn Aqm> {
    type Shared = Box<dyn Started>;
    const FLOW_OVERFLOW_IN_LINUX: Overflow = Overflow::Head;
    const SHARES_STATE: bool = true;

    fn for_flow(shared: &Arc<Box<dyn Started>>) -> Self {
        shared.aqm()
    }
}

#[cfg(test)]
mod tests {
    use alloc::rc::Rc;
    use alloc::string::ToString;
    use core::cell::Cell;

    use super::*;
    use crate::aqm::{QueueView, Verdict};
    use crate::event::{Cx, DropCounter, DropReason};
    use crate::packet::Packet;
    use crate::param::{Kind, ParamDecl, Value};
    use crate::registry::{Form, Spec, SpecErrorKind};
    use crate::rng::Rng;
    use crate::units::Time;

    /// Passes `every - 1` packets of all queues together and drops the next.
    struct Every;

    struct Counting {
        every: u64,
        seen: Rc<Cell<u64>>,
    }

    impl Outside for Every {
        fn start(&self, values: &Values) -> Result<Box<dyn Started>, ParamError> {
            let Some(Value::Count(every)) = values.find("every") else {
                panic!("all parameters have values");
            };
            let seen = Rc::default();
            Ok(Box::new(Counting { every, seen }))
        }
    }

    impl Started for Counting {
        fn aqm(&self) -> Box<dyn Aqm> {
            let seen = Rc::clone(&self.seen);
            Box::new(Counting { seen, ..*self })
        }
    }

    impl Aqm for Counting {
        fn on_dequeue(&mut self, _: &Packet, _: &QueueView, _: &mut Cx<'_>) -> Verdict {
            self.seen.set(self.seen.get() + 1);
            match self.seen.get() % self.every {
                0 => Verdict::Drop(DropReason::Congestion),
                _ => Verdict::Pass,
            }
        }
    }

    const fn decl(name: &'static str) -> ParamDecl {
        ParamDecl {
            name,
            kind: Kind::Count,
            default: Value::Count(2),
            range: None,
            doc: "",
            source: "",
        }
    }

    struct Fixed([&'static Algorithm; 2]);

    impl Fixed {
        fn new() -> Self {
            let entry = |name, form| {
                let params = const { &[decl("every")] };
                let entry = Algorithm::outside(name, form, "", params, &Every).unwrap();
                &*Box::leak(Box::new(entry))
            };
            Fixed([
                entry("x:every", Form::Aqm),
                entry("fq_x:every", Form::FlowQueued),
            ])
        }
    }

    impl Loaders for Fixed {
        fn load(&self, name: &str) -> Option<Result<&'static Algorithm, String>> {
            let found = self.0.iter().find(|entry| entry.name == name);
            let is_scheme = name.contains("x:");
            found
                .map(|entry| Ok(*entry))
                .or(is_scheme.then(|| Err("there is no such module".into())))
        }
    }

    /// Returns how many of 12 packets of 4 flows leave.
    fn leave(words: &str) -> usize {
        let spec = Spec::parse_with(words, &Fixed::new()).unwrap();
        assert_eq!(spec.to_string(), words);
        let mut queue = spec.build().unwrap();
        let (mut rng, mut dropped) = (Rng::from_seed(1), DropCounter::default());
        let mut cx = Cx::new(Time::ZERO, &mut rng, &mut dropped);
        for slot in 0..12 {
            let mut packet = Packet::new(slot, 100);
            packet.flow = slot % 4;
            queue.enqueue(packet, &mut cx);
        }
        core::iter::from_fn(|| queue.dequeue(&mut cx)).count()
    }

    #[test]
    fn an_aqm_from_outside_decides_alone_and_in_every_flow_queue() {
        // 12 packets, of which every second, third or fourth is dropped, counted over all queues.
        assert_eq!(leave("x:every"), 6);
        assert_eq!(leave("x:every every 3"), 8);
        assert_eq!(leave("fq_x:every every 4 flows 8"), 9);
    }

    #[test]
    fn a_wrong_word_of_an_aqm_from_outside_is_named_like_any_other() {
        let parse = |text| Spec::parse_with(text, &Fixed::new()).unwrap_err();
        let error = parse("x:every evry 3");
        assert_eq!(error.to_string(), "`x:every` has no parameter `evry`");
        assert_eq!(
            (error.span.clone(), error.nearest()),
            (8..12, ["every".into()].into())
        );
        let error = parse("x:other every 3");
        assert_eq!(
            error.kind,
            SpecErrorKind::NotLoaded("there is no such module".into())
        );
        assert_eq!(error.span, 0..7);
        assert!(Spec::parse("x:every").is_err());
    }

    #[test]
    fn a_parameter_that_is_declared_twice_or_that_the_queue_has_is_refused() {
        let twice: &[ParamDecl] = const { &[decl("a"), decl("a")] };
        let limit: &[ParamDecl] = const { &[decl("limit")] };
        for (params, name) in [(twice, "a"), (limit, "limit")] {
            let entry = Algorithm::outside("x:y", Form::Aqm, "", params, &Every);
            assert_eq!(entry.unwrap_err(), name);
        }
    }
}
