//! A router that runs reads a changed module of a flow-queued AQM, and keeps its packets.

use super::verdict::write_module;
use super::*;

const PASS: i32 = 0;
const DROP: i32 = 2;

#[test]
fn a_changed_module_of_flow_queues_decides_about_the_packets_that_wait() {
    let router = Running::start(None, &["--accept"]);
    let module = router.path("m.wasm");
    let queue = format!("sched 1 config pipe 1 type fq_wasm:{}", module.display());
    write_module(&module, PASS);
    // A packet of 128 bytes takes two seconds.
    for command in [
        "pipe 1 config bw 512bit/s",
        &queue,
        "queue 1 config sched 1",
        "add 100 queue 1 udp from any to any out",
    ] {
        router.ok(command);
    }
    let (here, there) = router.sender(&["em0", "far0", "em1", "far1"]);
    // A flow each.
    let send = move || {
        for port in 1000..1010 {
            let socket = UdpSocket::bind((here, port)).unwrap();
            socket.send_to(&[0; 100], (there, 9)).unwrap();
        }
    };
    router.namespace.enter(send).unwrap();
    // The same module again changes nothing. The other one drops what waits as soon as the packet
    // on the link has left.
    router.ok(&queue);
    write_module(&module, DROP);
    router.ok(&queue);
    // The name of the file is shown as it is, beside names in capitals.
    let shown = router.ok("sched show");
    let name = format!(" sched 1 type fq_wasm:{} flags", module.display());
    assert!(shown.contains(&name), "{shown}");
    let counters = || {
        let shown = router.ok("--json sched show");
        let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
        let flow = &shown["schedulers"][0]["flows"][0];
        let of = |name: &str| flow["counters"][name].as_u64().unwrap();
        let waiting = flow["queued_packets"].as_u64();
        let reasons = flow["counters"]["dropped_for"].to_string();
        (
            waiting,
            of("packets"),
            of("departed"),
            of("dropped"),
            reasons,
        )
    };
    let (mut seen, start) = (counters(), Instant::now());
    while (seen.0, seen.1) != (Some(0), 10) {
        assert!(start.elapsed() < Duration::from_secs(60), "{seen:?}");
        std::thread::sleep(std::time::Duration::from_millis(50));
        seen = counters();
    }
    let (_, _, departed, dropped, reasons) = seen;
    // All ten would take 20 seconds, and the module is changed at once.
    assert_eq!(
        (departed + dropped, dropped >= 5),
        (10, true),
        "{dropped} dropped"
    );
    assert_eq!(reasons, format!("[[\"congestion\",{dropped}]]"));
    router.end();
}

/// A router is started, changed and saved; another one starts from the file.
#[test]
fn a_saved_configuration_starts_a_router_with_the_same_state() {
    let config = "pipe 1 config bw 10Mbit/s delay 5\nadd 100 pipe 1 udp from any to any in\n";
    let running = Running::start(Some(config), &[]);
    for words in [
        "-q pipe 1 config bw 12Mbit/s delay 5 queue 80 codel target 7ms",
        "-q sched 2 config type fq_codel limit 500",
        "-q queue 3 config sched 2 mask src-ip 0xffffffff",
        "-q table guests add 10.0.0.0/8 7",
        "-q add 200 set 4 queue 3 ip from table(guests) to any out",
        "-q set disable 4",
        "-q sysctl net.inet.ip.fw.one_pass=0",
    ] {
        running.ok(words);
    }
    let shown = |running: &Running| {
        let questions = [
            "-S list",
            "pipe show",
            "sched show",
            "queue show",
            "table all list",
        ];
        questions.map(|words| running.ok(words))
    };
    let before = shown(&running);
    let saved = running.run(&mut Command::new(SLUICE), "router save saved.conf");
    assert!(saved.status.success(), "{saved:?}");
    let text = fs::read_to_string(running.path("saved.conf")).unwrap();
    let printed = running.run(&mut Command::new(SLUICE), "router save");
    assert_eq!(super::text(&printed.stdout), text);
    let printed = running.run(&mut Command::new(SLUICE), "router save -");
    assert_eq!(super::text(&printed.stdout), text);
    assert!(!running.path("-").exists());
    running.end();
    let running = Running::start(Some(&text), &[]);
    assert_eq!(shown(&running), before);
    running.end();
    let gone = Command::new(SLUICE)
        .args(["router", "save", "--socket", "/nowhere/s"])
        .output()
        .unwrap();
    let (code, error) = refusal(&gone);
    assert_eq!(code, 75);
    assert!(error.contains("no router listens at /nowhere/s"), "{error}");
}

/// A file that is being written, or a pipe that was read at the start.
#[test]
fn a_reload_of_nothing_is_refused() {
    let mut running = Running::start(Some("add 100 allow ip from any to any\n"), &[]);
    let start = Instant::now();
    for text in ["", "\n  # to be continued\n", "\u{feff}# a mark\n"] {
        fs::write(running.path("r.conf"), text).unwrap();
        running.signal(Signal::HUP);
        let path = running.path("r.conf");
        let line = format!(
            "sluice: {} has no commands: is it being written",
            path.display()
        );
        let heard = running.hear(&line);
        assert!(
            heard.contains("; the old configuration remains active"),
            "{heard}"
        );
    }
    // A second after each refused reload, so that their lines do not fill the log.
    assert!(start.elapsed() >= Duration::from_secs(2));
    assert!(
        running
            .ok("list")
            .starts_with("00100 allow ip from any to any\n")
    );
    running.end();
}

/// The file is a pipe without a writer, as if its file system did not answer.
#[test]
fn a_reload_that_waits_for_its_file_says_so() {
    let mut running = Running::start(Some("add 100 allow ip from any to any\n"), &[]);
    let path = running.path("r.conf");
    fs::remove_file(&path).unwrap();
    let made = Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    running.signal(Signal::HUP);
    let warning = format!(
        "sluice: warning: {}, or a file that it names, has not been read after 5 s",
        path.display()
    );
    let heard = running.hear(&warning);
    assert!(heard.contains("Later reloads wait for it"), "{heard}");
    assert!(running.ok("list").starts_with("00100 allow "));
    // The router has opened the pipe for reading.
    fs::write(&path, "add 200 allow ip from any to any\n").unwrap();
    let heard = running.hear(&format!("sluice: {} is active", path.display()));
    assert!(!heard.contains("warning"), "it is said once: {heard}");
    assert!(running.ok("list").starts_with("00200 allow "));
    running.end();
}
