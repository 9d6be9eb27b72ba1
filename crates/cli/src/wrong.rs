//! Wrong words of the command line.

use std::ffi::OsString;
use std::num::{NonZeroU32, NonZeroUsize};
use std::str::FromStr;

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Prints the error in `words`, and ends the process with status 2, or 0 after help.
pub fn exit(error: &clap::Error, words: &[OsString]) -> ! {
    let Some(text) = negative(error, words) else {
        error.exit();
    };
    eprintln!("error: {text}\n\nFor more information, try '--help'.");
    std::process::exit(USAGE);
}

/// The exit status of a wrong command line, as clap's.
const USAGE: i32 = 2;

/// Returns the message for a negative value behind an option. No option takes one, so that clap takes
/// its sign for that of another option.
fn negative(error: &clap::Error, words: &[OsString]) -> Option<String> {
    let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let is_number = |text: &str| text.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    if error.kind() != ErrorKind::UnknownArgument
        || !unknown.strip_prefix('-').is_some_and(is_number)
    {
        return None;
    }
    let words: Vec<&str> = words.iter().filter_map(|word| word.to_str()).collect();
    let pair = words.windows(2).find(|pair| {
        let is_option = pair[0].starts_with('-') && !pair[0].contains('=');
        is_option && pair[1].starts_with(unknown.as_str())
    })?;
    Some(format!(
        "invalid value '{}' for '{}': it cannot be negative",
        pair[1], pair[0]
    ))
}

/// A number that is not zero.
pub trait AtLeastOne: FromStr {
    /// The largest one.
    const MOST: u64;
}

impl AtLeastOne for NonZeroU32 {
    const MOST: u64 = u32::MAX as u64;
}

impl AtLeastOne for NonZeroUsize {
    const MOST: u64 = usize::MAX as u64;
}

/// Reads a number that is not zero.
///
/// # Errors
/// What would be right.
pub fn at_least_one<N: AtLeastOne>(text: &str) -> Result<N, String> {
    let expected = |_| format!("expected a number from 1 to {}", N::MOST);
    text.parse().map_err(expected)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::Sluice;

    #[test]
    fn a_negative_value_is_named_with_its_option() {
        for (line, expected) in [
            ("run s.toml --jobs -2", Some(("-2", "--jobs"))),
            ("run s.toml -j -2", Some(("-2", "-j"))),
            ("exec --rtt -5ms -- true", Some(("-5ms", "--rtt"))),
            ("exec --loss -.5% -- true", Some(("-.5%", "--loss"))),
            (
                "replay t.csv --queue fifo --rate -1Mbit/s",
                Some(("-1Mbit/s", "--rate")),
            ),
            ("run s.toml -2", None),
            ("run s.toml --josb 2", None),
        ] {
            let words: Vec<OsString> = format!("sluice {line}")
                .split(' ')
                .map(Into::into)
                .collect();
            let error = Sluice::try_parse_from(&words).expect_err(line);
            let expected = expected.map(|(value, option)| {
                format!("invalid value '{value}' for '{option}': it cannot be negative")
            });
            assert_eq!(negative(&error, &words), expected, "{line}");
        }
    }

    #[test]
    fn zero_is_answered_with_the_range() {
        for line in [
            "run s.toml --jobs 0",
            "sweep s.toml --over a=1,2 --jobs 0",
            "sweep s.toml --over a=1,2 --seeds 0",
        ] {
            let words = format!("sluice {line}");
            let error = Sluice::try_parse_from(words.split(' ')).expect_err(line);
            let text = error.to_string();
            assert!(text.contains("expected a number from 1 to "), "{text}");
        }
    }
}
