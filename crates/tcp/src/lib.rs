//! A TCP without I/O: an [`Endpoint`] receives segments and the time, and returns segments to send.
//!
//! The crate serves simulation and tests. Sequence numbers, windows, timers and congestion control
//! behave as specified, and as in Linux. Payload is only counted. There is no clock, no randomness
//! and no socket, so the same input gives the same output on every machine.
//!
//! | part | specification | module |
//! |---|---|---|
//! | handshake, windows, small segments | RFC 9293, RFC 7323 | `endpoint`, `receiver` |
//! | ACKs, SACK, D-SACK | RFC 5681, RFC 2018, RFC 2883 | `receiver`, `reassembly` |
//! | loss detection and recovery | RFC 8985, RFC 6675, RFC 3042, RFC 3522, RFC 3708, RFC 5682 | `sender`, `rack`, `scoreboard` |
//! | reduction of the window | RFC 6937, RFC 9937 | `prr` |
//! | timeout | RFC 6298 | [`rtt`] |
//! | delivery rate | draft-cheng-iccrg-delivery-rate-estimation | [`rate`] |
//! | ECN | RFC 3168, RFC 8257, RFC 9768, RFC 8511 | `sender`, `receiver` |
//! | congestion control | see [`cc::REGISTRY`] | [`cc`] |
//!
//! Deviations, all taken from Linux:
//! 1. the retransmission timeout has a floor of 200 ms on its variance term, which is the largest
//!    mean deviation of a round trip ([`Config::rto_floor`], [`rtt`]);
//! 2. an idle sender halves its window for each timeout that passes (RFC 2861 §3.1) instead of
//!    falling back to the initial window at once (RFC 5681 §4.1); a sender that uses only a part
//!    of its window keeps the window (RFC 7661 §4.4, where Linux follows RFC 2861);
//! 3. these segments are acknowledged one by one: the first 16, another 16 after a duplicate, the
//!    first two marked ones, one with CWR, those by which the receive window grows, and the last
//!    one of each write and of each super-packet (PSH);
//! 4. after a gap, the fourth and later ACKs wait for up to a millisecond ([`Config::sack_delay`]),
//!    unless they report a third block;
//! 5. the receive window starts at 64 KiB and grows by a quarter with the first segment; later it
//!    is twice the bytes read in a round trip, plus twice the expected growth
//!    ([`Config::initial_receive_window`]); segments beyond a gap also open the window, and occupy
//!    a part of it;
//! 6. segments leave in super-packets of at most half a window; a partial super-packet waits for
//!    the next ACK if the ACK is expected within a millisecond (`tcp_tso_should_defer`);
//! 7. a reduction starts from the window if the window was full within the last round trip (RFC
//!    5681 §3.1: from FlightSize after the ACK); the proportional part of a reduction is rounded up
//!    to whole segments;
//! 8. CUBIC grows by whole segments ([`Config::growth`]);
//! 9. the initial window has ten segments of any size and survives one retransmission of the SYN
//!    (RFC 6928 §2 limits the bytes; RFC 5681 §3.1 starts with one segment then);
//! 10. SACKs are kept over a timeout unless the receiver has evidently reneged (RFC 2018 §5.1), and
//!     a timeout during a recovery leaves ssthresh (RFC 5681 §3.1);
//! 11. segments that are not known to be lost are not retransmitted to keep ACKs coming (RFC 6675
//!     §4, NextSeg, rules 3 and 4); tail loss probes do that;
//! 12. a mark leaves at least two segments (RFC 3168 §6.1.2 goes down to one, and then waits for
//!     the timer);
//! 13. a SYN is repeated after 1, 2, 3, 4 and 5 s before its timeout doubles (RFC 6298 §5.5), and
//!     given up after 131 s (RFC 9293 §3.8.3: three minutes). If the answer is to the first SYN,
//!     the initial window stays as it is. The timestamp of the answer gives the first RTT, so the
//!     timeout need not start at 3 s (RFC 6298 §5.7);
//! 14. a lost retransmission is sent again within the same recovery, without a second reduction
//!     (RFC 5681 §4.3 reduces the window twice);
//! 15. the SACK of a segment that was sent before the last transmission of the first one restarts
//!     the retransmission timer (RFC 6298 §5.3: only an ACK for new bytes);
//! 16. F-RTO regards a timeout as spurious when any segment that was sent once only is SACKed or
//!     acknowledged (RFC 5682 §3.1), and RACK adds no reordering window after a timeout (RFC 8985
//!     §6.3).
//!
//! Further deviations are not from Linux. SACK and timestamps are always used. Timestamps do not
//! protect against old duplicates (PAWS, RFC 7323 §5), since a duplicate would have to outlive half
//! of the sequence space. The third segment of an accurate ECN handshake carries the plain counter,
//! not the handshake's encoding (RFC 9768 §3.2.2.1). Marks on pure ACKs are not counted (§3.2). If
//! ACKs were lost with eight marks or more, the sender counts the number that is nearest to the
//! recent share of marks, not the safest one (§3.2.2.5.2). After 16 such ACKs in a row, it counts what
//! the three bits show.
#![no_std]
#![deny(missing_docs)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod cc;
mod config;
mod ecn;
mod endpoint;
pub mod prr;
mod rack;
pub mod rate;
mod reassembly;
mod receiver;
pub mod rtt;
mod scoreboard;
mod segment;
mod sender;

pub use cc::{Growth, SlowStart};
pub use config::{Config, ConfigError, LossDetection, Pacing, Reading};
pub use ecn::EcnMode;
pub use endpoint::{Endpoint, Next, Snapshot, State};
pub use segment::{Flags, MAX_SACK_BLOCKS, SackBlock, Segment, expand};
pub use sender::Counters;
