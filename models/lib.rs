//! Models of the parts of the router that threads share without a lock: loom runs them in every order
//! of their steps that the memory model allows. The files are those of the router itself.
//!
//! `make test-models` takes seconds after the first build.
#![cfg(test)]
#![allow(dead_code)]

/// The types that the files take from the standard library otherwise.
mod sync {
    pub use loom::sync::atomic::{AtomicBool, AtomicU8, Ordering, fence};
    pub use loom::sync::{Arc, Mutex, MutexGuard};
    pub use std::sync::PoisonError;
}

#[path = "../crates/router/src/control/bell.rs"]
mod bell;
#[path = "../crates/router/src/forward/doorbell.rs"]
mod doorbell;
#[path = "../crates/net/src/port/xdp/exchange.rs"]
mod exchange;

use bell::{Claim, Flag};
use doorbell::Doorbell;
use exchange::Exchange;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;

/// Tries all orders in which a thread is interrupted up to three times; more take hours.
fn model(run: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(run);
}

/// The inbox of a loop: orders, a bell, and the bytes that make its descriptor readable.
struct Inbox {
    orders: Mutex<Vec<u8>>,
    flag: Flag,
    /// The kernel's queue between the two sockets, which has a lock.
    bytes: Mutex<usize>,
    /// Whether the loop has seen that there are bytes.
    has_rung: AtomicBool,
}

impl Inbox {
    fn new() -> Arc<Inbox> {
        Arc::new(Inbox {
            orders: Mutex::new(Vec::new()),
            flag: Flag::new(),
            bytes: Mutex::new(0),
            has_rung: AtomicBool::new(false),
        })
    }

    fn post(&self, order: u8) {
        self.orders.lock().unwrap().push(order);
        self.flag.ring(|| *self.bytes.lock().unwrap() += 1);
    }

    fn take(&self) -> Option<u8> {
        let has_rung = self.has_rung.swap(false, Ordering::Relaxed);
        self.flag.hear(has_rung, || *self.bytes.lock().unwrap() = 0);
        self.orders.lock().unwrap().pop()
    }

    fn is_readable(&self) -> bool {
        *self.bytes.lock().unwrap() > 0
    }

    /// Looks at the descriptor, as a wait of the loop does, and notes what it sees.
    fn look(&self) -> bool {
        let is_readable = self.is_readable();
        self.has_rung.store(is_readable, Ordering::Relaxed);
        is_readable
    }
}

/// A loop that found no order and sleeps is woken up by its descriptor if there is one now.
#[test]
fn no_order_waits_for_a_sleeping_loop() {
    model(|| {
        let inbox = Inbox::new();
        let senders = [1, 2].map(|order| {
            let inbox = Arc::clone(&inbox);
            thread::spawn(move || inbox.post(order))
        });
        let mut taken = 0;
        while inbox.take().is_some() {
            taken += 1;
        }
        // The loop sleeps here.
        for sender in senders {
            sender.join().unwrap();
        }
        let waiting = inbox.orders.lock().unwrap().len();
        assert_eq!(taken + waiting, 2);
        assert!(waiting == 0 || inbox.is_readable());
    });
}

/// The bell does not keep a loop awake: after the orders are taken, it is silent.
#[test]
fn a_bell_is_silent_once_its_orders_are_taken() {
    model(|| {
        let inbox = Inbox::new();
        let sender = {
            let inbox = Arc::clone(&inbox);
            thread::spawn(move || inbox.post(1))
        };
        let early = inbox.take();
        sender.join().unwrap();
        let late = inbox.take();
        assert_eq!(early.or(late), Some(1));
        assert_eq!(inbox.take(), None);
        assert!(!inbox.is_readable());
    });
}

/// A loop that a sender has woken up and interrupted finds the descriptor readable once, and not until the
/// sender goes on: with real-time priority on the sender's core that would never happen.
#[test]
fn a_sender_that_is_interrupted_does_not_keep_the_loop_awake() {
    model(|| {
        let inbox = Inbox::new();
        let sender = {
            let inbox = Arc::clone(&inbox);
            thread::spawn(move || inbox.post(1))
        };
        if inbox.look() {
            assert_eq!(inbox.take(), Some(1));
            assert!(!inbox.look());
        }
        sender.join().unwrap();
    });
}

#[test]
fn an_order_is_begun_or_withdrawn_and_never_both() {
    model(|| {
        let claim = Arc::new(Claim::new());
        let withdrawn = {
            let claim = Arc::clone(&claim);
            thread::spawn(move || claim.put(Claim::WITHDRAWN))
        };
        let begun = claim.begin();
        assert_ne!(begun, withdrawn.join().unwrap());
    });
}

/// A worker that goes to sleep while others send it packets has seen each packet, or is woken up. The
/// queues between workers store a packet with `Release` and look for one with `Acquire`.
#[test]
fn a_worker_does_not_sleep_while_packets_wait() {
    model(|| {
        let bell = Arc::new(Doorbell::new());
        let parcels: [_; 2] = std::array::from_fn(|_| Arc::new(AtomicBool::new(false)));
        let wake_ups = Arc::new(Mutex::new(0));
        let senders = parcels.each_ref().map(|parcel| {
            let (parcel, bell) = (Arc::clone(parcel), Arc::clone(&bell));
            let wake_ups = Arc::clone(&wake_ups);
            thread::spawn(move || {
                parcel.store(true, Ordering::Release);
                Doorbell::have_sent();
                bell.ring(|| *wake_ups.lock().unwrap() += 1);
            })
        });
        let arrived = || parcels.iter().any(|parcel| parcel.load(Ordering::Acquire));
        let is_asleep = bell.sleep(arrived);
        for sender in senders {
            sender.join().unwrap();
        }
        let wake_ups = *wake_ups.lock().unwrap();
        assert!(!is_asleep || wake_ups == 1, "{is_asleep} {wake_ups}");
        assert!(wake_ups <= 1, "one system call ends a sleep");
    });
}

/// The sending half of an interface has lost its rings. Whatever the receiving half does meanwhile,
/// the sending half has new rings, or they wait for it, or it has asked for them.
#[test]
fn a_half_that_wants_rings_is_heard() {
    model(|| {
        let exchange = Exchange::new();
        let receiving = {
            let exchange = exchange.clone();
            thread::spawn(move || {
                for rings in [1, 2] {
                    if exchange.is_wanted() || rings == 1 {
                        exchange.put(rings);
                    }
                }
            })
        };
        exchange.want();
        let first = exchange.take();
        if first.is_none() {
            exchange.want();
        }
        receiving.join().unwrap();
        let is_asked_for = exchange.is_wanted();
        assert!(first.is_some() || is_asked_for || exchange.take().is_some());
    });
}
