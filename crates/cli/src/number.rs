//! Options whose values are numbers.

use std::any::TypeId;
use std::ffi::OsString;
use std::fmt::Display;
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Arg, Command};

/// Returns a parser of the whole numbers of a range.
pub fn whole<T>(
    range: RangeInclusive<T>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: FromStr + Display + PartialOrd + Clone + Send + Sync + 'static,
{
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        let (low, high) = (range.start(), range.end());
        number.ok_or_else(|| format!("expected a whole number from {low} to {high}"))
    }
}

/// Lets every option whose value is not a text accept one that begins with `-`, so that its parser
/// refuses `--rate -5` and gives the reason. Otherwise `-5` would be an unknown option.
pub fn with_signs(command: Command) -> Command {
    let is_text = |arg: &Arg| {
        let texts = [
            TypeId::of::<String>(),
            TypeId::of::<OsString>(),
            TypeId::of::<PathBuf>(),
        ];
        texts
            .iter()
            .any(|text| arg.get_value_parser().type_id() == *text)
    };
    let takes_one = |arg: &Arg| {
        let least = arg.get_num_args().map_or(1, |range| range.min_values());
        arg.get_action().takes_values() && !arg.is_positional() && least > 0
    };
    command
        .mut_args(|arg| {
            let is_changed = takes_one(&arg) && !is_text(&arg);
            let may_begin = arg.is_allow_hyphen_values_set() || is_changed;
            arg.allow_hyphen_values(may_begin)
        })
        .mut_subcommands(with_signs)
}

/// The largest number of a core (arch/x86/Kconfig, `NR_CPUS`).
pub const MOST_CORES: usize = 8191;

/// The largest number of runs at a time.
pub const MOST_JOBS: NonZeroUsize = NonZeroUsize::new(MOST_CORES).unwrap();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_number_may_be_is_stated() {
        let port = whole::<u16>(1..=u16::MAX);
        assert_eq!(port("80"), Ok(80));
        for text in ["", "abc", "-1", "0", "65536", "1.5"] {
            let expected = "expected a whole number from 1 to 65535";
            assert_eq!(port(text), Err(expected.to_owned()), "{text}");
        }
    }
}
