//! The page: the template that `web/` builds, with the report inside.

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::DeflateEncoder;

use super::model::Report;
use super::thin;

/// One self-contained page that opens from disk without a network.
///
/// The report goes in as base64 of raw deflate of JSON, so no name in it can end the script
/// element it lies in; the title is escaped.
pub fn html(report: &Report) -> String {
    let json = serde_json::to_vec(&thin::for_page(report))
        .expect("a report is made of strings, numbers and lists, which are all JSON");
    let mut deflate = DeflateEncoder::new(Vec::new(), Compression::default());
    deflate
        .write_all(&json)
        .expect("writing into memory does not fail");
    let deflated = deflate.finish().expect("writing into memory does not fail");
    // The title first: it is the earlier of the two, and what it brings is not looked through again.
    let (head, rest) = split_at_marker(TEMPLATE, TITLE);
    let (middle, tail) = split_at_marker(rest, REPORT);
    [
        head,
        &escape(&report.title),
        middle,
        &STANDARD.encode(deflated),
        tail,
    ]
    .concat()
}

fn split_at_marker<'a>(text: &'a str, marker: &str) -> (&'a str, &'a str) {
    text.split_once(marker)
        .expect("build.rs has checked that the template holds both markers")
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

const TEMPLATE: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../web/dist/report.html"
));
const TITLE: &str = "{{title}}";
const REPORT: &str = "{{report}}";
