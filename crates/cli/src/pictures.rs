//! The pictures of a scenario, `[[picture]]`: drawn after its runs, and again by `sluice report`.

use std::path::{Path, PathBuf};

use sluice_recording::Recording;
use sluice_report::picture::{Picture, PictureError, PlannedRun};
use sluice_scenario::{self as scenario, PictureRow, ScenarioErrors};

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
    row: PictureRow,
    picture: Picture,
}

impl Pictures {
    /// Reads the pictures of the scenario at `path`.
    ///
    /// # Errors
    /// [`PicturesError`]; the word that is wrong is named with its place.
    pub fn load(path: &Path) -> Result<Pictures, PicturesError> {
        let read = |row: PictureRow| match Picture::of_scenario(&row.picture) {
            Ok(picture) => Ok(Row { row, picture }),
            Err(error) => Err(failure(&row, error)),
        };
        let rows = scenario::Picture::load_all(path)?.into_iter().map(read);
        Ok(Pictures(rows.collect::<Result<_, _>>()?))
    }

    /// Checks before the first run whether the pictures can be drawn from `runs`, which are `repeat`
    /// for each variant if their number is known.
    ///
    /// # Errors
    /// [`PicturesError::Picture`].
    pub fn check(&self, runs: &[PlannedRun<'_>], repeat: Option<u32>) -> Result<(), PicturesError> {
        for Row { row, picture } in &self.0 {
            let checked = picture.check_before(runs, repeat);
            checked.map_err(|error| failure(row, error))?;
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
        let draw = |Row { row, picture }: &Row| {
            let path = folder.join(&row.picture.file);
            match picture.draw(recordings, &path, SCALE) {
                Ok(drawn) => Ok((path, drawn)),
                Err(error) => Err(failure(row, error)),
            }
        };
        self.0.iter().map(draw).collect()
    }

    /// Returns whether the scenario has none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn failure(row: &PictureRow, error: PictureError) -> PicturesError {
    let place = row.place(&error.key(&row.picture)).unwrap_or_default();
    PicturesError::Picture {
        place: place.to_owned(),
        file: row.picture.file.clone(),
        error: Box::new(error),
    }
}

/// Pixels of a PNG per unit of its drawing, which suits print.
const SCALE: f32 = 3.0;
