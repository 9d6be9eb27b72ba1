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
fn the_order_of_a_client_that_has_gone_is_not_executed() {
    let (mut inbox, orders) = inbox::<u32>(Builder::default()).unwrap();
    let order = |orders: Orders<u32>| orders.order(status(), Duration::from_secs(60)).err();
    let gone = orders.clone().for_client(|| true);
    assert_eq!(order(gone), Some(Refused::Gone));
    assert!(inbox.take().is_none(), "it is not sent");
    // This one is there when it sends the order, and hangs up while the order waits.
    let looks = AtomicU64::new(0);
    let leaving = orders.for_client(move || looks.fetch_add(1, Ordering::Relaxed) > 0);
    assert_eq!(order(leaving), Some(Refused::Gone));
    assert!(inbox.take().is_none(), "it is withdrawn");
}

#[test]
fn an_order_that_has_begun_is_finished_although_its_client_has_gone() {
    let (mut inbox, orders) = inbox::<u32>(Builder::default()).unwrap();
    let looks = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&looks);
    let leaving = orders.for_client(move || counted.fetch_add(1, Ordering::Relaxed) > 0);
    let asked = thread::spawn(move || leaving.order(status(), Duration::from_secs(60)));
    let order = loop {
        match inbox.take() {
            Some(order) => break order,
            None => thread::yield_now(),
        }
    };
    // The first look is before the order, and the third one comes after it was found to have begun.
    while looks.load(Ordering::Relaxed) < 3 {
        thread::sleep(Duration::from_millis(5));
    }
    order.answer.send(Answered::Status(Box::new(7)));
    assert!(matches!(asked.join().unwrap(), Ok(Answered::Status(_))));
}

#[test]
fn commands_of_a_client_that_has_gone_are_counted_and_noted() {
    let (_inbox, orders) = inbox::<u32>(Builder::default()).unwrap();
    let gone = orders.clone().for_client(|| true);
    let commands = (
        "pipe 1 config bw 1Mbit/s".to_owned(),
        Mode::Command,
        Texts::default(),
    );
    let answered = gone.commands("uid 0", commands, Duration::from_secs(60));
    assert_eq!(answered.err(), Some(Refused::Gone));
    let counts = [("gone".to_owned(), 1)];
    assert_eq!(orders.turned_away().counts(), counts.into());
    let (changes, _) = orders.journal().latest();
    let refused = changes[0].refused.as_deref();
    assert_eq!(refused, Some(Refused::Gone.to_string().as_str()));
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
