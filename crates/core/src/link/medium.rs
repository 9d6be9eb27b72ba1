//! The medium: what makes a link more than a rate, a burst and a delay.

use super::jitter::{Jitter, JitterParams, Table};
use super::opportunities::Opportunities;
use super::profile::Profile;
use super::reorder::{Reorder, ReorderParams};
use super::schedule::Schedule;
use crate::framing::FramingParams;
use crate::packet::Packet;
use crate::rng::Rng;
use crate::units::{Rate, Span, Time};

/// A rate that changes with time and replaces that of the pipe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RateSource {
    /// Rates from given instants on.
    Schedule(Schedule),
    /// Instants at which 1500 bytes may pass. Burst credit and profiles have no effect then.
    Opportunities(Opportunities),
}

impl RateSource {
    /// Returns the source with every instant later by `by`.
    pub fn later(self, by: Span) -> Self {
        match self {
            RateSource::Schedule(schedule) => RateSource::Schedule(schedule.later(by)),
            RateSource::Opportunities(trace) => RateSource::Opportunities(trace.later(by)),
        }
    }

    /// Returns the bytes that can pass in the time `length` from the start on. For a trace, that is
    /// its mean rate.
    pub fn bytes_in(&self, length: Span) -> u64 {
        match self {
            RateSource::Schedule(schedule) => schedule.bytes_in(length),
            RateSource::Opportunities(trace) => Rate::from_bps(trace.mean_bps()).bytes_in(length),
        }
    }

    /// Returns the earliest start of a transmission, from `now` on.
    pub(super) fn ready_at(&mut self, now: Time) -> Time {
        match self {
            RateSource::Schedule(schedule) => schedule.ready_at(now),
            RateSource::Opportunities(opportunities) => opportunities.ready_at(now),
        }
    }
}

/// The effects of a link beyond the parameters of its pipe: framing, a changing rate, a delay
/// profile, jitter, reordering. A plain medium does nothing.
#[derive(Clone, Debug)]
pub struct Medium {
    /// The overhead that packets occupy beyond their bytes.
    pub framing: FramingParams,
    /// A rate that changes with time.
    pub rate: Option<RateSource>,
    /// Extra time on the link.
    pub profile: Option<Profile>,
    jitter: Option<Jitter>,
    is_unordered: bool,
    reorder: Option<Reorder>,
    draws: Draws,
}

/// Each effect has its own random stream, so that switching one on does not change the draws of the
/// others.
#[derive(Clone, Debug)]
struct Draws {
    profile: Rng,
    jitter: Rng,
    reorder: Rng,
}

/// The transmission of a packet by the link.
pub(super) struct Transmission {
    pub(super) span: Span,
    pub(super) is_lost: bool,
}

/// The time from a packet's departure from the link until its arrival.
pub(super) struct Flight {
    pub(super) delay: Span,
    /// Whether the packet may overtake packets that left before it.
    pub(super) may_overtake: bool,
}

impl Medium {
    /// Creates a medium without effects. Effects that are added will draw from streams of `rng`.
    pub fn new(rng: &Rng) -> Self {
        Medium {
            framing: FramingParams::default(),
            rate: None,
            profile: None,
            jitter: None,
            is_unordered: false,
            reorder: None,
            draws: Draws {
                profile: rng.fork(stream::PROFILE),
                jitter: rng.fork(stream::JITTER),
                reorder: rng.fork(stream::REORDER),
            },
        }
    }

    /// Adds deviations of the delay, drawn from `table` if there is one.
    #[must_use]
    pub fn with_jitter(mut self, params: &JitterParams, table: Option<Table>) -> Self {
        self.jitter = (params.jitter > Span::ZERO).then(|| Jitter::new(params, table));
        self.is_unordered = params.jitter_reorder;
        self
    }

    /// Adds packets that skip the delay.
    #[must_use]
    pub fn with_reorder(mut self, params: &ReorderParams) -> Self {
        let is_on = params.reorder.as_billionths() > 0;
        self.reorder = is_on.then(|| Reorder::new(params));
        self
    }

    /// Draws on from the streams of `old`. Effects with the same parameters keep their state.
    pub(super) fn go_on_from(&mut self, old: Medium) {
        self.draws = old.draws;
        if let (Some(jitter), Some(old)) = (&mut self.jitter, old.jitter) {
            jitter.go_on_from(old);
        }
        if let (Some(reorder), Some(old)) = (&mut self.reorder, old.reorder) {
            reorder.go_on_from(old);
        }
    }

    /// Returns the states and streams of the effects, without what comes from files.
    pub(super) fn states(&self) -> Medium {
        Medium {
            framing: FramingParams::default(),
            rate: None,
            profile: None,
            jitter: self.jitter.clone(),
            is_unordered: false,
            reorder: self.reorder.clone(),
            draws: self.draws.clone(),
        }
    }

    /// Returns whether something is drawn.
    pub(super) const fn draws(&self) -> bool {
        self.profile.is_some() || self.jitter.is_some() || self.reorder.is_some()
    }

    /// Returns the rate in force at `now`, where the pipe itself has `rate`.
    pub(super) fn rate_at(&mut self, now: Time, rate: Rate) -> Rate {
        match &mut self.rate {
            Some(RateSource::Schedule(schedule)) => schedule
                .rate_at(now)
                .expect("no transmission starts in an outage"),
            _ => rate,
        }
    }

    pub(super) fn transmission(&mut self, packet: &Packet, rate: Rate) -> Transmission {
        let bytes = self.framing.wire_len(packet);
        let (span, is_lost) = match &self.profile {
            Some(profile) => profile.transmission(rate, bytes, &mut self.draws.profile),
            None => (rate.transmission(bytes), false),
        };
        Transmission { span, is_lost }
    }

    pub(super) fn flight(&mut self, delay: Span) -> Flight {
        let delay = match &mut self.jitter {
            Some(jitter) => jitter.apply(delay, &mut self.draws.jitter),
            None => delay,
        };
        let skips = match &mut self.reorder {
            Some(reorder) => reorder.skips(&mut self.draws.reorder),
            None => false,
        };
        Flight {
            delay: if skips { Span::ZERO } else { delay },
            may_overtake: skips || self.is_unordered,
        }
    }
}

/// Numbers of the effects' streams of randomness.
pub(super) mod stream {
    pub const LOSS: u64 = 1;
    pub const GILBERT: u64 = 2;
    pub const DUPLICATE: u64 = 3;
    pub const CORRUPT: u64 = 4;
    pub const PROFILE: u64 = 5;
    pub const JITTER: u64 = 6;
    pub const REORDER: u64 = 7;
}
