//! The handling of errors in the code of an algorithm while packets pass.

use std::sync::atomic::{AtomicU64, Ordering};

use sluice_core::event::StateValue;
use sluice_core::param::{Kind, ParamDecl, Value, Values};

use crate::ending::{end_run, note_stopped, report_once};

/// The reaction to an error of an algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// The algorithm is stopped: its queue passes every packet from then on.
    #[default]
    Stop,
    /// The packet in question passes, and the algorithm continues.
    Pass,
    /// The run ends.
    End,
}

/// The parameter that every AQM from a file has.
pub(crate) const OF_AQM: ParamDecl = ParamDecl {
    name: NAME,
    kind: Kind::Choice(&["stop", "pass", "end"]),
    default: Value::Choice("stop"),
    range: None,
    doc: "after an error in the AQM: stop it, so that its queue passes every packet; let the packet in question pass and continue; or end the run",
    source: "Sluice: a router continues",
};

/// The parameter that every discipline from a file has.
pub(crate) const OF_DISCIPLINE: ParamDecl = ParamDecl {
    name: NAME,
    kind: Kind::Choice(&["stop", "end"]),
    default: Value::Choice("stop"),
    range: None,
    doc: "after an error in the discipline: stop it, so that its packets leave in the order of their arrival; or end the run",
    source: "Sluice: a router continues",
};

const NAME: &str = "on_error";

impl OnError {
    /// Returns the reaction that `values` select.
    pub fn of(values: &Values) -> OnError {
        match values.find(NAME) {
            Some(Value::Choice("pass")) => OnError::Pass,
            Some(Value::Choice("end")) => OnError::End,
            _ => OnError::Stop,
        }
    }
}

/// The errors of one algorithm, and the reaction to them.
#[derive(Clone, Debug)]
pub struct Failures {
    name: String,
    /// The decision: `its queue passes every packet from now on`.
    consequence: &'static str,
    on_error: OnError,
    count: u64,
    is_stopped: bool,
}

impl Failures {
    /// Creates the account of the algorithm `name`. `consequence` describes the fate of the packets
    /// once it is stopped.
    pub fn new(name: String, consequence: &'static str, on_error: OnError) -> Failures {
        Failures {
            name,
            consequence,
            on_error,
            count: 0,
            is_stopped: false,
        }
    }

    /// Counts an error at the place `at`, and reports it unless it is a repetition.
    #[cold]
    pub fn fail(&mut self, at: &str, why: &str) {
        self.count += 1;
        ERRORS.fetch_add(1, Ordering::Relaxed);
        let name = &self.name;
        let (verb, consequence) = match self.on_error {
            OnError::Pass if self.count > 1 => return,
            OnError::Pass => (
                "failed",
                "its errors are counted, and the packets pass (on_error pass)",
            ),
            OnError::Stop => ("is stopped", self.consequence),
            OnError::End => ("failed", "the run ends (on_error end)"),
        };
        if self.on_error != OnError::Pass {
            self.is_stopped = true;
            STOPPED.fetch_add(1, Ordering::Relaxed);
        }
        if self.on_error == OnError::End && end_run(&format!("`{name}` failed{at}: {why}")) {
            return;
        }
        let message = format!("`{name}` {verb}{at}, and {consequence}: {why}");
        if self.is_stopped {
            note_stopped(name, &message);
        }
        report_once(&message);
    }

    /// Returns whether the algorithm has been stopped.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// Returns the number of errors.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the variables that an algorithm with errors has beside its own.
    pub fn variables(&self) -> [(&'static str, StateValue); 2] {
        [
            ("errors", StateValue::Count(self.count)),
            ("stopped", StateValue::Flag(self.is_stopped)),
        ]
    }
}

/// Returns how many algorithms were stopped by an error since the program started.
pub fn stopped() -> u64 {
    STOPPED.load(Ordering::Relaxed)
}

/// Returns how many errors algorithms made since the program started.
pub fn errors() -> u64 {
    ERRORS.load(Ordering::Relaxed)
}

static STOPPED: AtomicU64 = AtomicU64::new(0);
static ERRORS: AtomicU64 = AtomicU64::new(0);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ending;

    fn after_two(on_error: OnError) -> (u64, bool, Option<String>) {
        let mut failures = Failures::new("x".into(), "its packets pass", on_error);
        let ending = Ending::new();
        ending.within(|| {
            failures.fail(" at 1 ns", "first");
            failures.fail(" at 2 ns", "second");
        });
        let why = ending.why().map(str::to_owned);
        (failures.count(), failures.is_stopped(), why)
    }

    #[test]
    fn an_error_stops_passes_or_ends() {
        assert_eq!(after_two(OnError::Stop), (2, true, None));
        assert_eq!(after_two(OnError::Pass), (2, false, None));
        let why = "`x` failed at 1 ns: first".to_owned();
        assert_eq!(after_two(OnError::End), (2, true, Some(why)));
    }

    #[test]
    fn a_run_knows_the_first_error_of_each_algorithm_that_was_stopped_in_it() {
        let fail = |name: &str, on_error, why| {
            Failures::new(name.into(), "its packets pass", on_error).fail(" at 1 ns", why);
        };
        let ending = Ending::new();
        ending.within(|| {
            fail("b", OnError::Stop, "first");
            fail("b", OnError::Stop, "second, of another queue");
            fail("a", OnError::Stop, "third");
            fail("c", OnError::Pass, "asked to pass");
        });
        fail("d", OnError::Stop, "outside of the run");
        assert_eq!(
            ending.stopped(),
            [
                "`a` is stopped at 1 ns, and its packets pass: third",
                "`b` is stopped at 1 ns, and its packets pass: first",
            ]
        );
    }

    #[test]
    fn the_words_of_the_parameter_are_those_that_are_read() {
        for (decl, words) in [(OF_AQM, 3), (OF_DISCIPLINE, 2)] {
            let Kind::Choice(all) = decl.kind else {
                panic!("a choice");
            };
            assert_eq!(all.len(), words);
            let of = |word: &'static str| {
                let mut values = Values::new();
                values.set(decl.name, Value::Choice(word));
                OnError::of(&values)
            };
            assert_eq!(of("stop"), OnError::Stop);
            assert_eq!(of(all[words - 1]), OnError::End);
            assert_eq!(of("pass"), OnError::Pass);
        }
    }
}
