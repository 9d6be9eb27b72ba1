//! `sluice top`: the pipes, queues and flows of a running router, live.

mod app;
mod view;

use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use app::{App, Order};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;
use ratatui::{DefaultTerminal, Frame};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level};
use sluice_router::process::watch::Sample;

use crate::watch::{self, WatchError};

/// Which router, and how to show it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The router's socket [default: sluice.sock in XDG_RUNTIME_DIR or /run]
    #[arg(long, value_name = "PATH", env = "SLUICE_SOCKET")]
    socket: Option<PathBuf>,
    /// What comes first; `s` changes it
    #[arg(long, value_enum, default_value_t = Order::Rate)]
    sort: Order,
    /// Show only rows with this text; `/` changes it
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,
    /// Print one screen and exit; it is as wide as COLUMNS or the terminal
    #[arg(long)]
    once: bool,
    /// With --once: print the sample as JSON (docs/watching.md)
    #[arg(long, requires = "once")]
    json: bool,
}

/// The reason why nothing is shown.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no sample.
    #[error(transparent)]
    Watch(#[from] WatchError),
    /// The terminal or standard output.
    #[error("cannot write to the terminal: {0}")]
    Output(#[from] io::Error),
    /// There is no terminal.
    #[error("standard output is not a terminal; --once prints one screen")]
    NoTerminal,
}

impl Error {
    /// Returns the exit status.
    pub fn exit_status(&self) -> u8 {
        match self {
            Error::Watch(error) => error.exit_status(),
            Error::Output(_) | Error::NoTerminal => 1,
        }
    }
}

/// Shows a router until the user ends it.
///
/// # Errors
/// [`Error`].
pub fn run(args: &Args) -> Result<ExitCode, Error> {
    let path = watch::socket(args.socket.as_ref());
    if args.json {
        crate::print(&format!("{}\n", watch::fetch_json(&path, 0)?))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut app = App::new(args.sort, args.filter.clone());
    app.take(watch::fetch(&path, 0)?);
    if args.once {
        for line in app.lines(crate::terminal::columns().unwrap_or(ONCE), usize::MAX) {
            crate::print(&format!("{}\n", line.text.trim_end()))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    if !io::stdout().is_terminal() {
        return Err(Error::NoTerminal);
    }
    let samples = follow(&path, app.number());
    let signal = catch_signals()?;
    // Also restores the terminal on a panic.
    let mut terminal = ratatui::try_init()?;
    let shown = show(&mut terminal, &mut app, &samples, &signal);
    ratatui::restore();
    if let Some(signal) = caught(&signal) {
        // The sender sees its effect.
        low_level::emulate_default_handler(signal)?;
    }
    shown?;
    Ok(ExitCode::SUCCESS)
}

/// Notes the last signal that asks the program to end, so that the terminal can be restored before.
fn catch_signals() -> io::Result<Arc<AtomicUsize>> {
    let signal = Arc::default();
    for number in [SIGHUP, SIGINT, SIGTERM] {
        flag::register_usize(number, Arc::clone(&signal), number as usize)?;
    }
    Ok(signal)
}

fn caught(signal: &AtomicUsize) -> Option<i32> {
    match signal.load(Ordering::Relaxed) {
        0 => None,
        number => Some(number as i32),
    }
}

/// Columns of `--once`, unless the terminal or COLUMNS has another number.
const ONCE: usize = 79;
/// The pause between two attempts to reach a router that does not answer.
const RETRY: Duration = Duration::from_secs(1);
/// Longest reaction to a sample; keys are handled at once.
const LOOK: Duration = Duration::from_millis(100);

/// Fetches samples on a thread of its own, as they come.
fn follow(path: &Path, mut after: u64) -> Receiver<Result<Sample, String>> {
    let (sender, receiver) = channel();
    let path = path.to_owned();
    thread::spawn(move || {
        loop {
            let fetched = watch::fetch(&path, after).map_err(|error| error.to_string());
            match &fetched {
                Ok(sample) => after = sample.number,
                Err(_) => {
                    // A router that was started again counts from 1.
                    after = 0;
                    thread::sleep(RETRY);
                }
            }
            if sender.send(fetched).is_err() {
                return;
            }
        }
    });
    receiver
}

fn show(
    terminal: &mut DefaultTerminal,
    app: &mut App,
    samples: &Receiver<Result<Sample, String>>,
    signal: &AtomicUsize,
) -> io::Result<()> {
    let mut is_stale = true;
    while caught(signal).is_none() {
        while let Ok(sample) = samples.try_recv() {
            match sample {
                Ok(sample) => app.take(sample),
                Err(why) => app.fail(why),
            }
            is_stale = true;
        }
        if is_stale {
            terminal.draw(|frame| draw(frame, app))?;
            is_stale = false;
        }
        if !event::poll(LOOK)? {
            continue;
        }
        is_stale = true;
        if let Event::Key(key) = event::read()?
            && key.kind != KeyEventKind::Release
        {
            let is_break = key.modifiers.contains(KeyModifiers::CONTROL)
                && matches!(key.code, KeyCode::Char('c' | 'd'));
            if is_break || !app.press(key.code) {
                break;
            }
        }
    }
    Ok(())
}

/// Draws the lines; the selected row is reversed and headings are bold, so that colours are not
/// needed.
fn draw(frame: &mut Frame<'_>, app: &App) {
    let area = frame.area();
    let lines = app.lines(usize::from(area.width), usize::from(area.height));
    for (row, line) in (0..area.height).zip(lines) {
        let style = match line.look {
            app::Look::Plain => Style::default(),
            app::Look::Head => Style::default().add_modifier(Modifier::BOLD),
            app::Look::Selected => Style::default().add_modifier(Modifier::REVERSED),
        };
        let width = usize::from(area.width);
        let text = format!("{:<width$}", line.text);
        let place = Rect::new(area.x, area.y + row, area.width, 1);
        frame.render_widget(Paragraph::new(Line::styled(text, style)), place);
    }
}

const EXAMPLES: &str = "\
Examples:
  sluice top
  sluice top --once --sort drops";

#[cfg(test)]
mod tests;
