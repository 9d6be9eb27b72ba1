//! `prob`.

use super::*;

/// Returns how many of 10 000 packets of one flow do not reach `add 20 allow`, which ends `lines`.
fn caught(lines: &str) -> u32 {
    let mut rules = rules(&format!("{lines}\nadd 20 allow ip from any to any"));
    let mut rng = Rng::from_seed(5);
    let mut is_caught = |_: &u32| {
        let walk = Walk {
            now: Time::ZERO,
            rng: &mut rng,
            packets: 1,
            one_pass: true,
            log: None,
        };
        rules.walk(&tcp(1, 2, 80), &Place::START, walk).0 != Outcome::Allow
    };
    (0..10_000).filter(|packet| is_caught(packet)).count() as u32
}

/// 10 000 draws at 0.25: mean 2500, standard deviation 43; four of them either way.
const A_QUARTER: std::ops::RangeInclusive<u32> = 2327..=2673;

#[test]
fn a_probability_is_drawn_per_packet() {
    let hits = caught("add 10 prob 0.25 pipe 1 ip from any to any");
    assert!(A_QUARTER.contains(&hits), "{hits}");
}

#[test]
fn a_probability_comes_before_the_lookup_of_a_state() {
    let hits = caught("add 10 prob 0.25 pipe 1 ip from any to any keep-state");
    assert!(A_QUARTER.contains(&hits), "{hits}");
}

#[test]
fn what_one_rule_does_not_draw_a_later_one_looks_up() {
    let lines = "add 5 prob 0.25 check-state\nadd 10 pipe 1 ip from any to any keep-state";
    assert_eq!(caught(lines), 10_000);
}
