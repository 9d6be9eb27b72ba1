//! `web/src/model.ts`: the TypeScript types of the pages, generated from the Rust ones.

use std::fmt::Write as _;

use expect_test::expect_file;
use plotters::style::RGBColor;
use ts_rs::{Config, TS};

use super::figure::{LOG_BEYOND, PALETTE};
use super::model::{self, Direction, SCHEMA, Verdict};
use crate::index::{self, model as index_model};
use crate::judgement;

const HEAD: &str = "\
// Generated from the Rust types of the pages (`report::model` and `index::model`): do not edit.
// `UPDATE_EXPECT=1 cargo test -p sluice-report typescript` updates it.
//
// Units are part of the names; `null` means \"not measured\".

/** Version of these types. */
";

#[test]
fn model_ts_is_up_to_date() {
    let verdict = |verdict: Verdict| u64::from(verdict);
    let palette = PALETTE.map(|RGBColor(r, g, b)| format!("\"#{r:02x}{g:02x}{b:02x}\""));
    let palette = palette.join(", ");
    let directions = [Direction::Up, Direction::Down].map(|way| format!("\"{way}\""));
    let directions = directions.join(" | ");
    let mut text = format!(
        "{HEAD}export const SCHEMA = {SCHEMA};

/** Codes of the column `verdict`. */
export const VERDICT = {{ sent: {}, marked: {}, dropped: {} }} as const;

/** Colours of the variants, on white. */
export const PALETTE = [{palette}];

/** The direction of packets on the path: up is from the left end to the right one. */
export type Direction = {directions};

/** Delays get a logarithmic axis if the medians of the variants differ by more than this factor. */
export const LOG_BEYOND = {LOG_BEYOND};
",
        verdict(Verdict::Sent),
        verdict(Verdict::Marked),
        verdict(Verdict::Dropped),
    );
    // Counts stay far below 2^53, where a JavaScript number is exact.
    let config = Config::new().with_large_int("number");
    macro_rules! declare {
        ($($type:ty),* $(,)?) => {
            $(declare::<$type>(&mut text, &config);)*
        };
    }
    declare!(
        model::Report,
        model::SweepPicture,
        model::Ends,
        model::Backend,
        model::Fact,
        model::Run,
        model::RepetitionLink,
        model::Judgement,
        model::Repeat,
        model::Expectation,
        model::Figure,
        model::Accuracy,
        model::Quantiles,
        model::Count,
        model::DirectionTotal,
        model::Tradeoff,
        model::Series,
        model::Flow,
        model::Crowd,
        model::CrowdFlow,
        model::FlowFigures,
        model::GoodputSum,
        model::QuantileLine,
        model::Ping,
        model::Transfers,
        model::Queue,
        model::State,
        model::Cdf,
        model::Packets,
        index_model::Index,
        index_model::AlgorithmSummary,
        index_model::IndexedScenario,
        index_model::IndexedVariant,
        index_model::Trace,
        judgement::DelayOf,
        index::TraceOf,
    );
    expect_file!["../../../web/src/model.ts"].assert_eq(&text);
}

/// Appends the declaration of a type, one line per field and comment.
fn declare<T: TS>(text: &mut String, config: &Config) {
    let mut doc: Vec<String> = Vec::new();
    let mut is_type = true;
    let raw = format!(
        "{}export {}",
        T::docs().unwrap_or_default(),
        T::decl(config)
    );
    text.push('\n');
    for line in raw.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let indent = if is_type { "" } else { "  " };
        match line {
            "/**" => doc.clear(),
            "*/" => match doc.as_slice() {
                [one] => writeln!(text, "{indent}/** {one} */").expect(IN_MEMORY),
                lines => {
                    let lines = lines.join(&format!("\n{indent} * "));
                    writeln!(text, "{indent}/**\n{indent} * {lines}\n{indent} */")
                        .expect(IN_MEMORY);
                }
            },
            line if line.starts_with('*') => doc.push(in_typescript(line[1..].trim())),
            line => {
                // The brace that closes the type stands behind its last field.
                let (field, end) = match line.strip_suffix(" };") {
                    Some(field) if !is_type => (field, "};\n"),
                    _ => (line, ""),
                };
                let field = match field.strip_suffix(',') {
                    Some(field) => format!("{field};"),
                    None => field.to_owned(),
                };
                writeln!(text, "{indent}{field}").expect(IN_MEMORY);
                text.push_str(end);
                is_type = false;
            }
        }
    }
}

const IN_MEMORY: &str = "writing into memory does not fail";

/// Rewrites a line of a Rust comment: without links, and with the words of TypeScript.
fn in_typescript(line: &str) -> String {
    line.replace("[`", "`")
        .replace("`]", "`")
        .replace("::", ".")
        .replace("`None`", "`null`")
}
