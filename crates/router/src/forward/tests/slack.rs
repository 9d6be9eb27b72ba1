//! Packets leave late by the slack at most, and never early.

use sluice_net::port::wake_time;
use sluice_wire::frame::FlowHasher;

use super::super::turn::Outbox;
use super::*;

/// A packet that left: its length, the time at which it was due, and the time of the turn.
type Left = (u32, Time, Time);

/// Runs a pipe of 300 Mbit/s in virtual time. A loop with `slack` serves it, whose wake-ups are up
/// to `margin` late, at random, as it expects. Returns the packets that left and the number of turns.
fn served(slack: Span, margin: Span) -> (Vec<Left>, usize) {
    let params = PipeParams {
        rate: Rate::from_bps(300_000_000),
        ..PipeParams::default()
    };
    let queue = Spec::parse("fq_codel target 1ms interval 5ms noecn").unwrap();
    let piped = Piped::new(&params, Vec::new(), &queue, 0, Rate::from_bps(1));
    let (rng, hasher) = (Rng::from_seed(1), FlowHasher::new(1));
    let mut lane = Lane::new(piped, (), 0, rng, hasher, Link::Ethernet);
    let mut pool = Pool::new(PoolSize {
        slots: 4096,
        large: 2,
    })
    .unwrap();
    let mut outboxes = [Outbox::new(0)];
    let mut lateness = Rng::from_seed(2);
    // Groups of frames overload the pipe for a while, then arrive rarely.
    let (mut arrivals, mut at, mut chance) = (Vec::new(), Time::ZERO, Rng::from_seed(3));
    for group in 0..400 {
        at += Span::from_us(1 + chance.next_u64() % if group < 200 { 250 } else { 4000 });
        let frames = 1 + chance.next_u64() % 20;
        arrivals.extend((0..frames).map(|_| (at, 100 + (chance.next_u64() % 1350) as usize)));
    }
    let mut arrivals = arrivals.into_iter().peekable();
    let (mut left, mut turns) = (Vec::new(), 0);
    loop {
        let late = Span::from_ns(lateness.next_u64() % (margin.as_ns() + 1));
        // Busy-polling ends at the deadline, if the sleep ends before that.
        let wake = lane
            .next_wake()
            .map(|due| (wake_time(due, slack, margin) + late).max(due));
        let Some(now) = arrivals
            .peek()
            .map(|(at, _)| *at)
            .into_iter()
            .chain(wake)
            .min()
        else {
            break;
        };
        turns += 1;
        while let Some((at, payload)) = arrivals.next_if(|(at, _)| *at <= now) {
            let frame = udp(payload);
            let slot = pool.allocate().unwrap();
            pool.room_mut(slot)[..frame.len()].copy_from_slice(&frame);
            pool.set_frame(slot, frame.len() as u32, VnetHeader::default());
            lane.admit(slot, 0, at, &mut pool, &mut outboxes);
        }
        lane.collect(now, &mut pool, &mut outboxes);
        for (slot, due) in outboxes[0].drain() {
            pool.free(slot);
            let (due, len) = due.expect("it was queued");
            left.push((len, due, now));
        }
    }
    assert!(lane.counts().dropped_total() > 0, "the AQM has work to do");
    (left, turns)
}

#[test]
fn a_packet_leaves_within_the_slack_after_it_is_due() {
    for (slack_us, margin_us) in [(50, 0), (50, 20), (50, 25), (1000, 60)] {
        let (slack, margin) = (Span::from_us(slack_us), Span::from_us(margin_us));
        let (left, _) = served(slack, margin);
        assert!(left.len() > 1000);
        for (_, due, sent) in left {
            assert!(
                due <= sent && sent <= due + slack,
                "{due} {sent}, {slack_us} us"
            );
        }
    }
}

/// Wake-ups that are later than half the slack are allowed for with half of it.
#[test]
fn late_wake_ups_use_at_most_half_of_the_slack() {
    let (slack, margin) = (Span::from_us(50), Span::from_us(200));
    let (left, _) = served(slack, margin);
    let most = Span::from_us(25) + margin;
    for (_, due, sent) in left {
        assert!(due <= sent && sent <= due + most, "{due} {sent}");
    }
}

/// AQMs act at the times at which something is due, whenever the loop serves them.
#[test]
fn slack_changes_no_decision_of_a_queue() {
    let decisions = |(left, turns): (Vec<Left>, usize)| {
        let decided: Vec<(u32, Time)> = left.iter().map(|(len, due, _)| (*len, *due)).collect();
        (decided, turns)
    };
    let (exact, turns) = decisions(served(Span::ZERO, Span::ZERO));
    let (with_slack, fewer) = decisions(served(Span::from_us(200), Span::from_us(20)));
    assert_eq!(exact, with_slack);
    assert!(fewer < turns / 2, "{fewer} turns instead of {turns}");
}

/// Eight packets of 29 bytes at 1 Mbit/s are due within 2 ms, and the slack is 10 ms.
#[test]
fn one_wake_up_serves_everything_that_is_due_within_the_slack() {
    for spin in [Spin::None, Spin::Adaptive] {
        let params = PipeParams {
            rate: Rate::from_bps(1_000_000),
            ..PipeParams::default()
        };
        let mut bench = bench_with(spin, &params, "fifo", 100);
        bench.forwarder.set_slack(Span::from_ms(10));
        bench.deliver((0..8).map(|_| plain(udp(1))).collect());
        // The first turn waits, the second sends.
        bench.forwarder.turn(None, None);
        bench.forwarder.turn(Some(Time::ZERO), None);
        assert_eq!(bench.outgoing.borrow().len(), 8, "{spin:?}");
        bench.assert_conserved();
    }
}
