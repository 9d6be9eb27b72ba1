//! The bounds that the authors of the schedulers have proven, as properties over random traffic:
//! weights, mixed packet sizes, classes that become active and idle.
//!
//! The link sends one byte per unit of time, so that bytes sent are time, and a class with weight w
//! of W is entitled to w/W bytes per unit of time. A scheduler without a clock notices arrivals at
//! its next call. So if a packet arrives while another is on the link, the bounds apply from the
//! instant at which that other packet has left.

use std::collections::VecDeque;

use proptest::prelude::*;
use sluice_core::aqm::droptail::DropTail;
use sluice_core::registry::Spec;
use sluice_core::sched::Share;
use sluice_core::sched::fifo::FifoParams;
use sluice_core::{Cx, DropCounter, Packet, Rng, Time};

#[derive(Clone, Copy, Debug)]
struct Arrival {
    at: i128,
    class: usize,
    len: u32,
}

/// A packet that has left.
#[derive(Clone, Copy, Debug)]
struct Departure {
    class: usize,
    len: i128,
    /// The arrival of the packet, and the first instant at which the scheduler could know of it.
    born: i128,
    arrived: i128,
    /// Bytes of its class that were queued once it had arrived, its own included.
    queued: i128,
    /// The instant at which its last byte was sent.
    at: i128,
}

/// Sends `arrivals`, which are in the order of time, over a link with the scheduler `name`.
fn send(name: &str, shares: &[Share], arrivals: &[Arrival]) -> Vec<Departure> {
    let mut discipline = Spec::parse(name).unwrap().build().unwrap();
    let limits = FifoParams {
        limit: u64::MAX,
        ..FifoParams::default()
    };
    if let Some(classful) = discipline.as_classful() {
        for (class, share) in shares.iter().enumerate() {
            let aqm = Box::new(DropTail);
            classful.open(class as u32, *share, &limits, aqm).unwrap();
        }
    }
    let (mut rng, mut sink) = (Rng::from_seed(1), DropCounter::default());
    let mut cx = Cx::new(Time::ZERO, &mut rng, &mut sink);
    let mut waiting = vec![VecDeque::new(); shares.len()];
    let mut held = vec![0; shares.len()];
    let mut departures: Vec<Departure> = Vec::new();
    let mut arrivals = arrivals.iter().peekable();
    let mut free_at = 0;
    loop {
        while let Some(arrival) = arrivals.next_if(|a| a.at <= free_at) {
            let class = arrival.class;
            held[class] += i128::from(arrival.len);
            waiting[class].push_back((arrival.at, free_at, held[class]));
            let mut packet = Packet::new(0, arrival.len);
            packet.class = class as u32;
            packet.flow = class as u32;
            packet.dscp = precedence(shares[class]) << 3;
            discipline.enqueue(packet, &mut cx);
        }
        if let Some(packet) = discipline.dequeue(&mut cx) {
            let (class, len) = (packet.class as usize, i128::from(packet.len));
            let (born, arrived, queued) = waiting[class].pop_front().unwrap();
            held[class] -= len;
            free_at += len;
            departures.push(Departure {
                class,
                len,
                born,
                arrived,
                queued,
                at: free_at,
            });
        } else if let Some(arrival) = arrivals.peek() {
            free_at = arrival.at;
        } else {
            return departures;
        }
    }
}

/// Returns the IP precedence of a class, for disciplines that know only flows and their precedence.
fn precedence(share: Share) -> u8 {
    (share.weight % 8) as u8
}

/// Weights over two decades, longest packets from small ones to super-packets.
fn shares() -> impl Strategy<Value = Vec<Share>> {
    let max_len = prop_oneof![64u32..200, Just(1500), 1400u32..9000, Just(65000)];
    let share = (1u32..=100, max_len).prop_map(|(weight, max_len)| Share { weight, max_len });
    prop::collection::vec(share, 2..12)
}

/// Bursts of one class each, with packets of similar size and pauses between them, such that the
/// link is alternately overloaded and idle.
fn traffic(shares: &[Share]) -> impl Strategy<Value = Vec<Arrival>> + use<> {
    let shares = shares.to_vec();
    let part = prop_oneof![Just(256), 1u32..=256];
    let pause = prop_oneof![3 => Just(0), 2 => 0i128..5000, 1 => 0i128..100_000];
    let burst = (0..shares.len(), part, 1..12, pause);
    prop::collection::vec(burst, 1..150).prop_map(move |bursts| {
        let mut at = 0;
        let mut arrivals = Vec::new();
        for (class, part, count, pause) in bursts {
            let len = (shares[class].max_len * part / 256).max(1);
            arrivals.extend((0..count).map(|_| Arrival { at, class, len }));
            at += pause;
        }
        arrivals
    })
}

fn scenes() -> impl Strategy<Value = (Vec<Share>, Vec<Arrival>)> {
    shares().prop_flat_map(|shares| {
        let traffic = traffic(&shares);
        (Just(shares), traffic)
    })
}

fn weight_sum(shares: &[Share]) -> i128 {
    shares.iter().map(|s| i128::from(s.weight)).sum()
}

fn longest(shares: &[Share]) -> i128 {
    shares.iter().map(|s| i128::from(s.max_len)).max().unwrap()
}

/// Returns the backlogged period of the class at each time at which the link was free.
fn periods(departures: &[Departure], class: usize) -> Vec<Option<usize>> {
    let mut periods = vec![None; departures.len()];
    let (mut from, mut period, mut left) = (0, 0, -1);
    for (n, packet) in departures
        .iter()
        .enumerate()
        .filter(|(_, d)| d.class == class)
    {
        if packet.arrived > left {
            // The queue was empty when its last packet had been taken.
            period += 1;
            from = departures
                .partition_point(|d| d.at - d.len < packet.arrived)
                .max(from);
        }
        periods[from..=n].fill(Some(period));
        (from, left) = (n + 1, packet.at - packet.len);
    }
    periods
}

/// Checks that `sent_i / w_i - sent_j / w_j` changes by at most `bound(w_i, w_j) / (w_i w_j)` in
/// any interval in which both i and j are backlogged.
fn check_pairs(
    departures: &[Departure],
    weights: &[i128],
    bound: impl Fn(i128, i128) -> i128,
) -> Result<(), TestCaseError> {
    let classes = weights.len();
    let periods: Vec<_> = (0..classes)
        .map(|class| periods(departures, class))
        .collect();
    for (i, j) in (0..classes).flat_map(|i| (0..i).map(move |j| (i, j))) {
        let (mut lead, mut low, mut high) = (0, 0, 0);
        let mut both = None;
        for (n, packet) in departures.iter().enumerate() {
            let now = periods[i][n].zip(periods[j][n]);
            if now != both {
                (both, lead, low, high) = (now, 0, 0, 0);
            }
            if both.is_none() {
                continue;
            }
            if packet.class == i {
                lead += packet.len * weights[j];
            } else if packet.class == j {
                lead -= packet.len * weights[i];
            }
            (low, high) = (lead.min(low), lead.max(high));
            let bound = bound(weights[i], weights[j]);
            prop_assert!(high - low <= bound, "{i} and {j} at {packet:?}");
        }
    }
    Ok(())
}

proptest! {
    /// Bennett and Zhang 1996: WF2Q+ has the worst-case fair index a_i = L_i + (L - L_i) w_i / W. A
    /// packet that finds q bytes of its class, including its own, has left after (q + a_i) W / w_i.
    #[test]
    fn wf2q_keeps_its_worst_case_fair_index((shares, arrivals) in scenes()) {
        let (sum, longest) = (weight_sum(&shares), longest(&shares));
        for name in ["wf2q+", "wf2q+ variant dummynet"] {
            for packet in send(name, &shares, &arrivals) {
                let share = shares[packet.class];
                let (own, weight) = (i128::from(share.max_len), i128::from(share.weight));
                let index = own * sum + (longest - own) * weight;
                let waited = (packet.at - packet.arrived) * weight;
                prop_assert!(waited <= packet.queued * sum + index, "{name}: {packet:?}");
            }
        }
    }

    /// Bennett and Zhang 1996: a class that keeps to a token bucket (b, r), r being its share of
    /// the link, waits at most b / r + L, if virtual time advances continuously. Here virtual time
    /// advances only when a packet starts, so a packet that arrives meanwhile can start up to L
    /// later.
    #[test]
    fn wf2q_keeps_the_delay_bound_of_a_token_bucket(
        (shares, others) in scenes(),
        depth in 1u32..5,
        gaps in prop::collection::vec(0i128..3, 1..60),
    ) {
        let (sum, longest) = (weight_sum(&shares), longest(&shares));
        let (weight, own) = (i128::from(shares[0].weight), shares[0].max_len);
        let bucket = i128::from(depth * own);
        // Tokens, in units of 1/W byte; a packet waits until they suffice, then some time more.
        let (mut tokens, mut at) = (bucket * sum, 0);
        let mut arrivals: Vec<Arrival> = others.into_iter().filter(|a| a.class != 0).collect();
        for gap in gaps {
            let missing = (i128::from(own) * sum - tokens).max(0);
            let pause = (missing + weight - 1) / weight + gap * i128::from(own);
            at += pause;
            tokens = (tokens + pause * weight).min(bucket * sum) - i128::from(own) * sum;
            arrivals.push(Arrival { at, class: 0, len: own });
        }
        arrivals.sort_by_key(|a| a.at);
        for packet in send("wf2q+", &shares, &arrivals).iter().filter(|p| p.class == 0) {
            let waited = (packet.at - packet.born) * weight;
            prop_assert!(waited <= bucket * sum + 2 * longest * weight, "{packet:?}");
        }
    }

    /// Checconi, Rizzo and Valente 2013: QFQ has the worst-case fair index a_i = 3 w_i s_i + 2 L
    /// w_i / W, where s_i, the length of a slot, is the least power of two that lmax_i / w_i fits,
    /// and at least 2^-11 byte.
    #[test]
    fn qfq_keeps_its_worst_case_fair_index((shares, arrivals) in scenes()) {
        let (sum, longest) = (weight_sum(&shares), longest(&shares));
        for packet in send("qfq", &shares, &arrivals) {
            let share = shares[packet.class];
            let (own, weight) = (i128::from(share.max_len), i128::from(share.weight));
            let slot = (0..).map(|i| 1i128 << i).find(|s| s * weight >= own << 11).unwrap();
            let index = ((3 * weight * slot * sum) >> 11) + 2 * longest * weight;
            let waited = (packet.at - packet.arrived) * weight;
            prop_assert!(waited <= packet.queued * sum + index, "{packet:?}");
        }
    }

    /// Shreedhar and Varghese 1995: in m turns a backlogged class sends m Q_i bytes, within less
    /// than M, the longest packet; and classes differ by at most one turn. So bytes per quantum
    /// differ by at most 1 + M / Q_i + M / Q_j in any interval in which both are backlogged.
    #[test]
    fn rr_shares_by_quantum((shares, arrivals) in scenes()) {
        let longest = longest(&shares);
        let departures = send("rr", &shares, &arrivals);
        let quantum = |class: usize| i128::from(shares[class].weight) * i128::from(shares[class].max_len);
        let quanta: Vec<i128> = (0..shares.len()).map(quantum).collect();
        let bound = |q_i: i128, q_j: i128| q_i * q_j + longest * (q_i + q_j);
        check_pairs(&departures, &quanta, bound)?;
    }

    /// McKenney's queues with turns by deficit: bytes of two backlogged flows differ by at most a
    /// quantum and two longest packets, for the same reason.
    #[test]
    fn sfq_shares_equally((shares, arrivals) in scenes()) {
        let longest = longest(&shares);
        let name = "sfq limit unlimited depth unlimited divisor 65536 quantum 3000";
        let departures = send(name, &shares, &arrivals);
        let ones = vec![1; shares.len()];
        check_pairs(&departures, &ones, |_, _| 3000 + 2 * longest)?;
    }

    /// Goyal, Vin and Cheng 1997: under start-time fair queueing bytes per weight of two backlogged
    /// flows differ by at most L_i / w_i + L_j / w_j.
    #[test]
    fn stfq_shares_by_weight((shares, arrivals) in scenes()) {
        let longest = longest(&shares);
        let departures = send("pifo rank stfq limit unlimited", &shares, &arrivals);
        let weights: Vec<i128> = shares.iter().map(|s| i128::from(precedence(*s)) + 1).collect();
        // Each packet's virtual length is truncated to 1/256 byte per weight.
        let slack = arrivals.len() as i128;
        check_pairs(&departures, &weights, |w_i, w_j| longest * (w_i + w_j) + slack)?;
    }

    /// Stiliadis and Varma 1998: DRR is a latency-rate server with latency 3F - 2 Q_i, F the sum of
    /// quanta, if quanta are at least the longest packet. A packet with q bytes of its backlogged
    /// period before its end has left at q F / Q_i + 3F - 2 Q_i after that period began.
    #[test]
    fn rr_is_a_latency_rate_server((shares, arrivals) in scenes()) {
        let longest = longest(&shares);
        let shares: Vec<Share> = shares
            .into_iter()
            .map(|share| Share { max_len: longest as u32, ..share })
            .collect();
        let quantum = |class: usize| i128::from(shares[class].weight) * longest;
        let frame: i128 = (0..shares.len()).map(quantum).sum();
        // When the backlogged period of each class began, and what it has sent in it.
        let mut periods = vec![(0, 0); shares.len()];
        for packet in send("rr", &shares, &arrivals) {
            let own = quantum(packet.class);
            let (began, sent) = &mut periods[packet.class];
            if packet.queued == packet.len {
                (*began, *sent) = (packet.arrived, 0);
            }
            *sent += packet.len;
            let bound = *sent * frame + (3 * frame - 2 * own) * own;
            prop_assert!((packet.at - *began) * own <= bound, "{packet:?}");
        }
    }

    /// Strict priority: a packet leaves only when nothing more urgent is queued, and classes of
    /// equal priority do not overtake one another twice.
    #[test]
    fn prio_serves_the_most_urgent((shares, arrivals) in scenes()) {
        let shares: Vec<Share> = shares
            .into_iter()
            .map(|share| Share { weight: share.weight % 4, ..share })
            .collect();
        let departures = send("prio", &shares, &arrivals);
        for (n, packet) in departures.iter().enumerate() {
            let start = packet.at - packet.len;
            let priority = shares[packet.class].weight;
            for other in &departures[n + 1..] {
                prop_assert!(
                    other.arrived > start || shares[other.class].weight >= priority,
                    "{packet:?} before {other:?}",
                );
            }
        }
    }
}

#[test]
fn long_run_shares_are_the_weights() {
    // 69 : 30 : 1, packets of different sizes, always backlogged: after 10 MB each class has its
    // part within a few packets.
    let shares =
        [(69, 1500), (30, 400), (1, 9000)].map(|(weight, max_len)| Share { weight, max_len });
    let mut arrivals = Vec::new();
    for (class, share) in shares.iter().enumerate() {
        let count = 12_000_000 / share.max_len;
        arrivals.extend((0..count).map(|_| Arrival {
            at: 0,
            class,
            len: share.max_len,
        }));
    }
    for name in ["wf2q+", "wf2q+ variant dummynet", "qfq"] {
        let mut sent = [0; 3];
        for packet in send(name, &shares, &arrivals)
            .iter()
            .filter(|p| p.at <= 10_000_000)
        {
            sent[packet.class] += packet.len;
        }
        for (class, share) in shares.iter().enumerate() {
            let due = 100_000 * i128::from(share.weight);
            // QFQ's index: 3 w s + 2 L w / W, with w s below 2 lmax.
            let slack = 6 * i128::from(share.max_len) + 2 * 9000;
            assert!(
                (sent[class] - due).abs() <= slack,
                "{name}: class {class}: {}",
                sent[class]
            );
        }
    }
}
