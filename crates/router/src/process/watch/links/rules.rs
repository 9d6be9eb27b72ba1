//! What a watcher sees of rules that no router process runs, such as those of a live run.

use sluice_core::{Cx, Time};
use sluice_ipfw::watch::Watching;
use sluice_net::port::Port;

use super::LinkInbox;
use super::status::status_of;
use crate::control::{Answer, Answered, Inbox, Watched, Work};
use crate::forward::{Forwarder, Observer, Queueing};
use crate::process::Status;

/// Queues that rules create, whose engine counts for a watcher.
pub trait WatchedRules: Queueing {
    /// Continues an exchange of tables. Returns whether steps are left.
    fn watch(&mut self, watching: &mut Watching, cx: &mut Cx<'_>) -> bool;
}

/// Answers a watcher of rules, on the loop's thread. The rules are those of the first lane.
pub struct RuleWatch {
    inbox: Inbox<Status>,
    ports: Vec<&'static str>,
    pending: Option<(Box<Watching>, Answer<Status>)>,
}

impl RuleWatch {
    /// Creates the end of the loop, whose ports have these names.
    pub fn new(inbox: LinkInbox, ports: Vec<&'static str>) -> RuleWatch {
        RuleWatch {
            inbox: inbox.0,
            ports,
            pending: None,
        }
    }

    /// Makes one step of the answer to the watcher, if it has asked.
    pub fn answer<P: Port, Q: WatchedRules, O: Observer>(
        &mut self,
        forwarder: &mut Forwarder<P, Q, O>,
        is_real_time: bool,
        now: Time,
    ) {
        if self.pending.is_none()
            && let Some(order) = self.inbox.take()
        {
            match order.work {
                Work::Watch(watching) => self.pending = Some((watching, order.answer)),
                Work::Status => {
                    let (status, _) = status_of(forwarder, &self.ports, is_real_time, now);
                    order.answer.send(Answered::Status(Box::new(status)));
                }
                // The rules of a run do not change. The sender sees that nobody answers.
                Work::Commands { .. }
                | Work::Replace(_)
                | Work::Draft
                | Work::Report
                | Work::Exchange(_) => drop(order.answer),
            }
        }
        let Some((mut watching, answer)) = self.pending.take() else {
            return;
        };
        if forwarder.with(0, |rules, cx| rules.watch(&mut watching, cx)) {
            self.pending = Some((watching, answer));
            return;
        }
        let (status, lateness) = status_of(forwarder, &self.ports, is_real_time, now);
        answer.send(Answered::Watched(Box::new(Watched {
            watching: *watching,
            status,
            lateness,
            rtt: None,
        })));
    }

    /// Returns whether an answer has begun, so that the loop should continue it soon.
    pub const fn is_answering(&self) -> bool {
        self.pending.is_some()
    }
}
