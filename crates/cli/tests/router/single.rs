//! An interface, and a socket of a page, belong to one router at a time.

use std::io::Read;

use super::*;

/// Starts a second router in the namespace of `running`, which must be refused. Returns its error.
fn refused(running: &Running, ports: [&str; 2], more: &[&str]) -> String {
    let descriptor = running.namespace.as_fd().as_raw_fd();
    let output = Command::new(SLUICE)
        .args(["router", ports[0], ports[1], "--accept", "--netns"])
        .arg(format!("/proc/{}/fd/{descriptor}", std::process::id()))
        .arg("--socket")
        .arg(running.path("second"))
        .args(more)
        .output()
        .unwrap();
    assert!(!output.status.success(), "{output:?}");
    text(&output.stderr)
}

#[test]
fn a_second_router_on_an_interface_is_refused_and_one_after_kill_9_is_not() {
    let running = Running::start(None, &["--accept"]);
    let pid = running.child.as_ref().unwrap().id();
    for (ports, held) in [(["em0", "em1"], "em0"), (["far0", "packet:em1"], "em1")] {
        let said = refused(&running, ports, &[]);
        let expected =
            format!("sluice: another router (process {pid}) is attached to {held}: end it first\n");
        assert_eq!(said, expected);
    }
    // Interfaces of this name in another namespace are others.
    Running::start(None, &["--accept"]).end();
    let namespace = running.namespace.try_clone().unwrap();
    running.signal(Signal::KILL);
    let again = Running::start_between(namespace, None, &["--accept"], &[]);
    // After an end in order, too.
    let namespace = again.namespace.try_clone().unwrap();
    again.end();
    Running::start_between(namespace, None, &["--accept"], &[]).end();
}

#[test]
fn a_page_on_a_unix_socket_is_the_routers_own_and_is_taken_over_after_kill_9() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("page");
    let address = format!("unix:{}", path.display());
    let options = ["--accept", "--http", &address];
    let running = Running::start(None, &options);
    let line = format!("sluice: page and metrics at {address}\n");
    assert!(running.heard.contains(&line), "{}", running.heard);
    let metrics = || {
        let mut stream = UnixStream::connect(&path).unwrap();
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    assert!(metrics().contains("sluice_uptime_seconds "));
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let said = refused(&running, ["far0", "far1"], &["--http", &address]);
    assert!(
        said.contains("another router or program listens here"),
        "{said}"
    );
    let mut running = running;
    running.signal(Signal::KILL);
    running.child.take().unwrap().wait().unwrap();
    assert!(path.exists());
    let again = Running::start(None, &options);
    assert!(metrics().contains("sluice_uptime_seconds "));
    again.end();
    assert!(!path.exists());
}
