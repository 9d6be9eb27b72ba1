//! Forwards frames from one port to another.
//!
//! `cargo run -p sluice-net --example forward`
//!
//! The ports here are capture files, so the program needs no privileges. Every port has the same
//! methods. For `packet:eth0`, a [`Waiter`](sluice_net::port::Waiter) would wait for frames where
//! this program asks for the time of the next one.

use sluice_core::Time;
use sluice_net::Clock;
use sluice_net::namespace::Namespace;
use sluice_net::port::registry::Site;
use sluice_net::port::{Pool, PoolSize, PortSpec};
use sluice_wire::capture::{Reader, Writer, link_type};
use sluice_wire::frame::Link;
use std::error::Error;
use std::fs::{self, File};
use std::path::Path;

/// Runs the example.
pub fn main() {
    let folder = std::env::temp_dir().join(format!("sluice-forward-{}", std::process::id()));
    fs::create_dir(&folder).expect("a folder of this process");
    let forwarded = write(&folder.join("in.pcap")).and_then(|()| {
        forward(&folder)?;
        count(&folder.join("out.pcap"))
    });
    fs::remove_dir_all(&folder).expect("the folder is this program's");
    let forwarded = forwarded.expect("the files are this program's");
    println!("{forwarded} frames forwarded");
    assert_eq!(forwarded, FRAMES);
}

fn forward(folder: &Path) -> Result<(), Box<dyn Error + Send + Sync>> {
    // The host owns the memory of the frames; ports receive into its slots and send from them.
    let mut pool = Pool::new(PoolSize {
        slots: 64,
        large: 1,
    })?;
    let namespace = Namespace::current()?;
    let mut site = Site {
        namespace: &namespace,
        pool: &mut pool,
        clock: Clock::start(),
        link: Some(Link::Ip),
    };
    let place = folder.display();
    let specs = [
        format!("pcap:{place}/in.pcap:"),
        format!("pcap::{place}/out.pcap"),
    ];
    let mut from = specs[0].parse::<PortSpec>()?.open(&mut site)?.port;
    let mut to = specs[1].parse::<PortSpec>()?.open(&mut site)?.port;
    // Only ports of files have a playback: a frame recorded at 0 arrives, and is written, at time
    // zero.
    for file in [&mut from, &mut to]
        .into_iter()
        .filter_map(|port| port.playback())
    {
        file.begin(0, Time::ZERO);
    }
    let mut slots = Vec::new();
    while let Some(now) = from.playback().and_then(|file| file.next_arrival()) {
        for file in [&mut from, &mut to]
            .into_iter()
            .filter_map(|port| port.playback())
        {
            file.set_time(now);
        }
        from.receive(&mut pool, &mut slots);
        let sent = to.transmit(&mut pool, &slots);
        // The port has freed the slots of the frames that it sent; the others still belong to this
        // program.
        for slot in slots.drain(..).skip(sent) {
            pool.free(slot);
        }
    }
    for port in [&mut from, &mut to] {
        port.release(&mut pool);
    }
    Ok(())
}

const FRAMES: usize = 100;

/// Writes a capture of empty IPv4 packets, a microsecond apart.
fn write(path: &Path) -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut writer = Writer::new(File::create(path)?, link_type::RAW)?;
    let packet = [
        0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 198, 51, 100, 1,
    ];
    for number in 0..FRAMES {
        let time_ns = 1_000 * number as i128;
        writer.packet(time_ns, [&packet, &[]], packet.len() as u32)?;
    }
    Ok(())
}

fn count(path: &Path) -> Result<usize, Box<dyn Error + Send + Sync>> {
    let (mut reader, mut bytes) = (Reader::new(File::open(path)?)?, Vec::new());
    let mut count = 0;
    while reader.read(&mut bytes)?.is_some() {
        count += 1;
    }
    Ok(count)
}
