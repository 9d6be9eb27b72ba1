//! The traces. Rates are chosen so that each trace shows the effect in its name; the arithmetic is
//! beside it.

use crate::link::{Arrival, Scene};

pub const MS: u64 = 1_000_000;
pub const S: u64 = 1_000 * MS;
const MBIT: u64 = 1_000_000;

/// A small generator, so that no trace depends on the library's.
pub struct Lcg(pub u64);

impl Lcg {
    pub fn below(&mut self, bound: u64) -> u64 {
        // Knuth's MMIX constants; the high bits are of better quality.
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

fn scene(name: &'static str, rate: u64, mut arrivals: Vec<Arrival>) -> Scene {
    arrivals.sort_by_key(|a| a.at);
    Scene {
        name,
        arrivals,
        rates: vec![(0, rate)],
    }
}

fn arrival(at: u64, flow: u64, size: u64) -> Arrival {
    Arrival {
        at,
        flow: flow as u32,
        size: size as u32,
        ecn: 0,
    }
}

/// Full packets of three flows, one every `gap` ns.
fn bulk(from: u64, to: u64, gap: u64) -> Vec<Arrival> {
    let count = (to - from) / gap;
    (0..count)
        .map(|i| arrival(from + i * gap, i * 7 % 3, 1514))
        .collect()
}

/// Two overloads with `intervals` of 100 ms of light load between them.
fn re_entry(name: &'static str, intervals: u64) -> Scene {
    // 1514 B take 1.2112 ms at 10 Mbit/s. One packet per 0.9 ms for 1 s leaves about 300 packets,
    // minus the drops, to be drained first; the pause is longer by 0.35 s for that.
    let pause = S + 350 * MS + intervals * 100 * MS;
    let mut all = bulk(0, S, 900_000);
    all.extend(bulk(S, pause, 5 * MS));
    all.extend(bulk(pause, pause + S, 900_000));
    all.extend(bulk(
        pause + S + intervals * 100 * MS,
        pause + 3 * S,
        900_000,
    ));
    scene(name, 10 * MBIT, all)
}

/// Two overloads with `idle` ns without packets between them.
fn idle(name: &'static str, idle: u64) -> Scene {
    let mut all = bulk(0, S, 700_000);
    all.extend(bulk(S + idle, S + idle + S, 700_000));
    all.extend(bulk(S + 2 * idle, S + 2 * idle + S, 700_000));
    scene(name, 10 * MBIT, all)
}

/// Returns all traces.
pub fn all() -> Vec<Scene> {
    let mut lcg = Lcg(8289);
    let mut scenes = vec![
        // 13.5 Mbit/s into 10.
        scene("steady overload", 10 * MBIT, bulk(0, 3 * S, 900_000)),
        re_entry("re-entry after 1 interval", 1),
        re_entry("re-entry after 5 intervals", 5),
        re_entry("re-entry after 8 intervals", 8),
        re_entry("re-entry after 16 intervals", 16),
        re_entry("re-entry after 17 intervals", 17),
        idle("long idle", 30 * S),
        // 2^32 ticks of 1024 ns, and 2^32 us.
        idle("idle for a turn of the Linux clock", 4_398_046_511_104),
        idle("idle for a turn of the dummynet clock", 4_294_967_296_000),
    ];

    // 30 to 200 packets at once every 200 ms, of changing flows.
    let mut bursts = Vec::new();
    for i in 0..15 {
        for k in 0..30 + lcg.below(170) {
            bursts.push(arrival(i * 200 * MS, (i + k / 40) % 5, 1514));
        }
    }
    scenes.push(scene("bursts", 10 * MBIT, bursts));

    let mut mixed = Vec::new();
    for i in 0..4000 {
        let sizes = [64, 1514, 300, 576, 1514, 1000, 90, 1514];
        let at = i * 650_000 + lcg.below(200_000);
        mixed.push(arrival(at, lcg.below(7), sizes[lcg.below(8) as usize]));
    }
    scenes.push(scene("mixed sizes", 10 * MBIT, mixed));

    let mut ecn = bulk(0, 2 * S, 800_000);
    for a in &mut ecn {
        a.ecn = lcg.below(4) as u8;
    }
    scenes.push(scene("ECN", 10 * MBIT, ecn));

    let mut capable = bulk(0, 2 * S, 600_000);
    for a in &mut capable {
        a.ecn = 2;
        a.flow = 1;
    }
    scenes.push(scene("all ECN-capable", 10 * MBIT, capable));

    // 10.5 Mbit/s for 2 s, then 8.1 for 1 s, and so on: a load that a small probability can
    // control.
    let mut mild = Vec::new();
    for i in 0..6 {
        mild.extend(bulk(3 * i * S, (3 * i + 2) * S, 1_150_000));
        mild.extend(bulk((3 * i + 2) * S, 3 * (i + 1) * S, 1_500_000));
    }
    for a in &mut mild {
        a.ecn = 2 * u8::from(a.at % 7 > 0);
    }
    scenes.push(scene("mild overload", 10 * MBIT, mild));

    // 40 Mbit/s into 2: the limit drops the packets.
    let mut overflow = Vec::new();
    for i in 0..5000 {
        let flow = lcg.below(12);
        overflow.push(arrival(i * 300_000, flow * flow / 8, 200 + lcg.below(1300)));
    }
    scenes.push(scene("overflow", 2 * MBIT, overflow));

    let mut steps = scene("rate steps", 100 * MBIT, bulk(0, 6 * S, 1_100_000));
    for (i, rate) in [100, 10, 1, 50, 1, 100].into_iter().enumerate() {
        steps.rates.push((i as u64 * S, rate * MBIT));
    }
    scenes.push(steps);

    // 1514 B take 94.6 ms at 128 kbit/s, far above the target.
    scenes.push(scene("low rate", 128_000, bulk(0, 40 * S, 80 * MS)));

    // 64 B take 51.2 us at 10 Mbit/s.
    let small = (0..40_000).map(|i| arrival(i * 45_000, i * 5 % 4, 64));
    scenes.push(scene("small packets", 10 * MBIT, small.collect()));

    // A thin flow of one small packet every 20 ms beside a bulk flow.
    let mut thin = bulk(0, 3 * S, 1_000_000);
    for a in &mut thin {
        a.flow = 2;
    }
    thin.extend((0..150).map(|i| arrival(i * 20 * MS + 13, 0, 98)));
    scenes.push(scene("a thin flow", 10 * MBIT, thin));

    // 1250 B take exactly 1 ms: every arrival coincides with the end of a transmission.
    let meeting = (0..3000).map(|i| arrival((i - i / 3) * MS, i % 4, 1250));
    scenes.push(scene("meeting instants", 10 * MBIT, meeting.collect()));

    // A flow's last packets are dropped by its own queue while another flow's remain.
    let mut emptied = Vec::new();
    for i in 0..2000 {
        emptied.push(arrival(i * 1_300_000, 0, 1514));
        if i % 9 == 0 {
            emptied.push(arrival(i * 1_300_000, 1 + i / 9 % 6, 1514));
            emptied.push(arrival(i * 1_300_000 + 700, 1 + i / 9 % 6, 700));
        }
    }
    scenes.push(scene("emptied by drops", 9 * MBIT, emptied));

    // Four fat flows at 5 Mbit/s make a round of 4 * 2.4 ms, in which the only packet of a thin
    // flow waits above target; its next one arrives before the round is over.
    let mut round = Vec::new();
    for i in 0..2000 {
        round.push(arrival(i * 1_600_000, i % 4, 1514));
        if i % 4 == 0 {
            round.push(arrival(i * 1_600_000 + lcg.below(3 * MS), 4, 90));
        }
    }
    scenes.push(scene("a thin flow in a long round", 5 * MBIT, round));

    // Nothing happens for the first minute.
    scenes.push(scene(
        "late start",
        10 * MBIT,
        bulk(60 * S, 62 * S, 900_000),
    ));
    scenes
}
