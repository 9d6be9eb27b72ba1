//! Checks of a scenario as a whole: of keys that are right by themselves and do not fit together.

use sluice_core::Span;

use crate::error::{Problem, Problems};
use crate::flow::Flow;
use crate::source::Place;
use crate::tree::{Node, Table, Value};
use crate::words::Direction;
use crate::{Link, Measure, Pipe, Scenario};

/// Reports a step of a link after the end of the run: one of the two is a mistake.
pub(crate) fn check_steps(root: &Table, scenario: &Scenario, problems: &mut Problems) {
    if problems.is_recording() {
        // An older program recorded runs with such a step in a [[hop]].
        return;
    }
    for (link, node) in scenario.links().zip(tables_of_links(root)) {
        for (key, pipe) in [("up", &link.up), ("down", &link.down)] {
            let steps = [
                ("rate", pipe.rate.last_written()),
                ("delay", pipe.delay.last_written()),
            ];
            for (name, last) in steps {
                let Some(last) = last.filter(|last| *last >= scenario.duration) else {
                    continue;
                };
                let message = format!("the {name}'s step at {last} comes after the run");
                problems.push(
                    Problem::new(place_in_link(node, key, name), message)
                        .hint(format!("the run lasts {}", scenario.duration)),
                );
            }
        }
    }
}

/// Refuses rates and delays that take turns if their steps until the end of the run would take all
/// memory. The variants of a scenario share the limit. Returns until when they are repeated: a recording
/// has ended and must be read, so the rest of too many steps is left out.
pub(crate) fn check_turns(
    root: &Table,
    links: &[&Link],
    duration: Span,
    problems: &mut Problems,
) -> Option<Span> {
    if problems.is_recording() {
        return Some(fitting_turns(links, duration));
    }
    let tables: Vec<&Node> = tables_of_links(root).collect();
    for (number, link) in links.iter().enumerate() {
        for (key, pipe) in [("up", &link.up), ("down", &link.down)] {
            let turns = [
                ("rate", pipe.rate.turns_until(duration)),
                ("delay", pipe.delay.turns_until(duration)),
            ];
            for (name, steps) in turns {
                if steps == 0 || problems.count_turns(steps) <= MOST_TURNS {
                    continue;
                }
                let at = tables
                    .get(number)
                    .map(|node| place_in_link(node, key, name));
                let message = format!("values that take turns make more than {MOST_TURNS} steps");
                let hint = format!(
                    "the {name} makes {steps} in a run of {duration}: `every` must be longer, or the run \
                     shorter"
                );
                let at = at.unwrap_or(Place::File(0..0));
                return problems.refuse(Problem::new(at, message).hint(hint));
            }
        }
    }
    Some(duration)
}

/// Returns `duration`, or until when values that take turns make at most [`MOST_TURNS`] steps.
pub(crate) fn fitting_turns(links: &[&Link], duration: Span) -> Span {
    let of = |pipe: &Pipe| {
        let rates = pipe.rate.turns_until(duration);
        rates.saturating_add(pipe.delay.turns_until(duration))
    };
    let pipes = links.iter().flat_map(|link| [&link.up, &link.down]);
    let steps = pipes.map(of).fold(0, u64::saturating_add);
    if steps <= MOST_TURNS {
        return duration;
    }
    let part = u128::from(duration.as_ns()) * u128::from(MOST_TURNS) / u128::from(steps);
    Span::from_ns(part as u64)
}

/// Refuses a comparison of flows in so many windows that it would take all memory.
pub(crate) fn check_windows(root: &Table, scenario: &Scenario, problems: &mut Problems) {
    // The run of a recording may have ended long before its planned end.
    let values = scenario.compared_until(scenario.duration);
    if problems.is_recording() || values <= Scenario::MOST_COMPARED {
        return;
    }
    let own = root
        .node("measure")
        .and_then(|node| node.as_table()?.node("step"));
    let at = own.or(root.node("duration")).map(|node| node.at.clone());
    let message = format!(
        "the goodputs of the flows in windows are more than {} values",
        Scenario::MOST_COMPARED
    );
    let hint = format!(
        "they are {values} in a run of {}: `step` and `window` in [measure] must be longer, or the run \
         shorter",
        scenario.duration
    );
    problems.push(Problem::new(at.unwrap_or(Place::File(0..0)), message).hint(hint));
}

impl Scenario {
    /// The most values of a comparison ([`Scenario::compared_until`]) in a scenario that is not
    /// recorded: 16 bytes each, 1.6 GB in all.
    pub const MOST_COMPARED: u64 = 100_000_000;

    /// Returns how many values the comparison of bulk flows in windows has in a run until `end`.
    pub fn compared_until(&self, end: Span) -> u64 {
        // Some windows follow each other without a gap, at whatever `step` the others begin.
        let step = self.measure.step.min(self.measure.window);
        let windows = end.as_ns() / step.as_ns().max(1);
        let bulk = self.flows.iter().filter(|flow| flow.kind.is_bulk());
        match bulk.map(|flow| flow.count).fold(0, u64::saturating_add) {
            // Their sojourn times are averaged in windows without an overlap.
            0 | 1 => end.as_ns() / self.measure.window.as_ns().max(1),
            // The window itself takes as much as four values.
            flows => windows.saturating_mul(flows.saturating_add(4)),
        }
    }
}

/// Returns the tables of the links, in the order of the path up.
fn tables_of_links(root: &Table) -> impl Iterator<Item = &Node> {
    let hops: &[Node] = match root.node("hop").map(|node| &node.value) {
        Some(Value::Array(items)) => items,
        _ => &[],
    };
    root.node("link").into_iter().chain(hops)
}

/// Returns the position of a key in the direction `direction` of the link `link`, or in the link, or
/// that of the link without the key.
fn place_in_link(link: &Node, direction: &str, key: &str) -> Place {
    let table = link.as_table();
    let own = table
        .and_then(|link| link.node(direction)?.as_table()?.node(key))
        .or_else(|| table?.node(key));
    own.unwrap_or(link).at.clone()
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

/// The most steps of values that take turns: 24 bytes each, 1.2 GB in all.
const MOST_TURNS: u64 = 50_000_000;
