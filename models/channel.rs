//! A model of the bounded queues of `std::sync::mpsc`, which loom does not have: an array of places, each with a
//! stamp that says whose turn it is (Dmitry Vyukov's queue, which std takes from crossbeam).
//!
//! It promises no more than std. What is sent is seen by whom receives it, with all that came before, and a place
//! becomes free for a thread that has seen that it was emptied. Where std waits for another thread that is halfway, the
//! model finds the queue empty or full. No end is ever disconnected.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use std::cell::Cell;
use std::sync::Mutex;
pub use std::sync::mpsc::{TryRecvError, TrySendError};

struct Queue<T> {
    places: Vec<Place<T>>,
    /// The number of the next value to be sent.
    tail: AtomicUsize,
}

struct Place<T> {
    /// The number of the value that may be put here or, one more, that is here.
    stamp: AtomicUsize,
    /// Only locked by the thread whose turn it is.
    value: Mutex<Option<T>>,
}

pub struct SyncSender<T>(Arc<Queue<T>>);

pub struct Receiver<T> {
    queue: Arc<Queue<T>>,
    /// The number of the next value to be received.
    head: Cell<usize>,
}

pub fn sync_channel<T>(room: usize) -> (SyncSender<T>, Receiver<T>) {
    let place = |number| Place {
        // Twice the number, so that "one more" is no other turn, also in a queue of one place.
        stamp: AtomicUsize::new(2 * number),
        value: Mutex::new(None),
    };
    let queue = Arc::new(Queue {
        places: (0..room).map(place).collect(),
        tail: AtomicUsize::new(0),
    });
    let receiver = Receiver {
        queue: Arc::clone(&queue),
        head: Cell::new(0),
    };
    (SyncSender(queue), receiver)
}

impl<T> Queue<T> {
    fn place(&self, number: usize) -> &Place<T> {
        &self.places[number % self.places.len()]
    }
}

impl<T> SyncSender<T> {
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        let mut tail = self.0.tail.load(Ordering::Relaxed);
        loop {
            let place = self.0.place(tail);
            let stamp = place.stamp.load(Ordering::Acquire);
            if stamp < 2 * tail {
                return Err(TrySendError::Full(value));
            }
            // The value that was read may be old; an exchange finds the newest.
            let next =
                self.0
                    .tail
                    .compare_exchange(tail, tail + 1, Ordering::Relaxed, Ordering::Relaxed);
            if let Err(newer) = next {
                tail = newer;
                continue;
            }
            *place.value.lock().unwrap() = Some(value);
            place.stamp.store(2 * tail + 1, Ordering::Release);
            return Ok(());
        }
    }
}

impl<T> Receiver<T> {
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        let head = self.head.get();
        let place = self.queue.place(head);
        if place.stamp.load(Ordering::Acquire) != 2 * head + 1 {
            return Err(TryRecvError::Empty);
        }
        let value = place.value.lock().unwrap().take();
        let next_turn = head + self.queue.places.len();
        place.stamp.store(2 * next_turn, Ordering::Release);
        self.head.set(head + 1);
        Ok(value.expect("the stamp says that a value is here"))
    }
}
