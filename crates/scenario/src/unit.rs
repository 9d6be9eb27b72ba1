//! The units of figures.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A span of time in nanoseconds.
    Time,
    /// Bits per second.
    Rate,
    /// A ratio.
    Ratio,
    /// A count.
    Count,
    /// A score from 1 to 5.
    Score,
    /// A number without a unit.
    Number,
}

impl Unit {
    /// Returns the name of the unit for tables of the documentation.
    pub const fn name(self) -> &'static str {
        match self {
            Unit::Time => "time",
            Unit::Rate => "rate",
            Unit::Ratio => "ratio",
            Unit::Count => "count",
            Unit::Score => "score, 1 to 4.5",
            Unit::Number => "number",
        }
    }

    /// Returns the symbol of the bare number in tables.
    pub const fn symbol(self) -> &'static str {
        match self {
            Unit::Time => "ns",
            Unit::Rate => "bit/s",
            Unit::Ratio | Unit::Count | Unit::Score | Unit::Number => "1",
        }
    }

    /// Formats a figure in this unit with three to four digits.
    pub fn show(self, value: f64) -> String {
        let scaled = |steps: &[(f64, &str)]| {
            let (factor, name) = steps
                .iter()
                .find(|(factor, _)| value.abs() >= *factor)
                .or(steps.last())
                .expect("there is a smallest unit");
            format!("{:.4}", value / factor)
                .trim_end_matches('0')
                .trim_end_matches('.')
                .to_owned()
                + name
        };
        match self {
            Unit::Time => scaled(&[(1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns")]),
            Unit::Rate => scaled(&[
                (1e9, "Gbit/s"),
                (1e6, "Mbit/s"),
                (1e3, "kbit/s"),
                (1.0, "bit/s"),
            ]),
            Unit::Ratio => format!("{value:.6}")
                .trim_end_matches('0')
                .trim_end_matches('.')
                .to_owned(),
            Unit::Count => format!("{value}"),
            Unit::Score => format!("{value:.2}"),
            // Six digits, without the noise of binary fractions.
            Unit::Number => match format!("{value:.5e}").parse::<f64>() {
                Ok(rounded) => format!("{rounded}"),
                Err(_) => format!("{value}"),
            },
        }
    }
}

impl<'de> Deserialize<'de> for Unit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        let units = [
            Unit::Time,
            Unit::Rate,
            Unit::Ratio,
            Unit::Count,
            Unit::Score,
            Unit::Number,
        ];
        let found = units.into_iter().find(|unit| unit.name() == word);
        found.ok_or_else(|| serde::de::Error::custom(format!("unknown unit `{word}`")))
    }
}

impl Serialize for Unit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}
