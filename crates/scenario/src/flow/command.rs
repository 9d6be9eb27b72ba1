//! A program as traffic.

use std::convert::Infallible;

use serde_json::Value as Json;
use sluice_core::Span;
use sluice_core::spelling::nearest;

use super::super::error::{Problem, Problems};
use super::super::field::{Dscp, read_text};
use super::super::schema::{Field, Section, keys};
use super::super::tree::{Node, Table, Value};
use super::super::words::HostWord;
use super::report::Reports;
use super::{FlentSeries, FlowType, Measured, OwnFigure};

keys! {
    /// A program on one of the hosts: a measuring tool, a server, an application.
    pub struct Command {
        /// program and arguments, quoted as in a shell, but without one: for pipes, write
        /// `sh -c '...'`; `{peer}` is the address of the other host
        run: CommandLine;
        /// host that runs it: `h2` or `h3`
        host: HostWord = HostWord::H2;
        /// port, of TCP or UDP, that the program opens as a server: it is started before the run,
        /// which begins when the port is open, and ended after the other flows
        ready: Option<u64>, 1 => 65_535;
        /// figures in the program's output: a table of names, whose values are JSON pointers (RFC
        /// 6901) such as `"/end/sum_received/bytes"`, or tables with a `unit` and `at = POINTER`
        /// or, for output that is not JSON, `match = REGEX`
        figures: Reports = Reports::default();
    }
}

impl FlowType for Command {
    const DOC: &'static str = "A program on one of the hosts, with real packets only: a measuring \
        tool, a server, an application. `[[expect]]`, tables and the report have the figures that it \
        reports. It starts in the current folder, with `LC_ALL=C` and without input; what it writes \
        is kept in the recording.";
    const METRICS: &'static [&'static str] = &[
        "runtime",
        "sojourn.p50",
        "sojourn.p95",
        "sojourn.p99",
        "sojourn.max",
        "drops",
        "marks",
    ];
    const MEASURED: Measured = Measured::Nothing;
    const FLENT: FlentSeries = FlentSeries::None;

    fn describe(&self) -> String {
        format!("`{}` on {}", self.run.text, self.host)
    }

    fn dscp(&self) -> Dscp {
        // The program decides.
        Dscp::default()
    }

    fn place(&self) -> Option<&str> {
        self.run.place.as_deref()
    }

    fn has_own_addresses(&self) -> bool {
        self.ready.is_none()
    }

    fn is_program(&self) -> bool {
        true
    }

    fn figures(&self) -> &[OwnFigure] {
        &self.figures.0
    }

    fn check(&self, table: &Table, _section: &Section, problems: &mut Problems) -> bool {
        let at = |key| table.node(key).map(|node| node.at.clone());
        let mut is_right = true;
        // A recording contains the default value too.
        let is_late = |node: &&Node| match &node.value {
            Value::Text(text) => Span::parse(text).is_ok_and(|start| start > Span::ZERO),
            _ => false,
        };
        if self.ready.is_some()
            && let Some(start) = table.node("start").filter(is_late)
        {
            problems.push(
                Problem::new(start.at.clone(), "a program with `ready` has no `start`")
                    .hint("it starts before the run"),
            );
            is_right = false;
        }
        for figure in self.figures() {
            if Self::METRICS.contains(&figure.name.as_str()) {
                let message = format!("`{}` is a figure of every command", figure.name);
                let problem = Problem::new(at("figures").unwrap_or_default(), message);
                problems.push(problem.hint("choose another name"));
                is_right = false;
            }
        }
        is_right
    }
}

impl Command {
    /// Returns the program and its arguments, when the other host has the address `peer`.
    pub fn words(&self, peer: &str) -> Vec<String> {
        let words = self.run.words.iter();
        words.map(|word| word.replace(PEER, peer)).collect()
    }

    /// Returns the figures in what the program has written to its standard output.
    ///
    /// # Errors
    /// The first figure that is not there, and the reason.
    pub fn read_figures(&self, output: &str) -> Result<Vec<(String, f64)>, String> {
        let mut json: Option<Json> = None;
        let mut found = Vec::new();
        for figure in self.figures() {
            let value = figure
                .source
                .value(output, &mut json)
                .map_err(|reason| format!("no figure `{}`: {reason}", figure.name))?;
            found.push((figure.name.clone(), figure.to_base(value)));
        }
        Ok(found)
    }
}

/// A program and its arguments. The place is kept for errors of the run.
#[derive(Clone, Debug, Eq)]
pub struct CommandLine {
    text: String,
    words: Vec<String>,
    place: Option<String>,
}

impl PartialEq for CommandLine {
    /// The place does not matter for equality.
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl std::fmt::Display for CommandLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl Field for CommandLine {
    type Scalar = Infallible;
    const KIND: &'static str = "command";

    fn read(key: &str, node: &Node, problems: &mut Problems) -> Option<Self> {
        let text = read_text(key, node, problems)?;
        let Some(words) = shlex::split(text) else {
            let message = format!("`{key}` has a quote or a backslash without an end");
            return problems.refuse(Problem::new(node.at.clone(), message));
        };
        if words.first().is_none_or(String::is_empty) {
            let problem = Problem::new(node.at.clone(), format!("`{key}` names no program"));
            return problems.refuse(problem.hint("write it as in \"iperf3 -c {peer} -J\""));
        }
        if let Some((at, word)) = unknown_placeholder(text) {
            let at = node.within(at..at + word.len());
            let problem = Problem::new(at, format!("`{key}` cannot contain `{word}`"));
            return problems.refuse(problem.hint(format!("`{PEER}` is the other host's address")));
        }
        Some(CommandLine {
            text: text.to_owned(),
            words,
            place: problems.describe(&node.at),
        })
    }

    fn write(&self) -> Option<Value> {
        Some(Value::text(&self.text))
    }
}

/// Returns the first word in braces that is probably meant as [`PEER`]. Other braces belong to the
/// program, such as `${name}` of a shell, `%{time_total}` of curl and `{print}` of awk.
fn unknown_placeholder(text: &str) -> Option<(usize, &str)> {
    let starts = text.match_indices('{').map(|(at, _)| at);
    let mut words = starts.filter_map(|at| {
        let length = text[at..].find('}')? + 1;
        Some((at, &text[at..at + length]))
    });
    let is_meant = |word: &str| {
        let inner = &word[1..word.len() - 1];
        word != PEER && (HOSTS.contains(&inner) || !nearest(inner, ["peer"]).is_empty())
    };
    let is_of_program = |at: usize| text[..at].ends_with(['$', '%']);
    words.find(|(at, word)| is_meant(word) && !is_of_program(*at))
}

/// Other words for the other host.
const HOSTS: &[&str] = &[
    "addr",
    "address",
    "client",
    "destination",
    "dst",
    "host",
    "ip",
    "other",
    "remote",
    "server",
    "target",
];

/// The address of the other host.
const PEER: &str = "{peer}";

#[cfg(test)]
mod tests;
