//! Flows with `direction = "both"`: such a flow is two, `NAME-up` and `NAME-down`.
//!
//! It is split as late as possible, so that `--set`, `[matrix]` and `[[variant]]` can set its keys for
//! both flows, and its direction. A key of one of the two splits it.

use super::tree::{Node, Table, Value};

/// Splits all flows in both directions.
pub(crate) fn split_all(root: &mut Table) {
    if let Some(flows) = flows(root) {
        *flows = flows.drain(..).flat_map(split).collect();
    }
}

/// Splits the flow in both directions of which `name` is one of the two.
pub(crate) fn split_for(root: &mut Table, name: &str) {
    let shared = WAYS.iter().find_map(|way| name.strip_suffix(*way));
    let (Some(shared), Some(flows)) = (shared, flows(root)) else {
        return;
    };
    let is_it = |flow: &Node| {
        let table = flow.as_table();
        table.and_then(|table| text(table, "name")) == Some(shared)
    };
    if let Some(place) = flows.iter().position(is_it) {
        let both = split(flows[place].clone());
        flows.splice(place..=place, both);
    }
}

/// Returns the names of the two flows.
pub(crate) fn names(shared: &str) -> [String; 2] {
    WAYS.map(|way| format!("{shared}{way}"))
}

fn split(flow: Node) -> Vec<Node> {
    let Value::Table(table) = &flow.value else {
        return vec![flow];
    };
    let (Some("both"), Some(name)) = (text(table, "direction"), text(table, "name")) else {
        return vec![flow];
    };
    let way = |way: &str| {
        let mut table = table.clone();
        for entry in &mut table.0 {
            match entry.key.as_str() {
                "direction" => entry.node.value = Value::text(way.trim_start_matches('-')),
                "name" => entry.node.value = Value::text(format!("{name}{way}")),
                _ => {}
            }
        }
        Node {
            value: Value::Table(table),
            ..flow.clone()
        }
    };
    WAYS.map(way).into()
}

fn text<'t>(table: &'t Table, key: &str) -> Option<&'t str> {
    match &table.node(key)?.value {
        Value::Text(text) => Some(text),
        _ => None,
    }
}

fn flows(root: &mut Table) -> Option<&mut Vec<Node>> {
    let entry = root.0.iter_mut().find(|entry| entry.key == "flow")?;
    match &mut entry.node.value {
        Value::Array(flows) => Some(flows),
        _ => None,
    }
}

const WAYS: [&str; 2] = ["-up", "-down"];
