//! CLOCK_REALTIME, the clock of the kernel's stamps, is stepped while frames are queued.

use sluice_net::{ClockReading, Stamps};
use sluice_wire::frame::{FlowHasher, View};

use super::super::turn::Outbox;
use super::*;

/// Records the arrival times in a lane.
#[derive(Default)]
struct Arrivals(Vec<Time>);

impl Observer for Arrivals {
    const LISTENS: bool = false;

    fn on_arrival(&mut self, packet: &Packet, _view: &View) {
        self.0.push(packet.arrival);
    }

    fn on_event(&mut self, _now: Time, _event: &Event<'_>) {}

    fn on_discard(&mut self, _now: Time, _packet: &Packet, _reason: DropReason) {}

    fn on_release(&mut self, _due: Time, _len: u32, _late: Span) {}
}

/// Returns the due times of the packets that leave a pipe of 1 Mbit/s, in virtual time. 10 000
/// packets a second arrive, and CLOCK_REALTIME is stepped by `step_ns` every 1.5 s, ten times. Each
/// packet counts as arriving when the kernel received it, whatever CLOCK_REALTIME read.
fn dues_across_steps(step_ns: i64) -> Vec<Time> {
    const TURN_NS: u64 = 1_000_000;
    const ARRIVALS_NS: u64 = 100_000;
    const STEPS_NS: u64 = 1_500_000_000;
    // CLOCK_REALTIME is ahead by half a century. The steps are made between two turns, while frames
    // are queued.
    let ahead_ns = |at_ns: u64| {
        let steps = ((at_ns + 550_000) / STEPS_NS).min(10) as i64;
        (50 * 365 * 86_400_000_000_000_u64).wrapping_add_signed(steps * step_ns)
    };
    let read = |at_ns: u64| ClockReading {
        before_ns: at_ns,
        real_ns: at_ns + ahead_ns(at_ns),
        after_ns: at_ns,
    };
    let params = PipeParams {
        rate: Rate::from_bps(1_000_000),
        ..PipeParams::default()
    };
    let queue = Spec::parse("fifo limit 50").unwrap();
    let piped = Piped::new(&params, Vec::new(), &queue, 0, Rate::from_bps(1));
    let (rng, hasher) = (Rng::from_seed(1), FlowHasher::new(1));
    let mut lane = Lane::new(piped, Arrivals::default(), 0, rng, hasher, Link::Ethernet);
    let mut pool = Pool::new(SIZE).unwrap();
    let mut outboxes = [Outbox::new(0)];
    let (mut dues, mut arrivals) = (Vec::new(), Vec::new());
    let mut stamps = Stamps::new(read(0));
    let frame = udp(100);
    for turn in 1..=17_000 {
        let now_ns = turn * TURN_NS;
        stamps.note(read(now_ns));
        for arrival_ns in (now_ns - TURN_NS..now_ns).step_by(ARRIVALS_NS as usize) {
            let stamp_ns = arrival_ns + ahead_ns(arrival_ns);
            let arrival = Time::from_ns(stamps.monotonic_ns(stamp_ns));
            arrivals.push(Time::from_ns(arrival_ns));
            let slot = pool.allocate().unwrap();
            pool.room_mut(slot)[..frame.len()].copy_from_slice(&frame);
            pool.set_frame(slot, frame.len() as u32, VnetHeader::default());
            lane.admit(slot, 0, arrival, &mut pool, &mut outboxes);
        }
        lane.collect(Time::from_ns(now_ns), &mut pool, &mut outboxes);
        for (slot, due) in outboxes[0].drain() {
            pool.free(slot);
            dues.push(due.expect("it was queued").0);
        }
    }
    // A packet that arrived exactly at the time of a turn counts as arriving one nanosecond later.
    let told = lane.observer().0.iter();
    for (told, arrival) in told.zip(&arrivals) {
        assert!(
            *told == *arrival || *told == *arrival + Span::from_ns(1),
            "{told} {arrival}"
        );
    }
    dues
}

#[test]
fn a_pipe_keeps_its_rate_while_the_clock_is_stepped() {
    let expected = dues_across_steps(0);
    // 128 bytes at 1 Mbit/s take 1.024 ms, and the first is due after that.
    assert_eq!(expected[0], Time::from_ns(1_024_000));
    // The smallest step is larger than the millisecond for which a packet waits for the loop at
    // most.
    for step_ms in [-60_000, -1000, -2, 2, 1000, 60_000] {
        let dues = dues_across_steps(step_ms * 1_000_000);
        assert_eq!(dues, expected, "{step_ms} ms");
    }
    // 976.5 packets per second.
    for start_ms in (0..16_000).step_by(10) {
        let window =
            Time::ZERO + Span::from_ms(start_ms)..Time::ZERO + Span::from_ms(start_ms + 1000);
        let packets = expected.iter().filter(|due| window.contains(due)).count();
        assert!(
            (975..=977).contains(&packets),
            "{packets} from {start_ms} ms"
        );
    }
}

/// CLOCK_REALTIME is eight hours ahead after each suspend, during which CLOCK_MONOTONIC did not advance.
#[test]
fn a_pipe_keeps_its_rate_when_the_machine_was_suspended() {
    let hours = 8 * 3600 * 1_000_000_000;
    assert_eq!(dues_across_steps(hours), dues_across_steps(0));
}

/// As if the port had misread the clocks.
#[test]
fn an_arrival_to_come_is_one_of_now() {
    let params = PipeParams {
        rate: Rate::from_bps(100_000_000),
        ..PipeParams::default()
    };
    let mut bench = bench(&params, "fifo", 100);
    let hour = Span::from_secs(3600);
    bench.stamp.set(Some(bench.clock.now() + hour));
    bench.deliver((0..5).map(|_| plain(udp(1000))).collect());
    // Five packets of 1028 bytes take 0.41 ms at 100 Mbit/s.
    bench.run_for_most(Span::from_secs(2), 5);
    // Packets after them leave at once, too.
    bench.stamp.set(None);
    bench.deliver(vec![plain(udp(1000))]);
    bench.run_for_most(Span::from_secs(2), 6);
    bench.assert_conserved();
}

impl Bench {
    /// Forwards until `frames` frames have left, and sleeps between due times as a router does.
    fn run_for_most(&mut self, most: Span, frames: usize) {
        let end = self.clock.now() + most;
        while self.outgoing.borrow().len() < frames && self.clock.now() < end {
            let until = self.clock.now() + Span::from_ms(1);
            self.forwarder.turn(Some(until), None);
        }
        assert_eq!(self.outgoing.borrow().len(), frames);
    }
}
