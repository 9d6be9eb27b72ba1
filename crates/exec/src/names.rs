//! The files from which the program resolves names: `/etc/resolv.conf`, `/etc/hosts` and
//! `/etc/nsswitch.conf`. The socket of a cache such as nscd, which glibc asks before it reads any of
//! them, is hidden: the cache would answer without the link, and does not know `host.sluice`.

use std::fmt::Write as _;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use sluice_net::process::Replacement;

use crate::network::{MOST_RESOLVERS, Place};

/// Returns the machine's resolvers.
pub fn machine_resolvers() -> Vec<SocketAddr> {
    resolvers(&fs::read_to_string(RESOLV_CONF).unwrap_or_default())
}

/// Returns the resolvers in a file, as glibc reads it (resolv.conf(5)).
fn resolvers(resolv_conf: &str) -> Vec<SocketAddr> {
    let addresses = resolv_conf.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let is_server = words.next() == Some("nameserver");
        // An address with a scope, such as fe80::1%eth0, needs an interface, which these sockets do
        // not have.
        let address: IpAddr = words.next().filter(|_| is_server)?.parse().ok()?;
        Some(SocketAddr::new(address, 53))
    });
    addresses.take(MOST_RESOLVERS).collect()
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

/// Returns the machine's file with an entry for each place.
fn hosts(text: &str, has_host: bool, has_server: bool) -> String {
    let mut own = text.trim_end().to_owned();
    own.push('\n');
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

/// Returns the machine's file with names from files and DNS only: other services, such as
/// systemd-resolved, would answer without the link.
fn nsswitch(text: &str) -> String {
    let mut own = String::new();
    for line in text.lines() {
        let is_hosts = line.trim_start().starts_with("hosts:");
        let _ = writeln!(own, "{}", if is_hosts { "hosts: files dns" } else { line });
    }
    own
}

const RESOLV_CONF: &str = "/etc/resolv.conf";
const HOSTS: &str = "/etc/hosts";
const NSSWITCH: &str = "/etc/nsswitch.conf";
const FILES: [&str; 3] = [RESOLV_CONF, HOSTS, NSSWITCH];
/// The folder of the socket of nscd, and of NixOS's nsncd (glibc's nscd/nscd-client.h,
/// `_PATH_NSCDSOCKET`).
const CACHE: &str = "/var/run/nscd";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_replaced_and_options_kept() {
        let text = "# stub\nnameserver 127.0.0.53\noptions edns0\nsearch example\nnameserver ::1\n";
        let addresses: Vec<String> = resolvers(text).iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["127.0.0.53:53", "[::1]:53"]);
        assert_eq!(
            resolv_conf(text, 2),
            "# stub\noptions edns0\nsearch example\nnameserver 192.0.0.5\nnameserver 192.0.0.6\n"
        );
    }

    #[test]
    fn at_most_three_servers_are_used() {
        // glibc's MAXNS is 3.
        let text = "nameserver 192.0.2.1\n".repeat(5);
        assert_eq!(resolvers(&text).len(), 3);
    }

    #[test]
    fn names_of_places_follow_those_of_the_machine() {
        let text = hosts("127.0.0.1 localhost", true, false);
        assert_eq!(
            text,
            "127.0.0.1 localhost\n192.0.0.3 host.sluice\nfd73:6c75:6963:6500::3 host.sluice\n"
        );
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
        let text = "passwd: files systemd\nhosts: files resolve [!UNAVAIL=return] dns\n";
        assert_eq!(nsswitch(text), "passwd: files systemd\nhosts: files dns\n");
    }
}
