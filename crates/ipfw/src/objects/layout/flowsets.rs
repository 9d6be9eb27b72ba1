//! The flowsets of a layout, which are also found by their schedulers.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeBounds;

use super::FlowsetConfig;
use crate::visits::visit;

/// Flowsets by number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flowsets {
    all: BTreeMap<u32, FlowsetConfig>,
    by_scheduler: BTreeMap<u32, BTreeSet<u32>>,
}

impl Flowsets {
    /// Inserts a flowset, or replaces it.
    pub fn insert(&mut self, number: u32, flowset: FlowsetConfig) {
        self.remove(number);
        self.by_scheduler
            .entry(flowset.scheduler)
            .or_default()
            .insert(number);
        self.all.insert(number, flowset);
    }

    /// Inserts a flowset if there is none with this number.
    pub fn insert_missing(&mut self, number: u32, flowset: FlowsetConfig) {
        if !self.all.contains_key(&number) {
            self.insert(number, flowset);
        }
    }

    /// Removes a flowset.
    pub fn remove(&mut self, number: u32) -> Option<FlowsetConfig> {
        let removed = self.all.remove(&number)?;
        let of_scheduler = self.by_scheduler.get_mut(&removed.scheduler);
        let of_scheduler = of_scheduler.expect("each flowset is listed under its scheduler");
        of_scheduler.remove(&number);
        if of_scheduler.is_empty() {
            self.by_scheduler.remove(&removed.scheduler);
        }
        Some(removed)
    }

    /// Removes all flowsets.
    pub fn clear(&mut self) {
        self.all.clear();
        self.by_scheduler.clear();
    }

    /// Returns the flowset with this number.
    pub fn get(&self, number: &u32) -> Option<&FlowsetConfig> {
        self.all.get(number)
    }

    /// Returns whether there is a flowset with this number.
    pub fn contains_key(&self, number: &u32) -> bool {
        self.all.contains_key(number)
    }

    /// Returns the number of flowsets.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns the map, to be copied.
    pub const fn all(&self) -> &BTreeMap<u32, FlowsetConfig> {
        &self.all
    }

    /// Iterates over the flowsets of a scheduler in the order of their numbers.
    pub fn of_scheduler(&self, scheduler: u32) -> impl Iterator<Item = (u32, &FlowsetConfig)> {
        let numbers = self.by_scheduler.get(&scheduler).into_iter().flatten();
        numbers.map(|number| {
            visit();
            (*number, &self.all[number])
        })
    }

    /// Iterates over the numbers in a range that a scheduler's flowsets have, in order.
    pub fn numbers_of(
        &self,
        scheduler: u32,
        numbers: impl RangeBounds<u32> + Clone,
    ) -> impl Iterator<Item = u32> {
        let of_scheduler = self.by_scheduler.get(&scheduler).into_iter();
        let numbers = of_scheduler.flat_map(move |all| all.range(numbers.clone()));
        numbers.map(|number| {
            visit();
            *number
        })
    }

    /// Iterates over the flowsets of all schedulers with numbers in a range, in order.
    pub fn range(
        &self,
        numbers: impl RangeBounds<u32>,
    ) -> impl Iterator<Item = (u32, &FlowsetConfig)> {
        self.all.range(numbers).map(|(number, flowset)| {
            visit();
            (*number, flowset)
        })
    }

    /// Iterates over all flowsets in the order of their numbers.
    pub fn values(&self) -> impl Iterator<Item = &FlowsetConfig> {
        self.range(..).map(|(_, flowset)| flowset)
    }

    /// Changes each flowset of a scheduler, which stays the same.
    pub fn for_each_of(&mut self, scheduler: u32, change: impl Fn(&mut FlowsetConfig)) {
        for number in self.by_scheduler.get(&scheduler).into_iter().flatten() {
            let flowset = self.all.get_mut(number);
            change(flowset.expect("a listed flowset exists"));
        }
    }
}

impl FromIterator<(u32, FlowsetConfig)> for Flowsets {
    fn from_iter<I: IntoIterator<Item = (u32, FlowsetConfig)>>(all: I) -> Self {
        let mut flowsets = Flowsets::default();
        all.into_iter()
            .for_each(|(number, flowset)| flowsets.insert(number, flowset));
        flowsets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flowset_is_found_under_its_present_scheduler_only() {
        let mut flowsets = Flowsets::default();
        flowsets.insert(7, FlowsetConfig::plain(1));
        flowsets.insert(9, FlowsetConfig::plain(1));
        flowsets.insert_missing(9, FlowsetConfig::plain(3));
        flowsets.insert(7, FlowsetConfig::plain(2));
        let of = |flowsets: &Flowsets, scheduler| -> Vec<u32> {
            flowsets.of_scheduler(scheduler).map(|(n, _)| n).collect()
        };
        assert_eq!((of(&flowsets, 1), of(&flowsets, 2)), (vec![9], vec![7]));
        flowsets.remove(9);
        assert!(of(&flowsets, 1).is_empty() && of(&flowsets, 3).is_empty());
        flowsets.clear();
        assert!(flowsets.all().is_empty() && of(&flowsets, 2).is_empty());
    }
}
