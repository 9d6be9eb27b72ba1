//! Threads without privileges. Each test runs in a process of its own, which it starts.

use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, ExitStatus};
use std::thread;
use std::time::Duration;

use sluice_net::confine::{
    Confinement, Keep, Reach, User, confine, keep_broker, privileged, privileged_apart,
};
use sluice_net::namespace::Namespace;

/// Runs the test `name` again in a child, with a variable that is its role.
fn in_child(name: &str) -> Option<ExitStatus> {
    if std::env::var_os(ROLE).is_some() {
        return None;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([name, "--exact"]).env(ROLE, "1");
    Some(command.status().unwrap())
}

const ROLE: &str = "SLUICE_TEST_IN_CHILD";

#[test]
fn an_execve_of_a_confined_thread_kills_the_process() {
    if let Some(status) = in_child("an_execve_of_a_confined_thread_kills_the_process") {
        assert_eq!(status.signal(), Some(libc::SIGSYS), "{status}");
        return;
    }
    let thread = thread::spawn(|| {
        confine(Confinement::STRICT).unwrap();
        // Without the filter, this process becomes `true` and ends with status 0.
        Command::new("/bin/true").exec()
    });
    panic!("{:?}", thread.join());
}

#[test]
#[allow(unsafe_code)]
fn a_confined_thread_starts_threads_but_a_namespace_kills_the_process() {
    let name = "a_confined_thread_starts_threads_but_a_namespace_kills_the_process";
    if let Some(status) = in_child(name) {
        assert_eq!(status.signal(), Some(libc::SIGSYS), "{status}");
        return;
    }
    let thread = thread::spawn(|| {
        confine(Confinement::STRICT).unwrap();
        assert_eq!(thread::spawn(|| 4).join().unwrap(), 4);
        // SAFETY: without arguments, the call does nothing: it fails with EINVAL, or with ENOSYS.
        let result = unsafe { libc::syscall(libc::SYS_clone3, 0_usize, 0_usize) };
        let error = std::io::Error::last_os_error().raw_os_error();
        assert_eq!((result, error), (-1, Some(libc::ENOSYS)));
        let flags = (libc::CLONE_NEWUSER | libc::SIGCHLD) as usize;
        // SAFETY: as `fork`: the child has a copy of all memory. Without the filter, it ends at once.
        unsafe {
            if libc::syscall(libc::SYS_clone, flags, 0_usize, 0_usize, 0_usize, 0_usize) == 0 {
                libc::_exit(0);
            }
        }
    });
    panic!("{:?}", thread.join());
}

#[test]
fn a_confined_thread_gets_into_a_namespace_by_the_broker_only() {
    if let Some(status) = in_child("a_confined_thread_gets_into_a_namespace_by_the_broker_only") {
        assert!(status.success(), "{status}");
        return;
    }
    let namespace = Namespace::create("other").expect("the test may make namespaces");
    keep_broker(None).unwrap();
    let thread = thread::spawn(move || {
        confine(Confinement::STRICT).unwrap();
        // Files and other calls work as before, and so do threads.
        std::fs::read_to_string("/proc/self/status").unwrap();
        let links = namespace.links().unwrap().interfaces().unwrap();
        assert_eq!(links.len(), 1, "only the loopback: {links:?}");
        let named = namespace.enter(|| thread::current().name().map(str::to_owned));
        assert_eq!(named.unwrap().as_deref(), Some("broker"));
        let panics = std::panic::catch_unwind(|| namespace.enter(|| panic!("passed on")));
        assert!(panics.is_err());
        assert!(namespace.enter(|| ()).is_ok(), "the broker is still there");
    });
    thread.join().unwrap();
}

#[test]
fn an_execve_of_the_broker_kills_the_process() {
    if let Some(status) = in_child("an_execve_of_the_broker_kills_the_process") {
        assert_eq!(status.signal(), Some(libc::SIGSYS), "{status}");
        return;
    }
    keep_broker(None).unwrap();
    // Without the filter, this process becomes `true` and ends with status 0.
    panic!("{:?}", privileged(|| Command::new("/bin/true").exec()));
}

#[test]
fn the_broker_and_its_threads_have_only_the_capabilities_of_its_jobs() {
    let name = "the_broker_and_its_threads_have_only_the_capabilities_of_its_jobs";
    if let Some(status) = in_child(name) {
        assert!(status.success(), "{status}");
        return;
    }
    let own = || std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let field = |status: &str, name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().to_owned()
    };
    let set = |status: &str, name| u64::from_str_radix(&field(status, name), 16).unwrap();
    let before = own();
    keep_broker(None).unwrap();
    let hour = Duration::from_secs(3600);
    let apart = privileged_apart(own, hour, || panic!("it takes no hour"));
    // linux/capability.h: DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, NET_ADMIN, NET_RAW, IPC_LOCK, SYS_ADMIN,
    // SYS_RESOURCE, MAC_OVERRIDE, PERFMON and BPF.
    let kept = [1, 2, 3, 12, 13, 14, 21, 24, 32, 38, 39];
    let kept = kept.iter().fold(0_u64, |set, bit| set | 1_u64 << bit);
    for status in [privileged(own), apart.unwrap()] {
        assert!(status.starts_with("Name:\tbroker\n") || status.starts_with("Name:\tfiles\n"));
        for name in ["CapEff:", "CapPrm:"] {
            assert_eq!(set(&status, name), set(&before, name) & kept, "{name}");
        }
        assert_eq!(set(&status, "CapInh:"), 0);
        assert_eq!(field(&status, "NoNewPrivs:"), "1");
        // SECCOMP_MODE_FILTER of linux/seccomp.h.
        assert_eq!(field(&status, "Seccomp:"), "2");
    }
    // The calling thread is as it was.
    assert_eq!(set(&own(), "CapEff:"), set(&before, "CapEff:"));
}

#[test]
fn a_confined_thread_opens_no_file_but_the_broker_does() {
    if let Some(status) = in_child("a_confined_thread_opens_no_file_but_the_broker_does") {
        assert!(status.success(), "{status}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("own");
    std::fs::write(&path, "secret").unwrap();
    let has_landlock = has_landlock();
    keep_broker(None).unwrap();
    let thread = thread::spawn(move || {
        let confined = confine(Confinement::STRICT).unwrap();
        assert_eq!(confined.has_no_files, has_landlock);
        let refusal = |path: &std::path::Path| std::fs::read(path).err().map(|e| e.kind());
        // Root may read /etc/shadow by its user alone, without a capability.
        let denied = confined
            .has_no_files
            .then_some(std::io::ErrorKind::PermissionDenied);
        assert_eq!(refusal(&path), denied);
        if std::path::Path::new("/etc/shadow").exists() {
            let is_root = rustix::process::geteuid().is_root();
            assert!(!is_root || refusal("/etc/shadow".as_ref()) == denied);
        }
        assert_eq!(std::fs::write(&path, "").is_err(), confined.has_no_files);
        assert_eq!(privileged(|| std::fs::read(&path)).unwrap(), b"secret");
        // Threads that it starts are confined as well.
        let other = thread::spawn(move || std::fs::read(&path).is_err());
        assert_eq!(other.join().unwrap(), confined.has_no_files);
    });
    thread.join().unwrap();
}

/// Returns whether the kernel restricts files: landlock_create_ruleset(2) then returns its version.
#[allow(unsafe_code)]
fn has_landlock() -> bool {
    /// LANDLOCK_CREATE_RULESET_VERSION of linux/landlock.h.
    const VERSION: usize = 1;
    // SAFETY: with this flag, the call has no other arguments and only returns a number.
    unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, 0_usize, 0_usize, VERSION) > 0 }
}

#[test]
fn a_confined_thread_becomes_another_user_and_the_others_do_not() {
    if let Some(status) = in_child("a_confined_thread_becomes_another_user_and_the_others_do_not") {
        assert!(status.success(), "{status}");
        return;
    }
    assert!(
        rustix::process::geteuid().is_root(),
        "only root can become another user"
    );
    let secret = tempfile::NamedTempFile::new().unwrap();
    let path = secret.path().to_owned();
    // A number that no user has.
    let user = User::find("54321").unwrap();
    keep_broker(Some(user)).unwrap();
    let of = |field: &str| {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with(field));
        line.unwrap()
            .split_whitespace()
            .skip(1)
            .collect::<Vec<_>>()
            .join(" ")
    };
    let thread = thread::spawn(move || {
        let confinement = Confinement {
            keep: Keep::NetAdmin,
            reach: Reach::Everything,
            user: Some(user),
        };
        confine(confinement).unwrap();
        // Real, effective and saved, and that of files (proc_pid_status(5)).
        assert_eq!(of("Uid:"), "54321 54321 54321 54321");
        assert_eq!(of("Gid:"), "54321 54321 54321 54321");
        assert_eq!(of("Groups:"), "");
        // Bit 12 is CAP_NET_ADMIN (linux/capability.h).
        assert_eq!(of("CapEff:"), "0000000000001000");
        assert_eq!(of("CapPrm:"), "0000000000001000");
        let refused = std::fs::read(&path).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
        assert!(privileged(|| std::fs::read(&path)).is_ok());
        let other = thread::spawn(move || of("Uid:"));
        assert_eq!(other.join().unwrap(), "54321 54321 54321 54321");
    });
    thread.join().unwrap();
    assert_eq!(of("Uid:"), "0 0 0 0");
}

#[test]
fn root_and_unknown_users_are_refused() {
    let refusal = |name| User::find(name).unwrap_err().to_string();
    if !rustix::process::geteuid().is_root() {
        assert!(refusal("nobody").starts_with("only root can"));
        return;
    }
    assert!(refusal("root").starts_with("\"root\" is root"));
    assert!(refusal("0").starts_with("\"0\" is root"));
    assert!(refusal("no such user").starts_with("there is no user \"no such user\""));
    // It stands for "no change" in setresuid(2), so it is no number of a user.
    assert!(refusal("4294967295").starts_with("there is no user"));
}
