//! Gives up the privileges of threads that handle what strangers send.
//!
//! A router needs capabilities to open its ports, and again when an interface was deleted and created
//! again. After its start, one thread keeps some, the [broker](keep_broker): it executes the few
//! functions that must run in a network namespace ([`Namespace::enter`]). All other threads call
//! [`confine`]. Then they have no capability, can gain none, and a system call that only an attacker
//! would make (`execve`, `ptrace`, `mount`, `bpf`, ...) kills the process; so does the creation of a
//! namespace, in which a thread would have all capabilities. Where the kernel has Landlock, they cannot
//! open files, even those of their own user ([`Reach::Nothing`]). The broker opens the few that a router
//! needs later ([`privileged`]).
//!
//! The threads share their memory, so this does not stop an attacker who can execute any code in the
//! process and waits for the broker. It removes the simple ways: a shell, a module of the kernel, a
//! change of the machine's configuration. The loop of a router that decides over the kernel's own
//! packets keeps one capability ([`Keep::NetAdmin`]).
//!
//! [`Namespace::enter`]: crate::namespace::Namespace::enter

use std::collections::BTreeMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Mutex, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

use landlock::{
    ABI, Access as _, AccessFs, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, RulesetError,
    RulesetStatus, path_beneath_rules,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule,
};

use crate::sys;
pub use crate::user::{User, UserError, is_root};

/// The reasons why a thread cannot be confined.
#[derive(Debug, thiserror::Error)]
#[error("cannot give up privileges: {step}: {source}")]
pub struct ConfineError {
    step: &'static str,
    source: io::Error,
}

/// What a confined thread keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// No capability.
    Nothing,
    /// CAP_NET_ADMIN: the kernel wants it for each verdict on a packet of an NFQUEUE
    /// (net/netfilter/nfnetlink.c, `nfnetlink_rcv`).
    NetAdmin,
}

/// The files that a confined thread may open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Those of its user, as without confinement.
    Everything,
    /// None but public descriptions of the machine ([`PUBLIC`]), which it may read. Where the kernel
    /// has no Landlock, the thread may open everything.
    Nothing,
}

/// What a thread becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confinement {
    /// What it keeps.
    pub keep: Keep,
    /// The files that it may open.
    pub reach: Reach,
    /// The user that it becomes; `None` leaves it its own.
    pub user: Option<User>,
}

impl Confinement {
    /// No capability, no file, and the same user.
    pub const STRICT: Confinement = Confinement {
        keep: Keep::Nothing,
        reach: Reach::Nothing,
        user: None,
    };
}

/// What a thread has given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confined {
    /// What the thread keeps: [`Keep::Nothing`] as well if it lacked the capability before.
    pub kept: Keep,
    /// Whether the kernel enforces [`Reach::Nothing`].
    pub has_no_files: bool,
    /// Whether it has become another user.
    pub is_other_user: bool,
    /// Whether a thread with real-time priority can become an ordinary one and regain the priority.
    pub regains_priority: bool,
}

/// The thread that keeps the capabilities.
static BROKER: Mutex<Option<Broker>> = Mutex::new(None);

#[derive(Clone)]
struct Broker {
    thread: ThreadId,
    jobs: Sender<sys::Job>,
    /// The user that the other threads become.
    user: Option<User>,
}

/// Starts the thread that keeps the user of the calling thread, and those of its capabilities that the
/// broker's work needs, until the process ends. It can gain none, and is under the filter of system calls,
/// which leaves it `setns` and `bpf`; so are the threads that it starts. The threads that ports start later
/// become `user`. A second call does nothing.
///
/// # Errors
/// [`ConfineError`]: the thread cannot be started, or the kernel has no filters, for example.
pub fn keep_broker(user: Option<User>) -> Result<(), ConfineError> {
    let mut broker = BROKER.lock().unwrap_or_else(PoisonError::into_inner);
    if broker.is_some() {
        return Ok(());
    }
    let (jobs, waiting) = mpsc::channel::<sys::Job>();
    let (restricted, answer) = mpsc::sync_channel(1);
    let thread = std::thread::Builder::new()
        .name(BROKER_NAME.into())
        .spawn(move || {
            let result = restrict_broker();
            let is_restricted = result.is_ok();
            // The starting thread waits for this message.
            let _ = restricted.send(result);
            if is_restricted {
                waiting.into_iter().for_each(|job| job());
            }
        })
        .map_err(at("the start of the broker"))?;
    answer.recv().expect("the broker reports before it works")?;
    let thread = thread.thread().id();
    *broker = Some(Broker { thread, jobs, user });
    Ok(())
}

/// Takes from the calling thread, the broker, what none of its jobs needs.
fn restrict_broker() -> Result<(), ConfineError> {
    rustix::thread::set_no_new_privs(true).map_err(|error| at("no_new_privs")(error.into()))?;
    let held = rustix::thread::capabilities(None)
        .map_err(|error| at("reading the capabilities")(error.into()))?;
    let sets = CapabilitySets {
        effective: held.effective & BROKER_KEEPS,
        permitted: held.permitted & BROKER_KEEPS,
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, sets)
        .map_err(|error| at("dropping the capabilities")(error.into()))?;
    install_filters(BROKER_CALLS)
}

/// Runs `work` on the broker's thread, if there is one and it is not the calling thread. Panics are
/// passed on. Otherwise returns `None`; then `work` has not run.
pub(crate) fn by_broker<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    let broker = BROKER
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone()?;
    if broker.thread == std::thread::current().id() {
        return None;
    }
    let result = sys::run_elsewhere(
        || catch_unwind(AssertUnwindSafe(work)),
        |job| drop(broker.jobs.send(job)),
    );
    result.map(|result| result.unwrap_or_else(|panic| resume_unwind(panic)))
}

/// Lets the broker do a job and does not wait for it. Returns the job if there is no broker.
pub(crate) fn send_to_broker(job: sys::Job) -> Option<sys::Job> {
    let broker = BROKER.lock().unwrap_or_else(PoisonError::into_inner);
    match &*broker {
        Some(broker) => broker.jobs.send(job).err().map(|refused| refused.0),
        None => Some(job),
    }
}

/// Confines the calling thread if the others are confined, which a broker shows.
///
/// # Errors
/// [`ConfineError`].
pub(crate) fn confine_beside_broker() -> Result<(), ConfineError> {
    let broker = BROKER.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(Broker { user, .. }) = *broker else {
        return Ok(());
    };
    drop(broker);
    let confinement = Confinement {
        user,
        ..Confinement::STRICT
    };
    confine(confinement).map(drop)
}

/// Runs `work` with the privileges that the process had at its start: on the broker's thread, or on
/// the calling one if there is no broker. For files that the operator named, and nobody else.
pub fn privileged<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let mut work = Some(work);
    let done = by_broker(|| work.take().map(|work| work()));
    done.flatten().unwrap_or_else(|| {
        let work = work.take().expect("the broker has not run it");
        work()
    })
}

/// Like [`privileged`], for work that may take long, such as reading from a file system that does not
/// answer: it gets a thread of its own, and the broker stays free for other work. `late` is called if the
/// work takes longer than `patience`.
///
/// # Errors
/// The thread cannot be started.
pub fn privileged_apart<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
    patience: Duration,
    late: impl FnOnce(),
) -> io::Result<T> {
    let (sender, done) = mpsc::channel();
    let refused = sender.clone();
    let job = move || drop(sender.send(Ok(catch_unwind(AssertUnwindSafe(work)))));
    let spawn: sys::Job = Box::new(move || {
        if let Err(error) = std::thread::Builder::new().name("files".into()).spawn(job) {
            let _ = refused.send(Err(error));
        }
    });
    if let Some(spawn) = send_to_broker(spawn) {
        spawn();
    }
    let mut answer = done.recv_timeout(patience);
    if matches!(answer, Err(RecvTimeoutError::Timeout)) {
        late();
        answer = done.recv().map_err(RecvTimeoutError::from);
    }
    let done = answer.expect("the thread, or its absence, has an answer")?;
    Ok(done.unwrap_or_else(|panic| resume_unwind(panic)))
}

/// Takes capabilities, files and its user from the calling thread, and from the threads that it starts
/// later, and installs the filter of system calls.
///
/// # Errors
/// [`ConfineError`]: the kernel has no filters, for example. The thread may then be partly confined.
pub fn confine(confinement: Confinement) -> Result<Confined, ConfineError> {
    let Confinement { keep, reach, user } = confinement;
    // The loop's priority alternates, which would need CAP_SYS_NICE without this limit.
    let limit = getrlimit(Resource::Rtprio);
    let mut regains_priority = limit.current.is_none_or(|limit| limit >= LOOP_PRIORITY);
    if !regains_priority {
        let raised = Rlimit {
            current: Some(LOOP_PRIORITY),
            maximum: Some(limit.maximum.unwrap_or(LOOP_PRIORITY).max(LOOP_PRIORITY)),
        };
        // This needs CAP_SYS_RESOURCE, which containers may lack although they have CAP_SYS_NICE.
        regains_priority = setrlimit(Resource::Rtprio, raised).is_ok();
    }
    rustix::thread::set_no_new_privs(true).map_err(|error| at("no_new_privs")(error.into()))?;
    // Kernels before 4.3 have no ambient set.
    let _ = rustix::thread::clear_ambient_capability_set();
    let held = rustix::thread::capabilities(None)
        .map_err(|error| at("reading the capabilities")(error.into()))?;
    let kept = match keep {
        Keep::Nothing => CapabilitySet::empty(),
        Keep::NetAdmin => held.effective & CapabilitySet::NET_ADMIN,
    };
    if let Some(user) = user {
        user.take_over().map_err(at("becoming another user"))?;
    }
    let sets = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, sets)
        .map_err(|error| at("dropping the capabilities")(error.into()))?;
    let has_no_files = match reach {
        Reach::Everything => false,
        Reach::Nothing => restrict_files()
            .map_err(|error| at("the restriction of files")(io::Error::other(error)))?,
    };
    install_filters(&[])?;
    Ok(Confined {
        kept: match kept.is_empty() {
            true => Keep::Nothing,
            false => keep,
        },
        has_no_files,
        is_other_user: user.is_some(),
        regains_priority,
    })
}

/// Restricts the calling thread to [`PUBLIC`]. Returns whether the kernel does that.
fn restrict_files() -> Result<bool, RulesetError> {
    let newest = ABI::V5;
    let rules = path_beneath_rules(PUBLIC, AccessFs::from_read(ABI::V1));
    let status = Ruleset::default()
        .handle_access(AccessFs::from_all(newest))?
        .create()?
        .add_rules(rules)?
        .restrict_self()?;
    // An old kernel lacks some kinds of access (truncating, device calls) to files that are open.
    Ok(status.ruleset != RulesetStatus::NotEnforced)
}

/// Installs the filters of system calls, which allow the calling thread those in `allowed`.
fn install_filters(allowed: &[i64]) -> Result<(), ConfineError> {
    let programs = filters(allowed).map_err(io::Error::other);
    programs
        .and_then(|programs| {
            let mut programs = programs.iter();
            programs.try_for_each(|one| seccompiler::apply_filter(one).map_err(io::Error::other))
        })
        .map_err(at("a filter of system calls"))
}

/// Returns two filters, each with one action, which allow all other system calls:
///
/// - The first kills the process for every call in [`FORBIDDEN`] that is not in `allowed`, and for a `clone`
///   into a new namespace.
/// - In the second, there is no `clone3`, whose flags are in memory, which a filter cannot read. The C
///   library then starts threads by `clone`.
fn filters(allowed: &[i64]) -> Result<[BpfProgram; 2], BackendError> {
    let interfaces: &[i64] = match cfg!(target_arch = "x86_64") {
        // The same calls of the x32 interface, which has its own numbers for some.
        true => &[0, X32_BIT],
        false => &[0],
    };
    let (mut killed, mut absent) = (BTreeMap::new(), BTreeMap::new());
    for interface in interfaces {
        let forbidden = FORBIDDEN.iter().filter(|call| !allowed.contains(call));
        killed.extend(forbidden.map(|call| (call | interface, Vec::new())));
        killed.insert(libc::SYS_clone | interface, into_namespaces()?);
        absent.insert(libc::SYS_clone3 | interface, Vec::new());
    }
    if cfg!(target_arch = "x86_64") {
        killed.extend(X32_EXEC.map(|call| (call | X32_BIT, Vec::new())));
    }
    Ok([
        compiled(killed, SeccompAction::KillProcess)?,
        compiled(absent, SeccompAction::Errno(libc::ENOSYS as u32))?,
    ])
}

/// Returns the rules for a `clone` with any of [`NAMESPACES`] among its flags, the first argument.
fn into_namespaces() -> Result<Vec<SeccompRule>, BackendError> {
    let rule = |flag: &i32| {
        let flag = u64::from(flag.cast_unsigned());
        let is_set = SeccompCmpOp::MaskedEq(flag);
        let condition = SeccompCondition::new(0, SeccompCmpArgLen::Dword, is_set, flag)?;
        SeccompRule::new(vec![condition])
    };
    NAMESPACES.iter().map(rule).collect()
}

/// Compiles a filter with one action for some calls, which allows all others.
fn compiled(
    calls: BTreeMap<i64, Vec<SeccompRule>>,
    action: SeccompAction,
) -> Result<BpfProgram, BackendError> {
    let arch = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(calls, SeccompAction::Allow, action, arch)?.try_into()
}

fn at(step: &'static str) -> impl FnOnce(io::Error) -> ConfineError {
    move |source| ConfineError { step, source }
}

/// What confined threads may read: the state of the kernel, and time zones. Paths that do not exist are
/// ignored.
pub const PUBLIC: &[&str] = &["/proc", "/sys", "/etc/localtime", "/usr/share/zoneinfo"];
/// The name of the broker's thread, as `ps -L` shows it.
pub const BROKER_NAME: &str = "broker";
/// The real-time priority of a router's loop.
const LOOP_PRIORITY: u64 = 1;
/// Calls that a confined thread never makes.
const FORBIDDEN: &[i64] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_pidfd_getfd,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    OPEN_TREE_ATTR,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_open_by_handle_at,
    libc::SYS_io_uring_setup,
];
/// Those that the broker makes: it enters network namespaces, and loads the program of an AF_XDP port.
const BROKER_CALLS: &[i64] = &[libc::SYS_setns, libc::SYS_bpf];
/// The capabilities that the broker's jobs need (capabilities(7)):
///
/// - for network namespaces and interfaces: CAP_SYS_ADMIN, CAP_NET_ADMIN, CAP_NET_RAW;
/// - for AF_XDP: CAP_BPF, CAP_PERFMON, and CAP_IPC_LOCK for the memory of packets;
/// - for files and sockets that the operator named, of any owner, even where only root has space left:
///   CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER, CAP_MAC_OVERRIDE, CAP_SYS_RESOURCE.
const BROKER_KEEPS: CapabilitySet = CapabilitySet::SYS_ADMIN
    .union(CapabilitySet::NET_ADMIN)
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::BPF)
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::IPC_LOCK)
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::MAC_OVERRIDE)
    .union(CapabilitySet::SYS_RESOURCE);
/// `open_tree_attr` of Linux 6.15, the same number on all architectures of the filters (syscall_64.tbl,
/// scripts/syscall.tbl).
const OPEN_TREE_ATTR: i64 = 467;
/// The flags of `clone` that create a namespace. A namespace of times is created by `clone3` and `unshare`
/// only.
const NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];
/// arch/x86/entry/syscalls/syscall_64.tbl: the bit of x32 calls, and its own `execve`, `ptrace`,
/// `process_vm_readv`, `process_vm_writev` and `execveat`.
const X32_BIT: i64 = 0x4000_0000;
const X32_EXEC: [i64; 5] = [520, 521, 539, 540, 545];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_takes_long_is_reported_and_waited_for() {
        let (said, hears) = mpsc::channel();
        // The work ends when it has been reported.
        let work = move || hears.recv().is_ok();
        let done = privileged_apart(work, Duration::from_millis(1), || said.send(()).unwrap());
        assert!(done.unwrap());
        let hour = Duration::from_secs(3600);
        let done = privileged_apart(|| 7, hour, || panic!("it takes no hour"));
        assert_eq!(done.unwrap(), 7);
    }
}
