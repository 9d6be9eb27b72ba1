//! The names of flows.

use std::collections::BTreeMap;
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
    // Of each word: how many flows without a name there are, and how many have theirs now.
    let mut counts: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    let unnamed = items.iter().filter_map(Node::as_table);
    for table in unnamed.filter(|table| table.node("name").is_none()) {
        counts.entry(type_of(table)).or_default().0 += 1;
    }
    for item in items.iter_mut() {
        let at = item.at.clone();
        let Value::Table(table) = &mut item.value else {
            continue;
        };
        if table.node("name").is_some() {
            continue;
        }
        let word = type_of(table);
        let (all, number) = counts.entry(word.clone()).or_default();
        *number += 1;
        let name = match *all {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_thousand_flows_are_named_in_one_pass() {
        // To compare each with all others would take minutes.
        let flow = |word: &str| {
            let mut table = Table::default();
            table.push("type", Value::text(word));
            Node::from(Value::Table(table))
        };
        let mut flows: Vec<Node> = (0..100_000).map(|_| flow("ping")).collect();
        flows.insert(1, flow("tcp"));
        let mut root = Table::default();
        root.push("flow", Value::Array(flows));
        name_all(&mut root);
        let Some(Value::Array(flows)) = root.node("flow").map(|node| &node.value) else {
            panic!("the flows are there");
        };
        let name = |at: usize| {
            let table = flows[at].as_table().expect("a flow is a table");
            table.node("name").map(|node| node.value.clone())
        };
        let expected = [
            (0, "ping1"),
            (1, "tcp"),
            (2, "ping2"),
            (100_000, "ping100000"),
        ];
        for (at, word) in expected {
            assert_eq!(name(at), Some(Value::text(word)));
        }
    }
}
