//! The loop over ports in memory.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;

use sluice_core::link::PipeParams;
use sluice_core::registry::Spec;
use sluice_core::{DropReason, Rate, Rng, Span, Time};
use sluice_net::Clock;
use sluice_net::port::registry::Playback;
use sluice_net::port::{CacheWarmer, Capabilities, Counters, Pool, PoolSize, Port, Slot, Spin};
use sluice_wire::frame::{FlowHasher, Link, VnetHeader};

use super::*;

mod clock_steps;
mod exchange;
mod slack;

type Frames = Rc<RefCell<VecDeque<(Vec<u8>, VnetHeader)>>>;
type Bytes = Rc<RefCell<Vec<Vec<u8>>>>;

/// A port that receives from a list and sends to a list.
struct ListPort {
    incoming: Frames,
    outgoing: Bytes,
    /// The number of frames that it sends before it reports that it would block.
    room: usize,
    /// The arrival time of its frames; they have no stamp if this is `None`.
    stamp: Rc<Cell<Option<Time>>>,
    /// Never readable: the tests drive the loop without waiting for it.
    descriptor: UnixStream,
}

impl Port for ListPort {
    fn name(&self) -> &str {
        "list"
    }

    fn link(&self) -> Link {
        Link::Ethernet
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            super_packets: true,
            partial_checksums: true,
            batch: 4,
            mtu: 1500,
            kernel_queue: 0,
        }
    }

    fn receive(&mut self, pool: &mut Pool, into: &mut Vec<Slot>) -> usize {
        let mut count = 0;
        while count < 4 {
            let Some((bytes, vnet)) = self.incoming.borrow_mut().pop_front() else {
                break;
            };
            let slot = pool.allocate().expect("the test's pool is large enough");
            pool.room_mut(slot)[..bytes.len()].copy_from_slice(&bytes);
            pool.set_frame(slot, bytes.len() as u32, vnet);
            if let Some(stamp) = self.stamp.get() {
                pool.set_arrival(slot, stamp);
            }
            into.push(slot);
            count += 1;
        }
        count
    }

    fn transmit(&mut self, pool: &mut Pool, slots: &[Slot]) -> usize {
        let count = slots.len().min(self.room);
        self.room -= count;
        for slot in &slots[..count] {
            self.outgoing.borrow_mut().push(pool.head(*slot).to_vec());
            pool.free(*slot);
        }
        count
    }

    fn counters(&mut self) -> Counters {
        Counters::default()
    }

    fn release(&mut self, _pool: &mut Pool) {}

    fn has_waiting(&self) -> bool {
        false
    }

    fn looks_within(&self) -> Option<Span> {
        None
    }

    fn playback(&mut self) -> Option<&mut dyn Playback> {
        None
    }

    fn let_super_packets_in(&mut self, _whole: bool) {}

    fn promiscuity(&self) -> sluice_net::port::Promiscuity {
        sluice_net::port::Promiscuity::NotAsked
    }
}

impl AsFd for ListPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Two list ports with one pipe from the first to the second.
struct Bench {
    forwarder: Forwarder<ListPort, Piped>,
    incoming: Frames,
    outgoing: Bytes,
    /// The timestamp of the next frames.
    stamp: Rc<Cell<Option<Time>>>,
    clock: Clock,
    _far_ends: Vec<UnixStream>,
}

const SIZE: PoolSize = PoolSize {
    slots: 64,
    large: 2,
};

fn bench(params: &PipeParams, queue: &str, room: usize) -> Bench {
    bench_with(Spin::None, params, queue, room)
}

fn bench_with(spin: Spin, params: &PipeParams, queue: &str, room: usize) -> Bench {
    let (incoming, outgoing, stamp) = (Rc::default(), Rc::default(), Rc::default());
    let clock = Clock::start();
    let mut far_ends = Vec::new();
    let mut port = |incoming: &Rc<_>, outgoing: &Rc<_>| {
        let (near, far) = UnixStream::pair().expect("a pair of sockets");
        far_ends.push(far);
        ListPort {
            incoming: Rc::clone(incoming),
            outgoing: Rc::clone(outgoing),
            room,
            stamp: Rc::clone(&stamp),
            descriptor: near,
        }
    };
    let ports = vec![
        port(&incoming, &Rc::default()),
        port(&Rc::default(), &outgoing),
    ];
    let pool = Pool::new(SIZE).expect("memory for 64 slots");
    let mut forwarder = Forwarder::new(ports, pool, clock, spin);
    let queue = Spec::parse(queue).expect("the queue can be parsed");
    let split_below = Rate::from_bps(1_000_000_000);
    let piped = Piped::new(params, Vec::new(), &queue, 1, split_below);
    let options = LaneOptions {
        from: &[0],
        seed: 1,
        rng: Rng::from_seed(1),
    };
    forwarder.add_lane(piped, (), options);
    Bench {
        forwarder,
        incoming,
        outgoing,
        stamp,
        clock,
        _far_ends: far_ends,
    }
}

impl Bench {
    /// Delivers `frames` all at once and forwards everything that is due at once.
    fn deliver(&mut self, frames: Vec<(Vec<u8>, VnetHeader)>) {
        self.incoming.borrow_mut().extend(frames);
        while !self.incoming.borrow().is_empty() {
            self.forwarder.look_at(0);
            self.forwarder.turn(Some(Time::ZERO), None);
        }
    }

    /// Forwards until `frames` frames have left, which takes microseconds.
    fn run_until(&mut self, frames: usize) {
        while self.outgoing.borrow().len() < frames {
            self.forwarder.turn(Some(Time::ZERO), None);
        }
    }

    /// Asserts that every slot is free except those of queued packets.
    fn assert_conserved(&self) {
        let lane = &self.forwarder.lanes()[0];
        let pipe = lane.queueing().pipe();
        let held = pipe.backlog().packets + pipe.in_flight().packets;
        let pool = self.forwarder.pool();
        assert_eq!(pool.available() as u64 + held, u64::from(SIZE.slots));
        let counts = lane.counts();
        assert_eq!(
            counts.admitted + counts.bypassed,
            counts.sent + counts.dropped_total() + counts.lost(LostFrame::Blocked) + held
        );
    }
}

/// Returns an Ethernet frame with `payload` bytes of UDP over IPv4, ECT(0).
fn udp(payload: usize) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00, 0x45, 2];
    frame.extend((28 + payload as u16).to_be_bytes());
    frame.extend([0, 1, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([0, 7, 0, 9]);
    frame.extend((8 + payload as u16).to_be_bytes());
    frame.extend([0, 0]);
    frame.resize(42 + payload, 0);
    frame
}

fn plain(frame: Vec<u8>) -> (Vec<u8>, VnetHeader) {
    (frame, VnetHeader::default())
}

/// The descriptors of these ports are never ready, so the loop must find arrivals by polling, also
/// while packets are due at once and with another descriptor to watch.
#[test]
fn a_busy_polling_loop_checks_its_ports_itself() {
    let mut bench = bench_with(Spin::Always, &PipeParams::default(), "fifo", 1000);
    let (also, _far) = UnixStream::pair().expect("a pair of sockets");
    for frames in 1..=20 {
        let vnet = VnetHeader::default();
        bench.incoming.borrow_mut().push_back((udp(100), vnet));
        // One turn receives it, the next sends it.
        for _ in 0..2 {
            bench.forwarder.turn(Some(Time::ZERO), Some(also.as_fd()));
        }
        assert_eq!(bench.outgoing.borrow().len(), frames);
    }
    bench.assert_conserved();
}

/// At most a request every 50 us.
#[test]
fn a_busy_polling_loop_keeps_the_caches_warm_while_nothing_is_due() {
    let clock = Clock::start();
    for spin in [Spin::None, Spin::Adaptive] {
        assert!(CacheWarmer::for_loop(spin).is_none(), "{spin:?}");
    }
    let Some(warmer) = CacheWarmer::for_loop(Spin::Always) else {
        assert!(std::env::var_os("CI").is_none(), "CI has the privilege");
        eprintln!("NOT SHOWN: this needs a network namespace (CAP_SYS_ADMIN)");
        return;
    };
    let mut bench = bench_with(Spin::Always, &PipeParams::default(), "fifo", 1000);
    assert_eq!(bench.forwarder.warmth_requests(), None);
    bench.forwarder.keep_warm(Some(warmer));
    for _ in 0..100 {
        bench.forwarder.turn(Some(Time::ZERO), None);
    }
    assert_eq!(bench.forwarder.warmth_requests(), Some(0), "overdue");
    let start = clock.now();
    let mut sent = 0;
    while sent < 10 && clock.now() < start + Span::from_secs(10) {
        let until = clock.now() + Span::from_ms(1);
        bench.forwarder.turn(Some(until), None);
        sent = bench.forwarder.warmth_requests().expect("it is kept warm");
    }
    let most = clock.now().since(start).as_ns() / 50_000 + 1;
    assert!((10..=most).contains(&sent), "{sent}");
}

#[test]
fn frames_cross_a_pipe_without_limits_in_order() {
    let mut bench = bench(&PipeParams::default(), "fifo", 100);
    let frames: Vec<_> = (1..=9).map(udp).collect();
    bench.deliver(frames.iter().cloned().map(plain).collect());
    assert_eq!(*bench.outgoing.borrow(), frames);
    bench.assert_conserved();
    assert_eq!(bench.forwarder.lanes()[0].lateness().packets(), 9);
}

#[test]
fn frames_that_are_not_ip_bypass_the_pipe() {
    // Nothing leaves this pipe for hours.
    let params = PipeParams {
        delay: Span::from_secs(3600),
        ..PipeParams::default()
    };
    let mut bench = bench(&params, "fifo", 100);
    let mut arp = udp(30);
    arp[12..14].copy_from_slice(&[0x08, 0x06]);
    bench.deliver(vec![plain(udp(1)), plain(arp.clone())]);
    assert_eq!(*bench.outgoing.borrow(), [arp]);
    assert_eq!(bench.forwarder.lanes()[0].counts().bypassed, 1);
    bench.assert_conserved();
}

/// Queues that let nothing past them.
struct DeadEnd;

impl Queueing for DeadEnd {
    type Key = ();

    fn key(&self, _from: Origin, _view: &View, _head: &[u8]) {}

    fn splits(&mut self, _from: PortNumber, (): &(), _at: Time) -> bool {
        false
    }

    fn admit(&mut self, packet: Packet, (): &(), _cx: &mut Cx<'_>) {
        unreachable!("no frame of the test is IP: {packet:?}");
    }

    fn poll(&mut self, _cx: &mut Cx<'_>) -> Option<Departure> {
        None
    }

    fn next_wake(&self) -> Option<Time> {
        None
    }

    fn bypass(&self, _from: PortNumber) -> Option<PortNumber> {
        None
    }
}

#[test]
fn frames_that_are_not_ip_and_have_no_port_to_leave_through_are_counted_and_freed() {
    let (rng, hasher) = (Rng::from_seed(1), FlowHasher::new(1));
    let mut lane = Lane::new(DeadEnd, (), 0, rng, hasher, Link::Ethernet);
    let mut pool = Pool::new(SIZE).expect("memory for 64 slots");
    let mut arp = udp(30);
    arp[12..14].copy_from_slice(&[0x08, 0x06]);
    let slot = pool.allocate().expect("all slots are free");
    pool.room_mut(slot)[..arp.len()].copy_from_slice(&arp);
    pool.set_frame(slot, arp.len() as u32, VnetHeader::default());
    lane.admit(slot, 0, Time::ZERO, &mut pool, &mut []);
    let counts = lane.counts();
    assert_eq!((counts.lost(LostFrame::NoExit), counts.bypassed), (1, 0));
    assert_eq!(counts.last_port(LostFrame::NoExit), Some(0));
    assert_eq!(pool.available(), SIZE.slots as usize);
}

#[test]
fn damaged_frames_are_counted_and_freed() {
    let mut bench = bench(&PipeParams::default(), "fifo", 100);
    // It ends inside the IP header.
    bench.deliver(vec![plain(udp(1)[..20].to_vec())]);
    let counts = bench.forwarder.lanes()[0].counts();
    assert_eq!((counts.lost(LostFrame::Malformed), counts.sent), (1, 0));
    assert_eq!(counts.last_port(LostFrame::Malformed), Some(0));
    bench.assert_conserved();
}

#[test]
fn what_a_full_queue_drops_is_counted_by_its_reason() {
    let params = PipeParams {
        rate: Rate::from_bps(1),
        ..PipeParams::default()
    };
    let mut bench = bench(&params, "fifo limit 3", 100);
    bench.deliver((0..8).map(|_| plain(udp(1))).collect());
    // One is on the link, three are queued. The link takes the first only after the batch of four
    // was admitted, so one of those is dropped, as are three of the four in the second batch.
    let counts = *bench.forwarder.lanes()[0].counts();
    assert_eq!(counts.admitted, 8);
    assert_eq!(counts.dropped(DropReason::Overflow), 4);
    bench.assert_conserved();
}

#[test]
fn what_a_port_does_not_take_is_no_drop_of_the_queue() {
    let mut bench = bench(&PipeParams::default(), "fifo", 3);
    bench.deliver((0..5).map(|_| plain(udp(1))).collect());
    let counts = bench.forwarder.lanes()[0].counts();
    assert_eq!((counts.sent, counts.lost(LostFrame::Blocked)), (3, 2));
    // The port through which they were to leave.
    assert_eq!(counts.last_port(LostFrame::Blocked), Some(1));
    assert_eq!(counts.last_port(LostFrame::OverShare), None);
    assert_eq!(counts.dropped_total(), 0);
    bench.assert_conserved();
}

#[test]
fn super_packets_are_split_below_the_threshold_only() {
    let vnet = VnetHeader {
        flags: VnetHeader::NEEDS_CSUM,
        gso_type: 5, // UDP
        hdr_len: 42,
        gso_size: 400,
        csum_start: 34,
        csum_offset: 6,
    };
    for (rate, expected) in [
        // 1000 bytes of payload in segments of 400.
        (999_999_999, vec![442, 442, 242]),
        (1_000_000_000, vec![1042]),
    ] {
        let params = PipeParams {
            rate: Rate::from_bps(rate),
            ..PipeParams::default()
        };
        let mut bench = bench(&params, "fifo", 100);
        bench.deliver(vec![(udp(1000), vnet)]);
        bench.run_until(expected.len());
        let lengths: Vec<usize> = bench.outgoing.borrow().iter().map(Vec::len).collect();
        assert_eq!(lengths, expected, "{rate} bit/s");
        bench.assert_conserved();
    }
}

/// A super-packet with tiny segments is dropped whether it would be split or not.
#[test]
fn a_super_packet_of_tiny_segments_is_lost_and_counted() {
    for rate in [1_000_000, 1_000_000_000] {
        let params = PipeParams {
            rate: Rate::from_bps(rate),
            ..PipeParams::default()
        };
        let mut bench = bench(&params, "fifo", 100);
        let vnet = VnetHeader {
            gso_type: 5, // UDP
            gso_size: 1,
            ..VnetHeader::default()
        };
        bench.deliver(vec![(udp(1000), vnet), plain(udp(1))]);
        bench.run_until(1);
        let counts = bench.forwarder.lanes()[0].counts();
        assert_eq!(counts.lost(LostFrame::TinySegments), 1);
        assert_eq!(counts.last_port(LostFrame::TinySegments), Some(0));
        assert_eq!((counts.split, counts.whole, counts.admitted), (0, 0, 1));
        bench.assert_conserved();
    }
}

#[test]
fn a_mark_is_written_into_the_header() {
    // Every packet that has to wait is marked; the first of the batch finds the link idle.
    let params = PipeParams {
        rate: Rate::from_bps(1_000_000_000),
        ..PipeParams::default()
    };
    let mut bench = bench(&params, "step threshold 1ns", 100);
    bench.deliver((0..4).map(|_| plain(udp(1000))).collect());
    bench.run_until(4);
    let ecn = |frame: &Vec<u8>| frame[15] & 3;
    let marks: Vec<u8> = bench.outgoing.borrow().iter().map(ecn).collect();
    assert_eq!(marks, [2, 3, 3, 3]);
    bench.assert_conserved();
}

/// Returns a pure acknowledgement of all bytes before `acked`.
fn ack(acked: u32) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00];
    frame.extend([0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0]);
    frame.extend([10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([0x13, 0x88, 0x9c, 0x40, 0, 0, 0, 1]);
    frame.extend(acked.to_be_bytes());
    frame.extend([0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    frame
}

#[test]
fn redundant_acknowledgements_are_known_by_their_headers() {
    let params = PipeParams {
        rate: Rate::from_bps(1),
        ..PipeParams::default()
    };
    for (queue, expected) in [
        ("cake ack_filter off", 0),
        ("cake ack_filter aggressive", 6),
    ] {
        let mut bench = bench(&params, queue, 100);
        bench.deliver((1..=8).map(|n| plain(ack(n * 1000))).collect());
        // One is on the link; of the seven queued ones, only the last acknowledges anything new.
        let counts = *bench.forwarder.lanes()[0].counts();
        assert_eq!(counts.dropped_total(), expected, "{queue}");
        bench.assert_conserved();
    }
}
