//! The hosts at both ends: they take a while to process a packet.

use std::collections::VecDeque;

use sluice_core::traffic::HOST_JITTER;
use sluice_core::{Packet, Rng, Span, Time};

/// The time that a host takes to process a packet.
///
/// Congestion control depends on it. The packets of a handshake are short, so without such a time their
/// round trip would be the shortest of a connection. BBR would not find a shorter one later, and would
/// slow down after 10 s to measure it again (ProbeRTT).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostDelay {
    /// The most time that a packet takes, at random. The simulator has the same jitter.
    pub jitter: Span,
    /// The additional time of a packet that wakes up its host: one that has received no other for
    /// [`ASLEEP_AFTER`].
    pub waking: Span,
}

impl HostDelay {
    /// None.
    #[cfg(test)]
    pub const ZERO: HostDelay = HostDelay {
        jitter: Span::ZERO,
        waking: Span::ZERO,
    };

    /// About that of `sluice exec` with namespaces on a virtual machine. There, a byte and its answer
    /// take 0.2 ms longer than the link if its round trip is 1 ms or less, and 0.4 to 0.7 ms longer if it
    /// is 5 ms or more (`docs/explanation/accuracy.md`).
    pub const TYPICAL: HostDelay = HostDelay {
        jitter: HOST_JITTER,
        waking: Span::from_us(100),
    };
}

/// A host. It processes packets in the order of their arrival.
pub struct Host {
    delay: HostDelay,
    rng: Rng,
    /// When it falls asleep if no packet arrives.
    asleep_at: Time,
    /// Packets that have arrived, with the instants at which they are processed.
    waiting: VecDeque<(Time, Packet)>,
}

impl Host {
    /// Creates a host.
    pub fn new(delay: HostDelay, rng: Rng) -> Host {
        Host {
            delay,
            rng,
            asleep_at: Time::ZERO,
            waiting: VecDeque::new(),
        }
    }

    /// Receives a packet at `now`.
    pub fn receive(&mut self, packet: Packet, now: Time) {
        let takes = Span::from_ns(self.rng.below(self.delay.jitter.as_ns() + 1));
        let mut at = now.saturating_add(takes);
        if now >= self.asleep_at {
            at = at.saturating_add(self.delay.waking);
        }
        self.asleep_at = now.saturating_add(ASLEEP_AFTER);
        let at = self.waiting.back().map_or(at, |(last, _)| at.max(*last));
        self.waiting.push_back((at, packet));
    }

    /// Returns the time at which the next packet is processed.
    pub fn next_due(&self) -> Option<Time> {
        self.waiting.front().map(|(at, _)| *at)
    }

    /// Returns the next packet that is processed by `now`.
    pub fn take(&mut self, now: Time) -> Option<Packet> {
        if self.next_due()? > now {
            return None;
        }
        self.waiting.pop_front().map(|(_, packet)| packet)
    }
}

/// The time without packets after which a host sleeps.
const ASLEEP_AFTER: Span = Span::from_ms(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_keep_their_order_and_take_no_longer_than_the_jitter() {
        let jitter = Span::from_us(50);
        let delay = HostDelay {
            jitter,
            ..HostDelay::ZERO
        };
        let mut host = Host::new(delay, Rng::from_seed(1));
        let mut arrived = Vec::new();
        let mut taken = Vec::new();
        for slot in 0..1000_u32 {
            // 10 us apart, so that packets would often overtake each other.
            let now = Time::from_ns(u64::from(slot) * 10_000);
            while let Some(at) = host.next_due().filter(|at| *at <= now) {
                taken.push((host.take(at).unwrap().slot, at));
            }
            arrived.push(now);
            host.receive(Packet::new(slot, 1500), now);
        }
        while let Some(at) = host.next_due() {
            assert!(host.take(Time::from_ns(at.as_ns() - 1)).is_none());
            taken.push((host.take(at).unwrap().slot, at));
        }
        let slots = taken.iter().map(|(slot, _)| *slot);
        assert!(slots.eq(0..1000));
        let mut total = 0;
        for ((_, at), now) in taken.iter().zip(&arrived) {
            assert!(at >= now && at.since(*now) <= jitter);
            total += at.since(*now).as_ns();
        }
        // A packet also waits for those before it, so the mean is above half of the jitter.
        let mean = total / 1000;
        assert!((25_000..50_000).contains(&mean), "{mean}");
    }

    #[test]
    fn the_first_packet_after_a_pause_wakes_the_host() {
        let delay = HostDelay {
            waking: Span::from_us(100),
            ..HostDelay::ZERO
        };
        let mut host = Host::new(delay, Rng::from_seed(1));
        // The packet at 1.01 ms comes 0.91 ms after the one before it, that at 2.01 ms a whole
        // millisecond later.
        let arrivals = [0, 10, 100, 1010, 2010, 2020];
        let processed = arrivals.map(|us| {
            host.receive(Packet::new(0, 100), Time::from_ns(us * 1000));
            let (at, _) = host.waiting.back().unwrap();
            at.as_ns() / 1000
        });
        assert_eq!(processed, [100, 100, 100, 1010, 2110, 2110]);
    }

    #[test]
    fn without_a_delay_packets_do_not_wait() {
        let mut host = Host::new(HostDelay::ZERO, Rng::from_seed(1));
        let now = Time::from_ns(7);
        host.receive(Packet::new(3, 1500), now);
        assert_eq!(host.next_due(), Some(now));
        assert_eq!(host.take(now).unwrap().slot, 3);
        assert_eq!(host.next_due(), None);
    }
}
