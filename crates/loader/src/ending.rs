//! The end of a run on behalf of an algorithm, and the threads in which algorithms decide.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use sluice_core::{Cx, Packet, Span, Time};

use crate::inside::{Hook, Inside};
use crate::loaders;

/// Whether an algorithm has ended a run, and why, and which algorithms were stopped in it. Clones
/// share the answer.
#[derive(Clone, Debug, Default)]
pub struct Ending {
    why: Arc<OnceLock<String>>,
    /// The first message of each algorithm that was stopped, by its name.
    stopped: Arc<Mutex<BTreeMap<String, String>>>,
    /// The messages that were printed lately, with the last time.
    said: Arc<Mutex<BTreeMap<String, Instant>>>,
    /// The hook that the thread of the run executes.
    inside: Arc<Mutex<Inside>>,
    /// Whether the thread of the run was left behind.
    is_abandoned: Arc<AtomicBool>,
    lead: Span,
}

thread_local! {
    /// The run whose packets this thread handles.
    static CURRENT: RefCell<Option<Ending>> = const { RefCell::new(None) };
}

impl Ending {
    /// Creates the ending of a run that continues.
    pub fn new() -> Ending {
        Ending::default()
    }

    /// Creates the ending of a simulation, whose clock starts `lead` before the run.
    pub fn after(lead: Span) -> Ending {
        Ending {
            lead,
            ..Ending::default()
        }
    }

    /// Returns why the run must end, if it must. Code that handles packets asks from time to time.
    pub fn why(&self) -> Option<&str> {
        self.why.get().map(String::as_str)
    }

    /// Returns the algorithms that an error stopped, each with its first error in words. The figures
    /// of such a run are not those of its queue.
    pub fn stopped(&self) -> Vec<String> {
        let stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        stopped.values().cloned().collect()
    }

    /// Returns whether the run has ended because a hook does not return. The hook's thread is left behind
    /// and ends with the process: what it would still report is missing.
    pub fn is_abandoned(&self) -> bool {
        self.is_abandoned.load(Ordering::Acquire)
    }

    /// Ends the run because of a hook that does not return, and leaves its thread behind.
    pub(crate) fn abandon(&self, why: String) {
        let _ = self.why.set(why);
        self.is_abandoned.store(true, Ordering::Release);
        HAS_ABANDONED.store(true, Ordering::Release);
    }

    /// Returns the hook that the thread of the run executes, and a number that is another one for each
    /// call.
    pub(crate) fn hook(&self) -> (Option<Hook>, u64) {
        self.inside
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .now()
    }

    /// Executes `work`, in which packets pass queues. An algorithm in it can end the run. The
    /// loaders have prepared the thread, so the first call of a queue costs no more than later
    /// ones.
    pub fn within<R>(&self, work: impl FnOnce() -> R) -> R {
        let before = CURRENT.replace(Some(self.clone()));
        let mut work = Some(work);
        let mut result = None;
        prepared(loaders(), &mut || {
            result = work.take().map(|work| work());
        });
        CURRENT.set(before);
        result.expect("a loader executes the work of a thread")
    }
}

/// Nests the preparations of the loaders around `work`.
fn prepared(all: &[&dyn crate::Loader], work: &mut dyn FnMut()) {
    match all.split_first() {
        None => work(),
        Some((first, rest)) => first.within(&mut || prepared(rest, work)),
    }
}

/// Ends the run whose packets this thread handles, because of `why`. Does nothing without a run, as
/// for a queue that a program uses directly. Returns whether there is a run, which then reports the
/// reason.
pub fn end_run(why: &str) -> bool {
    CURRENT.with_borrow(|current| {
        if let Some(ending) = current {
            let _ = ending.why.set(why.to_owned());
        }
        current.is_some()
    })
}

/// Returns whether a thread of this process was left behind in a hook that does not return. Such a
/// process ends by [`std::process::exit`]: an interpreter that waits for its threads would wait forever.
pub fn has_abandoned() -> bool {
    HAS_ABANDONED.load(Ordering::Acquire)
}

static HAS_ABANDONED: AtomicBool = AtomicBool::new(false);

/// Notes that this thread, if it handles the packets of a run, executes `hook` from now on, or none.
/// Returns the hook that it was in.
pub(crate) fn enter(hook: Option<Hook>) -> Option<Hook> {
    CURRENT.with_borrow(|current| {
        let inside = &current.as_ref()?.inside;
        let mut inside = inside.lock().unwrap_or_else(PoisonError::into_inner);
        inside.enter(hook)
    })
}

/// Prints `message` unless it was printed in the last seconds for the run whose packets this thread
/// handles: queues with the same algorithm make the same error. A router may load the algorithm again.
pub(crate) fn report_once(message: &str) {
    if is_news(message, Instant::now()) {
        crate::report(message);
    }
}

fn is_news(message: &str, now: Instant) -> bool {
    CURRENT.with_borrow(|current| {
        let Some(ending) = current else { return true };
        let mut said = ending.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.retain(|_, at| now.saturating_duration_since(*at) < REPETITION);
        said.insert(message.to_owned(), now).is_none()
    })
}

/// The time within which a message is a repetition.
const REPETITION: Duration = Duration::from_secs(10);

/// Adds the algorithm `name`, which was stopped with `message`, to the run whose packets this thread
/// handles.
pub(crate) fn note_stopped(name: &str, message: &str) {
    CURRENT.with_borrow(|current| {
        let Some(ending) = current else { return };
        let mut stopped = ending
            .stopped
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let first = || message.to_owned();
        stopped.entry(name.to_owned()).or_insert_with(first);
    });
}

/// Returns the instant `now` of the thread's clock for a message, in the time of the run: flows start
/// after 0 ns, as in its recording.
pub fn moment(now: Time) -> String {
    let lead = CURRENT.with_borrow(|current| current.as_ref().map_or(Span::ZERO, |of| of.lead));
    match (now.as_ns(), lead.as_ns()) {
        (now, lead) if now < lead => format!("{} ns before the run", lead - now),
        (now, lead) => format!("{} ns", now - lead),
    }
}

/// Returns the place of an error for a message: the instant, the queue, and the pipe if the host has a
/// name for it.
pub fn place(cx: &Cx<'_>) -> String {
    let (now, queue) = (moment(cx.now), cx.queue);
    match cx.pipe_name() {
        Some(pipe) => format!("at {now}, queue {queue} of `{pipe}`"),
        None => format!("at {now}, queue {queue}"),
    }
}

/// Describes a packet for a message, as a recording shows it: by its number, if the host gives it one,
/// its size, and the instant of its arrival. Slots are numbers of the host's memory and hashes of flows
/// are in no table.
pub fn described(packet: &Packet, cx: &Cx<'_>) -> String {
    let (len, arrival) = (packet.len, moment(packet.arrival));
    match cx.packet_number(packet) {
        Some(number) => format!("packet {number} ({len} bytes, arrived at {arrival})"),
        None => format!("a packet ({len} bytes, arrived at {arrival})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_core::{DropReason, Rng, Sink};

    /// A host with a pipe that may have a name, and then its packets have numbers from 100 on.
    struct Host(Option<&'static str>);

    impl Sink for Host {
        fn discard(&mut self, _now: Time, _packet: Packet, _reason: DropReason) {}

        fn pipe_name(&self) -> Option<String> {
            self.0.map(str::to_owned)
        }

        fn packet_number(&self, packet: &Packet) -> Option<u64> {
            self.0.map(|_| 100 + u64::from(packet.slot))
        }
    }

    #[test]
    fn a_packet_is_described_by_what_a_recording_has() {
        let mut packet = Packet::new(8, 1500);
        (packet.arrival, packet.flow) = (Time::from_ns(12), 0xddce_40a7);
        let shown = |pipe| {
            let (mut rng, mut host) = (Rng::from_seed(1), Host(pipe));
            let cx = Cx::new(Time::from_ns(30), &mut rng, &mut host);
            Ending::after(Span::from_ns(5)).within(|| described(&packet, &cx))
        };
        assert_eq!(shown(None), "a packet (1500 bytes, arrived at 7 ns)");
        let numbered = "packet 108 (1500 bytes, arrived at 7 ns)";
        assert_eq!(shown(Some("up")), numbered);
    }

    #[test]
    fn a_place_has_the_name_of_the_pipe_if_there_is_one() {
        let shown = |pipe| {
            let (mut rng, mut host) = (Rng::from_seed(1), Host(pipe));
            let mut cx = Cx::new(Time::from_ns(7), &mut rng, &mut host);
            cx.queue = 3;
            place(&cx)
        };
        assert_eq!(shown(None), "at 7 ns, queue 3");
        assert_eq!(shown(Some("down")), "at 7 ns, queue 3 of `down`");
    }

    #[test]
    fn an_instant_is_shown_in_the_time_of_the_run() {
        let shown = |ns| moment(Time::from_ns(ns));
        assert_eq!(shown(7), "7 ns");
        Ending::after(Span::from_ns(5)).within(|| {
            assert_eq!([shown(7), shown(5)], ["2 ns", "0 ns"]);
            assert_eq!(shown(1), "4 ns before the run");
        });
    }

    #[test]
    fn a_message_is_news_once_in_a_run() {
        let ending = Ending::new();
        let start = Instant::now();
        let is_each = |messages: [&str; 3], ms| {
            let now = start + Duration::from_millis(ms);
            messages.map(|message| is_news(message, now))
        };
        let in_run = |messages, ms| ending.within(|| is_each(messages, ms));
        assert_eq!(in_run(["a", "b", "a"], 0), [true, true, false]);
        assert_eq!(in_run(["b", "c", "c"], 9_999), [false, true, false]);
        // The last repetition of `b` was a moment ago, that of `a` is ten seconds old.
        assert_eq!(in_run(["a", "b", "c"], 10_000), [true, false, false]);
        assert!(Ending::new().within(|| is_news("a", start)));
        // Without a run, each call may be about another one.
        assert_eq!(is_each(["a", "a", "a"], 0), [true; 3]);
    }

    #[test]
    fn the_first_reason_is_that_of_the_run_whose_thread_it_is() {
        let (outer, inner) = (Ending::new(), Ending::new());
        end_run("nothing runs");
        let result = outer.within(|| {
            inner.within(|| end_run("within"));
            end_run("first");
            end_run("second");
            7
        });
        end_run("nothing runs any more");
        assert_eq!(result, 7);
        assert_eq!((outer.why(), inner.why()), (Some("first"), Some("within")));
    }
}
