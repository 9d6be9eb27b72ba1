//! Frames that are not IP: only rules with `mac-type` decide about them.

use super::{Entry, Rules, Walk};
use crate::grammar::Action;
use crate::headers::Headers;
use crate::matching::flow_fields::FlowFields;
use crate::matching::{Environment, Look};

impl Rules {
    /// Returns whether a frame that is not IP passes this pass. The first rule with `mac-type` that
    /// matches the frame decides, and a frame that no such rule matches passes.
    pub fn passes(&mut self, headers: &Headers, mut walk: Walk<'_>) -> bool {
        let (entries, disabled) = (&self.entries, self.disabled_sets);
        let meant = self
            .of_frames
            .get_or_insert_with(|| of_frames(entries, disabled));
        let env = Environment {
            interfaces: &self.interfaces,
            own: &self.own,
            tables: &self.tables,
        };
        let fields = FlowFields::of(headers);
        for place in meant {
            let entry = &mut self.entries[*place];
            let mut look = Look::new(&env);
            let matches = entry.compiled.holds_for_flow(&fields, &mut look)
                && (entry.prob >= 1 << 32 || walk.rng.chance(entry.prob))
                && entry.compiled.holds_for_packet(headers, &mut look);
            if !matches {
                continue;
            }
            entry.count(headers, &mut walk);
            match entry.rule.action {
                Action::Allow => return true,
                Action::Deny => return false,
                // The grammar refuses all others.
                _ => {}
            }
        }
        true
    }
}

/// Returns the places of the rules for frames that are not IP.
pub(super) fn of_frames(entries: &[Entry], disabled_sets: u32) -> Box<[usize]> {
    let places = entries.iter().enumerate();
    let meant =
        places.filter(|(_, entry)| entry.rule.names_frames() && !entry.is_disabled(disabled_sets));
    meant.map(|(place, _)| place).collect()
}
