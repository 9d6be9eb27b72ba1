//! A thread that stays in a namespace and opens sockets there for others.

use std::sync::mpsc::{Sender, channel};

use sluice_net::namespace::{Namespace, NamespaceError};

type Work = Box<dyn FnOnce() + Send>;

/// The thread. It ends when this is dropped.
pub struct Resident(Sender<Work>);

impl Resident {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the namespace cannot be entered.
    pub fn new(namespace: &Namespace, name: &str) -> Result<Resident, NamespaceError> {
        let (sender, works) = channel::<Work>();
        namespace.spawn(name, move || {
            for work in works {
                work();
            }
        })?;
        Ok(Resident(sender))
    }

    /// Runs `work` in the namespace and waits for its result.
    pub fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (sender, result) = channel();
        let work = move || {
            let _ = sender.send(work());
        };
        self.0
            .send(Box::new(work))
            .expect("the thread accepts work as long as this lives");
        result.recv().expect("the thread answers")
    }
}
