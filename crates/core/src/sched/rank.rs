//! Rank functions: small programs that decide in which order packets leave a push-in queue.
//!
//! A [`Rank`] gives each arriving packet a number - the packet with the least one leaves first -
//! and an instant before which it must not leave. So a discipline takes a few lines. The ones below
//! are examples, available by name in `pifo` and `pieo`.

use alloc::vec::Vec;

use super::allocated;
use crate::packet::Packet;
use crate::units::{Rate, Span, Time};

/// The place of a packet in a push-in queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The packet with the lowest rank leaves first; equal ranks leave in the order of arrival.
    pub rank: u64,
    /// The packet does not leave before this instant (`pieo`; ignored by `pifo`).
    pub eligible: Time,
}

impl Place {
    /// Creates a place for a packet that may leave at once.
    pub const fn now(rank: u64) -> Self {
        Place {
            rank,
            eligible: Time::ZERO,
        }
    }
}

/// A program that ranks packets.
pub trait Rank {
    /// Returns the place of a packet that arrives at `now`, if it is accepted.
    fn place(&self, packet: &Packet, now: Time) -> Place;

    /// Called when the packet was accepted at `place`.
    fn accepted(&mut self, packet: &Packet, place: Place) {
        let _ = (packet, place);
    }

    /// Called when the packet, which had `rank`, leaves for the link.
    fn left(&mut self, packet: &Packet, rank: u64) {
        let _ = (packet, rank);
    }

    /// Returns the bytes that the rank has allocated.
    fn memory(&self) -> usize {
        0
    }
}

impl<R: Rank + ?Sized> Rank for alloc::boxed::Box<R> {
    fn place(&self, packet: &Packet, now: Time) -> Place {
        (**self).place(packet, now)
    }
    fn accepted(&mut self, packet: &Packet, place: Place) {
        (**self).accepted(packet, place);
    }
    fn left(&mut self, packet: &Packet, rank: u64) {
        (**self).left(packet, rank);
    }
    fn memory(&self) -> usize {
        size_of_val(&**self) + (**self).memory()
    }
}

/// Strict priority: the lowest class first.
#[derive(Clone, Debug, Default)]
pub struct StrictPriority;

impl Rank for StrictPriority {
    fn place(&self, packet: &Packet, _now: Time) -> Place {
        Place::now(u64::from(packet.class))
    }
}

/// Weighted fair queueing by start times (P. Goyal, H. Vin and H. Cheng, "Start-Time Fair
/// Queueing", IEEE/ACM ToN 5(5), 1997; in this form A. Sivaraman et al., "Programmable Packet
/// Scheduling at Line Rate", ACM SIGCOMM 2016, figure 1).
///
/// A flow's weight is its IP precedence plus one, as in the weighted fair queueing of Cisco's IOS:
/// 1 for best effort, 6 for expedited forwarding. Flows are distinguished by their hash.
#[derive(Clone, Debug)]
pub struct StartTime {
    /// The virtual time at which each flow's last packet finishes.
    finish: Vec<u64>,
    /// Start of the last packet that left.
    now: u64,
}

/// Fraction bits of virtual time: at weight 8 a step is 1/32 byte, and 2^56 bytes fit.
const FRACTION: u32 = 8;

impl StartTime {
    /// Creates virtual times for `flows` different hashes.
    pub fn new(flows: usize) -> Self {
        StartTime {
            finish: alloc::vec![0; flows],
            now: 0,
        }
    }
}

impl Rank for StartTime {
    fn memory(&self) -> usize {
        allocated(&self.finish)
    }

    fn place(&self, packet: &Packet, _now: Time) -> Place {
        Place::now(self.finish[bucket(packet, self.finish.len())].max(self.now))
    }

    fn accepted(&mut self, packet: &Packet, place: Place) {
        let weight = u64::from(packet.dscp >> 3) + 1;
        let flow = bucket(packet, self.finish.len());
        self.finish[flow] = place.rank + (u64::from(packet.len) << FRACTION) / weight;
    }

    fn left(&mut self, _packet: &Packet, rank: u64) {
        self.now = self.now.max(rank);
    }
}

/// Earliest deadline first. The deadline is [`Packet::tag`] microseconds after the arrival, or
/// `default` if the host does not know it.
#[derive(Clone, Debug)]
pub struct EarliestDeadline {
    /// The deadline of a packet without one.
    pub default: Span,
}

impl Rank for EarliestDeadline {
    fn place(&self, packet: &Packet, _now: Time) -> Place {
        let within = match packet.tag {
            0 => self.default,
            us => Span::from_us(u64::from(us)),
        };
        Place::now(packet.arrival.saturating_add(within).as_ns())
    }
}

/// Shortest remaining processing time: the flow with the fewest bytes left to send first (L.
/// Schrage, Operations Research 16(3), 1968). [`Packet::tag`] is that number; packets without one
/// come last.
#[derive(Clone, Debug, Default)]
pub struct ShortestRemaining;

impl Rank for ShortestRemaining {
    fn place(&self, packet: &Packet, _now: Time) -> Place {
        let remaining = u64::from(packet.tag);
        Place::now(remaining.wrapping_sub(1))
    }
}

/// Token-bucket pacing: each flow leaves at `rate`, after up to `burst` bytes at once. Packets that
/// may leave do so in the order in which they became eligible. Flows are distinguished by their
/// hash.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    rate: Rate,
    /// Time in which the bucket fills.
    fill: Span,
    /// The instant at which each flow's bucket will be full, if it could go into debt.
    full_at: Vec<Time>,
}

impl TokenBucket {
    /// Creates buckets for `flows` different hashes.
    pub fn new(rate: Rate, burst: u64, flows: usize) -> Self {
        TokenBucket {
            rate,
            fill: rate.transmission(burst),
            full_at: alloc::vec![Time::ZERO; flows],
        }
    }
}

impl Rank for TokenBucket {
    fn memory(&self) -> usize {
        allocated(&self.full_at)
    }

    fn place(&self, packet: &Packet, now: Time) -> Place {
        let full_at = self.full_at[bucket(packet, self.full_at.len())];
        // The bucket has len bytes when all but fill - len of the time until it is full is over. A
        // packet longer than the bucket leaves when it is full.
        let need = self.rate.transmission(u64::from(packet.len));
        let spare = self.fill.saturating_sub(need);
        let eligible = Time::from_ns(full_at.as_ns().saturating_sub(spare.as_ns())).max(now);
        Place {
            rank: eligible.as_ns(),
            eligible,
        }
    }

    fn accepted(&mut self, packet: &Packet, place: Place) {
        let need = self.rate.transmission(u64::from(packet.len));
        let flow = bucket(packet, self.full_at.len());
        self.full_at[flow] = self.full_at[flow].max(place.eligible).saturating_add(need);
    }
}

fn bucket(packet: &Packet, buckets: usize) -> usize {
    packet.flow as usize % buckets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(flow: u32, len: u32) -> Packet {
        let mut packet = Packet::new(0, len);
        packet.flow = flow;
        packet
    }

    #[test]
    fn start_times_follow_weight_and_length() {
        let mut rank = StartTime::new(4);
        let mut starts = Vec::new();
        for _ in 0..3 {
            let mut heavy = packet(1, 800);
            heavy.dscp = 24; // CS3: precedence 3, weight 4
            for p in [packet(0, 800), heavy] {
                let place = rank.place(&p, Time::ZERO);
                rank.accepted(&p, place);
                starts.push(place.rank >> FRACTION);
            }
        }
        // 800 B at weight 1 are 800, at weight 4 200.
        assert_eq!(starts, [0, 0, 800, 200, 1600, 400]);
        // A flow that arrives when 800 has left starts there.
        rank.left(&packet(0, 800), 800 << FRACTION);
        assert_eq!(rank.place(&packet(2, 1), Time::ZERO).rank >> FRACTION, 800);
    }

    #[test]
    fn a_bucket_lets_a_burst_pass_and_then_its_rate() {
        // 1000 B at 8 Mbit/s take 1 ms; the bucket holds 2500 B.
        let mut rank = TokenBucket::new(Rate::from_bps(8_000_000), 2500, 4);
        let start = Time::from_ns(1_000_000_000);
        let mut send = |len| {
            let place = rank.place(&packet(0, len), start);
            rank.accepted(&packet(0, len), place);
            place.eligible.since(start)
        };
        let us: Vec<Span> = [1000, 1000, 1000, 1000].map(&mut send).to_vec();
        // 2500 B cover two packets; the third misses 500 B, which take 0.5 ms.
        assert_eq!(us, [0, 0, 500, 1500].map(Span::from_us));
        // Longer than the bucket: it leaves when the bucket is full, 2.5 ms after the last byte was
        // due.
        assert_eq!(send(5000), Span::from_us(1500 + 2500));
    }

    #[test]
    fn packets_without_a_size_come_after_all_that_have_one() {
        let mut short = packet(0, 1);
        short.tag = u32::MAX;
        let rank = ShortestRemaining;
        let unknown = rank.place(&packet(0, 1), Time::ZERO).rank;
        assert!(rank.place(&short, Time::ZERO).rank < unknown);
    }
}
