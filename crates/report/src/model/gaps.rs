//! JSON has no NaN: a gap is `null` there.

use serde::Serializer;
#[cfg(test)]
use serde::{Deserialize as _, Deserializer};

pub fn serialize<S: Serializer>(values: &[f64], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(
        values
            .iter()
            .map(|value| value.is_finite().then_some(*value)),
    )
}

#[cfg(test)]
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f64>, D::Error> {
    let values = Vec::<Option<f64>>::deserialize(deserializer)?;
    Ok(values
        .into_iter()
        .map(|value| value.unwrap_or(f64::NAN))
        .collect())
}
