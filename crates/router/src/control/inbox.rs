//! Orders to the packet loop, in a bounded channel with a bell that ends the loop's sleep.

use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, SyncSender, TryRecvError, TrySendError, sync_channel,
};
use std::time::Duration;

use sluice_ipfw::Survey;
use sluice_ipfw::{CommandError, Interface, Mode, Output};

use super::Texts;

/// A request to the loop.
#[derive(Debug)]
pub enum Work {
    /// Execute commands, which may read these files.
    Commands {
        /// The commands, one per line.
        text: String,
        /// How they are executed.
        mode: Mode,
        /// The files that the commands name.
        files: Texts,
    },
    /// Report the status.
    Status,
    /// Use these as the interfaces, in the order of the ports.
    Interfaces(Vec<Interface>),
}

/// A request, and the destination of its answer.
pub struct Order<T> {
    /// The request.
    pub work: Work,
    answer: SyncSender<Answered<T>>,
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
    /// The order was executed.
    Done,
}

impl<T> Order<T> {
    /// Sends the answer. The requesting thread may have given up.
    pub fn answer(self, answer: Answered<T>) {
        let _ = self.answer.send(answer);
    }
}

/// The loop's end.
pub struct Inbox<T> {
    orders: Receiver<Order<T>>,
    bell: UnixStream,
    ring: Arc<Ring>,
}

/// The requesting end.
pub struct Orders<T> {
    orders: SyncSender<Order<T>>,
    bell: Bell,
}

impl<T> Clone for Orders<T> {
    fn clone(&self) -> Self {
        Orders {
            orders: self.orders.clone(),
            bell: self.bell.clone(),
        }
    }
}

/// Returns the bell that ends the loop's sleep.
#[derive(Clone, Debug)]
pub struct Bell(Arc<Ring>);

#[derive(Debug)]
struct Ring {
    stream: UnixStream,
    /// Set after every ring, so that the loop only makes a system call when the bell has rung.
    has_rung: AtomicBool,
}

/// The reasons why an order was not executed, or not in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Too many orders wait.
    #[error("the router is busy: {WAITING} commands are already waiting")]
    Busy,
    /// No answer came in time; the order may still be executed.
    #[error("the router did not answer in time")]
    Late,
    /// The loop has ended.
    #[error("the router has ended")]
    Ended,
}

/// Orders that may wait for the loop.
const WAITING: usize = 16;

/// Creates an inbox and a handle for sending to it.
///
/// # Errors
/// The process cannot open more files.
pub fn inbox<T>() -> std::io::Result<(Inbox<T>, Orders<T>)> {
    let (ring, heard) = UnixStream::pair()?;
    ring.set_nonblocking(true)?;
    heard.set_nonblocking(true)?;
    let (sender, receiver) = sync_channel(WAITING);
    let ring = Arc::new(Ring {
        stream: ring,
        has_rung: AtomicBool::new(false),
    });
    let inbox = Inbox {
        orders: receiver,
        bell: heard,
        ring: Arc::clone(&ring),
    };
    let orders = Orders {
        orders: sender,
        bell: Bell(ring),
    };
    Ok((inbox, orders))
}

impl Bell {
    /// Rings the bell. If the bell's buffer is full, it is already ringing.
    pub fn ring(&self) {
        let _ = (&self.0.stream).write(&[1]);
        // The flag is set after the byte is sent, so a thread that sees the flag finds the byte.
        self.0.has_rung.store(true, Ordering::Release);
    }
}

impl<T> Orders<T> {
    /// Returns the bell of the inbox.
    pub const fn bell(&self) -> &Bell {
        &self.bell
    }

    /// Sends an order to the loop, and waits for its answer, at most for `patience`.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn order(&self, work: Work, patience: Duration) -> Result<Answered<T>, Refused> {
        let Pending(answered) = self.post(work)?;
        answered
            .recv_timeout(patience)
            .map_err(|error| match error {
                RecvTimeoutError::Timeout => Refused::Late,
                RecvTimeoutError::Disconnected => Refused::Ended,
            })
    }

    /// Sends an order to the loop, and lets the caller poll for the answer.
    ///
    /// # Errors
    /// [`Refused`], but not [`Refused::Late`].
    pub fn post(&self, work: Work) -> Result<Pending<T>, Refused> {
        let (answer, answered) = sync_channel(1);
        self.orders
            .try_send(Order { work, answer })
            .map_err(|error| match error {
                TrySendError::Full(_) => Refused::Busy,
                TrySendError::Disconnected(_) => Refused::Ended,
            })?;
        self.bell.ring();
        Ok(Pending(answered))
    }
}

/// An answer that may not have arrived yet.
pub struct Pending<T>(Receiver<Answered<T>>);

impl<T> Pending<T> {
    /// Returns the answer, once it has arrived. Never blocks.
    ///
    /// # Errors
    /// [`Refused::Ended`].
    pub fn poll(&self) -> Result<Option<Answered<T>>, Refused> {
        match self.0.try_recv() {
            Ok(answer) => Ok(Some(answer)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(Refused::Ended),
        }
    }
}

impl<T> Inbox<T> {
    /// Returns the next order, and resets the bell. Must be called until there is none, before
    /// every sleep that the bell may end. Costs no system call while the bell is silent.
    pub fn take(&mut self) -> Option<Order<T>> {
        if self.ring.has_rung.swap(false, Ordering::Acquire) {
            let mut rings = [0; 64];
            while self.bell.read(&mut rings).is_ok_and(|n| n == rings.len()) {}
        }
        self.orders.try_recv().ok()
    }
}

/// Readable while the bell rings.
impl<T> AsFd for Inbox<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    fn status() -> Work {
        Work::Status
    }

    #[test]
    fn an_order_is_answered_and_quiets_the_bell() {
        let (mut inbox, orders) = inbox::<u32>().unwrap();
        let asked = thread::spawn(move || orders.order(status(), Duration::from_secs(60)));
        let order = loop {
            match inbox.take() {
                Some(order) => break order,
                None => thread::yield_now(),
            }
        };
        order.answer(Answered::Status(Box::new(7)));
        let Ok(Answered::Status(seven)) = asked.join().unwrap() else {
            panic!("the answer is what was sent");
        };
        assert_eq!(*seven, 7);
        assert!(inbox.take().is_none());
        assert!(!is_ringing(&mut inbox));
    }

    fn is_ringing<T>(inbox: &mut Inbox<T>) -> bool {
        inbox.bell.read(&mut [0]).is_ok()
    }

    #[test]
    fn an_answer_can_be_looked_for_without_waiting() {
        let (mut inbox, orders) = inbox::<u32>().unwrap();
        let pending = orders.post(status()).unwrap();
        assert!(pending.poll().unwrap().is_none());
        let order = inbox.take().unwrap();
        assert!(pending.poll().unwrap().is_none());
        order.answer(Answered::Status(Box::new(7)));
        let Some(Answered::Status(seven)) = pending.poll().unwrap() else {
            panic!("the answer is what was sent");
        };
        assert_eq!(*seven, 7);
        let pending = orders.post(status()).unwrap();
        drop(inbox);
        assert_eq!(pending.poll().err(), Some(Refused::Ended));
    }

    #[test]
    fn a_loop_that_does_not_listen_holds_nobody_up() {
        let (inbox, orders) = inbox::<u32>().unwrap();
        for _ in 0..WAITING {
            assert_eq!(
                orders.order(status(), Duration::ZERO).err(),
                Some(Refused::Late)
            );
        }
        assert_eq!(
            orders.order(status(), Duration::from_secs(60)).err(),
            Some(Refused::Busy)
        );
        drop(inbox);
        assert_eq!(
            orders.order(status(), Duration::from_secs(60)).err(),
            Some(Refused::Ended)
        );
    }

    #[test]
    fn a_bell_that_nobody_hears_does_not_block() {
        let (mut inbox, orders) = inbox::<u32>().unwrap();
        // Some hundred fill the buffer.
        for _ in 0..10_000 {
            orders.bell().ring();
        }
        assert!(inbox.take().is_none());
        assert!(!is_ringing(&mut inbox));
    }
}
