//! A congestion control of your own, without a line in the registry.
//!
//! ```text
//! cargo run -p sluice-tcp --example own_congestion_control
//! ```
//!
//! Implements [`CongestionControl`] with a constant window, describes it with a [`Descriptor`], and
//! transfers data over a path of 20 ms. The rate must be the window per round trip. The simulator
//! takes such a descriptor as well, by `sluice_sim::Tcp::bulk`.

use sluice_core::{Span, Time};
use sluice_tcp::cc::{Ack, CongestionControl, Descriptor, Episode, Signal, Window};
use sluice_tcp::{Config, EcnMode, Endpoint, SlowStart};

/// Sends the same number of segments in each round trip, whatever happens.
#[derive(Debug)]
struct Constant {
    cwnd: u64,
}

impl CongestionControl for Constant {
    fn on_ack(&mut self, _ack: &Ack, window: &mut Window) {
        window.cwnd = self.cwnd;
    }

    fn on_congestion(&mut self, _signal: Signal, _episode: &Episode, _window: &mut Window) {}

    fn owns_window(&self) -> bool {
        true
    }
}

static CONSTANT: Descriptor = Descriptor {
    name: "constant",
    summary: "a constant window of 20 segments",
    source: "none: an example",
    ecn: EcnMode::Off,
    paces: false,
    slow_start: SlowStart::Standard,
    has_abe: false,
    has_hystart: false,
    initial_window: 20,
    create: |params| {
        Box::new(Constant {
            cwnd: 20 * params.mss,
        })
    },
};

fn main() {
    let config = Config {
        congestion_control: &CONSTANT,
        initial_window: CONSTANT.initial_window,
        ..Config::default()
    };
    let mut client = Endpoint::client(&config).expect("a valid configuration");
    let mut server = Endpoint::server(&config).expect("a valid configuration");
    client.open(Time::ZERO);
    client.write_forever();
    // In each round all segments of one side arrive together, 10 ms later.
    let mut now = Time::ZERO;
    for _ in 0..101 {
        let batch: Vec<_> = std::iter::from_fn(|| client.poll_transmit(now)).collect();
        now += Span::from_ms(10);
        for segment in &batch {
            server.handle_segment(now, segment);
        }
        let batch: Vec<_> = std::iter::from_fn(|| server.poll_transmit(now)).collect();
        now += Span::from_ms(10);
        for segment in &batch {
            client.handle_segment(now, segment);
        }
    }
    // One round for the handshake, and 100 rounds with 20 segments of 1448 bytes each.
    assert_eq!(server.received(), 100 * 20 * 1448);
    println!("{} bytes in {}", server.received(), now.since(Time::ZERO));
}
