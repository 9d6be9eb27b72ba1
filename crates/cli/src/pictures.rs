//! The pictures of a scenario, `[[picture]]`: drawn after its runs, and again by `sluice report`.

use std::path::{Path, PathBuf};

use sluice_recording::Recording;
use sluice_report::picture::{Picture, PictureError};
use sluice_scenario::{self as scenario, ScenarioErrors, Variant};

/// The reason why a picture was not drawn.
#[derive(Debug, thiserror::Error)]
pub enum PicturesError {
    /// The scenario cannot be read.
    #[error(transparent)]
    Scenario(#[from] ScenarioErrors),
    /// A picture cannot be drawn.
    #[error("{place}: the picture `{file}`: {error}")]
    Picture {
        /// The place in the scenario.
        place: String,
        /// The file that it would be.
        file: String,
        /// The reason.
        error: Box<PictureError>,
    },
}

/// The pictures of a scenario.
#[derive(Debug)]
pub struct Pictures(Vec<Row>);

#[derive(Debug)]
struct Row {
    file: String,
    place: String,
    picture: Picture,
    y: Option<String>,
}

impl Pictures {
    /// Reads the pictures of the scenario at `path`.
    ///
    /// # Errors
    /// [`PicturesError`]; the word that is wrong is named with its place.
    pub fn load(path: &Path) -> Result<Pictures, PicturesError> {
        let mut rows = Vec::new();
        for row in scenario::Picture::load_all(path)? {
            let file = row.file.text.clone();
            let place = row
                .file
                .place
                .clone()
                .unwrap_or_else(|| path.display().to_string());
            let picture =
                Picture::of_scenario(&row).map_err(|(at, error)| PicturesError::Picture {
                    place: at.unwrap_or_else(|| place.clone()),
                    file: file.clone(),
                    error,
                })?;
            rows.push(Row {
                file,
                place,
                picture,
                y: row.y.map(|y| y.text),
            });
        }
        Ok(Pictures(rows))
    }

    /// Checks before the first run whether the pictures can be drawn from `variants` in `repeat`
    /// runs each, if their number is known: whether the axes, the figures and the values in
    /// conditions exist.
    ///
    /// # Errors
    /// [`PicturesError::Picture`].
    pub fn check(&self, variants: &[&Variant], repeat: Option<u32>) -> Result<(), PicturesError> {
        for row in &self.0 {
            let checked = row.picture.check_before(variants, row.y.as_deref(), repeat);
            checked.map_err(|error| row.fail(error))?;
        }
        Ok(())
    }

    /// Draws all pictures, and returns them with their files in `folder`.
    ///
    /// # Errors
    /// [`PicturesError::Picture`].
    pub fn draw(
        &self,
        recordings: &[&Recording],
        folder: &Path,
    ) -> Result<Vec<(PathBuf, Vec<u8>)>, PicturesError> {
        let draw = |row: &Row| {
            let path = folder.join(&row.file);
            let drawn = row.picture.draw(recordings, &path, SCALE);
            drawn
                .map(|drawn| (path, drawn))
                .map_err(|error| row.fail(error))
        };
        self.0.iter().map(draw).collect()
    }

    /// Returns whether the scenario has none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Row {
    fn fail(&self, error: PictureError) -> PicturesError {
        PicturesError::Picture {
            place: self.place.clone(),
            file: self.file.clone(),
            error: Box::new(error),
        }
    }
}

/// Pixels of a PNG per unit of its drawing, which suits print.
const SCALE: f32 = 3.0;
