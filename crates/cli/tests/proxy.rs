//! `sluice proxy` and `sluice exec --proxy`: words, messages, and programs.

mod documented;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use sluice_recording::{FlowSample, Recording, Status};

fn sluice(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    command.args(args).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn wrong_words_get_clear_messages() {
    let busy = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = busy.local_addr().unwrap().port().to_string();
    // A label has at most 63 characters (RFC 1035 section 2.3.4), so no resolver receives the
    // question.
    let unresolvable = format!("0:{}.invalid:1", "a".repeat(64));
    for (args, status, expected) in [
        (&["--listen", port.as_str()][..], 125, "in use"),
        (
            &["--link", "ltee", "--listen", "0"],
            125,
            "did you mean `lte`?",
        ),
        (
            &["--cc", "cubik", "--listen", "0"],
            125,
            "did you mean `cubic`?",
        ),
        (&[], 125, "nothing to do"),
        (
            &["--loss", "1"],
            125,
            "one packet in a hundred is `--loss 1%`",
        ),
        (&["--map", "5433:db"], 2, "PORT:HOST:PORT"),
        (
            &["--map", unresolvable.as_str()],
            125,
            "cannot resolve `aaaa",
        ),
        (&["--listen", "x"], 2, "such as 1080"),
        (&["--listen", "0.0.0.0:0"], 125, "--token"),
        (&["--listen", "0", "--token", "short"], 125, "at least 16"),
        (
            &[
                "--map",
                "0.0.0.0:0:localhost:1",
                "--token",
                "0123456789abcdef",
            ],
            125,
            "loopback",
        ),
    ] {
        let output = sluice(&[&["proxy"], args].concat());
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(status), "{args:?}: {text}");
        assert!(text.contains(expected), "{args:?}: {text}");
    }
}

#[test]
fn a_program_gets_the_variables_and_keeps_its_status() {
    let shell =
        |script: &str| sluice(&["exec", "--proxy", "--rtt", "10ms", "--", "sh", "-c", script]);
    let output = shell("echo $http_proxy $HTTPS_PROXY $all_proxy $ALL_PROXY $no_proxy; exit 7");
    assert_eq!(output.status.code(), Some(7));
    let text = stdout(&output);
    let words: Vec<&str> = text.split_whitespace().collect();
    assert!(words[0].starts_with("http://127.0.0.1:"), "{text}");
    // httpx creates a transport for each variable, and fails if one is `socks5h://` (its
    // `get_environment_proxies` and `Proxy`).
    assert_eq!(words[..4], [words[0]; 4], "{text}");
    assert_eq!(words[4], "localhost,127.0.0.1,::1");
    assert!(stderr(&output).contains("UDP"), "{}", stderr(&output));
    assert_eq!(shell("kill -TERM $$").status.code(), Some(143));
    let missing = sluice(&["exec", "--proxy", "--", "/no/such/program"]);
    assert_eq!(missing.status.code(), Some(127));
    let options = sluice(&["exec", "--proxy", "--forward", "1", "--", "true"]);
    assert_eq!(options.status.code(), Some(125));
    let expected = "--forward needs network namespaces, and --proxy does without them";
    assert!(stderr(&options).contains(expected), "{}", stderr(&options));
}

#[test]
fn what_a_program_has_sent_arrives_after_its_end() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_to_end(&mut bytes).unwrap();
        let _ = stream.write_all(b"x");
        bytes.len()
    });
    // bash connects to the proxy, sends a head and a body, and ends at once. It reads the whole
    // answer first, since closing a socket with unread bytes resets the connection (RFC 1122 section
    // 4.2.2.13). 60 kB need three round trips of slow start, 10 + 20 + 40 segments.
    let script = format!(
        "exec 3<>/dev/tcp/127.0.0.1/${{http_proxy##*:}}; \
         printf 'CONNECT host.sluice:{port} HTTP/1.1\\r\\n\\r\\n' >&3; read -r line <&3; \
         read -r line <&3; \
         head -c 60000 /dev/zero >&3"
    );
    let output = sluice(&[
        "exec", "--proxy", "--rtt", "100ms", "--", "bash", "-c", &script,
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(server.join().unwrap(), 60_000);
}

/// Serves one connection with `len` bytes, and returns the port.
fn serve(len: usize) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut line = [0; 1];
        stream.read_exact(&mut line).unwrap();
        stream.write_all(&vec![7; len]).unwrap();
    });
    port
}

/// A script for bash that downloads from a port of `host.sluice` through the proxy.
fn download(port: u16) -> String {
    format!(
        "exec 3<>/dev/tcp/127.0.0.1/${{http_proxy##*:}}; \
         printf 'CONNECT host.sluice:{port} HTTP/1.1\\r\\n\\r\\n' >&3; \
         read -r line <&3; read -r line <&3; printf x >&3; cat <&3 | wc -c"
    )
}

#[test]
fn a_program_behind_a_proxy_is_recorded_with_the_state_of_both_ends() {
    const LEN: usize = 300_000;
    let folder = tempfile::tempdir().unwrap();
    let (dir, capture) = (folder.path().join("run"), folder.path().join("run.pcapng"));
    let script = download(serve(LEN));
    let output = sluice(&[
        "exec",
        "--proxy",
        "--rate=10Mbit/s",
        "--rtt=20ms",
        "--queue=fifo limit 20",
        &format!("--report={}", dir.display()),
        &format!("--pcapng={}", capture.display()),
        "--",
        "bash",
        "-c",
        &script,
    ]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stdout(&output).trim(), LEN.to_string());
    assert!(stderr(&output).contains("report.html"));

    let recording = Recording::open(&dir).unwrap();
    let run = recording.run();
    assert_eq!(run.status, Status::Complete);
    let [flow] = run.flows.as_slice() else {
        panic!("{:?}", run.flows);
    };
    assert!(flow.name.starts_with("host.sluice:"), "{}", flow.name);
    assert_eq!(flow.direction.as_str(), "down");
    let transfer = run.scenario.flows[0].kind.transfer().unwrap();
    assert_eq!(transfer.bytes.unwrap().as_u64(), LEN as u64);
    let samples: Vec<_> = recording
        .flow_samples()
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let most = |figure: fn(&FlowSample) -> Option<u64>| samples.iter().filter_map(figure).max();
    assert_eq!(most(|s| s.received_bytes), Some(LEN as u64));
    // 20 packets of queue behind 17 in flight (25 kB) hold more than the initial window of 10.
    assert!(most(|s| s.cwnd).is_some_and(|cwnd| (11..200).contains(&cwnd)));
    assert!(most(|s| s.retransmits) > Some(0));
    assert!(most(|s| s.delivery_rate) > Some(5_000_000));
    let rtt = samples.iter().filter_map(|sample| sample.min_rtt).min();
    // A SYN and its answer, 60 bytes each, take 0.1 ms of transmission.
    let rtt = rtt.unwrap().as_ms_f64();
    assert!((20.0..21.0).contains(&rtt), "{rtt}");

    let summary = sluice_recording::metrics::measure(&recording).unwrap();
    assert!(summary.pipes[1].drops["overflow"] > 0);
    // Every packet belongs to the connection, and every header to a packet.
    let packets = recording.packets().unwrap().map(Result::unwrap);
    assert_eq!(packets.filter(|row| row.record.flow != 0).count(), 0);
    let headers = recording.headers().unwrap().map(Result::unwrap);
    let payload: u64 = headers
        .filter(|header| !header.is_from_client)
        .map(|header| u64::from(header.payload.unwrap_or(0)))
        .sum();
    assert!(payload > LEN as u64, "retransmissions included: {payload}");
    assert!(dir.join("report.html").exists() && dir.join("summary.json").exists());

    // A section block of pcapng, and more than the payload.
    let mode = std::fs::metadata(&capture).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "only the owner may read traffic");
    let capture = std::fs::read(capture).unwrap();
    assert_eq!(capture[..4], 0x0a0d_0d0a_u32.to_le_bytes());
    assert!(capture.len() > LEN);
}

#[test]
fn an_earlier_recording_is_replaced_with_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let report = format!("--report={}", folder.path().display());
    let warning = "the earlier recording in";
    for is_second in [false, true] {
        let output = sluice(&["exec", "--proxy", &report, "--", "true"]);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(0), "{text}");
        assert_eq!(text.contains(warning), is_second, "{text}");
    }
}

#[test]
fn a_program_that_does_not_start_leaves_the_earlier_recording() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("run");
    let report = format!("--report={}", dir.display());
    let run = |program: &str| sluice(&["exec", "--proxy", &report, "--", program]);
    assert!(run("true").status.success());
    let earlier = std::fs::read(dir.join("run.json")).unwrap();
    for (program, status) in [("no-such-program", 127), ("/etc/passwd", 126)] {
        let output = run(program);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(status), "{text}");
        assert!(!text.contains("earlier recording"), "{text}");
        assert_eq!(std::fs::read(dir.join("run.json")).unwrap(), earlier);
    }
    // It is found, and only the kernel notices that its interpreter is not there.
    let program = folder.path().join("program");
    std::fs::write(&program, "#!/no/such/interpreter\n").unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = program.display().to_string();
    let output = run(&program);
    assert_eq!(output.status.code(), Some(127), "{}", stderr(&output));
    let reason = format!("cannot run {program}: No such file or directory (os error 2)");
    let recording = Recording::open(&dir).unwrap();
    assert_eq!(recording.run().status, Status::Partial { reason });
}

#[test]
fn a_recording_that_cannot_begin_starts_no_program() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("mine"), "").unwrap();
    let report = format!("--report={}", folder.path().display());
    let output = sluice(&["exec", "--proxy", &report, "--", "echo", "started"]);
    assert_eq!(output.status.code(), Some(125));
    assert_eq!(stdout(&output), "");
    let text = stderr(&output);
    assert!(
        text.contains("cannot record") && text.contains("is not empty"),
        "{text}"
    );
}

#[test]
fn a_capture_that_cannot_be_written_starts_no_program() {
    let output = sluice(&[
        "exec",
        "--proxy",
        "--pcapng=/no/such/folder/x.pcapng",
        "--",
        "echo",
        "started",
    ]);
    assert_eq!(output.status.code(), Some(125));
    assert_eq!(stdout(&output), "");
    let text = stderr(&output);
    assert!(
        text.contains("cannot write the capture /no/such/folder/x.pcapng"),
        "{text}"
    );
}

#[test]
fn a_full_disk_does_not_hide_how_the_program_ended() {
    let output = sluice(&[
        "exec",
        "--proxy",
        "--pcapng=/dev/full",
        "--",
        "sh",
        "-c",
        "exit 3",
    ]);
    assert_eq!(output.status.code(), Some(125));
    let text = stderr(&output);
    assert!(
        text.contains("cannot write the capture /dev/full: "),
        "{text}"
    );
    assert!(text.contains("; the program's exit status was 3"), "{text}");
}

#[test]
fn a_capture_does_not_follow_a_link() {
    let folder = tempfile::tempdir().unwrap();
    let (link, precious) = (folder.path().join("x.pcapng"), folder.path().join("file"));
    std::fs::write(&precious, "precious").unwrap();
    symlink(&precious, &link).unwrap();
    let capture = format!("--pcapng={}", link.display());
    let output = sluice(&["exec", "--proxy", &capture, "--", "echo", "started"]);
    assert_eq!(output.status.code(), Some(125));
    assert_eq!(stdout(&output), "");
    let text = stderr(&output);
    assert!(text.contains("is a symbolic link"), "{text}");
    assert_eq!(std::fs::read_to_string(&precious).unwrap(), "precious");
}

#[test]
fn a_proxy_has_a_report_after_a_signal() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("run");
    let mut child = Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args(["proxy", "--link=dsl", "--listen=127.0.0.1:0", "--report"])
        .arg(&dir)
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut lines, &mut line).unwrap();
    let port = line.trim().rsplit(':').next().unwrap();
    let script = download(serve(1000)).replace("${http_proxy##*:}", port);
    let program = Command::new("bash").args(["-c", &script]).output().unwrap();
    assert_eq!(stdout(&program).trim(), "1000");
    let kill = Command::new("kill").arg(child.id().to_string()).status();
    assert!(kill.unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("report.html"), "{rest}");
    let recording = Recording::open(&dir).unwrap();
    let flows = &recording.run().flows;
    assert_eq!(flows.len(), 1, "{flows:?}");
    assert_eq!(recording.run().variant, "dsl");
}

#[test]
fn the_page_of_json_has_the_keys_of_the_control_api() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args(["proxy", "--listen=127.0.0.1:0", "--control=127.0.0.1:0"])
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut address_after = |start: &str| loop {
        let mut line = String::new();
        let read = std::io::BufRead::read_line(&mut lines, &mut line).unwrap();
        assert!(read > 0, "no line has `{start}`");
        if let Some((_, address)) = line.trim().split_once(start) {
            break address.to_owned();
        }
    };
    let listen = address_after("(SOCKS5, HTTP) at ");
    let control = address_after("control at http://");
    let control = control.trim_end_matches("/link");
    let ask = |path: &str| -> serde_json::Value {
        let mut stream = TcpStream::connect(control).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (_, body) = text.split_once("\r\n\r\n").unwrap();
        serde_json::from_str(body).unwrap()
    };
    // SOCKS5 (RFC 1928): a greeting, and a request for 127.0.0.1.
    let mut stream = TcpStream::connect(&listen).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let [high, low] = server.local_addr().unwrap().port().to_be_bytes();
    stream
        .write_all(&[5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1, high, low])
        .unwrap();
    stream.read_exact(&mut [0; 12]).unwrap();
    let mut found = BTreeSet::new();
    for path in ["/link", "/connections"] {
        documented::add_keys(&ask(path), &mut found);
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(documented::named("Control of a proxy"), found);
}

/// Returns the processor time that a process has used, in ticks of 10 ms (proc_pid_stat(5)).
fn ticks(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // The second field is a name in parentheses; utime and stime are the 14th and the 15th.
    let fields: Vec<&str> = text
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    fields[11..13]
        .iter()
        .map(|field| field.parse::<u64>().unwrap())
        .sum()
}

#[test]
fn a_proxy_without_descriptors_waits_for_them_and_goes_on() {
    let script = "ulimit -n 20; exec \"$0\" proxy --listen 127.0.0.1:0";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_sluice")]);
    let mut child = command
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut lines, &mut line).unwrap();
    let address = line.trim().rsplit(' ').next().unwrap().to_owned();
    // More connections than descriptors. The kernel itself accepts the others.
    let clients: Vec<TcpStream> = (0..30)
        .map(|_| TcpStream::connect(&address).unwrap())
        .collect();
    let until = Instant::now() + Duration::from_secs(1);
    let mut before = None;
    while Instant::now() < until {
        std::thread::sleep(Duration::from_millis(250));
        before.get_or_insert_with(|| ticks(child.id()));
    }
    let used = ticks(child.id()) - before.unwrap();
    // A loop that busy-polls uses 75 ticks on a machine of its own.
    assert!(used < 15, "{used} ticks of 750 ms");
    drop(clients);
    // A SOCKS5 greeting (RFC 1928 section 3) gets its answer.
    let mut stream = TcpStream::connect(&address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    stream.write_all(&[5, 1, 0]).unwrap();
    let mut answer = [0; 2];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, [5, 0]);
    child.kill().unwrap();
    child.wait().unwrap();
}
