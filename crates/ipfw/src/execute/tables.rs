//! Commands about tables.

use std::collections::BTreeMap;

use crate::engine::{Firewall, Output};
use crate::execute::put;
use crate::grammar::{
    At, CommandError, Entry, ErrorKind, Flags, IfExists, ShowKinds, ShowValues, TableAction,
    TableCommand, TableKind, Term, ValueKind, Which,
};
use crate::rules::compiled::table_of;
use crate::tables::{Added, Key, Table, TableId};
use crate::visits::visit;

fn tell_added(key: &Key, entry: &Entry, flags: &Flags, output: &mut Output) {
    if !flags.quiet {
        put(
            output,
            format_args!("added: {key} {}\n", ShowValues(&entry.values)),
        );
    }
}

impl Firewall {
    pub(super) fn table(
        &mut self,
        command: &TableCommand,
        flags: &Flags,
        output: &mut Output,
    ) -> Result<(), CommandError> {
        match (&command.table, &command.action) {
            (
                Which::One(name),
                TableAction::Create {
                    kind,
                    values,
                    limit,
                    if_exists,
                },
            ) => {
                self.create_table(name, *kind, values, *limit, *if_exists)?;
            }
            (
                Which::One(name),
                TableAction::Add {
                    is_atomic: _,
                    entries,
                },
            ) => {
                self.add_entries(name, entries, flags, output)?;
            }
            (Which::One(name), TableAction::Delete(keys)) => {
                self.delete_entries(name, keys, flags, output)?;
            }
            (Which::One(name), TableAction::Lookup(key)) => self.look_up(name, key, output)?,
            (Which::One(name), TableAction::Swap(other)) => {
                let (a, b) = (self.find_table(name)?, self.find_table(other)?);
                if self.rules.tables.table(a).kind != self.rules.tables.table(b).kind {
                    return Err(unavailable(
                        "the tables are of different types".into(),
                        other,
                    ));
                }
                self.rules.tables.swap(a, b);
            }
            (which, action) => self.each_table(which, action, output)?,
        }
        if !command.action.is_reading() {
            self.rules.tables_changed();
        }
        Ok(())
    }

    /// Executes an action on one table or on all tables.
    fn each_table(
        &mut self,
        which: &Which,
        action: &TableAction,
        output: &mut Output,
    ) -> Result<(), CommandError> {
        let ids: Vec<TableId> = match which {
            Which::All => self.rules.tables.iter().map(|(id, _)| id).collect(),
            Which::One(name) => vec![self.find_table(name)?],
        };
        let references = match action {
            TableAction::Destroy | TableAction::Info | TableAction::Detail => self.references(),
            _ => BTreeMap::new(),
        };
        let references_of = |table: &Table| references.get(&table.name).copied().unwrap_or(0);
        if *action == TableAction::Destroy {
            // All tables or none: first check that no rule names one of them.
            for id in &ids {
                let table = self.rules.tables.table(*id);
                let uses = references_of(table);
                if uses > 0 {
                    let text = format!(
                        "failed to destroy table {}: Device busy ({uses} in rules)",
                        table.name
                    );
                    let at = match which {
                        Which::One(name) => Some(name.at),
                        Which::All => None,
                    };
                    return Err(CommandError {
                        at,
                        ..CommandError::of(ErrorKind::Unavailable(text))
                    });
                }
            }
        }
        for id in ids {
            match action {
                TableAction::List => {
                    list(self.rules.tables.table(id), *which == Which::All, output)
                }
                TableAction::Info | TableAction::Detail => {
                    let table = self.rules.tables.table(id);
                    info(table, id, references_of(table), output);
                }
                TableAction::Flush => self.rules.tables.table_mut(id).clear(),
                TableAction::Destroy => self.rules.tables.destroy(id),
                TableAction::Create { .. }
                | TableAction::Add { .. }
                | TableAction::Delete(_)
                | TableAction::Lookup(_)
                | TableAction::Swap(_) => {
                    unreachable!("the grammar reads these actions with a single table")
                }
            }
        }
        Ok(())
    }

    fn create_table(
        &mut self,
        name: &At<String>,
        kind: TableKind,
        values: &[ValueKind],
        limit: u32,
        if_exists: IfExists,
    ) -> Result<(), CommandError> {
        if let Some(id) = self.rules.tables.find(&name.value) {
            let old = self.rules.tables.table_mut(id);
            let is_same = old.kind == kind && old.values == values;
            if is_same && if_exists != IfExists::Refuse {
                if if_exists == IfExists::Flush {
                    old.clear();
                }
                old.is_of_rule = false;
                return Ok(());
            }
            let mut text = format!("Table creation failed: table {} exists", name.value);
            if old.is_of_rule {
                text.push_str(&match self.first_rule_with(&name.value) {
                    Some(rule) => format!(
                        " (rule {rule} names it and has created it: write `create` before the rule, \
                         or leave it out)"
                    ),
                    None => " (a rule that is gone has created it: destroy it first)".to_owned(),
                });
            }
            return Err(unavailable(text, name));
        }
        self.rules
            .tables
            .create(&name.value, kind, values.to_vec(), limit);
        Ok(())
    }

    fn add_entries(
        &mut self,
        name: &At<String>,
        entries: &[Entry],
        flags: &Flags,
        output: &mut Output,
    ) -> Result<(), CommandError> {
        let found = self.rules.tables.find(&name.value);
        let id = match (found, entries.first()) {
            (Some(id), _) => id,
            // As in ipfw, the first entry creates the table.
            (None, Some(first)) => {
                let kind = Key::guess(&first.key.value);
                self.rules.tables.create(&name.value, kind, Vec::new(), 0)
            }
            (None, None) => return Err(not_found(name)),
        };
        // The keys that were added so far, with their values before.
        let mut before: Vec<(Key, Option<Vec<u32>>)> = Vec::with_capacity(entries.len());
        for entry in entries {
            let table = self.rules.tables.table_mut(id);
            let added = table.key(&entry.key).map(|key| {
                let added = table.add(key.clone(), entry.values.clone(), flags.quiet);
                (added, key)
            });
            let failed = match added {
                Ok((Added::New, key)) => {
                    tell_added(&key, entry, flags, output);
                    before.push((key, None));
                    continue;
                }
                Ok((Added::Replaced(values), key)) => {
                    tell_added(&key, entry, flags, output);
                    before.push((key, Some(values)));
                    continue;
                }
                Ok((Added::Exists, key)) => unavailable(
                    format!("Adding record failed: record already exists ({key})"),
                    &entry.key,
                ),
                Ok((Added::Full, _)) => {
                    let text = format!("Adding record failed: table {} is full", name.value);
                    unavailable(text, &entry.key)
                }
                Err(error) => error,
            };
            self.take_back(id, before);
            if found.is_none() {
                self.rules.tables.destroy(id);
            }
            return Err(failed);
        }
        Ok(())
    }

    /// Takes back changes of entries, the last one first.
    fn take_back(&mut self, id: TableId, before: Vec<(Key, Option<Vec<u32>>)>) {
        let table = self.rules.tables.table_mut(id);
        for (key, values) in before.into_iter().rev() {
            table.put_back(key, values);
        }
    }

    fn delete_entries(
        &mut self,
        name: &At<String>,
        keys: &[At<String>],
        flags: &Flags,
        output: &mut Output,
    ) -> Result<(), CommandError> {
        let id = self.find_table(name)?;
        let mut before: Vec<(Key, Option<Vec<u32>>)> = Vec::with_capacity(keys.len());
        for text in keys {
            let table = self.rules.tables.table_mut(id);
            let removed = table.key(text).and_then(|key| {
                let values = table.remove(&key);
                let missing = || {
                    unavailable(
                        format!("Deleting record failed: record not found ({key})"),
                        text,
                    )
                };
                values.ok_or_else(missing).map(|values| (key, values))
            });
            match removed {
                Ok((key, values)) => {
                    if !flags.quiet {
                        put(
                            output,
                            format_args!("deleted: {key} {}\n", ShowValues(&values)),
                        );
                    }
                    before.push((key, Some(values)));
                }
                Err(error) => {
                    self.take_back(id, before);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn look_up(
        &mut self,
        name: &At<String>,
        text: &At<String>,
        output: &mut Output,
    ) -> Result<(), CommandError> {
        let id = self.find_table(name)?;
        let table = self.rules.tables.table(id);
        let found = match table.key(text)? {
            Key::V4(bits, 32) => table.find_address(std::net::Ipv4Addr::from_bits(bits).into()),
            Key::V6(bits, 128) => table.find_address(std::net::Ipv6Addr::from_bits(bits).into()),
            Key::Number(n) => table.find_number(n),
            Key::Name(interface) => table.find_name(&interface),
            Key::V4(..) | Key::V6(..) => None,
        };
        match found {
            Some((key, values)) => {
                put(output, format_args!("{key} {}\n", ShowValues(values)));
                Ok(())
            }
            None => Err(unavailable(format!("Entry {} not found", text.value), text)),
        }
    }

    fn find_table(&self, name: &At<String>) -> Result<TableId, CommandError> {
        self.rules.tables.find(&name.value).ok_or_else(|| {
            let near = self.rules.tables.nearest(&name.value);
            CommandError {
                nearest: near.map(str::to_owned),
                ..not_found(name)
            }
        })
    }

    /// Returns the number of the first rule that names a table.
    fn first_rule_with(&self, table: &str) -> Option<u32> {
        let is_named =
            |term: Term| table_of(&term.condition).is_some_and(|(name, _)| name == table);
        let mut entries = self.rules.entries().iter();
        let first = entries.find(|e| e.rule.clauses().flatten().any(is_named));
        first.map(|e| e.number)
    }

    /// Returns the number of conditions of rules that name each table.
    fn references(&self) -> BTreeMap<String, usize> {
        let entries = self.rules.entries().iter();
        let terms = entries.flat_map(|e| e.rule.clauses().flatten());
        let mut counts = BTreeMap::new();
        for (name, _) in terms.filter_map(|term| table_of(&term.condition)) {
            visit();
            *counts.entry(name).or_default() += 1;
        }
        counts
    }
}

fn unavailable(text: String, at: &At<String>) -> CommandError {
    CommandError::new(ErrorKind::Unavailable(text), at.at)
}

fn not_found(name: &At<String>) -> CommandError {
    unavailable(format!("Table {} does not exist", name.value), name)
}

fn header(table: &Table, output: &mut Output) {
    put(
        output,
        format_args!("--- table({}), set(0) ---\n", table.name),
    );
}

fn list(table: &Table, has_header: bool, output: &mut Output) {
    if has_header {
        header(table, output);
    }
    for (key, values) in table.entries() {
        put(output, format_args!("{key} {}\n", ShowValues(values)));
    }
}

fn info(table: &Table, id: TableId, references: usize, output: &mut Output) {
    header(table, output);
    put(
        output,
        format_args!(" kindex: {}, type: {}\n", id.0, table.kind.word()),
    );
    let kinds = if table.values.is_empty() {
        "legacy".to_string()
    } else {
        ShowKinds(&table.values).to_string()
    };
    put(
        output,
        format_args!(" references: {references}, valtype: {kinds}\n"),
    );
    put(output, format_args!(" items: {}\n", table.len()));
    if table.limit > 0 {
        put(output, format_args!(" limit: {}\n", table.limit));
    }
}

#[cfg(test)]
mod tests {
    use sluice_core::event::{Cx, DropCounter};
    use sluice_core::{Rng, Time};

    use super::*;
    use crate::engine::Settings;
    use crate::headers::{Direction, Headers};
    use crate::objects::layout::NoFiles;
    use crate::rules::{Place, Walk};

    #[test]
    fn a_table_that_is_only_read_leaves_the_cache_of_flows() {
        let mut firewall = Firewall::new(&Settings::default());
        let (mut rng, mut sink) = (Rng::from_seed(1), DropCounter::default());
        let mut cx = Cx::new(Time::ZERO, &mut rng, &mut sink);
        let mut run = |firewall: &mut Firewall, text: &str| {
            firewall.command(text, &mut NoFiles, &mut cx).unwrap();
        };
        run(&mut firewall, "table t add 192.0.2.0/24 1");
        run(&mut firewall, "add deny ip from table(t) to any");
        let headers = Headers::new(
            Direction::In,
            17,
            [192, 0, 2, 7].into(),
            [10, 0, 0, 1].into(),
        );
        let walk = |firewall: &mut Firewall| {
            let walk = Walk {
                now: Time::ZERO,
                rng: &mut Rng::from_seed(1),
                packets: 1,
                one_pass: true,
                log: None,
            };
            firewall.rules.walk(&headers, &Place::START, walk).1
        };
        let place = walk(&mut firewall).place;
        firewall.rules.leave_hint(place, 7);
        for text in [
            "table t lookup 192.0.2.7",
            "table t list",
            "table t info",
            "table t detail",
            "table all list",
            "set show",
            "sysctl net.inet.ip.fw.one_pass",
        ] {
            run(&mut firewall, text);
            assert_eq!(walk(&mut firewall).hint, 7, "{text}");
        }
        run(&mut firewall, "table t add 192.0.2.7/32 2");
        assert_ne!(walk(&mut firewall).hint, 7, "the table has changed");
    }
}
