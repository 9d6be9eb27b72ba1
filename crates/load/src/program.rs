//! Programs as end hosts, with any traffic of their own.
//!
//! A program that serves others is started before the clock ([`Service`]), and the run waits until
//! its port is open. Any other program starts at its time. When the run ends, every program is
//! ended with all its descendants: first by SIGINT, as by Ctrl-C, then by SIGKILL.

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use sluice_core::{Stop, Time};
use sluice_net::Clock;
use sluice_net::contained::{Arrived, Contained, is_port_open};
use sluice_net::namespace::Namespace;

use crate::{Context, Identity, Running, STOP_CHECK, SetOnDrop, TrafficError};

/// A program on a host.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its name or path, and its arguments; not empty.
    pub words: Vec<String>,
    /// The instant at which to start it.
    pub start: Time,
    /// The instant at which to end it.
    pub stop: Time,
}

/// A running program that other programs use.
#[derive(Debug)]
pub struct Service {
    orders: Sender<Order>,
    thread: std::thread::JoinHandle<Result<ProgramReport, TrafficError>>,
}

/// The settings of a service that are known once there is a clock.
struct Order {
    context: Context,
    stop: Time,
    done: SetOnDrop,
}

/// The result of a program.
#[derive(Clone, Debug)]
pub struct ProgramReport {
    /// The program and its arguments as one line.
    pub command: String,
    /// The instant at which it started; zero if it was started before the run.
    pub started: Time,
    /// The instant at which it had ended.
    pub ended: Time,
    /// How it ended.
    pub end: ProgramEnd,
    /// Its standard output.
    pub output: Output,
    /// Its standard error.
    pub errors: Output,
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramEnd {
    /// By itself, with this status.
    Exited(i32),
    /// By a signal of this number.
    Signalled(i32),
    /// Because the run ended, or its time was over.
    Stopped,
    /// It was not started, because the run ended before its start.
    NotStarted,
}

/// The output of a program: at most [`Output::MOST`] bytes.
#[derive(Clone, Debug, Default)]
pub struct Output {
    /// The first bytes.
    pub bytes: Vec<u8>,
    /// The number of bytes that were left out.
    pub omitted: u64,
}

impl Output {
    /// The largest number of bytes that are kept.
    pub const MOST: usize = 16 << 20;

    fn push(&mut self, bytes: &[u8]) {
        let kept = bytes.len().min(Self::MOST - self.bytes.len());
        self.bytes.extend_from_slice(&bytes[..kept]);
        self.omitted += (bytes.len() - kept) as u64;
    }

    /// Returns the last line that is not empty.
    pub fn last_line(&self) -> Option<String> {
        let text = String::from_utf8_lossy(&self.bytes);
        let line = text.lines().map(str::trim).rfind(|line| !line.is_empty());
        line.map(str::to_owned)
    }
}

impl std::fmt::Display for ProgramEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ProgramEnd::Exited(status) => write!(f, "exited with status {status}"),
            ProgramEnd::Signalled(signal) => write!(f, "was ended by signal {signal}"),
            ProgramEnd::Stopped => f.write_str("was stopped at the end of its time"),
            ProgramEnd::NotStarted => f.write_str("was not started"),
        }
    }
}

impl ProgramReport {
    /// Returns the failure, unless the program succeeded or was stopped.
    pub fn failure(&self) -> Option<String> {
        match self.end {
            ProgramEnd::Exited(0) | ProgramEnd::Stopped | ProgramEnd::NotStarted => None,
            ProgramEnd::Exited(_) | ProgramEnd::Signalled(_) => Some(self.said()),
        }
    }

    fn said(&self) -> String {
        let words = self.errors.last_line().or_else(|| self.output.last_line());
        let words = words.map(|words| format!(": {words}")).unwrap_or_default();
        format!("`{}` {}{words}", self.command, self.end)
    }
}

/// Checks that a program exists and may be executed.
///
/// # Errors
/// [`TrafficError::Program`], with the reason.
pub fn check(words: &[String]) -> Result<(), TrafficError> {
    let name = words.first().map(String::as_str).unwrap_or_default();
    let is_executable = |path: &Path| {
        use std::os::unix::fs::PermissionsExt as _;
        let found = path.metadata();
        found.is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    let refuse = |reason: String| Err(TrafficError::Program { reason });
    if name.contains('/') {
        let path = Path::new(name);
        return match path.exists() {
            true if is_executable(path) => Ok(()),
            true => refuse(format!("`{name}` is not executable")),
            false => refuse(format!("there is no program `{name}`")),
        };
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    if folders
        .iter()
        .any(|folder| is_executable(&folder.join(name)))
    {
        return Ok(());
    }
    refuse(format!(
        "there is no program `{name}` in PATH; install it, or give its path"
    ))
}

impl Program {
    /// Starts the program at its time, in the namespace `from`. Packets between its addresses and
    /// those of `to` are its own. If it fails, `stop` ends the run.
    ///
    /// # Errors
    /// The namespace cannot be entered. A program that cannot be executed is reported at the end.
    pub fn start(
        &self,
        from: (&Namespace, std::net::IpAddr),
        to: std::net::IpAddr,
        clock: &Clock,
        stop: &Stop,
    ) -> Result<Running<ProgramReport>, TrafficError> {
        let identity = Identity::of_host(from.1, to);
        let context = Context::new(from.0, clock, stop);
        let program = self.clone();
        let finished = std::sync::Arc::default();
        let done = SetOnDrop(std::sync::Arc::clone(&finished));
        let thread = from.0.spawn("program", move || {
            let _done = done;
            let outcome = program.run(&context);
            end_run_on_failure(&outcome, &context.stop);
            outcome
        })?;
        Ok(Running {
            identity,
            stop: stop.clone(),
            finished,
            is_service: false,
            join: Box::new(|| join(thread)),
        })
    }

    fn run(&self, context: &Context) -> Result<ProgramReport, TrafficError> {
        let mut report = ProgramReport::new(&self.words);
        if !context.sleep_until(self.start) {
            return Ok(report);
        }
        report.started = context.clock.now();
        let contained = Contained::start(&mut command(&self.words));
        let contained = contained.map_err(|error| unstarted(&self.words, &error))?;
        attend(contained, &mut report, context, self.stop)?;
        Ok(report)
    }
}

impl Service {
    /// Starts a program in a namespace, and waits until it has opened `port`.
    ///
    /// # Errors
    /// [`TrafficError::Program`]: it cannot be executed, has ended, or does not open the port in
    /// time. It is killed then.
    pub fn start(
        words: &[String],
        port: u16,
        namespace: &Namespace,
        stop: &Stop,
    ) -> Result<Service, TrafficError> {
        let (orders, received) = channel();
        let (ready, outcome) = channel();
        let (owned, stop) = (words.to_vec(), stop.clone());
        let thread = namespace.spawn("service", move || {
            let mut report = ProgramReport::new(&owned);
            let ready_to = |outcome| {
                // The starter waits for exactly this message.
                let _ = ready.send(outcome);
            };
            match open(&owned, port, &mut report, &stop) {
                Ok(contained) => {
                    ready_to(Ok(()));
                    serve(contained, report, &received)
                }
                Err(error) => {
                    ready_to(Err(error));
                    Ok(report)
                }
            }
        })?;
        match outcome.recv() {
            Ok(Ok(())) => Ok(Service { orders, thread }),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(join(thread).err().unwrap_or(TrafficError::Program {
                reason: format!("`{}` could not be supervised", line_of(words)),
            })),
        }
    }

    /// Lets the service run until `until` on `clock`, or until `stop`.
    ///
    /// # Errors
    /// None so far: the service is running.
    pub fn attend(
        self,
        from: (&Namespace, std::net::IpAddr),
        to: std::net::IpAddr,
        until: Time,
        clock: &Clock,
        stop: &Stop,
    ) -> Result<Running<ProgramReport>, TrafficError> {
        let finished = std::sync::Arc::default();
        let order = Order {
            context: Context::new(from.0, clock, stop),
            stop: until,
            done: SetOnDrop(std::sync::Arc::clone(&finished)),
        };
        // If the service has ended, its thread is gone, and its report says how.
        let _ = self.orders.send(order);
        let thread = self.thread;
        Ok(Running {
            identity: Identity::of_host(from.1, to),
            stop: stop.clone(),
            finished,
            is_service: true,
            join: Box::new(|| join(thread)),
        })
    }
}

impl ProgramReport {
    fn new(words: &[String]) -> ProgramReport {
        ProgramReport {
            command: line_of(words),
            started: Time::ZERO,
            ended: Time::ZERO,
            end: ProgramEnd::NotStarted,
            output: Output::default(),
            errors: Output::default(),
        }
    }

    fn take(&mut self, arrived: &Arrived) {
        self.output.push(&arrived.output);
        self.errors.push(&arrived.errors);
    }

    fn close(&mut self, contained: Contained, end: ProgramEnd, now: Time) {
        self.end = end;
        self.ended = now;
        self.take(&contained.kill());
    }
}

/// Starts a service, and waits for its port.
fn open(
    words: &[String],
    port: u16,
    report: &mut ProgramReport,
    stop: &Stop,
) -> Result<Contained, TrafficError> {
    let mut contained =
        Contained::start(&mut command(words)).map_err(|error| unstarted(words, &error))?;
    let begun = Instant::now();
    loop {
        if is_port_open(port) {
            return Ok(contained);
        }
        report.take(&contained.read(PORT_CHECK));
        let is_late = begun.elapsed() > PATIENCE || stop.is_stopped();
        let ended = contained.ended().map_err(|error| lost(words, &error))?;
        if ended.is_none() && !is_late {
            continue;
        }
        let end = ended.map_or(ProgramEnd::Stopped, end_of);
        report.close(contained, end, Time::ZERO);
        let reason = match ended {
            Some(_) => format!("{}, before it listened on port {port}", report.said()),
            None => format!(
                "`{}` does not listen on port {port} after {} s",
                report.command,
                PATIENCE.as_secs()
            ),
        };
        return Err(TrafficError::Program { reason });
    }
}

/// Keeps a service running until the run is over. Without a run, it ends at once.
fn serve(
    mut contained: Contained,
    mut report: ProgramReport,
    orders: &Receiver<Order>,
) -> Result<ProgramReport, TrafficError> {
    let order = loop {
        match orders.try_recv() {
            Ok(order) => break order,
            Err(std::sync::mpsc::TryRecvError::Disconnected) => {
                report.close(contained, ProgramEnd::Stopped, Time::ZERO);
                return Ok(report);
            }
            // Its output must not fill the pipe meanwhile.
            Err(std::sync::mpsc::TryRecvError::Empty) => report.take(&contained.read(PORT_CHECK)),
        }
    };
    let _done = order.done;
    let outcome = attend(contained, &mut report, &order.context, order.stop).map(|()| report);
    end_run_on_failure(&outcome, &order.context.stop);
    outcome
}

/// Reads a program's output until it ends or its time is over.
fn attend(
    mut contained: Contained,
    report: &mut ProgramReport,
    context: &Context,
    stop: Time,
) -> Result<(), TrafficError> {
    let mut asked: Option<Instant> = None;
    loop {
        report.take(&contained.read(Duration::from_nanos(STOP_CHECK.as_ns())));
        let ended = contained.ended().map_err(|error| TrafficError::Program {
            reason: format!("`{}` is lost: {error}", report.command),
        })?;
        let now = context.clock.now();
        if let Some(status) = ended {
            // The status of a program after a request to end does not count as a failure.
            let end = asked.map_or_else(|| end_of(status), |_| ProgramEnd::Stopped);
            report.close(contained, end, now);
            return Ok(());
        }
        match asked {
            None if now >= stop || context.stop.is_stopped() => {
                contained.interrupt();
                asked = Some(Instant::now());
            }
            Some(since) if since.elapsed() > GRACE => {
                report.close(contained, ProgramEnd::Stopped, now);
                return Ok(());
            }
            _ => {}
        }
    }
}

fn end_of(status: ExitStatus) -> ProgramEnd {
    match status.code() {
        Some(code) => ProgramEnd::Exited(code),
        None => ProgramEnd::Signalled(status.signal().unwrap_or_default()),
    }
}

fn end_run_on_failure(outcome: &Result<ProgramReport, TrafficError>, stop: &Stop) {
    if outcome
        .as_ref()
        .map_or(true, |report| report.failure().is_some())
    {
        stop.stop();
    }
}

/// Programs print messages and numbers in English, in every locale.
fn command(words: &[String]) -> Command {
    let mut command = Command::new(words.first().map_or(OsStr::new(""), OsStr::new));
    command.args(words.iter().skip(1)).env("LC_ALL", "C");
    command
}

/// Returns words as a shell would read them.
fn line_of(words: &[String]) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:=,@%+".contains(c);
    let quoted = words.iter().map(|word| match word.chars().all(is_plain) {
        true if !word.is_empty() => word.clone(),
        _ => format!("'{}'", word.replace('\'', "'\\''")),
    });
    quoted.collect::<Vec<_>>().join(" ")
}

fn unstarted(words: &[String], error: &io::Error) -> TrafficError {
    TrafficError::Program {
        reason: format!("`{}` cannot be executed: {error}", line_of(words)),
    }
}

fn lost(words: &[String], error: &io::Error) -> TrafficError {
    TrafficError::Program {
        reason: format!("`{}` is lost: {error}", line_of(words)),
    }
}

fn join(
    thread: std::thread::JoinHandle<Result<ProgramReport, TrafficError>>,
) -> Result<ProgramReport, TrafficError> {
    thread
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Time between two checks for an open port.
const PORT_CHECK: Duration = Duration::from_millis(10);
/// Time within which a service must open its port.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time within which an interrupted program may end by itself.
const GRACE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_named_with_the_reason() {
        let reason = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            check(&words).map_err(|error| error.to_string())
        };
        assert_eq!(reason(&["sh"]), Ok(()));
        assert_eq!(reason(&["/bin/sh", "-c"]), Ok(()));
        assert_eq!(
            reason(&["no-such-program"]).unwrap_err(),
            "there is no program `no-such-program` in PATH; install it, or give its path"
        );
        assert_eq!(
            reason(&["./no-such-program"]).unwrap_err(),
            "there is no program `./no-such-program`"
        );
        assert_eq!(
            reason(&["/etc/passwd"]).unwrap_err(),
            "`/etc/passwd` is not executable"
        );
    }

    #[test]
    fn a_command_is_shown_as_it_could_be_typed() {
        let words = ["sh", "-c", "echo it's", "", "http://10.0.24.3:80/"];
        let words = words.map(str::to_owned);
        let expected = r"sh -c 'echo it'\''s' '' http://10.0.24.3:80/";
        assert_eq!(line_of(&words), expected);
    }

    #[test]
    fn output_is_kept_up_to_a_limit() {
        let mut output = Output::default();
        output.push(&vec![b'x'; Output::MOST - 2]);
        output.push(b"\nlast\n");
        assert_eq!((output.bytes.len(), output.omitted), (Output::MOST, 4));
        assert_eq!(output.last_line().map(|line| line.len()), Some(1));
    }
}
