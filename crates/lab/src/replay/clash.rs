//! Files of a job that would overwrite each other.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::{Job, LinkRate, ReplayError};
use sluice_recording::part::temporary;

/// The identity of a file, by which two paths can be compared.
#[derive(PartialEq, Eq)]
enum Identity {
    /// Device and inode of a file that exists.
    Inode(u64, u64),
    /// The folder and name of a file that does not exist yet.
    Name(PathBuf),
}

impl Identity {
    fn of(path: &Path) -> Self {
        if let Ok(meta) = fs::metadata(path) {
            return Identity::Inode(meta.dev(), meta.ino());
        }
        let parent = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        match (fs::canonicalize(parent), path.file_name()) {
            (Ok(parent), Some(name)) => Identity::Name(parent.join(name)),
            _ => Identity::Name(path.to_owned()),
        }
    }
}

/// Refuses a job that would overwrite one of its inputs, or write two outputs to one file.
pub(super) fn check(job: &Job) -> Result<(), ReplayError> {
    let mut others = vec![("the trace", Identity::of(&job.trace))];
    if let LinkRate::Schedule { file, .. } = &job.rate {
        others.push(("--rate", Identity::of(file)));
    }
    if let Some(draws) = &job.draws {
        others.push(("--draws", Identity::of(&draws.file)));
    }
    let outputs = &job.outputs;
    for (option, path) in [
        ("--out", &outputs.rows),
        ("--state", &outputs.state),
        ("--pcap-out", &outputs.capture),
    ] {
        let Some(path) = path else {
            continue;
        };
        // The temporary name is written to as well.
        let own = [Identity::of(path), Identity::of(&temporary(path))];
        if let Some((other, _)) = others.iter().find(|(_, identity)| own.contains(identity)) {
            return Err(ReplayError::SameFile {
                path: path.clone(),
                option,
                other,
            });
        }
        others.extend(own.map(|identity| (option, identity)));
    }
    Ok(())
}
