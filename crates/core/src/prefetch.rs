//! Prefetching: memory that is needed soon is fetched before it is needed.
//!
//! A host of very many queues finds each packet's memory in no cache and waits for one line after
//! another. A host that knows its next packets can have their lines fetched together instead.
//!
//! There is one rule for names: `prefetch_x` fetches what a later call of `x` needs. It changes
//! nothing that a caller could observe, and a host that never calls it gets the same results.
//!
//! Without the feature `prefetch`, which needs `std`, these functions do nothing.

/// Fetches the cache line in which `value` begins, without waiting for it.
#[inline(always)]
pub fn line<T>(value: &T) {
    address(core::ptr::from_ref(value).cast());
}

/// Fetches all cache lines of `value`, without waiting for them.
#[inline(always)]
pub fn value<T>(value: &T) {
    let first = core::ptr::from_ref(value).cast::<u8>();
    for line in 0..size_of::<T>().div_ceil(LINE) {
        address(first.wrapping_add(line * LINE));
    }
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

/// Bytes of a cache line on the processors in use; on one with longer lines some are named twice.
const LINE: usize = 64;
