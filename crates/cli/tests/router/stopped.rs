//! A router whose process is stopped for a while.

use super::*;

/// Returns the router's counts of refused clients.
fn refused(running: &Running) -> Value {
    let mut stream = UnixStream::connect(running.path("s")).unwrap();
    stream.write_all(b"{\"do\":\"status\"}\n").unwrap();
    let mut reply = String::new();
    BufReader::new(stream).read_line(&mut reply).unwrap();
    let reply: Value = serde_json::from_str(&reply).unwrap();
    reply["status"]["clients_refused"].clone()
}

#[test]
fn a_router_that_continues_does_not_execute_commands_whose_clients_have_given_up() {
    let running = Running::start(None, &["--accept"]);
    running.signal(Signal::STOP);
    let mut stream = UnixStream::connect(running.path("s")).unwrap();
    let request = b"{\"do\":\"commands\",\"commands\":\"ipfw pipe 78 config bw 1Mbit/s\"}\n";
    stream.write_all(request).unwrap();
    drop(stream);
    running.signal(Signal::CONT);
    let gone = serde_json::json!({"gone": 1});
    let end = Instant::now() + Duration::from_secs(20);
    while refused(&running) != gone {
        assert!(Instant::now() < end, "{}", refused(&running));
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(running.ok("pipe show"), "");
    assert_eq!(running.end()["clients_refused"], gone);
}
