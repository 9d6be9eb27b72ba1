//! Packed columns of whole numbers. Each number is stored as the difference from its predecessor,
//! zigzag coded (0, -1, 1, -2 ... become 0, 1, 2, 3 ...), in little-endian groups of seven bits whose
//! high bit says "more follows". The bytes are written as base64.
//!
//! The code is exact, and small once deflated: a constant column costs nothing, a timestamp about
//! three bytes. `web/src/packed.ts` reads it with doubles, so a difference must stay below 2^52
//! (52 days in nanoseconds).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serializer;
#[cfg(test)]
pub use tests::{deserialize, unpack};

const MORE: u8 = 0x80;

pub fn serialize<S, T>(column: &[T], serializer: S) -> Result<S::Ok, S::Error>
where
    S: Serializer,
    T: Copy + Into<u64>,
{
    serializer.serialize_str(&pack(column.iter().map(|&value| value.into())))
}

pub fn pack(values: impl Iterator<Item = u64>) -> String {
    let mut bytes = Vec::new();
    let mut previous = 0_u64;
    for value in values {
        let difference = value.wrapping_sub(previous).cast_signed();
        previous = value;
        let mut zigzag = ((difference << 1) ^ (difference >> 63)).cast_unsigned();
        while zigzag >= u64::from(MORE) {
            bytes.push(zigzag as u8 | MORE);
            zigzag >>= 7;
        }
        bytes.push(zigzag as u8);
    }
    STANDARD.encode(bytes)
}

/// The inverse, which only tests need: the page unpacks in `web/src/packed.ts`.
#[cfg(test)]
mod tests {
    use std::fmt::Display;

    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer};

    use super::MORE;

    pub fn deserialize<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
    where
        D: Deserializer<'de>,
        T: TryFrom<u64>,
        T::Error: Display,
    {
        let text = String::deserialize(deserializer)?;
        let values = unpack(&text).map_err(D::Error::custom)?;
        values
            .into_iter()
            .map(|value| T::try_from(value).map_err(D::Error::custom))
            .collect()
    }

    pub fn unpack(text: &str) -> Result<Vec<u64>, String> {
        let bytes = STANDARD
            .decode(text)
            .map_err(|error| format!("packed column is not base64: {error}"))?;
        let mut values = Vec::new();
        let mut previous = 0_u64;
        let mut zigzag = 0_u64;
        let mut shift = 0;
        for byte in bytes {
            if shift > 63 {
                return Err("packed column holds a number of more than 64 bits".to_owned());
            }
            zigzag |= u64::from(byte & !MORE) << shift;
            shift += 7;
            if byte & MORE != 0 {
                continue;
            }
            let difference = (zigzag >> 1) ^ (zigzag & 1).wrapping_neg();
            previous = previous.wrapping_add(difference);
            values.push(previous);
            zigzag = 0;
            shift = 0;
        }
        if shift != 0 {
            return Err("packed column ends within a number".to_owned());
        }
        Ok(values)
    }
}
