//! The configuration: links, schedulers, flowsets, and those that dummynet creates implicitly.
//!
//! | number | object |
//! |---|---|
//! | i | scheduler i with its link (`pipe i`), flowset i (`queue i`) |
//! | 65536 + i | FIFO scheduler with the link of pipe i; flowset of scheduler i if that has one queue |
//! | 131072 + i | flowset of that FIFO, which a `pipe i` rule names |
//!
//! A command changes the layout only after it has been checked completely.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_core::link::{LinkParams, Profile};
use sluice_core::param::{Value, Values};
use sluice_core::registry::{Loaders, Spec};
use sluice_core::units::{Rate, Span};
use sluice_loader::Here;

mod flowsets;
mod reverts;
mod settings;
mod touched;
mod trial;
pub(crate) use self::flowsets::Flowsets;
pub(crate) use self::touched::Touched;
pub(crate) use self::trial::Trial;

use self::reverts::{of_queue, of_scheduler, say_words_that_revert};
use self::settings::{link, queue_settings, scheduler_buckets, scheduler_choice};
use super::discipline;
use crate::copying::Copying;
use crate::flow::Mask;
use crate::grammar::{
    At, CommandError, Config, DEFAULT_SLOTS, ErrorKind, Loss, ObjectKind, Policy, QueueSize,
    Warning,
};
use crate::variables::Variables;
use crate::words::error::Missing;

/// The distance between the numbers of an object and of those created for it.
pub(crate) const STRIDE: u32 = 65536;

/// A link: rate, delay and further effects.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LinkConfig {
    pub rate: Rate,
    pub delay: Span,
    pub burst: u64,
    pub profile: Option<Arc<Profile>>,
    /// The file that the profile was read from.
    pub profile_file: Option<Arc<ProfileFile>>,
    pub effects: Values,
}

/// A file of a delay profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProfileFile {
    pub path: String,
    pub text: String,
}

impl LinkConfig {
    /// Whether super-packets must be split in front of the link: it is slower than `threshold`, or
    /// it affects packets individually.
    pub fn wants_single_packets(&self, threshold: Rate) -> bool {
        self.rate < threshold || self.profile.is_some() || self.effects.iter().next().is_some()
    }
}

/// A flowset: the limits of its queues, and their scheduler.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FlowsetConfig {
    /// The number of the scheduler, which need not exist.
    pub scheduler: u32,
    pub queue: QueueSize,
    pub loss: Option<Loss>,
    pub policy: Option<Policy>,
    /// The policy as an AQM; `None` for drop-tail.
    pub aqm: Option<Spec>,
    pub weight: u32,
    pub max_len: u32,
    pub priority: u32,
    pub mask: Mask,
    pub buckets: u32,
}

/// A scheduler.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SchedulerConfig {
    pub spec: Spec,
    /// Whether each flowset has its own queues.
    pub is_multi_queue: bool,
    pub mask: Mask,
    pub buckets: u32,
    /// The flowset whose limits the single queue has.
    pub internal: Option<u32>,
}

/// The whole configuration.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layout {
    pub links: BTreeMap<u32, LinkConfig>,
    pub schedulers: BTreeMap<u32, SchedulerConfig>,
    pub flowsets: Flowsets,
    /// Schedulers that may have changed since the layout was last applied.
    pub touched: Touched,
    /// Flowsets that may have changed.
    pub touched_flowsets: Touched,
}

impl Layout {
    /// Returns the sum of the limits of all queues, in packets. A limit in bytes counts as packets of
    /// 1500 bytes. Each mask counts as one flow.
    pub fn most_queued(&self) -> u64 {
        let of_flowsets = |number: u32| {
            let own = self.flowsets.of_scheduler(number);
            own.map(|(_, flowset)| match flowset.queue {
                QueueSize::Slots(packets) => packets,
                QueueSize::Bytes(bytes) => bytes.div_ceil(1500),
            })
            .fold(0, u64::saturating_add)
        };
        let of_scheduler = |(number, scheduler): (&u32, &SchedulerConfig)| {
            let is_own = !scheduler.is_multi_queue && scheduler.spec.algorithm.name != "fifo";
            match scheduler.spec.value("limit").filter(|_| is_own) {
                // A scheduler that no flowset uses holds nothing.
                Some(Value::Count(limit))
                    if self.flowsets.of_scheduler(*number).next().is_some() =>
                {
                    limit
                }
                _ => of_flowsets(*number),
            }
        };
        let limits = self.schedulers.iter().map(of_scheduler);
        limits.fold(0, u64::saturating_add)
    }
}

/// A copy of a layout that is made in pieces.
#[derive(Default)]
pub(crate) struct LayoutCopy {
    links: Copying<u32, LinkConfig>,
    schedulers: Copying<u32, SchedulerConfig>,
    flowsets: Copying<u32, FlowsetConfig>,
}

impl LayoutCopy {
    /// Copies the next objects. Returns whether more may be left.
    pub fn next(&mut self, layout: &Layout) -> bool {
        self.links.next(&layout.links)
            || self.schedulers.next(&layout.schedulers)
            || self.flowsets.next(layout.flowsets.all())
    }

    /// Returns the layout, in which nothing is touched.
    pub fn finish(self) -> Layout {
        Layout {
            links: self.links.finish().collect(),
            schedulers: self.schedulers.finish().collect(),
            flowsets: self.flowsets.finish().collect(),
            ..Layout::default()
        }
    }
}

/// Reads files for commands. The host decides which files may be read.
pub trait Files {
    /// Returns the text of a file.
    ///
    /// # Errors
    ///
    /// The host's reason why it cannot be read.
    fn read(&mut self, path: &str) -> Result<String, String>;

    /// Returns what finds algorithms such as `wasm:my.wasm`; by default, their files are read, with paths
    /// relative to the folder of the process.
    fn loaders(&self) -> &dyn Loaders {
        &Here
    }
}

/// Reads a file that a command names.
pub(crate) fn read_file(files: &mut dyn Files, path: &At<String>) -> Result<String, CommandError> {
    files.read(&path.value).map_err(|reason| {
        let kind = ErrorKind::Unreadable {
            path: path.value.clone(),
            reason,
        };
        CommandError::new(kind, path.at)
    })
}

/// A host that reads no files.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoFiles;

impl Files for NoFiles {
    fn read(&mut self, _path: &str) -> Result<String, String> {
        Err("no files can be read here".to_string())
    }
}

/// The context that a command needs besides the layout.
pub(crate) struct Means<'a> {
    pub variables: &'a Variables,
    pub files: &'a mut dyn Files,
    pub warnings: &'a mut Vec<Warning>,
    pub trial: &'a mut Trial,
}

impl Means<'_> {
    fn warn<T>(&mut self, at: &At<T>, text: String) {
        self.warnings.push(Warning::new(Some(at.at), text));
    }

    fn is_compat(&self) -> bool {
        self.variables.is_on("net.inet.ip.dummynet.compat")
    }

    fn hash_size(&self) -> u32 {
        self.variables.value("net.inet.ip.dummynet.hash_size") as u32
    }
}

impl LinkConfig {
    /// Creates a link without effects.
    pub fn plain() -> Self {
        LinkConfig {
            rate: Rate::UNLIMITED,
            delay: Span::ZERO,
            burst: 0,
            profile: None,
            profile_file: None,
            effects: Values::new(),
        }
    }

    /// Returns the parameters of the core's link.
    pub fn params(&self) -> LinkParams {
        let mut params = LinkParams::from_values(&self.effects)
            .expect("contradictions are found when a link is configured");
        params.pipe.rate = self.rate;
        params.pipe.delay = self.delay;
        params.pipe.burst = sluice_core::units::Bytes::new(self.burst);
        params
    }
}

impl FlowsetConfig {
    /// Whether the AQM of the queues has the rate of the link as a parameter.
    pub fn follows_link(&self) -> bool {
        self.aqm.as_ref().is_some_and(discipline::follows_link)
    }

    pub fn plain(scheduler: u32) -> Self {
        FlowsetConfig {
            scheduler,
            queue: QueueSize::Slots(DEFAULT_SLOTS),
            loss: None,
            policy: None,
            aqm: None,
            weight: 0,
            max_len: 0,
            priority: 0,
            mask: Mask::default(),
            buckets: 1,
        }
    }

    /// Returns the flowset with drop-tail.
    fn without_policy(self) -> Self {
        FlowsetConfig {
            policy: None,
            aqm: None,
            ..self
        }
    }
}

fn kernel(errno: &'static str, reason: String) -> ErrorKind {
    ErrorKind::Kernel {
        call: "IP_DUMMYNET_CONFIGURE",
        errno,
        reason,
    }
}

impl Layout {
    /// Executes a `config` command as a whole, or not at all.
    pub fn configure(&mut self, c: &Config, means: &mut Means<'_>) -> Result<(), CommandError> {
        match c.kind {
            ObjectKind::Queue => means.trial.leave(c.number.value, self.parent_of(c)),
            ObjectKind::Pipe | ObjectKind::Scheduler => means.trial.forget(),
        }
        match c.kind {
            ObjectKind::Pipe => self.configure_pipe(c, means)?,
            ObjectKind::Queue => self.configure_queue(c, means)?,
            ObjectKind::Scheduler => self.configure_scheduler(c, means)?,
        }
        self.touch(c.kind, c.number.value);
        Ok(())
    }

    /// Records the objects that a change of this one may affect.
    fn touch(&mut self, kind: ObjectKind, number: u32) {
        self.touched_flowsets.insert(number);
        if kind == ObjectKind::Queue {
            // A scheduler may have adopted the flowset as its own.
            let is_internal = |s: &SchedulerConfig| s.internal == Some(number);
            if self.schedulers.get(&number).is_some_and(is_internal) {
                self.touched.insert(number);
            }
            return;
        }
        self.touched.extend([number, number + STRIDE]);
        self.touched_flowsets
            .extend([number + STRIDE, number + 2 * STRIDE]);
        // A new type of scheduler may change the range of its queues' shares.
        let of_this = self.flowsets.of_scheduler(number).map(|(n, _)| n);
        self.touched_flowsets
            .extend(of_this.filter(|n| *n < STRIDE));
    }

    /// Iterates over the flowsets that `queue` rules name.
    pub fn queues(&self) -> impl Iterator<Item = (u32, &FlowsetConfig)> {
        self.flowsets.range(..STRIDE)
    }

    fn configure_pipe(&mut self, c: &Config, means: &mut Means<'_>) -> Result<(), CommandError> {
        let number = c.number.value;
        let link = link(c, means)?;
        let flowset = FlowsetConfig {
            weight: c.weight.map_or(0, |w| w.value),
            max_len: c.max_len.map_or(0, |l| l.value),
            priority: c.priority.unwrap_or(0),
            ..queue_settings(c, number + STRIDE, means)?
        };
        if let Some(weight) = &c.weight {
            means.warn(
                weight,
                "`weight` is shown but has no effect: a pipe has a single queue".into(),
            );
        }
        let scheduler = match (&c.scheduler, self.schedulers.get(&number)) {
            (None, Some(old)) => old.clone(),
            (words, old) => {
                let (mask, buckets) = old.map_or((Mask::default(), 0), |s| (s.mask, s.buckets));
                let spec = scheduler_choice(words.as_ref(), None, means)?;
                self.scheduler(number, spec, mask, buckets)
            }
        };
        let mask = c.mask.map_or(Mask::default(), |m| m.value);
        let shadow = SchedulerConfig {
            spec: Spec::new(discipline::find("fifo")),
            is_multi_queue: false,
            mask,
            buckets: scheduler_buckets(c, &mask, means),
            internal: Some(number + 2 * STRIDE),
        };
        self.say_what_reverts(c, &link, &flowset, &shadow, means);
        self.links.insert(number, link);
        self.put_scheduler(number, scheduler);
        self.schedulers.insert(number + STRIDE, shadow);
        self.flowsets.insert(number + 2 * STRIDE, flowset);
        Ok(())
    }

    /// Returns the scheduler of a queue after a command: the one that it names, or the present one.
    fn parent_of(&self, c: &Config) -> Option<u32> {
        let present = self.flowsets.get(&c.number.value).map(|f| f.scheduler);
        c.parent.map(|p| p.value).or(present)
    }

    fn configure_queue(&mut self, c: &Config, means: &mut Means<'_>) -> Result<(), CommandError> {
        let number = c.number.value;
        let old = self.flowsets.get(&number);
        let Some(parent) = self.parent_of(c) else {
            let reason =
                format!("queue {number} is new: name its scheduler with `pipe M` or `sched M`");
            return Err(CommandError::new(
                kernel("Operation not permitted", reason),
                c.number.at,
            ));
        };
        if let Some(at) = c.parent.filter(|p| p.value == 0 || p.value > 65535) {
            let reason = format!("scheduler {} is outside 1 to 65535", at.value);
            return Err(CommandError::new(kernel("Invalid argument", reason), at.at));
        }
        let mut flowset = FlowsetConfig {
            weight: c.weight.map_or(old.map_or(0, |o| o.weight), |w| w.value),
            max_len: c.max_len.map_or(old.map_or(0, |o| o.max_len), |l| l.value),
            priority: c.priority.unwrap_or(old.map_or(0, |o| o.priority)),
            ..queue_settings(c, parent, means)?
        };
        if let Some(mask) = &c.mask {
            flowset.mask = mask.value;
        }
        if !flowset.mask.is_empty() {
            flowset.buckets = c.buckets.unwrap_or(means.hash_size());
        }
        if let Some(old) = old {
            say_words_that_revert("queue", c, of_queue(c, old, &flowset), means);
        }
        match self.schedulers.get(&parent) {
            None => {
                let text = format!(
                    "scheduler {parent} does not exist: packets of queue {number} are dropped until it does"
                );
                let missing = Missing::Scheduler(parent);
                let warning = Warning::until(missing, Some(c.number.at), text);
                means.warnings.push(warning);
            }
            Some(scheduler) if scheduler.is_multi_queue => {
                let is_compat = means.is_compat();
                let spec = &scheduler.spec;
                discipline::bound_share(spec, c, &mut flowset, is_compat, means.warnings);
                self.check_shares(number, &flowset, parent, c.number, means.trial)?;
            }
            Some(scheduler) => {
                let name = scheduler.spec.algorithm.name;
                for (is_set, word) in [
                    (c.weight.is_some(), "weight"),
                    (c.queue.is_some(), "queue"),
                    (c.loss.is_some(), "plr"),
                    (c.policy.is_some(), "the AQM"),
                    (c.mask.is_some(), "mask"),
                ] {
                    if is_set
                        && scheduler.internal != Some(number)
                        && !(name == "pifo" && word == "weight")
                    {
                        let text = format!(
                            "{word} of queue {number} has no effect: scheduler {parent} is {name} and has limits of its own"
                        );
                        means.warn(&c.number, text);
                    }
                }
            }
        }
        self.flowsets.insert(number, flowset);
        Ok(())
    }

    fn configure_scheduler(
        &mut self,
        c: &Config,
        means: &mut Means<'_>,
    ) -> Result<(), CommandError> {
        let number = c.number.value;
        if let Some(parent) = c.parent.filter(|p| p.value != number) {
            let text = format!(
                "scheduler {number} uses the link of pipe {number}, not that of pipe {}: configure pipe {number}",
                parent.value
            );
            means.warn(&parent, text);
        }
        let old = self.schedulers.get(&number).map(|s| s.spec.clone());
        let spec = scheduler_choice(c.scheduler.as_ref(), old.as_ref(), means)?;
        let mask = c.mask.map_or(Mask::default(), |m| m.value);
        let buckets = scheduler_buckets(c, &mask, means);
        let scheduler = self.scheduler(number, spec, mask, buckets);
        let mut settings = FlowsetConfig {
            weight: c.weight.map_or(0, |w| w.value),
            max_len: c.max_len.map_or(0, |l| l.value),
            priority: c.priority.unwrap_or(0),
            ..queue_settings(c, number, means)?
        };
        let name = scheduler.spec.algorithm.name;
        let has_settings = c.queue.is_some() || c.loss.is_some() || c.policy.is_some();
        if has_settings && name != "fifo" {
            let text =
                format!("queue, plr and AQM apply to a fifo scheduler only: {name} ignores them");
            means.warn(&c.number, text);
            settings = settings.without_policy();
        }
        if scheduler.is_multi_queue {
            self.check_all_shares(number, &scheduler, c.number)?;
        }
        self.links.entry(number).or_insert_with(LinkConfig::plain);
        // The scheduler's own queue. Of what `config` does not mention, it has the default.
        let own = number + STRIDE;
        if let Some(old) = self.schedulers.get(&number) {
            let mut lost = of_scheduler(c, old, &scheduler);
            if let Some(queue) = self.flowsets.get(&own).filter(|_| name == "fifo") {
                lost.extend(of_queue(c, queue, &settings));
            }
            say_words_that_revert("scheduler", c, lost, means);
        }
        self.put_scheduler(number, scheduler);
        let uses_own = self.schedulers.get(&number).and_then(|s| s.internal) == Some(own);
        if has_settings || uses_own {
            self.flowsets.insert(own, settings);
            if let Some(scheduler) = self.schedulers.get_mut(&number) {
                scheduler.internal = scheduler.internal.map(|_| own);
            }
        }
        // Every scheduler has a FIFO beside it, so `pipe N` works even if only `sched N` was
        // configured.
        self.schedulers
            .entry(number + STRIDE)
            .or_insert_with(|| SchedulerConfig {
                spec: Spec::new(discipline::find("fifo")),
                is_multi_queue: false,
                mask: Mask::default(),
                buckets: 0,
                internal: Some(number + 2 * STRIDE),
            });
        self.flowsets
            .insert_missing(number + 2 * STRIDE, FlowsetConfig::plain(number + STRIDE));
        Ok(())
    }

    /// Returns the configuration of a scheduler. One with a single queue has the limits of the
    /// flowset `internal`.
    fn scheduler(&self, number: u32, spec: Spec, mask: Mask, buckets: u32) -> SchedulerConfig {
        let is_multi_queue = discipline::is_multi_queue(&spec);
        // dummynet adopts a flowset that has the scheduler's own number.
        let is_own = self
            .flowsets
            .get(&number)
            .is_some_and(|f| f.scheduler == number);
        let internal = match (is_multi_queue, is_own) {
            (true, _) => None,
            (false, true) => Some(number),
            (false, false) => Some(number + STRIDE),
        };
        let old = self.schedulers.get(&number).and_then(|s| s.internal);
        SchedulerConfig {
            spec,
            is_multi_queue,
            mask,
            buckets,
            internal: if is_multi_queue {
                None
            } else {
                old.or(internal)
            },
        }
    }

    fn put_scheduler(&mut self, number: u32, scheduler: SchedulerConfig) {
        match scheduler.internal {
            Some(internal) => {
                self.flowsets
                    .insert_missing(internal, FlowsetConfig::plain(number));
                // Only a FIFO has the AQM of its own queue. The words of an AQM and of another scheduler
                // cannot be in one command: each takes the rest of the line.
                let is_fifo = scheduler.spec.algorithm.name == "fifo";
                let own = self.flowsets.get(&internal);
                if let Some(own) = own.filter(|own| !is_fifo && own.policy.is_some())
                    && internal == number + STRIDE
                {
                    let own = own.clone().without_policy();
                    self.flowsets.insert(internal, own);
                }
            }
            None => {
                self.flowsets.remove(number + STRIDE);
            }
        }
        if scheduler.is_multi_queue {
            // Queues configured earlier: their shares are limited to the range of the new
            // scheduler.
            self.flowsets.for_each_of(number, |flowset| {
                discipline::clamp_share(&scheduler.spec, flowset);
            });
        }
        self.schedulers.insert(number, scheduler);
    }

    /// Checks that the scheduler can serve `flowset` together with its other flowsets.
    fn check_shares(
        &self,
        number: u32,
        flowset: &FlowsetConfig,
        scheduler: u32,
        at: At<u32>,
        trial: &mut Trial,
    ) -> Result<(), CommandError> {
        let config = &self.schedulers[&scheduler];
        let others = self.flowsets.of_scheduler(scheduler);
        let others = others.filter(|(n, _)| *n != number);
        let accepted = trial.accept((scheduler, &config.spec), others, (number, flowset));
        accepted.map_err(|error| {
            CommandError::new(kernel("Invalid argument", error.to_string()), at.at)
        })
    }

    fn check_all_shares(
        &self,
        number: u32,
        config: &SchedulerConfig,
        at: At<u32>,
    ) -> Result<(), CommandError> {
        let of_this = self.flowsets.of_scheduler(number);
        let mut all: Vec<FlowsetConfig> = of_this.map(|(_, f)| f.clone()).collect();
        all.iter_mut()
            .for_each(|f| discipline::clamp_share(&config.spec, f));
        discipline::check_shares(&config.spec, all.iter()).map_err(|error| {
            CommandError::new(kernel("Invalid argument", error.to_string()), at.at)
        })
    }

    /// Deletes a pipe with the objects created for it, or a queue.
    pub fn delete(&mut self, kind: ObjectKind, number: u32) -> Result<(), String> {
        self.touch(kind, number);
        match kind {
            ObjectKind::Scheduler => Err(format!(
                "a scheduler is deleted with its pipe: pipe {number} delete"
            )),
            ObjectKind::Queue => {
                if self.flowsets.remove(number).is_none() {
                    return Err(format!("queue {number} does not exist"));
                }
                // A scheduler that had adopted the flowset needs another one.
                if let Some(scheduler) = self.schedulers.get_mut(&number)
                    && scheduler.internal == Some(number)
                {
                    scheduler.internal = Some(number + STRIDE);
                    self.flowsets
                        .insert(number + STRIDE, FlowsetConfig::plain(number));
                }
                Ok(())
            }
            ObjectKind::Pipe => {
                if self.links.remove(&number).is_none() {
                    return Err(format!("pipe {number} does not exist"));
                }
                self.schedulers.remove(&number);
                self.schedulers.remove(&(number + STRIDE));
                self.flowsets.remove(number + STRIDE);
                self.flowsets.remove(number + 2 * STRIDE);
                Ok(())
            }
        }
    }

    /// Deletes all objects.
    pub fn flush(&mut self) {
        self.touch_all();
        self.links.clear();
        self.schedulers.clear();
        self.flowsets.clear();
    }

    /// Marks everything as changed.
    pub fn touch_all(&mut self) {
        self.touched = Touched::All;
        self.touched_flowsets = Touched::All;
    }

    /// Whether super-packets must be split before they enter a flowset.
    pub fn wants_single_packets(&self, flowset: u32, threshold: Rate) -> bool {
        let Some(flowset) = self.flowsets.get(&flowset) else {
            return false;
        };
        let link = self.links.get(&(flowset.scheduler % STRIDE));
        flowset.loss.is_some() || link.is_some_and(|link| link.wants_single_packets(threshold))
    }

    /// Returns the link of a scheduler.
    pub fn link_of(&self, scheduler: u32) -> &LinkConfig {
        self.links
            .get(&(scheduler % STRIDE))
            .expect("a scheduler has a link of its own number")
    }
}
