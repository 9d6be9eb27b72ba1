//! Prefetching: fetches memory into the caches shortly before it is needed.
//!
//! With very many queues, the memory that a packet needs is in no cache, and the processor waits
//! for one line after another. A host that knows its next packets, or the addresses that a packet
//! will lead to, can have their lines fetched at the same time.
//!
//! There is one rule for names: `prefetch_x` fetches what a later call of `x` needs. It changes
//! nothing that a caller could observe, and a host that never calls it gets the same results.
//!
//! All functions request lines from the processor and continue at once. The processor may ignore
//! them. Without the feature `prefetch`, which needs `std`, they do nothing.

/// A piece of memory that will be needed: its address and its size in bytes. A host can keep places
/// beside a list of its objects, and have all of them fetched without reading any of them first. The
/// memory may have been freed in the meantime: fetching it then costs a little and does no harm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    address: usize,
    bytes: usize,
}

impl Place {
    /// The place of nothing.
    pub const NONE: Place = Place {
        address: 0,
        bytes: 0,
    };

    /// Returns the place of a value, without what it points to.
    #[inline]
    pub fn of<T: ?Sized>(value: &T) -> Place {
        Place {
            address: core::ptr::from_ref(value).cast::<u8>().addr(),
            bytes: size_of_val(value),
        }
    }

    /// Returns the place of the first `bytes` bytes of a value, or of all if it has fewer.
    #[inline]
    pub fn first_of<T: ?Sized>(value: &T, bytes: usize) -> Place {
        let place = Place::of(value);
        Place {
            bytes: place.bytes.min(bytes),
            ..place
        }
    }

    /// Fetches all lines of the place.
    #[inline]
    pub fn fetch(self) {
        let first = self.address & !(LINE - 1);
        for line in (first..self.address + self.bytes).step_by(LINE) {
            address(core::ptr::without_provenance(line));
        }
    }
}

/// Bytes of a cache line.
const LINE: usize = 64;

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
