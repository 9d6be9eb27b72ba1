//! The files from which the program resolves names: `/etc/resolv.conf`, `/etc/hosts` and
//! `/etc/nsswitch.conf`. The socket of a cache such as nscd, which glibc asks before it reads any of
//! them, is hidden: the cache would answer without the link, and does not know `host.sluice`.

use std::fmt::Write as _;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use sluice_net::process::Replacement;
use socket2::{Domain, Socket, Type};

use crate::network::{MOST_RESOLVERS, Place};

/// Returns the machine's resolvers.
pub fn machine_resolvers() -> Vec<SocketAddr> {
    // Without the file, the program's has no place either.
    let text = fs::read_to_string(RESOLV_CONF);
    text.map_or_else(|_| Vec::new(), |text| resolvers(&text, interface_index))
}

/// Returns the resolvers in a file, as glibc reads it (resolv.conf(5)). `index_of` returns the index of an
/// interface.
fn resolvers(resolv_conf: &str, index_of: impl Fn(&str) -> Option<u32>) -> Vec<SocketAddr> {
    let lines = resolv_conf.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let is_server = words.next() == Some("nameserver");
        words.next().filter(|_| is_server)
    });
    let words: Vec<&str> = lines.collect();
    if words.is_empty() {
        return vec![(Ipv4Addr::LOCALHOST, DNS).into()];
    }
    let addresses = words.iter().filter_map(|word| resolver(word, &index_of));
    addresses.take(MOST_RESOLVERS).collect()
}

/// Returns the resolver at an address, which may have a scope: an interface, by its name or its index.
fn resolver(word: &str, index_of: impl Fn(&str) -> Option<u32>) -> Option<SocketAddr> {
    let Some((address, scope)) = word.split_once('%') else {
        return Some(SocketAddr::new(word.parse().ok()?, DNS));
    };
    let scope = index_of(scope).or_else(|| scope.parse().ok())?;
    Some(SocketAddrV6::new(address.parse().ok()?, DNS, 0, scope).into())
}

/// Returns the index of an interface of the machine.
fn interface_index(name: &str) -> Option<u32> {
    let socket = Socket::new(Domain::IPV6, Type::DGRAM, None).ok()?;
    rustix::net::netdevice::name_to_index(&socket, name).ok()
}

/// Returns the files and folders that the program sees in place of the machine's.
pub fn replacements(resolvers: usize, has_host: bool, has_server: bool) -> Vec<Replacement> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let files = [
        (RESOLV_CONF, resolv_conf(&read(RESOLV_CONF), resolvers)),
        (HOSTS, hosts(&read(HOSTS), has_host, has_server)),
        (NSSWITCH, nsswitch(&read(NSSWITCH))),
    ];
    files
        .into_iter()
        .filter_map(|(path, text)| Replacement::new(Path::new(path), text))
        .chain(Replacement::empty(Path::new(CACHE)))
        .collect()
}

/// Returns what the program has to do without because the machine lacks the file for the names of places:
/// nothing can be mounted on it.
pub fn restriction(has_host: bool, has_server: bool) -> Option<String> {
    let has_hosts = Path::new(HOSTS).is_file();
    unknown(has_hosts, has_host, has_server)
}

fn unknown(has_hosts: bool, has_host: bool, has_server: bool) -> Option<String> {
    let names = match (has_host, has_server) {
        _ if has_hosts => return None,
        (false, false) => return None,
        (true, false) => "host.sluice is unknown",
        (false, true) => "server.sluice is unknown",
        (true, true) => "host.sluice and server.sluice are unknown",
    };
    Some(format!(
        "there is no {HOSTS}: {names}; `touch {HOSTS}` creates it"
    ))
}

/// The files of the machine that programs see changed, as they are at one time.
///
/// If the machine replaces such a file (rename(2)), the kernel removes the mounts on it in other mount
/// namespaces (fs/namespace.c, `__detach_mounts`). A program then sees the machine's file. Where the
/// path is a symbolic link, the mount is on the link, and the file that it leads to does not matter.
pub struct Originals([Option<(u64, u64)>; 3]);

impl Originals {
    /// Returns those of this time.
    pub fn now() -> Originals {
        Originals(FILES.map(identity))
    }

    /// Returns the paths at which there are other files now.
    pub fn replaced(&self) -> Vec<&'static str> {
        replaced(self, &Originals::now())
    }
}

/// Returns the paths with different files at two times. A path without a file had no mount.
fn replaced(before: &Originals, after: &Originals) -> Vec<&'static str> {
    let both = before.0.iter().zip(&after.0);
    let files = FILES.into_iter().zip(both);
    files
        .filter(|(_, (before, after))| before.is_some() && before != after)
        .map(|(path, _)| path)
        .collect()
}

/// Returns the device and the number of a file or symbolic link.
fn identity(path: &str) -> Option<(u64, u64)> {
    let file = fs::symlink_metadata(path).ok()?;
    Some((file.dev(), file.ino()))
}

/// Returns the machine's file with other name servers.
fn resolv_conf(text: &str, resolvers: usize) -> String {
    let is_kept = |line: &&str| line.split_whitespace().next() != Some("nameserver");
    let mut own = String::new();
    for line in text.lines().filter(is_kept) {
        let _ = writeln!(own, "{line}");
    }
    for index in 0..resolvers {
        let [v4, _] = Place::Resolver(index).addresses();
        let _ = writeln!(own, "nameserver {v4}");
    }
    own
}

/// Returns the machine's file with an entry for each place, and with the program's address for the name of
/// the machine.
fn hosts(text: &str, has_host: bool, has_server: bool) -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let text = with_own_name(text, name.trim());
    with_places(&text, has_host, has_server)
}

/// Returns a file in which the machine's name leads to the program's address, unless it leads to a
/// loopback address, as in Debian. The program does not have the machine's other addresses.
fn with_own_name(text: &str, name: &str) -> String {
    let own_addresses = Place::Program.addresses();
    let (mut own, mut is_found) = (String::new(), false);
    for line in text.lines() {
        let entry = line.split('#').next().unwrap_or_default();
        let mut words = entry.split_whitespace();
        let address = words.next();
        let has_name = words.any(|other| other.eq_ignore_ascii_case(name));
        is_found |= has_name;
        let parsed = address.and_then(|address| address.parse::<IpAddr>().ok());
        let line = match (address, parsed) {
            (Some(address), Some(parsed)) if has_name && !parsed.is_loopback() => {
                let [v4, v6] = own_addresses;
                let by = if parsed.is_ipv4() { v4 } else { v6 };
                line.replacen(address, &by.to_string(), 1)
            }
            _ => line.to_owned(),
        };
        let _ = writeln!(own, "{line}");
    }
    // The kernel's name of a machine without one is `(none)`.
    if !is_found && !["", "(none)", "localhost"].contains(&name) {
        let [v4, _] = own_addresses;
        let _ = writeln!(own, "{v4} {name}");
    }
    own
}

/// Returns a file with an entry for each place, and without those of a link around this one: their
/// addresses are the same, and lead to this link's places.
fn with_places(text: &str, has_host: bool, has_server: bool) -> String {
    let mut own = String::new();
    for line in text.trim_end().lines().filter(|line| !is_place(line)) {
        let _ = writeln!(own, "{line}");
    }
    let places = [
        ("host.sluice", Place::Host, has_host),
        ("server.sluice", Place::Server, has_server),
    ];
    for (name, place, _) in places.iter().filter(|(_, _, is_there)| *is_there) {
        for address in place.addresses() {
            let _ = writeln!(own, "{address} {name}");
        }
    }
    own
}

/// Returns whether a line of `/etc/hosts` gives the address of a place a name of a place.
fn is_place(line: &str) -> bool {
    let entry = line.split('#').next().unwrap_or_default();
    let mut words = entry.split_whitespace();
    let address = words.next().and_then(|address| address.parse().ok());
    address.and_then(Place::of).is_some() && words.any(|name| name.ends_with(".sluice"))
}

/// Returns the machine's file with names from files and DNS only: other services, such as
/// systemd-resolved, would answer without the link. `myhostname` stays: it needs no network, and may be
/// all that knows `localhost`.
fn nsswitch(text: &str) -> String {
    let mut own = String::new();
    for line in text.lines() {
        let line = match line.trim_start().strip_prefix("hosts:") {
            Some(rest) if rest.split_whitespace().any(|word| word == "myhostname") => {
                "hosts: files myhostname dns"
            }
            Some(_) => "hosts: files dns",
            None => line,
        };
        let _ = writeln!(own, "{line}");
    }
    own
}

const RESOLV_CONF: &str = "/etc/resolv.conf";
/// The port of resolvers (RFC 1035 section 4.2).
const DNS: u16 = 53;
pub const HOSTS: &str = "/etc/hosts";
const NSSWITCH: &str = "/etc/nsswitch.conf";
const FILES: [&str; 3] = [RESOLV_CONF, HOSTS, NSSWITCH];
/// The folder of the socket of nscd, and of NixOS's nsncd (glibc's nscd/nscd-client.h,
/// `_PATH_NSCDSOCKET`).
const CACHE: &str = "/var/run/nscd";

#[cfg(test)]
mod tests {
    use super::*;

    /// The resolvers of a file on a machine with the interface `wlp2s0`, which has index 7.
    fn shown(text: &str) -> Vec<String> {
        let index_of = |name: &str| (name == "wlp2s0").then_some(7);
        let found = resolvers(text, index_of);
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn servers_are_replaced_and_options_kept() {
        let text = "# stub\nnameserver 127.0.0.53\noptions edns0\nsearch example\nnameserver ::1\n";
        assert_eq!(shown(text), ["127.0.0.53:53", "[::1]:53"]);
        assert_eq!(
            resolv_conf(text, 2),
            "# stub\noptions edns0\nsearch example\nnameserver 192.0.0.5\nnameserver 192.0.0.6\n"
        );
    }

    #[test]
    fn at_most_three_servers_are_used() {
        // glibc's MAXNS is 3.
        let text = "nameserver 192.0.2.1\n".repeat(5);
        assert_eq!(shown(&text).len(), 3);
    }

    #[test]
    fn a_scope_is_the_name_or_the_index_of_an_interface() {
        let text = "nameserver fe80::1%wlp2s0\nnameserver fe80::2%3\nnameserver fe80::3%gone\n";
        assert_eq!(shown(text), ["[fe80::1%7]:53", "[fe80::2%3]:53"]);
        // The kernel's first interface.
        assert_eq!(interface_index("lo"), Some(1));
        assert_eq!(interface_index("no such one"), None);
    }

    #[test]
    fn without_a_server_the_machine_itself_is_asked() {
        // resolv.conf(5): "If no nameserver entries are present, the default is to use the name server on
        // the local machine."
        assert_eq!(shown("search example\n"), ["127.0.0.1:53"]);
        assert_eq!(resolv_conf("", 1), "nameserver 192.0.0.5\n");
    }

    #[test]
    fn names_of_places_follow_those_of_the_machine() {
        let text = with_places("127.0.0.1 localhost", true, false);
        assert_eq!(
            text,
            "127.0.0.1 localhost\n192.0.0.3 host.sluice\nfd73:6c75:6963:6500::3 host.sluice\n"
        );
    }

    #[test]
    fn names_of_a_link_around_this_one_are_not_those_of_its_places() {
        let own = "127.0.0.1 localhost\n192.0.0.2 box\n192.0.2.3 mine.sluice\n";
        let outer = with_places(own, true, true);
        assert_eq!(outer.matches(".sluice\n").count(), 1 + 2 + 2);
        assert_eq!(with_places(&outer, false, false), own);
        assert_eq!(
            with_places(&outer, true, false),
            with_places(own, true, false)
        );
    }

    #[test]
    fn without_a_file_of_hosts_the_names_that_are_unknown_are_given() {
        assert_eq!(unknown(true, true, true), None);
        assert_eq!(unknown(false, false, false), None);
        assert_eq!(
            unknown(false, true, false).as_deref(),
            Some("there is no /etc/hosts: host.sluice is unknown; `touch /etc/hosts` creates it")
        );
        let server = unknown(false, false, true).unwrap();
        assert!(server.contains(": server.sluice is unknown;"), "{server}");
        let both = unknown(false, true, true).unwrap();
        assert!(
            both.contains(": host.sluice and server.sluice are unknown;"),
            "{both}"
        );
    }

    #[test]
    fn the_machine_s_name_is_the_program_s() {
        // Fedora and Arch name it nowhere, Debian at a loopback address, Docker at the container's.
        for (text, expected) in [
            (
                "127.0.0.1 localhost\n",
                "127.0.0.1 localhost\n192.0.0.2 box\n",
            ),
            ("127.0.1.1 Box.lan box\n", "127.0.1.1 Box.lan box\n"),
            (
                "172.17.0.2\tbox.lan BOX # box\n172.17.0.3 other\n2001:db8::7 box\n",
                "192.0.0.2\tbox.lan BOX # box\n172.17.0.3 other\nfd73:6c75:6963:6500::2 box\n",
            ),
            (
                "#172.17.0.2 box\nbox\n",
                "#172.17.0.2 box\nbox\n192.0.0.2 box\n",
            ),
        ] {
            assert_eq!(with_own_name(text, "box"), expected);
        }
        for unnamed in ["", "(none)", "localhost"] {
            assert_eq!(with_own_name("", unnamed), "");
        }
    }

    #[test]
    fn files_that_are_replaced_or_removed_are_named() {
        let before = Originals([Some((1, 10)), Some((1, 11)), None]);
        assert!(replaced(&before, &before).is_empty());
        let after = Originals([Some((1, 12)), None, Some((1, 13))]);
        assert_eq!(replaced(&before, &after), [RESOLV_CONF, HOSTS]);
    }

    #[test]
    fn names_come_from_files_and_dns() {
        let text = "hosts:\tmymachines resolve [!UNAVAIL=return] files myhostname dns\n";
        assert_eq!(nsswitch(text), "hosts: files myhostname dns\n");
        let text = "passwd: files systemd\nhosts: files resolve [!UNAVAIL=return] dns\n";
        assert_eq!(nsswitch(text), "passwd: files systemd\nhosts: files dns\n");
    }
}
