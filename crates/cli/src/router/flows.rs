//! `--flow-log`: a line of JSON for each flow through a pipe, when it ends and at intervals.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use sluice_core::Span;
use sluice_router::process::watch::{FlowRecord, FlowTimeouts, Watcher};

/// Where records of flows go, and when.
#[derive(Debug, clap::Args)]
pub struct FlowArgs {
    /// Append a line of JSON for each flow through a pipe to this file, or write it to standard
    /// output (`-`): bytes, packets, drops, marks and sojourn times (docs/watching.md)
    #[arg(long, value_name = "FILE|-")]
    flow_log: Option<PathBuf>,
    /// A flow without packets for this time has ended
    #[arg(long, value_name = "TIME", value_parser = Span::parse, default_value = "15s",
          requires = "flow_log")]
    flow_idle: Span,
    /// A flow that lasts gets a record each time this has passed
    #[arg(long, value_name = "TIME", value_parser = Span::parse, default_value = "60s",
          requires = "flow_log")]
    flow_active: Span,
}

/// The file cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot append to {}: {source}", .path.display())]
pub struct Error {
    path: PathBuf,
    source: io::Error,
}

/// The file, opened before the router gives up its privileges.
pub struct Opened {
    to: Box<dyn Write + Send>,
    name: String,
    timeouts: FlowTimeouts,
}

/// Opens the file.
pub fn open(args: &FlowArgs) -> Result<Option<Opened>, Error> {
    let Some(path) = &args.flow_log else {
        return Ok(None);
    };
    let to: Box<dyn Write + Send> = if args.is_stdout() {
        Box::new(io::stdout())
    } else {
        let file = File::options().append(true).create(true).open(path);
        Box::new(file.map_err(|source| Error {
            path: path.clone(),
            source,
        })?)
    };
    Ok(Some(Opened {
        to,
        name: path.display().to_string(),
        timeouts: FlowTimeouts {
            idle: Duration::from_nanos(args.flow_idle.as_ns()),
            active: Duration::from_nanos(args.flow_active.as_ns()),
        },
    }))
}

impl FlowArgs {
    /// Returns whether standard output has the records, so that nothing else may write there.
    pub fn is_stdout(&self) -> bool {
        self.flow_log.as_deref() == Some(Path::new("-"))
    }
}

/// Writes records until it is finished.
pub struct FlowLog {
    is_ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl FlowLog {
    /// Starts to write records of what `watcher` sees. While it runs, the router is watched all the
    /// time.
    pub fn start(opened: Opened, watcher: Watcher) -> io::Result<FlowLog> {
        let is_ending = Arc::new(AtomicBool::new(false));
        let ending = Arc::clone(&is_ending);
        watcher.record_flows(opened.timeouts);
        let thread = thread::Builder::new().name("flow-log".into());
        let thread = thread.spawn(move || write(opened, &watcher, &ending))?;
        Ok(FlowLog {
            is_ending,
            thread: Some(thread),
        })
    }

    /// Writes records of all flows, up to a last sample, and ends. Takes a second.
    pub fn finish(mut self) {
        self.is_ending.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn write(opened: Opened, watcher: &Watcher, is_ending: &AtomicBool) {
    let Opened { mut to, name, .. } = opened;
    let mut after = 0;
    let mut lost = 0;
    loop {
        // The last sample must begin after the last packet.
        let is_last = is_ending.load(Ordering::Acquire);
        match watcher.sample(after, SAMPLE) {
            Ok(sample) => after = sample.number,
            Err(_) if is_last => {}
            Err(_) => thread::sleep(PAUSE),
        }
        let (records, more) = watcher.take_flows(is_last);
        lost += more;
        if let Err(error) = to
            .write_all(lines(&records).as_bytes())
            .and_then(|()| to.flush())
        {
            eprintln!("sluice: warning: cannot write to {name}: {error}; no more flows are logged");
            return;
        }
        if is_last {
            break;
        }
    }
    if lost > 0 {
        eprintln!("sluice: warning: {name} lacks {lost} records: it was written too slowly");
    }
}

fn lines(records: &[FlowRecord]) -> String {
    let line = |record| serde_json::to_string(record).expect("a record is plain values") + "\n";
    records.iter().map(line).collect()
}

/// A sample comes within this time.
const SAMPLE: Duration = Duration::from_secs(3);
/// The pause after a sample that did not come.
const PAUSE: Duration = Duration::from_millis(100);
