//! `rr`: deficit round robin. Active classes take turns. In each turn a class may send `weight`
//! times `lmax` bytes. What it cannot use, because its next packet is too long, it keeps for its
//! next turn.
//!
//! Sources: M. Shreedhar and G. Varghese, "Efficient Fair Queuing using Deficit Round Robin", ACM
//! SIGCOMM 1995; dummynet's RR scheduler (`dn_sched_rr`), from which the quantum comes.
//!
//! 1. The credit of a turn is given when the previous turn ends, and at once to a class that
//!    becomes active; that is the paper's order of service.
//! 2. A class that empties loses its credit (paper, section 3: `DeficitCounter = 0`).
//! 3. If no active class can send its head in a whole round, all such rounds are passed in one
//!    step. A super-packet of 64 KiB with a quantum of 64 bytes so costs two rounds, not a
//!    thousand.
//! 4. If an AQM drops the head and the next packet is longer than the credit, it is sent and the
//!    credit becomes negative.
//! 5. dummynet accepts `lmax` 64 to 2048; here up to 1 MiB, for super-packets.
//!
//! Bounds, for classes i and j that are always backlogged and packets of at most M bytes: in m
//! turns class i sends more than `m Q_i - M` and less than `m Q_i + M` bytes (paper's lemma), and
//! turns differ by at most one, so bytes per quantum differ by at most `1 + M/Q_i + M/Q_j`; with
//! equal quanta that is the paper's fairness measure, `2 M + Q`. With quanta of at least M, a class
//! gets its share after at most `3F - 2Q_i` bytes of the link, F being the sum of all quanta (D.
//! Stiliadis and A. Varma, "Latency-Rate Servers", IEEE/ACM ToN 6(5), 1998). O(1) if quanta are at
//! least M.

use alloc::vec::Vec;

use super::allocated;
use super::classful::{Classed, ClassedParams, Order, Share, ShareDecl, ShareError, ShareRange};
use super::fifo::FifoParams;
use super::ring::{Links, Ring};

/// The scheduler.
pub type Rr = Classed<RrOrder>;

/// The class whose turn it is.
pub struct RrOrder {
    turns: Vec<Turn>,
    links: Links,
    ring: Ring,
    active: u32,
}

#[derive(Clone, Copy, Default)]
struct Turn {
    quantum: i64,
    /// Bytes that may still be sent in this turn.
    credit: i64,
    /// Bytes of the head; 0 for an inactive class, for which it is never read.
    head: i64,
    is_active: bool,
}

/// The largest weight (dummynet).
const MAX_WEIGHT: u32 = 65536;
/// Bytes per weight in dummynet.
const DUMMYNET_LEN: (u32, u32) = (64, 2048);
/// The largest number of bytes per weight: 16 of the longest super-packets.
const MAX_LEN: u32 = 1 << 20;

impl Order for RrOrder {
    type Params = ClassedParams;
    const DOC: &'static str = "deficit round robin: classes send weight times lmax bytes in turn";
    const SHARE: ShareDecl = ShareDecl {
        weight: ShareRange::new(1, MAX_WEIGHT),
        max_len: Some(ShareRange::wider_than(
            DUMMYNET_LEN,
            DUMMYNET_LEN.0,
            MAX_LEN,
        )),
    };

    fn new(_params: &ClassedParams) -> Self {
        RrOrder {
            turns: Vec::new(),
            links: Links::default(),
            ring: Ring::EMPTY,
            active: 0,
        }
    }

    fn memory(&self) -> usize {
        allocated(&self.turns) + self.links.memory()
    }

    fn limits(params: &ClassedParams) -> FifoParams {
        params.limits()
    }

    fn open(&mut self, id: u32, share: Share) -> Result<(), ShareError> {
        let quantum = quantum(share);
        if self.turns.len() <= id as usize {
            self.turns.resize(id as usize + 1, Turn::default());
        }
        self.links.reserve(id);
        self.turns[id as usize] = Turn {
            quantum,
            ..Turn::default()
        };
        Ok(())
    }

    fn set_share(&mut self, id: u32, share: Share, _head: Option<u32>) -> Result<(), ShareError> {
        self.turns[id as usize].quantum = quantum(share);
        Ok(())
    }

    fn close(&mut self, id: u32) {
        self.deactivate(id);
    }

    fn activate(&mut self, id: u32, head: u32) {
        let turn = &mut self.turns[id as usize];
        turn.credit = turn.quantum;
        turn.head = i64::from(head);
        turn.is_active = true;
        self.links.push_back(&mut self.ring, id);
        self.active += 1;
    }

    fn next(&mut self) -> Option<u32> {
        let mut passed = 0;
        loop {
            let id = self.ring.first()?;
            let turn = &mut self.turns[id as usize];
            if turn.head <= turn.credit {
                return Some(id);
            }
            turn.credit += turn.quantum;
            self.links.rotate(&mut self.ring);
            passed += 1;
            if passed == self.active {
                self.pass_idle_rounds();
                passed = 0;
            }
        }
    }

    fn served(&mut self, id: u32, len: u32, head: Option<u32>) {
        let turn = &mut self.turns[id as usize];
        turn.credit -= i64::from(len);
        match head {
            Some(head) => turn.head = i64::from(head),
            None => self.deactivate(id),
        }
    }

    fn head_dropped(&mut self, id: u32, head: Option<u32>) {
        match head {
            Some(head) => self.turns[id as usize].head = i64::from(head),
            None => self.deactivate(id),
        }
    }
}

impl RrOrder {
    fn deactivate(&mut self, id: u32) {
        let turn = &mut self.turns[id as usize];
        if core::mem::replace(&mut turn.is_active, false) {
            self.links.remove(&mut self.ring, id);
            self.active -= 1;
        }
    }

    /// Gives every class the credit of the rounds in which none could send.
    #[cold]
    fn pass_idle_rounds(&mut self) {
        let missing = |turn: &Turn| (turn.head - turn.credit).max(0);
        let rounds = self
            .links
            .iter(self.ring)
            .map(|id| &self.turns[id as usize])
            .map(|turn| (missing(turn) + turn.quantum - 1) / turn.quantum)
            .min()
            .unwrap_or(0);
        // The last of these rounds is left to take place in its order.
        let rounds = (rounds - 1).max(0);
        let mut at = self.ring.first();
        for _ in 0..self.active {
            let Some(id) = at else { break };
            let turn = &mut self.turns[id as usize];
            turn.credit += rounds * turn.quantum;
            self.links.rotate(&mut self.ring);
            at = self.ring.first();
        }
    }
}

fn quantum(share: Share) -> i64 {
    i64::from(share.weight) * i64::from(share.max_len)
}
