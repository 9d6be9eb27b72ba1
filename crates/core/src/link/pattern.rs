//! Loss by a pattern: of every `lose_every` packets, `lose_run` in a row are lost, beginning with
//! packet `lose_from`.
//!
//! Nothing is drawn, so a transfer loses the same packets in every run. `lose_every 100` loses
//! packets 100, 200, ...; `lose_every 1000000 lose_from 7 lose_run 2` loses the seventh and the
//! eighth packet of a short test. Packets count from 1.

use alloc::format;

use crate::params;

params! {
    /// Parameters of loss by a pattern.
    pub struct PatternParams {
        /// length of the pattern in packets; 0 for no pattern
        lose_every: u64 = Count(0), Count(0) => Count(1 << 40), "no pattern";
        /// first packet of each round that is lost; 0 for the last packets of the round
        lose_from: u64 = Count(0), Count(0) => Count(1 << 40), "the last packets of a round";
        /// number of packets of each round that are lost
        lose_run: u64 = Count(1), Count(1) => Count(1 << 40), "one";
    } check |params| {
        let PatternParams { lose_every: every, lose_from: from, lose_run: run } = *params;
        if every > 0 && run > every {
            return Err(format!("`lose_run {run}` is more than `lose_every {every}`"));
        }
        if every > 0 && from > 0 && from - 1 + run > every {
            return Err(format!("`lose_from {from}` and `lose_run {run}` reach past `lose_every {every}`"));
        }
        Ok(())
    }
}

/// The position of a link in its pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    every: u64,
    /// The lost packets of a round, counted from 0: the first and one past the last.
    lost: core::ops::Range<u64>,
    at: u64,
}

impl Pattern {
    /// Creates the start of a pattern.
    pub const fn new(params: &PatternParams) -> Self {
        let first = match params.lose_from {
            0 => params.lose_every.saturating_sub(params.lose_run),
            from => from - 1,
        };
        Pattern {
            every: params.lose_every,
            lost: first..first.saturating_add(params.lose_run),
            at: 0,
        }
    }

    /// Takes over the place of `old` if both have the same parameters.
    pub(super) fn go_on_from(&mut self, mut old: Pattern) {
        let at = core::mem::replace(&mut old.at, self.at);
        if *self == old {
            self.at = at;
        }
    }

    /// Returns whether the next packet is lost.
    pub fn loses(&mut self) -> bool {
        if self.every == 0 {
            return false;
        }
        let is_lost = self.lost.contains(&self.at);
        self.at = (self.at + 1) % self.every;
        is_lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::param::{Params, Value, Values};

    fn lost(params: &PatternParams, of: u64) -> alloc::vec::Vec<u64> {
        let mut pattern = Pattern::new(params);
        (1..=of).filter(|_| pattern.loses()).collect()
    }

    #[test]
    fn the_same_packets_of_every_round_are_lost() {
        let last = PatternParams {
            lose_every: 4,
            ..PatternParams::default()
        };
        assert_eq!(lost(&last, 12), [4, 8, 12]);
        let early = PatternParams {
            lose_every: 5,
            lose_from: 2,
            lose_run: 2,
        };
        assert_eq!(lost(&early, 12), [2, 3, 7, 8, 12]);
        assert!(lost(&PatternParams::default(), 100).is_empty());
    }

    #[test]
    fn a_run_that_does_not_fit_is_refused() {
        let mut values = Values::new();
        values.set("lose_every", Value::Count(5));
        values.set("lose_from", Value::Count(5));
        assert!(PatternParams::from_values(&values).is_ok());
        values.set("lose_run", Value::Count(2));
        let error = PatternParams::from_values(&values).unwrap_err();
        assert_eq!(
            alloc::string::ToString::to_string(&error),
            "`lose_from 5` and `lose_run 2` reach past `lose_every 5`"
        );
    }
}
