//! Encodes column chunks with a dictionary: each value of a column is stored once and referred to by
//! its number.
//!
//! The library that writes Parquet looks up every value by its bytes. Most columns of a recording
//! have few values and long runs of one, and numbers their words already, so that this takes a
//! fraction of the time. The format is that of the library: a dictionary page, and a data page whose
//! levels and numbers are coded as runs or as packed bits
//! (<https://parquet.apache.org/docs/file-format/data-pages/encodings/>).

use bytes::Bytes;
use parquet::basic::{Compression, Encoding};
use parquet::column::page::{CompressedPage, Page, PageWriter};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::ParquetError;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::statistics::Statistics;
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;

/// A column chunk.
pub(super) struct Chunk<'a> {
    /// The different values, coded one after the other as a plain column.
    pub values: Bytes,
    /// The number of different values.
    pub count: usize,
    /// The number of the value in each row that has one.
    pub numbers: &'a [u32],
    /// 1 for each row with a value, 0 for each without; `None` if all have one.
    pub levels: Option<&'a [i16]>,
    pub statistics: Option<Statistics>,
}

impl Chunk<'_> {
    /// Returns the chunk of the column `column` as bytes, and what the file says about it.
    pub fn encode(self, column: ColumnDescPtr) -> Result<(Bytes, ColumnCloseResult), ParquetError> {
        let rows = self.levels.map_or(self.numbers.len(), <[i16]>::len);
        let bits = usize::BITS - self.count.saturating_sub(1).leading_zeros();
        let data = self.data(bits);
        // Runs alone leave nothing to compress.
        let is_compressed = data.len() > rows / 64;
        let pressed = |page: &[u8]| match is_compressed {
            true => snap::raw::Encoder::new().compress_vec(page),
            false => Ok(page.to_vec()),
        };
        let mut sink = TrackedWrite::new(Vec::new());
        let mut pages = SerializedPageWriter::new(&mut sink);
        let (length, data_length) = (self.values.len(), data.len());
        let dictionary = Page::DictionaryPage {
            buf: pressed(&self.values).map_err(external)?.into(),
            num_values: self.count as u32,
            encoding: Encoding::PLAIN,
            is_sorted: false,
        };
        let dictionary = pages.write_page(CompressedPage::new(dictionary, length))?;
        let data = Page::DataPage {
            buf: pressed(&data).map_err(external)?.into(),
            num_values: rows as u32,
            encoding: Encoding::RLE_DICTIONARY,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        };
        let data = pages.write_page(CompressedPage::new(data, data_length))?;
        let bytes = sink.into_inner()?;
        let uncompressed = dictionary.uncompressed_size + data.uncompressed_size;
        let mut metadata = ColumnChunkMetaData::builder(column)
            .set_compression(match is_compressed {
                true => Compression::SNAPPY,
                false => Compression::UNCOMPRESSED,
            })
            .set_encodings(vec![
                Encoding::PLAIN,
                Encoding::RLE,
                Encoding::RLE_DICTIONARY,
            ])
            .set_total_compressed_size(bytes.len() as i64)
            .set_total_uncompressed_size(uncompressed as i64)
            .set_num_values(rows as i64)
            .set_dictionary_page_offset(Some(dictionary.offset as i64))
            .set_data_page_offset(data.offset as i64);
        if let Some(statistics) = self.statistics {
            metadata = metadata.set_statistics(statistics);
        }
        let closed = ColumnCloseResult {
            bytes_written: bytes.len() as u64,
            rows_written: rows as u64,
            metadata: metadata.build()?,
            bloom_filter: None,
            column_index: None,
            offset_index: None,
        };
        Ok((bytes.into(), closed))
    }

    /// Returns the content of the data page, with numbers of `bits` bits.
    fn data(&self, bits: u32) -> Vec<u8> {
        let mut data = Vec::new();
        if let Some(levels) = self.levels {
            let mut coded = Vec::new();
            runs_or_bits(levels, |level| u64::from(level > 0), 1, &mut coded);
            data.extend((coded.len() as u32).to_le_bytes());
            data.append(&mut coded);
        }
        data.push(bits as u8);
        runs_or_bits(self.numbers, u64::from, bits, &mut data);
        data
    }
}

pub(super) fn external(error: snap::Error) -> ParquetError {
    ParquetError::External(Box::new(error))
}

/// Appends `values`, of `bits` bits each, as runs of the same value and as packed bits of others.
fn runs_or_bits<T: Copy + PartialEq>(
    values: &[T],
    number: impl Fn(T) -> u64,
    bits: u32,
    out: &mut Vec<u8>,
) {
    let mut packed_from = 0;
    let mut at = 0;
    while at < values.len() {
        let value = values[at];
        let run = values[at..].iter().take_while(|next| **next == value);
        let run = run.count();
        // Packed values come in groups of eight, the last of which takes the first of the run.
        let missing = (at - packed_from).wrapping_neg() % GROUP;
        if run >= missing + GROUP {
            pack(&values[packed_from..at + missing], &number, bits, out);
            varint(((run - missing) as u64) << 1, out);
            let value = number(value).to_le_bytes();
            out.extend(&value[..bits.div_ceil(8) as usize]);
            packed_from = at + run;
        }
        at += run;
    }
    pack(&values[packed_from..], &number, bits, out);
}

/// Appends groups of packed values, the last filled with zeros.
fn pack<T: Copy>(values: &[T], number: impl Fn(T) -> u64, bits: u32, out: &mut Vec<u8>) {
    if values.is_empty() {
        return;
    }
    varint((values.len().div_ceil(GROUP) as u64) << 1 | 1, out);
    for group in values.chunks(GROUP) {
        let (mut waiting, mut filled) = (0_u64, 0);
        let filling = std::iter::repeat_n(0, GROUP - group.len());
        for value in group.iter().map(|value| number(*value)).chain(filling) {
            waiting |= value << filled;
            filled += bits;
            while filled >= 8 {
                out.push(waiting as u8);
                waiting >>= 8;
                filled -= 8;
            }
        }
    }
}

/// Appends a number in groups of seven bits, the lowest first (ULEB128).
fn varint(mut number: u64, out: &mut Vec<u8>) {
    while number > 0x7f {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// The number of values that are packed together.
const GROUP: usize = 8;

/// Numbers the different values of a column of whole numbers.
#[derive(Default)]
pub(super) struct Numbering {
    /// The place in `different` of the value with a hash, plus 1; 0 for none.
    places: Vec<u32>,
    different: Vec<i64>,
    numbers: Vec<u32>,
}

impl Numbering {
    /// Returns the column chunk of `values`; `None` if too many are different.
    pub fn chunk<'a>(
        &'a mut self,
        values: &[i64],
        levels: Option<&'a [i16]>,
        has_statistics: bool,
    ) -> Option<Chunk<'a>> {
        if !self.number(values) {
            return None;
        }
        let range = (self.different.iter().min(), self.different.iter().max());
        let statistics = match range {
            (Some(least), Some(most)) if has_statistics => Some(Statistics::int64(
                Some(*least),
                Some(*most),
                None,
                None,
                false,
            )),
            _ => None,
        };
        let values = self.different.iter().flat_map(|value| value.to_le_bytes());
        Some(Chunk {
            values: values.collect(),
            count: self.different.len(),
            numbers: &self.numbers,
            levels,
            statistics,
        })
    }

    /// Numbers each of `values`; returns `false` if too many are different.
    fn number(&mut self, values: &[i64]) -> bool {
        self.places.clear();
        self.places.resize(2 * MOST_VALUES, 0);
        self.different.clear();
        self.numbers.clear();
        self.numbers.reserve(values.len());
        let mut last = None;
        for value in values {
            let number = match last {
                Some((same, number)) if same == *value => number,
                _ => match self.find(*value) {
                    Some(number) => number,
                    None => return false,
                },
            };
            last = Some((*value, number));
            self.numbers.push(number);
        }
        true
    }

    fn find(&mut self, value: i64) -> Option<u32> {
        // Fibonacci hashing: 2^64 divided by the golden ratio.
        let hash = value.cast_unsigned().wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mask = self.places.len() - 1;
        let mut at = (hash >> 32) as usize & mask;
        loop {
            match self.places[at] {
                0 => break,
                place if self.different[place as usize - 1] == value => return Some(place - 1),
                _ => at = (at + 1) & mask,
            }
        }
        if self.different.len() == MOST_VALUES {
            return None;
        }
        self.different.push(value);
        self.places[at] = self.different.len() as u32;
        Some(self.different.len() as u32 - 1)
    }
}

/// The most different values of a dictionary. Columns with more repeat few of them.
pub(super) const MOST_VALUES: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_core::Rng;

    /// The inverse of [`runs_or_bits`], as the format describes it.
    fn decode(mut bytes: &[u8], bits: u32, count: usize) -> Vec<u64> {
        let mut values = Vec::new();
        while values.len() < count {
            let (mut header, mut shift) = (0_u64, 0);
            loop {
                let byte = bytes[0];
                bytes = &bytes[1..];
                header |= u64::from(byte & 0x7f) << shift;
                shift += 7;
                if byte < 0x80 {
                    break;
                }
            }
            if header & 1 == 1 {
                let (packed, rest) = bytes.split_at((header >> 1) as usize * bits as usize);
                bytes = rest;
                let bit = |at: usize| u64::from(packed[at / 8] >> (at % 8) & 1);
                let bits = bits as usize;
                let value = |n: usize| (0..bits).map(|at| bit(n * bits + at) << at).sum::<u64>();
                values.extend((0..(header >> 1) as usize * 8).map(value));
            } else {
                let (value, rest) = bytes.split_at(bits.div_ceil(8) as usize);
                bytes = rest;
                let value = value
                    .iter()
                    .rev()
                    .fold(0, |all, byte| all << 8 | u64::from(*byte));
                values.extend(std::iter::repeat_n(value, (header >> 1) as usize));
            }
        }
        assert!(bytes.is_empty());
        values.truncate(count);
        values
    }

    #[test]
    fn runs_and_bits_are_decoded_to_the_same_numbers() {
        let mut rng = Rng::from_seed(1);
        for bits in [0, 1, 3, 8, 11] {
            for _ in 0..50 {
                let mut numbers: Vec<u32> = Vec::new();
                while numbers.len() < 500 {
                    let number = rng.below(1 << bits) as u32;
                    let run = 1 + rng.below(30) * rng.below(2);
                    numbers.extend(std::iter::repeat_n(number, run as usize));
                }
                numbers.truncate(rng.below(500) as usize);
                let mut coded = Vec::new();
                runs_or_bits(&numbers, u64::from, bits, &mut coded);
                let expected: Vec<u64> = numbers.iter().map(|n| u64::from(*n)).collect();
                assert_eq!(decode(&coded, bits, numbers.len()), expected);
            }
        }
    }

    #[test]
    fn equal_values_have_one_number_and_too_many_have_none() {
        let mut numbering = Numbering::default();
        let values: Vec<i64> = (0..10_000).map(|n| (n * n) % 2048 - 1000).collect();
        assert!(numbering.number(&values));
        let value = |number: &u32| numbering.different[*number as usize];
        let found: Vec<i64> = numbering.numbers.iter().map(value).collect();
        assert_eq!(found, values);
        let values: Vec<i64> = (0..=MOST_VALUES as i64).collect();
        assert!(!numbering.number(&values));
        assert!(numbering.number(&values[1..]));
    }
}
