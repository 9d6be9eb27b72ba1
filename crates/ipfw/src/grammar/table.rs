//! `table NAME create|add|delete|list|info|detail|flush|destroy|swap|lookup ...`.

use std::fmt;

use super::object::integer;
use crate::tables::{TableKind, ValueKind};
use crate::words::address::{table_name, write_list};
use crate::words::error::{CommandError, ErrorKind};
use crate::words::parser::{Parse, Parser, invalid, unrecognised};
use crate::words::quantity::whole_integer;
use crate::words::token::At;

/// The words of `valtype`. Values for other actions are stored but not read.
const VALUE_KINDS: &[(&str, ValueKind)] = &[
    ("legacy", ValueKind::Legacy),
    ("pipe", ValueKind::Pipe),
    ("skipto", ValueKind::SkipTo),
    ("limit", ValueKind::Other("limit")),
    ("dscp", ValueKind::Other("dscp")),
    ("tag", ValueKind::Other("tag")),
    ("fib", ValueKind::Other("fib")),
    ("nat", ValueKind::Other("nat")),
    ("divert", ValueKind::Other("divert")),
    ("netgraph", ValueKind::Other("netgraph")),
    ("mark", ValueKind::Other("mark")),
];

/// An entry as written. Its key is read when the kind of the table is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: At<String>,
    /// The values, in the order of `valtype`; empty means 0.
    pub values: Vec<u32>,
}

/// A table, or every table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// `all`.
    All,
    /// One table.
    One(At<String>),
}

/// What the creation of a table does if there is one of this name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IfExists {
    /// Fails.
    #[default]
    Refuse,
    /// `missing`: keeps a table of the same type.
    Keep,
    /// `or-flush`: keeps a table of the same type without its entries.
    Flush,
}

/// The action on a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableAction {
    /// Creates a table.
    Create {
        /// The type of the keys.
        kind: TableKind,
        /// The kinds of the values.
        values: Vec<ValueKind>,
        /// The most entries; 0 means no limit.
        limit: u32,
        /// What happens if the table exists.
        if_exists: IfExists,
    },
    /// Adds entries.
    Add {
        /// Adds all entries or none.
        is_atomic: bool,
        /// The entries.
        entries: Vec<Entry>,
    },
    /// Removes entries.
    Delete(Vec<At<String>>),
    /// Shows the entry that contains a key.
    Lookup(At<String>),
    /// Shows all entries.
    List,
    /// Shows the type and size.
    Info,
    /// Shows the same as `info`.
    Detail,
    /// Removes all entries.
    Flush,
    /// Deletes the table.
    Destroy,
    /// Swaps it with another one.
    Swap(At<String>),
}

impl TableAction {
    /// Whether the action only shows something.
    pub const fn is_reading(&self) -> bool {
        use TableAction::{Detail, Info, List, Lookup};
        matches!(self, List | Info | Detail | Lookup(_))
    }
}

/// `table NAME ...`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableCommand {
    /// The table.
    pub table: Which,
    /// The action.
    pub action: TableAction,
}

const ACTIONS: &[&str] = &[
    "create", "add", "atomic", "delete", "lookup", "list", "show", "info", "detail", "flush",
    "destroy", "swap",
];

/// The options of `create`, for suggestions.
const CREATE_OPTIONS: &[&str] = &["type", "valtype", "limit", "algo", "missing", "or-flush"];

/// Reads what follows `table`.
pub(super) fn table(p: &mut Parser<'_>) -> Parse<TableCommand> {
    let word = p.need("table needs name")?;
    let table = if word.value == "all" {
        Which::All
    } else {
        Which::One(At::new(table_name(word)?, word.at))
    };
    let verb = p.need("table needs command")?;
    let for_all = matches!(
        verb.value,
        "list" | "show" | "info" | "detail" | "flush" | "destroy"
    );
    if table == Which::All && ACTIONS.contains(&verb.value) && !for_all {
        let kind =
            ErrorKind::Contradiction(format!("`{}` needs the name of one table", verb.value));
        return Err(CommandError::new(kind, verb.at));
    }
    let action = match verb.value {
        "create" => create(p)?,
        "add" => entries(p, false)?,
        "atomic" if p.accept("add") => entries(p, true)?,
        "delete" => {
            let mut keys = Vec::new();
            while let Some(word) = p.take() {
                keys.push(At::new(word.value.to_string(), word.at));
            }
            if keys.is_empty() {
                p.need("no keys given")?;
            }
            TableAction::Delete(keys)
        }
        "lookup" => {
            let key = p.need("lookup needs a key")?;
            TableAction::Lookup(At::new(key.value.to_string(), key.at))
        }
        "list" | "show" => TableAction::List,
        "info" => TableAction::Info,
        "detail" => TableAction::Detail,
        "flush" => TableAction::Flush,
        "destroy" => TableAction::Destroy,
        "swap" => {
            let other = p.need("swap needs table name")?;
            TableAction::Swap(At::new(table_name(other)?, other.at))
        }
        "lock" | "unlock" | "modify" => {
            let kind = ErrorKind::OutsidePurpose {
                word: verb.value.to_string(),
                purpose: "create a new table and swap it in",
            };
            return Err(CommandError::new(kind, verb.at));
        }
        name => return Err(unrecognised(verb).near(name, ACTIONS.iter().copied())),
    };
    p.finish()?;
    Ok(TableCommand { table, action })
}

fn create(p: &mut Parser<'_>) -> Parse<TableAction> {
    let mut kind = TableKind::Addr;
    let mut values = Vec::new();
    let mut limit = 0;
    let mut if_exists = IfExists::default();
    while let Some(word) = p.take() {
        match word.value {
            "type" => {
                let value = p.need("type needs type name")?;
                kind = match value.value {
                    "addr" => TableKind::Addr,
                    "iface" => TableKind::Iface,
                    "number" => TableKind::Number,
                    name if name.starts_with("flow") => {
                        let kind = ErrorKind::OutsidePurpose {
                            word: name.to_string(),
                            purpose: "flow tables are not kept; use address tables or a mask",
                        };
                        return Err(CommandError::new(kind, value.at));
                    }
                    name => {
                        return Err(invalid(value, "a table type", "addr, iface or number")
                            .near(name, ["addr", "iface", "number"]));
                    }
                };
            }
            "valtype" => {
                let value = p.need("valtype needs type name")?;
                for name in value.value.split(',') {
                    let Some((_, kind)) = VALUE_KINDS.iter().find(|(n, _)| *n == name) else {
                        return Err(invalid(
                            value,
                            "a list of value types",
                            "pipe, skipto, legacy ...",
                        )
                        .near(name, VALUE_KINDS.iter().map(|(n, _)| *n)));
                    };
                    if let ValueKind::Other(word) = kind {
                        p.warn(
                            value.at,
                            format!("values of type `{word}` are kept, but no action reads them"),
                        );
                    }
                    values.push(*kind);
                }
            }
            "limit" => limit = integer(p.need("limit needs a number")?)?,
            "algo" => {
                let value = p.need("algo needs an algorithm name")?;
                p.warn(
                    value.at,
                    "`algo` has no effect: all tables are searched in the same way",
                );
            }
            // `or-flush` implies `missing`, in either order.
            "missing" if if_exists == IfExists::Refuse => if_exists = IfExists::Keep,
            "missing" => {}
            "or-flush" => if_exists = IfExists::Flush,
            name => return Err(unrecognised(word).near(name, CREATE_OPTIONS.iter().copied())),
        }
    }
    Ok(TableAction::Create {
        kind,
        values,
        limit,
        if_exists,
    })
}

/// Reads keys with optional values. A list of numbers behind a key is its value.
fn entries(p: &mut Parser<'_>, is_atomic: bool) -> Parse<TableAction> {
    let mut entries = Vec::new();
    let is_single = p.left() <= 2;
    while let Some(word) = p.take() {
        let key = At::new(word.value.to_string(), word.at);
        // A single key needs no value; several keys come with values, as in ipfw.
        let values = match p.take() {
            Some(value) => values(value)?,
            None if is_single => Vec::new(),
            None => {
                return Err(CommandError::new(
                    ErrorKind::Needs("missing value".into()),
                    p.at(),
                ));
            }
        };
        entries.push(Entry { key, values });
    }
    if entries.is_empty() {
        p.need("no keys given")?;
    }
    Ok(TableAction::Add { is_atomic, entries })
}

fn values(word: At<&str>) -> Parse<Vec<u32>> {
    let value = |text: &str| {
        whole_integer(text)
            .and_then(|n| u32::try_from(n).ok())
            .ok_or_else(|| {
                invalid(
                    word,
                    "a table value",
                    "a number, or numbers separated by commas",
                )
            })
    };
    word.value.split(',').map(value).collect()
}

/// Writes the values of an entry, separated by commas.
pub(crate) struct ShowValues<'a>(pub &'a [u32]);

impl fmt::Display for ShowValues<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("0");
        }
        write_list(f, self.0, |f, value| value.fmt(f))
    }
}

/// Writes the kinds of a table's values, separated by commas.
pub(crate) struct ShowKinds<'a>(pub &'a [ValueKind]);

impl fmt::Display for ShowKinds<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_list(f, self.0, |f, kind| f.write_str(kind.word()))
    }
}

impl fmt::Display for TableCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.table {
            Which::All => f.write_str("table all ")?,
            Which::One(name) => write!(f, "table {} ", name.value)?,
        }
        match &self.action {
            TableAction::Create {
                kind,
                values,
                limit,
                if_exists,
            } => {
                write!(f, "create type {}", kind.word())?;
                if !values.is_empty() {
                    write!(f, " valtype {}", ShowKinds(values))?;
                }
                if *limit > 0 {
                    write!(f, " limit {limit}")?;
                }
                f.write_str(match if_exists {
                    IfExists::Refuse => "",
                    IfExists::Keep => " missing",
                    IfExists::Flush => " or-flush",
                })
            }
            TableAction::Add { is_atomic, entries } => {
                f.write_str(if *is_atomic { "atomic add" } else { "add" })?;
                for entry in entries {
                    write!(f, " {}", entry.key.value)?;
                    if !entry.values.is_empty() {
                        write!(f, " {}", ShowValues(&entry.values))?;
                    }
                }
                Ok(())
            }
            TableAction::Delete(keys) => {
                f.write_str("delete")?;
                keys.iter().try_for_each(|key| write!(f, " {}", key.value))
            }
            TableAction::Lookup(key) => write!(f, "lookup {}", key.value),
            TableAction::List => f.write_str("list"),
            TableAction::Info => f.write_str("info"),
            TableAction::Detail => f.write_str("detail"),
            TableAction::Flush => f.write_str("flush"),
            TableAction::Destroy => f.write_str("destroy"),
            TableAction::Swap(other) => write!(f, "swap {}", other.value),
        }
    }
}
