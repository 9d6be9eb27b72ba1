//! Orders and their bell, with the test as the loop.

use super::*;
use std::thread;

fn status() -> Work {
    Work::Status
}

#[test]
fn an_order_is_answered_and_quiets_the_bell() {
    let (mut inbox, orders) = inbox::<u32>(Builder::default()).unwrap();
    let asked = thread::spawn(move || orders.order(status(), Duration::from_secs(60)));
    let order = loop {
        match inbox.take() {
            Some(order) => break order,
            None => thread::yield_now(),
        }
    };
    order.answer.send(Answered::Status(Box::new(7)));
    let Ok(Answered::Status(seven)) = asked.join().unwrap() else {
        panic!("the answer is what was sent");
    };
    assert_eq!(*seven, 7);
    assert!(inbox.take().is_none());
    assert!(!is_ringing(&mut inbox));
}

fn is_ringing<T>(inbox: &mut Inbox<T>) -> bool {
    inbox.0.wire().read(&mut [0]).is_ok()
}

#[test]
fn a_bell_that_is_quieted_leaves_its_order() {
    let (mut inbox, orders) = inbox::<u32>(Builder::default()).unwrap();
    let _pending = orders.post(status()).unwrap();
    inbox.quiet();
    assert!(!is_ringing(&mut inbox));
    assert!(inbox.take().is_some());
}

/// The loop may interrupt the thread that rings between the byte and the flag.
#[test]
fn a_bell_that_was_seen_to_ring_is_reset_without_its_flag() {
    let (mut inbox, orders) = inbox::<u32>(Builder::default()).unwrap();
    let _pending = orders.post(status()).unwrap();
    inbox.0.bell().forget();
    inbox.has_rung(true);
    assert!(inbox.take().is_some());
    assert!(!is_ringing(&mut inbox));
}

#[test]
fn an_answer_can_be_looked_for_without_waiting() {
    let (mut inbox, orders) = inbox::<u32>(Builder::default()).unwrap();
    let pending = orders.post(status()).unwrap();
    assert!(pending.poll().unwrap().is_none());
    let order = inbox.take().unwrap();
    assert!(pending.poll().unwrap().is_none());
    order.answer.send(Answered::Status(Box::new(7)));
    let Some(Answered::Status(seven)) = pending.poll().unwrap() else {
        panic!("the answer is what was sent");
    };
    assert_eq!(*seven, 7);
    let pending = orders.post(status()).unwrap();
    drop(inbox);
    assert_eq!(pending.poll().err(), Some(Refused::Ended));
}

#[test]
fn a_loop_that_does_not_listen_holds_nobody_up() {
    let (inbox, orders) = inbox::<u32>(Builder::default()).unwrap();
    for _ in 0..WAITING {
        assert_eq!(
            orders.order(status(), Duration::ZERO).err(),
            Some(Refused::Late)
        );
    }
    assert_eq!(
        orders.order(status(), Duration::from_secs(60)).err(),
        Some(Refused::Busy)
    );
    drop(inbox);
    assert_eq!(
        orders.order(status(), Duration::from_secs(60)).err(),
        Some(Refused::Ended)
    );
}

#[test]
fn commands_that_the_loop_refuses_are_counted_by_reason() {
    let (_inbox, orders) = inbox::<u32>(Builder::default()).unwrap();
    let commands = || {
        let commands = ("pipe 1 config".to_owned(), Mode::Command, Texts::default());
        orders.commands("uid 0", commands, Duration::ZERO).err()
    };
    // As many as may wait are withdrawn, and keep their places, since no loop takes them.
    for _ in 0..WAITING {
        assert_eq!(commands(), Some(Refused::Late));
    }
    assert_eq!(commands(), Some(Refused::Busy));
    let counts = [("busy".to_owned(), 1), ("late".to_owned(), 16)];
    assert_eq!(orders.turned_away().counts(), counts.into());
}

#[test]
fn an_order_is_either_withdrawn_or_executed() {
    let (mut inbox, orders) = inbox::<u32>(Builder::default()).unwrap();
    let late = orders.order(status(), Duration::ZERO).err();
    assert_eq!(late, Some(Refused::Late));
    assert!(inbox.take().is_none(), "it is withdrawn");
    let asked = thread::spawn(move || orders.order(status(), Duration::from_millis(50)));
    let order = loop {
        match inbox.take() {
            Some(order) => break order,
            None => thread::yield_now(),
        }
    };
    // Begun, and no answer in time.
    assert_eq!(asked.join().unwrap().err(), Some(Refused::Unfinished));
    order.answer.send(Answered::Status(Box::new(7)));
}

#[test]
fn a_bell_that_nobody_hears_does_not_block() {
    let (mut inbox, orders) = inbox::<u32>(Builder::default()).unwrap();
    // Some hundred fill the buffer.
    for _ in 0..10_000 {
        orders.bells().for_each(Bell::ring);
    }
    assert!(inbox.take().is_none());
    assert!(!is_ringing(&mut inbox));
}
