//! Counters, sojourn times and rates of pipes and queues.

use sluice_core::event::DropReason;
use sluice_core::units::{Rate, Span, Time};

/// The number of reasons for drops.
pub(crate) const REASONS: usize = DropReason::ALL.len();

/// The counters of a pipe or a queue. A super-packet counts as its segments.
///
/// The fields that every packet changes come first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Counters {
    /// Packets that arrived, including dropped ones.
    pub packets: u64,
    /// Bytes of these packets.
    pub bytes: u64,
    /// Packets that reached the far end.
    pub departed: u64,
    /// Packets that were CE-marked here.
    pub marked: u64,
    dropped: [u64; REASONS],
}

impl Counters {
    /// The number of bytes that every packet changes.
    pub const HOT_BYTES: usize = std::mem::offset_of!(Counters, marked);

    pub fn arrive(&mut self, packets: u16, bytes: u32) {
        self.packets += u64::from(packets);
        self.bytes += u64::from(bytes);
    }

    pub fn drop(&mut self, packets: u16, reason: DropReason) {
        self.dropped[reason as usize] += u64::from(packets);
    }

    /// Returns the number of packets dropped for one reason.
    pub fn dropped_for(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize]
    }

    /// Returns the number of packets dropped for any reason.
    pub fn dropped(&self) -> u64 {
        self.dropped.iter().sum()
    }

    /// Adds the counters of another one.
    pub fn absorb(&mut self, other: &Counters) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.marked += other.marked;
        self.departed += other.departed;
        for (count, more) in self.dropped.iter_mut().zip(other.dropped) {
            *count += more;
        }
    }
}

/// A histogram of waiting times, in steps of an eighth of a power of two from 1 us to 137 s.
///
/// When a step is full, after 4 billion packets, all counts are halved: then older packets weigh half
/// as much as newer ones.
#[derive(Clone, Debug, Default)]
#[repr(C)]
pub(crate) struct Histogram {
    /// The sum of all counts.
    total: u64,
    longest: Span,
    counts: Counts,
}

/// The steps in use with their counts, or all steps once there are many. With a hundred thousand
/// subscribers, few packets wait, and most waits fall into the same few steps.
#[derive(Clone, Debug)]
enum Counts {
    /// Stored in place. A step that is not in use has no count.
    Few([(u16, u32); FEW]),
    Some(Box<[(u16, u32); SOME]>),
    All(Box<[u32; BUCKETS]>),
}

/// With the rest of the histogram these fit into a cache line.
const FEW: usize = 4;
/// These fit into three cache lines.
const SOME: usize = 24;

impl Default for Counts {
    fn default() -> Self {
        Counts::Few([(0, 0); FEW])
    }
}

/// Powers of two of nanoseconds: below 2^10 there is a single step.
const FIRST_POWER: u32 = 10;
const LAST_POWER: u32 = 37;
const STEPS: u32 = 8;
const BUCKETS: usize = 1 + ((LAST_POWER - FIRST_POWER) * STEPS) as usize;

impl Counts {
    /// Counts a packet in a step that is not full, and returns the new count of the step.
    fn add(&mut self, bucket: usize) -> u32 {
        let list = match self {
            Counts::All(all) => {
                all[bucket] += 1;
                return all[bucket];
            }
            Counts::Few(few) => &mut few[..],
            Counts::Some(some) => &mut some[..],
        };
        let mut free = None;
        for (place, (met, count)) in list.iter_mut().enumerate() {
            if *count == 0 {
                free = Some(place);
                break;
            }
            if usize::from(*met) == bucket {
                *count += 1;
                return *count;
            }
        }
        match free {
            Some(place) => {
                list[place] = (bucket as u16, 1);
                1
            }
            None => {
                self.widen();
                self.add(bucket)
            }
        }
    }

    /// Halves all counts and returns their sum. Odd ones are rounded up, so that each step in use has
    /// a count.
    #[cold]
    fn halve(&mut self) -> u64 {
        let mut total = 0;
        let mut halve = |count: &mut u32| {
            *count = count.div_ceil(2);
            total += u64::from(*count);
        };
        match self {
            Counts::All(all) => all.iter_mut().for_each(halve),
            Counts::Few(few) => few.iter_mut().for_each(|(_, count)| halve(count)),
            Counts::Some(some) => some.iter_mut().for_each(|(_, count)| halve(count)),
        }
        total
    }

    /// Makes room for more steps.
    #[cold]
    fn widen(&mut self) {
        let wider = match self {
            Counts::Few(few) => {
                let mut some = Box::new([(0, 0); SOME]);
                some[..FEW].copy_from_slice(few);
                Counts::Some(some)
            }
            Counts::Some(some) => {
                let mut all = Box::new([0; BUCKETS]);
                for (met, count) in some.iter() {
                    all[usize::from(*met)] = *count;
                }
                Counts::All(all)
            }
            Counts::All(_) => return,
        };
        *self = wider;
    }

    /// Returns the steps in use, in order.
    fn met(&self) -> Vec<(usize, u32)> {
        let list = match self {
            Counts::All(all) => return all.iter().copied().enumerate().collect(),
            Counts::Few(few) => &few[..],
            Counts::Some(some) => &some[..],
        };
        let met = list.iter().filter(|(_, count)| *count > 0);
        let mut met: Vec<(usize, u32)> = met.map(|(b, n)| (usize::from(*b), *n)).collect();
        met.sort_unstable();
        met
    }
}

impl Histogram {
    pub fn add(&mut self, span: Span) {
        let count = self.counts.add(Self::bucket(span));
        self.total += 1;
        if count == u32::MAX {
            self.total = self.counts.halve();
        }
        self.longest = self.longest.max(span);
    }

    /// Whether no packet has waited yet.
    pub const fn is_empty(&self) -> bool {
        self.total == 0
    }

    pub const fn longest(&self) -> Span {
        self.longest
    }

    /// Returns the upper end of the smallest step below which `percent` of the packets waited. It
    /// is at most 1/8 too high and never above the longest wait; zero without packets.
    pub fn percentile(&self, percent: u64) -> Span {
        let wanted = (self.total * percent).div_ceil(100);
        let mut seen = 0;
        for (bucket, count) in self.counts.met() {
            seen += u64::from(count);
            if seen >= wanted && seen > 0 {
                return Self::upper_end(bucket).min(self.longest);
            }
        }
        self.longest
    }

    fn bucket(span: Span) -> usize {
        let ns = span.as_ns().min((1 << LAST_POWER) - 1);
        if ns < 1 << FIRST_POWER {
            return 0;
        }
        let power = ns.ilog2();
        let step = (ns >> (power - 3)) & 7;
        (1 + (power - FIRST_POWER) * STEPS) as usize + step as usize
    }

    fn upper_end(bucket: usize) -> Span {
        if bucket == 0 {
            return Span::from_ns(1 << FIRST_POWER);
        }
        let (power, step) = (
            (bucket as u32 - 1) / STEPS,
            (bucket as u64 - 1) % u64::from(STEPS),
        );
        Span::from_ns((8 + step + 1) << (power + FIRST_POWER - 3))
    }
}

/// The rate over the last complete second, measured from departures. Seconds are counted from the first
/// departure after a pause.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Meter {
    /// The start of the present window, and its bytes.
    since: Time,
    bytes: u64,
    /// The bytes of the window before it.
    before: u64,
    last_departure: Time,
}

const WINDOW: Span = Span::from_secs(1);

impl Meter {
    pub fn add(&mut self, now: Time, bytes: u32) {
        let elapsed = now.since(self.since);
        if elapsed >= WINDOW {
            let follows = elapsed < WINDOW + WINDOW;
            self.before = if follows { self.bytes } else { 0 };
            self.since = if follows { self.since + WINDOW } else { now };
            self.bytes = 0;
        }
        self.bytes += u64::from(bytes);
        self.last_departure = now;
    }

    /// Returns the rate in bits per second as of `now`: 0 if the last departure is a second ago or
    /// longer.
    pub fn bps(&self, now: Time) -> u64 {
        if now.since(self.last_departure) >= WINDOW {
            return 0;
        }
        // After a pause, all departures of the last second are in the present window.
        let is_complete = now.since(self.since) >= WINDOW || self.before == 0;
        rate(if is_complete { self.bytes } else { self.before }, WINDOW)
    }
}

fn rate(bytes: u64, span: Span) -> u64 {
    let bits = u128::from(bytes) * 8_000_000_000;
    let bps = bits / u128::from(span.as_ns().max(1));
    u64::try_from(bps).unwrap_or(Rate::UNLIMITED.as_bps())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_at_most_an_eighth_too_high() {
        let mut histogram = Histogram::default();
        for us in 1..=1000 {
            histogram.add(Span::from_us(us));
        }
        for percent in [1, 50, 95, 99, 100] {
            let exact = percent * 10_000;
            let got = histogram.percentile(percent).as_ns();
            assert!(
                got >= exact && got <= exact * 9 / 8 + 1024,
                "p{percent}: {got} ns, not {exact}"
            );
        }
        assert_eq!(histogram.longest(), Span::from_ms(1));
        assert_eq!(Histogram::default().percentile(50), Span::ZERO);
    }

    #[test]
    fn few_steps_and_all_of_them_give_the_same_percentiles() {
        // Two values alternate, then a third one takes 100 further steps: the median stays the
        // smaller one.
        let mut histogram = Histogram::default();
        for _ in 0..100 {
            histogram.add(Span::from_us(10));
            histogram.add(Span::from_us(50));
        }
        let few = histogram.percentile(50);
        assert!(matches!(histogram.counts, Counts::Few(_)));
        assert!(few >= Span::from_us(10) && few < Span::from_us(12), "{few}");
        for step in 0..100_u32 {
            histogram.add(Span::from_ns(u64::from(8 + step % 8) << (20 + step / 8)));
            if step == 10 {
                assert!(matches!(histogram.counts, Counts::Some(_)));
            }
        }
        assert!(matches!(histogram.counts, Counts::All(_)));
        // 100 of 300 are at 10 us, 200 at 50 us or less.
        assert_eq!(histogram.percentile(33), few);
        let p50 = histogram.percentile(50);
        assert!(p50 >= Span::from_us(50) && p50 < Span::from_us(57), "{p50}");
    }

    #[test]
    fn a_full_step_halves_all_steps_and_keeps_the_percentiles() {
        let far = Histogram::bucket(Span::from_secs(2));
        let steps = [(0, u32::MAX - 1), (far, 3)];
        let (mut few, mut some) = ([(0, 0); FEW], Box::new([(0, 0); SOME]));
        let mut all = Box::new([0; BUCKETS]);
        for (place, (bucket, count)) in steps.into_iter().enumerate() {
            few[place] = (bucket as u16, count);
            some[place] = (bucket as u16, count);
            all[bucket] = count;
        }
        for counts in [Counts::Few(few), Counts::Some(some), Counts::All(all)] {
            let mut histogram = Histogram {
                total: u64::from(u32::MAX - 1) + 3,
                longest: Span::from_secs(2),
                counts,
            };
            // The first one fills the step: (2^32 - 1) / 2 and 3 / 2 are rounded up to 2^31 and 2.
            for _ in 0..3 {
                histogram.add(Span::ZERO);
            }
            let used = |(_, count): &(usize, u32)| *count > 0;
            let met: Vec<_> = histogram.counts.met().into_iter().filter(used).collect();
            assert_eq!(met, [(0, (1 << 31) + 2), (far, 2)]);
            assert_eq!(histogram.total, (1 << 31) + 4);
            // A wait below 2^10 ns is in the first step.
            for percent in [50, 95, 99] {
                assert_eq!(histogram.percentile(percent), Span::from_ns(1 << 10));
            }
            assert_eq!(histogram.percentile(100), Span::from_secs(2));
        }
    }

    #[test]
    fn every_span_has_its_bucket() {
        for ns in [
            0,
            1,
            1023,
            1024,
            1151,
            1152,
            1 << 20,
            (1 << 37) - 1,
            u64::MAX,
        ] {
            let bucket = Histogram::bucket(Span::from_ns(ns));
            assert!(bucket < BUCKETS, "{ns}");
            assert!(
                ns >= 1 << 37 || Histogram::upper_end(bucket).as_ns() >= ns,
                "{ns}"
            );
        }
    }

    #[test]
    fn a_meter_returns_the_rate_of_the_last_window() {
        let mut meter = Meter::default();
        // 1250 B every 10 ms are 1 Mbit/s.
        for i in 0..300 {
            meter.add(Time::from_ns(i * 10_000_000), 1250);
        }
        let bps = meter.bps(Time::from_ns(2_995_000_000));
        assert_eq!(bps, 1_000_000);
        assert_eq!(meter.bps(Time::from_ns(60_000_000_000)), 0);
    }

    #[test]
    fn a_meter_forgets_a_departure_after_a_second_and_a_pause_at_once() {
        let at = |ms| Time::ZERO + Span::from_ms(ms);
        let mut meter = Meter::default();
        assert_eq!(meter.bps(at(500)), 0);
        // One packet of 1250 bytes in the last second is 10 kbit/s.
        meter.add(at(5000), 1250);
        assert_eq!(meter.bps(at(5000)), 10_000);
        assert_eq!(meter.bps(at(5999)), 10_000);
        assert_eq!(meter.bps(at(6000)), 0);
        assert_eq!(meter.bps(at(8000)), 0);
        // Two packets after a pause of 100 s: the mean over the pause would be 100 bit/s.
        meter.add(at(105_000), 1250);
        meter.add(at(105_200), 1250);
        assert_eq!(meter.bps(at(105_300)), 20_000);
        // A packet in the next second; the complete second has two.
        meter.add(at(106_100), 1250);
        assert_eq!(meter.bps(at(106_200)), 20_000);
        // The next one is complete, too.
        assert_eq!(meter.bps(at(107_050)), 10_000);
        assert_eq!(meter.bps(at(107_100)), 0);
    }
}
