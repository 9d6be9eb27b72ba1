//! The control socket, over which a running router receives commands.
//!
//! A Unix stream socket, private to its owner: mode 0600, and a client must be the same user or
//! root ([`Listener`]). A connection carries requests and replies in turn, one JSON object per line
//! ([`Request`], [`Reply`]), so that `socat` can also be the client:
//!
//! ```text
//! > {"do":"commands","commands":"pipe 1 config bw 10Mbit/s"}
//! < {"stdout":"","warnings":[]}
//! ```
//!
//! The packet loop never waits for a socket. Connections are served by threads of their own; they
//! hand an [`Order`] to the loop through a bounded channel ([`inbox`]) and ring a bell that ends
//! its sleep. The loop executes orders between two batches of packets, each completely or not at
//! all, and passes the answer to the waiting thread. Only that thread waits for a client that is
//! slow, silent or disconnected. A router never opens a file because a client names it: the client
//! sends the texts of the files that its commands need.

mod bell;
mod client;
mod inbox;
mod journal;
mod mailbox;
mod message;
mod places;
mod server;
mod socket_file;
mod team;
mod turned_away;

pub use client::{AskError, ask, files_of};
pub(crate) use inbox::WAITING;
pub use inbox::{
    Answer, Answered, Bell, Builder, Inbox, Order, Orders, Pending, Refused, Watched, Work, inbox,
};
pub(crate) use journal::changes;
pub use journal::{Change, Journal};
pub use message::{
    Attached, Failure, FileText, Given, How, MOST_REQUEST, Place, Remark, Reply, Request, Texts,
};
pub use server::{
    Asked, Limits, Listener, SampleSource, ServeError, Sources, no_thread, read_request,
};
pub use socket_file::{SocketError, SocketFile};
pub use team::{TeamStatus, inboxes};
pub use turned_away::{
    PAGE_CLIENTS, PAGE_CLIENTS_OF_ADDRESS, PAGE_HEAD, PAGE_PATIENCE, TurnedAway, Why,
};

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sluice_core::Time;

/// What the modules `bell` and `mailbox` are made of; the models of all its orders have other types.
mod sync {
    pub(super) use std::sync::Arc;
    pub(super) use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
    pub(super) use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
}

/// Returns the seconds from the Unix epoch to the origin of a clock that reads `now` at `date`, for the
/// dates of `list -t`. The machine's date may be set while the router runs, so each answer needs its own.
pub(crate) fn origin_s(date: SystemTime, now: Time) -> u64 {
    let date = date.duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = Duration::from_nanos(now.as_ns());
    date.saturating_sub(now).as_secs()
}

/// Returns the default path of the socket: in the user's runtime folder, or else in `/run`.
pub fn default_socket() -> PathBuf {
    let folder = std::env::var_os("XDG_RUNTIME_DIR").filter(|path| !path.is_empty());
    folder
        .map_or_else(|| PathBuf::from("/run"), PathBuf::from)
        .join("sluice.sock")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_origin_follows_the_date() {
        let (now, date) = (Time::from_ns(900_000_000), Duration::from_millis(1_000_700));
        // 1000.7 s less 0.9 s.
        assert_eq!(origin_s(UNIX_EPOCH + date, now), 999);
        // The date is set forward by an hour.
        let hour = Duration::from_secs(3600);
        assert_eq!(origin_s(UNIX_EPOCH + date + hour, now), 4599);
        // A date before the router's start, and one before the epoch.
        assert_eq!(origin_s(UNIX_EPOCH, now), 0);
        assert_eq!(origin_s(UNIX_EPOCH - hour, now), 0);
    }
}
