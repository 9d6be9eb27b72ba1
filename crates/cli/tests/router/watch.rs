//! A router that is watched: `sluice router status` and `sluice top --once`.

use super::*;

#[test]
fn status_and_top_show_a_known_load() {
    let running = Running::start(
        Some("pipe 1 config bw 1Mbit/s queue 5\nadd 100 pipe 1 ip from any to any in\n"),
        &["--accept"],
    );
    let (here, there) = running.sender(&["em0", "em1", "far0", "far1"]);
    let text = running.run(Command::new(SLUICE).args(["router", "status"]), "");
    assert!(text.status.success(), "{text:?}");
    // Twenty datagrams of 1250 bytes with their headers, at once: of these, the link takes one, and
    // five wait.
    let send = move || {
        let socket = UdpSocket::bind((here, 0)).unwrap();
        for _ in 0..20 {
            socket.send_to(&[0; 1222], (there, 9)).unwrap();
        }
    };
    running.namespace.enter(send).unwrap();
    let sample = || -> Value {
        let command = &mut Command::new(SLUICE);
        let output = running.run(command.args(["top", "--once", "--json"]), "");
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let until = Instant::now() + Duration::from_secs(20);
    let pipe = loop {
        let pipe = sample()["objects"][0].clone();
        // Frames of the kernel itself, such as neighbour discovery, may pass too.
        if pipe["total_packets"].as_u64() >= Some(20) && pipe["backlog_packets"] == 0 {
            break pipe;
        }
        assert!(Instant::now() < until, "{pipe}");
    };
    assert_eq!(pipe["name"], "pipe 1");
    assert_eq!(pipe["link_bps"], 1_000_000);
    assert!(
        pipe["total_dropped"]["overflow"].as_u64() >= Some(1),
        "{pipe}"
    );
    running.ok("-q pipe 1 config bw 2Mbit/s");
    let text = loop {
        let output = running.run(Command::new(SLUICE).args(["top", "--once"]), "");
        let text = text(&output.stdout);
        if text.contains("pipe 1 config bw 2Mbit/s") {
            break text;
        }
        assert!(Instant::now() < until, "{text}");
    };
    assert!(text.lines().all(|line| line.chars().count() < 80), "{text}");
    running.end();
    let gone = Command::new(SLUICE)
        .args(["top", "--once", "--socket", "/nowhere/s"])
        .output()
        .unwrap();
    let (code, error) = refusal(&gone);
    assert_eq!(code, 1);
    assert!(error.contains("no router listens at /nowhere/s"), "{error}");
}
