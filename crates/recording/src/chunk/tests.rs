use bytes::Bytes;
use parquet::basic::{Repetition, Type as Physical};
use parquet::column::page::{CompressedPage, PageWriter};
use parquet::column::reader::{ColumnReaderImpl, get_column_reader, get_typed_column_reader};
use parquet::column::writer::ColumnCloseResult;
use parquet::data_type::Int64Type;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::writer::{SerializedFileWriter, SerializedPageWriter, TrackedWrite};
use parquet::schema::types::Type;
use snap::raw::Encoder;

use super::*;

/// Returns a table of a column of optional whole numbers that has `pages`. The header of each page claims
/// a decompressed size of 2 GiB.
fn table(pages: &[Page]) -> Bytes {
    let field = Type::primitive_type_builder("value", Physical::INT64)
        .with_repetition(Repetition::OPTIONAL)
        .build()
        .unwrap();
    let schema = Type::group_type_builder("values").with_fields(vec![Arc::new(field)]);
    let schema = Arc::new(schema.build().unwrap());
    let mut file = SerializedFileWriter::new(Vec::new(), schema, Arc::default()).unwrap();
    let column = file.schema_descr().column(0);
    let mut sink = TrackedWrite::new(Vec::new());
    let mut writer = SerializedPageWriter::new(&mut sink);
    let mut chunk = ColumnChunkMetaData::builder(column).set_compression(Compression::SNAPPY);
    let mut rows = 0;
    for page in pages {
        let claim = CompressedPage::new(page.clone(), i32::MAX as usize);
        let offset = writer.write_page(claim).unwrap().offset as i64;
        if page.is_dictionary_page() {
            chunk = chunk.set_dictionary_page_offset(Some(offset));
        } else {
            rows += u64::from(page.num_values());
        }
    }
    let bytes = Bytes::from(sink.into_inner().unwrap());
    let metadata = chunk
        .set_total_compressed_size(bytes.len() as i64)
        .set_num_values(rows as i64);
    let closed = ColumnCloseResult {
        bytes_written: bytes.len() as u64,
        rows_written: rows,
        metadata: metadata.build().unwrap(),
        bloom_filter: None,
        column_index: None,
        offset_index: None,
    };
    let mut group = file.next_row_group().unwrap();
    group.append_column(&bytes, closed).unwrap();
    group.close().unwrap();
    file.into_inner().unwrap().into()
}

/// Reads the column of a table, as [`Rows`](crate::Rows) does.
fn read(table: Bytes) -> Result<Vec<i64>, ParquetError> {
    let source = Source::new(table)?;
    let column = source.metadata().file_metadata().schema_descr().column(0);
    let pages = source.pages(0, 0)?;
    let reader = get_column_reader(column, pages);
    let mut reader: ColumnReaderImpl<Int64Type> = get_typed_column_reader(reader);
    let mut values = Vec::new();
    reader.read_records(100, Some(&mut Vec::new()), None, &mut values)?;
    Ok(values)
}

fn packed(bytes: &[u8]) -> Bytes {
    Encoder::new().compress_vec(bytes).unwrap().into()
}

fn plain(values: &[i64]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

fn dictionary(buf: Bytes, num_values: u32) -> Page {
    Page::DictionaryPage {
        buf,
        num_values,
        encoding: Encoding::PLAIN,
        is_sorted: false,
    }
}

fn first_version(buf: Bytes, encoding: Encoding) -> Page {
    Page::DataPage {
        buf,
        num_values: 3,
        encoding,
        def_level_encoding: Encoding::RLE,
        rep_level_encoding: Encoding::RLE,
        statistics: None,
    }
}

/// A page of three values, with their levels in the first `levels` bytes.
fn second_version(buf: Bytes, levels: u32) -> Page {
    Page::DataPageV2 {
        buf,
        num_values: 3,
        encoding: Encoding::PLAIN,
        num_nulls: 0,
        num_rows: 3,
        def_levels_byte_len: levels,
        rep_levels_byte_len: 0,
        is_compressed: true,
        statistics: None,
    }
}

/// The definition levels of three values, coded as a run: twice its length, and the level.
const LEVELS: [u8; 2] = [2 * 3, 1];

#[test]
fn the_size_that_a_header_claims_is_not_reserved() {
    // Levels with their length, then numbers of one bit: a run of three times the number 1.
    let numbered = [&[2, 0, 0, 0], &LEVELS[..], &[1, 2 * 3, 1]].concat();
    let levels_and_values = [&LEVELS[..], &packed(&plain(&[1, -2, 3]))].concat();
    let pages = [
        dictionary(packed(&plain(&[7, 9])), 2),
        first_version(packed(&numbered), Encoding::RLE_DICTIONARY),
        second_version(levels_and_values.into(), 2),
    ];
    let table = table(&pages);
    // Two values of 8 bytes; levels with their length and numbers; levels and three values.
    let source = Source::new(table.clone()).unwrap();
    let pages = source.pages(0, 0).unwrap();
    let sizes: Vec<usize> = pages.map(|page| page.unwrap().buffer().len()).collect();
    assert_eq!(sizes, [16, 4 + 2 + 3, 2 + 24]);
    assert_eq!(read(table).unwrap(), [9, 9, 9, 1, -2, 3]);
}

#[test]
fn a_page_that_claims_more_than_its_bytes_can_become_is_refused() {
    // 2^30 in groups of seven bits, the lowest first, and a literal of one byte.
    let bomb = [0x80, 0x80, 0x80, 0x80, 0x04, 0x00, 0x2a];
    let with_levels = [&LEVELS[..], &bomb].concat();
    let bomb = Bytes::copy_from_slice(&bomb);
    let pages = [
        dictionary(bomb.clone(), 2),
        first_version(bomb, Encoding::PLAIN),
        second_version(with_levels.into(), 2),
    ];
    for page in pages {
        let error = read(table(&[page])).unwrap_err().to_string();
        let expected = "a page of 1073741824 bytes, compressed to 7";
        assert!(error.ends_with(expected), "{error}");
    }
    let levels = second_version(Bytes::from_static(&LEVELS), 3);
    let error = read(table(&[levels])).unwrap_err().to_string();
    assert!(error.contains("3 bytes of levels"), "{error}");
}

#[test]
fn the_longest_runs_of_snappy_are_within_the_limit() {
    let zeros = vec![0; 1 << 16];
    let packed = packed(&zeros);
    assert!(packed.len() * MOST_EXPANSION >= zeros.len());
    // Nothing but copies: 3 bytes each for 64.
    assert!(packed.len() < zeros.len() / 20);
}

#[test]
fn the_pages_of_a_chunk_have_a_limit_together() {
    let page = || first_version(packed(&[5; 100]), Encoding::PLAIN);
    let stored = SerializedPageReader::new(
        Arc::new(Bytes::new()),
        Source::new(table(&[page()]))
            .unwrap()
            .metadata
            .row_group(0)
            .column(0),
        3,
        None,
    );
    let mut pages = Pages {
        stored: stored.unwrap(),
        is_packed: true,
        left: 150,
    };
    pages.unpack(&mut page()).unwrap();
    let error = pages.unpack(&mut page()).unwrap_err().to_string();
    assert!(error.contains("a page of 100 bytes"), "{error}");
}

#[test]
fn a_dictionary_has_no_more_values_than_bytes_for_them() {
    let values = packed(&plain(&[7, 9]));
    let error = read(table(&[dictionary(values, i32::MAX as u32)])).unwrap_err();
    let expected = "a dictionary of 2147483647 values in 16 bytes";
    assert!(error.to_string().ends_with(expected), "{error}");
}

#[test]
fn a_list_of_lengths_is_not_read() {
    for encoding in [
        Encoding::DELTA_LENGTH_BYTE_ARRAY,
        Encoding::DELTA_BYTE_ARRAY,
    ] {
        let page = first_version(packed(&[0; 8]), encoding);
        let error = read(table(&[page])).unwrap_err().to_string();
        assert!(
            error.ends_with(&format!("encoded as {encoding}")),
            "{error}"
        );
    }
}

#[test]
fn a_chunk_beyond_the_end_of_the_file_is_refused() {
    let whole = table(&[first_version(packed(&[0; 8]), Encoding::PLAIN)]);
    let cut = Source {
        bytes: Arc::new(whole.slice(..10)),
        metadata: Source::new(whole).unwrap().metadata,
    };
    let error = cut.pages(0, 0).err().unwrap().to_string();
    assert!(error.ends_with("are not in the file"), "{error}");
}
