//! A file that bears its name only when it is whole.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// A file under a temporary name (`NAME.part`), or a device, which is written to directly. What is
/// dropped unfinished is removed.
pub struct Part {
    path: PathBuf,
    /// None for a device, and once the file has its name.
    temporary: Option<PathBuf>,
    file: BufWriter<File>,
}

impl Part {
    pub fn create(path: &Path) -> io::Result<Self> {
        let is_device = fs::metadata(path).is_ok_and(|meta| !meta.is_file() && !meta.is_dir());
        let temporary = (!is_device).then(|| temporary(path));
        let file = match &temporary {
            // What others send is nobody else's business, and a link may lead to a file of theirs.
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
        })
    }

    /// The name of the file when it is whole.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes what is left and gives the file its name.
    pub fn finish(mut self) -> io::Result<()> {
        self.file.flush()?;
        let Some(temporary) = &self.temporary else {
            return Ok(());
        };
        // Else a crash of the machine could leave the name without the content.
        self.file.get_ref().sync_all()?;
        fs::rename(temporary, &self.path)?;
        self.temporary = None;
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // What cannot be removed stays under a name that says it is unfinished.
            let _ = fs::remove_file(temporary);
        }
    }
}

/// The name that the file at `path` has until it is whole.
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

/// Writes `content` to a file for people: beside the file first, so that it is either whole or not
/// there. A link is followed; a device or a pipe is written to directly.
///
/// # Errors
/// What the system said; no half file is left.
pub fn write_file(path: &Path, content: &[u8]) -> io::Result<()> {
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if fs::metadata(&target).is_ok_and(|there| !there.is_file()) {
        return fs::write(&target, content);
    }
    let part = temporary(&target);
    fs::write(&part, content)
        .and_then(|()| fs::rename(&part, &target))
        .inspect_err(|_| {
            // What is left of a full disk helps nobody.
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
