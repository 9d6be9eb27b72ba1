mod damage;
mod hostile;
mod killed;

use std::fs;
use std::path::Path;

use sluice_core::event::StateValue;
use sluice_core::record::{Fate, PacketRecord};
use sluice_core::{Backlog, DropReason, Ecn, Span, Time};

use super::cell::table;
use super::columns::GROUP_ROWS;
use super::table::TableFile;
use super::writer::estimated_bytes;
use super::*;
use sluice_scenario::{Backend, Direction, PipeId, Scenario, Variant};

fn variant() -> Variant {
    let text = r#"
        title = "a recording"
        duration = "15s"
        [link]
        rate = "10Mbit/s"
        rtt = "20ms"
        queue = "fq_codel"
        [[flow]]
        type = "tcp"
        count = 2
        [[flow]]
        type = "ping"
    "#;
    Scenario::parse("test.toml", text, &[]).unwrap().remove(0)
}

fn environment() -> Environment {
    Environment::here(Backend::Live, "2026-01-02T03:04:05Z".into())
}

fn begin(dir: &Path) -> RunWriter {
    RunWriter::create(dir, &variant(), &environment()).unwrap()
}

fn packet(seq: u64, fate: Fate) -> PacketRecord {
    let arrival = Time::from_ns(1_200_000 * seq);
    PacketRecord {
        seq,
        packet: Some(10 + seq),
        arrival,
        flow: (seq % 3) as u32,
        len: 1500,
        segments: 1,
        ecn: Ecn::Ect0,
        class: 7,
        fate,
        at: match fate {
            Fate::Queued => arrival,
            _ => arrival + Span::from_us(4321),
        },
    }
}

fn write_table<R: Row>(dir: &Path, rows: impl IntoIterator<Item = R>) {
    let mut file = TableFile::create((R::TABLE, R::columns), dir, Backend::Sim).unwrap();
    file.add(&rows.into_iter().collect::<Vec<R>>()).unwrap();
    file.finish().unwrap();
}

#[test]
fn the_reference_page_is_current() {
    // UPDATE_EXPECT=1 rewrites the page.
    expect_test::expect_file!["../../../docs/recording.md"].assert_eq(&reference());
}

#[test]
fn rows_come_back_as_they_were_written() {
    let temp = tempfile::tempdir().unwrap();
    let fates = [
        Fate::Sent,
        Fate::Marked,
        Fate::Queued,
        Fate::Dropped(DropReason::Congestion),
        Fate::Dropped(DropReason::Overflow),
    ];
    let packets: Vec<PacketRecord> = (0..).zip(fates).map(|(i, f)| packet(i, f)).collect();
    let flow = FlowSample {
        time: Time::from_ns(50_000_000),
        flow: 1,
        received_bytes: Some(62_000),
        sent_packets: None,
        received_packets: None,
        cwnd: Some(17),
        ssthresh: Some(12),
        mss: Some(1448),
        srtt: Some(Span::from_us(20_125)),
        min_rtt: Some(Span::from_us(20_001)),
        retransmits: Some(3),
        delivery_rate: None,
        delays: Some(41),
        delay_sum: Some(Span::from_ms(820)),
        variation_sum: Some(Span::from_us(77)),
        jitter_sum: None,
    };
    let instant = StateValue::Time(Time::from_ns(1_250_000_000));
    let at = Time::from_ns(50_000_000);
    let queue = QueueSample::state(at, Direction::Down, 1023, "drop_next", instant);
    assert_eq!((queue.kind.as_ref(), queue.value), ("instant", 1.25e9));
    let held = Backlog {
        packets: 2,
        bytes: 3000,
    };
    let [packets_held, bytes_held] = QueueSample::backlog(at, Direction::Down, held);
    let answered = PingSample {
        time: Time::from_ns(20_000_000),
        flow: 2,
        seq: 0,
        rtt: Some(Span::from_us(20_100)),
        up: Some(Span::from_us(10_060)),
        down: Some(Span::from_us(10_040)),
        is_lost: false,
    };
    let lost = PingSample {
        seq: 1,
        rtt: None,
        up: None,
        down: None,
        is_lost: true,
        ..answered.clone()
    };
    let release = Release {
        due: Time::from_ns(11_200_000),
        pipe: Direction::Up.into(),
        len: 1500,
        late: Span::from_us(7),
    };

    let mut writer = begin(temp.path());
    for record in &packets {
        writer.packet(Direction::Up, record).unwrap();
    }
    writer.flow_sample(&flow).unwrap();
    writer.queue_sample(&queue).unwrap();
    writer.queue_sample(&packets_held).unwrap();
    writer.queue_sample(&bytes_held).unwrap();
    writer.ping(&answered).unwrap();
    writer.ping(&lost).unwrap();
    writer.release(&release).unwrap();
    let mut end = End::complete(Time::from_ns(15_000_000_000));
    end.lost.insert("port".into(), 2);
    let recording = writer.finish(end).unwrap();

    let read: Vec<PacketRow> = recording.packets().unwrap().map(Result::unwrap).collect();
    assert!(read.iter().all(|row| row.pipe == Direction::Up));
    let read: Vec<PacketRecord> = read.into_iter().map(|row| row.record).collect();
    assert_eq!(read, packets);
    let flows: Vec<FlowSample> = recording
        .flow_samples()
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(flows, [flow]);
    let queues: Vec<QueueSample> = recording
        .queue_samples()
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(queues, [queue, packets_held, bytes_held]);
    let pings: Vec<PingSample> = recording.pings().unwrap().map(Result::unwrap).collect();
    assert_eq!(pings, [answered, lost]);
    let releases: Vec<Release> = recording.releases().unwrap().map(Result::unwrap).collect();
    assert_eq!(releases, [release]);

    let run = recording.run();
    assert_eq!(run.status, Status::Complete);
    assert_eq!(run.variant, "fq_codel");
    assert_eq!(run.scenario, variant().scenario);
    assert_eq!(run.lost["port"], 2);
    let names: Vec<&str> = run.flows.iter().map(|flow| flow.name.as_str()).collect();
    assert_eq!(names, ["tcp-1", "tcp-2", "ping"]);
    let again = Scenario::parse("run.toml", &run.scenario_toml, &[]).unwrap();
    assert_eq!(again[0].scenario, variant().scenario);
}

#[test]
fn a_table_of_several_row_groups_is_read_in_order() {
    let temp = tempfile::tempdir().unwrap();
    let mut writer = begin(temp.path());
    let count = 2 * GROUP_ROWS as u64 + 17;
    for seq in 0..count {
        writer
            .packet(Direction::Up, &packet(seq, Fate::Sent))
            .unwrap();
    }
    let recording = writer.finish(End::complete(Time::ZERO)).unwrap();
    let mut seqs = recording
        .packets()
        .unwrap()
        .map(|row| row.unwrap().record.seq);
    assert!((0..count).all(|seq| seqs.next() == Some(seq)));
    assert_eq!(seqs.next(), None);
}

/// Words are written in pieces, with empty cells between optional ones.
#[test]
fn words_come_back_each_in_its_row() {
    let temp = tempfile::tempdir().unwrap();
    let mut writer = begin(temp.path());
    let mut rng = sluice_core::Rng::from_seed(1);
    let rows: Vec<PacketRow> = (0..5000)
        .map(|seq| PacketRow {
            pipe: [Direction::Up, Direction::Down][rng.below(2) as usize].into(),
            record: packet(
                seq,
                match rng.below(6) {
                    0 => Fate::Dropped(DropReason::Congestion),
                    1 => Fate::Dropped(DropReason::Overflow),
                    2 => Fate::Queued,
                    3 => Fate::Marked,
                    _ => Fate::Sent,
                },
            ),
        })
        .collect();
    for row in &rows {
        writer.packet(row.pipe, &row.record).unwrap();
    }
    let recording = writer.finish(End::complete(Time::from_ns(1))).unwrap();
    let read: Vec<PacketRow> = recording.packets().unwrap().map(Result::unwrap).collect();
    assert_eq!(read, rows);
}

#[test]
fn the_space_asked_for_covers_a_full_link() {
    // 10 Mbit/s of 1500 B packets are 833 packets/s, 12 500 in 15 s, each with a jittered time, and
    // half as many acknowledgements.
    let temp = tempfile::tempdir().unwrap();
    let mut writer = begin(temp.path());
    let mut noise = sluice_core::Rng::from_seed(1);
    for seq in 0..18_750 {
        let mut record = packet(seq, Fate::Sent);
        record.arrival = Time::from_ns(800_000 * seq + noise.below(800_000));
        record.at = record.arrival + Span::from_ns(noise.below(1_000_000_000));
        writer.packet(Direction::Up, &record).unwrap();
        let release = Release {
            due: record.at + Span::from_ms(11),
            pipe: Direction::Up.into(),
            len: record.len,
            late: Span::from_ns(noise.below(100_000)),
        };
        writer.release(&release).unwrap();
    }
    let recording = writer.finish(End::complete(Time::ZERO)).unwrap();
    let size = |name: &str| fs::metadata(recording.dir().join(name)).unwrap().len();
    let written = size("packets.parquet") + size("releases.parquet");
    let estimate = estimated_bytes(&variant().scenario, Keep::Packets) - 1_000_000;
    assert!(
        written <= estimate && estimate <= 3 * written,
        "{written} bytes written, {estimate} estimated"
    );
}

#[test]
fn no_table_bears_its_name_before_it_is_whole() {
    let temp = tempfile::tempdir().unwrap();
    let mut writer = begin(temp.path());
    writer
        .packet(Direction::Up, &packet(0, Fate::Sent))
        .unwrap();
    assert!(temp.path().join("packets.parquet.part").exists());
    assert!(!temp.path().join("packets.parquet").exists());
    let run = Recording::open(temp.path()).unwrap();
    assert_eq!(run.run().status, Status::Running(Process::this()));
    writer.finish(End::complete(Time::ZERO)).unwrap();
    assert!(!temp.path().join("packets.parquet.part").exists());
    assert!(temp.path().join("packets.parquet").exists());
}

#[test]
fn an_interrupted_run_keeps_what_it_has_and_says_so() {
    let temp = tempfile::tempdir().unwrap();
    let mut writer = begin(temp.path());
    writer
        .packet(Direction::Up, &packet(0, Fate::Sent))
        .unwrap();
    let at = Time::from_ns(4_000_000_000);
    let recording = writer.finish(End::partial(at, "interrupted")).unwrap();
    let reason = "interrupted".to_owned();
    assert_eq!(recording.run().status, Status::Partial { reason });
    assert_eq!(recording.run().end_ns, 4_000_000_000);
    assert_eq!(recording.packets().unwrap().count(), 1);
}

#[test]
fn a_writer_that_is_dropped_leaves_a_partial_run() {
    let temp = tempfile::tempdir().unwrap();
    let mut writer = begin(temp.path());
    writer
        .packet(Direction::Up, &packet(1, Fate::Sent))
        .unwrap();
    drop(writer);
    let recording = Recording::open(temp.path()).unwrap();
    let reason = "the program gave up".to_owned();
    assert_eq!(recording.run().status, Status::Partial { reason });
    // The fate of the packet was known 4321 us after its arrival at 1.2 ms.
    assert_eq!(recording.run().end_ns, 5_521_000);
    assert_eq!(recording.packets().unwrap().count(), 1);
}

#[test]
fn a_writer_that_is_dropped_has_all_rows_of_its_row_groups() {
    let temp = tempfile::tempdir().unwrap();
    let environment = Environment::here(Backend::Sim, "2026-01-02T03:04:05Z".into());
    let mut writer = RunWriter::create(temp.path(), &variant(), &environment).unwrap();
    let count = GROUP_ROWS as u64 + 17;
    for seq in 0..count {
        writer
            .packet(Direction::Up, &packet(seq, Fate::Sent))
            .unwrap();
    }
    drop(writer);
    let recording = Recording::open(temp.path()).unwrap();
    assert!(matches!(recording.run().status, Status::Partial { .. }));
    assert_eq!(recording.packets().unwrap().count() as u64, count);
}

#[test]
fn passages_are_the_packets_of_the_table() {
    let temp = tempfile::tempdir().unwrap();
    let mut writer = begin(temp.path());
    writer.keep_rows();
    let fates = [
        Fate::Sent,
        Fate::Marked,
        Fate::Queued,
        Fate::Dropped(DropReason::Congestion),
        Fate::Dropped(DropReason::Overflow),
    ];
    for seq in 0..GROUP_ROWS as u64 + 100 {
        let mut record = packet(seq, fates[seq as usize % 5]);
        record.packet = (seq % 3 > 0).then_some(seq);
        let pipe = PipeId::new(Direction::Down, seq as usize % 2);
        writer.packet(pipe, &record).unwrap();
    }
    let recording = writer.finish(End::complete(Time::ZERO)).unwrap();
    let mut passages = Vec::new();
    let rows = recording.packets().unwrap();
    rows.for_each_passage(|passage| passages.push(passage))
        .unwrap();
    let expected = recording.packets().unwrap().map(|row| {
        let PacketRow { pipe, record } = row.unwrap();
        Passage {
            pipe,
            arrival: record.arrival,
            at: record.at,
            flow: record.flow,
            len: record.len,
            segments: record.segments,
            fate: record.fate,
            number: record.packet,
        }
    });
    let expected: Vec<Passage> = expected.collect();
    assert!(expected == passages);
    // A recording that is opened later has nothing in memory.
    let opened = Recording::open(temp.path()).unwrap();
    let (mut read, rows) = (Vec::new(), opened.packets().unwrap());
    rows.for_each_passage(|passage| read.push(passage)).unwrap();
    assert!(expected == read);
}

#[test]
fn the_cells_of_a_packet_are_those_of_its_row() {
    let fates = [
        Fate::Sent,
        Fate::Marked,
        Fate::Queued,
        Fate::Dropped(DropReason::Congestion),
    ];
    for fate in fates {
        let mut record = packet(7, fate);
        record.packet = (fate != Fate::Sent).then_some(9);
        let row = PacketRow {
            pipe: Direction::Down.into(),
            record,
        };
        let mut at = 0;
        row.write(|cell| {
            assert_eq!(row.cell(at), cell, "column {at}");
            at += 1;
        });
        assert_eq!(at, PacketRow::columns().len());
    }
}

#[test]
fn rows_that_were_kept_are_those_of_the_tables() {
    let temp = tempfile::tempdir().unwrap();
    let mut writer = begin(temp.path());
    writer.keep_rows();
    for seq in 0..GROUP_ROWS as u64 + 100 {
        writer
            .packet(Direction::Up, &packet(seq, Fate::Sent))
            .unwrap();
        let at = Time::from_ns(seq);
        let sample = FlowSample {
            received_bytes: (seq % 3 > 0).then_some(seq),
            ..FlowSample::empty(at, 0)
        };
        writer.flow_sample(&sample).unwrap();
        for sample in QueueSample::backlog(
            at,
            Direction::Up,
            Backlog {
                packets: seq,
                bytes: 1,
            },
        ) {
            writer.queue_sample(&sample).unwrap();
        }
    }
    let kept = writer.finish(End::complete(Time::ZERO)).unwrap();
    let opened = Recording::open(temp.path()).unwrap();
    fn is_same<R: Row + PartialEq>(pair: [Result<Rows<R>, ReadError>; 2]) -> bool {
        let [one, other] = pair.map(|rows| rows.unwrap().map(Result::unwrap));
        one.eq(other)
    }
    let both = [&kept, &opened];
    assert!(is_same(both.map(Recording::packets)));
    assert!(is_same(both.map(Recording::flow_samples)));
    assert!(is_same(both.map(Recording::queue_samples)));
}

#[test]
fn a_folder_is_taken_if_it_is_empty_or_holds_a_finished_run() {
    let temp = tempfile::tempdir().unwrap();
    let create = |dir: &Path| RunWriter::create(dir, &variant(), &environment());
    fs::write(temp.path().join("thesis.tex"), "").unwrap();
    let error = create(temp.path()).err().unwrap();
    assert!(matches!(error, RecordError::Foreign { .. }), "{error}");

    let dir = temp.path().join("run");
    let mut writer = create(&dir).unwrap();
    writer
        .packet(Direction::Up, &packet(0, Fate::Sent))
        .unwrap();
    let error = create(&dir).err().unwrap();
    assert!(matches!(error, RecordError::InUse { .. }), "{error}");

    writer.finish(End::complete(Time::ZERO)).unwrap();
    fs::write(dir.join("notes.txt"), "kept").unwrap();
    drop(create(&dir).unwrap());
    let recording = Recording::open(&dir).unwrap();
    assert_eq!(
        recording.packets().unwrap().count(),
        0,
        "the old run is gone"
    );
    assert!(dir.join("notes.txt").exists(), "other files stay");
}

#[test]
fn a_folder_that_cannot_be_created_is_reported_before_the_run() {
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("file");
    fs::write(&file, "").unwrap();
    let dir = file.join("run");
    let error = RunWriter::create(&dir, &variant(), &environment())
        .err()
        .unwrap();
    assert!(
        error
            .to_string()
            .starts_with(&format!("cannot create the folder `{}`: ", dir.display())),
        "{error}"
    );
}

#[test]
fn no_run_is_begun_on_a_disk_that_is_too_full() {
    let temp = tempfile::tempdir().unwrap();
    let mut variant = variant();
    // 7 days at 1 Tbit/s: 2.5e12 packets, more than any disk of a test machine.
    variant.scenario.duration = Span::from_secs(7 * 24 * 3600);
    let rate = sluice_core::Rate::from_bps(1_000_000_000_000);
    variant.scenario.link.up.rate = sluice_scenario::Schedule::constant(rate);
    let error = RunWriter::create(temp.path(), &variant, &environment())
        .err()
        .unwrap();
    assert!(matches!(error, RecordError::NoSpace { .. }), "{error}");
    assert!(!temp.path().join("run.json").exists());
}

table! {
    /// Packets without the numbers of later programs.
    pub struct OlderPacket = "packets" {
        /// number
        seq: u64 = "seq",
        /// arrival
        time: Time = "time_ns",
        /// flow
        flow: u32 = "flow",
        /// length
        len: u32 = "size_bytes",
        /// segments
        segments: u32 = "segments",
        /// ECN
        ecn: u32 = "ecn",
        /// class
        class: u32 = "class",
        /// fate
        verdict: std::borrow::Cow<'static, str> = "verdict",
        /// fate's instant
        at: Option<Time> = "at_ns",
        /// sojourn
        sojourn: Option<Span> = "sojourn_ns",
        /// reason
        reason: Option<std::borrow::Cow<'static, str>> = "reason",
        /// pipe
        pipe: std::borrow::Cow<'static, str> = "pipe",
    }
}

table! {
    /// Transfers of older programs, without the pages that were open.
    pub struct OlderTransfer = "transfers" {
        /// start
        start: Time = "start_ns",
        /// flow
        flow: u32 = "flow",
        /// number
        seq: u64 = "seq",
        /// time
        took: Span = "took_ns",
        /// bytes
        bytes: u64 = "bytes",
    }
}

#[test]
fn all_transfers_of_a_recording_of_an_older_program_are_complete() {
    let temp = tempfile::tempdir().unwrap();
    let recording = begin(temp.path())
        .finish(End::complete(Time::ZERO))
        .unwrap()
        .without_checksums();
    let older = OlderTransfer {
        start: Time::from_ns(7),
        flow: 1,
        seq: 2,
        took: Span::from_ms(3),
        bytes: 4,
    };
    write_table(temp.path(), [older]);
    let found: Vec<Transfer> = recording.transfers().unwrap().map(Result::unwrap).collect();
    let expected = Transfer {
        start: Time::from_ns(7),
        flow: 1,
        seq: 2,
        took: Span::from_ms(3),
        bytes: 4,
        open: None,
    };
    assert_eq!(found, [expected]);
    assert!(!found[0].is_open());
}

#[test]
fn a_recording_of_an_older_program_has_packets_without_numbers_and_no_headers() {
    let temp = tempfile::tempdir().unwrap();
    let recording = begin(temp.path())
        .finish(End::complete(Time::ZERO))
        .unwrap()
        .without_checksums();
    fs::remove_file(temp.path().join("headers.parquet")).unwrap();
    let rows = (0..3).map(|seq| OlderPacket {
        seq,
        time: Time::from_ns(1_200_000 * seq),
        flow: (seq % 3) as u32,
        len: 1500,
        segments: 1,
        ecn: 2,
        class: 7,
        verdict: "sent".into(),
        at: Some(Time::from_ns(1_200_000 * seq + 4_321_000)),
        sojourn: Some(Span::from_us(4321)),
        reason: None,
        pipe: "up".into(),
    });
    write_table(temp.path(), rows);
    let found: Vec<PacketRecord> = recording
        .packets()
        .unwrap()
        .map(|row| row.unwrap().record)
        .collect();
    let expected = (0..3).map(|seq| PacketRecord {
        packet: None,
        ..packet(seq, Fate::Sent)
    });
    assert!(found.into_iter().eq(expected));
    assert_eq!(recording.headers().unwrap().count(), 0);
}
