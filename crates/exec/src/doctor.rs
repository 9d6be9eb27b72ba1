//! Reports what this machine allows, and how to allow the rest.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use crate::network::{allowed_controls, settings_are_fixed};
use sluice_net::namespace::{Privilege, PrivilegeError};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

/// A feature, and whether the machine allows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The feature.
    pub name: &'static str,
    /// The commands that need it.
    pub needed_for: &'static str,
    /// The finding.
    pub state: State,
}

/// Whether something is possible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It is possible, with these details.
    Possible(String),
    /// It is not possible.
    Impossible {
        /// The reason.
        why: String,
        /// The command that changes it, or other advice.
        remedy: String,
    },
}

/// Examines the machine and changes nothing.
pub fn examine() -> Vec<Finding> {
    let finding = |name, needed_for, state| Finding {
        name,
        needed_for,
        state,
    };
    let privilege = Privilege::probe();
    vec![
        finding(
            "namespaces",
            "exec, live runs, bench",
            namespaces(&privilege),
        ),
        finding("mounts", "exec", mounts(&privilege)),
        finding(
            "settings",
            "ping and ports below 1024 in exec, live runs",
            settings(&privilege),
        ),
        finding("packet sockets", "exec, live runs, packet: ports", packet()),
        finding("TUN devices", "tun: and tap: ports", tun()),
        finding("AF_XDP", "xdp: ports", xdp()),
        finding("congestion controls", "--cc, flows of tcp", controls()),
        finding("pings", "ping through exec to the outside", pings()),
        finding("low ports", "--forward of ports below 1024", low_ports()),
        finding("IPv6", "exec with IPv6", ipv6()),
        finding("resolvers", "names in exec", resolvers()),
        finding(
            "hosts file",
            "host.sluice and server.sluice in exec",
            hosts(),
        ),
    ]
}

fn possible(text: impl Into<String>) -> State {
    State::Possible(text.into())
}

fn impossible(why: impl Into<String>, remedy: impl Into<String>) -> State {
    State::Impossible {
        why: why.into(),
        remedy: remedy.into(),
    }
}

fn namespaces(privilege: &Privilege) -> State {
    match privilege {
        Privilege::Capable => possible("this process has the capabilities"),
        Privilege::UserNamespace => possible("in a user namespace"),
        Privilege::Missing { obstacle } => {
            let remedy = match obstacle.split_whitespace().next() {
                Some(setting) if setting.starts_with("user.") => {
                    format!("sudo sysctl -w {setting}=15000")
                }
                Some("kernel.unprivileged_userns_clone") => {
                    "sudo sysctl -w kernel.unprivileged_userns_clone=1".to_owned()
                }
                Some("kernel.apparmor_restrict_unprivileged_userns") => {
                    "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0".to_owned()
                }
                Some("Linux") => {
                    "run it outside of `sluice exec`, or as an ordinary user".to_owned()
                }
                _ => "run as root; in Docker with --privileged, or with --security-opt \
                      seccomp=unconfined --security-opt systempaths=unconfined --security-opt \
                      apparmor=unconfined"
                    .to_owned(),
            };
            impossible(obstacle, remedy)
        }
    }
}

fn mounts(privilege: &Privilege) -> State {
    match privilege.check_mounts() {
        Ok(()) => possible("in a mount namespace"),
        Err(PrivilegeError::Mounts { obstacle, remedy }) => impossible(obstacle, remedy),
        Err(_) => impossible("they need namespaces", "allow namespaces (above)"),
    }
}

fn settings(privilege: &Privilege) -> State {
    if settings_are_fixed() {
        return impossible(
            "/proc/sys is read-only",
            "in Docker: --security-opt systempaths=unconfined",
        );
    }
    // Without namespaces there is nothing to try.
    let is_missing = matches!(privilege, Privilege::Missing { .. });
    match privilege.check_settings() {
        Err(error) if !is_missing => impossible(
            format!("/proc/sys cannot be written ({error}), as with a profile of AppArmor"),
            "in Docker: --security-opt apparmor=unconfined",
        ),
        _ => possible("/proc/sys can be written"),
    }
}

fn packet() -> State {
    if Path::new("/proc/net/packet").exists() {
        possible("the kernel has AF_PACKET")
    } else {
        impossible("the kernel has no AF_PACKET", "sudo modprobe af_packet")
    }
}

fn tun() -> State {
    let device = Path::new("/dev/net/tun");
    match fs::OpenOptions::new().read(true).write(true).open(device) {
        Ok(_) => possible("/dev/net/tun opens"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => impossible(
            "there is no /dev/net/tun",
            "sudo modprobe tun; in Docker: --device /dev/net/tun",
        ),
        Err(error) => impossible(
            format!("/dev/net/tun: {error}"),
            "sudo chmod 666 /dev/net/tun",
        ),
    }
}

fn xdp() -> State {
    // linux/socket.h: AF_XDP is 44.
    match Socket::new(Domain::from(44), Type::RAW, None) {
        Ok(_) => possible("AF_XDP sockets open"),
        Err(error) => impossible(
            format!("{error}"),
            "sudo setcap cap_net_admin,cap_net_raw,cap_bpf+ep $(command -v sluice)",
        ),
    }
}

fn controls() -> State {
    let names = allowed_controls();
    if names.iter().any(|name| name == "bbr") {
        possible(names.join(", "))
    } else {
        impossible(
            format!("no bbr; there are {}", names.join(", ")),
            "sudo modprobe tcp_bbr",
        )
    }
}

fn pings() -> State {
    let open = |domain, protocol| Socket::new(domain, Type::DGRAM, Some(protocol));
    match open(Domain::IPV4, Protocol::ICMPV4) {
        Ok(_) => possible("unprivileged pings are allowed"),
        Err(error) => impossible(
            format!(
                "net.ipv4.ping_group_range excludes this group ({error}): pings end at the far side of the link"
            ),
            "sudo sysctl -w net.ipv4.ping_group_range='0 2147483647'",
        ),
    }
}

fn low_ports() -> State {
    let path = "/proc/sys/net/ipv4/ip_unprivileged_port_start";
    let first: u16 = fs::read_to_string(path)
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(1024);
    // A loopback port that is rarely used. It is closed again at once.
    let address = SockAddr::from(SocketAddr::from((Ipv4Addr::LOCALHOST, 1)));
    let bound =
        Socket::new(Domain::IPV4, Type::STREAM, None).and_then(|socket| socket.bind(&address));
    match bound {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => impossible(
            format!("ports below {first} are reserved"),
            "sudo sysctl -w net.ipv4.ip_unprivileged_port_start=0",
        ),
        _ => possible("this process may use every port"),
    }
}

fn ipv6() -> State {
    if Path::new("/proc/sys/net/ipv6").exists() {
        possible("the kernel has IPv6")
    } else {
        impossible(
            "the kernel has no IPv6: the program gets IPv4 only",
            "boot without ipv6.disable=1",
        )
    }
}

fn resolvers() -> State {
    let resolvers = crate::names::machine_resolvers();
    let names: Vec<String> = resolvers.iter().map(|r| r.ip().to_string()).collect();
    if names.is_empty() {
        impossible(
            "/etc/resolv.conf is missing, or has no `nameserver` address that can be used: only names in \
             /etc/hosts can be used",
            "add a line such as `nameserver 192.0.2.53` to /etc/resolv.conf",
        )
    } else {
        possible(names.join(", "))
    }
}

fn hosts() -> State {
    let path = crate::names::HOSTS;
    match Path::new(path).is_file() {
        true => possible(path),
        false => impossible(format!("there is no {path}"), format!("sudo touch {path}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_obstacle_has_a_reason_and_a_remedy() {
        let findings = examine();
        assert_eq!(findings.len(), 12);
        for finding in findings {
            if let State::Impossible { why, remedy } = finding.state {
                assert!(!why.is_empty() && !remedy.is_empty(), "{}", finding.name);
            }
        }
    }
}
