//! Writes rows to a file. Its ending determines the format: `.csv` or `.parquet`.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::ReplayError;
use sluice_net::port::create_capture;
use sluice_recording::csv::field;
use sluice_recording::part::Part;
use sluice_recording::{Cell, CellWriter, ColumnDecl};

/// A file of rows.
pub(super) struct Sheet {
    path: PathBuf,
    form: Form,
}

enum Form {
    Csv(Part),
    Parquet(Box<CellWriter<Part>>),
}

impl Sheet {
    /// Creates a file with `columns`.
    pub(super) fn create(path: &Path, columns: Vec<ColumnDecl>) -> Result<Self, ReplayError> {
        let fail = |error: Box<dyn std::error::Error + Send + Sync>| ReplayError::Write {
            path: path.to_owned(),
            error,
        };
        let form = match path.extension().and_then(|ending| ending.to_str()) {
            Some("csv") => {
                let names: Vec<&str> = columns.iter().map(|c| c.name).collect();
                let begin = || {
                    let mut part = create_named(path)?;
                    writeln!(part, "{}", names.join(","))?;
                    Ok(part)
                };
                Form::Csv(begin().map_err(|error: io::Error| fail(error.into()))?)
            }
            Some("parquet") => {
                let part = create_named(path).map_err(|error| fail(error.into()))?;
                let table = CellWriter::new(part, "replay", columns);
                Form::Parquet(Box::new(table.map_err(|error| fail(error.into()))?))
            }
            _ => {
                return Err(ReplayError::Ending {
                    path: path.to_owned(),
                    endings: &[".csv", ".parquet"],
                });
            }
        };
        Ok(Sheet {
            path: path.to_owned(),
            form,
        })
    }

    /// Appends a row, which has a cell for each column.
    pub(super) fn row<'a>(
        &mut self,
        cells: impl Iterator<Item = Cell<'a>>,
    ) -> Result<(), ReplayError> {
        let written = match &mut self.form {
            Form::Csv(part) => write_line(part, cells).map_err(Into::into),
            Form::Parquet(table) => table.row(|push| cells.for_each(push)).map_err(Into::into),
        };
        written.map_err(|error| self.fail(error))
    }

    /// Writes the remaining rows and gives the file its name.
    pub(super) fn finish(self) -> Result<(), ReplayError> {
        let Sheet { path, form } = self;
        let finished = match form {
            Form::Csv(part) => part.finish().map_err(Into::into),
            Form::Parquet(table) => match table.finish() {
                Ok(part) => part.finish().map_err(Into::into),
                Err(error) => Err(error.into()),
            },
        };
        finished.map_err(|error| ReplayError::Write { path, error })
    }

    fn fail(&self, error: Box<dyn std::error::Error + Send + Sync>) -> ReplayError {
        ReplayError::Write {
            path: self.path.clone(),
            error,
        }
    }
}

/// Creates a file whose name the user has given. A device or a pipe is written to directly, except where another
/// user may have put it there.
pub(super) fn create_named(path: &Path) -> io::Result<Part> {
    let is_direct = fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir());
    match is_direct {
        true => Ok(Part::on(create_capture(path)?, path)),
        false => Part::create(path),
    }
}

fn write_line<'a>(part: &mut Part, cells: impl Iterator<Item = Cell<'a>>) -> io::Result<()> {
    for (i, cell) in cells.enumerate() {
        if i > 0 {
            part.write_all(b",")?;
        }
        match cell {
            Cell::Int(n) => write!(part, "{n}")?,
            // The shortest text that reads back as the same number.
            Cell::Float(x) => write!(part, "{x}")?,
            Cell::Text(word) => part.write_all(field(word).as_bytes())?,
            Cell::Flag(flag) => write!(part, "{}", u8::from(flag))?,
            Cell::Empty => {}
        }
    }
    part.write_all(b"\n")
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn a_pipe_is_written_to_and_a_link_to_one_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (pipe, link) = (folder.path().join("a.csv"), folder.path().join("b.csv"));
        mknodat(CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        let both = fs::File::options().read(true).write(true).open(&pipe);
        let mut part = create_named(&pipe).unwrap();
        part.write_all(b"rows").unwrap();
        part.finish().unwrap();
        let mut read = [0; 4];
        both.unwrap().read_exact(&mut read).unwrap();
        assert_eq!(&read, b"rows");
        assert!(!fs::metadata(&pipe).unwrap().is_file(), "it stays a pipe");

        symlink(&pipe, &link).unwrap();
        let refused = create_named(&link).err().unwrap().to_string();
        assert!(refused.contains("symbolic link"), "{refused}");
        fs::remove_file(&link).unwrap();
        symlink("/dev/null", &link).unwrap();
        create_named(&link).unwrap().finish().unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }
}
