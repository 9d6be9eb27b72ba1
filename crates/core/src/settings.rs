//! Settings as words: `target 5ms noecn`, for queues and links alike.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::ops::Range;

use crate::param::{Kind, ParamDecl, ParamError, Value, Values};
use crate::spelling::nearest;

/// Why a word among settings was refused.
pub(crate) enum SettingError {
    /// It is not the name of a parameter.
    Unknown(String),
    /// It sets a parameter that is already set.
    Repeated(&'static str),
    /// It is the last word, and the parameter needs a value.
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
        let negated = word
            .strip_prefix("no")
            .and_then(&find)
            .filter(|decl| decl.kind == Kind::Flag);
        let decl = find(word);
        if let Some(decl) = decl.or(negated)
            && values.find(decl.name).is_some()
        {
            return Err((span, SettingError::Repeated(decl.name)));
        }
        match (decl, negated) {
            (Some(decl), _) if decl.kind == Kind::Flag => {
                values.set(decl.name, Value::Flag(true));
            }
            (Some(decl), _) => {
                let Some((value_span, value)) = words.next() else {
                    return Err((span, SettingError::MissingValue(decl.name)));
                };
                match decl.parse(value) {
                    Ok(value) => values.set(decl.name, value),
                    Err(error) => return Err((value_span, SettingError::Param(error))),
                }
            }
            (None, Some(decl)) => values.set(decl.name, Value::Flag(false)),
            (None, None) => return Err((span, SettingError::Unknown(word.to_string()))),
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
