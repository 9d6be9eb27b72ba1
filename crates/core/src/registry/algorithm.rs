//! The descriptor of an algorithm: its name, parameters and constructors.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use super::outside::{self, Outside, OutsideDiscipline};
use crate::aqm::{Aqm, AqmAlgorithm};
use crate::param::{NoParams, ParamDecl, ParamError, Params, Value, Values, Warnings};
use crate::sched::fifo::{Fifo, FifoParams};
use crate::sched::fq::{Fq, FqParams};
use crate::sched::{Discipline, DisciplineAlgorithm};
use crate::settings::Setting;

/// The form of an algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// An AQM on a single FIFO queue.
    Aqm,
    /// An AQM in each queue of a flow-queueing discipline.
    FlowQueued,
    /// A discipline without an AQM of the user's choice.
    Discipline,
}

impl Form {
    /// Returns the word used in lists.
    pub const fn name(self) -> &'static str {
        match self {
            Form::Aqm => "aqm",
            Form::FlowQueued => "flow-queued aqm",
            Form::Discipline => "discipline",
        }
    }
}

type Build<T> = fn(&Values) -> Result<Box<T>, ParamError>;

/// A registered algorithm.
pub struct Algorithm {
    /// Name in every grammar.
    pub name: &'static str,
    /// The form of its queue.
    pub form: Form,
    /// One line of documentation.
    pub doc: &'static str,
    groups: [&'static [ParamDecl]; 2],
    presets: [fn(&Values) -> Values; 2],
    pub(super) warnings: [fn(&Values) -> Warnings; 2],
    maker: Maker,
}

/// Builds the parts of an algorithm.
enum Maker {
    /// Compiled into the program.
    BuiltIn {
        discipline: Build<dyn Discipline>,
        aqm: Option<Build<dyn Aqm>>,
    },
    /// An AQM that was loaded at run time.
    Outside(&'static dyn Outside),
    /// A discipline that was loaded at run time.
    OutsideDiscipline(&'static dyn OutsideDiscipline),
}

impl PartialEq for Algorithm {
    /// Returns whether both are the same entry. Two versions of a module may have one name.
    fn eq(&self, other: &Self) -> bool {
        core::ptr::eq(self, other)
    }
}

impl Eq for Algorithm {}

impl fmt::Debug for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Algorithm {
    /// Returns the parameters, those of the AQM first. A word that both layers declare (`variant`)
    /// appears once and sets both.
    pub fn params(&self) -> impl Iterator<Item = &'static ParamDecl> + '_ {
        let [first, second] = self.groups;
        first.iter().chain(
            second
                .iter()
                .filter(|d| first.iter().all(|f| f.name != d.name)),
        )
    }

    /// Returns what `word` sets: the value of a parameter, or a flag by its name or by `no` before it.
    pub fn setting(&self, word: &str) -> Option<Setting> {
        Setting::of(word, |name| self.params().find(|decl| decl.name == name))
    }

    /// Returns the value of `decl` if it is not given. Flow-queued forms mark by default (RFC 8290
    /// section 5.2.6: ECN on by default); plain forms drop.
    pub fn default_of(&self, decl: &ParamDecl) -> Value {
        if self.marks_by_default(decl) {
            Value::Flag(true)
        } else {
            decl.default
        }
    }

    /// Returns the source of the default of `decl`.
    pub fn source_of(&self, decl: &ParamDecl) -> &'static str {
        if self.marks_by_default(decl) {
            "RFC 8290 section 5.2.6: ECN is on by default"
        } else {
            decl.source
        }
    }

    fn marks_by_default(&self, decl: &ParamDecl) -> bool {
        self.form == Form::FlowQueued && decl.name == "ecn"
    }

    /// Returns the value of `decl` when `values` are set: its own setting, else that of a preset,
    /// else the default of this form.
    pub fn value_of(&self, decl: &ParamDecl, values: &Values) -> Value {
        values
            .find(decl.name)
            .or_else(|| {
                self.presets
                    .iter()
                    .find_map(|presets| presets(values).find(decl.name))
            })
            .unwrap_or_else(|| self.default_of(decl))
    }

    /// Returns the values of all parameters when `values` are set.
    pub(super) fn complete(&self, values: &Values) -> Values {
        let mut all = Values::new();
        for decl in self.params() {
            all.set(decl.name, self.value_of(decl, values));
        }
        all
    }

    /// Builds the discipline.
    ///
    /// # Errors
    /// Returns [`ParamError::Contradiction`] when values that are each in range exclude one
    /// another.
    pub fn build(&self, values: &Values) -> Result<Box<dyn Discipline>, ParamError> {
        let values = self.complete(values);
        match self.maker {
            Maker::BuiltIn { discipline, .. } => discipline(&values),
            Maker::Outside(module) if self.form == Form::FlowQueued => {
                outside::flow_queued(module, &values)
            }
            Maker::Outside(module) => outside::plain(module, &values),
            Maker::OutsideDiscipline(module) => module.build(&values),
        }
    }

    /// Builds the AQM alone, for one queue of a scheduler with several. Returns `None` for
    /// disciplines.
    ///
    /// # Errors
    /// As [`Algorithm::build`].
    pub fn build_aqm(&self, values: &Values) -> Option<Result<Box<dyn Aqm>, ParamError>> {
        let values = self.complete(values);
        match self.maker {
            Maker::BuiltIn { aqm, .. } => aqm.map(|build| build(&values)),
            Maker::OutsideDiscipline(_) => None,
            Maker::Outside(_) if self.form != Form::Aqm => None,
            Maker::Outside(module) => Some(module.start(&values).map(|started| started.aqm())),
        }
    }

    /// Returns the entry of an AQM that was loaded at run time, in its plain form or, under a name
    /// that begins with `fq_`, in its flow-queued form.
    ///
    /// Names and declarations live as long as the program, like those of the algorithms that are
    /// compiled into it: values, errors and recordings refer to them. A loader leaks them once for
    /// each version of a module.
    ///
    /// # Errors
    /// Returns the name of a parameter that is declared twice, or that the queue itself has.
    pub fn outside(
        name: &'static str,
        form: Form,
        doc: &'static str,
        params: &'static [ParamDecl],
        module: &'static dyn Outside,
    ) -> Result<Algorithm, &'static str> {
        check_names(params, FifoParams::DECLS.iter().chain(FqParams::DECLS))?;
        let is_fq = form == Form::FlowQueued;
        Ok(Algorithm {
            name,
            form,
            doc,
            groups: [
                params,
                if is_fq {
                    FqParams::DECLS
                } else {
                    FifoParams::DECLS
                },
            ],
            presets: [NoParams::presets; 2],
            warnings: [
                warnings::<NoParams>,
                if is_fq {
                    warnings::<FqParams>
                } else {
                    warnings::<FifoParams>
                },
            ],
            maker: Maker::Outside(module),
        })
    }

    /// Returns the entry of a discipline that was loaded at run time. Names and declarations live
    /// as long as the program, as those of [`Algorithm::outside`].
    ///
    /// # Errors
    /// Returns the name of a parameter that is declared twice.
    pub fn outside_discipline(
        name: &'static str,
        doc: &'static str,
        params: &'static [ParamDecl],
        module: &'static dyn OutsideDiscipline,
    ) -> Result<Algorithm, &'static str> {
        check_names(params, core::iter::empty())?;
        Ok(Algorithm {
            name,
            form: Form::Discipline,
            doc,
            groups: [params, &[]],
            presets: [NoParams::presets; 2],
            warnings: [warnings::<NoParams>; 2],
            maker: Maker::OutsideDiscipline(module),
        })
    }
}

/// Returns the name of a parameter that is declared twice, or is among `taken`.
fn check_names<'a>(
    params: &'a [ParamDecl],
    taken: impl Iterator<Item = &'a ParamDecl> + Clone,
) -> Result<(), &'static str> {
    for (at, decl) in params.iter().enumerate() {
        let mut others = params[..at].iter().chain(taken.clone());
        if others.any(|other| other.name == decl.name) {
            return Err(decl.name);
        }
    }
    Ok(())
}

/// Returns the registry entry of an AQM's plain form.
pub(super) const fn plain<A: AqmAlgorithm>(name: &'static str) -> Algorithm {
    Algorithm {
        name,
        form: Form::Aqm,
        doc: A::DOC,
        groups: [A::Params::DECLS, FifoParams::DECLS],
        presets: [A::Params::presets, FifoParams::presets],
        warnings: [warnings::<A::Params>, warnings::<FifoParams>],
        maker: Maker::BuiltIn {
            discipline: |values| {
                let aqm = A::new(&A::Params::from_values(values)?);
                Ok(Box::new(Fifo::new(&FifoParams::from_values(values)?, aqm)))
            },
            aqm: Some(|values| Ok(Box::new(A::new(&A::Params::from_values(values)?)))),
        },
    }
}

/// Returns the registry entry of an AQM's flow-queued form.
pub(super) const fn flow_queued<A: AqmAlgorithm>(name: &'static str) -> Algorithm {
    Algorithm {
        name,
        form: Form::FlowQueued,
        doc: A::DOC,
        groups: [A::Params::DECLS, FqParams::DECLS],
        presets: [A::Params::presets, FqParams::presets],
        warnings: [warnings::<A::Params>, warnings::<FqParams>],
        maker: Maker::BuiltIn {
            discipline: |values| {
                let aqm = A::Params::from_values(values)?;
                Ok(Box::new(Fq::<A>::new(&FqParams::from_values(values)?, aqm)))
            },
            aqm: None,
        },
    }
}

/// Returns the registry entry of a discipline.
pub(super) const fn discipline<D: DisciplineAlgorithm>(name: &'static str) -> Algorithm {
    Algorithm {
        name,
        form: Form::Discipline,
        doc: D::DOC,
        groups: [D::Params::DECLS, &[]],
        presets: [D::Params::presets, NoParams::presets],
        warnings: [warnings::<D::Params>, warnings::<NoParams>],
        maker: Maker::BuiltIn {
            discipline: |values| Ok(Box::new(D::new(&D::Params::from_values(values)?))),
            aqm: None,
        },
    }
}

fn warnings<P: Params>(values: &Values) -> Warnings {
    P::from_values(values).map_or_else(|_| Vec::new(), |params| params.warnings())
}
