//! The files of a `pcap` port as the user writes them.

use super::PcapError;
use super::scan::{link_of, open, read_error};
use sluice_wire::frame::Link;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::{fmt, fs, io};

/// The arrival of frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Speed {
    /// At the recorded times.
    #[default]
    Recorded,
    /// As fast as they are received.
    Full,
}

/// The files of a port: `IN:OUT`, `IN:`, `:OUT`, each optionally followed by `:full`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PcapSpec {
    /// The file of arriving frames, if any.
    pub input: Option<PathBuf>,
    /// The file for transmitted frames; they are dropped if `None`.
    pub output: Option<PathBuf>,
    /// The arrival of the frames.
    pub speed: Speed,
}

/// The reason why a text does not name files.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PcapSpecError {
    /// Neither file.
    #[error("`{0}` names no file: expected IN.pcap:OUT.pcap, either of which may be omitted")]
    NoFile(String),
    /// A word that is not a speed.
    #[error(
        "`{0}` is not a speed: expected `recorded` or `full` (file names cannot contain colons)"
    )]
    Speed(String),
}

impl FromStr for PcapSpec {
    type Err = PcapSpecError;

    fn from_str(text: &str) -> Result<PcapSpec, PcapSpecError> {
        let mut parts = text.splitn(3, ':').map(str::to_owned);
        let mut file = || {
            parts
                .next()
                .filter(|part| !part.is_empty())
                .map(PathBuf::from)
        };
        let (input, output) = (file(), file());
        let speed = match parts.next().as_deref() {
            None | Some("recorded") => Speed::Recorded,
            Some("full") => Speed::Full,
            Some(other) => return Err(PcapSpecError::Speed(other.to_owned())),
        };
        if input.is_none() && output.is_none() {
            return Err(PcapSpecError::NoFile(text.to_owned()));
        }
        Ok(PcapSpec {
            input,
            output,
            speed,
        })
    }
}

impl fmt::Display for PcapSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |path: &Option<PathBuf>| {
            path.as_ref()
                .map_or(String::new(), |path| path.display().to_string())
        };
        write!(f, "{}:{}", name(&self.input), name(&self.output))?;
        match self.speed {
            Speed::Recorded => Ok(()),
            Speed::Full => f.write_str(":full"),
        }
    }
}

/// Checks that no file is written by one of these ports and read or written by the same or another one,
/// under any name.
///
/// # Errors
/// [`PcapError::Same`], or a file that cannot be looked at.
pub fn check_apart(ports: &[PcapSpec]) -> Result<(), PcapError> {
    let mut written = Vec::new();
    for path in ports.iter().filter_map(|port| port.output.as_ref()) {
        let file = Identity::of(path)?;
        // Any number of ports may write to /dev/null.
        if file.is_device() {
            continue;
        }
        if written.contains(&file) {
            return Err(PcapError::Same(path.clone()));
        }
        written.push(file);
    }
    for path in ports.iter().filter_map(|port| port.input.as_ref()) {
        if written.contains(&Identity::of(path)?) {
            return Err(PcapError::Same(path.clone()));
        }
    }
    Ok(())
}

/// What distinguishes a file from all others.
#[derive(PartialEq, Eq)]
enum Identity {
    /// Its file system and number, and whether it holds bytes.
    Present(u64, u64, bool),
    /// The path of one that does not exist yet.
    Absent(PathBuf),
}

impl Identity {
    fn of(path: &Path) -> Result<Identity, PcapError> {
        let failed = |source| PcapError::Open {
            path: path.to_owned(),
            source,
        };
        match fs::metadata(path) {
            Ok(found) => {
                return Ok(Identity::Present(found.dev(), found.ino(), found.is_file()));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let folder = match fs::canonicalize(folder) {
            // The file cannot be created either.
            Err(error) if error.kind() == io::ErrorKind::NotFound => folder.to_owned(),
            found => found.map_err(failed)?,
        };
        Ok(Identity::Absent(
            folder.join(path.file_name().unwrap_or_default()),
        ))
    }

    fn is_device(&self) -> bool {
        matches!(self, Identity::Present(.., false))
    }
}

impl PcapSpec {
    /// Returns the link header of the input's frames; `None` without an input, or if the file has
    /// no packets and does not state a link type.
    ///
    /// # Errors
    /// As for [`super::PcapPort::open`], as far as the first packet shows it.
    pub fn first_link(&self) -> Result<Option<Link>, PcapError> {
        let Some(path) = &self.input else {
            return Ok(None);
        };
        let mut reader = open(path)?;
        let mut bytes = Vec::new();
        let first = reader.read(&mut bytes);
        match first.map_err(|error| read_error(path, 1, error))? {
            Some(record) => link_of(path, 1, record.link).map(Some),
            None => match reader.link() {
                Some(link) => link_of(path, 0, link).map(Some),
                None => Ok(None),
            },
        }
    }
}
