//! `sluice router --workers per-bridge`: every bridge has a loop of its own.

use super::numbered::FLOWS;
use super::*;

/// Creates a wire between an interface of the router and one of a host.
fn wire(namespace: &Namespace, number: u8) {
    let end = |name, mac| VethEnd {
        namespace,
        name,
        mac: Mac([2, 0, 0, 0, 1, mac]),
    };
    let (near, far) = (format!("em{number}"), format!("far{number}"));
    create_veth(end(&near, 2 * number), end(&far, 2 * number + 1)).unwrap();
    let mut links = namespace.links().unwrap();
    links.set_up(&near, true).unwrap();
    links.set_up(&far, true).unwrap();
}

/// Lets the host behind `far0` or `far2` send through its bridge.
fn host(namespace: &Namespace, bridge: u8) {
    let (interface, address) = (format!("far{}", 2 * bridge), [10, 0, bridge, 1]);
    let mut links = namespace.links().unwrap();
    links.add_address(&interface, address.into(), 24).unwrap();
    let mac = Mac([2, 0, 0, 0, 0, 9]);
    links
        .add_neighbour(&interface, [10, 0, bridge, 2].into(), mac)
        .unwrap();
}

/// A router with the bridges `em0 - em1` and `em2 - em3`, and nothing that sends by itself.
fn two_bridges(config: &str) -> Running {
    let namespace = Namespace::create("middle").unwrap();
    namespace.silence_ipv6().unwrap();
    (0..4).for_each(|number| wire(&namespace, number));
    (0..2).for_each(|bridge| host(&namespace, bridge));
    let more = ["em2", "em3", "--workers", "per-bridge", "--unconfined"];
    Running::start_between(namespace, Some(config), &more, &[])
}

/// Sends `rounds` packets of each flow through a bridge. Returns the number of all packets.
fn send(router: &Running, bridge: u8, rounds: u32) -> u64 {
    let (here, there) = (format!("10.0.{bridge}.1"), format!("10.0.{bridge}.2"));
    let next = |round| (round < rounds).then_some(Duration::from_millis(2));
    let way = (here.as_str(), (there.as_str(), 9));
    u64::from(numbered::send(&router.namespace, way, 500, next)) * u64::from(FLOWS)
}

fn status(router: &Running) -> Value {
    let shown = router.run(&mut Command::new(SLUICE), "router status --json");
    let sample: Value = serde_json::from_slice(&shown.stdout).unwrap();
    sample["status"].clone()
}

/// Waits until the router has sent this number of packets.
fn wait_for(router: &Running, sent: u64) {
    let start = Instant::now();
    while status(router)["sent"].as_u64() < Some(sent) {
        let waited = start.elapsed();
        assert!(waited < Duration::from_secs(20), "{}", status(router));
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What a count of each worker is.
fn of_workers(status: &Value, count: &str) -> Vec<u64> {
    let workers = status["workers"].as_array().unwrap().iter();
    workers.map(|one| one[count].as_u64().unwrap()).collect()
}

#[test]
fn each_bridge_has_a_loop_that_nothing_leaves() {
    // Even numbers are those of worker 0, with all pipes of their masks.
    let router = two_bridges(
        "pipe 2 config bw 900Mbit/s queue 1000 mask src-port 0xffff\n\
         pipe 3 config bw 900Mbit/s queue 1000 mask src-port 0xffff\n\
         add 100 pipe 2 udp from 10.0.0.0/24 to any in\n\
         add 200 pipe 3 udp from 10.0.1.0/24 to any in\n\
         add 300 allow ip from any to any out keep-state\n",
    );
    let packets = [send(&router, 0, 50), send(&router, 1, 20)];
    wait_for(&router, packets.iter().sum());
    // The ports of both bridges are shown as those of one router.
    let now = status(&router);
    for port in now["ports"].as_array().unwrap() {
        assert_eq!(port["promiscuous"], true, "{now}");
    }
    let status = router.end();
    assert_eq!(of_workers(&status, "received"), packets, "{status}");
    assert_eq!(of_workers(&status, "sent"), packets, "{status}");
    assert_eq!(of_workers(&status, "handed_over"), [0, 0], "{status}");
    assert_eq!(status["lost"], serde_json::json!({}));
    assert_eq!(status["dropped"], serde_json::json!({}));
}

#[test]
fn bridges_share_a_pipe_at_its_worker() {
    // The queue has room for all 70 rounds of 64 packets, however long the loop pauses.
    let router = two_bridges(
        "pipe 3 config bw 900Mbit/s queue 5000\n\
         add 100 pipe 3 udp from any to any in\n\
         add 200 allow ip from any to any\n",
    );
    let packets = [send(&router, 0, 50), send(&router, 1, 20)];
    let all = packets.iter().sum();
    wait_for(&router, all);
    let before = status(&router);
    assert_eq!(of_workers(&before, "received"), packets, "{before}");
    assert_eq!(of_workers(&before, "handed_over"), [packets[0], 0]);
    assert_eq!(of_workers(&before, "sent"), [0, all], "{before}");
    assert_eq!(before["lost"], serde_json::json!({}));
    // Worker 1 only sends through the ports of the first bridge, and finds them again.
    for number in [1, 0] {
        let name = format!("em{number}");
        router.namespace.links().unwrap().remove(&name).unwrap();
        wire(&router.namespace, number);
    }
    host(&router.namespace, 0);
    let start = Instant::now();
    let passed = |status: &Value| status["ports"][1]["sent"].as_u64();
    while passed(&status(&router)) == passed(&before) {
        assert!(start.elapsed() < Duration::from_secs(20));
        send(&router, 0, 1);
    }
    router.end();
}
