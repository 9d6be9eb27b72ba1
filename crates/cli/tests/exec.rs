//! `sluice exec` with real programs, on a machine that the tests create: a namespace with a veth
//! pair to a second namespace, in which servers listen.
//!
//! These tests need root. Tests about ordinary users drop the privileges (`make test-live`).

#[path = "exec/attach.rs"]
mod attach;
#[path = "exec/bulk.rs"]
mod bulk;
#[path = "exec/ended.rs"]
mod ended;
#[path = "exec/flood.rs"]
mod flood;
#[path = "exec/left.rs"]
mod left;
#[path = "exec/names.rs"]
mod names;
#[path = "exec/order.rs"]
mod order;
#[path = "exec/pipes.rs"]
mod pipes;
#[path = "exec/quiet.rs"]
mod quiet;
#[path = "exec/recorded.rs"]
mod recorded;
#[path = "exec/refused.rs"]
mod refused;
#[path = "exec/terminal.rs"]
mod terminal;
#[path = "exec/watched.rs"]
mod watched;

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use sluice_net::namespace::{Mac, Namespace, VethEnd, create_veth};
use sluice_recording::Recording;

/// A machine, and the Internet outside of it.
struct World {
    machine: Namespace,
    internet: Namespace,
}

const MACHINE: [&str; 2] = ["198.51.100.1", "2001:db8::1"];
const SERVER: [&str; 2] = ["198.51.100.7", "2001:db8::7"];

impl World {
    fn new() -> World {
        let world = World {
            machine: Namespace::create("machine").unwrap(),
            internet: Namespace::create("internet").unwrap(),
        };
        let end = |namespace, number| VethEnd {
            namespace,
            name: "out",
            mac: Mac([2, 0, 0, 0, 1, number]),
        };
        create_veth(end(&world.machine, 1), end(&world.internet, 7)).unwrap();
        for (namespace, addresses) in [(&world.machine, MACHINE), (&world.internet, SERVER)] {
            let mut links = namespace.links().unwrap();
            links.set_up("lo", true).unwrap();
            links.set_up("out", true).unwrap();
            for (address, bits) in addresses.iter().zip([24, 64]) {
                let address = address.parse().unwrap();
                links.add_address("out", address, bits).unwrap();
            }
        }
        world
    }

    /// Serves connections to `port` of both addresses outside, each on a thread.
    fn serve(&self, port: u16, serve: fn(TcpStream)) {
        for address in SERVER {
            let address = SocketAddr::new(address.parse().unwrap(), port);
            let listener = self.internet.enter(|| TcpListener::bind(address)).unwrap();
            accept(listener.unwrap(), serve);
        }
    }

    fn exec(&self, options: &[&str], program: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
        command.arg("exec").args(options).arg("--").args(program);
        command
    }

    fn start(&self, command: &mut Command) -> Child {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        self.machine.enter(|| command.spawn()).unwrap().unwrap()
    }

    fn run(&self, options: &[&str], program: &[&str]) -> Output {
        let child = self.start(&mut self.exec(options, program));
        child.wait_with_output().unwrap()
    }

    /// Runs a bash script, whose client is /dev/tcp and /dev/udp.
    fn bash(&self, options: &[&str], script: &str) -> Output {
        self.run(options, &["timeout", "20", "bash", "-c", script])
    }
}

fn accept(listener: TcpListener, serve: fn(TcpStream)) {
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || serve(stream));
        }
    });
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn greet(mut stream: TcpStream) {
    let _ = stream.write_all(b"hello\n");
}

/// Reads to the end. The client must be able to end its direction while it still reads.
fn count(mut stream: TcpStream) {
    let mut bytes = Vec::new();
    let read = stream.read_to_end(&mut bytes);
    let _ = writeln!(stream, "{:?} {}", read.is_ok(), bytes.len());
}

/// Closes without reading, which resets the connection (tcp(7)).
fn reset(mut stream: TcpStream) {
    let _ = stream.read(&mut [0]);
    sleep(Duration::from_millis(50));
}

fn send_much(mut stream: TcpStream) {
    let _ = stream.write_all(&vec![b'x'; MUCH]);
    let _ = stream.shutdown(Shutdown::Write);
}

const MUCH: usize = 2_500_000;

#[test]
fn both_versions_reach_the_outside() {
    let world = World::new();
    world.serve(80, greet);
    for address in SERVER {
        let output = world.bash(&["--rtt", "10ms"], &format!("cat </dev/tcp/{address}/80"));
        assert_eq!(stdout(&output), "hello\n", "{}", stderr(&output));
    }
}

#[test]
fn refusals_look_as_they_do_outside() {
    let world = World::new();
    for (address, error) in [
        (SERVER[0], "Connection refused"),
        (SERVER[1], "Connection refused"),
        // No route: the machine has no default route.
        ("203.0.113.1", "Network is unreachable"),
        // The kernel gives up on a neighbour after 3 s.
        ("198.51.100.99", "No route to host"),
        ("127.0.0.1", "Connection refused"),
    ] {
        let output = world.bash(&[], &format!("cat </dev/tcp/{address}/99"));
        let text = stderr(&output);
        assert!(text.contains(error), "{address}: {text}");
    }
}

#[test]
fn a_refusal_takes_the_link_s_round_trip() {
    let world = World::new();
    let script = format!(
        "date +%s%N; (exec 3</dev/tcp/{}/99) 2>/dev/null; date +%s%N",
        SERVER[0]
    );
    let output = world.bash(&["--rtt", "300ms"], &script);
    let text = stdout(&output);
    let instants: Vec<u64> = text.lines().map(|line| line.parse().unwrap()).collect();
    let took = Duration::from_nanos(instants[1] - instants[0]);
    assert!(took >= Duration::from_millis(300), "{took:?}");
}

#[test]
fn half_closed_and_reset_connections_are_passed_on() {
    let world = World::new();
    world.serve(80, count);
    world.serve(81, reset);
    let output = world.run(&["--rtt", "20ms"], &own("half_close"));
    assert!(
        stdout(&output).contains("true 100000"),
        "{}",
        stderr(&output)
    );
    let script = format!(
        "exec 3<>/dev/tcp/{}/81; echo more than one byte >&3; cat <&3",
        SERVER[0]
    );
    let output = world.bash(&["--rtt", "20ms"], &script);
    let text = stderr(&output);
    assert!(text.contains("Connection reset by peer"), "{text}");
}

/// Returns the words that run a client of this file.
fn own(name: &'static str) -> [&'static str; 5] {
    let exe = std::env::current_exe().unwrap();
    let exe: &'static str = exe.display().to_string().leak();
    [exe, "--exact", name, "--ignored", "--nocapture"]
}

/// A client, not a test.
#[test]
#[ignore = "a client that other tests run"]
fn half_close() {
    let mut stream = TcpStream::connect((SERVER[0], 80)).unwrap();
    stream.write_all(&[b'a'; 100_000]).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    println!("{answer}");
}

#[test]
fn the_exit_status_is_that_of_a_shell() {
    let world = World::new();
    for (program, status) in [
        (&["sh", "-c", "exit 7"][..], 7),
        (&["sh", "-c", "kill -9 $$"], 128 + 9),
        (&["no-such-program"], 127),
        (&["/etc/passwd"], 126),
    ] {
        let output = world.run(&[], program);
        assert_eq!(output.status.code(), Some(status), "{program:?}");
    }
    let output = world.run(&["--queue", "fq_codle"], &["true"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).contains("did you mean `fq_codel`?"));
}

#[test]
fn an_ordinary_user_keeps_the_user_and_has_no_capability() {
    let world = World::new();
    world.serve(80, greet);
    // The user may have no access to the binary's folder, so the program is copied.
    let folder = tempfile::tempdir().unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).unwrap();
    let copy = folder.path().join("sluice");
    std::fs::copy(env!("CARGO_BIN_EXE_sluice"), &copy).unwrap();
    let script = format!(
        "id -u; id -g; pwd; echo $MARK; grep Cap /proc/self/status; cat </dev/tcp/{}/80",
        SERVER[0]
    );
    for user in [0, 1000] {
        let mut command = Command::new(&copy);
        command.args(["exec", "--", "timeout", "20", "bash", "-c", &script]);
        command
            .uid(user)
            .gid(user)
            .current_dir("/usr")
            .env("MARK", "kept");
        let output = world.start(&mut command).wait_with_output().unwrap();
        let text = stdout(&output);
        let lines: Vec<&str> = text.lines().collect();
        let id = user.to_string();
        assert_eq!(
            lines[..4],
            [&id, &id, "/usr", "kept"],
            "{}",
            stderr(&output)
        );
        for line in &lines[4..9] {
            let set = line.split_whitespace().last().unwrap();
            // Files may give CAP_NET_RAW (bit 13) to their programs; none has it by itself.
            let is_bounding = line.starts_with("CapBnd");
            let expected = if is_bounding { 1 << 13 } else { 0 };
            assert_eq!(u64::from_str_radix(set, 16), Ok(expected), "{line}");
        }
        assert_eq!(lines[9], "hello");
    }
}

#[test]
fn datagrams_are_relayed_and_closed_ports_reported() {
    let world = World::new();
    let address = (SERVER[0], 5000);
    let socket = world.internet.enter(|| UdpSocket::bind(address)).unwrap();
    let socket = socket.unwrap();
    std::thread::spawn(move || {
        let mut bytes = [0; 65_536];
        while let Ok((length, from)) = socket.recv_from(&mut bytes) {
            let _ = socket.send_to(&bytes[..length], from);
        }
    });
    let output = world.run(&["--rtt", "20ms"], &own("datagrams"));
    assert!(
        output.status.success(),
        "{}{}",
        stdout(&output),
        stderr(&output)
    );
}

#[test]
#[ignore = "a client that other tests run"]
fn datagrams() {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    let mut bytes = [0; 65_536];
    // The second datagram is fragmented on its path.
    for length in [100, 20_000] {
        socket.send_to(&vec![7; length], (SERVER[0], 5000)).unwrap();
        let (count, from) = socket.recv_from(&mut bytes).unwrap();
        assert_eq!((count, from.port()), (length, 5000));
    }
    socket.connect((SERVER[0], 5001)).unwrap();
    socket.send(b"nobody").unwrap();
    let error = socket.recv(&mut bytes).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
}

#[test]
fn datagrams_reach_a_service_at_either_loopback_address() {
    let world = World::new();
    for (port, address) in [(4000, "127.0.0.1:4000"), (4001, "[::1]:4001")] {
        let socket = world.machine.enter(|| UdpSocket::bind(address));
        let socket = socket.unwrap().unwrap();
        std::thread::spawn(move || {
            let mut bytes = [0; 100];
            while let Ok((length, from)) = socket.recv_from(&mut bytes) {
                let _ = socket.send_to(&bytes[..length], from);
            }
        });
        // 192.0.0.3 is the IPv4 address of host.sluice.
        let script =
            format!("exec 3<>/dev/udp/192.0.0.3/{port}; echo hello >&3; timeout 10 head -c 6 <&3");
        let output = world.bash(&[], &script);
        assert_eq!(stdout(&output), "hello\n", "{address}: {}", stderr(&output));
    }
}

#[test]
fn the_machine_s_loopback_is_a_host_of_its_own() {
    let world = World::new();
    let listener = world
        .machine
        .enter(|| TcpListener::bind("127.0.0.1:4000"))
        .unwrap();
    accept(listener.unwrap(), greet);
    let output = world.bash(&[], "cat </dev/tcp/host.sluice/4000");
    assert_eq!(stdout(&output), "hello\n", "{}", stderr(&output));
    let output = world.bash(&["--no-host"], "cat </dev/tcp/192.0.0.3/4000");
    assert!(
        stderr(&output).contains("No route to host"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_server_beside_the_program_is_across_the_link() {
    let world = World::new();
    let [exe, rest @ ..] = own("server");
    let server = format!("exec {exe} {}", rest.join(" "));
    let output = world.bash(&["--server", &server], "cat </dev/tcp/server.sluice/80");
    assert!(stdout(&output).contains("hello\n"), "{}", stderr(&output));
    let output = world.bash(&["--server", "exit 1"], "true");
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).contains("ended before it listened"));
}

#[test]
fn the_server_leaves_the_input_to_the_program() {
    let world = World::new();
    let folder = tempfile::tempdir().unwrap();
    let taken = folder.path().join("taken");
    let server = format!("cat >{}; exec {}", taken.display(), own("server").join(" "));
    let mut command = world.exec(&["--server", &server], &["cat"]);
    let mut child = world.start(command.stdin(Stdio::piped()));
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"one\ntwo\n").unwrap();
    drop(input);
    let output = child.wait_with_output().unwrap();
    assert_eq!(std::fs::read_to_string(&taken).unwrap(), "");
    let text = stdout(&output);
    assert!(text.contains("one\ntwo\n"), "{text}{}", stderr(&output));
}

#[test]
fn a_server_that_takes_its_time_is_named_while_the_run_waits() {
    let world = World::new();
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("mark");
    let [exe, rest @ ..] = own("server");
    let server = format!(
        "until [ -e {} ]; do sleep 0.1; done; exec {exe} {}",
        mark.display(),
        rest.join(" ")
    );
    let program = ["timeout", "20", "cat", "/dev/null"];
    let mut child = world.start(&mut world.exec(&["--server", &server], &program));
    // The server listens only when the sentence has appeared.
    let mut said = String::new();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    stderr.read_line(&mut said).unwrap();
    let expected = "sluice: waiting until the server listens on a port, for up to 30 s: until [";
    assert!(said.starts_with(expected), "{said}");
    std::fs::write(&mark, "").unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_signal_ends_the_wait_for_the_server_and_starts_no_program() {
    let world = World::new();
    let folder = tempfile::tempdir().unwrap();
    let [asked, started] = ["asked", "started"].map(|name| folder.path().join(name));
    // A server that never listens, and is asked to end as well.
    let server = format!(
        "trap 'touch {}; exit' TERM; while :; do sleep 0.1; done",
        asked.display()
    );
    let program = ["touch", started.to_str().unwrap()];
    let mut child = world.start(&mut world.exec(&["--server", &server], &program));
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    stderr.read_line(&mut said).unwrap();
    assert!(said.starts_with("sluice: waiting until"), "{said}");
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    stderr.read_to_string(&mut said).unwrap();
    let expected = "SIGTERM while waiting until the server listens: trap";
    assert!(said.contains(expected), "{said}");
    assert_eq!(child.wait().unwrap().code(), Some(128 + 15));
    assert!(asked.exists() && !started.exists());
}

#[test]
fn a_server_is_asked_to_end_before_it_is_killed() {
    let world = World::new();
    let note = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("server-ended");
    let [exe, rest @ ..] = own("server");
    let server = format!(
        "trap 'echo in order > {}; exit' TERM; {exe} {} & wait",
        note.display(),
        rest.join(" ")
    );
    // The shell itself, and a program that the shell has started.
    for server in [server.clone(), format!("bash -c \"{server}\"; true")] {
        let _ = std::fs::remove_file(&note);
        let output = world.bash(&["--server", &server], "exit 3");
        assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
        assert_eq!(std::fs::read_to_string(&note).unwrap(), "in order\n");
    }
}

#[test]
#[ignore = "a server that other tests run"]
fn server() {
    let listener = TcpListener::bind("0.0.0.0:80").unwrap();
    greet(listener.accept().unwrap().0);
    sleep(Duration::from_secs(60));
}

#[test]
fn a_forwarded_port_reaches_the_program_across_the_link() {
    let world = World::new();
    let folder = tempfile::tempdir().unwrap();
    let report = format!("--report={}", folder.path().join("run").display());
    // A port that is given twice is forwarded once.
    let options = ["--forward=80", "--forward=80", "--rtt=100ms", &report];
    let mut command = world.exec(&options, &own("server"));
    let mut child = world.start(&mut command);
    let deadline = Instant::now() + Duration::from_secs(20);
    let answer = world.machine.enter(|| {
        loop {
            let mut answer = String::new();
            let start = Instant::now();
            let read = TcpStream::connect("127.0.0.1:80")
                .and_then(|mut stream| stream.read_to_string(&mut answer));
            if read.is_ok() && !answer.is_empty() {
                return (answer, start.elapsed());
            }
            assert!(Instant::now() < deadline, "{read:?}");
            sleep(Duration::from_millis(20));
        }
    });
    let (answer, took) = answer.unwrap();
    assert_eq!(answer, "hello\n");
    // The handshake and the answer cross the link: at least one round trip.
    assert!(took >= Duration::from_millis(100), "{took:?}");
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(128 + 15));
    let recording = Recording::open(&folder.path().join("run")).unwrap();
    let flows = &recording.run().flows;
    let is_named = flows
        .iter()
        .all(|flow| flow.name.starts_with("localhost:80"));
    assert!(!flows.is_empty() && is_named, "{flows:?}");
}

#[test]
fn names_are_asked_of_a_resolver_on_the_machine_s_loopback() {
    let world = World::new();
    let socket = world.machine.enter(|| UdpSocket::bind("127.0.0.53:53"));
    let socket = socket.unwrap().unwrap();
    std::thread::spawn(move || {
        let mut query = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut query) {
            let _ = socket.send_to(&answer(&query[..length]), from);
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("resolv.conf");
    std::fs::write(&file, "nameserver 127.0.0.53\n").unwrap();
    // The command sees a different file in its mount namespace.
    let script = format!(
        "mount --bind {} /etc/resolv.conf && exec {} exec --rtt 20ms -- getent ahostsv4 name.test",
        file.display(),
        env!("CARGO_BIN_EXE_sluice")
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script]);
    let output = world.start(&mut command).wait_with_output().unwrap();
    assert!(
        stdout(&output).contains("198.51.100.53"),
        "{}{}",
        stdout(&output),
        stderr(&output)
    );
}

/// Returns the answer to a question (RFC 1035 section 4.1): one address, or none for types other
/// than A.
fn answer(query: &[u8]) -> Vec<u8> {
    // The question is a name, which ends with a zero byte, and its type and class.
    let name_end = 12 + query[12..].iter().position(|byte| *byte == 0).unwrap() + 1;
    let question = &query[12..name_end + 4];
    let is_a = query[name_end..name_end + 2] == [0, 1];
    // A response, recursion desired and available; one question, no or one answer.
    let counts = [0x81, 0x80, 0, 1, 0, u8::from(is_a), 0, 0, 0, 0];
    let mut bytes = [&query[..2], &counts, question].concat();
    if is_a {
        // The name of the question, type A, class IN, 60 s, four bytes.
        bytes.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 198, 51, 100, 53]);
    }
    bytes
}

/// Returns the processes whose command line has the mark.
fn marked(mark: &str) -> Vec<PathBuf> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let is_marked = |path: &PathBuf| {
        let line = std::fs::read(path.join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(mark)
    };
    processes
        .map(|entry| entry.path())
        .filter(is_marked)
        .collect()
}

fn wait_for(what: &str, mut is_true: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_true() {
        assert!(Instant::now() < deadline, "{what}");
        sleep(Duration::from_millis(20));
    }
}

#[test]
fn kill_9_leaves_nothing_behind() {
    let world = World::new();
    let mark = format!("86{}", std::process::id());
    let script = format!("sleep {mark} & setsid sleep {mark} & sleep {mark}");
    let mut child = world.start(&mut world.exec(&[], &["sh", "-c", &script]));
    // Sluice, its guard, the shell and three sleeps.
    wait_for("the program starts", || marked(&mark).len() == 6);
    kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
    child.wait().unwrap();
    wait_for("everything ends", || marked(&mark).is_empty());
}

#[test]
fn what_the_program_leaves_ends_with_it() {
    let world = World::new();
    let mark = format!("87{}", std::process::id());
    let output = world.run(&[], &["sh", "-c", &format!("sleep {mark} & exit 3")]);
    assert_eq!(output.status.code(), Some(3));
    wait_for("everything ends", || marked(&mark).is_empty());
}

#[test]
fn the_last_bytes_arrive_although_the_program_has_ended() {
    static RECEIVED: OnceLock<usize> = OnceLock::new();
    let world = World::new();
    world.serve(80, |mut stream| {
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        let _ = RECEIVED.set(bytes.len());
    });
    // 100 kB at 1 Mbit/s take 0.8 s, and bash ends as soon as the kernel has them.
    let script = format!("head -c 100000 /dev/zero >/dev/tcp/{}/80", SERVER[0]);
    let output = world.bash(&["--rate", "1Mbit/s"], &script);
    assert!(output.status.success(), "{}", stderr(&output));
    wait_for("the server has everything", || RECEIVED.get().is_some());
    assert_eq!(RECEIVED.get(), Some(&100_000));
}

#[test]
fn the_last_datagram_arrives_although_the_program_has_ended() {
    let world = World::new();
    let socket = datagram_server(&world);
    let script = format!("echo last >/dev/udp/{}/5000", SERVER[0]);
    let output = world.bash(&["--delay", "300ms"], &script);
    assert!(output.status.success(), "{}", stderr(&output));
    let mut bytes = [0; 100];
    assert_eq!(socket.recv(&mut bytes).unwrap(), 5);
}

/// The server's socket, at port 5000.
fn datagram_server(world: &World) -> UdpSocket {
    let address = (SERVER[0], 5000);
    let socket = world.internet.enter(|| UdpSocket::bind(address)).unwrap();
    let socket = socket.unwrap();
    let patience = Some(Duration::from_secs(20));
    socket.set_read_timeout(patience).unwrap();
    socket
}

#[test]
fn late_packets_give_a_status_of_their_own() {
    let world = World::new();
    world.serve(80, greet);
    let script = format!("cat </dev/tcp/{}/80", SERVER[0]);
    // No packet leaves within 1 ns of its due time, and all of them within a minute.
    let output = world.bash(&["--max-late", "1ns"], &script);
    assert_eq!(output.status.code(), Some(75), "{}", stderr(&output));
    let output = world.bash(&["--max-late", "1min"], &script);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("0 later than"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn both_ends_use_the_congestion_control() {
    let world = World::new();
    let read = "cat /proc/sys/net/ipv4/tcp_congestion_control";
    let output = world.bash(&["--cc", "reno"], read);
    assert_eq!(stdout(&output), "reno\n", "{}", stderr(&output));
    let output = world.bash(&["--cc", "rino"], read);
    assert_eq!(output.status.code(), Some(125));
    let expected = "no congestion control `rino` (did you mean `reno`?); the kernel has ";
    assert!(stderr(&output).contains(expected), "{}", stderr(&output));
}
