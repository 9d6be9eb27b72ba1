//! The objects that may have changed since a layout was applied.

use std::collections::BTreeSet;

use crate::hash::Map;

/// Numbers of objects that may have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Touched {
    /// These.
    Some(BTreeSet<u32>),
    /// Any.
    All,
}

impl Default for Touched {
    fn default() -> Touched {
        Touched::Some(BTreeSet::new())
    }
}

impl Touched {
    /// Adds an object.
    pub fn insert(&mut self, number: u32) {
        self.extend([number]);
    }

    /// Adds objects.
    pub fn extend(&mut self, numbers: impl IntoIterator<Item = u32>) {
        if let Touched::Some(touched) = self {
            touched.extend(numbers);
        }
    }

    /// Returns those that are running. The cost grows with the smaller of the two numbers.
    pub fn running<T>(&self, running: &Map<u32, T>) -> BTreeSet<u32> {
        match self {
            Touched::All => running.keys().copied().collect(),
            Touched::Some(touched) if touched.len() > running.len() => {
                let running = running.keys().copied();
                running.filter(|n| touched.contains(n)).collect()
            }
            Touched::Some(touched) => {
                let touched = touched.iter().copied();
                touched.filter(|n| running.contains_key(n)).collect()
            }
        }
    }
}
