//! A file that bears its name only when it is whole.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// A file under a temporary name (`NAME.part`), or a device, which is written to directly.
pub(super) struct Part {
    path: PathBuf,
    temporary: Option<PathBuf>,
    file: BufWriter<File>,
}

impl Part {
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let is_device = fs::metadata(path).is_ok_and(|meta| !meta.is_file() && !meta.is_dir());
        let temporary = (!is_device).then(|| {
            let mut name = path.as_os_str().to_owned();
            name.push(".part");
            PathBuf::from(name)
        });
        let file = match &temporary {
            Some(temporary) => File::create(temporary)?,
            None => File::options().write(true).open(path)?,
        };
        Ok(Part {
            path: path.to_owned(),
            temporary,
            file: BufWriter::with_capacity(1 << 16, file),
        })
    }

    /// Writes what is left and gives the file its name.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.file.flush()?;
        match &self.temporary {
            Some(temporary) => fs::rename(temporary, &self.path),
            None => Ok(()),
        }
    }
}

impl Write for Part {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
