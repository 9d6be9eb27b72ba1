//! The facts of a run, and the round trip of its empty path.

use sluice_core::Span;

use crate::model::Fact;
use sluice_recording::figures::rounded;
use sluice_recording::{Keep, RunFile};
use sluice_scenario::{Link, Pipe, Scenario};

/// Returns the round trip of the empty path of the flow `ping`; without one, that of all links. `None`
/// if rules decide the path of a packet.
pub fn base_rtt(scenario: &Scenario, ping: Option<&str>) -> Option<Span> {
    if scenario.rules.is_some() {
        return None;
    }
    let mut instances = scenario.instances();
    Some(match instances.find(|flow| ping == Some(&*flow.name)) {
        Some(probe) => {
            let links = scenario.links_rtt(probe.flow);
            links.saturating_add(scenario.extra_rtt(probe.flow))
        }
        None => {
            let links = scenario.links();
            links.fold(Span::ZERO, |sum, link| sum.saturating_add(link.rtt()))
        }
    })
}

/// The facts of a run, in reading order.
pub fn of(file: &RunFile) -> Vec<Fact> {
    let scenario = &file.scenario;
    let mut facts = match &scenario.rules {
        Some(rules) => vec![Fact::new("rules", commands(&rules.text))],
        None => scenario
            .links()
            .enumerate()
            .flat_map(|(hop, link)| {
                // The first of several links has a number, too.
                let number = (!scenario.hops.is_empty()).then_some(hop + 1);
                link_facts(link, number)
            })
            .collect(),
    };
    for flow in scenario.flows.iter().take(MOST_FLOWS) {
        let kind = flow.describe();
        let count = match flow.count {
            1 => String::new(),
            n => format!("{n} x "),
        };
        let (start, stop) = (flow.start.as_secs_f64(), flow.stop.as_secs_f64());
        let text = format!("{count}{kind}, {}, {start} to {stop} s", flow.direction);
        facts.push(Fact::new(format!("flow {}", flow.name), text));
    }
    if let Some(more @ 1..) = scenario.flows.len().checked_sub(MOST_FLOWS) {
        facts.push(Fact::new("flows", format!("{more} more")));
    }
    for program in &file.programs {
        let flow = file.flows.iter().find(|flow| flow.id == program.flow);
        let name = flow.map_or("a program", |flow| flow.name.as_str());
        let figures = program.figures.iter();
        let figures = figures.map(|(name, figure)| {
            let value = figure.unit.show(rounded(figure.value));
            format!("{name} {value}")
        });
        let words: Vec<String> = std::iter::once(program.end.clone())
            .chain(figures)
            .collect();
        facts.push(Fact::new(format!("program {name}"), words.join(", ")));
    }
    let figures = match scenario.measure.warmup {
        Span::ZERO => "of the whole run".to_owned(),
        warmup => format!("without the first {warmup} of the run and of each flow"),
    };
    match file.recorded {
        Keep::Packets => {}
        Keep::Flows => facts.push(Fact::new("recorded", "flows and queues, without packets")),
        Keep::Figures => facts.push(Fact::new("recorded", "figures only")),
    }
    facts.extend([
        Fact::new("figures", figures),
        Fact::new("seed", file.seed.to_string()),
        Fact::new("program", &file.environment.program),
        Fact::new("host", &file.environment.host),
        Fact::new("kernel", &file.environment.kernel),
        Fact::new("started", to_the_second(&file.environment.started_at)),
    ]);
    facts
}

/// Number of flows that are described.
const MOST_FLOWS: usize = 16;

/// An RFC 3339 time in readable form, without fractions of a second.
fn to_the_second(time: &str) -> String {
    let (seconds, _) = time
        .split_once('.')
        .unwrap_or((time.trim_end_matches('Z'), ""));
    seconds.replacen('T', " ", 1) + " UTC"
}

/// The settings of a link. `number` is its place on a path of several.
fn link_facts(link: &Link, number: Option<usize>) -> Vec<Fact> {
    let (up, down) = (&link.up, &link.down);
    let both = |of: fn(&Pipe) -> String| {
        let (up, down) = (of(up), of(down));
        if up == down {
            format!("{up} each way")
        } else {
            format!("{up} up, {down} down")
        }
    };
    let label = |name: &str| match number {
        Some(number) => format!("link {number} {name}"),
        None => name.to_owned(),
    };
    let mut facts = vec![
        Fact::new(label("rate"), both(|pipe| pipe.rate.to_string())),
        Fact::new(label("delay"), both(|pipe| pipe.delay.to_string())),
    ];
    let is_any = |of: fn(&Pipe) -> String| [up, down].iter().any(|pipe| !of(pipe).is_empty());
    if is_any(|pipe| pipe.effects.to_string()) {
        let effects = both(|pipe| pipe.effects.to_string());
        facts.push(Fact::new(label("effects"), effects));
    }
    facts.push(Fact::new(
        label("queue"),
        both(|pipe| pipe.queue.to_string()),
    ));
    facts
}

/// The commands of rules in one line.
fn commands(text: &str) -> String {
    let lines = text.lines().map(str::trim);
    let commands: Vec<&str> = lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect();
    let shown = commands.iter().take(MOST_COMMANDS).copied();
    let more = commands.len().saturating_sub(MOST_COMMANDS);
    let more = (more > 0).then(|| format!("{more} more"));
    let words: Vec<String> = shown.map(str::to_owned).chain(more).collect();
    words.join("; ")
}

/// Number of commands that are shown.
const MOST_COMMANDS: usize = 16;
