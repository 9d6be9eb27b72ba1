//! Counts of the clients that the control socket turned away, of requests that the web page refused, and of
//! commands that were refused.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The reasons to turn a client away, or to refuse what it asks for.
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
    /// No thread could be had for it.
    Thread,
    /// The system refused to accept connections.
    Accept,
    /// As many commands waited for the loop as may wait.
    Busy,
    /// The loop did not begin its commands in time, so that they were withdrawn.
    Late,
    /// It hung up before the loop began its commands, so that they were withdrawn.
    Gone,
    /// Its commands were refused for what they are.
    Command,
    /// The configuration was not reloaded.
    Reload,
    /// A request to the page did not have an address or `localhost` as its only Host.
    HttpHost,
    /// A request to the page came from the page of another site.
    HttpOrigin,
    /// A request to the page had no token and no cookie.
    HttpNoToken,
    /// A request to the page had a wrong token, or an old cookie.
    HttpWrongToken,
    /// There are as many clients of the page as are served at a time.
    HttpTooMany,
    /// There are as many clients of the page from one address as are served at a time.
    HttpAddress,
    /// No thread could be started for a client of the page.
    HttpThread,
    /// The system refused to accept connections to the page.
    HttpAccept,
    /// The head or the body of a request to the page was too long.
    HttpLong,
    /// A client of the page did not complete its request in time.
    HttpSlow,
    /// What a client sent to the page was not a request that it knows.
    HttpUnreadable,
}

/// The most clients of the web page that are served at a time. Each has a thread.
pub const PAGE_CLIENTS: usize = 32;
/// The most clients of the web page from one address, so that a single host cannot keep others away. Half
/// of all places are more than the connections of a few browsers.
pub const PAGE_CLIENTS_OF_ADDRESS: usize = PAGE_CLIENTS / 2;
/// The most bytes of the head of a request to the page.
pub const PAGE_HEAD: usize = 16 << 10;
/// The time in which a client of the page must complete its request.
pub const PAGE_PATIENCE: Duration = Duration::from_secs(10);

impl Why {
    /// Every reason, in the order of the counters.
    pub const ALL: [Why; 23] = [
        Why::OtherUser,
        Why::TooMany,
        Why::Silent,
        Why::Slow,
        Why::Unreadable,
        Why::Thread,
        Why::Accept,
        Why::Busy,
        Why::Late,
        Why::Gone,
        Why::Command,
        Why::Reload,
        Why::HttpHost,
        Why::HttpOrigin,
        Why::HttpNoToken,
        Why::HttpWrongToken,
        Why::HttpTooMany,
        Why::HttpAddress,
        Why::HttpThread,
        Why::HttpAccept,
        Why::HttpLong,
        Why::HttpSlow,
        Why::HttpUnreadable,
    ];

    /// Returns the reason as one word.
    pub const fn name(self) -> &'static str {
        match self {
            Why::OtherUser => "other_user",
            Why::TooMany => "too_many",
            Why::Silent => "silent",
            Why::Slow => "slow",
            Why::Unreadable => "unreadable",
            Why::Thread => "thread",
            Why::Accept => "accept",
            Why::Busy => "busy",
            Why::Late => "late",
            Why::Gone => "gone",
            Why::Command => "command",
            Why::Reload => "reload",
            Why::HttpHost => "http_host",
            Why::HttpOrigin => "http_origin",
            Why::HttpNoToken => "http_no_token",
            Why::HttpWrongToken => "http_wrong_token",
            Why::HttpTooMany => "http_too_many",
            Why::HttpAddress => "http_address",
            Why::HttpThread => "http_thread",
            Why::HttpAccept => "http_accept",
            Why::HttpLong => "http_long",
            Why::HttpSlow => "http_slow",
            Why::HttpUnreadable => "http_unreadable",
        }
    }
}

/// The counters of a router's control socket and of its page.
#[derive(Debug, Default)]
pub struct TurnedAway([AtomicU64; Why::ALL.len()]);

impl TurnedAway {
    /// Counts one client, or one request.
    pub fn count(&self, why: Why) {
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
