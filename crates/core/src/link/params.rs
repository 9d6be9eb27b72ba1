//! All parameters of a link, and their text form: `rate 10Mbit/s delay 20ms loss 0.01`.

use alloc::string::String;
use alloc::vec::Vec;

use super::corrupt::CorruptParams;
use super::driver::DriverParams;
use super::duplicate::DuplicateParams;
use super::gilbert::GilbertParams;
use super::jitter::{JitterParams, Table};
use super::loss::LossParams;
use super::medium::{Medium, RateSource};
use super::pattern::PatternParams;
use super::pipe::PipeParams;
use super::profile::Profile;
use super::reorder::ReorderParams;
use crate::framing::FramingParams;
use crate::param::{ParamDecl, ParamError, Params, Values};
use crate::rng::Rng;
use crate::settings::{self, SettingError, nearest_setting, words};

macro_rules! groups {
    ($($(#[doc = $doc:literal])+ $field:ident: $params:ident,)+) => {
        /// The parameters of a link, effect by effect.
        #[derive(Clone, Debug, Default)]
        pub struct LinkParams { $($(#[doc = $doc])+ pub $field: $params,)+ }

        /// The declarations, effect by effect.
        static GROUPS: &[&[ParamDecl]] = &[$($params::DECLS),+];

        impl LinkParams {
            /// Builds the parameters from the defaults and `values`.
            ///
            /// # Errors
            /// Returns [`ParamError::Contradiction`] when values that are each in range exclude one
            /// another.
            pub fn from_values(values: &Values) -> Result<Self, ParamError> {
                Ok(LinkParams { $($field: $params::from_values(values)?,)+ })
            }
        }
    };
}

groups! {
    /// Rate, delay, burst.
    pipe: PipeParams,
    /// The device queue.
    driver: DriverParams,
    /// The overhead that packets occupy beyond their bytes.
    framing: FramingParams,
    /// Deviations of the delay.
    jitter: JitterParams,
    /// Packets that skip the delay.
    reorder: ReorderParams,
    /// Loss by chance.
    loss: LossParams,
    /// Loss by a chain.
    gilbert: GilbertParams,
    /// Loss by a pattern.
    pattern: PatternParams,
    /// Packets that arrive twice.
    duplicate: DuplicateParams,
    /// Packets that are damaged.
    corrupt: CorruptParams,
}

/// The contents of the files that a link names.
#[derive(Clone, Debug, Default)]
pub struct LinkFiles {
    /// A rate that changes with time and replaces `rate`.
    pub rate: Option<RateSource>,
    /// A delay profile. Its rate, if it has one, replaces `rate`.
    pub profile: Option<Profile>,
    /// Deviations of the delay, which replace `jitter_distribution`.
    pub jitter_table: Option<Table>,
}

/// The reason why a text is not a link, and where (byte range in the text).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind}")]
pub struct LinkError {
    /// Byte range in the text.
    pub span: core::ops::Range<usize>,
    /// The error.
    pub kind: LinkErrorKind,
}

/// An error in the text of a link.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkErrorKind {
    /// A word is not the name of a parameter.
    #[error("a link has no parameter `{0}`")]
    UnknownParam(String),
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

impl LinkParams {
    /// Iterates over the parameters of all effects.
    pub fn decls() -> impl Iterator<Item = &'static ParamDecl> {
        GROUPS.iter().copied().flatten()
    }

    /// Parses `[PARAMETER VALUE | FLAG | noFLAG]...`.
    ///
    /// # Errors
    /// Returns the error and its place. No value is clamped.
    ///
    /// ```
    /// use sluice_core::{Span, link::LinkParams};
    /// let link = LinkParams::parse("rate 10Mbit/s delay 20ms jitter 2ms loss 0.01").unwrap();
    /// assert_eq!(link.jitter.jitter, Span::from_ms(2));
    /// let error = LinkParams::parse("rate 10Mbit/s los 0.01").unwrap_err();
    /// assert_eq!(error.to_string(), "a link has no parameter `los`");
    /// assert_eq!(error.span, 14..17);
    /// let error = LinkParams::parse("delay 1ms delay 2ms").unwrap_err();
    /// assert_eq!(error.to_string(), "`delay` is set twice");
    /// ```
    pub fn parse(text: &str) -> Result<Self, LinkError> {
        let find = |name: &str| Self::decls().find(|decl| decl.name == name);
        let values = settings::parse(&mut words(text), find).map_err(|(span, kind)| {
            let kind = match kind {
                SettingError::Unknown(word) => LinkErrorKind::UnknownParam(word),
                SettingError::Repeated(name) => LinkErrorKind::Repeated(name),
                SettingError::MissingValue(name) => LinkErrorKind::MissingValue(name),
                SettingError::Param(error) => LinkErrorKind::Param(error),
            };
            LinkError { span, kind }
        })?;
        Self::from_values(&values).map_err(|error| LinkError {
            span: 0..text.len(),
            kind: LinkErrorKind::Param(error),
        })
    }

    /// Returns the parameters of the pipe and, if any effect needs one, its medium.
    pub(super) fn medium(&self, files: LinkFiles, rng: &Rng) -> (PipeParams, Option<Medium>) {
        let mut pipe = self.pipe.clone();
        if let Some(rate) = files.profile.as_ref().and_then(|profile| profile.rate) {
            pipe.rate = rate;
        }
        let is_plain = self.framing.is_plain()
            && self.jitter.jitter == crate::Span::ZERO
            && self.reorder.reorder.as_billionths() == 0
            && files.rate.is_none()
            && files.profile.is_none();
        if is_plain {
            return (pipe, None);
        }
        let mut medium = Medium::new(rng)
            .with_jitter(&self.jitter, files.jitter_table)
            .with_reorder(&self.reorder);
        medium.framing = self.framing.clone();
        medium.rate = files.rate;
        medium.profile = files.profile;
        (pipe, Some(medium))
    }
}

impl LinkError {
    /// Returns the words that would have been accepted in place of an unknown one.
    pub fn candidates(&self) -> Vec<&'static str> {
        match self.kind {
            LinkErrorKind::UnknownParam(_) => LinkParams::decls().map(|d| d.name).collect(),
            LinkErrorKind::Repeated(_)
            | LinkErrorKind::MissingValue(_)
            | LinkErrorKind::Param(_) => Vec::new(),
        }
    }

    /// Returns the words that may have been intended in place of an unknown one.
    ///
    /// ```
    /// use sluice_core::link::LinkParams;
    /// assert_eq!(LinkParams::parse("los 0.01").unwrap_err().nearest(), ["loss"]);
    /// ```
    pub fn nearest(&self) -> Vec<String> {
        match &self.kind {
            LinkErrorKind::UnknownParam(word) => nearest_setting(word, LinkParams::decls()),
            LinkErrorKind::Repeated(_)
            | LinkErrorKind::MissingValue(_)
            | LinkErrorKind::Param(_) => Vec::new(),
        }
    }
}
