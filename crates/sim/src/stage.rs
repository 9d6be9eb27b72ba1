//! The stages of a path: links, and routers with rules.

use crate::error::ConfigError;
use crate::ids::LinkId;
use crate::topology::{Link, Router};
use sluice_core::link::{self, LinkFiles, LinkParams, RateSource, Schedule};
use sluice_core::registry::Loaders;
use sluice_core::{Backlog, Cx, DropCounter, Rate, Rng, Span, Time, Wake};
use sluice_ipfw::{CommandError, Files, Firewall, InFolder, Interface, NoFiles, Output};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A link or a router, with its delay and its later changes.
pub(crate) struct Stage {
    pub engine: Engine,
    /// The delay after the engine. The delay of a link is removed from its pipe and added here,
    /// together with the delay of the access network and the jitter of the host, so that a delivery
    /// takes one event instead of three. This is not possible with jitter or reordering on the
    /// link.
    pub delay: Span,
    /// The last delivery: after a change to a shorter delay, packets do not overtake.
    pub delivered_at: Time,
    pub sent_bytes: u64,
    /// The later delays or commands, the next one last.
    delays: Vec<(Time, Span)>,
    commands: Vec<(Time, String)>,
    /// The configuration of a link.
    link: Option<(LinkParams, LinkFiles)>,
    has_delay_inside: bool,
    /// A second copy of the link's schedule, for samples.
    schedule: Option<Schedule>,
    texts: Texts,
}

pub(crate) enum Engine {
    Link(Box<link::Link>),
    Router(Box<Firewall>),
}

/// The files of a router's commands, and the folder of its algorithms.
#[derive(Clone, Debug, Default)]
pub(crate) struct Texts {
    files: BTreeMap<String, String>,
    folder: InFolder<PathBuf>,
}

impl Files for Texts {
    fn read(&mut self, path: &str) -> Result<String, String> {
        if self.files.is_empty() {
            return NoFiles.read(path);
        }
        let known = || self.files.keys().cloned().collect::<Vec<_>>().join(", ");
        let text = self.files.get(path).cloned();
        text.ok_or_else(|| format!("the simulation has no such file; it has: {}", known()))
    }

    fn loaders(&self) -> &dyn Loaders {
        &self.folder
    }
}

impl Stage {
    pub fn link(id: LinkId, settings: &Link, rng: &Rng) -> Result<Self, ConfigError> {
        let queue = settings
            .queue
            .build()
            .map_err(|error| ConfigError::Queue { link: id, error })?;
        let mut params = settings.params.clone();
        let mut delay = Span::ZERO;
        if settings.has_plain_delay() {
            delay = std::mem::replace(&mut params.pipe.delay, Span::ZERO);
        }
        let files = settings.files.clone();
        let schedule = match &files.rate {
            Some(RateSource::Schedule(schedule)) => Some(schedule.clone()),
            _ => None,
        };
        let link = link::Link::new(&params, files.clone(), queue, rng);
        Ok(Stage {
            delay,
            delays: settings.delays.iter().rev().copied().collect(),
            has_delay_inside: !settings.has_plain_delay(),
            link: Some((params, files)),
            schedule,
            ..Stage::new(Engine::Link(Box::new(link)))
        })
    }

    pub fn router(number: usize, settings: &Router, rng: &Rng) -> Result<Self, ConfigError> {
        let mut firewall = Firewall::new(&settings.settings);
        let interface = |name: &String| Interface {
            name: name.clone(),
            addresses: Vec::new(),
        };
        firewall.set_interfaces(settings.interfaces.iter().map(interface).collect());
        let mut texts = Texts {
            files: settings.files.clone(),
            folder: InFolder(settings.folder.clone()),
        };
        let (mut draws, mut sink) = (rng.clone(), DropCounter::default());
        let mut cx = Cx::new(Time::ZERO, &mut draws, &mut sink);
        firewall
            .batch(&settings.commands, false, &mut texts, &mut cx)
            .map_err(|error| ConfigError::Command {
                router: number,
                message: error.to_string(),
            })?;
        Ok(Stage {
            commands: settings.later.iter().rev().cloned().collect(),
            texts,
            ..Stage::new(Engine::Router(Box::new(firewall)))
        })
    }

    fn new(engine: Engine) -> Self {
        Stage {
            engine,
            delay: Span::ZERO,
            delivered_at: Time::ZERO,
            sent_bytes: 0,
            delays: Vec::new(),
            commands: Vec::new(),
            link: None,
            has_delay_inside: false,
            schedule: None,
            texts: Texts::default(),
        }
    }

    pub fn next_wake(&self) -> Wake {
        match &self.engine {
            Engine::Link(link) => link.next_wake(),
            Engine::Router(firewall) => firewall.next_wake(),
        }
    }

    /// When the next later delay or command is due.
    pub fn next_change(&self) -> Option<Time> {
        let delay = self.delays.last().map(|(at, _)| *at);
        delay.or(self.commands.last().map(|(at, _)| *at))
    }

    /// The sum of the rates of a router's pipes in bits per second, without those that have no limit.
    pub fn pipe_rates(&mut self) -> u64 {
        let Engine::Router(firewall) = &mut self.engine else {
            return 0;
        };
        let (mut rng, mut sink) = (Rng::from_seed(0), DropCounter::default());
        let pipes = firewall
            .snapshot(&mut Cx::new(Time::ZERO, &mut rng, &mut sink))
            .pipes;
        let rates = pipes.iter().map(|pipe| pipe.link.rate_bps);
        rates.fold(0, u64::saturating_add)
    }

    /// The backlog of a link's queue. A router reports it with `show`.
    pub fn backlog(&self) -> Backlog {
        match &self.engine {
            Engine::Link(link) => link.backlog(),
            Engine::Router(_) => Backlog::default(),
        }
    }

    /// The rate of a link at `now`; the mean rate of a trace.
    pub fn rate(&mut self, now: Time) -> Rate {
        if let Some(schedule) = &mut self.schedule {
            // An outage has no rate; one bit per second is the smallest rate.
            return schedule.rate_at(now).unwrap_or(Rate::from_bps(1));
        }
        match &self.link {
            Some((_, files)) if let Some(RateSource::Opportunities(trace)) = &files.rate => {
                Rate::from_bps(trace.mean_bps().max(1))
            }
            Some((params, _)) => params.pipe.rate,
            None => Rate::UNLIMITED,
        }
    }

    /// Sets the rate of a link; returns whether it could be set. A rate that follows a schedule or a
    /// trace cannot, nor can that of a router.
    pub fn set_rate(&mut self, rate: Rate, cx: &mut Cx<'_>) -> bool {
        match (&mut self.link, &mut self.engine) {
            (Some((params, files)), Engine::Link(link)) if files.rate.is_none() => {
                params.pipe.rate = rate;
                let mut pipe = link.pipe_params().clone();
                pipe.rate = rate;
                link.set_pipe(&pipe, cx);
                true
            }
            _ => false,
        }
    }

    /// The next later delay takes effect.
    pub fn change_delay(&mut self, cx: &mut Cx<'_>) {
        let Some((_, delay)) = self.delays.pop() else {
            return;
        };
        if !self.has_delay_inside {
            self.delay = delay;
        } else if let Engine::Link(link) = &mut self.engine {
            let mut pipe = link.pipe_params().clone();
            pipe.delay = delay;
            link.set_pipe(&pipe, cx);
        }
    }

    /// The next later command of a router is executed.
    pub fn execute_next(&mut self, cx: &mut Cx<'_>) -> Option<Result<Output, CommandError>> {
        let (_, command) = self.commands.pop()?;
        let Engine::Router(firewall) = &mut self.engine else {
            return None;
        };
        Some(firewall.command(&command, &mut self.texts, cx))
    }

    /// Executes commands of a router, one per line, until one is refused. A link has none.
    pub fn execute(
        &mut self,
        commands: &str,
        cx: &mut Cx<'_>,
    ) -> Option<Result<Output, CommandError>> {
        let Engine::Router(firewall) = &mut self.engine else {
            return None;
        };
        Some(firewall.batch(commands, false, &mut self.texts, cx))
    }

    pub fn is_router(&self) -> bool {
        matches!(self.engine, Engine::Router(_))
    }
}
