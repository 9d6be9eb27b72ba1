//! `sluice router`: packets between interfaces, through dummynet's rules, pipes and queues.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use sluice_core::packet::SPLIT_BELOW;
use sluice_core::{Rate, Span};
use sluice_net::port::{PoolSize, PortSpec, Spin, registry};
use sluice_router::control::{Refused, Remark, default_socket};
use sluice_router::process::{
    self, ConfigError, POOL, Router, Settings, StartError, Status, StatusAsked,
};

/// What to route, and how.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[arg(value_name = "PORT", required_unless_present = "check", help = ports_help())]
    ports: Vec<PortSpec>,
    /// How to attach to interfaces that are named without a kind; what is chosen is reported, with
    /// the reason
    #[arg(long, value_name = "KIND", default_value = registry::AUTO, value_parser = port_words())]
    port: String,
    /// Commands to start with, one per line as for `sluice ipfw`; read again on SIGHUP
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Only say what is wrong with a file of commands; runs nothing
    #[arg(long, value_name = "FILE", conflicts_with_all = ["config", "ports"])]
    check: Option<PathBuf>,
    /// Where it takes commands [default: sluice.sock in XDG_RUNTIME_DIR or /run]
    #[arg(long, value_name = "PATH", env = "SLUICE_SOCKET")]
    socket: Option<PathBuf>,
    /// The namespace that the ports are in: a name of `ip netns`, or a file such as /proc/PID/ns/net
    #[arg(long, value_name = "NAME|PATH")]
    netns: Option<PathBuf>,
    /// Let rule 65535 allow what no rule matches; it denies otherwise, as in ipfw
    #[arg(long)]
    accept: bool,
    /// Follow dummynet where we knowingly differ (docs/dummynet.md)
    #[arg(long)]
    compat: bool,
    /// Split super-packets while any pipe is slower than this
    #[arg(long, value_name = "RATE", value_parser = Rate::parse, default_value_t = SPLIT_BELOW)]
    split_below: Rate,
    /// How due instants are met
    #[arg(long, value_enum, default_value_t = SpinWord::Adaptive)]
    spin: SpinWord,
    /// Keep the loop on this core (CPU affinity); with `--spin always` nothing else should run there
    #[arg(long, value_name = "CORE")]
    cpu: Option<usize>,
    /// Keep all cores of the machine, while this runs, out of idle states that take longer to leave (20us; on a
    /// virtual machine 0us, since what its hypervisor takes is not known): packets get sooner through a machine
    /// that has little to do, at the price of power and, with 0us, of cores that never rest. Takes root
    /// [default: as the machine idles]
    #[arg(long, value_name = "TIME", value_parser = Span::parse)]
    cpu_latency: Option<Span>,
    /// Packets that may wait at one time, at 2 KiB each
    #[arg(long, value_name = "PACKETS", default_value_t = POOL.slots,
          value_parser = clap::value_parser!(u32).range(1024..=4_194_304))]
    room: u32,
    /// Seed of everything that is drawn, hash keys included: who knows it can aim flows at one queue
    /// [default: random; 1 if all ports are files]
    #[arg(long)]
    seed: Option<u64>,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
    /// Show no status line
    #[arg(short, long)]
    quiet: bool,
}

/// The words for how due instants are met.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum SpinWord {
    /// Sleep: some 30 us late, next to no processor time
    None,
    /// Sleep, and burn the last microseconds
    Adaptive,
    /// Stay awake, and keep packets' way through the kernel in the caches: for a core of its own
    Always,
}

/// What may stand for PORT, from the registry of ports.
fn ports_help() -> String {
    format!(
        "Its ports, in pairs, each a transparent bridge: an interface such as eth0, or one of {} \
         (docs/ports.md)",
        registry::synopsis()
    )
}

/// The kinds of port that attach to an interface, from the registry of ports.
fn port_words() -> PossibleValuesParser {
    let auto = PossibleValue::new(registry::AUTO)
        .help("What serves it best: lets super-packets through where there are any");
    let kinds = registry::attaching().map(|(kind, _)| PossibleValue::new(kind.name).help(kind.doc));
    PossibleValuesParser::new(std::iter::once(auto).chain(kinds))
}

/// Why nothing is routed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The file that was to be checked is wrong.
    #[error(transparent)]
    Check(#[from] ConfigError),
    /// Signals cannot be caught.
    #[error("cannot catch signals: {0}")]
    Signal(io::Error),
    /// Standard output cannot be written.
    #[error("cannot write to standard output: {0}")]
    Output(#[from] io::Error),
}

/// Routes until a signal says otherwise.
///
/// # Errors
/// [`Error`]. What is wrong with a file of commands is told with its line and column.
pub fn run(args: &Args) -> Result<ExitCode, Error> {
    let engine = sluice_ipfw::Settings {
        accepts_by_default: args.accept,
        compat: args.compat,
        ..sluice_ipfw::Settings::default()
    };
    if let Some(path) = &args.check {
        let remarks = process::check(path, &engine)?;
        warn(path, &remarks);
        return Ok(ExitCode::SUCCESS);
    }
    let ports = args
        .ports
        .iter()
        .map(|port| match registry::kind(&args.port) {
            Some(kind) => port.clone().or_kind(kind),
            None => port.clone(),
        });
    let settings = Settings {
        ports: ports.collect(),
        namespace: args.netns.as_ref().map(|name| namespace(name)),
        config: args.config.clone(),
        socket: Some(args.socket.clone().unwrap_or_else(default_socket)),
        engine,
        seed: args.seed,
        split_below: args.split_below,
        spin: match args.spin {
            SpinWord::None => Spin::None,
            SpinWord::Adaptive => Spin::Adaptive,
            SpinWord::Always => Spin::Always,
        },
        core: args.cpu,
        cpu_latency: args.cpu_latency,
        pool: PoolSize {
            slots: args.room,
            large: (args.room / 32).max(64),
        },
    };
    // Caught before anything is opened, so that everything is closed in order.
    let signals = catch_signals()?;
    let router = Router::start(&settings)?;
    announce(args, &settings, &router);
    attend(args, &router, &signals);
    conclude(args, &router.stop())?;
    Ok(ExitCode::SUCCESS)
}

/// A name is one of `ip netns`, which keeps them in one folder.
fn namespace(name: &std::path::Path) -> PathBuf {
    if name.components().count() == 1 {
        PathBuf::from("/run/netns").join(name)
    } else {
        name.to_owned()
    }
}

/// Signals, one after another, on a thread of their own.
fn catch_signals() -> Result<Receiver<i32>, Error> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).map_err(Error::Signal)?;
    let (sender, receiver) = channel();
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            for signal in signals.forever() {
                if sender.send(signal).is_err() {
                    break;
                }
            }
        })
        .map_err(Error::Signal)?;
    Ok(receiver)
}

fn warn(path: &std::path::Path, remarks: &[Remark]) {
    for remark in remarks {
        eprintln!(
            "sluice: {}: warning: {}",
            process::at(path, &remark.place),
            remark.text
        );
    }
}

fn announce(args: &Args, settings: &Settings, router: &Router) {
    if let Some(path) = &args.config {
        warn(path, router.remarks());
    } else if !args.accept {
        eprintln!(
            "sluice: warning: no rule allows anything yet: rule 65535 denies all packets (--accept changes that)"
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
    if !args.quiet {
        let names: Vec<String> = settings.ports.iter().map(ToString::to_string).collect();
        let pairs: Vec<String> = names.chunks(2).map(|pair| pair.join(" - ")).collect();
        let socket = settings
            .socket
            .as_deref()
            .unwrap_or(std::path::Path::new("-"));
        eprintln!(
            "sluice: routing {}; commands at {}; Ctrl-C ends it",
            pairs.join(", "),
            socket.display()
        );
    }
}

/// Draws the status, and does what signals say, until one says to end.
fn attend(args: &Args, router: &Router, signals: &Receiver<i32>) {
    let is_shown = !args.quiet && io::stderr().is_terminal();
    let target = if is_shown {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let style = ProgressStyle::with_template("{wide_msg}").expect("the template is a constant");
    let bar = ProgressBar::with_draw_target(None, target).with_style(style);
    let mut line = StatusLine::default();
    loop {
        match signals.recv_timeout(LOOK) {
            Ok(SIGHUP) => bar.suspend(|| reload(args, router)),
            Ok(_) | Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) if router.has_ended() => break,
            Err(RecvTimeoutError::Timeout) => {
                if is_shown && let Some(text) = line.look(|| router.ask_status()) {
                    bar.set_message(text);
                }
            }
        }
    }
    bar.finish_and_clear();
}

/// What the status line says.
#[derive(Default)]
struct StatusLine {
    looks: u64,
    /// A question that is not answered yet, and at which look it was asked.
    asked: Option<(StatusAsked, u64)>,
    last: Option<Status>,
}

impl StatusLine {
    /// To be called every [`LOOK`]: what the line says from now on, if something else. Never waits: while the loop
    /// carries out a long command, the line says that it does not answer.
    fn look(&mut self, ask: impl FnOnce() -> Result<StatusAsked, Refused>) -> Option<String> {
        self.looks += 1;
        let Some((asked, since)) = &self.asked else {
            if self.looks.is_multiple_of(LOOKS) {
                // Refused where clients' commands wait: they will be done by the next time.
                self.asked = ask().ok().map(|asked| (asked, self.looks));
            }
            return None;
        };
        let waited = self.looks - since;
        match asked.poll() {
            Ok(None) if waited.is_multiple_of(LOOKS) => {
                let seconds = waited / LOOKS;
                Some(format!(
                    "the packet loop has not answered for {seconds} s: a long command?"
                ))
            }
            Ok(None) => None,
            Ok(Some(status)) => {
                self.asked = None;
                let text = status.line(self.last.as_ref().unwrap_or(&status));
                self.last = Some(status);
                Some(text)
            }
            // Whoever watches over the loop sees that too.
            Err(_) => {
                self.asked = None;
                None
            }
        }
    }
}

fn reload(args: &Args, router: &Router) {
    match (router.reload(), &args.config) {
        (Ok(remarks), Some(path)) => {
            warn(path, &remarks);
            eprintln!("sluice: {} is in force", path.display());
        }
        (Ok(_), None) => {}
        (Err(error), _) => eprintln!("sluice: {error}; the old configuration goes on"),
    }
}

fn conclude(args: &Args, status: &Status) -> Result<(), Error> {
    let text = if args.json {
        let value = serde_json::to_string_pretty(status).map_err(io::Error::from)?;
        format!("{value}\n")
    } else {
        status.to_string()
    };
    Ok(crate::print(&text)?)
}

/// How often it is looked whether all files are through.
const LOOK: Duration = Duration::from_millis(100);
/// The status line is drawn at every so many looks: once a second.
const LOOKS: u64 = 10;

#[cfg(test)]
mod tests {
    use sluice_router::control::{Answered, inbox};

    use super::*;

    /// For longer than the 30 s after which other questions are given up.
    #[test]
    fn a_loop_that_is_busy_for_long_ends_nothing() {
        let (mut inbox, orders) = inbox::<Status>().unwrap();
        let mut line = StatusLine::default();
        let mut looks = |count: u64| -> Vec<String> {
            let look = |_| line.look(|| StatusAsked::of(&orders));
            (0..count).filter_map(look).collect()
        };
        // Asked after a second; a minute more.
        let said = looks(610);
        let busy =
            |seconds| format!("the packet loop has not answered for {seconds} s: a long command?");
        assert_eq!(said, (1..=60).map(busy).collect::<Vec<_>>());
        let mut answer = |sent: u64| {
            let order = inbox.take().expect("it was asked once");
            assert!(inbox.take().is_none(), "and not again");
            let status = Status {
                uptime_ns: sent * 1_000_000_000,
                ..Status::default()
            };
            order.answer(Answered::Status(Box::new(status)));
        };
        answer(61);
        assert_eq!(looks(11), ["dropped 0"]);
        answer(62);
        assert_eq!(looks(10), ["dropped 0"]);
    }
}
