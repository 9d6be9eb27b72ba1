//! `add [number] [set S] [prob P] ACTION [log] PROTO from SRC to DST [OPTIONS] [// remark]`.

use sluice_core::param::Ratio;

use super::condition::{self, Clause, DIVERT, Term};
use crate::options::Condition;
use crate::words::address::{self, Address};
use crate::words::argument::{self, Ports, Protocol};
use crate::words::error::{CommandError, ErrorKind, nearest};
use crate::words::parser::{Parse, Parser, invalid, refused};
use crate::words::quantity::{self, decimal_integer};
use crate::words::token::At;

/// The highest number of a user's rule; 65535 is the built-in rule.
pub const LAST_RULE: u32 = 65534;
/// The set that cannot be disabled and survives `flush`.
pub const RESERVED_SET: u8 = 31;
/// The name of states and checks without a name.
pub const DEFAULT_FLOW: &str = "default";
/// The name in `check-state` that means the states of all names.
pub const ANY_FLOW: &str = "any";

/// A rule as written.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// The number, if given.
    pub number: Option<At<u32>>,
    /// Set.
    pub set: u8,
    /// The probability with which the rule is evaluated; `None` means 1.
    pub prob: Option<Ratio>,
    /// The treatment of a matching packet.
    pub action: Action,
    /// `log` and its limit.
    pub log: Option<Log>,
    /// The protocol.
    pub protocol: Clause,
    /// The source address.
    pub source: Clause,
    /// The source ports behind the source address.
    pub source_ports: Option<Term>,
    /// The destination address.
    pub destination: Clause,
    /// The options, including ports behind the destination address.
    pub options: Vec<Clause>,
    /// `keep-state` or `limit`.
    pub state: Option<State>,
    /// `// remark`.
    pub remark: Option<String>,
}

/// `log [logamount N]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Log {
    /// Entries until `resetlog`; 0 means no limit, `None` the variable `verbose_limit`.
    pub amount: Option<u32>,
}

/// A number, or the value of the last table that matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A number.
    Number(u32),
    /// The value of the table.
    TableArg,
}

/// The action of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Lets the packet pass.
    Allow,
    /// Drops the packet.
    Deny,
    /// Counts the packet and continues.
    Count,
    /// Sends the packet into a pipe.
    Pipe(Target),
    /// Sends the packet into a queue.
    Queue(Target),
    /// Continues at a later rule.
    SkipTo(Target),
    /// Continues at a rule until `return`.
    Call(Target),
    /// Continues behind the last `call`.
    Return,
    /// Applies the action of the rule that created a matching state.
    CheckState(String),
}

/// `keep-state` or `limit`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The name of the states.
    pub flow: String,
    /// `limit`: the number of states that may share the same fields.
    pub limit: Option<StateLimit>,
}

/// `limit FIELDS N`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateLimit {
    /// Counts by source address.
    pub by_source: bool,
    /// Counts by source port.
    pub by_source_port: bool,
    /// Counts by destination address.
    pub by_destination: bool,
    /// Counts by destination port.
    pub by_destination_port: bool,
    /// The most states.
    pub most: u32,
}

const ACTIONS: &[&str] = &[
    "allow",
    "accept",
    "pass",
    "permit",
    "deny",
    "drop",
    "count",
    "pipe",
    "queue",
    "skipto",
    "call",
    "return",
    "check-state",
];

/// Actions for purposes other than classifying and shaping.
const REFUSED: &[(&str, &str)] = &[
    ("reject", REPLIES),
    ("reset", REPLIES),
    ("reset6", REPLIES),
    ("unreach", REPLIES),
    ("unreach6", REPLIES),
    ("abort", REPLIES),
    ("abort6", REPLIES),
    ("divert", DIVERT),
    ("tee", DIVERT),
    ("netgraph", DIVERT),
    ("ngtee", DIVERT),
    ("fwd", ROUTES),
    ("forward", ROUTES),
    ("setfib", ROUTES),
    ("nat", REWRITES),
    ("nat64lsn", REWRITES),
    ("nat64stl", REWRITES),
    ("nat64clat", REWRITES),
    ("nptv6", REWRITES),
    ("tcp-setmss", REWRITES),
    ("setdscp", REWRITES),
    ("setmark", REWRITES),
    ("reass", "fragments are passed as they are"),
    ("eaction", "there are no external actions"),
];

const REPLIES: &str = "replies are never sent; use deny";
const ROUTES: &str = "routing is left to the host";
const REWRITES: &str = "headers are not rewritten";

impl Rule {
    /// Creates a rule that matches every packet.
    pub fn new(action: Action) -> Self {
        Rule {
            number: None,
            set: 0,
            prob: None,
            action,
            log: None,
            protocol: vec![Term::of(Condition::Protocol(Protocol::Any))],
            source: vec![Term::of(Condition::Source(Address::Any))],
            source_ports: None,
            destination: vec![Term::of(Condition::Destination(Address::Any))],
            options: Vec::new(),
            state: None,
            remark: None,
        }
    }

    /// Whether protocol and addresses are `ip from any to any`.
    pub fn has_plain_body(&self) -> bool {
        let plain = Rule::new(Action::Count);
        self.protocol == plain.protocol
            && self.source == plain.source
            && self.destination == plain.destination
            && self.source_ports.is_none()
    }

    /// Whether frames that are not IP are tested against this rule: it has the option `mac-type`.
    pub(crate) fn names_frames(&self) -> bool {
        let terms = || self.options.iter().flatten();
        terms().any(|term| matches!(term.condition, Condition::MacType(_)))
    }

    /// Iterates over the clauses that must hold, in the order in which they are written.
    pub fn clauses(&self) -> impl Iterator<Item = Clause> + '_ {
        let front = [&self.protocol, &self.source].into_iter().cloned();
        let ports = self.source_ports.iter().map(|term| vec![term.clone()]);
        let back = std::iter::once(&self.destination)
            .chain(&self.options)
            .cloned();
        front.chain(ports).chain(back)
    }
}

impl Term {
    /// Wraps a condition that is not negated.
    pub const fn of(condition: Condition) -> Self {
        Term {
            is_negated: false,
            condition,
        }
    }
}

/// Reads what follows `add`. `number` is the number that preceded `add`, if any.
pub(super) fn rule(
    p: &mut Parser<'_>,
    number: Option<At<u32>>,
    set: Option<u8>,
    remark: Option<String>,
) -> Parse<Rule> {
    let mut rule = Rule::new(Action::Count);
    rule.number = number;
    rule.set = set.unwrap_or(0);
    rule.remark = remark;
    if p.peek()
        .is_some_and(|w| w.starts_with(|c: char| c.is_ascii_digit()))
    {
        let word = p.take().expect("the word was just seen");
        rule.number = rule_number(word)?;
    }
    loop {
        if p.accept("set") {
            let word = p.need("need rule number")?;
            rule.set = set_number(word)?;
        } else if p.accept("prob") {
            let word = p.need("missing match prob.")?;
            let prob = quantity::decimal(word).unwrap_or_default();
            if prob == Ratio::default() || prob > Ratio::ONE {
                return Err(refused("illegal match prob.", word.at));
            }
            rule.prob = Some(prob).filter(|p| *p < Ratio::ONE);
        } else {
            break;
        }
    }
    match p.take() {
        Some(word) => rule.action = action(p, word)?,
        // `add // remark` is a `count` rule.
        None if rule.remark.is_some() => return Ok(rule),
        None => {
            return Err(CommandError::new(
                ErrorKind::Needs("missing action".into()),
                p.at(),
            ));
        }
    }
    modifiers(p, &mut rule)?;
    if let Action::CheckState(_) = rule.action {
        p.finish()?;
        return Ok(rule);
    }
    if p.peek() == Some("from") {
        // Examples in the paper on dummynet's CoDel omit the protocol, which ipfw
        // refuses.
        p.warn(p.at(), "no protocol before `from`: ip is assumed");
        body(p, &mut rule)?;
    } else if starts_with_protocol(p) {
        rule.protocol = block(p, |_, word| {
            argument::protocol(word).map(Condition::Protocol)
        })?;
        body(p, &mut rule)?;
    }
    let at = p.at();
    options(p, &mut rule)?;
    let has_action = matches!(rule.action, Action::Allow | Action::Deny | Action::Count);
    if rule.names_frames() && (!has_action || rule.state.is_some()) {
        let text = "mac-type goes with allow, deny and count only, without keep-state and limit";
        return Err(refused(text, at));
    }
    Ok(rule)
}

/// Reads a rule number; 0 asks for the next free one.
pub(super) fn rule_number(word: At<&str>) -> Parse<Option<At<u32>>> {
    match decimal_integer(word.value) {
        Some(0) => Ok(None),
        Some(n) if n <= u128::from(LAST_RULE) => Ok(Some(At::new(n as u32, word.at))),
        _ => Err(invalid(word, "a rule number", "1 to 65534")),
    }
}

/// Reads the number of a set.
pub(super) fn set_number(word: At<&str>) -> Parse<u8> {
    decimal_integer(word.value)
        .filter(|n| *n <= u128::from(RESERVED_SET))
        .map(|n| n as u8)
        .ok_or_else(|| invalid(word, "a set", "0 to 31"))
}

fn action(p: &mut Parser<'_>, word: At<&str>) -> Parse<Action> {
    Ok(match word.value {
        "allow" | "accept" | "pass" | "permit" => Action::Allow,
        "deny" | "drop" => Action::Deny,
        "count" => Action::Count,
        "pipe" => Action::Pipe(target(p, "illegal argument for pipe")?),
        "queue" => Action::Queue(target(p, "illegal argument for queue")?),
        "skipto" => Action::SkipTo(target(p, "illegal argument for skipto")?),
        "call" => Action::Call(target(p, "illegal argument for call")?),
        "return" => Action::Return,
        "check-state" => Action::CheckState(looked_up_name(p)?),
        name => {
            if let Some((name, purpose)) = REFUSED.iter().find(|(n, _)| *n == name) {
                let kind = ErrorKind::OutsidePurpose {
                    word: (*name).to_string(),
                    purpose,
                };
                return Err(CommandError::new(kind, word.at));
            }
            let kind = ErrorKind::Contradiction(format!("invalid action {name}"));
            return Err(CommandError::new(kind, word.at).near(name, ACTIONS.iter().copied()));
        }
    })
}

fn target(p: &mut Parser<'_>, illegal: &'static str) -> Parse<Target> {
    let Some(word) = p.take() else {
        return Err(CommandError::new(
            ErrorKind::Needs("missing argument".into()),
            p.at(),
        ));
    };
    if word.value == "tablearg" {
        return Ok(Target::TableArg);
    }
    match decimal_integer(word.value) {
        Some(n) if (1..=u128::from(LAST_RULE)).contains(&n) => Ok(Target::Number(n as u32)),
        _ => Err(refused(illegal, word.at)),
    }
}

/// Reads the `:name` of `check-state`, or returns the default.
fn looked_up_name(p: &mut Parser<'_>) -> Parse<String> {
    match p.peek().and_then(|w| w.strip_prefix(':')) {
        Some(ANY_FLOW) => {
            p.take();
            Ok(ANY_FLOW.to_string())
        }
        _ => flow_name(p),
    }
}

/// Reads the `:name` of a state, or returns the default.
fn flow_name(p: &mut Parser<'_>) -> Parse<String> {
    let Some(name) = p.peek().and_then(|w| w.strip_prefix(':')) else {
        return Ok(DEFAULT_FLOW.to_string());
    };
    let word = p.take().expect("the word was just seen");
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if name == ANY_FLOW {
        Err(refused(
            "`:any` is for `check-state` only: a state has a name of its own",
            word.at,
        ))
    } else if (1..64).contains(&name.len()) && name.chars().all(is_name) {
        Ok(name.to_string())
    } else {
        Err(invalid(
            word,
            "a flow name",
            ":name, letters, digits, _ - and .",
        ))
    }
}

fn modifiers(p: &mut Parser<'_>, rule: &mut Rule) -> Parse<()> {
    while let Some(word) = p.peek() {
        let at = p.at();
        match word {
            "log" => {
                p.take();
                let mut log = Log { amount: None };
                if p.accept("logamount") {
                    let amount = p.need("logamount requires argument")?;
                    log.amount = Some(super::object::integer(amount)?);
                }
                rule.log = Some(log);
            }
            "altq" | "tag" | "untag" => {
                let kind = ErrorKind::OutsidePurpose {
                    word: word.to_string(),
                    purpose: "packets carry no tags; use pipes and queues",
                };
                return Err(CommandError::new(kind, at));
            }
            _ => break,
        }
    }
    Ok(())
}

/// Whether the next word, or the first one in braces, is a protocol.
fn starts_with_protocol(p: &Parser<'_>) -> bool {
    let mut ahead = 0;
    loop {
        let Some(word) = p.peek_at(ahead) else {
            return false;
        };
        match word {
            "{" | "not" => ahead += 1,
            _ => return argument::find_protocol(word).is_some(),
        }
    }
}

/// Reads `from SRC [ports] to DST [ports]`.
fn body(p: &mut Parser<'_>, rule: &mut Rule) -> Parse<()> {
    preposition(p, "from", "missing ``from''")?;
    rule.source = block(p, |_, word| address::address(word).map(Condition::Source))?;
    rule.source_ports = positional_ports(p, Condition::SourcePort)?;
    preposition(p, "to", "missing ``to''")?;
    rule.destination = block(p, |_, word| {
        address::address(word).map(Condition::Destination)
    })?;
    if let Some(term) = positional_ports(p, Condition::DestinationPort)? {
        rule.options.push(vec![term]);
    }
    Ok(())
}

/// Takes `word`, or reports that it is missing or misspelt.
fn preposition(p: &mut Parser<'_>, word: &'static str, missing: &'static str) -> Parse<()> {
    if p.accept(word) {
        return Ok(());
    }
    let found = p.peek().unwrap_or("");
    let kind = match nearest(found, [word]) {
        Some(_) => ErrorKind::Unrecognised(found.to_string()),
        None => ErrorKind::Refused(missing),
    };
    Err(CommandError::new(kind, p.at()).near(found, [word]))
}

/// Reads ports behind an address, with an optional `not`.
fn positional_ports(p: &mut Parser<'_>, make: fn(Ports) -> Condition) -> Parse<Option<Term>> {
    let is_negated = p.peek() == Some("not");
    let word = p.peek_at(usize::from(is_negated));
    if !word.is_some_and(|w| !condition::is_option(w) && address::looks_like_ports(w)) {
        return Ok(None);
    }
    if is_negated {
        p.take();
    }
    let word = p.take().expect("the word was just seen");
    let condition = make(Ports(address::ports(word)?));
    Ok(Some(Term {
        is_negated,
        condition,
    }))
}

/// Reads one term, or `{ a or b }`. `read` reads a condition from its first word.
fn block(
    p: &mut Parser<'_>,
    read: fn(&mut Parser<'_>, At<&str>) -> Parse<Condition>,
) -> Parse<Clause> {
    let mut clause = Clause::new();
    let is_open = p.accept("{");
    loop {
        let is_negated = p.accept("not");
        let word = p.need(if is_open {
            "missing closing brace"
        } else {
            "missing argument"
        })?;
        if matches!(word.value, "{" | "}" | "or" | "not") {
            return Err(refused("invalid \"or\" block", word.at));
        }
        if is_open && matches!(word.value, "keep-state" | "limit") {
            return Err(refused("keep-state cannot be part of an or block", word.at));
        }
        let condition = read(p, word)?;
        clause.push(Term {
            is_negated,
            condition,
        });
        if !is_open || p.accept("}") {
            return Ok(clause);
        }
        if !p.accept("or") {
            return Err(refused("missing ``or'' or closing brace", p.at()));
        }
    }
}

fn options(p: &mut Parser<'_>, rule: &mut Rule) -> Parse<()> {
    while let Some(word) = p.peek() {
        if !matches!(word, "keep-state" | "limit") {
            rule.options.push(block(p, condition::condition)?);
            continue;
        }
        if rule.state.is_some() {
            return Err(refused(
                "only one of keep-state and limit is allowed",
                p.at(),
            ));
        }
        p.take();
        rule.state = Some(if word == "limit" {
            limit(p)?
        } else {
            State {
                flow: flow_name(p)?,
                limit: None,
            }
        });
    }
    Ok(())
}

fn limit(p: &mut Parser<'_>) -> Parse<State> {
    let mut limit = StateLimit {
        by_source: false,
        by_source_port: false,
        by_destination: false,
        by_destination_port: false,
        most: 0,
    };
    loop {
        let word = p.need("limit needs mask and # of connections")?;
        match word.value {
            "src-addr" => limit.by_source = true,
            "src-port" => limit.by_source_port = true,
            "dst-addr" => limit.by_destination = true,
            "dst-port" => limit.by_destination_port = true,
            _ => {
                let most = super::object::integer(word)?;
                if most == 0 || most > 65535 {
                    return Err(invalid(word, "a number of connections", "1 to 65535"));
                }
                limit.most = most;
                break;
            }
        }
    }
    if !(limit.by_source
        || limit.by_source_port
        || limit.by_destination
        || limit.by_destination_port)
    {
        return Err(refused("missing limit mask", p.at()));
    }
    Ok(State {
        flow: flow_name(p)?,
        limit: Some(limit),
    })
}
