//! Changes of many lines that are executed on a copy of the configuration beside a running engine,
//! and take effect at one instant.

use std::mem;

use sluice_core::event::{Cx, DropCounter};
use sluice_core::{Rng, Time};

use super::report::{Live, Report};
use super::{Configuration, Prepared, Replaced, Run};
use crate::engine::{Firewall, Mode, Output, Settings};
use crate::grammar::{self, Command, CommandError, Dynamic, ErrorKind, Flags, Times, Variable};
use crate::objects::layout::{Files, LayoutCopy};
use crate::rules::{Ruleset, RulesetCopy};
use crate::variables::Variables;

/// A copy of the configuration of an engine, for a change beside it, or to be written.
///
/// A large configuration is copied in pieces, with packets in between. Then another thread executes
/// commands on the copy ([`Draft::amend`]), and [`Firewall::exchange`] puts the result in place at
/// one instant, unless the configuration has changed meanwhile.
///
/// ```
/// use sluice_core::{Cx, DropCounter, Rng, Time};
/// use sluice_ipfw::{Amendment, Draft, Firewall, Mode, NoFiles, Output, Settings};
///
/// let settings = Settings::default();
/// let mut firewall = Firewall::new(&settings);
/// let mut draft = firewall.draft();
/// while firewall.continue_draft(&mut draft) {}
/// let builder = std::thread::spawn(move || {
///     let text = "pipe 1 config bw 1Mbit/s\nadd 100 pipe 1 ip from any to any";
///     let mut output = Output::default();
///     draft.amend(&settings, text, Mode::Atomic, &mut NoFiles, &mut output)
/// });
/// let Ok(Amendment::Change(amended)) = builder.join().unwrap() else {
///     panic!("the lines change something");
/// };
/// let (mut rng, mut dropped) = (Rng::from_seed(1), DropCounter::default());
/// let mut cx = Cx::new(Time::ZERO, &mut rng, &mut dropped);
/// drop(firewall.exchange(*amended, &mut cx).unwrap());
/// assert_eq!(firewall.snapshot(&mut cx).pipes.len(), 1);
/// ```
pub struct Draft {
    revision: u64,
    layout: LayoutCopy,
    copy: RulesetCopy,
    /// The rules, once they are copied completely.
    pub(super) rules: Option<Ruleset>,
    variables: Variables,
    /// What packets have changed, in a report.
    pub(super) live: Option<Report>,
}

/// A changed copy of a configuration.
#[derive(Clone)]
pub struct Amended {
    revision: u64,
    /// Whether it was not made from the copy, but replaces all of it.
    is_whole: bool,
    configuration: Prepared,
}

impl Amended {
    /// A configuration that replaces the one with this revision.
    pub(super) fn whole(revision: u64, configuration: Prepared) -> Amended {
        Amended {
            revision,
            is_whole: true,
            configuration,
        }
    }
}

/// The result of commands on a copy.
#[derive(Debug)]
pub enum Amendment {
    /// The changed copy.
    Change(Box<Amended>),
    /// The commands only show something, or were only checked (`-n`).
    Nothing,
    /// A command needs the running engine, because it shows or clears what packets have changed.
    /// Nothing was executed.
    NeedsEngine,
}

impl std::fmt::Debug for Draft {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Draft").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Amended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Amended").finish_non_exhaustive()
    }
}

/// The state of an engine that executes commands on a copy.
#[derive(Debug, Default)]
pub(crate) struct Beside {
    /// The commands so far.
    pub(super) commands: usize,
    /// The name of a command that the copy cannot execute.
    pub(super) needs_engine: Option<&'static str>,
    /// Whether the running engine would stand still for too long.
    pub(super) is_too_long: bool,
    /// What the engines have counted, in a report.
    pub(super) live: Option<Live>,
}

/// The most commands that a change may have if one of them needs the running engine, which stands
/// still meanwhile: less than 1 ms.
const MOST_AT_ENGINE: usize = 100;

impl Draft {
    /// Returns whether `text` is one change, which takes effect as a whole or not at all, and which
    /// may be executed on a copy: in [`Mode::Atomic`], or a command with `--atomic` or `-n`.
    pub fn is_for(text: &str, mode: Mode) -> bool {
        match mode {
            Mode::Atomic => true,
            Mode::Batch | Mode::Replace => false,
            Mode::Command => flags_of(text).is_some_and(|f| f.atomic || f.check_only),
        }
    }

    /// Returns the copy as a configuration to be written.
    ///
    /// # Panics
    ///
    /// If the copy is not complete.
    pub fn into_configuration(self) -> Configuration {
        let rules = self.rules.expect("a draft is written when it is whole");
        Configuration::new(self.revision, self.layout.finish(), rules, self.variables)
    }

    /// Executes commands on the copy. Takes time in proportion to the texts and the copy. When a
    /// command is refused, `output` keeps the warnings, and what the commands before it wrote, if they
    /// stay in force.
    ///
    /// # Errors
    ///
    /// The command that was refused.
    pub fn amend(
        self,
        settings: &Settings,
        text: &str,
        mode: Mode,
        files: &mut dyn Files,
        output: &mut Output,
    ) -> Result<Amendment, CommandError> {
        let (amendment, result) = self.amend_until(settings, text, mode, files, output);
        if matches!(amendment, Amendment::NeedsEngine) {
            return Ok(amendment);
        }
        result.map(|()| amendment)
    }

    /// Like [`Draft::amend`], but returns the copy also if a command was refused. If lines take effect
    /// one by one in this mode, the lines before the refused one have.
    pub fn amend_until(
        self,
        settings: &Settings,
        text: &str,
        mode: Mode,
        files: &mut dyn Files,
        output: &mut Output,
    ) -> (Amendment, Result<(), CommandError>) {
        let revision = self.revision;
        let mut firewall = self.into_engine(settings, Beside::default());
        let unchanged = firewall.revision;
        let (mut rng, mut sink) = (Rng::from_seed(1), DropCounter::default());
        let mut cx = Cx::new(Time::ZERO, &mut rng, &mut sink);
        let mut run = Run {
            files,
            is_batch: mode != Mode::Command,
            is_deferred: mode == Mode::Atomic,
            depth: 0,
        };
        let result = firewall.lines(text, &Flags::default(), &mut run, output, &mut cx);
        let beside = firewall.beside.take().unwrap_or_default();
        // What is not one change is executed in pieces, or line by line.
        let is_refused = beside.is_too_long && Draft::is_for(text, mode);
        if beside.needs_engine.is_some() && !is_refused {
            *output = Output::default();
            return (Amendment::NeedsEngine, Ok(()));
        }
        match (mode, &result) {
            (Mode::Atomic, Err(_)) => output.take_back(0),
            (Mode::Atomic, Ok(())) => firewall.settle(&mut output.warnings),
            _ => {}
        }
        let is_trial =
            mode == Mode::Command && flags_of(text).is_some_and(|flags| flags.check_only);
        if is_trial || firewall.revision == unchanged {
            return (Amendment::Nothing, result);
        }
        let amended = Amended {
            revision,
            is_whole: false,
            configuration: Prepared {
                layout: firewall.layout,
                rules: firewall.rules.into_ruleset(),
                variables: firewall.variables,
            },
        };
        (Amendment::Change(Box::new(amended)), result)
    }

    /// Returns an engine with this configuration, and without objects at work.
    pub(super) fn into_engine(self, settings: &Settings, beside: Beside) -> Firewall {
        let mut firewall = Firewall::new(settings);
        firewall.layout = self.layout.finish();
        if let Some(Report { states, .. }) = self.live {
            firewall.rules.states = states;
        }
        let rules = self.rules.expect("a draft is used when it is whole");
        firewall.rules.load(rules);
        firewall.variables = self.variables;
        firewall.variables_changed();
        firewall.beside = Some(beside);
        firewall
    }
}

impl Firewall {
    /// Begins a copy of the configuration. [`Firewall::continue_draft`] copies it.
    pub fn draft(&self) -> Draft {
        Draft {
            revision: self.revision,
            layout: LayoutCopy::default(),
            copy: RulesetCopy::default(),
            rules: None,
            variables: self.variables.clone(),
            live: None,
        }
    }

    /// Copies the next piece of the configuration, which must not change meanwhile: the commands of
    /// others wait. Packets need not. Returns whether more is left.
    pub fn continue_draft(&self, draft: &mut Draft) -> bool {
        if draft.rules.is_some() {
            return false;
        }
        if draft.layout.next(&self.layout) || self.rules.copy_piece(&mut draft.copy) {
            return true;
        }
        let copy = mem::take(&mut draft.copy);
        draft.rules = Some(self.rules.ruleset_of(copy));
        false
    }

    /// Puts a changed copy of the configuration in place, or what replaces it
    /// ([`Configuration::replaced_by`]), at `cx.now`. Rules that remain keep their
    /// counters and states; pipes and queues that remain keep their packets. Returns the old
    /// configuration.
    ///
    /// # Errors
    ///
    /// The copy, if the configuration has changed since it was copied. Then nothing is changed.
    pub fn exchange(
        &mut self,
        amended: Amended,
        cx: &mut Cx<'_>,
    ) -> Result<Replaced, Box<Amended>> {
        if amended.revision != self.revision {
            return Err(Box::new(amended));
        }
        if amended.is_whole {
            return Ok(self.replace(amended.configuration, cx));
        }
        let Prepared {
            layout,
            rules,
            variables,
        } = amended.configuration;
        let now = cx.now;
        self.advance(|at| at < now, cx);
        self.revision += 1;
        self.trial.forget();
        let layout = mem::replace(&mut self.layout, layout);
        let rules = self.rules.exchange(rules);
        self.variables = variables;
        self.variables_changed();
        let touched = self.runtime.apply(&mut self.layout, cx);
        Ok(Replaced {
            layout,
            rules,
            touched,
        })
    }

    /// Returns whether a command is left to the running engine, because this is a copy beside it.
    ///
    /// # Errors
    ///
    /// If the change is too long for the running engine.
    pub(super) fn leaves(
        &mut self,
        command: &Command,
        flags: &Flags,
    ) -> Result<bool, CommandError> {
        let Some(beside) = &mut self.beside else {
            return Ok(false);
        };
        if beside.live.is_some() {
            // A report has no objects at work.
            return Ok(!shows_rules(command));
        }
        beside.commands += 1;
        let needed = needs_engine(command, flags);
        beside.needs_engine = beside.needs_engine.or(needed);
        match beside.needs_engine {
            Some(name) if beside.commands > MOST_AT_ENGINE => {
                beside.is_too_long = true;
                let text = format!(
                    "`{name}' in a change of more than {MOST_AT_ENGINE} commands would hold up \
                     packets; give it as a command of its own after the change"
                );
                Err(CommandError::of(ErrorKind::Contradiction(text)))
            }
            _ => Ok(needed.is_some()),
        }
    }
}

/// Returns the name of a command that shows or clears what packets have changed.
fn needs_engine(command: &Command, flags: &Flags) -> Option<&'static str> {
    match command {
        Command::ShowObjects(..) => Some("show"),
        Command::List { has_counters, .. } => {
            let shows_packets = *has_counters
                || flags.counters
                || flags.json
                || flags.dynamic != Dynamic::No
                || flags.times != Times::No;
            shows_packets.then_some("list")
        }
        Command::Zero { log_only, .. } => Some(if *log_only { "resetlog" } else { "zero" }),
        Command::Sysctl { variables, .. } => {
            let is_shown = |variable: &Variable| variable.value.is_none();
            (variables.is_empty() || variables.iter().any(is_shown)).then_some("sysctl")
        }
        _ => None,
    }
}

/// Whether a command only shows rules, states or variables.
pub(super) fn shows_rules(command: &Command) -> bool {
    match command {
        Command::List { .. } => true,
        Command::Sysctl { variables, .. } => {
            variables.iter().all(|variable| variable.value.is_none())
        }
        _ => false,
    }
}

/// Returns the flags of a command; `None` if it cannot be read.
fn flags_of(text: &str) -> Option<Flags> {
    let parsed = grammar::parse(text.trim_end(), 1, false).ok()?;
    Some(parsed.invocation?.flags)
}
