//! Writes pages and pictures completely or not at all.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate as report;
use crate::Report;
use crate::model::RepetitionLink;
use crate::report_of::{repetitions, report_of};
use crate::sweep;
use sluice_recording::part;
use sluice_recording::{PAGE, Pages, PagesError, ReadError, Recording};
use sluice_scenario::Backend;

/// The reason why a page was not written.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// A recording cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A file cannot be written.
    #[error("cannot write `{}`: {error}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
}

/// The pages that a browser shows, one HTML file each.
#[derive(Clone, Copy, Debug)]
pub struct HtmlPages;

impl Pages for HtmlPages {
    fn write_run(&self, path: &Path, recording: &Recording) -> Result<(), PagesError> {
        Ok(write_page(path, &[recording])?)
    }

    fn write_overview(&self, path: &Path, recordings: &[&Recording]) -> Result<(), PagesError> {
        Ok(write_page(path, recordings)?)
    }
}

/// Writes the page that draws `recordings` over each other, in the folder of recordings. Repetitions of
/// one run are drawn together.
///
/// # Errors
/// [`PageError`]; no incomplete page is left behind.
pub fn write_page(path: &Path, recordings: &[&Recording]) -> Result<(), PageError> {
    let mut page = report_of(recordings)?;
    sweep::add(&mut page, recordings)?;
    link_repetitions(&mut page, recordings, path);
    own_page(recordings)(path, report::html(page).as_bytes())
}

/// Returns what writes a page that the user has not named, about `recordings`. That of a live run has
/// destinations and the command line of a program, so only its owner may read it, as its tables.
pub fn own_page(recordings: &[&Recording]) -> fn(&Path, &[u8]) -> Result<(), PageError> {
    let is_live = |recording: &&Recording| recording.run().environment.backend == Backend::Live;
    match recordings.iter().any(is_live) {
        true => write_private,
        false => write_own,
    }
}

fn write_private(path: &Path, content: &[u8]) -> Result<(), PageError> {
    write(path, content, part::write_private)
}

/// Adds links to the pages of the single repetitions, relative to the page at `path`.
pub fn link_repetitions(report: &mut Report, recordings: &[&Recording], path: &Path) {
    let folder = path.parent().unwrap_or(Path::new(""));
    for (run, (_, group)) in report.runs.iter_mut().zip(repetitions(recordings)) {
        if group.len() < 2 {
            continue;
        }
        let link = |one: &&Recording| {
            let page = one.dir().join(PAGE);
            let is_below = page.is_file() && page.starts_with(folder);
            is_below.then(|| RepetitionLink {
                seed: one.run().seed,
                link: relative(folder, &page),
            })
        };
        run.links = group.iter().filter_map(link).collect();
    }
}

/// `path` as a relative URL on a page in `folder`.
pub(crate) fn relative(folder: &Path, path: &Path) -> String {
    let below = path.strip_prefix(folder).unwrap_or(path);
    let mut link = String::new();
    for byte in below.to_string_lossy().bytes() {
        // The unreserved characters of RFC 3986 section 2.3, and the slash between segments.
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                link.push(char::from(byte));
            }
            byte => link.push_str(&format!("%{byte:02X}")),
        }
    }
    link
}

/// Writes `content` to the file at `path`, which the user has named, completely or not at all. Creates
/// the file's folder.
///
/// # Errors
/// [`PageError::Write`].
pub fn write_file(path: &Path, content: &[u8]) -> Result<(), PageError> {
    write(path, content, part::write_file)
}

/// Does the same as [`write_file`] for a file that the user has not named, in a folder that may be from
/// others: a symbolic link with this name is replaced and not followed.
///
/// # Errors
/// [`PageError::Write`].
pub fn write_own(path: &Path, content: &[u8]) -> Result<(), PageError> {
    write(path, content, part::write_own)
}

fn write(
    path: &Path,
    content: &[u8],
    write: fn(&Path, &[u8]) -> io::Result<()>,
) -> Result<(), PageError> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let is_there = folder.map_or(Ok(()), fs::create_dir_all);
    is_there
        .and_then(|()| write(path, content))
        .map_err(|error| PageError::Write {
            path: path.to_owned(),
            error,
        })
}
