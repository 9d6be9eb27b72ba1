//! The client's end, used by `sluice ipfw`.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sluice_ipfw::grammar::{self, Command};

use super::{FileText, Reply, Request, Texts};

/// The reasons why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// No process listens.
    #[error(
        "no router listens at {} ({source}); start one with `sluice router`, or name its socket with \
         --socket PATH or SLUICE_SOCKET", .path.display()
    )]
    Nobody {
        /// The socket.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A router may listen, but this process may not connect to it.
    #[error(
        "this user may not use the socket {} ({source}): a router serves its own user and root; use sudo, \
         or name another socket with --socket PATH or SLUICE_SOCKET", .path.display()
    )]
    Forbidden {
        /// The socket.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The connection broke off.
    #[error("the router at {} did not answer: {source}", .path.display())]
    Broken {
        /// The socket.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The router has accepted the connection, and has not answered in time.
    #[error(
        "the router at {} has not answered within {} s; it may be stopped. It may have executed the \
         command: look with `show` once it answers", .path.display(), .patience.as_secs()
    )]
    Late {
        /// The socket.
        path: PathBuf,
        /// The time.
        patience: Duration,
    },
    /// Another program listens on the socket.
    #[error("the program that listens at {} is not a router of this version: {source}", .path.display())]
    Strange {
        /// The socket.
        path: PathBuf,
        /// The reason why the answer is invalid.
        source: serde_json::Error,
    },
}

impl AskError {
    /// Returns the exit status of a command that has no answer, as in sysexits.h: EX_TEMPFAIL if another
    /// attempt may succeed, EX_NOPERM and EX_PROTOCOL as the router itself answers, and EX_IOERR if the
    /// commands may have been executed.
    pub const fn exit_code(&self) -> u8 {
        match self {
            AskError::Broken { .. } => 74,
            AskError::Nobody { .. } | AskError::Late { .. } => 75,
            AskError::Strange { .. } => 76,
            AskError::Forbidden { .. } => 77,
        }
    }
}

/// The timeout: longer than a router takes for the largest request, and longer than it waits for
/// its own loop.
const PATIENCE: Duration = Duration::from_secs(60);

/// Sends a request to the router that listens at `path`. The router does not execute commands that it finds
/// when this has given up.
///
/// # Errors
/// [`AskError`]; a refusal of the router is in its reply.
pub fn ask(path: &Path, request: &Request) -> Result<Reply, AskError> {
    ask_within(path, request, PATIENCE)
}

fn ask_within(path: &Path, request: &Request, patience: Duration) -> Result<Reply, AskError> {
    let stream = UnixStream::connect(path).map_err(|source| unconnected(path, source))?;
    let mut line = String::new();
    let exchange = |line: &mut String| {
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        let mut bytes = serde_json::to_vec(request)?;
        bytes.push(b'\n');
        // A router that refuses a client sends the reason without reading. That reply matters more
        // than the error of sending the request.
        let sent = (&stream).write_all(&bytes);
        if sent.as_ref().is_err_and(is_timeout) {
            return sent;
        }
        match BufReader::new(&stream).read_line(line)? {
            0 => sent.and(Err(io::ErrorKind::UnexpectedEof.into())),
            _ => Ok(()),
        }
    };
    exchange(&mut line).map_err(|source| {
        let path = path.to_owned();
        match is_timeout(&source) {
            true => AskError::Late { path, patience },
            false => AskError::Broken { path, source },
        }
    })?;
    serde_json::from_str(&line).map_err(|source| AskError::Strange {
        path: path.to_owned(),
        source,
    })
}

/// The kernel reports the end of a timeout as EAGAIN.
fn is_timeout(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

/// Returns the error of a connection that the system refused.
fn unconnected(path: &Path, source: io::Error) -> AskError {
    let path = path.to_owned();
    match source.kind() {
        io::ErrorKind::PermissionDenied => AskError::Forbidden { path, source },
        _ => AskError::Nobody { path, source },
    }
}

/// Reads the files that commands name: batches, delay profiles, and the files named in batches.
pub fn files_of(text: &str, read: &mut dyn FnMut(&str) -> io::Result<String>) -> Texts {
    let mut files = Texts::new();
    let mut open = vec![text.to_owned()];
    while let Some(text) = open.pop() {
        for line in text.lines() {
            // A malformed line names no file; the engine reports its error.
            let Ok(line) = grammar::parse(line, 1, false) else {
                continue;
            };
            let (path, is_batch) = match line.invocation.map(|i| i.command) {
                Some(Command::Batch(path)) => (path.value, true),
                Some(Command::Configure(config)) => match config.profile {
                    Some(path) => (path.value, false),
                    None => continue,
                },
                _ => continue,
            };
            if files.contains_key(&path) {
                continue;
            }
            let content = match read(&path) {
                Ok(content) => {
                    if is_batch {
                        open.push(content.clone());
                    }
                    FileText::Text(content)
                }
                Err(error) => FileText::Unreadable(reason(&error)),
            };
            files.insert(path, content);
        }
    }
    files
}

/// Returns the text of an error number, as other programs print it.
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error") {
        Some((reason, _)) => reason.to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use rustix::io::Errno;

    use super::*;
    use crate::control::How;

    #[test]
    fn a_socket_of_another_user_is_no_missing_router() {
        let error = |number: Errno| unconnected(Path::new("/run/s"), number.into()).to_string();
        let text = error(Errno::ACCESS);
        assert!(
            text.starts_with("this user may not use the socket /run/s (Permission denied")
                && text.contains("use sudo"),
            "{text}"
        );
        // There is no file, and no process behind the file (connect(2)).
        for number in [Errno::NOENT, Errno::CONNREFUSED] {
            let text = error(number);
            assert!(text.starts_with("no router listens at /run/s ("), "{text}");
        }
    }

    #[test]
    fn a_router_that_does_not_answer_is_named_with_what_it_may_have_done() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        // The kernel completes the connection, as for a process that is stopped.
        let _stopped = UnixListener::bind(&path).unwrap();
        // The second request is longer than a socket buffers (net.core.wmem_default is 208 KiB).
        for commands in ["pipe show".to_owned(), "x".repeat(4 << 20)] {
            let request = Request::Commands {
                commands,
                how: How::Command,
                files: Texts::new(),
            };
            let error = ask_within(&path, &request, Duration::from_millis(50)).unwrap_err();
            assert_eq!(error.exit_code(), 75, "{error}");
            let text = error.to_string();
            assert!(text.contains("/s has not answered within 0 s"), "{text}");
            assert!(text.contains("It may have executed the command"), "{text}");
        }
    }

    #[test]
    fn files_are_found_also_in_batches_and_read_once() {
        let mut asked = Vec::new();
        let files = files_of(
            "/a\npipe 1 config bw 1M profile /p # x\n/gone\nbad line",
            &mut |path| {
                asked.push(path.to_owned());
                match path {
                    "/a" => Ok("/a\n/b\n".into()),
                    "/b" => Ok("pipe 2 config profile p2".into()),
                    "/p" | "p2" => Ok(String::new()),
                    _ => Err(io::Error::from_raw_os_error(2)),
                }
            },
        );
        assert_eq!(
            files.keys().collect::<Vec<_>>(),
            ["/a", "/b", "/gone", "/p", "p2"]
        );
        assert_eq!(
            files["/gone"],
            FileText::Unreadable("No such file or directory".into())
        );
        asked.sort();
        assert_eq!(asked, ["/a", "/b", "/gone", "/p", "p2"]);
    }
}
