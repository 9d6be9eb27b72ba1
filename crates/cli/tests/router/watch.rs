//! A router that is watched: `sluice router status`, `sluice top --once`, and the page.

use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, channel};

use super::*;

/// Bytes of each datagram, with the headers of IP (20) and UDP (8).
const DATAGRAM: u64 = 1250;
const FLOWS: u16 = 10;
const PIPE: &str = "pipe 1 config bw 8Mbit/s queue 20\n\
                    add 100 pipe 1 udp from any to any in\n\
                    add 200 allow ip from any to any\n";

/// Sends `rounds` datagrams of each flow, 10 ms apart, or all at once.
fn send(running: &Running, here: &'static str, there: &'static str, rounds: u32, pause: Duration) {
    let work = move || {
        let socket = |flow| UdpSocket::bind((here, 7000 + flow)).unwrap();
        let sockets: Vec<UdpSocket> = (0..FLOWS).map(socket).collect();
        for _ in 0..rounds {
            for socket in &sockets {
                socket
                    .send_to(&[0; DATAGRAM as usize - 28], (there, 9))
                    .unwrap();
            }
            std::thread::sleep(pause);
        }
    };
    running.namespace.enter(work).unwrap();
}

/// Returns where the page is, from what the router prints when it starts.
fn page_of(running: &Running) -> SocketAddr {
    let line = running
        .heard
        .lines()
        .find_map(|line| line.strip_prefix("sluice: page and metrics at http://"));
    line.expect("it prints the address")
        .trim_end_matches('/')
        .parse()
        .unwrap()
}

/// Sends a request and returns the status and the body of the answer.
fn ask(page: SocketAddr, request: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(page).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    stream
        .write_all(request.replace("HOST", &page.to_string()).as_bytes())
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer has a head");
    let status = head.split(' ').nth(1).expect("a head has a status");
    (status.parse().unwrap(), body.to_owned())
}

fn get(page: SocketAddr, path: &str) -> String {
    let (status, body) = ask(page, &format!("GET {path} HTTP/1.1\r\nHost: HOST\r\n\r\n"));
    assert_eq!(status, 200, "{path}: {body}");
    body
}

/// Reads `/events` on a thread of its own.
fn events(page: SocketAddr) -> Receiver<Value> {
    let mut stream = TcpStream::connect(page).unwrap();
    let request = format!("GET /events HTTP/1.1\r\nHost: {page}\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let lines = BufReader::new(stream).lines().map_while(Result::ok);
        for line in lines {
            let Some(sample) = line.strip_prefix("data: ") else {
                continue;
            };
            if sender.send(serde_json::from_str(sample).unwrap()).is_err() {
                return;
            }
        }
    });
    receiver
}

fn pipe_of(sample: &Value) -> Option<&Value> {
    let mut objects = sample["objects"].as_array()?.iter();
    objects.find(|object| object["name"] == "pipe 1")
}

/// Returns a count; 0 if there is none.
fn count(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or(0)
}

/// Ten flows meet a pipe that is too slow, then fast enough, then flooded. What the page, the metrics,
/// `top` and `status` show equals what the kernel counts behind the router.
#[test]
fn page_metrics_top_and_status_show_what_the_kernel_counts() {
    let running = Running::start(Some(PIPE), &["--http", "127.0.0.1:0"]);
    let names = ["em0", "em1", "far0", "far1"];
    let mut links = running.namespace.links().unwrap();
    for name in names {
        links.silence_ipv6(name).unwrap();
    }
    let (here, there) = running.sender(&names);
    let page = page_of(&running);
    let stream = events(page);
    let next = || {
        stream
            .recv_timeout(Duration::from_secs(60))
            .expect("a sample comes")
    };
    // From the first sample on, the router counts.
    let first = next();
    let before = links.interface("far1").unwrap().traffic.received;

    // 10 datagrams of 10,000 bit in 10 ms are 10 Mbit/s, for a link of 8 and then of 16 Mbit/s. At
    // the end, 200 datagrams at once do not fit into a queue of 20.
    let pause = Duration::from_millis(10);
    send(&running, here, there, 400, pause);
    running.ok("-q pipe 1 config bw 16Mbit/s queue 20");
    send(&running, here, there, 100, pause);
    send(&running, here, there, 20, Duration::ZERO);
    let sent = u64::from(FLOWS) * 520;

    let mut samples = vec![first];
    let is_done = |samples: &[Value]| {
        let pipe = samples.last().and_then(pipe_of);
        pipe.is_some_and(|pipe| {
            pipe["total_packets"] == sent && pipe["backlog_packets"] == 0 && pipe["packets"] == 0
        })
    };
    while !is_done(&samples) {
        samples.push(next());
    }
    let received = links.interface("far1").unwrap().traffic.received - before;
    let dropped = sent - received;
    assert!(dropped > 0 && received > 0, "{received} of {sent}");

    for sample in &samples {
        let flows = sample["flows"].as_array().unwrap().iter();
        let of_flows: u64 = flows.filter_map(|flow| flow["packets"].as_u64()).sum();
        let of_pipe = pipe_of(sample).map_or(0, |pipe| count(pipe, "packets"));
        assert_eq!(of_flows, of_pipe, "{sample}");
    }
    // The busy machine of a test may leave one out.
    let pairs: Vec<[&Value; 2]> = samples
        .windows(2)
        .filter(|two| count(&two[1], "number") == count(&two[0], "number") + 1)
        .filter_map(|two| Some([pipe_of(&two[0])?, pipe_of(&two[1])?]))
        .collect();
    assert!(!pairs.is_empty());
    for [old, new] in &pairs {
        let lost = |pipe: &Value| count(&pipe["total_dropped"], "overflow");
        let gone = |pipe: &Value| {
            count(pipe, "total_packets") - lost(pipe) - count(pipe, "backlog_packets")
        };
        assert_eq!(
            count(new, "arrived_packets"),
            count(new, "total_packets") - count(old, "total_packets")
        );
        assert_eq!(count(&new["dropped"], "overflow"), lost(new) - lost(old));
        assert_eq!(count(new, "packets"), gone(new) - gone(old));
        assert_eq!(count(new, "bytes"), count(new, "packets") * DATAGRAM);
    }
    // While packets wait, the rate is that of the link. One such interval is enough: a busy machine
    // may delay the router in the others.
    let mut full = pairs.iter().filter(|pair| {
        let is_full =
            |pipe: &&Value| count(pipe, "backlog_packets") > 0 && pipe["link_bps"] == 8_000_000;
        pair.iter().all(is_full)
    });
    assert!(
        full.any(|[_, pipe]| count(pipe, "rate_bps").abs_diff(8_000_000) < 80_000),
        "{pairs:?}"
    );

    let metrics = get(page, "/metrics");
    for line in [
        format!("sluice_object_arrived_packets_total{{object=\"pipe 1\",flow=\"\"}} {sent}"),
        format!(
            "sluice_object_dropped_packets_total{{object=\"pipe 1\",flow=\"\",reason=\"overflow\"}} {dropped}"
        ),
        format!("sluice_sojourn_seconds_count{{object=\"pipe 1\",flow=\"\"}} {received}"),
        "sluice_object_link_bits_per_second{object=\"pipe 1\",flow=\"\"} 16000000".to_owned(),
    ] {
        assert!(
            metrics.lines().any(|own| own == line),
            "no `{line}` in\n{metrics}"
        );
    }
    for words in ["top --once --json", "router status --json"] {
        let output = running.run(&mut Command::new(SLUICE), words);
        let sample: Value = serde_json::from_slice(&output.stdout).unwrap();
        let pipe = pipe_of(&sample).expect("the pipe has had packets");
        assert_eq!(pipe["total_packets"], sent, "{words}");
        assert_eq!(pipe["total_dropped"]["overflow"], dropped, "{words}");
    }
    let history: Value = serde_json::from_str(&get(page, "/history")).unwrap();
    let series = history["series"].as_array().unwrap().iter();
    let of_pipe: Vec<f64> = series
        .filter(|series| series["name"] == "pipe 1")
        .map(|series| {
            series["dropped"]
                .as_array()
                .unwrap()
                .iter()
                .filter_map(Value::as_f64)
                .sum()
        })
        .collect();
    // At each resolution, unless the machine was too busy for a sample.
    assert_eq!(of_pipe.len(), 3);
    assert!(
        of_pipe
            .iter()
            .all(|sum| *sum > 0.0 && *sum <= dropped as f64),
        "{of_pipe:?}"
    );
    for words in ["top --once", "router status"] {
        let output = running.run(&mut Command::new(SLUICE), words);
        let text = text(&output.stdout);
        assert!(text.contains("pipe 1") && text.contains("16.0M"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() < 80), "{text}");
    }
    let changes = samples.last().unwrap()["changes"].as_array().unwrap();
    let command = "ipfw -q pipe 1 config bw 16Mbit/s queue 20";
    assert!(
        changes.iter().any(|change| change["text"] == command),
        "{changes:?}"
    );
    running.end();
}

#[test]
fn the_page_refuses_foreign_hosts_and_origins_and_missing_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    fs::write(&token, "0123456789abcdef\n").unwrap();
    let token = token.to_str().unwrap();
    let options = ["--accept", "--http", "127.0.0.1:0", "--http-token", token];
    let running = Running::start(None, &options);
    let page = page_of(&running);
    let status = |headers: &str| ask(page, &format!("GET /state HTTP/1.1\r\n{headers}\r\n")).0;
    const TOKEN: &str = "Authorization: Bearer 0123456789abcdef\r\n";
    assert_eq!(status(&format!("Host: HOST\r\n{TOKEN}")), 200);
    assert_eq!(status("Host: HOST\r\n"), 401);
    assert_eq!(status(&format!("Host: evil.example\r\n{TOKEN}")), 403);
    let foreign = format!("Host: HOST\r\nOrigin: http://evil.example\r\n{TOKEN}");
    assert_eq!(status(&foreign), 403);
    running.end();
}

#[test]
fn an_unfit_address_or_token_is_refused_before_the_router_starts() {
    let folder = tempfile::tempdir().unwrap();
    let short = folder.path().join("short");
    fs::write(&short, "secret\n").unwrap();
    let error = |options: &[&str]| {
        let mut command = Command::new(SLUICE);
        command
            .args(["router", "nowhere0", "nowhere1", "--accept"])
            .args(options);
        refusal(&command.output().unwrap()).1
    };
    let open = error(&["--http", "0.0.0.0:9180"]);
    assert!(open.contains("so it needs --http-token FILE"), "{open}");
    let weak = error(&[
        "--http",
        "127.0.0.1:0",
        "--http-token",
        short.to_str().unwrap(),
    ]);
    assert!(
        weak.contains("has 6 characters; it needs 16 to 256"),
        "{weak}"
    );
    let gone = Command::new(SLUICE)
        .args(["top", "--once", "--socket", "/nowhere/s"])
        .output()
        .unwrap();
    let (code, error) = refusal(&gone);
    assert_eq!(code, 1);
    assert!(error.contains("no router listens at /nowhere/s"), "{error}");
}
