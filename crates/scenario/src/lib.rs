//! An experiment as one TOML file, the same for the simulator and for live packets.
//!
//! [`Scenario::load`] reads a file and the `--set` options into typed variants, or reports all
//! errors at once, each with its place. A scenario prints as TOML that reads as the same scenario.
//! The keys are declared once, in [`mod@self`] and its modules; [`reference()`] generates the
//! documentation from the declarations.
//!
//! ```
//! use sluice_scenario::Scenario;
//!
//! let text = r#"
//!     duration = "10s"
//!     [link]
//!     rate = "10Mbit/s"
//!     rtt = "20ms"
//!     [matrix]
//!     "link.queue" = ["fifo limit 1000", "fq_codel"]
//!     [[flow]]
//!     type = "tcp"
//! "#;
//! let variants = Scenario::parse("example.toml", text, &[]).unwrap();
//! assert_eq!(variants[1].name, "fq_codel");
//! assert_eq!(variants[1].scenario.link.up.queue.to_string(), "fq_codel");
//!
//! let broken = text.replace("fq_codel", "fq_codle");
//! let errors = Scenario::parse("example.toml", &broken, &[]).unwrap_err();
//! assert!(errors.to_string().contains("did you mean `fq_codel`?"));
//! ```

mod advice;
mod algorithms;
mod checks;
mod each_way;
mod effects;
mod error;
mod expect;
mod field;
mod file;
mod flow;
mod folder;
mod link;
mod matrix;
pub mod metric;
mod picture;
mod reference;
mod rules;
mod schedule;
mod schema;
mod set;
mod source;
mod texts;
pub mod trace;
mod tree;
mod unit;
mod words;

#[cfg(test)]
mod tests;

use std::net::Ipv4Addr;
use std::path::Path;

use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Serialize, Serializer};
use sluice_core::Span;
use sluice_core::param::Ratio;

pub use error::{ScenarioError, ScenarioErrors};
pub use expect::{Expect, Quantity};
pub use field::{Dscp, Name, Queue, Word};
pub use file::TextFile;
pub use flow::types::*;
pub use flow::{
    FlentSeries, Flow, FlowInstance, FlowKind, Hops, Measured, ObjectSize, PcapPacket, Places,
    TcpSettings, TransferSettings,
};
pub(crate) use flow::{flow_types_with, instance_names};
pub use link::{Link, Pipe, Preset, ScheduledLink};
pub use picture::{Figures, Headings, Only, PICTURE_ENDINGS, Picture, PictureRow};
pub use reference::reference;
pub use rules::Rules;
pub use schedule::{Delays, Schedule};
pub use schema::{KeyDecl, Presence};
pub use texts::Texts;
pub use tree::toml_text;
pub use words::{
    Backend, Direction, Growth, HostWord, PipeId, Protocol, SlowStart, SpacingWord, TcpEcn,
};

use error::{Problem, Problems};
use schema::{Keys, Section, as_table, keys, names};
use source::{Place, Source};
use tree::{Table, Value};

keys! {
    /// The keys at the top level.
    pub struct RootKeys {
        /// name of the experiment; the name of the file if it is not given
        title: Option<String>;
        /// what the experiment shows, in a sentence or two
        about: Option<String>;
        /// duration of a run
        duration: Span, Span::from_ms(10) => Span::from_secs(3650 * 24 * 3600);
        /// time for which simulated queues and their timers exist before the run starts; 1.2 s is
        /// a multiple of the update intervals of PIE and DualPI2
        lead: Span = Span::from_ms(1200), Span::ZERO => Span::from_secs(3600);
        /// seed of all random numbers
        seed: u64 = 1, 0 => i64::MAX as u64;
        /// backend of a run if `--backend` is not given
        backend: Option<Backend>;
        /// the router as dummynet commands, one per line, instead of `[link]`; or `{ file = "PATH"
        /// }`
        rules: Option<Rules>;
    }
}

keys! {
    /// The measurement.
    pub struct Measure {
        /// time between two samples of the state of flows and queues
        interval: Span = Span::from_ms(50), Span::from_ms(1) => Span::from_secs(60);
        /// time at the start of the run and of each flow that figures leave out; a
        /// transfer of `bytes` without `pause` has no warm-up
        warmup: Span = Span::from_secs(1), Span::ZERO => Span::from_secs(3600);
        /// length of the windows of goodput over time
        window: Span = Span::from_secs(1), Span::from_ms(1) => Span::from_secs(3600);
        /// time between the starts of two windows
        step: Span = Span::from_ms(250), Span::from_ms(1) => Span::from_secs(3600);
    }
}

keys! {
    /// The number of hosts on each side, and the speed of simulated hosts.
    pub struct Hosts {
        /// hosts on the side where flows in the direction `up` start; `host_up` of a flow is one of
        /// them
        up: u64 = 1, 1 => Hosts::MOST;
        /// hosts on the other side; `host_down` of a flow is one of them
        down: u64 = 1, 1 => Hosts::MOST;
        /// longest time that a packet waits at its receiving host; the time is drawn for each
        /// packet from 0 to this value, so that flows do not synchronise with the link
        jitter: Span = sluice_core::traffic::HOST_JITTER, Span::ZERO => Span::from_secs(1);
        /// share of the packets that find their host busy and wait longer
        stall_share: Ratio = Ratio::default();
        /// mean time that such a packet waits; exponentially distributed
        stall: Span = Span::from_us(200), Span::ZERO => Span::from_secs(1);
    }
}

impl Hosts {
    /// The largest number of hosts on a side: the last byte of their addresses goes up to 201.
    const MOST: u64 = 100;

    /// Returns the number of hosts on `side`: where flows in this direction start.
    pub const fn on(&self, side: Direction) -> u64 {
        match side {
            Direction::Up => self.up,
            Direction::Down => self.down,
        }
    }

    /// Returns whether a side has more than one host.
    pub const fn are_several(&self) -> bool {
        self.up > 1 || self.down > 1
    }

    /// Returns the last byte of the address of a host, which is counted from 1: even numbers on the
    /// side where flows in the direction `up` start, odd ones on the other.
    pub const fn last_byte(side: Direction, number: u64) -> u8 {
        let first = match side {
            Direction::Up => 2,
            Direction::Down => 3,
        };
        first + 2 * (number as u8 - 1)
    }

    /// Returns the address of a host, which is counted from 1.
    pub const fn address(side: Direction, number: u64) -> Ipv4Addr {
        Ipv4Addr::new(10, 0, 23, Hosts::last_byte(side, number))
    }
}

/// An experiment with all values.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The name.
    pub title: String,
    /// The purpose of the experiment.
    pub about: Option<String>,
    /// The duration of a run.
    pub duration: Span,
    /// The time for which simulated queues and their timers exist before the run starts.
    pub lead: Span,
    /// The seed of all random numbers.
    pub seed: u64,
    /// The backend if the user gives none.
    pub backend: Option<Backend>,
    /// The link under test; it has no effect if there are rules.
    pub link: Link,
    /// Further links behind it, in the order of the path up.
    pub hops: Vec<Link>,
    /// The router as a dummynet configuration, instead of links.
    pub rules: Option<Rules>,
    /// The number of hosts, and the speed of simulated ones.
    pub hosts: Hosts,
    /// The measurement.
    pub measure: Measure,
    /// The traffic.
    pub flows: Vec<Flow>,
    /// The bounds of the results.
    pub expect: Vec<Expect>,
}

/// One combination of the values in a scenario's matrix.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// The name, unique among the variants of the scenario: the values of the matrix, or the name
    /// of the queue if there is no matrix.
    pub name: String,
    /// The scenario with these values.
    pub scenario: Scenario,
    /// Its place on the axes of the matrix, in their order; empty without a matrix.
    pub coordinates: Vec<Coordinate>,
}

/// The place of a variant on one axis of its scenario's matrix.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Coordinate {
    /// The axis: the path of a key, or `variant` for a row of `[[variant]]`.
    pub key: String,
    /// The value as the scenario writes it.
    pub value: String,
    /// The value's part of the variant's name.
    pub name: String,
}

impl Coordinate {
    /// The axis of `[[variant]]`.
    pub const VARIANT: &'static str = "variant";

    /// Returns whether the axis varies the queue, and not a condition under which queues are
    /// compared.
    pub fn is_choice(&self) -> bool {
        self.key == Self::VARIANT || self.key.split('.').any(|word| word == "queue")
    }
}

/// Values that replace those of a scenario's keys.
#[derive(Clone, Copy, Debug)]
pub struct Overrides<'a> {
    /// The values, as `KEY=VALUE`.
    pub sets: &'a [String],
    /// Where each comes from, as messages show it, such as `--rate 1Mbit/s`; `--set KEY=VALUE` if it
    /// is empty or missing.
    pub written: &'a [String],
    /// How many of them, from the first on, may name files: traces, profiles, and the files of
    /// algorithms. The others come from somebody who must not make this process read files.
    pub with_files: usize,
    /// The texts of the files that were read before, to which those of this scenario are added.
    pub texts: &'a Texts,
}

impl Scenario {
    /// Does the same as [`Scenario::load`] for a text; `file` is its name in messages.
    ///
    /// # Errors
    /// All errors in `text` and in `sets`.
    pub fn parse(file: &str, text: &str, sets: &[String]) -> Result<Vec<Variant>, ScenarioErrors> {
        let overrides = Overrides {
            sets,
            written: &[],
            with_files: sets.len(),
            texts: &Texts::default(),
        };
        Scenario::parse_with(file, text, overrides)
    }

    /// Does the same as [`Scenario::parse`] for overrides that have other origins than `--set`.
    ///
    /// # Errors
    /// All errors in `text` and in the overrides.
    pub fn parse_with(
        file: &str,
        text: &str,
        overrides: Overrides<'_>,
    ) -> Result<Vec<Variant>, ScenarioErrors> {
        let Overrides {
            sets,
            written,
            with_files,
            texts,
        } = overrides;
        let mut problems = Problems::of(Source {
            name: file,
            text,
            options: sets,
            written,
            with_files,
        });
        problems.share(texts);
        let variants = tree::parse(text, &mut problems)
            .map(|root| read_variants(file, root, sets, &mut problems));
        match variants {
            Some(variants) if problems.is_empty() => Ok(variants),
            _ => Err(problems.into_errors()),
        }
    }

    /// Returns the scenario as TOML that reads as the same scenario.
    pub fn to_toml(&self) -> String {
        tree::to_toml(&self.to_tree())
    }

    /// Reads the text of a recorded scenario, which may have no flow.
    ///
    /// # Errors
    /// All errors in `text`.
    pub fn parse_recorded(text: &str) -> Result<Scenario, ScenarioErrors> {
        let mut variants = Scenario::parse("", text, &[])?;
        Ok(variants.swap_remove(0).scenario)
    }

    /// Returns the last instant at which a rate or a delay changes, as far as the scenario lists the
    /// changes.
    pub fn last_step(&self) -> Option<Span> {
        let steps = |(_, pipe): (_, &Pipe)| {
            [pipe.rate.last_written(), pipe.delay.last_written()].into_iter()
        };
        self.pipes().flat_map(steps).flatten().max()
    }

    /// Returns every single flow with its number and name.
    pub fn instances(&self) -> impl Iterator<Item = FlowInstance<'_>> {
        let of_flow = |flow| {
            let instances = Flow::instances(flow, self.duration).enumerate();
            instances.map(move |(number, times)| (flow, number, times))
        };
        self.flows.iter().flat_map(of_flow).zip(0..).map(
            |((flow, number, (name, start, stop)), id)| FlowInstance {
                id,
                name,
                flow,
                number,
                start,
                stop,
            },
        )
    }

    fn to_tree(&self) -> Table {
        let mut root = Table::default();
        RootKeys {
            title: Some(self.title.clone()),
            about: self.about.clone(),
            duration: self.duration,
            lead: self.lead,
            seed: self.seed,
            backend: self.backend,
            rules: self.rules.clone(),
        }
        .write(&mut root);
        if self.rules.is_none() {
            root.push("link", Value::Table(self.link.write()));
        }
        if !self.hops.is_empty() {
            let hops = self.hops.iter().map(|hop| Value::Table(hop.write()).into());
            root.push("hop", Value::Array(hops.collect()));
        }
        let mut hosts = Table::default();
        self.hosts.write(&mut hosts);
        root.push("hosts", Value::Table(hosts));
        let mut measure = Table::default();
        self.measure.write(&mut measure);
        root.push("measure", Value::Table(measure));
        flow::write_all(&self.flows, &mut root);
        if !self.expect.is_empty() {
            let tables = self.expect.iter().map(|e| Value::Table(e.write()).into());
            root.push("expect", Value::Array(tables.collect()));
        }
        root
    }

    /// Reads the tree of one variant.
    fn read(
        file: &str,
        root: &Table,
        variant: &str,
        variants: &[String],
        must_measure: bool,
        problems: &mut Problems,
    ) -> Option<Scenario> {
        let section = Section::new("the scenario", Place::File(0..0));
        let tables = [
            "link", "hop", "hosts", "measure", "flow", "expect", "matrix", "variant", "picture",
        ];
        let known: Vec<&str> = names(RootKeys::KEYS).chain(tables).collect();
        section.check_keys(root, &known, problems);
        let keys = RootKeys::read(root, &section, problems);
        let hosts: Option<Hosts> = read_table("hosts", root, problems);
        let measure: Option<Measure> = read_table("measure", root, problems);
        let link = Link::read(root, problems);
        let hops = Link::read_hops(root, problems);
        // Without a duration, flows are checked as far as possible.
        let duration = keys.as_ref().map_or(Span::MAX, |keys| keys.duration);
        // After an error in a flow, expectations about its figures would be reported too.
        let flows = flow::read_all(root, duration, problems)?;
        // The text of a recording has no file. A recorded program may have opened no connection.
        if flows.is_empty() && !file.is_empty() {
            let at = root.node("flow").map(|node| node.at.clone());
            let hint = "add one, such as [[flow]] with type = \"tcp\"";
            return problems.refuse(
                Problem::new(at.unwrap_or(Place::File(0..0)), "there is no [[flow]]").hint(hint),
            );
        }
        let subject = expect::Subject {
            flows: &flows,
            // After an error in a link, figures of links would be reported too.
            links: hops
                .as_ref()
                .map_or(PipeId::MOST_HOPS, |hops| hops.len() + 1),
            variant,
            variants,
            must_measure,
        };
        let expect = expect::read_all(root, subject, problems);
        let (keys, hosts, measure, mut link, mut hops) = (keys?, hosts?, measure?, link?, hops?);
        if hosts.stall_share > Ratio::ONE {
            let message = format!(
                "a `stall_share` of {} is more than all packets",
                hosts.stall_share
            );
            let at = checks::place(root, "hosts", "stall_share");
            problems.push(
                Problem::new(at, message).hint("write 0.01 or \"1%\" for one packet in a hundred"),
            );
        }
        let links: Vec<&Link> = std::iter::once(&link).chain(&hops).collect();
        let until = checks::check_turns(root, &links, keys.duration, problems)?;
        for link in std::iter::once(&mut link).chain(&mut hops) {
            link.extend_to(until);
        }
        if measure.warmup >= keys.duration {
            // Then no flow lasts longer than the run either.
            problems.push(
                Problem::new(
                    checks::place(root, "measure", "warmup"),
                    format!("nothing is left after a warm-up of {}", measure.warmup),
                )
                .hint(format!("the run lasts {}", keys.duration)),
            );
        }
        for (key, span) in [("window", measure.window), ("step", measure.step)] {
            if span > keys.duration {
                let message = format!("a `{key}` of {span} is longer than the run");
                problems.push(
                    Problem::new(checks::place(root, "measure", key), message)
                        .hint(format!("the run lasts {}", keys.duration)),
                );
            }
        }
        if measure.warmup < keys.duration {
            checks::check_warmup(root, &flows, &measure, problems);
        }
        let stem = || Path::new(file).file_stem().unwrap_or_default();
        let scenario = Scenario {
            title: keys
                .title
                .unwrap_or_else(|| stem().to_string_lossy().into_owned()),
            about: keys.about,
            duration: keys.duration,
            lead: keys.lead,
            seed: keys.seed,
            backend: keys.backend,
            link,
            hops,
            rules: keys.rules,
            hosts,
            measure,
            flows,
            expect,
        };
        checks::check_steps(root, &scenario, problems);
        checks::check_paths(root, &scenario, problems);
        checks::check_windows(root, &scenario, problems);
        Some(scenario)
    }

    /// Returns the links of the path, in the order of the path up.
    pub fn links(&self) -> impl Iterator<Item = &Link> {
        std::iter::once(&self.link).chain(&self.hops)
    }

    /// Returns every direction of every link.
    pub fn pipes(&self) -> impl Iterator<Item = (PipeId, &Pipe)> {
        self.links().enumerate().flat_map(|(hop, link)| {
            [Direction::Up, Direction::Down]
                .map(|direction| (PipeId::new(direction, hop), link.pipe(direction)))
        })
    }

    /// Returns the links that a flow passes, counted from 0 in the order of the path up.
    pub fn hops_of(&self, flow: &Flow) -> std::ops::Range<usize> {
        match flow.hops {
            Some(Hops { first, last }) => first as usize - 1..last as usize,
            None => 0..self.hops.len() + 1,
        }
    }

    /// Returns the initial round trip of a flow's empty path, as given by its links.
    pub fn links_rtt(&self, flow: &Flow) -> Span {
        let hops = self.hops_of(flow);
        let links = self.links().skip(hops.start).take(hops.len());
        links.fold(Span::ZERO, |sum, link| sum.saturating_add(link.rtt()))
    }

    /// Returns the difference between the round trip of a flow and that of the links that it
    /// passes.
    pub fn extra_rtt(&self, flow: &Flow) -> Span {
        flow.rtt
            .map_or(Span::ZERO, |rtt| rtt.saturating_sub(self.links_rtt(flow)))
    }
}

/// Reads the table `name`, which may be left out.
fn read_table<K: Keys>(name: &str, root: &Table, problems: &mut Problems) -> Option<K> {
    let empty = Table::default();
    let (table, at) = match root.node(name) {
        None => (&empty, Place::Nowhere),
        Some(node) => {
            let table = as_table(format!("`{name}`"), node, problems)?;
            (table, node.at.clone())
        }
    };
    let section = Section::new(format!("[{name}]"), at);
    section.check_keys(table, &names(K::KEYS).collect::<Vec<_>>(), problems);
    K::read(table, &section, problems)
}

fn read_variants(
    file: &str,
    mut root: Table,
    sets: &[String],
    problems: &mut Problems,
) -> Vec<Variant> {
    flow::name_all(&mut root);
    let mut axes = matrix::take_axes(&mut root, problems);
    let is_matrix_wrong = !problems.is_empty();
    let (mut is_matrix_changed, mut are_flows_set) = (false, false);
    for (number, option) in sets.iter().enumerate() {
        let Some(change) = set::Override::parse(option, number, problems) else {
            continue;
        };
        let whole_path = change.path.trim_matches('"');
        let axis_path = whole_path.strip_prefix("matrix.");
        let path = axis_path.unwrap_or(whole_path).trim_matches('"');
        if path == "matrix" {
            let message = "`matrix` is a table, not a key";
            let hint = "give one key of it: matrix.link.queue=[\"fifo\", \"codel\"]";
            problems.push(Problem::new(change.path_at, message).hint(hint));
            continue;
        }
        if path == Coordinate::VARIANT {
            if let Some(axis) = axes.iter_mut().find(|axis| axis.path == path) {
                axis.keep(&change.node, problems);
                is_matrix_changed = true;
            } else {
                let problem = Problem::new(change.path_at, "the scenario has no [[variant]]");
                problems.push(problem.hint("set the keys themselves, such as link.queue=fifo"));
            }
            continue;
        }
        are_flows_set |= path.split('.').next() == Some("flow");
        // A key that the user sets is no longer varied.
        let before = axes.len();
        axes.retain_mut(|axis| {
            !matrix::replaces(path, &axis.path) && axis.leave_out(path, &change.path_at, problems)
        });
        is_matrix_changed |= axes.len() != before || axis_path.is_some();
        if axis_path.is_some() {
            axes.extend(matrix::Axis::new(
                path,
                change.path_at,
                &change.node,
                problems,
            ));
        } else {
            set::set_path(&mut root, path, &change.path_at, &change.node, problems);
        }
    }
    let expansions = matrix::expand(&root, &axes, problems);
    // Not all flows of a wrong matrix are known. Flows that the user sets may lack what was measured.
    let must_measure = problems.is_empty() && !are_flows_set;
    let mut variant_names: Vec<String> = expansions.iter().map(|e| e.name.clone()).collect();
    if axes.is_empty() {
        // The name is that of the queue, which is known when the scenario has been read.
        let link = Link::read(&root, &mut problems.beside());
        let name = link.map(|link| match root.find("rules") {
            Some(_) => "rules".to_owned(),
            None => link.up.queue.0.algorithm.name.to_owned(),
        });
        variant_names = name.into_iter().collect();
    }
    // An expectation about a variant that the user has left out is left out too. Of a wrong matrix,
    // not all variants are known.
    let known: &[String] = if is_matrix_changed || is_matrix_wrong {
        &[]
    } else {
        &variant_names
    };
    let mut variants: Vec<Variant> = Vec::new();
    for (i, expansion) in expansions.iter().enumerate() {
        let name = variant_names.get(i).map_or("", String::as_str);
        let mut tree = expansion.tree.clone();
        each_way::split_all(&mut tree);
        let scenario = Scenario::read(file, &tree, name, known, must_measure, problems);
        if let Some(scenario) = scenario {
            let variant = Variant {
                name: name.to_owned(),
                scenario,
                coordinates: expansion.coordinates.clone(),
            };
            if let Some(other) = variants.iter().find(|v| v.folder() == variant.folder()) {
                let message = format!(
                    "the variants `{}` and `{name}` would share the folder `{}`",
                    other.name,
                    variant.folder()
                );
                problems.push(
                    Problem::new(Place::File(0..0), message).hint("name the values of [matrix]"),
                );
            }
            variants.push(variant);
        }
    }
    variants
}

impl Serialize for Scenario {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_tree().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Scenario {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = serde_json::Value::deserialize(deserializer)?;
        let mut problems = Problems::default();
        let root = match tree::from_json(&json) {
            Some(Value::Table(root)) => root,
            _ => return Err(D::Error::custom("a scenario is a table without nulls")),
        };
        match read_variants("", root, &[], &mut problems).pop() {
            Some(variant) if problems.is_empty() => Ok(variant.scenario),
            _ => Err(D::Error::custom(problems.into_errors())),
        }
    }
}
