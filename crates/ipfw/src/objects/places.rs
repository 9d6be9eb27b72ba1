//! Where the memory of every instance is, so that all cache lines that a packet needs are fetched
//! at the same time.
//!
//! A packet for an instance that was not used for long finds the record of the instance, there the
//! address of the link, there that of the queue, and so on: half a dozen waits for memory, one after
//! another. This list has all of these addresses in one line per instance. They are those of the
//! previous packet, and out of date at times, which only costs the wait.

use sluice_core::prefetch::{self, Place};

/// One cache line.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
#[repr(align(64))]
struct Line([Place; 4]);

const _: () = assert!(size_of::<Line>() == 64);

/// The places of all instances, by number.
#[derive(Default)]
pub(crate) struct Places(Vec<Line>);

impl Places {
    /// Notes the places of an instance, one of `instances`.
    #[inline]
    pub fn note(&mut self, instance: u32, instances: usize, places: [Place; 4]) {
        if self.0.len() <= instance as usize {
            self.0.resize(instances, Line::default());
        }
        let line = &mut self.0[instance as usize];
        if line.0 != places {
            line.0 = places;
        }
    }

    /// Prefetches what [`Places::fetch`] reads.
    #[inline]
    pub fn prefetch_fetch(&self, instance: u32) {
        prefetch::index(&self.0, instance as usize);
    }

    /// Fetches the places of an instance.
    #[inline]
    pub fn fetch(&self, instance: u32) {
        if let Some(line) = self.0.get(instance as usize) {
            line.0.into_iter().for_each(Place::fetch);
        }
    }
}
