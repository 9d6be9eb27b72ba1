//! Checksums of tables, which reveal damage.
//!
//! SHA-256 in hexadecimal, as printed by `sha256sum`.

use std::fs::File;
use std::io::{self, Read as _, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The length and the SHA-256 of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checksum {
    /// The length in bytes.
    pub bytes: u64,
    /// SHA-256 in hexadecimal.
    pub sha256: String,
}

impl Checksum {
    /// Computes the checksum of `bytes`.
    pub fn of_bytes(bytes: &[u8]) -> Checksum {
        Checksum {
            bytes: bytes.len() as u64,
            sha256: hex(&Sha256::digest(bytes)),
        }
    }

    /// Computes the checksum of the file at `path`, read a piece at a time.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn of_file(path: &Path) -> io::Result<Checksum> {
        Checksum::of_opened(File::open(path)?)
    }

    /// Computes the checksum of the rest of a file.
    pub(crate) fn of_opened(mut file: File) -> io::Result<Checksum> {
        let mut sum = Summing::new(io::sink());
        let mut piece = vec![0; 1 << 16];
        loop {
            match file.read(&mut piece)? {
                0 => return Ok(sum.checksum()),
                n => sum.write_all(&piece[..n])?,
            }
        }
    }
}

/// A writer that computes the checksum of the bytes that pass through it.
pub(crate) struct Summing<W> {
    inner: W,
    bytes: u64,
    digest: Sha256,
}

impl<W> Summing<W> {
    pub fn new(inner: W) -> Self {
        Summing {
            inner,
            bytes: 0,
            digest: Sha256::new(),
        }
    }

    pub fn into_inner(self) -> W {
        self.inner
    }

    /// Returns the checksum of all bytes written so far.
    pub fn checksum(&self) -> Checksum {
        Checksum {
            bytes: self.bytes,
            sha256: hex(&self.digest.clone().finalize()),
        }
    }
}

impl<W: Write> Write for Summing<W> {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        let n = self.inner.write(piece)?;
        self.digest.update(&piece[..n]);
        self.bytes += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

pub(crate) fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_sha256_of_all_pieces() {
        let mut sum = Summing::new(io::sink());
        sum.write_all(b"a").expect("a sink accepts all bytes");
        sum.write_all(b"bc").expect("a sink accepts all bytes");
        // FIPS 180-2 appendix B.1: the digest of "abc".
        let sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let expected = Checksum {
            bytes: 3,
            sha256: sha256.to_owned(),
        };
        assert_eq!(sum.checksum(), expected);
        assert_eq!(Checksum::of_bytes(b"abc"), expected);
    }
}
