//! The cache of programs when it is full.

use super::*;

fn key(n: u64) -> ProgramKey {
    ProgramKey([n, 1, 2, 3, 4, 5])
}

fn program(arg: u32) -> Vec<Step> {
    vec![Step {
        rule: 0,
        arg,
        has_body: true,
        asks: false,
        probes: false,
    }]
}

/// Three times as many flows as the cache has programs, each with a program of its own, such as the
/// subscribers of a table with values.
#[test]
fn a_full_cache_keeps_what_is_in_use() {
    let mut programs = Programs::new(KeyedHash(3));
    let used = key(0);
    // Flows in other sets of slots do not push it out, also when the cache grows.
    let place = programs.place(&used);
    let others = (1..200_000).map(key);
    let others: Vec<ProgramKey> = others.filter(|key| programs.place(key) != place).collect();
    programs.insert(used, 0, program(0));
    for (arg, other) in (1..).zip(&others) {
        let new = programs.insert(*other, 0, program(arg));
        assert_eq!(programs.steps(new.program)[0].arg, arg);
        if arg % 1000 == 0 {
            let found = programs.find(&used, 0).expect("it has been used");
            let kept = programs.keep(found);
            assert_eq!(programs.steps(kept.program)[0].arg, 0);
            assert_eq!(programs.find(&used, 0), Some(kept));
        }
    }
    assert_eq!(programs.find(&others[0], 0), None);
    programs.forget_flows();
    assert_eq!(programs.find(&used, 0), None);
}
