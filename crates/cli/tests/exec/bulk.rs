//! The rate of a transfer.

use std::io::Read as _;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::{SERVER, World, own, send_much, stderr, stdout};

/// Seconds for a byte at 4 Mbit/s: a packet of 1500 bytes carries 1448 of them. 1.5 MB take 3.1077 s.
const BYTE: f64 = 8.0 * 1500.0 / 1448.0 / 4e6;

#[test]
fn a_bulk_transfer_has_the_rate_of_the_link() {
    let world = World::new();
    world.serve(80, send_much);
    let expected = 1.5e6 * BYTE;
    // Departures follow the link's clock, but a sender that does not run leaves the link idle. One
    // undisturbed transfer of three shows the rate. None may be faster.
    let took: Vec<f64> = (0..3)
        .map(|_| {
            let output = world.run(&["--rate", "4Mbit/s"], &own("bulk::bulk"));
            let text = stdout(&output);
            let line = text.lines().find_map(|line| line.strip_prefix("took "));
            let line = line.unwrap_or_else(|| panic!("{text}{}", stderr(&output)));
            line.parse().unwrap()
        })
        .collect();
    let errors = took.iter().map(|took| took / expected - 1.0);
    let least = errors.fold(f64::INFINITY, f64::min);
    assert!((-0.01..0.01).contains(&least), "{took:?}, not {expected}");
}

#[test]
#[ignore = "a client that other tests run"]
fn bulk() {
    let mut stream = TcpStream::connect((SERVER[0], 80)).unwrap();
    let patience = Duration::from_secs(20);
    stream.set_read_timeout(Some(patience)).unwrap();
    let (start, mut room, mut bytes) = (Instant::now(), [0; 4096], 0_usize);
    // A reader that does not run is late, never early: the least lateness of 500 kB is that of the link.
    // Slow start has ended before the first of them.
    let mut least = [f64::INFINITY; 2];
    while bytes < 2_400_000 {
        let count = stream.read(&mut room).unwrap();
        assert!(count > 0, "only {bytes} bytes");
        bytes += count;
        let late = start.elapsed().as_secs_f64() - bytes as f64 * BYTE;
        match bytes {
            400_000..900_000 => least[0] = least[0].min(late),
            1_900_000..2_400_000 => least[1] = least[1].min(late),
            _ => {}
        }
    }
    println!("took {}", 1.5e6 * BYTE + least[1] - least[0]);
}
