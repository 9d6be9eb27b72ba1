//! The folder of a run: which folders may be overwritten, and whether there is enough space.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use bytes::Bytes;
use serde::de::Error as _;

use super::SUMMARY_JSON;
use super::error::{ReadError, RecordError};
use super::files::read_text;
use super::lock::FolderLock;
use super::rows::TABLES;
use super::run_file::{FORMAT, RUN_JSON, RunFile, Status};
use crate::part::{Part, create_temporary, temporary};
use sluice_core::Span;
use sluice_scenario::{Backend, Scenario};

/// Prepares `dir` for a recording of `bytes`, and removes an older one in it. The folder is locked while
/// the returned value lives.
pub(crate) fn prepare(dir: &Path, bytes: u64, backend: Backend) -> Result<FolderLock, RecordError> {
    fs::create_dir_all(dir).map_err(|error| RecordError::Folder {
        path: dir.to_owned(),
        error,
    })?;
    let lock = FolderLock::of_run(dir)?;
    check_content(dir)?;
    check_writable(dir, backend)?;
    check_space(dir, bytes)?;
    clear(dir)?;
    Ok(lock)
}

/// Writes the tables of a recording to the folder `dir`, and copies its programs' output from the
/// folder `from`.
pub(crate) fn save(
    dir: &Path,
    run: &RunFile,
    tables: &BTreeMap<&'static str, Bytes>,
    from: &Path,
) -> Result<(), RecordError> {
    let bytes = tables.values().map(|table| table.len() as u64).sum();
    let _lock = prepare(dir, bytes, run.environment.backend)?;
    for (table, bytes) in tables {
        let path = dir.join(table).with_extension("parquet");
        let mut part = Part::create(&path).map_err(|error| RecordError::Write {
            path: path.clone(),
            error,
        })?;
        part.write_all(bytes)
            .and_then(|()| part.finish())
            .map_err(|error| RecordError::Write { path, error })?;
    }
    super::program::copy(&run.programs, from, dir)?;
    run.write(dir).map_err(|error| RecordError::Write {
        path: dir.join(RUN_JSON),
        error,
    })
}

/// Reads `run.json` of the folder `dir`.
pub(crate) fn read_run_file(dir: &Path) -> Result<RunFile, ReadError> {
    let path = dir.join(RUN_JSON);
    let text = match read_text(&path) {
        Ok(text) => text,
        Err(error) => return Err(ReadError::Open { path, error }),
    };
    #[derive(serde::Deserialize)]
    struct Versioned {
        format: u32,
    }
    let json = |error| ReadError::Json {
        path: path.clone(),
        error,
    };
    // The version is checked first, because nothing else is known about a newer layout.
    let Versioned { format } = serde_json::from_str(&text).map_err(json)?;
    if format != FORMAT {
        return Err(ReadError::Format {
            path,
            found: format,
        });
    }
    let run: RunFile = serde_json::from_str(&text).map_err(json)?;
    check_end(&run).map_err(|why| json(serde_json::Error::custom(why)))?;
    Ok(run)
}

/// Refuses an end at which figures and charts would take all memory.
fn check_end(run: &RunFile) -> Result<(), String> {
    let end = Span::from_ns(run.end_ns);
    let duration = run.scenario.duration;
    let latest = latest_end(&run.scenario);
    if end > latest {
        return Err(format!(
            "`end_ns` is {}, and a run of {duration} ends at {} at the latest",
            run.end_ns,
            latest.as_ns()
        ));
    }
    let values = run.scenario.compared_until(end);
    // Older programs had no limit.
    let most = 2 * Scenario::MOST_COMPARED;
    if values > most {
        return Err(format!(
            "until `end_ns`, the goodputs of the flows in windows are {values} values, and at most {most} \
             are read"
        ));
    }
    Ok(())
}

/// Returns the latest end of a run of `scenario` that is read.
pub(crate) fn latest_end(scenario: &Scenario) -> Span {
    scenario.duration.saturating_add(LATE)
}

/// Accepts a folder that is empty or contains a run that no process is writing.
fn check_content(dir: &Path) -> Result<(), RecordError> {
    let path = || dir.to_owned();
    let folder = |error| RecordError::Folder {
        path: path(),
        error,
    };
    if !dir.join(RUN_JSON).exists() {
        return match fs::read_dir(dir).map_err(folder)?.next() {
            Some(_) => Err(RecordError::Foreign { path: path() }),
            None => Ok(()),
        };
    }
    match read_run_file(dir).map(|run| run.status) {
        Ok(Status::Running(process)) if process.is_alive() => Err(RecordError::InUse {
            path: path(),
            pid: Some(process.pid),
        }),
        // Overwriting an unreadable run is no loss.
        _ => Ok(()),
    }
}

/// Checks before the run for the conditions that would stop it at its end.
fn check_writable(dir: &Path, backend: Backend) -> Result<(), RecordError> {
    let path = dir.join(".probe");
    let probe = || -> io::Result<()> {
        let mut file = create_temporary(&path, 0o600)?;
        file.write_all(&[0; 4096])?;
        match backend {
            Backend::Sim => Ok(()),
            Backend::Live => file.sync_all(),
        }
    };
    let result = probe();
    let _ = fs::remove_file(&path);
    result.map_err(|error| RecordError::Write { path, error })
}

fn check_space(dir: &Path, needed: u64) -> Result<(), RecordError> {
    // A file system that does not report its free space is assumed to have enough.
    let Ok(stat) = rustix::fs::statvfs(dir) else {
        return Ok(());
    };
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    if stat.f_blocks > 0 && free < needed {
        return Err(RecordError::NoSpace {
            path: dir.to_owned(),
            free,
            needed,
        });
    }
    Ok(())
}

/// Removes the files of an older run, and no others.
fn clear(dir: &Path) -> Result<(), RecordError> {
    let tables = TABLES.iter().map(|table| format!("{table}.parquet"));
    let names = tables.chain([RUN_JSON, SUMMARY_JSON, "report.html"].map(str::to_owned));
    for path in names.map(|name| dir.join(name)) {
        for path in [temporary(&path), path] {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(RecordError::Write { path, error });
                }
                _ => {}
            }
        }
    }
    super::program::clear(dir)
}

/// How much later than planned a run may end: a live run waits for its hosts.
const LATE: Span = Span::from_secs(24 * 3600);
