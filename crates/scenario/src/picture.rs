//! `[[picture]]`: pictures that a run of the scenario draws, so that the figures of a paper are a part
//! of the experiment.

use std::convert::Infallible;
use std::path::Path;

use sluice_core::Span;

use super::error::{Problem, Problems, ScenarioErrors};
use super::field::wrong_type;
use super::file;
use super::schema::{Field, Keys as _, Section, as_table, items, keys, names};
use super::source::Source;
use super::tree::{self, Node, Value};
use super::words::Direction;

keys! {
    /// A picture of the runs. Its keys are named like the options of `sluice report`.
    pub struct Picture {
        /// file in the folder of the recordings; it ends in `.svg`, `.png` or `.pdf`
        file: Said;
        /// what it shows, as `sluice report --figure`
        figure: Said = Said::new("time");
        /// of a curve or heat map: the axis on x, such as `link.rtt`
        x: Option<Said>;
        /// of a curve or heat map: the figure, such as `ping.p50`; of repetitions: one or several,
        /// as in `"ping.p50,total.goodput"`
        y: Option<Said>;
        /// of a curve: the axis of the lines; of a heat map: the axis on y
        by: Option<Said>;
        /// of a curve or heat map: the axis with a separate chart for each value
        each: Option<Said>;
        /// how the values of repetitions are drawn: `auto`, `dots`, `interval`, `range` or `box`, as
        /// `sluice report --marks`
        marks: Option<Said>;
        /// the variants that it shows, `"AXIS=VALUE"` or a list of these: those on one axis are
        /// alternatives, and all axes must hold
        only: Only = Only::default();
        /// width on paper, such as `"85mm"`
        width: Option<Said>;
        /// height on paper, such as `"50mm"`
        height: Option<Said>;
        /// number of charts in a row
        columns: Option<u64>;
        /// of curves and repetitions: the kind of the y axis, `auto`, `linear` or `log`
        y_axis: Option<Said>;
        /// words for figures, axes and runs in place of the usual ones, such as
        /// `{ "ping.p50" = "Delay", "link.rtt" = "Round-trip time" }`
        heading: Headings = Headings::default();
        /// size of most text on paper, in points, such as `"8pt"`
        font_size: Option<Said>;
        /// font, such as `"Times New Roman"`; it must be installed for PNG and PDF
        font: Option<String>;
        /// the direction whose queue and flows it shows
        direction: Option<Direction>;
        /// start of the window of time that it shows
        from: Option<Span>;
        /// end of this window
        to: Option<Span>;
        /// of several repetitions: the seed of the one whose curves are drawn
        seed: Option<u64>;
        /// whether title and caption are left out, for a paper that has its own
        bare: bool = false;
        /// whether a curve must have a confidence band, which needs repetitions
        band: bool = false;
    }
}

/// A string whose meaning the drawing program defines. Its place is kept for that program's error
/// messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// The text.
    pub text: String,
    /// `file:line:column`; `None` for a default.
    pub place: Option<String>,
}

impl Said {
    fn new(text: &str) -> Said {
        Said {
            text: text.to_owned(),
            place: None,
        }
    }
}

impl Field for Said {
    type Scalar = Infallible;
    const KIND: &'static str = "text";

    fn read(key: &str, node: &Node, problems: &mut Problems) -> Option<Self> {
        match &node.value {
            Value::Text(text) if !text.trim().is_empty() => Some(Said {
                text: text.clone(),
                place: problems.describe(&node.at),
            }),
            _ => problems.refuse(wrong_type(key, node, "a text")),
        }
    }

    fn write(&self) -> Option<Value> {
        Some(Value::text(&self.text))
    }
}

/// Which variants a picture shows: conditions `AXIS=VALUE`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Only(pub Vec<String>);

impl Field for Only {
    type Scalar = Infallible;
    const KIND: &'static str = "condition or list of conditions";

    fn read(key: &str, node: &Node, problems: &mut Problems) -> Option<Self> {
        let items = match &node.value {
            Value::Text(_) => std::slice::from_ref(node),
            Value::Array(items) => items.as_slice(),
            _ => &[],
        };
        let mut all = Vec::new();
        for item in items {
            match &item.value {
                Value::Text(text) if text.contains('=') => all.push(text.clone()),
                _ => {
                    let problem = wrong_type(key, item, "a condition");
                    return problems.refuse(problem.hint("write it as in \"link.queue=codel\""));
                }
            }
        }
        if all.is_empty() {
            return problems.refuse(wrong_type(
                key,
                node,
                "a condition such as \"link.queue=codel\"",
            ));
        }
        Some(Only(all))
    }

    fn write(&self) -> Option<Value> {
        let texts = self.0.iter().map(|text| Value::text(text).into());
        (!self.0.is_empty()).then(|| Value::Array(texts.collect()))
    }
}

/// Words for names, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headings(pub Vec<(String, String)>);

impl Field for Headings {
    type Scalar = Infallible;
    const KIND: &'static str = "table of texts";

    fn read(key: &str, node: &Node, problems: &mut Problems) -> Option<Self> {
        let Some(table) = node.as_table() else {
            let problem = wrong_type(key, node, "a table of texts");
            return problems.refuse(problem.hint("write it as in { \"ping.p50\" = \"Delay\" }"));
        };
        let mut all = Vec::new();
        for entry in &table.0 {
            match &entry.node.value {
                Value::Text(text) => all.push((entry.key.clone(), text.clone())),
                _ => return problems.refuse(wrong_type(&entry.key, &entry.node, "a text")),
            }
        }
        Some(Headings(all))
    }

    fn write(&self) -> Option<Value> {
        let mut table = tree::Table::default();
        for (name, words) in &self.0 {
            table.push(name, Value::text(words));
        }
        (!self.0.is_empty()).then_some(Value::Table(table))
    }
}

/// The formats of pictures, by the ending of the file.
pub const PICTURE_ENDINGS: [&str; 3] = ["svg", "png", "pdf"];

impl Picture {
    /// Reads the pictures of the scenario at `path`.
    ///
    /// # Errors
    /// The file cannot be read, or there are errors in its pictures.
    pub fn load_all(path: &Path) -> Result<Vec<Picture>, ScenarioErrors> {
        let read = |reason| ScenarioErrors::Read {
            path: path.to_owned(),
            reason,
        };
        let text = file::read_utf8(path).map_err(read)?;
        Picture::parse_all(&path.display().to_string(), &text)
    }

    /// Does the same as [`Picture::load_all`] for a text; `file` is its name in messages.
    ///
    /// # Errors
    /// All errors in the pictures.
    pub fn parse_all(file: &str, text: &str) -> Result<Vec<Picture>, ScenarioErrors> {
        let mut problems = Problems::of(Source {
            name: file,
            text,
            options: &[],
            written: &[],
        });
        let mut pictures: Vec<Picture> = Vec::new();
        if let Some(root) = tree::parse(text, &mut problems) {
            for node in items("picture", &root, &mut problems).unwrap_or_default() {
                let Some(table) = as_table("a row of [[picture]]", node, &mut problems) else {
                    continue;
                };
                let section = Section::new("[[picture]]", node.at.clone());
                let known: Vec<&str> = names(Picture::KEYS).collect();
                section.check_keys(table, &known, &mut problems);
                let Some(picture) = Picture::read(table, &section, &mut problems) else {
                    continue;
                };
                let at = table.node("file").map_or(&node.at, |node| &node.at);
                let ending = Path::new(&picture.file.text)
                    .extension()
                    .and_then(|e| e.to_str());
                if !ending.is_some_and(|ending| PICTURE_ENDINGS.contains(&ending)) {
                    let message = format!("`{}` is not the name of a picture", picture.file.text);
                    let hint = format!("it ends in .{}", PICTURE_ENDINGS.join(", ."));
                    problems.push(Problem::new(at.clone(), message).hint(hint));
                }
                if pictures
                    .iter()
                    .any(|other| other.file.text == picture.file.text)
                {
                    let message =
                        format!("two pictures would be written to `{}`", picture.file.text);
                    problems.push(Problem::new(at.clone(), message));
                }
                pictures.push(picture);
            }
        }
        match problems.is_empty() {
            true => Ok(pictures),
            false => Err(problems.into_errors()),
        }
    }
}
