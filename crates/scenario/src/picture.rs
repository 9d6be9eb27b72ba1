//! `[[picture]]`: pictures that a run of the scenario draws, so that the figures of a paper are a part
//! of the experiment.

use std::convert::Infallible;
use std::path::Path;

use sluice_core::Span;

use super::error::{Problem, Problems, ScenarioErrors};
use super::field::wrong_type;
use super::schema::{Field, Keys as _, Section, as_table, items, keys, names};
use super::source::{Place, Source};
use super::texts;
use super::tree::{self, Node, Table, Value};
use super::words::Direction;

keys! {
    /// A picture of the runs. Its keys are named like the options of `sluice report`.
    pub struct Picture {
        /// file in the folder of the recordings; it ends in `.svg`, `.png` or `.pdf`
        file: String;
        /// what it shows, as `sluice report --figure`
        figure: String = "time".to_owned();
        /// of a curve or heat map: the axis on x, such as `link.rtt`
        x: Option<String>;
        /// of a curve or heat map: the figure, such as `ping.p50`; of repetitions: one or several,
        /// as a list or as in `"ping.p50,total.goodput"`
        y: Figures = Figures::default();
        /// of a curve: the axis of the lines; of a heat map: the axis on y
        by: Option<String>;
        /// of a curve or heat map: the axis with a separate chart for each value
        each: Option<String>;
        /// how the values of repetitions are drawn: `auto`, `dots`, `interval`, `range` or `box`, as
        /// `sluice report --marks`
        marks: Option<String>;
        /// the variants that it shows, `"AXIS=VALUE"` or a list of these: those on one axis are
        /// alternatives, and all axes must hold
        only: Only = Only::default();
        /// width on paper, such as `"85mm"`
        width: Option<String>;
        /// height on paper, such as `"50mm"`; a picture of `state` has the variables
        /// that fit, and its caption names the others
        height: Option<String>;
        /// number of charts in a row
        columns: Option<u64>;
        /// of curves and repetitions: the kind of the y axis, `auto`, `linear` or `log`
        y_axis: Option<String>;
        /// words for figures, axes and runs in place of the usual ones, such as
        /// `{ "ping.p50" = "Delay", "link.rtt" = "Round-trip time" }`
        heading: Headings = Headings::default();
        /// size of most text on paper, in points, such as `"8pt"`
        font_size: Option<String>;
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

/// A row of `[[picture]]`, and the places of its values for the error messages of the program that
/// draws it.
#[derive(Clone, Debug, PartialEq)]
pub struct PictureRow {
    /// The picture.
    pub picture: Picture,
    places: Places,
}

/// The place of each value, as `file:line:column`: those of keys, and `key.N` for those of lists.
type Places = Vec<(String, String)>;

impl PictureRow {
    /// Returns the place of the value of `key`, or `key.N` for a value in a list. A key that is not
    /// set has the place of the file's name.
    pub fn place(&self, key: &str) -> Option<&str> {
        let of = |wanted: &str| {
            let found = self.places.iter().find(|(key, _)| key == wanted);
            found.map(|(_, place)| place.as_str())
        };
        let list = key.split('.').next().unwrap_or(key);
        of(key).or_else(|| of(list)).or_else(|| of("file"))
    }
}

fn places(table: &Table, problems: &Problems) -> Places {
    let mut places = Vec::new();
    for entry in &table.0 {
        let mut add = |key: String, node: &Node| {
            places.extend(problems.describe(&node.at).map(|place| (key, place)));
        };
        add(entry.key.clone(), &entry.node);
        if let Value::Array(items) = &entry.node.value {
            for (n, item) in items.iter().enumerate() {
                add(format!("{}.{n}", entry.key), item);
            }
        }
    }
    places
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

/// The names of figures, separated by commas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures(pub String);

impl Field for Figures {
    type Scalar = Infallible;
    const KIND: &'static str = "figure or list of figures";

    fn read(key: &str, node: &Node, problems: &mut Problems) -> Option<Self> {
        let items = match &node.value {
            Value::Array(items) if !items.is_empty() => items.as_slice(),
            _ => std::slice::from_ref(node),
        };
        let mut names = Vec::new();
        for item in items {
            match &item.value {
                Value::Text(text) => names.push(text.as_str()),
                _ => return problems.refuse(wrong_type(key, item, "the name of a figure")),
            }
        }
        Some(Figures(names.join(",")))
    }

    fn write(&self) -> Option<Value> {
        (!self.0.is_empty()).then(|| Value::text(&self.0))
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
    pub fn load_all(path: &Path) -> Result<Vec<PictureRow>, ScenarioErrors> {
        let read = |reason| ScenarioErrors::Read {
            path: path.to_owned(),
            reason,
        };
        let text = texts::read_utf8(path, texts::open_any).map_err(read)?;
        Picture::parse_all(&path.display().to_string(), &text)
    }

    /// Does the same as [`Picture::load_all`] for a text; `file` is its name in messages.
    ///
    /// # Errors
    /// All errors in the pictures.
    pub fn parse_all(file: &str, text: &str) -> Result<Vec<PictureRow>, ScenarioErrors> {
        let mut problems = Problems::of(Source {
            name: file,
            text,
            options: &[],
            written: &[],
            with_files: 0,
        });
        let mut rows: Vec<PictureRow> = Vec::new();
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
                picture.check_file(at, &mut problems);
                if rows.iter().any(|row| row.picture.file == picture.file) {
                    let message = format!("two pictures would be written to `{}`", picture.file);
                    problems.push(Problem::new(at.clone(), message));
                }
                rows.push(PictureRow {
                    picture,
                    places: places(table, &problems),
                });
            }
        }
        match problems.is_empty() {
            true => Ok(rows),
            false => Err(problems.into_errors()),
        }
    }

    /// Reports a name that is not that of a picture in the folder of the recordings.
    fn check_file(&self, at: &Place, problems: &mut Problems) {
        let path = Path::new(&self.file);
        let ending = path.extension().and_then(|ending| ending.to_str());
        if !ending.is_some_and(|ending| PICTURE_ENDINGS.contains(&ending)) {
            let message = format!("`{}` is not the name of a picture", self.file);
            let hint = format!("it ends in .{}", PICTURE_ENDINGS.join(", ."));
            problems.push(Problem::new(at.clone(), message).hint(hint));
        }
        // A folder could be that of a recording, or outside of the output folder.
        if let Some(name) = path.file_name().filter(|name| *name != path) {
            let message = format!("the picture `{}` is not in the output folder", self.file);
            let hint = format!("give a name without a folder: \"{}\"", name.display());
            problems.push(Problem::new(at.clone(), message).hint(hint));
        }
    }
}
