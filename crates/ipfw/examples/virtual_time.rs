//! A pipe in virtual time: dummynet commands, packets, and the instants at which the packets leave.
//!
//! `cargo run -p sluice-ipfw --example virtual_time`
//!
//! The engine has no clock and keeps no bytes. The program hands it commands, packets and the time,
//! and asks for the next instant at which something is due. Ten packets of 1500 bytes arrive at
//! once at a pipe of 10 Mbit/s with a delay of 20 ms and room for eight. Each takes 1.2 ms on the
//! link, so the first leaves at 21.2 ms, the eighth at 29.6 ms, and the last two are dropped:
//!
//! ```text
//! packet 8 dropped: overflow
//! packet 9 dropped: overflow
//! packet 0 leaves at 21.2ms
//! packet 1 leaves at 22.4ms
//! ...
//! packet 7 leaves at 29.6ms
//! 00100 10 15000 pipe 1 udp from any to any
//! 65535  0     0 deny ip from any to any
//! ```

use sluice_core::sched::Wake;
use sluice_core::{Cx, DropReason, Packet, Rng, Sink, Time};
use sluice_ipfw::headers::UDP;
use sluice_ipfw::{CommandError, Direction, Disposition, Firewall, Headers, NoFiles, Settings};

/// Prints every packet that is dropped. A host would release the packet's buffer here.
struct Drops;

impl Sink for Drops {
    fn discard(&mut self, _now: Time, packet: Packet, reason: DropReason) {
        println!("packet {} dropped: {}", packet.slot, reason.name());
    }
}

fn main() -> Result<(), CommandError> {
    let mut firewall = Firewall::new(&Settings::default());
    let mut rng = Rng::from_seed(1);
    let mut drops = Drops;
    let mut cx = Cx::new(Time::ZERO, &mut rng, &mut drops);

    for command in [
        "pipe 1 config bw 10Mbit/s delay 20ms queue 8",
        "add 100 pipe 1 udp from any to any",
    ] {
        let output = firewall.command(command, &mut NoFiles, &mut cx)?;
        for warning in output.warnings {
            println!("{command}: {warning}");
        }
    }

    // The rules read the headers, the queues read the handle: a slot that the host chooses, and the
    // length on the wire.
    let headers = Headers {
        src_port: 5000,
        dst_port: 53,
        ip_len: 1500,
        ..Headers::new(
            Direction::Out,
            UDP,
            [192, 0, 2, 1].into(),
            [198, 51, 100, 1].into(),
        )
    };
    for slot in 0..10 {
        let packet = Packet::new(slot, 1500);
        match firewall.handle(packet, &headers, &mut cx) {
            Disposition::Pass(packet) => println!("packet {} passes at once", packet.slot),
            // `poll` returns the packet when it leaves the pipe.
            Disposition::Taken => {}
            // `Drops` received the packet.
            Disposition::Dropped(_) => {}
        }
    }

    while let Wake::At(at) = firewall.next_wake() {
        cx.now = at;
        while let Some(departure) = firewall.poll(&mut cx) {
            let ms = departure.due.as_ns() as f64 / 1e6;
            println!("packet {} leaves at {ms}ms", departure.packet.slot);
        }
    }

    let counters = firewall.command("-a list", &mut NoFiles, &mut cx)?;
    print!("{}", counters.stdout);
    Ok(())
}
