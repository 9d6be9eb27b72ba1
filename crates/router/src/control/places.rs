//! The places of clients: as many as are served at a time, and which client makes room for another.

use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Limits;

/// What a client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    /// It has sent no request, or only a part of one.
    Silent,
    /// Its request is executed, or the answer is sent.
    Served,
    /// It waits for a sample, and holds no place meanwhile.
    Waiting,
}

/// A connection as the listening thread knows it.
struct Client {
    number: u64,
    stream: Arc<UnixStream>,
    doing: Doing,
    since: Instant,
}

impl Client {
    /// Returns whether the client is silent and has sent nothing that its thread has yet to read. The end of
    /// a connection is something to read, too: its thread gives back the place.
    fn is_silent(&self) -> bool {
        self.doing == Doing::Silent && !readiness(&self.stream).contains(PollFlags::IN)
    }
}

/// All connections.
#[derive(Default)]
pub(super) struct Places {
    clients: Mutex<Vec<Client>>,
    changed: Condvar,
}

impl Places {
    /// Gives a place to a connection, which keeps it until the result is dropped. Only
    /// [`make_room`](Places::make_room) keeps the number within its limit.
    pub(super) fn admit(self: &Arc<Self>, number: u64, stream: Arc<UnixStream>) -> Place {
        self.lock().push(Client {
            number,
            stream,
            doing: Doing::Silent,
            since: Instant::now(),
        });
        Place {
            number,
            places: Arc::clone(self),
        }
    }

    /// Waits for a free place, at most for the grace. Then the client that has been silent for longest loses
    /// its place; `displace` ends the connection. One that has been silent for the whole grace already is
    /// not waited for. Returns whether there is room.
    pub(super) fn make_room(&self, limits: &Limits, displace: impl FnOnce(&UnixStream)) -> bool {
        let deadline = Instant::now() + limits.grace;
        let mut clients = self.lock();
        while clients.len() - waiting(&clients) >= limits.clients {
            let silent = clients.iter().enumerate();
            let silent = silent.filter(|(_, client)| client.is_silent());
            let longest = silent.min_by_key(|(_, client)| client.since);
            let longest = longest.map(|(at, client)| (at, client.since + limits.grace));
            let end = longest.map_or(deadline, |(_, end)| end.min(deadline));
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let Some((at, _)) = longest else {
                    return false;
                };
                displace(&clients.remove(at).stream);
                return true;
            }
            let waited = self.changed.wait_timeout(clients, left);
            clients = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Calls a function with every connection.
    pub(super) fn for_each(&self, mut call: impl FnMut(&UnixStream)) {
        self.lock().iter().for_each(|client| call(&client.stream));
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Client>> {
        // No operation under the lock can leave the list half changed.
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of a connection. It is free again when this is dropped.
pub(super) struct Place {
    number: u64,
    places: Arc<Places>,
}

impl Place {
    /// Notes that the client begins to send a request. Returns whether it still has its place.
    #[must_use]
    pub(super) fn speaks(&self) -> bool {
        self.note(Doing::Silent)
    }

    /// Keeps the place while a request is executed. Returns whether the client still has it; otherwise
    /// nothing may be executed, since the client has been told so.
    #[must_use]
    pub(super) fn begin(&self) -> bool {
        self.note(Doing::Served)
    }

    /// Notes that the client has its answer, and is silent from now on.
    pub(super) fn end(&self) {
        self.note(Doing::Silent);
    }

    /// Gives back the place while the client waits for a sample, unless `most` clients wait already. Returns
    /// whether it may wait; [`Place::begin`] takes a place again, even if all others are taken by then.
    #[must_use]
    pub(super) fn wait(&self, most: usize) -> bool {
        self.note_if(Doing::Waiting, |clients| waiting(clients) < most)
    }

    fn note(&self, doing: Doing) -> bool {
        self.note_if(doing, |_| true)
    }

    fn note_if(&self, doing: Doing, may: impl FnOnce(&[Client]) -> bool) -> bool {
        let mut clients = self.places.lock();
        if !may(&clients) {
            return false;
        }
        let own = clients
            .iter_mut()
            .find(|client| client.number == self.number);
        let Some(client) = own else {
            return false;
        };
        (client.doing, client.since) = (doing, Instant::now());
        drop(clients);
        self.places.changed.notify_all();
        true
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut clients = self.places.lock();
        clients.retain(|client| client.number != self.number);
        drop(clients);
        self.places.changed.notify_all();
    }
}

/// Returns the number of clients that wait for a sample.
fn waiting(clients: &[Client]) -> usize {
    let waiting = clients.iter();
    waiting
        .filter(|client| client.doing == Doing::Waiting)
        .count()
}

/// Returns whether the client has closed its connection, and does not only send nothing more.
pub(super) fn has_hung_up(stream: &UnixStream) -> bool {
    readiness(stream).contains(PollFlags::HUP)
}

/// Returns what a connection is ready for, without waiting: `IN` if there is something to read, or if the client
/// will send nothing more, and `HUP` if it does not read either.
fn readiness(stream: &UnixStream) -> PollFlags {
    let mut polled = [PollFd::new(stream, PollFlags::IN)];
    // After an error, nothing is known, and no flag is set.
    let _ = poll(&mut polled, Some(&Timespec::default()));
    polled[0].revents()
}

/// A client that hangs up while it waits for an answer is noticed within this time.
pub(super) const LOOK: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests;
