//! Resolves names: those that the machine itself knows, and others through its resolver.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::path::Path;
use std::sync::LazyLock;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use crate::bell::Bell;
use crate::engine::Id;

/// The addresses of a name, or the reason why there are none.
pub type Answer = Result<Vec<SocketAddr>, String>;

/// Look-ups in progress, each on its own thread, because the system's resolver blocks.
pub struct Lookups {
    sender: Sender<(Id, Answer)>,
    answers: Receiver<(Id, Answer)>,
    /// Answers that did not need a thread.
    refused: Vec<(Id, Answer)>,
    running: usize,
}

impl Lookups {
    pub fn new() -> Lookups {
        let (sender, answers) = channel();
        Lookups {
            sender,
            answers,
            refused: Vec::new(),
            running: 0,
        }
    }

    /// Starts a look-up, and rings the bell when it has an answer.
    pub fn start(&mut self, id: Id, name: &str, port: u16, bell: Bell) {
        if self.running >= MOST_RUNNING {
            self.refused
                .push((id, Err("too many names at once".to_owned())));
            return bell.ring();
        }
        let (sender, name, ring) = (self.sender.clone(), name.to_owned(), bell.clone());
        let work = move || {
            let answer = resolve(&name, port).map_err(|error| error.to_string());
            let _ = sender.send((id, answer));
            ring.ring();
        };
        match thread::Builder::new()
            .name("resolve".to_owned())
            .spawn(work)
        {
            Ok(_) => self.running += 1,
            Err(error) => {
                self.refused.push((id, Err(error.to_string())));
                bell.ring();
            }
        }
    }

    /// Returns the answers that have arrived.
    pub fn take(&mut self) -> Vec<(Id, Answer)> {
        let mut answers: Vec<(Id, Answer)> = self.answers.try_iter().collect();
        self.running -= answers.len();
        answers.append(&mut self.refused);
        answers
    }
}

/// Calls the system's resolver.
///
/// # Errors
/// The resolver's answer.
pub fn resolve(name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for address in (name, port).to_socket_addrs()? {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    Ok(addresses)
}

/// Returns whether the kernel has IPv6.
pub fn has_ipv6() -> bool {
    static HAS: LazyLock<bool> = LazyLock::new(|| Path::new("/proc/sys/net/ipv6").exists());
    *HAS
}

/// Returns whether the machine knows a name without a resolver.
pub fn is_local(name: &str) -> bool {
    // RFC 6761 section 6.3.
    if name == "localhost" || name.ends_with(".localhost") {
        return true;
    }
    let hosts = fs::read_to_string("/etc/hosts").unwrap_or_default();
    has_name(&hosts, name)
}

/// Returns whether a file such as `/etc/hosts` has a name (hosts(5)).
fn has_name(hosts: &str, name: &str) -> bool {
    hosts.lines().any(|line| {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace().skip(1);
        words.any(|word| word.eq_ignore_ascii_case(name))
    })
}

/// Returns whether an address means the machine's own loopback.
pub fn is_loopback(address: IpAddr) -> bool {
    let address = address.to_canonical();
    // Linux connects to itself if the address is unspecified.
    address.is_loopback() || address.is_unspecified()
}

/// Returns whether no connection can be made to an address.
pub fn is_unusable(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.is_multicast() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_multicast(),
    }
}

/// Returns the length of a DNS packet with a question for the addresses of a name and, in an
/// answer, `addresses` (RFC 1035 section 4.1). It consists of the IPv4, UDP and DNS headers, the
/// name with its type and class, and for each address a name of 2 bytes, 10 bytes of type, class,
/// TTL and length, and the address of 4 or 16 bytes.
pub fn datagram_len(name: &str, addresses: &[SocketAddr]) -> u32 {
    let question = 20 + 8 + 12 + (name.len() as u32 + 2) + 4;
    let answers = addresses.iter().map(|address| match address.ip() {
        IpAddr::V4(_) => 2 + 10 + 4,
        IpAddr::V6(_) => 2 + 10 + 16,
    });
    question + answers.sum::<u32>()
}

/// The largest number of names that are looked up at the same time.
const MOST_RUNNING: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_the_file_are_local() {
        let hosts = "127.0.0.1 localhost\n192.0.2.1\tdb Cache # old-db\n#192.0.2.2 other\n";
        assert!(has_name(hosts, "db") && has_name(hosts, "cache"));
        assert!(!has_name(hosts, "old-db") && !has_name(hosts, "other"));
        assert!(!has_name(hosts, "192.0.2.1"));
        assert!(is_local("a.localhost"));
    }

    #[test]
    fn the_loopback_has_many_addresses() {
        for text in [
            "127.0.0.1",
            "127.9.9.9",
            "::1",
            "0.0.0.0",
            "::",
            "::ffff:127.0.0.1",
        ] {
            assert!(is_loopback(text.parse().unwrap()), "{text}");
        }
        assert!(!is_loopback("192.0.2.1".parse().unwrap()));
        assert!(is_unusable("224.0.0.1".parse().unwrap()));
    }

    #[test]
    fn a_question_has_the_length_of_its_packet() {
        // 20 + 8 + 12 + 13 + 4 for example.org, whose name takes 1 + 7 + 1 + 3 + 1 bytes.
        assert_eq!(datagram_len("example.org", &[]), 57);
        let address = "192.0.2.1:1".parse().unwrap();
        assert_eq!(datagram_len("example.org", &[address]), 73);
    }
}
