//! The names of flows.

use std::ops::RangeInclusive;

use super::super::tree::{Node, Table, Value};
use super::super::words::PipeId;
use super::Flow;

/// Names each flow that has no name: its type, with a number if several have none.
pub(crate) fn name_all(root: &mut Table) {
    let Some(entry) = root.0.iter_mut().find(|entry| entry.key == "flow") else {
        return;
    };
    let Value::Array(items) = &mut entry.node.value else {
        return;
    };
    let type_of = |table: &Table| match table.node("type").map(|node| &node.value) {
        Some(Value::Text(word)) => word.clone(),
        _ => "flow".to_owned(),
    };
    let unnamed: Vec<String> = items
        .iter()
        .filter_map(Node::as_table)
        .filter(|table| table.node("name").is_none())
        .map(type_of)
        .collect();
    let mut seen: Vec<String> = Vec::new();
    for item in items.iter_mut() {
        let at = item.at.clone();
        let Value::Table(table) = &mut item.value else {
            continue;
        };
        if table.node("name").is_some() {
            continue;
        }
        let word = type_of(table);
        seen.push(word.clone());
        let number = seen.iter().filter(|w| **w == word).count();
        let name = match unnamed.iter().filter(|w| **w == word).count() {
            1 => word,
            _ => format!("{word}{number}"),
        };
        let name = Node {
            value: Value::Text(name),
            at: at.clone(),
            text_at: None,
        };
        table.set("name", at, name);
    }
}

/// Returns the names of the single flows.
pub(crate) fn instance_names(flow: &Flow) -> impl Iterator<Item = String> + '_ {
    let numbers: RangeInclusive<u64> = 1..=flow.count;
    numbers.map(|number| match flow.count {
        1 => flow.name.clone(),
        _ => format!("{}-{number}", flow.name),
    })
}

/// Returns whether `name` is that of a direction of a `[[hop]]` of the scenario, such as `up2`.
pub(super) fn is_of_hop(name: &str, root: &Table) -> bool {
    let hops = match root.node("hop").map(|node| &node.value) {
        Some(Value::Array(hops)) => hops.len(),
        _ => 0,
    };
    PipeId::from_word(name).is_some_and(|pipe| (1..=hops).contains(&pipe.hop()))
}

/// First words of metrics that do not belong to a flow.
pub(super) const RESERVED: &[&str] = &["up", "down", "total", "jain", "accuracy"];
