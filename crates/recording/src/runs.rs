//! All runs below a folder, grouped by scenario and variant.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::metrics::measure;
use crate::repetitions::{Common, repetitions};
use crate::results::VariantResult;
use crate::{ReadError, Recording, Unfinished, take_outdated, take_unfinished};
use sluice_scenario::metric::Summary;

/// The reason why the runs of a folder cannot be listed.
#[derive(Debug, thiserror::Error)]
pub enum RunsError {
    /// A folder cannot be read.
    #[error("cannot read the folder `{}`: {error}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// The folder contains no run.
    #[error("there is no run (run.json) in `{}` or its subfolders", path.display())]
    None {
        /// The folder.
        path: PathBuf,
    },
    /// No run in the folder was finished.
    #[error(
        "no run in `{}` was finished: {}; {}",
        path.display(),
        Unfinished::list(left_out),
        Unfinished::advice(left_out)
    )]
    Unfinished {
        /// The folder.
        path: PathBuf,
        /// Its runs.
        left_out: Vec<Unfinished>,
    },
    /// A run cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// The runs of one scenario in one folder.
#[derive(Debug)]
pub struct Place {
    /// The folder's path below the searched one; empty for that folder itself.
    pub name: String,
    /// The scenario's title.
    pub title: String,
    /// The scenario's description, if it has one.
    pub about: Option<String>,
    /// A result per variant and backend, in the order of execution.
    pub results: Vec<Found>,
}

/// The runs of a variant that differ only in their seed.
#[derive(Debug)]
pub struct Found {
    /// The result of these runs.
    pub result: VariantResult,
    /// The first run.
    pub recording: Recording,
}

/// Finds all runs in `folder`, which may be the folder of a run itself, and groups those that
/// differ only in their seed ([`repetitions()`]). Runs of an earlier version are left out
/// ([`take_outdated`]).
///
/// # Errors
/// The folder contains no run, or a run cannot be read.
pub fn runs_in(folder: &Path) -> Result<Vec<Place>, RunsError> {
    let mut dirs = Vec::new();
    find(folder, &mut dirs)?;
    let mut recordings = open(folder, &dirs)?;
    take_outdated(&mut recordings);
    places(folder, recordings)
}

/// Runs that were left out.
#[derive(Debug)]
pub struct LeftOut {
    /// Runs that were not finished.
    pub unfinished: Vec<Unfinished>,
    /// The folders of runs of an earlier version of their scenario, their program or its algorithms.
    pub outdated: Vec<PathBuf>,
}

/// Does the same as [`runs_in`] for finished runs, and returns the others beside them. The folder
/// of a run stands for the run and its repetitions beside it; the folder of a repetition
/// (`NAME.seed-5`) stands for itself.
///
/// # Errors
/// As for [`runs_in`], or no run was finished.
pub fn finished_runs(folder: &Path) -> Result<(Vec<Place>, LeftOut), RunsError> {
    let (above, mut recordings, mut outdated) = with_repetitions(folder)?;
    let unfinished = take_unfinished(&mut recordings);
    outdated.extend(take_outdated(&mut recordings));
    if recordings.is_empty() {
        return Err(RunsError::Unfinished {
            path: folder.to_owned(),
            left_out: unfinished,
        });
    }
    let left_out = LeftOut {
        unfinished,
        outdated,
    };
    Ok((places(&above, recordings)?, left_out))
}

/// Returns the folder that contains the runs in `folder`, or the run there and its repetitions beside it;
/// these runs; and the folders of runs with the names of repetitions that are none.
fn with_repetitions(folder: &Path) -> Result<(PathBuf, Vec<Recording>, Vec<PathBuf>), RunsError> {
    let all = || {
        let mut dirs = Vec::new();
        find(folder, &mut dirs)?;
        Ok((folder.to_owned(), open(folder, &dirs)?, Vec::new()))
    };
    if !folder.join("run.json").is_file() {
        return all();
    }
    let whole = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    let (Some(above), Some(name)) = (whole.parent(), whole.file_name()) else {
        return all();
    };
    let prefix = format!("{}.seed-", name.to_string_lossy());
    let mut dirs = vec![whole.clone()];
    for entry in fs::read_dir(above).into_iter().flatten().flatten() {
        let is_repetition = entry.file_name().to_string_lossy().starts_with(&prefix);
        if is_repetition && entry.path().join("run.json").is_file() {
            dirs.push(entry.path());
        }
    }
    let mut recordings = open(above, &dirs)?;
    // A run of an earlier version may remain there.
    let own = Common::of(&recordings[0]);
    let mut others = Vec::new();
    recordings.retain(|recording| {
        let is_repetition = Common::of(recording) == own;
        if !is_repetition {
            others.push(recording.dir().to_owned());
        }
        is_repetition
    });
    Ok((above.to_owned(), recordings, others))
}

/// Opens the runs in `dirs`, which were found in `folder`.
fn open(folder: &Path, dirs: &[PathBuf]) -> Result<Vec<Recording>, RunsError> {
    if dirs.is_empty() {
        return Err(RunsError::None {
            path: folder.to_owned(),
        });
    }
    let opened = dirs.iter().map(|dir| Recording::open(dir));
    Ok(opened.collect::<Result<_, _>>()?)
}

fn places(folder: &Path, mut recordings: Vec<Recording>) -> Result<Vec<Place>, RunsError> {
    // By folder, and within it by start.
    recordings.sort_by_cached_key(|recording| {
        let started = recording.run().environment.started_at.clone();
        (place_of(folder, recording), started)
    });
    let mut places: Vec<Place> = Vec::new();
    for mut group in repetitions(recordings) {
        group.sort_by_key(|recording| recording.run().seed);
        let first = group[0].clone();
        let name = place_of(folder, &first);
        let parts = |recording: Recording| -> Result<_, ReadError> {
            let summary = summary_of(&recording)?;
            Ok((recording, summary, false))
        };
        let parts = group.into_iter().map(parts).collect::<Result<_, _>>()?;
        let found = Found {
            result: VariantResult::of(name.clone(), parts),
            recording: first,
        };
        match places.iter_mut().find(|place| place.name == name) {
            Some(place) => place.results.push(found),
            None => places.push(Place {
                name,
                title: found.recording.run().title.clone(),
                about: found.recording.run().scenario.about.clone(),
                results: vec![found],
            }),
        }
    }
    Ok(places)
}

/// Returns the folder above the run's, below the searched one.
fn place_of(folder: &Path, recording: &Recording) -> String {
    let above = recording.dir().parent().unwrap_or(recording.dir());
    let below = above.strip_prefix(folder).unwrap_or(Path::new(""));
    below.to_string_lossy().into_owned()
}

/// Returns the stored figures. Those of an older program may be incomplete and are computed again.
fn summary_of(recording: &Recording) -> Result<Summary, ReadError> {
    match recording.stored_summary() {
        Ok(Some(summary)) => Ok(summary),
        _ => measure(recording),
    }
}

fn find(folder: &Path, found: &mut Vec<PathBuf>) -> Result<(), RunsError> {
    if folder.join("run.json").is_file() {
        found.push(folder.to_owned());
        return Ok(());
    }
    let fail = |error| RunsError::Folder {
        path: folder.to_owned(),
        error,
    };
    let mut entries = fs::read_dir(folder)
        .and_then(Iterator::collect::<io::Result<Vec<_>>>)
        .map_err(fail)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        // Links are not followed: they may form a cycle.
        if entry.file_type().map_err(fail)?.is_dir() {
            find(&entry.path(), found)?;
        }
    }
    Ok(())
}
