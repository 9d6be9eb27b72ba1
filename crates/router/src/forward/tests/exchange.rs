//! Workers hand packets over to one another.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sluice_core::{Cx, DropCounter};
use sluice_ipfw::{Firewall, Mode, NoFiles, Output, Settings, Worker};

use super::*;
use crate::forward::exchange::Errand;
use crate::process::Ruled;

/// Two workers, one pair of ports each, whose pipes have `script`.
struct Pair {
    workers: [Forwarder<ListPort, Ruled>; 2],
    incoming: [Frames; 2],
    /// What left through the second port of each worker.
    outgoing: [Bytes; 2],
}

const SLOTS: u32 = 16_384;

fn port() -> (ListPort, Frames, Bytes) {
    let (incoming, outgoing) = (Frames::default(), Bytes::default());
    let port = ListPort {
        incoming: Rc::clone(&incoming),
        outgoing: Rc::clone(&outgoing),
        room: usize::MAX,
        stamp: Rc::default(),
        descriptor: UnixStream::pair().unwrap().0,
    };
    (port, incoming, outgoing)
}

fn pair(script: &str) -> Pair {
    pair_of(script, true)
}

/// `keeps_flows` is true if both directions of a flow with ports arrive at the same worker.
fn pair_of(script: &str, keeps_flows: bool) -> Pair {
    let bells: Vec<WakeUp> = vec![Box::new(|| {}), Box::new(|| {})];
    let clock = Clock::start();
    let (mut incoming, mut outgoing) = (Vec::new(), Vec::new());
    let workers = (0..).zip(exchange(bells)).map(|(number, end)| {
        let ((left, arrivals, _), (right, _, departures)) = (port(), port());
        incoming.push(arrivals);
        outgoing.push(departures);
        let mut firewall = Firewall::new(&Settings::default());
        let (mut rng, mut sink) = (Rng::from_seed(1), DropCounter::default());
        let mut cx = Cx::new(Time::ZERO, &mut rng, &mut sink);
        let mut output = Output::default();
        let done = firewall.execute(script, Mode::Atomic, &mut NoFiles, &mut output, &mut cx);
        done.unwrap();
        let worker = Worker {
            number,
            of: 2,
            keeps_masks: false,
        };
        let ruled = Ruled::new(firewall, vec![1, 0], Rate::from_bps(1));
        let astray = match keeps_flows {
            true => Astray::Tunnelled,
            false => Astray::All,
        };
        let ruled = ruled.sharing(worker, Some(astray));
        let pool = Pool::new(PoolSize {
            slots: SLOTS,
            large: 2,
        });
        let ports = vec![left, right];
        let mut forwarder = Forwarder::new(ports, pool.unwrap(), clock, Spin::None);
        forwarder.share_pool();
        let options = LaneOptions {
            from: &[0, 1],
            seed: 1,
            rng: Rng::from_seed(1),
        };
        forwarder.add_lane(ruled, (), options);
        forwarder.join(end);
        forwarder
    });
    let workers = workers.collect::<Vec<_>>();
    Pair {
        workers: workers.try_into().ok().expect("there are two"),
        incoming: incoming.try_into().expect("there are two"),
        outgoing: outgoing.try_into().expect("there are two"),
    }
}

impl Pair {
    fn arrive(&mut self, worker: usize, frames: impl IntoIterator<Item = Vec<u8>>) {
        let frames = frames.into_iter().map(|f| (f, VnetHeader::default()));
        self.incoming[worker].borrow_mut().extend(frames);
        while !self.incoming[worker].borrow().is_empty() {
            self.turn(worker);
        }
    }

    fn turn(&mut self, worker: usize) {
        self.workers[worker].look_at(0);
        self.workers[worker].turn(Some(Time::ZERO), None);
    }

    fn counts(&self, worker: usize) -> &LaneCounts {
        self.workers[worker].lanes()[0].counts()
    }
}

/// The pipe with this number, for everything that comes in.
fn through(pipe: u32) -> String {
    format!(
        "pipe {pipe} config bw 100Gbit/s queue 100000\nadd pipe {pipe} ip from any to any in\n\
         add allow ip from any to any"
    )
}

#[test]
fn a_packet_leaves_at_the_worker_that_owns_its_pipe() {
    // Pipe 1 belongs to worker 1, pipe 2 to worker 0.
    for (pipe, at) in [(1, 1), (2, 0)] {
        let mut pair = pair(&through(pipe));
        let frames: Vec<Vec<u8>> = (0..40).map(|n| udp(20 + 30 * n)).collect();
        pair.arrive(0, frames.clone());
        while pair.outgoing[at].borrow().len() < frames.len() {
            pair.turn(at);
        }
        assert_eq!(*pair.outgoing[at].borrow(), frames);
        assert!(pair.outgoing[1 - at].borrow().is_empty());
        // It is admitted where it arrived, and sent where it left.
        assert_eq!((pair.counts(0).admitted, pair.counts(1).admitted), (40, 0));
        assert_eq!((pair.counts(at).sent, pair.counts(1 - at).sent), (40, 0));
        for worker in &pair.workers {
            assert_eq!(worker.pool().held(), 0);
        }
    }
}

#[test]
fn a_worker_that_is_far_behind_costs_packets_and_nobody_waits() {
    let mut pair = pair(&through(1));
    let sent = 10_000;
    pair.arrive(0, (0..sent).map(|_| udp(20)));
    let lost = pair.counts(0).lost(LostFrame::HandOver);
    // One sender may use all of the room.
    assert_eq!(lost, sent - 8192);
    assert_eq!(pair.workers[0].pool().held(), 0);
    while pair.counts(1).sent < sent - lost {
        pair.turn(1);
    }
    // The room is there again.
    pair.arrive(0, (0..100).map(|_| udp(20)));
    assert_eq!(pair.counts(0).lost(LostFrame::HandOver), lost);
}

#[test]
fn a_sleeping_worker_is_woken_up_once_and_one_with_packets_does_not_sleep() {
    let count = Arc::new(AtomicUsize::new(0));
    let ring = Arc::clone(&count);
    let bells: Vec<WakeUp> = vec![
        Box::new(|| {}),
        Box::new(move || {
            ring.fetch_add(1, Ordering::Relaxed);
        }),
    ];
    let mut ends = exchange(bells);
    let mut receiver = ends.pop().unwrap();
    let mut sender = ends.pop().unwrap();
    let mut pool = Pool::new(PoolSize { slots: 4, large: 1 }).unwrap();
    let mut send = |sender: &mut Exchange| {
        let slot = pool.allocate().unwrap();
        pool.set_frame(slot, 60, VnetHeader::default());
        assert!(sender.send(1, Errand::Arrived(7), slot, &pool));
        pool.free(slot);
    };
    assert!(receiver.sleep());
    send(&mut sender);
    sender.ring();
    sender.ring();
    assert_eq!(count.load(Ordering::Relaxed), 1, "one ring for one sleep");
    assert!(!receiver.sleep(), "a packet is waiting");
    receiver.receive(|errand, _| assert!(matches!(errand, Errand::Arrived(7))));
    send(&mut sender);
    sender.ring();
    assert_eq!(count.load(Ordering::Relaxed), 1, "it does not sleep");
    receiver.receive(|_, _| {});
    assert!(receiver.sleep());
}

#[test]
fn memory_comes_back_from_a_receiver_that_lets_its_queue_fill_up() {
    // 16 senders share 8192 packets and 16 MiB: each may have 512 packets and 1 MiB on their way. The 513
    // frames of a round are 1 015 740 bytes; with 17 more, it would be more than 1 MiB.
    const SENDERS: usize = 16;
    let (room, length, rounds) = (512, 1980, 20);
    let bells = (0..=SENDERS).map(|_| Box::new(|| {}) as WakeUp).collect();
    let mut ends = exchange(bells);
    let mut receiver = ends.pop().unwrap();
    let mut sender = ends.swap_remove(0);
    let mut pool = Pool::new(PoolSize { slots: 4, large: 1 }).unwrap();
    let slot = pool.allocate().unwrap();
    pool.set_frame(slot, length, VnetHeader::default());
    let to = SENDERS as u32;
    for round in 0..rounds {
        let mut send = || sender.send(to, Errand::Arrived(7), slot, &pool);
        assert!(send());
        // The receiver has one packet in its hands when the queue fills up.
        assert!(receiver.has_waiting());
        let sent = (0..room).take_while(|_| send()).count();
        assert_eq!(sent, room, "round {round}");
        assert!(!send(), "the queue is full");
        let mut received = 0;
        while receiver.has_waiting() {
            receiver.receive(|_, _| received += 1);
        }
        assert_eq!(received, room + 1);
    }
}

/// A frame of a flow with this port at 10.0.0.1, from there or back.
fn of_flow(port: u8, is_reply: bool) -> Vec<u8> {
    let mut frame = udp(20);
    frame[35] = port;
    if is_reply {
        // Addresses and ports of IPv4 and UDP.
        (0..4).for_each(|at| frame.swap(26 + at, 30 + at));
        (0..2).for_each(|at| frame.swap(34 + at, 36 + at));
    }
    frame
}

#[test]
fn ports_that_spread_the_two_directions_of_a_flow_differently_do_not_break_states() {
    let script = "add check-state\nadd allow udp from 10.0.0.1 to any keep-state";
    const FLOWS: u8 = 64;
    for (keeps_flows, passing) in [(false, 128), (true, 64)] {
        let mut pair = pair_of(script, keeps_flows);
        for is_reply in [false, true] {
            // One direction arrives at worker 0, the other one at worker 1.
            let frames = (0..FLOWS).map(|port| of_flow(port, is_reply));
            pair.arrive(usize::from(is_reply), frames);
            (0..4).for_each(|turn| pair.turn(turn % 2));
        }
        let left: usize = pair.outgoing.iter().map(|sent| sent.borrow().len()).sum();
        assert_eq!(left, passing, "{keeps_flows}");
        let handed = [0, 1].map(|worker| pair.counts(worker).handed_over);
        // Some flows of each direction are at home where they arrive.
        let is_meant = |count: u64| match keeps_flows {
            true => count == 0,
            false => (1..u64::from(FLOWS)).contains(&count),
        };
        assert!(handed.into_iter().all(is_meant), "{handed:?}");
        // A flow is at home at the same worker in both directions.
        assert!(keeps_flows || handed[0] + handed[1] == u64::from(FLOWS));
    }
}

/// Sends frames to worker 0 and then answers to worker 1, of flows whose ports spread the directions
/// differently. Returns the number of frames that have left.
fn left_after(script: &str, frames: Vec<Vec<u8>>, answers: Vec<Vec<u8>>) -> usize {
    left_of(pair_of(script, false), frames, answers)
}

fn left_of(mut pair: Pair, frames: Vec<Vec<u8>>, answers: Vec<Vec<u8>>) -> usize {
    for (worker, frames) in [frames, answers].into_iter().enumerate() {
        pair.arrive(worker, frames);
        (0..4).for_each(|turn| pair.turn(turn % 2));
    }
    pair.outgoing.iter().map(|sent| sent.borrow().len()).sum()
}

#[test]
fn a_first_fragment_finds_the_state_of_its_flow() {
    let script = "add check-state\nadd allow udp from 10.0.0.1 to any keep-state";
    let of_flows = |is_reply| (0..64).map(move |port| of_flow(port, is_reply));
    let more_follow = |mut frame: Vec<u8>| {
        frame[20] = 0x20;
        frame
    };
    let whole: Vec<_> = of_flows(false).collect();
    let first: Vec<_> = of_flows(true).map(more_follow).collect();
    assert_eq!(left_after(script, whole, first), 128);
    // A state of a first fragment is that of the flow.
    let whole: Vec<_> = of_flows(true).collect();
    let first: Vec<_> = of_flows(false).map(more_follow).collect();
    assert_eq!(left_after(script, first, whole), 128);
}

/// An ICMP message of this type from 10.0.0.1 to the host with this number, or back. The identifier of
/// an echo is the host's number.
fn icmp(kind: u8, host: u8, is_reply: bool) -> Vec<u8> {
    let mut frame = udp(20);
    (frame[23], frame[33]) = (1, host);
    frame[34..42].copy_from_slice(&[kind, 0, 0, 0, 0, host, 0, 1]);
    if is_reply {
        (0..4).for_each(|at| frame.swap(26 + at, 30 + at));
    }
    frame
}

#[test]
fn an_error_finds_the_state_of_an_echo_request() {
    let script = "add check-state\nadd allow icmp from 10.0.0.1 to any keep-state";
    // States have no identifiers: type 8 is an echo request, type 3 says that a host is unreachable.
    let requests = (2..66).map(|host| icmp(8, host, false)).collect();
    let errors = (2..66).map(|host| icmp(3, host, true)).collect();
    assert_eq!(left_after(script, requests, errors), 128);
}

/// A packet of a protocol between 10.0.0.1 and the host with this number. Its first and second word
/// differ between the directions, as the SPIs of ESP and AH.
fn tunnelled(protocol: u8, host: u8, is_reply: bool) -> Vec<u8> {
    let mut frame = udp(20);
    (frame[23], frame[33]) = (protocol, host);
    let word = [0x12, 0x34, u8::from(is_reply), host];
    frame[34..38].copy_from_slice(&word);
    frame[38..42].copy_from_slice(&word);
    if is_reply {
        (0..4).for_each(|at| frame.swap(26 + at, 30 + at));
    }
    frame
}

/// The kernel's symmetric hash gives their directions to different workers.
#[test]
fn packets_of_tunnels_find_their_states_also_where_ports_keep_flows() {
    let script = "add check-state\nadd allow ip from 10.0.0.1 to any keep-state";
    // Protocol numbers of IANA: IPv4 and IPv6 in IPv4, GRE, ESP, AH, and DCCP, whose ports no state has.
    for protocol in [4, 41, 47, 50, 51, 33] {
        for keeps_flows in [true, false] {
            let frames = |is_reply| (2..66).map(move |host| tunnelled(protocol, host, is_reply));
            let pair = pair_of(script, keeps_flows);
            let left = left_of(pair, frames(false).collect(), frames(true).collect());
            assert_eq!(left, 128, "{protocol} {keeps_flows}");
        }
    }
}

#[test]
fn packets_stay_at_ports_whose_hash_is_that_of_both_directions() {
    let script = "add check-state\nadd allow ip from 10.0.0.1 to any keep-state";
    let mut pair = pair_of(script, true);
    for is_reply in [false, true] {
        // Protocol numbers of IANA: ICMP, TCP, UDP, ICMP of IPv6, SCTP, UDP-Lite.
        for protocol in [1, 6, 17, 58, 132, 136] {
            pair.arrive(0, (2..66).map(|host| tunnelled(protocol, host, is_reply)));
        }
    }
    assert_eq!([0, 1].map(|worker| pair.counts(worker).handed_over), [0, 0]);
}
