//! Limits the memory of an instance, and counts it.

use wasmi::{ResourceLimiter, StoreLimits, StoreLimitsBuilder};
use wasmi_core::{LimiterError, MemoryError, TableError};

/// Bytes of memory that an instance may have.
pub const MEMORY: usize = 2 << 20;

/// The limits of an instance, and what it has.
pub(crate) struct Limits {
    limits: StoreLimits,
    /// Bytes allocated for the memory. wasmi keeps it in a `Vec`, whose capacity at least doubles when it
    /// grows.
    memory: usize,
    tables: usize,
}

impl Limits {
    pub(crate) fn new() -> Limits {
        let limits = StoreLimitsBuilder::new()
            .memory_size(MEMORY)
            .table_elements(1024)
            .instances(1)
            // Not every allocator checks whether memory has grown.
            .trap_on_grow_failure(true)
            .build();
        Limits {
            limits,
            memory: 0,
            tables: 0,
        }
    }

    /// Returns the bytes of the memory and the tables.
    pub(crate) fn bytes(&self) -> usize {
        self.memory + self.tables
    }
}

impl ResourceLimiter for Limits {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> Result<bool, LimiterError> {
        let is_allowed = self.limits.memory_growing(current, desired, maximum)?;
        if is_allowed && desired > self.memory {
            self.memory = desired.max(2 * self.memory);
        }
        Ok(is_allowed)
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> Result<bool, LimiterError> {
        let is_allowed = self.limits.table_growing(current, desired, maximum)?;
        if is_allowed {
            self.tables += (desired - current) * TABLE_ELEMENT;
        }
        Ok(is_allowed)
    }

    fn memory_grow_failed(&mut self, error: &MemoryError) -> Result<(), LimiterError> {
        self.limits.memory_grow_failed(error)
    }

    fn table_grow_failed(&mut self, error: &TableError) -> Result<(), LimiterError> {
        self.limits.table_grow_failed(error)
    }

    fn instances(&self) -> usize {
        self.limits.instances()
    }

    fn tables(&self) -> usize {
        self.limits.tables()
    }

    fn memories(&self) -> usize {
        self.limits.memories()
    }
}

/// Bytes of an element of a table: at least those of a reference.
const TABLE_ELEMENT: usize = 16;
