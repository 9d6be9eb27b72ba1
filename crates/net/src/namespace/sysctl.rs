//! Settings of one namespace under `/proc/sys/net`.

use super::{Namespace, NamespaceError};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The reason why a setting could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum SysctlError {
    /// The namespace could not be entered.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// The name is not one of `net.`
    #[error(
        "{0:?} is not a setting of a network namespace: it must start with \"net.\" and have no \"/\""
    )]
    Name(String),
    /// The kernel does not have it, or refused the value.
    #[error("cannot {verb} {name} in namespace {namespace:?}{value}: {source}")]
    Kernel {
        /// "read" or "set".
        verb: &'static str,
        /// The setting.
        name: String,
        /// The namespace.
        namespace: String,
        /// The refused value, as ` to "..."`.
        value: String,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl SysctlError {
    /// Returns whether the process may not write the setting, whatever the value.
    pub fn is_forbidden(&self) -> bool {
        use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
        match self {
            SysctlError::Kernel { source, .. } => {
                matches!(source.kind(), PermissionDenied | ReadOnlyFilesystem)
            }
            SysctlError::Namespace(_) | SysctlError::Name(_) => false,
        }
    }
}

impl Namespace {
    /// Sets e.g. `net.ipv4.tcp_ecn` to `1`, in this namespace only.
    ///
    /// # Errors
    /// The error names the setting and the refused value.
    pub fn set_sysctl(&self, name: &str, value: &str) -> Result<(), SysctlError> {
        let path = path(name)?;
        self.enter(|| std::fs::write(path, value))?
            .map_err(|source| SysctlError::Kernel {
                verb: "set",
                name: name.to_owned(),
                namespace: self.name().to_owned(),
                value: format!(" to {value:?}"),
                source,
            })
    }

    /// Reads a setting of this namespace.
    ///
    /// # Errors
    /// The error names the setting.
    pub fn sysctl(&self, name: &str) -> Result<String, SysctlError> {
        let path = path(name)?;
        self.enter(|| std::fs::read_to_string(path))?
            .map(|value| value.trim().to_owned())
            .map_err(|source| SysctlError::Kernel {
                verb: "read",
                name: name.to_owned(),
                namespace: self.name().to_owned(),
                value: String::new(),
                source,
            })
    }
}

/// `/proc/sys/net` shows the namespace of the thread that opens it, in any mount of `/proc`.
fn path(name: &str) -> Result<String, SysctlError> {
    if !name.starts_with("net.") || name.contains('/') || name.contains("..") {
        return Err(SysctlError::Name(name.to_owned()));
    }
    Ok(format!("/proc/sys/{}", name.replace('.', "/")))
}

impl Namespace {
    /// Stops IPv6 from sending unsolicited packets on interfaces created from now on: no link-local
    /// addresses, no duplicate address detection, no solicitations. Does nothing if the kernel has
    /// no IPv6.
    ///
    /// # Errors
    /// A setting cannot be written.
    pub fn silence_ipv6(&self) -> Result<(), SysctlError> {
        for (setting, value) in [
            ("addr_gen_mode", "1"),
            ("accept_dad", "0"),
            ("dad_transmits", "0"),
            ("router_solicitations", "0"),
            ("accept_ra", "0"),
        ] {
            match self.set_sysctl(&format!("net.ipv6.conf.default.{setting}"), value) {
                Err(SysctlError::Kernel { source, .. })
                    if source.kind() == io::ErrorKind::NotFound => {}
                other => other?,
            }
        }
        Ok(())
    }
}

/// The settings that the kernel has for one interface, such as `net.ipv4.conf.eth0.proxy_arp`. They end
/// when the interface leaves its namespace.
#[derive(Clone, Debug, Default)]
pub struct InterfaceSettings(Vec<(PathBuf, String)>);

impl Namespace {
    /// Returns the settings of an interface of this namespace that can be read.
    ///
    /// # Errors
    /// The namespace cannot be entered.
    pub fn interface_settings(&self, name: &str) -> Result<InterfaceSettings, NamespaceError> {
        self.enter(|| {
            let folders = FOLDERS.map(|folder| Path::new(folder).join(name));
            let files = folders.iter().flat_map(fs::read_dir).flatten().flatten();
            let settings = files.filter_map(|file| {
                // The MTU of IPv6 follows the interface's.
                let is_kept = file.file_name() != "mtu";
                let path = file.path();
                let value = is_kept.then(|| fs::read_to_string(&path).ok())??;
                Some((path, value))
            });
            InterfaceSettings(settings.collect())
        })
    }

    /// Sets what differs on the interface that has the name now. Values that the kernel refuses are
    /// left out, as all are where `/proc/sys` is read-only.
    ///
    /// # Errors
    /// The namespace cannot be entered.
    pub fn restore_interface(&self, settings: &InterfaceSettings) -> Result<(), NamespaceError> {
        self.enter(|| {
            for (path, value) in &settings.0 {
                if fs::read_to_string(path).is_ok_and(|current| current != *value) {
                    let _ = fs::write(path, value);
                }
            }
        })
    }
}

/// The folders that have one folder for each interface.
const FOLDERS: [&str; 4] = [
    "/proc/sys/net/ipv4/conf",
    "/proc/sys/net/ipv4/neigh",
    "/proc/sys/net/ipv6/conf",
    "/proc/sys/net/ipv6/neigh",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_refusal_of_every_value_is_forbidden() {
        // errno-base.h: EPERM 1, ENOENT 2, EACCES 13, EINVAL 22, EROFS 30.
        for (errno, is_forbidden) in [(1, true), (2, false), (13, true), (22, false), (30, true)] {
            let error = SysctlError::Kernel {
                verb: "set",
                name: "net.ipv4.tcp_no_metrics_save".to_owned(),
                namespace: "near".to_owned(),
                value: " to \"1\"".to_owned(),
                source: io::Error::from_raw_os_error(errno),
            };
            assert_eq!(error.is_forbidden(), is_forbidden, "{error}");
        }
    }
}
