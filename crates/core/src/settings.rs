//! Settings as words: `target 5ms noecn`, for queues and links alike.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::ops::Range;

use crate::param::{Kind, ParamDecl, ParamError, Value, Values};
use crate::spelling::nearest;

/// The setting that a word selects.
#[derive(Clone, Copy, Debug)]
pub enum Setting {
    /// A parameter, to the value that follows.
    Value(&'static ParamDecl),
    /// A flag, to this.
    Flag(&'static ParamDecl, bool),
}

impl Setting {
    /// Returns the parameter.
    pub const fn decl(self) -> &'static ParamDecl {
        match self {
            Setting::Value(decl) | Setting::Flag(decl, _) => decl,
        }
    }

    /// Returns what `word` sets, with the parameters that `find` knows by name: a value, or a flag
    /// by its name or by `no` before it.
    pub fn of(word: &str, find: impl Fn(&str) -> Option<&'static ParamDecl>) -> Option<Setting> {
        match find(word) {
            Some(decl) if decl.kind == Kind::Flag => Some(Setting::Flag(decl, true)),
            Some(decl) => Some(Setting::Value(decl)),
            None => word
                .strip_prefix("no")
                .and_then(find)
                .filter(|decl| decl.kind == Kind::Flag)
                .map(|decl| Setting::Flag(decl, false)),
        }
    }
}

/// The reason why a setting was refused.
pub(crate) enum SettingError {
    /// The word is not the name of a parameter.
    Unknown(String),
    /// The word sets a parameter that is already set.
    Repeated(&'static str),
    /// The word is the last one, and the parameter needs a value.
    MissingValue(&'static str),
    /// The value is refused.
    Param(ParamError),
}

/// Parses `[PARAMETER VALUE | FLAG | noFLAG]...` with the parameters that `find` knows by name.
///
/// # Errors
/// Returns the byte range of the first word that is wrong, and why.
pub(crate) fn parse<'a>(
    words: &mut impl Iterator<Item = (Range<usize>, &'a str)>,
    find: impl Fn(&str) -> Option<&'static ParamDecl>,
) -> Result<Values, (Range<usize>, SettingError)> {
    let mut values = Values::new();
    while let Some((span, word)) = words.next() {
        let Some(setting) = Setting::of(word, &find) else {
            return Err((span, SettingError::Unknown(word.to_string())));
        };
        let decl = setting.decl();
        if values.find(decl.name).is_some() {
            return Err((span, SettingError::Repeated(decl.name)));
        }
        match setting {
            Setting::Flag(_, is_on) => values.set(decl.name, Value::Flag(is_on)),
            Setting::Value(_) => {
                let Some((value_span, value)) = words.next() else {
                    return Err((span, SettingError::MissingValue(decl.name)));
                };
                match decl.parse(value) {
                    Ok(value) => values.set(decl.name, value),
                    Err(error) => return Err((value_span, SettingError::Param(error))),
                }
            }
        }
    }
    Ok(values)
}

/// Returns the settings of `decls` that are nearest to `word`: parameter names, and `noNAME` for
/// switches.
pub(crate) fn nearest_setting(
    word: &str,
    decls: impl Iterator<Item = &'static ParamDecl>,
) -> Vec<String> {
    let mut settings = Vec::new();
    for decl in decls {
        settings.push(decl.name.to_string());
        if decl.kind == Kind::Flag {
            settings.push(alloc::format!("no{}", decl.name));
        }
    }
    let near = nearest(word, settings.iter().map(String::as_str));
    near.into_iter().map(String::from).collect()
}

/// Iterates over the words of a text with their byte ranges.
pub(crate) fn words(text: &str) -> impl Iterator<Item = (core::ops::Range<usize>, &str)> {
    text.split_whitespace().map(move |word| {
        let start = word.as_ptr() as usize - text.as_ptr() as usize;
        (start..start + word.len(), word)
    })
}
