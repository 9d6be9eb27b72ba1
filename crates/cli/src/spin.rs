//! `--spin`: how a router's loop waits for due packets.

use sluice_router::process::Spin;

/// How the loop waits for due packets.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum SpinWord {
    /// Sleep: up to some 50 us late, almost no processor time
    None,
    /// Sleep, but busy-poll for the last microseconds
    Adaptive,
    /// Busy-poll always, and keep the kernel's packet path in the caches: for a dedicated core
    Always,
}

impl From<SpinWord> for Spin {
    fn from(word: SpinWord) -> Spin {
        match word {
            SpinWord::None => Spin::None,
            SpinWord::Adaptive => Spin::Adaptive,
            SpinWord::Always => Spin::Always,
        }
    }
}
