//! Reloads the configuration while the router runs.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use sluice_ipfw::Settings;
use sluice_loader::loaders;
use sluice_router::control::Refused;
use sluice_router::process::{self, ReloadError, Reloader};

use super::screen::Screen;
use super::{service, warnings};

/// The thread that reloads.
///
/// Reading a long file must not delay a signal that ends the router. It is one thread for all reloads,
/// since the C library keeps what a thread has freed for each thread that has ever allocated, up to
/// eight for each core.
pub(super) struct Reloads {
    asking: Sender<()>,
    /// Disconnected when the thread has ended.
    ended: Receiver<()>,
}

impl Reloads {
    /// Starts the thread.
    pub fn start(
        reloader: Reloader,
        config: Option<PathBuf>,
        screen: Screen,
    ) -> io::Result<Reloads> {
        let (asking, asked) = channel();
        let (running, ended) = channel();
        let work = move || {
            let _running: Sender<()> = running;
            let mut is_asked = asked.recv().is_ok();
            while is_asked {
                // One reload serves all signals so far.
                while let Ok(()) = asked.try_recv() {}
                let mut is_refused = false;
                service::reloading(|| {
                    let late = |text: String| screen.print(format!("sluice: warning: {text}\n"));
                    let (text, is_active) = reload(&reloader, config.as_deref(), late);
                    screen.print(text);
                    is_refused = !is_active;
                });
                let pause = if is_refused {
                    AFTER_REFUSAL
                } else {
                    Duration::ZERO
                };
                is_asked = asked_again(&asked, pause);
            }
        };
        thread::Builder::new().name("reload".into()).spawn(work)?;
        Ok(Reloads { asking, ended })
    }

    /// Asks for a reload.
    pub fn ask(&self) {
        // The thread ends after this sender.
        let _ = self.asking.send(());
    }

    /// Lets a reload under way end, but not one that has to wait for its file.
    pub fn end(self, screen: &Screen) {
        drop(self.asking);
        if let Err(RecvTimeoutError::Timeout) = self.ended.recv_timeout(PATIENCE) {
            let text = "sluice: warning: the router ends while its configuration is being read\n";
            screen.print(text.to_owned());
        }
    }
}

/// Makes modules that a configuration or a command names relative to the folder of the configuration's
/// file, as its other files are. A pipe (`/dev/stdin`, `/proc/self/fd/3`) has no folder of its own.
pub(super) fn find_modules_beside(config: &Path) {
    let is_named = config.is_file() && !["/dev", "/proc"].iter().any(|of| config.starts_with(of));
    let folder = config.parent().filter(|_| is_named);
    // Without a folder in its name, the configuration is in that of the process.
    if let Some(folder) = folder.and_then(|folder| std::path::absolute(folder).ok()) {
        sluice_loader::relative_to(folder);
    }
}

/// Lets the program that has the algorithms of a configuration, if it is another one, execute the command
/// in place of this process. Call it on the main thread, before anything is opened: the router reads its
/// configuration on another thread. A file that is a pipe can be read only once, and is left to the router.
pub(super) fn resolve_algorithms(config: &Path, engine: &Settings) {
    let is_elsewhere = loaders().iter().filter(|loader| loader.replaces_process());
    let schemes: Vec<String> = is_elsewhere
        .map(|loader| format!("{}:", loader.scheme()))
        .collect();
    let names_one = |text: String| schemes.iter().any(|scheme| text.contains(scheme));
    if !schemes.is_empty() && config.is_file() && process::text_of(config).is_ok_and(names_one) {
        // The router itself reports what is wrong.
        let _ = process::check(config, engine);
    }
}

/// Waits until a reload is requested, and the pause after the last one is over. Returns false at the end of
/// the router.
fn asked_again(asked: &Receiver<()>, pause: Duration) -> bool {
    let end = Instant::now() + pause;
    let mut is_asked = false;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return is_asked || asked.recv().is_ok();
        }
        match asked.recv_timeout(left) {
            Ok(()) => is_asked = true,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return false,
        }
    }
}

/// Reloads, and returns what there is to say about it, and whether the configuration is active. `late` gets
/// a warning if the file is not read soon.
fn reload(reloader: &Reloader, config: Option<&Path>, late: impl FnOnce(String)) -> (String, bool) {
    match (reloader.reload_or_say(late), config) {
        (Ok(remarks), Some(path)) => {
            let warnings = warnings(path, &remarks);
            let path = path.display();
            (format!("{warnings}sluice: {path} is active\n"), true)
        }
        (Ok(_), None) => (String::new(), true),
        // Steps that were begun are not undone.
        (Err(error @ ReloadError::Refused(Refused::Unfinished)), _) => {
            (format!("sluice: {error}\n"), false)
        }
        (Err(error), _) => {
            let text = format!("sluice: {error}; the old configuration remains active\n");
            (text, false)
        }
    }
}

/// The time from a refused reload to the next one, so that there is at most one line a second about refused
/// reloads. One reload serves all signals in between.
const AFTER_REFUSAL: Duration = Duration::from_secs(1);

/// The time for which the end waits for a reload.
const PATIENCE: Duration = Duration::from_secs(1);
