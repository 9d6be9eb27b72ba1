//! Follows the answers of an HTTP server, to find their ends (RFC 9112 section 6.3).
//!
//! An answer belongs to the oldest request without one. So a client's connection can lead to
//! another server only after the answers of the first one are complete.

use std::collections::VecDeque;

use super::body::Body;
use super::http::{self, LONGEST_HEAD, MOST_HEADERS};

/// The kind of answer that a request has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// One with a body.
    Any,
    /// One without a body: the method is HEAD.
    Head,
    /// One after which the connection may leave HTTP: the request asks for WebSocket.
    WebSocket,
}

/// The answers on a connection to a server.
#[derive(Clone, Debug)]
pub struct Answers {
    /// The requests whose answers are not complete, the oldest first.
    open: VecDeque<Asked>,
    state: State,
}

/// The position in the bytes of the server.
#[derive(Clone, Debug)]
enum State {
    /// In a head, or before one.
    Head {
        text: Vec<u8>,
        /// Whether the current line has no bytes so far.
        is_empty_line: bool,
    },
    /// In a body.
    Body(Body),
    /// The connection has left HTTP.
    Tunnel,
    /// In bytes that are not an answer to a request.
    Unknown,
}

/// Whether another server may be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// All answers are complete.
    Free,
    /// An answer is not complete.
    Busy,
    /// The server has sent bytes that are not an answer, so that no end can be found.
    Never,
}

impl Answers {
    /// Expects the answer to a request, and no other.
    pub fn to(asked: Asked) -> Answers {
        Answers {
            open: VecDeque::from([asked]),
            state: State::START,
        }
    }

    /// Expects the answer to one more request.
    pub fn expect(&mut self, asked: Asked) {
        self.open.push_back(asked);
    }

    /// Returns whether another request may be sent to this server. After a request for WebSocket, its
    /// answer decides whether HTTP goes on.
    pub fn has_room(&self) -> bool {
        self.open.len() < MOST_OPEN && self.open.back() != Some(&Asked::WebSocket)
    }

    /// Returns whether another server may be asked.
    pub fn turn(&self) -> Turn {
        match &self.state {
            State::Unknown => Turn::Never,
            State::Head { text, .. } if text.is_empty() && self.open.is_empty() => Turn::Free,
            _ => Turn::Busy,
        }
    }

    /// Returns whether the proxy may answer the current request itself: it is the only one, and the
    /// server has sent nothing.
    pub fn is_unanswered(&self) -> bool {
        let has_none = matches!(&self.state, State::Head { text, .. } if text.is_empty());
        has_none && self.open.len() <= 1
    }

    /// Returns whether the server has accepted another protocol than HTTP.
    pub fn is_tunnel(&self) -> bool {
        matches!(self.state, State::Tunnel)
    }

    /// Processes bytes of the server, in their order.
    pub fn pass(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let used = match &mut self.state {
                State::Head { .. } => self.pass_head(bytes),
                State::Body(body) => match body.pass(bytes) {
                    Ok(used) => {
                        if body.has_ended() {
                            self.complete();
                        }
                        used
                    }
                    Err(_) => {
                        self.state = State::Unknown;
                        return;
                    }
                },
                State::Tunnel | State::Unknown => return,
            };
            bytes = &bytes[used..];
        }
    }

    /// Adds bytes to a head, and reads it at its end. Returns the number of bytes used.
    fn pass_head(&mut self, bytes: &[u8]) -> usize {
        let State::Head {
            text,
            is_empty_line,
        } = &mut self.state
        else {
            return 0;
        };
        for (at, byte) in bytes.iter().enumerate() {
            if text.is_empty() && matches!(byte, b'\r' | b'\n') {
                continue;
            }
            if text.len() == LONGEST_HEAD {
                self.state = State::Unknown;
                return at;
            }
            text.push(*byte);
            match byte {
                b'\n' if *is_empty_line => {
                    let text = std::mem::take(text);
                    self.read(&text);
                    return at + 1;
                }
                b'\n' => *is_empty_line = true,
                b'\r' => {}
                _ => *is_empty_line = false,
            }
        }
        bytes.len()
    }

    /// Reads a complete head.
    fn read(&mut self, head: &[u8]) {
        let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
        let mut answer = httparse::Response::new(&mut headers);
        let is_read = matches!(answer.parse(head), Ok(httparse::Status::Complete(_)));
        let (Some(code), Some(asked), true) = (answer.code, self.open.front(), is_read) else {
            self.state = State::Unknown;
            return;
        };
        let body = match (code, asked) {
            (101, Asked::WebSocket) => {
                self.state = State::Tunnel;
                return;
            }
            (101, _) => {
                self.state = State::Unknown;
                return;
            }
            // RFC 9110 section 15.2: the final answer follows.
            (100..200, _) => {
                self.state = State::START;
                return;
            }
            (204 | 304, _) | (_, Asked::Head) => Body::Length(0),
            // Without a length, the body ends with the connection.
            _ => match http::framing(answer.headers) {
                Ok(framing) => framing.unwrap_or(Body::Endless),
                Err(_) => Body::Endless,
            },
        };
        self.state = State::Body(body);
        if matches!(&self.state, State::Body(body) if body.has_ended()) {
            self.complete();
        }
    }

    fn complete(&mut self) {
        self.open.pop_front();
        self.state = State::START;
    }
}

impl State {
    const START: State = State::Head {
        text: Vec::new(),
        is_empty_line: false,
    };
}

/// Requests without a complete answer, beyond which the next one waits.
const MOST_OPEN: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives bytes to fresh answers, cut into pieces of each length.
    fn passed(asked: &[Asked], bytes: &str) -> Answers {
        let follow = |step: usize| {
            let mut answers = Answers::to(asked[0]);
            for more in &asked[1..] {
                answers.expect(*more);
            }
            for piece in bytes.as_bytes().chunks(step) {
                answers.pass(piece);
            }
            answers
        };
        let whole = follow(bytes.len());
        for step in 1..bytes.len() {
            let cut = follow(step);
            let state = |answers: &Answers| (answers.turn(), answers.open.len());
            assert_eq!(state(&cut), state(&whole), "{bytes:?} in pieces of {step}");
        }
        whole
    }

    /// RFC 9112 section 6.3 and RFC 9110 sections 9.3.2, 15.2, 15.3.5 and 15.4.5.
    #[test]
    fn an_answer_ends_where_its_head_announces() {
        use Asked::{Any, Head};
        use Turn::{Busy, Free};
        for (asked, bytes, turn) in [
            (Any, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", Busy),
            (Any, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", Free),
            (Any, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", Free),
            (Any, "HTTP/1.1 200 OK\nContent-Length: 0\n\n", Free),
            (
                Any,
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r",
                Busy,
            ),
            (
                Any,
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
                Free,
            ),
            (Head, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", Free),
            (Any, "HTTP/1.1 204 No Content\r\n\r\n", Free),
            (
                Any,
                "HTTP/1.1 304 Not Modified\r\nContent-Length: 3\r\n\r\n",
                Free,
            ),
            (Any, "HTTP/1.1 100 Continue\r\n\r\n", Busy),
            (
                Any,
                "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
                Free,
            ),
            // The length is unknown: the answer ends with the connection.
            (Any, "HTTP/1.1 200 OK\r\n\r\nabc", Busy),
            (Any, "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", Busy),
            (Any, "HTTP/1.1 200", Busy),
        ] {
            assert_eq!(passed(&[asked], bytes).turn(), turn, "{asked:?} {bytes:?}");
        }
    }

    #[test]
    fn each_request_has_an_answer() {
        let one = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na";
        let asked = [Asked::Head, Asked::Any];
        let first = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n";
        assert_eq!(passed(&asked, first).turn(), Turn::Busy);
        assert_eq!(passed(&asked, &format!("{first}{one}")).turn(), Turn::Free);
    }

    #[test]
    fn bytes_that_are_no_answer_to_a_request_have_no_end() {
        let one = "HTTP/1.1 204 No Content\r\n\r\n";
        for bytes in [
            format!("{one}{one}"),
            "SSH-2.0-x\r\n\r\n".to_owned(),
            "HTTP/1.1 101 Switching Protocols\r\n\r\n".to_owned(),
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n".to_owned(),
        ] {
            assert_eq!(passed(&[Asked::Any], &bytes).turn(), Turn::Never, "{bytes}");
        }
        let mut answers = Answers::to(Asked::Any);
        answers.pass(b"HTTP/1.1 200 OK\r\nX: ");
        answers.pass(&vec![b'x'; LONGEST_HEAD]);
        assert_eq!(answers.turn(), Turn::Never);
    }

    #[test]
    fn only_the_answer_101_to_a_request_for_websocket_ends_http() {
        let asked = [Asked::WebSocket];
        let accepted = passed(&asked, "HTTP/1.1 101 Switching Protocols\r\n\r\nGET");
        assert!(accepted.is_tunnel() && accepted.turn() == Turn::Busy);
        let declined = passed(&asked, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        assert!(!declined.is_tunnel() && declined.has_room());
        assert_eq!(declined.turn(), Turn::Free);
        assert!(!Answers::to(Asked::WebSocket).has_room());
    }
}
