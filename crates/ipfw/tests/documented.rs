//! `docs/dummynet.md` is correct, and mentions every warning and every option.
//!
//! `UPDATE_EXPECT=1 cargo test -p sluice-ipfw --test documented` updates the table of options.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{Bench, Texts};
use sluice_ipfw::grammar::OPTIONS;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the lines of the fenced block `name`.
fn block(name: &str) -> Vec<String> {
    let page = fs::read_to_string(root().join("docs/dummynet.md")).expect("the page is there");
    let mut lines = page
        .lines()
        .skip_while(|line| *line != format!("```{name}"));
    assert!(lines.next().is_some(), "the page has no block `{name}`");
    lines
        .take_while(|line| *line != "```")
        .map(str::to_owned)
        .collect()
}

/// Returns the commands of a block, each with the indented lines below it.
fn entries(name: &str) -> Vec<(String, Vec<String>)> {
    let mut entries: Vec<(String, Vec<String>)> = Vec::new();
    for line in block(name) {
        match line.strip_prefix("  ") {
            Some(said) => entries
                .last_mut()
                .expect("a warning is below a command")
                .1
                .push(said.to_owned()),
            None => entries.push((line, Vec::new())),
        }
    }
    entries
}

/// An engine with the setup of the page.
fn bench(is_compat: bool) -> Bench {
    let mut bench = if is_compat {
        Bench::compat()
    } else {
        Bench::new()
    };
    bench.files = Texts(vec![("/p", "prob delay\n0 1\n1 2\n".into())]);
    bench
}

#[test]
fn every_warning_of_the_page_is_given() {
    let mut bench = bench(false);
    bench.script(&block("setup").join("\n"));
    let mut wrong = String::new();
    for (command, expected) in entries("warnings") {
        let given = bench.warnings(&command);
        if given != expected {
            wrong.push_str(&format!(
                "{command}\n  given:    {given:?}\n  expected: {expected:?}\n"
            ));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn differences_are_those_of_the_page() {
    let mut wrong = String::new();
    for (command, expected) in entries("differences") {
        let got = [("here:   ", false), ("compat: ", true)].map(|(side, is_compat)| {
            let mut bench = bench(is_compat);
            let shown = match bench.run(&command) {
                Ok(_) => bench
                    .ok("pipe show")
                    .lines()
                    .next()
                    .unwrap_or("")
                    .to_owned(),
                Err(error) => error.to_string(),
            };
            format!("{side}{}", shown.trim_end())
        });
        if expected != got {
            wrong.push_str(&format!("{command}\n  {}\n  {}\n", got[0], got[1]));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// The table of options for the page.
fn options() -> String {
    let mut table = String::from("| option | matches | tested |\n|---|---|---|\n");
    for option in OPTIONS {
        let shown = option.example.split(' ').next();
        let others = option.words.iter().filter(|word| Some(**word) != shown);
        let also: Vec<String> = others.map(|word| format!("`{word}`")).collect();
        let also = if also.is_empty() {
            String::new()
        } else {
            format!("; also {}", also.join(", "))
        };
        let tested = if option.is_constant {
            "per flow"
        } else {
            "per packet"
        };
        let doc = option.doc.replace('|', "\\|");
        table.push_str(&format!(
            "| `{}`{also} | {doc} | {tested} |\n",
            option.example
        ));
    }
    table
}

#[test]
fn options_are_those_of_the_page() {
    const START: &str =
        "<!-- options of rules: made by the tests from crates/ipfw/src/options.rs -->\n";
    let path = root().join("docs/dummynet.md");
    let page = fs::read_to_string(&path).expect("the page is there");
    let (before, rest) = page.split_once(START).expect("the page has the mark");
    let (shown, after) = rest
        .split_once("\n\n")
        .expect("a paragraph follows the table");
    let expected = options();
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        let page = format!("{before}{START}{expected}\n{after}");
        // Other tests read the page at this moment.
        let new = path.with_extension("new");
        fs::write(&new, page).expect("the page can be written");
        fs::rename(new, path).expect("the page can be replaced");
    } else {
        assert_eq!(format!("{shown}\n"), expected, "UPDATE_EXPECT=1 updates it");
    }
}

/// Separates the fixed parts of a message in the source.
const HOLE: char = '\u{0}';

/// Returns the texts of warnings in a source file with their holes marked: the first string of each
/// call that warns, or the last string built before a call that receives a variable.
fn templates(source: &str) -> Vec<String> {
    let code = source.split("#[cfg(test)]").next().unwrap_or(source);
    let calls = [
        "p.warn(",
        "means.warn(",
        " say(",
        "Warning::new(",
        "warnings.push(\"",
    ];
    let mut found = Vec::new();
    for call in calls {
        for (at, _) in code.match_indices(call) {
            let inside = &code[at + call.len() - 1..];
            let mut depth = 0;
            let end = inside
                .char_indices()
                .find(|(_, c)| {
                    depth += i32::from(*c == '(') - i32::from(*c == ')');
                    depth == 0
                })
                .map_or(inside.len(), |(end, _)| end);
            let text = string(&inside[..end]).or_else(|| {
                code[..at]
                    .rfind("format!(")
                    .and_then(|from| string(&code[from..at]))
            });
            found.extend(text.map(|text| holes(&text)));
        }
    }
    found
}

/// Returns the first string in a piece of source.
fn string(source: &str) -> Option<String> {
    let start = source.find('"')? + 1;
    let end = start + source[start..].find('"')?;
    Some(source[start..end].to_owned())
}

fn holes(text: &str) -> String {
    let mut out = String::new();
    let mut is_inside = false;
    for c in text.chars() {
        match c {
            '{' => is_inside = true,
            '}' => {
                is_inside = false;
                out.push(HOLE);
            }
            _ if is_inside => {}
            c => out.push(c),
        }
    }
    out
}

/// Whether `text` is `template` with its holes filled.
fn fits(template: &str, text: &str) -> bool {
    let mut rest = text;
    let parts: Vec<&str> = template.split(HOLE).collect();
    for (place, part) in parts.iter().enumerate() {
        let Some(found) = rest.find(part) else {
            return false;
        };
        if place == 0 && found != 0 {
            return false;
        }
        rest = &rest[found + part.len()..];
    }
    rest.is_empty() || parts.last().is_some_and(|last| last.is_empty())
}

/// Texts that the page only describes, and strings that the scan mistakes for warnings.
const ELSEWHERE: &[&str] = &[
    // The page describes in prose that dummynet's bounds apply under compat.
    "`\0 \0` is outside dummynet's bounds: \0 is used",
    // The end of "is not a parameter of".
    " (did you mean `\0`?)",
    // An error, near a warning whose text comes from `variables.rs`.
    "\0: files include one another",
    // The end of a line with more than a hundred warnings.
    "\0 more warnings about this line are left out",
];

#[test]
fn no_warning_is_missing_on_the_page() {
    let documented: Vec<String> = entries("warnings")
        .into_iter()
        .flat_map(|(_, said)| said)
        .collect();
    let mut sources = Vec::new();
    let mut folders = vec![root().join("crates/ipfw/src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("the sources are there") {
            let path = entry.expect("the folder can be read").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.file_name().is_some_and(|name| name != "tests.rs") {
                sources.push(path);
            }
        }
    }
    sources.sort();
    let mut seen = 0;
    let mut missing = String::new();
    for path in sources {
        let source = fs::read_to_string(&path).expect("a source is text");
        for template in templates(&source) {
            // A text that consists of a hole belongs to another call.
            if template.chars().filter(|c| c.is_alphabetic()).count() < 4 {
                continue;
            }
            seen += 1;
            let is_known = ELSEWHERE.contains(&template.as_str())
                || documented.iter().any(|text| fits(&template, text));
            if !is_known {
                missing.push_str(&format!("{}: {template:?}\n", path.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{missing}");
    assert!(seen >= 30, "the scan finds what it looks for: {seen}");
}
