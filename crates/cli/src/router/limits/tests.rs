use sluice_net::port::Loss;
use sluice_router::forward::LostFrame;

use super::*;
use crate::documented;
use crate::router::log::Log;

fn lines(warnings: &[Event]) -> Vec<&str> {
    warnings.iter().map(|event| event.line.as_str()).collect()
}

#[test]
fn a_limit_that_is_met_has_a_line_with_its_remedy_at_most_once_a_second() {
    let mut limits = Limits::new();
    let start = Instant::now();
    let mut status = Status::default();
    assert!(limits.warnings(&status, start).is_empty());
    assert_eq!(
        limits.next,
        start + EVERY,
        "the next question comes a second later"
    );
    status.refused.insert("dynamic_memory".into(), 5);
    status.limits = [("dynamic_memory".into(), 1000), ("over_share".into(), 16)].into();
    status.lost.insert("over_share".into(), 1);
    let said = limits.warnings(&status, start);
    let expected = [
        "warning: 1 packets lost (over_share): the packets from one port fill their share of the \
         packet memory, 16 packets; lower the limits of queues, or raise --room",
        "warning: 5 packets lost (dynamic_memory): the pipes of masks have used up their memory, \
         1000 bytes; use masks with fewer bits, or raise --dynamic-memory",
    ];
    assert_eq!(lines(&said), expected);
    assert!(limits.warnings(&status, start).is_empty(), "nothing new");
    status.refused.insert("dynamic_memory".into(), 50);
    let said = limits.warnings(&status, start);
    assert_eq!(said.len(), 1);
    assert_eq!(said[0].json["lost"], 45);
    assert_eq!(said[0].json["size"], 1000);
}

/// A flood of flows without an answer loses no packet, so it shows by this line only.
#[test]
fn states_that_are_evicted_have_a_line() {
    let mut status = Status::default();
    status.refused.insert("states_evicted".into(), 940);
    status.limits.insert("states_evicted".into(), 100);
    let said = Limits::new().warnings(&status, Instant::now());
    assert_eq!(
        lines(&said),
        [
            "warning: 940 states removed (states_evicted): the table of states, 100, is full, and the \
             oldest flows without an answer make room for new ones; raise net.inet.ip.fw.dyn_max with \
             `sluice ipfw sysctl`"
        ]
    );
}

#[test]
fn a_file_that_cannot_be_written_has_a_line_for_each_answer_and_each_time() {
    let mut limits = Limits::new();
    let now = Instant::now();
    let status = |answer: &str| Status {
        ports: vec![
            PortStatus::default(),
            PortStatus {
                name: "pcap::o".into(),
                write_error: Some(answer.into()),
                ..PortStatus::default()
            },
        ],
        ..Status::default()
    };
    let full = status("No space left on device (os error 28)");
    let said = limits.warnings(&full, now);
    assert_eq!(
        lines(&said),
        [
            "warning: the file of pcap::o cannot be written: No space left on device (os error 28); \
             it is tried again, frames wait as long as there is room, and `sluice router status` \
             counts those that are lost"
        ]
    );
    assert_eq!(said[0].json["port"], "pcap::o");
    assert!(limits.warnings(&full, now).is_empty(), "it is known");
    let said = limits.warnings(&status("Input/output error (os error 5)"), now);
    assert_eq!(said.len(), 1);
    assert_eq!(said[0].json["error"], "Input/output error (os error 5)");
    let mut writable = full.clone();
    writable.ports[1].write_error = None;
    for _ in 0..2 {
        assert_eq!(limits.warnings(&full, now).len(), 1);
        assert!(limits.warnings(&full, now).is_empty(), "it is known");
        assert!(limits.warnings(&writable, now).is_empty(), "no error");
    }
}

#[test]
fn a_port_that_cannot_attach_has_a_line_for_each_reason_and_each_time() {
    let mut limits = Limits::new();
    let mut said = |reason: Option<&str>| {
        let port = PortStatus {
            name: "xdp:eth1".into(),
            attach_error: reason.map(str::to_owned),
            ..PortStatus::default()
        };
        let status = Status {
            ports: vec![port],
            ..Status::default()
        };
        limits.warnings(&status, Instant::now())
    };
    let first = said(Some("it is too long"));
    assert_eq!(
        lines(&first),
        [
            "warning: xdp:eth1 cannot attach: it is too long; it is tried again ten times a second, and \
             frames for the port are lost (`down`)"
        ]
    );
    assert_eq!(first[0].json["port"], "xdp:eth1");
    assert_eq!(first[0].json["error"], "it is too long");
    assert!(said(Some("it is too long")).is_empty(), "it is known");
    assert_eq!(said(Some("it is busy")).len(), 1);
    assert!(said(None).is_empty(), "it is attached");
    assert_eq!(said(Some("it is busy")).len(), 1);
}

#[test]
fn a_port_that_is_not_promiscuous_has_a_line_each_time() {
    let mut limits = Limits::new();
    let mut said = |promiscuous| {
        let port = PortStatus {
            name: "xdp:eth1".into(),
            promiscuous,
            ..PortStatus::default()
        };
        let status = Status {
            ports: vec![port],
            ..Status::default()
        };
        limits.warnings(&status, Instant::now())
    };
    assert!(said(Some(true)).is_empty() && said(None).is_empty());
    // The interface has returned, and the kernel refused the mode.
    let first = said(Some(false));
    assert_eq!(
        lines(&first),
        [
            "warning: the interface of xdp:eth1 is not promiscuous: frames for other addresses than \
             its own may be lost, and no counter shows them; restart the router, or use `ip link set \
             dev IFACE promisc on`"
        ]
    );
    assert_eq!(first[0].json["port"], "xdp:eth1");
    assert!(said(Some(false)).is_empty(), "it is known");
    assert!(said(None).is_empty(), "it is gone");
    assert_eq!(said(Some(false)).len(), 1);
}

/// The names and sizes of what met the limits are in the lines.
#[test]
fn a_line_says_which_rule_pipe_or_port_it_is_about() {
    let mut limits = Limits::new();
    let port = |name: &str, lost: u64, bytes: u64| PortStatus {
        name: name.into(),
        lost: [("kernel_queue".to_owned(), lost)].into(),
        limits: [("kernel_queue".to_owned(), bytes)].into(),
        ..PortStatus::default()
    };
    let named = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        let pairs = pairs.iter();
        pairs.map(|(k, v)| ((*k).into(), (*v).into())).collect()
    };
    let mut status = Status {
        ports: vec![port("eth0", 5, 1000), port("eth1", 3, 2000)],
        last_refused: named(&[
            ("pipe_share", "pipe 7"),
            ("states_limit", "rule 100"),
            ("over_share", "eth1"),
        ]),
        ..Status::default()
    };
    status.limits = [
        ("kernel_queue", 1000),
        ("states_limit", 4),
        ("pipe_share", 80),
        ("over_share", 96),
    ]
    .map(|(name, size)| (name.to_owned(), size))
    .into();
    status.lost.insert("over_share".into(), 1);
    status.refused.insert("pipe_share".into(), 2);
    status.refused.insert("states_limit".into(), 6);
    let said = limits.warnings(&status, Instant::now());
    let starts = [
        "warning: 1 packets lost (over_share, last at eth1): the packets from one port fill their share \
         of the packet memory, 96 packets;",
        "warning: 2 packets lost (pipe_share, last at pipe 7): one pipe fills its share of the packet \
         memory, 80 packets;",
        "warning: 6 packets lost (states_limit, last at rule 100): flows are above the `limit` of a \
         rule, 4;",
        "warning: 8 packets lost (kernel_queue, most at eth0): the kernel's queue of a port, 1000 bytes,",
    ];
    let said_lines = lines(&said);
    assert_eq!(said_lines.len(), starts.len(), "{said_lines:?}");
    for (line, start) in said_lines.iter().zip(starts) {
        assert!(line.starts_with(start), "{line}");
    }
    assert_eq!(said[2].json["at"], "rule 100");
    // Since that line, eth1 has lost more, and its queue has another size.
    status.ports[0].lost.insert("kernel_queue".into(), 6);
    status.ports[1].lost.insert("kernel_queue".into(), 5);
    let said = limits.warnings(&status, Instant::now());
    let start =
        "warning: 3 packets lost (kernel_queue, most at eth1): the kernel's queue of a port, 2000";
    assert!(said[0].line.starts_with(start), "{:?}", lines(&said));
    assert_eq!((said.len(), &said[0].json["at"]), (1, &json!("eth1")));
}

/// Frames are lost at interfaces for reasons that only their names show.
#[test]
fn losses_at_an_interface_have_lines_that_name_it() {
    let port = PortStatus {
        name: "xdp:eth1".into(),
        lost: Loss::ALL.map(|loss| (loss.name().to_owned(), 2)).into(),
        limits: [("too_long".to_owned(), 1500)].into(),
        ..PortStatus::default()
    };
    let status = Status {
        ports: vec![PortStatus::default(), port],
        lost: [("port_blocked", 3), ("no_exit", 4)]
            .map(|(name, count)| (name.to_owned(), count))
            .into(),
        last_refused: [("port_blocked".to_owned(), "eth0".to_owned())].into(),
        ..Status::default()
    };
    let mut limits = Limits::new();
    let said = limits.warnings(&status, Instant::now());
    let said = lines(&said).join("\n");
    for loss in Loss::ALL {
        let start = format!(
            "warning: 2 packets lost ({}, most at xdp:eth1): ",
            loss.name()
        );
        assert!(said.contains(&start), "no {start}in\n{said}");
    }
    for part in [
        "warning: 3 packets lost (port_blocked, last at eth0): the interface accepts no more frames",
        "warning: 4 packets lost (no_exit): frames that are not IP",
        "longer than the interface sends, whose MTU is 1500;",
    ] {
        assert!(said.contains(part), "no {part} in\n{said}");
    }
    assert!(limits.warnings(&status, Instant::now()).is_empty());
}

#[test]
fn counts_of_all_ports_are_added() {
    let mut status = Status::default();
    status.lost.insert("no_slot".into(), 1);
    for n in [2, 4] {
        let mut port = PortStatus::default();
        port.lost.insert("no_slot".into(), n);
        status.ports.push(port);
    }
    let growth = Limits::new().growth(&status, "no_slot");
    assert_eq!(growth.count, 7);
}

/// The names are those of counters, so a line cannot be missing because of a mistake in a name.
#[test]
fn every_refusal_is_a_counter_of_the_documentation() {
    let page = include_str!("../../../../../docs/router-status.md");
    for (name, _) in REFUSALS {
        assert!(
            page.contains(&format!("`{name}`")) || page.contains(&format!(".{name}`")),
            "{name}"
        );
    }
}

/// What is counted as refused or lost has a line, except for `denied`, which is what a rule is for.
#[test]
fn every_refusal_has_a_line() {
    let page = include_str!("../../../../../docs/router-status.md");
    let refused = page.lines().find(|line| line.starts_with("| `refused`"));
    let refused = refused
        .expect("the page has the key")
        .split('`')
        .skip(3)
        .step_by(2);
    let refused = refused.filter(|word| word.contains('_'));
    let names: Vec<&str> = refused.collect();
    assert_eq!(names.len(), 9, "{names:?}");
    let lost = LostFrame::ALL
        .into_iter()
        .filter(|cause| *cause != LostFrame::Denied);
    let lost = lost.map(LostFrame::name);
    let of_ports = Loss::ALL.map(Loss::name);
    // Refused commands and reloads are in the record of changes, which is logged.
    let clients = Why::ALL.into_iter();
    let clients = clients.filter(|why| ![Why::Command, Why::Reload].contains(why));
    let clients = clients.map(Why::name);
    let names = names.into_iter().chain(lost).chain(of_ports);
    for name in names.chain(clients) {
        assert!(REFUSALS.iter().any(|(known, _)| *known == name), "{name}");
    }
}

/// A text with a place for the size is about a limit whose size is in the status.
#[test]
fn every_limit_says_its_size() {
    let page = include_str!("../../../../../docs/router-status.md");
    // Those of the router, and those of a port.
    let limits = page.lines().filter(|line| line.starts_with("| `limits`"));
    let limits = limits.collect::<Vec<_>>().join("\n");
    for (name, what) in REFUSALS {
        assert_eq!(
            what.contains("{}"),
            limits.contains(&format!("`{name}`")),
            "{name}"
        );
    }
}

#[test]
fn the_end_of_the_guardian_has_one_line() {
    let mut limits = Limits::new();
    let mut said = |fail_open| {
        let status = Status {
            fail_open,
            ..Status::default()
        };
        limits.warnings(&status, Instant::now())
    };
    assert!(said(None).is_empty() && said(Some(true)).is_empty());
    let first = said(Some(false));
    assert_eq!(
        lines(&first),
        [
            "warning: the process that watches this router has ended: --fail-open has no effect until \
             the router is restarted"
        ]
    );
    assert_eq!(first[0].json["log"], "fail_open");
    assert!(said(Some(false)).is_empty(), "it is known");
}

/// A line of each kind.
#[test]
fn the_page_of_json_has_the_keys_of_the_warnings() {
    let port = PortStatus {
        name: "eth0".into(),
        lost: [("kernel_queue".to_owned(), 3)].into(),
        promiscuous: Some(false),
        attach_error: Some("its MTU is 9000".into()),
        write_error: Some("No space left on device (os error 28)".into()),
        ..PortStatus::default()
    };
    let status = Status {
        ports: vec![port],
        fail_open: Some(false),
        ..Status::default()
    };
    let said = Limits::new().warnings(&status, Instant::now());
    assert_eq!(said.len(), 5, "{:?}", lines(&said));
    documented::check_log(&Log::new(true, None).unwrap().events(&said));
}
