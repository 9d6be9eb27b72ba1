//! A lock on a folder of recordings, so that two processes do not write to it at the same time.
//!
//! The kernel holds the lock (flock(2)) until the process ends, however it ends. It is a lock on the
//! folder itself, so no file is left behind. Unlike the number of a process, it means the same in every
//! container.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::error::RecordError;

/// The lock on a folder, for as long as this value lives.
#[derive(Debug)]
pub struct FolderLock {
    /// `None` if the folder cannot be locked.
    _folder: Option<File>,
}

impl FolderLock {
    /// Locks the folder `dir`, which is created if needed. A folder that cannot be created is not
    /// locked, and neither is one on a file system without locks: what is written there reports its
    /// own error, if there is one.
    ///
    /// # Errors
    /// [`RecordError::Locked`]: another process has the lock.
    pub fn take(dir: &Path) -> Result<FolderLock, RecordError> {
        // If it cannot be created, it cannot be opened either.
        let _ = fs::create_dir_all(dir);
        FolderLock::attempt(dir).map_err(|pid| RecordError::Locked {
            path: dir.to_owned(),
            pid,
        })
    }

    /// Locks the folder `dir` of a run while it is recorded. If this process has locked it already, there is
    /// no second lock.
    ///
    /// # Errors
    /// [`RecordError::InUse`]: another process has the lock.
    pub(crate) fn of_run(dir: &Path) -> Result<FolderLock, RecordError> {
        match FolderLock::attempt(dir) {
            Ok(lock) => Ok(lock),
            Err(Some(pid)) if pid == std::process::id() => Ok(FolderLock { _folder: None }),
            Err(pid) => Err(RecordError::InUse {
                path: dir.to_owned(),
                pid,
            }),
        }
    }

    /// Returns whether a process has the lock on the folder `dir`: this one or another.
    pub(crate) fn is_taken(dir: &Path) -> bool {
        FolderLock::attempt(dir).is_err()
    }

    /// Locks the folder `dir`, or returns the process that has the lock, if that is known.
    pub(crate) fn attempt(dir: &Path) -> Result<FolderLock, Option<u32>> {
        let Ok(folder) = File::open(dir) else {
            return Ok(FolderLock { _folder: None });
        };
        match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => Err(holder(&folder)),
            locked => Ok(FolderLock {
                _folder: locked.ok().map(|()| folder),
            }),
        }
    }
}

/// Returns the process that has the lock on `folder`. A line of /proc/locks reads (proc_locks(5)):
/// `1: FLOCK  ADVISORY  WRITE 708 08:01:131075 0 EOF`.
fn holder(folder: &File) -> Option<u32> {
    let inode = folder.metadata().ok()?.ino().to_string();
    let locks = fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, "WRITE", pid, place, ..] = words[..] else {
            return None;
        };
        // Some file systems show another device than stat(2) does.
        (place.rsplit(':').next() == Some(&inode))
            .then_some(pid)?
            .parse()
            .ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_names_its_process_and_ends_with_its_value() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("runs/x");
        let lock = FolderLock::take(&dir).unwrap();
        let error = FolderLock::take(&dir).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "process {} is running scenarios into `{}`: wait until it ends, or choose another \
                 folder (-o DIR)",
                std::process::id(),
                dir.display()
            )
        );
        // Other folders are free, also those within it.
        FolderLock::take(&dir.join("fifo")).unwrap();
        drop(lock);
        FolderLock::take(&dir).unwrap();
        // It leaves nothing but the folder.
        let left: Vec<_> = fs::read_dir(&dir).unwrap().flatten().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }

    #[test]
    fn a_folder_that_cannot_be_created_is_left_to_the_run() {
        FolderLock::take(Path::new("/proc/nowhere")).unwrap();
    }
}
