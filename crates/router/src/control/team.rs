//! Orders to several workers, which act as one loop.
//!
//! Every worker gets the same orders in the same sequence. What changes the configuration is built once,
//! beside the loops, and carries the instant at which all workers put it in place: each does so before
//! it handles anything that arrived at that instant or later. The answers become one: counters add up,
//! and a pipe is shown by the worker that owns it.

use std::cell::OnceCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use sluice_core::Span;
use sluice_ipfw::watch::Watching;
use sluice_ipfw::{Amendment, CommandError, Draft, Mode, Output, Settings, shows_only};
use sluice_net::Clock;

use super::bell::Claim;
use super::inbox::{Door, WAITING, door};
use super::journal::changes;
use super::{
    Answered, Attached, Builder, Given, Inbox, Orders, Refused, Texts, Watched, Work, origin_s,
};
use crate::rtt::RttCounts;

/// What several loops have in common.
pub(super) struct Team<T> {
    /// Held while an order is put into all inboxes, so that all have the same sequence.
    turn: Mutex<()>,
    /// Orders that some loop has not taken.
    waiting: Arc<AtomicUsize>,
    clock: Clock,
    join: fn(Vec<T>) -> T,
}

/// The place of an order that waits, until the last loop has taken it.
pub(super) struct Ticket(Arc<AtomicUsize>);

impl Drop for Ticket {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The status of one of several workers.
pub trait TeamStatus: Sized {
    /// Returns the status of all workers as one.
    fn join(all: Vec<Self>) -> Self;
}

/// Creates the inboxes of several workers, and a handle that sends to all of them.
///
/// # Errors
/// The process cannot open more files.
pub fn inboxes<T: TeamStatus>(
    builder: Builder,
    workers: usize,
    clock: Clock,
) -> std::io::Result<(Vec<Inbox<T>>, Orders<T>)> {
    let doors: std::io::Result<Vec<(Inbox<T>, Door<T>)>> = (0..workers).map(|_| door()).collect();
    let (inboxes, doors): (Vec<_>, Vec<_>) = doors?.into_iter().unzip();
    let team = (workers > 1).then(|| Team {
        turn: Mutex::default(),
        waiting: Arc::default(),
        clock,
        join: T::join,
    });
    Ok((inboxes, Orders::new(doors, builder, team)))
}

impl<T> Team<T> {
    /// Puts an order into the inboxes of all loops.
    pub(super) fn post(
        &self,
        loops: &[Door<T>],
        work: Work,
        claim: &Arc<Claim>,
    ) -> Result<Vec<Receiver<Answered<T>>>, Refused> {
        // To read a long text takes time, for which no other order waits.
        let is_change = match &work {
            Work::Commands { text, .. } => changes(text),
            Work::Replace(_) | Work::Exchange(_) => true,
            Work::Draft | Work::Report | Work::Status | Work::Watch(_) => false,
        };
        // Nothing under the lock can panic halfway.
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= WAITING {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return Err(Refused::Busy);
        }
        let ticket = Arc::new(Ticket(Arc::clone(&self.waiting)));
        let at = is_change.then(|| self.clock.now() + LEAD);
        let works = split(work, loops.len());
        let posted = loops.iter().zip(works);
        posted
            .map(|(door, work)| door.put((work, at), claim, Some(&ticket)))
            .collect()
    }

    /// Returns the answers of all loops as one.
    pub(super) fn join(&self, answers: Vec<Answered<T>>) -> Answered<T> {
        let mut statuses = Vec::new();
        let mut watchings = Vec::new();
        let mut watched: Option<Watched<()>> = None;
        let mut first: Option<Answered<T>> = None;
        for answer in answers {
            match (&mut first, answer) {
                (_, Answered::Status(status)) => statuses.push(*status),
                (_, Answered::Watched(one)) => {
                    statuses.push(one.status);
                    watchings.push(one.watching);
                    let all = watched.get_or_insert_with(|| Watched {
                        watching: Watching::default(),
                        status: (),
                        lateness: Default::default(),
                        rtt: None,
                    });
                    all.lateness.absorb(&one.lateness);
                    if let Some(more) = one.rtt {
                        all.rtt
                            .get_or_insert_with(Box::<RttCounts>::default)
                            .absorb(*more);
                    }
                }
                (Some(Answered::Survey(all)), Answered::Survey(more)) => all.absorb(*more),
                (Some(Answered::Draft(all)), Answered::Draft(more)) => all.absorb(*more),
                (None, answer) => first = Some(answer),
                // The workers execute the same commands on the same configuration.
                (Some(_), _) => {}
            }
        }
        match (first, watched) {
            (Some(answer), _) => answer,
            (None, None) => Answered::Status(Box::new((self.join)(statuses))),
            (None, Some(all)) => Answered::Watched(Box::new(Watched {
                watching: Watching::join(watchings),
                status: (self.join)(statuses),
                lateness: all.lateness,
                rtt: all.rtt,
            })),
        }
    }
}

/// Returns the order for each worker. One suffices for a copy of the configuration, which all have.
fn split(work: Work, workers: usize) -> Vec<Work> {
    let all = 0..workers;
    match work {
        Work::Draft => vec![Work::Draft],
        Work::Report => all.map(|_| Work::Report).collect(),
        Work::Status => all.map(|_| Work::Status).collect(),
        Work::Watch(watching) => {
            let watchings = watching.split(workers as u32).into_iter();
            watchings.map(|one| Work::Watch(Box::new(one))).collect()
        }
        Work::Replace(prepared) => all.map(|_| Work::Replace(prepared.clone())).collect(),
        Work::Exchange(amended) => all.map(|_| Work::Exchange(amended.clone())).collect(),
        Work::Commands { text, mode, files } => all
            .map(|_| Work::Commands {
                text: text.clone(),
                mode,
                files: files.clone(),
            })
            .collect(),
    }
}

/// What all lines of a text have in common.
struct Common {
    text: String,
    files: Arc<Texts>,
    /// The files, and the algorithms that the text names, as soon as a line needs the loops.
    attached: OnceCell<Attached>,
    start: Instant,
    patience: Duration,
}

impl Common {
    /// Returns the time that is left.
    fn left(&self) -> Duration {
        self.patience.saturating_sub(self.start.elapsed())
    }

    fn attached(&self) -> Attached {
        let new = || Attached::new(&self.text, Arc::clone(&self.files));
        self.attached.get_or_init(new).clone()
    }
}

impl<T> Orders<T> {
    /// Executes commands at all workers; those that change the configuration at one instant.
    pub(super) fn execute_by_all(
        &self,
        (text, mode, files): (String, Mode, Texts),
        patience: Duration,
    ) -> Result<Answered<T>, Refused> {
        let common = Common {
            text,
            files: Arc::new(files),
            attached: OnceCell::new(),
            start: Instant::now(),
            patience,
        };
        self.execute_text(&common.text, mode, &common)
    }

    /// Executes the whole text, or one line of it.
    fn execute_text(
        &self,
        text: &str,
        mode: Mode,
        common: &Common,
    ) -> Result<Answered<T>, Refused> {
        let left = || common.left();
        let commands = || Work::Commands {
            text: text.to_owned(),
            mode,
            files: common.attached(),
        };
        let is_one = text.trim().lines().count() <= 1;
        let clock = self.team.as_ref().map(|team| team.clock);
        if is_one && shows_only(text) {
            let Answered::Draft(report) = self.order(Work::Report, left())? else {
                unreachable!("a request for a copy is answered with one");
            };
            let mut output = Box::<Output>::default();
            let now = clock.map_or_else(Default::default, |clock| clock.now());
            let settings = Settings {
                origin_s: origin_s(SystemTime::now(), now),
                ..self.builder().settings
            };
            let result = report.show(&settings, text, now, &mut output);
            return Ok(Answered::Commands(output, result));
        }
        // A trial is executed on a copy.
        if is_one && !changes(text) && !Draft::is_for(text, mode) {
            return self.order(commands(), left());
        }
        loop {
            let Answered::Draft(draft) = self.order(Work::Draft, left())? else {
                unreachable!("a request for a copy is answered with one");
            };
            let mut output = Box::<Output>::default();
            let settings = &self.builder().settings;
            let (amendment, result) =
                draft.amend_until(settings, text, mode, &mut Given(&common.files), &mut output);
            let amended = match amendment {
                Amendment::Change(_) if mode == Mode::Atomic && result.is_err() => {
                    return Ok(Answered::Commands(output, result));
                }
                Amendment::Change(amended) => amended,
                Amendment::Nothing => return Ok(Answered::Commands(output, result)),
                Amendment::NeedsEngine if is_one || mode == Mode::Atomic => {
                    return self.order(commands(), left());
                }
                Amendment::NeedsEngine => return self.execute_lines(common),
            };
            match self.order(Work::Exchange(amended), left())? {
                Answered::Stale(_) if !left().is_zero() => {}
                Answered::Stale(_) => return Err(Refused::Overtaken),
                _ => return Ok(Answered::Commands(output, result)),
            }
        }
    }

    /// Executes lines one by one until one is refused, because some of them show what packets have
    /// changed.
    fn execute_lines(&self, common: &Common) -> Result<Answered<T>, Refused> {
        let mut output = Output::default();
        for (number, line) in (1..).zip(common.text.lines()) {
            let executed = match common.left().is_zero() && number > 1 {
                true => Err(Refused::Late),
                false => self.execute_text(line, Mode::Command, common),
            };
            let executed = executed.map_err(|refused| match refused {
                // The lines before have been executed.
                Refused::Late | Refused::Gone | Refused::Overtaken | Refused::Busy
                    if number > 1 =>
                {
                    Refused::Unfinished
                }
                refused => refused,
            });
            let (said, result) = match executed? {
                Answered::Commands(said, result) => (*said, result),
                Answered::Survey(survey) => (survey.finish(), Ok(())),
                _ => unreachable!("commands are answered with their output"),
            };
            output.stdout.push_str(&said.stdout);
            output.snapshot = said.snapshot.or(output.snapshot);
            output
                .warnings
                .extend(said.warnings.into_iter().map(|mut warning| {
                    if let Some(at) = warning.at.as_mut().filter(|_| warning.file.is_none()) {
                        at.line = number;
                    }
                    warning
                }));
            if let Err(error) = result {
                return Ok(Answered::Commands(
                    Box::new(output),
                    Err(on_line(error, number)),
                ));
            }
        }
        Ok(Answered::Commands(Box::new(output), Ok(())))
    }
}

/// Returns the refusal of a command as that of a line.
fn on_line(mut error: CommandError, number: u32) -> CommandError {
    error.is_batch = true;
    if let Some(at) = error.at.as_mut().filter(|_| error.file.is_none()) {
        at.line = number;
    }
    error
}

/// From an order to the instant at which all workers execute it: longer than a turn of the loop.
const LEAD: Span = Span::from_ms(2);

#[cfg(test)]
mod tests;
