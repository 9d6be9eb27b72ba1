//! A rule engine between two interfaces, for the tests that send odd frames through it.

use sluice_core::{Cx, DropCounter, Rate, Rng, Time};
use sluice_ipfw::{Firewall, Interface, Settings};
use sluice_router::process::{Config, Ruled};

/// Returns the engine between `left` and `right`, which accepts packets that no rule of `text`
/// matches and splits super-packets below 1 Gbit/s.
pub fn between_left_and_right(text: &str) -> Ruled {
    let mut firewall = Firewall::new(&Settings {
        accepts_by_default: true,
        ..Settings::default()
    });
    let interfaces = ["left", "right"].map(|name| Interface {
        name: name.into(),
        addresses: Vec::new(),
    });
    firewall.set_interfaces(interfaces.to_vec());
    let config = Config {
        text: text.into(),
        ..Config::default()
    };
    let (mut rng, mut sink) = (Rng::from_seed(1), DropCounter::default());
    let mut cx = Cx::new(Time::ZERO, &mut rng, &mut sink);
    let (_, result) = config.apply(&mut firewall, &mut cx);
    result.expect("the rules are valid");
    Ruled::new(firewall, vec![1, 0], Rate::from_bps(1_000_000_000))
}
