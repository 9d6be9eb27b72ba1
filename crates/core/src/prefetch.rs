//! Prefetching: fetches memory into the caches shortly before it is needed.
//!
//! With very many queues, the memory that a packet needs is in no cache, and the processor waits
//! for one line after another. A host that knows its next packets can have their lines fetched at
//! the same time.
//!
//! There is one rule for names: `prefetch_x` fetches what a later call of `x` needs. It changes
//! nothing that a caller could observe, and a host that never calls it gets the same results.
//!
//! There are two ways to fetch:
//! - [`line()`] and its variants request a line from the processor and continue at once. The
//!   processor may ignore them. They suit a host that prefetches a little at each event.
//! - [`read()`] loads the memory, and is never ignored. It suits a host that prefetches a whole batch
//!   and needs it next. With 100 000 pipes of `sluice-ipfw` in batches of 32 packets, one packet
//!   costs 540 ns with `read` and 600 ns with `line` (two virtual cores, best of 300 rounds, `cargo
//!   bench -p sluice-ipfw --bench scale`).
//!
//! Without the feature `prefetch`, which needs `std`, [`line()`], [`index()`] and [`address()`] do nothing.

/// Loads the memory from which `words` were computed, and discards them.
#[inline(always)]
pub fn read<const N: usize>(words: [u64; N]) {
    core::hint::black_box(words.into_iter().fold(0, |all, word| all ^ word));
}

/// Fetches the cache line in which `value` begins, without waiting for it.
#[inline(always)]
pub fn line<T>(value: &T) {
    address(core::ptr::from_ref(value).cast());
}

/// Fetches the cache line in which item `index` of a slice begins, if the slice has that item.
#[inline(always)]
pub fn index<T>(slice: &[T], index: usize) {
    if let Some(item) = slice.get(index) {
        line(item);
    }
}

/// Fetches the cache line of an address, which need not be valid.
#[inline(always)]
pub fn address(address: *const u8) {
    // `prefetch_index` names places by slice and index. Any address is some index of any slice.
    #[cfg(feature = "prefetch")]
    {
        let origin: &[u8] = &[];
        let index = address.addr().wrapping_sub(origin.as_ptr().addr());
        prefetch_index::prefetch_index(origin, index);
    }
    #[cfg(not(feature = "prefetch"))]
    let _ = address;
}
