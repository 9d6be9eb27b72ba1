//! Complete links: conservation, polls that change nothing, and the order of the effects.

mod common;

use common::ops::{Arrival, Op, Setting, value};
use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};
use sluice_core::link::{
    FramingParams, Link, LinkFiles, LinkParams, Opportunities, Profile, RateSource, ReorderParams,
    Schedule,
};
use sluice_core::param::Values;
use sluice_core::registry::Spec;
use sluice_core::{Backlog, Cx, DropReason, Packet, Rng, Sink, Span, Time, Wake};

const MS: u64 = 1_000_000;

/// Dropped packets: when, which slot, why.
type Drops = Vec<(Time, u32, DropReason)>;

/// A host that accounts for every slot.
#[derive(Default)]
struct Host {
    is_held: Vec<bool>,
    copies: u64,
    drops: Drops,
    flipped: Vec<(u32, u64)>,
}

impl Host {
    fn take(&mut self) -> u32 {
        self.is_held.push(true);
        self.is_held.len() as u32 - 1
    }

    fn release(&mut self, slot: u32) {
        let held = &mut self.is_held[slot as usize];
        assert!(*held, "slot {slot} left twice");
        *held = false;
    }
}

impl Sink for Host {
    fn discard(&mut self, now: Time, packet: Packet, reason: DropReason) {
        self.release(packet.slot);
        self.drops.push((now, packet.slot, reason));
    }

    fn copy(&mut self, _now: Time, _packet: &Packet) -> Option<u32> {
        self.copies += 1;
        Some(self.take())
    }

    fn corrupt(&mut self, _now: Time, packet: &Packet, bit: u64) {
        assert!(self.is_held[packet.slot as usize]);
        assert!(bit < u64::from(packet.len) * 8);
        self.flipped.push((packet.slot, bit));
    }
}

/// Packets that arrived at the far end: when, which slot.
type Arrivals = Vec<(u64, u32)>;

fn receive(link: &mut Link, host: &mut Host, rng: &mut Rng, at: Time, out: &mut Arrivals) {
    let mut cx = Cx::new(at, rng, host);
    let mut gone = Vec::new();
    while let Some(departure) = link.poll(&mut cx) {
        assert!(departure.due <= at, "delivered before it was due");
        gone.push((departure.due.as_ns(), departure.packet.slot));
    }
    for (_, slot) in &gone {
        host.release(*slot);
    }
    out.extend(gone);
}

/// Sends packets of `(time, bytes)` and polls when the link requests it. Returns the arrivals and
/// the host.
fn send(link: &mut Link, packets: &[(u64, u32)]) -> (Arrivals, Host) {
    let (mut host, mut rng, mut out) = (Host::default(), Rng::from_seed(1), Arrivals::new());
    for (at, len) in packets {
        while let Wake::At(due) = link.next_wake()
            && due.as_ns() < *at
        {
            receive(link, &mut host, &mut rng, due, &mut out);
        }
        let mut packet = Packet::new(host.take(), *len);
        packet.arrival = Time::from_ns(*at);
        link.enqueue(
            packet,
            &mut Cx::new(Time::from_ns(*at), &mut rng, &mut host),
        );
    }
    while let Wake::At(due) = link.next_wake() {
        receive(link, &mut host, &mut rng, due, &mut out);
    }
    (out, host)
}

fn link(text: &str, files: LinkFiles) -> Link {
    let queue = Spec::parse("fifo").unwrap().build().unwrap();
    let params = LinkParams::parse(text).unwrap();
    Link::new(&params, files, queue, &Rng::from_seed(7))
}

fn due(text: &str, files: LinkFiles, packets: &[(u64, u32)]) -> Vec<u64> {
    let (out, _) = send(&mut link(text, files), packets);
    out.into_iter().map(|(due, _)| due).collect()
}

#[test]
fn a_schedule_with_an_outage_sets_the_pace() {
    // 1250 B take 1 ms at 10 Mbit/s and 10 ms at 1 Mbit/s. The second starts at 1 ms; half of it
    // passes before the change at 1.5 ms, and the other half takes 5 ms.
    let schedule = Schedule::parse("0,10000000\n1500000,1000000\n20000000,0\n50000000,10000000");
    let files = LinkFiles {
        rate: Some(RateSource::Schedule(schedule.unwrap())),
        ..LinkFiles::default()
    };
    // The third takes 6.5 to 16.5 ms. The outage leaves 6500 bits of the fourth for 50 ms.
    let us = MS / 1000;
    let expected = [MS, 6_500 * us, 16_500 * us, 50_650 * us, 51_650 * us];
    assert_eq!(due("", files, &[(0, 1250); 5]), expected);
}

#[test]
fn a_trace_delivers_at_its_opportunities_only() {
    let trace = Opportunities::parse("1\n2\n2\n10").unwrap();
    let files = LinkFiles {
        rate: Some(RateSource::Opportunities(trace)),
        ..LinkFiles::default()
    };
    // 1500 B at 1 ms; 100 + 1400 B share the first one at 2 ms, 1500 B take the second; the next
    // round begins at 10 ms. A packet at 5 ms waits for 10 ms.
    let packets = [
        (0, 1500),
        (0, 100),
        (0, 1400),
        (0, 1500),
        (5 * MS, 1500),
        (5 * MS, 1500),
    ];
    assert_eq!(
        due("delay 1ms", files, &packets),
        [2 * MS, 3 * MS, 3 * MS, 3 * MS, 11 * MS, 12 * MS]
    );
}

#[test]
fn framing_lengthens_transmissions_only() {
    // 1500 B in ATM cells: 32 cells of 53 B = 1696 B, at 1 Mbit/s 13.568 ms.
    let arrived = due(
        "rate 1Mbit/s cells atm",
        LinkFiles::default(),
        &[(0, 1500), (0, 1500)],
    );
    assert_eq!(arrived, [13_568_000, 27_136_000]);
    let framing = FramingParams::default();
    assert!(framing.is_plain());
}

#[test]
fn a_profile_occupies_the_link_and_then_loses() {
    // Every sample is 10 ms: with 1250 B at 1 Mbit/s each packet takes 20 ms of the link. A loss
    // level of 0 loses all of them, but they still take their time.
    let profile = |level: u32| LinkFiles {
        profile: Profile::parse(&format!(
            "samples 8\nloss-level {level}\nbw 1Mbit/s\nprob delay\n0 10\n1 10"
        ))
        .ok(),
        ..LinkFiles::default()
    };
    assert_eq!(
        due("", profile(1), &[(0, 1250), (0, 1250)]),
        [20 * MS, 40 * MS]
    );
    let (out, host) = send(&mut link("", profile(0)), &[(0, 1250), (0, 1250)]);
    assert!(out.is_empty());
    let at: Vec<u64> = host.drops.iter().map(|(at, _, _)| at.as_ns()).collect();
    assert_eq!(at, [20 * MS, 40 * MS]);
    assert!(
        host.drops
            .iter()
            .all(|(_, _, reason)| *reason == DropReason::Loss)
    );
}

#[test]
fn every_fifth_packet_skips_the_delay() {
    // 1 ms apart with 20 ms of delay: packets 5 and 10 arrive at once, before packet 1.
    let packets: Vec<(u64, u32)> = (0..10).map(|i| (i * MS, 100)).collect();
    let text = "delay 20ms reorder 1 reorder_gap 5";
    let (out, _) = send(&mut link(text, LinkFiles::default()), &packets);
    let slots: Vec<u32> = out.iter().map(|(_, slot)| *slot).collect();
    assert_eq!(slots, [4, 9, 0, 1, 2, 3, 5, 6, 7, 8]);
    assert_eq!((out[0], out[2]), ((4 * MS, 4), (20 * MS, 0)));
    assert_eq!(ReorderParams::default().reorder_gap, 1);
}

#[test]
fn jitter_keeps_the_order_unless_told_otherwise() {
    let packets: Vec<(u64, u32)> = (0..1000).map(|i| (i * MS, 100)).collect();
    let order = |text: &str| {
        let (out, _) = send(&mut link(text, LinkFiles::default()), &packets);
        assert!(out.windows(2).all(|pair| pair[0].0 <= pair[1].0));
        out.into_iter().map(|(_, slot)| slot).collect::<Vec<u32>>()
    };
    assert!(order("delay 20ms jitter 10ms").is_sorted());
    assert!(!order("delay 20ms jitter 10ms jitter_reorder").is_sorted());
}

#[test]
fn a_copy_follows_its_packet_and_is_not_copied_again() {
    let text = "rate 8Mbit/s duplicate 1";
    let (out, host) = send(&mut link(text, LinkFiles::default()), &[(0, 1000); 3]);
    // 1000 B take 1 ms; slots 0, 2, 4 arrived and 1, 3, 5 are their copies.
    let expected: Arrivals = (0..6).map(|i| ((u64::from(i) + 1) * MS, i)).collect();
    assert_eq!(out, expected);
    assert_eq!(host.copies, 3);
}

#[test]
fn a_damaged_packet_arrives() {
    let (out, host) = send(
        &mut link("corrupt 1", LinkFiles::default()),
        &[(0, 1000); 3],
    );
    assert_eq!(out.len(), 3);
    assert_eq!(host.flipped.len(), 3);
}

#[test]
fn one_effect_does_not_shift_the_draws_of_another() {
    // The same packets are lost whether or not others are damaged, duplicated or delayed.
    let packets: Vec<(u64, u32)> = (0..2000).map(|i| (i * MS, 100)).collect();
    let lost = |text: &str| {
        let mut link = link(text, LinkFiles::default());
        let (mut host, mut rng) = (Host::default(), Rng::from_seed(1));
        let mut lost = Vec::new();
        for (i, (at, len)) in packets.iter().enumerate() {
            let packet = Packet::new(host.take(), *len);
            let before = link.counts().lost;
            let mut cx = Cx::new(Time::from_ns(*at), &mut rng, &mut host);
            link.enqueue(packet, &mut cx);
            if link.counts().lost > before {
                lost.push(i);
            }
        }
        lost
    };
    let alone = lost("loss 0.1");
    // 200 expected, sigma sqrt(2000 * .09) = 13.4; 5 sigma = 67.
    assert!(alone.len().abs_diff(200) < 67, "{}", alone.len());
    assert_eq!(
        lost("loss 0.1 corrupt 0.3 duplicate 0.3 delay 20ms jitter 5ms reorder 0.2"),
        alone
    );
}

#[test]
fn effects_can_change_while_packets_are_under_way() {
    let mut link = link(
        "delay 50ms jitter 10ms jitter_reorder",
        LinkFiles::default(),
    );
    let (mut host, mut rng, mut out) = (Host::default(), Rng::from_seed(1), Arrivals::new());
    for i in 0..20 {
        let packet = Packet::new(host.take(), 100);
        let mut cx = Cx::new(Time::from_ns(i * MS), &mut rng, &mut host);
        link.enqueue(packet, &mut cx);
    }
    let mut cx = Cx::new(Time::from_ns(20 * MS), &mut rng, &mut host);
    let params = LinkParams::parse("delay 1ms loss 1").unwrap();
    link.set_params(&params, LinkFiles::default(), &mut cx);
    let packet = Packet::new(host.take(), 100);
    let mut cx = Cx::new(Time::from_ns(21 * MS), &mut rng, &mut host);
    link.enqueue(packet, &mut cx);
    receive(
        &mut link,
        &mut host,
        &mut rng,
        Time::from_ns(100 * MS),
        &mut out,
    );
    assert_eq!(out.len(), 20, "those under way arrive");
    assert_eq!(host.drops.len(), 1, "the one after the change is lost");
}

/// Sends one packet of 1500 bytes at time 0 over `link`, changes the parameters if `change` says
/// when and to what, and returns when the packet arrives.
fn arrival_of_one(mut link: Link, change: Option<(u64, &str)>) -> Option<u64> {
    let (mut host, mut rng, mut out) = (Host::default(), Rng::from_seed(1), Arrivals::new());
    let packet = Packet::new(host.take(), 1500);
    let mut cx = Cx::new(Time::ZERO, &mut rng, &mut host);
    link.enqueue(packet, &mut cx);
    assert!(link.poll(&mut cx).is_none());
    if let Some((at, params)) = change {
        let params = LinkParams::parse(params).unwrap();
        let mut cx = Cx::new(Time::from_ns(at), &mut rng, &mut host);
        link.set_params(&params, LinkFiles::default(), &mut cx);
    }
    let end = Time::from_ns(100_000 * MS);
    receive(&mut link, &mut host, &mut rng, end, &mut out);
    out.first().map(|(at, _)| *at)
}

#[test]
fn a_new_rate_acts_on_the_rest_of_a_transmission() {
    let one = |params, change| arrival_of_one(link(params, LinkFiles::default()), change).unwrap();
    // 12 000 bits at 1 kbit/s take 12 s. 500 bits have passed after 500 ms; at 10 Mbit/s the other
    // 11 500 take 1.15 ms.
    let slow = "rate 1kbit/s delay 1ms";
    assert_eq!(one(slow, Some((500 * MS, "rate 10Mbit/s"))), 501_150_000);
    assert_eq!(one(slow, Some((500 * MS, "rate unlimited"))), 500 * MS);
    assert_eq!(one(slow, Some((500 * MS, "rate 1kbit/s"))), 12_000 * MS);
    // At 12 Mbit/s they take 1 ms, at 1 Mbit/s the second half takes 6 ms.
    assert_eq!(
        one("rate 12Mbit/s", Some((MS / 2, "rate 1Mbit/s"))),
        6_500_000
    );
}

#[test]
fn a_step_of_a_schedule_acts_within_a_transmission() {
    let one = |steps: &str, change| {
        let rate = Some(RateSource::Schedule(Schedule::parse(steps).unwrap()));
        let files = LinkFiles {
            rate,
            ..LinkFiles::default()
        };
        arrival_of_one(link("", files), change)
    };
    // Of 12 000 bits, 1000 pass in a second at 1 kbit/s; the others take 1.1 ms at 10 Mbit/s.
    let rises = "0,1000\n1000000000,10000000";
    assert_eq!(one(rises, None), Some(1_001_100_000));
    // Half at 12 Mbit/s, an outage of 1.5 ms, and half at 6 Mbit/s.
    let outage = "0,12000000\n500000,0\n2000000,6000000";
    assert_eq!(one(outage, None), Some(3 * MS));
    // An outage without an end keeps the packet, until another rate follows: 6000 bits at 1 Mbit/s.
    let dead = "0,12000000\n500000,0";
    assert_eq!(one(dead, None), None);
    assert_eq!(one(dead, Some((10 * MS, "rate 1Mbit/s"))), Some(16 * MS));
    // 4000 bits at 1 Mbit/s in 4 ms, then 8000 at 8 Mbit/s.
    let change = Some((4 * MS, "rate 8Mbit/s"));
    assert_eq!(one("0,1000000\n900000000,5", change), Some(5 * MS));
}

/// Sets `params` at `link`, then sends `count` packets. Returns which of them are lost.
fn losses_after(link: &mut Link, params: &str, count: usize, rng: &mut Rng) -> Vec<bool> {
    let (mut host, params) = (Host::default(), LinkParams::parse(params).unwrap());
    let mut cx = Cx::new(Time::ZERO, rng, &mut host);
    link.set_params(&params, LinkFiles::default(), &mut cx);
    let mut is_lost = || {
        let packet = Packet::new(host.take(), 100);
        let before = host.drops.len();
        link.enqueue(packet, &mut Cx::new(Time::ZERO, rng, &mut host));
        let mut new = host.drops[before..].iter();
        new.any(|(.., reason)| *reason == DropReason::Loss)
    };
    (0..count).map(|_| is_lost()).collect()
}

#[test]
fn links_that_are_changed_together_do_not_lose_the_same_packets() {
    let mut rng = Rng::from_seed(1);
    // No two of 64 coins of ten links agree: each of 45 pairs would with probability 2^-64.
    let mut patterns: Vec<Vec<bool>> = (0..10)
        .map(|_| {
            losses_after(
                &mut link("", LinkFiles::default()),
                "loss 0.5",
                64,
                &mut rng,
            )
        })
        .collect();
    patterns.sort();
    patterns.dedup();
    assert_eq!(patterns.len(), 10);
}

#[test]
fn a_link_that_is_changed_often_loses_what_it_should() {
    let (mut link, mut rng) = (link("loss 0.1", LinkFiles::default()), Rng::from_seed(1));
    let rounds: Vec<Vec<bool>> = (0..100)
        .map(|round| {
            losses_after(
                &mut link,
                &format!("rate {}Mbit/s loss 0.1", 1 + round),
                20,
                &mut rng,
            )
        })
        .collect();
    // 2000 packets: mean 200, sigma sqrt(2000 * .1 * .9) = 13.4; 5 sigma = 67.
    let lost = rounds.iter().flatten().filter(|lost| **lost).count();
    assert!(lost.abs_diff(200) < 67, "{lost}");
    // A round loses none with probability .9^20 = .12: 12 of 100, sigma 3.3; 5 sigma = 17. Two equal
    // rounds with losses are likely only where they lose one packet each.
    let none = rounds.iter().filter(|round| !round.contains(&true)).count();
    assert!(none < 30, "{none}");
}

#[test]
fn a_change_of_the_rate_leaves_patterns_and_chains_as_they_are() {
    // Every 50th packet is lost, in rounds of 20 packets.
    let (mut patterned, mut rng) = (
        link("lose_every 50", LinkFiles::default()),
        Rng::from_seed(1),
    );
    let lost: Vec<bool> = (0..10)
        .flat_map(|_| losses_after(&mut patterned, "rate 1Mbit/s lose_every 50", 20, &mut rng))
        .collect();
    let places: Vec<usize> = (1..=200).filter(|place| lost[place - 1]).collect();
    assert_eq!(places, [50, 100, 150, 200]);
    // A chain that becomes bad at its first packet and stays bad for 2^-30 of the time.
    let bad = "ge_p 1 ge_r 0.000000001";
    let mut chained = link(bad, LinkFiles::default());
    let lost: Vec<bool> = (0..10)
        .flat_map(|_| losses_after(&mut chained, &format!("rate 1Mbit/s {bad}"), 20, &mut rng))
        .collect();
    assert!(!lost[0] && lost[1..].iter().all(|lost| *lost), "{lost:?}");
    // Another chain begins in its good state.
    let other = losses_after(&mut chained, "ge_p 0 ge_k 0", 20, &mut rng);
    assert!(!other.contains(&true));
}

/// The instants at which a link is polled.
#[derive(Clone, Copy, Debug)]
enum Polls {
    OnTime,
    Often,
    Late,
}

/// Drives a link with random effects with random arrivals. Returns arrivals and drops.
fn drive(
    settings: &[Setting],
    queue: &str,
    ops: &[Op],
    seed: u64,
    polls: Polls,
) -> Result<(Arrivals, Drops), String> {
    let mut set: Vec<_> = LinkParams::decls()
        .zip(settings)
        .filter_map(|(decl, setting)| setting.map(|(shape, bits)| (decl, shape, bits)))
        .map(|(decl, shape, bits)| (decl.name, value(decl, shape, bits)))
        .collect();
    let params = loop {
        let mut values = Values::new();
        for (name, value) in &set {
            values.set(name, *value);
        }
        match LinkParams::from_values(&values) {
            Ok(params) => break params,
            Err(_) => set.pop(),
        };
    };
    let files = LinkFiles {
        rate: match seed % 3 {
            0 => Opportunities::parse("0\n1\n1\n7")
                .ok()
                .map(RateSource::Opportunities),
            1 => Schedule::parse("0,1000000\n50000000,0\n90000000,20000000")
                .ok()
                .map(RateSource::Schedule),
            _ => None,
        },
        profile: match seed % 5 {
            0 => Profile::parse("samples 9\nloss-level 0.9\nprob delay\n0 0\n1 30").ok(),
            _ => None,
        },
        jitter_table: None,
    };
    let queue = Spec::parse(queue).unwrap().build().unwrap();
    let mut link = Link::new(&params, files, queue, &Rng::from_seed(seed));
    let (mut host, mut rng, mut out) = (Host::default(), Rng::from_seed(seed), Arrivals::new());
    let mut now = Time::ZERO;
    for op in ops {
        match op {
            Op::Arrive(arrival) => {
                let packet = Arrival {
                    len: arrival.len.max(1),
                    ..arrival.clone()
                }
                .packet(host.take(), now);
                link.enqueue(packet, &mut Cx::new(now, &mut rng, &mut host));
            }
            Op::Pass(ns) | Op::PassLate(ns) => {
                let end = now.saturating_add(Span::from_ns(ns % (100 * MS)));
                if !matches!(polls, Polls::Late) {
                    while let Wake::At(at) = link.next_wake()
                        && at < end
                    {
                        receive(&mut link, &mut host, &mut rng, at.max(now), &mut out);
                    }
                }
                if !matches!(polls, Polls::OnTime) && end > now && ns % 3 > 0 {
                    let before = Time::from_ns(end.as_ns() - 1);
                    receive(&mut link, &mut host, &mut rng, before, &mut out);
                }
                now = end;
            }
            _ => {}
        }
    }
    let end = Time::from_ns(u64::MAX / 2);
    receive(&mut link, &mut host, &mut rng, end, &mut out);
    if link.in_flight() != Backlog::default() || !link.backlog().is_empty() {
        return Err("something is left".into());
    }
    match host.is_held.iter().position(|held| *held) {
        Some(slot) => Err(format!("slot {slot} was lost")),
        None => Ok((out, host.drops)),
    }
}

#[test]
fn links_conserve_packets_and_do_not_depend_on_polls() {
    let mut config = ProptestConfig {
        cases: 256,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(0x52);
    }
    let setting = prop::option::weighted(0.3, any::<(u8, u64)>());
    let settings = prop::collection::vec(setting, LinkParams::decls().count());
    let op = any::<(u8, u64)>().prop_map(|(kind, bits)| Op::from_bits(kind, bits));
    let queue = prop::sample::select(vec!["fifo limit 30", "codel", "fq_codel limit 50"]);
    let case = (
        settings,
        queue,
        prop::collection::vec(op, 0..200),
        any::<u64>(),
    );
    TestRunner::new(config)
        .run(&case, |(settings, queue, ops, seed)| {
            let run =
                |polls| drive(&settings, queue, &ops, seed, polls).map_err(TestCaseError::fail);
            let on_time = run(Polls::OnTime)?;
            for polls in [Polls::Often, Polls::Late] {
                let other = run(polls)?;
                prop_assert_eq!(&on_time.0, &other.0, "{:?}", polls);
                prop_assert_eq!(&on_time.1, &other.1, "{:?}", polls);
            }
            Ok(())
        })
        .unwrap_or_else(|failure| panic!("{failure}"));
}
