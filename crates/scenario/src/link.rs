//! The link under test: two pipes, one for each direction, each with a queue of its own.
//!
//! [`Preset`] names links that people know, such as `lte`.

use std::convert::Infallible;

use sluice_core::link::{
    self as core_link, LinkFiles, LinkParams, Profile, Table as DeviationTable,
};
use sluice_core::registry::Spec;
use sluice_core::{Discipline, Rate, Rng, Span, Time};

use super::effects::Effects;
use super::error::{Problem, Problems};
use super::field::Queue;
use super::file::TextFile;
use super::schedule::{Delays, Schedule};
use super::schema::{Field, Keys, Section, as_table, items, keys, names};
use super::source::Place;
use super::tree::{Node, Table, Value};
use super::words::{Direction, PipeId};

mod preset;
mod scheduled;

pub use preset::Preset;
pub use scheduled::ScheduledLink;

keys! {
    /// The keys of a link's direction, apart from its effects.
    pub struct PipeKeys {
        /// bits per second, counted over whole IP packets: `"unlimited"`, one rate, or a rate that
        /// varies with time (see below)
        rate: Schedule;
        /// propagation delay of this direction: one delay; pairs of a time and the delay from then
        /// on; or `{ every = "15s", delays = ["20ms", "30ms"] }` for delays that take turns
        delay: Delays = Delays::constant(Span::ZERO);
        /// the queue in front of the link, written as in `sluice list`; `{rate}` in it stands for the
        /// link's own `rate`
        queue: Queue = default_queue();
        /// file with a delay profile in dummynet's format; a rate in it replaces `rate`
        profile: Option<ProfileFile>;
        /// file with a table of deviations in netem's format, instead of `jitter_distribution`
        jitter_table: Option<JitterFile>;
    }
}

/// One direction of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct Pipe {
    /// Bits per second over time.
    pub rate: Schedule,
    /// Propagation delay over time.
    pub delay: Delays,
    /// The queue in front of the link.
    pub queue: Queue,
    /// The other effects on packets.
    pub effects: Effects,
    /// The delay profile: additional time on the link.
    pub profile: Option<ProfileFile>,
    /// The distribution of the delay's deviations.
    pub jitter_table: Option<JitterFile>,
}

/// A delay profile and its file.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfileFile(TextFile, Profile);

/// A table of deviations and its file.
#[derive(Clone, Debug, PartialEq)]
pub struct JitterFile(TextFile, DeviationTable);

macro_rules! parsed_file {
    ($type:ident, $kind:literal, $parse:expr) => {
        impl Field for $type {
            type Scalar = Infallible;
            const KIND: &'static str = $kind;

            fn read(key: &str, node: &Node, problems: &mut Problems) -> Option<Self> {
                let file = TextFile::read(key, node, problems)?;
                let parsed = file.parse(node, $parse, problems)?;
                Some($type(file, parsed))
            }

            fn write(&self) -> Option<Value> {
                Some(self.0.write())
            }
        }
    };
}

parsed_file!(ProfileFile, "path of a profile", Profile::parse);
parsed_file!(JitterFile, "path of a table", DeviationTable::parse);

impl Pipe {
    /// A pipe of unlimited rate, without delay and loss, whose queue never fills.
    pub fn unlimited() -> Pipe {
        Pipe {
            rate: Schedule::constant(Rate::UNLIMITED),
            delay: Delays::constant(Span::ZERO),
            queue: default_queue(),
            effects: Effects::default(),
            profile: None,
            jitter_table: None,
        }
    }

    /// Returns the initial parameters of the link.
    pub fn params(&self) -> LinkParams {
        let mut params = self.effects.params();
        params.pipe.rate = self.rate.at(Span::ZERO).unwrap_or(self.rate.highest());
        params.pipe.delay = self.delay.first();
        params
    }

    /// Returns the parts of the link that come from files, and the schedule of its rate.
    pub fn files(&self) -> LinkFiles {
        LinkFiles {
            rate: self.rate.source(),
            profile: self.profile.as_ref().map(|file| file.1.clone()),
            jitter_table: self.jitter_table.as_ref().map(|file| file.1.clone()),
        }
    }

    /// Builds the link with its queue, whose effects draw from streams forked from `rng`.
    ///
    /// # Panics
    /// If the queue cannot be built, which a queue that was read can.
    pub fn build(&self, rng: &Rng) -> ScheduledLink {
        ScheduledLink {
            link: core_link::Link::new(&self.params(), self.files(), self.build_queue(), rng),
            rate: self.rate.clone(),
            has_effects: self.has_effects(),
            delays: self.delays_after(Span::ZERO),
        }
    }

    fn build_queue(&self) -> Box<dyn Discipline> {
        let queue = self.queue.0.build();
        queue.expect("a queue that was parsed can be built")
    }

    /// Returns whether the link treats single packets.
    fn has_effects(&self) -> bool {
        !self.effects.to_string().is_empty() || self.profile.is_some()
    }

    /// Returns the delays that come into force after `at`, the next one last.
    fn delays_after(&self, at: Span) -> Vec<(Time, Span)> {
        let steps = self.delay.steps().iter().rev();
        let later = steps.filter(|(from, _)| *from > at);
        later
            .map(|(from, delay)| (Time::ZERO + *from, *delay))
            .collect()
    }

    fn keys() -> impl Iterator<Item = &'static str> {
        names(PipeKeys::KEYS).chain(Effects::decls().map(|decl| decl.name))
    }

    fn read(table: &Table, section: &Section, problems: &mut Problems) -> Option<Pipe> {
        let keys = PipeKeys::read(table, section, problems);
        let effects = Effects::read(table, section, problems);
        let (keys, effects) = (keys?, effects?);
        let of_profile = keys.profile.as_ref().and_then(|file| file.1.rate);
        Some(Pipe {
            rate: of_profile.map_or(keys.rate, Schedule::constant),
            delay: keys.delay,
            queue: keys.queue,
            effects,
            profile: keys.profile,
            jitter_table: keys.jitter_table,
        })
    }

    fn write(&self, table: &mut Table) {
        PipeKeys {
            rate: self.rate.clone(),
            delay: self.delay.clone(),
            queue: self.queue.clone(),
            profile: self.profile.clone(),
            jitter_table: self.jitter_table.clone(),
        }
        .write(table);
        self.effects.write(table);
    }
}

keys! {
    /// The keys that only the shorthand `[link]` has.
    pub struct LinkKeys {
        /// round-trip time of the empty link, written like `delay`: half of it becomes the delay of
        /// each direction; excludes `delay`
        rtt: Option<Delays>;
        /// a link by its name in `sluice list links`; every other key given here replaces that of the
        /// named link
        preset: Option<Preset>;
    }
}

/// Both directions.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// From `h2` to `h3`.
    pub up: Pipe,
    /// From `h3` to `h2`.
    pub down: Pipe,
}

impl Link {
    /// Returns the pipe of a direction.
    pub const fn pipe(&self, direction: Direction) -> &Pipe {
        match direction {
            Direction::Up => &self.up,
            Direction::Down => &self.down,
        }
    }

    /// A link without any effect on packets.
    pub fn unlimited() -> Link {
        Link {
            up: Pipe::unlimited(),
            down: Pipe::unlimited(),
        }
    }

    /// Returns the initial delay of both directions together.
    pub fn rtt(&self) -> Span {
        let (up, down) = (self.up.delay.first(), self.down.delay.first());
        up.saturating_add(down)
    }

    /// Repeats periodic schedules until `end`.
    pub(super) fn extend_to(&mut self, end: Span) {
        for pipe in [&mut self.up, &mut self.down] {
            pipe.rate.extend_to(end);
            pipe.delay.extend_to(end);
        }
    }

    /// Reads `[link]`, the shorthand for both directions, with `[link.up]` and `[link.down]`, which
    /// override it key by key.
    pub(crate) fn read(root: &Table, problems: &mut Problems) -> Option<Link> {
        let rules = root.find("rules");
        match (root.find("link"), rules) {
            (Some(entry), None) => Link::read_table("link", &entry.node, problems),
            (None, Some(_)) => Some(Link::unlimited()),
            (Some(link), Some(rules)) => {
                let message = "`rules` replace [link]";
                problems.refuse(
                    Problem::new(link.key_at.clone(), message)
                        .hint("give one of them")
                        .other(rules.key_at.clone(), "`rules` are set"),
                )
            }
            (None, None) => problems.refuse(
                Problem::new(Place::File(0..0), "there is no [link]")
                    .hint("a scenario has one, with at least a `rate`, or has `rules`"),
            ),
        }
    }

    /// Reads the other links of the path, `[[hop]]`.
    pub(crate) fn read_hops(root: &Table, problems: &mut Problems) -> Option<Vec<Link>> {
        let items = items("hop", root, problems)?;
        let Some(entry) = root.find("hop") else {
            return Some(Vec::new());
        };
        if root.find("rules").is_some() {
            let message = "a router with `rules` is the only one on the path";
            return problems
                .refuse(Problem::new(entry.key_at.clone(), message).hint("remove [[hop]]"));
        }
        if items.len() > MOST_HOPS {
            let message = format!("{} hops are too many", items.len());
            let hint = format!("at most {MOST_HOPS} besides [link]");
            return problems.refuse(Problem::new(entry.key_at.clone(), message).hint(hint));
        }
        let hops = items
            .iter()
            .map(|node| Link::read_table("hop", node, problems));
        hops.collect::<Vec<_>>().into_iter().collect()
    }

    fn read_table(name: &str, node: &Node, problems: &mut Problems) -> Option<Link> {
        let section = Section::new(format!("[{name}]"), node.at.clone());
        let shared = as_table(format!("`{name}`"), node, problems)?;
        let known: Vec<&str> = Pipe::keys()
            .chain(names(LinkKeys::KEYS))
            .chain(["up", "down"])
            .collect();
        section.check_keys(shared, &known, problems);
        let keys = LinkKeys::read(shared, &section, problems);
        if keys.is_none() && shared.find("preset").is_some() {
            // Keys that a named link may set must not be reported as missing.
            return None;
        }
        let (rtt, preset) = keys.map_or((None, None), |keys| (keys.rtt, keys.preset));
        let pipe = |direction, problems: &mut Problems| {
            let preset = preset.map(|preset| preset.pipe(direction, shared));
            let common = Common {
                name,
                shared,
                rtt: rtt.as_ref(),
                preset: preset.unwrap_or_default(),
            };
            read_pipe(&common, direction, &section, problems)
        };
        let (up, down) = (
            pipe(Direction::Up, problems),
            pipe(Direction::Down, problems),
        );
        Some(Link {
            up: up?,
            down: down?,
        })
    }

    /// Returns the link that a preset declares, as a scenario without other keys reads it.
    pub fn of(preset: &Preset) -> Link {
        let mut shared = Table::default();
        shared.push("preset", Value::text(preset.name()));
        let mut problems = Problems::default();
        Link::read_table("link", &Value::Table(shared).into(), &mut problems)
            .expect("every preset is a link")
    }

    pub(crate) fn write(&self) -> Table {
        let mut link = Table::default();
        if self.up == self.down {
            self.up.write(&mut link);
        } else {
            for direction in [Direction::Up, Direction::Down] {
                let mut pipe = Table::default();
                self.pipe(direction).write(&mut pipe);
                link.push(direction.word(), Value::Table(pipe));
            }
        }
        link
    }
}

/// The context that both directions of a link share.
struct Common<'a> {
    /// The table's name: `link` or `hop`.
    name: &'a str,
    shared: &'a Table,
    rtt: Option<&'a Delays>,
    /// The keys of the direction in a named link; those of the file replace them.
    preset: Table,
}

/// Merges the keys of one direction and reads them.
fn read_pipe(
    common: &Common<'_>,
    direction: Direction,
    link: &Section,
    problems: &mut Problems,
) -> Option<Pipe> {
    let (name, shared) = (common.name, common.shared);
    let mut merged = Table::default();
    for entry in &shared.0 {
        if Pipe::keys().any(|key| key == entry.key) {
            merged.0.push(entry.clone());
        }
    }
    let mut section = Section::new(link.name.as_str(), link.at.clone());
    if let Some(entry) = shared.find(direction.word()) {
        section = Section::new(format!("[{name}.{direction}]"), entry.node.at.clone());
        let own = as_table(format!("`{name}.{direction}`"), &entry.node, problems)?;
        let known: Vec<&str> = Pipe::keys().collect();
        section.check_keys(own, &known, problems);
        for entry in &own.0 {
            merged.set(&entry.key, entry.key_at.clone(), entry.node.clone());
        }
    }
    if let (Some(rtt), Some(total)) = (common.rtt, shared.find("rtt")) {
        if let Some(delay) = merged.find("delay") {
            return problems.refuse(
                Problem::new(delay.key_at.clone(), "`delay` contradicts `rtt`")
                    .hint("give one of them")
                    .other(total.key_at.clone(), "`rtt` is set"),
            );
        }
        if let Some(half) = half_of(rtt, direction).write() {
            merged.push("delay", half);
        }
    }
    for entry in &common.preset.0 {
        if merged.find(&entry.key).is_none() {
            merged.0.push(entry.clone());
        }
    }
    fill_rate(&mut merged, problems)?;
    Pipe::read(&merged, &section, problems)
}

/// Returns the delay of one direction of a link with this round-trip time.
pub(crate) fn half_of(rtt: &Delays, direction: Direction) -> Delays {
    // An odd nanosecond is added to one direction, so that both add up to the round trip.
    rtt.map(|rtt| match direction {
        Direction::Up => Span::from_ns(rtt.as_ns().div_ceil(2)),
        Direction::Down => Span::from_ns(rtt.as_ns() / 2),
    })
}

/// Replaces `{rate}` in the text of a queue by the rate of its own link.
fn fill_rate(pipe: &mut Table, problems: &mut Problems) -> Option<()> {
    let rate = pipe.node("rate").map(|node| node.value.clone());
    let Some(entry) = pipe.0.iter_mut().find(|entry| entry.key == "queue") else {
        return Some(());
    };
    let Value::Text(text) = &entry.node.value else {
        return Some(());
    };
    let Some(start) = text.find(RATE) else {
        return Some(());
    };
    let Some(Value::Text(rate)) =
        rate.filter(|rate| matches!(rate, Value::Text(text) if text != "unlimited"))
    else {
        let at = entry.node.within(start..start + RATE.len());
        let problem = Problem::new(at, "`{rate}` needs a link with one rate");
        return problems.refuse(problem.hint("give the link `rate`, such as \"10Mbit/s\""));
    };
    entry.node = Node {
        value: Value::Text(text.replace(RATE, &rate)),
        at: entry.node.at.clone(),
        text_at: None,
    };
    Some(())
}

/// Stands for the link's rate in the text of a queue.
const RATE: &str = "{rate}";

/// The largest number of links besides `[link]`; more are taken for a mistake.
const MOST_HOPS: usize = PipeId::MOST_HOPS - 1;

fn default_queue() -> Queue {
    Queue(Spec::parse("fifo").expect("`fifo` is registered"))
}
