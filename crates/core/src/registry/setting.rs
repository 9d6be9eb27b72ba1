//! What a word among the parameters of an algorithm sets.

use super::{Algorithm, Spec};
use crate::param::{Kind, ParamDecl, Values};

/// What a word among the parameters of an algorithm sets.
#[derive(Clone, Copy, Debug)]
pub enum Setting {
    /// A parameter, to the value that follows.
    Value(&'static ParamDecl),
    /// A flag, to this value.
    Flag(&'static ParamDecl, bool),
}

impl Algorithm {
    /// Returns what `word` sets: a parameter by its name, or a flag by its name or by `no` and its
    /// name.
    pub fn setting(&self, word: &str) -> Option<Setting> {
        let find = |name: &str| self.params().find(|decl| decl.name == name);
        match find(word) {
            Some(decl) if decl.kind == Kind::Flag => Some(Setting::Flag(decl, true)),
            Some(decl) => Some(Setting::Value(decl)),
            None => word
                .strip_prefix("no")
                .and_then(find)
                .filter(|decl| decl.kind == Kind::Flag)
                .map(|decl| Setting::Flag(decl, false)),
        }
    }
}

impl Spec {
    /// Returns an algorithm with its defaults.
    pub const fn new(algorithm: &'static Algorithm) -> Self {
        Spec {
            algorithm,
            values: Values::new(),
        }
    }
}

impl PartialEq for Spec {
    fn eq(&self, other: &Self) -> bool {
        self.algorithm.name == other.algorithm.name && self.values == other.values
    }
}
