//! The hook of an algorithm that the thread of a run executes.

/// A hook of an algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hook {
    pub(crate) algorithm: &'static str,
    pub(crate) name: &'static str,
}

/// The hook that the thread of a run executes.
#[derive(Debug, Default)]
pub(crate) struct Inside {
    hook: Option<Hook>,
    /// How often the thread has entered or left a hook.
    changes: u64,
}

impl Inside {
    pub(crate) fn enter(&mut self, hook: Option<Hook>) -> Option<Hook> {
        self.changes += 1;
        std::mem::replace(&mut self.hook, hook)
    }

    pub(crate) const fn now(&self) -> (Option<Hook>, u64) {
        (self.hook, self.changes)
    }
}
