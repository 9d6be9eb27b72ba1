//! The registry: every algorithm by name, with its parameters and its constructor.
//!
//! A queue is written as words: `fq_codel target 5ms interval 100ms noecn`. The first word names an
//! algorithm, the others its parameters. [`Spec::parse`] checks all words against the declarations
//! and reports where one is wrong.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::aqm::{self, Aqm, AqmAlgorithm};
use crate::param::{NoParams, ParamDecl, ParamError, Params, Value, Values, Warnings};
use crate::sched::fifo::{Fifo, FifoParams};
use crate::sched::fq::{Fq, FqParams};
use crate::sched::{self, Discipline, DisciplineAlgorithm};
pub use crate::settings::Setting;
use crate::settings::{self, SettingError, nearest_setting, words};
use crate::spelling::nearest;

mod dummynet;

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
    /// Its form.
    pub form: Form,
    /// One line of documentation.
    pub doc: &'static str,
    groups: [&'static [ParamDecl]; 2],
    presets: [fn(&Values) -> Values; 2],
    warnings: [fn(&Values) -> Warnings; 2],
    build: Build<dyn Discipline>,
    build_aqm: Option<Build<dyn Aqm>>,
}

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
        if self.form == Form::FlowQueued && decl.name == "ecn" {
            Value::Flag(true)
        } else {
            decl.default
        }
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
    fn complete(&self, values: &Values) -> Values {
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
        (self.build)(&self.complete(values))
    }

    /// Builds the AQM alone, for one queue of a scheduler with several. Returns `None` for
    /// disciplines.
    ///
    /// # Errors
    /// As [`Algorithm::build`].
    pub fn build_aqm(&self, values: &Values) -> Option<Result<Box<dyn Aqm>, ParamError>> {
        self.build_aqm.map(|build| build(&self.complete(values)))
    }
}

/// Returns the registry entry of an AQM's plain form.
pub(crate) const fn plain<A: AqmAlgorithm>(name: &'static str) -> Algorithm {
    Algorithm {
        name,
        form: Form::Aqm,
        doc: A::DOC,
        groups: [A::Params::DECLS, FifoParams::DECLS],
        presets: [A::Params::presets, FifoParams::presets],
        warnings: [warnings::<A::Params>, warnings::<FifoParams>],
        build: |values| {
            let aqm = A::new(&A::Params::from_values(values)?);
            Ok(Box::new(Fifo::new(&FifoParams::from_values(values)?, aqm)))
        },
        build_aqm: Some(|values| Ok(Box::new(A::new(&A::Params::from_values(values)?)))),
    }
}

/// Returns the registry entry of an AQM's flow-queued form.
pub(crate) const fn flow_queued<A: AqmAlgorithm>(name: &'static str) -> Algorithm {
    Algorithm {
        name,
        form: Form::FlowQueued,
        doc: A::DOC,
        groups: [A::Params::DECLS, FqParams::DECLS],
        presets: [A::Params::presets, FqParams::presets],
        warnings: [warnings::<A::Params>, warnings::<FqParams>],
        build: |values| {
            let aqm = A::Params::from_values(values)?;
            Ok(Box::new(Fq::<A>::new(&FqParams::from_values(values)?, aqm)))
        },
        build_aqm: None,
    }
}

/// Returns the registry entry of a discipline.
pub(crate) const fn discipline<D: DisciplineAlgorithm>(name: &'static str) -> Algorithm {
    Algorithm {
        name,
        form: Form::Discipline,
        doc: D::DOC,
        groups: [D::Params::DECLS, &[]],
        presets: [D::Params::presets, NoParams::presets],
        warnings: [warnings::<D::Params>, warnings::<NoParams>],
        build: |values| Ok(Box::new(D::new(&D::Params::from_values(values)?))),
        build_aqm: None,
    }
}

fn warnings<P: Params>(values: &Values) -> Warnings {
    P::from_values(values).map_or_else(|_| Vec::new(), |params| params.warnings())
}

/// Returns every registered algorithm: disciplines, AQMs, flow-queued AQMs.
///
/// ```
/// use sluice_core::registry;
/// assert!(registry::algorithms().any(|a| a.name == "fq_codel"));
/// ```
pub fn algorithms() -> impl Iterator<Item = &'static Algorithm> {
    sched::DISCIPLINES
        .iter()
        .chain(aqm::PLAIN)
        .chain(aqm::FLOW_QUEUED)
}

/// Finds the algorithm called `name`.
pub fn find(name: &str) -> Option<&'static Algorithm> {
    algorithms().find(|a| a.name == name)
}

/// An algorithm with its parameters, as a user wrote it.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The algorithm.
    pub algorithm: &'static Algorithm,
    /// The values that were set. All others have their defaults.
    pub values: Values,
}

/// Why a text is not a queue, and where (byte range in the text).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind}")]
pub struct SpecError {
    /// Byte range in the text.
    pub span: core::ops::Range<usize>,
    /// What is wrong.
    pub kind: SpecErrorKind,
}

/// What is wrong with the text of a queue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecErrorKind {
    /// The text has no words.
    #[error("no queue is named")]
    Empty,
    /// The first word names no algorithm.
    #[error("unknown queue `{0}`")]
    UnknownAlgorithm(String),
    /// A word is not a parameter of the algorithm.
    #[error("`{algorithm}` has no parameter `{word}`")]
    UnknownParam {
        /// The algorithm.
        algorithm: &'static str,
        /// The word.
        word: String,
    },
    /// A parameter is set twice.
    #[error("`{0}` is set twice")]
    Repeated(&'static str),
    /// The text ends with a parameter that needs a value.
    #[error("`{0}` needs a value")]
    MissingValue(&'static str),
    /// A value is refused.
    #[error(transparent)]
    Param(ParamError),
}

impl SpecError {
    /// Returns the words that would have been accepted in place of an unknown one.
    pub fn candidates(&self) -> Vec<&'static str> {
        match &self.kind {
            SpecErrorKind::Empty | SpecErrorKind::UnknownAlgorithm(_) => {
                algorithms().map(|a| a.name).collect()
            }
            SpecErrorKind::UnknownParam { algorithm, .. } => find(algorithm)
                .map(|a| a.params().map(|d| d.name).collect())
                .unwrap_or_default(),
            SpecErrorKind::Repeated(_)
            | SpecErrorKind::MissingValue(_)
            | SpecErrorKind::Param(_) => Vec::new(),
        }
    }

    /// Returns the words that may have been intended in place of an unknown one; see [`nearest`].
    ///
    /// ```
    /// use sluice_core::registry::Spec;
    /// let near = |text| Spec::parse(text).unwrap_err().nearest();
    /// assert_eq!(near("fq codel target 5ms"), ["fq_codel"]);
    /// assert_eq!(near("codel tarqet 5ms"), ["target"]);
    /// assert_eq!(near("codel noenc"), ["noecn"]);
    /// ```
    pub fn nearest(&self) -> Vec<String> {
        match &self.kind {
            SpecErrorKind::UnknownAlgorithm(word) => {
                let near = nearest(word, algorithms().map(|a| a.name));
                near.into_iter().map(String::from).collect()
            }
            SpecErrorKind::UnknownParam { algorithm, word } => nearest_setting(
                word,
                find(algorithm).into_iter().flat_map(Algorithm::params),
            ),
            SpecErrorKind::Empty
            | SpecErrorKind::Repeated(_)
            | SpecErrorKind::MissingValue(_)
            | SpecErrorKind::Param(_) => Vec::new(),
        }
    }
}

impl PartialEq for Spec {
    fn eq(&self, other: &Self) -> bool {
        self.algorithm.name == other.algorithm.name && self.values == other.values
    }
}

impl Spec {
    /// Returns an algorithm with its defaults.
    pub const fn new(algorithm: &'static Algorithm) -> Self {
        Spec {
            algorithm,
            values: Values::new(),
        }
    }

    /// Parses `NAME [PARAMETER VALUE | FLAG | noFLAG]...`.
    ///
    /// # Errors
    /// Returns what is wrong and where. No value is clamped.
    ///
    /// ```
    /// use sluice_core::registry::Spec;
    /// let spec = Spec::parse("fq_codel target 7ms noecn").unwrap();
    /// assert_eq!(spec.to_string(), "fq_codel target 7ms noecn");
    /// let error = Spec::parse("codel tarqet 5ms").unwrap_err();
    /// assert_eq!(error.to_string(), "`codel` has no parameter `tarqet`");
    /// assert_eq!(error.span, 6..12);
    /// let error = Spec::parse("codel ecn noecn").unwrap_err();
    /// assert_eq!(error.to_string(), "`ecn` is set twice");
    /// ```
    pub fn parse(text: &str) -> Result<Spec, SpecError> {
        let mut words = words(text);
        let Some((span, name)) = words.next() else {
            return Err(SpecError {
                span: 0..text.len(),
                kind: SpecErrorKind::Empty,
            });
        };
        let Some(algorithm) = find(name) else {
            // `fq codel` for `fq_codel`: the two words together name an algorithm.
            let span = match words.next() {
                Some((next, word)) if find(&alloc::format!("{name}_{word}")).is_some() => {
                    span.start..next.end
                }
                _ => span,
            };
            return Err(SpecError {
                kind: SpecErrorKind::UnknownAlgorithm(text[span.clone()].to_string()),
                span,
            });
        };
        let find = |name: &str| algorithm.params().find(|decl| decl.name == name);
        let values = settings::parse(&mut words, find).map_err(|(span, kind)| {
            let kind = match kind {
                SettingError::Unknown(word) => SpecErrorKind::UnknownParam {
                    algorithm: algorithm.name,
                    word,
                },
                SettingError::Repeated(name) => SpecErrorKind::Repeated(name),
                SettingError::MissingValue(name) => SpecErrorKind::MissingValue(name),
                SettingError::Param(error) => SpecErrorKind::Param(error),
            };
            SpecError { span, kind }
        })?;
        let spec = Spec { algorithm, values };
        spec.build().map_err(|error| SpecError {
            span: 0..text.len(),
            kind: SpecErrorKind::Param(error),
        })?;
        Ok(spec)
    }

    /// Builds the discipline.
    ///
    /// # Errors
    /// As [`Algorithm::build`].
    pub fn build(&self) -> Result<Box<dyn Discipline>, ParamError> {
        self.algorithm.build(&self.values)
    }

    /// Returns warnings for the user: settings that are accepted but probably not intended, and
    /// settings that the implementation named by `variant` would silently have changed.
    ///
    /// ```
    /// use sluice_core::registry::Spec;
    /// let spec = Spec::parse("codel target 200ms").unwrap();
    /// assert!(spec.warnings()[0].starts_with("`target 200ms` is not below `interval 100ms`"));
    /// let spec = Spec::parse("fq_codel limit 50000 variant dummynet").unwrap();
    /// assert_eq!(spec.warnings(), ["`limit 50000`: dummynet would silently take 20480"]);
    /// ```
    pub fn warnings(&self) -> Warnings {
        let values = self.algorithm.complete(&self.values);
        let mut all = Warnings::new();
        if self.value("variant") == Some(Value::Choice("dummynet")) {
            all.extend(self.beyond_dummynet());
        }
        let each = self.algorithm.warnings.iter();
        all.extend(each.flat_map(|warnings| warnings(&values)));
        all
    }

    fn beyond_dummynet(&self) -> impl Iterator<Item = String> + '_ {
        self.algorithm.params().filter_map(|decl| {
            let value = self.algorithm.value_of(decl, &self.values);
            let taken = self.algorithm.dummynet_value(decl, value);
            let name = decl.name;
            (taken != value)
                .then(|| alloc::format!("`{name} {value}`: dummynet would silently take {taken}"))
        })
    }

    /// Returns the value in force of the parameter called `name`.
    pub fn value(&self, name: &str) -> Option<Value> {
        let decl = self.algorithm.params().find(|d| d.name == name)?;
        Some(self.algorithm.value_of(decl, &self.values))
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.algorithm.name)?;
        for (name, value) in self.values.iter() {
            match value {
                Value::Flag(true) => write!(f, " {name}")?,
                Value::Flag(false) => write!(f, " no{name}")?,
                value => write!(f, " {name} {value}")?,
            }
        }
        Ok(())
    }
}
