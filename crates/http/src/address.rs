//! Where the page is served: an address with a port, or a Unix socket.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, Instant};

use rustix::net::sockopt::socket_peercred;
use sluice_router::control::SocketFile;

use super::HttpError;

/// An address of the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// An IP address with a port.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path {
                "" => {
                    Err("expected a path behind `unix:`, such as unix:/run/sluice-http.sock".into())
                }
                path => Ok(Address::Unix(path.into())),
            };
        }
        let port = text.rsplit(':').next().and_then(|port| port.parse().ok());
        let port: u16 = port.unwrap_or(9180);
        text.parse().map(Address::Tcp).map_err(|_| {
            format!("expected an IP address and a port, such as 127.0.0.1:{port}, or unix:PATH")
        })
    }
}

/// As the address of a browser, or as in `--http`.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => write!(f, "http://{address}/"),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// An address that clients can connect to. The file of a Unix socket is removed at the end.
#[derive(Debug)]
pub struct Listening(Kind);

#[derive(Debug)]
enum Kind {
    Tcp(TcpListener, SocketAddr),
    Unix(UnixListener, SocketFile),
}

impl Listening {
    pub(super) fn open(address: &Address) -> Result<Listening, HttpError> {
        match address {
            Address::Tcp(address) => TcpListener::bind(address)
                .and_then(|listener| {
                    let actual = listener.local_addr()?;
                    Ok(Listening(Kind::Tcp(listener, actual)))
                })
                .map_err(|source| HttpError::Listen {
                    address: *address,
                    source,
                }),
            Address::Unix(path) => {
                let (listener, file) = SocketFile::listen(path)?;
                Ok(Listening(Kind::Unix(listener, file)))
            }
        }
    }

    /// Returns the address; its port is the actual one if 0 was given.
    pub(super) fn address(&self) -> Address {
        match &self.0 {
            Kind::Tcp(_, address) => Address::Tcp(*address),
            Kind::Unix(_, file) => Address::Unix(file.path().to_owned()),
        }
    }

    pub(super) fn accept(&self) -> io::Result<Stream> {
        match &self.0 {
            Kind::Tcp(listener, _) => {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(stream))
            }
            Kind::Unix(listener, _) => Ok(Stream::Unix(listener.accept()?.0)),
        }
    }

    /// Ends a wait for a connection. Returns whether it did.
    pub(super) fn wake(&self, patience: Duration) -> bool {
        match &self.0 {
            Kind::Tcp(_, address) => {
                let mut address = *address;
                if address.ip().is_unspecified() {
                    address.set_ip(match address {
                        SocketAddr::V4(_) => IpAddr::from(Ipv4Addr::LOCALHOST),
                        SocketAddr::V6(_) => IpAddr::from(Ipv6Addr::LOCALHOST),
                    });
                }
                TcpStream::connect_timeout(&address, patience).is_ok()
            }
            Kind::Unix(_, file) => file.connect().is_some(),
        }
    }
}

/// A connection.
#[derive(Debug)]
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    pub(super) fn set_read_timeout(&self, timeout: Duration) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.set_read_timeout(Some(timeout)),
            Stream::Unix(stream) => stream.set_read_timeout(Some(timeout)),
        }
    }

    pub(super) fn set_write_timeout(&self, timeout: Duration) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.set_write_timeout(Some(timeout)),
            Stream::Unix(stream) => stream.set_write_timeout(Some(timeout)),
        }
    }

    pub(super) fn close(&self) {
        let _ = match self {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }

    /// Returns the address of the client; `None` for a user of a Unix socket.
    pub(super) fn address(&self) -> Option<IpAddr> {
        match self {
            Stream::Tcp(stream) => Some(stream.peer_addr().ok()?.ip().to_canonical()),
            Stream::Unix(_) => None,
        }
    }

    /// Writes all of `bytes` within `patience`, however slowly the client reads.
    pub(super) fn write_within(
        mut self: &Self,
        bytes: &[u8],
        patience: Duration,
    ) -> io::Result<()> {
        let deadline = Instant::now() + patience;
        let mut rest = bytes;
        while !rest.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.set_write_timeout(left)?;
            match self.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns the name of the client in the log of changes: its address, or its user.
    pub(super) fn peer(&self) -> io::Result<String> {
        match self {
            Stream::Tcp(stream) => Ok(stream.peer_addr()?.ip().to_canonical().to_string()),
            Stream::Unix(stream) => Ok(format!("uid {}", socket_peercred(stream)?.uid.as_raw())),
        }
    }
}

impl Read for &Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => (&mut &*stream).read(into),
            Stream::Unix(stream) => (&mut &*stream).read(into),
        }
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => (&mut &*stream).write(bytes),
            Stream::Unix(stream) => (&mut &*stream).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_one_of_a_port_or_a_path() {
        let tcp = "[::1]:9180".parse().unwrap();
        assert_eq!(Address::from_str("[::1]:9180"), Ok(Address::Tcp(tcp)));
        assert_eq!(
            Address::from_str("unix:/run/page.sock"),
            Ok(Address::Unix("/run/page.sock".into()))
        );
        for (text, part) in [
            ("localhost:80", "such as 127.0.0.1:80, or unix:PATH"),
            ("unix:", "expected a path"),
            ("/run/page.sock", "or unix:PATH"),
        ] {
            let why = Address::from_str(text).unwrap_err();
            assert!(why.contains(part), "{text}: {why}");
        }
    }
}
