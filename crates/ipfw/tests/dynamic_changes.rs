//! Pipes and queues of masks with little memory, while commands change them: every packet leaves or is
//! dropped, once.

use std::net::{IpAddr, Ipv4Addr};

use sluice_core::event::{DropReason, Sink};
use sluice_core::{Cx, Packet, Rng, Span, Time};
use sluice_ipfw::{Direction, Disposition, Firewall, Headers, NoFiles, Settings};

/// Counts the drops.
#[derive(Default)]
struct Drops(u64);

impl Sink for Drops {
    fn discard(&mut self, _now: Time, _packet: Packet, _reason: DropReason) {
        self.0 += 1;
    }
}

const START: &str = "pipe 1 config bw 1Mbit/s mask src-ip 0xffffffff
pipe 2 config bw 1Mbit/s
sched 2 config pipe 2 type wf2q+
queue 2 config sched 2 mask src-ip 0xffffffff
queue 3 config sched 2 mask dst-ip 0xff
add queue 3 ip from 10.0.3.0/24 to any
add queue 2 ip from 10.0.2.0/23 to any
add pipe 1 ip from any to any";

/// Some are refused, since what they name may be gone.
const CHANGES: [&str; 25] = [
    "pipe 1 config bw 1Mbit/s mask src-ip 0xffffffff",
    "pipe 1 config bw 1Mbit/s mask src-ip 0x0000000f codel",
    "pipe 1 config bw 1Gbit/s delay 50 queue 1000 mask src-ip 0xffffffff",
    "pipe 1 config bw 10Kbit/s",
    "pipe 1 delete",
    "pipe 2 config bw 1Mbit/s",
    "pipe 2 config bw 100Mbit/s delay 5",
    "pipe 2 delete",
    "sched 2 config pipe 2 type wf2q+",
    "sched 2 config pipe 2 type rr mask src-ip 0x3f",
    "sched 2 config pipe 2 type qfq mask src-ip 0xff",
    "sched 2 config pipe 2 type prio",
    "sched 2 config pipe 2 type fifo mask src-ip 0xff",
    "sched 2 config pipe 2 type fq_codel mask src-ip 0xff",
    "sched 2 config pipe 2 type cake mask src-ip 0xff",
    "sched 2 delete",
    "queue 2 config sched 2 mask src-ip 0xffffffff weight 3",
    "queue 2 config sched 2 mask src-ip 0xffffffff weight 50 codel",
    "queue 2 config sched 2 mask src-ip 0xffff plr 0.1",
    "queue 2 config sched 2",
    "queue 2 config pipe 1 mask src-ip 0xffffffff",
    "queue 3 config sched 2 mask dst-ip 0xff queue 5",
    "queue 3 config pipe 2 mask src-ip 0xffffffff pie",
    "queue 3 delete",
    "queue 2 delete",
];

/// Limits of the memory; pipes and queues take some hundred bytes to 130 KB.
const LIMITS: [u64; 5] = [0, 8 << 10, 64 << 10, 512 << 10, 4 << 20];

#[test]
fn every_packet_leaves_or_is_dropped_whatever_changes_at_the_limits() {
    for seed in 0..200 {
        let mut choice = Rng::from_seed(seed);
        let most = LIMITS[choice.below(5) as usize];
        let mut firewall = Firewall::new(&Settings {
            dynamic_bytes: choice.below(most + 1),
            ..Settings::default()
        });
        let (mut rng, mut drops) = (Rng::from_seed(seed), Drops::default());
        let mut now = Time::ZERO;
        for line in START.lines() {
            let mut cx = Cx::new(now, &mut rng, &mut drops);
            firewall.command(line, &mut NoFiles, &mut cx).unwrap();
        }
        let sources = 1 + choice.below(1024);
        let (mut sent, mut left) = (0, 0);
        for _ in 0..2000 {
            let mut cx = Cx::new(now, &mut rng, &mut drops);
            match choice.below(200) {
                0 | 1 => {
                    let change = CHANGES[choice.below(25) as usize];
                    let _ = firewall.command(change, &mut NoFiles, &mut cx);
                }
                // What is idle for ten seconds is put to sleep or closed.
                2 => now += Span::from_secs(11),
                3 => now += Span::from_secs(choice.below(3)),
                4..=40 => now += Span::from_us(choice.below(3000)),
                _ => {}
            }
            let mut cx = Cx::new(now, &mut rng, &mut drops);
            if choice.below(3) == 0 {
                left += std::iter::from_fn(|| firewall.poll(&mut cx)).count();
            }
            let source = choice.below(sources) as u32;
            let from = IpAddr::from(Ipv4Addr::from(0x0a00_0000 + source));
            let to = IpAddr::from([10, 9, 0, choice.below(64) as u8]);
            let headers = Headers::new(Direction::In, 17, from, to);
            for _ in 0..=choice.below(10) {
                sent += 1;
                let mut packet = Packet::new(sent as u32, 100 + choice.below(1400) as u32);
                packet.flow = source.wrapping_mul(0x9e37_79b9) ^ choice.below(8) as u32;
                let disposition = firewall.handle(packet, &headers, &mut cx);
                left += usize::from(matches!(disposition, Disposition::Pass(_)));
            }
        }
        now += Span::from_secs(1_000_000);
        let mut cx = Cx::new(now, &mut rng, &mut drops);
        left += std::iter::from_fn(|| firewall.poll(&mut cx)).count();
        assert_eq!(left as u64 + drops.0, sent, "seed {seed}");
    }
}
