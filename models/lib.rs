//! Models of the parts of the router that threads share without a lock: loom runs them in every order
//! of their steps that the memory model allows. The files are those of the router itself.
//!
//! `make test-models` takes seconds after the first build.
#![cfg(test)]
#![allow(dead_code)]

mod channel;

/// The types that the files take from the standard library otherwise.
mod sync {
    pub use crate::channel::{Receiver, SyncSender, TrySendError, sync_channel};
    pub use crate::once::OnceLock;
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
#[path = "../crates/router/src/control/mailbox.rs"]
mod mailbox;
mod once;
#[path = "../crates/router/src/forward/way.rs"]
mod way;

mod lent;

use bell::Claim;
use doorbell::Doorbell;
use exchange::Exchange;
use loom::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;
use mailbox::{GivenUp, Putting, Taking, Wire, give_up, mailbox};

/// Tries all orders in which a thread is interrupted up to three times; more take hours.
fn model(run: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(run);
}

/// A pair of sockets: the bytes in the kernel's queue between them, which has a lock.
#[derive(Clone)]
struct Socket(Arc<Mutex<usize>>);

impl Wire for Socket {
    fn put(&self) {
        *self.0.lock().unwrap() += 1;
    }

    fn drain(&self) {
        *self.0.lock().unwrap() = 0;
    }
}

impl Socket {
    fn is_readable(&self) -> bool {
        *self.0.lock().unwrap() > 0
    }
}

type Inbox = Taking<u8, Socket>;
type Orders = Arc<Putting<u8, Socket>>;

/// Returns the two ends of an inbox with room for as many orders.
fn inbox(waiting: usize) -> (Inbox, Orders) {
    let socket = Socket(Arc::new(Mutex::new(0)));
    let (inbox, orders) = mailbox(waiting, socket.clone(), socket);
    (inbox, Arc::new(orders))
}

/// Sends an order from a thread, which returns whether there was room.
fn post(orders: &Orders, order: u8) -> thread::JoinHandle<bool> {
    let orders = Arc::clone(orders);
    thread::spawn(move || orders.put(order, &Arc::new(Claim::new())).is_ok())
}

/// Looks at the descriptor, as a wait of the loop does, and notes what it sees.
fn look(inbox: &mut Inbox) -> bool {
    let is_readable = inbox.wire().is_readable();
    inbox.has_rung(is_readable);
    is_readable
}

/// A loop that found no order and sleeps is woken up by its descriptor if there is one now.
#[test]
fn no_order_waits_for_a_sleeping_loop() {
    model(|| {
        let (mut inbox, orders) = inbox(2);
        let senders = [1, 2].map(|order| post(&orders, order));
        let mut taken = 0;
        while inbox.take().is_some() {
            taken += 1;
        }
        // The loop sleeps here.
        for sender in senders {
            assert!(sender.join().unwrap(), "there is room for two");
        }
        let is_readable = inbox.wire().is_readable();
        let mut waiting = 0;
        while inbox.take().is_some() {
            waiting += 1;
        }
        assert_eq!(taken + waiting, 2);
        assert!(waiting == 0 || is_readable);
    });
}

/// Without room, an order is refused and does not come later; one that is accepted comes.
#[test]
fn an_order_is_accepted_and_taken_or_refused() {
    model(|| {
        let (mut inbox, orders) = inbox(1);
        let senders = [1, 2].map(|order| post(&orders, order));
        let mut taken = u32::from(inbox.take().is_some());
        let accepted: u32 = senders
            .into_iter()
            .map(|sender| u32::from(sender.join().unwrap()))
            .sum();
        while inbox.take().is_some() {
            taken += 1;
        }
        assert!(accepted >= 1, "the first finds room");
        assert_eq!(taken, accepted);
    });
}

/// The bell does not keep a loop awake: after the orders are taken, it is silent.
#[test]
fn a_bell_is_silent_once_its_orders_are_taken() {
    model(|| {
        let (mut inbox, orders) = inbox(1);
        let sender = post(&orders, 1);
        let early = inbox.take();
        sender.join().unwrap();
        let late = inbox.take();
        assert_eq!(early.or(late), Some(1));
        assert_eq!(inbox.take(), None);
        assert!(!inbox.wire().is_readable());
    });
}

/// A loop that a sender has woken up and interrupted finds the descriptor readable once, and not until the
/// sender goes on: with real-time priority on the sender's core that would never happen.
#[test]
fn a_sender_that_is_interrupted_does_not_keep_the_loop_awake() {
    model(|| {
        let (mut inbox, orders) = inbox(1);
        let sender = post(&orders, 1);
        if look(&mut inbox) {
            assert_eq!(inbox.take(), Some(1));
            assert!(!look(&mut inbox));
        }
        sender.join().unwrap();
    });
}

/// What a sender that gives up learns is true: an order that is withdrawn is not executed, and one that has begun is
/// executed once.
#[test]
fn an_order_whose_sender_gives_up_is_executed_or_withdrawn() {
    model(|| {
        let (mut inbox, orders) = inbox(1);
        let (answer, answered) = channel::sync_channel(1);
        let executed = Arc::new(AtomicU8::new(0));
        let sender = {
            let (orders, executed) = (Arc::clone(&orders), Arc::clone(&executed));
            thread::spawn(move || {
                let claim = Arc::new(Claim::new());
                orders.put(1, &claim).unwrap();
                let given_up = give_up(&claim, &answered);
                if let GivenUp::Answered(seven) = &given_up {
                    assert_eq!(*seven, 7);
                    // The sender of an answered order sees what the loop did before.
                    assert_eq!(executed.load(Ordering::Relaxed), 1);
                }
                given_up
            })
        };
        let mut execute = || {
            while inbox.take().is_some() {
                executed.fetch_add(1, Ordering::Relaxed);
                answer.try_send(7).unwrap();
            }
        };
        execute();
        let given_up = sender.join().unwrap();
        execute();
        let is_withdrawn = given_up == GivenUp::Withdrawn;
        assert_eq!(executed.load(Ordering::Relaxed), u8::from(!is_withdrawn));
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
