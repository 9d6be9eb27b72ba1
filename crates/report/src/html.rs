//! The pages: the templates that `web/` builds, each with its model inside.

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::DeflateEncoder;
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
        let mut encoder = DeflateEncoder::new(Vec::with_capacity(piece.len()), LEVEL);
        encoder.write_all(piece).expect(IN_MEMORY);
        // A flushed piece ends with a whole byte, in a block that is not the last (RFC 1951 section
        // 3.2.4), so that the next piece can follow it.
        *out = if at == last {
            encoder.finish().expect(IN_MEMORY)
        } else {
            encoder.flush().expect(IN_MEMORY);
            std::mem::take(encoder.get_mut())
        };
    });
    deflated.concat()
}

const IN_MEMORY: &str = "writing into memory does not fail";

fn split_at_marker<'a>(text: &'a str, marker: &str) -> (&'a str, &'a str) {
    text.split_once(marker)
        .expect("build.rs has checked that the templates hold both markers")
}

const REPORT_PAGE: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../web/dist/report.html"
));
/// The level of compression. Level 6, the default, makes a page a tenth smaller in twice the time.
const LEVEL: Compression = Compression::new(3);
/// The length of a piece that is compressed by itself: many times the 32 KB that deflate looks back.
const PIECE: usize = 1 << 20;
const TITLE: &str = "{{title}}";
const MODEL: &str = "{{model}}";
