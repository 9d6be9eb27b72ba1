//! Lookup tables: networks (longest prefix), interface names, numbers.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::copying::Copying;
use crate::flow::v6_mask;
use crate::words::address::{Net, net};
use crate::words::error::{CommandError, ErrorKind, nearest};
use crate::words::token::{At, Position};

/// The type of a table's keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TableKind {
    /// Networks; the longest prefix wins.
    #[default]
    Addr,
    /// Interface names.
    Iface,
    /// Numbers: ports, codepoints.
    Number,
}

impl TableKind {
    /// Returns the word of `type`.
    pub const fn word(self) -> &'static str {
        match self {
            TableKind::Addr => "addr",
            TableKind::Iface => "iface",
            TableKind::Number => "number",
        }
    }
}

/// A kind of value: which actions read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// Every action.
    Legacy,
    /// `pipe` and `queue`.
    Pipe,
    /// `skipto` and `call`.
    SkipTo,
    /// Kinds that no action reads.
    Other(&'static str),
}

impl ValueKind {
    /// Returns the word of `valtype`.
    pub const fn word(self) -> &'static str {
        match self {
            ValueKind::Legacy => "legacy",
            ValueKind::Pipe => "pipe",
            ValueKind::SkipTo => "skipto",
            ValueKind::Other(word) => word,
        }
    }
}

/// Identifies a table. The id stays the same when the name or the content changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TableId(pub u32);

/// All tables.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tables {
    slots: Vec<Option<Table>>,
    names: BTreeMap<String, TableId>,
}

/// One table.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub name: String,
    pub kind: TableKind,
    /// The kinds of the values; empty for a table that serves every action.
    pub values: Vec<ValueKind>,
    /// The most entries; 0 means no limit.
    pub limit: u32,
    /// Whether a rule that names the table has created it.
    pub is_of_rule: bool,
    entries: BTreeMap<Key, Vec<u32>>,
    /// The number of entries per prefix length, IPv4 first.
    lengths: Box<[[u32; 129]; 2]>,
}

/// A copy of all tables that is made in pieces.
#[derive(Default)]
pub(crate) struct TablesCopy {
    /// The copied tables, the last one in part.
    tables: Vec<TableCopy>,
    names: BTreeMap<String, TableId>,
    /// Whether the last table is whole.
    is_whole: bool,
}

/// The copy of a slot, which may be empty.
struct TableCopy {
    head: Option<Table>,
    entries: Copying<Key, Vec<u32>>,
}

/// A key. Entries are listed in the order of keys.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    V4(u32, u8),
    V6(u128, u8),
    Number(u32),
    Name(String),
}

/// The result of adding an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Added {
    New,
    /// The entry existed with these values.
    Replaced(Vec<u32>),
    /// The entry exists, and replacing it was not requested.
    Exists,
    /// The table is full.
    Full,
}

impl Tables {
    pub fn find(&self, name: &str) -> Option<TableId> {
        self.names.get(name).copied()
    }

    pub fn table(&self, id: TableId) -> &Table {
        self.slots[id.0 as usize]
            .as_ref()
            .expect("an id belongs to a table that exists")
    }

    pub fn table_mut(&mut self, id: TableId) -> &mut Table {
        self.slots[id.0 as usize]
            .as_mut()
            .expect("an id belongs to a table that exists")
    }

    /// Iterates over the tables by name.
    pub fn iter(&self) -> impl Iterator<Item = (TableId, &Table)> {
        self.names.values().map(|id| (*id, self.table(*id)))
    }

    /// Creates a table under an unused name.
    pub fn create(
        &mut self,
        name: &str,
        kind: TableKind,
        values: Vec<ValueKind>,
        limit: u32,
    ) -> TableId {
        let table = Table {
            name: name.to_string(),
            kind,
            values,
            limit,
            is_of_rule: false,
            entries: BTreeMap::new(),
            lengths: Box::new([[0; 129]; 2]),
        };
        let free = self.slots.iter().position(Option::is_none);
        let id = TableId(free.unwrap_or(self.slots.len()) as u32);
        match free {
            Some(slot) => self.slots[slot] = Some(table),
            None => self.slots.push(Some(table)),
        }
        self.names.insert(name.to_string(), id);
        id
    }

    /// Returns the table of this name and creates it if it does not exist, as ipfw does for rules.
    pub fn find_or_create(&mut self, name: &str, kind: TableKind) -> TableId {
        match self.find(name) {
            Some(id) => id,
            None => {
                let id = self.create(name, kind, Vec::new(), 0);
                self.table_mut(id).is_of_rule = true;
                id
            }
        }
    }

    /// Returns the name of a table that is most similar to `name`. A number is no misspelling of
    /// another, and an empty table that a rule has created may be a misspelling itself.
    pub fn nearest(&self, name: &str) -> Option<&str> {
        let is_number = |name: &str| name.bytes().all(|b| b.is_ascii_digit());
        if is_number(name) {
            return None;
        }
        let tables = self.iter().map(|(_, table)| table);
        let known = tables.filter(|table| !table.is_of_rule || table.len() > 0);
        let names = known.map(|table| table.name.as_str());
        nearest(name, names.filter(|name| !is_number(name)))
    }

    pub fn destroy(&mut self, id: TableId) {
        let table = self.slots[id.0 as usize]
            .take()
            .expect("an id belongs to a table that exists");
        self.names.remove(&table.name);
    }

    /// Swaps the content of two tables; rules keep referring to the same names.
    pub fn swap(&mut self, a: TableId, b: TableId) {
        self.slots.swap(a.0 as usize, b.0 as usize);
        let of_name = |table: &Table| (table.name.clone(), table.is_of_rule);
        let (of_a, of_b) = (of_name(self.table(b)), of_name(self.table(a)));
        for (id, (name, is_of_rule)) in [(a, of_a), (b, of_b)] {
            let table = self.table_mut(id);
            table.name = name;
            table.is_of_rule = is_of_rule;
        }
    }
}

impl Tables {
    /// Copies the next entries. Returns whether more are left.
    pub fn copy_piece(&self, copy: &mut TablesCopy) -> bool {
        if copy.tables.is_empty() || copy.is_whole {
            let Some(next) = self.slots.get(copy.tables.len()) else {
                copy.names = self.names.clone();
                return false;
            };
            let head = next.as_ref().map(Table::head);
            copy.tables.push(TableCopy {
                head,
                entries: Copying::default(),
            });
            copy.is_whole = next.is_none();
        }
        let last = copy.tables.len() - 1;
        if let Some(table) = &self.slots[last] {
            copy.is_whole = !copy.tables[last].entries.next(&table.entries);
        }
        true
    }
}

impl TablesCopy {
    /// Returns the tables of a whole copy.
    pub fn finish(self) -> Tables {
        let tables = self.tables.into_iter();
        let slots = tables.map(|copy| {
            copy.head.map(|head| Table {
                entries: copy.entries.finish().collect(),
                ..head
            })
        });
        Tables {
            slots: slots.collect(),
            names: self.names,
        }
    }
}

impl Table {
    /// Returns the table without its entries, but with their number per length.
    fn head(&self) -> Table {
        Table {
            name: self.name.clone(),
            values: self.values.clone(),
            entries: BTreeMap::new(),
            lengths: self.lengths.clone(),
            ..*self
        }
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn entries(&self) -> impl Iterator<Item = (&Key, &[u32])> {
        self.entries
            .iter()
            .map(|(key, values)| (key, values.as_slice()))
    }

    /// Adds an entry, or replaces its values.
    pub fn add(&mut self, key: Key, values: Vec<u32>, may_replace: bool) -> Added {
        if let Some(present) = self.entries.get_mut(&key) {
            if !may_replace {
                return Added::Exists;
            }
            return Added::Replaced(std::mem::replace(present, values));
        }
        if self.limit > 0 && self.entries.len() >= self.limit as usize {
            return Added::Full;
        }
        self.count(&key, 1);
        self.entries.insert(key, values);
        Added::New
    }

    /// Makes the entry what it was: these values, or absent.
    pub fn put_back(&mut self, key: Key, values: Option<Vec<u32>>) {
        let is_present = self.remove(&key).is_some();
        if let Some(values) = values {
            self.count(&key, 1);
            self.entries.insert(key, values);
        } else {
            debug_assert!(is_present, "only what was added is taken back");
        }
    }

    /// Removes an entry and returns its values.
    pub fn remove(&mut self, key: &Key) -> Option<Vec<u32>> {
        let values = self.entries.remove(key)?;
        self.count(key, u32::MAX);
        Some(values)
    }

    pub fn clear(&mut self) {
        self.entries.clear();
        *self.lengths = [[0; 129]; 2];
    }

    /// Updates the number of prefixes of a length.
    fn count(&mut self, key: &Key, step: u32) {
        let slot = match key {
            Key::V4(_, len) => &mut self.lengths[0][*len as usize],
            Key::V6(_, len) => &mut self.lengths[1][*len as usize],
            Key::Number(_) | Key::Name(_) => return,
        };
        *slot = slot.wrapping_add(step);
    }

    /// Finds the entry with the longest prefix that contains `address`, with one search per length
    /// in use.
    pub fn find_address(&self, address: IpAddr) -> Option<(&Key, &[u32])> {
        let (family, most) = match address {
            IpAddr::V4(_) => (0, 32),
            IpAddr::V6(_) => (1, 128),
        };
        (0..=most)
            .rev()
            .filter(|len| self.lengths[family][usize::from(*len)] > 0)
            .find_map(|len| {
                let key = Key::prefix(address, len);
                self.entries
                    .get_key_value(&key)
                    .map(|(k, v)| (k, v.as_slice()))
            })
    }

    pub fn find_number(&self, number: u32) -> Option<(&Key, &[u32])> {
        let found = self.entries.get_key_value(&Key::Number(number))?;
        Some((found.0, found.1.as_slice()))
    }

    pub fn find_name(&self, name: &str) -> Option<(&Key, &[u32])> {
        // Once per flow.
        let found = self.entries.get_key_value(&Key::Name(name.to_owned()))?;
        Some((found.0, found.1.as_slice()))
    }

    /// Returns the value that an action of `kind` reads from an entry.
    pub fn value(&self, values: &[u32], kind: ValueKind) -> u32 {
        let at = self
            .values
            .iter()
            .position(|k| *k == kind || *k == ValueKind::Legacy);
        let index = if self.values.is_empty() { Some(0) } else { at };
        index.and_then(|i| values.get(i)).copied().unwrap_or(0)
    }

    /// Reads a key of the kind of this table.
    pub fn key(&self, text: &At<String>) -> Result<Key, CommandError> {
        Key::read(self.kind, text)
    }
}

impl Key {
    fn prefix(address: IpAddr, len: u8) -> Key {
        match address {
            IpAddr::V4(v4) => {
                let mask = if len == 0 {
                    0
                } else {
                    u32::MAX << (32 - u32::from(len))
                };
                Key::V4(v4.to_bits() & mask, len)
            }
            IpAddr::V6(v6) => Key::V6(v6.to_bits() & v6_mask(len), len),
        }
    }

    /// Reads a key for a table of `kind`.
    pub fn read(kind: TableKind, text: &At<String>) -> Result<Key, CommandError> {
        let fail = |accepted| {
            let kind = ErrorKind::Invalid {
                text: text.value.clone(),
                what: "a key of this table",
                accepted,
            };
            CommandError::new(kind, text.at)
        };
        match kind {
            TableKind::Addr => match net(At::new(&*text.value, text.at)) {
                Ok(Net::V4 { address, mask }) if mask.leading_ones() == mask.count_ones() => {
                    Ok(Key::V4(address.to_bits(), mask.leading_ones() as u8))
                }
                Ok(Net::V6 { address, len }) => Ok(Key::V6(address.to_bits(), len)),
                _ => Err(fail("an address or a network such as 10.0.0.0/24")),
            },
            TableKind::Number => {
                let number = text.value.parse();
                number
                    .map(Key::Number)
                    .map_err(|_| fail("a number below 2^32"))
            }
            // A comma at the end of a word joins it with the next one.
            TableKind::Iface if text.value.len() <= 31 && !text.value.ends_with(',') => {
                Ok(Key::Name(text.value.clone()))
            }
            TableKind::Iface => Err(fail("the name of an interface")),
        }
    }

    /// Guesses the kind of a table that is created by adding a key. A key written like a network is
    /// treated as one, even if it is not valid.
    pub fn guess(text: &str) -> TableKind {
        let is_net = net(At::new(text, Position::default())).is_ok();
        let is_dotted = text.contains('.') && text.bytes().all(|b| b == b'.' || b.is_ascii_digit());
        if is_net || is_dotted || text.contains('/') || text.contains("::") {
            TableKind::Addr
        } else if text.bytes().all(|b| b.is_ascii_digit()) {
            TableKind::Number
        } else {
            TableKind::Iface
        }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Key::V4(bits, len) => write!(f, "{}/{len}", Ipv4Addr::from_bits(*bits)),
            Key::V6(bits, len) => write!(f, "{}/{len}", Ipv6Addr::from_bits(*bits)),
            Key::Number(n) => n.fmt(f),
            Key::Name(name) => f.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(kind: TableKind, text: &str) -> Key {
        Key::read(kind, &At::new(text.to_string(), Position::default())).unwrap()
    }

    #[test]
    fn the_longest_prefix_wins() {
        let mut tables = Tables::default();
        let id = tables.create("t", TableKind::Addr, Vec::new(), 0);
        let table = tables.table_mut(id);
        for (net, value) in [
            ("0.0.0.0/0", 1),
            ("10.0.0.0/8", 2),
            ("10.1.0.0/16", 3),
            ("10.1.2.3", 4),
            ("2001:db8::/32", 5),
        ] {
            assert_eq!(
                table.add(key(TableKind::Addr, net), vec![value], false),
                Added::New
            );
        }
        let value = |address: &str| {
            let found = tables.table(id).find_address(address.parse().unwrap());
            found.map(|(_, values)| values[0])
        };
        assert_eq!(value("10.1.2.3"), Some(4));
        assert_eq!(value("10.1.2.4"), Some(3));
        assert_eq!(value("10.9.9.9"), Some(2));
        assert_eq!(value("192.0.2.1"), Some(1));
        assert_eq!(value("2001:db8::9"), Some(5));
        assert_eq!(value("2001:db9::9"), None);
    }

    #[test]
    fn a_removed_entry_uncovers_the_shorter_prefix() {
        let mut tables = Tables::default();
        let id = tables.create("t", TableKind::Addr, Vec::new(), 2);
        let table = tables.table_mut(id);
        table.add(key(TableKind::Addr, "10.0.0.0/8"), vec![1], false);
        table.add(key(TableKind::Addr, "10.1.0.0/16"), vec![2], false);
        assert_eq!(
            table.add(key(TableKind::Addr, "10.2.0.0/16"), vec![3], false),
            Added::Full
        );
        assert_eq!(
            table.add(key(TableKind::Addr, "10.1.0.0/16"), vec![9], false),
            Added::Exists
        );
        assert_eq!(
            table.remove(&key(TableKind::Addr, "10.1.0.0/16")),
            Some(vec![2])
        );
        let found = table.find_address("10.1.2.3".parse().unwrap());
        assert_eq!(
            found.map(|(key, _)| key.to_string()),
            Some("10.0.0.0/8".to_string())
        );
    }

    /// To compare each name with all before it would take 2 x 10^10 comparisons.
    #[test]
    fn a_name_is_found_among_many_without_a_look_at_all() {
        let mut tables = Tables::default();
        let id = tables.create("t", TableKind::Iface, Vec::new(), 0);
        let table = tables.table_mut(id);
        let names: Vec<String> = (0..200_000).map(|n| format!("vlan{n}")).collect();
        for (value, name) in (0..).zip(&names) {
            table.add(key(TableKind::Iface, name), vec![value], false);
        }
        for (value, name) in (0..).zip(&names) {
            let found = table.find_name(name).map(|(_, values)| values);
            assert_eq!(found, Some(&[value][..]), "{name}");
        }
        assert!(table.find_name("vlan").is_none());
    }

    #[test]
    fn swapping_exchanges_content_and_keeps_names() {
        let mut tables = Tables::default();
        let (a, b) = (
            tables.create("a", TableKind::Number, Vec::new(), 0),
            tables.create("b", TableKind::Number, Vec::new(), 0),
        );
        tables.table_mut(a).add(Key::Number(5), vec![7], false);
        tables.swap(a, b);
        assert_eq!(tables.find("a"), Some(a));
        assert_eq!(tables.table(a).len(), 0);
        assert_eq!(
            tables.table(b).find_number(5).map(|(_, v)| v),
            Some(&[7][..])
        );
        assert_eq!(tables.table(b).name, "b");
    }
}
