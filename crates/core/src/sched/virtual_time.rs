//! Virtual time, by which fair schedulers order their queues.

/// A virtual time in bytes per unit of weight, with fraction bits that its scheduler chooses.
/// Compared modulo 2^64: correct as long as two times are less than 2^63 apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Virtual(pub u64);

impl Virtual {
    #[inline]
    pub const fn plus(self, span: u64) -> Virtual {
        Virtual(self.0.wrapping_add(span))
    }
}

impl PartialOrd for Virtual {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Virtual {
    #[inline]
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        (self.0.wrapping_sub(other.0) as i64).cmp(&0)
    }
}
