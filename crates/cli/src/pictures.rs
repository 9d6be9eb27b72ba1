//! The pictures of a scenario, `[[picture]]`: drawn after its runs, and again by `sluice report`.

use std::path::{Path, PathBuf};

use sluice_lab::suite::Failure;
use sluice_recording::{Keep, Recording};
use sluice_report::picture::{Picture, PictureError, PlannedRun};
use sluice_scenario::{self as scenario, PictureRow, ScenarioErrors};

/// The reason why the pictures of a scenario cannot be drawn.
#[derive(Debug, thiserror::Error)]
pub enum PicturesError {
    /// The scenario cannot be read.
    #[error(transparent)]
    Scenario(#[from] ScenarioErrors),
    /// A picture cannot be drawn.
    #[error("{what}: {error}")]
    Picture {
        /// The place in the scenario, and the file that it would be.
        what: String,
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
            Err(error) => Err(refusal(&row, error)),
        };
        let rows = scenario::Picture::load_all(path)?.into_iter().map(read);
        Ok(Pictures(rows.collect::<Result<_, _>>()?))
    }

    /// Checks before the first run whether the pictures can be drawn from `runs`, which are `repeat`
    /// for each variant if their number is known, and are recorded at the level `keep`.
    ///
    /// # Errors
    /// [`PicturesError::Picture`].
    pub fn check(
        &self,
        runs: &[PlannedRun<'_>],
        repeat: Option<u32>,
        keep: Keep,
    ) -> Result<(), PicturesError> {
        for Row { row, picture } in &self.0 {
            let checked = picture.check_before(runs, repeat, keep);
            checked.map_err(|error| refusal(row, error))?;
        }
        Ok(())
    }

    /// Draws the pictures. Returns those that were drawn, with their files in `folder`, and those that
    /// cannot be drawn.
    pub fn draw(
        &self,
        recordings: &[&Recording],
        folder: &Path,
    ) -> (Vec<(PathBuf, Vec<u8>)>, Vec<Failure>) {
        let (mut drawn, mut failures) = (Vec::new(), Vec::new());
        for Row { row, picture } in &self.0 {
            let path = folder.join(&row.picture.file);
            match picture.draw(recordings, &path, SCALE) {
                Ok(content) => drawn.push((path, content)),
                Err(error) => failures.push(Failure {
                    what: place_and_file(row, &error),
                    error: error.into(),
                }),
            }
        }
        (drawn, failures)
    }

    /// Returns whether the scenario has none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn refusal(row: &PictureRow, error: PictureError) -> PicturesError {
    PicturesError::Picture {
        what: place_and_file(row, &error),
        error: Box::new(error),
    }
}

/// The place of the wrong word in the scenario, and the file that the picture would be.
fn place_and_file(row: &PictureRow, error: &PictureError) -> String {
    let place = row.place(&error.key(&row.picture)).unwrap_or_default();
    format!("{place}: the picture `{}`", row.picture.file)
}

/// Pixels of a PNG per unit of its drawing, which suits print.
const SCALE: f32 = 3.0;
