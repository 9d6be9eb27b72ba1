//! A simulation that its user advances step by step, and can change between two steps.

use sluice_core::event::StateValue;
use sluice_core::param::ParamError;
use sluice_core::registry::Spec;
use sluice_core::{Backlog, DropReason, Event, Packet, Rate, Span, Time};
use sluice_ipfw::{CommandError, Output};
use sluice_sim::{FlowId, LinkId, Observer, Simulation};

use super::network::{config, link_of, pipe_of};
use super::{SimError, check, check_haste, shown, since_lead};
use sluice_scenario::{PipeId, Scenario};

/// The reason why a simulation cannot be changed.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// The path has no such pipe.
    #[error("there is no pipe `{pipe}`; one of: {known}")]
    NoPipe {
        /// The pipe.
        pipe: String,
        /// The pipes of the path.
        known: String,
    },
    /// The path has a router with rules in place of the pipe.
    #[error("the scenario has `rules` in place of the pipe `{pipe}`: use `command`")]
    Rules {
        /// The pipe.
        pipe: String,
    },
    /// The path has no router with rules.
    #[error(
        "the scenario has no `rules`, whose router executes commands: use `set_rate` or `set_queue`"
    )]
    NoRules,
    /// A command is refused.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The rate of the pipe follows a schedule or a trace.
    #[error("the rate of `{pipe}` follows a schedule or a trace; give `link.rate` one value")]
    Scheduled {
        /// The pipe.
        pipe: PipeId,
    },
    /// The queue cannot be built.
    #[error(transparent)]
    Queue(#[from] ParamError),
}

/// The counters of a queue since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// Wire packets that it has returned.
    pub sent_packets: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Wire packets that it has dropped.
    pub dropped_packets: u64,
    /// Wire packets that it has marked.
    pub marked_packets: u64,
    /// The sum of the sojourn times of the returned packets.
    pub sojourn: Span,
}

/// A simulation that its user advances. It records only counters.
pub struct Stepped {
    scenario: Scenario,
    simulation: Simulation,
    counters: Counters,
}

impl Stepped {
    /// Builds the network of `scenario` at its start.
    ///
    /// # Errors
    /// The scenario cannot be simulated.
    pub fn new(scenario: Scenario) -> Result<Stepped, SimError> {
        check(&scenario, false)?;
        let simulation = Simulation::new(&config(&scenario)?)?;
        let links = match &scenario.rules {
            Some(_) => 0,
            None => scenario.pipes().count(),
        };
        let mut stepped = Stepped {
            scenario,
            simulation,
            counters: Counters(vec![Passed::default(); links]),
        };
        stepped.step(Time::ZERO)?;
        Ok(stepped)
    }

    /// Returns the virtual time.
    pub fn now(&self) -> Time {
        since_lead(self.simulation.now(), self.scenario.lead)
    }

    /// Advances to `until`, or to the end of the scenario. Returns whether the end is reached.
    ///
    /// # Errors
    /// [`SimError::Haste`].
    pub fn step(&mut self, until: Time) -> Result<bool, SimError> {
        let until = until.saturating_add(self.scenario.lead);
        let is_over = self.simulation.run_until(until, &mut self.counters);
        check_haste(&self.scenario, &self.simulation)?;
        Ok(is_over)
    }

    /// Returns the end of the scenario.
    pub fn end(&self) -> Time {
        Time::ZERO + self.scenario.duration
    }

    /// Returns whether the scenario has rules in place of pipes.
    pub fn has_rules(&self) -> bool {
        self.scenario.rules.is_some()
    }

    /// Executes commands of dummynet's language now, one per line, until one is refused; the lines
    /// before it stay in force.
    ///
    /// # Errors
    /// The command that is refused, with its place; or the scenario has no rules.
    pub fn command(&mut self, commands: &str) -> Result<Output, StepError> {
        let executed = self
            .simulation
            .command(ROUTER, commands, &mut self.counters);
        Ok(executed.ok_or(StepError::NoRules)??)
    }

    /// Finds a pipe by its name: `up`, `down`, `up2`.
    ///
    /// # Errors
    /// The path has no such pipe, or has rules in place of pipes.
    pub fn pipe(&self, name: &str) -> Result<PipeId, StepError> {
        if self.has_rules() {
            return Err(StepError::Rules {
                pipe: name.to_owned(),
            });
        }
        let known = || self.scenario.pipes().map(|(id, _)| id);
        known().find(|id| id.word() == name).ok_or_else(|| {
            let all: Vec<&str> = known().map(PipeId::word).collect();
            StepError::NoPipe {
                pipe: name.to_owned(),
                known: all.join(", "),
            }
        })
    }

    /// Returns the current rate of `pipe`.
    pub fn rate(&mut self, pipe: PipeId) -> Rate {
        self.simulation.rate(link_of(pipe))
    }

    /// Sets the rate of `pipe` from now on.
    ///
    /// # Errors
    /// The rate follows a schedule or a trace.
    pub fn set_rate(&mut self, pipe: PipeId, rate: Rate) -> Result<(), StepError> {
        match self
            .simulation
            .set_rate(link_of(pipe), rate, &mut self.counters)
        {
            true => Ok(()),
            false => Err(StepError::Scheduled { pipe }),
        }
    }

    /// Replaces the queue of `pipe` from now on. The backlog of the old queue moves to the new one.
    ///
    /// # Errors
    /// The queue cannot be built.
    pub fn set_queue(&mut self, pipe: PipeId, queue: &Spec) -> Result<(), StepError> {
        let queue = queue.build()?;
        self.simulation
            .replace_queue(link_of(pipe), queue, &mut self.counters);
        Ok(())
    }

    /// Returns the backlog of the queue of `pipe`.
    pub fn backlog(&self, pipe: PipeId) -> Backlog {
        self.simulation.backlog(link_of(pipe))
    }

    /// Returns the counters of the queue of `pipe` since the start.
    pub fn passed(&self, pipe: PipeId) -> Passed {
        self.counters.0[link_of(pipe)]
    }

    /// Calls `visit` with each variable of the queue of `pipe`: number of the queue within the
    /// discipline, name, value.
    pub fn state(&self, pipe: PipeId, visit: &mut dyn FnMut(u32, &'static str, StateValue)) {
        let lead = self.scenario.lead;
        if let Some(queue) = self.simulation.queue(link_of(pipe)) {
            queue.state(&mut |queue, name, value| visit(queue, name, shown(value, lead)));
        }
    }

    /// Returns the name of each flow, and the payload bytes that have arrived.
    pub fn received(&self) -> Vec<(String, u64)> {
        let flows = self.scenario.instances();
        flows
            .map(|flow| {
                let totals = self.simulation.totals(flow.id as usize);
                (flow.name, totals.bytes_received)
            })
            .collect()
    }
}

/// The router of a scenario with rules, which has no links.
const ROUTER: LinkId = 0;

/// The counters of each link.
struct Counters(Vec<Passed>);

impl Observer for Counters {
    fn hears_packets(&self) -> bool {
        true
    }

    fn link_name(&self, link: LinkId) -> Option<String> {
        let passed = self.0.get(link);
        passed.map(|_| pipe_of(link).word().to_owned())
    }

    fn on_event(&mut self, link: LinkId, now: Time, event: &Event<'_>) {
        // The number belongs to a router, which has no counters.
        let Some(passed) = self.0.get_mut(link) else {
            return;
        };
        match event {
            Event::Dequeue { packet } => {
                passed.sent_packets += u64::from(packet.segments);
                passed.sent_bytes += u64::from(packet.len);
                passed.sojourn = passed.sojourn.saturating_add(packet.sojourn(now));
            }
            Event::Mark { packet } => passed.marked_packets += u64::from(packet.segments),
            Event::Enqueue { .. } | Event::State { .. } => {}
        }
    }

    fn on_drop(
        &mut self,
        link: LinkId,
        _now: Time,
        packet: &Packet,
        _flow: FlowId,
        _reason: DropReason,
    ) {
        if let Some(passed) = self.0.get_mut(link) {
            passed.dropped_packets += u64::from(packet.segments);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A saturated link, measured without a warm-up.
    const TEXT: &str = r#"
        duration = "10s"
        [link]
        rate = "10Mbit/s"
        rtt = "20ms"
        queue = "codel"
        [[flow]]
        type = "udp"
        rate = "50Mbit/s"
    "#;

    fn stepped() -> Stepped {
        let variants = Scenario::parse("test", TEXT, &[]).unwrap();
        Stepped::new(variants[0].scenario.clone()).unwrap()
    }

    fn at(seconds: u64) -> Time {
        Time::ZERO + Span::from_secs(seconds)
    }

    #[test]
    fn the_link_sends_at_the_rate_that_was_set() {
        let mut simulation = stepped();
        let up = simulation.pipe("up").unwrap();
        simulation.step(at(2)).unwrap();
        let before = simulation.passed(up).sent_bytes;
        simulation.set_rate(up, Rate::from_bps(5_000_000)).unwrap();
        assert!(!simulation.step(at(4)).unwrap());
        assert_eq!(simulation.now(), at(4));
        // 5 Mbit/s for 2 s are 1 250 000 bytes. One packet of up to 1500 bytes is on the wire at
        // either end.
        let sent = simulation.passed(up).sent_bytes - before;
        assert!(sent.abs_diff(1_250_000) <= 2 * 1500, "{sent}");
        assert!(simulation.passed(up).dropped_packets > 0);
        assert!(simulation.step(at(11)).unwrap());
        assert_eq!(simulation.now(), simulation.end());
    }

    #[test]
    fn steps_do_not_change_what_happens() {
        let (mut fine, mut coarse) = (stepped(), stepped());
        let up = fine.pipe("up").unwrap();
        for step in 1..=1000 {
            fine.step(Time::from_ns(step * 10_000_000)).unwrap();
        }
        coarse.step(at(10)).unwrap();
        assert_eq!(fine.passed(up), coarse.passed(up));
        assert_eq!(fine.received(), coarse.received());
    }

    #[test]
    fn a_new_queue_keeps_the_backlog() {
        let mut simulation = stepped();
        let up = simulation.pipe("up").unwrap();
        simulation.step(at(1)).unwrap();
        let held = simulation.backlog(up);
        assert!(held.packets > 0);
        let queue = Spec::parse("fifo limit 5000").unwrap();
        simulation.set_queue(up, &queue).unwrap();
        assert_eq!(simulation.backlog(up), held);
    }

    #[test]
    fn a_pipe_that_is_not_there_is_named() {
        let error = stepped().pipe("up2").unwrap_err().to_string();
        assert_eq!(error, "there is no pipe `up2`; one of: up, down");
    }

    /// A router whose pipe is saturated.
    const RULES: &str = r#"
        duration = "10s"
        rules = """
        pipe 1 config bw 1Mbit/s
        add 100 pipe 1 ip from any to any out
        add 200 allow ip from any to any
        """
        [[flow]]
        type = "udp"
        rate = "8Mbit/s"
    "#;

    #[test]
    fn commands_change_the_router_of_rules() {
        let variants = Scenario::parse("test", RULES, &[]).unwrap();
        let mut simulation = Stepped::new(variants[0].scenario.clone()).unwrap();
        let mut received_until = |until, command: &str| {
            simulation.step(until).unwrap();
            simulation.command(command).unwrap();
            simulation.received()[0].1
        };
        let counts = [
            received_until(at(2), ""),
            received_until(at(4), "pipe 1 config bw 4Mbit/s"),
            received_until(at(6), ""),
        ];
        let (slow, fast) = (counts[1] - counts[0], counts[2] - counts[1]);
        // 1 Mbit/s for 2 s are 250 000 bytes with headers, and 4 Mbit/s four times as many. A packet may
        // be on either side of an instant, and the one on the link at the change may take 9 ms longer,
        // as long as three others.
        assert!(slow > 200_000, "{slow}");
        assert!(fast.abs_diff(4 * slow) <= 10 * 1500, "{slow} {fast}");

        let error = simulation.command("pipe 1 config bv 2Mbit/s").unwrap_err();
        assert_eq!(
            error.to_string(),
            "Line 1: column 15: unrecognised option ``bv'' (did you mean ``bw''?)"
        );
        let error = simulation.pipe("up").unwrap_err().to_string();
        assert_eq!(
            error,
            "the scenario has `rules` in place of the pipe `up`: use `command`"
        );
        let error = stepped().command("pipe show").unwrap_err().to_string();
        assert_eq!(
            error,
            "the scenario has no `rules`, whose router executes commands: use `set_rate` or `set_queue`"
        );
    }

    #[test]
    fn a_scheduled_rate_cannot_be_set() {
        let text = TEXT.replace(
            "rate = \"10Mbit/s\"",
            r#"rate = [["0s", "10Mbit/s"], ["5s", "2Mbit/s"]]"#,
        );
        let scenario = Scenario::parse("test", &text, &[]).unwrap()[0]
            .scenario
            .clone();
        let mut simulation = Stepped::new(scenario).unwrap();
        let up = simulation.pipe("up").unwrap();
        let error = simulation
            .set_rate(up, Rate::from_bps(1_000_000))
            .unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("the rate of `up` follows a schedule")
        );
    }
}
