//! The output of programs during a run: files in the folder `programs` of the recording.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sluice_core::Time;
use sluice_scenario::metric::Reported;

use super::error::RecordError;
use crate::part::{Part, temporary};

/// A program that has ended, for [`super::RunWriter::program`].
#[derive(Clone, Debug)]
pub struct ProgramRecord<'a> {
    /// The number of its flow.
    pub flow: u32,
    /// The name of its flow, unique in the run.
    pub name: &'a str,
    /// The program and its arguments.
    pub command: &'a str,
    /// The instant at which it started.
    pub started: Time,
    /// The instant at which it had ended.
    pub ended: Time,
    /// How it ended, in words.
    pub end: String,
    /// Its standard output.
    pub output: &'a [u8],
    /// Its standard error.
    pub errors: &'a [u8],
    /// The figures in its output.
    pub figures: BTreeMap<String, Reported>,
}

/// A program in `run.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProgramEntry {
    /// The number of its flow.
    pub flow: u32,
    /// The program and its arguments, as they were executed.
    pub command: String,
    /// The instant at which it started.
    pub started_ns: u64,
    /// The instant at which it had ended.
    pub ended_ns: u64,
    /// How it ended.
    pub end: String,
    /// The file of its standard output, in the folder of the recording.
    pub output: Option<String>,
    /// The file of its standard error.
    pub errors: Option<String>,
    /// The figures in its output.
    pub figures: BTreeMap<String, Reported>,
}

impl ProgramEntry {
    /// Writes a program's output to the folder `dir`. Without a folder nothing is kept.
    pub(crate) fn write(
        record: &ProgramRecord<'_>,
        dir: Option<&Path>,
    ) -> Result<ProgramEntry, RecordError> {
        let keep = |bytes: &[u8], ending: &str| {
            let Some(dir) = dir.filter(|_| !bytes.is_empty()) else {
                return Ok::<_, RecordError>(None);
            };
            let file = format!("{PROGRAMS}/{}.{ending}", record.name);
            let path = dir.join(&file);
            let written = fs::create_dir_all(dir.join(PROGRAMS))
                .and_then(|()| Part::create(&path))
                .and_then(|mut part| part.write_all(bytes).and_then(|()| part.finish()));
            written.map_err(|error| RecordError::Write { path, error })?;
            Ok(Some(file))
        };
        Ok(ProgramEntry {
            flow: record.flow,
            command: record.command.to_owned(),
            started_ns: record.started.as_ns(),
            ended_ns: record.ended.as_ns(),
            end: record.end.clone(),
            output: keep(record.output, OUTPUT)?,
            errors: keep(record.errors, ERRORS)?,
            figures: record.figures.clone(),
        })
    }
}

/// Removes the files of an older run's programs from the folder `dir`.
pub(crate) fn clear(dir: &Path) -> Result<(), RecordError> {
    let folder = dir.join(PROGRAMS);
    let fail = |path: PathBuf| move |error| RecordError::Write { path, error };
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(fail(folder)(error)),
    };
    for entry in entries {
        let path = entry.map_err(fail(folder.clone()))?.path();
        let is_own = [OUTPUT, ERRORS].iter().any(|ending| {
            let own = path.with_extension(ending);
            path == own || path == temporary(&own)
        });
        if is_own {
            fs::remove_file(&path).map_err(fail(path.clone()))?;
        }
    }
    // A folder with other files stays.
    let _ = fs::remove_dir(&folder);
    Ok(())
}

/// Copies the files of programs from one recording to another.
pub(crate) fn copy(entries: &[ProgramEntry], from: &Path, to: &Path) -> Result<(), RecordError> {
    let files = entries
        .iter()
        .flat_map(|entry| [&entry.output, &entry.errors]);
    for file in files.flatten() {
        let path = to.join(file);
        let copied = fs::create_dir_all(to.join(PROGRAMS))
            .and_then(|()| fs::copy(from.join(file), &path).map(drop));
        copied.map_err(|error| RecordError::Write { path, error })?;
    }
    Ok(())
}

/// The folder of these files.
const PROGRAMS: &str = "programs";
const OUTPUT: &str = "out";
const ERRORS: &str = "err";
