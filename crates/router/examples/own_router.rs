//! A router of your own: two ports, a pipe between them, and the loop.
//!
//! `cargo run -p sluice-router --example own_router`
//!
//! The ports are capture files, so the program needs no privileges. With `packet:eth0` and
//! `packet:eth1` in their place, `loop { forwarder.turn(None, None); }` forwards live. Ten packets
//! of 1250 bytes arrive at once. At 10 Mbit/s each takes 1 ms, and the delay is 20 ms, so the first
//! leaves at 21 ms and the tenth at 30 ms.

use sluice_core::link::PipeParams;
use sluice_core::registry::Spec;
use sluice_core::{Rate, Rng, Span, Time};
use sluice_net::Clock;
use sluice_net::namespace::Namespace;
use sluice_net::port::registry::Site;
use sluice_net::port::{Pool, PoolSize, PortSpec, Spin};
use sluice_router::forward::{FileTime, Forwarder, LaneOptions, Piped};
use sluice_wire::capture::{Reader, Writer, link_type};
use sluice_wire::frame::Link;
use std::error::Error;
use std::fs::{self, File};
use std::path::Path;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn route(from: PortSpec, to: PortSpec) -> Outcome<()> {
    let mut pool = Pool::new(PoolSize {
        slots: 64,
        large: 1,
    })?;
    let (namespace, clock) = (Namespace::current()?, Clock::start());
    let mut site = Site {
        namespace: &namespace,
        pool: &mut pool,
        clock,
        link: Some(Link::Ip),
    };
    let mut ports = vec![from.open(&mut site)?.port, to.open(&mut site)?.port];
    // Only ports of files have a playback: a frame recorded at 0 arrives, and is written, at time
    // zero.
    for file in ports.iter_mut().filter_map(|port| port.playback()) {
        file.begin(0, Time::ZERO);
    }
    let link = PipeParams {
        rate: Rate::from_bps(10_000_000),
        delay: Span::from_ms(20),
        ..PipeParams::default()
    };
    // A frame that arrives at port 0 waits in the queue, crosses the link and leaves through port
    // 1. A second lane would serve the other direction.
    let pipe = Piped::new(&link, Vec::new(), &Spec::parse("fq_codel")?, 1, link.rate);
    let mut forwarder = Forwarder::new(ports, pool, clock, Spin::None);
    let options = LaneOptions {
        from: &[0],
        seed: 1,
        rng: Rng::from_seed(1),
    };
    forwarder.add_lane(pipe, (), options);
    // Files have their own time, which advances with the packets and not with the machine's clock.
    let mut time = FileTime::default();
    while time.advance(&mut forwarder, 256) {}
    forwarder.release_ports();
    Ok(())
}

/// Runs the example.
pub fn main() {
    let folder = std::env::temp_dir().join(format!("sluice-router-{}", std::process::id()));
    fs::create_dir(&folder).expect("a folder of this process");
    let times = run(&folder);
    fs::remove_dir_all(&folder).expect("the folder is this program's");
    let times = times.expect("the files are this program's");
    for (packet, ms) in times.iter().enumerate() {
        println!("packet {packet} leaves at {ms} ms");
    }
    assert_eq!(times, (21..=30).collect::<Vec<i128>>());
}

/// Returns when packets leave, in milliseconds.
fn run(folder: &Path) -> Outcome<Vec<i128>> {
    let (input, output) = (folder.join("in.pcap"), folder.join("out.pcap"));
    let mut packet = vec![0x45, 0, 0x04, 0xe2]; // 1250 bytes
    packet.extend([0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 198, 51, 100, 1]);
    packet.resize(1250, 0);
    let mut writer = Writer::new(File::create(&input)?, link_type::RAW)?;
    for _ in 0..10 {
        writer.packet(0, [&packet, &[]], 1250)?;
    }
    route(
        format!("pcap:{}::full", input.display()).parse()?,
        format!("pcap::{}:full", output.display()).parse()?,
    )?;
    let (mut reader, mut bytes) = (Reader::new(File::open(&output)?)?, Vec::new());
    let mut times = Vec::new();
    while let Some(record) = reader.read(&mut bytes)? {
        times.push(record.time_ns / 1_000_000);
    }
    Ok(times)
}
