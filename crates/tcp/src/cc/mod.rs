//! Congestion control: a trait, one file per algorithm, and a table of all algorithms.
//!
//! The sender keeps the window and calls the algorithm: [`CongestionControl::on_ack`] for every
//! ACK, [`CongestionControl::on_congestion`] once per episode of loss, mark or timeout. After a
//! congestion signal, the sender reduces the window by proportional rate reduction, unless the
//! algorithm owns its window. All arithmetic is in integers, so a run is the same on every machine;
//! fractions of a byte are carried in remainders.
//!
//! A new algorithm is one file here, with its [`Descriptor`], and one line in
//! `congestion_controls!` below.

pub mod hystart;
#[cfg(test)]
pub(crate) mod testing;

use crate::ecn::EcnMode;
use crate::rate::RateSample;
use alloc::boxed::Box;
use core::fmt;
use sluice_core::{Rate, Span, Time};

/// The two variables that every algorithm sets, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Congestion window: bytes that may be in flight.
    pub cwnd: u64,
    /// The slow start threshold; `u64::MAX` until the first signal.
    pub ssthresh: u64,
}

impl Window {
    /// Whether the window grows exponentially (RFC 5681 §3.1).
    pub const fn is_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }
}

/// Phase of a sender's reaction to congestion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// No congestion since the last recovery.
    #[default]
    Open,
    /// The window is being reduced in response to marks (RFC 3168 §6.1.2).
    Reducing,
    /// Lost segments are being retransmitted (RFC 6675 §5).
    Recovery,
    /// The timer has expired and the window starts from one segment (RFC 5681 §3.1).
    Loss,
}

/// A sign of congestion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Loss detection has found a lost segment.
    Loss,
    /// The receiver has reported a mark.
    Ecn,
    /// The retransmission timer has expired.
    Timeout,
}

/// The changes by one ACK.
#[derive(Clone, Copy, Debug)]
pub struct Ack {
    /// The instant at which the ACK arrived.
    pub now: Time,
    /// The phase of the sender after this ACK.
    pub phase: Phase,
    /// Whether SND.UNA advanced.
    pub has_progress: bool,
    /// Whether a round trip has passed: everything outstanding at the last ACK with this flag has
    /// been acknowledged.
    pub is_round_start: bool,
    /// Bytes newly delivered, cumulatively or selectively.
    pub delivered: u64,
    /// Bytes newly found lost.
    pub lost: u64,
    /// SND.UNA and SND.NXT.
    pub una: u64,
    /// See [`Ack::una`].
    pub nxt: u64,
    /// RTT of the newest segment delivered, unless a retransmission was delivered as well.
    pub rtt: Option<Span>,
    /// Difference of the ACK's two timestamps: the one-way delay of the segment that it echoes, and
    /// the time that the ACK was delayed.
    pub delay: Option<Span>,
    /// Smoothed RTT; zero before the first sample.
    pub srtt: Span,
    /// Minimum RTT of the last minutes; [`Span::MAX`] before the first sample.
    pub min_rtt: Span,
    /// Bytes in flight before and after the ACK.
    pub prior_in_flight: u64,
    /// See [`Ack::prior_in_flight`].
    pub in_flight: u64,
    /// The instant at which pacing allows the next departure. It may be in the past.
    pub departure: Time,
    /// Whether the window, rather than the application or the peer, limited the sender.
    pub is_cwnd_limited: bool,
    /// Whether the ACK carries ECE (classic feedback).
    pub has_ece: bool,
    /// Newly reported CE-marked bytes (accurate feedback).
    pub ce_bytes: u64,
    /// Connection-wide count of delivered bytes.
    pub total_delivered: u64,
    /// Delivery rate.
    pub rate: RateSample,
}

/// The connection at the moment of a congestion signal.
#[derive(Clone, Copy, Debug)]
pub struct Episode {
    /// The instant at which the signal was detected.
    pub now: Time,
    /// Bytes sent and not acknowledged (RFC 5681 §2: FlightSize). At least the window, if the
    /// window was full within the last round trip.
    pub flight: u64,
    /// Bytes in the network.
    pub in_flight: u64,
}

impl Ack {
    /// Whether no loss is being repaired and the window is not being reduced.
    pub fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Whether a window may grow: the ACK acknowledges new bytes, the window is not being reduced,
    /// and it was fully used (RFC 7661 §4.4).
    pub fn allows_growth(&self) -> bool {
        self.has_progress && self.is_cwnd_limited && matches!(self.phase, Phase::Open | Phase::Loss)
    }
}

/// A congestion control algorithm of one connection.
pub trait CongestionControl: fmt::Debug + Send + Sync {
    /// Called for every ACK in every phase, after everything else has processed the ACK.
    fn on_ack(&mut self, ack: &Ack, window: &mut Window);

    /// Called at the start of an episode of congestion. Sets ssthresh, to which the sender reduces
    /// the window.
    fn on_congestion(&mut self, signal: Signal, episode: &Episode, window: &mut Window);

    /// Called when the last reduction has turned out to be spurious; the sender has restored the
    /// window.
    fn on_undo(&mut self, _window: &mut Window) {}

    /// Called when sending resumes after a pause of `idle` with nothing in flight.
    fn on_resume(&mut self, _now: Time, _idle: Span, _window: &mut Window) {}

    /// The pacing rate; `None` leaves the choice to the sender.
    fn pacing_rate(&self) -> Option<Rate> {
        None
    }

    /// Length of a burst when pacing, as time at the pacing rate.
    fn burst(&self) -> Span {
        Span::from_ms(1)
    }

    /// Whether the algorithm sets the window itself during recovery and after marks, so that the
    /// sender must not reduce it.
    fn owns_window(&self) -> bool {
        false
    }

    /// Whether the algorithm keeps the window small on purpose. Then the measured delivery rates
    /// are not those of the path.
    fn limits_samples(&self) -> bool {
        false
    }

    /// Whether the algorithm reacts to marks in [`CongestionControl::on_ack`].
    fn handles_marks(&self) -> bool {
        false
    }

    /// A variable to plot, with its name: CUBIC's W_max, DCTCP's alpha, BBR's rate.
    fn variable(&self) -> (&'static str, u64) {
        ("none", 0)
    }
}

/// The condition that ends slow start before the first loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SlowStart {
    /// As in Linux: HyStart for cubic, at ssthresh for the others.
    #[default]
    Auto,
    /// At ssthresh or the first loss (RFC 5681 §3.1).
    Standard,
    /// When the RTT grows, through conservative slow start (RFC 9406).
    HystartPlusPlus,
    /// HyStart as in Linux: at the first sign of a long ACK train or a grown RTT.
    Hystart,
}

/// The unit in which CUBIC counts its growth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Growth {
    /// In whole segments, as in Linux.
    #[default]
    Segments,
    /// In bytes, by the formulas of RFC 9438.
    Bytes,
}

/// Arguments of [`Descriptor::create`].
#[derive(Clone, Copy, Debug)]
pub struct Params {
    /// Bytes of a full segment.
    pub mss: u64,
    /// Bytes of the initial window.
    pub initial_window: u64,
    /// The condition that ends slow start; [`SlowStart::Auto`] has been resolved.
    pub slow_start: SlowStart,
    /// The unit in which CUBIC counts its growth.
    pub growth: Growth,
    /// Whether a mark reduces the window less than a loss does (RFC 8511).
    pub abe: bool,
    /// Whether the sender paces.
    pub is_paced: bool,
    /// See [`crate::Config::seed`].
    pub seed: u64,
}

/// An algorithm, as the registry describes it.
pub struct Descriptor {
    /// Name in scenarios and on the command line.
    pub name: &'static str,
    /// One line of documentation.
    pub summary: &'static str,
    /// Specification.
    pub source: &'static str,
    /// The ECN feedback that the algorithm needs from the receiver.
    pub ecn: EcnMode,
    /// Whether the algorithm paces by default.
    pub paces: bool,
    /// The condition that ends the algorithm's slow start in Linux.
    pub slow_start: SlowStart,
    /// Whether [`crate::Config::abe`] affects the algorithm.
    pub has_abe: bool,
    /// Whether [`crate::Config::slow_start`] affects the algorithm.
    pub has_hystart: bool,
    /// Default of [`crate::Config::initial_window`] for flows with this algorithm.
    pub initial_window: u32,
    /// Creates the state of one connection.
    pub create: fn(&Params) -> Box<dyn CongestionControl>,
}

impl fmt::Debug for Descriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Declares the modules of all algorithms and the table of their descriptors.
macro_rules! congestion_controls {
    ($($module:ident: $($descriptor:ident),+;)+) => {
        $(
            pub mod $module;
            $(pub use $module::$descriptor;)+
        )+

        /// All algorithms.
        pub static REGISTRY: &[&Descriptor] = &[$($(&$module::$descriptor,)+)+];
    };
}

congestion_controls! {
    reno: RENO;
    cubic: CUBIC;
    bbr: BBR;
    bbr3: BBR3;
    dctcp: DCTCP;
    prague: PRAGUE;
    ledbat: LEDBAT, LEDBAT_5MS;
}

/// RFC 6928 §2: ten segments.
pub const INITIAL_WINDOW: u32 = 10;

/// Looks up the algorithm called `name`.
///
/// ```
/// use sluice_tcp::cc;
/// assert_eq!(cc::find("cubic").unwrap().source, "RFC 9438");
/// assert!(cc::find("vegas").is_none());
/// ```
pub fn find(name: &str) -> Option<&'static Descriptor> {
    REGISTRY.iter().copied().find(|d| d.name == name)
}

/// `value * numerator / denominator`, rounded down, without overflow.
pub(crate) const fn scale(value: u64, numerator: u64, denominator: u64) -> u64 {
    (value as u128 * numerator as u128 / denominator as u128) as u64
}

/// `window` in whole segments, rounded down, at least two (RFC 5681 §3.1, equation 4).
pub(crate) const fn whole(window: u64, mss: u64) -> u64 {
    let whole = window / mss * mss;
    if whole < 2 * mss { 2 * mss } else { whole }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_words_of_every_grammar() {
        for (number, descriptor) in REGISTRY.iter().enumerate() {
            let name = descriptor.name;
            let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            assert!(name.chars().all(is_plain), "{name}");
            let first = REGISTRY.iter().position(|other| other.name == name);
            assert_eq!(first, Some(number), "{name}");
        }
    }
}
