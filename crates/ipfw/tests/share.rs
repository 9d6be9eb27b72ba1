//! Several workers with one part of the traffic each do what one engine does: the same packets leave
//! at the same times, and the same packets are dropped.

mod common;

use std::collections::BTreeSet;

use common::{Dropped, MS, S, Texts, ip};
use sluice_core::sched::Wake;
use sluice_core::{Cx, DropReason, Packet, Rng, Time};
use sluice_ipfw::headers::UDP;
use sluice_ipfw::{
    Direction, Disposition, Firewall, Handed, Headers, InterfaceId, Settings, Worker,
};

/// Engines between which the flows are spread.
struct Team {
    engines: Vec<(Firewall, Rng, Dropped)>,
    now: u64,
    sent: u32,
    /// The packets that passed: due time and number.
    out: BTreeSet<(u64, u32)>,
    /// For each engine, the packets that it sent itself.
    sent_by: Vec<u64>,
    handed: u64,
}

impl Team {
    fn new(workers: u32, script: &str) -> Team {
        Team::of(workers, script, false)
    }

    fn of(workers: u32, script: &str, keeps_masks: bool) -> Team {
        let engine = |number| {
            let mut firewall = Firewall::new(&Settings::default());
            firewall.connect(InterfaceId(0), InterfaceId(1));
            firewall.connect(InterfaceId(1), InterfaceId(0));
            firewall.share(Worker {
                number,
                of: workers,
                keeps_masks,
            });
            // No algorithm of these tests draws random numbers.
            (firewall, Rng::from_seed(7), Dropped::default())
        };
        let mut team = Team {
            engines: (0..workers).map(engine).collect(),
            now: 0,
            sent: 0,
            out: BTreeSet::new(),
            sent_by: vec![0; workers as usize],
            handed: 0,
        };
        team.command(script);
        team
    }

    /// Executes the same commands at the same instant everywhere.
    fn command(&mut self, text: &str) {
        for (firewall, rng, dropped) in &mut self.engines {
            let mut cx = Cx::new(Time::from_ns(self.now), rng, dropped);
            let done = firewall.batch(text, true, &mut Texts::default(), &mut cx);
            done.unwrap_or_else(|error| panic!("`{text}`: {error}"));
        }
        self.settle();
    }

    /// Sends a packet to the worker of its flow, in both directions the same.
    fn send(&mut self, bytes: u32, headers: &Headers) {
        let number = self.sent;
        self.sent += 1;
        let mut packet = Packet::new(number, bytes);
        packet.flow = u32::from(headers.src_port) << 16 | u32::from(headers.dst_port);
        let ends = headers.src_port ^ headers.dst_port;
        let worker = usize::from(ends) % self.engines.len();
        let (firewall, rng, dropped) = &mut self.engines[worker];
        let mut cx = Cx::new(Time::from_ns(self.now), rng, dropped);
        if let Disposition::Pass(packet) = firewall.handle(packet, headers, &mut cx) {
            self.out.insert((self.now, packet.slot));
            self.sent_by[worker] += 1;
        }
        self.settle();
    }

    /// Hands over what has come to pipes of other workers.
    fn settle(&mut self) {
        for from in 0..self.engines.len() {
            while let Some(handed) = self.engines[from].0.take_handed() {
                let Handed { to, at, .. } = handed;
                assert_ne!(to as usize, from, "a worker keeps what is its own");
                self.handed += 1;
                let (firewall, rng, dropped) = &mut self.engines[to as usize];
                firewall.accept(handed, &mut Cx::new(at, rng, dropped));
            }
        }
    }

    fn run_until(&mut self, until: u64) {
        while let Some(at) = self.next_wake().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            for (worker, (firewall, rng, dropped)) in self.engines.iter_mut().enumerate() {
                let mut cx = Cx::new(Time::from_ns(self.now), rng, dropped);
                while let Some(departure) = firewall.poll(&mut cx) {
                    let leaves = (departure.due.as_ns(), departure.packet.slot);
                    assert!(self.out.insert(leaves), "a packet leaves once");
                    self.sent_by[worker] += 1;
                }
            }
            self.settle();
        }
        self.now = until;
    }

    fn next_wake(&self) -> Option<u64> {
        let wakes = self.engines.iter().filter_map(|engine| {
            Some(match engine.0.next_wake() {
                Wake::Now => 0,
                Wake::At(at) => at.as_ns(),
                Wake::OnEnqueue => return None,
            })
        });
        wakes.min()
    }

    /// The dropped packets: time, number and reason.
    fn drops(&self) -> BTreeSet<(u64, u32, DropReason)> {
        let all = self.engines.iter().flat_map(|engine| &engine.2.0);
        all.copied().collect()
    }
}

/// Flow `flow` of 32 from 10.0.1.x to 10.0.2.2, or back.
fn packet(flow: u16, is_back: bool) -> Headers {
    let host = ip(10, 0, 1, (flow % 8) as u8 + 1);
    let (src, dst, ports, recv) = match is_back {
        false => (host, ip(10, 0, 2, 2), (4000 + flow, 53), 0),
        true => (ip(10, 0, 2, 2), host, (53, 4000 + flow), 1),
    };
    Headers {
        recv: Some(InterfaceId(recv)),
        src_port: ports.0,
        dst_port: ports.1,
        ..Headers::new(Direction::In, UDP, src, dst)
    }
}

/// Sends random traffic through `workers`, with `change` in the middle.
fn run(workers: u32, script: &str, change: &str) -> Team {
    let mut team = Team::new(workers, script);
    let mut rng = Rng::from_seed(27);
    let mut is_changed = false;
    while team.now < 2 * S {
        // 17 Mbit/s on average, at instants at which no link of the tests is due.
        let at = team.now + 20_000 + rng.below(760_000);
        team.run_until(at);
        if team.now > S && !std::mem::replace(&mut is_changed, true) {
            team.command(change);
        }
        let flow = rng.below(32) as u16;
        let bytes = 100 + rng.below(1400) as u32;
        let is_back = rng.below(4) == 0;
        team.send(bytes, &packet(flow, is_back));
    }
    // Everything has left by then: 100 packets at the lowest rate take less than 3 s.
    team.run_until(20 * S);
    let gone = team.out.len() + team.drops().len();
    assert_eq!(gone, team.sent as usize, "every packet leaves once");
    team
}

/// Compares `workers` with one engine. Returns the team of workers.
fn compare(workers: u32, script: &str) -> Team {
    let [one, several] = [1, workers].map(|workers| run(workers, script, ""));
    assert!(one.sent > 3000 && one.out.len() > 500);
    let differs = one.out.symmetric_difference(&several.out).next();
    assert_eq!(differs, None, "{workers} workers: departures");
    let drops = [one.drops(), several.drops()];
    let differs = drops[0].symmetric_difference(&drops[1]).next();
    assert_eq!(differs, None, "{workers} workers: drops");
    assert_eq!(one.handed, 0);
    several
}

#[test]
fn one_pipe_queues_all_flows_together() {
    for aqm in ["", "codel", "queue 20"] {
        let script =
            format!("pipe 1 config bw 7300kbit/s delay 3 {aqm}\nadd pipe 1 ip from any to any in");
        for workers in [2, 4] {
            let team = compare(workers, &format!("{script}\nadd allow ip from any to any"));
            assert!(team.handed > 1000);
            // Everything leaves where the pipe is.
            let elsewhere = team
                .sent_by
                .iter()
                .enumerate()
                .filter(|(worker, _)| *worker != 1);
            assert_eq!(elsewhere.map(|(_, sent)| sent).sum::<u64>(), 0);
        }
    }
}

#[test]
fn the_queues_of_one_scheduler_share_its_link() {
    let script = "pipe 1 config bw 7300kbit/s\nsched 1 config type fq_codel\n\
                  queue 1 config sched 1\nadd queue 1 ip from any to any in\n\
                  add allow ip from any to any";
    let weights = "pipe 1 config bw 5100kbit/s\nsched 1 config type wf2q+\n\
                   queue 1 config sched 1 weight 3 mask src-ip 0xff\n\
                   queue 2 config sched 1 weight 1\n\
                   add queue 1 udp from any to 10.0.2.2 in\nadd queue 2 ip from any to any in\n\
                   add allow ip from any to any";
    for workers in [2, 4] {
        compare(workers, script);
        compare(workers, weights);
    }
}

#[test]
fn the_pipes_of_a_mask_are_spread() {
    let script = "pipe 1 config bw 500kbit/s mask src-ip 0xffffffff\n\
                  add pipe 1 ip from any to any in\nadd allow ip from any to any";
    for workers in [2, 4] {
        let team = compare(workers, script);
        // Nine sources among two or four workers.
        let busy = team.sent_by.iter().filter(|sent| **sent > 0).count();
        assert!(busy > 1, "{:?}", team.sent_by);
    }
}

#[test]
fn the_pipes_of_a_mask_can_stay_at_one_worker() {
    // Number 2 is that of worker 0 of two, and number 3 that of worker 1.
    let script = "pipe 2 config bw 500kbit/s mask src-ip 0xffffffff\n\
                  pipe 3 config bw 500kbit/s mask src-ip 0xffffffff\n\
                  add pipe 2 ip from 10.0.1.0/24 to any in\n\
                  add pipe 3 ip from any to any in\nadd allow ip from any to any";
    let mut team = Team::of(2, script, true);
    for round in 0..400u16 {
        team.run_until(u64::from(round) * MS);
        // Every flow arrives at both workers, as one of the workers' bridges.
        team.send(100, &packet(round % 32, round % 5 == 0));
    }
    team.run_until(20 * S);
    assert_eq!(team.drops(), BTreeSet::new());
    // A fifth comes back, at pipe 3.
    assert_eq!(team.sent_by, [320, 80]);
}

#[test]
fn a_chain_of_pipes_leads_from_owner_to_owner() {
    let passes = "pipe 1 config bw 7300kbit/s delay 2\npipe 2 config bw 5100kbit/s\n\
                  add pipe 1 ip from any to any in\nadd pipe 2 ip from any to any out";
    let again = "sysctl net.inet.ip.fw.one_pass=0\npipe 1 config bw 7300kbit/s delay 2\n\
                 pipe 2 config bw 5100kbit/s mask dst-ip 0xffffffff\npipe 3 config bw 3700kbit/s\n\
                 add pipe 1 ip from any to any in\nadd pipe 2 ip from any to any in\n\
                 add pipe 3 ip from any to any out\nadd allow ip from any to any";
    for workers in [2, 4] {
        for script in [passes, again] {
            compare(workers, script);
        }
    }
}

#[test]
fn states_let_the_other_direction_pass() {
    // What comes back passes by the states of what went there: the state sends both into the pipe, or
    // lets both pass behind it.
    let into = "pipe 1 config bw 7300kbit/s\nadd allow ip from any to any out\nadd check-state\n\
                add pipe 1 udp from 10.0.1.0/24 to any in keep-state\n\
                add deny ip from any to any";
    let behind = "pipe 1 config bw 7300kbit/s\nadd pipe 1 ip from any to any in\n\
                  add check-state\nadd allow udp from 10.0.1.0/24 to any out keep-state\n\
                  add deny ip from any to any";
    for workers in [2, 4] {
        for script in [into, behind] {
            let team = compare(workers, script);
            let drops = team.drops();
            let denied = drops.iter().filter(|drop| drop.2 == DropReason::Denied);
            // Only what comes back before the first packet of its flow has left.
            assert!((1..100).contains(&denied.count()));
        }
    }
}

#[test]
fn a_change_of_the_mask_moves_packets_to_their_new_owners() {
    let script = "pipe 1 config bw 2100kbit/s queue 50 mask src-ip 0xffffffff\n\
                  add pipe 1 ip from any to any in\nadd allow ip from any to any";
    for workers in [2, 4] {
        let team = run(workers, script, "pipe 1 config bw 7300kbit/s queue 100");
        // One pipe from then on: 100 packets of 1500 bytes leave within 170 ms.
        let late = |drop: &&(u64, u32, DropReason)| drop.0 > 2 * S + 170 * MS;
        assert_eq!(team.drops().iter().filter(late).count(), 0);
        assert!(
            team.out
                .last()
                .is_some_and(|last| last.0 < 2 * S + 170 * MS)
        );
        let reasons: BTreeSet<_> = team.drops().iter().map(|drop| drop.2).collect();
        let expected = [DropReason::Overflow, DropReason::Reconfigured];
        assert!(reasons.is_subset(&expected.into()), "{reasons:?}");
    }
}

#[test]
fn a_flow_is_never_reordered() {
    let script = "pipe 1 config bw 7300kbit/s\nsched 1 config type fq_codel\n\
                  queue 1 config sched 1\nadd queue 1 ip from any to any in\n\
                  add allow ip from any to any";
    let mut team = Team::new(4, script);
    for round in 0..1000u32 {
        team.run_until(u64::from(round) * MS);
        team.send(1000, &packet((round % 16) as u16, false));
    }
    team.run_until(5 * S);
    let mut last = [None; 16];
    for (_, number) in &team.out {
        let before = last[(number % 16) as usize].replace(*number);
        assert!(before < Some(*number), "{number} after {before:?}");
    }
}
