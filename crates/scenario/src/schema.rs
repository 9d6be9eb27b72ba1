//! How the keys of a scenario are declared: once, with type, default, range and documentation.
//!
//! [`keys!`] makes a plain struct from the declaration. Reading, writing, the messages about wrong
//! values and the reference page all follow from it.

use std::fmt::Display;

use super::error::{Problem, Problems};
use super::tree::{Node, Place, Table, Value};

/// The declaration of a key.
#[derive(Clone, Copy)]
pub struct KeyDecl {
    /// The word in the file.
    pub name: &'static str,
    /// What it takes, in a word or two.
    pub kind: &'static str,
    /// What it means.
    pub doc: &'static str,
    /// Whether it must stand there, and what holds if it does not.
    pub presence: fn() -> Presence,
    /// The smallest and the largest accepted value.
    pub range: fn() -> Option<(String, String)>,
}

/// What it means that a key is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Presence {
    /// An error.
    Required,
    /// Nothing is set.
    Optional,
    /// This value holds.
    Default(String),
}

/// A struct whose fields are keys.
pub(crate) trait Keys: Sized {
    /// The declarations in the order of documentation.
    const KEYS: &'static [KeyDecl];

    /// Reads the declared keys of `table`, which is called `section` and stands at `at`; other
    /// keys are not looked at. Gives nothing if a problem was found.
    fn read(table: &Table, section: &Section, problems: &mut Problems) -> Option<Self>;

    /// Writes every key that is set, also those that have their default.
    fn write(&self, table: &mut Table);
}

/// A type that can stand at a key.
pub(crate) trait Field: Sized {
    /// What ranges are compared in; `Infallible` for types that have no range.
    type Scalar: PartialOrd + Display;
    /// What it is, in a word or two, for the reference.
    const KIND: &'static str;

    /// Reads it, or says what is wrong.
    fn read(key: &str, node: &Node, problems: &mut Problems) -> Option<Self>;

    /// What holds without the key, if the key may be left out although it has no default.
    fn absent() -> Option<Self> {
        None
    }

    fn scalar(&self) -> Option<&Self::Scalar> {
        None
    }

    /// The value as it would be written; nothing if it is not set.
    fn write(&self) -> Option<Value>;
}

/// A table of the file, for messages.
pub(crate) struct Section {
    /// Its name as messages show it, such as `[link]`.
    pub name: String,
    /// Its header.
    pub at: Place,
}

impl Section {
    pub fn new(name: impl Into<String>, at: Place) -> Self {
        Section {
            name: name.into(),
            at,
        }
    }

    /// Complains about keys of `table` that are not in `known`.
    pub fn check_keys(&self, table: &Table, known: &[&'static str], problems: &mut Problems) {
        for entry in &table.0 {
            if !known.contains(&entry.key.as_str()) {
                let message = format!("unknown key `{}` in {}", entry.key, self.name);
                problems.push(
                    Problem::new(entry.key_at.clone(), message)
                        .nearest(&entry.key, known.iter().copied()),
                );
            }
        }
    }
}

/// Reads one key: its value, or its default, or a complaint.
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
        problems.push(
            Problem::new(entry.node.at.clone(), message)
                .hint(format!("{low} to {high} is accepted")),
        );
        return None;
    }
    Some(value)
}

/// The presence of a key with `default`.
pub(crate) fn presence<F: Field>(default: Option<F>) -> Presence {
    match default.or_else(F::absent) {
        None => Presence::Required,
        Some(value) => match value.write() {
            None => Presence::Optional,
            Some(value) => Presence::Default(value.to_string()),
        },
    }
}

/// A range in words.
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

/// The names of `decls`.
pub(crate) fn names(decls: &[KeyDecl]) -> impl Iterator<Item = &'static str> + '_ {
    decls.iter().map(|decl| decl.name)
}
