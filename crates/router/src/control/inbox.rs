//! Orders to the packet loop, in a bounded channel with a bell that ends the loop's sleep.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, SyncSender, TryRecvError, TrySendError, sync_channel,
};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sluice_ipfw::{
    Amended, Amendment, CommandError, Configuration, Draft, Interface, Mode, Output, Prepared,
    Replaced, Settings, Survey,
};

use sluice_core::Time;
use sluice_ipfw::watch::Watching;

use super::bell::Claim;
use super::journal::changes;
use super::mailbox::{GivenUp, Putting, Ring, Taking, Wire, give_up, mailbox};
use super::places::LOOK;
use super::team::{Team, Ticket};
use super::{Attached, Given, Journal, Texts, TurnedAway, Why};
use crate::forward::Lateness;
use crate::rtt::RttCounts;

/// A request to the loop.
#[derive(Debug)]
pub enum Work {
    /// Execute commands, which may read these files.
    Commands {
        /// The commands, one per line.
        text: String,
        /// How they are executed.
        mode: Mode,
        /// The files and algorithms that the commands name.
        files: Attached,
    },
    /// Use this configuration in place of the whole old one.
    Replace(Box<Prepared>),
    /// Copy the configuration in pieces, for a change that is built beside the loop, or to be
    /// written.
    Draft,
    /// Copy the configuration in pieces with all that packets have changed in its rules.
    Report,
    /// Use this changed copy, unless the configuration has changed since.
    Exchange(Box<Amended>),
    /// Report the status.
    Status,
    /// Exchange the tables in which the engine counts for watchers.
    Watch(Box<Watching>),
}

/// A request, and the destination of its answer.
pub struct Order<T> {
    /// The request.
    pub work: Work,
    /// Where the result goes.
    pub answer: Answer<T>,
    /// The instant at which all workers execute it; `None` for as soon as possible.
    pub at: Option<Time>,
}

/// The destination of an answer.
pub struct Answer<T>(SyncSender<Answered<T>>);

/// An order on its way to a loop.
struct Posted<T> {
    order: Order<T>,
    /// Makes room for another order when the last loop has taken this one.
    _ticket: Option<Arc<Ticket>>,
}

/// Builds configurations beside the loop, for [`Work::Replace`].
#[derive(Debug, Default)]
pub struct Builder {
    pub(super) settings: Settings,
    interfaces: Mutex<Vec<Interface>>,
}

impl Builder {
    /// Creates a builder for an engine with these settings and interfaces.
    pub fn new(settings: Settings, interfaces: Vec<Interface>) -> Builder {
        Builder {
            settings,
            interfaces: Mutex::new(interfaces),
        }
    }

    /// Sets the interfaces, in the order of the ports, of configurations that are built from now
    /// on.
    pub fn set_interfaces(&self, interfaces: Vec<Interface>) {
        *self.lock() = interfaces;
    }

    /// Reads and checks a configuration. Takes as long as the text is long; the loop does not wait.
    ///
    /// # Errors
    /// The command that is refused.
    pub fn build(
        &self,
        text: &str,
        files: &Texts,
        output: &mut Output,
    ) -> Result<Box<Prepared>, CommandError> {
        let interfaces = self.lock().clone();
        let mut files = Given(files);
        Prepared::new(&self.settings, interfaces, text, &mut files, output).map(Box::new)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Interface>> {
        // Nothing under the lock can panic halfway.
        self.interfaces
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// The result of an order.
#[derive(Debug)]
pub enum Answered<T> {
    /// The output of commands, and the refused command.
    Commands(Box<Output>, Result<(), CommandError>),
    /// A snapshot of objects, from which the requesting thread formats the answer.
    Survey(Box<Survey>),
    /// The status.
    Status(Box<T>),
    /// The exchanged tables.
    Watched(Box<Watched<T>>),
    /// The configuration was replaced. The old one takes time to free, so the sender of the order
    /// gets it.
    Replaced(Box<Replaced>),
    /// A copy of the configuration.
    Draft(Box<Draft>),
    /// The copy is older than the configuration, which stays.
    Stale(Box<Amended>),
}

/// The loop's answer to an exchange of tables.
#[derive(Debug)]
pub struct Watched<T> {
    /// The tables.
    pub watching: Watching,
    /// The status.
    pub status: T,
    /// The lateness of packets since the start.
    pub lateness: Lateness,
    /// Round-trip times since the last exchange, if they are measured.
    pub rtt: Option<Box<RttCounts>>,
}

impl<T> Answer<T> {
    /// Sends the answer. The requesting thread may have given up.
    pub fn send(self, answered: Answered<T>) {
        let _ = self.0.send(answered);
    }
}

/// The loop's end.
pub struct Inbox<T>(Taking<Posted<T>, UnixStream>);

/// The requesting end.
pub struct Orders<T> {
    /// The loops: one, or one per worker.
    loops: Arc<[Door<T>]>,
    builder: Arc<Builder>,
    journal: Arc<Journal>,
    turned_away: Arc<TurnedAway>,
    /// Requests to change or show the configuration, the refused ones included.
    asked: Arc<AtomicU64>,
    /// The common part of several workers.
    pub(super) team: Option<Arc<Team<T>>>,
    /// Whether the client has gone for which orders are sent.
    has_gone: Option<HasGone>,
}

type HasGone = Arc<dyn Fn() -> bool + Send + Sync>;

/// The way to one loop.
pub(super) struct Door<T> {
    orders: Putting<Posted<T>, UnixStream>,
    bell: Bell,
}

impl<T> Clone for Orders<T> {
    fn clone(&self) -> Self {
        Orders {
            loops: Arc::clone(&self.loops),
            builder: Arc::clone(&self.builder),
            journal: Arc::clone(&self.journal),
            turned_away: Arc::clone(&self.turned_away),
            asked: Arc::clone(&self.asked),
            team: self.team.clone(),
            has_gone: self.has_gone.clone(),
        }
    }
}

/// Returns the bell that ends the loop's sleep.
#[derive(Clone, Debug)]
pub struct Bell(Arc<Ring<UnixStream>>);

impl Wire for UnixStream {
    /// If the buffer is full, the other end is already readable.
    fn put(&self) {
        let mut stream = self;
        let _ = stream.write(&[1]);
    }

    fn drain(&self) {
        let (mut stream, mut rings) = (self, [0; 64]);
        while stream.read(&mut rings).is_ok_and(|n| n == rings.len()) {}
    }
}

/// The reasons why an order was not executed, or not in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Too many orders wait.
    #[error("the router is busy: {WAITING} commands are already waiting")]
    Busy,
    /// The loop did not begin the order in time. It will not: the order is withdrawn.
    #[error("the router did not answer in time; the command is withdrawn, nothing has changed")]
    Late,
    /// The loop has begun the order, but has not finished it in time.
    #[error(
        "the router has begun to execute the commands, but is not finished; see what it has done \
         with `show` commands"
    )]
    Unfinished,
    /// The client hung up before the loop began the order, which is withdrawn.
    #[error("the client hung up before the command was executed; nothing has changed")]
    Gone,
    /// Other commands have changed the configuration each time before the change was in place.
    #[error("other commands keep changing the configuration; nothing has changed, try again")]
    Overtaken,
    /// The loop has ended.
    #[error("the router has ended")]
    Ended,
}

/// Orders that may wait for the loop.
pub(crate) const WAITING: usize = 16;

/// Creates an inbox and a handle for sending to it. Configurations are built by `builder`.
///
/// # Errors
/// The process cannot open more files.
pub fn inbox<T>(builder: Builder) -> std::io::Result<(Inbox<T>, Orders<T>)> {
    let (inbox, door) = door()?;
    Ok((inbox, Orders::new(vec![door], builder, None)))
}

/// Creates an inbox and the way to it.
pub(super) fn door<T>() -> std::io::Result<(Inbox<T>, Door<T>)> {
    let (ring, heard) = UnixStream::pair()?;
    ring.set_nonblocking(true)?;
    heard.set_nonblocking(true)?;
    let (taking, putting) = mailbox(WAITING, ring, heard);
    let bell = Bell(Arc::clone(putting.ring()));
    let door = Door {
        orders: putting,
        bell,
    };
    Ok((Inbox(taking), door))
}

impl<T> Door<T> {
    /// Returns the bell of the inbox.
    pub(super) const fn bell(&self) -> &Bell {
        &self.bell
    }

    /// Puts an order into the inbox.
    pub(super) fn put(
        &self,
        (work, at): (Work, Option<Time>),
        claim: &Arc<Claim>,
        ticket: Option<&Arc<Ticket>>,
    ) -> Result<Receiver<Answered<T>>, Refused> {
        let (answer, answered) = sync_channel(1);
        let posted = Posted {
            order: Order {
                work,
                answer: Answer(answer),
                at,
            },
            _ticket: ticket.cloned(),
        };
        let put = self.orders.put(posted, claim);
        put.map_err(|error| match error {
            TrySendError::Full(()) => Refused::Busy,
            TrySendError::Disconnected(()) => Refused::Ended,
        })?;
        Ok(answered)
    }
}

impl Bell {
    /// Rings the bell.
    pub fn ring(&self) {
        self.0.ring();
    }
}

impl<T> Orders<T> {
    pub(super) fn new(loops: Vec<Door<T>>, builder: Builder, team: Option<Team<T>>) -> Orders<T> {
        Orders {
            loops: loops.into(),
            builder: Arc::new(builder),
            journal: Arc::default(),
            turned_away: Arc::default(),
            asked: Arc::default(),
            team: team.map(Arc::new),
            has_gone: None,
        }
    }

    /// Sends orders for a client, as long as `has_gone` returns false. It is called every [`LOOK`] while an
    /// order waits for its answer.
    #[must_use]
    pub(super) fn for_client(
        mut self,
        has_gone: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Orders<T> {
        self.has_gone = Some(Arc::new(has_gone));
        self
    }

    fn has_gone(&self) -> bool {
        self.has_gone.as_ref().is_some_and(|has_gone| has_gone())
    }

    /// Returns the bells of the loops.
    pub fn bells(&self) -> impl Iterator<Item = &Bell> {
        self.loops.iter().map(Door::bell)
    }

    /// Returns what builds configurations for this loop.
    pub fn builder(&self) -> &Builder {
        &self.builder
    }

    /// Returns the counts of the clients that the control socket turned away.
    pub fn turned_away(&self) -> &Arc<TurnedAway> {
        &self.turned_away
    }

    /// Returns the number of commands so far, the refused ones included: also those that a copy of the
    /// configuration refuses, of which no loop learns.
    pub const fn asked(&self) -> &Arc<AtomicU64> {
        &self.asked
    }

    /// Counts a command, or several that are given together.
    pub(crate) fn count(&self) {
        self.asked.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an order of a client, if it was refused.
    pub(crate) fn count_refusal(&self, answered: &Result<Answered<T>, Refused>) {
        let why = match answered {
            Ok(Answered::Commands(_, Err(_))) | Err(Refused::Overtaken) => Why::Command,
            Err(Refused::Busy) => Why::Busy,
            Err(Refused::Late) => Why::Late,
            Err(Refused::Gone) => Why::Gone,
            // It may have been executed, or the router ends.
            Ok(_) | Err(Refused::Unfinished | Refused::Ended) => return,
        };
        self.turned_away.count(why);
    }

    /// Returns the record of the changes of the configuration.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Sends an order to the loop, and waits for its answer, at most for `patience`. An order that
    /// the loop has not begun by then, or when its client hangs up, is withdrawn.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn order(&self, work: Work, patience: Duration) -> Result<Answered<T>, Refused> {
        let start = Instant::now();
        // The client may have given up long ago, while this process was stopped.
        if self.has_gone() {
            return Err(Refused::Gone);
        }
        let Pending {
            answered,
            claim,
            team,
            ..
        } = self.post(work)?;
        let mut answers = Vec::with_capacity(answered.len());
        for answered in answered {
            let left = patience.saturating_sub(start.elapsed());
            answers.push(self.receive(&answered, &claim, left)?);
        }
        Ok(joined(answers, team.as_deref()))
    }

    /// Waits for an answer. Withdraws the order when `patience` is over, or when the client has gone.
    fn receive(
        &self,
        answered: &Receiver<Answered<T>>,
        claim: &Claim,
        patience: Duration,
    ) -> Result<Answered<T>, Refused> {
        let end = Instant::now() + patience;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match answered.recv_timeout(left.min(LOOK)) {
                Ok(answer) => return Ok(answer),
                Err(RecvTimeoutError::Disconnected) => return Err(Refused::Ended),
                Err(RecvTimeoutError::Timeout) => {}
            }
            let why = match left <= LOOK {
                true => Refused::Late,
                false if self.has_gone() => Refused::Gone,
                false => continue,
            };
            match give_up(claim, answered) {
                GivenUp::Withdrawn => return Err(why),
                GivenUp::Answered(answer) => return Ok(answer),
                // The record of changes needs the result.
                GivenUp::Begun if why == Refused::Gone => {}
                GivenUp::Begun => return Err(Refused::Unfinished),
            }
        }
    }

    /// Executes commands for somebody, at most for `patience`. A replacement of the whole
    /// configuration is read and checked on this thread.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn commands(
        &self,
        by: &str,
        (text, mode, files): (String, Mode, Texts),
        patience: Duration,
    ) -> Result<Answered<T>, Refused> {
        self.count();
        let entry = changes(&text).then(|| text.trim().to_owned());
        let answered = self.execute((text, mode, files), patience);
        self.count_refusal(&answered);
        if let Some(entry) = entry {
            let refused = match &answered {
                Ok(Answered::Commands(_, Err(error))) => Some(error.to_string()),
                Ok(_) => None,
                Err(refused) => Some(refused.to_string()),
            };
            self.journal.note(by, &entry, refused);
        }
        answered
    }

    /// Executes commands without a note in the journal.
    pub(crate) fn execute(
        &self,
        (text, mode, files): (String, Mode, Texts),
        patience: Duration,
    ) -> Result<Answered<T>, Refused> {
        if self.team.is_some() && mode != Mode::Replace {
            return self.execute_by_all((text, mode, files), patience);
        }
        if Draft::is_for(&text, mode)
            && let Some(answered) = self.amend(&text, mode, &files, patience)?
        {
            return Ok(answered);
        }
        if mode != Mode::Replace {
            let files = Attached::new(&text, Arc::new(files));
            return self.order(Work::Commands { text, mode, files }, patience);
        }
        let mut output = Output::default();
        let result = match self.builder.build(&text, &files, &mut output) {
            // The old configuration is freed here.
            Ok(prepared) => self
                .order(Work::Replace(prepared), patience)
                .map(|_| Ok(()))?,
            Err(error) => Err(error),
        };
        Ok(Answered::Commands(Box::new(output), result))
    }

    /// Executes commands on a copy of the configuration, on this thread, and lets the loop exchange the
    /// two. Returns `None` if the commands need the loop; then nothing is changed.
    fn amend(
        &self,
        text: &str,
        mode: Mode,
        files: &Texts,
        patience: Duration,
    ) -> Result<Option<Answered<T>>, Refused> {
        let start = Instant::now();
        let left = || patience.saturating_sub(start.elapsed());
        loop {
            let Answered::Draft(draft) = self.order(Work::Draft, left())? else {
                unreachable!("a request for a copy is answered with one");
            };
            let mut output = Box::<Output>::default();
            let settings = &self.builder.settings;
            let amended = draft.amend(settings, text, mode, &mut Given(files), &mut output);
            let amended = match amended {
                Ok(Amendment::Change(amended)) => amended,
                Ok(Amendment::Nothing) => return Ok(Some(Answered::Commands(output, Ok(())))),
                Ok(Amendment::NeedsEngine) => return Ok(None),
                Err(error) => return Ok(Some(Answered::Commands(output, Err(error)))),
            };
            // The old configuration, or the stale copy, is freed here.
            match self.order(Work::Exchange(amended), left())? {
                Answered::Stale(_) if start.elapsed() < patience => {}
                Answered::Stale(_) => return Err(Refused::Overtaken),
                _ => return Ok(Some(Answered::Commands(output, Ok(())))),
            }
        }
    }

    /// Copies the configuration.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn configuration(&self, patience: Duration) -> Result<Configuration, Refused> {
        match self.order(Work::Draft, patience)? {
            Answered::Draft(draft) => Ok(draft.into_configuration()),
            _ => unreachable!("a request for a copy is answered with one"),
        }
    }

    /// Replaces the configuration `old`, which was copied before, by the one of `text`. It is read and
    /// checked on this thread. The answer is [`Answered::Stale`] if the configuration has changed
    /// since it was copied; then it stays.
    ///
    /// # Errors
    /// [`Refused`].
    pub(crate) fn replace(
        &self,
        old: &Configuration,
        (text, files): (&str, &Texts),
        patience: Duration,
    ) -> Result<Answered<T>, Refused> {
        let mut output = Output::default();
        let prepared = match self.builder.build(text, files, &mut output) {
            Ok(prepared) => prepared,
            Err(error) => return Ok(Answered::Commands(Box::new(output), Err(error))),
        };
        let exchange = Work::Exchange(Box::new(old.replaced_by(*prepared)));
        // The old configuration, or the one that came too late, is freed here.
        Ok(match self.order(exchange, patience)? {
            Answered::Stale(stale) => Answered::Stale(stale),
            _ => Answered::Commands(Box::new(output), Ok(())),
        })
    }

    /// Sends an order to the loop, and lets the caller poll for the answer.
    ///
    /// # Errors
    /// [`Refused::Busy`] and [`Refused::Ended`].
    pub fn post(&self, work: Work) -> Result<Pending<T>, Refused> {
        let claim = Arc::new(Claim::new());
        let answered = match &self.team {
            None => vec![self.loops[0].put((work, None), &claim, None)?],
            Some(team) => team.post(&self.loops, work, &claim)?,
        };
        Ok(Pending {
            answered,
            got: RefCell::default(),
            claim,
            team: self.team.clone(),
        })
    }
}

/// An answer that may not have arrived yet.
pub struct Pending<T> {
    /// One per loop that was asked.
    answered: Vec<Receiver<Answered<T>>>,
    /// Those that have arrived.
    got: RefCell<Vec<Answered<T>>>,
    claim: Arc<Claim>,
    team: Option<Arc<Team<T>>>,
}

/// Returns the answers of all workers as one.
fn joined<T>(mut answers: Vec<Answered<T>>, team: Option<&Team<T>>) -> Answered<T> {
    match team {
        Some(team) if answers.len() > 1 => team.join(answers),
        _ => answers.pop().expect("a loop was asked"),
    }
}

impl<T> Pending<T> {
    /// Returns the answer, once it has arrived. Never blocks.
    ///
    /// # Errors
    /// [`Refused::Ended`].
    pub fn poll(&self) -> Result<Option<Answered<T>>, Refused> {
        let mut got = self.got.borrow_mut();
        while let Some(next) = self.answered.get(got.len()) {
            match next.try_recv() {
                Ok(answer) => got.push(answer),
                Err(TryRecvError::Empty) => return Ok(None),
                Err(TryRecvError::Disconnected) => return Err(Refused::Ended),
            }
        }
        Ok(Some(joined(
            std::mem::take(&mut *got),
            self.team.as_deref(),
        )))
    }
}

impl<T> Inbox<T> {
    /// Notes whether the loop has seen that the descriptor is readable, so that the bell is reset next time.
    pub const fn has_rung(&mut self, has_rung: bool) {
        self.0.has_rung(has_rung);
    }

    /// Resets the bell, and leaves the orders to [`Inbox::take`]. Costs no system call while the bell is
    /// silent.
    pub fn quiet(&mut self) {
        self.0.quiet();
    }

    /// Returns the next order that is not withdrawn, and resets the bell. Must be called until there is none, before
    /// every sleep that the bell may end. Costs no system call while the bell is silent.
    pub fn take(&mut self) -> Option<Order<T>> {
        self.0.take().map(|posted| posted.order)
    }
}

/// Readable while the bell rings.
impl<T> AsFd for Inbox<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.wire().as_fd()
    }
}

#[cfg(test)]
mod tests;
