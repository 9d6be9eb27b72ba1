//! `rules`: the bottleneck as a dummynet configuration.

use std::convert::Infallible;

use sluice_core::{Cx, DropCounter, Rng, Time};
use sluice_ipfw::grammar::{self, Command};
use sluice_ipfw::{Firewall, Interface, NoFiles, Output, Prepared, Settings, Warning};

use super::error::{Problem, Problems};
use super::field::wrong_type;
use super::file::TextFile;
use super::schema::Field;
use super::tree::{Node, Table, Value};

/// Commands that a router executes at its start, one per line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The commands.
    pub text: String,
    /// The file with the commands, if they are not in the scenario itself.
    pub path: Option<String>,
}

impl Rules {
    /// The router's interfaces in rules: towards `h2` and towards `h3`.
    pub const INTERFACES: [&str; 2] = ["h2", "h3"];

    /// Returns a router that has executed the commands.
    ///
    /// # Errors
    /// The router's error for the first command that it refuses.
    pub fn firewall(&self, seed: u64) -> Result<Firewall, String> {
        let mut firewall = Firewall::new(&Settings {
            seed,
            ..Settings::default()
        });
        firewall.set_interfaces(Rules::interfaces());
        let (mut rng, mut sink) = (Rng::from_seed(seed), DropCounter::default());
        let mut cx = Cx::new(Time::ZERO, &mut rng, &mut sink);
        firewall
            .batch(&self.text, false, &mut NoFiles, &mut cx)
            .map_err(|error| error.to_string())?;
        Ok(firewall)
    }

    fn interfaces() -> Vec<Interface> {
        let interface = |name: &str| Interface {
            name: name.to_owned(),
            addresses: Vec::new(),
        };
        Rules::INTERFACES.map(interface).into()
    }

    /// Returns the warnings of the rules' language: reasons why commands do not do what they appear to
    /// say, each with its line.
    pub fn warnings(&self) -> Vec<String> {
        let (settings, mut output) = (Settings::default(), Output::default());
        let interfaces = Rules::interfaces();
        // What is refused was refused when the scenario was read.
        Prepared::check(&settings, interfaces, &self.text, &mut NoFiles, &mut output);
        let name = self.path.as_deref().unwrap_or("rules");
        let line = |warning: &Warning| match warning.at {
            Some(at) => format!("`{name}`, line {}: {}", at.line, warning.text),
            None => format!("`{name}`: {}", warning.text),
        };
        output.warnings.iter().map(line).collect()
    }
}

impl Rules {
    /// Returns the commands without the algorithms and lengths of their queues: rules with the same
    /// remainder differ only in their queues.
    #[must_use]
    pub fn without_queues(&self) -> Rules {
        let bare = |(line, number): (&str, u32)| {
            let parsed = grammar::parse(line, number, false);
            let Some(mut invocation) = parsed.ok().and_then(|parsed| parsed.invocation) else {
                // Comments and empty lines change nothing; a wrong line was refused before.
                return String::new();
            };
            if let Command::Configure(config) = &mut invocation.command {
                config.queue = None;
                config.policy = None;
                config.scheduler = None;
            }
            invocation.to_string()
        };
        let lines = self.text.lines().zip(1..).map(bare);
        let lines: Vec<String> = lines.filter(|line| !line.is_empty()).collect();
        Rules {
            text: lines.join("\n"),
            path: None,
        }
    }
}

impl Field for Rules {
    type Scalar = Infallible;
    const KIND: &'static str = "lines of commands, or `{ file = \"PATH\" }`";

    fn read(key: &str, node: &Node, problems: &mut Problems) -> Option<Self> {
        let rules = match &node.value {
            Value::Text(text) => Rules {
                text: text.clone(),
                path: None,
            },
            Value::Table(table) if table.0.len() == 1 && table.find("file").is_some() => {
                let file = TextFile::read("file", table.node("file")?, problems)?;
                Rules {
                    text: file.text,
                    path: Some(file.path),
                }
            }
            _ => {
                let expected = "lines of commands, or { file = \"PATH\" }";
                return problems.refuse(wrong_type(key, node, expected));
            }
        };
        if let Err(message) = rules.firewall(1) {
            let name = rules.path.as_deref().unwrap_or(key);
            return problems.refuse(Problem::new(
                node.at.clone(),
                format!("`{name}`: {message}"),
            ));
        }
        Some(rules)
    }

    fn write(&self) -> Option<Value> {
        let Some(path) = &self.path else {
            return Some(Value::text(&self.text));
        };
        let file = TextFile {
            path: path.clone(),
            text: self.text.clone(),
        };
        let mut table = Table::default();
        table.push("file", file.write());
        Some(Value::Table(table))
    }
}
