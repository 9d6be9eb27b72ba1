//! `--http`: the page beside a program.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::{MUCH, SERVER, World, send_much, stderr, stdout};

/// Returns where the page is, from the first line on standard error.
fn page_of(child: &mut Child) -> SocketAddr {
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let found = lines.find_map(|line| {
        let line = line.ok()?;
        let address = line.strip_prefix("sluice: page and metrics at http://")?;
        address.trim_end_matches('/').parse().ok()
    });
    // Nobody reads the rest.
    std::thread::spawn(move || lines.count());
    found.expect("it prints the address")
}

fn get(world: &World, page: SocketAddr, path: &str) -> String {
    let stream = world.machine.enter(|| TcpStream::connect(page)).unwrap();
    let mut stream = stream.unwrap();
    let wait = Some(Duration::from_secs(20));
    stream.set_read_timeout(wait).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {page}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    body.to_owned()
}

fn object<'a>(sample: &'a Value, name: &str) -> &'a Value {
    let objects = sample["objects"].as_array().unwrap();
    let found = objects.iter().find(|object| object["name"] == name);
    found.unwrap_or_else(|| panic!("no {name}: {sample}"))
}

/// A download of 2.5 MB at 4 Mbit/s takes 5 s and more. It is repeated until the input ends.
#[test]
fn the_page_shows_a_program_s_link_while_it_runs() {
    let folder = tempfile::tempdir().unwrap();
    let dir = format!("--report={}", folder.path().join("run").display());
    for more in [None, Some(dir.as_str())] {
        let world = World::new();
        world.serve(80, send_much);
        let mut options = vec!["--rate=4Mbit/s", "--rtt=20ms", "--set=down.queue=fq_codel"];
        options.extend(["--http=127.0.0.1:0"]);
        options.extend(more);
        // bash(1): the status of `read` is greater than 128 if it times out.
        let script = format!(
            "while read -t 0.1 line; [ $? -gt 128 ]; do cat </dev/tcp/{}/80; done | wc -c",
            SERVER[0]
        );
        let mut command = world.exec(&options, &["timeout", "60", "bash", "-c", &script]);
        let mut child = world.start(command.stdin(Stdio::piped()));
        let page = page_of(&mut child);

        assert!(get(&world, page, "/").contains("<html"));
        // The first sample may be older than the connection.
        let samples: Vec<Value> = (0..5)
            .map(|_| {
                std::thread::sleep(Duration::from_millis(600));
                serde_json::from_str(&get(&world, page, "/state")).unwrap()
            })
            .collect();
        let last = samples.last().unwrap();
        let (down, up) = (object(last, "pipe 1"), object(last, "pipe 2"));
        let words = |object: &Value| object["words"].as_str().unwrap().to_owned();
        assert!(words(down).starts_with("down: fq_codel"), "{down}");
        assert!(words(up).starts_with("up: "), "{up}");
        assert_eq!(down["link_bps"], 4_000_000);
        // Half of the round trip.
        assert_eq!(down["delay_ns"], 10_000_000);
        // Data goes down; only acknowledgements go up.
        let bytes = |object: &Value| object["total_bytes"].as_u64().unwrap();
        assert!(bytes(down) > 10 * bytes(up), "{down} {up}");
        // While the queue is full, packets leave it at the rate of the link. One such interval is
        // enough on a busy machine.
        let is_full = |sample: &Value| {
            let down = object(sample, "pipe 1");
            let rate = down["rate_bps"].as_u64().unwrap();
            rate.abs_diff(4_000_000) < 100_000 && down["sojourn"]["p50_ns"].as_u64() > Some(0)
        };
        assert!(samples.iter().any(is_full), "{samples:?}");
        let is_download = |flow: &Value| flow["src"] == SERVER[0] && flow["src_port"] == 80;
        let flows = last["flows"].as_array().unwrap();
        assert!(flows.iter().any(is_download), "{flows:?}");
        let metrics = get(&world, page, "/metrics");
        let link = "sluice_object_link_bytes_per_second{object=\"pipe 1\",flow=\"\"} 500000";
        assert!(metrics.lines().any(|line| line == link), "{metrics}");
        assert!(get(&world, page, "/history").contains("\"series\":"));

        // Ends the input.
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        let count: usize = stdout(&output).trim().parse().unwrap();
        assert!(count > 0 && count.is_multiple_of(MUCH), "{count}");
        // The address is free again.
        let gone = world.machine.enter(|| TcpStream::connect(page)).unwrap();
        assert!(gone.is_err());
    }
}

#[test]
fn an_address_that_anybody_reaches_needs_a_token() {
    let world = World::new();
    let output = world.run(&["--http=198.51.100.1:0"], &["true"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(
        stderr(&output).contains("--http-token"),
        "{}",
        stderr(&output)
    );
}
