//! Sets keys by their path: `--set link.rate=10Mbit/s` and the axes of `[matrix]`.

use super::each_way;
use super::error::{Problem, Problems};
use super::link::half_of;
use super::schedule::Delays;
use super::schema::Field;
use super::source::Place;
use super::tree::{Node, Table, Value, parse_option};
use super::words::Direction;

/// An override that the user gave as option number `number`.
pub(crate) struct Override {
    pub path: String,
    pub path_at: Place,
    pub node: Node,
}

impl Override {
    pub fn parse(option: &str, number: usize, problems: &mut Problems) -> Option<Override> {
        let whole = Place::Option(number, 0..option.len());
        let Some((path, _)) = option.split_once('=') else {
            return problems.refuse(
                Problem::new(whole, "an override needs `=`")
                    .hint("write it as KEY=VALUE, such as link.rate=10Mbit/s"),
            );
        };
        let value_at = path.len() + 1;
        let value_at =
            value_at + (option[value_at..].len() - option[value_at..].trim_start().len());
        Some(Override {
            path: path.trim().to_owned(),
            path_at: Place::Option(number, 0..path.trim_end().len()),
            node: parse_option(option, value_at, number),
        })
    }
}

/// Sets the key at `path` (dotted, `flow.NAME.key` for a flow) to `node`. A key of a link, such as
/// `link.queue`, is set for both directions, also where `[link.up]` has its own. A key that does not
/// exist is reported when the tree is read.
pub(crate) fn set_path(
    root: &mut Table,
    path: &str,
    path_at: &Place,
    node: &Node,
    problems: &mut Problems,
) {
    let segments: Vec<&str> = path.split('.').map(str::trim).collect();
    if segments.iter().any(|segment| segment.is_empty()) {
        let message = format!("`{path}` is not a key");
        problems.push(
            Problem::new(path_at.clone(), message).hint("write it as in link.rate or flow.NAME.cc"),
        );
        return;
    }
    if let Some((queue, word)) = word_of_queue(path) {
        return set_word(root, queue, word, path_at, node, problems);
    }
    if let ["flow", words @ ..] = segments.as_slice()
        && !words.is_empty()
    {
        return set_in_flow(root, words, (path, path_at), node, problems);
    }
    if let ["hop", number, rest @ ..] = segments.as_slice()
        && !rest.is_empty()
    {
        let Some(table) = find_hop(root, number, path_at, problems) else {
            return;
        };
        set_for_both(table, rest, path_at);
        replace_delay(table, rest, path_at, problems);
        return set_in(table, rest, path, path_at, node, problems);
    }
    if let ["link", rest @ ..] = segments.as_slice()
        && let Some(table) = root.table_mut("link")
    {
        set_for_both(table, rest, path_at);
        replace_delay(table, rest, path_at, problems);
    }
    set_in(root, &segments, path, path_at, node, problems)
}

/// Sets a key of a flow, whose name may have dots of its own. A key of a flow that was in both
/// directions is set for the two flows that it has become.
fn set_in_flow(
    root: &mut Table,
    words: &[&str],
    (path, path_at): (&str, &Place),
    node: &Node,
    problems: &mut Problems,
) {
    // The longest name that leaves a key.
    let names = (1..words.len()).rev().chain([words.len()]);
    let mut found = (vec![words[0].to_owned()], 1);
    for count in names {
        let name = words[..count].join(".");
        each_way::split_for(root, &name);
        let both = each_way::names(&name);
        if has_flow(root, &name) {
            found = (vec![name], count);
            break;
        }
        if words[count..] != ["direction"] && both.iter().all(|name| has_flow(root, name)) {
            found = (both.into(), count);
            break;
        }
    }
    let (names, count) = found;
    for name in &names {
        let Some(table) = find_flow(root, name, path_at, problems) else {
            return;
        };
        if words.len() == count {
            let message = format!("`{path}` is a flow, not a key");
            problems
                .push(Problem::new(path_at.clone(), message).hint(format!("such as {path}.start")));
            return;
        }
        set_in(table, &words[count..], path, path_at, node, problems);
    }
}

/// Removes a key of a link from the tables of its directions, so that its new value, which is set at
/// `at`, applies to both. What the user has set stays beside an axis of the scenario.
fn set_for_both(link: &mut Table, key: &[&str], at: &Place) {
    let [key] = key else { return };
    let is_user_s = |at: &Place| matches!(at, Place::Option(..));
    for way in ["up", "down"] {
        if let Some(own) = link.table_mut(way)
            && let Some(entry) = own.find(key)
            && (is_user_s(at) || !is_user_s(&entry.key_at))
        {
            own.remove(key);
        }
    }
}

/// Removes the keys of a link that a new `rtt` or `delay` of the user replaces: `rtt` is the delay of
/// both directions in another form. Within a file, one contradicts the other.
fn replace_delay(link: &mut Table, key: &[&str], at: &Place, problems: &mut Problems) {
    if !matches!(at, Place::Option(..)) {
        return;
    }
    match key {
        ["rtt"] => {
            link.remove("delay");
            for way in ["up", "down"] {
                if let Some(own) = link.table_mut(way) {
                    own.remove("delay");
                }
            }
        }
        ["delay"] => {
            link.remove("rtt");
        }
        ["up", "delay"] => keep_half(link, Direction::Down, problems),
        ["down", "delay"] => keep_half(link, Direction::Up, problems),
        _ => {}
    }
}

/// Replaces `rtt` by the delay of the direction that keeps its half of it. An `rtt` that is wrong, or
/// contradicts a `delay`, stays, and is reported when the tree is read.
fn keep_half(link: &mut Table, way: Direction, problems: &mut Problems) {
    let has_delay = |node: &Node| {
        node.as_table()
            .is_none_or(|own| own.find("delay").is_some())
    };
    if link.find("delay").is_some() || link.node(way.word()).is_some_and(has_delay) {
        return;
    }
    let Some(rtt) = link.find("rtt") else { return };
    let half = Delays::read("rtt", &rtt.node, &mut problems.beside());
    let Some(half) = half.and_then(|rtt| half_of(&rtt, way).write()) else {
        return;
    };
    let key_at = rtt.key_at.clone();
    let node = Node {
        value: half,
        at: rtt.node.at.clone(),
        text_at: None,
    };
    link.remove("rtt");
    set_in(
        link,
        &[way.word(), "delay"],
        "rtt",
        &key_at,
        &node,
        problems,
    );
}

/// Splits the path of a queue's parameter: `link.queue.target` is the parameter `target` of
/// `link.queue`.
pub(crate) fn word_of_queue(path: &str) -> Option<(&str, &str)> {
    let (queue, word) = path.rsplit_once('.')?;
    let is_queue = queue.ends_with(".queue") && !path.starts_with("flow.");
    is_queue.then_some((queue, word))
}

/// Sets a parameter in the text of a queue. A parameter of `link.queue` is set in the queues of
/// both directions.
fn set_word(
    root: &mut Table,
    queue: &str,
    word: &str,
    path_at: &Place,
    node: &Node,
    problems: &mut Problems,
) {
    let segments: Vec<&str> = queue.split('.').collect();
    let table = match segments.as_slice() {
        ["hop", number, ..] => match find_hop(root, number, path_at, problems) {
            Some(table) => Some(table),
            None => return,
        },
        [name, ..] => root.table_mut(name),
        [] => None,
    };
    let own = segments[..segments.len() - 1].last().copied();
    let mut is_found = false;
    if let Some(table) = table {
        let shared = table.node("queue").cloned();
        let is_way = own.is_some_and(|own| matches!(own, "up" | "down"));
        for way in ["up", "down"] {
            if is_way && own != Some(way) {
                continue;
            }
            let has_own = table
                .node(way)
                .and_then(Node::as_table)
                .is_some_and(|t| t.find("queue").is_some());
            if is_way
                && !has_own
                && let Some(shared) = &shared
            {
                set_in(table, &[way, "queue"], queue, path_at, shared, problems);
            }
            if let Some(inner) = table.table_mut(way)
                && let Some(entry) = inner.0.iter_mut().find(|entry| entry.key == "queue")
            {
                is_found |= edit_word(&mut entry.node, word, node);
            }
        }
        if !is_way && let Some(entry) = table.0.iter_mut().find(|entry| entry.key == "queue") {
            is_found |= edit_word(&mut entry.node, word, node);
        }
    }
    if !is_found {
        let message = format!("there is no queue whose `{word}` could be set");
        let hint = format!("give `{queue}`, such as \"fq_codel\"");
        problems.push(Problem::new(path_at.clone(), message).hint(hint));
    }
}

/// Sets a parameter in the text of a queue. Returns whether there is a text.
fn edit_word(queue: &mut Node, word: &str, value: &Node) -> bool {
    let Value::Text(text) = &queue.value else {
        return false;
    };
    let mut words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    let off = format!("no{word}");
    if let Value::Bool(is_on) = value.value {
        words.retain(|other| *other != word && *other != off);
        words.push(if is_on { word.to_owned() } else { off });
    } else {
        let shown = value.value.to_string();
        let place = words.iter().skip(1).position(|other| other == word);
        match place.map(|place| place + 2) {
            Some(place) if place < words.len() => words[place] = shown,
            _ => words.extend([word.to_owned(), shown]),
        }
    }
    // An error in the text comes from the value that was put into it.
    *queue = Node {
        value: Value::Text(words.join(" ")),
        at: value.at.clone(),
        text_at: None,
    };
    true
}

fn set_in(
    table: &mut Table,
    segments: &[&str],
    path: &str,
    path_at: &Place,
    node: &Node,
    problems: &mut Problems,
) {
    let [first, rest @ ..] = segments else {
        return;
    };
    if rest.is_empty() {
        table.set(first, path_at.clone(), node.clone());
        return;
    }
    if table.find(first).is_none() {
        let empty = Node {
            value: Value::Table(Table::default()),
            at: path_at.clone(),
            text_at: None,
        };
        table.set(first, path_at.clone(), empty);
    }
    let entry = table.0.iter_mut().find(|entry| entry.key == *first);
    match entry.map(|entry| &mut entry.node.value) {
        Some(Value::Table(inner)) => set_in(inner, rest, path, path_at, node, problems),
        _ => {
            let message = format!("there is no key `{path}`");
            let hint = format!("`{first}` is not a table of single keys");
            problems.push(Problem::new(path_at.clone(), message).hint(hint));
        }
    }
}

/// Returns the table of the `[[hop]]` with this number. Numbers start at 2, since `[link]` is the
/// first link.
fn find_hop<'t>(
    root: &'t mut Table,
    number: &str,
    path_at: &Place,
    problems: &mut Problems,
) -> Option<&'t mut Table> {
    let entry = root.0.iter_mut().find(|entry| entry.key == "hop");
    let items = match entry.map(|entry| &mut entry.node.value) {
        Some(Value::Array(items)) => items.as_mut_slice(),
        _ => &mut [],
    };
    let last = items.len() + 1;
    let index = number.parse::<usize>().ok().and_then(|n| n.checked_sub(2));
    match index
        .and_then(|index| items.get_mut(index))
        .map(|node| &mut node.value)
    {
        Some(Value::Table(table)) => Some(table),
        _ => {
            let hint = match last {
                1 => "the scenario has no [[hop]]".to_owned(),
                last => format!("hops are numbered from 2, after [link], to {last}"),
            };
            let problem = Problem::new(path_at.clone(), format!("there is no hop `{number}`"));
            problems.refuse(problem.hint(hint))
        }
    }
}

fn name_of(flow: &Node) -> Option<&str> {
    match &flow.as_table()?.node("name")?.value {
        Value::Text(name) => Some(name),
        _ => None,
    }
}

fn has_flow(root: &Table, name: &str) -> bool {
    let flows = root.node("flow").map(|node| &node.value);
    match flows {
        Some(Value::Array(flows)) => flows.iter().any(|flow| name_of(flow) == Some(name)),
        _ => false,
    }
}

fn find_flow<'t>(
    root: &'t mut Table,
    name: &str,
    path_at: &Place,
    problems: &mut Problems,
) -> Option<&'t mut Table> {
    let entry = root.0.iter_mut().find(|entry| entry.key == "flow");
    let items = match entry.map(|entry| &mut entry.node.value) {
        Some(Value::Array(items)) => items.as_mut_slice(),
        _ => &mut [],
    };
    let Some(index) = items.iter().position(|node| name_of(node) == Some(name)) else {
        let names: Vec<&str> = items.iter().filter_map(name_of).collect();
        let problem = Problem::new(path_at.clone(), format!("there is no flow `{name}`"));
        return problems.refuse(problem.nearest(name, names));
    };
    match &mut items[index].value {
        Value::Table(table) => Some(table),
        _ => None,
    }
}
