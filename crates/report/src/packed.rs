//! Packed columns of whole numbers. Each number is stored as the difference from its predecessor,
//! zigzag coded (0, -1, 1, -2 ... become 0, 1, 2, 3 ...), in groups of five bits, the lowest first.
//! Each group is a character of base64 (RFC 4648 section 4), whose sixth bit says "more follows".
//!
//! The code is exact, and small once deflated: a constant column costs nothing, a timestamp about
//! three bytes. Equal differences are equal characters wherever they begin, which deflate needs.
//! `web/src/packed.ts` reads it with doubles, so a difference must stay below 2^52 (52 days in
//! nanoseconds).

use serde::Serializer;
#[cfg(test)]
pub use tests::{deserialize, unpack};

const BITS: u32 = 5;
const MORE: u64 = 1 << BITS;
const CHARACTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

pub fn serialize<S, T>(column: &[T], serializer: S) -> Result<S::Ok, S::Error>
where
    S: Serializer,
    T: Copy + Into<u64>,
{
    serializer.serialize_str(&pack(column.iter().map(|&value| value.into())))
}

pub fn pack(values: impl Iterator<Item = u64>) -> String {
    let mut text = String::with_capacity(2 * values.size_hint().0);
    let mut previous = 0_u64;
    for value in values {
        let difference = value.wrapping_sub(previous).cast_signed();
        previous = value;
        let mut zigzag = ((difference << 1) ^ (difference >> 63)).cast_unsigned();
        while zigzag >= MORE {
            text.push(char::from(CHARACTERS[(zigzag % MORE + MORE) as usize]));
            zigzag >>= BITS;
        }
        text.push(char::from(CHARACTERS[zigzag as usize]));
    }
    text
}

/// The inverse, which only tests need: the page unpacks in `web/src/packed.ts`.
#[cfg(test)]
mod tests {
    use std::fmt::Display;

    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer};

    use super::{BITS, CHARACTERS, MORE};

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
        let mut values = Vec::new();
        let mut previous = 0_u64;
        let mut zigzag = 0_u64;
        let mut shift = 0;
        for byte in text.bytes() {
            let group = CHARACTERS.iter().position(|known| *known == byte);
            let group = group.ok_or("packed column has a character that is not of base64")? as u64;
            if shift > 63 {
                return Err("packed column holds a number of more than 64 bits".to_owned());
            }
            zigzag |= (group % MORE) << shift;
            shift += BITS;
            if group >= MORE {
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
