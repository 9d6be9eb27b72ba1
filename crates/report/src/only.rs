//! Conditions `AXIS=VALUE`: which runs a picture or a table shows.
//!
//! Conditions on different axes must all hold; of several conditions on one axis, any suffices.

use std::borrow::Borrow;

use sluice_core::spelling;
use sluice_recording::Recording;
use sluice_scenario::{Backend, Coordinate, Variant};

/// A planned run: its variant, whose seed is that of the run, and its backend.
pub type PlannedRun<'a> = (&'a Variant, Backend);

/// The axis that tells simulated runs from live ones.
const BACKEND: &str = "backend";

/// The reason why a condition leaves nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OnlyError {
    /// A condition that names no axis.
    #[error(
        "`{condition}` is not a condition: write AXIS=VALUE{}",
        near(axis, known)
    )]
    Condition {
        /// The condition.
        condition: String,
        /// The axis in it.
        axis: String,
        /// The axes that there are.
        known: Vec<String>,
    },
    /// A condition without a value.
    #[error("`{condition}` has no value: write {axis}=VALUE; the values of `{axis}` are {}", known.join(", "))]
    NoValue {
        /// The condition.
        condition: String,
        /// Its axis.
        axis: String,
        /// The values of the axis.
        known: Vec<String>,
    },
    /// No run meets a condition.
    #[error("no run has {condition}; the values of `{axis}` are {}", known.join(", "))]
    Nothing {
        /// The condition.
        condition: String,
        /// Its axis.
        axis: String,
        /// The values of the axis in the runs that meet the conditions on other axes.
        known: Vec<String>,
    },
}

/// The end of a message about an unknown word: the nearest known one, or all.
pub(crate) fn near(word: &str, known: &[String]) -> String {
    match spelling::question(word, known.iter().map(String::as_str)) {
        Some(question) => format!("; {question}"),
        None if known.is_empty() => String::new(),
        None => format!("; there are {}", known.join(", ")),
    }
}

/// Returns the recordings that meet the conditions.
///
/// # Errors
/// [`OnlyError`].
pub fn chosen<R: Borrow<Recording>>(all: Vec<R>, only: &[String]) -> Result<Vec<R>, OnlyError> {
    let places = |one: &R| {
        let run = Borrow::<Recording>::borrow(one).run();
        let mut places = places(&run.coordinates, &run.variant);
        places.push(Place::named(BACKEND, run.environment.backend.word()));
        places
    };
    kept(all, places, only)
}

/// Returns the planned runs that will meet the conditions.
///
/// # Errors
/// [`OnlyError`].
pub(crate) fn planned<'a>(
    all: &[PlannedRun<'a>],
    only: &[String],
) -> Result<Vec<PlannedRun<'a>>, OnlyError> {
    let places = |(variant, backend): &PlannedRun<'a>| {
        let mut places = places(&variant.coordinates, &variant.name);
        places.push(Place::named(BACKEND, backend.word()));
        places
    };
    kept(all.to_vec(), places, only)
}

/// A place on an axis: the value as it is written, and its name.
struct Place {
    axis: String,
    value: String,
    name: String,
}

impl Place {
    fn named(axis: &str, name: &str) -> Place {
        Place {
            axis: axis.to_owned(),
            value: name.to_owned(),
            name: name.to_owned(),
        }
    }

    /// The word for the value: its name, unless that repeats the axis.
    fn word(self) -> String {
        match self.name.contains('=') {
            true => self.value,
            false => self.name,
        }
    }
}

fn places(coordinates: &[Coordinate], variant: &str) -> Vec<Place> {
    let place = |at: &Coordinate| Place {
        axis: at.key.clone(),
        value: at.value.clone(),
        name: at.name.clone(),
    };
    let mut all: Vec<Place> = coordinates.iter().map(place).collect();
    // Without rows of [[variant]], a variant is known by its name.
    if all.iter().all(|place| place.axis != Coordinate::VARIANT) {
        all.push(Place::named(Coordinate::VARIANT, variant));
    }
    all
}

fn axis_and_value(condition: &str) -> (&str, &str) {
    let (axis, value) = condition.split_once('=').unwrap_or((condition, ""));
    (axis.trim(), value.trim())
}

fn kept<T>(
    mut left: Vec<T>,
    places: impl Fn(&T) -> Vec<Place>,
    only: &[String],
) -> Result<Vec<T>, OnlyError> {
    let mut axes: Vec<&str> = Vec::new();
    for condition in only {
        let (axis, _) = axis_and_value(condition);
        if !axes.contains(&axis) {
            axes.push(axis);
        }
    }
    for axis in axes {
        let (mut known, mut others): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
        for place in left.iter().flat_map(&places) {
            let (list, word) = match place.axis == axis {
                true => (&mut known, place.word()),
                false => (&mut others, place.axis),
            };
            if !list.contains(&word) {
                list.push(word);
            }
        }
        let meets = |one: &T, value: &str| {
            let mut all = places(one).into_iter();
            all.any(|at| at.axis == axis && (at.value == value || at.name == value))
        };
        let mut values: Vec<&str> = Vec::new();
        let of_axis = |condition: &&String| axis_and_value(condition).0 == axis;
        for condition in only.iter().filter(of_axis) {
            let (_, value) = axis_and_value(condition);
            if value.is_empty() && !known.is_empty() {
                return Err(OnlyError::NoValue {
                    condition: condition.clone(),
                    axis: axis.to_owned(),
                    known,
                });
            }
            if known.is_empty() {
                return Err(OnlyError::Condition {
                    condition: condition.clone(),
                    axis: axis.to_owned(),
                    known: others,
                });
            }
            if !left.iter().any(|one| meets(one, value)) {
                return Err(OnlyError::Nothing {
                    condition: condition.clone(),
                    axis: axis.to_owned(),
                    known,
                });
            }
            values.push(value);
        }
        left.retain(|one| values.iter().any(|value| meets(one, value)));
    }
    Ok(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(only: &[&str]) -> Result<Vec<&'static str>, OnlyError> {
        let all = vec!["codel 10ms", "codel 20ms", "pie 10ms", "fifo 20ms"];
        let places = |one: &&str| {
            let (queue, rtt) = one.split_once(' ').expect("two words");
            vec![Place::named("queue", queue), Place::named("rtt", rtt)]
        };
        let only: Vec<String> = only.iter().map(|&text| text.to_owned()).collect();
        kept(all, places, &only)
    }

    #[test]
    fn any_condition_of_an_axis_and_all_axes_hold() {
        assert_eq!(
            left(&["queue=codel", "queue=fifo"]),
            Ok(vec!["codel 10ms", "codel 20ms", "fifo 20ms"])
        );
        let both = left(&["queue=codel", "rtt = 20ms", "queue=fifo"]);
        assert_eq!(both, Ok(vec!["codel 20ms", "fifo 20ms"]));
        assert_eq!(left(&[]).map(|all| all.len()), Ok(4));
    }

    #[test]
    fn a_condition_that_leaves_nothing_is_named() {
        let error = left(&["rtt=20ms", "queue=codel", "queue=pie"]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "no run has queue=pie; the values of `queue` are codel, fifo"
        );
        let error = left(&["quee=codel"]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`quee=codel` is not a condition: write AXIS=VALUE; did you mean `queue`?"
        );
        for condition in ["rtt", "rtt="] {
            let error = left(&[condition]).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!(
                    "`{condition}` has no value: write rtt=VALUE; the values of `rtt` are 10ms, 20ms"
                )
            );
        }
    }
}
