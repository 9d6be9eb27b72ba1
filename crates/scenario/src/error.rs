//! Errors in a scenario, each with its place, the accepted values, and the source line with a
//! caret.

use std::cell::OnceCell;
use std::fmt;
use std::path::{Path, PathBuf};

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};
use sluice_core::spelling;

use super::source::{Place, Source};
use super::texts::{Open, Texts};

/// The reason why a scenario could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioErrors {
    /// The file cannot be read.
    #[error("cannot read the scenario `{}`: {reason}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        reason: String,
    },
    /// The scenario has one or more errors.
    #[error("{}", .0.iter().map(|e| e.text.as_str()).collect::<Vec<_>>().join("\n\n"))]
    Invalid(Vec<ScenarioError>),
}

/// One error in a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioError {
    /// The error in one line.
    pub message: String,
    /// The accepted values, if known.
    pub hint: Option<String>,
    /// Line and column in the file, both from 1; `None` for an error in an option.
    pub position: Option<(usize, usize)>,
    /// Message, position, source line with a caret, and hint, for a terminal.
    pub text: String,
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// An error at a place, before it is formatted for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    at: Place,
    message: String,
    hint: Option<String>,
    other: Option<(Place, String)>,
}

impl Problem {
    /// Describes an error. The middle of a very long message, which quotes something, is left out.
    pub fn new(at: Place, message: impl Into<String>) -> Self {
        Problem {
            at,
            message: shortened(message.into()),
            hint: None,
            other: None,
        }
    }

    /// Adds the accepted values, which are printed beside the caret.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds a second place that is part of the error.
    pub fn other(mut self, at: Place, label: impl Into<String>) -> Self {
        self.other = Some((at, label.into()));
        self
    }

    /// Names the nearest of `candidates`, or all of them if none is near.
    pub fn nearest<'a>(self, word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Self {
        let candidates: Vec<&str> = candidates.into_iter().collect();
        let question = spelling::question(word, candidates.iter().copied());
        let hint = match (question, candidates.as_slice()) {
            (Some(question), _) => question,
            (None, []) => return self,
            (None, all) => format!("one of: {}", all.join(", ")),
        };
        self.hint(hint)
    }
}

fn shortened(message: String) -> String {
    let count = message.chars().count();
    if count <= MOST_CHARACTERS {
        return message;
    }
    let head: String = message.chars().take(MOST_CHARACTERS / 2).collect();
    let tail = message.chars().skip(count - MOST_CHARACTERS / 2);
    format!("{head} ... {}", tail.collect::<String>())
}

/// The most characters of a message: enough for the traceback of an algorithm in Python.
const MOST_CHARACTERS: usize = 4000;

/// Collects problems and the source that contains them. Only the first problem of a place is kept,
/// so that a value shared by many variants is reported once.
#[derive(Debug, Default)]
pub(crate) struct Problems<'a> {
    list: Vec<Problem>,
    source: Source<'a>,
    texts: Texts,
    /// The steps of rates and delays that take turns, in all variants.
    turns: u64,
    /// The bytes at which the lines of the text begin, when a place has been described.
    lines: OnceCell<Vec<usize>>,
}

impl<'a> Problems<'a> {
    /// Creates an empty list for `source`.
    pub fn of(source: Source<'a>) -> Self {
        Problems {
            list: Vec::new(),
            source,
            texts: Texts::default(),
            turns: 0,
            lines: OnceCell::new(),
        }
    }

    /// Returns an empty list for the same source.
    pub fn beside(&self) -> Self {
        Problems {
            texts: self.texts.clone(),
            ..Problems::of(self.source)
        }
    }

    /// Uses `texts` for the files that are named.
    pub fn share(&mut self, texts: &Texts) {
        self.texts = texts.clone();
    }

    /// Returns the text of the file at `path`, which `open` opens if it was not read before.
    pub fn text_of(&self, path: &Path, open: Open) -> Result<String, String> {
        self.texts.read_by(path, open)
    }

    /// The folder that the paths in the scenario are relative to.
    pub fn folder(&self) -> &Path {
        Path::new(self.source.name)
            .parent()
            .unwrap_or(Path::new(""))
    }

    /// Whether the scenario is that of a recording, which has no file and no folder.
    pub fn is_recording(&self) -> bool {
        self.source.name.is_empty()
    }

    /// Whether a value at `place` may name a file. If not, adds a problem that says so.
    pub fn may_name_file(&mut self, place: Place) -> bool {
        let may = match &place {
            Place::Option(number, _) => *number < self.source.with_files,
            Place::File(_) | Place::Nowhere => true,
        };
        if !may {
            let message = "a value that is set from outside cannot name a file".to_owned();
            let hint = "give the file on the command line, or write its values";
            self.push(Problem::new(place, message).hint(hint));
        }
        may
    }

    /// Counts `steps` of rates or delays that take turns. Returns the number of all so far.
    pub fn count_turns(&mut self, steps: u64) -> u64 {
        self.turns = self.turns.saturating_add(steps);
        self.turns
    }

    /// Describes `place` in words; `None` without a place.
    pub fn describe(&self, place: &Place) -> Option<String> {
        match place {
            Place::File(range) => {
                let lines = self.lines.get_or_init(|| self.source.lines());
                let (line, column) = self.source.position_in(lines, range.start);
                Some(format!("{}:{line}:{column}", self.source.name))
            }
            Place::Option(number, range) => {
                Some(format!("`{}`", self.source.option(*number, range).0))
            }
            Place::Nowhere => None,
        }
    }

    pub fn push(&mut self, problem: Problem) {
        if !self.list.contains(&problem) {
            self.list.push(problem);
        }
    }

    /// Adds `problem`, and returns `None` for a parser that cannot continue.
    pub fn refuse<T>(&mut self, problem: Problem) -> Option<T> {
        self.push(problem);
        None
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns the problems in the order of the file, then those of the options.
    pub fn into_errors(mut self) -> ScenarioErrors {
        self.list.sort_by_key(|problem| match &problem.at {
            Place::File(range) => (0, range.start),
            Place::Option(number, range) => (1 + number, range.start),
            Place::Nowhere => (usize::MAX, 0),
        });
        ScenarioErrors::Invalid({
            let source = &self.source;
            // An option may set the keys of both directions.
            let mut errors: Vec<ScenarioError> = Vec::new();
            for error in self.list.iter().map(|problem| source.error(problem)) {
                if source.written.is_empty() || !errors.contains(&error) {
                    errors.push(error);
                }
            }
            errors
        })
    }
}

impl Source<'_> {
    fn error(&self, problem: &Problem) -> ScenarioError {
        ScenarioError {
            message: problem.message.clone(),
            hint: problem.hint.clone(),
            position: match &problem.at {
                Place::File(range) => Some(self.position(range.start)),
                _ => None,
            },
            text: self.render(problem),
        }
    }

    fn render(&self, problem: &Problem) -> String {
        let title = Level::ERROR.primary_title(problem.message.as_str());
        let primary = |range| {
            AnnotationKind::Primary
                .span(range)
                .label(problem.hint.as_deref())
        };
        let mut note = None;
        let group = match &problem.at {
            Place::File(range) => {
                let mut snippet = Snippet::source(self.text)
                    .path(self.name)
                    .annotation(primary(range.clone()));
                match &problem.other {
                    Some((Place::File(other), label)) => {
                        snippet = snippet.annotation(
                            AnnotationKind::Context
                                .span(other.clone())
                                .label(label.as_str()),
                        );
                    }
                    other => note = other.as_ref(),
                }
                title.element(snippet)
            }
            Place::Option(number, range) => {
                let (written, range) = self.option(*number, range);
                note = problem.other.as_ref();
                title.element(
                    Snippet::source(written)
                        .line_numbering(false)
                        .annotation(primary(range)),
                )
            }
            Place::Nowhere => {
                let hint = problem.hint.iter().map(|h| Level::HELP.message(h.as_str()));
                annotate_snippets::Group::with_title(title).elements(hint)
            }
        };
        let group = group
            .elements(note.map(|(place, label)| Level::NOTE.message(self.describe(place, label))));
        Renderer::plain().render(&[group])
    }

    fn describe(&self, place: &Place, label: &str) -> String {
        match place {
            Place::File(range) => {
                let (line, column) = self.position(range.start);
                format!("{label} at {}:{line}:{column}", self.name)
            }
            Place::Option(number, range) => {
                format!("{label} by `{}`", self.option(*number, range).0)
            }
            Place::Nowhere => label.to_owned(),
        }
    }
}
