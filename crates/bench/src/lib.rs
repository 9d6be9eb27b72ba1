//! What Sluice's packet path does on this machine, beside what the kernel does.
//!
//! Everything is measured in namespaces made for it, with real traffic of the kernel's, and in rounds:
//! every round measures each *contender* (a way of forwarding) once, one after another, so that whatever
//! else the machine is doing disturbs all of them alike. Figures are medians over the rounds, and
//! ratios to the kernel's own forwarding.
//!
//! - [`path`](Section::Path): TCP throughput, packet rates, round trips and processor time of every
//!   contender;
//! - [`time`](Section::Time): how exact delays, rates and spacings are;
//! - [`shaped`](Section::Shaped): fq_codel at 1 Gbit/s under sixteen transfers;
//! - [`overload`](Section::Overload): ten times more packets than a pipe takes;
//! - [`cores`](Section::Cores): one pipe shared by workers on two cores.

mod chart;
mod contender;
mod cores;
mod figures;
mod idle;
mod machine;
mod network;
mod path;
mod shaped;
mod text;
mod time;
mod traffic;

pub use chart::{png, svg};
pub use contender::{CONTENDERS, Contender};
pub use figures::{Better, Cell, Figures, METRICS, Metric};
pub use idle::{IdleFigures, Rest};
pub use shaped::{Accounts, overload};
pub use text::{json, text};

use machine::Ticks;
use sluice_core::{Span, Stop};
use sluice_load::TrafficError;
use sluice_net::cores::{CoreError, IdleLimit, IdleLimitError};
use sluice_net::namespace::{LinkError, NamespaceError, OffloadError, Privilege, SysctlError};
use sluice_net::port::nfqueue::NfqueueError;
use sluice_net::port::packet::PacketError;
use sluice_net::port::tun::TunError;
use sluice_net::port::{OpenError, PoolError, Spin};

/// A part of the bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Section {
    /// Ways of forwarding beside each other.
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
    /// All of them, in the order in which they run.
    pub const ALL: [Section; 5] = [
        Section::Path,
        Section::Time,
        Section::Shaped,
        Section::Overload,
        Section::Cores,
    ];

    /// The section as one word.
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

/// What to measure, and for how long.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Which parts.
    pub sections: Vec<Section>,
    /// Which contenders, by their place in [`CONTENDERS`].
    pub contenders: Vec<usize>,
    /// Which figures of the path section, by their names in [`METRICS`]; all of them if empty.
    pub metrics: Vec<&'static str>,
    /// How often each contender is measured.
    pub rounds: u32,
    /// Length of one throughput measurement.
    pub transfer: Span,
    /// Length of one measurement of a rate.
    pub rate: Span,
    /// Length of the overload.
    pub overload: Span,
    /// How Sluice's loop meets its deadlines in the path and shaped sections.
    pub spin: Spin,
    /// Whether Sluice's loop runs before all ordinary threads in the path section, where the hosts are
    /// on the same cores: it then interrupts them for every packet, and gets smaller batches.
    pub real_time: bool,
    /// The core that each worker of Sluice's stays on, in turn; the kernel chooses if there is none.
    pub cores: Vec<usize>,
    /// What leaving an idle state may take the machine's cores during all of it. As they idle if nothing is
    /// said; the idle round trip is then also measured with cores that are kept awake.
    pub cpu_latency: Option<Span>,
    /// Settings of both hosts in the path section, by name and value (`net.ipv4.tcp_notsent_lowat`), beside the
    /// kernel's defaults.
    pub host_settings: Vec<(String, String)>,
    /// Whether both hosts of the path section serve each TCP flow by a thread of its own in all figures.
    pub thread_per_flow: bool,
}

impl Plan {
    /// Everything, in about a quarter of an hour.
    pub fn full() -> Plan {
        Plan {
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

    /// Everything, once and shortly: whether it works, and roughly how fast.
    pub fn quick() -> Plan {
        Plan {
            rounds: 1,
            transfer: Span::from_ms(500),
            rate: Span::from_secs(2),
            overload: Span::from_secs(3),
            ..Plan::full()
        }
    }

    /// Where a worker stays.
    fn core(&self, worker: usize) -> Option<usize> {
        self.cores.iter().cycle().nth(worker).copied()
    }
}

/// Why nothing could be measured.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The process may not make namespaces.
    #[error("the bench makes network namespaces: {0}")]
    Privilege(Privilege),
    /// A namespace.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// An interface.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// A setting.
    #[error(transparent)]
    Sysctl(#[from] SysctlError),
    /// An offload.
    #[error(transparent)]
    Offload(#[from] OffloadError),
    /// A packet port.
    #[error(transparent)]
    Packet(#[from] PacketError),
    /// A TUN device.
    #[error(transparent)]
    Tun(#[from] TunError),
    /// A port on an interface.
    #[error(transparent)]
    Attach(#[from] OpenError),
    /// A queue of the kernel's.
    #[error(transparent)]
    Nfqueue(#[from] NfqueueError),
    /// A core.
    #[error(transparent)]
    Core(#[from] CoreError),
    /// Idle states cannot be limited.
    #[error(transparent)]
    Idle(#[from] IdleLimitError),
    /// No memory for packets.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The traffic.
    #[error(transparent)]
    Traffic(#[from] TrafficError),
}

/// Who watches the bench.
pub trait Progress {
    /// What is being measured now, the how manieth of how many.
    fn step(&mut self, number: usize, of: usize, what: &str);
}

/// Measures what `plan` says, until `interrupt`; what has been measured by then.
///
/// A contender that this machine cannot run, or a congestion control that it lacks, is left out and
/// noted in [`Figures::notes`].
///
/// # Errors
/// When the networks themselves cannot be made.
pub fn run(
    plan: &Plan,
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

/// Counts measurements for whoever watches.
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

fn steps(plan: &Plan, section: Section) -> usize {
    match section {
        Section::Path => plan.rounds as usize * plan.contenders.len(),
        Section::Time => time::steps(plan),
        Section::Shaped => plan.rounds as usize,
        Section::Overload | Section::Cores => 1,
    }
}
