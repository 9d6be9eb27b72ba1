//! Changes of tens of thousands of lines, under 10 000 packets a second.

use super::pauses::Witness;
use super::*;

/// Commands that fill a table with `count` addresses, and a rule that the traffic meets.
fn long_configuration(count: u32) -> String {
    let mut text = String::from("table blocked create type addr\n");
    for number in 0..count {
        let address = Ipv4Addr::from(0x0b00_0000 + number);
        text.push_str(&format!("table blocked add {address} {number}\n"));
    }
    text.push_str("add 100 deny ip from table(blocked) to any\n");
    text.push_str("add 200 count udp from any to any\n");
    text
}

/// The longest one-way delay of the packets that were sent from one instant to another; `None` if there
/// were none.
fn longest_way(report: &UdpReport, (start, end): (Time, Time)) -> Option<Span> {
    let sent = report
        .samples
        .iter()
        .filter(|s| start <= s.sent && s.sent <= end);
    let ways = sent.filter_map(|s| Some(s.received?.since(s.sent)));
    ways.max()
}

/// Returns the longest way during each change, and prints them with what may explain them.
fn longest_ways(udp: &UdpReport, changes: &[(Time, Time)], pauses: &[Span]) -> Vec<Option<Span>> {
    let ways: Vec<Option<Span>> = changes.iter().map(|&c| longest_way(udp, c)).collect();
    eprintln!(
        "{} packets, longest gap {}, longest ways during changes {ways:?}, longest pauses of the machine \
         {pauses:?}",
        udp.sent,
        longest_gap(udp)
    );
    ways
}

/// Checks that the longest ways during several changes are at most `most`. A machine that is busy for a moment
/// holds packets up in one of them, and not in all. So most ways are short, unless the machine paused: threads
/// that sleep for half a millisecond are awake again within another one, if they get a core.
fn assert_short(ways: &[Option<Span>], pauses: &[Span], most: Span) {
    let is_short = |way: &Option<Span>| way.is_some_and(|way| way <= most);
    assert!(ways.iter().any(is_short), "{ways:?}");
    let is_paused = |pause: &Span| *pause >= Span::from_ms(2);
    let explained = ways.iter().zip(pauses);
    let explained = explained.filter(|&(way, pause)| is_short(way) || is_paused(pause));
    assert!(
        explained.count() > ways.len() / 2,
        "{ways:?}, pauses {pauses:?}"
    );
}

/// Checks that every packet of a flow of 10 000 packets a second has arrived or is counted. Returns false
/// if the flow was not as requested, so that some are counted as lost.
fn is_whole(network: &Network, udp: &UdpReport) -> bool {
    let losses = network.losses(udp);
    let status = network.router.as_ref().unwrap().status().unwrap();
    let queue = status.ports[0].lost.get("kernel_queue").copied();
    // A sender that was held up catches up at once. The port's ring has 4736 places, 0.47 s at this rate:
    // after a longer pause the load is a flood, of which a part may be lost, and is counted.
    let is_flood = udp.latest > Span::from_ms(400);
    let flooded = queue.filter(|_| is_flood).unwrap_or(0);
    assert_eq!(
        udp.received + udp.overflowed + flooded,
        udp.sent,
        "{losses}"
    );
    if flooded > 0 {
        eprintln!(
            "NOT SHOWN: the sender was late by {}; {flooded} packets of its flood were lost",
            udp.latest
        );
    }
    flooded == 0
}

#[test]
fn a_reload_of_50_000_lines_and_a_batch_of_20_000_lose_no_packet() {
    let mut network = Network::new("");
    // The router of the network has no file to reload; start another in its place.
    let path = network.folder.path().join("rules");
    std::fs::write(&path, long_configuration(10)).unwrap();
    network.router.take().map(Router::stop).unwrap();
    let mut settings = Settings::new("left".parse().unwrap(), "right".parse().unwrap());
    settings.namespace = Some(path_of(&network._middle));
    settings.socket = Some(network.folder.path().join("s"));
    settings.engine.accepts_by_default = true;
    settings.config = Some(path.clone());
    network.router = Some(Router::start(&settings).unwrap());

    // 1250 B at 100 Mbit/s are 10 000 packets a second.
    let start = network.soon();
    let udp = network.udp(CLIENT, start, Span::from_secs(6), 100, Spacing::Constant);
    sleep(Duration::from_millis(800));
    let (witness, mut reloads) = (Witness::start(network.clock), Vec::new());
    for count in [49_998, 49_999, 50_000] {
        std::fs::write(&path, long_configuration(count)).unwrap();
        let router = network.router.as_ref().unwrap();
        let start = network.clock.now();
        router.reload().unwrap();
        reloads.push((start, network.clock.now()));
    }
    let pauses = witness.longest_in(&reloads);
    let counted = |network: &Network| {
        let shown = network.batch("table blocked info").stdout;
        let items = shown
            .lines()
            .find_map(|line| line.trim().strip_prefix("items: "));
        let items = items.and_then(|rest| rest.split(',').next());
        items
            .and_then(|n| n.parse::<u32>().ok())
            .unwrap_or_else(|| panic!("{shown}"))
    };
    assert_eq!(counted(&network), 50_000);
    // 20 000 lines of a client, each with its own effect.
    let lines: String = (0..20_000_u32)
        .map(|n| format!("table blocked add {}\n", Ipv4Addr::from(0x0c00_0000 + n)))
        .collect();
    network.batch(&lines);
    assert_eq!(counted(&network), 70_000);
    let udp = udp.join().unwrap();
    let ways = longest_ways(&udp, &reloads, &pauses);
    assert!(udp.sent > 30_000, "{}", udp.sent);
    if !is_whole(&network, &udp) {
        return;
    }
    // A loop that reads the lines itself holds packets up in each reload.
    assert_short(&ways, &pauses, Span::from_ms(5));
    // Rule 200 is the same in all configurations and keeps its count.
    let shown = network.batch("-a list 200").stdout;
    let count: u64 = shown.split_whitespace().nth(1).unwrap().parse().unwrap();
    // Each packet crosses the rules twice.
    assert_eq!(count, 2 * udp.sent, "{shown}");
    assert_eq!(network.end(), BTreeMap::new());
}

#[test]
fn a_change_of_20_000_lines_as_one_loses_no_packet() {
    let network = Network::new("add 200 count udp from any to any");
    // 1250 B at 100 Mbit/s are 10 000 packets a second.
    let start = network.soon();
    let udp = network.udp(CLIENT, start, Span::from_secs(4), 100, Spacing::Constant);
    sleep(Duration::from_millis(800));
    let lines = |rate: u32| -> String {
        let pipe = |n| format!("pipe {n} config bw {rate}Mbit/s\nqueue {n} config pipe {n}\n");
        let address = |n: u32| Ipv4Addr::from(0x0c00_0000 + n);
        let entry = |n| format!("table t add {}\n", address(n));
        let rule = |n| format!("add {n} pipe {n} ip from {} to any\n", address(n));
        let pipes = (1..=5000).map(pipe);
        let entries = (1..=8000).map(entry);
        let rules = (1..=2000).map(rule);
        let flush = "-f flush\ntable t destroy\nadd 200 count udp from any to any\n".to_owned();
        let first = [if rate == 1 { String::new() } else { flush }];
        first
            .into_iter()
            .chain(pipes)
            .chain(entries)
            .chain(rules)
            .collect()
    };
    let (witness, mut changes) = (Witness::start(network.clock), Vec::new());
    for rate in [1, 2, 3] {
        let lines = lines(rate);
        let start = network.clock.now();
        let reply = network.commands(&lines, How::Atomic);
        changes.push((start, network.clock.now()));
        assert_eq!((reply.error, reply.warnings.len()), (None, 0));
        let pipes = &network.state("--json pipe show")["pipes"];
        assert_eq!(pipes.as_array().unwrap().len(), 5000);
        assert_eq!(pipes[4999]["link"]["rate_bps"], 1_000_000 * u64::from(rate));
    }
    let pauses = witness.longest_in(&changes);
    let udp = udp.join().unwrap();
    let ways = longest_ways(&udp, &changes, &pauses);
    if is_whole(&network, &udp) {
        assert_short(&ways, &pauses, Span::from_ms(10));
        assert_eq!(network.end(), BTreeMap::new());
    }
}
