//! An engine with a clock and an output, for tests.
#![allow(dead_code, reason = "each test file uses a part of it")]

pub mod fuzz;

use std::net::{IpAddr, Ipv4Addr};

use sluice_core::sched::Wake;
use sluice_core::{Cx, DropReason, Packet, Rng, Sink, Time};
use sluice_ipfw::headers::{ICMP, TCP, UDP};
use sluice_ipfw::{
    CommandError, Departure, Direction, Disposition, Files, Firewall, Headers, Interface, Output,
    Settings,
};

pub const MS: u64 = 1_000_000;
pub const S: u64 = 1_000 * MS;

/// The dropped packets: time, slot, reason.
#[derive(Debug, Default)]
pub struct Dropped(pub Vec<(u64, u32, DropReason)>);

impl Sink for Dropped {
    fn discard(&mut self, now: Time, packet: Packet, reason: DropReason) {
        self.0.push((now.as_ns(), packet.slot, reason));
    }
}

/// Files by name.
#[derive(Debug, Default)]
pub struct Texts(pub Vec<(&'static str, String)>);

impl Files for Texts {
    fn read(&mut self, path: &str) -> Result<String, String> {
        let found = self.0.iter().find(|(name, _)| *name == path);
        found
            .map(|(_, text)| text.clone())
            .ok_or_else(|| "No such file or directory".to_string())
    }
}

pub struct Bench {
    pub firewall: Firewall,
    pub rng: Rng,
    pub dropped: Dropped,
    pub files: Texts,
    pub now: u64,
    next_slot: u32,
    free: Vec<u32>,
    /// Packets that passed: due time, slot, bytes.
    pub out: Vec<(u64, u32, u32)>,
}

impl Bench {
    pub fn new() -> Self {
        Bench::with(&Settings::default())
    }

    pub fn compat() -> Self {
        Bench::with(&Settings {
            compat: true,
            ..Settings::default()
        })
    }

    pub fn with(settings: &Settings) -> Self {
        let mut firewall = Firewall::new(settings);
        firewall.set_interfaces(vec![
            Interface {
                name: "em0".into(),
                addresses: vec![ip(10, 0, 1, 1)],
            },
            Interface {
                name: "em1".into(),
                addresses: vec![ip(10, 0, 2, 1)],
            },
        ]);
        Bench {
            firewall,
            rng: Rng::from_seed(7),
            dropped: Dropped::default(),
            files: Texts::default(),
            now: 0,
            next_slot: 0,
            free: Vec::new(),
            out: Vec::new(),
        }
    }

    pub fn run(&mut self, text: &str) -> Result<Output, CommandError> {
        let mut cx = Cx::new(Time::from_ns(self.now), &mut self.rng, &mut self.dropped);
        self.firewall.command(text, &mut self.files, &mut cx)
    }

    /// Runs a command that must succeed and returns its standard output.
    pub fn ok(&mut self, text: &str) -> String {
        match self.run(text) {
            Ok(output) => output.stdout,
            Err(error) => panic!("`{text}`: {error}"),
        }
    }

    /// Runs commands that must succeed, one per line.
    pub fn script(&mut self, text: &str) {
        for line in text.lines() {
            self.ok(line);
        }
    }

    /// Returns the warnings of a command that must succeed.
    pub fn warnings(&mut self, text: &str) -> Vec<String> {
        match self.run(text) {
            Ok(output) => output.warnings.into_iter().map(|w| w.text).collect(),
            Err(error) => panic!("`{text}`: {error}"),
        }
    }

    /// Returns the message and exit status of a command that must be refused.
    pub fn refusal(&mut self, text: &str) -> (String, u8) {
        match self.run(text) {
            Ok(output) => panic!("`{text}` was accepted: {output:?}"),
            Err(error) => (error.to_string(), error.exit_code()),
        }
    }

    /// Sends a packet and returns its slot.
    pub fn send(&mut self, bytes: u32, headers: &Headers) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.next_slot += 1;
            self.next_slot - 1
        });
        let mut packet = Packet::new(slot, bytes);
        packet.flow = u32::from(headers.src_port) << 16 ^ u32::from(headers.dst_port);
        let before = self.dropped.0.len();
        let mut cx = Cx::new(Time::from_ns(self.now), &mut self.rng, &mut self.dropped);
        match self.firewall.handle(packet, headers, &mut cx) {
            Disposition::Pass(packet) => self.passed(self.now, &packet),
            Disposition::Taken | Disposition::Dropped(_) => {}
        }
        self.reclaim(before);
        slot
    }

    /// Runs the engine until `at`, polling at its own wake-ups.
    pub fn run_until(&mut self, at: u64) {
        loop {
            match self.firewall.next_wake() {
                Wake::Now => {}
                Wake::At(wake) if wake.as_ns() <= at => self.now = self.now.max(wake.as_ns()),
                Wake::At(_) | Wake::OnEnqueue => break,
            }
            self.poll();
        }
        self.now = at;
    }

    /// Runs the engine until it is idle.
    pub fn drain(&mut self) {
        while let Wake::At(_) | Wake::Now = self.firewall.next_wake() {
            if let Wake::At(wake) = self.firewall.next_wake() {
                self.now = self.now.max(wake.as_ns());
            }
            self.poll();
        }
    }

    pub fn poll(&mut self) {
        let before = self.dropped.0.len();
        loop {
            let mut cx = Cx::new(Time::from_ns(self.now), &mut self.rng, &mut self.dropped);
            let Some(Departure { packet, due, .. }) = self.firewall.poll(&mut cx) else {
                break;
            };
            self.passed(due.as_ns(), &packet);
        }
        self.reclaim(before);
    }

    fn passed(&mut self, due: u64, packet: &Packet) {
        self.out.push((due, packet.slot, packet.len));
        self.free.push(packet.slot);
    }

    fn reclaim(&mut self, before: usize) {
        let slots = self.dropped.0[before..].iter().map(|(_, slot, _)| *slot);
        self.free.extend(slots);
    }

    /// Returns the number of packets dropped for a reason.
    pub fn drops(&self, reason: DropReason) -> usize {
        self.dropped
            .0
            .iter()
            .filter(|(_, _, r)| *r == reason)
            .count()
    }
}

pub const fn ip(a: u8, b: u8, c: u8, d: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(a, b, c, d))
}

/// A packet on its way out through em1.
pub fn out(proto: u8, src: IpAddr, dst: IpAddr, ports: (u16, u16)) -> Headers {
    Headers {
        recv: Some(sluice_ipfw::InterfaceId(0)),
        xmit: Some(sluice_ipfw::InterfaceId(1)),
        src_port: ports.0,
        dst_port: ports.1,
        ip_len: 1500,
        icmp_type: (proto == ICMP).then_some(8),
        tcp_flags: if proto == TCP { 0x10 } else { 0 },
        ..Headers::new(Direction::Out, proto, src, dst)
    }
}

/// A UDP packet from 10.0.1.`last` on its way out.
pub fn udp(last: u8) -> Headers {
    out(UDP, ip(10, 0, 1, last), ip(10, 0, 2, 2), (1000, 53))
}

/// Replaces spaces at line ends by `_`.
pub fn visible(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let kept = line.trim_end_matches(' ');
        format!("{kept}{}\n", "_".repeat(line.len() - kept.len()))
    });
    lines.collect()
}
