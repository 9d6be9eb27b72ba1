//! A program's request to the proxy for a host and a port, in SOCKS5 or HTTP.
//!
//! The parsers take bytes and return how many of them they have used; they do not read sockets.

pub mod answers;
pub mod body;
pub mod http;
pub mod socks;

use std::fmt;
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The destination that a program requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// The host.
    pub host: Host,
    /// The port.
    pub port: u16,
}

/// A host, by its name or address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// A name.
    Name(String),
    /// An address.
    Address(IpAddr),
}

impl Host {
    /// Reads a name or an address, which may be in brackets. Returns `None` if it is neither.
    pub fn parse(text: &str) -> Option<Host> {
        let bare = text
            .strip_prefix('[')
            .and_then(|text| text.strip_suffix(']'));
        if let Ok(address) = bare.unwrap_or(text).parse() {
            return Some(Host::Address(address));
        }
        // RFC 1035 section 2.3.4 limits names to 255 bytes. An underscore is common in the names
        // of containers.
        let is_known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        let is_name = bare.is_none()
            && !text.is_empty()
            && text.len() <= LONGEST_NAME
            && text.chars().all(is_known);
        is_name.then(|| Host::Name(text.to_ascii_lowercase()))
    }
}

impl Destination {
    /// Reads `HOST:PORT`; `port` replaces a missing port.
    pub fn parse(text: &str, port: Option<u16>) -> Option<Destination> {
        let (host, own) = match text.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, Some(port)),
            _ => (text, None),
        };
        let port = match own {
            // RFC 3986 section 3.2.3: the port may be empty.
            None | Some("") => port?,
            Some(own) if own.bytes().all(|byte| byte.is_ascii_digit()) => {
                own.parse().ok().filter(|port| *port > 0)?
            }
            Some(_) => return None,
        };
        let host = Host::parse(host)?;
        // An IPv6 address must be in brackets; otherwise its last part would be read as a port.
        let is_plain = matches!(host, Host::Address(IpAddr::V6(_))) && !text.starts_with('[');
        (!is_plain).then_some(Destination { host, port })
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Name(name) => f.write_str(name),
            Host::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
            Host::Address(address) => write!(f, "{address}"),
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Returns whether two secrets are equal, in a time that does not depend on where they differ.
pub fn is_same_secret(given: &[u8], expected: &[u8]) -> bool {
    let differences = given.iter().zip(expected).map(|(a, b)| a ^ b);
    given.len() == expected.len() && differences.fold(0, |all, bit| all | bit) == 0
}

/// Returns whether the value of an authorisation header has the token: as a bearer, or as the
/// password of any user.
pub fn authorises(value: &[u8], token: &str) -> bool {
    let Ok(value) = std::str::from_utf8(value) else {
        return false;
    };
    let Some((scheme, secret)) = value.trim().split_once(' ') else {
        return false;
    };
    let secret = secret.trim();
    if scheme.eq_ignore_ascii_case("bearer") {
        return is_same_secret(secret.as_bytes(), token.as_bytes());
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return false;
    }
    let Ok(decoded) = STANDARD.decode(secret) else {
        return false;
    };
    let password = decoded.splitn(2, |byte| *byte == b':').nth(1);
    password.is_some_and(|password| is_same_secret(password, token.as_bytes()))
}

const LONGEST_NAME: usize = 255;

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<String> {
        Destination::parse(text, Some(80)).map(|destination| destination.to_string())
    }

    #[test]
    fn hosts_and_ports_are_told_apart() {
        for (text, expected) in [
            ("example.org:8080", "example.org:8080"),
            ("Example.ORG", "example.org:80"),
            ("my_db:5432", "my_db:5432"),
            ("192.0.2.1:1", "192.0.2.1:1"),
            ("[2001:db8::1]:443", "[2001:db8::1]:443"),
            ("[2001:db8::1]", "[2001:db8::1]:80"),
            ("example.org:", "example.org:80"),
        ] {
            assert_eq!(parsed(text).as_deref(), Some(expected), "{text}");
        }
        for text in [
            "",
            ":80",
            "a:0",
            "a:+1",
            "a:65536",
            "a b:1",
            "2001:db8::1",
            "[a]:1",
            "a:b:1",
            "a/b:1",
            "[::1",
        ] {
            assert_eq!(parsed(text), None, "{text}");
        }
    }

    #[test]
    fn the_token_is_a_bearer_or_a_password() {
        let basic = |text: &str| format!("Basic {}", STANDARD.encode(text));
        for value in [
            "Bearer secret".to_owned(),
            "bearer  secret".to_owned(),
            basic("user:secret"),
            basic(":secret"),
        ] {
            assert!(authorises(value.as_bytes(), "secret"), "{value}");
        }
        for value in [
            "Bearer Secret".to_owned(),
            "Bearer secre".to_owned(),
            "secret".to_owned(),
            basic("secret"),
            basic("secret:"),
            "Basic ===".to_owned(),
            "Digest secret".to_owned(),
        ] {
            assert!(!authorises(value.as_bytes(), "secret"), "{value}");
        }
    }
}
