use std::sync::atomic::AtomicBool;
use std::thread;

use sluice_core::{Cx, DropCounter, Packet, Rng, Time};
use sluice_ipfw::{Direction, Firewall, Headers, Settings};

use super::super::Order;
use super::*;

/// Of each worker, the number of the orders that it has executed.
#[derive(Clone, Debug, PartialEq)]
struct Executed(Vec<usize>);

impl TeamStatus for Executed {
    fn join(all: Vec<Executed>) -> Executed {
        Executed(all.into_iter().flat_map(|one| one.0).collect())
    }
}

const PATIENCE: Duration = Duration::from_secs(60);

/// The engine of a worker, without a loop around it.
struct One {
    firewall: Firewall,
    executed: usize,
}

impl One {
    fn execute(&mut self, order: Order<Executed>) {
        self.executed += 1;
        let (mut rng, mut sink) = (Rng::from_seed(1), DropCounter::default());
        let mut cx = Cx::new(Time::ZERO, &mut rng, &mut sink);
        let firewall = &mut self.firewall;
        order.answer.send(match order.work {
            Work::Replace(prepared) => {
                Answered::Replaced(Box::new(firewall.replace(*prepared, &mut cx)))
            }
            Work::Exchange(amended) => match firewall.exchange(*amended, &mut cx) {
                Ok(replaced) => Answered::Replaced(Box::new(replaced)),
                Err(stale) => Answered::Stale(stale),
            },
            work @ (Work::Draft | Work::Report) => {
                let mut draft = match work {
                    Work::Draft => firewall.draft(),
                    _ => firewall.report(),
                };
                while firewall.continue_draft(&mut draft) {}
                Answered::Draft(Box::new(draft))
            }
            Work::Commands {
                text,
                mode,
                mut files,
            } => match firewall.survey(&text, &mut cx) {
                Some(mut survey) => {
                    while firewall.look(&mut survey, 1, &mut cx) {}
                    Answered::Survey(Box::new(survey))
                }
                None => {
                    let mut output = Output::default();
                    let result = firewall.execute(&text, mode, &mut files, &mut output, &mut cx);
                    Answered::Commands(Box::new(output), result)
                }
            },
            Work::Status => Answered::Status(Box::new(Executed(vec![self.executed]))),
            Work::Watch(_) => panic!("nobody watches"),
        });
    }
}

/// Ends the workers, also if the test fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Calls `work` beside three workers. `packets[n]` UDP packets from 10.0.0.n are handled by worker `n`
/// after `config`.
fn with_workers(config: &str, packets: [u32; 3], work: impl FnOnce(&Orders<Executed>)) {
    let clock = Clock::start();
    let (inboxes, orders) = inboxes::<Executed>(Builder::default(), 3, clock).unwrap();
    let has_ended = AtomicBool::new(false);
    thread::scope(|scope| {
        for (number, mut inbox) in inboxes.into_iter().enumerate() {
            let has_ended = &has_ended;
            scope.spawn(move || {
                let mut one = One {
                    firewall: Firewall::new(&Settings::default()),
                    executed: 0,
                };
                let (mut rng, mut sink) = (Rng::from_seed(1), DropCounter::default());
                let mut cx = Cx::new(Time::ZERO, &mut rng, &mut sink);
                let mut output = Output::default();
                let texts = Texts::new();
                let mut files = Given(&texts);
                let executed =
                    one.firewall
                        .execute(config, Mode::Atomic, &mut files, &mut output, &mut cx);
                executed.unwrap();
                let source = [10, 0, 0, number as u8].into();
                let headers = Headers {
                    ip_len: 100,
                    ..Headers::new(Direction::In, 17, source, [10, 0, 1, 1].into())
                };
                for slot in 0..packets[number] {
                    one.firewall
                        .handle(Packet::new(slot, 100), &headers, &mut cx);
                }
                while !has_ended.load(Ordering::Acquire) {
                    match inbox.take() {
                        Some(order) => one.execute(order),
                        None => thread::yield_now(),
                    }
                }
            });
        }
        let _end = End(&has_ended);
        work(&orders);
    });
}

/// Executes commands. Returns what they print, and the message of a refusal.
fn run(orders: &Orders<Executed>, text: &str, mode: Mode) -> (String, Option<String>) {
    let command = (text.to_owned(), mode, Texts::new());
    match orders.execute(command, PATIENCE).unwrap() {
        Answered::Commands(output, result) => {
            (output.stdout, result.err().map(|error| error.to_string()))
        }
        Answered::Survey(survey) => (survey.finish().stdout, None),
        answer => panic!("{answer:?}"),
    }
}

fn shown(orders: &Orders<Executed>, text: &str) -> String {
    let (output, refused) = run(orders, text, Mode::Command);
    assert_eq!(refused, None, "{text}");
    output
}

#[test]
fn counters_of_rules_add_up_and_states_are_those_of_all() {
    let config = "add 100 count udp from any to any\nadd 200 allow ip from any to any keep-state";
    with_workers(config, [1, 2, 4], |orders| {
        let counted = shown(orders, "-a list 100");
        assert_eq!(counted.trim_end(), "00100 7 700 count udp from any to any");
        let states = shown(orders, "-d list");
        for source in ["10.0.0.0", "10.0.0.1", "10.0.0.2"] {
            assert!(states.contains(source), "{states}");
        }
        assert!(states.contains("## Dynamic rules (3):"), "{states}");
        let count = shown(orders, "sysctl net.inet.ip.fw.dyn_count");
        assert_eq!(count, "net.inet.ip.fw.dyn_count: 3\n");
        // Zeroed everywhere.
        shown(orders, "-q zero 100");
        let counted = shown(orders, "-a list 100");
        assert_eq!(counted.split_whitespace().nth(1), Some("0"));
    });
}

#[test]
fn a_pipe_is_shown_with_the_flows_of_all() {
    let config = "pipe 1 config bw 1Mbit/s mask src-ip 0xffffffff\n\
                  add pipe 1 ip from any to any";
    with_workers(config, [1, 2, 4], |orders| {
        let pipe = shown(orders, "pipe 1 show");
        let rows = ["10.0.0.0/0", "10.0.0.1/0", "10.0.0.2/0"];
        assert!(rows.iter().all(|row| pipe.contains(row)), "{pipe}");
        let both = run(orders, "-a list\npipe 1 show", Mode::Batch);
        assert!(both.0.contains("pipe 1 ip from any to any") && both.0.contains(rows[2]));
    });
}

#[test]
fn a_change_is_made_by_all_or_by_none() {
    with_workers("", [0; 3], |orders| {
        let everywhere = |expected: &str| {
            let rules = shown(orders, "list");
            assert_eq!(rules, format!("{expected}65535 deny ip from any to any\n"));
        };
        assert_eq!(
            run(orders, "add 100 allow tcp from any to any", Mode::Command),
            ("00100 allow tcp from any to any\n".to_owned(), None)
        );
        let lines = "-q add 200 allow udp from any to any\nadd 300 nonsense";
        let (_, refused) = run(orders, lines, Mode::Atomic);
        assert!(refused.unwrap().contains("Line 2"));
        everywhere("00100 allow tcp from any to any\n");
        // In a batch, the lines before the refused one stay.
        let (_, refused) = run(orders, lines, Mode::Batch);
        assert!(refused.unwrap().contains("Line 2"));
        everywhere("00100 allow tcp from any to any\n00200 allow udp from any to any\n");
        // Also if a line needs the engines.
        let lines = "-q delete 100\nshow\nadd 300 nonsense\n-q add 400 allow ip from any to any";
        let (_, refused) = run(orders, lines, Mode::Batch);
        assert!(refused.unwrap().contains("Line 3"));
        everywhere("00200 allow udp from any to any\n");
        let (_, refused) = run(orders, "-q add 1 allow ip from any to any", Mode::Replace);
        assert_eq!(refused, None);
        everywhere("00001 allow ip from any to any\n");
        // All have executed the same orders, but for the copies, of which one suffices.
        let Answered::Status(status) = orders.order(Work::Status, PATIENCE).unwrap() else {
            panic!("a request for the status is answered with it");
        };
        assert_eq!(status.0.len(), 3);
        assert_eq!(status.0[1], status.0[2]);
    });
}

#[test]
fn every_command_counts_once_also_a_refused_one_of_which_no_loop_learns() {
    with_workers("", [0; 3], |orders| {
        let commands = [
            ("pipe 1 config bw 1Mbit/s", Mode::Command),
            ("list", Mode::Command),
            ("pipe 1 config bw nonsense", Mode::Command),
            ("-n pipe 2 config bw 1Mbit/s", Mode::Command),
            ("pipe 2 config bw 1Mbit/s\nadd 300 nonsense", Mode::Atomic),
            ("show\nshow\nlist", Mode::Batch),
            ("add 300 nonsense", Mode::Replace),
        ];
        for ((text, mode), count) in commands.into_iter().zip(1..) {
            let command = (text.to_owned(), mode, Texts::new());
            let _ = orders.commands("test", command, PATIENCE).unwrap();
            assert_eq!(orders.asked().load(Ordering::Relaxed), count, "{text}");
        }
    });
}

/// 200 000 orders to three workers take more than 5 us each, and together more than a second.
#[test]
fn all_lines_of_a_text_have_one_time_limit() {
    with_workers("", [0; 3], |orders| {
        let command = ("pipe show\n".repeat(200_000), Mode::Batch, Texts::new());
        let answered = orders.execute(command, Duration::from_secs(1));
        assert_eq!(answered.err(), Some(Refused::Unfinished));
    });
}

#[test]
fn workers_that_do_not_listen_hold_nobody_up() {
    let (inboxes, orders) = inboxes::<Executed>(Builder::default(), 2, Clock::start()).unwrap();
    for _ in 0..WAITING {
        let late = orders.order(Work::Status, Duration::ZERO).err();
        assert_eq!(late, Some(Refused::Late));
    }
    let busy = orders.order(Work::Status, PATIENCE).err();
    assert_eq!(busy, Some(Refused::Busy));
    let [mut one, mut other]: [Inbox<Executed>; 2] = inboxes.try_into().ok().unwrap();
    // Withdrawn orders are taken by nobody, and there is room when both have looked.
    assert!(one.take().is_none());
    let busy = orders.order(Work::Status, PATIENCE).err();
    assert_eq!(busy, Some(Refused::Busy));
    assert!(other.take().is_none());
    assert!(orders.post(Work::Status).is_ok());
    assert!(one.take().is_some() && other.take().is_some());
}
