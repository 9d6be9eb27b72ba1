//! Shared by the unit tests of the algorithms: 1000-byte segments and an ACK in the open phase.

use super::{Ack, Episode, Growth, Params, Phase, SlowStart, Window};
use crate::rate::RateSample;
use sluice_core::{Span, Time};

pub const MSS: u64 = 1000;

pub const PARAMS: Params = Params {
    mss: MSS,
    initial_window: 10 * MSS,
    slow_start: SlowStart::Standard,
    growth: Growth::Bytes,
    abe: false,
    is_paced: false,
    seed: 0,
};

pub fn window(segments: u64) -> Window {
    Window {
        cwnd: segments * MSS,
        ssthresh: u64::MAX,
    }
}

pub fn ack(delivered: u64) -> Ack {
    Ack {
        now: Time::from_ns(1_000_000),
        phase: Phase::Open,
        has_progress: true,
        is_round_start: false,
        delivered,
        lost: 0,
        una: 0,
        nxt: 0,
        rtt: Some(Span::from_ms(20)),
        delay: Some(Span::from_ms(10)),
        srtt: Span::from_ms(20),
        min_rtt: Span::from_ms(20),
        prior_in_flight: 0,
        in_flight: 0,
        departure: Time::ZERO,
        is_cwnd_limited: true,
        has_ece: false,
        ce_bytes: 0,
        total_delivered: 0,
        rate: RateSample::default(),
    }
}

pub fn episode(flight: u64) -> Episode {
    Episode {
        now: Time::from_ns(1_000_000),
        flight,
        in_flight: flight,
    }
}

/// An ACK of one segment, 20 ms and 20 segments after the ACK of the last round. The sampled
/// delivery rate is `rate` in bytes per second.
pub fn ack_of_round(round: u64, rate: u64) -> Ack {
    Ack {
        now: Time::ZERO + Span::from_ms(20 * round),
        total_delivered: 20_000 * round,
        in_flight: 20_000,
        prior_in_flight: 20_000,
        rate: RateSample {
            delivered: rate / 100,
            interval: Span::from_ms(10),
            prior_delivered: 20_000 * (round - 1),
            is_app_limited: false,
        },
        ..ack(MSS)
    }
}
