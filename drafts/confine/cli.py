def sub(path, pairs):
    s=open(path).read()
    for a,b in pairs:
        assert s.count(a)==1,(path,a,s.count(a))
        s=s.replace(a,b)
    open(path,'w').write(s)
sub('crates/net/src/namespace/mod.rs',[('use crate::sys;\nuse std::fs::File;','use crate::confine::by_broker;\nuse crate::sys;\nuse std::fs::File;')])
sub('crates/router/src/process/mod.rs',[('''    /// Frames whose headers hide what rules match are dropped ([`Ruled::strict`]).
    pub is_strict: bool,
''','''    /// Frames whose headers hide what rules match are dropped ([`Ruled::strict`]).
    pub is_strict: bool,
    /// The threads of this process give up their privileges once the ports are open, the calling one
    /// included; see [`sluice_net::confine`].
    pub is_confined: bool,
'''),('            is_strict: false,\n','            is_strict: false,\n            is_confined: false,\n')])
sub('crates/router/src/process/start.rs',[('''    /// The keys of hashes.
''','''    /// The privileges could not be given up.
    #[error(transparent)]
    Confine(#[from] ConfineError),
    /// The keys of hashes.
'''),('use sluice_net::Clock;\n','use sluice_net::Clock;\nuse sluice_net::confine::{self, ConfineError};\n'),
('''        check_ports(&settings.ports)?;
        let namespace''','''        check_ports(&settings.ports)?;
        let is_confined = settings.is_confined;
        if is_confined {
            confine::keep_broker()?;
        }
        let namespace'''),
('''        let (started, has_started) = sync_channel(1);
''','''        let (started, has_started) = sync_channel::<Result<(), ConfineError>>(1);
'''),
('''                Loop::new(start, opened.all, pool, clock, inbox).run(&until, &through, || {
                    let _ = started.send(());
                })
''','''                let own = Loop::new(start, opened.all, pool, clock, inbox);
                own.run(&until, &through, || {
                    // The loop has its priority, which it could not get later.
                    let confined = match is_confined {
                        true => confine::confine(),
                        false => Ok(()),
                    };
                    let _ = started.send(confined);
                })
'''),
('''        let _ = has_started.recv();
        let mut router''','''        let confined = has_started.recv().unwrap_or(Ok(()));
        // The threads of the control socket are started by this one.
        let confined = match is_confined {
            true => confined.and_then(|()| confine::confine()),
            false => confined,
        };
        let mut router'''),
('''        if let Some(path) = &settings.socket {
            match''','''        if let Err(error) = confined {
            router.stop();
            return Err(error.into());
        }
        if let Some(path) = &settings.socket {
            match'''),
])
sub('crates/cli/src/router.rs',[('        is_strict: args.strict,\n','        is_strict: args.strict,\n        is_confined: !args.unconfined,\n'),
('''    /// Seed of all random numbers, including hash keys''','''    /// Keep the privileges of the process after the start, and do not filter its system calls
    #[arg(long)]
    unconfined: bool,
    /// Seed of all random numbers, including hash keys'''),
('    let signals = catch_signals()?;\n','    let signals = catch_signals(settings.is_confined)?;\n'),
('fn catch_signals() -> Result<Receiver<i32>, Error> {','fn catch_signals(is_confined: bool) -> Result<Receiver<i32>, Error> {'),
('''            for signal in signals.forever() {''','''            if is_confined && let Err(error) = sluice_net::confine::confine() {
                eprintln!("sluice: warning: the thread of signals keeps its privileges: {error}");
            }
            for signal in signals.forever() {'''),
])
sub('crates/py/src/router.rs',[('        is_strict: options.strict,\n','        is_strict: options.strict,\n        // The other threads belong to the program.\n        is_confined: false,\n')])
sub('crates/cli/tests/router.rs',[('''#[test]
fn a_busy_polling_router_reports''','''/// Reads a field of /proc/PID/task/TID/status.
fn field(status: &str, name: &str) -> String {
    let line = status.lines().find(|line| line.starts_with(name));
    let (_, value) = line.and_then(|line| line.split_once(':')).expect("a field");
    value.trim().to_owned()
}

#[test]
fn all_threads_but_the_broker_are_without_privileges() {
    let running = Running::start(None, &["--accept"]);
    // A client's thread, which stays until its connection is closed.
    let _client = UnixStream::connect(running.path("s")).unwrap();
    running.ok("list");
    let pid = running.child.as_ref().unwrap().id();
    let mut brokers = 0;
    let mut others = Vec::new();
    for task in fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten() {
        let status = fs::read_to_string(task.path().join("status")).unwrap();
        let name = field(&status, "Name");
        if name == "broker" {
            brokers += 1;
            continue;
        }
        let capabilities = ["CapEff", "CapPrm", "CapInh", "CapAmb"].map(|set| field(&status, set));
        assert_eq!(capabilities, ["0000000000000000"; 4], "{name}");
        assert_eq!(field(&status, "NoNewPrivs"), "1", "{name}");
        // SECCOMP_MODE_FILTER of linux/seccomp.h.
        assert_eq!(field(&status, "Seccomp"), "2", "{name}");
        others.push(name);
    }
    assert_eq!(brokers, 1);
    for name in ["sluice", "router", "control", "client", "signals"] {
        assert!(others.iter().any(|other| other == name), "{name} of {others:?}");
    }
    running.end();
    let running = Running::start(None, &["--accept", "--unconfined"]);
    let pid = running.child.as_ref().unwrap().id();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    assert_eq!(field(&status, "Seccomp"), "0");
    running.end();
}

#[test]
fn a_busy_polling_router_reports''')])
open('crates/net/tests/confine.rs','w').write('''//! Threads without privileges. Each test runs in a process of its own, which it starts.

use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, ExitStatus};
use std::thread;

use sluice_net::confine::{confine, keep_broker};
use sluice_net::namespace::Namespace;

/// Runs the test `name` again in a child, with a variable that is its role.
fn in_child(name: &str) -> Option<ExitStatus> {
    if std::env::var_os(ROLE).is_some() {
        return None;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([name, "--exact", "--nocapture"]).env(ROLE, "1");
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
        confine().unwrap();
        // Without the filter, this process becomes `true` and ends with status 0.
        Command::new("/bin/true").exec()
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
    keep_broker().unwrap();
    let thread = thread::spawn(move || {
        confine().unwrap();
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
''')
sub('crates/net/Cargo.toml',[('[dev-dependencies]\n','[dev-dependencies]\nlibc.workspace = true\n')]) if False else None
sub('docs/explanation/dependencies.md',[('| system calls without a wrapper |','| filters of system calls | `seccompiler` | of the Firecracker project: pure Rust, no C library | `libseccomp` (C), `extrasafe` (rules for other programs) |\n| system calls without a wrapper |')])
sub('SECURITY.md',[('''A router that root starts keeps root's capabilities. The systemd unit in `packaging/` limits them
and sets `NoNewPrivileges`.
''','''After its start, one thread of `sluice router` (`broker`) keeps the capabilities, to attach to an
interface that was deleted and created again. All other threads have none and can gain none. A system
call that only an attacker would make, such as `execve`, `ptrace`, `mount` or `bpf`, kills the process
(seccomp). `--unconfined` switches this off. Threads share their memory: this is a second line of
defence, not a wall. The process does not change its user, and there are no Landlock rules yet. The
systemd unit in `packaging/` limits capabilities and files further.
''')])
sub('docs/how-to/operate-a-router.md',[('''## Before a change
''','''## Privileges

Once its ports are open, a router gives up its privileges ([security](../security.md)). So a reload
reads files as their owner would: `root` without `CAP_DAC_OVERRIDE` cannot read the private files of
other users. An algorithm in Python that starts programs ends the router; use `--unconfined` for it.

## Before a change
''')])
sub('CHANGELOG.md',[('''- A flood cannot take all packet memory''','''- `sluice router` gives up its privileges after the start: all threads but one have no capability,
  `no_new_privs`, and a filter of system calls under which `execve` kills the process. `--unconfined`
  switches this off.
- A flood cannot take all packet memory''')])
