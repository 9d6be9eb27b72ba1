//! A file that has its own name only when it is complete.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use sluice_scenario::Backend;

/// A file under a temporary name (`NAME.part`), or a device of the user, which is written to directly. A
/// file that is dropped unfinished is removed.
pub struct Part {
    path: PathBuf,
    /// `None` for a device, and once the file has its name.
    temporary: Option<PathBuf>,
    file: BufWriter<File>,
    /// Whether the content is on the disk before the file gets its name.
    is_synced: bool,
}

impl Part {
    /// Creates the file at `path`, which has a name that the program gives. The folder may be from
    /// others: a symbolic link or a device with this name is replaced.
    pub fn create(path: &Path) -> io::Result<Self> {
        let temporary = temporary(path);
        // Only the owner may read captured packets.
        let file = create_temporary(&temporary, OWNER)?;
        Ok(Part::of(path, Some(temporary), file))
    }

    /// Writes to `device`, which is open: a device or a pipe with the name `path`.
    pub fn on(device: File, path: &Path) -> Self {
        Part::of(path, None, device)
    }

    fn of(path: &Path, temporary: Option<PathBuf>, file: File) -> Part {
        Part {
            path: path.to_owned(),
            temporary,
            file: BufWriter::with_capacity(1 << 16, file),
            is_synced: true,
        }
    }

    /// Waits for the disk at the end only if the file belongs to a live run. A simulation that a crash
    /// of the machine damages is run again, and a short one takes less time than the disk.
    pub fn of_run(mut self, backend: Backend) -> Self {
        self.is_synced = backend == Backend::Live;
        self
    }

    /// Returns the name of the complete file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes buffered data and gives the file its name.
    pub fn finish(mut self) -> io::Result<()> {
        self.file.flush()?;
        let Some(temporary) = &self.temporary else {
            return Ok(());
        };
        if self.is_synced {
            // Otherwise a crash of the machine could leave the name without the content.
            self.file.get_ref().sync_all()?;
        }
        fs::rename(temporary, &self.path)?;
        self.temporary = None;
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // A file that cannot be removed keeps a name that marks it as unfinished.
            let _ = fs::remove_file(temporary);
        }
    }
}

/// Returns the temporary name of the file at `path`.
pub fn temporary(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    PathBuf::from(name)
}

impl Write for Part {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Creates a new file with the temporary name `path`. One that an earlier process left is removed, and
/// so is a symbolic link or a pipe: it could lead to another file.
///
/// # Errors
/// The error of the system.
pub fn create_temporary(path: &Path, mode: u32) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = File::options();
    options.write(true).create_new(true).mode(mode).open(path)
}

/// Writes `content` to a file that the user has named, under a temporary name first, so that the file
/// is the old one or the complete new one, also after a power failure. It keeps the mode of the old one.
/// Symbolic links are followed; devices and pipes are written to directly.
///
/// # Errors
/// The error of the system. No incomplete file is left behind.
pub fn write_file(path: &Path, content: &[u8]) -> io::Result<()> {
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let old = fs::metadata(&target).ok();
    if old.as_ref().is_some_and(|old| !old.is_file()) {
        return fs::write(&target, content);
    }
    put(&target, ANYONE, |file| {
        if let Some(old) = &old {
            file.set_permissions(old.permissions())?;
        }
        file.write_all(content)?;
        file.sync_all()
    })
}

/// Does the same as [`write_file`] for a file with a name that the program gives, in a folder that may be
/// from others: a symbolic link with this name is replaced and not followed.
///
/// # Errors
/// As [`write_file`].
pub fn write_own(path: &Path, content: &[u8]) -> io::Result<()> {
    put(path, ANYONE, |file| file.write_all(content))
}

/// Does the same as [`write_own`] for a file that only its owner may read.
///
/// # Errors
/// As [`write_file`].
pub fn write_private(path: &Path, content: &[u8]) -> io::Result<()> {
    put(path, OWNER, |file| file.write_all(content))
}

/// Lets `write` write a file under a temporary name of its own, and gives it its name. Two processes may
/// write the file at the same time, such as the index of a folder with the runs of both: each replaces it as
/// a whole.
fn put(path: &Path, mode: u32, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let part = own_temporary(path);
    create_temporary(&part, mode)
        .and_then(|mut file| write(&mut file))
        .and_then(|()| fs::rename(&part, path))
        .inspect_err(|_| {
            // An incomplete file on a full disk is useless.
            let _ = fs::remove_file(&part);
        })
}

/// Returns a temporary name of the file at `path` that no other process and no other call has. The number
/// of a process is not enough: it may be the same in another container.
fn own_temporary(path: &Path) -> PathBuf {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |time| time.as_nanos());
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{:x}-{now:x}.part", std::process::id()));
    PathBuf::from(name)
}

/// The mode of files that are not recordings: the user's mask decides.
pub const ANYONE: u32 = 0o666;

/// The mode of files with captured packets, or with the tables of a recording.
pub const OWNER: u32 = 0o600;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_recording_is_its_owner_s_and_is_not_led_elsewhere() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("flows.parquet");
        let part = Part::create(&path).unwrap();
        part.finish().unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);

        let precious = folder.path().join("precious");
        fs::write(&precious, "precious").unwrap();
        for name in [path.clone(), temporary(&path)] {
            let _ = fs::remove_file(&name);
            symlink(&precious, &name).unwrap();
            let mut part = Part::create(&path).unwrap();
            part.write_all(b"rows").unwrap();
            part.finish().unwrap();
            assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
            assert!(fs::symlink_metadata(&path).unwrap().is_file());
            assert_eq!(fs::read_to_string(&path).unwrap(), "rows");
        }
        // What is written to a device is lost.
        fs::remove_file(&path).unwrap();
        symlink("/dev/null", &path).unwrap();
        Part::create(&path).unwrap().finish().unwrap();
        assert!(fs::symlink_metadata(&path).unwrap().is_file());
    }

    #[test]
    fn only_a_link_that_the_user_has_named_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (page, target) = (folder.path().join("page"), folder.path().join("target"));
        let content = |path: &Path| fs::read_to_string(path).unwrap();
        fs::write(&target, "old").unwrap();
        symlink(&target, &page).unwrap();
        write_file(&page, b"of the user").unwrap();
        assert_eq!(content(&target), "of the user");
        write_own(&page, b"page").unwrap();
        assert_eq!(
            (content(&page), content(&target)),
            ("page".into(), "of the user".into())
        );

        // The mode is the user's.
        fs::set_permissions(&target, fs::Permissions::from_mode(0o600)).unwrap();
        write_file(&target, b"of the user").unwrap();
        let mode = fs::metadata(&target).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);

        write_private(&page, b"page").unwrap();
        let mode = fs::metadata(&page).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);

        // Nobody names the temporary file.
        let part = temporary(&page);
        symlink(&target, &part).unwrap();
        let mut file = create_temporary(&part, ANYONE).unwrap();
        file.write_all(b"again").unwrap();
        assert_eq!(
            (content(&part), content(&target)),
            ("again".into(), "of the user".into())
        );
    }

    #[test]
    fn two_that_write_one_file_do_not_disturb_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let page = folder.path().join("index.html");
        put(&page, ANYONE, |file| {
            file.write_all(b"the fir")?;
            write_own(&page, b"the second")?;
            assert_eq!(fs::read_to_string(&page)?, "the second");
            file.write_all(b"st")
        })
        .unwrap();
        assert_eq!(fs::read_to_string(&page).unwrap(), "the first");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
