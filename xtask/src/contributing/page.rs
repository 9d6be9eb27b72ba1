//! The examples of `CONTRIBUTING.md`, as the page prints them.
//!
//! A section `## Adding ...` has a table whose rows name the files of the addition, and for each
//! row a fenced block. The line before the block states the place of its text; a block of Rust must
//! have one:
//!
//! | line | meaning |
//! |---|---|
//! | `` `FILE`: `` | the whole text of a new file |
//! | `` `FILE`, below `LINE`: `` | insert it below the only line of the file that reads `LINE` |

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;

/// An example: the pieces of one section.
#[derive(Debug)]
pub struct Example<'a> {
    /// The subject of the section: `an AQM`.
    pub addition: &'a str,
    /// The name of the example, as users write it.
    pub name: &'a str,
    /// The texts and their places.
    pub pieces: Vec<Piece<'a>>,
}

/// One block and its place.
#[derive(Debug, PartialEq)]
pub struct Piece<'a> {
    /// The line of the page where the block begins.
    pub line: usize,
    /// The file, relative to the root of the source.
    pub path: &'a str,
    /// The line of the file below which the text is inserted; `None` for a new file.
    pub below: Option<&'a str>,
    /// The text.
    pub text: &'a str,
}

/// Returns the sections on additions: the thing added, and the example if the section has one.
pub fn sections(page: &str) -> Result<BTreeMap<&str, Option<Example<'_>>>, String> {
    let mut sections = BTreeMap::new();
    let mut line = 1;
    for section in page.split("\n## ") {
        let heading = section.lines().next().unwrap_or_default();
        if let Some(addition) = heading.strip_prefix("Adding ") {
            let example = example(addition, section, line);
            let example = example.map_err(|(line, error)| {
                format!("CONTRIBUTING.md:{line}: \"Adding {addition}\": {error}")
            });
            sections.insert(addition, example?);
        }
        line += section.matches('\n').count() + 1;
    }
    Ok(sections)
}

/// Reads the section that begins at line `first`. An error has its line.
fn example<'a>(
    addition: &'a str,
    section: &'a str,
    first: usize,
) -> Result<Option<Example<'a>>, (usize, String)> {
    let (mut rows, mut pieces) = (Vec::new(), Vec::new());
    let (mut place, mut open, mut end) = (None, None, 0);
    for (number, line) in (first..).zip(section.split_inclusive('\n')) {
        let start = end;
        end += line.len();
        let line = line.trim_end();
        match (open, line.strip_prefix("```")) {
            (None, Some(language)) => open = Some((number, language, end)),
            (Some((number, language, text)), Some(_)) => {
                open = None;
                match place.take() {
                    Some((path, below)) => pieces.push(Piece {
                        line: number,
                        path,
                        below,
                        text: &section[text..start],
                    }),
                    None if language == "rust" => return Err((number, NO_PLACE.to_owned())),
                    None => {}
                }
            }
            (None, None) if !line.is_empty() => {
                place = place_of(line);
                let row = line.strip_prefix("| `");
                rows.extend(row.and_then(|row| row.split('`').next()));
            }
            _ => {}
        }
    }
    if let Some((number, ..)) = open {
        return Err((number, "the block does not end".to_owned()));
    }
    let Some(piece) = pieces.first() else {
        return Ok(None);
    };

    let name = match piece.below {
        None => Path::new(piece.path).file_stem().and_then(OsStr::to_str),
        Some(_) => piece.text.split('"').nth(1),
    };
    let name = name.ok_or((piece.line, NO_NAME.to_owned()))?;
    let mut listed: Vec<String> = rows.iter().map(|row| row.replace("NAME", name)).collect();
    let mut touched: Vec<&str> = pieces.iter().map(|piece| piece.path).collect();
    listed.sort();
    touched.sort_unstable();
    if listed != touched {
        let error = format!("the table lists {listed:?}, and the example touches {touched:?}");
        return Err((piece.line, error));
    }
    Ok(Some(Example {
        addition,
        name,
        pieces,
    }))
}

/// Reads the line before a block.
fn place_of(line: &str) -> Option<(&str, Option<&str>)> {
    let (path, rest) = line.strip_prefix('`')?.split_once('`')?;
    if rest == ":" {
        return Some((path, None));
    }
    let below = rest.strip_prefix(", below `")?.strip_suffix("`:")?;
    Some((path, Some(below)))
}

const NO_PLACE: &str =
    "the block has no place: the line before it must read \"`FILE`:\" or \"`FILE`, below `LINE`:\"";
const NO_NAME: &str = "the block has no text in quotes, which would name the example";

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# A\n\n## Adding a thing\n\n| file | what |\n|---|---|\n| `src/NAME.rs` | x |\n\
                        | `src/list.rs` | y |\n\nText with `code`:\n\n`src/box.rs`:\n\n```rust\nfn a() {}\n\n\
                        fn b() {}\n```\n\n`src/list.rs`, below `list! {`:\n\n```rust\n    box,\n```\n\
                        \n## Adding a word\n\nText\n\n```rust no\n```\n\n## Other\n\n```rust\n```\n";

    #[test]
    fn blocks_are_found_with_their_places() {
        let sections = sections(PAGE).unwrap();
        assert_eq!(
            sections.keys().copied().collect::<Vec<_>>(),
            ["a thing", "a word"]
        );
        assert!(sections["a word"].is_none());
        let example = sections["a thing"].as_ref().unwrap();
        assert_eq!(example.name, "box");
        let pieces = [
            Piece {
                line: 14,
                path: "src/box.rs",
                below: None,
                text: "fn a() {}\n\nfn b() {}\n",
            },
            Piece {
                line: 22,
                path: "src/list.rs",
                below: Some("list! {"),
                text: "    box,\n",
            },
        ];
        assert_eq!(example.pieces, pieces);
    }

    #[test]
    fn an_example_without_files_has_the_name_in_its_text() {
        let page = PAGE.replace("`src/box.rs`:", "`src/NAME.rs`, below `{`:");
        let error = sections(&page).unwrap_err();
        assert!(
            error.starts_with(
                "CONTRIBUTING.md:14: \"Adding a thing\": the block has no text in quotes"
            ),
            "{error}"
        );
    }

    #[test]
    fn a_block_without_a_place_is_an_error() {
        let error = sections(&PAGE.replace("`src/box.rs`:", "Look:")).unwrap_err();
        assert!(
            error.starts_with("CONTRIBUTING.md:14: \"Adding a thing\": the block has no place"),
            "{error}"
        );
    }

    #[test]
    fn a_file_that_the_table_lacks_is_an_error() {
        let error = sections(&PAGE.replace("| `src/list.rs` | y |\n", "")).unwrap_err();
        assert!(
            error.contains(r#"the table lists ["src/box.rs"], and the example touches"#),
            "{error}"
        );
    }
}
