//! The output of programs during a run: files in the folder `programs` of the recording.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, open};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use sluice_core::Time;
use sluice_scenario::metric::Reported;

use super::error::{ReadError, RecordError};
use super::files::{FLAGS, open_file_in, refused};
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
    /// The file of its standard output, in the folder of the recording: `programs/NAME.out`.
    #[serde(default, deserialize_with = "file_of_program")]
    pub output: Option<String>,
    /// The file of its standard error: `programs/NAME.err`.
    #[serde(default, deserialize_with = "file_of_program")]
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
    if fs::symlink_metadata(&folder).is_ok_and(|meta| meta.is_symlink()) {
        // The files in another folder are not those of a run.
        return fs::remove_file(&folder).map_err(fail(folder));
    }
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(fail(folder)(error)),
    };
    for entry in entries {
        let path = entry.map_err(fail(folder.clone()))?.path();
        let whole = path.with_extension("");
        let name = match path == temporary(&whole) {
            true => &whole,
            false => &path,
        };
        let is_own = [OUTPUT, ERRORS]
            .iter()
            .any(|ending| name.extension() == Some(OsStr::new(ending)));
        if is_own {
            fs::remove_file(&path).map_err(fail(path.clone()))?;
        }
    }
    // A folder with other files stays.
    let _ = fs::remove_dir(&folder);
    Ok(())
}

/// Reads the name of a program's file in run.json. A name in another form could lead out of the folder
/// of the recording, and the file is read and written under this name.
fn file_of_program<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let file = Option::<String>::deserialize(deserializer)?;
    if let Some(file) = file.as_ref().filter(|file| name_in_folder(file).is_none()) {
        return Err(D::Error::custom(format!(
            "the output of a program is in `{PROGRAMS}/NAME.{OUTPUT}` or `{PROGRAMS}/NAME.{ERRORS}`, \
             not in `{file}`"
        )));
    }
    Ok(file)
}

/// Returns the name of a program's file in the folder of these files; `None` if the file has another
/// place or ending.
fn name_in_folder(file: &str) -> Option<&str> {
    let name = file.strip_prefix(PROGRAMS)?.strip_prefix('/')?;
    let (stem, ending) = name.rsplit_once('.')?;
    let is_own = [OUTPUT, ERRORS].contains(&ending) && !stem.is_empty() && !name.contains('/');
    is_own.then_some(name)
}

/// Copies the files of programs from one recording to another. A symbolic link is not followed: it
/// could lead to a file outside the recording.
pub(crate) fn copy(entries: &[ProgramEntry], from: &Path, to: &Path) -> Result<(), RecordError> {
    let files = entries
        .iter()
        .flat_map(|entry| [&entry.output, &entry.errors]);
    for file in files.flatten() {
        let mut source = open_in(from, file).map_err(|error| ReadError::Open {
            path: from.join(file),
            error,
        })?;
        let path = to.join(file);
        let copied = fs::create_dir_all(to.join(PROGRAMS))
            .and_then(|()| Part::create(&path))
            .and_then(|mut part| io::copy(&mut source, &mut part).and_then(|_| part.finish()));
        copied.map_err(|error| RecordError::Write { path, error })?;
    }
    Ok(())
}

/// Opens a program's file in the recording `dir`.
fn open_in(dir: &Path, file: &str) -> io::Result<File> {
    let name = name_in_folder(file).ok_or_else(|| refused("it has another place"))?;
    let flags = FLAGS.union(OFlags::DIRECTORY);
    let folder = open(dir.join(PROGRAMS), flags, Mode::empty())?;
    open_file_in(folder, Path::new(name))
}

/// The folder of these files.
const PROGRAMS: &str = "programs";
const OUTPUT: &str = "out";
const ERRORS: &str = "err";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finished_and_unfinished_files_are_removed_and_no_others() {
        let run = tempfile::tempdir().unwrap();
        let folder = run.path().join(PROGRAMS);
        fs::create_dir(&folder).unwrap();
        for name in ["a.out", "b.c.err", "a.out.part", "b.c.err.part"] {
            fs::write(folder.join(name), name).unwrap();
        }
        let others = ["a.part", "out", "notes.txt", "x.txt.part"];
        for name in others {
            fs::write(folder.join(name), name).unwrap();
        }
        clear(run.path()).unwrap();
        let left = fs::read_dir(&folder).unwrap();
        let mut left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["a.part", "notes.txt", "out", "x.txt.part"]);

        for name in others {
            fs::remove_file(folder.join(name)).unwrap();
        }
        fs::write(folder.join("a.out.part"), "").unwrap();
        clear(run.path()).unwrap();
        assert!(!folder.exists());
    }
}
