//! The pages of a column chunk, decompressed within limits.
//!
//! A page has a header with its decompressed size, and the library reserves and fills this memory before
//! it decompresses: 2 GiB for a page of a few bytes that claims them. The library therefore reads all
//! pages as uncompressed ones, which it passes on as they are in the file, and they are decompressed
//! here, where their size is limited by what their bytes can become. Pages without compression need no
//! more memory than their file.

use std::sync::Arc;

use parquet::basic::{Compression, Encoding};
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};
use parquet::file::reader::ChunkReader;
use parquet::file::serialized_reader::SerializedPageReader;
use snap::raw::{Decoder, decompress_len};

use super::dictionary::external;

/// The column chunks of a file, or of a table in memory.
pub(crate) trait Chunks: Send + Sync {
    /// Returns the content of the footer.
    fn metadata(&self) -> &ParquetMetaData;

    /// Returns the pages of a column of a row group.
    ///
    /// # Errors
    /// The chunk is not in the file, or is compressed by another program's method.
    fn pages(&self, group: usize, column: usize) -> Result<Box<dyn PageReader>, ParquetError>;
}

/// The bytes of a table, and its footer.
pub(crate) struct Source<C> {
    bytes: Arc<C>,
    metadata: ParquetMetaData,
}

impl<C: ChunkReader + 'static> Source<C> {
    /// Reads the footer of `bytes`.
    ///
    /// # Errors
    /// There is no complete footer.
    pub fn new(bytes: C) -> Result<Self, ParquetError> {
        let metadata = ParquetMetaDataReader::new().parse_and_finish(&bytes)?;
        Ok(Source {
            bytes: Arc::new(bytes),
            metadata,
        })
    }
}

impl<C: ChunkReader + 'static> Chunks for Source<C> {
    fn metadata(&self) -> &ParquetMetaData {
        &self.metadata
    }

    fn pages(&self, group: usize, column: usize) -> Result<Box<dyn PageReader>, ParquetError> {
        let group = self.metadata.row_group(group);
        let chunk = group.column(column);
        let (start, length) = chunk.byte_range();
        let end = start.checked_add(length);
        if end.is_none_or(|end| end > self.bytes.len()) {
            return refused(format!(
                "{length} bytes of a column at {start} are not in the file"
            ));
        }
        let is_packed = match chunk.compression() {
            Compression::UNCOMPRESSED => false,
            Compression::SNAPPY => true,
            other => return refused(format!("a column is compressed with {other}")),
        };
        let stored = chunk.clone().into_builder();
        let stored = stored.set_compression(Compression::UNCOMPRESSED).build()?;
        let rows = usize::try_from(group.num_rows())?;
        let stored = SerializedPageReader::new(Arc::clone(&self.bytes), &stored, rows, None)?;
        Ok(Box::new(Pages {
            stored,
            is_packed,
            left: MOST_CHUNK_BYTES,
        }))
    }
}

/// The pages of a column chunk.
struct Pages<P> {
    /// The pages as they are in the file.
    stored: P,
    /// Whether the pages are compressed, with Snappy.
    is_packed: bool,
    /// The bytes that the remaining pages may have.
    left: usize,
}

impl<P: PageReader> Pages<P> {
    /// Decompresses a page.
    fn unpack(&mut self, page: &mut Page) -> Result<(), ParquetError> {
        let (stored, levels) = match page {
            Page::DataPageV2 {
                is_compressed: false,
                ..
            } => return Ok(()),
            Page::DataPageV2 {
                buf,
                def_levels_byte_len,
                rep_levels_byte_len,
                ..
            } => (
                buf,
                *def_levels_byte_len as usize + *rep_levels_byte_len as usize,
            ),
            Page::DataPage { buf, .. } | Page::DictionaryPage { buf, .. } => (buf, 0),
        };
        // The levels of such a page come first and are not compressed.
        let Some((levels, packed)) = stored.split_at_checked(levels) else {
            return refused(format!("{levels} bytes of levels in a shorter page"));
        };
        let length = decompress_len(packed).map_err(external)?;
        if length > packed.len() * MOST_EXPANSION || length > self.left {
            let packed = packed.len();
            return refused(format!("a page of {length} bytes, compressed to {packed}"));
        }
        self.left -= length;
        let mut unpacked = vec![0; levels.len() + length];
        let (to_levels, to_values) = unpacked.split_at_mut(levels.len());
        to_levels.copy_from_slice(levels);
        if length > 0 {
            let decoded = Decoder::new().decompress(packed, to_values);
            decoded.map_err(external)?;
        }
        *stored = unpacked.into();
        Ok(())
    }
}

impl<P: PageReader> PageReader for Pages<P> {
    fn get_next_page(&mut self) -> Result<Option<Page>, ParquetError> {
        let Some(mut page) = self.stored.get_next_page()? else {
            return Ok(None);
        };
        if self.is_packed {
            self.unpack(&mut page)?;
        }
        check(&page)?;
        Ok(Some(page))
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>, ParquetError> {
        self.stored.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<(), ParquetError> {
        self.stored.skip_next_page()
    }
}

impl<P: PageReader> Iterator for Pages<P> {
    type Item = Result<Page, ParquetError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

/// Refuses a page for whose values the library would reserve as much memory as the page claims.
fn check(page: &Page) -> Result<(), ParquetError> {
    let (count, bytes) = (page.num_values() as usize, page.buffer().len());
    if page.is_dictionary_page() {
        return match count > bytes / LEAST_VALUE_BYTES {
            true => refused(format!("a dictionary of {count} values in {bytes} bytes")),
            false => Ok(()),
        };
    }
    match page.encoding() {
        Encoding::PLAIN
        | Encoding::RLE
        | Encoding::PLAIN_DICTIONARY
        | Encoding::RLE_DICTIONARY
        | Encoding::DELTA_BINARY_PACKED => Ok(()),
        // Others have lists of lengths, and state the number of these themselves. Sluice writes none.
        other => refused(format!("a column is encoded as {other}")),
    }
}

fn refused<T>(what: String) -> Result<T, ParquetError> {
    Err(ParquetError::General(what))
}

/// The most bytes that the pages of a column chunk have when they are decompressed.
const MOST_CHUNK_BYTES: usize = 1 << 30;

/// The most bytes that a byte of a page can become. Snappy copies at most 64 bytes, for which it needs
/// three (<https://github.com/google/snappy/blob/main/format_description.txt>, section 2.2.2).
const MOST_EXPANSION: usize = 22;

/// The bytes of the shortest value in a dictionary: a text without letters, of which only the length is
/// stored.
const LEAST_VALUE_BYTES: usize = 4;

#[cfg(test)]
mod tests;
