//! The functions that `scheduler!` exports, called as the host of a module calls them.

use sluice_sdk::{Packet, Params, Queue, Rank, scheduler};

/// Start times of fair queueing for one flow, whose weight is a parameter.
#[derive(Default)]
struct State {
    finish: u64,
    now: u64,
}

impl Rank for State {
    fn rank(&mut self, _packet: &Packet, _queue: &Queue, _params: &Params) -> u64 {
        self.finish.max(self.now)
    }

    fn on_enqueue(&mut self, packet: &Packet, rank: u64, _queue: &Queue, params: &Params) {
        self.finish = rank + u64::from(packet.size_bytes) / params.get(0) as u64;
    }

    fn on_dequeue(&mut self, _packet: &Packet, rank: u64, _queue: &Queue, _params: &Params) {
        self.now = rank;
    }

    fn variable(&self, _number: i32) -> i64 {
        self.now as i64
    }
}

scheduler! {
    State: on_enqueue, on_dequeue;
    "abi 1"
}

#[test]
fn a_rank_and_what_follows_reach_the_state() {
    set_param(0, 4);
    let mut state = State::default();
    let mut ranks = Vec::new();
    for _ in 0..3 {
        let given = rank(&mut state, 0, 800, 0, 1, 0, 0, 0);
        on_enqueue(&mut state, 0, 800, 0, 1, 0, 0, 0, given);
        ranks.push(given);
    }
    // 800 bytes at weight 4 take 200.
    assert_eq!(ranks, [0, 200, 400]);
    on_dequeue(&mut state, 5, 800, 0, 1, 5, 0, 0, 900);
    assert_eq!(variable(&state, 0), 900);
    assert_eq!(rank(&mut state, 5, 800, 0, 1, 0, 0, 0), 900);
}
