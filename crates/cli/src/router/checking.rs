//! The errors of a configuration: of `--check`, and of a router that does not start.

use std::path::Path;
use std::process::ExitCode;

use sluice_router::process::{self, ConfigError, Settings};

use super::warnings;

/// Prints the errors and warnings of a file of commands.
///
/// # Errors
/// The file cannot be read.
pub fn check(path: &Path, engine: &sluice_ipfw::Settings) -> Result<ExitCode, ConfigError> {
    let checked = match process::check(path, engine) {
        Err(error @ ConfigError::Refused { .. }) => {
            eprintln!("sluice: {error}");
            return Ok(ExitCode::from(BAD_CONFIGURATION));
        }
        checked => checked?,
    };
    eprint!("{}", warnings(path, &checked.remarks));
    for error in &checked.refused {
        eprintln!("sluice: {error}");
    }
    Ok(match checked.refused.as_slice() {
        [] => ExitCode::SUCCESS,
        _ => ExitCode::from(BAD_CONFIGURATION),
    })
}

/// Prints all errors of the configuration of a router that does not start, of which `first` ended
/// the start.
pub fn refuse(settings: &Settings, first: &ConfigError) -> ExitCode {
    // A pipe can be read only once.
    let path = settings.config.as_deref().filter(|path| path.is_file());
    let checked = path.map(|path| process::check(path, &settings.engine));
    let refused = match checked {
        Some(Ok(checked)) => checked.refused,
        _ => Vec::new(),
    };
    // Some commands are refused for the ports, and the file may have been mended meanwhile.
    if refused.is_empty() {
        eprintln!("sluice: {first}");
    }
    for error in &refused {
        eprintln!("sluice: {error}");
    }
    let all = if refused.is_empty() {
        std::slice::from_ref(first)
    } else {
        &refused[..]
    };
    let is_unreadable = |error: &ConfigError| {
        matches!(
            error,
            ConfigError::Refused {
                is_unreadable: true,
                ..
            }
        )
    };
    match all.iter().all(is_unreadable) {
        // A file system may be mounted later, so the service tries again.
        true => ExitCode::FAILURE,
        false => ExitCode::from(BAD_CONFIGURATION),
    }
}

/// Exit status of ipfw, and of sysexits.h, for values that are wrong. The service does not try such a
/// file again.
const BAD_CONFIGURATION: u8 = 65;
