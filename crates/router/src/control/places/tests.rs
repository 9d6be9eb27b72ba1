//! Places without threads that serve them: the tests decide what is read, and when.

use std::cell::Cell;
use std::io::Write;
use std::net::Shutdown;
use std::thread;

use super::*;

/// Two places, and no time to begin a request.
const STRICT: Limits = Limits {
    clients: 2,
    patience: Duration::ZERO,
    work: Duration::ZERO,
    grace: Duration::ZERO,
};

/// Longer than any test lasts.
const PATIENT: Limits = Limits {
    grace: Duration::from_secs(3600),
    ..STRICT
};

/// Gives places to clients with these numbers, and returns them with their ends of the connections.
fn clients<const N: usize>(places: &Arc<Places>, numbers: [u64; N]) -> [(Place, UnixStream); N] {
    numbers.map(|number| {
        let (own, client) = UnixStream::pair().unwrap();
        (places.admit(number, Arc::new(own)), client)
    })
}

/// Returns clients that have all places of [`STRICT`].
fn two(places: &Arc<Places>) -> [(Place, UnixStream); 2] {
    clients(places, [0, 1])
}

/// Returns whether there is room, and how many clients lose their places.
fn room(places: &Places, limits: &Limits) -> (bool, u32) {
    let displaced = Cell::new(0);
    let has_room = places.make_room(limits, |_| displaced.set(displaced.get() + 1));
    (has_room, displaced.get())
}

#[test]
fn the_client_that_is_silent_for_longest_makes_room() {
    let places = Arc::default();
    let [(first, _one), (second, _two)] = two(&places);
    // The first one has been served since, so that the second one has been silent for longer.
    assert!(first.begin());
    first.end();
    assert_eq!(room(&places, &STRICT), (true, 1));
    assert!(first.begin());
    assert!(!second.begin(), "nothing is executed for it");
}

#[test]
fn a_client_that_has_sent_a_request_keeps_its_place() {
    let places = Arc::default();
    let [(first, mut one), (second, mut two)] = two(&places);
    // No thread has read it yet.
    one.write_all(b"{\"do\":\"status\"}\n").unwrap();
    two.write_all(b"{").unwrap();
    assert_eq!(room(&places, &STRICT), (false, 0));
    // A thread has read the half of a request, after which nothing comes.
    let [(half, _three)] = clients(&places, [2]);
    assert!(half.speaks());
    assert_eq!(room(&places, &STRICT), (true, 1));
    assert!(first.begin() && second.begin() && !half.begin());
}

#[test]
fn a_client_that_has_left_gives_back_its_own_place_only() {
    let places = Arc::default();
    let [(first, one), (second, _two)] = two(&places);
    drop(one);
    thread::scope(|scope| {
        // What the thread of the first client does once it reads the end.
        scope.spawn(|| drop(first));
        assert_eq!(room(&places, &PATIENT), (true, 0));
    });
    assert!(second.begin());
}

#[test]
fn a_new_client_has_some_time_before_it_makes_room() {
    let places = Arc::default();
    let [(first, _one), (second, _two)] = two(&places);
    thread::scope(|scope| {
        scope.spawn(|| drop(second));
        assert_eq!(room(&places, &PATIENT), (true, 0));
    });
    assert!(first.begin());
}

#[test]
fn clients_that_wait_for_a_sample_hold_no_place() {
    let places = Arc::default();
    let [(first, _one), (second, _two)] = two(&places);
    assert!(first.wait(1));
    assert!(!second.wait(1), "one may wait");
    assert!(second.begin());
    assert_eq!(room(&places, &STRICT), (true, 0));
    // Its sample has come.
    assert!(first.begin());
    assert_eq!(room(&places, &STRICT), (false, 0));
}

#[test]
fn a_closed_connection_is_told_from_one_without_further_requests() {
    let (own, client) = UnixStream::pair().unwrap();
    assert_eq!(readiness(&own), PollFlags::empty());
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(readiness(&own), PollFlags::IN);
    assert!(!has_hung_up(&own));
    drop(client);
    assert_eq!(readiness(&own), PollFlags::IN | PollFlags::HUP);
    assert!(has_hung_up(&own));
}
