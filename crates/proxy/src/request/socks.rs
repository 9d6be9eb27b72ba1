//! The server's side of SOCKS5 (RFC 1928), with passwords (RFC 1929).

use std::net::{Ipv4Addr, Ipv6Addr};

use super::{Destination, Host, is_same_secret};
use crate::engine::Refusal;

/// A conversation with a client up to its request for a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Socks {
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Greeting,
    Password,
    Request,
}

/// The next action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// More bytes are needed.
    Incomplete,
    /// Send these bytes, and continue.
    Answer(Vec<u8>),
    /// Connect, and answer with `reply`.
    Connect(Destination),
    /// Send these bytes, and close the connection.
    Refuse(Vec<u8>),
}

impl Socks {
    /// Starts a conversation.
    pub fn new() -> Socks {
        Socks {
            stage: Stage::Greeting,
        }
    }

    /// Handles the next message. Returns the number of bytes of `input` that it has used.
    pub fn next(&mut self, input: &[u8], token: Option<&str>) -> (usize, Step) {
        match self.stage {
            Stage::Greeting => self.greeting(input, token),
            Stage::Password => self.password(input, token),
            Stage::Request => request(input),
        }
    }

    fn greeting(&mut self, input: &[u8], token: Option<&str>) -> (usize, Step) {
        let [version, count, rest @ ..] = input else {
            return (0, Step::Incomplete);
        };
        if *version != VERSION {
            return (0, Step::Refuse(Vec::new()));
        }
        let Some(methods) = rest.get(..usize::from(*count)) else {
            return (0, Step::Incomplete);
        };
        let used = 2 + methods.len();
        let has_password = methods.contains(&PASSWORD);
        if methods.contains(&NONE) && token.is_none() {
            self.stage = Stage::Request;
            return (used, Step::Answer(vec![VERSION, NONE]));
        }
        // Without a token, a client that insists on a password may send any.
        if has_password {
            self.stage = Stage::Password;
            return (used, Step::Answer(vec![VERSION, PASSWORD]));
        }
        (used, Step::Refuse(vec![VERSION, NO_METHOD]))
    }

    /// Reads version 1, user and password (RFC 1929 section 2).
    fn password(&mut self, input: &[u8], token: Option<&str>) -> (usize, Step) {
        let Some((1, rest)) = input.split_first().map(|(version, rest)| (*version, rest)) else {
            return match input {
                [] => (0, Step::Incomplete),
                _ => (0, Step::Refuse(vec![1, 1])),
            };
        };
        let word = |rest: &[u8]| {
            let (len, rest) = rest.split_first()?;
            let word = rest.get(..usize::from(*len))?;
            Some((word.to_vec(), 1 + word.len()))
        };
        let Some((_, user)) = word(rest) else {
            return (0, Step::Incomplete);
        };
        let Some((password, len)) = word(&rest[user..]) else {
            return (0, Step::Incomplete);
        };
        let used = 1 + user + len;
        let is_right = token.is_none_or(|token| is_same_secret(&password, token.as_bytes()));
        if !is_right {
            return (used, Step::Refuse(vec![1, 1]));
        }
        self.stage = Stage::Request;
        (used, Step::Answer(vec![1, 0]))
    }
}

impl Default for Socks {
    fn default() -> Self {
        Socks::new()
    }
}

/// Reads a request (RFC 1928 section 4).
fn request(input: &[u8]) -> (usize, Step) {
    let [version, command, _, kind, rest @ ..] = input else {
        return (0, Step::Incomplete);
    };
    let refuse = |code| (0, Step::Refuse(answer(code)));
    if *version != VERSION {
        return refuse(FAILED);
    }
    let len = match *kind {
        IPV4 => 4,
        IPV6 => 16,
        NAME => match rest.first() {
            Some(len) => 1 + usize::from(*len),
            None => return (0, Step::Incomplete),
        },
        _ => return refuse(ADDRESS_UNKNOWN),
    };
    let (Some(address), Some(port)) = (rest.get(..len), rest.get(len..len + 2)) else {
        return (0, Step::Incomplete);
    };
    if *command != CONNECT {
        return refuse(COMMAND_UNKNOWN);
    }
    let host = match *kind {
        IPV4 => <[u8; 4]>::try_from(address)
            .ok()
            .map(|bytes| Host::Address(Ipv4Addr::from(bytes).into())),
        IPV6 => <[u8; 16]>::try_from(address)
            .ok()
            .map(|bytes| Host::Address(Ipv6Addr::from(bytes).into())),
        _ => std::str::from_utf8(&address[1..])
            .ok()
            .and_then(Host::parse),
    };
    let port = u16::from_be_bytes([port[0], port[1]]);
    match host {
        Some(host) if port > 0 => {
            let destination = Destination { host, port };
            (4 + len + 2, Step::Connect(destination))
        }
        _ => refuse(FAILED),
    }
}

/// Returns the answer to a request that was granted or refused.
pub fn reply(outcome: Result<(), Refusal>) -> Vec<u8> {
    answer(match outcome {
        Ok(()) => 0,
        Err(Refusal::Closed) => 5,
        Err(Refusal::Network) => 3,
        Err(Refusal::Host) => 4,
        Err(Refusal::Prohibited) => 2,
        // "TTL expired" is the code for packets that did not arrive.
        Err(Refusal::Silence) => 6,
    })
}

/// Returns the reply with a code. Its address is 0, because the client has no use for the real one.
fn answer(code: u8) -> Vec<u8> {
    vec![VERSION, code, 0, IPV4, 0, 0, 0, 0, 0, 0]
}

/// The version of SOCKS: the first byte of every message except that with the password.
pub const VERSION: u8 = 5;
const NONE: u8 = 0;
const PASSWORD: u8 = 2;
const NO_METHOD: u8 = 0xff;
const CONNECT: u8 = 1;
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;
const FAILED: u8 = 1;
const COMMAND_UNKNOWN: u8 = 7;
const ADDRESS_UNKNOWN: u8 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    /// Talks byte by byte. Returns all answers, and the outcome.
    fn talk(input: &[u8], token: Option<&str>) -> (Vec<u8>, Step) {
        let (mut socks, mut answers, mut from) = (Socks::new(), Vec::new(), 0);
        for to in 0..=input.len() {
            loop {
                let (used, step) = socks.next(&input[from..to], token);
                from += used;
                match step {
                    Step::Incomplete => break,
                    Step::Answer(answer) => answers.extend(answer),
                    end => return (answers, end),
                }
            }
        }
        (answers, Step::Incomplete)
    }

    fn connect(host: &str, port: u16) -> Step {
        let host = Host::parse(host).unwrap();
        Step::Connect(Destination { host, port })
    }

    #[test]
    fn names_and_addresses_of_both_versions_are_asked_for() {
        // RFC 1928: greeting with no authentication; CONNECT with each type of address.
        let name = b"\x05\x01\x00\x05\x01\x00\x03\x0bexample.org\x01\xbb";
        assert_eq!(talk(name, None), (vec![5, 0], connect("example.org", 443)));
        let v4 = b"\x05\x02\x00\x02\x05\x01\x00\x01\xc0\x00\x02\x01\x00\x50";
        assert_eq!(talk(v4, None), (vec![5, 0], connect("192.0.2.1", 80)));
        let mut v6 = b"\x05\x01\x00\x05\x01\x00\x04".to_vec();
        v6.extend(Ipv6Addr::LOCALHOST.octets());
        v6.extend([0, 80]);
        assert_eq!(talk(&v6, None), (vec![5, 0], connect("::1", 80)));
        let literal = b"\x05\x01\x00\x05\x01\x00\x03\x09127.0.0.1\x00\x50";
        assert_eq!(talk(literal, None), (vec![5, 0], connect("127.0.0.1", 80)));
    }

    #[test]
    fn a_token_is_asked_for_as_a_password() {
        let request = b"\x05\x01\x00\x03\x01a\x00\x50";
        let with = |password: &str| {
            let mut bytes = b"\x05\x02\x00\x02\x01\x04user".to_vec();
            bytes.push(password.len() as u8);
            bytes.extend(password.as_bytes());
            bytes.extend(request);
            bytes
        };
        let (answers, step) = talk(&with("secret"), Some("secret"));
        assert_eq!((answers, step), (vec![5, 2, 1, 0], connect("a", 80)));
        let refused = (vec![5, 2], Step::Refuse(vec![1, 1]));
        assert_eq!(talk(&with("Secret"), Some("secret")), refused);
        assert_eq!(talk(&with(""), Some("secret")), refused);
        let none = talk(b"\x05\x01\x00", Some("secret"));
        assert_eq!(none, (Vec::new(), Step::Refuse(vec![5, 0xff])));
    }

    #[test]
    fn what_is_not_offered_is_refused_with_its_code() {
        let refusal = |request: &[u8]| {
            let mut bytes = b"\x05\x01\x00".to_vec();
            bytes.extend(request);
            match talk(&bytes, None) {
                (_, Step::Refuse(answer)) => answer[1],
                other => panic!("{other:?}"),
            }
        };
        // RFC 1928 section 6: 7 is the command, 8 the type of the address, 1 a general failure.
        assert_eq!(refusal(b"\x05\x03\x00\x01\x7f\x00\x00\x01\x00\x50"), 7);
        assert_eq!(refusal(b"\x05\x01\x00\x05"), 8);
        assert_eq!(refusal(b"\x05\x01\x00\x03\x01\xff\x00\x50"), 1);
        assert_eq!(refusal(b"\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x00"), 1);
        assert_eq!(talk(b"\x04\x01", None).1, Step::Refuse(Vec::new()));
    }
}
