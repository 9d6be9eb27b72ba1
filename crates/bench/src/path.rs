//! Measures every contender, round by round.

use sluice_core::{Span, Stop};
use sluice_load::tcp;
use sluice_net::namespace::Namespace;

use super::contender::{CONTENDERS, Contender};
use super::figures::{Figures, METRICS, WITH_OFFLOADS};
use super::statistics::median;
use super::traffic::{Hosts, flood, idle_ping_us, transfers};
use super::{BenchError, BenchPlan, Steps};

pub(super) fn measure(
    plan: &BenchPlan,
    interrupt: &Stop,
    steps: &mut Steps<'_>,
    figures: &mut Figures,
) -> Result<(), BenchError> {
    let controls = available_controls(figures)?;
    for round in 1..=plan.rounds {
        for &number in &plan.contenders {
            let contender = CONTENDERS[number];
            steps.next(&format!("round {round}, {}", contender.name()));
            let bout = Bout {
                plan,
                interrupt,
                contender,
                controls: &controls,
            };
            if let Err(error) = bout.measure(figures) {
                // Only the reference must work; the machine may lack something that another
                // contender needs.
                if contender == Contender::Kernel {
                    return Err(error);
                }
                figures.note(format!("{}: {error}", contender.name()));
            }
            if interrupt.is_stopped() {
                figures.conclude(&Contender::Kernel.name());
                return Ok(());
            }
        }
    }
    figures.conclude(&Contender::Kernel.name());
    Ok(())
}

/// Returns the congestion controls of the bench that this kernel has.
fn available_controls(figures: &mut Figures) -> Result<Vec<&'static str>, BenchError> {
    let here = Namespace::current()?;
    let mut available = Vec::new();
    for control in ["cubic", "bbr"] {
        match tcp::check_congestion_control(&here, control) {
            Ok(()) => available.push(control),
            Err(error) => figures.note(error.to_string()),
        }
    }
    Ok(available)
}

/// Measures one contender in one round.
struct Bout<'a> {
    plan: &'a BenchPlan,
    interrupt: &'a Stop,
    contender: Contender,
    controls: &'a [&'static str],
}

impl Bout<'_> {
    fn measure(&self, figures: &mut Figures) -> Result<(), BenchError> {
        let (with, without) = METRICS.split_at(WITH_OFFLOADS);
        if self.contender.has_offloads() && with.iter().any(|metric| self.wants(metric.name)) {
            self.with_offloads(figures)?;
        }
        let idles = !self.contender.has_offloads() && self.wants("ping_us");
        if (idles || without.iter().any(|metric| self.wants(metric.name)))
            && !self.interrupt.is_stopped()
        {
            self.without_offloads(figures)?;
        }
        Ok(())
    }

    /// Returns how hosts serve their flows in figures that do not specify it.
    fn hosts(&self) -> Hosts {
        match self.plan.thread_per_flow {
            true => Hosts::ThreadPerFlow,
            false => Hosts::OneThread,
        }
    }

    fn wants(&self, metric: &str) -> bool {
        self.plan.metrics.is_empty() || self.plan.metrics.contains(&metric)
    }

    fn with_offloads(&self, figures: &mut Figures) -> Result<(), BenchError> {
        let name = self.contender.name();
        let running = self.contender.start(self.plan, true)?;
        let mut found = Vec::new();
        if self.wants("ping_us") {
            let ping = idle_ping_us(&running.network, self.interrupt)?;
            found.push(("ping_us", ping));
        }
        for (control, flows, hosts, metric) in [
            ("cubic", 1, self.hosts(), "cubic_1_gbps"),
            ("cubic", 4, self.hosts(), "cubic_4_gbps"),
            ("bbr", 1, self.hosts(), "bbr_1_gbps"),
            ("bbr", 4, self.hosts(), "bbr_4_gbps"),
            ("cubic", 4, Hosts::ThreadPerFlow, "cubic_4_threads_gbps"),
        ] {
            let beside = metric == "cubic_4_gbps"
                && (self.wants("loaded_ping_us") || self.wants("cpu_s_per_gbit"));
            if !(self.wants(metric) || beside)
                || !self.controls.contains(&control)
                || self.interrupt.is_stopped()
            {
                continue;
            }
            let figures = transfers(
                &running.network,
                hosts,
                control,
                flows,
                WARM_UP,
                self.plan.transfer,
                self.interrupt,
            )?;
            found.push((metric, figures.bps / 1e9));
            if metric == "cubic_4_gbps" {
                found.push(("loaded_ping_us", median(&figures.ping_us)));
                found.push(("cpu_s_per_gbit", figures.cpu_s_per_bit * 1e9));
            }
        }
        running.finish();
        // An interrupted measurement does not count.
        if !self.interrupt.is_stopped() {
            for (metric, value) in found {
                figures.add(&name, metric, value);
            }
        }
        Ok(())
    }

    fn without_offloads(&self, figures: &mut Figures) -> Result<(), BenchError> {
        let name = self.contender.name();
        let running = self.contender.start(self.plan, false)?;
        let network = &running.network;
        let mut found = Vec::new();
        if !self.contender.has_offloads() && self.wants("ping_us") {
            found.push(("ping_us", idle_ping_us(network, self.interrupt)?));
        }
        for (flows, metric) in [(1, "plain_cubic_1_gbps"), (4, "plain_cubic_4_gbps")] {
            if self.wants(metric)
                && self.controls.contains(&"cubic")
                && !self.interrupt.is_stopped()
            {
                let transfer = self.plan.transfer;
                let figures = transfers(
                    network,
                    self.hosts(),
                    "cubic",
                    flows,
                    WARM_UP,
                    transfer,
                    self.interrupt,
                )?;
                found.push((metric, figures.bps / 1e9));
            }
        }
        for (size, [kpps, loss, clean]) in [
            (64, ["udp_64_kpps", "udp_64_loss", "udp_64_clean_kpps"]),
            (
                1400,
                ["udp_1400_kpps", "udp_1400_loss", "udp_1400_clean_kpps"],
            ),
        ] {
            if ![kpps, loss, clean]
                .into_iter()
                .any(|metric| self.wants(metric))
                || self.interrupt.is_stopped()
            {
                continue;
            }
            let flooded = flood(network, size, None, FLOOD, self.interrupt)?;
            found.push((kpps, flooded.pps / 1e3));
            found.push((loss, flooded.loss));
            // Starts at the delivered rate and decreases it, because a flood's sender takes a core
            // for itself.
            let mut offered = flooded.pps;
            let mut passed = if flooded.loss <= CLEAN {
                Some(flooded.pps)
            } else {
                None
            };
            for _ in 0..TRIES {
                if passed.is_some() || self.interrupt.is_stopped() {
                    break;
                }
                let tried = flood(network, size, Some(offered), TRY, self.interrupt)?;
                if tried.loss <= CLEAN {
                    passed = Some(tried.pps);
                }
                offered *= STEP;
            }
            found.push((clean, passed.unwrap_or(0.0) / 1e3));
        }
        running.finish();
        if !self.interrupt.is_stopped() {
            for (metric, value) in found {
                figures.add(&name, metric, value);
            }
        }
        Ok(())
    }
}

/// The time of slow start, which does not count.
const WARM_UP: Span = Span::from_ms(200);
const FLOOD: Span = Span::from_ms(250);
/// The duration of one rate in the search for a rate without loss.
const TRY: Span = Span::from_ms(250);
const TRIES: u32 = 8;
const STEP: f64 = 0.88;
/// A rate is clean if no more than this share is lost: the receiver's own scheduling loses a few.
const CLEAN: f64 = 0.001;
