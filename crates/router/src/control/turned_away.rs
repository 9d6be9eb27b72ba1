//! Counts of the clients that the control socket turned away.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// The reasons to turn a client away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It belongs to another user.
    OtherUser,
    /// There are as many clients as are served at a time.
    TooMany,
    /// It was silent for longest when another client needed its place.
    Silent,
    /// It did not complete a request, or did not read the answer, in time.
    Slow,
    /// Its request could not be read: too long, incomplete, or not a request.
    Unreadable,
}

impl Why {
    /// Every reason, in the order of the counters.
    pub const ALL: [Why; 5] = [
        Why::OtherUser,
        Why::TooMany,
        Why::Silent,
        Why::Slow,
        Why::Unreadable,
    ];

    /// Returns the reason as one word.
    pub const fn name(self) -> &'static str {
        match self {
            Why::OtherUser => "other_user",
            Why::TooMany => "too_many",
            Why::Silent => "silent",
            Why::Slow => "slow",
            Why::Unreadable => "unreadable",
        }
    }
}

/// The counters of a control socket.
#[derive(Debug, Default)]
pub struct TurnedAway([AtomicU64; Why::ALL.len()]);

impl TurnedAway {
    pub(super) fn count(&self, why: Why) {
        self.0[why as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the counters that are not zero, by the name of the reason.
    pub fn counts(&self) -> BTreeMap<String, u64> {
        let counts = Why::ALL.into_iter().map(|why| {
            (
                why.name().to_owned(),
                self.0[why as usize].load(Ordering::Relaxed),
            )
        });
        counts.filter(|(_, count)| *count > 0).collect()
    }
}
