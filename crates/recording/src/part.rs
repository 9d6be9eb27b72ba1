//! A file that has its own name only when it is complete.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use sluice_scenario::Backend;

/// A file under a temporary name (`NAME.part`), or a device, which is written to directly. A file
/// that is dropped unfinished is removed.
pub struct Part {
    path: PathBuf,
    /// `None` for a device, and once the file has its name.
    temporary: Option<PathBuf>,
    file: BufWriter<File>,
    /// Whether the content is on the disk before the file gets its name.
    is_synced: bool,
}

impl Part {
    pub fn create(path: &Path) -> io::Result<Self> {
        let is_device = fs::metadata(path).is_ok_and(|meta| !meta.is_file() && !meta.is_dir());
        let temporary = (!is_device).then(|| temporary(path));
        let file = match &temporary {
            // Only the owner may read captured packets, and a symbolic link may lead to another
            // file.
            Some(temporary) => File::options()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .custom_flags(OFlags::NOFOLLOW.bits() as i32)
                .open(temporary)?,
            None => File::options().write(true).open(path)?,
        };
        Ok(Part {
            path: path.to_owned(),
            temporary,
            file: BufWriter::with_capacity(1 << 16, file),
            is_synced: true,
        })
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

/// Writes `content` to a file of the user, under a temporary name first, so that the file is either
/// complete or missing. Symbolic links are followed; devices and pipes are written to directly.
///
/// # Errors
/// The error of the system. No incomplete file is left behind.
pub fn write_file(path: &Path, content: &[u8]) -> io::Result<()> {
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if fs::metadata(&target).is_ok_and(|there| !there.is_file()) {
        return fs::write(&target, content);
    }
    let part = temporary(&target);
    fs::write(&part, content)
        .and_then(|()| fs::rename(&part, &target))
        .inspect_err(|_| {
            // An incomplete file on a full disk is useless.
            let _ = fs::remove_file(&part);
        })
}

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
        symlink(&precious, temporary(&path)).unwrap();
        let error = Part::create(&path).err().unwrap();
        assert_eq!(
            error.raw_os_error(),
            Some(rustix::io::Errno::LOOP.raw_os_error())
        );
        assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
    }
}
