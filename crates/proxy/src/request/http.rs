//! The head of a request to an HTTP proxy (RFC 9110, RFC 9112): CONNECT, or an absolute target.

use super::answers::Asked;
use super::body::{Body, Chunks};
use super::{Destination, authorises};
use crate::engine::Refusal;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The destination.
    pub destination: Destination,
    /// The kind of request.
    pub kind: Kind,
}

/// The kind of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// CONNECT: a tunnel.
    Tunnel,
    /// A request to forward.
    Plain {
        /// The head for the server.
        head: Vec<u8>,
        /// The length of its body.
        body: Body,
        /// The kind of its answer.
        asked: Asked,
    },
}

/// The reason why the proxy itself answers a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The request is malformed, for this reason.
    Malformed(&'static str),
    /// The token is missing or wrong.
    Unauthorised,
}

/// Reads the head of a request. Returns the number of its bytes; `None` if it is incomplete.
///
/// # Errors
/// `Problem`.
pub fn parse(input: &[u8], token: Option<&str>) -> Result<Option<(usize, Request)>, Problem> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let used = match request.parse(input) {
        Ok(httparse::Status::Complete(used)) => used,
        Ok(httparse::Status::Partial) if input.len() < LONGEST_HEAD => return Ok(None),
        Ok(httparse::Status::Partial) => return Err(Problem::Malformed("the head is too long")),
        Err(httparse::Error::TooManyHeaders) => {
            return Err(Problem::Malformed("there are too many header fields"));
        }
        Err(_) => return Err(Problem::Malformed("this is not an HTTP/1.1 request")),
    };
    let header = |name: &str| {
        let named = |header: &&httparse::Header<'_>| header.name.eq_ignore_ascii_case(name);
        request
            .headers
            .iter()
            .find(named)
            .map(|header| header.value)
    };
    let is_allowed = token.is_none_or(|token| {
        header("proxy-authorization").is_some_and(|value| authorises(value, token))
    });
    if !is_allowed {
        return Err(Problem::Unauthorised);
    }
    let (method, target) = (request.method.unwrap_or(""), request.path.unwrap_or(""));
    if method == "CONNECT" {
        let destination = Destination::parse(target, None)
            .ok_or(Problem::Malformed("the target of CONNECT is not HOST:PORT"))?;
        let kind = Kind::Tunnel;
        return Ok(Some((used, Request { destination, kind })));
    }
    let (authority, path) = split(target)?;
    let destination = Destination::parse(authority, Some(80)).ok_or(Problem::Malformed(
        "the target has no host that can be read",
    ))?;
    let mut head = format!("{method} ");
    // RFC 9112 section 3.2.4: OPTIONS without a path is about the whole server.
    match path {
        "" if method == "OPTIONS" => head.push('*'),
        path if path.starts_with('/') => head.push_str(path),
        path => {
            head.push('/');
            head.push_str(path);
        }
    }
    head.push_str(&format!(" HTTP/1.{}\r\n", request.version.unwrap_or(1)));
    // RFC 9112 section 3.2.2: the target's host replaces that of the header.
    head.push_str(&format!("Host: {authority}\r\n"));
    let mut head = head.into_bytes();
    let is_websocket = request.headers.iter().any(|header| {
        header.name.eq_ignore_ascii_case("upgrade")
            && elements(header.value).any(|element| element.eq_ignore_ascii_case(b"websocket"))
    });
    for header in request.headers.iter() {
        let is = |name: &&str| header.name.eq_ignore_ascii_case(name);
        let is_dropped = OWN_HEADERS.iter().any(&is) || !is_websocket && UPGRADES.iter().any(&is);
        let value = match is(&"connection") && !is_websocket {
            // RFC 9110 section 7.8: the option names a header that is no longer there.
            true => without_upgrades(header.value),
            false => header.value.to_vec(),
        };
        if !is_dropped && (!value.is_empty() || header.value.is_empty()) {
            head.extend(header.name.as_bytes());
            head.extend(b": ");
            head.extend(value);
            head.extend(b"\r\n");
        }
    }
    head.extend(b"\r\n");
    let kind = Kind::Plain {
        head,
        body: framing(request.headers)?.unwrap_or(Body::Length(0)),
        asked: match method {
            _ if is_websocket => Asked::WebSocket,
            "HEAD" => Asked::Head,
            _ => Asked::Any,
        },
    };
    Ok(Some((used, Request { destination, kind })))
}

/// Returns the authority and the path with the query of a target such as
/// `http://example.org/index.html`.
fn split(target: &str) -> Result<(&str, &str), Problem> {
    let Some((scheme, rest)) = target.split_once("://") else {
        return Err(Problem::Malformed(
            "this is a proxy: a request needs an absolute target, such as http://example.org/",
        ));
    };
    if scheme.eq_ignore_ascii_case("https") {
        return Err(Problem::Malformed("https needs CONNECT"));
    }
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("ws") {
        return Err(Problem::Malformed("only http can be passed on"));
    }
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    // The user information of a URI is not part of a request (RFC 9110 section 4.2.4).
    let authority = authority.rsplit('@').next().unwrap_or(authority);
    Ok((authority, path))
}

/// Returns the elements of a list (RFC 9110 section 5.6.1).
fn elements(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    let all = list.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    all.filter(|element| !element.is_empty())
}

/// Returns the value of a `Connection` header without the options of [`UPGRADES`].
fn without_upgrades(value: &[u8]) -> Vec<u8> {
    let is_upgrade = |element: &&[u8]| {
        let mut upgrades = UPGRADES.iter();
        upgrades.any(|upgrade| element.eq_ignore_ascii_case(upgrade.as_bytes()))
    };
    if !elements(value).any(|element| is_upgrade(&element)) {
        return value.to_vec();
    }
    let rest: Vec<&[u8]> = elements(value).filter(|e| !is_upgrade(e)).collect();
    rest.join(&b", "[..])
}

/// Returns the form of the body of a request or an answer (RFC 9112 section 6.3), if its headers
/// have it.
///
/// # Errors
/// `Problem` if it is ambiguous.
pub fn framing(headers: &[httparse::Header<'_>]) -> Result<Option<Body>, Problem> {
    let values = |name: &'static str| {
        let named = move |header: &&httparse::Header<'_>| header.name.eq_ignore_ascii_case(name);
        headers.iter().filter(named).map(|header| header.value)
    };
    let lengths: Vec<&[u8]> = values("content-length").collect();
    let codings: Vec<&[u8]> = values("transfer-encoding").collect();
    if let Some(last) = codings.last() {
        let is_chunked = last.trim_ascii().to_ascii_lowercase().ends_with(b"chunked");
        if !lengths.is_empty() || !is_chunked {
            return Err(Problem::Malformed("the length of the body is ambiguous"));
        }
        return Ok(Some(Body::Chunks(Chunks::new())));
    }
    let wrong = Problem::Malformed("content-length is not a number");
    let mut lengths = lengths.iter().map(|value| {
        let text = std::str::from_utf8(value.trim_ascii()).ok()?;
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u64>().ok().filter(|_| is_number)
    });
    let Some(length) = lengths.next() else {
        return Ok(None);
    };
    if lengths.any(|other| other != length) {
        return Err(wrong);
    }
    let length = length.map(Body::Length).ok_or(wrong)?;
    Ok(Some(length))
}

/// Returns the answer to a CONNECT that was granted.
pub fn granted() -> Vec<u8> {
    b"HTTP/1.1 200 Connection established\r\n\r\n".to_vec()
}

/// Returns the answer to a request whose connection was refused.
pub fn refused(destination: &Destination, refusal: Refusal) -> Vec<u8> {
    let (status, why) = match refusal {
        Refusal::Closed => ("502 Bad Gateway", "connection refused"),
        Refusal::Network => ("502 Bad Gateway", "network is unreachable"),
        Refusal::Host => ("502 Bad Gateway", "no route to host"),
        Refusal::Prohibited => ("403 Forbidden", "not allowed by this proxy"),
        Refusal::Silence => ("504 Gateway Timeout", "connection timed out"),
    };
    response(status, "", &format!("sluice: {destination}: {why}\n"))
}

/// Returns the answer to a name that cannot be resolved.
pub fn unresolved(destination: &Destination, why: &str) -> Vec<u8> {
    let text = format!("sluice: cannot resolve {}: {why}\n", destination.host);
    response("502 Bad Gateway", "", &text)
}

impl Problem {
    /// Returns the answer to the request.
    pub fn response(self) -> Vec<u8> {
        match self {
            Problem::Malformed(why) => response("400 Bad Request", "", &format!("sluice: {why}\n")),
            Problem::Unauthorised => response(
                "407 Proxy Authentication Required",
                "Proxy-Authenticate: Basic realm=\"sluice\"\r\n",
                "sluice: this proxy needs its token, as the password of any user\n",
            ),
        }
    }
}

/// Returns an answer after which the connection is closed.
fn response(status: &str, headers: &str, text: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\
         Connection: close\r\n{headers}\r\n{text}",
        text.len()
    )
    .into_bytes()
}

/// Headers that are meant for the proxy, or that the proxy replaces.
const OWN_HEADERS: [&str; 3] = ["proxy-connection", "proxy-authorization", "host"];
/// Headers that change the protocol of the connection. The proxy can follow WebSocket only; a server
/// may ignore each of them (RFC 9110 section 7.8).
const UPGRADES: [&str; 2] = ["upgrade", "http2-settings"];
/// The longest head. Servers accept 8 to 64 KiB.
pub const LONGEST_HEAD: usize = 64 << 10;
/// The most headers of a request or an answer.
pub const MOST_HEADERS: usize = 128;

#[cfg(test)]
mod tests;
