//! Text files that the command line names.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// Reads a text of at most 1 GiB. It may be a pipe, and a device may have no end.
pub(super) fn read_text(path: &Path) -> io::Result<String> {
    read_at_most(MOST_BYTES, path)
}

fn read_at_most(most: u64, path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let why = format!("it has more than {most} bytes");
        return Err(io::Error::other(why));
    }
    String::from_utf8(bytes).map_err(|_| io::Error::other("it is not UTF-8 text"))
}

const MOST_BYTES: u64 = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_not_read_beyond_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, "12345").unwrap();
        assert_eq!(read_at_most(5, &path).unwrap(), "12345");
        let error = read_at_most(4, &path).unwrap_err().to_string();
        assert_eq!(error, "it has more than 4 bytes");
        let endless = read_at_most(1 << 16, Path::new("/dev/zero"));
        let error = endless.unwrap_err().to_string();
        assert_eq!(error, "it has more than 65536 bytes");
        std::fs::write(&path, b"\xff").unwrap();
        let error = read_text(&path).unwrap_err().to_string();
        assert_eq!(error, "it is not UTF-8 text");
    }
}
