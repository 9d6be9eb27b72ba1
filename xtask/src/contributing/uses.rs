//! The places that must find each addition without another change.

use serde_json::Value;

use super::{Copy, read};

/// Checks that it is listed with its parameters, plain and flow-queued, that a replay uses it, and
/// that it runs in a scenario.
pub fn aqm(copy: &Copy, name: &str) -> Result<(), String> {
    let flow_queued = format!("fq_{name}");
    copy.says(&["list"], &[name, &flow_queued])?;
    let doc = "drops packets that waited too long";
    copy.says(&["list", name], &[doc, "50ms", "noecn"])?;
    copy.says(&["list", &flow_queued], &[doc, "50ms"])?;
    in_reference(copy, name)?;

    // Three packets of 0.8 ms each at 10 Mbit/s: the third waits 1.6 ms, longer than the bound, and
    // can be marked.
    let trace = "time_ns,flow,size_bytes,ecn\n0,1,1000,0\n0,1,1000,0\n0,1,1000,2\n";
    copy.write("trace.csv", trace)?;
    let queue = format!("{name} bound 1ms ecn");
    let replay = ["replay", "trace.csv", "--queue", &queue, "--rate"];
    copy.sluice(&[&replay[..], &["10Mbit/s", "--out", "rows.csv"]].concat())?;
    let rows = read(&copy.folder.join("rows.csv"))?;
    let verdicts: Vec<Option<&str>> = rows.lines().skip(1).map(|r| r.split(',').nth(4)).collect();
    if verdicts != [Some("sent"), Some("sent"), Some("marked")] {
        return Err(format!(
            "the replay's verdicts are not sent, sent, marked:\n{rows}"
        ));
    }
    let queues = format!("matrix.\"link.queue\" = [\"{name} bound 20ms\", \"{flow_queued}\"]");
    simulates(
        copy,
        &queues,
        "type = \"udp\"\nrate = \"12Mbit/s\"",
        &[name, &flow_queued],
    )
}

/// Checks that it is listed, that contradicting parameters are refused, that its variable is
/// recorded, and that its drops depend on the seed and on nothing else.
pub fn aqm_with_state(copy: &Copy, name: &str) -> Result<(), String> {
    let flow_queued = format!("fq_{name}");
    copy.says(&["list"], &[name, &flow_queued])?;
    copy.says(&["list", name], &["max_p", "0.1", "5ms", "50ms"])?;
    in_reference(copy, name)?;

    // 400 packets of 0.8 ms each at 10 Mbit/s, twice as fast as they leave: the average wait passes
    // 10 ms, and half of all probabilities lie between 0 and 1.
    let packets = (0..400).map(|n| format!("{},1,1000,0\n", n * 400_000));
    let trace: String = std::iter::once("time_ns,flow,size_bytes,ecn\n".to_owned())
        .chain(packets)
        .collect();
    copy.write("ramp.csv", trace)?;
    let wrong = format!("{name} low 1s");
    let refused = [
        "replay", "ramp.csv", "--queue", &wrong, "--rate", "10Mbit/s",
    ];
    let refused = copy.sluice(&refused);
    let message = refused.err().unwrap_or_default();
    if !message.contains("`low 1s` must be below `high 50ms`") {
        return Err(format!("`low 1s` is not refused: {message}"));
    }
    let queue = format!("{name} low 10ms high 100ms");
    let verdicts = |seed: &str| -> Result<String, String> {
        let replay = [
            "replay", "ramp.csv", "--queue", &queue, "--rate", "10Mbit/s",
        ];
        let output = [
            "--seed",
            seed,
            "--out",
            "ramp-rows.csv",
            "--state",
            "ramp-state.csv",
        ];
        copy.sluice(&[&replay[..], &output].concat())?;
        read(&copy.folder.join("ramp-rows.csv"))
    };
    let (first, again, other) = (verdicts("1")?, verdicts("1")?, verdicts("2")?);
    if first != again || first == other || !first.contains("dropped") {
        return Err("the drops do not follow from the seed".to_owned());
    }
    let state = read(&copy.folder.join("ramp-state.csv"))?;
    if !state.contains("average") {
        return Err(format!("the average is not recorded:\n{state}"));
    }
    simulates(
        copy,
        &format!("matrix.\"link.queue\" = [\"{name} low 2ms\", \"{flow_queued}\"]"),
        "type = \"udp\"\nrate = \"12Mbit/s\"",
        &[name, &flow_queued],
    )
}

/// Checks that it is listed with its parameters, that it is the type of a scheduler, and that it
/// runs in a scenario.
pub fn discipline(copy: &Copy, name: &str) -> Result<(), String> {
    copy.says(&["list"], &[name])?;
    let doc = "two bands: packets with an urgent DSCP first";
    copy.says(&["list", name], &[doc, "dscp", "limit"])?;
    in_reference(copy, name)?;
    let commands =
        format!("pipe 1 config bw 10Mbit/s\nsched 1 config pipe 1 type {name} dscp 32\n");
    copy.write("sched.conf", commands)?;
    copy.sluice(&["router", "--check", "sched.conf"])?;
    let queues = format!("matrix.\"link.queue\" = [\"fifo\", \"{name} limit 50\"]");
    simulates(
        copy,
        &queues,
        "type = \"udp\"\nrate = \"12Mbit/s\"",
        &[name],
    )
}

/// Checks that a simulated connection uses it.
pub fn congestion_control(copy: &Copy, name: &str) -> Result<(), String> {
    let flow = format!("type = \"tcp\"\ncc = \"{name}\"");
    // An empty link of 10 Mbit/s: 5 Mbit/s is a low bound, but impossible without data.
    let expect = "[[expect]]\nmetric = \"added.goodput\"\nmin = \"5Mbit/s\"";
    simulates(copy, "", &format!("{flow}\n{expect}"), &[])
}

/// Checks that it runs in a scenario.
pub fn flow_type(copy: &Copy, name: &str) -> Result<(), String> {
    simulates(copy, "", &format!("type = \"{name}\""), &[])
}

/// Checks that the reference describes it.
pub fn figure(copy: &Copy, name: &str) -> Result<(), String> {
    copy.has("docs/metrics.md", &[&format!("`{name}`")])
}

/// Checks that a rule with it is read and drops one of two packets, and that the reference has its
/// row.
pub fn ipfw_option(copy: &Copy, name: &str) -> Result<(), String> {
    copy.has("docs/dummynet.md", &[&format!("\n| `{name} 1,3` | ")])?;
    let rule = format!("add 1 deny ip from any to any {name} 3\n");
    copy.write("option.conf", rule)?;
    copy.sluice(&["router", "--check", "option.conf"])?;
    let status = plays(copy, "pcap::out.pcap:full", &["--config", "option.conf"])?;
    expects(&status, "/ports/1/sent", 1)?;
    expects(&status, "/dropped/denied", 1)
}

/// Checks that the help and the references list it, and that a router sends a capture to it.
pub fn port(copy: &Copy, name: &str) -> Result<(), String> {
    let form = format!("{name}:NAME");
    copy.says(&["router", "--help"], &[&form])?;
    copy.has("docs/command-line.md", &[&form])?;
    copy.has("docs/ports.md", &[&format!("\n| `{name}` | ")])?;
    let status = plays(copy, &format!("{name}:end"), &[])?;
    expects(&status, "/ports/1/kind", name)?;
    expects(&status, "/ports/1/sent", 2)
}

/// Checks that the reference of all algorithms describes `name`.
fn in_reference(copy: &Copy, name: &str) -> Result<(), String> {
    copy.has(
        "docs/algorithms/parameters.md",
        &[&format!("\n## {name}\n")],
    )
}

/// Simulates two seconds of a flow called `added`; the command's output must have these texts.
fn simulates(copy: &Copy, more: &str, flow: &str, texts: &[&str]) -> Result<(), String> {
    let scenario = format!(
        "title = \"The example\"\nduration = \"2s\"\n{more}\n[link]\nrate = \"10Mbit/s\"\nrtt = \"20ms\"\n\
         [[flow]]\nname = \"added\"\n{flow}\n"
    );
    copy.write("example.toml", scenario)?;
    let run = ["run", "example.toml", "--quiet", "--backend", "sim"];
    copy.says(&[&run[..], &["-o", "runs/example"]].concat(), texts)
}

/// Plays a capture of two packets, Not-ECT and CE, from one port to another; returns the router's
/// status.
fn plays(copy: &Copy, to: &str, more: &[&str]) -> Result<Value, String> {
    // Magic number, version 2.4, zone, accuracy, snap length, raw IP.
    let mut words: Vec<u32> = vec![0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 101];
    let mut capture: Vec<u8> = words.drain(..).flat_map(u32::to_le_bytes).collect();
    for ecn in [0, 3] {
        // Seconds, microseconds, the length in the file and on the wire.
        capture.extend([0, 0, 28, 28].into_iter().flat_map(u32::to_le_bytes));
        // IPv4: 28 bytes, 64 hops, UDP from 10.0.0.1 to 10.0.0.2.
        let mut packet = [0; 28];
        packet[..4].copy_from_slice(&[0x45, ecn, 0, 28]);
        packet[8..10].copy_from_slice(&[64, 17]);
        packet[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        let sums = packet
            .chunks(2)
            .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
        let sum: u32 = sums.sum();
        let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
        // UDP: ports 1 and 2, 8 bytes, no checksum.
        packet[20..26].copy_from_slice(&[0, 1, 0, 2, 0, 8]);
        capture.extend(packet);
    }
    copy.write("in.pcap", capture)?;
    let router = ["router", "pcap:in.pcap::full", to, "--accept", "--quiet"];
    let ends = ["--json", "--socket", "socket"];
    let said = copy.sluice(&[&router[..], &ends[..], more].concat())?;
    serde_json::from_str(&said)
        .map_err(|error| format!("the status of the router: {error}:\n{said}"))
}

fn expects(status: &Value, place: &str, expected: impl Into<Value>) -> Result<(), String> {
    let expected = expected.into();
    if status.pointer(place) == Some(&expected) {
        return Ok(());
    }
    Err(format!(
        "{place} of the router's status is not {expected}: {status:#}"
    ))
}
