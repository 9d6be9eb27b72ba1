//! Hostile frames through the whole loop, without privileges: parse, classify, queue, split, send.

#[path = "../../../fuzz/mutate.rs"]
mod mutate;
mod rules;
mod trailers;
mod zoo;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;

use proptest::prelude::*;
use sluice_core::link::PipeParams;
use sluice_core::registry::Spec;
use sluice_core::{Cx, Packet, Rate, Rng, Span, Time};
use sluice_net::Clock;
use sluice_net::port::pcap::Speed;
use sluice_net::port::registry::Playback;
use sluice_net::port::{Capabilities, Counters, Pool, PoolSize, Port, Slot, Spin};
use sluice_router::forward::{
    Departure, FileTime, Forwarder, LaneCounts, LaneOptions, LostFrame, Origin, Piped, PortNumber,
    Queueing,
};
use sluice_router::process::Ruled;
use sluice_wire::frame::{Link, View, VnetHeader};
use zoo::{Beast, Fate};

type Frames = VecDeque<(Vec<u8>, VnetHeader)>;
type Sent = Rc<RefCell<Vec<Vec<u8>>>>;

/// A port that receives frames from a list, one every 10 us, and sends to a list.
struct ListPort {
    link: Link,
    incoming: Frames,
    taken: u64,
    outgoing: Sent,
    descriptor: UnixStream,
}

impl Port for ListPort {
    fn name(&self) -> &str {
        "list"
    }

    fn link(&self) -> Link {
        self.link
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            super_packets: true,
            partial_checksums: true,
            batch: 1,
            mtu: 1500,
            kernel_queue: 0,
        }
    }

    fn receive(&mut self, pool: &mut Pool, into: &mut Vec<Slot>) -> usize {
        let Some((bytes, vnet)) = self.incoming.pop_front() else {
            return 0;
        };
        self.taken += 1;
        let Some(slot) = pool.allocate() else {
            return 0;
        };
        pool.room_mut(slot)[..bytes.len()].copy_from_slice(&bytes);
        pool.set_frame(slot, bytes.len() as u32, vnet);
        into.push(slot);
        1
    }

    /// Like a port without offload headers.
    fn transmit(&mut self, pool: &mut Pool, slots: &[Slot]) -> usize {
        for slot in slots {
            pool.complete_checksum(*slot);
            let frame = [pool.head(*slot), pool.tail(*slot)].concat();
            self.outgoing.borrow_mut().push(frame);
            pool.free(*slot);
        }
        slots.len()
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
        Some(self)
    }

    fn let_super_packets_in(&mut self, _whole: bool) {}

    fn promiscuity(&self) -> sluice_net::port::Promiscuity {
        sluice_net::port::Promiscuity::NotAsked
    }
}

impl Playback for ListPort {
    fn first_ns(&self) -> Option<i128> {
        None
    }

    fn speed(&self) -> Speed {
        Speed::Full
    }

    fn begin(&mut self, _file_ns: i128, _at: Time) {}

    fn next_arrival(&self) -> Option<Time> {
        let next = Time::from_ns((self.taken + 1) * 10_000);
        (!self.incoming.is_empty()).then_some(next)
    }

    fn set_time(&mut self, _now: Time) {}

    fn has_room(&self) -> bool {
        true
    }

    fn write_error(&self) -> Option<String> {
        None
    }
}

impl AsFd for ListPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

const SIZE: PoolSize = PoolSize {
    slots: 512,
    large: 4,
};

/// The frames that left at the far end, and the counts.
struct Outcome {
    sent: Vec<Vec<u8>>,
    counts: LaneCounts,
}

/// Sends `frames` from the first of two ports to the second, through `queueing`.
fn cross<Q: Queueing>(link: Link, frames: Frames, queueing: Q) -> Outcome {
    let (near, _far) = UnixStream::pair().expect("a pair of sockets");
    let sent = Sent::default();
    let offered = frames.len() as u64;
    let port = |incoming, outgoing: &Sent| ListPort {
        link,
        incoming,
        taken: 0,
        outgoing: Rc::clone(outgoing),
        descriptor: near.try_clone().expect("a descriptor"),
    };
    let ports = vec![port(frames, &Sent::default()), port(Frames::new(), &sent)];
    let pool = Pool::new(SIZE).expect("memory for 512 slots");
    let mut forwarder = Forwarder::new(ports, pool, Clock::start(), Spin::None);
    let options = LaneOptions {
        from: &[0, 1],
        seed: 1,
        rng: Rng::from_seed(1),
    };
    forwarder.add_lane(queueing, (), options);
    let mut time = FileTime::default();
    // Every packet takes one or two steps; many more mean that it circulates.
    let mut rounds = 0;
    while time.advance(&mut forwarder, 100) {
        rounds += 1;
        assert!(rounds < 10_000, "the loop does not end");
    }
    let counts = *forwarder.lanes()[0].counts();
    assert_eq!(
        forwarder.pool().held(),
        0,
        "all slots are free again: {counts:?}"
    );
    assert_eq!(forwarder.pool().available_large(), SIZE.large as usize);
    let lost = [
        LostFrame::Malformed,
        LostFrame::NoExit,
        LostFrame::TinySegments,
        LostFrame::Evasive,
        LostFrame::Denied,
    ];
    let lost: u64 = lost.into_iter().map(|cause| counts.lost(cause)).sum();
    // Segments are admitted instead of the super-packet that was split, and copies in addition.
    assert!(counts.admitted + counts.split + counts.bypassed + lost >= offered);
    drop(forwarder);
    let sent = Rc::try_unwrap(sent).expect("the port is gone").into_inner();
    assert_eq!(counts.sent, sent.len() as u64);
    Outcome { sent, counts }
}

fn piped(words: &str, params: &PipeParams) -> Piped {
    let queue = Spec::parse(words).expect("the queue can be parsed");
    let split_below = Rate::from_bps(1_000_000_000);
    Piped::new(params, Vec::new(), &queue, 1, split_below)
}

/// A link that damages every packet and duplicates every third.
struct Rough {
    queueing: Piped,
    count: u64,
}

impl Queueing for Rough {
    type Key = ();

    fn key(&self, _from: Origin, _view: &View, _head: &[u8]) {}

    fn splits(&mut self, from: PortNumber, key: &Self::Key, at: Time) -> bool {
        self.queueing.splits(from, key, at)
    }

    fn admit(&mut self, packet: Packet, (): &(), cx: &mut Cx<'_>) {
        self.count += 1;
        // Mostly in the headers, sometimes far past the end.
        cx.corrupt(&packet, self.count * 7919 % (8 * 64) * (1 + self.count % 5));
        let copy = (self.count.is_multiple_of(3))
            .then(|| cx.copy(&packet))
            .flatten();
        self.queueing.admit(packet, &(), cx);
        if let Some(copy) = copy {
            self.queueing.admit(copy, &(), cx);
        }
    }

    fn poll(&mut self, cx: &mut Cx<'_>) -> Option<Departure> {
        self.queueing.poll(cx)
    }

    fn next_wake(&self) -> Option<Time> {
        self.queueing.next_wake()
    }

    fn bypass(&self, from: PortNumber) -> Option<PortNumber> {
        self.queueing.bypass(from)
    }
}

/// Rules that match every header field, and lead into pipes and queues.
const RULES: &str = "
pipe 1 config bw 200Mbit/s delay 1ms mask all
pipe 2 config bw 100Mbit/s
sched 3 config pipe 2 type wf2q+
pipe 5 config bw 100Mbit/s
sched 5 config pipe 5 type fq_codel
queue 6 config sched 5
queue 4 config sched 3 weight 10 mask src-ip 0xffffffff dst-port 0xff
add 100 count tcp from any to any tcpflags syn,!ack
add 200 count ip from any to any frag
add 300 count ip from any to any iplen 0-100
add 400 count icmp from any to any icmptypes 8
add 500 count ip6 from 2001:db8::/32 to any
add 600 queue 4 udp from any 1-20000 to any out
add 700 queue 6 ip6 from any to any out
add 800 pipe 1 ip from any to any out
";

fn ruled() -> Ruled {
    rules::between_left_and_right(RULES)
}

fn plain(beasts: &[Beast]) -> Frames {
    let frames = beasts.iter().map(|beast| beast.frame.clone());
    frames.map(|frame| (frame, VnetHeader::default())).collect()
}

/// The faults that must be counted, and the frames that must arrive.
fn expected(link: Link, beasts: &[Beast]) -> (BTreeMap<&'static str, u64>, Vec<Vec<u8>>, u64) {
    let (mut damage, mut arrives, mut lost) = (BTreeMap::new(), Vec::new(), 0);
    for beast in beasts {
        match beast.fate {
            Fate::Passes => arrives.push(beast.frame.clone()),
            Fate::Counted(fault) => {
                *damage.entry(fault).or_default() += 1;
                arrives.push(beast.frame.clone());
            }
            Fate::Trimmed(fault, packet) => {
                if let Some(fault) = fault {
                    *damage.entry(fault).or_default() += 1;
                }
                // The shortest Ethernet frame has 60 bytes.
                let length = match link {
                    Link::Ethernet => (14 + packet).max(60),
                    Link::Ip => packet,
                };
                arrives.push(beast.frame[..length].to_vec());
            }
            Fate::Lost(fault) => {
                *damage.entry(fault).or_default() += 1;
                lost += 1;
            }
        }
    }
    (damage, arrives, lost)
}

fn counted(counts: &LaneCounts) -> BTreeMap<&'static str, u64> {
    counts.faulty().filter(|(_, n)| *n > 0).collect()
}

/// Returns the frames that pass `deny udp from any to any 9` and `deny tcp from any to any 80`, and
/// the counts.
fn filtered(frames: &[Vec<u8>], is_strict: bool) -> Outcome {
    let rules = "add deny udp from any to any 9\nadd deny tcp from any to any 80\n";
    let frames = frames.iter().cloned();
    cross(
        Link::Ethernet,
        frames.map(|frame| (frame, VnetHeader::default())).collect(),
        rules::between_left_and_right(rules).strict(is_strict),
    )
}

#[test]
fn rules_see_packets_inside_pppoe_and_mpls() {
    let to_port = |port: u8| {
        let mut datagram = zoo::udp(100);
        datagram[3] = port;
        datagram
    };
    let frames = |port| {
        let (v4, v6) = (zoo::ipv4(17, &to_port(port)), zoo::ipv6(17, &to_port(port)));
        vec![
            zoo::ethernet(zoo::V4, &v4),
            zoo::pppoe(&[0, 0x21], &v4),
            zoo::pppoe(&[0x57], &v6),
            zoo::mpls(1, &v4),
            zoo::mpls(3, &v6),
        ]
    };
    let outcome = filtered(&frames(9), false);
    assert_eq!(outcome.sent, Vec::<Vec<u8>>::new(), "port 9 is denied");
    assert_eq!(outcome.counts.dropped_total(), 5);
    // Another port passes, as do the frames that set up a session.
    let mut frames = frames(10);
    frames.push(zoo::pppoe(&[0xc0, 0x21], &[1, 1, 0, 4]));
    assert_eq!(filtered(&frames, true).sent, frames);
}

/// 40:.. was lost as a damaged IP packet, 45:.. and 60:.. were tested by the rules of IP packets.
#[test]
fn rules_of_packets_do_not_see_ethernet_inside_mpls() {
    let frames = zoo::LIKE_IP.map(zoo::pseudowire);
    let plain = frames.iter().cloned();
    let outcome = cross(
        Link::Ethernet,
        plain.map(|frame| (frame, VnetHeader::default())).collect(),
        rules::between_left_and_right("add deny ip from any to any").strict(true),
    );
    assert_eq!(outcome.sent, frames);
    assert_eq!(outcome.counts.bypassed, 4);
}

#[test]
fn what_hides_a_port_from_the_rules_is_dropped_when_strict() {
    let segment = zoo::tcp(80);
    let v4 = |word: [u8; 2], payload: &[u8]| {
        let mut packet = zoo::ipv4(6, payload);
        packet[6..8].copy_from_slice(&word);
        zoo::ethernet(zoo::V4, &packet)
    };
    let v6 = |first: u8, headers: &[u8], payload: &[u8]| {
        zoo::ethernet(zoo::V6, &zoo::ipv6(first, &[headers, payload].concat()))
    };
    let options: Vec<u8> = (0..17)
        .flat_map(|n| [if n < 16 { 60 } else { 6 }, 0, 1, 4, 0, 0, 0, 0])
        .collect();
    let fragment = |next, word: u16| {
        let [high, low] = word.to_be_bytes();
        [next, 0, high, low, 0, 0, 0, 1]
    };
    let evasive = [
        // 17 options headers before TCP; TCP in a second fragment, behind options in the first.
        v6(60, &options, &segment),
        v6(44, &fragment(60, 1), &[6, 1, 1, 4, 0, 0, 0, 0]),
        // RFC 1858: 8 bytes of TCP, and the offsets 8 and 16, which overwrite the rest.
        v4([0x20, 0], &segment[..8]),
        v4([0, 1], &segment),
        v4([0, 2], &segment),
        v6(44, &fragment(6, 8), &segment),
        // Behind 8 bytes of options, offset 8 is the TCP header.
        v6(44, &fragment(60, 8), &segment),
    ];
    for frame in &evasive {
        let frame = std::slice::from_ref(frame);
        assert_eq!(filtered(frame, false).sent, frame, "they pass a deny");
    }
    let outcome = filtered(&evasive, true);
    assert_eq!(outcome.sent, Vec::<Vec<u8>>::new());
    assert_eq!(outcome.counts.lost(LostFrame::Evasive), 7);
    // 16 bytes hold ports and flags, so the rules see them, but a later fragment could change flags.
    let short = v4([0x20, 0], &segment[..16]);
    assert_eq!(filtered(&[short], true).counts.dropped_total(), 0);

    // Ordinary fragments, headers and other protocols pass.
    let web = |port: u8| {
        let mut segment = segment.clone();
        segment[3] = port;
        segment
    };
    let fine = [
        v4([0x20, 0], &web(81)),
        v4([0, 3], &segment),
        v6(44, &fragment(6, 1), &web(81)),
        v6(44, &fragment(6, 24), &segment),
        // An authentication header is that of a security association, which a stranger has not.
        v6(44, &fragment(51, 8), &segment),
        v6(60, &[6, 0, 1, 4, 0, 0, 0, 0], &web(81)),
        zoo::ethernet(0x0806, &[0; 28]),
    ];
    assert_eq!(filtered(&fine, true).sent, fine);
}

#[test]
fn rules_decide_by_the_type_of_a_frame() {
    // Numbers of IEEE 802: ARP, PPPoE discovery, LLDP.
    let [arp, discovery, lldp] =
        [0x0806, 0x8863, 0x88cc].map(|number| zoo::ethernet(number, &[0; 28]));
    let web = zoo::ethernet(zoo::V4, &zoo::ipv4(6, &zoo::tcp(80)));
    let all = [arp, discovery, lldp, web];
    let passing = |lines: &str| {
        let frames = all.iter().cloned();
        let outcome = cross(
            Link::Ethernet,
            frames.map(|frame| (frame, VnetHeader::default())).collect(),
            rules::between_left_and_right(lines),
        );
        let denied = outcome.counts.lost(LostFrame::Denied);
        let dropped = outcome.counts.dropped_total();
        assert_eq!(outcome.sent.len() as u64 + denied + dropped, 4, "{lines}");
        outcome.sent
    };
    // Frames that are not IP are tested against rules with `mac-type` only.
    assert_eq!(passing("add deny ip from any to any"), all[..3]);
    let but_lldp = "add deny ip from any to any mac-type 0x0600-0x8866,0x88cc";
    assert_eq!(
        passing(&format!(
            "add allow ip from any to any mac-type arp\n{but_lldp}"
        )),
        all[..1]
    );
    assert_eq!(
        passing("add deny ip from any to any mac-type ipv4"),
        all[..3]
    );
    assert_eq!(
        passing("add deny ip from any to any not mac-type ipv4"),
        all[3..]
    );
    assert!(passing("add deny ip from any to any mac-type 1-65535 in recv left").is_empty());
    assert_eq!(
        passing("add deny ip from any to any mac-type 1-65535 out xmit left"),
        all
    );
    let disabled = "add set 3 deny ip from any to any mac-type arp\nset disable 3";
    assert_eq!(passing(disabled), all);
}

#[test]
fn each_odd_frame_has_the_fate_and_the_counter_that_it_should_have() {
    for beast in zoo::all() {
        let (damage, arrives, lost) = expected(Link::Ethernet, std::slice::from_ref(&beast));
        let outcome = cross(
            Link::Ethernet,
            plain(std::slice::from_ref(&beast)),
            piped("fq_codel", &PipeParams::default()),
        );
        let name = &beast.name;
        assert_eq!(counted(&outcome.counts), damage, "{name}");
        assert_eq!(outcome.sent, arrives, "{name}");
        assert_eq!(outcome.counts.lost(LostFrame::Malformed), lost, "{name}");
    }
}

#[test]
fn odd_frames_pass_rules_and_any_queue_and_leave_nothing_behind() {
    let beasts = zoo::all();
    let (damage, mut arrives, lost) = expected(Link::Ethernet, &beasts);
    arrives.sort();
    let fast = PipeParams {
        rate: Rate::from_bps(10_000_000_000),
        ..PipeParams::default()
    };
    let mut outcomes = vec![cross(Link::Ethernet, plain(&beasts), ruled())];
    for queue in [
        "fifo",
        "fq_codel",
        "cake ack_filter aggressive",
        "rr",
        "sfq",
        "qfq",
        "dualpi2",
    ] {
        let queueing = piped(queue, &fast);
        outcomes.push(cross(Link::Ethernet, plain(&beasts), queueing));
    }
    for (which, mut outcome) in outcomes.into_iter().enumerate() {
        assert_eq!(counted(&outcome.counts), damage, "{which}");
        assert_eq!(outcome.counts.lost(LostFrame::Malformed), lost, "{which}");
        outcome.sent.sort();
        // 10 us apart at these rates, no packet is queued long enough to be dropped or marked.
        assert_eq!(outcome.sent, arrives, "{which}");
    }
}

#[test]
fn without_a_link_header_the_same_packets_pass() {
    // A TUN device carries neither tags nor other types.
    let beasts: Vec<Beast> = zoo::all()
        .into_iter()
        .filter(|beast| matches!(beast.frame[12..14], [0x08, 0x00] | [0x86, 0xdd]))
        .map(|beast| Beast {
            frame: beast.frame[14..].to_vec(),
            ..beast
        })
        // Only a link header determines whether version 4 or 6 is right.
        .filter(|beast| !beast.name.starts_with("version"))
        .collect();
    let (damage, arrives, lost) = expected(Link::Ip, &beasts);
    let queueing = piped("fq_codel", &PipeParams::default());
    let outcome = cross(Link::Ip, plain(&beasts), queueing);
    assert_eq!(counted(&outcome.counts), damage);
    assert_eq!(outcome.counts.lost(LostFrame::Malformed), lost);
    assert_eq!(outcome.sent, arrives);
}

/// Frames of the zoo, damaged or not, and random frames.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let beasts = zoo::all();
    let odd = (
        0..beasts.len(),
        proptest::collection::vec((0usize..120, any::<u8>()), 0..4),
        0usize..2000,
    );
    let odd = odd.prop_map(move |(which, changes, length)| {
        let mut frame = beasts[which].frame.clone();
        for (at, value) in changes {
            if let Some(byte) = frame.get_mut(at) {
                *byte = value;
            }
        }
        // Half of them keep their length, the others are cut or padded.
        if length < 1000 {
            frame.resize(length.max(1), 0x77);
        }
        frame
    });
    let good = (any::<bool>(), any::<bool>(), 0usize..1400).prop_map(|(v6, is_tcp, payload)| {
        let (protocol, transport) = match is_tcp {
            true => (6, zoo::tcp(payload)),
            false => (17, zoo::udp(payload)),
        };
        match v6 {
            true => zoo::ethernet(zoo::V6, &zoo::ipv6(protocol, &transport)),
            false => zoo::ethernet(zoo::V4, &zoo::ipv4(protocol, &transport)),
        }
    });
    let anything = proptest::collection::vec(any::<u8>(), 1..200);
    prop_oneof![odd, good, anything]
}

/// Offload headers as a kernel writes them, and malformed ones.
fn vnets() -> impl Strategy<Value = VnetHeader> {
    let number = || {
        prop_oneof![
            Just(0u16),
            Just(1),
            Just(34),
            Just(1448),
            Just(65_535),
            any::<u16>()
        ]
    };
    let kind = prop_oneof![
        Just(0u8),
        Just(1),
        Just(4),
        Just(5),
        Just(0x81),
        Just(3),
        any::<u8>()
    ];
    (0u8..4, kind, number(), number(), number(), number()).prop_map(
        |(flags, gso_type, hdr_len, gso_size, csum_start, csum_offset)| VnetHeader {
            flags,
            gso_type,
            hdr_len,
            gso_size,
            csum_start,
            csum_offset,
        },
    )
}

const QUEUES: [&str; 8] = [
    "fifo limit 20",
    "fq_codel",
    "fq_pie",
    "cake ack_filter on",
    "rr",
    "qfq",
    "step threshold 1us",
    "dualpi2",
];

/// The first ten bytes of an input are its offload header.
#[test]
fn changed_frames_of_the_zoo_cross_and_nothing_leaks() {
    let with_vnet = |beast: &Beast| [&[0; 10][..], &beast.frame].concat();
    let mut corpus: Vec<Vec<u8>> = zoo::all().iter().map(with_vnet).collect();
    // In the stored corpus, one byte before the header chooses the link.
    let stored = mutate::corpus("fuzz/corpus/frames", "");
    corpus.extend(stored.iter().map(|input| input[1..].to_vec()));
    // A loop costs more than a frame, so a batch crosses together.
    mutate::check_together("frames", &corpus, |number, inputs| {
        let frames: Frames = inputs.iter().map(|input| with_header(input)).collect();
        let link = match number % 3 {
            0 => Link::Ip,
            _ => Link::Ethernet,
        };
        cross(link, frames, ruled().strict(number.is_multiple_of(2)));
    });
}

fn with_header(input: &[u8]) -> (Vec<u8>, VnetHeader) {
    let (vnet, frame) = input.split_at(input.len().min(10));
    let byte = |at: usize| vnet.get(at).copied().unwrap_or(0);
    let word = |at| u16::from_le_bytes([byte(at), byte(at + 1)]);
    let vnet = VnetHeader {
        flags: byte(0),
        gso_type: byte(1),
        hdr_len: word(2),
        gso_size: word(4),
        csum_start: word(6),
        csum_offset: word(8),
    };
    (frame[..frame.len().min(60_000)].to_vec(), vnet)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn any_frames_with_any_offload_header_cross_and_nothing_leaks(
        frames in proptest::collection::vec((frames(), vnets()), 1..40),
        is_ethernet in any::<bool>(),
        queue in 0..QUEUES.len(),
        mbit in prop_oneof![Just(5u64), Just(100), Just(5_000)],
        effects in any::<bool>(),
        is_ruled in any::<bool>(),
    ) {
        let link = if is_ethernet { Link::Ethernet } else { Link::Ip };
        let frames: Frames = frames.into();
        if is_ruled {
            cross(link, frames, ruled());
        } else {
            let params = PipeParams {
                rate: Rate::from_bps(mbit * 1_000_000),
                delay: Span::from_us(100),
                ..PipeParams::default()
            };
            let queueing = piped(QUEUES[queue], &params);
            if effects {
                cross(link, frames, Rough { queueing, count: 0 });
            } else {
                cross(link, frames, queueing);
            }
        }
    }
}
