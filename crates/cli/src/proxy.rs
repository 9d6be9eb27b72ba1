//! `sluice proxy`: a link behind a proxy.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use clap_complete::engine::ArgValueCandidates;
use sluice_core::Span;
use sluice_exec::link::{LinkError, LinkWords};
use sluice_exec::{Capture, ENDED, ExecError, FAILED, Verdict};
use sluice_lab::program::{ProxyRecordError, ProxyRecorder};
use sluice_loader::{Ending, HookWatch};
use sluice_proxy::{Addresses, Listen, Map, Proxy, ProxyError, Settings, WordError};

use sluice_recording::{ReadError, Recording};
use sluice_report::pages::{PageError, write_page};
use sluice_scenario::Scenario;

use crate::completion;
use crate::link_args::{LINK, LinkArgs};

/// The link, and the addresses to listen on.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    link: LinkArgs,
    /// Congestion control of both ends of the link, such as reno or bbr [default: the machine's, or
    /// cubic]
    #[arg(long, value_name = "NAME", help_heading = LINK,
          add = ArgValueCandidates::new(completion::controls))]
    cc: Option<String>,
    /// Listen for SOCKS5 and HTTP clients on this port (loopback by default)
    #[arg(long, value_name = "[ADDRESS:]PORT")]
    listen: Vec<Listen>,
    /// Forward a loopback port to HOST:PORT across the link
    #[arg(long, value_name = "PORT:HOST:PORT")]
    map: Vec<Map>,
    /// Listen for requests that change the link, cut it, list and reset connections
    #[arg(long, value_name = "[ADDRESS:]PORT")]
    control: Option<Listen>,
    /// What clients must give as their password, at least 16 characters; needed where other
    /// machines can connect
    #[arg(
        long,
        value_name = "TOKEN",
        env = "SLUICE_TOKEN",
        hide_env_values = true
    )]
    token: Option<String>,
    /// Make the machine's own loopback unreachable
    #[arg(long)]
    no_host: bool,
    /// Print how late packets were; exit with 75 if more than 0.1 % exceed this, or the machine
    /// lost any
    #[arg(long, value_name = "TIME", value_parser = Span::parse)]
    max_late: Option<Span>,
    /// Record what passes the link in this folder, with report.html
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Write a capture of what passes the program's end of the link
    #[arg(long, value_name = "FILE")]
    pcapng: Option<PathBuf>,
    /// Print nothing but errors
    #[arg(short, long)]
    quiet: bool,
}

/// Why there is no proxy.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A word.
    #[error("{0}")]
    Word(#[from] WordError),
    /// The proxy.
    #[error(transparent)]
    Proxy(#[from] ProxyError),
    /// The program that uses the proxy.
    #[error(transparent)]
    Program(#[from] ExecError),
    /// The link of a recording.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The recording.
    #[error("cannot record what passes the link: {0}")]
    Record(#[from] ProxyRecordError),
    /// The page of the recording.
    #[error(transparent)]
    Page(#[from] PageError),
    /// Signals or threads.
    #[error("cannot {0}: {1}")]
    Kernel(&'static str, io::Error),
    /// The capture or the recording is not complete. The program has ended with this status.
    #[error("{error}; the program's exit status was {status}")]
    After {
        /// The program's exit status.
        status: u8,
        /// The reason.
        error: Box<Error>,
    },
}

/// Runs the proxy until a signal ends it.
pub fn run(args: &Args) -> ExitCode {
    match try_run(args) {
        Ok(status) => status.into(),
        Err(error) => {
            eprintln!("sluice: {error}");
            FAILED.into()
        }
    }
}

fn try_run(args: &Args) -> Result<u8, Error> {
    args.link.warn();
    let settings = Settings {
        link: args.link.words(),
        congestion_control: sluice_proxy::congestion_control(args.cc.as_deref())?,
        listen: args.listen.clone(),
        maps: args.map.clone(),
        control: args.control,
        token: args.token.clone(),
        has_host: !args.no_host,
        max_late: args.max_late,
        capture: args.pcapng.clone(),
        ending: Ending::new(),
    };
    let ending = settings.ending.clone();
    let mut proxy = Proxy::open(settings)?;
    if let Some(capture) = proxy.capture() {
        await_reader(capture)?;
    }
    let (handle, mut hooks) = (proxy.handle(), HookWatch::new(&ending, Instant::now()));
    crate::signals::on_end(move || {
        handle.end();
        if let Some(why) = hooks.settle() {
            eprintln!("sluice: the proxy was ended: {why}");
            std::process::exit(ENDED.into());
        }
    })
    .map_err(|error| Error::Kernel("catch signals", error))?;
    let recorder = match &args.report {
        Some(dir) => {
            let report = Report::new(&args.link, dir, "sluice proxy".to_owned())?;
            Some((report.begin(&mut proxy)?, dir))
        }
        None => None,
    };
    if !args.quiet {
        announce(&proxy.addresses());
    }
    let verdict = proxy.run();
    if let Some((recorder, dir)) = recorder {
        let recording = recorder.finish()?;
        write_report(&recording, dir)?;
    }
    let verdict = verdict?;
    if let Some(why) = ending.why() {
        eprintln!("sluice: the proxy was ended: {why}");
        return Ok(ENDED);
    }
    if args.max_late.is_some() {
        eprintln!("sluice: {verdict}");
    }
    if !verdict.holds() {
        eprintln!("sluice: the machine was too busy: what was measured does not count");
        return Ok(TOO_LATE);
    }
    Ok(0)
}

/// Waits until the capture is open. A signal ends this process.
fn await_reader(capture: &mut Capture) -> Result<(), ProxyError> {
    if !capture.is_open(UNNOTICED)? {
        eprintln!("sluice: {}", capture.wait());
        while !capture.is_open(UNNOTICED)? {}
    }
    Ok(())
}

/// Prints where the proxy listens.
fn announce(addresses: &Addresses) {
    for address in &addresses.proxy {
        eprintln!("sluice: proxy (SOCKS5, HTTP) at {address}");
    }
    for (address, to) in &addresses.maps {
        eprintln!("sluice: {address} leads to {to}");
    }
    for address in &addresses.control {
        eprintln!("sluice: control at http://{address}/link");
    }
}

/// Returns the settings of a proxy for one program.
///
/// # Errors
/// An unknown congestion control.
pub fn for_program(
    link: LinkWords,
    cc: Option<&str>,
    has_host: bool,
    max_late: Option<Span>,
) -> Result<Settings, Error> {
    Ok(Settings {
        link,
        congestion_control: sluice_proxy::congestion_control(cc)?,
        listen: vec![Listen {
            address: Some(std::net::Ipv4Addr::LOCALHOST.into()),
            port: 0,
        }],
        maps: Vec::new(),
        control: None,
        token: None,
        has_host,
        max_late,
        capture: None,
        ending: Ending::new(),
    })
}

/// A recording that has not begun.
pub struct Report<'a> {
    /// The links, and the title.
    scenario: Scenario,
    name: &'a str,
    dir: &'a Path,
}

impl<'a> Report<'a> {
    /// Describes a recording with a title in the folder `dir`.
    ///
    /// # Errors
    /// The link cannot be read.
    pub fn new(link: &'a LinkArgs, dir: &'a Path, title: String) -> Result<Report<'a>, LinkError> {
        let mut scenario = link.words().scenario()?;
        scenario.title = title;
        let name = link.name().unwrap_or("proxy");
        Ok(Report {
            scenario,
            name,
            dir,
        })
    }

    fn begin(&self, proxy: &mut Proxy) -> Result<ProxyRecorder, ProxyRecordError> {
        warn_of_earlier(self.dir);
        ProxyRecorder::begin(proxy, &self.scenario, self.name, self.dir, crate::now())
    }
}

/// Warns if a folder has a recording, which a new one replaces. (Other files are never replaced.)
pub fn warn_of_earlier(dir: &Path) {
    if dir.join(sluice_recording::RUN_JSON).exists() {
        let dir = dir.display();
        eprintln!("sluice: warning: the earlier recording in {dir} is replaced");
    }
}

/// Draws the page of a recording and prints its place; or warns that the recording has more rows than are
/// kept in memory, because what was recorded has succeeded.
///
/// # Errors
/// The page cannot be drawn or written.
pub fn write_report(recording: &Recording, dir: &Path) -> Result<(), PageError> {
    let page = dir.join(sluice_recording::PAGE);
    match write_page(&page, &[recording]) {
        Ok(()) => eprintln!("sluice: report: {}", page.display()),
        Err(PageError::Read(error @ ReadError::TooMany { .. })) => {
            eprintln!("sluice: warning: there is no report: {error}");
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Runs a program that uses a proxy until it ends, and what it has sent has crossed the link.
/// Returns its exit status, and the recording if there is a `report`. If an algorithm does not return,
/// the status is [`ENDED`], and the recording stays as after `kill -9`.
///
/// # Errors
/// [`Error`].
pub fn run_program(
    program: &[OsString],
    settings: Settings,
    report: Option<&Report<'_>>,
) -> Result<(u8, Verdict, Option<Recording>), Error> {
    let mut running = None;
    let ending = settings.ending.clone();
    let ended = sluice_exec::run_beside(program, &ending, |signals| {
        let mut proxy = Proxy::open(settings)?;
        if let Some(capture) = proxy.capture() {
            capture.await_reader(signals, |what| eprintln!("sluice: {what}"))?;
        }
        let recorder = report.map(|report| report.begin(&mut proxy)).transpose()?;
        let addresses = proxy.addresses().proxy;
        let handle = proxy.handle();
        let thread = thread::Builder::new()
            .name("proxy".to_owned())
            .spawn(move || proxy.run())
            .map_err(|error| Error::Kernel("start a thread", error))?;
        running = Some((handle, thread, recorder));
        let address = addresses.first().expect("the proxy listens");
        Ok::<_, Error>(variables(&address.to_string()))
    });
    let mut hooks = HookWatch::new(&ending, Instant::now());
    let ((status, signals), (handle, thread, recorder)) = match (ended, running) {
        (Ok(ended), running) => (ended, running.expect("the proxy runs before the program")),
        (Err(error), None) => return Err(error),
        (Err(error), Some((handle, thread, recorder))) => {
            handle.end();
            let has_ended = hooks.join(thread).is_some();
            if let Some(recorder) = recorder.filter(|_| has_ended) {
                recorder.cut_short(error.to_string());
            }
            return Err(error);
        }
    };
    handle.drain();
    let has_ended = || {
        let is_lost = ending.is_abandoned() || hooks.hung(Instant::now()).is_some();
        is_lost || thread.is_finished()
    };
    sluice_exec::wait_beside(&signals, has_ended, || handle.end());
    let Some(verdict) = hooks.join(thread) else {
        return Ok((ENDED, Verdict::new(Default::default(), None), None));
    };
    let after = |error| Error::After {
        status,
        error: Box::new(error),
    };
    let recorded = recorder.map(ProxyRecorder::finish).transpose();
    let recorded = recorded.map_err(|error| after(error.into()))?;
    let verdict = verdict.map_err(|error| after(error.into()))?;
    Ok((status, verdict, recorded))
}

/// Returns the variables by which programs find a proxy.
fn variables(address: &str) -> Vec<(String, String)> {
    let http = format!("http://{address}");
    let mut variables = Vec::new();
    for name in [
        "http_proxy",
        "https_proxy",
        "ws_proxy",
        "wss_proxy",
        "ftp_proxy",
        // Not `socks5h://`: Python's httpx fails at the start of a program if it cannot use the address
        // of any of these variables, and it has no SOCKS of its own.
        "all_proxy",
    ] {
        variables.push((name.to_owned(), http.clone()));
        // curl does not read HTTP_PROXY, since CGI sets it from a header; many others do.
        variables.push((name.to_uppercase(), http.clone()));
    }
    for (name, value) in [
        ("no_proxy", DIRECT),
        ("NO_PROXY", DIRECT),
        // Node.js from version 24 on.
        ("NODE_USE_ENV_PROXY", "1"),
    ] {
        variables.push((name.to_owned(), value.to_owned()));
    }
    variables
}

/// The exit status if packets were late: EX_TEMPFAIL of sysexits.h, try again.
pub const TOO_LATE: u8 = 75;

/// The time after which a wait for the reader of a capture is reported.
const UNNOTICED: Duration = Duration::from_secs(2);

/// The program's own services do not cross the link, as in a namespace.
const DIRECT: &str = "localhost,127.0.0.1,::1";

const EXAMPLES: &str = "\
Examples:
  sluice proxy --link lte --listen 1080
  curl --proxy socks5h://localhost:1080 https://example.org/
  sluice proxy --link dsl --map 5433:db:5432 --control 8474
  curl -X PATCH localhost:8474/link -d '{\"down.rate\": \"500kbit/s\"}'
  curl -X POST localhost:8474/link/cut

Exit status: 0 after Ctrl-C or SIGTERM, 125 if Sluice fails, 75 if packets were
later than --max-late, or lost by the machine, and 70 if a queue from a file
failed and has `on_error end`, or does not return.";
