//! The pages: the templates that `web/` builds, each with its model inside.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::{Compress, Compression, FlushCompress, Status};
use serde::Serialize;

use super::figure::escape;
use super::model::Report;
use super::thin;

/// The page of a report: one self-contained file that opens from disk without a network.
pub fn html(report: Report) -> String {
    let report = thin::for_page(report);
    page(REPORT_PAGE, &report.title, &report)
}

/// Fills the two markers of a template. The model is embedded as base64 of raw deflate of JSON, so
/// that no name in it can end the script element around it. The title is escaped.
pub(crate) fn page(template: &str, title: &str, model: &impl Serialize) -> String {
    let json = serde_json::to_vec(model)
        .expect("models are made of strings, numbers and lists, which are all JSON");
    let deflated = deflate(&json);
    // The title comes first in the template, and the search continues behind its marker, so that a
    // title that contains `{{model}}` is not filled.
    let (head, rest) = split_at_marker(template, TITLE);
    let (middle, tail) = split_at_marker(rest, MODEL);
    [
        head,
        &escape(title),
        middle,
        &STANDARD.encode(deflated),
        tail,
    ]
    .concat()
}

/// Compresses `json` as raw deflate, in pieces that several threads compress. The pieces have the
/// same length on every machine, so the page has the same bytes.
fn deflate(json: &[u8]) -> Vec<u8> {
    let pieces: Vec<&[u8]> = json.chunks(PIECE).collect();
    let mut deflated: Vec<Vec<u8>> = vec![Vec::new(); pieces.len()];
    let last = pieces.len().saturating_sub(1);
    let work = pieces.into_iter().zip(&mut deflated).enumerate();
    thin::in_parallel(work.collect(), |(at, (piece, out))| {
        // A flushed piece ends with a whole byte, in a block that is not the last (RFC 1951 section
        // 3.2.4), so that the next piece can follow it.
        *out = deflate_piece(
            piece,
            match at == last {
                true => FlushCompress::Finish,
                false => FlushCompress::Sync,
            },
        );
    });
    deflated.concat()
}

/// Compresses a piece. `DeflateEncoder::flush` does not do: if its buffer fills during the flush, it
/// goes on without flushing, and the end of the piece is missing.
fn deflate_piece(piece: &[u8], flush: FlushCompress) -> Vec<u8> {
    let mut state = Compress::new(LEVEL, false);
    let mut out = Vec::with_capacity(piece.len() / 2 + LEAST_ROOM);
    loop {
        let rest = &piece[state.total_in() as usize..];
        let status = state.compress_vec(rest, &mut out, flush).expect(IN_MEMORY);
        // Compression is complete if room is left (zlib.h, `deflate`).
        if status == Status::StreamEnd || out.len() < out.capacity() {
            return out;
        }
        out.reserve(piece.len() / 4 + LEAST_ROOM);
    }
}

const IN_MEMORY: &str = "compressing into memory does not fail";

fn split_at_marker<'a>(text: &'a str, marker: &str) -> (&'a str, &'a str) {
    text.split_once(marker)
        .expect("build.rs has checked that the templates hold both markers")
}

const REPORT_PAGE: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../web/dist/report.html"
));
/// The level of compression. Level 6, the default, makes a page a tenth smaller in twice the time.
const LEVEL: Compression = Compression::new(2);
/// The length of a piece that is compressed by itself: many times the 32 KB that deflate looks back.
const PIECE: usize = 1 << 20;
/// Room for the markers of a flush, with which it does not repeat them.
const LEAST_ROOM: usize = 1 << 10;
const TITLE: &str = "{{title}}";
const MODEL: &str = "{{model}}";

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    /// Numbers of one to eight digits: text that is compressed to about half of its length.
    fn numbers(rng: &mut sluice_core::Rng, length: usize) -> Vec<u8> {
        let mut text = Vec::new();
        while text.len() < length {
            let most = 10_u64.pow(1 + rng.below(8) as u32);
            text.extend(format!("{},", rng.below(most)).bytes());
        }
        text.truncate(length);
        text
    }

    #[test]
    fn pieces_of_any_length_are_inflated_whole() {
        let mut rng = sluice_core::Rng::from_seed(1);
        let lengths = [1, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE];
        let random = (0..20).map(|_| rng.below(4 << 20) as usize);
        for length in lengths.into_iter().chain(random.collect::<Vec<_>>()) {
            let text = numbers(&mut rng, length);
            let mut inflated = Vec::new();
            flate2::read::DeflateDecoder::new(&*deflate(&text))
                .read_to_end(&mut inflated)
                .unwrap_or_else(|error| panic!("{length} bytes: {error}"));
            assert!(inflated == text, "{length} bytes");
        }
    }
}
