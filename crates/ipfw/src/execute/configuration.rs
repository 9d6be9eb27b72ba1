//! The configuration of a running engine as commands, which give another engine the same one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use sluice_core::param::Value;
use sluice_core::registry::{Form, Spec};
use sluice_core::units::Span;

use super::{Amended, Prepared};
use crate::engine::Firewall;
use crate::grammar::{
    At, Config, DEFAULT_SLOTS, ObjectKind, Policy, Position, QueueSize, RuleFormat, SchedulerWords,
    ShowKinds, ShowRule, ShowValues, is_bare,
};
use crate::objects::layout::{FlowsetConfig, Layout, STRIDE, SchedulerConfig};
use crate::rules::{DEFAULT_RULE, Entry, Ruleset};
use crate::tables::Tables;
use crate::variables::Variables;

/// A copy of the configuration of an engine, to be written on another thread.
///
/// The commands give each object its settings in full, so that they do not depend on variables that
/// were changed later. Counters, states and packets are not part of a configuration.
///
/// ```
/// use sluice_core::{Cx, DropCounter, Rng, Time};
/// use sluice_ipfw::{Firewall, NoFiles, Settings};
///
/// let mut firewall = Firewall::new(&Settings::default());
/// let (mut rng, mut dropped) = (Rng::from_seed(1), DropCounter::default());
/// let mut cx = Cx::new(Time::ZERO, &mut rng, &mut dropped);
/// firewall.command("pipe 1 config bw 1MByte/s", &mut NoFiles, &mut cx).unwrap();
/// let text = firewall.configuration().commands();
/// assert_eq!(text, "pipe 1 config bw 8Mbit/s queue 50\n");
/// ```
#[derive(Debug)]
pub struct Configuration {
    /// The engine's count of changes when it was copied.
    revision: u64,
    layout: Layout,
    rules: Vec<Entry>,
    disabled: Vec<u8>,
    tables: Tables,
    variables: Variables,
}

/// The command that configures an object, in parts that a form can replace.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ObjectCommand {
    /// The name as in commands: `pipe 1`, `sched 1` or `queue 1`.
    pub name: String,
    /// The rate in the words of the command; `None` if the object has no rate of its own.
    pub rate: Option<String>,
    /// The settings between the rate and the algorithm.
    pub settings: String,
    /// The AQM or the scheduler with its parameters; `droptail` without an AQM.
    pub algorithm: String,
}

impl Firewall {
    /// Copies the configuration at once, which takes time in proportion to its size. A host with
    /// packets copies a [`Draft`](crate::Draft) in pieces instead.
    pub fn configuration(&self) -> Configuration {
        let mut draft = self.draft();
        while self.continue_draft(&mut draft) {}
        draft.into_configuration()
    }
}

impl Configuration {
    pub(super) fn new(
        revision: u64,
        layout: Layout,
        rules: Ruleset,
        variables: Variables,
    ) -> Configuration {
        let (rules, disabled, tables) = rules.into_parts();
        Configuration {
            revision,
            layout,
            rules,
            disabled: (0..31).filter(|set| disabled >> set & 1 == 1).collect(),
            tables,
            variables,
        }
    }

    /// Returns a change to `prepared`, which [`Firewall::exchange`] puts in place only if this is
    /// still the configuration of the engine.
    pub fn replaced_by(&self, prepared: Prepared) -> Amended {
        Amended::whole(self.revision, prepared)
    }

    /// Returns the commands, one per line.
    pub fn commands(&self) -> String {
        let mut out = String::new();
        let mut line = |text: &dyn std::fmt::Display| {
            writeln!(out, "{text}").expect("a string takes any text");
        };
        let mut configs = self.configs().peekable();
        // Units, limits and defaults depend on this variable, with which another engine may start, so
        // objects are read without it.
        let is_compat_set = self.variables.changed().any(|(name, _)| name == COMPAT);
        if is_compat_set && configs.peek().is_some() {
            line(&format_args!("sysctl {COMPAT}=0"));
        }
        for config in configs {
            let (config, is_of_compat) = writable(config);
            if is_of_compat {
                line(&format_args!("sysctl {COMPAT}=1"));
            }
            line(&config);
            if is_of_compat {
                line(&format_args!("sysctl {COMPAT}=0"));
            }
        }
        // Variables are defaults of objects, which are written in full, so variables come behind them.
        for (name, value) in self.variables.changed() {
            line(&format_args!("sysctl {name}={value}"));
        }
        let mut tables: Vec<_> = self.tables.iter().collect();
        tables.sort_by_key(|(id, _)| id.0);
        for (_, table) in tables {
            let mut create = format!("table {} create type {}", table.name, table.kind.word());
            if !table.values.is_empty() {
                create.push_str(&format!(" valtype {}", ShowKinds(&table.values)));
            }
            if table.limit > 0 {
                create.push_str(&format!(" limit {}", table.limit));
            }
            line(&create);
            for (key, values) in table.entries() {
                line(&format_args!(
                    "table {} add {key} {}",
                    table.name,
                    ShowValues(values)
                ));
            }
        }
        for entry in self
            .rules
            .iter()
            .filter(|entry| entry.number != DEFAULT_RULE)
        {
            let format = RuleFormat {
                has_set: entry.rule.set != 0,
                ..RuleFormat::default()
            };
            let rule = ShowRule(&entry.rule, format);
            line(&format_args!("add {:05} {rule}", entry.number));
        }
        if !self.disabled.is_empty() {
            let sets: Vec<String> = self.disabled.iter().map(u8::to_string).collect();
            line(&format_args!("set disable {}", sets.join(" ")));
        }
        out
    }

    /// Returns the texts of the files that the commands name.
    pub fn files(&self) -> BTreeMap<String, String> {
        let links = self.layout.links.values();
        let files = links.filter_map(|link| link.profile_file.as_deref());
        files
            .map(|file| (file.path.clone(), file.text.clone()))
            .collect()
    }

    /// Returns the words of the algorithms that the commands load from files, such as `wasm:my.wasm`.
    pub fn modules(&self) -> BTreeSet<&'static str> {
        let schedulers = self.layout.schedulers.values().map(|it| &it.spec);
        let aqms = self.layout.flowsets.values();
        let specs = schedulers.chain(aqms.filter_map(|it| it.aqm.as_ref()));
        specs
            .map(|spec| spec.algorithm.name)
            .filter(|name| sluice_loader::names_file(name))
            .collect()
    }

    /// Returns the commands of the first `most` objects, in parts.
    pub fn objects(&self, most: usize) -> Vec<ObjectCommand> {
        let configs = self.configs().take(most);
        let mut seen = BTreeSet::new();
        let objects = configs.map(|config| parts(&config));
        objects
            .filter(|object| seen.insert(object.name.clone()))
            .collect()
    }

    /// Returns the commands that configure the objects, in their order.
    fn configs(&self) -> impl Iterator<Item = Config> {
        let of_links = self
            .layout
            .links
            .keys()
            .flat_map(|number| self.link(*number));
        let is_free = |number: u32| self.adopted(number).is_none();
        let queues = self.layout.queues();
        let queues = queues.filter(move |(number, _)| is_free(*number));
        of_links.chain(queues.map(|(number, flowset)| self.queue(number, flowset)))
    }

    /// Returns the queue that a scheduler has adopted for its single queue, since the two have the
    /// same number.
    fn adopted(&self, number: u32) -> Option<&FlowsetConfig> {
        let scheduler = self.layout.schedulers.get(&number)?;
        let is_own = scheduler.internal == Some(number);
        self.layout.flowsets.get(&number).filter(|_| is_own)
    }

    /// Returns the commands for a pipe and the scheduler of its number.
    fn link(&self, number: u32) -> Vec<Config> {
        let pipe = self.pipe(number);
        let Some(scheduler) = self.layout.schedulers.get(&number) else {
            return vec![pipe];
        };
        let sched = self.scheduler(number, scheduler);
        if let Some(flowset) = self.adopted(number) {
            // A scheduler adopts a queue of its own that is there before it, and keeps the queue's
            // limits if the queue moves to another scheduler.
            let mut own = queue(number, flowset);
            own.parent = Some(at(number));
            return vec![own, sched, pipe, self.queue(number, flowset)];
        }
        let spec = &scheduler.spec;
        // What a new pipe has.
        let is_default = spec.algorithm.name == "wf2q+"
            && spec.values.iter().next().is_none()
            && scheduler.mask.is_empty();
        if is_default {
            vec![pipe]
        } else {
            vec![pipe, sched]
        }
    }

    fn pipe(&self, number: u32) -> Config {
        let mut config = Config::new(ObjectKind::Pipe, at(number));
        let link = &self.layout.links[&number];
        config.rate = (!link.rate.is_unlimited()).then_some(link.rate);
        config.delay = (link.delay > Span::ZERO).then_some(link.delay);
        config.burst = (link.burst > 0).then_some(link.burst);
        config.profile = link.profile_file.as_ref().map(|file| at(file.path.clone()));
        config.effects = link.effects.clone();
        if let Some(flowset) = self.layout.flowsets.get(&(number + 2 * STRIDE)) {
            of_flowset(&mut config, flowset);
        }
        if let Some(fifo) = self.layout.schedulers.get(&(number + STRIDE)) {
            of_scheduler(&mut config, fifo);
        }
        config
    }

    fn scheduler(&self, number: u32, scheduler: &SchedulerConfig) -> Config {
        let mut config = Config::new(ObjectKind::Scheduler, at(number));
        config.scheduler = Some(at(SchedulerWords {
            spec: scheduler.spec.clone(),
            is_typed: true,
        }));
        of_scheduler(&mut config, scheduler);
        let internal = scheduler
            .internal
            .filter(|internal| *internal == number + STRIDE);
        let flowset = internal.and_then(|internal| self.layout.flowsets.get(&internal));
        if let Some(flowset) = flowset.filter(|f| **f != FlowsetConfig::plain(number)) {
            of_flowset(&mut config, flowset);
            if scheduler.spec.algorithm.name != "fifo" {
                omit_default_limit(&mut config);
            }
        }
        config
    }

    /// Returns the command for a queue.
    fn queue(&self, number: u32, flowset: &FlowsetConfig) -> Config {
        let mut config = queue(number, flowset);
        let scheduler = self.layout.schedulers.get(&flowset.scheduler);
        if scheduler.is_some_and(|it| !it.is_multi_queue && it.internal != Some(number)) {
            omit_default_limit(&mut config);
        }
        config
    }
}

/// Omits the limit that a queue has without `queue`, if its scheduler ignores the word: the word would
/// have a warning that nobody caused.
fn omit_default_limit(config: &mut Config) {
    let default = QueueSize::Slots(DEFAULT_SLOTS);
    config.queue = config.queue.filter(|queue| queue.value != default);
}

/// Under which new objects have dummynet's variant.
const COMPAT: &str = "net.inet.ip.dummynet.compat";

/// Returns `config` without the parameters of a scheduler that takes none in the language, and
/// whether its variant must be had by [`COMPAT`].
fn writable(mut config: Config) -> (Config, bool) {
    let mut is_of_compat = false;
    if let Some(words) = &mut config.scheduler {
        let spec = &mut words.value.spec;
        if spec.algorithm.form != Form::FlowQueued && is_bare(spec.algorithm.name) {
            is_of_compat = spec.values.find("variant") == Some(Value::Choice("dummynet"));
            *spec = Spec::new(spec.algorithm);
        }
    }
    (config, is_of_compat)
}

fn queue(number: u32, flowset: &FlowsetConfig) -> Config {
    let mut config = Config::new(ObjectKind::Queue, at(number));
    config.parent = Some(at(flowset.scheduler));
    of_flowset(&mut config, flowset);
    if !flowset.mask.is_empty() {
        config.mask = Some(at(flowset.mask));
        config.buckets = Some(flowset.buckets);
    }
    config
}

fn of_flowset(config: &mut Config, flowset: &FlowsetConfig) {
    config.queue = Some(at(flowset.queue));
    config.loss = flowset.loss;
    config.weight = (flowset.weight > 0).then_some(at(flowset.weight));
    config.max_len = (flowset.max_len > 0).then_some(at(flowset.max_len));
    config.priority = (flowset.priority > 0).then_some(flowset.priority);
    config.policy = flowset.policy.as_ref().map(|policy| {
        at(match (policy, &flowset.aqm) {
            // With the defaults of its time.
            (Policy::Aqm(_), Some(aqm)) => Policy::Aqm(aqm.clone()),
            _ => policy.clone(),
        })
    });
}

fn of_scheduler(config: &mut Config, scheduler: &SchedulerConfig) {
    if !scheduler.mask.is_empty() {
        config.mask = Some(at(scheduler.mask));
        config.buckets = Some(scheduler.buckets);
    }
}

/// Splits a command into parts.
fn parts(config: &Config) -> ObjectCommand {
    let name = format!("{} {}", config.kind.word(), config.number.value);
    let (mut rest, _) = writable(config.clone());
    let rate = (config.kind == ObjectKind::Pipe).then(|| {
        let mut only = Config::new(config.kind, config.number);
        only.rate = rest.rate.take();
        let text = words(&only);
        text.strip_prefix("bw ")
            .map_or_else(|| "0".to_owned(), str::to_owned)
    });
    let mut algorithm = Config::new(config.kind, config.number);
    algorithm.policy = rest.policy.take();
    algorithm.scheduler = rest.scheduler.take();
    let algorithm = match words(&algorithm) {
        text if text.is_empty() => "droptail".to_owned(),
        text => text,
    };
    ObjectCommand {
        name,
        rate,
        settings: words(&rest),
        algorithm,
    }
}

/// Returns the words behind `config`.
fn words(config: &Config) -> String {
    let text = config.to_string();
    let words = text.split_once(" config").map_or("", |(_, words)| words);
    words.trim().to_owned()
}

fn at<T>(value: T) -> At<T> {
    At::new(value, Position::default())
}
