//! `sluice router`: packets between interfaces, through dummynet's rules, pipes and queues.

mod checking;
mod events;
mod flows;
mod hooks;
mod limits;
mod log;
mod reload;
mod save;
mod screen;
mod service;
pub(crate) mod status;
mod web;
mod workers;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use crate::number::{MOST_CORES, whole};
use crate::spin::SpinWord;
use clap::Subcommand as _;
use clap::builder::{PossibleValue, PossibleValuesParser};
use hooks::HookArgs;
use log::{Log, SyslogError};
use reload::Reloads;
use screen::Screen;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use sluice_core::packet::SPLIT_BELOW;
use sluice_core::spelling::question;
use sluice_core::{Rate, Span, Stop, units::Bytes};
use sluice_ipfw::DYNAMIC_BYTES;
use sluice_router::control::{Refused, Remark, default_socket, no_thread};
use sluice_router::process::confine::{self, User};
use sluice_router::process::{
    self, ConfigError, FailOpenError, POOL, PoolSize, PortSpec, Router, Settings, StartError,
    Status, StatusAsked, registry,
};
use workers::Workers;

/// What to bridge or queue, and how.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    override_usage = USAGE,
    after_help = EXAMPLES
)]
pub struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    #[arg(value_name = "PORT", required_unless_present_any = ["check", "forward", "local"], help = ports_help())]
    ports: Vec<PortSpec>,
    /// How to attach to an interface that is given without a kind; the router reports its choice
    /// and the reason
    #[arg(long, value_name = "KIND", default_value = registry::AUTO, value_parser = port_words())]
    port: String,
    #[command(flatten)]
    hooks: HookArgs,
    /// File of commands to start with, one per line as for `sluice ipfw`; read again on SIGHUP
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Only check a file of commands, report all errors and warnings, and exit with status 65 if
    /// there are errors; start no router
    #[arg(long, value_name = "FILE", conflicts_with_all = ["config", "ports"])]
    check: Option<PathBuf>,
    /// Socket for commands [default: sluice.sock in XDG_RUNTIME_DIR or /run]
    #[arg(long, value_name = "PATH", env = "SLUICE_SOCKET")]
    socket: Option<PathBuf>,
    /// The namespace that the ports are in: a name of `ip netns`, or a file such as
    /// /proc/PID/ns/net
    #[arg(long, value_name = "NAME|PATH")]
    netns: Option<PathBuf>,
    /// Make rule 65535 allow the packets that no other rule matches; it denies them otherwise, as
    /// in ipfw
    #[arg(long)]
    accept: bool,
    /// Follow dummynet where Sluice deliberately differs from it (docs/dummynet.md)
    #[arg(long)]
    compat: bool,
    /// Drop frames whose headers hide what rules match: damaged ones, chains of more than 16 IPv6
    /// headers, and fragments that hold, or could overwrite, a part of a TCP header
    #[arg(long)]
    strict: bool,
    /// Measure the round-trip times of the flows that pass, TCP's from their timestamps and QUIC's from
    /// their spin bit; see `sluice router status`
    #[arg(long)]
    rtt: bool,
    /// Split super-packets while any pipe is slower than this
    #[arg(long, value_name = "RATE", value_parser = Rate::parse, default_value_t = SPLIT_BELOW)]
    split_below: Rate,
    /// How to wait for due packets
    #[arg(long, value_enum, default_value_t = SpinWord::Adaptive)]
    spin: SpinWord,
    /// Let packets leave up to this long after they are due, so that one wake-up serves several: less
    /// processor time for less exact departures (50us) [default: 0]
    #[arg(long, value_name = "TIME", value_parser = Span::parse)]
    slack: Option<Span>,
    /// Share the work among this many loops, each with a core of its own: flows are spread over them,
    /// and each pipe belongs to one of them. Interfaces become `packet` ports; an `xdp` port needs a
    /// receive queue for each; `--forward` and `--local` have a queue of the kernel for each. With
    /// `per-bridge`, each pair of ports has a loop of its own
    #[arg(long, value_name = "NUMBER|per-bridge", default_value = "1")]
    workers: Workers,
    /// Pin the loop to this core (CPU affinity), or each worker to one of several (2,3); with `--spin
    /// always`, run nothing else on them
    #[arg(long, value_name = "CORE", value_delimiter = ',', value_parser = whole(0..=MOST_CORES))]
    cpu: Vec<usize>,
    /// Keep all cores of the machine out of idle states with a longer exit latency than this while
    /// the router runs (20us; on a virtual machine 0us, since the hypervisor's own latency is
    /// unknown). Shortens delays on a mostly idle machine, but uses more power; with 0us, cores are
    /// never idle. Requires write access to /dev/cpu_dma_latency, as root has [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = Span::parse)]
    cpu_latency: Option<Span>,
    /// Number of packets that may be queued at one time, at 2 KiB each
    #[arg(long, value_name = "PACKETS", default_value_t = POOL.slots,
          value_parser = whole(1024..=4_194_304_u32))]
    room: u32,
    /// Memory for the pipes and queues that masks create
    #[arg(long, value_name = "SIZE", value_parser = Bytes::parse,
          default_value_t = Bytes::new(DYNAMIC_BYTES))]
    dynamic_memory: Bytes,
    /// Let a kernel bridge connect the interfaces of each pair while the router cannot: within a second
    /// after it crashes, is killed or hangs, until it forwards again or another router is started.
    /// Then nothing is filtered or queued. Interfaces become `packet` ports
    #[arg(long, conflicts_with_all = ["check", "forward", "local"])]
    fail_open: bool,
    /// Become this user, a name or number, once the ports are open. Only one thread (`broker`) stays
    /// root's, to attach to interfaces that were created again and to read the configuration
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// Keep the privileges of the process after the start, and do not filter its system calls
    #[arg(long, conflicts_with = "user")]
    unconfined: bool,
    /// Seed of all random numbers, including hash keys: anyone who knows it can aim flows at one
    /// queue [default: random; 1 if all ports are files]
    #[arg(long, value_parser = whole(0..=u64::MAX))]
    seed: Option<u64>,
    /// Also send the log to syslog (entries of `log` rules, changes, limits that packets reach,
    /// --events): to /dev/log, or to this socket
    #[arg(long, value_name = "SOCKET", num_args = 0..=1, require_equals = true,
          default_missing_value = "/dev/log")]
    syslog: Option<PathBuf>,
    /// Log which pipes and queues begin and cease to drop packets, and interfaces that go down or come
    /// up; with --syslog also to syslog
    #[arg(long)]
    events: bool,
    #[command(flatten)]
    web: web::RouterPage,
    #[command(flatten)]
    flows: flows::FlowArgs,
    /// Print the summary as JSON, and entries of `log` rules as lines of JSON on standard error
    #[arg(long)]
    json: bool,
    /// Show no status line
    #[arg(short, long)]
    quiet: bool,
}

/// What to do with a router that runs.
#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Print what a running router does: ports, pipes, queues and flows over the last interval
    Status(status::Args),
    /// Print the configuration of a running router as commands, or write it to a file, with which
    /// `sluice router --config` starts
    Save(save::Args),
}

/// Returns the help of PORT, from the registry of ports.
fn ports_help() -> String {
    format!(
        "The ports, in pairs, each a transparent bridge: an interface such as eth0, or one of {} \
         (docs/ports.md)",
        registry::synopsis()
    )
}

/// Returns the kinds of port that attach to an interface, from the registry of ports.
fn port_words() -> PossibleValuesParser {
    let auto = PossibleValue::new(registry::AUTO).help(
        "The best kind for the interface: keeps super-packets whole where the interface has them",
    );
    let kinds = registry::attaching().map(|(kind, _)| PossibleValue::new(kind.name).help(kind.doc));
    PossibleValuesParser::new(std::iter::once(auto).chain(kinds))
}

impl Args {
    /// Returns whether packets of the kernel's own stack are queued, instead of those of ports.
    #[cfg(test)]
    pub fn queues_the_host(&self) -> bool {
        self.hooks.hooked().is_ok_and(|hooked| hooked.is_some())
    }
}

/// The reason why nothing is routed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The arguments contradict each other.
    #[error("{0}")]
    Arguments(String),
    /// The router cannot start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// No kernel bridge can take over.
    #[error(transparent)]
    FailOpen(#[from] FailOpenError),
    /// There is no such user.
    #[error(transparent)]
    User(#[from] confine::UserError),
    /// Nothing tells the guardian that the router lives.
    #[error("cannot start the thread that gives signs of life: {}", no_thread(.0))]
    Heartbeat(io::Error),
    /// Nothing reloads the configuration.
    #[error("cannot start the thread that reloads the configuration: {}", no_thread(.0))]
    Reload(io::Error),
    /// Nothing prints.
    #[error("cannot start the thread that prints: {}", no_thread(.0))]
    Screen(io::Error),
    /// The log cannot be sent to syslog.
    #[error(transparent)]
    Syslog(#[from] SyslogError),
    /// The file to be checked cannot be read.
    #[error(transparent)]
    Check(#[from] ConfigError),
    /// An algorithm from a file ended the run.
    #[error("the router was ended: {0}")]
    Algorithm(String),
    /// A running router cannot be shown.
    #[error(transparent)]
    Status(#[from] status::Error),
    /// The configuration cannot be saved.
    #[error(transparent)]
    Save(#[from] save::Error),
    /// The page cannot be served.
    #[error(transparent)]
    Web(#[from] crate::page::Error),
    /// The file of flows cannot be opened.
    #[error(transparent)]
    Flows(#[from] flows::Error),
    /// Signals cannot be caught.
    #[error("cannot catch signals: {0}")]
    Signal(io::Error),
    /// Standard output cannot be written.
    #[error("cannot write to standard output: {0}")]
    Output(#[from] io::Error),
}

impl Error {
    /// Returns the exit status.
    pub fn exit_status(&self) -> u8 {
        match self {
            Error::Status(error) => error.exit_status(),
            Error::Save(error) => error.exit_status(),
            _ => 1,
        }
    }
}

/// Routes until a signal ends it.
///
/// # Errors
/// [`Error`]. An error in a file of commands is reported with its line and column.
pub fn run(args: &Args) -> Result<ExitCode, Error> {
    match &args.action {
        Some(Action::Status(args)) => Ok(status::run(args)?),
        Some(Action::Save(args)) => Ok(save::run(args)?),
        None => route(args, None),
    }
}

/// Like [`run`], and starts with these commands instead of a file.
///
/// # Errors
/// As for [`run`].
pub fn route(args: &Args, commands: Option<String>) -> Result<ExitCode, Error> {
    let engine = sluice_ipfw::Settings {
        accepts_by_default: args.accept,
        compat: args.compat,
        dynamic_bytes: args.dynamic_memory.as_u64(),
        ..sluice_ipfw::Settings::default()
    };
    if let Some(path) = args.check.as_ref().or(args.config.as_ref()) {
        reload::find_modules_beside(path);
    }
    if let Some(path) = &args.check {
        return Ok(checking::check(path, &engine)?);
    }
    if let Some(error) = misspelt(&args.ports) {
        return Err(Error::Arguments(error));
    }
    if let Some(path) = &args.config {
        reload::resolve_algorithms(path, &engine);
    }
    let ports = args
        .ports
        .iter()
        .map(|port| match registry::kind(&args.port) {
            Some(kind) => port.clone().or_kind(kind),
            None => port.clone(),
        });
    let mut settings = Settings {
        ports: ports.collect(),
        hooked: args.hooks.hooked().map_err(Error::Arguments)?,
        namespace: args.netns.as_ref().map(|name| namespace(name)),
        config: args.config.clone(),
        commands,
        socket: Some(args.socket.clone().unwrap_or_else(default_socket)),
        engine,
        seed: args.seed,
        split_below: args.split_below,
        is_strict: args.strict,
        measures_rtt: args.rtt,
        is_confined: !args.unconfined,
        user: args.user.as_deref().map(User::find).transpose()?,
        spin: args.spin.into(),
        slack: args.slack.unwrap_or(Span::ZERO),
        workers: match args.workers {
            Workers::Number(number) => number,
            Workers::PerBridge => args.ports.len() / 2,
        },
        by_bridge: args.workers == Workers::PerBridge,
        cores: args.cpu.clone(),
        cpu_latency: args.cpu_latency,
        pool: PoolSize {
            slots: args.room,
            large: (args.room / 32).max(64),
        },
        ending: Stop::new(),
    };
    // Before this process has threads.
    let mut guardian = args.fail_open.then(|| settings.fail_open()).transpose()?;
    // Signals are caught before anything is opened, so that everything is closed in order.
    let signals = catch_signals(&settings)?;
    let mut log = Log::new(args.json, args.syslog.as_deref())?;
    let page = web::prepare(&args.web)?;
    let flow_file = flows::open(&args.flows)?;
    let mut router = match Router::start_beside(&settings, guardian.as_mut()) {
        Err(StartError::Ended) => {
            eprintln!("sluice: {}", StartError::Ended);
            return Ok(ExitCode::SUCCESS);
        }
        Err(StartError::Config(first @ ConfigError::Refused { .. })) if args.config.is_some() => {
            return Ok(checking::refuse(&settings, &first));
        }
        started => started?,
    };
    let server = match web::serve(page, &router) {
        Ok(server) => server,
        Err(error) => {
            router.stop();
            return Err(error.into());
        }
    };
    if let Some(server) = server.as_ref().filter(|_| !args.quiet) {
        eprintln!("sluice: page and metrics at {}", server.address());
    }
    log.attach(router.take_log());
    let flow_log = flow_file.map(|file| flows::FlowLog::start(file, router.watcher().clone()));
    let flow_log = match flow_log.transpose() {
        Ok(flow_log) => flow_log,
        Err(error) => {
            router.stop();
            return Err(error.into());
        }
    };
    // Last, because a router that is stopped from here on is one that was started.
    if let Some(guardian) = guardian
        && let Err(error) = router.guard(guardian)
    {
        router.stop();
        return Err(Error::Heartbeat(error));
    }
    announce(args, &settings, &router);
    let (screen, printer) = Screen::start(args.quiet).map_err(Error::Screen)?;
    attend(args, &router, &signals, &log, &screen)?;
    drop(server);
    if let Some(flow_log) = flow_log {
        flow_log.finish();
    }
    let failure = router.failure().map(str::to_owned);
    let status = router.stop();
    screen.print(log.drain());
    drop(screen);
    printer.end();
    conclude(args, &status)?;
    match failure {
        Some(why) => Err(Error::Algorithm(why)),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Returns an error if a single port, which has no partner, is probably a misspelt action.
fn misspelt(ports: &[PortSpec]) -> Option<String> {
    let [port] = ports else { return None };
    let actions = Action::augment_subcommands(clap::Command::new(""));
    let actions: Vec<&str> = actions
        .get_subcommands()
        .map(clap::Command::get_name)
        .collect();
    let word = port.argument();
    let meant = port.kind().is_none().then(|| question(word, actions))??;
    Some(format!("ports come in pairs, and `{word}` is one: {meant}"))
}

/// Returns the path of a namespace. `ip netns` keeps its names in one folder.
fn namespace(name: &std::path::Path) -> PathBuf {
    if name.components().count() == 1 {
        PathBuf::from("/run/netns").join(name)
    } else {
        name.to_owned()
    }
}

/// Receives signals, one after another, on a thread of their own.
fn catch_signals(settings: &Settings) -> Result<Receiver<i32>, Error> {
    let confinement = settings
        .is_confined
        .then(|| process::confinement(settings.user));
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).map_err(Error::Signal)?;
    let ending = settings.ending.clone();
    let (sender, receiver) = channel();
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            if let Some(confinement) = confinement
                && let Err(error) = confine::confine(confinement)
            {
                eprintln!("sluice: warning: the thread of signals keeps its privileges: {error}");
            }
            for signal in signals.forever() {
                if signal != SIGHUP {
                    service::ending();
                    ending.stop();
                }
                if sender.send(signal).is_err() {
                    break;
                }
            }
        })
        .map_err(Error::Signal)?;
    Ok(receiver)
}

/// Returns a line for each warning about a configuration.
fn warnings(path: &std::path::Path, remarks: &[Remark]) -> String {
    let line = |remark: &Remark| {
        let place = process::at(path, &remark.place);
        format!("sluice: {place}: warning: {}\n", remark.text)
    };
    remarks.iter().map(line).collect()
}

fn announce(args: &Args, settings: &Settings, router: &Router) {
    if let Some(path) = &args.config {
        eprint!("{}", warnings(path, router.remarks()));
    } else if !args.accept {
        eprintln!(
            "sluice: warning: no rule allows packets yet: rule 65535 denies all packets (--accept changes this)"
        );
    }
    for remark in router.port_remarks() {
        eprintln!("sluice: warning: {remark}");
    }
    for choice in router.choices() {
        if !args.quiet {
            eprintln!(
                "sluice: {}: {} port ({})",
                choice.name, choice.kind, choice.reason
            );
            for sentence in &choice.cannot {
                eprintln!("sluice: {}: note: {sentence}", choice.name);
            }
        }
    }
    if let Some(latency) = router.cpu_latency()
        && !args.quiet
    {
        eprintln!(
            "sluice: all cores of this machine are kept out of idle states that take longer than {} us to leave",
            latency.as_ns() / 1_000
        );
    }
    let stays_root = settings.is_confined && settings.user.is_none() && confine::is_root();
    if stays_root && !args.quiet {
        let kept = match settings.hooked {
            Some(_) => " but CAP_NET_ADMIN of the packet loop",
            None => "",
        };
        eprintln!(
            "sluice: the threads have no capabilities{kept}, but remain root's; --user NAME makes them another user's"
        );
    }
    if !args.quiet {
        let names: Vec<String> = settings.ports.iter().map(ToString::to_string).collect();
        let pairs: Vec<String> = names.chunks(2).map(|pair| pair.join(" - ")).collect();
        let routed = match &settings.hooked {
            Some(hooked) => hooks::describe(hooked),
            None => pairs.join(", "),
        };
        let socket = settings
            .socket
            .as_deref()
            .unwrap_or(std::path::Path::new("-"));
        eprintln!(
            "sluice: routing {}; commands at {}; Ctrl-C ends it",
            routed,
            socket.display()
        );
    }
}

/// Draws the status line and handles signals until one of them ends the router.
fn attend(
    args: &Args,
    router: &Router,
    signals: &Receiver<i32>,
    log: &Log,
    screen: &Screen,
) -> Result<(), Error> {
    let mut line = StatusLine::default();
    let mut service = service::Service::ready(router);
    let mut seen = 0;
    let mut events = events::Events::default();
    let mut limits = limits::Limits::new();
    let reloads = Reloads::start(router.reloader(), args.config.clone(), screen.clone());
    let reloads = reloads.map_err(Error::Reload)?;
    loop {
        let mut entries = log.drain() + &new_changes(router, log, &mut seen);
        entries += &log.events(&limits.look(|| router.ask_status()));
        if args.events {
            let events = events.look(router);
            router.watcher().note_events(events.len() as u64);
            entries += &log.events(&events);
        }
        screen.print(entries);
        match signals.recv_timeout(LOOK) {
            Ok(SIGHUP) => reloads.ask(),
            Ok(_) | Err(RecvTimeoutError::Disconnected) => break service::ending(),
            Err(RecvTimeoutError::Timeout) if router.has_ended() => break,
            Err(RecvTimeoutError::Timeout) => {
                if let Some(warning) = service.look(router) {
                    screen.print(warning);
                }
                if screen.has_status()
                    && let Some(text) = line.look(|| router.ask_status())
                {
                    screen.show(text);
                }
            }
        }
    }
    reloads.end(screen);
    screen.print(new_changes(router, log, &mut seen) + &log.rest());
    Ok(())
}

/// Returns the text of the changes of the configuration since the last call.
fn new_changes(router: &Router, log: &Log, seen: &mut u64) -> String {
    let (changes, noted) = router.changes_since(*seen);
    let text = log.changes_since(*seen, &changes, noted);
    *seen = noted;
    text
}

/// The text of the status line.
#[derive(Default)]
struct StatusLine {
    looks: u64,
    /// A request that is not answered yet, with the number of the check at which it was sent.
    asked: Option<(StatusAsked, u64)>,
    last: Option<Status>,
}

impl StatusLine {
    /// Returns the new text of the line if it changed. Call it every [`LOOK`]. It never blocks:
    /// while the loop executes a long command, the line reports that the loop does not answer.
    fn look(&mut self, ask: impl FnOnce() -> Result<StatusAsked, Refused>) -> Option<String> {
        self.looks += 1;
        let Some((asked, since)) = &self.asked else {
            if self.looks.is_multiple_of(LOOKS) {
                // Refused while clients' commands are queued: they will be done at the next check.
                self.asked = ask().ok().map(|asked| (asked, self.looks));
            }
            return None;
        };
        let waited = self.looks - since;
        match asked.poll() {
            Ok(None) if waited.is_multiple_of(LOOKS) => {
                let seconds = waited / LOOKS;
                Some(format!(
                    "the packet loop has not answered for {seconds} s: is it executing a long command?"
                ))
            }
            Ok(None) => None,
            Ok(Some(status)) => {
                self.asked = None;
                let text = status.line(self.last.as_ref().unwrap_or(&status));
                self.last = Some(status);
                Some(text)
            }
            // Programs that monitor the loop see this too.
            Err(_) => {
                self.asked = None;
                None
            }
        }
    }
}

fn conclude(args: &Args, status: &Status) -> Result<(), Error> {
    let text = if args.json {
        let value = serde_json::to_string_pretty(status).map_err(io::Error::from)?;
        format!("{value}\n")
    } else {
        status.to_string()
    };
    if args.flows.is_stdout() {
        eprint!("{text}");
        return Ok(());
    }
    Ok(crate::print(&text)?)
}

const USAGE: &str = "\
sluice router [OPTIONS] <PORT> <PORT>...
       sluice router [OPTIONS] --forward|--local [<INTERFACES>]
       sluice router [OPTIONS] --check <FILE>
       sluice router <status|save>";

const EXAMPLES: &str = "\
Examples:
  sluice router eth0 eth1 --config rules.conf
  sluice router --forward wan --config rules.conf --accept
  sluice router status";

/// Interval between the checks whether all files have been read to their end.
const LOOK: Duration = Duration::from_millis(100);
/// Number of checks between two status lines: one line per second.
const LOOKS: u64 = 10;

#[cfg(test)]
mod tests {
    use sluice_router::control::{Answered, Builder, inbox};

    use super::*;

    #[test]
    fn a_misspelt_action_is_not_taken_for_a_port() {
        let said = |words: &[&str]| {
            let ports: Vec<PortSpec> = words.iter().map(|word| word.parse().unwrap()).collect();
            misspelt(&ports)
        };
        assert_eq!(
            said(&["stauts"]).as_deref(),
            Some("ports come in pairs, and `stauts` is one: did you mean `status`?")
        );
        assert!(said(&["svae"]).is_some_and(|text| text.ends_with("`save`?")));
        assert_eq!(said(&["eth0"]), None);
        assert_eq!(said(&["packet:stauts"]), None);
        assert_eq!(said(&["stauts", "eth1"]), None);
    }

    /// Longer than the 30 s after which other questions time out.
    #[test]
    fn a_loop_that_is_busy_for_long_ends_nothing() {
        let (mut inbox, orders) = inbox::<Status>(Builder::default()).unwrap();
        let mut line = StatusLine::default();
        let mut looks = |count: u64| -> Vec<String> {
            let look = |_| line.look(|| StatusAsked::of(&orders));
            (0..count).filter_map(look).collect()
        };
        // Asked after one second; then one more minute.
        let said = looks(610);
        let busy = |seconds| {
            format!(
                "the packet loop has not answered for {seconds} s: is it executing a long command?"
            )
        };
        assert_eq!(said, (1..=60).map(busy).collect::<Vec<_>>());
        let mut answer = |sent: u64| {
            let order = inbox.take().expect("it was asked once");
            assert!(inbox.take().is_none(), "and not again");
            let status = Status {
                uptime_ns: sent * 1_000_000_000,
                ..Status::default()
            };
            order.answer.send(Answered::Status(Box::new(status)));
        };
        answer(61);
        assert_eq!(looks(11), ["dropped 0"]);
        answer(62);
        assert_eq!(looks(10), ["dropped 0"]);
    }
}
