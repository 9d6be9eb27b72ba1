//! Checks of a scenario as a whole: of keys that are right by themselves and do not fit together.

use crate::error::{Problem, Problems};
use crate::flow::Flow;
use crate::source::Place;
use crate::tree::{Node, Table, Value};
use crate::words::Direction;
use crate::{Measure, Scenario};

/// Reports a step of a link after the end of the run: one of the two is a mistake.
pub(crate) fn check_steps(root: &Table, scenario: &Scenario, problems: &mut Problems) {
    if problems.is_recording() {
        // An older program recorded runs with such a step in a [[hop]].
        return;
    }
    let hops: &[Node] = match root.node("hop").map(|node| &node.value) {
        Some(Value::Array(items)) => items,
        _ => &[],
    };
    let tables = root.node("link").into_iter().chain(hops);
    for (link, node) in scenario.links().zip(tables) {
        for (key, pipe) in [("up", &link.up), ("down", &link.down)] {
            let steps = [
                ("rate", pipe.rate.last_written()),
                ("delay", pipe.delay.last_written()),
            ];
            for (name, last) in steps {
                let Some(last) = last.filter(|last| *last >= scenario.duration) else {
                    continue;
                };
                let table = node.as_table();
                let own = table
                    .and_then(|link| link.node(key)?.as_table()?.node(name))
                    .or_else(|| table?.node(name));
                let message = format!("the {name}'s step at {last} comes after the run");
                problems.push(
                    Problem::new(own.unwrap_or(node).at.clone(), message)
                        .hint(format!("the run lasts {}", scenario.duration)),
                );
            }
        }
    }
}

/// Checks that the links and hosts that a flow names exist, and that its round trip is not below
/// that of its links.
pub(crate) fn check_paths(root: &Table, scenario: &Scenario, problems: &mut Problems) {
    let Some(Value::Array(items)) = root.node("flow").map(|node| &node.value) else {
        return;
    };
    for (flow, node) in scenario.flows.iter().zip(items) {
        let at = |key| {
            let own = node.as_table().and_then(|table| table.node(key));
            own.unwrap_or(node).at.clone()
        };
        let links = scenario.hops.len() + 1;
        if let Some(hops) = flow.hops
            && hops.last > links as u64
        {
            let message = format!("flow `{}` passes link {}", flow.name, hops.last);
            let hint = match links {
                1 => "[link] is the only one; [[hop]] adds others".to_owned(),
                n => format!("there are {n}: [link] and those of [[hop]]"),
            };
            problems.push(Problem::new(at("hops"), message).hint(hint));
            continue;
        }
        for (key, side, number) in [
            ("host_up", Direction::Up, flow.host_up),
            ("host_down", Direction::Down, flow.host_down),
        ] {
            let hosts = scenario.hosts.on(side);
            if number > hosts {
                let message = format!("there is no host {number} for flow `{}`", flow.name);
                let hint = match hosts {
                    1 => format!("`{side}` in [hosts] is 1: set it to {number} or more"),
                    n => format!("`{side}` in [hosts] is {n}: hosts 1 to {n}"),
                };
                problems.push(Problem::new(at(key), message).hint(hint));
            } else if number > 1 && flow.kind.has_own_addresses() {
                let message = format!("flow `{}` cannot be on host {number}", flow.name);
                let hint = "a program has an address of its own, as another host has";
                problems.push(Problem::new(at(key), message).hint(hint));
            }
        }
        let least = scenario.links_rtt(flow);
        if flow.rtt.is_some_and(|rtt| rtt < least) {
            let message = format!(
                "the `rtt` of flow `{}` is below that of its links",
                flow.name
            );
            problems.push(Problem::new(at("rtt"), message).hint(format!("they take {least}")));
        }
    }
}

/// Checks that a flow that does not end by itself lasts longer than the warm-up; otherwise nothing
/// of it is measured.
pub(crate) fn check_warmup(
    root: &Table,
    flows: &[Flow],
    measure: &Measure,
    problems: &mut Problems,
) {
    let Some(Value::Array(items)) = root.node("flow").map(|node| &node.value) else {
        return;
    };
    for (flow, node) in flows.iter().zip(items) {
        if flow.kind.is_sized() || flow.life() > measure.warmup {
            continue;
        }
        let message = format!(
            "flow `{}` lasts {}, and its warm-up is {}",
            flow.name,
            flow.life(),
            measure.warmup
        );
        let key = |key| node.as_table().and_then(|table| table.node(key));
        let at = key("stop").or(key("start")).unwrap_or(node).at.clone();
        problems.push(
            Problem::new(at, message)
                .hint("it must last longer, or `warmup` in [measure] be shorter"),
        );
    }
}

/// Returns the position of `[table] key`, or of the table without the key.
pub(crate) fn place(root: &Table, table: &str, key: &str) -> Place {
    let Some(node) = root.node(table) else {
        return Place::File(0..0);
    };
    let key = node.as_table().and_then(|table| table.node(key));
    key.unwrap_or(node).at.clone()
}
