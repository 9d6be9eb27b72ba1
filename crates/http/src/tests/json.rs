//! The page of JSON names the keys of the answers.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use sluice_ipfw::ObjectCommand;
use sluice_router::process::watch::{ObjectSample, PortSample, Sample};

use crate::control::{self, Changed};
use crate::history::History;

/// Returns the keys in the first column of the tables of a section.
fn named(heading: &str) -> BTreeSet<String> {
    let page = include_str!("../../../../docs/json.md");
    let found = page.split_once(&format!("\n## {heading}\n"));
    let (_, rest) = found.unwrap_or_else(|| panic!("docs/json.md has no section {heading}"));
    let section = rest.split("\n## ").next().unwrap_or(rest);
    let rows = section.lines().filter(|row| row.starts_with("| `"));
    let cells = rows.filter_map(|row| row.split('|').nth(1));
    let words = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    words.map(str::to_owned).collect()
}

/// Returns the keys of objects.
fn keys<'a>(objects: impl IntoIterator<Item = &'a Value>) -> BTreeSet<String> {
    let objects = objects.into_iter();
    let keys = objects.flat_map(|object| object.as_object().expect("an object").keys());
    keys.cloned().collect()
}

#[test]
fn the_page_of_json_has_the_keys_of_the_history() {
    let mut object = ObjectSample {
        name: "pipe 1".to_owned(),
        state: [("count".to_owned(), 1.0)].into(),
        ..ObjectSample::default()
    };
    object.traffic.dropped.insert("overflow".to_owned(), 1);
    let mut history = History::default();
    history.add(&Sample {
        unix_ms: 1000,
        ports: vec![PortSample::default()],
        objects: vec![object],
        ..Sample::default()
    });
    let answer: Value = serde_json::from_str(&history.json()).unwrap();
    let series = answer["series"].as_array().unwrap();
    let of_pipe = series.iter().find(|series| series["name"] == "pipe 1");
    let variable = &of_pipe.unwrap()["state"]["count"];
    let found = keys(series.iter().chain([&answer, variable]));
    assert_eq!(named("History of the page"), found);
}

#[test]
fn the_page_of_json_has_the_keys_of_changes() {
    let form: Value = serde_json::from_str(&control::form(None).body).unwrap();
    let object = serde_json::to_value(ObjectCommand {
        name: "pipe 1".to_owned(),
        rate: None,
        settings: String::new(),
        algorithm: "droptail".to_owned(),
    });
    let changed = serde_json::to_value(Changed {
        reply: json!({}),
        undo: None,
    });
    let found = keys([&form, &object.unwrap(), &changed.unwrap()]);
    assert_eq!(named("Changes by the page"), found);
}
