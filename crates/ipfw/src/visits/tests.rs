//! How the work of the packet loop grows with the configuration and with the length of commands.

use sluice_core::{Cx, DropCounter, Packet, Rng, Time};

use super::visits;
use crate::{Direction, Disposition, Firewall, Headers, NoFiles, Output, Prepared, Settings};

struct Engine {
    firewall: Firewall,
    rng: Rng,
    dropped: DropCounter,
    slot: u32,
}

impl Engine {
    fn new(text: &str) -> Engine {
        let mut engine = Engine {
            firewall: Firewall::new(&Settings::default()),
            rng: Rng::from_seed(1),
            dropped: DropCounter::default(),
            slot: 0,
        };
        engine.replace(text);
        engine
    }

    fn with<T>(&mut self, work: impl FnOnce(&mut Firewall, &mut Cx<'_>) -> T) -> T {
        let mut cx = Cx::new(Time::ZERO, &mut self.rng, &mut self.dropped);
        work(&mut self.firewall, &mut cx)
    }

    /// Replaces the configuration. Returns what the packet loop visits for it.
    fn replace(&mut self, text: &str) -> usize {
        let (settings, mut output) = (Settings::default(), Output::default());
        let prepared = Prepared::new(&settings, Vec::new(), text, &mut NoFiles, &mut output);
        let prepared = prepared.unwrap();
        visits(|| self.with(|firewall, cx| drop(firewall.replace(prepared, cx))))
    }

    fn command(&mut self, text: &str) -> Output {
        self.with(|firewall, cx| firewall.command(text, &mut NoFiles, cx).unwrap())
    }

    fn send(&mut self, to: [u8; 4]) -> Disposition {
        let headers = Headers::new(Direction::In, 17, [10, 1, 0, 1].into(), to.into());
        self.slot += 1;
        let packet = Packet::new(self.slot, 1000);
        self.with(|firewall, cx| firewall.handle(packet, &headers, cx))
    }
}

const PIPES: usize = 100;

/// 100 pipes, each with a scheduler of two queues.
fn pipes(mbit: u32) -> String {
    let lines = (1..=PIPES).map(|n| {
        let (first, second) = (2 * n, 2 * n + 1);
        format!(
            "pipe {n} config bw {mbit}Mbit/s\n\
             queue {first} config pipe {n} weight 1\n\
             queue {second} config pipe {n} weight 2\n\
             add {n} queue {first} ip from any to 10.0.0.{n}\n"
        )
    });
    lines.collect()
}

/// The queues of each scheduler are visited twice: for the rate, and for the scheduler itself. To visit
/// those of all schedulers for each of them would be 100 times 200.
#[test]
fn new_rates_visit_the_queues_of_each_scheduler_only() {
    let mut engine = Engine::new(&pipes(1));
    for n in 1..=PIPES {
        let taken = engine.send([10, 0, 0, n as u8]);
        assert!(matches!(taken, Disposition::Taken), "{taken:?}");
    }
    let visits = engine.replace(&pipes(2));
    let queues = 2 * PIPES;
    assert!((2 * queues..=4 * queues).contains(&visits), "{visits}");
}

#[test]
fn schedulers_are_shown_with_their_own_queues_only() {
    let mut engine = Engine::new(&pipes(1));
    let mut shown = Output::default();
    let visits = visits(|| shown = engine.command("sched show"));
    let queues = 2 * PIPES;
    assert!((queues..=2 * queues).contains(&visits), "{visits}");
    assert!(shown.stdout.contains("\n   Children flowsets: 200 201"));
}

/// Two queues for each of ten schedulers, and none before the first piece.
#[test]
fn a_show_collects_its_objects_in_pieces() {
    let mut engine = Engine::new(&pipes(1));
    let mut survey = None;
    let at_once = visits(|| survey = engine.with(|it, cx| it.survey("sched show", cx)));
    assert_eq!(at_once, 0);
    let mut survey = survey.expect("it only shows objects");
    let mut pieces = 0;
    let mut is_left = true;
    while is_left {
        let visits = visits(|| is_left = engine.with(|it, cx| it.look(&mut survey, 10, cx)));
        assert!(visits <= 2 * 10, "{visits}");
        pieces += 1;
    }
    // The last one visits flows, and there are none.
    assert_eq!(pieces, PIPES / 10 + 1);
    assert_eq!(survey.finish(), engine.command("sched show"));
}

/// 20 000 numbers, each of which a binary search among 1001 rules finds in at most 11 steps; to compare each
/// number with each rule would take 20 million. The numbers are one range, so a rule is compared with one.
#[test]
fn a_list_of_many_numbers_searches_the_rules_for_each_of_them() {
    const RULES: usize = 1000;
    const NUMBERS: usize = 20_000;
    let text: String = (1..=RULES)
        .map(|n| format!("add {n} count ip from any to any\n"))
        .collect();
    let mut engine = Engine::new(&text);
    let numbers = format!("7{}", ",7".repeat(NUMBERS - 1));
    for (command, lines) in [("list", 1), ("zero", NUMBERS), ("-f delete", 0)] {
        let mut said = Output::default();
        let visits = visits(|| said = engine.command(&format!("{command} {numbers}")));
        assert_eq!(said.stdout.lines().count(), lines, "{command}");
        let most = 12 * NUMBERS + 2 * (RULES + 1);
        assert!((NUMBERS..=most).contains(&visits), "{command}: {visits}");
    }
    // Only rule 7 is gone.
    assert_eq!(engine.command("list").stdout.lines().count(), RULES);
}

/// 2000 rules, each with a name of its own that all packets look up.
fn named(word: &str) -> String {
    let of = |n| format!("add {n} allow tcp from 10.1.0.1 to 10.0.0.9 {n} keep-state :{word}{n}\n");
    (1..=2000).map(of).collect()
}

/// To compare each name with those before it would take 2 million comparisons.
#[test]
fn a_reload_finds_the_name_of_each_rule_once() {
    let mut engine = Engine::new(&named("client"));
    assert_eq!(engine.replace(&named("client")), 2000);
    assert_eq!(engine.replace(&named("session")), 2000);
}

/// Each rule names a host of its own. The index looks four values of the flow up: the protocol, the
/// destination under the only mask, and both ports. What it finds is that rule and the built-in one.
#[test]
fn a_new_flow_among_10_000_rules_evaluates_its_own_one() {
    const MOST: usize = 4 + 2;
    let rule = |n: u32| {
        let [_, _, high, low] = n.to_be_bytes();
        format!("add {n} allow ip from any to 10.2.{high}.{low}\n")
    };
    let mut engine = Engine::new(&(1..=10_000).map(rule).collect::<String>());
    for n in [1_u32, 5000, 10_000] {
        let [_, _, high, low] = n.to_be_bytes();
        let send = |engine: &mut Engine| {
            let passes = engine.send([10, 2, high, low]);
            assert!(matches!(passes, Disposition::Pass(_)), "{passes:?}");
        };
        let new = visits(|| send(&mut engine));
        assert!((1..=MOST).contains(&new), "{new}");
        // The flow is known.
        assert_eq!(visits(|| send(&mut engine)), 0);
    }
    // No rule names this host; the built-in one is left.
    let denied = visits(|| {
        engine.send([10, 3, 0, 1]);
    });
    assert!((1..=MOST).contains(&denied), "{denied}");
}

/// As docs/dummynet.md says: the index cannot serve rules with more than 16 names of states.
#[test]
fn a_new_flow_evaluates_each_rule_that_no_index_serves() {
    const RULES: usize = 2000;
    let mut engine = Engine::new(&named("client"));
    let visits = visits(|| {
        engine.send([10, 0, 0, 1]);
    });
    assert!((RULES..=RULES + 4 + 1).contains(&visits), "{visits}");
}

/// 300 rules, each with a table of its own. To look for each table in all rules would take 90 000 steps.
#[test]
fn commands_about_all_tables_read_the_rules_once() {
    let text: String = (1..=300)
        .map(|n| format!("add {n} count ip from table(t{n}) to any\n"))
        .collect();
    let mut engine = Engine::new(&text);
    for (command, expected) in [("info", 300), ("list", 0), ("flush", 0)] {
        let mut said = Output::default();
        let visits = visits(|| said = engine.command(&format!("table all {command}")));
        assert_eq!(visits, expected, "{command}");
        let references = said.stdout.matches(" references: 1,").count();
        assert_eq!(references, expected, "{command}");
    }
}
