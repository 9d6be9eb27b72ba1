//! Who may read: names of hosts, the token, and the cookie that stands for it.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use sluice_router::control::Why;

use super::request::Request;

/// The fewest characters of a token: 16 random ones of 64 have 96 bits.
pub const SHORTEST_TOKEN: usize = 16;
/// The most characters of a token.
pub const MOST_TOKEN: usize = 256;
/// Bytes of a file that are read for its first line, with the blanks around the token.
const MOST_LINE: u64 = 4096;

/// The reasons why a token cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read.
    #[error("cannot read the token in {}: {source}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The token is too short or too long.
    #[error(
        "the token in {} has {length} characters; it needs {SHORTEST_TOKEN} to {MOST_TOKEN}, for \
         example from `openssl rand -hex 16`", .path.display()
    )]
    Length {
        /// The file.
        path: PathBuf,
        /// The number of characters.
        length: usize,
    },
    /// The token has characters that a header cannot carry.
    #[error("the token in {} may only have letters, digits and -._~+/=", .0.display())]
    Characters(PathBuf),
}

/// Reads the token in the first line of a file.
///
/// # Errors
/// [`TokenError`].
pub fn read_token(path: &Path) -> Result<String, TokenError> {
    let unreadable = |source| TokenError::Unreadable {
        path: path.to_owned(),
        source,
    };
    let mut line = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    let mut file = BufReader::new(file.take(MOST_LINE));
    file.read_until(b'\n', &mut line).map_err(unreadable)?;
    let line = String::from_utf8_lossy(&line);
    let token = line.trim().to_owned();
    if !(SHORTEST_TOKEN..=MOST_TOKEN).contains(&token.len()) {
        return Err(TokenError::Length {
            path: path.to_owned(),
            length: token.len(),
        });
    }
    // RFC 6750 section 2.1.
    let is_good = |c: char| c.is_ascii_alphanumeric() || "-._~+/=".contains(c);
    match token.chars().all(is_good) {
        true => Ok(token),
        false => Err(TokenError::Characters(path.to_owned())),
    }
}

/// The name of the cookie, before the port.
const COOKIE: &str = "sluice_session";

/// Returns the name of the cookie at the address that the browser shows. Browsers send a cookie to
/// all ports of a host (RFC 6265 section 8.5), so routers on one host need different names.
fn cookie_name(request: &Request) -> String {
    let host = request.header("host").unwrap_or_default();
    // The colons of an IPv6 address are in brackets.
    let port = host
        .rsplit_once(':')
        .filter(|(_, port)| !port.ends_with(']'));
    let port = port.map_or("80", |(_, port)| port);
    format!("{COOKIE}_{port}")
}

/// The reason why a client is admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admitted {
    /// No token is needed.
    Anybody,
    /// It sent the token.
    Token,
    /// It sent the cookie that stands for the token.
    Cookie,
}

/// What admits a client.
pub(super) struct Access {
    token: Option<String>,
    /// The value of the cookie: a digest of the token, which therefore is not stored in the browser.
    /// It is the same after a restart of the router, so that pages go on.
    session: String,
}

impl Access {
    pub fn new(token: Option<String>) -> Access {
        let mut digest = Sha256::new();
        digest.update(b"cookie of a Sluice page\n");
        digest.update(token.as_deref().unwrap_or_default());
        let digest = digest.finalize();
        Access {
            token,
            session: digest.iter().map(|byte| format!("{byte:02x}")).collect(),
        }
    }

    /// Returns why the request may read figures.
    ///
    /// # Errors
    /// The reason why it may not.
    pub fn admits(&self, request: &Request) -> Result<Admitted, Why> {
        let Some(token) = &self.token else {
            return Ok(Admitted::Anybody);
        };
        let bearer = request.header("authorization").and_then(bearer_token);
        if bearer.is_some_and(|given| is_equal(given, token)) {
            return Ok(Admitted::Token);
        }
        let cookies = request.header("cookie").unwrap_or_default().split(';');
        let values = cookies.filter_map(|cookie| cookie.trim().split_once('='));
        let name = cookie_name(request);
        let mut given = values.filter(|(given, _)| *given == name).peekable();
        let has_tried = request.header("authorization").is_some() || given.peek().is_some();
        match given.any(|(_, value)| is_equal(value, &self.session)) {
            true => Ok(Admitted::Cookie),
            false if has_tried => Err(Why::HttpWrongToken),
            false => Err(Why::HttpNoToken),
        }
    }

    /// Returns the cookie for a client that sends the token as the body of its request.
    pub fn login(&self, request: &Request) -> Option<String> {
        let token = self.token.as_ref()?;
        is_equal(request.body.trim(), token).then(|| {
            let name = cookie_name(request);
            format!("{name}={}; HttpOnly; SameSite=Strict; Path=/", self.session)
        })
    }
}

/// Returns the token of a value of `Authorization`. The name of a scheme may be in any case (RFC 9110 section
/// 11.1).
fn bearer_token(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then_some(token.trim())
}

/// Compares in a time that depends on the lengths only.
fn is_equal(a: &str, b: &str) -> bool {
    let differences = a
        .bytes()
        .zip(b.bytes())
        .fold(0, |sum, (a, b)| sum | (a ^ b));
    a.len() == b.len() && differences == 0
}

/// Checks the names of hosts in a request.
///
/// # Errors
/// The reason why the request is refused, as a counter and as a text.
pub(super) fn check_names(request: &Request) -> Result<(), (Why, &'static str)> {
    let host = request
        .header("host")
        .ok_or((Why::HttpHost, "a request needs one Host header"))?;
    if !is_literal(host) {
        let text = "the Host must be an IP address or localhost, so that no other site can use this \
                    page by its own name (DNS rebinding)";
        return Err((Why::HttpHost, text));
    }
    match request.header("origin") {
        Some(origin) if origin.strip_prefix("http://") != Some(host) => {
            Err((Why::HttpOrigin, "the Origin is another site"))
        }
        _ => Ok(()),
    }
}

/// Returns whether a Host is `localhost` or an address, with or without a port.
fn is_literal(host: &str) -> bool {
    let is_port = |port: &str| port.parse::<u16>().is_ok();
    if let Some(rest) = host.strip_prefix('[') {
        return rest.split_once(']').is_some_and(|(address, port)| {
            address.parse::<std::net::Ipv6Addr>().is_ok()
                && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port))
        });
    }
    let (name, port) = match host.split_once(':') {
        Some((name, port)) => (name, Some(port)),
        None => (host, None),
    };
    let is_name = name.eq_ignore_ascii_case("localhost")
        || name
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_ipv4());
    is_name && port.is_none_or(is_port)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn hosts_are_addresses_or_localhost() {
        for host in [
            "127.0.0.1",
            "127.0.0.1:9180",
            "localhost:9180",
            "[::1]:9180",
            "10.0.0.1:80",
        ] {
            assert!(is_literal(host), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:9180",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "[::1",
            "127.0.0.1:x",
            "",
        ] {
            assert!(!is_literal(host), "{host}");
        }
    }

    #[test]
    fn tokens_are_long_and_plain() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let read = |text: &str| {
            fs::write(&path, text).unwrap();
            read_token(&path)
        };
        assert_eq!(read("0123456789abcdef\n").unwrap(), "0123456789abcdef");
        let short = read("short\n").unwrap_err().to_string();
        assert!(
            short.contains("has 5 characters; it needs 16 to 256"),
            "{short}"
        );
        assert!(matches!(
            read("0123456789abcde\u{e9}"),
            Err(TokenError::Characters(_))
        ));
        assert!(matches!(
            read_token(Path::new("/nowhere")),
            Err(TokenError::Unreadable { .. })
        ));
        // A file without end has no line.
        assert!(matches!(
            read_token(Path::new("/dev/zero")),
            Err(TokenError::Length { length: 4096, .. })
        ));
    }
}
