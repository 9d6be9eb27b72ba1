//! `rules`: the bottleneck as a dummynet configuration.

use std::convert::Infallible;
use std::path::{Path, PathBuf};

use sluice_core::registry::{Algorithm, Loaders};
use sluice_core::{Cx, DropCounter, Rng, Time};
use sluice_ipfw::grammar::{self, Command};
use sluice_ipfw::{Files, Firewall, Interface, NoFiles, Output, Prepared, Settings, Warning};
use sluice_loader::{Contained, InFolder};

use super::error::{Problem, Problems};
use super::field::wrong_type;
use super::file::TextFile;
use super::schema::Field;
use super::tree::{Node, Table, Value};

/// Commands that a router executes at its start, one per line.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The commands.
    pub text: String,
    /// The file with the commands, if they are not in the scenario itself.
    pub path: Option<String>,
    /// The folder that the paths of algorithms such as `wasm:my.wasm` are relative to: that of the
    /// scenario, also if the commands are in a file elsewhere.
    pub folder: PathBuf,
}

/// The folder is not compared: the same commands are the same rules, as a queue with the same words is
/// the same queue, and a recording does not have its scenario's folder.
impl PartialEq for Rules {
    fn eq(&self, other: &Rules) -> bool {
        (&self.text, &self.path) == (&other.text, &other.path)
    }
}

impl Eq for Rules {}

/// Reads the files of algorithms, and no others.
struct Algorithms<'a>(InFolder<&'a Path>);

impl Files for Algorithms<'_> {
    fn read(&mut self, path: &str) -> Result<String, String> {
        NoFiles.read(path)
    }

    fn loaders(&self) -> &dyn Loaders {
        &self.0
    }
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
            .batch(
                &self.text,
                false,
                &mut Algorithms(InFolder(&self.folder)),
                &mut cx,
            )
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
        let mut files = Algorithms(InFolder(&self.folder));
        Prepared::check(&settings, interfaces, &self.text, &mut files, &mut output);
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
            // A wrong line was refused before, so what cannot be parsed names an algorithm that a
            // recording does not contain, or one that is not executed here.
            let loaders = Contained(&self.folder);
            let parsed = grammar::parse_with(&loaders, line, number, false)
                .or_else(|_| grammar::parse_with(&loaders, before_file(line), number, false));
            let parsed = parsed.ok().and_then(|parsed| parsed.invocation);
            let Some(mut invocation) = parsed else {
                // Comments and empty lines change nothing.
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
            folder: self.folder.clone(),
        }
    }

    /// Returns the algorithms from files that the commands name.
    pub(crate) fn algorithms(&self) -> impl Iterator<Item = &'static Algorithm> {
        let commands = self.text.lines().filter_map(|line| line.split('#').next());
        let words = commands.flat_map(str::split_whitespace);
        let named = words.filter(|word| sluice_loader::names_file(word));
        named.filter_map(move |word| sluice_loader::load(word, &self.folder)?.ok())
    }

    /// Whether a word may name an algorithm in a file.
    fn may_name_file(&self) -> bool {
        let mut words = self.text.split_whitespace();
        words.any(sluice_loader::names_file)
    }
}

/// Returns the words of a command before the algorithm from a file, which ends the line. `type` has
/// no meaning without it.
fn before_file(line: &str) -> &str {
    let mut words = line.split_whitespace();
    let Some(word) = words.find(|word| sluice_loader::names_file(word)) else {
        return line;
    };
    let end = line.find(word).unwrap_or(line.len());
    let before = line[..end].trim_end();
    before.strip_suffix(" type").unwrap_or(before)
}

impl Field for Rules {
    type Scalar = Infallible;
    const KIND: &'static str = "lines of commands, or `{ file = \"PATH\" }`";

    fn read(key: &str, node: &Node, problems: &mut Problems) -> Option<Self> {
        let folder = problems.folder().to_owned();
        let rules = match &node.value {
            Value::Text(text) => Rules {
                text: text.clone(),
                path: None,
                folder,
            },
            Value::Table(table) if table.0.len() == 1 && table.find("file").is_some() => {
                let file = TextFile::read("file", table.node("file")?, problems)?;
                Rules {
                    text: file.text,
                    path: Some(file.path),
                    folder,
                }
            }
            _ => {
                let expected = "lines of commands, or { file = \"PATH\" }";
                return problems.refuse(wrong_type(key, node, expected));
            }
        };
        // A recording names the algorithms that ran, but does not contain them.
        if problems.is_recording() && rules.may_name_file() {
            return Some(rules);
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_without_queues_need_no_algorithm_from_a_file() {
        let bare = |aqm: &str, scheduler: &str| {
            let rules = Rules {
                text: format!(
                    "# a comment\npipe 1 config bw 1Mbit/s {aqm}\npipe 2 config bw 2Mbit/s\n\
                     sched 2 config pipe 2 type {scheduler}\nadd 100 pipe 1 ip6 from fd00::1 to any"
                ),
                path: None,
                folder: PathBuf::new(),
            };
            rules.without_queues().text
        };
        let own = bare("codel target 7ms", "fq_codel");
        assert_eq!(own.lines().count(), 4);
        assert_eq!(bare("wasm:gone.wasm target 7ms", "fq_wasm:gone.wasm"), own);
    }
}
