//! The loops of workers with ports in memory.

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use sluice_core::packet::SPLIT_BELOW;
use sluice_ipfw::Mode;
use sluice_net::namespace::Namespace;
use sluice_net::port::registry::Playback;
use sluice_net::port::{Capabilities, Counters, PoolSize, Promiscuity, Slot};
use sluice_wire::frame::Link;

use super::super::Pulse;
use super::*;
use crate::control::{Attached, Bell, Builder, Orders, Texts, inbox, inboxes};
use crate::forward::{WakeUp, exchange};

/// Whether super-packets may arrive whole, by the last word of the loop.
type Whole = Arc<Mutex<Option<bool>>>;

/// A port at which nothing arrives.
struct SilentPort {
    whole: Whole,
    /// Never readable.
    descriptors: (UnixStream, UnixStream),
}

impl Port for SilentPort {
    fn name(&self) -> &str {
        "silent"
    }

    fn link(&self) -> Link {
        Link::Ip
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            super_packets: true,
            partial_checksums: true,
            batch: 1,
            mtu: 1500,
            kernel_queue: 0,
        }
    }

    fn receive(&mut self, _pool: &mut Pool, _into: &mut Vec<Slot>) -> usize {
        0
    }

    fn has_waiting(&self) -> bool {
        false
    }

    fn transmit(&mut self, _pool: &mut Pool, _slots: &[Slot]) -> usize {
        0
    }

    fn counters(&mut self) -> Counters {
        Counters::default()
    }

    fn release(&mut self, _pool: &mut Pool) {}

    fn looks_within(&self) -> Option<Span> {
        None
    }

    fn let_super_packets_in(&mut self, whole: bool) {
        *self.whole.lock().unwrap() = Some(whole);
    }

    fn promiscuity(&self) -> Promiscuity {
        Promiscuity::NotAsked
    }

    fn playback(&mut self) -> Option<&mut dyn Playback> {
        None
    }
}

impl AsFd for SilentPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptors.0.as_fd()
    }
}

/// A loop that queues packets of the kernel's own stack, with `text` as the configuration.
fn settings(
    text: &str,
    orders: &Orders<Status>,
    worker: Option<(Worker, Exchange)>,
) -> LoopSettings {
    LoopSettings {
        engine: sluice_ipfw::Settings::default(),
        interfaces: Vec::new(),
        choices: Vec::new(),
        config: Config {
            text: text.to_owned(),
            ..Config::default()
        },
        is_hooked: true,
        split_below: SPLIT_BELOW,
        is_strict: false,
        measures_rtt: false,
        spin: Spin::None,
        slack: Span::ZERO,
        cpu_latency: None,
        time: PortTime::Machine,
        warmer: None,
        wants_real_time: false,
        log: sync_channel(1).0,
        turned_away: Arc::clone(orders.turned_away()),
        commands: Arc::clone(orders.asked()),
        worker,
        receives_from: None,
        keeps_flows: true,
        health: Arc::new(Health::new(&[], Arc::new(Namespace::current().unwrap()))),
        bridging: None,
    }
}

fn silent(start: LoopSettings, whole: Whole, clock: Clock, inbox: Inbox<Status>) -> Loop {
    let port = SilentPort {
        whole,
        descriptors: UnixStream::pair().unwrap(),
    };
    let pool = Pool::new(PoolSize { slots: 4, large: 1 }).unwrap();
    Loop::new(start, vec![Box::new(port)], pool, clock, inbox)
}

/// Returns whether super-packets may arrive whole at each of two workers that queue packets of the
/// kernel's own stack, with `text` as the configuration and after `change`.
fn whole_after(text: &str, change: Option<&str>) -> [Option<bool>; 2] {
    let clock = Clock::start();
    let (inboxes, orders) = inboxes::<Status>(Builder::default(), 2, clock).unwrap();
    let bells = orders.bells().cloned();
    let wake_ups = bells.map(|bell| Box::new(move || bell.ring()) as WakeUp);
    let exchanges = exchange(wake_ups.collect());
    let stop = Stop::new();
    let all = [Whole::default(), Whole::default()];
    thread::scope(|scope| {
        for (number, ((inbox, end), whole)) in
            (0..).zip(inboxes.into_iter().zip(exchanges).zip(&all))
        {
            let worker = Worker {
                number,
                of: 2,
                keeps_masks: false,
            };
            let start = settings(text, &orders, Some((worker, end)));
            let (whole, stop) = (Arc::clone(whole), &stop);
            scope.spawn(move || {
                let own = silent(start, whole, clock, inbox);
                own.run(stop, (&AtomicBool::new(false), &AtomicU64::new(0)), || None)
            });
        }
        let answered = change.map(|text| {
            let commands = (text.to_owned(), Mode::Command, Texts::new());
            orders.commands("test", commands, Duration::from_secs(60))
        });
        stop.stop();
        orders.bells().for_each(Bell::ring);
        if let Some(answered) = answered {
            assert!(
                matches!(answered, Ok(Answered::Commands(_, Ok(())))),
                "{answered:?}"
            );
        }
    });
    all.map(|whole| *whole.lock().unwrap())
}

#[test]
fn a_rate_that_all_workers_change_at_one_instant_decides_about_super_packets_at_once() {
    let fast = "pipe 1 config bw 2Gbit/s\nadd pipe 1 ip from any to any";
    let slow = "pipe 1 config bw 2Mbit/s";
    assert_eq!(whole_after(fast, None), [Some(true); 2]);
    assert_eq!(whole_after(fast, Some(slow)), [Some(false); 2]);
    assert_eq!(
        whole_after(slow, Some("pipe 1 config bw 2Gbit/s")),
        [Some(true); 2]
    );
}

/// Other orders wait for the end of a batch, a watchdog does not.
#[test]
fn a_loop_turns_between_the_pieces_of_a_batch() {
    let clock = Clock::start();
    let (inbox, orders) = inbox::<Status>(Builder::default()).unwrap();
    let start = settings("", &orders, None);
    let (stop, turns) = (Stop::new(), Arc::new(AtomicU64::new(0)));
    let mut pulse = Pulse::new(orders.bells().cloned().collect(), vec![Arc::clone(&turns)]);
    let mut beats = 0;
    thread::scope(|scope| {
        let (stop, turns) = (&stop, &*turns);
        scope.spawn(move || {
            let own = silent(start, Whole::default(), clock, inbox);
            own.run(stop, (&AtomicBool::new(false), turns), || None)
        });
        // Some tens of milliseconds, in pieces of 0.2 ms.
        let batch = Work::Commands {
            text: "pipe 1 config bw 1Mbit/s\n".repeat(20_000),
            mode: Mode::Batch,
            files: Attached::default(),
        };
        let batch = orders.post(batch).unwrap();
        let answered = loop {
            match batch.poll() {
                Ok(None) => {}
                answered => break answered,
            }
            if pulse.has_turned() {
                beats += 1;
                pulse.count();
            }
            thread::yield_now();
        };
        stop.stop();
        orders.bells().for_each(Bell::ring);
        assert!(
            matches!(answered, Ok(Some(Answered::Commands(_, Ok(()))))),
            "{answered:?}"
        );
    });
    assert!(beats > 0);
    // A loop that executes the batch at once turns when the bell rings for it, and at the end.
    let turns = turns.load(Ordering::Relaxed);
    assert!(turns > 10, "{turns}");
}
