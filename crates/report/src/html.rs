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
pub fn html(report: &Report) -> String {
    page(REPORT_PAGE, &report.title, &thin::for_page(report))
}

/// Fills the two markers of a template. The model is embedded as base64 of raw deflate of JSON, so
/// that no name in it can end the script element around it. The title is escaped.
pub(crate) fn page(template: &str, title: &str, model: &impl Serialize) -> String {
    let json = serde_json::to_vec(model)
        .expect("models are made of strings, numbers and lists, which are all JSON");
    let mut deflate = DeflateEncoder::new(Vec::new(), LEVEL);
    deflate
        .write_all(&json)
        .expect("writing into memory does not fail");
    let deflated = deflate.finish().expect("writing into memory does not fail");
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
const TITLE: &str = "{{title}}";
const MODEL: &str = "{{model}}";
