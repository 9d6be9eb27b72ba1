//! The generic form of a scenario: a tree of values that remember where they were written.
//!
//! A TOML file, the `--set` options and the JSON in a recording all become this tree. The typed
//! scenario is read from it and written back to it. With its [`Place`], every error points at the
//! word that caused it.

use std::fmt::{self, Write as _};
use std::ops::Range;

use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use toml::de::{DeTable, DeValue};
use toml_writer::{TomlKeyBuilder, TomlStringBuilder, TomlWrite as _};

use super::error::{Problem, Problems};
use super::source::Place;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Text(String),
    Integer(i64),
    Float(f64),
    Bool(bool),
    /// A TOML date or time, which no key accepts.
    Date(String),
    Array(Vec<Node>),
    Table(Table),
}

/// A value and its place.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub value: Value,
    pub at: Place,
    /// Byte range of a string's characters within its place, if nothing in it is escaped.
    pub text_at: Option<Place>,
}

/// Keys and values in the order of the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Table(pub Vec<Entry>);

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub key: String,
    pub key_at: Place,
    pub node: Node,
}

impl Value {
    /// Returns the kind of value for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Text(_) => "a string",
            Value::Integer(_) => "a whole number",
            Value::Float(_) => "a decimal number",
            Value::Bool(_) => "a boolean",
            Value::Date(_) => "a date",
            Value::Array(_) => "an array",
            Value::Table(_) => "a table",
        }
    }

    pub fn text(text: impl fmt::Display) -> Value {
        Value::Text(text.to_string())
    }
}

impl From<Value> for Node {
    fn from(value: Value) -> Self {
        Node {
            value,
            at: Place::Nowhere,
            text_at: None,
        }
    }
}

impl Node {
    /// Returns the place of `range` within this text, or of the whole value if the place is not
    /// known that exactly.
    pub fn within(&self, range: Range<usize>) -> Place {
        let shift = |whole: &Range<usize>| whole.start + range.start..whole.start + range.end;
        match &self.text_at {
            Some(Place::File(whole)) => Place::File(shift(whole)),
            Some(Place::Option(number, whole)) => Place::Option(*number, shift(whole)),
            Some(Place::Nowhere) | None => self.at.clone(),
        }
    }

    pub fn as_table(&self) -> Option<&Table> {
        match &self.value {
            Value::Table(table) => Some(table),
            _ => None,
        }
    }
}

impl Table {
    pub fn find(&self, key: &str) -> Option<&Entry> {
        self.0.iter().find(|entry| entry.key == key)
    }

    pub fn node(&self, key: &str) -> Option<&Node> {
        self.find(key).map(|entry| &entry.node)
    }

    /// Sets `key`. An existing key keeps its position.
    pub fn set(&mut self, key: &str, key_at: Place, node: Node) {
        match self.0.iter_mut().find(|entry| entry.key == key) {
            Some(entry) => {
                entry.key_at = key_at;
                entry.node = node;
            }
            None => self.0.push(Entry {
                key: key.to_owned(),
                key_at,
                node,
            }),
        }
    }

    pub fn table_mut(&mut self, key: &str) -> Option<&mut Table> {
        let entry = self.0.iter_mut().find(|entry| entry.key == key)?;
        match &mut entry.node.value {
            Value::Table(table) => Some(table),
            _ => None,
        }
    }

    /// Adds a key to a table that is being written.
    pub fn push(&mut self, key: &str, value: Value) {
        self.set(key, Place::Nowhere, value.into());
    }

    pub fn remove(&mut self, key: &str) -> Option<Entry> {
        let index = self.0.iter().position(|entry| entry.key == key)?;
        Some(self.0.remove(index))
    }
}

/// Parses a TOML text. Reports all wrong values up to the first error of another kind, because such
/// an error makes what follows look wrong, too. Returns no tree if there are any errors.
pub(crate) fn parse(text: &str, problems: &mut Problems) -> Option<Table> {
    let (table, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        return Some(from_table(table.get_ref(), text));
    }
    let place_of = |error: &toml::de::Error| {
        let range = error.span().unwrap_or(0..0);
        let start = range.start.min(text.len());
        start..range.end.clamp(start, text.len())
    };
    let mut errors: Vec<_> = errors
        .iter()
        .map(|error| (place_of(error), error))
        .collect();
    errors.sort_by_key(|(range, _)| range.start);
    for (range, error) in errors {
        let place = Place::File(range.clone());
        let found = &text[range.clone()];
        if !error.message().starts_with("string values must be quoted") {
            problems.push(syntax_problem(text, range, error.message()));
            break;
        }
        problems.push(match found {
            "" => Problem::new(place, "a value is missing"),
            _ => Problem::new(place, "a string must be quoted").hint(format!("write \"{found}\"")),
        });
    }
    None
}

/// Returns the problem for an error of the parser at `range`, with what would be right as far as the
/// line shows it.
fn syntax_problem(text: &str, range: Range<usize>, message: &str) -> Problem {
    let start = text[..range.start].rfind('\n').map_or(0, |at| at + 1);
    let line = text[start..].lines().next().unwrap_or_default();
    let line = line.split('#').next().unwrap_or_default().trim();
    let table = line.trim_matches(['[', ']', ' ']);
    let is_header = line.starts_with('[');
    let problem = Problem::new(Place::File(range), format!("not TOML: {message}"));
    if is_header && message.starts_with("duplicate key") && LISTS.contains(&table) {
        return problem.hint(format!("`{table}` is a list: write each as [[{table}]]"));
    }
    if is_header && message.starts_with("unclosed array table") {
        return problem.hint(format!("write [[{table}]]"));
    }
    if is_header && message.starts_with("unclosed table") {
        return problem.hint(format!("write [{table}]"));
    }
    match message.contains("array") {
        true => problem.hint("a `,` or a `]` is missing before it"),
        false => problem,
    }
}

/// The keys of a scenario that are lists of tables.
const LISTS: &[&str] = &["hop", "flow", "expect", "variant", "picture"];

fn from_table(table: &DeTable<'_>, text: &str) -> Table {
    let mut entries: Vec<(usize, Entry)> = table
        .iter()
        .map(|(key, value)| {
            let entry = Entry {
                key: key.get_ref().to_string(),
                key_at: Place::File(key.span()),
                node: from_value(value.get_ref(), value.span(), text),
            };
            (key.span().start, entry)
        })
        .collect();
    entries.sort_by_key(|(start, _)| *start);
    Table(entries.into_iter().map(|(_, entry)| entry).collect())
}

fn from_value(value: &DeValue<'_>, span: Range<usize>, text: &str) -> Node {
    let mut text_at = None;
    let at = Place::File(span.clone());
    let value = match value {
        DeValue::String(s) => {
            let inner = span.start + 1..span.end.saturating_sub(1);
            if text.get(inner.clone()) == Some(s.as_ref()) {
                text_at = Some(Place::File(inner));
            }
            Value::Text(s.to_string())
        }
        DeValue::Integer(i) => match i64::from_str_radix(i.as_str(), i.radix()) {
            Ok(i) => Value::Integer(i),
            // Kept as a float, which every range check refuses because of its size.
            Err(_) => Value::Float(i.as_str().parse().unwrap_or(f64::INFINITY)),
        },
        DeValue::Float(f) => Value::Float(f.as_str().parse().unwrap_or(f64::NAN)),
        DeValue::Boolean(b) => Value::Bool(*b),
        DeValue::Datetime(d) => Value::Date(d.to_string()),
        DeValue::Array(items) => Value::Array(
            items
                .iter()
                .map(|item| from_value(item.get_ref(), item.span(), text))
                .collect(),
        ),
        DeValue::Table(table) => Value::Table(from_table(table, text)),
    };
    Node { value, at, text_at }
}

/// Parses the value of option number `number`, which is `option[at..]`: a TOML value if it looks
/// like one, else a bare word that needs no quotes.
pub(crate) fn parse_option(option: &str, at: usize, number: usize) -> Node {
    let raw = &option[at..];
    let place = Place::Option(number, at..option.len());
    let looks_like_toml = raw.starts_with(['"', '\'', '[', '{']) || matches!(raw, "true" | "false");
    let is_number = raw.parse::<f64>().is_ok() && raw.starts_with(|c: char| !c.is_alphabetic());
    if (looks_like_toml || is_number)
        && let Ok(parsed) = DeValue::parse(raw)
    {
        let mut node = from_value(parsed.get_ref(), parsed.span(), raw);
        node.move_to_option(number, at);
        return node;
    }
    Node {
        value: Value::Text(raw.to_owned()),
        at: place.clone(),
        text_at: Some(place),
    }
}

impl Node {
    /// Turns ranges of a separately parsed value into ranges of its option.
    fn move_to_option(&mut self, number: usize, shift: usize) {
        let moved = |place: &Place| match place {
            Place::File(range) => Place::Option(number, range.start + shift..range.end + shift),
            other => other.clone(),
        };
        self.at = moved(&self.at);
        self.text_at = self.text_at.as_ref().map(moved);
        match &mut self.value {
            Value::Array(items) => {
                for item in items {
                    item.move_to_option(number, shift);
                }
            }
            Value::Table(table) => {
                for entry in &mut table.0 {
                    entry.key_at = moved(&entry.key_at);
                    entry.node.move_to_option(number, shift);
                }
            }
            _ => {}
        }
    }
}

/// Formats the tree as a TOML document.
pub(crate) fn to_toml(table: &Table) -> String {
    let mut out = String::new();
    write_table(&mut out, &mut Vec::new(), table);
    out
}

fn write_table(out: &mut String, path: &mut Vec<String>, table: &Table) {
    let is_section = |node: &Node| match &node.value {
        Value::Table(_) => true,
        Value::Array(items) => {
            !items.is_empty() && items.iter().all(|item| item.as_table().is_some())
        }
        _ => false,
    };
    for entry in table.0.iter().filter(|entry| !is_section(&entry.node)) {
        let _ = write!(out, "{} = ", toml_key(&entry.key));
        write_inline(out, &entry.node.value);
        out.push('\n');
    }
    for entry in table.0.iter().filter(|entry| is_section(&entry.node)) {
        path.push(toml_key(&entry.key));
        let header = path.join(".");
        let mut section = |open: &str, table: &Table, close: &str| {
            // A table that contains only tables needs no header of its own.
            if open == "[[" || table.0.is_empty() || table.0.iter().any(|e| !is_section(&e.node)) {
                if !out.is_empty() {
                    out.push('\n');
                }
                let _ = writeln!(out, "{open}{header}{close}");
            }
            write_table(out, path, table);
        };
        match &entry.node.value {
            Value::Table(table) => section("[", table, "]"),
            Value::Array(items) => {
                for table in items.iter().filter_map(Node::as_table) {
                    section("[[", table, "]]");
                }
            }
            _ => unreachable!("only tables and arrays of tables are sections"),
        }
        path.pop();
    }
}

fn write_inline(out: &mut String, value: &Value) {
    match value {
        Value::Text(s) => out.push_str(&toml_text(s)),
        Value::Integer(i) => {
            let _ = write!(out, "{i}");
        }
        Value::Float(f) => {
            let _ = out.value(f);
        }
        Value::Bool(b) => {
            let _ = write!(out, "{b}");
        }
        Value::Date(d) => out.push_str(d),
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                write_inline(out, &item.value);
            }
            out.push(']');
        }
        Value::Table(table) => {
            out.push_str("{ ");
            for (i, entry) in table.0.iter().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                let _ = write!(out, "{} = ", toml_key(&entry.key));
                write_inline(out, &entry.node.value);
            }
            out.push_str(" }");
        }
    }
}

/// Formats a text as a TOML string on one line.
pub fn toml_text(text: &str) -> String {
    let mut out = String::new();
    let _ = out.value(TomlStringBuilder::new(text).as_basic());
    out
}

fn toml_key(key: &str) -> String {
    let mut out = String::new();
    let _ = out.key(TomlKeyBuilder::new(key).as_default());
    out
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Text(text) => f.write_str(text),
            other => {
                let mut out = String::new();
                write_inline(&mut out, other);
                f.write_str(&out)
            }
        }
    }
}

impl Serialize for Table {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for entry in &self.0 {
            map.serialize_entry(&entry.key, &entry.node.value)?;
        }
        map.end()
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Value::Text(s) | Value::Date(s) => serializer.serialize_str(s),
            Value::Integer(i) => serializer.serialize_i64(*i),
            Value::Float(f) => serializer.serialize_f64(*f),
            Value::Bool(b) => serializer.serialize_bool(*b),
            Value::Array(items) => {
                let mut seq = serializer.serialize_seq(Some(items.len()))?;
                for item in items {
                    seq.serialize_element(&item.value)?;
                }
                seq.end()
            }
            Value::Table(table) => table.serialize(serializer),
        }
    }
}

/// Returns the tree of a JSON value; `None` if the value contains a null, which TOML does not have.
pub(crate) fn from_json(json: &serde_json::Value) -> Option<Value> {
    use serde_json::Value as Json;
    Some(match json {
        Json::Null => return None,
        Json::Bool(b) => Value::Bool(*b),
        Json::Number(n) => match n.as_i64() {
            Some(i) => Value::Integer(i),
            None => Value::Float(n.as_f64()?),
        },
        Json::String(s) => Value::Text(s.clone()),
        Json::Array(items) => {
            let items = items.iter().map(|item| from_json(item).map(Node::from));
            Value::Array(items.collect::<Option<_>>()?)
        }
        Json::Object(map) => {
            let mut table = Table::default();
            for (key, value) in map {
                table.push(key, from_json(value)?);
            }
            Value::Table(table)
        }
    })
}
