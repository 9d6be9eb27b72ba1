//! Executes commands, each as a whole or not at all.

mod batch;
mod configuration;
mod draft;
mod prepared;
mod report;
mod rules;
mod survey;
mod tables;
mod watching;

pub use batch::Batch;
pub use configuration::{Configuration, ObjectCommand};
pub(crate) use draft::Beside;
pub use draft::{Amended, Amendment, Draft};
pub use prepared::{Prepared, Replaced};
pub use report::shows_only;
pub use survey::Survey;
pub use watching::{Detail, Tally, Watching};

use std::fmt::Write as _;

use sluice_core::event::Cx;

use crate::engine::{Firewall, Mode, Output};
use crate::grammar::{
    self, At, Command, CommandError, ErrorKind, Flags, Invocation, NumberSpan, ObjectKind,
    RESERVED_SET, Switch, Variable, Warning,
};
use crate::objects::layout::{Files, Layout, Means, STRIDE, read_file};
use crate::rules::{Entry, Saved};
use crate::show::Snapshot;
use crate::show::collect::{Collector, Selection};
use crate::show::rules as show_rules;
use crate::show::text::Writer;
use crate::variables::{Variables, named};
use crate::words::error::Missing;
use report::Live;

/// The state that a refused batch restores.
struct Checkpoint {
    layout: Layout,
    rules: Saved,
    variables: Variables,
}

/// The deepest nesting of files that include files.
const MOST_NESTING: usize = 8;

impl Firewall {
    /// Executes `text` in the given mode. When a command is refused, `output` keeps what the commands
    /// before it wrote, if they stay in force, and all warnings.
    ///
    /// # Errors
    ///
    /// The command that was refused. It changes nothing; [`Mode`] describes what happens to the
    /// commands before it.
    pub fn execute(
        &mut self,
        text: &str,
        mode: Mode,
        files: &mut dyn Files,
        output: &mut Output,
        cx: &mut Cx<'_>,
    ) -> Result<(), CommandError> {
        let now = cx.now;
        self.advance(|at| at < now, cx);
        if mode == Mode::Replace {
            let interfaces = self.interfaces().to_vec();
            let length = output.stdout.len();
            let prepared = Prepared::new(&self.settings, interfaces, text, files, output)
                .inspect_err(|_| output.take_back(length))?;
            self.replace(prepared, cx);
            return Ok(());
        }
        let length = output.stdout.len();
        let is_atomic = mode == Mode::Atomic;
        let checkpoint = is_atomic.then(|| self.checkpoint());
        let mut run = Run {
            files,
            is_batch: mode != Mode::Command,
            is_deferred: is_atomic,
            depth: 0,
        };
        let result = self.lines(text, &Flags::default(), &mut run, output, cx);
        match (&result, checkpoint) {
            (Err(_), Some(checkpoint)) => {
                self.restore(checkpoint);
                output.take_back(length);
            }
            (Ok(()), Some(_)) => {
                self.apply_layout(cx);
                self.settle(&mut output.warnings);
            }
            (_, None) => {}
        }
        result
    }

    /// Removes the warnings of one change about what it creates itself.
    fn settle(&self, warnings: &mut Vec<Warning>) {
        warnings.retain(|warning| !warning.until.as_ref().is_some_and(|what| self.has(what)));
    }

    /// Returns whether an object exists now.
    fn has(&self, missing: &Missing) -> bool {
        let tables = &self.rules.tables;
        match missing {
            Missing::Pipe(number) => self.layout.links.contains_key(number),
            Missing::Queue(number) => self.layout.flowsets.contains_key(number),
            Missing::Scheduler(number) => self.layout.schedulers.contains_key(number),
            Missing::Entries(name) => {
                let table = tables.find(name).map(|id| tables.table(id));
                table.is_some_and(|table| table.len() > 0)
            }
        }
    }

    fn lines(
        &mut self,
        text: &str,
        inherited: &Flags,
        run: &mut Run<'_>,
        output: &mut Output,
        cx: &mut Cx<'_>,
    ) -> Result<(), CommandError> {
        for (number, line) in (1..).zip(text.lines()) {
            let result = self.line(line, number, inherited, run, output, cx);
            result.map_err(|error| error.in_text(text))?;
        }
        Ok(())
    }

    fn line(
        &mut self,
        line: &str,
        number: u32,
        inherited: &Flags,
        run: &mut Run<'_>,
        output: &mut Output,
        cx: &mut Cx<'_>,
    ) -> Result<(), CommandError> {
        let said = output.warnings.len();
        let mut on_line = || {
            let loaders = run.files.loaders();
            let parsed = grammar::parse_with(loaders, line, number, self.switches.is_compat)?;
            output.warnings.extend(parsed.warnings);
            for notice in parsed.notices {
                put(output, format_args!("{notice}\n"));
            }
            match parsed.invocation {
                Some(mut invocation) => {
                    invocation.flags.inherit(inherited);
                    self.invoke(&invocation, run, output, cx)
                }
                None => Ok(()),
            }
        };
        let result = on_line();
        let start = grammar::Position {
            line: number,
            column: 1,
        };
        for warning in &mut output.warnings[said..] {
            warning.at.get_or_insert(start);
        }
        result.map_err(|mut error| {
            error.is_batch |= run.is_batch;
            error.at.get_or_insert(start);
            error
        })
    }

    fn invoke(
        &mut self,
        invocation: &Invocation,
        run: &mut Run<'_>,
        output: &mut Output,
        cx: &mut Cx<'_>,
    ) -> Result<(), CommandError> {
        let flags = &invocation.flags;
        let is_trial = flags.check_only && !matches!(invocation.command, Command::Batch(_));
        if is_trial {
            // `-n`: execute everything, then restore the state.
            let checkpoint = self.checkpoint();
            let mut silent = Output::default();
            let was_deferred = std::mem::replace(&mut run.is_deferred, true);
            let result = self.carry_out(&invocation.command, flags, run, &mut silent, cx);
            run.is_deferred = was_deferred;
            self.restore(checkpoint);
            output.warnings.append(&mut silent.warnings);
            return result;
        }
        let length = output.stdout.len();
        let result = self.carry_out(&invocation.command, flags, run, output, cx);
        // A refused command has taken back what it printed as done. Of a file, the lines before the
        // refused one stay in force.
        if result.is_err() && !matches!(invocation.command, Command::Batch(_)) {
            output.stdout.truncate(length);
        }
        result
    }

    fn carry_out(
        &mut self,
        command: &Command,
        flags: &Flags,
        run: &mut Run<'_>,
        output: &mut Output,
        cx: &mut Cx<'_>,
    ) -> Result<(), CommandError> {
        if self.leaves(command, flags)? {
            return Ok(());
        }
        // The lines of a file count themselves, and counters are not part of the configuration.
        let is_unchanged = matches!(command, Command::Batch(_) | Command::Zero { .. });
        if !command.is_reading() && !is_unchanged {
            self.revision += 1;
        }
        match command {
            Command::Configure(config) => {
                let mut means = Means {
                    variables: &self.variables,
                    files: &mut *run.files,
                    warnings: &mut output.warnings,
                    trial: &mut self.trial,
                };
                self.layout.configure(config, &mut means)?;
                self.apply(run, cx);
            }
            Command::DeleteObjects(kind, numbers) => {
                self.delete_objects(*kind, numbers, flags, output)?;
                self.apply(run, cx);
            }
            Command::FlushObjects(_) => {
                self.trial.forget();
                self.layout.flush();
                self.apply(run, cx);
            }
            Command::ShowObjects(kind, spans) => self.show_objects(*kind, spans, flags, output, cx),
            Command::Add(rule) => self.add(rule, flags, output)?,
            Command::List {
                has_counters,
                rules,
                set,
            } => {
                self.list(*has_counters, rules, *set, flags, output, cx)?;
            }
            Command::Delete { rules, set } => self.delete_rules(rules, *set, flags, output)?,
            Command::Zero {
                rules,
                set,
                log_only,
            } => {
                self.zero(rules, *set, *log_only, flags, output)?;
            }
            Command::Flush(set) => {
                let in_set =
                    |e: &Entry| set.map_or(e.rule.set != RESERVED_SET, |s| e.rule.set == s);
                self.rules.remove(in_set);
                if !flags.quiet {
                    put(output, format_args!("Flushed all rules.\n"));
                }
            }
            Command::Set(command) => self.sets(command, output)?,
            Command::Table(command) => self.table(command, flags, output)?,
            Command::Switch(which, is_on) => self.switch(*which, *is_on),
            Command::Sysctl {
                values_only,
                variables,
            } => {
                self.sysctl(*values_only, variables, flags, output)?;
            }
            Command::Batch(path) => {
                if run.depth >= MOST_NESTING {
                    let text = format!("{}: files include one another", path.value);
                    return Err(CommandError::new(ErrorKind::Contradiction(text), path.at));
                }
                let text = read_file(run.files, path)?;
                return self.nested(&path.value, &text, flags, run, output, cx);
            }
        }
        Ok(())
    }

    /// Executes the lines of a file; `--atomic` before its name makes them one change.
    fn nested(
        &mut self,
        path: &str,
        text: &str,
        flags: &Flags,
        run: &mut Run<'_>,
        output: &mut Output,
        cx: &mut Cx<'_>,
    ) -> Result<(), CommandError> {
        let is_outermost = (flags.atomic || flags.check_only) && !run.is_deferred;
        let checkpoint = is_outermost.then(|| self.checkpoint());
        let before = (run.is_batch, run.is_deferred);
        run.is_batch = true;
        run.is_deferred |= is_outermost;
        run.depth += 1;
        let mut inherited = flags.clone();
        // The file is tried as a whole, because its lines build on one another.
        inherited.check_only = false;
        let (said, length) = (output.warnings.len(), output.stdout.len());
        let mut result = self.lines(text, &inherited, run, output, cx);
        let name = |file: &mut Option<String>| {
            file.get_or_insert_with(|| path.to_owned());
        };
        output.warnings[said..]
            .iter_mut()
            .for_each(|w| name(&mut w.file));
        if let Err(error) = &mut result {
            name(&mut error.file);
        }
        run.depth -= 1;
        (run.is_batch, run.is_deferred) = before;
        if is_outermost {
            self.settle(&mut output.warnings);
        }
        match checkpoint {
            Some(checkpoint) if result.is_err() || flags.check_only => {
                self.restore(checkpoint);
                output.take_back(length);
            }
            Some(_) => self.apply_layout(cx),
            None => {}
        }
        result
    }

    fn apply(&mut self, run: &Run<'_>, cx: &mut Cx<'_>) {
        if !run.is_deferred {
            self.apply_layout(cx);
        }
    }

    /// Makes the running objects match the layout. A copy has none.
    fn apply_layout(&mut self, cx: &mut Cx<'_>) {
        if self.beside.is_none() {
            self.runtime.apply(&mut self.layout, cx);
        }
    }

    fn checkpoint(&self) -> Checkpoint {
        Checkpoint {
            layout: self.layout.clone(),
            rules: self.rules.save(),
            variables: self.variables.clone(),
        }
    }

    fn restore(&mut self, checkpoint: Checkpoint) {
        self.trial.forget();
        self.layout = checkpoint.layout;
        self.rules.restore(checkpoint.rules);
        self.variables = checkpoint.variables;
        self.refresh_switches();
    }

    fn delete_objects(
        &mut self,
        kind: ObjectKind,
        numbers: &[At<u32>],
        flags: &Flags,
        output: &mut Output,
    ) -> Result<(), CommandError> {
        // A refused deletion of one object changes nothing.
        let before = (numbers.len() > 1).then(|| self.layout.clone());
        for number in numbers {
            match kind {
                ObjectKind::Queue => self.trial.leave(number.value, None),
                ObjectKind::Pipe | ObjectKind::Scheduler => self.trial.forget(),
            }
            let Err(reason) = self.layout.delete(kind, number.value) else {
                continue;
            };
            let refused = ErrorKind::DeleteRefused(reason);
            // ipfw goes on with `-f`.
            if flags.force {
                let text = refused.to_string();
                output.warnings.push(Warning::new(Some(number.at), text));
                continue;
            }
            if let Some(before) = before {
                self.layout = before;
                self.trial.forget();
            }
            return Err(CommandError::new(refused, number.at));
        }
        Ok(())
    }

    fn show_objects(
        &mut self,
        kind: ObjectKind,
        spans: &[At<NumberSpan>],
        flags: &Flags,
        output: &mut Output,
        cx: &mut Cx<'_>,
    ) {
        let mut snapshot = Snapshot {
            now_ns: cx.now.as_ns(),
            ..Snapshot::default()
        };
        self.collect(kind, spans, &mut snapshot, cx);
        if flags.json {
            output.snapshot = Some(Box::new(snapshot));
            return;
        }
        let text = Writer::new(flags.verbose).objects(&snapshot);
        output.stdout.push_str(&text);
    }

    fn collect(
        &mut self,
        kind: ObjectKind,
        spans: &[At<NumberSpan>],
        snapshot: &mut Snapshot,
        cx: &mut Cx<'_>,
    ) {
        let mut collector = Collector {
            layout: &self.layout,
            runtime: &mut self.runtime,
            is_compat: self.switches.is_compat,
        };
        let layout = collector.layout;
        let selection = Selection::new(spans);
        match kind {
            ObjectKind::Pipe => {
                let numbers = layout.links.keys().filter(|n| selection.has(**n));
                snapshot.pipes = numbers.filter_map(|n| collector.pipe(*n, cx.now)).collect();
            }
            ObjectKind::Scheduler => {
                let numbers = layout.schedulers.range(..STRIDE).map(|(n, _)| *n);
                let numbers = numbers.filter(|n| selection.has(*n));
                snapshot.schedulers = numbers
                    .filter_map(|n| collector.scheduler(n, cx.now))
                    .collect();
            }
            ObjectKind::Queue => {
                let numbers = layout
                    .queues()
                    .map(|(n, _)| n)
                    .filter(|n| selection.has(*n));
                snapshot.queues = numbers.filter_map(|n| collector.queue(n, cx)).collect();
            }
        }
    }

    /// Returns the state of everything.
    pub fn snapshot(&mut self, cx: &mut Cx<'_>) -> Snapshot {
        let now = cx.now;
        self.advance(|at| at < now, cx);
        let mut snapshot = Snapshot {
            now_ns: cx.now.as_ns(),
            ..Snapshot::default()
        };
        for kind in [ObjectKind::Pipe, ObjectKind::Scheduler, ObjectKind::Queue] {
            self.collect(kind, &[], &mut snapshot, cx);
        }
        snapshot.rules = show_rules::states(&self.rules, |_| true);
        show_rules::add_dynamic(&mut snapshot, &self.rules, false, now);
        snapshot
    }

    fn switch(&mut self, which: Switch, is_on: bool) {
        let name = match which {
            Switch::Firewall => {
                self.variables
                    .put("net.inet6.ip6.fw.enable", u64::from(is_on));
                "net.inet.ip.fw.enable"
            }
            Switch::OnePass => "net.inet.ip.fw.one_pass",
            Switch::Verbose => "net.inet.ip.fw.verbose",
            Switch::Debug => "net.inet.ip.fw.debug",
            Switch::DynKeepalive => "net.inet.ip.fw.dyn_keepalive",
            // This switch has no variable.
            Switch::Altq => return,
        };
        self.variables.put(name, u64::from(is_on));
        self.variables_changed();
    }

    fn sysctl(
        &mut self,
        values_only: bool,
        variables: &[Variable],
        flags: &Flags,
        output: &mut Output,
    ) -> Result<(), CommandError> {
        let before = self.variables.clone();
        let result = self.set_or_show(values_only, variables, flags, output);
        if result.is_err() {
            self.variables = before;
        }
        self.variables_changed();
        result
    }

    /// Sets variables and shows others, in their order, until one is refused.
    fn set_or_show(
        &mut self,
        values_only: bool,
        variables: &[Variable],
        flags: &Flags,
        output: &mut Output,
    ) -> Result<(), CommandError> {
        // Without a name, all variables are shown.
        let all: Vec<Variable> = match variables {
            [] => Variables::names().map(Variable::shown).collect(),
            _ => Vec::new(),
        };
        for Variable { name, value } in variables.iter().chain(&all) {
            let old = self.variables.show(name, |n| self.count_of(n))?;
            let prefix = if values_only {
                String::new()
            } else {
                format!("{}: ", name.value)
            };
            let Some(value) = value else {
                put(output, format_args!("{prefix}{old}\n"));
                continue;
            };
            let said = self.variables.set(name, value)?;
            let at = Some(name.at);
            output
                .warnings
                .extend(said.map(|text| Warning::new(at, text)));
            if !flags.quiet {
                put(output, format_args!("{prefix}{old} -> {}\n", value.value));
            }
        }
        Ok(())
    }

    /// Applies changed variables to the engine.
    fn variables_changed(&mut self) {
        self.refresh_switches();
        let value = |name: &str| self.variables.value(name) as u32;
        let times = crate::rules::states::Lifetimes {
            syn: value("net.inet.ip.fw.dyn_syn_lifetime"),
            ack: value("net.inet.ip.fw.dyn_ack_lifetime"),
            fin: value("net.inet.ip.fw.dyn_fin_lifetime"),
            rst: value("net.inet.ip.fw.dyn_rst_lifetime"),
            udp: value("net.inet.ip.fw.dyn_udp_lifetime"),
            short: value("net.inet.ip.fw.dyn_short_lifetime"),
            most: value("net.inet.ip.fw.dyn_max"),
            per_source: value("net.inet.ip.fw.dyn_src_max"),
        };
        self.rules.lifetimes = times;
        self.rules.verbose_limit = value("net.inet.ip.fw.verbose_limit");
    }

    /// Returns the value of a variable that the engine counts.
    fn count_of(&self, name: &str) -> u64 {
        let layout = &self.layout;
        let (schedulers, flowsets) = (layout.schedulers.len(), layout.flowsets.len());
        let live = self.beside.as_ref().and_then(|beside| beside.live);
        let live = live.unwrap_or_else(|| Live::of(self));
        let [instances, queues] = live.population.map(|n| n as u64);
        let totals = live.totals;
        match named(name).value.rsplit('.').next() {
            Some("schk_count") => schedulers as u64,
            Some("si_count") => instances,
            Some("fsk_count") => flowsets as u64,
            Some("queue_count") => queues,
            Some("io_pkt") => totals.packets,
            Some("io_pkt_drop") => totals.dropped,
            Some("expire_cycle") => totals.expired,
            Some("default_to_accept") => u64::from(self.settings.accepts_by_default),
            Some("static_count") => self.rules.entries().len() as u64,
            Some("dyn_count") => self.rules.states.len() as u64,
            Some("dyn_refused_full") => self.rules.states.refusals.full,
            Some("dyn_refused_limit") => self.rules.states.refusals.limit,
            Some("dyn_refused_src") => self.rules.states.refusals.source,
            Some("dyn_evicted") => self.rules.states.refusals.evicted,
            // `io_pkt_fast`: no packet leaves in the call in which it arrives.
            _ => 0,
        }
    }
}

/// The context of the lines of a text.
struct Run<'f> {
    files: &'f mut dyn Files,
    is_batch: bool,
    /// Whether the layout is applied at the end and not after each line.
    is_deferred: bool,
    depth: usize,
}

pub(crate) fn put(output: &mut Output, text: std::fmt::Arguments<'_>) {
    output
        .stdout
        .write_fmt(text)
        .expect("a string takes any text");
}
