//! The variables of an algorithm from a file, for a host that needs each change.

use sluice_core::Cx;
use sluice_core::event::StateValue;

/// The variables of a queue, as they were reported last.
#[derive(Clone, Debug, Default)]
pub struct Told(Vec<(&'static str, StateValue)>);

impl Told {
    /// Reports a variable to the listener of `cx` unless its value was reported last.
    pub fn tell(&mut self, name: &'static str, value: StateValue, cx: &mut Cx<'_>) {
        if self.note(name, value) {
            cx.state(name, || value);
        }
    }

    /// Notes a value that is reported elsewhere. Returns whether it is a new one.
    pub fn note(&mut self, name: &'static str, value: StateValue) -> bool {
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, last)) => {
                let before = std::mem::replace(last, value);
                !is_same(before, value)
            }
            None => {
                self.0.push((name, value));
                true
            }
        }
    }
}

/// Returns whether two values are the same. A number that is none is the same as itself.
fn is_same(a: StateValue, b: StateValue) -> bool {
    match (a, b) {
        (StateValue::Ratio(a), StateValue::Ratio(b)) => a.to_bits() == b.to_bits(),
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_told_once_until_it_changes() {
        let mut told = Told::default();
        let mut is_news = |name, value| told.note(name, value);
        for value in [f64::NAN, 0.0, 1.5] {
            assert!(is_news("ratio", StateValue::Ratio(value)), "{value}");
            assert!(!is_news("ratio", StateValue::Ratio(value)), "{value}");
        }
        // Two counts that are the same as floating-point numbers.
        assert!(is_news("count", StateValue::Count(u64::MAX)));
        assert!(is_news("count", StateValue::Count(u64::MAX - 1)));
        assert!(!is_news("ratio", StateValue::Ratio(1.5)));
    }
}
