//! What a service manager learns from a router: start, reload, signs of life, end.

use super::*;
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::SocketAddr;
use std::thread;

/// What a service manager receives.
struct Manager {
    socket: UnixDatagram,
    _folder: tempfile::TempDir,
    path: String,
}

impl Manager {
    fn new() -> Manager {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify").to_str().unwrap().to_owned();
        let socket = UnixDatagram::bind(&path).unwrap();
        Manager {
            socket,
            _folder: folder,
            path,
        }
    }

    /// Returns the next message other than a watchdog message, or `None` after `patience`; and the
    /// number of watchdog messages before it.
    fn next(&self, patience: Duration) -> (Option<String>, u32) {
        let (end, mut alive) = (Instant::now() + patience, 0);
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let wait = left.max(Duration::from_millis(1));
            self.socket.set_read_timeout(Some(wait)).unwrap();
            let mut message = [0; 256];
            match self.socket.recv(&mut message) {
                Ok(n) if &message[..n] == b"WATCHDOG=1\n" => alive += 1,
                Ok(n) => return (Some(text(&message[..n])), alive),
                Err(_) => return (None, alive),
            }
            if left.is_zero() {
                return (None, alive);
            }
        }
    }

    fn expect(&self, beginning: &str) {
        let (message, _) = self.next(Duration::from_secs(30));
        let message = message.unwrap_or_else(|| panic!("no {beginning}"));
        assert!(message.starts_with(beginning), "{message}");
    }
}

#[test]
fn a_service_manager_learns_of_start_reload_life_and_end() {
    let manager = Manager::new();
    let environment = [
        ("NOTIFY_SOCKET", &*manager.path),
        ("WATCHDOG_USEC", "600000"),
    ];
    let running = Running::start_in(Some("pipe 1 config bw 1Mbit/s\n"), &[], &environment);
    manager.expect("READY=1");
    // Watchdog messages arrive every 0.2 s, on a busy machine later.
    let (message, alive) = manager.next(Duration::from_secs(3));
    assert_eq!(message, None);
    assert!(alive >= 3, "{alive}");
    running.signal(Signal::HUP);
    manager.expect("RELOADING=1\nMONOTONIC_USEC=");
    manager.expect("READY=1");
    running.signal(Signal::TERM);
    manager.expect("STOPPING=1");
    running.end();
}

#[test]
fn a_loop_that_hangs_gives_no_sign_of_life_and_a_signal_ends_the_process() {
    let manager = Manager::new();
    let environment = [
        ("NOTIFY_SOCKET", &*manager.path),
        ("WATCHDOG_USEC", "600000"),
    ];
    let mut running = Running::start_in(None, &["--accept"], &environment);
    manager.expect("READY=1");
    let held = Held::hold(running.child.as_ref().unwrap().id(), "router");
    // The loop may have turned for one more sign, which is sent at the next look.
    manager.next(Duration::from_secs(1));
    let (message, alive) = manager.next(Duration::from_secs(2));
    assert_eq!((message, alive), (None, 0));
    let start = Instant::now();
    running.signal(Signal::TERM);
    manager.expect("STOPPING=1");
    held.until_it_ends();
    let status = running.child.take().unwrap().wait().unwrap();
    let took = start.elapsed();
    assert_eq!(status.code(), Some(70));
    assert!(took < Duration::from_secs(5), "{took:?}");
    running.hear("sluice: the router did not end in 4.2s");
}

/// As one that is stopped, and whose socket is full.
#[test]
fn a_service_manager_that_reads_nothing_does_not_keep_the_router_from_its_end() {
    let manager = Manager::new();
    let environment = [
        ("NOTIFY_SOCKET", &*manager.path),
        ("WATCHDOG_USEC", "600000"),
    ];
    let running = Running::start_in(
        Some("add 100 allow ip from any to any\n"),
        &[],
        &environment,
    );
    manager.expect("READY=1");
    let other = UnixDatagram::unbound().unwrap();
    other.set_nonblocking(true).unwrap();
    while other.send_to(b"STATUS=full\n", &manager.path).is_ok() {}
    // Five signs of life are due meanwhile.
    thread::sleep(Duration::from_secs(1));
    running.signal(Signal::HUP);
    let start = Instant::now();
    running.end();
    let took = start.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
}

/// As in some containers.
#[test]
fn the_socket_of_a_service_manager_may_be_abstract() {
    let name = format!("sluice-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let mut manager = Manager::new();
    manager.socket = UnixDatagram::bind_addr(&address).unwrap();
    let named = format!("@{name}");
    let running = Running::start_in(None, &["--accept"], &[("NOTIFY_SOCKET", &*named)]);
    manager.expect("READY=1");
    running.signal(Signal::TERM);
    manager.expect("STOPPING=1");
    running.end();
}

#[test]
fn a_loop_that_hangs_ends_the_process_without_a_service_manager() {
    let mut running = Running::start(None, &["--accept"]);
    let held = Held::hold(running.child.as_ref().unwrap().id(), "router");
    let start = Instant::now();
    held.until_it_ends();
    let status = running.child.take().unwrap().wait().unwrap();
    let took = start.elapsed();
    assert_eq!(status.code(), Some(70));
    // 100 checks every 0.1 s, up to 10 before them, and 0.2 s for the line. On a busy machine, checks are late.
    let expected = Duration::from_secs(9)..Duration::from_secs(20);
    assert!(expected.contains(&took), "{took:?}");
    running.hear("sluice: the packet loop has hung for 10 s; the process is ended");
}

/// As by a terminal's Ctrl-Z, or while the machine sleeps.
#[test]
fn a_process_that_was_stopped_for_longer_goes_on() {
    let running = Running::start(None, &["--accept"]);
    running.signal(Signal::STOP);
    thread::sleep(Duration::from_secs(12));
    running.signal(Signal::CONT);
    // Several checks, and the 0.2 s that an end would take.
    thread::sleep(Duration::from_secs(1));
    assert_eq!(running.ok("list"), "65535 allow ip from any to any\n");
    running.end();
}

/// Other orders wait for its end, and packets are forwarded between its pieces.
#[test]
fn a_router_gives_signs_of_life_while_it_executes_a_long_batch() {
    let manager = Manager::new();
    let environment = [
        ("NOTIFY_SOCKET", &*manager.path),
        ("WATCHDOG_USEC", "300000"),
    ];
    let running = Running::start_in(None, &["--accept"], &environment);
    manager.expect("READY=1");
    let path = running.path("batch");
    // With line feeds as `\n` in JSON, 7.8 MB: a request may have 8 MiB.
    fs::write(&path, "pipe 1 config bw 1Mbit/s\n".repeat(300_000)).unwrap();
    let (took, alive) = thread::scope(|scope| {
        let start = Instant::now();
        let batch = scope.spawn(|| running.ok(path.to_str().unwrap()));
        let mut alive = 0;
        while !batch.is_finished() {
            let (message, more) = manager.next(Duration::from_millis(20));
            assert_eq!(message, None);
            alive += more;
        }
        batch.join().unwrap();
        (start.elapsed(), alive)
    });
    // With fewer, there is a gap of more than 0.3 s, at which the manager would end the router.
    assert!(
        u128::from(alive) >= took.as_millis() / 300,
        "{alive} signs in {took:?}"
    );
    running.end();
}

/// A thread that is stopped, while the others of its process go on.
pub(super) struct Held(Pid);

impl Held {
    /// Stops the thread with a name, as a debugger does.
    pub(super) fn hold(process: u32, name: &str) -> Held {
        let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
        let is_named = |path: &PathBuf| {
            fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim_end() == name)
        };
        let path = tasks.map(|task| task.unwrap().path()).find(is_named);
        let number = path.unwrap().file_name().unwrap().to_str().unwrap().parse();
        let thread = Pid::from_raw(number.unwrap());
        ptrace::seize(thread, ptrace::Options::empty()).unwrap();
        ptrace::interrupt(thread).unwrap();
        waitpid(thread, Some(WaitPidFlag::__WALL)).unwrap();
        Held(thread)
    }

    /// Waits for the end of the thread, which a debugger must do before the process can be waited for.
    fn until_it_ends(self) {
        let end = waitpid(self.0, Some(WaitPidFlag::__WALL));
        assert!(matches!(end, Ok(WaitStatus::Exited(_, 70))), "{end:?}");
    }
}

impl Drop for Held {
    /// Lets the thread continue, if it has not ended.
    fn drop(&mut self) {
        let _ = ptrace::detach(self.0, None);
    }
}

/// Messages that nobody can read, of all kinds, end nothing.
#[test]
fn a_router_outlives_the_reader_of_its_messages() {
    let mut running = Running::start(
        Some("add 100 allow log ip from any to any\n"),
        &["--accept"],
    );
    // Instead of the reader, which is closed.
    let mut other = Command::new("true").stderr(Stdio::piped()).spawn().unwrap();
    running.stderr = BufReader::new(other.stderr.take().unwrap());
    other.wait().unwrap();
    let (here, there) = running.sender(&["em0", "far0", "em1", "far1"]);
    let send = move || UdpSocket::bind((here, 1000))?.send_to(&[0; 100], (there, 9));
    for number in 0..3 {
        running.namespace.enter(send).unwrap().unwrap();
        running.ok(&format!("pipe 1 config bw {}Mbit/s", number + 1));
        running.signal(Signal::HUP);
    }
    let status = running.end();
    let received = status["ports"][0]["received"].as_u64();
    assert!(received >= Some(3), "{status}");
}

/// A configuration whose reader has to wait, as on a file system that does not answer.
#[test]
fn a_router_ends_while_a_reload_waits_for_its_file() {
    let mut running = Running::start(Some("pipe 1 config bw 1Mbit/s\n"), &[]);
    let path = running.path("r.conf");
    fs::remove_file(&path).unwrap();
    let made = Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    running.signal(Signal::HUP);
    running.signal(Signal::TERM);
    running.hear("sluice: warning: the router ends while its configuration is being read");
    let child = running.child.take().unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let status: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(status["ports"].is_array(), "{status}");
}

/// As with a terminal that was stopped by Ctrl-S: the messages fill the pipe.
#[test]
fn a_router_ends_although_nobody_reads_its_messages() {
    let running = Running::start(None, &["--accept"]);
    rustix::pipe::fcntl_setpipe_size(running.stderr.get_ref(), 4096).unwrap();
    for number in 1..=200 {
        running.ok(&format!("pipe 1 config bw {number}Kbit/s"));
        // The changes of a tenth of a second are printed together.
        if number % 50 == 0 {
            std::thread::sleep(Duration::from_millis(150));
        }
    }
    running.end();
}
