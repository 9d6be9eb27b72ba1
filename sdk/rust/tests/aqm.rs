//! The functions that `aqm!` exports, called as the host of a module calls them.

use sluice_sdk::{Aqm, Packet, Params, Queue, Verdict, aqm};

#[derive(Default)]
struct State {
    refused: i64,
    due: i64,
}

impl Aqm for State {
    fn on_enqueue(&mut self, packet: &Packet, queue: &Queue, params: &Params) -> Verdict {
        match queue.bytes + i64::from(packet.size_bytes) > params.get(1) {
            true if packet.is_ecn_capable() => Verdict::Mark,
            true => Verdict::Drop,
            false => Verdict::Pass,
        }
    }

    fn on_dequeue(&mut self, packet: &Packet, _queue: &Queue, params: &Params) -> Verdict {
        match packet.sojourn_ns > params.get(0) {
            true => Verdict::Drop,
            false => Verdict::Pass,
        }
    }

    fn on_refused(&mut self, packet: &Packet, _queue: &Queue, _params: &Params) {
        self.refused += i64::from(packet.flow);
    }

    fn on_empty(&mut self, now_ns: i64, _params: &Params) {
        self.due = now_ns + 5;
    }

    fn next_timer(&self, _params: &Params) -> i64 {
        self.due
    }

    fn on_timer(&mut self, now_ns: i64, queue: &Queue, _params: &Params) {
        self.due = now_ns + queue.packets;
    }

    fn variable(&self, number: i32) -> i64 {
        [self.refused, self.due][number as usize]
    }
}

aqm! {
    State: on_enqueue, on_dequeue, on_refused, on_empty, next_timer, on_timer;
    "abi 1"
}

#[test]
fn hooks_get_their_arguments_and_return_verdicts() {
    set_param(0, 1_000);
    set_param(1, 3_000);
    let mut state = State::default();
    // 1500 bytes beside 1500 are not above 3000; beside 1501 they are.
    let mut arrive = |ecn, bytes| on_enqueue(&mut state, 7, 1500, ecn, 9, 0, 1, bytes);
    assert_eq!(
        [arrive(0, 1500), arrive(0, 1501), arrive(2, 1501)],
        [0, 2, 1]
    );
    let mut leave = |sojourn| on_dequeue(&mut state, 7, 1500, 2, 9, sojourn, 1, 1500);
    assert_eq!([leave(1_000), leave(1_001)], [0, 2]);
    // The flow is unsigned.
    on_refused(&mut state, 7, 1500, 2, -1, 0, 1, 1500);
    assert_eq!(variable(&state, 0), i64::from(u32::MAX));
    on_empty(&mut state, 20);
    assert_eq!(next_timer(&state), 25);
    on_timer(&mut state, 25, 3, 4500);
    assert_eq!((next_timer(&state), variable(&state, 1)), (28, 28));
}
