//! The privileges of this process, and how to get missing ones.

use crate::sys::{self, Entered};
use std::ffi::CStr;
use std::fmt;
use std::fs;
use std::io;
use std::os::fd::AsFd as _;

/// The process's privilege for network namespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Privilege {
    /// Root, or the capabilities that are needed: namespaces, interfaces and raw sockets work.
    Capable,
    /// None yet, but [`enter_user_namespace`] will provide it.
    UserNamespace,
    /// Neither, with the reason.
    Missing {
        /// The obstacle to a user namespace.
        obstacle: String,
    },
}

/// The reason why no user namespace could be entered.
#[derive(Debug, thiserror::Error)]
pub enum PrivilegeError {
    /// Too late: threads are running already.
    #[error(
        "a user namespace can only be entered while the process has one thread, and it has {0}"
    )]
    Threads(usize),
    /// The kernel refused.
    #[error("cannot enter a user namespace: {obstacle}; {}", how())]
    Refused {
        /// The setting that forbids it, or the kernel's answer.
        obstacle: String,
    },
    /// The mapping of the user to root was refused.
    #[error("cannot write {path}: {source}")]
    Map {
        /// The file.
        path: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Namespaces are allowed, but not mounts in them.
    #[error("cannot mount files such as /etc/resolv.conf for a program: {obstacle}; {remedy}")]
    Mounts {
        /// The kernel's answer.
        obstacle: String,
        /// What may help.
        remedy: &'static str,
    },
}

impl Privilege {
    /// Determines the privilege, without changing anything.
    pub fn probe() -> Privilege {
        match effective_capabilities() {
            Ok(held) if held & NEEDED == NEEDED => return Privilege::Capable,
            Ok(_) => {}
            // A process that has the privilege must not leave its namespaces because of an error.
            Err(error) => {
                return Privilege::Missing {
                    obstacle: format!("cannot read the capabilities of this process: {error}"),
                };
            }
        }
        let obstacle = match Privilege::UserNamespace.try_in_child(libc::CLONE_NEWNET, None, None) {
            Ok(Entered::All) => return Privilege::UserNamespace,
            Ok(Entered::Nothing(errno)) => obstacle(&io::Error::from_raw_os_error(errno)),
            Ok(Entered::NotAll(errno)) => unmapped(&io::Error::from_raw_os_error(errno)),
            Err(error) => obstacle(&error),
        };
        Privilege::Missing { obstacle }
    }

    /// Checks that the files of a program can be mounted (`process::spawn`). It is tried in a child
    /// process, whose mounts end with it.
    ///
    /// # Errors
    /// [`PrivilegeError::Refused`] without the privilege; [`PrivilegeError::Mounts`] where namespaces
    /// are allowed but mounts are not, as in Docker's profile for AppArmor.
    pub fn check_mounts(&self) -> Result<(), PrivilegeError> {
        if let Privilege::Missing { obstacle } = self {
            let obstacle = obstacle.clone();
            return Err(PrivilegeError::Refused { obstacle });
        }
        let Some(stage) = stage() else {
            return Err(PrivilegeError::Mounts {
                obstacle: "there is no folder /tmp".to_owned(),
                remedy: "create it",
            });
        };
        let tried = self.try_in_child(0, None, Some(stage));
        done(tried).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => PrivilegeError::Mounts {
                obstacle: format!(
                    "a security module such as AppArmor, or a filter of system calls, forbids mounts \
                     ({error})"
                ),
                remedy: "in Docker on a machine with AppArmor, --security-opt apparmor=unconfined \
                         allows it",
            },
            _ => PrivilegeError::Mounts {
                obstacle: error.to_string(),
                remedy: "run it where a file system can be mounted on /tmp",
            },
        })
    }

    /// Checks that the settings of a new network namespace can be changed. It is tried in a child
    /// process, whose namespace ends with it.
    ///
    /// # Errors
    /// The kernel's answer.
    pub fn check_settings(&self) -> io::Result<()> {
        done(self.try_in_child(libc::CLONE_NEWNET, Some(SETTING), None))
    }

    /// Enters namespaces in a child process with this privilege, writes a text to a file there, and
    /// mounts a file system. Only a trial shows what security modules refuse.
    fn try_in_child(
        &self,
        namespaces: libc::c_int,
        text: Option<(&CStr, &str)>,
        stage: Option<&CStr>,
    ) -> io::Result<Entered> {
        let (user, group) = sys::effective_ids();
        let maps = [map_of(user), map_of(group)];
        let mut files = Vec::new();
        let own = match self {
            Privilege::Capable => 0,
            Privilege::UserNamespace | Privilege::Missing { .. } => {
                files.extend([
                    (SETGROUPS, DENY),
                    (USERS, maps[0].as_str()),
                    (GROUPS, maps[1].as_str()),
                ]);
                libc::CLONE_NEWUSER
            }
        };
        files.extend(text);
        sys::enter_in_child(own | namespaces, &files, stage)
    }
}

impl fmt::Display for Privilege {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Privilege::Capable => f.write_str("the process has the capabilities it needs"),
            Privilege::UserNamespace => {
                f.write_str("needs root or a user namespace, which this user may enter")
            }
            Privilege::Missing { obstacle } => {
                write!(f, "{}; no user namespace: {obstacle}", how())
            }
        }
    }
}

/// Enters a user namespace if the process needs one. See [`enter_user_namespace`].
///
/// # Errors
/// [`PrivilegeError`].
pub fn acquire_privilege() -> Result<(), PrivilegeError> {
    match Privilege::probe() {
        Privilege::UserNamespace => enter_user_namespace(),
        Privilege::Capable | Privilege::Missing { .. } => Ok(()),
    }
}

/// Makes this process root in a new user namespace with an empty network namespace.
///
/// Call it at the start of `main`: the kernel refuses it to a process with several threads.
/// Afterwards [`Privilege::probe`] returns [`Privilege::Capable`], which applies to everything
/// inside the namespaces; the machine's own interfaces stay out of reach.
///
/// # Errors
/// The setting that forbids it, and what else would help. After [`PrivilegeError::Map`], the process
/// is in a namespace without users and cannot return: it should end.
pub fn enter_user_namespace() -> Result<(), PrivilegeError> {
    let (user, group) = sys::effective_ids();
    enter(libc::CLONE_NEWUSER | libc::CLONE_NEWNET)?;
    write_map(USERS, &format!("0 {user} 1"))?;
    write_map(GROUPS, &format!("0 {group} 1"))
}

/// Enters a user namespace in which the user and the group keep their numbers. The process stays in
/// its network namespace, whose sockets it may still use.
///
/// The process has every capability over namespaces that it creates from now on. A program that it
/// executes has none, unless the user is root (capabilities(7)).
///
/// # Errors
/// As for [`enter_user_namespace`].
pub fn enter_user_namespace_as_self() -> Result<(), PrivilegeError> {
    let (user, group) = sys::effective_ids();
    enter(libc::CLONE_NEWUSER)?;
    write_map(USERS, &map_of(user))?;
    write_map(GROUPS, &map_of(group))
}

/// Enters the user namespace of another process. If both have the same owner, this process then has
/// every capability over the other's namespaces. It stays in its network namespace.
///
/// # Errors
/// There is no such process, it belongs to another user, or this process has several threads.
pub fn enter_user_namespace_of(pid: u32) -> io::Result<()> {
    let namespace = fs::File::open(format!("/proc/{pid}/ns/user"))?;
    // Waits until threads that have ended are gone. If others are left, the kernel refuses below.
    let _ = sys::other_threads();
    let kind = Some(rustix::thread::LinkNameSpaceType::User);
    Ok(rustix::thread::move_into_link_name_space(
        namespace.as_fd(),
        kind,
    )?)
}

/// Enters new namespaces, among them a user namespace without a map.
fn enter(namespaces: libc::c_int) -> Result<(), PrivilegeError> {
    match sys::other_threads() {
        Ok(others) if others > 0 => return Err(PrivilegeError::Threads(1 + others)),
        // Without /proc the kernel has the last word.
        Ok(_) | Err(_) => {}
    }
    sys::unshare(namespaces).map_err(|error| PrivilegeError::Refused {
        obstacle: obstacle(&error),
    })?;
    // user_namespaces(7): an unprivileged process must give up setgroups before it may map
    // its group.
    write_map(SETGROUPS, DENY)
}

/// Returns the map of one user or group to the same number.
fn map_of(number: u32) -> String {
    format!("{number} {number} 1")
}

fn write_map(path: &'static CStr, line: &str) -> Result<(), PrivilegeError> {
    let path = path.to_str().expect("the paths are ASCII");
    fs::write(path, line).map_err(|source| PrivilegeError::Map { path, source })
}

/// Names the setting behind a refusal, where it can be determined.
fn obstacle(error: &io::Error) -> String {
    let is = |path: &str, value: &str| {
        fs::read_to_string(path).is_ok_and(|content| content.trim() == value)
    };
    let setting = if is("/proc/sys/user/max_user_namespaces", "0") {
        "user.max_user_namespaces is 0"
    } else if is("/proc/sys/kernel/unprivileged_userns_clone", "0") {
        "kernel.unprivileged_userns_clone is 0 (set it to 1)"
    } else if is(
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
    ) {
        "kernel.apparmor_restrict_unprivileged_userns is 1 (set it to 0, or give the binary an AppArmor profile with the userns permission)"
    } else {
        match error.raw_os_error() {
            Some(libc::EPERM) => {
                "refused, as in a container without CAP_SYS_ADMIN or with a seccomp filter"
            }
            Some(libc::ENOSPC) => "the limit of user namespaces is reached",
            Some(libc::EINVAL) => "the kernel has none, or the process already has several threads",
            _ => return error.to_string(),
        }
    };
    format!("{setting} ({error})")
}

/// Returns the error of a trial that did not do everything.
fn done(tried: io::Result<Entered>) -> io::Result<()> {
    match tried? {
        Entered::All => Ok(()),
        Entered::Nothing(errno) | Entered::NotAll(errno) => {
            Err(io::Error::from_raw_os_error(errno))
        }
    }
}

/// Returns why a user could not be mapped into its own user namespace.
fn unmapped(error: &io::Error) -> String {
    let (user, _) = sys::effective_ids();
    match (user, error.raw_os_error()) {
        // kernel/user_namespace.c, `verify_root_map`, since Linux 5.12.
        (0, Some(libc::EPERM)) => format!(
            "Linux maps root into one only with CAP_SETFCAP, which programs of `sluice exec` and of \
             some containers lack ({error})"
        ),
        _ => format!("its user cannot be mapped ({error})"),
    }
}

/// Returns how to get the privilege.
fn how() -> &'static str {
    match sys::effective_ids() {
        (0, _) => "root needs CAP_SYS_ADMIN, CAP_NET_ADMIN and CAP_NET_RAW for network namespaces",
        _ => "run as root, or allow unprivileged user namespaces",
    }
}

/// Returns [`STAGES`], if it exists.
pub(crate) fn stage() -> Option<&'static CStr> {
    fs::metadata(STAGES).is_ok().then_some(c"/tmp")
}

/// Returns the capabilities that this thread may use, a bit for each number of linux/capability.h.
pub(crate) fn effective_capabilities() -> io::Result<u64> {
    Ok(rustix::thread::capabilities(None)?.effective.bits())
}

/// The path at which the files of a program are created, in a mount namespace of their own.
pub(crate) const STAGES: &str = "/tmp";

/// linux/capability.h: CAP_NET_ADMIN 12 (interfaces), CAP_NET_RAW 13 (raw and packet
/// sockets), CAP_SYS_ADMIN 21 (namespaces).
const NEEDED: u64 = 1 << 12 | 1 << 13 | 1 << 21;

/// The files of the maps, and the text that an unprivileged process must write before its group's.
const USERS: &CStr = c"/proc/self/uid_map";
const GROUPS: &CStr = c"/proc/self/gid_map";
const SETGROUPS: &CStr = c"/proc/self/setgroups";
const DENY: &str = "deny";

/// A setting of a network namespace that nothing in the namespace of a trial uses.
const SETTING: (&CStr, &str) = (c"/proc/sys/net/ipv4/tcp_no_metrics_save", "1");
