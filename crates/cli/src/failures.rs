//! What did not succeed, while the rest of a command went on.

use sluice_lab::suite::Failure;

/// Prints each failure in full, then all of them as a list. Returns their number.
pub(crate) fn say_failures(failures: &[Failure]) -> usize {
    for Failure { what, error } in failures {
        eprintln!("sluice: {what}: {error}");
    }
    if failures.len() > 1 {
        eprintln!("sluice: {} failed:", failures.len());
        for Failure { what, .. } in failures {
            eprintln!("  {what}");
        }
    }
    failures.len()
}
