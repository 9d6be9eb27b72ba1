//! The configuration: a file of commands, read as a whole, checked, and applied in place of the old
//! one.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sluice_core::{Cx, DropCounter, Rng, Time};
use sluice_ipfw::{CommandError, Firewall, Mode, Output, Prepared, Settings};

use crate::control::{Given, Place, Remark, Texts, files_of};

/// Commands and the files that they name, with the contents as read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// The file.
    pub path: PathBuf,
    /// The text of the file.
    pub text: String,
    /// The files that the commands name, with their contents. Relative names are relative to the
    /// folder of the commands' file.
    pub files: Texts,
}

/// The reasons why a configuration is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A command is refused.
    #[error("{}: {message}", at(.path, .place))]
    Refused {
        /// The file.
        path: PathBuf,
        /// The place in the file, or in a file that it names.
        place: Place,
        /// The reason.
        message: String,
        /// Whether it is a file that cannot be read: it may be there later.
        is_unreadable: bool,
    },
}

/// The findings of the check of a file.
#[derive(Debug)]
pub struct Checked {
    /// Commands that are refused, in order.
    pub refused: Vec<ConfigError>,
    /// Commands that do not do what they appear to say.
    pub remarks: Vec<Remark>,
}

/// `file:line:column`, as compilers write it.
pub fn at(path: &Path, place: &Place) -> String {
    let file = match &place.file {
        Some(file) => file.clone(),
        None => path.display().to_string(),
    };
    match place.line {
        0 => file,
        line => format!("{file}:{line}:{}", place.column),
    }
}

impl Config {
    /// Reads a file and the files that it names.
    ///
    /// # Errors
    /// When the file cannot be read, is not UTF-8, or is longer than 64 MiB. A missing file that it names is
    /// reported where it is named.
    pub fn read(path: &Path) -> Result<Config, ConfigError> {
        let bytes = read_bounded(path).map_err(|source| match source.kind() {
            io::ErrorKind::FileTooLarge => ConfigError::Refused {
                path: path.to_owned(),
                place: Place::default(),
                message: format!("{source}: a configuration is a text, with one command per line"),
                is_unreadable: false,
            },
            _ => ConfigError::Unreadable {
                path: path.to_owned(),
                source,
            },
        })?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            ConfigError::Refused {
                path: path.to_owned(),
                place: end_of(&String::from_utf8_lossy(valid)),
                message: "this is not UTF-8: a configuration is a text, with one command per line"
                    .to_owned(),
                is_unreadable: false,
            }
        })?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let files = files_of(&text, &mut |name| {
            let bytes = read_bounded(&folder.join(name))?;
            String::from_utf8(bytes).map_err(|_| {
                io::Error::new(io::ErrorKind::InvalidData, "it is not a text in UTF-8")
            })
        });
        Ok(Config {
            path: path.to_owned(),
            text,
            files,
        })
    }

    /// Applies the commands to an engine without packets. Returns warnings, also about queues that
    /// may hold more packets than `room`.
    ///
    /// # Errors
    /// The command that would be refused, with its place.
    pub fn check(&self, mut firewall: Firewall, room: u32) -> Result<Vec<Remark>, ConfigError> {
        let (mut rng, mut sink) = (Rng::from_seed(1), DropCounter::default());
        let mut cx = Cx::new(Time::ZERO, &mut rng, &mut sink);
        let (output, result) = self.apply(&mut firewall, &mut cx);
        self.refusal(result)?;
        let remarks = output.warnings.iter().map(Remark::from);
        Ok(remarks.chain(over_room(&firewall, room)).collect())
    }

    /// Replaces the configuration of `firewall`, as a whole or not at all.
    pub fn apply(
        &self,
        firewall: &mut Firewall,
        cx: &mut Cx<'_>,
    ) -> (Output, Result<(), CommandError>) {
        let mut output = Output::default();
        let mut files = Given(&self.files);
        let result = firewall.execute(&self.text, Mode::Replace, &mut files, &mut output, cx);
        (output, result)
    }

    /// Adds the place in this file to an engine's refusal.
    ///
    /// # Errors
    /// The refusal.
    pub fn refusal<T>(&self, result: Result<T, CommandError>) -> Result<T, ConfigError> {
        result.map_err(|error| self.refused(&error))
    }

    fn refused(&self, error: &CommandError) -> ConfigError {
        ConfigError::Refused {
            path: self.path.clone(),
            place: Place::of(error),
            message: error.message(),
            is_unreadable: error.is_unreadable(),
        }
    }
}

/// Reads the text of a file of commands, which may have 64 MiB.
///
/// # Errors
/// It cannot be read, is longer, or is not UTF-8.
pub fn text_of(path: &Path) -> io::Result<String> {
    let bytes = read_bounded(path)?;
    String::from_utf8(bytes).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
}

/// Reads a file of at most [`LARGEST`] bytes, which may be a pipe.
fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = File::open(path)?;
    file.take(LARGEST + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > LARGEST {
        true => Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it is longer than {} MiB", LARGEST >> 20),
        )),
        false => Ok(bytes),
    }
}

/// Returns a warning about a file that has not been read within [`SLOW`].
pub(super) fn slow(path: &Path) -> String {
    format!(
        "{}, or a file that it names, has not been read after {} s: is it a pipe to which nothing is \
         written, or on a file system that does not answer?",
        path.display(),
        SLOW.as_secs()
    )
}

/// The longest file that a configuration may be or name, in bytes: room for over a million commands.
const LARGEST: u64 = 64 << 20;
/// Reading a file usually takes milliseconds.
pub(super) const SLOW: Duration = Duration::from_secs(5);

/// Returns the place behind a text.
fn end_of(text: &str) -> Place {
    let last = text.rsplit('\n').next().unwrap_or_default();
    Place {
        file: None,
        line: 1 + text.matches('\n').count() as u32,
        column: 1 + last.chars().count() as u32,
    }
}

/// Returns a warning if the limits of the queues exceed the packet memory.
fn over_room(firewall: &Firewall, room: u32) -> Option<Remark> {
    let most = firewall.most_queued();
    (most > u64::from(room)).then(|| Remark {
        place: Place::default(),
        text: format!(
            "the queues may hold {most} packets, but there is memory for {room}: a pipe gets at most \
             4/5 of it (raise --room, or lower the limits of the queues)"
        ),
    })
}

/// Checks all commands of a file, without a router.
///
/// # Errors
/// The file cannot be read, or is not UTF-8.
pub fn check(path: &Path, settings: &Settings) -> Result<Checked, ConfigError> {
    let config = Config::read(path)?;
    let (mut output, mut files) = (Output::default(), Given(&config.files));
    let refused = Prepared::check(settings, Vec::new(), &config.text, &mut files, &mut output);
    Ok(Checked {
        refused: refused.iter().map(|error| config.refused(error)).collect(),
        remarks: output.warnings.iter().map(Remark::from).collect(),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn write(folder: &tempfile::TempDir, name: &str, text: &str) -> PathBuf {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn a_shell_script_is_recognised_and_said_so_once() {
        let folder = tempfile::tempdir().unwrap();
        let text = "#!/bin/sh\ncmd=\"ipfw -q add\"\n$cmd 00100 allow ip from any to any\n";
        let path = write(&folder, "rc.sh", text);
        let checked = check(&path, &Settings::default()).unwrap();
        let refused: Vec<String> = checked.refused.iter().map(ToString::to_string).collect();
        let is_said = |error: &String| error.contains("(this looks like a shell script: ");
        let said: Vec<bool> = refused.iter().map(is_said).collect();
        assert_eq!(said, [true, false], "{refused:?}");
        // A router that should start with it says so, too.
        let config = Config::read(&path).unwrap();
        let error = config.check(Firewall::new(&Settings::default()), 1000);
        assert!(is_said(&error.unwrap_err().to_string()));
    }

    #[test]
    fn a_refusal_names_file_line_and_column() {
        let folder = tempfile::tempdir().unwrap();
        let path = write(
            &folder,
            "r.conf",
            "# comment\npipe 1 config bw 10Mbit/s dealy 10\nadd pipe 2 ip from any to any\n\
             table t add 1.2.3.4/33\n",
        );
        let checked = check(&path, &Settings::default()).unwrap();
        let refused: Vec<String> = checked.refused.iter().map(ToString::to_string).collect();
        let place = path.display();
        let delay = "unrecognised option ``dealy'' (did you mean ``delay''?)";
        assert_eq!(refused[0], format!("{place}:2:27: {delay}"));
        // The check continues after an error.
        assert!(
            refused[1].starts_with(&format!("{place}:4:13: ")),
            "{refused:?}"
        );
        assert_eq!(
            (refused.len(), checked.remarks.len()),
            (2, 1),
            "{checked:?}"
        );
    }

    #[test]
    fn files_are_found_beside_the_configuration() {
        let folder = tempfile::tempdir().unwrap();
        write(
            &folder,
            "p.txt",
            "samples 10\nloss-level 1\nprob delay\n0 10\n1 20\n",
        );
        let path = write(
            &folder,
            "r.conf",
            "pipe 1 config bw 1Mbit/s profile p.txt\nadd pipe 2 ip from any to any\n",
        );
        let remarks = check(&path, &Settings::default()).unwrap().remarks;
        assert_eq!(remarks.len(), 1, "{remarks:?}");
        assert_eq!(
            at(&path, &remarks[0].place),
            format!("{}:2:1", path.display())
        );
        fs::write(&path, "pipe 1 config bw 1Mbit/s profile gone.txt\n").unwrap();
        let checked = check(&path, &Settings::default()).unwrap();
        let error = checked.refused[0].to_string();
        assert!(
            error.contains(":1:34: fopen: gone.txt: No such file"),
            "{error}"
        );
    }

    /// The whole file takes effect at one instant.
    #[test]
    fn what_later_lines_create_exists() {
        let folder = tempfile::tempdir().unwrap();
        let text = "add 100 pipe 1 ip from any to any\nqueue 4 config sched 5\nadd 200 queue 6 ip from any to any\n\
             sched 5 config\npipe 1 config\n";
        let path = write(&folder, "r.conf", text);
        let remarks = check(&path, &Settings::default()).unwrap().remarks;
        let config = Config::read(&path).unwrap();
        let firewall = Firewall::new(&Settings::default());
        for remarks in [remarks, config.check(firewall, 1024).unwrap()] {
            let texts: Vec<&str> = remarks.iter().map(|remark| &*remark.text).collect();
            assert_eq!(
                texts,
                ["queue 6 does not exist: packets that match are dropped until it does"]
            );
        }
    }

    #[test]
    fn limits_above_the_room_are_reported() {
        let remarks = |text: &str| {
            let config = Config {
                text: text.into(),
                ..Config::default()
            };
            let remarks = config.check(Firewall::new(&Settings::default()), 1024);
            remarks.unwrap().into_iter().map(|remark| remark.text)
        };
        // 20 pipes of 50 packets (dummynet's default), and one more.
        let pipes =
            |count| -> String { (1..=count).map(|n| format!("pipe {n} config\n")).collect() };
        assert_eq!(remarks(&pipes(20)).next(), None);
        let text = remarks(&pipes(21)).next().unwrap();
        assert!(
            text.starts_with("the queues may hold 1050 packets"),
            "{text}"
        );
        // The limit of fq_codel is 10 240 packets.
        let fq_codel =
            "pipe 1 config\nsched 1 config pipe 1 type fq_codel\nqueue 1 config sched 1\n";
        let text = remarks(fq_codel).next().unwrap();
        assert!(text.starts_with("the queues may hold 10"), "{text}");
    }

    #[test]
    fn a_file_that_is_no_text_is_refused_at_its_first_wrong_byte() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.conf");
        fs::write(&path, b"# \xc3\xa4\nadd \xff\n").unwrap();
        let error = check(&path, &Settings::default()).unwrap_err();
        assert!(matches!(error, ConfigError::Refused { .. }), "{error:?}");
        let expected = format!("{}:2:5: this is not UTF-8", path.display());
        assert!(error.to_string().starts_with(&expected), "{error}");
    }

    #[test]
    fn a_file_without_end_is_refused() {
        let error = check(Path::new("/dev/zero"), &Settings::default()).unwrap_err();
        assert!(matches!(error, ConfigError::Refused { .. }), "{error:?}");
        let text = error.to_string();
        assert!(
            text.starts_with("/dev/zero: it is longer than 64 MiB: a configuration"),
            "{text}"
        );
        let folder = tempfile::tempdir().unwrap();
        let path = write(
            &folder,
            "r.conf",
            "pipe 1 config bw 1Mbit/s profile /dev/zero\n",
        );
        let checked = check(&path, &Settings::default()).unwrap();
        let text = checked.refused[0].to_string();
        assert!(
            text.contains("fopen: /dev/zero: it is longer than 64 MiB"),
            "{text}"
        );
    }

    #[test]
    fn a_file_of_another_system_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let text = "\u{feff}pipe 1 config bw 1Mbit/s\r\nadd pipe 1 ip from any to any\r\n";
        let path = write(&folder, "r.conf", text);
        let checked = check(&path, &Settings::default()).unwrap();
        assert!(checked.refused.is_empty(), "{checked:?}");
    }

    #[test]
    fn a_missing_configuration_is_named() {
        let error = check(Path::new("/nowhere/r.conf"), &Settings::default()).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("cannot read /nowhere/r.conf: ")
        );
    }
}
