//! The names of addresses, from the answers of resolvers.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use simple_dns::Packet;
use simple_dns::rdata::RData;

/// Names by address: always the name in the question, not an alias to which it leads.
#[derive(Debug, Default)]
pub(super) struct Names(BTreeMap<IpAddr, String>);

impl Names {
    /// Adds the names in the answer of a resolver. Later answers take precedence.
    pub fn learn(&mut self, answer: &[u8]) {
        let Ok(packet) = Packet::parse(answer) else {
            return;
        };
        let Some(question) = packet.questions.first() else {
            return;
        };
        let name = question.qname.to_string();
        for answer in &packet.answers {
            let address: IpAddr = match &answer.rdata {
                RData::A(a) => std::net::Ipv4Addr::from(a.address).into(),
                RData::AAAA(aaaa) => std::net::Ipv6Addr::from(aaaa.address).into(),
                _ => continue,
            };
            self.0.insert(address, name.clone());
        }
    }

    /// Returns the name of a connection's far end, in a form that is valid for flows.
    pub fn of(&self, remote: SocketAddr) -> String {
        match self.known(remote.ip()) {
            Some(name) => format!("{name}:{}", remote.port()),
            None => accepted(&remote.to_string(), "[]:"),
        }
    }

    /// Returns the name of the host of a far end.
    pub fn of_host(&self, remote: SocketAddr) -> String {
        let name = self.known(remote.ip());
        name.unwrap_or_else(|| accepted(&remote.ip().to_string(), ":"))
    }

    /// Returns a destination in a form that is valid for flows.
    pub fn accepted(destination: &str) -> String {
        accepted(destination, "[]:")
    }

    fn known(&self, address: IpAddr) -> Option<String> {
        let place = sluice_exec::place_name(address).map(str::to_owned);
        let name = place.or_else(|| self.0.get(&address).cloned());
        name.map(|name| accepted(&name, ""))
    }
}

/// Replaces characters that a flow's name cannot contain. `more` are further characters that it can
/// contain.
fn accepted(name: &str, more: &str) -> String {
    let is_accepted = |c: char| c.is_alphanumeric() || "_-.".contains(c) || more.contains(c);
    name.replace(|c| !is_accepted(c), "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer to a question of type A for `www.example` (RFC 1035 section 4.1): an alias, and the
    /// address of the alias.
    fn answer() -> Vec<u8> {
        let question = b"\x03www\x07example\x00\x00\x01\x00\x01";
        let alias = b"\xc0\x0c\x00\x05\x00\x01\x00\x00\x00\x3c\x00\x06\x03cdn\xc0\x10";
        let address = b"\xc0\x29\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\xc6\x33\x64\x07";
        let head = b"\x12\x34\x81\x80\x00\x01\x00\x02\x00\x00\x00\x00";
        [&head[..], question, alias, address].concat()
    }

    #[test]
    fn an_address_has_the_name_that_was_asked_for() {
        let mut names = Names::default();
        let remote = "198.51.100.7:443".parse().unwrap();
        assert_eq!(names.of(remote), "198.51.100.7:443");
        names.learn(&answer());
        assert_eq!(names.of(remote), "www.example:443");
        names.learn(&answer()[..20]);
        assert_eq!(names.of(remote), "www.example:443");
        assert_eq!(
            names.of("[2001:db8::1]:80".parse().unwrap()),
            "[2001:db8::1]:80"
        );
        assert_eq!(names.of("192.0.0.3:80".parse().unwrap()), "host.sluice:80");
        assert_eq!(names.of_host(remote), "www.example");
        assert_eq!(
            names.of_host("[2001:db8::1]:9".parse().unwrap()),
            "2001:db8::1"
        );
    }
}
