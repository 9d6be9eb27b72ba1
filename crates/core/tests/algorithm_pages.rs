//! The pages in `docs/algorithms` agree with the declarations.

use std::path::PathBuf;

use sluice_core::param::{Kind, ParamDecl};
use sluice_core::registry::{self, Algorithm, Form};

/// Returns the table of parameters as a page must have it.
fn table(algorithm: &Algorithm) -> Vec<String> {
    let mut lines = vec![
        "| parameter | default | range | meaning | source |".to_string(),
        "|---|---|---|---|---|".to_string(),
    ];
    lines.extend(algorithm.params().map(|decl| row(algorithm, decl)));
    lines
}

fn row(algorithm: &Algorithm, decl: &ParamDecl) -> String {
    let range = match (decl.kind, decl.range) {
        (Kind::Choice(words), _) => words.join(", "),
        (_, Some((low, high))) => format!("{low} to {high}"),
        (_, None) => "on, off".to_string(),
    };
    format!(
        "| `{}` | {} | {range} | {} | {} |",
        decl.name,
        algorithm.default_of(decl),
        decl.doc,
        algorithm.source_of(decl)
    )
}

/// Checks the page of `algorithm`. Returns whether there is one.
fn check(page: &str, algorithm: &Algorithm) -> bool {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs/algorithms")
        .join(format!("{page}.md"));
    let Ok(text) = std::fs::read_to_string(&path) else {
        return false;
    };
    assert!(
        text.starts_with(&format!("# `{page}`\n")),
        "{page}.md does not begin with the name"
    );
    let expected = table(algorithm);
    let found: Vec<&str> = text
        .lines()
        .skip_while(|line| *line != expected[0])
        .take_while(|line| line.starts_with('|'))
        .collect();
    assert!(
        found == expected,
        "the table in {page}.md is not that of the declarations:\n{}",
        expected.join("\n")
    );
    true
}

/// A new algorithm works without a page; an existing page is kept true.
#[test]
fn the_pages_of_algorithms_have_their_parameters() {
    let plain = registry::algorithms().filter(|a| a.form != Form::FlowQueued);
    let pages = plain.filter(|a| check(a.name, a)).count();
    assert!(pages >= 20, "only {pages} pages are found");
}

/// `droptail` has no parameters. Its flow-queued form has those of flow queueing.
#[test]
fn flow_queueing_has_a_page_with_its_parameters() {
    let algorithm = registry::find("fq_droptail").expect("it is registered");
    assert!(check("fq", algorithm), "fq.md is missing");
}
