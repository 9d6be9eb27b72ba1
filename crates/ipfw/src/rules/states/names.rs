//! The names of states. Rules mention them, and packets look states up by their numbers.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use super::ANY;
use crate::grammar::ANY_FLOW;
use crate::hash::{KeyedHash, Map};
use crate::visits::visit;

/// The names that rules mention, by number and by name. A rule that is removed removes its states, so no
/// state has any other name.
///
/// To find a name takes constant time, however many there are. A name that no rule mentions any more is
/// forgotten, and the next new one gets its number.
#[derive(Clone, Debug)]
pub(super) struct Names {
    numbers: Map<Arc<str>, u32>,
    used: Vec<Used>,
    /// The numbers without a name.
    free: BTreeSet<u32>,
}

#[derive(Clone, Debug)]
struct Used {
    name: Arc<str>,
    /// How many rules mention the name; 0 for a free number.
    rules: u32,
}

impl Names {
    pub fn new(hash: KeyedHash) -> Names {
        Names {
            numbers: Map::with_hasher(hash),
            used: Vec::new(),
            free: BTreeSet::new(),
        }
    }

    /// Returns the number of a name that one more rule mentions; [`ANY`] for the word of all names.
    pub fn enter(&mut self, name: &str) -> u32 {
        if name == ANY_FLOW {
            return ANY;
        }
        visit();
        if let Some(number) = self.numbers.get(name) {
            self.used[*number as usize].rules += 1;
            return *number;
        }
        let name: Arc<str> = name.into();
        let used = Used {
            name: Arc::clone(&name),
            rules: 1,
        };
        let number = match self.free.pop_first() {
            Some(free) => {
                self.used[free as usize] = used;
                free
            }
            None => {
                self.used.push(used);
                self.used.len() as u32 - 1
            }
        };
        self.numbers.insert(name, number);
        number
    }

    /// Counts one rule less that mentions a name.
    pub fn leave(&mut self, number: u32) {
        if number == ANY {
            return;
        }
        let used = &mut self.used[number as usize];
        used.rules -= 1;
        if used.rules > 0 {
            return;
        }
        self.numbers.remove(&used.name);
        self.free.insert(number);
        // A lookup of all names passes every number up to the last one.
        while self.used.pop_if(|last| last.rules == 0).is_some() {
            self.free.remove(&(self.used.len() as u32));
        }
    }

    pub fn of(&self, number: u32) -> &str {
        &self.used[number as usize].name
    }

    /// Returns the number of a name, or for [`ANY`] those of all names and free ones in between.
    pub fn looked_up(&self, number: u32) -> Range<u32> {
        match number {
            ANY => 0..self.used.len() as u32,
            one => one..one + 1,
        }
    }

    /// Returns whether rules mention the name with this number.
    pub fn is_used(&self, number: u32) -> bool {
        let used = self.used.get(number as usize);
        used.is_some_and(|used| used.rules > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_its_number_while_a_rule_mentions_it() {
        let mut names = Names::new(KeyedHash(1));
        assert_eq!(["a", "b", "a"].map(|name| names.enter(name)), [0, 1, 0]);
        assert_eq!(names.enter("any"), ANY);
        names.leave(ANY);
        names.leave(0);
        assert_eq!((names.enter("c"), names.of(2), names.of(0)), (2, "c", "a"));
        // The last rule with `a`.
        names.leave(0);
        assert!(!names.is_used(0));
        assert_eq!((names.enter("d"), names.enter("a")), (0, 3));
        assert_eq!((names.of(0), names.of(3)), ("d", "a"));
    }

    /// More than fit into 16 bits.
    #[test]
    fn different_names_have_different_numbers() {
        let mut names = Names::new(KeyedHash(1));
        let all = 0..70_000;
        assert!(all.clone().all(|n| names.enter(&format!("client{n}")) == n));
        assert!(all.clone().all(|n| names.of(n) == format!("client{n}")));
        names.leave(69_999);
        names.leave(3);
        assert_eq!(names.looked_up(ANY), 0..69_999);
        (0..69_999)
            .filter(|n| *n != 3)
            .for_each(|number| names.leave(number));
        assert_eq!((names.looked_up(ANY), names.free.len()), (0..0, 0));
        // Those of gone rules take no room.
        let mut others = all.map(|n| (n, format!("session{n}")));
        assert!(others.all(|(n, name)| names.enter(&name) == n));
        assert_eq!((names.used.len(), names.numbers.len()), (70_000, 70_000));
    }
}
