//! The declaration of a scenario's keys: once, with type, default, range and documentation.
//!
//! [`keys!`] creates a plain struct from the declaration. Reading, writing, the error messages and
//! the reference page all derive from it.

use std::fmt::Display;

use sluice_core::link::text::excerpt;

use super::error::{Problem, Problems};
use super::source::Place;
use super::tree::{Node, Table, Value};

/// The declaration of a key.
#[derive(Clone, Copy)]
pub struct KeyDecl {
    /// The key's name in the file.
    pub name: &'static str,
    /// The kind of value, in a word or two.
    pub kind: &'static str,
    /// The meaning.
    pub doc: &'static str,
    /// Whether the key is required, and its default if not.
    pub presence: fn() -> Presence,
    /// The smallest and the largest accepted value.
    pub range: fn() -> Option<(String, String)>,
}

/// The effect of leaving a key out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Presence {
    /// An error.
    Required,
    /// The setting is absent.
    Optional,
    /// The value that applies.
    Default(String),
}

/// A struct whose fields are keys.
pub(crate) trait Keys: Sized {
    /// The declarations, in the order of the documentation.
    const KEYS: &'static [KeyDecl];

    /// Reads the declared keys of `table`, which is called `section` and is at `at`. Other keys are
    /// ignored. Returns `None` if a problem was found.
    fn read(table: &Table, section: &Section, problems: &mut Problems) -> Option<Self>;

    /// Writes every key that is set, including those with their default.
    fn write(&self, table: &mut Table);
}

/// A type of key.
pub(crate) trait Field: Sized {
    /// The type in which ranges are compared; `Infallible` for types without a range.
    type Scalar: PartialOrd + Display;
    /// The kind of value, in a word or two, for the reference.
    const KIND: &'static str;

    /// Reads a value, or reports a problem.
    fn read(key: &str, node: &Node, problems: &mut Problems) -> Option<Self>;

    /// The value for a missing key, if the key is optional without a default.
    fn absent() -> Option<Self> {
        None
    }

    fn scalar(&self) -> Option<&Self::Scalar> {
        None
    }

    /// Returns the value as it is written in a file; `None` if it is not set.
    fn write(&self) -> Option<Value>;
}

/// A table of the file, for messages.
pub(crate) struct Section {
    /// The name in messages, such as `[link]`.
    pub name: String,
    /// The place of its header.
    pub at: Place,
}

impl Section {
    pub fn new(name: impl Into<String>, at: Place) -> Self {
        Section {
            name: name.into(),
            at,
        }
    }

    /// Reports the keys of `table` that are not in `known`.
    pub fn check_keys(&self, table: &Table, known: &[&'static str], problems: &mut Problems) {
        for entry in &table.0 {
            if !known.contains(&entry.key.as_str()) {
                let message = format!("unknown key `{}` in {}", excerpt(&entry.key), self.name);
                problems.push(
                    Problem::new(entry.key_at.clone(), message)
                        .nearest(&entry.key, known.iter().copied()),
                );
            }
        }
    }
}

/// Returns `node` as a table; `what` names it in messages.
pub(crate) fn as_table<'t>(
    what: impl Display,
    node: &'t Node,
    problems: &mut Problems,
) -> Option<&'t Table> {
    node.as_table().or_else(|| {
        let message = format!("{what} is a table, not {}", node.value.kind());
        problems.refuse(Problem::new(node.at.clone(), message))
    })
}

/// Returns the items of `[[name]]`, which may be left out.
pub(crate) fn items<'t>(
    name: &str,
    root: &'t Table,
    problems: &mut Problems,
) -> Option<&'t [Node]> {
    let Some(node) = root.node(name) else {
        return Some(&[]);
    };
    let Value::Array(items) = &node.value else {
        let message = format!("`{name}` is a list of tables, not {}", node.value.kind());
        let problem = Problem::new(node.at.clone(), message);
        return problems.refuse(problem.hint(format!("write it as [[{name}]]")));
    };
    Some(items)
}

/// Reads one key: its value or its default. Reports a problem otherwise.
pub(crate) fn read_key<F: Field>(
    table: &Table,
    section: &Section,
    key: &'static str,
    default: Option<F>,
    range: Option<(F::Scalar, F::Scalar)>,
    problems: &mut Problems,
) -> Option<F> {
    let Some(entry) = table.find(key) else {
        let value = default.or_else(F::absent);
        if value.is_none() {
            let message = format!("{} needs `{key}`", section.name);
            problems.push(
                Problem::new(section.at.clone(), message).hint(format!("`{key}` is a {}", F::KIND)),
            );
        }
        return value;
    };
    let value = F::read(key, &entry.node, problems)?;
    if let (Some(scalar), Some((low, high))) = (value.scalar(), &range)
        && (scalar < low || scalar > high)
    {
        let message = format!("`{key}` cannot be {scalar}");
        return problems.refuse(
            Problem::new(entry.node.at.clone(), message)
                .hint(format!("{low} to {high} is accepted")),
        );
    }
    Some(value)
}

/// Describes the keys of `keys` whose values are not their defaults, each behind a comma, without those in
/// `named`: `, spacing poisson, ect`.
pub(crate) fn beyond_defaults<K: Keys>(keys: &K, named: &[&str]) -> String {
    let mut table = Table::default();
    keys.write(&mut table);
    let mut described = String::new();
    for decl in K::KEYS.iter().filter(|decl| !named.contains(&decl.name)) {
        let Some(node) = table.node(decl.name) else {
            continue;
        };
        let value = node.value.to_string();
        let part = match (decl.presence)() {
            Presence::Default(default) if default == value => continue,
            Presence::Default(default) if default == "false" && value == "true" => String::new(),
            _ => format!(" {value}"),
        };
        described.push_str(", ");
        described.push_str(decl.name);
        described.push_str(&part);
    }
    described
}

/// Returns the presence of a key with `default`.
pub(crate) fn presence<F: Field>(default: Option<F>) -> Presence {
    match default.or_else(F::absent) {
        None => Presence::Required,
        Some(value) => match value.write() {
            None => Presence::Optional,
            Some(value) => Presence::Default(value.to_string()),
        },
    }
}

/// Formats a range in words.
pub(crate) fn range_text<F: Field>(
    range: Option<(F::Scalar, F::Scalar)>,
) -> Option<(String, String)> {
    range.map(|(low, high)| (low.to_string(), high.to_string()))
}

/// Declares a struct whose fields are the keys of a table:
///
/// ```text
/// keys! {
///     /// What a probe is.
///     pub struct Ping {
///         /// time between two probes
///         interval: Span = Span::from_ms(20), Span::from_us(100) => Span::from_secs(60);
///         /// a key that must be there
///         rate: Rate;
///         /// a key that may be left out
///         limit: Option<Bytes>;
///     }
/// }
/// ```
macro_rules! keys {
    ($(#[$meta:meta])* pub struct $name:ident {
        $(
            $(#[doc = $doc:literal])+
            $field:ident: $type:ty $(= $default:expr)? $(, $low:expr => $high:expr)?;
        )+
    }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name { $($(#[doc = $doc])+ pub $field: $type,)+ }

        impl $crate::schema::Keys for $name {
            const KEYS: &'static [$crate::schema::KeyDecl] = &[$(
                $crate::schema::KeyDecl {
                    name: stringify!($field),
                    kind: <$type as $crate::schema::Field>::KIND,
                    doc: concat!($($doc),+).trim_ascii(),
                    presence: || $crate::schema::presence::<$type>(
                        $crate::schema::keys!(@option $($default)?),
                    ),
                    range: || $crate::schema::range_text::<$type>(
                        $crate::schema::keys!(@option $(($low, $high))?),
                    ),
                },
            )+];

            fn read(
                table: &$crate::tree::Table,
                section: &$crate::schema::Section,
                problems: &mut $crate::error::Problems,
            ) -> Option<Self> {
                $(let $field = $crate::schema::read_key::<$type>(
                    table,
                    section,
                    stringify!($field),
                    $crate::schema::keys!(@option $($default)?),
                    $crate::schema::keys!(@option $(($low, $high))?),
                    problems,
                );)+
                Some($name { $($field: $field?,)+ })
            }

            fn write(&self, table: &mut $crate::tree::Table) {
                $(if let Some(value) = $crate::schema::Field::write(&self.$field) {
                    table.push(stringify!($field), value);
                })+
            }
        }
    };
    (@option) => { None };
    (@option $value:expr) => { Some($value) };
}

pub(crate) use keys;

/// Returns the names of `decls`.
pub(crate) fn names(decls: &[KeyDecl]) -> impl Iterator<Item = &'static str> + '_ {
    decls.iter().map(|decl| decl.name)
}
