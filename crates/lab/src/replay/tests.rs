//! Whole replays of small traces whose results are computed by hand.

mod capture;
mod record;

use std::fs;
use std::path::Path;

use super::*;

/// Replays `trace` and returns the rows as CSV.
fn rows(trace: &str, queue: &str, rate: &str) -> String {
    let (rows, _, _) = replay(trace, queue, rate);
    rows
}

/// Replays `trace`; returns rows, state and summary.
fn replay(trace: &str, queue: &str, rate: &str) -> (String, String, Summary) {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("trace.csv"), trace).unwrap();
    let rate = if rate.contains(',') {
        fs::write(at("rate.csv"), rate).unwrap();
        at("rate.csv").to_str().unwrap().to_owned()
    } else {
        rate.to_owned()
    };
    let job = Job {
        trace: at("trace.csv"),
        queue: parse_queue(queue).unwrap(),
        rate: parse_rate(&rate).unwrap(),
        hash: Hash::Flow,
        seed: 1,
        draws: None,
        record: None,
        outputs: Outputs {
            rows: Some(at("rows.csv")),
            state: Some(at("state.csv")),
            capture: None,
        },
    };
    let summary = run(&job, &mut |_, _| {}).unwrap().summary;
    let read = |name: &str| fs::read_to_string(at(name)).unwrap();
    (read("rows.csv"), read("state.csv"), summary)
}

/// `n` packets of 1000 B of flow 1 at time 0: 1 ms each at 8 Mbit/s.
fn burst(n: usize, ecn: u8) -> String {
    format!("0,1,1000,{ecn}\n").repeat(n)
}

const HEAD: &str = "seq,time_ns,flow,size_bytes,verdict,at_ns,sojourn_ns,reason\n";

#[test]
fn all_arrivals_of_an_instant_come_before_the_link_asks() {
    // The queue holds two packets when the third arrives, although the link is idle.
    let expected = "0,0,1,1000,sent,0,0,\n\
        1,0,1,1000,sent,1000000,1000000,\n\
        2,0,2,1000,dropped,0,0,overflow\n";
    let trace = format!("{}0,2,1000,0\n", burst(2, 0));
    let found = rows(&trace, "fifo limit 2", "8Mbit/s");
    assert_eq!(found, format!("{HEAD}{expected}"));
}

#[test]
fn an_arrival_comes_before_the_end_of_a_transmission_at_the_same_instant() {
    // The queue holds packets 1 and 2 until packet 1 leaves at 1 ms. Packet 3, which arrives then,
    // is refused; packet 4, a nanosecond later, is not.
    let trace = "0,1,1000,0\n0,1,1000,0\n500000,1,1000,0\n1000000,1,1000,0\n1000001,1,1000,0\n";
    let expected = "0,0,1,1000,sent,0,0,\n\
        1,0,1,1000,sent,1000000,1000000,\n\
        2,500000,1,1000,sent,2000000,1500000,\n\
        3,1000000,1,1000,dropped,1000000,0,overflow\n\
        4,1000001,1,1000,sent,3000000,1999999,\n";
    let found = rows(trace, "fifo limit 2", "8Mbit/s");
    assert_eq!(found, format!("{HEAD}{expected}"));
}

#[test]
fn a_pause_of_decades_ends_at_once() {
    // Absolute dates: 2026, and 2^62 ns after 1970. One update at a time would take 10^11 of them.
    let dates = [1_790_000_000_000_000_000u64, 1 << 62];
    let trace = format!("0,1,1000,0\n{},1,1000,0\n{},1,1000,0\n", dates[0], dates[1]);
    let expected = format!(
        "0,0,1,1000,sent,0,0,\n1,{0},1,1000,sent,{0},0,\n2,{1},1,1000,sent,{1},0,\n",
        dates[0], dates[1]
    );
    for queue in [
        "pie",
        "pie variant linux",
        "pie variant dummynet",
        "pi2",
        "red adaptive",
        "dualpi2",
        "fq_pie",
        "prio",
        "cake bandwidth 8Mbit/s",
    ] {
        let (found, state, _) = replay(&trace, queue, "8Mbit/s");
        assert_eq!(found, format!("{HEAD}{expected}"), "`{queue}`");
        // Three variables a thousand times in each of the two pauses.
        assert!(state.lines().count() < 7_000, "`{queue}`");
    }
}

#[test]
fn a_packet_at_an_idle_link_waits_for_nothing() {
    let expected = "0,5,7,60,sent,5,0,\n1,900000000,7,60,sent,900000000,0,\n";
    let found = rows("5,7,60,0\n900000000,7,60,0\n", "fq_codel", "1Mbit/s");
    assert_eq!(found, format!("{HEAD}{expected}"));
}

#[test]
fn a_transmission_is_rounded_up_to_a_nanosecond() {
    // 100 B * 8e9 / 3 bit/s = 266 666 666 666.67 ns, and twice that is rounded twice.
    let (rows, _, summary) = replay("0,1,100,0\n0,1,100,0\n0,1,100,0\n", "fifo", "3bit/s");
    let at: Vec<&str> = rows
        .lines()
        .skip(1)
        .map(|row| row.split(',').nth(5).unwrap())
        .collect();
    assert_eq!(at, ["0", "266666666667", "533333333334"]);
    assert_eq!(summary.end.as_ns(), 3 * 266_666_666_667);
}

#[test]
fn a_rate_holds_from_its_instant_within_a_transmission() {
    // 1 ms at 8 Mbit/s, 8 ms at 1 Mbit/s. Half of packet 1 passes from 1 to 1.5 ms, the other half in
    // 4 ms. Of packet 2, 4500 bits pass from 5.5 to 10 ms, and 3500 at 8 Mbit/s in 437.5 us.
    let schedule = "time_ns,bits_per_second\n0,8000000\n1500000,1000000\n10000000,8000000\n";
    let (rows, _, summary) = replay(&burst(5, 0), "fifo", schedule);
    let at: Vec<&str> = rows
        .lines()
        .skip(1)
        .map(|row| row.split(',').nth(5).unwrap())
        .collect();
    assert_eq!(at, ["0", "1000000", "5500000", "10437500", "11437500"]);
    assert_eq!(summary.end.as_ns(), 12_437_500);
}

#[test]
fn hash_flow_puts_flow_f_into_bucket_f_mod_flows() {
    // Two buckets with a quantum of one packet: 0 holds flows 0 and 2, 1 holds flow 1. New queues
    // come first: flow 0, flow 1 with one packet each; then bucket 0 continues with flow 0 and flow
    // 2.
    let trace = "0,0,1000,0\n0,0,1000,0\n0,2,1000,0\n0,1,1000,0\n";
    let found = rows(trace, "fq_droptail flows 2 quantum 1000", "8Mbit/s");
    let expected = "0,0,0,1000,sent,0,0,\n\
        1,0,0,1000,sent,2000000,2000000,\n\
        2,0,2,1000,sent,3000000,3000000,\n\
        3,0,1,1000,sent,1000000,1000000,\n";
    assert_eq!(found, format!("{HEAD}{expected}"));
}

/// The dequeues of 40 packets at once through CoDel with a target of 1 ms and an interval of 10 ms
/// at 1 ms per packet, with no byte floor. Each packet k leaves at k ms less one for each drop.
///
/// Packet 1 has waited 1 ms: first_above = 11 ms. At 11 ms packet 11 is dropped (count 1), packet
/// 12 passes, drop_next = 21 ms. At 21 ms packet 22 is dropped (count 2) and drop_next becomes 21 +
/// 10/sqrt(2) = 28.071 067 ms. At 29 ms packet 31 is dropped (count 3), drop_next = 28.071 067 +
/// 5.773 502 = 33.844 569 ms. At 34 ms packet 37 is dropped (count 4). Packet 39 leaves an empty
/// queue behind at 35 ms, which ends the dropping state.
const DROPS: [(u64, u64); 4] = [(11, 11), (22, 21), (31, 29), (37, 34)];

#[test]
fn codel_drops_by_the_control_law() {
    let (rows, state, summary) = replay(
        &burst(40, 0),
        "codel target 1ms interval 10ms mtu 0",
        "8Mbit/s",
    );
    let mut expected = HEAD.to_owned();
    for k in 0..40u64 {
        let before = DROPS.iter().filter(|(packet, _)| *packet < k).count() as u64;
        let row = match DROPS.iter().find(|(packet, _)| *packet == k) {
            Some((_, ms)) => format!("{k},0,1,1000,dropped,{ms}000000,{ms}000000,congestion\n"),
            None => {
                let ns = (k - before) * 1_000_000;
                format!("{k},0,1,1000,sent,{ns},{ns},\n")
            }
        };
        expected.push_str(&row);
    }
    assert_eq!(rows, expected);
    assert_eq!((summary.sent, summary.dropped["congestion"]), (36, 4));
    // Each instant has each variable once, as the dequeue left it. After the fourth signal
    // drop_next is 33.844 569 + 5 ms.
    let mut expected = "time_ns,queue,variable,value,unit\n".to_owned();
    for (at, count, dropping, drop_next) in [
        (11_000_000, 1, 1, 21_000_000),
        (21_000_000, 2, 1, 28_071_067),
        (29_000_000, 3, 1, 33_844_569),
        (34_000_000, 4, 1, 38_844_569),
        (35_000_000, 4, 0, 38_844_569),
    ] {
        expected += &format!("{at},0,count,{count},count\n");
        expected += &format!("{at},0,dropping,{dropping},flag\n");
        expected += &format!("{at},0,drop_next,{drop_next},time_ns\n");
    }
    assert_eq!(state, expected);
}

#[test]
fn codel_marks_where_it_may() {
    // Marked packets leave, so no packet replaces a dropped one: packet k leaves at k ms. The marks
    // are set when drop_next has passed: at 11, 21, 29 and 34 ms, then after 33.844 569 + 5 =
    // 38.844 569 ms, at 39 ms, where the last packet leaves an empty queue and is not marked.
    let (rows, _, summary) = replay(
        &burst(40, 2),
        "codel target 1ms interval 10ms mtu 0 ecn",
        "8Mbit/s",
    );
    let marked: Vec<u64> = rows
        .lines()
        .filter(|row| row.contains(",marked,"))
        .map(|row| row.split(',').next().unwrap().parse().unwrap())
        .collect();
    assert_eq!(marked, [11, 21, 29, 34]);
    assert_eq!((summary.sent, summary.marked), (36, 4));
    assert!(summary.dropped.is_empty());
}

#[test]
fn a_summary_counts_what_the_rows_say() {
    let trace = format!("{}0,2,1000,0\n", burst(2, 0));
    let (_, _, summary) = replay(&trace, "fifo limit 2", "8Mbit/s");
    assert_eq!((summary.packets, summary.bytes), (3, 3000));
    assert_eq!((summary.sent, summary.sent_bytes), (2, 2000));
    assert_eq!(summary.dropped["overflow"], 1);
    let sojourn = summary.sojourn.unwrap();
    assert_eq!((sojourn.min.as_ns(), sojourn.max.as_ns()), (0, 1_000_000));
    assert_eq!(sojourn.mean.as_ns(), 500_000);
    assert_eq!(summary.to_json()["sojourn_ns"]["max"], 1_000_000);
    let text = summary.to_string();
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
}

#[test]
fn the_same_seed_gives_the_same_file() {
    let mut trace = String::new();
    for i in 0..2000u64 {
        let (t, flow, size) = (i * 400_000, i * i % 7, 60 + i % 5 * 360);
        trace.push_str(&format!("{t},{flow},{size},{}\n", i % 4));
    }
    let first = replay(&trace, "fq_codel limit 20", "5Mbit/s");
    assert_eq!(first, replay(&trace, "fq_codel limit 20", "5Mbit/s"));
}

#[test]
fn parquet_has_the_rows_of_csv() {
    use parquet::file::reader::{FileReader as _, SerializedFileReader};
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("trace.csv"), burst(40, 0)).unwrap();
    let job = |rows: &str, state: &str| Job {
        trace: at("trace.csv"),
        queue: parse_queue("codel target 1ms interval 10ms mtu 0").unwrap(),
        rate: parse_rate("8Mbit/s").unwrap(),
        hash: Hash::Flow,
        seed: 1,
        draws: None,
        record: None,
        outputs: Outputs {
            rows: Some(at(rows)),
            state: Some(at(state)),
            capture: None,
        },
    };
    run(&job("rows.csv", "state.csv"), &mut |_, _| {}).unwrap();
    run(&job("rows.parquet", "state.parquet"), &mut |_, _| {}).unwrap();
    for name in ["rows", "state"] {
        let csv = fs::read_to_string(at(&format!("{name}.csv"))).unwrap();
        let file = fs::File::open(at(&format!("{name}.parquet"))).unwrap();
        let reader = SerializedFileReader::new(file).unwrap();
        let mut lines = csv.lines();
        let head: Vec<&str> = lines.next().unwrap().split(',').collect();
        let mut found = 0;
        for (row, line) in reader.get_row_iter(None).unwrap().zip(lines) {
            let row = row.unwrap();
            for ((column, field), (name, cell)) in
                head.iter().zip(line.split(',')).zip(row.get_column_iter())
            {
                assert_eq!(column, name);
                // The library shows a decimal 0 as `0E0`.
                let (cell, field) = (cell.to_string(), field.to_owned());
                let is_same = match (cell.parse::<f64>(), field.parse::<f64>()) {
                    (Ok(cell), Ok(field)) => cell == field,
                    _ => cell.trim_matches('"') == field,
                };
                assert!(is_same, "{line}: {name} {cell}");
            }
            found += 1;
        }
        assert_eq!(found, csv.lines().count() - 1);
    }
}

#[test]
fn what_cannot_be_written_is_said_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.csv");
    fs::write(&trace, burst(1, 0)).unwrap();
    let error = |outputs: Outputs| {
        let job = Job {
            trace: trace.clone(),
            queue: parse_queue("fifo").unwrap(),
            rate: parse_rate("8Mbit/s").unwrap(),
            hash: Hash::Flow,
            seed: 1,
            draws: None,
            record: None,
            outputs,
        };
        run(&job, &mut |_, _| {}).unwrap_err().to_string()
    };
    let in_folder = |name: &str| Some(folder.path().join(name));
    let text = error(Outputs {
        rows: in_folder("rows.txt"),
        ..Outputs::default()
    });
    assert!(text.contains("must end in .csv or .parquet"), "{text}");
    let text = error(Outputs {
        state: Some(Path::new("/nowhere/state.csv").to_owned()),
        ..Outputs::default()
    });
    assert!(
        text.starts_with("cannot write `/nowhere/state.csv`"),
        "{text}"
    );
    let text = error(Outputs {
        capture: in_folder("out.pcap"),
        ..Outputs::default()
    });
    assert!(text.contains("is CSV and has no bytes"), "{text}");
}

/// Replays the fuzzer's corpus: a trace, or an error, but no panic.
#[test]
fn traces_of_the_corpus_are_read_or_refused() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/trace");
    let mut files: Vec<_> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", folder.display());
    for file in files {
        println!("{}", file.display());
        let Ok(mut trace) = Trace::from_bytes(fs::read(&file).unwrap(), Hash::Flow, 1) else {
            continue;
        };
        let mut before = sluice_core::Time::ZERO;
        while let Ok(Some(arrival)) = trace.read() {
            assert!(arrival.time >= before && arrival.len > 0);
            before = arrival.time;
        }
    }
}

#[test]
fn a_capture_is_written_as_pcap_only() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("in.pcap");
    // The head of a classic capture of Ethernet without a packet.
    let head: [u32; 6] = [0xa1b2_3c4d, 4 << 16 | 2, 0, 0, 1 << 18, 1];
    fs::write(&trace, head.map(u32::to_le_bytes).concat()).unwrap();
    let job = Job {
        trace,
        queue: parse_queue("fifo").unwrap(),
        rate: parse_rate("8Mbit/s").unwrap(),
        hash: Hash::Flow,
        seed: 1,
        draws: None,
        record: None,
        outputs: Outputs {
            capture: Some(folder.path().join("x.pcapng")),
            ..Outputs::default()
        },
    };
    let text = run(&job, &mut |_, _| {}).unwrap_err().to_string();
    assert!(
        text.ends_with("x.pcapng`: its name must end in .pcap"),
        "{text}"
    );
}

/// Returns the names in a folder, in order.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Replays `trace` to CSV and Parquet in `folder` and returns the error.
fn failing(folder: &Path, trace: &str) -> String {
    fs::write(folder.join("trace.csv"), trace).unwrap();
    let job = Job {
        trace: folder.join("trace.csv"),
        queue: parse_queue("fifo").unwrap(),
        rate: parse_rate("8Mbit/s").unwrap(),
        hash: Hash::Flow,
        seed: 1,
        draws: None,
        record: None,
        outputs: Outputs {
            rows: Some(folder.join("rows.csv")),
            state: Some(folder.join("state.parquet")),
            capture: None,
        },
    };
    run(&job, &mut |_, _| {}).unwrap_err().to_string()
}

#[test]
fn a_trace_without_packets_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for trace in ["", "# nothing\n", "time_ns,flow,size_bytes,ecn\n"] {
        let text = failing(folder.path(), trace);
        assert!(text.ends_with("trace.csv` has no packets"), "{text}");
        for name in ["rows.csv", "state.parquet"] {
            assert!(!folder.path().join(name).exists());
        }
    }
}

#[test]
fn an_error_leaves_no_file_behind() {
    let folder = tempfile::tempdir().unwrap();
    for trace in ["", "0,1,1000,0\n0,1,x,0\n"] {
        failing(folder.path(), trace);
        assert_eq!(names(folder.path()), ["trace.csv"]);
    }
}

#[test]
fn no_output_is_written_over_another_file_of_the_job() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("trace.csv"), burst(1, 0)).unwrap();
    fs::write(at("rate.csv"), "0,8000000\n").unwrap();
    fs::hard_link(at("trace.csv"), at("link.csv")).unwrap();
    fs::hard_link(at("trace.csv"), at("x.csv.part")).unwrap();
    let error = |rows: &str, state: &str| {
        let job = Job {
            trace: at("trace.csv"),
            queue: parse_queue("fifo").unwrap(),
            rate: parse_rate(at("rate.csv").to_str().unwrap()).unwrap(),
            hash: Hash::Flow,
            seed: 1,
            draws: None,
            record: None,
            outputs: Outputs {
                rows: Some(at(rows)),
                state: Some(at(state)),
                capture: None,
            },
        };
        run(&job, &mut |_, _| {}).unwrap_err().to_string()
    };
    for (rows, state, said) in [
        ("trace.csv", "state.csv", "--out and the trace are"),
        ("link.csv", "state.csv", "--out and the trace are"),
        ("x.csv", "state.csv", "--out and the trace are"),
        ("rows.csv", "rate.csv", "--state and --rate are"),
        ("rows.csv", "./rows.csv", "--state and --out are"),
    ] {
        let text = error(rows, state);
        assert!(text.starts_with(said), "{text}");
    }
    assert_eq!(fs::read_to_string(at("trace.csv")).unwrap(), burst(1, 0));
}
