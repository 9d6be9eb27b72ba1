//! `sluice list`: the algorithms of the registry with what can be set.

use std::fmt::Write as _;
use std::io::{ErrorKind, Write as _};
use std::process::ExitCode;

use serde_json::{Value as Json, json};
use sluice_core::param::{Kind, ParamDecl, Value};
use sluice_core::registry::{self, Algorithm};
use sluice_lab::replay::nearest;

/// What to list.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Show this algorithm in full: every parameter with its meaning and source
    name: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Why nothing was listed.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// No algorithm has this name.
    #[error("no algorithm is called `{name}`; {}", hint(.name))]
    Unknown {
        /// What was asked for.
        name: String,
    },
    /// Standard output cannot be written.
    #[error("cannot write to standard output: {0}")]
    Output(#[from] std::io::Error),
}

/// Prints the list.
///
/// # Errors
/// [`ListError::Unknown`] with the nearest names, or that there is nowhere to print.
pub fn run(args: &Args) -> Result<ExitCode, ListError> {
    let text = match &args.name {
        None if args.json => pretty(&registry::algorithms().map(as_json).collect()),
        None => overview(),
        Some(name) => {
            let algorithm =
                registry::find(name).ok_or_else(|| ListError::Unknown { name: name.clone() })?;
            if args.json {
                pretty(&as_json(algorithm))
            } else {
                in_full(algorithm)
            }
        }
    };
    match std::io::stdout().write_all(text.as_bytes()) {
        // Whoever reads has seen enough (`sluice list | head`).
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Columns of a terminal that everything fits into.
const WIDTH: usize = 80;

/// All algorithms, by form, with their parameters and defaults.
fn overview() -> String {
    let mut out = String::new();
    let mut forms: Vec<&str> = Vec::new();
    for algorithm in registry::algorithms() {
        if !forms.contains(&algorithm.form.name()) {
            forms.push(algorithm.form.name());
        }
    }
    for form in forms {
        let _ = writeln!(out, "{}", heading(form));
        for algorithm in registry::algorithms().filter(|a| a.form.name() == form) {
            let _ = writeln!(out, "  {}", algorithm.name);
            wrap(&mut out, 6, algorithm.doc.split(' ').map(String::from));
            let mut settings: Vec<String> = brief(algorithm).collect();
            if let Some((_, all_but_last)) = settings.split_last_mut() {
                all_but_last.iter_mut().for_each(|text| text.push(','));
            }
            wrap(&mut out, 6, settings.into_iter());
        }
        out.push('\n');
    }
    out.push_str("After each parameter: its default and, in brackets, what is accepted.\n");
    out.push_str("`sluice list NAME` shows one algorithm in full, --json all of it.\n");
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

/// `target 5ms [1us to 100s]` for each parameter.
fn brief(algorithm: &Algorithm) -> impl Iterator<Item = String> {
    algorithm.params().map(|decl| {
        let setting = setting(algorithm, decl);
        match (decl.kind, decl.range) {
            (Kind::Choice(words), _) => format!("{setting} [{}]", words.join(" | ")),
            (_, Some((low, high))) => format!("{setting} [{low} to {high}]"),
            _ => setting,
        }
    })
}

/// The default as a user would write it: `target 5ms`, `noecn`.
fn setting(algorithm: &Algorithm, decl: &ParamDecl) -> String {
    match algorithm.default_of(decl) {
        Value::Flag(true) => decl.name.to_string(),
        Value::Flag(false) => format!("no{}", decl.name),
        value => format!("{} {value}", decl.name),
    }
}

/// One algorithm with everything that its declarations say.
fn in_full(algorithm: &Algorithm) -> String {
    let mut out = format!("{} ({})\n", algorithm.name, algorithm.form.name());
    wrap(&mut out, 2, algorithm.doc.split(' ').map(String::from));
    if algorithm.params().next().is_none() {
        out.push_str("\nIt has no parameters.\n");
        return out;
    }
    out.push_str("\nWith its defaults written out:\n");
    let defaults = algorithm.params().map(|d| setting(algorithm, d));
    wrap(
        &mut out,
        2,
        std::iter::once(algorithm.name.to_string()).chain(defaults),
    );
    for decl in algorithm.params() {
        let _ = writeln!(out, "\n{}", setting(algorithm, decl));
        wrap(&mut out, 4, decl.doc.split(' ').map(String::from));
        let lines = [("accepts", accepted(decl)), ("source", decl.source.into())];
        for (label, text) in lines {
            let words = std::iter::once(format!("{label}:"));
            wrap(&mut out, 4, words.chain(text.split(' ').map(String::from)));
        }
    }
    out
}

/// What a parameter takes, in words.
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
/// only broken if it does not fit into a line of its own.
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
    match nearest(name, names).as_slice() {
        [] => "`sluice list` shows all".to_string(),
        near => format!("the nearest are {}", near.join(", ")),
    }
}

fn pretty(value: &Json) -> String {
    format!("{value:#}\n")
}

fn as_json(algorithm: &'static Algorithm) -> Json {
    let params: Vec<Json> = algorithm
        .params()
        .map(|decl| {
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
                "default": algorithm.default_of(decl).to_string(),
                "low": low,
                "high": high,
                "words": words,
                "doc": decl.doc,
                "source": decl.source,
            })
        })
        .collect();
    json!({
        "name": algorithm.name,
        "form": algorithm.form.name(),
        "doc": algorithm.doc,
        "params": params,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_fits_80_columns() {
        let mut texts = vec![overview()];
        texts.extend(registry::algorithms().map(in_full));
        for text in texts {
            for line in text.lines() {
                assert!(line.chars().count() <= WIDTH, "{line}");
            }
        }
    }

    #[test]
    fn one_algorithm_is_shown_with_the_source_of_every_default() {
        let algorithm = registry::find("codel").unwrap();
        let text = in_full(algorithm).replace("\n    ", " ");
        for decl in algorithm.params() {
            assert!(text.contains(decl.source), "{} is missing", decl.source);
            assert!(text.contains(decl.doc), "{} is missing", decl.doc);
        }
        assert!(text.contains("target 5ms"), "{text}");
        assert!(text.contains("accepts: ecn or noecn"), "{text}");
    }

    #[test]
    fn a_default_of_a_form_is_the_one_shown() {
        // RFC 8290 section 5.2.2 marks by default, RFC 8289 drops.
        let has = |name: &str, word: &str| {
            let text = in_full(registry::find(name).unwrap());
            text.lines().any(|line| line == word)
        };
        assert!(has("fq_codel", "ecn"));
        assert!(has("codel", "noecn"));
    }

    #[test]
    fn an_unknown_name_leads_to_the_nearest() {
        let args = Args {
            name: Some("fq_coddle".into()),
            json: false,
        };
        let error = run(&args).unwrap_err().to_string();
        assert!(error.starts_with("no algorithm is called `fq_coddle`; the nearest are fq_codel"));
    }

    #[test]
    fn json_has_every_algorithm_and_parameter() {
        for algorithm in registry::algorithms() {
            let json = as_json(algorithm);
            let params = json["params"].as_array().unwrap();
            assert_eq!(params.len(), algorithm.params().count());
            assert_eq!(json["name"], algorithm.name);
        }
    }
}
