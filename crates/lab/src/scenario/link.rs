//! The link under test: two pipes, one for each direction, each with a queue of its own.

use sluice_core::registry::Spec;
use sluice_core::{Bytes, Span};

use super::error::{Problem, Problems};
use super::field::{Direction, Queue, Schedule};
use super::schema::{Keys, Section, keys, names};
use super::tree::{Place, Table, Value};

keys! {
    /// One direction of the link.
    pub struct Pipe {
        /// bits per second, counted over whole IP packets; `"unlimited"`, one rate, or a schedule
        /// of pairs of a time and the rate from then on
        rate: Schedule;
        /// propagation delay of this direction
        delay: Span = Span::ZERO, Span::ZERO => Span::from_secs(60);
        /// bytes that pass at once after an idle time
        burst: Bytes = Bytes::ZERO, Bytes::ZERO => Bytes::new(1 << 30);
        /// the queue in front of the link, in the words of `sluice list`
        queue: Queue = default_queue();
    }
}

keys! {
    /// What only the shorthand `[link]` has.
    pub struct LinkKeys {
        /// round-trip time of the empty link: half of it becomes the delay of each direction;
        /// excludes `delay`
        rtt: Option<Span>, Span::ZERO => Span::from_secs(120);
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
    /// The pipe of a direction.
    pub const fn pipe(&self, direction: Direction) -> &Pipe {
        match direction {
            Direction::Up => &self.up,
            Direction::Down => &self.down,
        }
    }

    /// The delay of both directions together.
    pub fn rtt(&self) -> Span {
        self.up.delay.saturating_add(self.down.delay)
    }

    /// Reads `[link]`, the shorthand for both directions, with `[link.up]` and `[link.down]`, which
    /// override it key by key.
    pub(crate) fn read(root: &Table, problems: &mut Problems) -> Option<Link> {
        let Some(entry) = root.find("link") else {
            problems.push(
                Problem::new(Place::File(0..0), "there is no [link]")
                    .hint("a scenario has one, with at least a `rate`"),
            );
            return None;
        };
        let section = Section::new("[link]", entry.node.at.clone());
        let Some(shared) = entry.node.as_table() else {
            let message = format!("`link` is a table, not {}", entry.node.value.kind());
            problems.push(Problem::new(entry.node.at.clone(), message));
            return None;
        };
        let known: Vec<&str> = names(Pipe::KEYS)
            .chain(names(LinkKeys::KEYS))
            .chain(["up", "down"])
            .collect();
        section.check_keys(shared, &known, problems);
        let rtt = LinkKeys::read(shared, &section, problems).and_then(|keys| keys.rtt);
        let up = read_pipe(shared, Direction::Up, rtt, &section, problems);
        let down = read_pipe(shared, Direction::Down, rtt, &section, problems);
        Some(Link {
            up: up?,
            down: down?,
        })
    }

    pub(crate) fn write(&self, root: &mut Table) {
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
        root.push("link", Value::Table(link));
    }
}

/// Puts the keys of one direction together and reads them.
fn read_pipe(
    shared: &Table,
    direction: Direction,
    rtt: Option<Span>,
    link: &Section,
    problems: &mut Problems,
) -> Option<Pipe> {
    let mut merged = Table::default();
    for entry in &shared.0 {
        if names(Pipe::KEYS).any(|name| name == entry.key) {
            merged.0.push(entry.clone());
        }
    }
    let mut section = Section::new(link.name.as_str(), link.at.clone());
    if let Some(entry) = shared.find(direction.word()) {
        section = Section::new(format!("[link.{direction}]"), entry.node.at.clone());
        let Some(own) = entry.node.as_table() else {
            let message = format!(
                "`link.{direction}` is a table, not {}",
                entry.node.value.kind()
            );
            problems.push(Problem::new(entry.node.at.clone(), message));
            return None;
        };
        let known: Vec<&str> = names(Pipe::KEYS).collect();
        section.check_keys(own, &known, problems);
        for entry in &own.0 {
            merged.set(&entry.key, entry.key_at.clone(), entry.node.clone());
        }
    }
    if let (Some(rtt), Some(total)) = (rtt, shared.find("rtt")) {
        if let Some(delay) = merged.find("delay") {
            problems.push(
                Problem::new(delay.key_at.clone(), "`delay` contradicts `rtt`")
                    .hint("give one of them")
                    .other(total.key_at.clone(), "`rtt` is set"),
            );
            return None;
        }
        // An odd nanosecond goes up, so that both directions add up to the round trip.
        let half = match direction {
            Direction::Up => rtt.as_ns().div_ceil(2),
            Direction::Down => rtt.as_ns() / 2,
        };
        merged.push("delay", Value::text(Span::from_ns(half)));
    }
    Pipe::read(&merged, &section, problems)
}

fn default_queue() -> Queue {
    Queue(Spec::parse("fifo").expect("`fifo` is registered"))
}
