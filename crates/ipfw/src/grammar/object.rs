//! `pipe|queue|sched N config ...`: the options of dummynet's objects.

use std::fmt;

use sluice_core::link::LinkParams;
use sluice_core::param::{ParamDecl, Ratio, Value, Values};
use sluice_core::registry::{Form, Setting, Spec};
use sluice_core::units::{Rate, Span};

use super::algorithm::{self, ShowSpec};
use super::mask::mask;
use crate::flow::Mask;
use crate::words::error::{CommandError, ErrorKind};
use crate::words::parser::{Parse, Parser, invalid, refused, unrecognised};
use crate::words::quantity::{self, QueueSize, ShowDelay, ShowRate, whole_integer};
use crate::words::token::At;

/// The object of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectKind {
    /// A link with its rate and delay, and the FIFO in front of it.
    Pipe,
    /// A flowset, which a `queue` rule names.
    Queue,
    /// A scheduler.
    Scheduler,
}

impl ObjectKind {
    /// Returns the word of the command line.
    pub const fn word(self) -> &'static str {
        match self {
            ObjectKind::Pipe => "pipe",
            ObjectKind::Queue => "queue",
            ObjectKind::Scheduler => "sched",
        }
    }
}

/// The policy that drops or marks packets before a queue is full.
#[derive(Clone, Debug, PartialEq)]
pub enum Policy {
    /// `red` or `gred` in dummynet's own syntax.
    Red(RedWords),
    /// An AQM of the registry.
    Aqm(Spec),
}

/// `red w_q/min_th/max_th/max_p`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedWords {
    /// Whether the probability rises gradually above the upper threshold (`gred`) instead of
    /// jumping to 1.
    pub is_gentle: bool,
    /// The weight of the newest sample.
    pub weight: Ratio,
    /// The average below which no packet is dropped, in slots or bytes like the queue size.
    pub min: u64,
    /// The average above which every packet is dropped.
    pub max: u64,
    /// The probability at the upper threshold.
    pub max_p: Ratio,
    /// Whether packets are marked instead.
    pub ecn: bool,
}

/// `plr`: the loss in front of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Each packet independently.
    Independent(Ratio),
    /// The two-state model of Gilbert and Elliott.
    TwoState {
        /// Probability of loss in the good state.
        good: Ratio,
        /// Probability of a change from good to bad.
        to_bad: Ratio,
        /// Probability of loss in the bad state.
        bad: Ratio,
        /// Probability of a change from bad to good.
        to_good: Ratio,
    },
}

/// The discipline in a `sched` command.
#[derive(Clone, Debug, PartialEq)]
pub struct SchedulerWords {
    /// The discipline with its parameters.
    pub spec: Spec,
    /// Whether `type` precedes it. Otherwise only the parameters change.
    pub is_typed: bool,
}

/// `pipe|queue|sched N config ...`.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The object.
    pub kind: ObjectKind,
    /// The number, 1 to 65535.
    pub number: At<u32>,
    /// `bw`.
    pub rate: Option<Rate>,
    /// `delay`.
    pub delay: Option<Span>,
    /// `burst`, in bytes.
    pub burst: Option<u64>,
    /// `profile`: the name of a file.
    pub profile: Option<At<String>>,
    /// Further effects of the link: overhead, jitter, duplicates and others.
    pub effects: Values,
    /// `queue`.
    pub queue: Option<At<QueueSize>>,
    /// `plr`.
    pub loss: Option<Loss>,
    /// `red`, `gred`, or an AQM.
    pub policy: Option<At<Policy>>,
    /// `noerror`.
    pub noerror: bool,
    /// `weight`.
    pub weight: Option<At<u32>>,
    /// `lmax`.
    pub max_len: Option<At<u32>>,
    /// `pri`.
    pub priority: Option<u32>,
    /// `pipe M` or `sched M`.
    pub parent: Option<At<u32>>,
    /// `mask`.
    pub mask: Option<At<Mask>>,
    /// `buckets`.
    pub buckets: Option<u32>,
    /// `type`, or the parameters of a flow-queueing discipline.
    pub scheduler: Option<At<SchedulerWords>>,
}

/// Every option word, for suggestions.
pub(super) const OPTIONS: &[&str] = &[
    "bw",
    "bandwidth",
    "delay",
    "burst",
    "profile",
    "queue",
    "plr",
    "noerror",
    "buckets",
    "mask",
    "sched_mask",
    "flow_mask",
    "weight",
    "lmax",
    "maxlen",
    "pri",
    "priority",
    "pipe",
    "sched",
    "type",
    "red",
    "gred",
    "ecn",
    "droptail",
];

impl Config {
    /// Creates an object without settings.
    pub const fn new(kind: ObjectKind, number: At<u32>) -> Self {
        Config {
            kind,
            number,
            rate: None,
            delay: None,
            burst: None,
            profile: None,
            effects: Values::new(),
            queue: None,
            loss: None,
            policy: None,
            noerror: false,
            weight: None,
            max_len: None,
            priority: None,
            parent: None,
            mask: None,
            buckets: None,
            scheduler: None,
        }
    }
}

/// Reads the options behind `config`.
pub(super) fn config(p: &mut Parser<'_>, kind: ObjectKind, number: At<u32>) -> Parse<Config> {
    let mut c = Config::new(kind, number);
    let mut ecn = None;
    while let Some(word) = p.take() {
        match word.value {
            "bw" | "bandwidth" => {
                for_links(kind, word, "bw")?;
                let value = p.need("bw needs bandwidth or interface")?;
                if c.rate.is_some() {
                    p.warn(word.at, "duplicate token, override bandwidth value!");
                }
                c.rate = Some(quantity::rate(p, value)?);
            }
            "delay" => {
                for_links(kind, word, "delay")?;
                let value = p.need("delay needs argument 0..10000ms")?;
                c.delay = Some(quantity::delay(p, value)?);
            }
            "burst" => {
                for_links(kind, word, "burst")?;
                let value = p.need("burst needs argument")?;
                c.burst = Some(quantity::burst(p, value)?);
            }
            "profile" => {
                for_links(kind, word, "profile")?;
                if c.profile.is_some() {
                    return Err(refused("profile already set", word.at));
                }
                let value = p.need("profile needs a file name")?;
                c.profile = Some(At::new(value.value.to_string(), value.at));
            }
            "queue" => {
                let value = p.need("queue needs queue size")?;
                c.queue = Some(At::new(quantity::queue_size(p, value)?, value.at));
            }
            "plr" => {
                let value = p.need("plr needs argument 0..1")?;
                c.loss = Some(loss(p, value)?);
            }
            "noerror" => {
                p.warn(
                    word.at,
                    "`noerror` has no effect: senders are never notified of drops",
                );
                c.noerror = true;
            }
            "buckets" => {
                let value = p.need("buckets needs argument")?;
                c.buckets = Some(buckets(p, value)?);
            }
            "mask" | "sched_mask" | "flow_mask" => {
                c.mask = Some(At::new(mask(p)?, word.at));
            }
            "weight" => {
                let value = p.need("weight needs argument")?;
                c.weight = Some(At::new(integer(value)?, value.at));
            }
            "lmax" | "maxlen" => {
                let value = p.need("lmax needs argument")?;
                c.max_len = Some(At::new(integer(value)?, value.at));
            }
            "pri" | "priority" => {
                let value = p.need("pri needs argument")?;
                c.priority = Some(integer(value)?);
                p.warn(
                    word.at,
                    "`pri` is stored and shown, but no scheduler reads it; prio uses the weight",
                );
            }
            "pipe" | "sched" if kind != ObjectKind::Pipe => {
                let value = p.need("pipe/sched needs a number")?;
                c.parent = Some(At::new(integer(value)?, value.at));
            }
            "pipe" | "sched" => return Err(only_for(word, word.value, "flowsets")),
            "type" => {
                if kind == ObjectKind::Queue {
                    return Err(only_for(word, "type", "schedulers"));
                }
                c.scheduler = Some(typed_scheduler(p)?);
            }
            // Parameters behind the name select the algorithm of the registry.
            name @ ("red" | "gred")
                if !p.peek().is_some_and(|w| algorithm::is_parameter(name, w)) =>
            {
                let value = p.need("red/gred needs w_q/min_th/max_th/max_p")?;
                let words = red(word.value == "gred", value)?;
                c.policy = Some(At::new(Policy::Red(words), word.at));
            }
            "ecn" => ecn = Some(word.at),
            "droptail" => c.policy = None,
            name => {
                if !effect(p, &mut c, word)? {
                    named_algorithm(p, &mut c, name, word)?;
                }
            }
        }
    }
    if let Some(at) = ecn {
        match &mut c.policy {
            Some(At {
                value: Policy::Red(red),
                ..
            }) => red.ecn = true,
            _ => {
                let text = "ECN can be used with red/gred/codel/fq_codel only!";
                return Err(CommandError::new(ErrorKind::Needs(text.into()), at));
            }
        }
    }
    if let Some(At {
        value: Policy::Red(red),
        at,
    }) = &c.policy
    {
        check_red(red, *at)?;
    }
    LinkParams::from_values(&c.effects).map_err(|e| CommandError::new(e, c.number.at))?;
    Ok(c)
}

/// Returns the effects of a link besides rate, delay and burst, which have words of their own.
pub(crate) fn effects() -> impl Iterator<Item = &'static ParamDecl> {
    LinkParams::decls().filter(|d| !matches!(d.name, "rate" | "delay" | "burst"))
}

/// Reads an effect of the link, if `word` names one: by its name, as a flag with `no` before it, or by a
/// choice that stands alone like `atm`.
fn effect(p: &mut Parser<'_>, c: &mut Config, word: At<&str>) -> Parse<bool> {
    let decls: Vec<&'static ParamDecl> = effects().collect();
    let named = Setting::of(word.value, |name| {
        decls.iter().copied().find(|d| d.name == name)
    });
    let chosen = algorithm::chosen(&decls, word.value);
    let (decl, value) = match (named, chosen) {
        (Some(Setting::Flag(decl, is_on)), _) => (decl, Value::Flag(is_on)),
        (Some(Setting::Value(decl)), _) => {
            for_links(c.kind, word, word.value)?;
            let text = p.need(algorithm::needs(decl))?;
            (decl, algorithm::value(p, decl, text)?)
        }
        (None, Some(chosen)) => chosen,
        (None, None) => return Ok(false),
    };
    for_links(c.kind, word, word.value)?;
    c.effects.set(decl.name, value);
    Ok(true)
}

/// Reads the name of an AQM or a discipline with its parameters, up to the end of the line.
fn named_algorithm(p: &mut Parser<'_>, c: &mut Config, name: &str, word: At<&str>) -> Parse<()> {
    let loaded = algorithm::loaded(p, word)?;
    if let Some(algorithm) = loaded
        .filter(|a| a.form == Form::Aqm)
        .or_else(|| algorithm::aqm(name))
    {
        let spec = algorithm::parameters(p, algorithm, word)?;
        c.policy = Some(At::new(Policy::Aqm(spec), word.at));
        return Ok(());
    }
    match loaded.or_else(|| algorithm::discipline(name).filter(|a| a.name == name)) {
        Some(_) if c.kind != ObjectKind::Scheduler => {
            let option = if matches!(name, "fq_codel" | "fq_pie") {
                "fq_codel/fq_pie"
            } else {
                name
            };
            let mut error = only_for(word, option, "schd");
            error.advice = Some(AS_SCHEDULER);
            Err(error)
        }
        Some(algorithm) => {
            let spec = algorithm::parameters(p, algorithm, word)?;
            let words = SchedulerWords {
                spec,
                is_typed: false,
            };
            c.scheduler = Some(At::new(words, word.at));
            Ok(())
        }
        None => {
            let algorithms = sluice_core::registry::algorithms().map(|a| a.name);
            let words = OPTIONS.iter().copied().chain(effects().map(|d| d.name));
            Err(unrecognised(word).near_or_tc(name, words.chain(algorithms)))
        }
    }
}

/// Reads the argument of `type`.
fn typed_scheduler(p: &mut Parser<'_>) -> Parse<At<SchedulerWords>> {
    let word = p.need("type needs a scheduler name")?;
    let loaded = algorithm::loaded(p, word)?.filter(|a| a.form != Form::Aqm);
    if loaded.is_none() && word.value.len() > 15 {
        let text = format!("type {} too long", word.value);
        let kind = ErrorKind::Kernel {
            call: "IP_DUMMYNET_CONFIGURE",
            errno: "Invalid argument",
            reason: text,
        };
        return Err(CommandError::new(kind, word.at));
    }
    let Some(algorithm) = loaded.or_else(|| algorithm::discipline(word.value)) else {
        let kind = ErrorKind::Kernel {
            call: "IP_DUMMYNET_CONFIGURE",
            errno: "Invalid argument",
            reason: format!("there is no scheduler type `{}`", word.value),
        };
        let error = CommandError::new(kind, word.at);
        return Err(error.near_or_tc(word.value, algorithm::disciplines()));
    };
    // The rest of the line belongs to the object if the scheduler is one of dummynet's own.
    let takes_parameters = algorithm.form == Form::FlowQueued || !is_bare(algorithm.name);
    let spec = if takes_parameters {
        algorithm::parameters(p, algorithm, word)?
    } else {
        Spec::new(algorithm)
    };
    let words = SchedulerWords {
        spec,
        is_typed: true,
    };
    Ok(At::new(words, word.at))
}

/// Whether a scheduler has no parameters in dummynet; its queues have them.
pub(crate) fn is_bare(name: &str) -> bool {
    matches!(name, "fifo" | "wf2q+" | "rr" | "qfq" | "prio")
}

/// What to write instead of a discipline in `pipe config`.
const AS_SCHEDULER: &str = "write `sched N config pipe N type NAME` and \
                            `queue N config sched N`, and give packets to the queue";

fn only_for(word: At<&str>, option: &str, object: &'static str) -> CommandError {
    let option = option.to_string();
    CommandError::new(ErrorKind::OnlyFor { option, object }, word.at)
}

fn for_links(kind: ObjectKind, word: At<&str>, option: &str) -> Parse<()> {
    if kind == ObjectKind::Pipe {
        Ok(())
    } else {
        Err(only_for(word, option, "links"))
    }
}

/// Reads a number like dummynet's command.
pub(super) fn integer(word: At<&str>) -> Parse<u32> {
    whole_integer(word.value)
        .and_then(|n| u32::try_from(n).ok())
        .ok_or_else(|| invalid(word, "a number", "a whole number below 2^32"))
}

/// Reads `buckets`, which dummynet's kernel limits to 1 to 65536.
fn buckets(p: &mut Parser<'_>, word: At<&str>) -> Parse<u32> {
    let asked = integer(word)?;
    let taken = asked.clamp(1, 65536);
    if taken != asked {
        p.warn(
            word.at,
            format!("buckets {asked} is outside 1 to 65536: {taken} is shown"),
        );
    }
    Ok(taken)
}

/// Reads `plr P`, or `plr K,p,H,r`.
fn loss(p: &mut Parser<'_>, word: At<&str>) -> Parse<Loss> {
    let parts: Vec<&str> = word.value.split(',').collect();
    let mut values = [Ratio::default(); 4];
    if parts.len() != 1 && parts.len() != 4 {
        return Err(invalid(
            word,
            "a loss rate",
            "one probability, or four: good,to-bad,bad,to-good",
        ));
    }
    for (value, part) in values.iter_mut().zip(&parts) {
        *value = quantity::probability(p, At::new(part, word.at))?;
    }
    let [good, to_bad, bad, to_good] = values;
    Ok(if parts.len() == 1 {
        Loss::Independent(good)
    } else {
        Loss::TwoState {
            good,
            to_bad,
            bad,
            to_good,
        }
    })
}

fn red(is_gentle: bool, word: At<&str>) -> Parse<RedWords> {
    let accepted = "w_q/min_th/max_th/max_p";
    let parts: Vec<&str> = word.value.split('/').collect();
    let [weight, min, max, max_p] = parts[..] else {
        return Err(invalid(word, "a RED specification", accepted));
    };
    let threshold = |text: &str| {
        let (number, factor) = match text.strip_suffix(['k', 'K']) {
            Some(number) => (number, 1024),
            None => (text, 1),
        };
        whole_integer(number)
            .and_then(|n| n.checked_mul(factor))
            .and_then(|n| u64::try_from(n).ok())
            .filter(|n| *n <= u64::from(u32::MAX))
            .ok_or_else(|| invalid(word, "a RED specification", accepted))
    };
    Ok(RedWords {
        is_gentle,
        weight: quantity::decimal(At::new(weight, word.at))?,
        min: threshold(min)?,
        max: threshold(max)?,
        max_p: quantity::decimal(At::new(max_p, word.at))?,
        ecn: false,
    })
}

fn check_red(red: &RedWords, at: crate::words::token::Position) -> Parse<()> {
    if red.weight == Ratio::default() || red.weight > Ratio::ONE {
        return Err(refused("0 < w_q <= 1", at));
    }
    if red.max_p > Ratio::ONE {
        return Err(refused("0 <= max_p <= 1", at));
    }
    if red.max == 0 {
        return Err(refused("max_th must be > 0", at));
    }
    if red.min > red.max || (red.min == red.max && !red.ecn) {
        return Err(refused("min_th must be < max_th", at));
    }
    Ok(())
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Loss::Independent(p) => p.fmt(f),
            Loss::TwoState {
                good,
                to_bad,
                bad,
                to_good,
            } => {
                write!(f, "{good},{to_bad},{bad},{to_good}")
            }
        }
    }
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} config", self.kind.word(), self.number.value)?;
        if let Some(rate) = self.rate {
            write!(f, " bw {}", ShowRate(rate))?;
        }
        if let Some(delay) = self.delay {
            write!(f, " delay {}", ShowDelay(delay))?;
        }
        if let Some(burst) = self.burst {
            write!(f, " burst {burst}")?;
        }
        if let Some(profile) = &self.profile {
            write!(f, " profile {}", profile.value)?;
        }
        algorithm::write_values(f, &self.effects)?;
        if let Some(parent) = self.parent {
            write!(f, " sched {}", parent.value)?;
        }
        if let Some(weight) = self.weight {
            write!(f, " weight {}", weight.value)?;
        }
        if let Some(max_len) = self.max_len {
            write!(f, " lmax {}", max_len.value)?;
        }
        if let Some(priority) = self.priority {
            write!(f, " pri {priority}")?;
        }
        if let Some(queue) = self.queue {
            write!(f, " queue {}", queue.value)?;
        }
        if let Some(loss) = self.loss {
            write!(f, " plr {loss}")?;
        }
        if self.noerror {
            f.write_str(" noerror")?;
        }
        if let Some(buckets) = self.buckets {
            write!(f, " buckets {buckets}")?;
        }
        if let Some(mask) = self.mask {
            write!(f, " mask {}", mask.value)?;
        }
        if let Some(At {
            value: Policy::Red(red),
            ..
        }) = &self.policy
        {
            let name = if red.is_gentle { "gred" } else { "red" };
            write!(
                f,
                " {name} {}/{}/{}/{}",
                red.weight, red.min, red.max, red.max_p
            )?;
            if red.ecn {
                f.write_str(" ecn")?;
            }
        }
        // The following takes the rest of the line, so a type without parameters comes first. Other types
        // have no AQM.
        let scheduler = self.scheduler.as_ref().map(|s| &s.value);
        let (bare, last): (Vec<_>, Vec<_>) = scheduler
            .into_iter()
            .partition(|s| s.is_typed && is_bare(s.spec.algorithm.name));
        for words in bare.into_iter().chain(last) {
            let name = if words.is_typed { " type" } else { "" };
            write!(f, "{name} {}", ShowSpec(&words.spec))?;
        }
        if let Some(At {
            value: Policy::Aqm(spec),
            ..
        }) = &self.policy
        {
            write!(f, " {}", ShowSpec(spec))?;
        }
        Ok(())
    }
}
