//! How a user names captures as a port.

use super::{PcapError, link_of, open, read_error};
use sluice_wire::frame::Link;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// When frames arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Speed {
    /// As they were recorded.
    #[default]
    Recorded,
    /// As fast as they are taken.
    Full,
}

/// A port as a user names it: `IN:OUT`, `IN:`, `:OUT`, each possibly with `:full` behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PcapSpec {
    /// What arrives; nothing if none.
    pub input: Option<PathBuf>,
    /// Where what is sent goes; it is lost if none.
    pub output: Option<PathBuf>,
    /// When it arrives.
    pub speed: Speed,
}

/// Why a text names no files.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PcapSpecError {
    /// Neither file.
    #[error("`{0}` names no file: IN.pcap:OUT.pcap, of which one may be left out")]
    NoFile(String),
    /// A word that is no speed.
    #[error("`{0}` is no speed; `recorded` and `full` are (file names cannot contain colons)")]
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

impl PcapSpec {
    /// What the frames of the input start with; nothing without an input, or if that holds
    /// neither a packet nor a word about them.
    ///
    /// # Errors
    /// As [`super::PcapPort::open`], as far as the first packet shows it.
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
