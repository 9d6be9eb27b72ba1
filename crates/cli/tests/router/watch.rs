//! A router that is watched: `sluice router status`, `sluice top --once`, and the page.

use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::{SystemTime, UNIX_EPOCH};

use super::*;

/// Bytes of each datagram, with the headers of IP (20) and UDP (8).
pub const DATAGRAM: u64 = 1250;
pub const FLOWS: u16 = 10;
pub const PIPE: &str = "pipe 1 config bw 8Mbit/s queue 20\n\
                    add 100 pipe 1 udp from any to any in\n\
                    add 200 allow ip from any to any\n";

/// Sends `rounds` datagrams of each flow, 10 ms apart, or all at once.
pub fn send(
    running: &Running,
    here: &'static str,
    there: &'static str,
    rounds: u32,
    pause: Duration,
) {
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
pub fn page_of(running: &Running) -> SocketAddr {
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

pub fn pipe_of(sample: &Value) -> Option<&Value> {
    let mut objects = sample["objects"].as_array()?.iter();
    objects.find(|object| object["name"] == "pipe 1")
}

/// Returns a count; 0 if there is none.
pub fn count(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or(0)
}

/// An interface that is deleted is seen everywhere, also if nobody sends to it.
#[test]
fn status_and_metrics_show_interfaces_that_are_down_or_gone() {
    let running = Running::start(None, &["--accept", "--http", "127.0.0.1:0"]);
    let mut links = running.namespace.links().unwrap();
    for name in ["em0", "em1"] {
        links.set_up(name, true).unwrap();
    }
    let ports = || {
        let mut stream = UnixStream::connect(running.path("s")).unwrap();
        stream.write_all(b"{\"do\":\"status\"}\n").unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        let reply: Value = serde_json::from_str(&line).unwrap();
        reply["status"]["ports"].clone()
    };
    let seen = |ports: &Value| -> [(Value, Value); 2] {
        [0, 1].map(|port: usize| {
            let value = |key: &str| ports[port][key].clone();
            (value("interface"), value("promiscuous"))
        })
    };
    let up: (Value, Value) = ("up".into(), true.into());
    assert_eq!(seen(&ports()), [up.clone(), up]);
    links.set_up("em0", false).unwrap();
    links.remove("em1").unwrap();
    let expected: [(Value, Value); 2] =
        [("down".into(), true.into()), ("gone".into(), Value::Null)];
    assert_eq!(seen(&ports()), expected);
    let start = Instant::now();
    let shown = loop {
        let output = running.run(&mut Command::new(SLUICE), "router status");
        let shown = text(&output.stdout);
        if shown.contains("\nem1 has no interface: ") {
            break shown;
        }
        // A sample from before is shown for two seconds.
        assert!(start.elapsed() < Duration::from_secs(20), "{shown}");
    };
    for name in ["em0 ", "em1 "] {
        let mut rows = shown.lines().filter(|line| line.starts_with(name));
        assert!(rows.any(|row| row.ends_with(" down")), "{shown}");
    }
    let metrics = get(page_of(&running), "/metrics");
    for line in [
        "sluice_port_up{port=\"em0\"} 0\n",
        "sluice_port_up{port=\"em1\"} 0\n",
    ] {
        assert!(metrics.contains(line), "{metrics}");
    }
    assert_eq!(seen(&running.end()["ports"]), expected);
}

/// Ten flows meet a pipe that is too slow, then fast enough, then flooded. What the page, the metrics,
/// `top` and `status` show equals what the kernel counts behind the router.
#[test]
fn page_metrics_top_and_status_show_what_the_kernel_counts() {
    // 100 packets take 125 ms. They are enough for the link while the sender does not run.
    let config = PIPE.replace("queue 20", "queue 100");
    let running = Running::start(Some(&config), &["--http", "127.0.0.1:0"]);
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
    // the end, 200 datagrams at once do not fit into the queue.
    let pause = Duration::from_millis(10);
    send(&running, here, there, 400, pause);
    running.ok("-q pipe 1 config bw 16Mbit/s queue 100");
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
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_done(&samples) {
        assert!(Instant::now() < deadline, "{:?}", samples.last());
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
        "sluice_object_link_bytes_per_second{object=\"pipe 1\",flow=\"\"} 2000000".to_owned(),
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
    let command = "ipfw -q pipe 1 config bw 16Mbit/s queue 100";
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
    assert_eq!(code, 75);
    assert!(error.contains("no router listens at /nowhere/s"), "{error}");
}

/// What the page sends to change something.
fn change(page: SocketAddr, path: &str, body: &str) -> (u16, Value) {
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: HOST\r\nContent-Type: application/json\r\n\
         Authorization: Bearer 0123456789abcdef\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    let (status, body) = ask(page, &request);
    (status, serde_json::from_str(&body).unwrap())
}

/// A pipe at the instant of a sample.
struct Moment {
    /// The instant on the router's clock, in seconds.
    taken: f64,
    /// The instant at which the sample was noted, in seconds since the Unix epoch.
    noted: f64,
    arrived: u64,
    waiting: u64,
    /// Packets that have left.
    left: f64,
    /// The instant of the last change, in milliseconds since the Unix epoch.
    changed: Option<u64>,
}

impl Moment {
    fn of(sample: &Value) -> Moment {
        let nothing = Value::Null;
        let pipe = pipe_of(sample).unwrap_or(&nothing);
        let (arrived, waiting) = (count(pipe, "total_packets"), count(pipe, "backlog_packets"));
        Moment {
            taken: count(&sample["status"], "uptime_ns") as f64 / 1e9,
            noted: count(sample, "unix_ms") as f64 / 1e3,
            arrived,
            waiting,
            left: (arrived - waiting) as f64,
            changed: sample["changes"]
                .as_array()
                .and_then(|changes| changes.last()?["unix_ms"].as_u64()),
        }
    }
}

/// 5000 datagrams wait in a slow pipe while its rate and then its AQM are changed on the page.
#[test]
fn a_change_on_the_page_acts_at_once_and_loses_no_packet() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    fs::write(&token, "0123456789abcdef\n").unwrap();
    let config = "pipe 1 config bw 1Mbit/s queue 6000\nadd 100 pipe 1 udp from any to any in\n\
                  add 200 allow ip from any to any\n";
    let token = token.to_str().unwrap();
    let options = [
        "--http",
        "127.0.0.1:0",
        "--http-control",
        "--http-token",
        token,
    ];
    let mut running = Running::start(Some(config), &options);
    let names = ["em0", "em1", "far0", "far1"];
    let mut links = running.namespace.links().unwrap();
    for name in names {
        links.silence_ipv6(name).unwrap();
    }
    let (here, there) = running.sender(&names);
    let page = page_of(&running);
    let mut received = || links.interface("far1").unwrap().traffic.received;
    let before = received();
    let mut seen = 0;
    let mut next = || loop {
        let request = "GET /state HTTP/1.1\r\nHost: HOST\r\n\
                       Authorization: Bearer 0123456789abcdef\r\n\r\n";
        let (status, body) = ask(page, request);
        assert_eq!(status, 200, "{body}");
        let sample: Value = serde_json::from_str(&body).unwrap();
        let number = count(&sample, "number");
        if std::mem::replace(&mut seen, number) < number {
            return Moment::of(&sample);
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    send(&running, here, there, 500, Duration::from_millis(1));
    let sent = u64::from(FLOWS) * 500;
    let mut old = next();
    while old.arrived < sent {
        old = next();
    }

    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let asked = now().as_millis() as u64;
    let faster = r#"{"commands":"pipe 1 config bw 10Mbit/s queue 6000"}"#;
    let (status, answer) = change(page, "/command", faster);
    assert_eq!((status, &answer["reply"]["error"]), (200, &Value::Null));
    let answered = now().as_millis() as u64;
    // Times are those of the router's own clock, since a busy machine lets requests wait. A sample is
    // noted after it was taken, so the least difference between the two clocks is the right one.
    let mut ahead = old.noted - old.taken;
    loop {
        let new = next();
        assert!(new.waiting > 0, "no sample shows the new rate at work");
        ahead = ahead.min(new.noted - new.taken);
        let executed = new.changed.expect("the change is logged");
        // It is executed between the request and the answer.
        assert!((asked..=answered).contains(&executed), "{executed}");
        let asked = asked as f64 / 1e3 - ahead;
        if new.taken < asked + 0.25 {
            continue;
        }
        // 10,000 bit each: 100 packets leave in a second at 1 Mbit/s, 1000 at 10 Mbit/s. So
        // `left` = 100 · t + 1000 · (`passed` - t), where t is the time until the new rate acted.
        let (left, passed) = (new.left - old.left, new.taken - old.taken);
        let acted = old.taken + (1000.0 * passed - left) / 900.0;
        // One such interval is enough: a busy machine may delay the router in the others.
        if acted <= asked + 0.25 {
            break;
        }
    }

    let aqm = r#"{"commands":"pipe 1 config bw 10Mbit/s queue 6000 codel target 5s interval 10s"}"#;
    let (status, answer) = change(page, "/command", aqm);
    assert_eq!((status, &answer["reply"]["error"]), (200, &Value::Null));
    assert!(
        running.ok("pipe show").contains("target 5s"),
        "{}",
        running.ok("pipe show")
    );
    let deadline = Instant::now() + Duration::from_secs(30);
    while received() - before < sent && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(received() - before, sent, "packets were lost");

    let (status, answer) = change(page, "/undo", "{}");
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["undo"], "pipe 1 config bw 10Mbit/s queue 6000");
    let shown = running.ok("pipe show");
    assert!(
        shown.contains("10.000 Mbit/s") && shown.contains("droptail"),
        "{shown}"
    );
    // In the words of the command.
    let wrong = r#"{"commands":"pipe 1 config bw 10Mbit/s cdoel"}"#;
    let (status, answer) = change(page, "/command", wrong);
    let (_, error) = refusal(&running.ipfw("pipe 1 config bw 10Mbit/s cdoel"));
    let why = answer["reply"]["error"]["message"].as_str().unwrap();
    assert!(status == 422 && error.contains(why), "{why}: {error}");
    // Another client's change is not lost by an undo.
    running.ok("-q pipe 2 config bw 3Mbit/s");
    let (status, answer) = change(page, "/undo", "{}");
    let why = answer["reply"]["error"]["message"].as_str().unwrap();
    assert!(
        status == 422 && why.contains("`ipfw -q pipe 2 config bw 3Mbit/s` by uid"),
        "{why}"
    );
    // Four changes on the page, the last of which is refused, and one of the other client.
    let logged: Vec<Value> = (0..6).map(|_| running.hear_json("change")).collect();
    let said: Vec<(&str, bool)> = logged
        .iter()
        .map(|line| (line["by"].as_str().unwrap(), line["refused"].is_null()))
        .collect();
    let page = ("http 127.0.0.1", true);
    assert_eq!(said[..4], [page, page, page, ("http 127.0.0.1", false)]);
    assert!(
        said[4].0.starts_with("uid ") && said[5].0.starts_with("uid "),
        "{said:?}"
    );
    assert!(logged.iter().all(|line| line["unix_ms"].as_u64() > Some(0)));
    running.end();
}

#[test]
fn changes_without_token_or_by_other_sites_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    fs::write(&token, "0123456789abcdef\n").unwrap();
    let token = token.to_str().unwrap();
    let options = [
        "--accept",
        "--http",
        "127.0.0.1:0",
        "--http-control",
        "--http-token",
        token,
    ];
    let running = Running::start(None, &options);
    let page = page_of(&running);
    let status = |headers: &str| {
        let body = r#"{"commands":"pipe 1 config"}"#;
        let length = body.len();
        let request = format!(
            "POST /command HTTP/1.1\r\nContent-Type: application/json\r\n{headers}\
             Content-Length: {length}\r\n\r\n{body}"
        );
        ask(page, &request).0
    };
    const TOKEN: &str = "Authorization: Bearer 0123456789abcdef\r\n";
    assert_eq!(status("Host: HOST\r\n"), 401);
    assert_eq!(status(&format!("Host: evil.example\r\n{TOKEN}")), 403);
    let foreign = format!("Host: HOST\r\nOrigin: http://evil.example\r\n{TOKEN}");
    assert_eq!(status(&foreign), 403);
    assert_eq!(running.ok("pipe show"), "");
    assert_eq!(status(&format!("Host: HOST\r\n{TOKEN}")), 200);
    running.end();
    let open = Command::new(SLUICE)
        .args(["router", "nowhere0", "nowhere1", "--accept"])
        .args(["--http", "127.0.0.1:0", "--http-control"])
        .output()
        .unwrap();
    let (_, error) = refusal(&open);
    assert!(
        error.contains("--http-control needs --http-token FILE"),
        "{error}"
    );
}

#[test]
fn drops_and_interfaces_that_go_down_are_logged() {
    let mut running = Running::start(Some(PIPE), &["--events"]);
    let names = ["em0", "em1", "far0", "far1"];
    let mut links = running.namespace.links().unwrap();
    let (here, there) = running.sender(&names);
    // From the first sample on, the router counts.
    let first = running.run(&mut Command::new(SLUICE), "top --once --json");
    assert!(first.status.success(), "{first:?}");
    // A queue of 20 overflows.
    send(&running, here, there, 20, Duration::ZERO);
    let event = |running: &mut Running, name: &str| loop {
        let heard = running.hear("{");
        let line: Value = serde_json::from_str(heard.lines().last().unwrap()).unwrap();
        if line["event"] == name {
            return line;
        }
    };
    let drops = event(&mut running, "drops_begin");
    assert_eq!(drops["object"], "pipe 1");
    assert!(count(&drops, "dropped") > 0, "{drops}");
    links.set_up("em1", false).unwrap();
    assert_eq!(event(&mut running, "port_down")["port"], "em1");
    links.set_up("em1", true).unwrap();
    assert_eq!(event(&mut running, "port_up")["port"], "em1");
    running.end();
}
