//! Opens the files of a recording, whose folder may be from others.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;

/// Opens the file at `path` of a recording. Only a regular file is opened: a symbolic link could lead to
/// any file of the user, a device may have no end, and a named pipe would be waited for.
///
/// # Errors
/// The error of the system, or what the file is.
pub(crate) fn open_file(path: &Path) -> io::Result<File> {
    open_file_in(CWD, path)
}

/// Does the same as [`open_file`] for a path below `folder`.
pub(crate) fn open_file_in(folder: impl AsFd, path: &Path) -> io::Result<File> {
    let opened = match openat(folder, path, FLAGS, Mode::empty()) {
        Ok(opened) => File::from(opened),
        Err(Errno::LOOP) => return Err(refused("it is a symbolic link, which is not followed")),
        Err(error) => return Err(error.into()),
    };
    match opened.metadata()?.is_file() {
        true => Ok(opened),
        false => Err(refused("it is not a regular file")),
    }
}

/// Reads a text of a recording: JSON or a page.
///
/// # Errors
/// As of the other files of a recording: the file is not a regular one. It has more than 1 GiB, or is
/// not UTF-8.
pub fn read_text(path: &Path) -> io::Result<String> {
    let file = open_file(path)?;
    check_length(file.metadata()?.len())?;
    let mut text = String::new();
    // The file may grow meanwhile.
    file.take(MOST_TEXT).read_to_string(&mut text)?;
    Ok(text)
}

/// Refuses a text of more bytes than [`read_text`] reads.
pub(crate) fn check_length(bytes: u64) -> io::Result<()> {
    match bytes <= MOST_TEXT {
        true => Ok(()),
        false => Err(refused(format!(
            "it has {bytes} bytes, and at most {MOST_TEXT} are read"
        ))),
    }
}

/// An error about the file itself.
pub(crate) fn refused(why: impl Into<String>) -> io::Error {
    let why: String = why.into();
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

/// The flags of files and folders. Without NONBLOCK, a named pipe would be waited for.
pub(crate) const FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK);

/// The longest text. run.json has the text of a trace up to four times: for each direction, in the
/// scenario and in its TOML.
pub(crate) const MOST_TEXT: u64 = 1 << 30;
