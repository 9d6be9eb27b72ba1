//! Fetching the memory of the packets that come next while the present one is handled.

use crate::headers::Headers;
use crate::matching::flow_fields::ProgramKey;
use crate::objects::instance::NONE;
use crate::objects::runtime::Runtime;
use crate::rules::Rules;

/// The packets that the host has announced, and how far the fetching has come.
///
/// Each packet goes through the [`STAGES`], each of which reads what the one before has fetched. With
/// each packet that is handled, every stage goes on by one packet, [`GAP`] packets behind the stage
/// before it. So memory is fetched while packets are handled, and hardly anybody waits for it.
#[derive(Default)]
pub(crate) struct Ahead {
    coming: Vec<Coming>,
    /// Steps done. Stage `s` has seen the packets before `turn - s * GAP`.
    turn: usize,
}

struct Coming {
    /// The flow in the first pass through the rules, and in the second one if there is one.
    passes: [Option<Pass>; 2],
    /// What the flow's previous packet has left: its queue or instance.
    hint: u32,
}

struct Pass {
    key: ProgramKey,
    place: usize,
}

/// The stages: the flow's slot in the cache of rules; what its hint refers to; the places of the
/// instance; the places themselves.
const STAGES: usize = 4;

/// Packets between two stages.
const GAP: usize = 2;

/// Steps before the first packet is handled.
const LEAD: usize = STAGES * GAP;

impl Ahead {
    /// Forgets the packets announced before.
    pub fn clear(&mut self) {
        self.coming.clear();
        self.turn = 0;
    }

    /// Announces one more packet, by its headers in both passes.
    pub fn announce(&mut self, first: &Headers, second: Option<&Headers>, rules: &Rules) {
        let pass = |headers: &Headers| {
            let key = ProgramKey::of(headers);
            let place = rules.place(&key);
            Pass { key, place }
        };
        self.coming.push(Coming {
            passes: [Some(pass(first)), second.map(pass)],
            hint: NONE,
        });
    }

    /// Takes the steps that are due before the first packet.
    pub fn begin(&mut self, rules: &Rules, runtime: &Runtime) {
        for _ in 0..LEAD {
            self.step(rules, runtime);
        }
    }

    /// Takes one step, for a packet that is now handled. Returns whether it had been announced.
    #[inline]
    pub fn step(&mut self, rules: &Rules, runtime: &Runtime) -> bool {
        if self.turn >= self.coming.len() + LEAD {
            return false;
        }
        self.advance(rules, runtime);
        true
    }

    fn advance(&mut self, rules: &Rules, runtime: &Runtime) {
        let turn = self.turn;
        self.turn += 1;
        if let Some(coming) = self.at(turn, 0) {
            for pass in coming.passes.iter().flatten() {
                rules.prefetch_hint(pass.place);
            }
        }
        if let Some(coming) = self.at(turn, 1) {
            let mut passes = coming.passes.iter().flatten();
            let hint = passes.find_map(|pass| rules.hint(&pass.key, pass.place));
            coming.hint = hint.unwrap_or(NONE);
            runtime.prefetch_hinted(coming.hint);
        }
        if let Some(coming) = self.at(turn, 2) {
            coming.hint = runtime.hinted(coming.hint);
            runtime.prefetch_record(coming.hint);
        }
        if let Some(coming) = self.at(turn, 3) {
            runtime.prefetch_parts(coming.hint);
        }
    }

    /// Returns the packet that a stage sees in a turn.
    #[inline]
    fn at(&mut self, turn: usize, stage: usize) -> Option<&mut Coming> {
        self.coming.get_mut(turn.checked_sub(stage * GAP)?)
    }
}
