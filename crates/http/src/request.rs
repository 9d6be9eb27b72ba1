//! Reads the head of a request, and its short body.

use std::io::{self, Read};
use std::time::{Duration, Instant};

use sluice_router::control::Why;

use super::address::Stream;

/// The methods that the server knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Get,
    /// As `Get`, but the answer has no body.
    Head,
    Post,
}

/// A request.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub method: Method,
    path: String,
    headers: Vec<(String, String)>,
    pub body: String,
}

/// The reason why a request cannot be read.
#[derive(Debug)]
pub(super) enum ReadError {
    Io(io::Error),
    /// The status of the answer, and the reason as a counter and as a text.
    Refused(u16, Why, &'static str),
}

/// Refuses what is not a request that the server knows.
const fn unreadable(text: &'static str) -> ReadError {
    ReadError::Refused(400, Why::HttpUnreadable, text)
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        ReadError::Io(error)
    }
}

/// Largest number of headers.
const MOST_HEADERS: usize = 64;
/// Largest body of a login: a token.
const MOST_LOGIN: usize = 512;
/// Largest body: commands.
const MOST_BODY: usize = 64 << 10;

impl Request {
    /// Reads a request of at most `most` bytes within `patience`, however small its pieces are.
    pub fn read(mut stream: &Stream, most: usize, patience: Duration) -> Result<Self, ReadError> {
        let deadline = Instant::now() + patience;
        let mut bytes = Vec::new();
        let mut more = |bytes: &mut Vec<u8>| -> Result<(), ReadError> {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::Error::from(io::ErrorKind::TimedOut).into());
            }
            stream.set_read_timeout(left)?;
            let mut piece = [0; 2048];
            let count = stream.read(&mut piece)?;
            if count == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            bytes.extend_from_slice(&piece[..count]);
            Ok(())
        };
        let (mut request, head, length) = loop {
            more(&mut bytes)?;
            if let Some(parsed) = parse(&bytes)? {
                break parsed;
            }
            if bytes.len() > most {
                let text = "the head of the request is too long";
                return Err(ReadError::Refused(400, Why::HttpLong, text));
            }
        };
        let most = if request.path == "/login" {
            MOST_LOGIN
        } else {
            MOST_BODY
        };
        if length > most {
            let text = "the body of the request is too long";
            return Err(ReadError::Refused(400, Why::HttpLong, text));
        }
        while bytes.len() < head + length {
            more(&mut bytes)?;
        }
        let body = String::from_utf8_lossy(&bytes[head..head + length]);
        request.body = body.into_owned();
        Ok(request)
    }

    /// Returns the path without a query.
    pub fn path(&self) -> &str {
        self.path.split('?').next().unwrap_or_default()
    }

    /// Returns the only header of this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut found = self
            .headers
            .iter()
            .filter(|(given, _)| given.eq_ignore_ascii_case(name));
        let (_, value) = found.next()?;
        found.next().is_none().then_some(value.as_str())
    }
}

/// Parses a head. Returns the request, the length of the head and of the body, once it is complete.
fn parse(bytes: &[u8]) -> Result<Option<(Request, usize, usize)>, ReadError> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    let head = match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(head)) => head,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(unreadable("this is not a request of HTTP/1.1")),
    };
    let method = match parsed.method {
        Some("GET") => Method::Get,
        Some("HEAD") => Method::Head,
        Some("POST") => Method::Post,
        // RFC 9110 section 15.6.2: no path has it.
        _ => {
            let text = "only GET, HEAD and POST are possible";
            return Err(ReadError::Refused(501, Why::HttpUnreadable, text));
        }
    };
    let headers = parsed.headers.iter().map(|header| {
        let value = String::from_utf8_lossy(header.value).into_owned();
        (header.name.to_owned(), value)
    });
    let request = Request {
        method,
        path: parsed.path.unwrap_or("/").to_owned(),
        headers: headers.collect(),
        body: String::new(),
    };
    if request.header("transfer-encoding").is_some() {
        return Err(unreadable("a body needs a Content-Length"));
    }
    let length = match request.header("content-length") {
        None => 0,
        Some(text) => text
            .parse()
            .map_err(|_| unreadable("wrong Content-Length"))?,
    };
    Ok(Some((request, head, length)))
}
