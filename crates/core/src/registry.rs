//! The registry: every algorithm by name, with its parameters and its constructor.
//!
//! A queue is written as words: `fq_codel target 5ms interval 100ms noecn`. The first word names an
//! algorithm, the others its parameters. [`Spec::parse`] checks all words against the declarations
//! and reports where one is wrong.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

pub use self::algorithm::{Algorithm, Form};
use self::algorithm::{discipline, flow_queued, plain};
pub use self::outside::{Loaders, NoLoaders, Outside, OutsideDiscipline, Started};
use crate::aqm::{self, each_aqm};
use crate::param::{ParamError, Value, Values, Warnings};
use crate::sched::{self, Discipline, each_discipline};
pub use crate::settings::Setting;
use crate::settings::{self, SettingError, nearest_setting, words};
use crate::spelling::nearest;

mod algorithm;
mod dummynet;
mod outside;
pub mod tc;

macro_rules! plain_forms {
    ($($module:ident::$name:ident,)+) => {
        &[$(plain::<aqm::$module::$name>(stringify!($module)),)+]
    };
}

macro_rules! flow_queued_forms {
    ($($module:ident::$name:ident,)+) => {
        &[$(flow_queued::<aqm::$module::$name>(concat!("fq_", stringify!($module))),)+]
    };
}

macro_rules! disciplines {
    ($($module:ident::$name:ident $(as $word:literal)?,)+) => {
        &[$(discipline::<sched::$module::$name>(disciplines!(@word $module $($word)?)),)+]
    };
    (@word $module:ident) => { stringify!($module) };
    (@word $module:ident $word:literal) => { $word };
}

/// Every AQM in its plain form: one queue.
static PLAIN: &[Algorithm] = each_aqm!(plain_forms);

/// Every AQM in its flow-queued form.
static FLOW_QUEUED: &[Algorithm] = each_aqm!(flow_queued_forms);

/// Every discipline.
static DISCIPLINES: &[Algorithm] = each_discipline!(disciplines);

/// Returns every registered algorithm: disciplines, AQMs, flow-queued AQMs.
///
/// ```
/// use sluice_core::registry;
/// assert!(registry::algorithms().any(|a| a.name == "fq_codel"));
/// ```
pub fn algorithms() -> impl Iterator<Item = &'static Algorithm> {
    DISCIPLINES.iter().chain(PLAIN).chain(FLOW_QUEUED)
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

/// The reason why a text is not a queue, and where (byte range in the text).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind}")]
pub struct SpecError {
    /// Byte range in the text.
    pub span: core::ops::Range<usize>,
    /// The error.
    pub kind: SpecErrorKind,
}

/// An error in the text of a queue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecErrorKind {
    /// The text has no words.
    #[error("no queue is named")]
    Empty,
    /// The first word names no algorithm.
    #[error("unknown queue `{0}`")]
    UnknownAlgorithm(String),
    /// The first word names an algorithm that cannot be loaded.
    #[error("{0}")]
    NotLoaded(String),
    /// A word is not a parameter of the algorithm.
    #[error("`{algorithm:?}` has no parameter `{word}`")]
    UnknownParam {
        /// The algorithm.
        algorithm: &'static Algorithm,
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
            SpecErrorKind::UnknownParam { algorithm, .. } => {
                algorithm.params().map(|d| d.name).collect()
            }
            SpecErrorKind::NotLoaded(_)
            | SpecErrorKind::Repeated(_)
            | SpecErrorKind::MissingValue(_)
            | SpecErrorKind::Param(_) => Vec::new(),
        }
    }

    /// Returns what an unknown word is here, if Linux `tc` has it.
    ///
    /// ```
    /// use sluice_core::registry::Spec;
    /// let advice = Spec::parse("pfifo limit 100").unwrap_err().advice();
    /// assert_eq!(advice, Some("tc's `pfifo limit N` is `fifo limit N`"));
    /// ```
    pub fn advice(&self) -> Option<&'static str> {
        match &self.kind {
            SpecErrorKind::UnknownAlgorithm(word) | SpecErrorKind::UnknownParam { word, .. } => {
                tc::answer(word)
            }
            SpecErrorKind::Empty
            | SpecErrorKind::NotLoaded(_)
            | SpecErrorKind::Repeated(_)
            | SpecErrorKind::MissingValue(_)
            | SpecErrorKind::Param(_) => None,
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
            SpecErrorKind::UnknownParam { algorithm, word } => {
                nearest_setting(word, algorithm.params())
            }
            SpecErrorKind::Empty
            | SpecErrorKind::NotLoaded(_)
            | SpecErrorKind::Repeated(_)
            | SpecErrorKind::MissingValue(_)
            | SpecErrorKind::Param(_) => Vec::new(),
        }
    }
}

impl PartialEq for Spec {
    fn eq(&self, other: &Self) -> bool {
        self.algorithm == other.algorithm && self.values == other.values
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
    /// Returns the error and its place. No value is clamped.
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
        Spec::parse_with(text, &NoLoaders)
    }

    /// Like [`Spec::parse`]; `loaders` finds an algorithm that is not compiled into the program.
    ///
    /// # Errors
    /// As [`Spec::parse`], and [`SpecErrorKind::NotLoaded`].
    pub fn parse_with(text: &str, loaders: &dyn Loaders) -> Result<Spec, SpecError> {
        let mut words = words(text);
        let Some((span, name)) = words.next() else {
            return Err(SpecError {
                span: 0..text.len(),
                kind: SpecErrorKind::Empty,
            });
        };
        let loaded = loaders.load(name).transpose();
        let found = loaded.map_err(|why| SpecError {
            span: span.clone(),
            kind: SpecErrorKind::NotLoaded(why),
        })?;
        let Some(algorithm) = found.or_else(|| find(name)) else {
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
                SettingError::Unknown(word) => SpecErrorKind::UnknownParam { algorithm, word },
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
    /// settings that the implementation named by `variant` would silently change.
    ///
    /// ```
    /// use sluice_core::registry::Spec;
    /// let spec = Spec::parse("codel target 200ms").unwrap();
    /// assert!(spec.warnings()[0].starts_with("`target 200ms` is not below `interval 100ms`"));
    /// let spec = Spec::parse("fq_codel limit 50000 variant dummynet").unwrap();
    /// assert_eq!(spec.warnings(), ["`limit 50000` is applied; dummynet would use 20480"]);
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
                .then(|| alloc::format!("`{name} {value}` is applied; dummynet would use {taken}"))
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
