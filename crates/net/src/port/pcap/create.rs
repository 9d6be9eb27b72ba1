//! The files that captures and logs are written to.

use rustix::process::geteuid;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Creates the file of a capture. A device, a pipe and a descriptor of this process
/// (`/dev/stdout`) are only opened. A new file is readable and writable by its owner alone: captured
/// traffic is private.
///
/// # Errors
/// The system's answer. A symbolic link, which may lead to another user's file, is followed to a character
/// device only. A file or a pipe of a user other than this one and root is
/// refused in a folder into which others may put files.
pub fn create_capture(path: &Path) -> io::Result<File> {
    create(path, File::options().write(true).truncate(true))
}

/// Like [`create_capture`], for a log: what the file has stays.
///
/// # Errors
/// As [`create_capture`].
pub fn append_privately(path: &Path) -> io::Result<File> {
    create(path, File::options().append(true))
}

fn create(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    if is_own_descriptor(path) {
        // /dev/stdout is a symbolic link.
        return File::options().write(true).open(path);
    }
    match options.clone().create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        created => return created,
    }
    // The path is looked up first (`O_PATH`, open(2)), which changes nothing and waits for nobody. Then the
    // file that was checked is opened, even if the path leads to another one by now.
    let look_up = |flags: i32| {
        let mut options = File::options();
        options.read(true).custom_flags(libc::O_PATH | flags);
        options.open(path)
    };
    let mut found = look_up(libc::O_NOFOLLOW)?;
    let is_link = found.metadata()?.is_symlink();
    if is_link {
        // A link that leads nowhere is refused as a link.
        found = look_up(0).map_err(|_| io::Error::other(LINK))?;
    }
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let user = geteuid().as_raw();
    check(&found.metadata()?, is_link, &folder.metadata()?, user)?;
    let opened = options.open(format!("/proc/self/fd/{}", found.as_raw_fd()));
    opened.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => io::Error::other(NO_PROC),
        _ => error,
    })
}

/// Refuses what another user may have put there to read what is written, or to let it be written elsewhere. A
/// file of another user is not enough: a file system may choose the owner (NFS, FAT), a user namespace shows
/// root as another user, and a log may be that of the user whom a router is to run as.
fn check(found: &Metadata, is_link: bool, folder: &Metadata, user: u32) -> io::Result<()> {
    let (kind, owner) = (found.file_type(), found.uid());
    if is_link && !kind.is_char_device() {
        return Err(io::Error::other(LINK));
    }
    let is_open_to_all = folder.mode() & 0o022 != 0;
    let is_of_another = is_open_to_all || ![0, user, owner].contains(&folder.uid());
    if (kind.is_file() || kind.is_fifo()) && ![0, user].contains(&owner) && is_of_another {
        return Err(io::Error::other(format!(
            "user {owner}, to whom it belongs, may have put it there to read what is written; remove it, or name \
             a file in a folder of your own"
        )));
    }
    Ok(())
}

/// Returns whether a path names an open file of this process, a link that no other user can
/// redirect.
fn is_own_descriptor(path: &Path) -> bool {
    let is_number = |name: &std::ffi::OsStr| name.as_encoded_bytes().iter().all(u8::is_ascii_digit);
    let folders = ["/dev/fd", "/proc/self/fd"].map(Path::new);
    let is_numbered = path
        .parent()
        .is_some_and(|folder| folders.contains(&folder))
        && path.file_name().is_some_and(is_number);
    is_numbered
        || ["/dev/stdout", "/dev/stderr"]
            .map(Path::new)
            .contains(&path)
}

const LINK: &str = "it is a symbolic link, which is not followed";
const NO_PROC: &str =
    "it is there already, and such a file is opened through /proc, which is missing";

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use std::fs;
    use std::io::{Read as _, Write as _};
    use std::os::unix::fs::{PermissionsExt as _, chown};
    use std::path::PathBuf;

    const CONTENT: &str = "what was there";

    /// Creates a file that everyone may read and write.
    fn open_to_all(folder: &Path, name: &str) -> PathBuf {
        let path = folder.join(name);
        fs::write(&path, CONTENT).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        path
    }

    fn pipe(folder: &Path, name: &str) -> PathBuf {
        let path = folder.join(name);
        let mode = Mode::from_raw_mode(0o666);
        mknodat(CWD, &path, FileType::Fifo, mode, 0).unwrap();
        path
    }

    #[test]
    fn what_another_user_has_put_there_is_neither_written_nor_emptied() {
        let folder = tempfile::tempdir().unwrap();
        // As /tmp.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        let file = open_to_all(folder.path(), "file");
        if chown(&file, Some(1), None).is_err() {
            assert!(std::env::var_os("CI").is_none(), "CI has the privilege");
            eprintln!("NOT SHOWN: this needs a file of another user (CAP_CHOWN)");
            return;
        }
        let pipe = pipe(folder.path(), "pipe");
        // With a reader, such a pipe can be written without waiting.
        let mut readable = File::options();
        let mut reader = readable.read(true).write(true).open(&pipe).unwrap();
        for path in [&file, &pipe] {
            chown(path, Some(1), None).unwrap();
            for open in [create_capture, append_privately] {
                let error = open(path).unwrap_err().to_string();
                let expected = "user 1, to whom it belongs, may have put it there to read what is \
                                written; remove it, or name a file in a folder of your own";
                assert_eq!(error, expected, "{}", path.display());
            }
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), CONTENT);
        // Nothing is in the pipe before this.
        reader.write_all(b"!").unwrap();
        let mut first = [0; 8];
        assert_eq!(reader.read(&mut first).unwrap(), 1);
    }

    /// A log of the user whom the router is to run as, or a file system that chooses the owner.
    #[test]
    fn a_file_of_another_user_is_written_where_nobody_else_could_put_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = open_to_all(folder.path(), "file");
        if chown(&file, Some(1), None).is_err() {
            assert!(std::env::var_os("CI").is_none(), "CI has the privilege");
            eprintln!("NOT SHOWN: this needs a file of another user (CAP_CHOWN)");
            return;
        }
        append_privately(&file).unwrap();
        // The file's user owns the folder, too; and then a third one does.
        chown(folder.path(), Some(1), None).unwrap();
        append_privately(&file).unwrap();
        chown(folder.path(), Some(2), None).unwrap();
        append_privately(&file).unwrap_err();
        chown(folder.path(), Some(0), None).unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o775)).unwrap();
        append_privately(&file).unwrap_err();
    }

    #[test]
    fn a_file_and_a_pipe_of_this_user_are_written() {
        let folder = tempfile::tempdir().unwrap();
        let file = open_to_all(folder.path(), "file");
        append_privately(&file).unwrap().write_all(b"!").unwrap();
        let appended = format!("{CONTENT}!");
        assert_eq!(fs::read_to_string(&file).unwrap(), appended);
        create_capture(&file).unwrap().write_all(b"new").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");

        let pipe = pipe(folder.path(), "pipe");
        let mut readable = File::options();
        let mut reader = readable.read(true).write(true).open(&pipe).unwrap();
        create_capture(&pipe).unwrap().write_all(b"new").unwrap();
        let mut received = [0; 8];
        assert_eq!(reader.read(&mut received).unwrap(), 3);
    }

    #[test]
    fn a_link_is_followed_to_a_character_device_only() {
        use std::os::unix::fs::symlink;

        let folder = tempfile::tempdir().unwrap();
        let pipe = pipe(folder.path(), "pipe");
        let file = open_to_all(folder.path(), "file");
        let nowhere = folder.path().join("nowhere");
        for (number, to) in [&pipe, &file, &nowhere].into_iter().enumerate() {
            let link = folder.path().join(format!("link{number}"));
            symlink(to, &link).unwrap();
            for open in [create_capture, append_privately] {
                assert_eq!(open(&link).unwrap_err().to_string(), LINK);
            }
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), CONTENT);
        assert!(!nowhere.exists());
        let device = folder.path().join("device");
        symlink("/dev/null", &device).unwrap();
        create_capture(&device).unwrap();
    }

    #[test]
    fn only_the_process_s_own_descriptors_are_links_that_are_followed() {
        for own in ["/dev/stdout", "/dev/stderr", "/dev/fd/3", "/proc/self/fd/3"] {
            assert!(is_own_descriptor(Path::new(own)), "{own}");
        }
        for other in [
            "/dev/fd/../../tmp/x",
            "/proc/1/fd/3",
            "/tmp/dev/stdout",
            "/dev/fd",
            "out",
        ] {
            assert!(!is_own_descriptor(Path::new(other)), "{other}");
        }
    }
}
