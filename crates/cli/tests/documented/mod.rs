//! Compares docs/json.md with the JSON that the program writes.
#![allow(dead_code, reason = "each user needs a part of it")]

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// Returns a section of the page.
///
/// # Panics
/// There is none with this heading.
pub fn section(heading: &str) -> &'static str {
    let start = format!("\n## {heading}\n");
    let found = PAGE.split_once(&start);
    let (_, rest) = found.unwrap_or_else(|| panic!("docs/json.md has no section {heading}"));
    rest.split("\n## ").next().unwrap_or(rest)
}

/// Returns the keys in the first column of the tables of a section.
pub fn named(heading: &str) -> BTreeSet<String> {
    let rows = section(heading).lines();
    let rows = rows.filter(|row| row.starts_with("| `"));
    let cells = rows.filter_map(|row| row.split('|').nth(1));
    cells.flat_map(words).collect()
}

/// Returns the words in backticks.
pub fn words(text: &str) -> impl Iterator<Item = String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned)
}

/// Adds the keys of an object, and of all objects in it.
pub fn add_keys(json: &Value, found: &mut BTreeSet<String>) {
    match json {
        Value::Object(members) => {
            for (key, value) in members {
                found.insert(key.clone());
                add_keys(value, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| add_keys(item, found)),
        _ => {}
    }
}

/// Asserts that the page names exactly the keys of lines of the log: those of each kind are all keys of
/// the lines of this kind together.
///
/// # Panics
/// It does not, or a line has no kind or no time.
pub fn check_log(text: &str) {
    let mut kinds: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in text.lines() {
        let json: Value = serde_json::from_str(line).expect("an object");
        let kind = json["log"].as_str().expect("a line has a kind").to_owned();
        assert!(json["unix_ms"].is_u64(), "{line}");
        add_keys(&json, kinds.entry(kind).or_default());
    }
    for (kind, keys) in kinds {
        let rows = section("Lines of the log").lines();
        let of_kind = format!("`{kind}`");
        let cells = rows.map(|row| row.split('|').skip(1).collect::<Vec<_>>());
        let cells = cells.filter(|cells| cells.len() > 2);
        let cells = cells.filter(|cells| cells[0].trim() == "all" || cells[0].contains(&of_kind));
        let named: BTreeSet<String> = cells.flat_map(|cells| words(cells[1])).collect();
        assert_eq!(named, keys, "the keys of `{kind}` in docs/json.md");
    }
}

const PAGE: &str = include_str!("../../../../docs/json.md");
