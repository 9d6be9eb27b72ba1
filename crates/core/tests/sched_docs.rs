//! The pages of the disciplines say what the declarations say.

use std::path::PathBuf;

use sluice_core::param::{Kind, ParamDecl};
use sluice_core::registry::{self, Algorithm, Form};

/// Returns the row of a parameter, as a page must have it.
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
        decl.source
    )
}

#[test]
fn every_discipline_has_a_page_with_its_parameters() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/algorithms");
    for algorithm in registry::algorithms().filter(|a| a.form == Form::Discipline) {
        let name = algorithm.name;
        let path = folder.join(format!("{name}.md"));
        let text = std::fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(
            text.starts_with(&format!("# `{name}`\n")),
            "{name}.md does not begin with the name"
        );
        let mut expected = vec![
            "| parameter | default | range | meaning | source |".to_string(),
            "|---|---|---|---|---|".to_string(),
        ];
        expected.extend(algorithm.params().map(|decl| row(algorithm, decl)));
        let found: Vec<&str> = text
            .lines()
            .skip_while(|line| *line != expected[0])
            .take_while(|line| line.starts_with('|'))
            .collect();
        assert!(
            found == expected,
            "the table in {name}.md is not that of the declarations:\n{}",
            expected.join("\n")
        );
    }
}
