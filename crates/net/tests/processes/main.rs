//! Every system call of the functions that start processes, confine threads and enter user namespaces
//! fails once, also in the children, and calls that do not pass the C library.
//!
//! A scenario is a process that does something and ends. It is started again and again, and each time
//! another of its calls, or of its children's calls before they execute a program, fails. Whatever
//! fails: nothing panics or hangs, no process is left, and the scenario either reports an error or
//! has done what it should.
//!
//! Several functions want to be called by a process with a single thread, so this file is a separate
//! program, which executes itself. It needs root.

mod calls;
#[path = "../common/mod.rs"]
mod common;
mod notify;

use std::collections::BTreeMap;
use std::ffi::{c_int, c_long};
use std::fmt::Display;
use std::fs;
use std::io::Read as _;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use calls::CALLS_OF;
use notify::{count_from_here, exempt};
use sluice_net::Clock;
use sluice_net::confine::{Confinement, User, confine, keep_broker};
use sluice_net::contained::Contained;
use sluice_net::guardian::{Guardian, PREFIX};
use sluice_net::namespace::{
    Namespace, Privilege, enter_user_namespace, enter_user_namespace_as_self,
    enter_user_namespace_of,
};
use sluice_net::port::PacketPort;
use sluice_net::port::packet::PacketOptions;
use sluice_net::port::pcap::{PcapPort, PcapSpec, Speed};
use sluice_net::process::{
    Change, Guard, Replacement, Signals, Surroundings, Watchdog, changed_child, spawn,
};

/// A scenario: what it does after the filter is in force. It has a folder for files, and returns
/// whether everything succeeded; if not, an error was reported.
type Work = fn(&Path) -> bool;

const SCENARIOS: &[(&str, Work, After)] = &[
    ("guardian", guardian, nothing),
    ("take_over", take_over, nothing),
    ("contained", contained, nothing),
    ("spawn", spawned, nothing),
    ("guard", guard, nothing),
    ("watchdog", watchdog, has_worked),
    ("confine", confined, nothing),
    ("user", other_user, nothing),
    ("namespace_of_users", namespace_of_users, nothing),
    ("namespace_as_self", namespace_as_self, nothing),
    ("first_ports", first_ports, nothing),
];

/// Scenarios in which nothing fails.
const UNDISTURBED: &[(&str, Work, After)] = &[
    (
        "guard_of_a_namespace_that_is_gone",
        guard_of_a_namespace_that_is_gone,
        has_worked,
    ),
    (
        "helpers_that_have_ended_are_reaped",
        helpers_that_have_ended_are_reaped,
        nothing,
    ),
];

/// What must hold when all processes have ended: given the folder, and whether the scenario succeeded.
type After = fn(&Path, bool);

fn nothing(_: &Path, _: bool) {}

const ERRORS: [(&str, c_int); 6] = [
    ("EINTR", libc::EINTR),
    ("ENOBUFS", libc::ENOBUFS),
    ("ENOMEM", libc::ENOMEM),
    ("EMFILE", libc::EMFILE),
    ("EAGAIN", libc::EAGAIN),
    ("ENETDOWN", libc::ENETDOWN),
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [mode, name, folder] = words.as_slice()
        && mode == "scenario"
    {
        return run(name, Path::new(folder));
    }
    common::require_privilege();
    let wanted = words.iter().find(|word| !word.starts_with('-'));
    for (name, _, after) in SCENARIOS {
        if wanted.is_none_or(|wanted| name.contains(wanted.as_str())) {
            exhaust(name, *after);
            println!("test {name}_survives_every_failing_call ... ok");
        }
    }
    for (name, _, after) in UNDISTURBED {
        if wanted.is_none_or(|wanted| name.contains(wanted.as_str())) {
            assert_eq!(once(name, ERRORS[0], u32::MAX, *after), None);
            println!("test {name} ... ok");
        }
    }
    ExitCode::SUCCESS
}

/// Runs a scenario once for each of its calls and some errors, several at a time, since most wait for
/// something. Each call fails with two of the six errors, unless `SLUICE_EVERY_ERROR` is set.
fn exhaust(name: &str, after: After) {
    let stride = match std::env::var_os("SLUICE_EVERY_ERROR") {
        Some(_) => 1,
        None => 3,
    };
    let failed = Mutex::new(BTreeMap::<c_long, u32>::new());
    let mut missing = Vec::new();
    // A process that starts or ends elsewhere changes the numbers of the calls, so that one may be passed
    // over. Each round lets others fail.
    for round in 0..ROUNDS {
        thread::scope(|scope| {
            for ((error_name, error), first) in ERRORS.into_iter().zip((0..stride).cycle()) {
                let failed = &failed;
                scope.spawn(move || {
                    let mut call = (first + round) % stride;
                    while let Some(failing) = once(name, (error_name, error), call, after) {
                        *failed.lock().unwrap().entry(failing).or_default() += 1;
                        call += stride;
                    }
                    assert!(call > 5, "{name} makes {call} calls");
                });
            }
        });
        let failed = failed.lock().unwrap();
        eprintln!("{name}: calls that failed, by number: {failed:?}");
        let rows = CALLS_OF.iter().filter(|row| row.0 == name);
        let calls = rows.flat_map(|(_, file, functions, calls)| {
            calls.iter().map(move |call| (call, file, functions))
        });
        missing = calls
            .filter(|(call, ..)| !failed.contains_key(call))
            .map(|(call, file, functions)| format!("call {call} of {file} ({functions})"))
            .collect();
        if missing.is_empty() {
            return;
        }
    }
    panic!("{name}: these have not failed: {missing:?}");
}

/// The most rounds.
const ROUNDS: u32 = 3;

/// Runs a scenario whose call `fails` fails. Returns which one that was, if there are so many.
fn once(
    name: &str,
    (error_name, error): (&str, c_int),
    fails: u32,
    after: After,
) -> Option<c_long> {
    let what = format!("{name}: {error_name} at call {fails}");
    let folder = tempfile::tempdir().unwrap();
    let (own, theirs) = UnixStream::pair().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["scenario", name])
        .arg(folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let given = theirs.as_raw_fd();
    // SAFETY: between fork and exec, one system call.
    #[allow(unsafe_code)]
    unsafe {
        command.pre_exec(move || match libc::dup2(given, FILTER) {
            FILTER => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    let mut child = command.spawn().unwrap();
    drop(theirs);
    let mut said = child.stderr.take().unwrap();
    // Children may hold the other end for long.
    let said = thread::spawn(move || {
        let mut text = String::new();
        let _ = said.read_to_string(&mut text);
        text
    });
    let outcome = notify::supervise(&own, fails, error, name != "take_over");
    let left = match &outcome {
        Ok(outcome) if !outcome.has_ended => below(child.id()),
        _ => String::new(),
    };
    if !matches!(&outcome, Ok(outcome) if outcome.has_ended) {
        let _ = child.kill();
    }
    let status = child.wait().unwrap();
    let outcome = outcome.unwrap_or_else(|error| panic!("{what}: {error}"));
    let call = outcome.failed;
    assert!(
        outcome.has_ended,
        "{what} ({call:?}) leaves processes:\n{left}"
    );
    let said = said.join().unwrap();
    let code = status.code();
    // The standard library panics if its child cannot tell it whether `execve` failed, which the kernel
    // does not refuse.
    let own = [
        "the CLOEXEC pipe failed",
        "assertion failed: output.write(&bytes)",
    ];
    if call.is_some() && own.iter().any(|panic| said.contains(panic)) {
        return call;
    }
    assert!(!said.contains("panicked"), "{what} ({call:?}): {said}");
    assert!(
        code == Some(SUCCEEDED) || (code == Some(REPORTED) && call.is_some()),
        "{what} ({call:?}): {status}, {said}"
    );
    after(folder.path(), code == Some(SUCCEEDED));
    call
}

/// Describes the processes that have the filter of a scenario, which `tested` began.
fn below(tested: u32) -> String {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let describe = |path: PathBuf| {
        let file = |name| fs::read_to_string(path.join(name)).unwrap_or_default();
        let status = file("status");
        let field = |name| status.lines().find(|line| line.starts_with(name));
        field("Seccomp:").filter(|line| line.ends_with('2'))?;
        let pid: u32 = path.file_name()?.to_str()?.parse().ok()?;
        let (fields, wchan) = (["PPid:", "State:", "Threads:"].map(field), file("wchan"));
        let command = file("cmdline").replace('\0', " ");
        let network = fs::read_link(path.join("ns/net"));
        (pid >= tested).then(|| format!("{pid} {fields:?} {wchan} {network:?} {command}\n"))
    };
    processes
        .filter_map(|process| describe(process.path()))
        .collect()
}

/// The descriptor through which a scenario sends that of its filter.
const FILTER: c_int = 200;
const SUCCEEDED: i32 = 0;
const REPORTED: i32 = 3;

fn run(name: &str, folder: &Path) -> ExitCode {
    // SAFETY: the parent has put it there, and nothing else uses it.
    #[allow(unsafe_code)]
    let to = UnixStream::from(unsafe { OwnedFd::from_raw_fd(FILTER) });
    let (_, work, _) = SCENARIOS
        .iter()
        .chain(UNDISTURBED)
        .find(|one| one.0 == name)
        .expect("a scenario");
    // SAFETY: this process has one thread.
    #[allow(unsafe_code)]
    let is_apart = unsafe { libc::unshare(libc::CLONE_NEWNET) } == 0;
    assert!(is_apart);
    common::wire::connect(&own());
    notify::arm(&to);
    drop(to);
    match work(folder) {
        true => ExitCode::from(SUCCEEDED as u8),
        false => ExitCode::from(REPORTED as u8),
    }
}

/// The network namespace of this process, which has the interfaces `left` and `right`.
fn own() -> Namespace {
    exempt(|| Namespace::current().unwrap())
}

fn said<T, E: Display>(result: Result<T, E>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) => {
            assert!(error.to_string().len() > 10, "{error}");
            None
        }
    }
}

fn eventually(what: &str, mut is_done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !is_done() {
        assert!(Instant::now() < end, "{what}");
        sleep(Duration::from_millis(10));
    }
}

fn pairs() -> [[String; 2]; 1] {
    [["left".to_owned(), "right".to_owned()]]
}

/// The bridges of a guardian, but not the one by which it verifies that bridges are possible.
fn bridges() -> usize {
    let all = own().links().unwrap().interfaces().unwrap();
    let is_one = |name: &str| name.starts_with(PREFIX) && !name[PREFIX.len()..].starts_with('t');
    all.iter().filter(|link| is_one(&link.name)).count()
}

fn guardian(_: &Path) -> bool {
    let namespace = own();
    match said(Guardian::start(&namespace, &pairs(), None)) {
        Some(guardian) => {
            guardian.dismiss();
            true
        }
        None => false,
    }
}

/// Only the calls after the start fail here: those of the guardian while it creates and removes a
/// bridge.
fn take_over(_: &Path) -> bool {
    let mut guardian = exempt(|| Guardian::start(&own(), &pairs(), None)).unwrap();
    count_from_here();
    exempt(|| {
        guardian.beat();
        // It hangs, and then it lives again.
        eventually("a bridge stands", || bridges() == 1);
        eventually("the bridge is removed", || {
            guardian.beat();
            sleep(Duration::from_millis(90));
            bridges() == 0
        });
        guardian.dismiss();
    });
    true
}

fn contained(_: &Path) -> bool {
    let mut command = Command::new("/bin/cat");
    let Some(mut program) = said(Contained::start(command.arg("/proc/self/status"))) else {
        return false;
    };
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        assert!(Instant::now() < end, "the program neither ends nor fails");
        program.read(Duration::from_millis(20));
        match program.ended() {
            Ok(None) => {}
            Ok(Some(status)) => return status.success(),
            Err(error) => {
                assert!(!error.to_string().is_empty());
                return false;
            }
        }
    }
}

fn spawned(folder: &Path) -> bool {
    let namespace = own();
    let signals = exempt(Signals::catch).unwrap();
    // Not in /tmp, where the contents are prepared.
    let target = Path::new("/etc/hosts");
    let hidden = Path::new("/sys");
    // A symbolic link in most distributions.
    let linked = Path::new("/etc/os-release");
    let (output, files) = exempt(|| {
        let output = fs::File::create(folder.join("output")).unwrap();
        let file = Replacement::new(target, "inside").unwrap();
        let hidden = Replacement::empty(hidden).unwrap();
        let linked = Replacement::new(linked, "through a link\n").unwrap();
        (output, [file, hidden, linked])
    });
    let around = Surroundings {
        namespace: &namespace,
        files: &files,
        blocked: signals.before(),
        open_files: None,
        is_apart: true,
    };
    let mut command = Command::new("/bin/cat");
    command
        .args(["/proc/self/status", "/proc/self/mountinfo"])
        .args([linked, target])
        .stdout(output);
    let Some(pid) = said(spawn(&mut command, &around)) else {
        return false;
    };
    exempt(|| {
        let mut status = None;
        eventually("the program ends", || {
            match changed_child() {
                Ok(Some((child, change))) if child == pid => status = Some(change),
                Ok(_) => {}
                Err(error) => panic!("{error}"),
            }
            status.is_some()
        });
        assert_eq!(status, Some(Change::Exited(0)));
        let text = fs::read_to_string(folder.join("output")).unwrap();
        // Whatever failed: a program that starts has no capability, and sees the other contents.
        assert!(text.contains("CapPrm:\t0000000000000000\n"), "{text}");
        assert!(text.ends_with("\nthrough a link\ninside"), "{text}");
        // proc_pid_mountinfo(5): the mount's root in its file system, and the mount point.
        assert!(text.contains(" /1 /sys "), "{text}");
    });
    true
}

/// The program in the namespace would run for hours. That all processes end shows that it was killed.
fn guard(_: &Path) -> bool {
    let namespace = exempt(|| Namespace::create("guarded").unwrap());
    let Some(mut guard) = said(Guard::start()) else {
        return false;
    };
    if said(guard.watch(&namespace)).is_none() {
        return false;
    }
    exempt(|| {
        // The child's calls before it executes the program may fail.
        let start = || Command::new("/bin/sleep").arg("10000").spawn();
        let started = namespace.enter(|| start().or_else(|_| start()));
        assert!(started.unwrap().unwrap().id() > 0);
    });
    true
}

/// The kernel gives the lowest free number to a new namespace: here, that of the watched one if it
/// were gone. The program there must not be killed.
fn guard_of_a_namespace_that_is_gone(folder: &Path) -> bool {
    let watched = Namespace::create("watched").unwrap();
    let mut guard = Guard::start().unwrap();
    guard.watch(&watched).unwrap();
    drop(watched);
    // The kernel removes namespaces later.
    sleep(Duration::from_millis(300));
    let next = Namespace::create("next").unwrap();
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "sleep 0.5 && echo > $0"]);
    command.arg(worked(folder));
    let started = next.enter(|| command.spawn());
    assert!(started.unwrap().unwrap().id() > 0);
    true
}

fn helpers_that_have_ended_are_reaped(_: &Path) -> bool {
    let namespace = Namespace::create("guarded").unwrap();
    let mut guard = Guard::start().unwrap();
    guard.watch(&namespace).unwrap();
    drop(guard);
    let watchdog = Watchdog::start(|| unreachable!("it is dismissed"));
    watchdog.unwrap().dismiss();
    // wait(2) fails with ECHILD where there are no children, and a zombie is one.
    assert!(changed_child().is_err());
    true
}

fn worked(folder: &Path) -> PathBuf {
    folder.join("worked")
}

fn watchdog(folder: &Path) -> bool {
    let path = worked(folder);
    let started = Watchdog::start(|| exempt(|| fs::write(&path, "").unwrap()));
    let Some(watchdog) = said(started) else {
        return false;
    };
    exempt(|| {
        sleep(Duration::from_millis(100));
        assert!(!path.exists(), "the work is done while this process lives");
    });
    // As `kill -9` would.
    std::mem::forget(watchdog);
    true
}

fn has_worked(folder: &Path, has_succeeded: bool) {
    if has_succeeded {
        assert!(worked(folder).exists(), "it has not worked");
    }
}

fn confined(_: &Path) -> bool {
    // Opened before: where a rule of Landlock could not be made, even /proc cannot be read.
    let mut file = exempt(|| fs::File::open("/proc/thread-self/status")).unwrap();
    let confined = said(confine(Confinement::STRICT));
    let mut status = String::new();
    exempt(|| file.read_to_string(&mut status)).unwrap();
    let has = |line: &str| status.lines().any(|found| found == line);
    if confined.is_some() {
        assert!(has("CapEff:\t0000000000000000"), "{status}");
        assert!(has("CapPrm:\t0000000000000000"), "{status}");
        assert!(has("NoNewPrivs:\t1") && has("Seccomp:\t2"), "{status}");
        assert!(
            has("Seccomp_filters:\t3"),
            "the test's and its own two: {status}"
        );
    }
    confined.is_some()
}

/// A user whose group has another number, on every system.
const USER: (&str, &str) = ("4", "4:65534");

fn other_user(_: &Path) -> bool {
    let file = exempt(|| fs::File::open("/proc/thread-self/status"));
    let mut file = file.unwrap();
    let by_name = said(User::find("nobody"));
    let Some(user) = said(User::find(USER.0)) else {
        return false;
    };
    assert_eq!(user.to_string(), USER.1, "not the group of another user");
    let confined = said(confine(Confinement {
        user: Some(user),
        ..Confinement::STRICT
    }));
    let mut status = String::new();
    exempt(|| file.read_to_string(&mut status)).unwrap();
    let has = |line: &str| status.lines().any(|found| found.trim_end() == line);
    if confined.is_some() {
        assert!(has("Uid:\t4\t4\t4\t4") && has("Groups:"), "{status}");
        assert!(has("Gid:\t65534\t65534\t65534\t65534"), "{status}");
        assert!(has("CapEff:\t0000000000000000"), "{status}");
        assert!(has("CapPrm:\t0000000000000000"), "{status}");
    }
    by_name.is_some() && confined.is_some()
}

/// Becomes the process of an ordinary user, which has no capabilities.
fn become_ordinary() {
    const NOBODY: u32 = 65_534;
    // SAFETY: takes no pointers.
    #[allow(unsafe_code)]
    let results = unsafe {
        [
            libc::setresgid(NOBODY, NOBODY, NOBODY),
            libc::setresuid(NOBODY, NOBODY, NOBODY),
            // Or else the files of the process in /proc would be root's, as after the execution of a
            // program of another user.
            libc::prctl(libc::PR_SET_DUMPABLE, 1),
        ]
    };
    assert_eq!(results, [0; 3]);
}

fn namespace_of_users(_: &Path) -> bool {
    // Root must not leave its namespaces because its capabilities cannot be read.
    let is_known = match Privilege::probe() {
        Privilege::Capable => true,
        Privilege::UserNamespace => {
            panic!("a process with all privileges is taken for one without")
        }
        Privilege::Missing { obstacle } => {
            assert!(obstacle.len() > 10, "{obstacle}");
            false
        }
    };
    let may_mount = is_allowed(&Privilege::Capable);
    exempt(become_ordinary);
    let may_enter = match Privilege::probe() {
        Privilege::Capable => panic!("a process without privileges is taken for one with them"),
        Privilege::UserNamespace => true,
        Privilege::Missing { obstacle } => {
            assert!(obstacle.len() > 10, "{obstacle}");
            false
        }
    };
    let may_mount = may_mount && is_allowed(&Privilege::UserNamespace);
    if said(enter_user_namespace()).is_none() {
        return false;
    }
    assert_eq!(exempt(Privilege::probe), Privilege::Capable);
    is_known && may_enter && may_mount
}

/// Tries mounts and settings with a privilege. The trials leave no mounts in this process's namespace.
fn is_allowed(privilege: &Privilege) -> bool {
    let mounts = || exempt(|| fs::read_to_string("/proc/self/mountinfo")).unwrap();
    let before = mounts();
    let mounted = said(privilege.check_mounts());
    let changed = said(privilege.check_settings());
    assert_eq!(mounts(), before);
    mounted.is_some() && changed.is_some()
}

fn namespace_as_self(_: &Path) -> bool {
    exempt(become_ordinary);
    if said(enter_user_namespace_as_self()).is_none() {
        return false;
    }
    // The kernel refuses to enter the namespace in which the process is already.
    let again = said(enter_user_namespace_of(std::process::id()));
    assert!(again.is_none(), "it is entered");
    true
}

/// The first ports of a process, beside which a broker and a helper begin.
fn first_ports(folder: &Path) -> bool {
    let namespace = own();
    let broker = said(keep_broker(None));
    let port = said(PacketPort::open(
        &namespace,
        "left",
        PacketOptions::default(),
    ));
    let spec = PcapSpec {
        input: None,
        output: Some(folder.join("out.pcap")),
        speed: Speed::Full,
    };
    let capture = said(PcapPort::open(&spec, None, Clock::start()));
    broker.is_some() && port.is_some() && capture.is_some()
}
