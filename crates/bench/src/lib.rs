//! Measures Sluice's packet path on this machine and compares it with the kernel's.
//!
//! All measurements use namespaces created for them and real traffic of the kernel. They are made
//! in rounds: every round measures each *contender* (a forwarding method) once, one after another,
//! so that other load on the machine affects all of them equally. Figures are medians over the
//! rounds, and ratios to the kernel's own forwarding.
//!
//! - [`path`](Section::Path): TCP throughput, packet rates, round trips and processor time of every
//!   contender;
//! - [`time`](Section::Time): accuracy of delays, rates and spacings;
//! - [`shaped`](Section::Shaped): fq_codel at 1 Gbit/s under sixteen transfers;
//! - [`overload`](Section::Overload): ten times more packets than a pipe can carry;
//! - [`cores`](Section::Cores): one pipe shared by workers on two cores.

mod chart;
mod contender;
mod cores;
mod figures;
mod idle;
mod machine;
mod network;
mod path;
mod places;
mod shaped;
mod statistics;
mod text;
mod time;
mod traffic;
mod uplink;

pub use chart::{png, svg};
pub use contender::{CONTENDERS, Contender};
pub use figures::{Accounts, Better, Cell, Figures, IdleFigures, METRICS, Metric, Rest};
pub use shaped::overload;
pub use text::{json, text};
pub use uplink::{UPLINK, Uplink, UplinkFigures, UplinkPlan, uplink};

use machine::Ticks;
use sluice_core::{Span, Stop};
use sluice_load::TrafficError;
use sluice_net::cores::{CoreError, IdleLimit, IdleLimitError};
use sluice_net::namespace::{
    LinkError, NamespaceError, OffloadError, Privilege, PrivilegeError, SysctlError,
    acquire_privilege,
};
pub use sluice_net::port::Spin;
use sluice_net::port::nfqueue::NfqueueError;
use sluice_net::port::packet::PacketError;
use sluice_net::port::tun::TunError;
use sluice_net::port::{OpenError, PoolError};
use sluice_router::process::StartError;

/// A part of the bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Section {
    /// Forwarding methods compared.
    Path,
    /// Delay, rate and spacing.
    Time,
    /// Sixteen transfers and a ping through fq_codel at 1 Gbit/s.
    Shaped,
    /// Small packets at ten times a pipe's rate.
    Overload,
    /// One pipe shared by workers on two cores.
    Cores,
}

impl Section {
    /// All sections, in the order in which they run.
    pub const ALL: [Section; 5] = [
        Section::Path,
        Section::Time,
        Section::Shaped,
        Section::Overload,
        Section::Cores,
    ];

    /// Returns the section as one word.
    pub const fn name(self) -> &'static str {
        match self {
            Section::Path => "path",
            Section::Time => "time",
            Section::Shaped => "shaped",
            Section::Overload => "overload",
            Section::Cores => "cores",
        }
    }
}

/// The measurements, and their durations.
#[derive(Clone, Debug)]
pub struct BenchPlan {
    /// The sections.
    pub sections: Vec<Section>,
    /// The contenders, by their index in [`CONTENDERS`].
    pub contenders: Vec<usize>,
    /// The figures of the path section, by their names in [`METRICS`]; all of them if empty.
    pub metrics: Vec<&'static str>,
    /// The number of measurements of each contender.
    pub rounds: u32,
    /// Length of one throughput measurement.
    pub transfer: Span,
    /// Length of one measurement of a rate.
    pub rate: Span,
    /// Length of the overload.
    pub overload: Span,
    /// The way in which Sluice's loop meets its deadlines in the path and shaped sections.
    pub spin: Spin,
    /// Whether Sluice's loop has real-time priority in the path section, where the hosts run on the
    /// same cores: it then preempts them for every packet, and gets smaller batches.
    pub real_time: bool,
    /// The core that each worker of Sluice's is pinned to, in turn; empty leaves the choice to the
    /// kernel.
    pub cores: Vec<usize>,
    /// The limit on the exit latency of the cores' idle states during the whole bench. Without one,
    /// the cores enter idle states as the machine allows, and the idle round trip is also measured
    /// with cores that are kept out of them.
    pub cpu_latency: Option<Span>,
    /// Settings of both hosts in the path section, by name and value
    /// (`net.ipv4.tcp_notsent_lowat`), in addition to the kernel's defaults.
    pub host_settings: Vec<(String, String)>,
    /// Whether both hosts of the path section serve each TCP flow by a thread of its own in all
    /// figures.
    pub thread_per_flow: bool,
}

impl BenchPlan {
    /// Returns a plan for everything, in about a quarter of an hour.
    pub fn full() -> BenchPlan {
        BenchPlan {
            sections: Section::ALL.to_vec(),
            contenders: (0..CONTENDERS.len()).collect(),
            metrics: Vec::new(),
            rounds: 3,
            transfer: Span::from_ms(1200),
            rate: Span::from_secs(10),
            overload: Span::from_secs(60),
            spin: Spin::Adaptive,
            real_time: false,
            cores: Vec::new(),
            cpu_latency: None,
            host_settings: Vec::new(),
            thread_per_flow: false,
        }
    }

    /// Returns a plan that measures everything once and briefly: a check that it works, and a rough
    /// estimate of speed.
    pub fn quick() -> BenchPlan {
        BenchPlan {
            rounds: 1,
            transfer: Span::from_ms(500),
            rate: Span::from_secs(2),
            overload: Span::from_secs(3),
            ..BenchPlan::full()
        }
    }

    /// Returns the core that a worker is pinned to.
    fn core(&self, worker: usize) -> Option<usize> {
        self.cores.iter().cycle().nth(worker).copied()
    }
}

/// The reason why the bench could not measure anything.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The process may not create namespaces.
    #[error("the bench creates network namespaces: {0}")]
    Privilege(Privilege),
    /// No user namespace can be entered.
    #[error(transparent)]
    UserNamespace(#[from] PrivilegeError),
    /// A namespace cannot be created or entered.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// An interface cannot be created or configured.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// A setting cannot be changed.
    #[error(transparent)]
    Sysctl(#[from] SysctlError),
    /// An offload cannot be changed.
    #[error(transparent)]
    Offload(#[from] OffloadError),
    /// A packet port cannot be opened.
    #[error(transparent)]
    Packet(#[from] PacketError),
    /// A TUN device cannot be opened.
    #[error(transparent)]
    Tun(#[from] TunError),
    /// A port on an interface cannot be opened.
    #[error(transparent)]
    Attach(#[from] OpenError),
    /// A queue of the kernel's cannot be installed.
    #[error(transparent)]
    Nfqueue(#[from] NfqueueError),
    /// A router does not start.
    #[error(transparent)]
    Router(#[from] StartError),
    /// A thread cannot be pinned to a core.
    #[error(transparent)]
    Core(#[from] CoreError),
    /// Idle states cannot be limited.
    #[error(transparent)]
    Idle(#[from] IdleLimitError),
    /// There is no memory for packets.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The traffic failed.
    #[error(transparent)]
    Traffic(#[from] TrafficError),
}

/// Receives the progress of the bench.
pub trait Progress {
    /// Called with the measurement that starts, its index and the number of measurements.
    fn step(&mut self, number: usize, of: usize, what: &str);
}

/// Prepares the process: enters a user namespace if the process needs one. Call this while the
/// process has one thread.
///
/// # Errors
/// No user namespace can be entered.
pub fn prepare() -> Result<(), BenchError> {
    Ok(acquire_privilege()?)
}

/// Measures what `plan` names. Returns the figures measured so far if `interrupt` is set.
///
/// A contender that this machine cannot run, or a congestion control that it lacks, is left out and
/// noted in [`Figures::notes`].
///
/// # Errors
/// The networks themselves cannot be created.
pub fn run(
    plan: &BenchPlan,
    interrupt: &Stop,
    progress: &mut dyn Progress,
) -> Result<Figures, BenchError> {
    match Privilege::probe() {
        Privilege::Capable => {}
        missing => return Err(BenchError::Privilege(missing)),
    }
    let limit = plan.cpu_latency.map(IdleLimit::hold).transpose()?;
    let mut figures = Figures {
        cpu_latency_us: limit.as_ref().map(|held| held.latency().as_ns() / 1_000),
        host_settings: plan.host_settings.iter().cloned().collect(),
        thread_per_flow: plan.thread_per_flow,
        ..Figures::default()
    };
    let before = Ticks::now();
    let mut steps = Steps {
        done: 0,
        total: plan
            .sections
            .iter()
            .map(|section| steps(plan, *section))
            .sum(),
        progress,
    };
    for section in Section::ALL {
        if !plan.sections.contains(&section) || interrupt.is_stopped() {
            continue;
        }
        match section {
            Section::Path => path::measure(plan, interrupt, &mut steps, &mut figures)?,
            Section::Time => time::measure(plan, interrupt, &mut steps, &mut figures)?,
            Section::Shaped => shaped::measure(plan, interrupt, &mut steps, &mut figures)?,
            Section::Overload => {
                steps.next("overload");
                let accounts = overload(plan.overload, interrupt)?;
                figures.overload = Some(accounts);
            }
            Section::Cores => {
                let shared = cores::measure(plan, interrupt, &mut steps)?;
                if !interrupt.is_stopped() {
                    figures.shared = Some(shared);
                }
            }
        }
    }
    figures.is_interrupted = interrupt.is_stopped();
    figures.stolen = before
        .zip(Ticks::now())
        .and_then(|(before, now)| now.stolen_since(before));
    Ok(figures)
}

/// Counts measurements and reports them to the progress observer.
struct Steps<'a> {
    done: usize,
    total: usize,
    progress: &'a mut dyn Progress,
}

impl Steps<'_> {
    fn next(&mut self, what: &str) {
        self.done += 1;
        self.progress.step(self.done, self.total, what);
    }
}

fn steps(plan: &BenchPlan, section: Section) -> usize {
    match section {
        Section::Path => plan.rounds as usize * plan.contenders.len(),
        Section::Time => time::steps(plan),
        Section::Shaped => plan.rounds as usize,
        Section::Overload | Section::Cores => 1,
    }
}
