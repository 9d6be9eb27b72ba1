//! The reports of the traffic sources, live, through the minimal forwarder.

#[path = "../../net/tests/common/mod.rs"]
mod common;

use common::forwarder::{Forwarder, Mode};
use common::{H2, H2_V6, H3, H3_V6, Topology};
use sluice_core::{Rate, Span, Stop, Time};
use sluice_load::TrafficError;
use sluice_load::bulk::Bulk;
use sluice_load::ping::Ping;
use sluice_load::tcp::{Ecn, TcpFlow, TcpSettings, check_congestion_control, congestion_controls};
use sluice_load::udp::UdpFlow;
use sluice_net::Clock;
use sluice_net::namespace::{Namespace, Offloads};
use sluice_net::port::packet::PacketOptions;

fn with_forwarder<T>(work: impl FnOnce(&Topology) -> T) -> T {
    let topology = Topology::new(Offloads::ON);
    let forwarder = Forwarder::start(&topology, Mode::Whole, PacketOptions::default());
    let result = work(&topology);
    forwarder.finish();
    result
}

/// Long enough for the kernel to switch its timestamps on.
const START: Time = Time::from_ns(100_000_000);

#[test]
fn ping_measures_both_ways_in_both_families() {
    with_forwarder(|topology| {
        let clock = Clock::start();
        let running = [(H2, H3), (H2_V6, H3_V6)].map(|(from, to)| {
            let ping = Ping {
                count: Some(50),
                payload: 1000,
                dscp: 46,
                ..Ping::new(from, to, Span::from_ms(2), START)
            };
            ping.start(&topology.h2, &topology.h3, &clock, &Stop::new())
                .unwrap()
        });
        for running in running {
            let report = running.join().unwrap();
            assert_eq!(report.samples.len(), 50);
            assert_eq!((report.arrived, report.received), (50, 50));
            assert_eq!(
                (report.duplicates, report.reordered, report.refused),
                (0, 0, 0)
            );
            let mut measured = 0;
            for (index, sample) in report.samples.iter().enumerate() {
                assert!(sample.sent >= START + Span::from_ms(2) * index as u64);
                // Earlier packets, before the kernel switched its timestamps on, count as
                // `unstamped`.
                if let (Some(forward), Some(round_trip)) = (sample.forward, sample.round_trip) {
                    assert!(Span::ZERO < forward && forward < round_trip, "{sample:?}");
                    assert_eq!(sample.backward(), Some(round_trip - forward));
                    measured += 1;
                }
            }
            assert!(
                measured > 0 && measured + report.unstamped >= 50,
                "{report:?}"
            );
        }
    });
}

/// Each observer reads only rarely, and its socket receives the requests of all series.
#[test]
fn series_to_one_host_do_not_count_each_others_requests() {
    with_forwarder(|topology| {
        let clock = Clock::start();
        let series = |_| {
            let ping = Ping {
                count: Some(200),
                payload: 200,
                ..Ping::new(H2, H3, Span::from_ms(1), START)
            };
            ping.start(&topology.h2, &topology.h3, &clock, &Stop::new())
                .unwrap()
        };
        let running: Vec<_> = (0..4).map(series).collect();
        for running in running {
            let report = running.join().unwrap();
            assert_eq!((report.arrived, report.received), (200, 200));
            assert_eq!(report.duplicates, 0);
        }
    });
}

#[test]
fn unanswered_pings_are_lost_and_not_waited_for_forever() {
    // Without a forwarder nothing arrives.
    let topology = Topology::new(Offloads::ON);
    let clock = Clock::start();
    let ping = Ping {
        count: Some(3),
        linger: Span::from_ms(50),
        ..Ping::new(H2, H3, Span::from_ms(1), START)
    };
    let report = ping
        .start(&topology.h2, &topology.h3, &clock, &Stop::new())
        .unwrap()
        .join()
        .unwrap();
    assert_eq!((report.lost(), report.arrived), (3, 0));
}

#[test]
fn udp_keeps_its_rate_and_counts_every_packet() {
    with_forwarder(|topology| {
        let clock = Clock::start();
        let running = [
            (H2, H3, 28, false),
            (H2, H3, 28, true),
            (H2_V6, H3_V6, 48, true),
        ]
        .map(|(from, to, header, stamp_departures)| {
            let flow = UdpFlow {
                stamp_departures,
                ecn: 2,
                dscp: 10,
                // 10 Mbit/s in packets of 1250 bytes: one every millisecond.
                stop: Some(START + Span::from_ms(200)),
                ..UdpFlow::new(from, to, Rate::from_bps(10_000_000), 1250 - header, START)
            };
            flow.start(&topology.h2, &topology.h3, &clock, &Stop::new())
                .unwrap()
        });
        for (running, stamp_departures) in running.into_iter().zip([false, true, true]) {
            let report = running.join().unwrap();
            assert_eq!(
                (report.sent, report.received, report.refused),
                (200, 200, 0)
            );
            assert_eq!(report.received_bytes, 200 * 1250);
            assert_eq!(report.departed, if stamp_departures { 200 } else { 0 });
            assert_eq!(
                (report.duplicates, report.reordered, report.marked),
                (0, 0, 0)
            );
            for (index, sample) in report.samples.iter().enumerate() {
                assert_eq!(sample.sequence, index as u64);
                assert!(sample.sent >= START + Span::from_ms(1) * index as u64);
                assert!(
                    sample
                        .received
                        .is_none_or(|received| received > sample.sent)
                );
                assert_eq!(sample.ecn, Some(2));
            }
        }
    });
}

#[test]
fn tcp_stops_on_time_and_reports_the_kernels_view() {
    with_forwarder(|topology| {
        let clock = Clock::start();
        let stop = Stop::new();
        let end = START + Span::from_ms(1500);
        let flow = TcpFlow {
            stop: Some(end),
            info_interval: Span::from_ms(100),
            ..TcpFlow::new(H2, H3, START)
        };
        let report = flow
            .start(&topology.h2, &topology.h3, &clock, &stop)
            .unwrap()
            .join()
            .unwrap();
        assert_eq!((report.broken, report.finished), (None, None));
        assert!(report.connected.unwrap() >= START);
        assert!(!report.has_ecn);
        // 1.5 s at 100 ms: 15 samples and the last one; late ones are skipped and not repeated.
        assert!(
            (8..=17).contains(&report.info.len()),
            "{}",
            report.info.len()
        );
        let last = report.info.last().unwrap();
        assert!(last.time >= end && last.cwnd > 0 && last.mss > 1000);
        assert!(last.srtt > Span::ZERO && last.bytes_acked > 0);
        let times: Vec<_> = report.goodput.iter().map(|entry| entry.time).collect();
        assert!(times.is_sorted());
        let received = report.goodput.last().unwrap().bytes;
        assert!(received >= last.bytes_acked - 1, "{received} {last:?}");
    });
}

#[test]
fn ecn_is_negotiated_per_flow() {
    with_forwarder(|topology| {
        let clock = Clock::start();
        let before = topology.h2.sysctl("net.ipv4.tcp_ecn").unwrap();
        let running = [Ecn::On, Ecn::Off].map(|ecn| {
            let flow = TcpFlow {
                tcp: TcpSettings {
                    ecn,
                    ..TcpSettings::default()
                },
                bytes: Some(1_000_000),
                ..TcpFlow::new(H2, H3, START)
            };
            flow.start(&topology.h2, &topology.h3, &clock, &Stop::new())
                .unwrap()
        });
        let has_ecn = running.map(|running| running.join().unwrap().has_ecn);
        assert_eq!(has_ecn, [true, false]);
        assert_eq!(topology.h2.sysctl("net.ipv4.tcp_ecn").unwrap(), before);
    });
}

/// Returns a counter of a namespace's IPv4 stack (proc_net_snmp(5)): a line with the names of a protocol's
/// counters precedes the line with their values.
fn counted(namespace: &Namespace, protocol: &str, name: &str) -> u64 {
    let read = || std::fs::read_to_string("/proc/thread-self/net/snmp");
    let text = namespace.enter(read).unwrap().unwrap();
    let own = text.lines().filter(|line| line.starts_with(protocol));
    let lines: Vec<Vec<&str>> = own.map(|line| line.split(' ').collect()).collect();
    let place = lines[0].iter().position(|own| *own == name).unwrap();
    lines[1][place].parse().unwrap()
}

#[test]
fn a_stop_ends_everything_that_shares_it() {
    with_forwarder(|topology| {
        let (clock, stop) = (Clock::start(), Stop::new());
        let (h2, h3) = (&topology.h2, &topology.h3);
        let tcp = TcpFlow::new(H2, H3, START)
            .start(h2, h3, &clock, &stop)
            .unwrap();
        let udp = UdpFlow {
            linger: Span::from_ms(10),
            ..UdpFlow::new(H2, H3, Rate::from_bps(1_000_000), 100, START)
        };
        let udp = udp.start(h2, h3, &clock, &stop).unwrap();
        let ping = Ping::new(H2, H3, Span::from_ms(10), START)
            .start(h2, h3, &clock, &stop)
            .unwrap();
        let never = TcpFlow::new(H2, H3, Time::from_ns(3_600_000_000_000))
            .start(h2, h3, &clock, &stop)
            .unwrap();
        clock.sleep_until(START + Span::from_ms(50), Span::ZERO);
        for (host, protocol, what, packets) in [
            (h3, "Tcp:", "InSegs", 100),
            (h3, "Udp:", "InDatagrams", 5),
            (h2, "Icmp:", "InEchoReps", 2),
        ] {
            while counted(host, protocol, what) < packets {
                let waited = clock.now();
                assert!(waited < Time::from_ns(20_000_000_000), "{what} are missing");
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        }
        assert!(!tcp.is_finished());
        stop.stop();
        assert!(tcp.join().unwrap().goodput.last().unwrap().bytes > 0);
        assert!(udp.join().unwrap().received > 0);
        assert!(ping.join().unwrap().received > 0);
        assert_eq!(never.join().unwrap().connected, None);
    });
}

#[test]
fn what_cannot_work_is_refused_before_it_starts() {
    let topology = Topology::new(Offloads::ON);
    let (clock, stop) = (Clock::start(), Stop::new());
    let (h2, h3) = (&topology.h2, &topology.h3);

    let flow = TcpFlow {
        tcp: TcpSettings::with_congestion_control("nosuchcc"),
        ..TcpFlow::new(H2, H3, START)
    };
    let message = flow.start(h2, h3, &clock, &stop).err().unwrap().to_string();
    let expected = format!(
        "the kernel has no congestion control \"nosuchcc\"; it has {}",
        congestion_controls().join(", ")
    );
    assert_eq!(message, expected);
    assert!(congestion_controls().contains(&"reno".to_owned()));
    check_congestion_control(h2, "reno").unwrap();
    check_congestion_control(h2, "nosuchcc").unwrap_err();

    // An address that no interface of the namespace has.
    let message = TcpFlow::new(H3, H2, START)
        .start(h2, h3, &clock, &stop)
        .err()
        .unwrap()
        .to_string();
    assert!(
        message.starts_with("cannot listen on 10.23.0.2 in namespace \"h3\""),
        "{message}"
    );
    let mixed = TcpFlow::new(H2, H3_V6, START).start(h2, h3, &clock, &stop);
    assert!(matches!(mixed, Err(TrafficError::Families { .. })));
    let ping = Ping {
        payload: 8,
        ..Ping::new(H2, H3, Span::from_ms(1), START)
    };
    let message = ping.start(h2, h3, &clock, &stop).err().unwrap().to_string();
    assert_eq!(message, "packet payload of 8 bytes is outside 24 to 65507");
    let udp = UdpFlow {
        ecn: 4,
        ..UdpFlow::new(H2, H3, Rate::from_bps(1000), 100, START)
    };
    let message = udp.start(h2, h3, &clock, &stop).err().unwrap().to_string();
    assert_eq!(message, "ecn 4 is above 3");
}

#[test]
fn a_connection_that_nobody_answers_is_reported_broken() {
    // The receiver's namespace loses its address after the listener was made.
    let topology = Topology::new(Offloads::ON);
    let forwarder = Forwarder::start(&topology, Mode::Whole, PacketOptions::default());
    let lone = Namespace::create("lone").unwrap();
    lone.links().unwrap().set_up("lo", true).unwrap();
    let local = std::net::Ipv4Addr::LOCALHOST.into();
    let (clock, stop) = (Clock::start(), Stop::new());
    // The sender connects inside its own namespace, where the port has no listener.
    let report = TcpFlow::new(local, local, START)
        .start(&lone, &topology.h2, &clock, &stop)
        .unwrap()
        .join()
        .unwrap();
    forwarder.finish();
    assert_eq!(report.connected, None);
    assert!(report.broken.unwrap().contains("refused"));
}

#[test]
fn bulk_transfers_all_arrive_and_end_together() {
    with_forwarder(|topology| {
        let clock = Clock::start();
        for (from, to) in [(H2, H3), (H2_V6, H3_V6)] {
            let start = clock.now() + Span::from_ms(20);
            let stop = start + Span::from_ms(1000);
            let bulk = Bulk::new(from, to, 5, start, stop);
            let running = bulk.start(&topology.h2, &topology.h3, &clock, &Stop::new());
            let report = running.unwrap().join().unwrap();
            assert!(report.broken.is_empty(), "{:?}", report.broken);
            assert_eq!(report.goodput.len(), 5);
            for notes in &report.goodput {
                assert!(notes.is_sorted_by_key(|note| (note.time, note.bytes)));
                let last = notes.last().unwrap();
                assert!(last.bytes > 0 && last.time >= start, "{last:?}");
            }
        }
    });
}

#[test]
fn bulk_transfers_that_reach_nobody_end_at_their_time() {
    // Without a forwarder nothing arrives.
    let topology = Topology::new(Offloads::ON);
    let clock = Clock::start();
    let bulk = Bulk::new(H2, H3, 2, START, START + Span::from_ms(50));
    let running = bulk.start(&topology.h2, &topology.h3, &clock, &Stop::new());
    let report = running.unwrap().join().unwrap();
    assert!(report.goodput.is_empty(), "{report:?}");
    let unknown = Bulk {
        congestion_control: Some("no such".to_owned()),
        ..bulk
    };
    let refused = unknown.start(&topology.h2, &topology.h3, &clock, &Stop::new());
    assert!(matches!(
        refused.map(drop),
        Err(TrafficError::CongestionControl { .. })
    ));
}
