//! The commands: flags, verbs and their arguments.

use super::flags::{self, Flags};
use super::object::{self, Config, ObjectKind};
use super::rule::{self, Rule};
use super::table::{self, TableCommand};
use crate::words::error::{CommandError, ErrorKind};
use crate::words::parser::{Parse, Parser, invalid, unrecognised};
use crate::words::quantity::decimal_integer;
use crate::words::token::{At, Position, Words};

/// A range of numbers, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first number.
    pub first: u32,
    /// The last number.
    pub last: u32,
}

/// The action of a `set` command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetCommand {
    /// Shows which sets are disabled.
    Show,
    /// Disables and enables sets.
    Switch {
        /// The sets to disable.
        disable: Vec<u8>,
        /// The sets to enable.
        enable: Vec<u8>,
    },
    /// Moves one rule to a set.
    MoveRule(At<u32>, u8),
    /// Moves all rules of a set to another set.
    Move(u8, u8),
    /// Swaps two sets.
    Swap(u8, u8),
}

/// The switches of `enable` and `disable`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// The evaluation of rules as a whole.
    Firewall,
    /// `one_pass`.
    OnePass,
    /// `debug`.
    Debug,
    /// `verbose`.
    Verbose,
    /// `dyn_keepalive`.
    DynKeepalive,
    /// `altq`.
    Altq,
}

pub(super) const SWITCHES: &[(&str, Switch)] = &[
    ("firewall", Switch::Firewall),
    ("one_pass", Switch::OnePass),
    ("debug", Switch::Debug),
    ("verbose", Switch::Verbose),
    ("dyn_keepalive", Switch::DynKeepalive),
    ("altq", Switch::Altq),
];

/// One variable of a `sysctl` command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// The name.
    pub name: At<String>,
    /// The value to set; `None` to show the variable.
    pub value: Option<At<String>>,
}

impl Variable {
    /// A variable that is shown and not set.
    pub(crate) fn shown(name: &str) -> Variable {
        Variable {
            name: At::new(name.to_string(), Position::default()),
            value: None,
        }
    }
}

/// A command.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// `pipe N config ...`, `queue N config ...`, `sched N config ...`.
    Configure(Box<Config>),
    /// `pipe show [N...]`.
    ShowObjects(ObjectKind, Vec<At<Span>>),
    /// `pipe N delete`.
    DeleteObjects(ObjectKind, Vec<At<u32>>),
    /// `pipe flush`.
    FlushObjects(ObjectKind),
    /// `add ...`.
    Add(Box<Rule>),
    /// `list` or, with counters, `show`.
    List {
        /// Whether counters are shown.
        has_counters: bool,
        /// The numbers to list; all if empty.
        rules: Vec<At<Span>>,
        /// The set to list; `None` for all.
        set: Option<u8>,
    },
    /// `delete N...`, or `delete set S`.
    Delete {
        /// The numbers to delete.
        rules: Vec<At<Span>>,
        /// The set to which the command is limited. Without numbers, the whole set is deleted.
        set: Option<u8>,
    },
    /// `zero [N...]`.
    Zero {
        /// The numbers to clear; all if empty.
        rules: Vec<At<Span>>,
        /// The set to which the command is limited.
        set: Option<u8>,
        /// Clears the count of `log` entries only.
        log_only: bool,
    },
    /// `flush`.
    Flush(Option<u8>),
    /// `set ...`.
    Set(SetCommand),
    /// `table ...`.
    Table(TableCommand),
    /// `enable` or `disable`.
    Switch(Switch, bool),
    /// `sysctl ...`.
    Sysctl {
        /// `-n`: values only.
        values_only: bool,
        /// The variables.
        variables: Vec<Variable>,
    },
    /// The name of a file of commands.
    Batch(At<String>),
}

impl Command {
    /// Whether the command only shows something: it changes neither the configuration nor a counter.
    /// A file of commands does not count as one, whatever its lines are.
    pub fn is_reading(&self) -> bool {
        match self {
            Command::ShowObjects(..) | Command::List { .. } | Command::Set(SetCommand::Show) => {
                true
            }
            Command::Table(command) => command.action.is_reading(),
            Command::Sysctl { variables, .. } => {
                variables.iter().all(|variable| variable.value.is_none())
            }
            _ => false,
        }
    }
}

/// A command with its flags.
#[derive(Clone, Debug, PartialEq)]
pub struct Invocation {
    /// The flags.
    pub flags: Flags,
    /// The command.
    pub command: Command,
}

impl Invocation {
    /// Whether a person should confirm the command: it deletes things, and neither `-f` nor `-q` is
    /// set.
    pub const fn needs_confirmation(&self) -> bool {
        let destroys = matches!(self.command, Command::Flush(_) | Command::FlushObjects(_));
        destroys && !self.flags.force && !self.flags.quiet
    }
}

const COMMANDS: &[&str] = &[
    "pipe", "queue", "flowset", "sched", "add", "delete", "list", "show", "zero", "resetlog",
    "flush", "set", "table", "enable", "disable", "sysctl",
];

const REFUSED: &[&str] = &[
    "nat",
    "nat64lsn",
    "nat64stl",
    "nat64clat",
    "nptv6",
    "internal",
    "talist",
    "iflist",
    "olist",
    "vlist",
    "ifc",
];

/// Reads a line that is not empty.
pub(super) fn invocation(p: &mut Parser<'_>, words: &Words<'_>) -> Parse<Invocation> {
    let mut is_dnctl = false;
    // A line of a script names the program; a line of a batch file does not.
    if let Some(word) = p.peek() {
        match word.rsplit('/').next() {
            Some("ipfw") => drop(p.take()),
            Some("dnctl") => {
                is_dnctl = true;
                p.take();
            }
            _ => {}
        }
    }
    let flags = flags::flags(p)?;
    let command = command(p, words, is_dnctl).and_then(|command| p.finish().map(|()| command));
    let command = command.map_err(|error| flags::misplaced(error, words))?;
    let has_json = matches!(command, Command::ShowObjects(..) | Command::List { .. });
    if flags.json && command.is_reading() && !has_json {
        // Text in place of JSON would be a damaged answer for a program.
        return Err(flags::no_json(words));
    }
    Ok(Invocation { flags, command })
}

fn command(p: &mut Parser<'_>, words: &Words<'_>, is_dnctl: bool) -> Parse<Command> {
    let Some(word) = p.take() else {
        return Err(CommandError::new(ErrorKind::NoCommand, p.at()));
    };
    if let Some(kind) = object_kind(p, word) {
        return object_command(p, kind);
    }
    if is_dnctl {
        let kind = ErrorKind::BadCommand(word.value.to_string());
        return Err(CommandError::new(kind, word.at).near(word.value, ["pipe", "queue", "sched"]));
    }
    if word.value.starts_with('/') && p.left() == 0 {
        return Ok(Command::Batch(At::new(word.value.to_string(), word.at)));
    }
    if word.value == "set" {
        return set_prefix(p, words);
    }
    // `100 add ...` is `add 100 ...`.
    if let Some(number) = decimal_integer(word.value) {
        if number > 0 && p.peek() == Some("add") {
            p.take();
            let number = rule::rule_number(word)?;
            return Ok(Command::Add(Box::new(rule::rule(
                p,
                number,
                None,
                words.remark.clone(),
            )?)));
        }
        // `100 delete` and similar: the number precedes the verb.
        let verb = p.need("missing command")?;
        let span = span(word)?;
        return rule_command(p, words, verb, Some(At::new(span, word.at)), None);
    }
    rule_command(p, words, word, None, None)
}

/// Returns the object that `word` names. Prefixes of `pipe` are accepted silently, others with a
/// warning.
fn object_kind(p: &mut Parser<'_>, word: At<&str>) -> Option<ObjectKind> {
    let text = word.value;
    let is_prefix = |full: &str, least: usize| text.len() >= least && full.starts_with(text);
    let (kind, full) = if is_prefix("pipe", 1) {
        return Some(ObjectKind::Pipe);
    } else if is_prefix("queue", 1) {
        (ObjectKind::Queue, "queue")
    } else if is_prefix("flowset", 3) {
        (ObjectKind::Queue, "flowset")
    } else if is_prefix("sched", 2) {
        (ObjectKind::Scheduler, "sched")
    } else {
        return None;
    };
    if text != full {
        p.warn(
            word.at,
            format!("DEPRECATED: '{text}' matched '{full}' as a sub-string"),
        );
    }
    Some(kind)
}

fn object_command(p: &mut Parser<'_>, kind: ObjectKind) -> Parse<Command> {
    // `pipe 1 config` and `pipe config 1` are the same; this applies to the other verbs too.
    let is_number = |w: &str| w.starts_with(|c: char| c.is_ascii_digit());
    let before = p.peek().filter(|w| is_number(w)).and_then(|_| p.take());
    let verb = p.need("missing command")?;
    let is_verb = |full: &str| full.starts_with(verb.value);
    if is_verb("config") {
        let number = match before {
            Some(word) => word,
            None => p.need("need a pipe/flowset/sched number")?,
        };
        let number = object_number(number)?;
        return Ok(Command::Configure(Box::new(object::config(
            p, kind, number,
        )?)));
    }
    if is_verb("delete") {
        let mut numbers: Vec<At<u32>> = Vec::new();
        for word in before.into_iter().chain(std::iter::from_fn(|| p.take())) {
            for item in word.value.split(',') {
                numbers.push(object_number(At::new(item, word.at))?);
            }
        }
        if numbers.is_empty() {
            p.need("need a pipe/flowset/sched number")?;
        }
        return Ok(Command::DeleteObjects(kind, numbers));
    }
    if is_verb("list") || is_verb("show") || is_verb("print") {
        let mut spans = Vec::new();
        let words: Vec<At<&str>> = before
            .into_iter()
            .chain(std::iter::from_fn(|| p.take()))
            .collect();
        for word in words {
            selectors(p, word, &mut spans);
        }
        return Ok(Command::ShowObjects(kind, spans));
    }
    if is_verb("flush") {
        if let Some(word) = before {
            p.warn(
                word.at,
                format!(
                    "`{} flush` deletes every pipe, queue and scheduler, not only {}",
                    kind.word(),
                    word.value
                ),
            );
        }
        return Ok(Command::FlushObjects(kind));
    }
    if is_verb("zero") {
        let text = format!(
            "`{} zero` clears the counters of rules, not those of pipes",
            kind.word()
        );
        p.warn(verb.at, text);
        return Ok(Command::Zero {
            rules: Vec::new(),
            set: None,
            log_only: false,
        });
    }
    let kind = ErrorKind::BadCommand(verb.value.to_string());
    let verbs = ["config", "delete", "list", "show", "flush", "zero"];
    Err(CommandError::new(kind, verb.at).near(verb.value, verbs))
}

fn object_number(word: At<&str>) -> Parse<At<u32>> {
    match decimal_integer(word.value) {
        Some(n) if (1..=65535).contains(&n) => Ok(At::new(n as u32, word.at)),
        Some(n) if n > 65535 => {
            let kind = ErrorKind::Kernel {
                call: "IP_DUMMYNET_CONFIGURE",
                errno: "Invalid argument",
                reason: format!("number {n} is outside 1 to 65535"),
            };
            Err(CommandError::new(kind, word.at))
        }
        _ => {
            let text = "need a pipe/flowset/sched number";
            Err(CommandError::new(ErrorKind::Needs(text.into()), word.at))
        }
    }
}

/// Reads the selectors of `show`, with warnings about those that dummynet silently ignores.
fn selectors(p: &mut Parser<'_>, word: At<&str>, spans: &mut Vec<At<Span>>) {
    for item in word.value.split(',') {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        match (decimal_integer(first), decimal_integer(last)) {
            (Some(first), Some(last)) if first <= last && last < 65535 => {
                let span = Span {
                    first: first as u32,
                    last: last as u32,
                };
                spans.push(At::new(span, word.at));
            }
            _ if p.leaves_unsaid() => {}
            (Some(_), Some(_)) => {
                p.warn(word.at, format!("`{item}` is ignored: it selects nothing"))
            }
            _ => p.warn(word.at, format!("invalid number {item}")),
        }
    }
}

/// Reads `set N command ...`, or a command about sets.
fn set_prefix(p: &mut Parser<'_>, words: &Words<'_>) -> Parse<Command> {
    let word = p.need("set needs command")?;
    let command = match word.value {
        "show" => SetCommand::Show,
        "swap" => {
            let a = rule::set_number(p.need("set swap needs 2 set numbers")?)?;
            let b = rule::set_number(p.need("set swap needs 2 set numbers")?)?;
            SetCommand::Swap(a, b)
        }
        "move" => {
            let is_rule = p.accept("rule");
            let from = p.need("syntax: set move [rule] X to Y")?;
            if !p.accept("to") {
                let text = "syntax: set move [rule] X to Y";
                return Err(CommandError::new(ErrorKind::Needs(text.into()), p.at()));
            }
            let to = rule::set_number(p.need("syntax: set move [rule] X to Y")?)?;
            match rule::rule_number(from) {
                Ok(Some(number)) if is_rule => SetCommand::MoveRule(number, to),
                _ if is_rule => return Err(invalid(from, "a rule number", "1 to 65534")),
                _ => SetCommand::Move(rule::set_number(from)?, to),
            }
        }
        "enable" | "disable" => set_switch(p, word.value == "enable")?,
        text if text.starts_with(|c: char| c.is_ascii_digit()) => {
            let set = rule::set_number(word)?;
            let verb = p.need("set needs command")?;
            return rule_command(p, words, verb, None, Some(set));
        }
        name => {
            return Err(
                unrecognised(word).near(name, ["show", "swap", "move", "enable", "disable"])
            );
        }
    };
    Ok(Command::Set(command))
}

fn set_switch(p: &mut Parser<'_>, mut is_enable: bool) -> Parse<SetCommand> {
    let (mut disable, mut enable) = (Vec::new(), Vec::new());
    while let Some(word) = p.take() {
        match word.value {
            "enable" => is_enable = true,
            "disable" => is_enable = false,
            _ => {
                let set = rule::set_number(word)?;
                if set == rule::RESERVED_SET && !is_enable {
                    return Err(invalid(word, "a set that can be disabled", "0 to 30"));
                }
                if is_enable { &mut enable } else { &mut disable }.push(set);
            }
        }
    }
    if disable.is_empty() && enable.is_empty() {
        p.need("invalid set number")?;
    }
    Ok(SetCommand::Switch { disable, enable })
}

/// Reads a command about rules, tables or variables.
fn rule_command(
    p: &mut Parser<'_>,
    words: &Words<'_>,
    verb: At<&str>,
    before: Option<At<Span>>,
    set: Option<u8>,
) -> Parse<Command> {
    let is = |full: &str, least: usize| verb.value.len() >= least && full.starts_with(verb.value);
    if before.is_none() {
        if is("add", 1) {
            return Ok(Command::Add(Box::new(rule::rule(
                p,
                None,
                set,
                words.remark.clone(),
            )?)));
        }
        if is("flush", 1) {
            return Ok(Command::Flush(set));
        }
        if is("table", 1) {
            return Ok(Command::Table(table::table(p)?));
        }
        if is("enable", 2) || is("disable", 2) {
            return switch(p, verb.value.starts_with('e'));
        }
        if verb.value == "sysctl" || verb.value.ends_with("/sysctl") {
            return sysctl(p);
        }
    }
    let mut rules: Vec<At<Span>> = before.into_iter().collect();
    if is("delete", 1) {
        let mut set = set;
        while let Some(word) = p.take() {
            if word.value == "set" {
                set = Some(rule::set_number(p.need("need set number")?)?);
            } else {
                push_spans(word, &mut rules)?;
            }
        }
        if rules.is_empty() && set.is_none() {
            p.need("missing rule specification")?;
        }
        return Ok(Command::Delete { rules, set });
    }
    let is_show = is("show", 2);
    if is_show || is("list", 1) || is("print", 2) {
        spans(p, &mut rules)?;
        return Ok(Command::List {
            has_counters: is_show,
            rules,
            set,
        });
    }
    if is("zero", 1) || is("resetlog", 1) {
        spans(p, &mut rules)?;
        let log_only = verb.value.starts_with('r');
        return Ok(Command::Zero {
            rules,
            set,
            log_only,
        });
    }
    if REFUSED.contains(&verb.value) {
        let kind = ErrorKind::OutsidePurpose {
            word: verb.value.to_string(),
            purpose: "packets are classified and shaped, headers are not rewritten",
        };
        return Err(CommandError::new(kind, verb.at));
    }
    let kind = ErrorKind::BadCommand(verb.value.to_string());
    let mut error = CommandError::new(kind, verb.at);
    if verb.value.contains(['.', '/']) && p.left() == 0 {
        error.advice =
            Some("a file of commands is named by its absolute path, which begins with /");
        return Err(error);
    }
    Err(error.near(verb.value, COMMANDS.iter().copied()))
}

fn spans(p: &mut Parser<'_>, spans: &mut Vec<At<Span>>) -> Parse<()> {
    while let Some(word) = p.take() {
        push_spans(word, spans)?;
    }
    Ok(())
}

fn push_spans(word: At<&str>, spans: &mut Vec<At<Span>>) -> Parse<()> {
    for item in word.value.split(',') {
        spans.push(At::new(span(At::new(item, word.at))?, word.at));
    }
    Ok(())
}

fn span(word: At<&str>) -> Parse<Span> {
    let (first, last) = word
        .value
        .split_once('-')
        .unwrap_or((word.value, word.value));
    match (decimal_integer(first), decimal_integer(last)) {
        (Some(first), Some(last)) if first <= last && last <= 65535 => Ok(Span {
            first: first as u32,
            last: last as u32,
        }),
        _ => Err(invalid(
            word,
            "a rule number",
            "1 to 65535, or a range such as 100-200",
        )),
    }
}

fn switch(p: &mut Parser<'_>, is_on: bool) -> Parse<Command> {
    let word = p.need("missing keyword to enable/disable")?;
    match SWITCHES.iter().find(|(name, _)| *name == word.value) {
        Some((_, which)) => {
            if matches!(which, Switch::Debug | Switch::Altq | Switch::DynKeepalive) {
                p.warn(
                    word.at,
                    format!("`{}` is stored but has no effect", word.value),
                );
            }
            Ok(Command::Switch(*which, is_on))
        }
        None => Err(unrecognised(word).near(word.value, SWITCHES.iter().map(|(n, _)| *n))),
    }
}

fn sysctl(p: &mut Parser<'_>) -> Parse<Command> {
    let mut values_only = false;
    let mut variables = Vec::new();
    while let Some(word) = p.take() {
        match word.value {
            "-n" => values_only = true,
            "-w" | "-q" | "-a" => {}
            text if text.starts_with('-') => {
                return Err(CommandError::new(
                    ErrorKind::UnknownFlag(text[1..].to_string()),
                    word.at,
                ));
            }
            text => {
                let (name, value) = match text.split_once('=') {
                    Some((name, value)) => (name, Some(At::new(value.to_string(), word.at))),
                    None => (text, None),
                };
                let is_plain = |text: &str| {
                    let is = |c: char| c.is_ascii_alphanumeric() || "._-%".contains(c);
                    !text.is_empty() && text.chars().all(is)
                };
                if !is_plain(name) {
                    let kind = ErrorKind::UnknownVariable(name.to_string());
                    return Err(CommandError::new(kind, word.at));
                }
                if let Some(value) = value.as_ref().filter(|v| !is_plain(&v.value)) {
                    let kind = ErrorKind::Invalid {
                        text: value.value.clone(),
                        what: "a value",
                        accepted: "a whole number",
                    };
                    return Err(CommandError::new(kind, word.at));
                }
                let name = At::new(name.to_string(), word.at);
                variables.push(Variable { name, value });
            }
        }
    }
    Ok(Command::Sysctl {
        values_only,
        variables,
    })
}
