//! The control API: HTTP requests that change the link and its connections. The answers are JSON.
//!
//! A web page that the user visits must not control the link. So the host that a request names must
//! be the loopback: a foreign name that resolves to this machine is refused (DNS rebinding). A
//! request from a page of another origin is refused, too. If other machines can reach the API,
//! requests need the token instead.

use std::net::IpAddr;

use serde_json::{Map, Value, json};
use sluice_core::spelling::nearest;

use crate::engine::Side;
use crate::request::authorises;

/// The requested action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// The state of the link.
    Link,
    /// Sets keys of the link.
    SetLink(Vec<(String, String)>),
    /// Cuts directions of the link, or restores them.
    Cut {
        /// The directions, by the end to which they lead.
        to: Vec<Side>,
        /// Whether to cut the directions or to restore them.
        is_cut: bool,
    },
    /// The connections.
    Connections,
    /// Resets one connection, or all.
    Reset(Option<u64>),
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The status of HTTP.
    pub status: u16,
    /// The body.
    pub body: Value,
}

impl Response {
    /// Creates an answer to a successful request.
    pub fn ok(body: Value) -> Response {
        Response { status: 200, body }
    }

    /// Creates an answer with an error message.
    pub fn error(status: u16, why: impl Into<String>) -> Response {
        let body = json!({ "error": why.into() });
        Response { status, body }
    }

    /// Returns the bytes of the answer, after which the connection is closed.
    pub fn bytes(&self) -> Vec<u8> {
        let reason = match self.status {
            200 => "OK",
            400 => "Bad Request",
            401 => "Unauthorized",
            403 => "Forbidden",
            404 => "Not Found",
            405 => "Method Not Allowed",
            413 => "Content Too Large",
            _ => "Error",
        };
        let mut body = serde_json::to_string_pretty(&self.body).unwrap_or_default();
        body.push('\n');
        let more = match self.status {
            401 => "WWW-Authenticate: Bearer\r\n",
            _ => "",
        };
        format!(
            "HTTP/1.1 {} {reason}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
             Cache-Control: no-store\r\nConnection: close\r\n{more}\r\n{body}",
            self.status,
            body.len()
        )
        .into_bytes()
    }
}

/// Reads a request. Returns `None` if it is incomplete. `token` is the required token, if any.
///
/// # Errors
/// The answer to a request that is refused.
pub fn parse(input: &[u8], token: Option<&str>) -> Result<Option<Call>, Response> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let used = match request.parse(input) {
        Ok(httparse::Status::Complete(used)) => used,
        Ok(httparse::Status::Partial) if input.len() < LONGEST => return Ok(None),
        Ok(httparse::Status::Partial) => return Err(Response::error(413, "the head is too long")),
        Err(_) => return Err(Response::error(400, "this is not an HTTP/1.1 request")),
    };
    let header = |name: &str| {
        let named = |header: &&httparse::Header<'_>| header.name.eq_ignore_ascii_case(name);
        let found = request.headers.iter().find(named)?;
        std::str::from_utf8(found.value).ok().map(str::trim)
    };
    let host = header("host").unwrap_or_default();
    if let Some(token) = token {
        let value = header("authorization").unwrap_or_default();
        if !authorises(value.as_bytes(), token) {
            return Err(Response::error(401, "the token is missing or wrong"));
        }
    } else if !is_loopback(host) {
        let why = format!("the host `{host}` is not this machine's loopback");
        return Err(Response::error(403, why));
    }
    if let Some(origin) = header("origin")
        && origin != format!("http://{host}")
    {
        let why = format!("a page of {origin} may not control the link");
        return Err(Response::error(403, why));
    }
    if header("transfer-encoding").is_some() {
        return Err(Response::error(400, "a body needs content-length"));
    }
    let length = header("content-length").map_or(Ok(0), str::parse::<usize>);
    let Ok(length) = length else {
        return Err(Response::error(400, "content-length is not a number"));
    };
    if length > LONGEST {
        return Err(Response::error(413, "the body is too long"));
    }
    let Some(body) = input[used..].get(..length) else {
        return Ok(None);
    };
    let (method, path) = (request.method.unwrap_or(""), request.path.unwrap_or(""));
    call(method, path, body).map(Some)
}

fn call(method: &str, path: &str, body: &[u8]) -> Result<Call, Response> {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    if !query.is_empty() && method != "GET" {
        let why = format!("`?{query}` has no effect: write it in the body, as a JSON object");
        return Err(Response::error(400, why));
    }
    let words: Vec<&str> = path.split('/').filter(|word| !word.is_empty()).collect();
    let (call, allowed) = match words.as_slice() {
        ["link"] => match method {
            "GET" => return Ok(Call::Link),
            "PATCH" | "PUT" | "POST" => return keys(&object(body)?).map(Call::SetLink),
            _ => (None, "GET and PATCH"),
        },
        ["link", word @ ("cut" | "heal")] => match method {
            "POST" | "PUT" => {
                let to = directions(&object(body)?)?;
                let is_cut = *word == "cut";
                return Ok(Call::Cut { to, is_cut });
            }
            _ => (None, "POST"),
        },
        ["connections"] => match method {
            "GET" => return Ok(Call::Connections),
            "DELETE" => return Ok(Call::Reset(None)),
            _ => (None, "GET and DELETE"),
        },
        ["connections", number] => match (method, number.parse()) {
            ("DELETE", Ok(number)) => return Ok(Call::Reset(Some(number))),
            (_, Err(_)) => (Some(404), ""),
            _ => (None, "DELETE"),
        },
        _ => (Some(404), ""),
    };
    Err(match call {
        Some(status) => Response::error(
            status,
            format!(
                "there is no `{path}`; there are /link, /link/cut, /link/heal, /connections and /connections/NUMBER"
            ),
        ),
        None => Response::error(405, format!("`{path}` takes {allowed}, not {method}")),
    })
}

fn object(body: &[u8]) -> Result<Map<String, Value>, Response> {
    if body.trim_ascii().is_empty() {
        return Ok(Map::new());
    }
    match serde_json::from_slice(body) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(Response::error(400, "the body is not a JSON object")),
        Err(error) => Err(Response::error(
            400,
            format!("the body is not JSON: {error}"),
        )),
    }
}

/// Returns keys and values, such as `{"down.rate": "1Mbit/s", "up": {"loss": 0.01}}`.
fn keys(object: &Map<String, Value>) -> Result<Vec<(String, String)>, Response> {
    let mut keys = Vec::new();
    for (key, value) in object {
        match value {
            Value::Object(inner) if matches!(key.as_str(), "down" | "up") => {
                let inner = self::keys(inner)?;
                keys.extend(
                    inner
                        .into_iter()
                        .map(|(own, value)| (format!("{key}.{own}"), value)),
                );
            }
            Value::Object(_) => {
                let near = nearest(key, ["down", "up"]);
                let near = near
                    .first()
                    .map_or_else(String::new, |near| format!(" (did you mean `{near}`?)"));
                let why = format!(
                    "`{key}` is not a direction{near}: only `down` and `up` have keys of their own"
                );
                return Err(Response::error(400, why));
            }
            Value::String(text) => keys.push((key.clone(), text.clone())),
            Value::Number(_) | Value::Bool(_) => keys.push((key.clone(), value.to_string())),
            _ => {
                let why = format!("`{key}` is neither a text nor a number");
                return Err(Response::error(400, why));
            }
        }
    }
    if keys.is_empty() {
        let why = "no key to set, such as {\"down.rate\": \"1Mbit/s\"}";
        return Err(Response::error(400, why));
    }
    Ok(keys)
}

fn directions(object: &Map<String, Value>) -> Result<Vec<Side>, Response> {
    if let Some(key) = object.keys().find(|key| *key != "direction") {
        let why = format!("`{key}` is not a key: the only one is `direction`, \"down\" or \"up\"");
        return Err(Response::error(400, why));
    }
    match object.get("direction").map(Value::as_str) {
        None => Ok(Side::BOTH.into()),
        Some(Some("down")) => Ok(vec![Side::Near]),
        Some(Some("up")) => Ok(vec![Side::Far]),
        Some(_) => Err(Response::error(400, "`direction` is \"down\" or \"up\"")),
    }
}

/// Returns whether the value of a host header names the loopback.
fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => name,
        _ => host,
    };
    if name.eq_ignore_ascii_case("localhost") {
        return true;
    }
    let bare = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'));
    let address: Result<IpAddr, _> = bare.unwrap_or(name).parse();
    address.is_ok_and(|address| address.is_loopback())
}

/// The longest head, and the longest body.
const LONGEST: usize = 64 << 10;
const MOST_HEADERS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str, headers: &str, body: &str) -> Result<Call, u16> {
        let length = body.len();
        let text = format!("{line} HTTP/1.1\r\n{headers}Content-Length: {length}\r\n\r\n{body}");
        match parse(text.as_bytes(), None) {
            Ok(call) => Ok(call.expect("the request is complete")),
            Err(response) => Err(response.status),
        }
    }

    const LOCAL: &str = "Host: localhost:8474\r\n";

    #[test]
    fn every_call_has_a_method_and_a_path() {
        let set = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter().map(|(k, v)| ((*k).into(), (*v).into()));
            Ok(Call::SetLink(pairs.collect()))
        };
        let cut = |to: &[Side], is_cut| {
            Ok(Call::Cut {
                to: to.into(),
                is_cut,
            })
        };
        for (line, body, expected) in [
            ("GET /link", "", Ok(Call::Link)),
            (
                "PATCH /link",
                r#"{"rate": "1Mbit/s", "up": {"loss": 0.01}}"#,
                set(&[("rate", "1Mbit/s"), ("up.loss", "0.01")]),
            ),
            ("POST /link/cut", "", cut(&Side::BOTH, true)),
            (
                "POST /link/heal",
                r#"{"direction": "up"}"#,
                cut(&[Side::Far], false),
            ),
            ("GET /connections", "", Ok(Call::Connections)),
            ("DELETE /connections", "", Ok(Call::Reset(None))),
            ("DELETE /connections/7", "", Ok(Call::Reset(Some(7)))),
            ("GET /", "", Err(404)),
            ("DELETE /connections/x", "", Err(404)),
            ("DELETE /link", "", Err(405)),
            ("PATCH /link", "", Err(400)),
            ("PATCH /link", "[]", Err(400)),
            ("PATCH /link", "{", Err(400)),
            ("PATCH /link", r#"{"rate": null}"#, Err(400)),
            ("PATCH /link", r#"{"dowm": {"rate": "1Mbit/s"}}"#, Err(400)),
            ("POST /link/cut", r#"{"direction": "left"}"#, Err(400)),
            ("POST /link/cut", r#"{"directions": "up"}"#, Err(400)),
            ("POST /link/cut?direction=up", "", Err(400)),
        ] {
            assert_eq!(parsed(line, LOCAL, body), expected, "{line} {body}");
        }
    }

    #[test]
    fn foreign_hosts_and_origins_are_refused() {
        for headers in [
            "Host: 127.0.0.1:1\r\n",
            "Host: [::1]\r\n",
            "Host: LOCALHOST\r\n",
            "Host: localhost:1\r\nOrigin: http://localhost:1\r\n",
        ] {
            assert_eq!(
                parsed("GET /link", headers, ""),
                Ok(Call::Link),
                "{headers}"
            );
        }
        for headers in [
            "",
            "Host: example.org\r\n",
            "Host: localhost.example.org\r\n",
            "Host: 192.0.2.1:1\r\n",
            "Host: localhost:1\r\nOrigin: http://localhost:2\r\n",
            "Host: localhost:1\r\nOrigin: null\r\n",
            "Host: localhost:1\r\nOrigin: https://example.org\r\n",
        ] {
            assert_eq!(parsed("GET /link", headers, ""), Err(403), "{headers}");
        }
    }

    #[test]
    fn the_token_is_needed_if_there_is_one() {
        let with = |header: &str| {
            let text = format!("GET /link HTTP/1.1\r\nHost: proxy\r\n{header}\r\n");
            parse(text.as_bytes(), Some("secret")).map_err(|response| response.status)
        };
        assert_eq!(with(""), Err(401));
        assert_eq!(with("Authorization: Bearer no\r\n"), Err(401));
        assert_eq!(
            with("Authorization: Bearer secret\r\n"),
            Ok(Some(Call::Link))
        );
        let foreign = "Authorization: Bearer secret\r\nOrigin: http://example.org\r\n";
        assert_eq!(with(foreign), Err(403));
    }

    #[test]
    fn an_incomplete_request_waits() {
        let text = b"POST /link/cut HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}";
        for len in 0..text.len() {
            assert_eq!(parse(&text[..len], None), Ok(None), "{len}");
        }
        assert!(parse(text, None).unwrap().is_some());
    }
}
