//! Changes of the configuration that can be taken back, for a page.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use sluice_core::registry::{self, Form};
use sluice_ipfw::{Configuration, Mode, ObjectCommand, Snapshot};

use super::Status;
use crate::control::{Answered, FileText, Orders, Refused, Reply, Texts, changes};

/// Executes commands for somebody, and takes them back.
///
/// To take a change back, the whole configuration before it is put in place again. Packets and
/// counters stay. A change is only taken back while the configuration is the one that it made, so that
/// changes by others are not lost. These include the lines of a file before a refused one.
pub struct Editor {
    orders: Orders<Status>,
    undo: Mutex<Vec<Before>>,
}

/// The configuration before a change.
struct Before {
    /// The change.
    change: String,
    /// The number of changes so far, with this one.
    noted: u64,
    commands: String,
    files: Texts,
    /// The [`digest`] of the configuration behind the change.
    after: u64,
}

/// What a form needs to compose commands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct EditForm {
    /// The change that would be taken back.
    pub undo: Option<String>,
    /// The pipes, schedulers and queues, as commands in parts; at most [`Editor::MOST_OBJECTS`].
    pub objects: Vec<ObjectCommand>,
    /// The names of all AQMs.
    pub aqms: Vec<&'static str>,
    /// The names of all schedulers.
    pub schedulers: Vec<&'static str>,
}

type Answer = Reply<Box<Snapshot>, Status>;

impl Editor {
    /// Largest number of objects in a form.
    pub const MOST_OBJECTS: usize = 256;

    /// Creates an editor of the loop that executes these orders.
    pub fn new(orders: Orders<Status>) -> Editor {
        Editor {
            orders,
            undo: Mutex::default(),
        }
    }

    /// Executes commands for somebody; several lines at one instant or not at all. Commands that
    /// only show something are answered, too.
    pub fn change(&self, by: &str, text: &str) -> Answer {
        let mut undo = self.lock();
        let before = self.noted();
        let configuration = match self.orders.configuration(PATIENCE) {
            Ok(configuration) => configuration,
            Err(refused) => return self.refuse(refused),
        };
        let files = files(&configuration);
        let mode = match text.trim().lines().count() {
            0 | 1 => Mode::Command,
            _ => Mode::Atomic,
        };
        let commands = (text.to_owned(), mode, files.clone());
        let answered = self.orders.commands(by, commands, PATIENCE);
        match &answered {
            // It may have been executed; nobody knows.
            Err(Refused::Unfinished) => undo.clear(),
            Ok(Answered::Commands(_, Ok(()))) if changes(text) => {
                let after = self.orders.configuration(PATIENCE);
                let noted = self.noted();
                match after {
                    Ok(after) if noted == before + 1 => {
                        undo.push(Before {
                            change: text.trim().to_owned(),
                            noted,
                            commands: configuration.commands(),
                            files,
                            after: digest(&after),
                        });
                        forget(&mut undo);
                    }
                    // A change by somebody else came between, or may have.
                    _ => undo.clear(),
                }
            }
            _ => {}
        }
        Reply::of(answered)
    }

    /// Takes the last change back.
    pub fn undo(&self, by: &str) -> Answer {
        let mut undo = self.lock();
        if undo.is_empty() {
            return Reply::refusal("there is no change to take back".into(), UNAVAILABLE);
        }
        self.orders.count();
        let start = Instant::now();
        loop {
            let left = PATIENCE.saturating_sub(start.elapsed());
            let now = match self.orders.configuration(left) {
                Ok(configuration) => configuration,
                Err(refused) => return self.refuse(refused),
            };
            if let Some(reply) = self.undo_in(&mut undo, &now, by, left) {
                return reply;
            }
        }
    }

    /// Takes the last change back if `now` is still the configuration. Returns `None` if it is not.
    fn undo_in(
        &self,
        undo: &mut Vec<Before>,
        now: &Configuration,
        by: &str,
        patience: Duration,
    ) -> Option<Answer> {
        let mut before = undo.pop().expect("there is a change");
        let (since, _) = self.orders.journal().since(before.noted);
        let other = since.iter().find(|change| change.refused.is_none());
        if other.is_some() || digest(now) != before.after {
            let other = match other {
                Some(other) => format!("`{}` by {}", other.text, other.by),
                None => "another change".to_owned(),
            };
            let text = format!(
                "`{}` cannot be taken back: {other} came after it and would be lost",
                before.change
            );
            undo.clear();
            return Some(Reply::refusal(text, UNAVAILABLE));
        }
        let commands = (before.commands.as_str(), &before.files);
        let answered = self.orders.replace(now, commands, patience);
        if matches!(answered, Ok(Answered::Stale(_))) {
            undo.push(before);
            return None;
        }
        self.orders.count_refusal(&answered);
        let refused = match &answered {
            Ok(Answered::Commands(_, Err(error))) => Some(error.to_string()),
            Ok(_) => None,
            Err(refused) => Some(refused.to_string()),
        };
        let has_failed = refused.is_some();
        let text = format!("undo: {}", before.change);
        let noted = self.orders.journal().note(by, &text, refused);
        if matches!(answered, Err(Refused::Unfinished)) {
            // It may have been executed; nobody knows.
            undo.clear();
        } else if has_failed {
            before.noted = noted;
            undo.push(before);
        } else if let Some(next) = undo.last_mut() {
            next.noted = noted;
        }
        // The output repeats each command of the configuration.
        let mut reply = Reply::of(answered);
        reply.stdout.clear();
        reply.warnings.clear();
        Some(reply)
    }

    /// Returns the change that [`Editor::undo`] would take back.
    pub fn next_undo(&self) -> Option<String> {
        self.lock().last().map(|before| before.change.clone())
    }

    /// Returns what a form needs.
    ///
    /// # Errors
    /// The loop does not answer.
    pub fn form(&self) -> Result<EditForm, Refused> {
        let configuration = self.orders.configuration(PATIENCE)?;
        let named = |is_aqm: bool| {
            let of_form = registry::algorithms().filter(move |a| (a.form == Form::Aqm) == is_aqm);
            of_form.map(|algorithm| algorithm.name).collect()
        };
        Ok(EditForm {
            undo: self.next_undo(),
            objects: configuration.objects(Self::MOST_OBJECTS),
            aqms: named(true),
            schedulers: named(false),
        })
    }

    /// Counts a change that the loop refused, and returns the answer to it.
    fn refuse(&self, refused: Refused) -> Answer {
        let answered = Err(refused);
        self.orders.count_refusal(&answered);
        Reply::of(answered)
    }

    fn noted(&self) -> u64 {
        self.orders.journal().since(u64::MAX).1
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Before>> {
        // Nothing under the lock can panic halfway.
        self.undo.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the files that the configuration was read from, so that commands may name them again.
fn files(configuration: &Configuration) -> Texts {
    let files = configuration.files().into_iter();
    files
        .map(|(path, text)| (path, FileText::Text(text)))
        .collect()
}

/// Returns a number that is the same for the same configuration.
fn digest(configuration: &Configuration) -> u64 {
    let mut hasher = DefaultHasher::new();
    configuration.commands().hash(&mut hasher);
    configuration.files().hash(&mut hasher);
    hasher.finish()
}

/// Forgets the oldest configurations, beyond a number and a size.
fn forget(undo: &mut Vec<Before>) {
    let size = |undo: &[Before]| {
        undo.iter()
            .map(|before| before.commands.len())
            .sum::<usize>()
    };
    while undo.len() > MOST_UNDO || undo.len() > 1 && size(undo) > MOST_UNDO_BYTES {
        undo.remove(0);
    }
}

/// The loop answers between two batches: within milliseconds unless it executes a long command.
const PATIENCE: Duration = Duration::from_secs(10);
/// EX_UNAVAILABLE of sysexits.h.
const UNAVAILABLE: u8 = 69;
/// Largest number of changes that can be taken back.
const MOST_UNDO: usize = 16;
/// Largest size of their configurations.
const MOST_UNDO_BYTES: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use sluice_core::{Cx, DropCounter, Rng, Time};
    use sluice_ipfw::{Firewall, NoFiles, Output, Settings};

    use super::*;
    use crate::control::{Builder, Work, inbox};

    /// Gives an editor beside a loop without packets to `work`.
    fn with_editor(work: impl FnOnce(&Editor, &Orders<Status>)) {
        with_others(&[], work);
    }

    /// Does the same with commands of `others`, each of which comes just before the exchange of a
    /// configuration.
    fn with_others(others: &[&str], work: impl FnOnce(&Editor, &Orders<Status>)) {
        let (mut inbox, orders) = inbox::<Status>(Builder::default()).unwrap();
        let has_ended = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut firewall = Firewall::new(&Settings::default());
                let (mut rng, mut sink) = (Rng::from_seed(1), DropCounter::default());
                let mut others = others.iter();
                while !has_ended.load(Ordering::Acquire) {
                    let Some(order) = inbox.take() else {
                        thread::yield_now();
                        continue;
                    };
                    let mut cx = Cx::new(Time::ZERO, &mut rng, &mut sink);
                    if matches!(order.work, Work::Exchange(_))
                        && let Some(other) = others.next()
                    {
                        firewall.command(other, &mut NoFiles, &mut cx).unwrap();
                    }
                    order.answer.send(match order.work {
                        Work::Replace(prepared) => {
                            Answered::Replaced(Box::new(firewall.replace(*prepared, &mut cx)))
                        }
                        Work::Draft => {
                            let mut draft = firewall.draft();
                            while firewall.continue_draft(&mut draft) {}
                            Answered::Draft(Box::new(draft))
                        }
                        Work::Exchange(amended) => match firewall.exchange(*amended, &mut cx) {
                            Ok(replaced) => Answered::Replaced(Box::new(replaced)),
                            Err(stale) => Answered::Stale(stale),
                        },
                        Work::Commands {
                            text,
                            mode,
                            mut files,
                        } => {
                            let mut output = Output::default();
                            let result =
                                firewall.execute(&text, mode, &mut files, &mut output, &mut cx);
                            Answered::Commands(Box::new(output), result)
                        }
                        work => panic!("{work:?} is not expected"),
                    });
                }
            });
            // Also if an assertion fails.
            let _end = End(&has_ended);
            work(&Editor::new(orders.clone()), &orders);
        });
    }

    /// Ends the loop when it is dropped.
    struct End<'a>(&'a AtomicBool);

    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Release);
        }
    }

    fn commands(orders: &Orders<Status>) -> String {
        orders.configuration(PATIENCE).unwrap().commands()
    }

    #[test]
    fn changes_are_taken_back_one_by_one() {
        with_editor(|editor, orders| {
            let mut states = vec![commands(orders)];
            for text in [
                "pipe 1 config bw 10Mbit/s",
                "pipe 1 config bw 20Mbit/s codel\nsched 1 config type fq_codel",
                "-q add 100 pipe 1 ip from any to any",
            ] {
                let reply = editor.change("192.0.2.7", text);
                assert!(reply.error.is_none(), "{reply:?}");
                assert_eq!(editor.next_undo().as_deref(), Some(text));
                states.push(commands(orders));
            }
            // A command that shows, and a refused one, leave nothing to take back.
            assert!(
                editor
                    .change("x", "pipe show")
                    .stdout
                    .contains("20.000 Mbit/s")
            );
            let refused = editor.change("x", "pipe 1 config bw 10Mbit/s cdoel");
            assert!(refused.error.is_some());
            while let Some(expected) = states.pop() {
                assert_eq!(commands(orders), expected);
                let reply = editor.undo("192.0.2.7");
                assert_eq!(reply.error.is_some(), states.is_empty(), "{reply:?}");
            }
            let last = orders.journal().latest().0.pop().unwrap();
            assert_eq!(last.text, "undo: pipe 1 config bw 10Mbit/s");
            assert_eq!(last.by, "192.0.2.7");
        });
    }

    #[test]
    fn a_change_is_not_taken_back_with_a_later_one_of_somebody_else() {
        with_editor(|editor, orders| {
            editor.change("192.0.2.7", "pipe 1 config bw 10Mbit/s");
            let other = (
                "pipe 2 config bw 3Mbit/s".to_owned(),
                Mode::Command,
                Texts::new(),
            );
            orders.commands("uid 7", other, PATIENCE).unwrap();
            let before = commands(orders);
            let reply = editor.undo("192.0.2.7");
            let why = reply.error.unwrap().message;
            assert!(
                why.contains("`pipe 2 config bw 3Mbit/s` by uid 7 came after it"),
                "{why}"
            );
            assert_eq!(commands(orders), before);
        });
    }

    #[test]
    fn a_change_is_not_taken_back_with_one_that_comes_meanwhile() {
        with_others(&["pipe 2 config bw 3Mbit/s"], |editor, orders| {
            editor.change("192.0.2.7", "pipe 1 config bw 10Mbit/s");
            let why = editor.undo("192.0.2.7").error.unwrap().message;
            assert!(why.contains("another change came after it"), "{why}");
            let now = commands(orders);
            assert!(now.contains("pipe 1 ") && now.contains("pipe 2 "), "{now}");
        });
    }

    #[test]
    fn a_change_is_taken_back_although_counters_are_cleared_meanwhile() {
        with_others(&["zero", "resetlog"], |editor, orders| {
            editor.change("192.0.2.7", "pipe 1 config bw 10Mbit/s");
            let reply = editor.undo("192.0.2.7");
            assert!(reply.error.is_none(), "{reply:?}");
            assert_eq!(commands(orders), "");
        });
    }

    #[test]
    fn a_change_is_not_taken_back_with_the_lines_of_a_refused_file() {
        with_editor(|editor, orders| {
            editor.change("192.0.2.7", "pipe 1 config bw 10Mbit/s");
            let lines = "pipe 2 config bw 3Mbit/s\npipe 3 config bw fast";
            let file = (lines.to_owned(), Mode::Batch, Texts::new());
            let answered = orders.commands("uid 7", file, PATIENCE).unwrap();
            assert!(matches!(answered, Answered::Commands(_, Err(_))));
            let before = commands(orders);
            assert!(before.contains("pipe 2 config"), "{before}");
            let why = editor.undo("192.0.2.7").error.unwrap().message;
            assert!(why.contains("another change came after it"), "{why}");
            assert_eq!(commands(orders), before);
            assert!(editor.next_undo().is_none());
        });
    }

    #[test]
    fn a_change_is_not_taken_back_with_one_that_the_journal_has_forgotten() {
        with_editor(|editor, orders| {
            editor.change("192.0.2.7", "pipe 1 config bw 10Mbit/s");
            let by_another = |text: &str| {
                let command = (text.to_owned(), Mode::Command, Texts::new());
                orders.commands("uid 7", command, PATIENCE).unwrap()
            };
            by_another("pipe 2 config bw 3Mbit/s");
            let before = commands(orders);
            // The journal keeps 64 entries.
            for _ in 0..64 {
                let answered = by_another("pipe 3 config bw fast");
                assert!(matches!(answered, Answered::Commands(_, Err(_))));
            }
            assert!(editor.undo("192.0.2.7").error.is_some());
            assert_eq!(commands(orders), before);
        });
    }

    #[test]
    fn refused_commands_of_others_do_not_hinder_an_undo() {
        with_editor(|editor, orders| {
            editor.change("192.0.2.7", "pipe 1 config bw 10Mbit/s");
            let refused = (
                "pipe 1 config bw fast".to_owned(),
                Mode::Batch,
                Texts::new(),
            );
            let answered = orders.commands("uid 7", refused, PATIENCE).unwrap();
            assert!(matches!(answered, Answered::Commands(_, Err(_))));
            assert!(editor.undo("192.0.2.7").error.is_none());
            assert_eq!(commands(orders), "");
        });
    }

    #[test]
    fn several_lines_are_one_change_or_none() {
        with_editor(|editor, orders| {
            let reply = editor.change("x", "pipe 1 config bw 10Mbit/s\npipe 2 config bw fast");
            assert!(reply.error.is_some());
            assert_eq!(commands(orders), "");
            assert!(editor.next_undo().is_none());
        });
    }

    #[test]
    fn a_form_has_the_objects_and_the_names_of_algorithms() {
        with_editor(|editor, _| {
            editor.change("x", "pipe 1 config bw 10Mbit/s codel");
            let form = editor.form().unwrap();
            assert_eq!(form.objects[0].rate.as_deref(), Some("10Mbit/s"));
            assert!(form.aqms.contains(&"codel") && form.schedulers.contains(&"fq_codel"));
            assert_eq!(
                form.undo.as_deref(),
                Some("pipe 1 config bw 10Mbit/s codel")
            );
        });
    }
}
