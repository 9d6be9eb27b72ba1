//! The user that confined threads become.

use std::fmt;
use std::fs;
use std::io;

use nix::unistd;
use rustix::fs::{Gid, Uid};
use rustix::process::geteuid;
use rustix::thread;

/// A user other than root, and its primary group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    uid: Uid,
    gid: Gid,
}

/// The reasons why no thread can become a user.
#[derive(Debug, thiserror::Error)]
pub enum UserError {
    /// There is no such user.
    #[error(
        "there is no user {0:?}; `getent passwd` lists the users, and a number needs no such entry"
    )]
    Unknown(String),
    /// The user has root's privileges.
    #[error("{0:?} is root, which keeps its privileges; name an ordinary user, such as nobody")]
    Root(String),
    /// The process cannot change its user.
    #[error("only root can become another user; omit --user, since the router already runs as one")]
    NotRoot,
    /// The list of users cannot be read.
    #[error("cannot look up the user {name:?}: {source}")]
    LookUp {
        /// What was looked up.
        name: String,
        /// The reason.
        source: io::Error,
    },
}

impl User {
    /// Finds the user with a name or number. The group of a number without an entry in the list of
    /// users has the same number.
    ///
    /// # Errors
    /// [`UserError`]; also if the calling thread is not root's.
    pub fn find(name: &str) -> Result<User, UserError> {
        if !is_root() {
            return Err(UserError::NotRoot);
        }
        let number = name.parse::<u32>().ok().filter(|uid| *uid != NO_USER);
        let failed = |source| UserError::LookUp {
            name: name.to_owned(),
            source,
        };
        let look_up = || {
            let entry = match number {
                Some(uid) => unistd::User::from_uid(unistd::Uid::from_raw(uid)),
                None => unistd::User::from_name(name),
            };
            entry.map_err(|error| failed(error.into()))
        };
        let mut entry = look_up()?;
        if entry.is_none() {
            // To the C library, a list that it cannot read is a list without the user, whose number would
            // then be taken for the group's.
            match fs::read(USERS) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
                _ => entry = look_up()?,
            }
        }
        let (uid, gid) = match (entry, number) {
            (Some(entry), _) => (entry.uid.as_raw(), entry.gid.as_raw()),
            (None, Some(uid)) => (uid, uid),
            (None, None) => return Err(UserError::Unknown(name.to_owned())),
        };
        if uid == 0 || gid == 0 {
            return Err(UserError::Root(name.to_owned()));
        }
        Ok(User {
            uid: Uid::from_raw(uid),
            gid: Gid::from_raw(gid),
        })
    }

    /// Lets the calling thread, and no other, become this user, without further groups. It loses its
    /// effective capabilities, but may take back those that it was permitted.
    pub(crate) fn take_over(self) -> io::Result<()> {
        // Otherwise the kernel would take the permitted ones as well (capabilities(7)).
        thread::set_keep_capabilities(true)?;
        thread::set_thread_groups(&[])?;
        thread::set_thread_res_gid(self.gid, self.gid, self.gid)?;
        thread::set_thread_res_uid(self.uid, self.uid, self.uid)?;
        thread::set_keep_capabilities(false)?;
        Ok(())
    }
}

/// Returns whether the calling thread is root's.
pub fn is_root() -> bool {
    geteuid().is_root()
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.uid.as_raw(), self.gid.as_raw())
    }
}

/// The list of users; there may be others (nsswitch.conf(5)).
const USERS: &str = "/etc/passwd";
/// The number that stands for "no change" in setresuid(2).
const NO_USER: u32 = u32::MAX;
