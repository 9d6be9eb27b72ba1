//! `sluice list`: lists the algorithms of the registry with their parameters, the parameters of a
//! link, and the named links.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use clap_complete::engine::ArgValueCandidates;
use serde_json::{Value as Json, json};
use sluice_core::Rate;
use sluice_core::link::LinkParams;
use sluice_core::param::{Kind, ParamDecl, Value};
use sluice_core::registry::{self, Algorithm};
use sluice_core::spelling::nearest;
use sluice_scenario::{Direction, Preset};

use crate::completion;

/// What to list.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// What to show in full: an algorithm, with the meaning and source of every parameter; `link`,
    /// the parameters of a link; `links`, all named links; the name of a link; or `wasm:FILE`, the
    /// AQM of a module
    #[arg(add = ArgValueCandidates::new(completion::listed))]
    name: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The reason why nothing was listed.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// No algorithm and no link has this name.
    #[error("no algorithm or link is called `{name}`; {}", hint(.name))]
    Unknown {
        /// The name as given.
        name: String,
    },
    /// The file that should have the algorithm cannot be loaded.
    #[error("{0}")]
    NotLoaded(String),
    /// Standard output cannot be written.
    #[error("cannot write to standard output: {0}")]
    Output(#[from] std::io::Error),
}

/// Prints the list.
///
/// # Errors
/// [`ListError::Unknown`] with the nearest names, or [`ListError::Output`].
pub fn run(args: &Args) -> Result<ExitCode, ListError> {
    let text = match &args.name {
        None if args.json => pretty(&entries().iter().map(Entry::to_json).collect()),
        None => overview(),
        Some(name) if name == LINKS && args.json => pretty(&Preset::all().map(to_json).collect()),
        Some(name) if name == LINKS => links(),
        Some(name) => match Preset::find(name) {
            Some(preset) if args.json => pretty(&to_json(preset)),
            Some(preset) => in_toml(preset),
            None => {
                let all = entries().into_iter().chain([link()]);
                let entry = match sluice_loader::load(name, Path::new("")) {
                    Some(loaded) => Some(Entry::of(loaded.map_err(ListError::NotLoaded)?)),
                    None => all.into_iter().find(|entry| entry.name == *name),
                };
                let entry = entry.ok_or_else(|| ListError::Unknown { name: name.clone() })?;
                if args.json {
                    pretty(&entry.to_json())
                } else {
                    entry.in_full()
                }
            }
        },
    };
    crate::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The argument that lists the named links.
const LINKS: &str = "links";

/// Width of the output in columns; fits every terminal.
const WIDTH: usize = 80;

/// An entry with declared parameters.
struct Entry {
    name: &'static str,
    form: &'static str,
    doc: &'static str,
    /// The parameters, with the defaults of this entry and their sources.
    params: Vec<(&'static ParamDecl, Value, &'static str)>,
}

/// All algorithms.
fn entries() -> Vec<Entry> {
    registry::algorithms().map(Entry::of).collect()
}

/// Returns the parameters of a link.
fn link() -> Entry {
    Entry {
        name: "link",
        form: "link",
        doc: "the path between a queue and the far end: delay, loss, reordering",
        params: LinkParams::decls()
            .map(|decl| (decl, decl.default, decl.source))
            .collect(),
    }
}

/// Formats the named links.
fn links() -> String {
    let header = ["name", "Mbit/s down/up", "RTT", "loss", "FIFO"];
    let mbps = |rate: Rate| rate.as_bps() as f64 / 1e6;
    let mut rows = vec![header.map(String::from)];
    for preset in Preset::all() {
        rows.push([
            preset.names().join(", "),
            format!(
                "{}/{}",
                mbps(preset.rate(Direction::Down)),
                mbps(preset.rate(Direction::Up))
            ),
            preset.rtt().to_string(),
            preset.loss().to_string(),
            preset.queue().to_string(),
        ]);
    }
    let widths: Vec<usize> = (0..header.len())
        .map(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0))
        .collect();
    let mut out = String::new();
    for row in rows {
        let cells = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:width$}"));
        let line: Vec<String> = cells.collect();
        let _ = writeln!(out, "{}", line.join("  ").trim_end());
    }
    out.push_str("\n`sluice list NAME` prints a link as keys of a scenario, with its source.\n");
    out
}

/// Formats a link as keys of a scenario, after a comment with its source.
fn in_toml(preset: Preset) -> String {
    let mut source = String::new();
    wrap(&mut source, 2, preset.source().split(' ').map(String::from));
    let mut out = String::new();
    for line in source.lines() {
        let _ = writeln!(out, "#{}", &line[1..]);
    }
    out + &preset.to_toml()
}

fn to_json(preset: Preset) -> Json {
    json!({
        "names": preset.names(),
        "source": preset.source(),
        "down_bps": preset.rate(Direction::Down).as_bps(),
        "up_bps": preset.rate(Direction::Up).as_bps(),
        "rtt_ns": preset.rtt().as_ns(),
        "loss": preset.loss(),
        "queue_ns": preset.queue().as_ns(),
        "toml": preset.to_toml(),
    })
}

/// Formats all algorithms, by form, with their parameters and defaults.
fn overview() -> String {
    let mut out = String::new();
    let entries = entries();
    let mut forms: Vec<&str> = Vec::new();
    for entry in &entries {
        if !forms.contains(&entry.form) {
            forms.push(entry.form);
        }
    }
    for form in forms {
        let _ = writeln!(out, "{}", heading(form));
        for entry in entries.iter().filter(|entry| entry.form == form) {
            let _ = writeln!(out, "  {}", entry.name);
            wrap(&mut out, 6, entry.doc.split(' ').map(String::from));
            wrap(&mut out, 6, entry.brief().into_iter());
        }
        out.push('\n');
    }
    out.push_str("After each parameter: its default and, in brackets, what is accepted.\n");
    out.push_str(
        "`sluice list NAME` shows one in full, `sluice list link` what can be set for a\n",
    );
    out.push_str("link, `sluice list links` the links that have names, --json everything.\n");
    let synopses: Vec<&str> = sluice_loader::loaders()
        .iter()
        .map(|l| l.synopsis())
        .collect();
    if !synopses.is_empty() {
        let _ = writeln!(out, "AQMs of your own: {}.", synopses.join(", "));
    }
    out
}

fn heading(form: &str) -> String {
    match form {
        "aqm" => "AQMs, on a single queue:".to_string(),
        "flow-queued aqm" => "AQMs in every queue of a flow-queueing discipline:".to_string(),
        "discipline" => "Disciplines:".to_string(),
        other => format!("{other}:"),
    }
}

impl Entry {
    fn of(algorithm: &'static Algorithm) -> Entry {
        let params = algorithm.params();
        Entry {
            name: algorithm.name,
            form: algorithm.form.name(),
            doc: algorithm.doc,
            params: params
                .map(|decl| (decl, algorithm.default_of(decl), algorithm.source_of(decl)))
                .collect(),
        }
    }

    /// Formats `target 5ms [1us to 100s],` for each parameter; the last one has no comma.
    fn brief(&self) -> Vec<String> {
        let last = self.params.len().saturating_sub(1);
        let texts = self
            .params
            .iter()
            .enumerate()
            .map(|(i, (decl, default, _))| {
                let setting = setting(decl, *default);
                let comma = if i < last { "," } else { "" };
                match (decl.kind, decl.range) {
                    (Kind::Choice(words), _) => format!("{setting} [{}]{comma}", words.join(" | ")),
                    (_, Some((low, high))) => format!("{setting} [{low} to {high}]{comma}"),
                    _ => format!("{setting}{comma}"),
                }
            });
        texts.collect()
    }

    /// Formats everything that the declarations of an entry contain.
    fn in_full(&self) -> String {
        let mut out = format!("{} ({})\n", self.name, self.form);
        wrap(&mut out, 2, self.doc.split(' ').map(String::from));
        if self.params.is_empty() {
            out.push_str("\nIt has no parameters.\n");
            return out;
        }
        out.push_str("\nWith its defaults written out:\n");
        // A queue begins with its name, but a link does not.
        let name = (self.form != "link").then(|| self.name.to_string());
        let defaults = self
            .params
            .iter()
            .map(|(decl, value, _)| setting(decl, *value));
        wrap(&mut out, 2, name.into_iter().chain(defaults));
        for (decl, default, source) in &self.params {
            let _ = writeln!(
                out,
                "
{}",
                heading_of(decl, *default)
            );
            wrap(&mut out, 4, decl.doc.split(' ').map(String::from));
            let lines = [("accepts", accepted(decl)), ("source", (*source).into())];
            for (label, text) in lines {
                let words = std::iter::once(format!("{label}:"));
                wrap(&mut out, 4, words.chain(text.split(' ').map(String::from)));
            }
        }
        out
    }

    fn to_json(&self) -> Json {
        let params = self.params.iter().map(|(decl, default, source)| {
            let (low, high) = match decl.range {
                Some((low, high)) => (json!(low.to_string()), json!(high.to_string())),
                None => (Json::Null, Json::Null),
            };
            let words = match decl.kind {
                Kind::Choice(words) => json!(words),
                _ => Json::Null,
            };
            json!({
                "name": decl.name,
                "kind": kind_name(decl.kind),
                "default": default.to_string(),
                "low": low,
                "high": high,
                "words": words,
                "doc": decl.doc,
                "source": source,
            })
        });
        json!({
            "name": self.name,
            "form": self.form,
            "doc": self.doc,
            "params": params.collect::<Vec<Json>>(),
        })
    }
}

/// Returns the default as a user would write it: `target 5ms`, `noecn`.
fn setting(decl: &ParamDecl, default: Value) -> String {
    match default {
        Value::Flag(true) => decl.name.to_string(),
        Value::Flag(false) => format!("no{}", decl.name),
        value => format!("{} {value}", decl.name),
    }
}

/// Returns the line above the meaning of a parameter. The meaning of a switch is that of its plain
/// word, even if it is off by default.
fn heading_of(decl: &ParamDecl, default: Value) -> String {
    match default {
        Value::Flag(true) => format!("{} (on by default)", decl.name),
        Value::Flag(false) => format!("{} (off by default)", decl.name),
        _ => setting(decl, default),
    }
}

/// Describes the values that a parameter accepts.
fn accepted(decl: &ParamDecl) -> String {
    let what = kind_name(decl.kind);
    match (decl.kind, decl.range) {
        (Kind::Flag, _) => format!("{0} or no{0}", decl.name),
        (Kind::Choice(words), _) => words.join(", "),
        (_, Some((low, high))) => format!("a {what} from {low} to {high}"),
        _ => format!("a {what}"),
    }
}

const fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Span => "time",
        Kind::Rate => "rate",
        Kind::Bytes => "size",
        Kind::Count => "whole number",
        Kind::Ratio => "decimal number",
        Kind::Flag => "switch",
        Kind::Choice(_) => "word",
    }
}

/// Appends `texts` in lines of at most [`WIDTH`] columns, each indented by `indent`. A text is
/// broken only if it is longer than a line.
fn wrap(out: &mut String, indent: usize, texts: impl Iterator<Item = String>) {
    let room = WIDTH - indent;
    let mut column = 0;
    let mut put = |word: &str| {
        let width = word.chars().count();
        if column > 0 && column + 1 + width <= room {
            out.push(' ');
            column += 1;
        } else {
            if column > 0 {
                out.push('\n');
            }
            let _ = write!(out, "{:indent$}", "");
            column = 0;
        }
        out.push_str(word);
        column += width;
    };
    for text in texts {
        if text.chars().count() > room {
            text.split(' ').for_each(&mut put);
        } else {
            put(&text);
        }
    }
    out.push('\n');
}

fn hint(name: &str) -> String {
    let names = registry::algorithms().map(|a| a.name);
    let links = Preset::all().flat_map(|preset| preset.names().iter().copied());
    match nearest(name, names.chain(["link", LINKS]).chain(links)).as_slice() {
        [] => "`sluice list` shows all".to_string(),
        near => format!("the nearest are {}", near.join(", ")),
    }
}

fn pretty(value: &Json) -> String {
    format!("{value:#}\n")
}

const EXAMPLES: &str = "\
Examples:
  sluice list codel
  sluice list links";

#[cfg(test)]
mod tests {
    use super::*;

    fn find(name: &str) -> Entry {
        let mut all = entries().into_iter().chain([link()]);
        all.find(|entry| entry.name == name).unwrap()
    }

    #[test]
    fn everything_fits_80_columns() {
        let mut texts = vec![overview(), links(), link().in_full()];
        texts.extend(entries().iter().map(Entry::in_full));
        for text in texts {
            for line in text.lines() {
                assert!(line.chars().count() <= WIDTH, "{line}");
            }
        }
    }

    #[test]
    fn an_entry_is_shown_with_the_source_of_every_default() {
        for name in ["codel", "fq_codel", "link"] {
            let entry = find(name);
            let text = entry.in_full().replace("\n    ", " ");
            for (decl, _, source) in &entry.params {
                assert!(text.contains(source), "{source} is missing");
                assert!(text.contains(decl.doc), "{} is missing", decl.doc);
            }
        }
        let text = find("codel").in_full();
        assert!(text.contains("target 5ms"), "{text}");
        assert!(text.contains("accepts: ecn or noecn"), "{text}");
    }

    #[test]
    fn a_default_of_a_form_is_the_one_shown() {
        // RFC 8290 section 5.2.6 marks by default, RFC 8289 drops.
        let has = |name: &str, word: &str| {
            let text = find(name).in_full();
            text.lines().any(|line| line == word)
        };
        assert!(has("fq_codel", "ecn (on by default)"));
        assert!(has("codel", "ecn (off by default)"));
    }

    #[test]
    fn the_meaning_of_a_switch_is_below_its_plain_word() {
        let text = find("codel").in_full();
        let (above, _) = text
            .split_once("\n    mark ECN-capable packets instead of dropping them")
            .expect("codel can mark");
        let heading = above.lines().last().expect("a heading");
        assert_eq!(heading, "ecn (off by default)");
    }

    #[test]
    fn an_unknown_name_leads_to_the_nearest() {
        let args = Args {
            name: Some("fq_coddle".into()),
            json: false,
        };
        let error = run(&args).unwrap_err().to_string();
        assert!(
            error.starts_with(
                "no algorithm or link is called `fq_coddle`; the nearest are fq_codel"
            )
        );
    }

    #[test]
    fn json_has_every_algorithm_and_parameter() {
        for (algorithm, entry) in registry::algorithms().zip(entries()) {
            let json = entry.to_json();
            let params = json["params"].as_array().unwrap();
            assert_eq!(params.len(), algorithm.params().count());
            assert_eq!(json["name"], algorithm.name);
        }
    }
}
