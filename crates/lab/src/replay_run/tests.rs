use std::path::Path;

use sluice_core::Span;
use sluice_core::aqm::Aqm;
use sluice_core::aqm::droptail::DropTail;
use sluice_core::param::{ParamError, Values};
use sluice_core::registry::{Outside, Started};
use sluice_loader::{Code, Loaded, Loader, Source};

use super::*;
use sluice_recording::{End, Environment, RunWriter};
use sluice_scenario::{Scenario, Variant};

fn variant(queue: &str) -> Variant {
    let text = format!(
        "duration = \"2s\"\n[link]\nrate = [[\"0s\", \"10Mbit/s\"], [\"1s\", \"2Mbit/s\"]]\nrtt = \"20ms\"\n\
         queue = \"{queue}\"\n[[flow]]\ntype = \"tcp\"\n"
    );
    let mut variants = Scenario::parse("s.toml", &text, &[]).expect("a scenario");
    variants.remove(0)
}

/// Records packets that a router polled at irregular instants, late like a live router, and stamped
/// with the kernel's time.
fn record(dir: &Path, variant: &Variant, spoil: impl Fn(&mut PacketRecord)) -> Recording {
    let environment = Environment::here(Backend::Live, String::new());
    let mut writer = RunWriter::create(dir, variant, &environment).expect("a folder");
    let settings = live::router_settings(&variant.scenario);
    for direction in [Direction::Up, Direction::Down] {
        let mut chain = settings.chain(direction);
        let (mut rng, mut host) = (settings.rng(direction), Host::default());
        // The router's arrivals and polls: any numbers without a pattern serve.
        let mut other = Rng::from_seed(9);
        let (mut now, mut latest) = (Time::ZERO, Time::ZERO);
        while now < Time::ZERO + variant.scenario.duration {
            now += Span::from_us(100 + other.below(2000));
            for _ in 0..other.below(4) {
                let stamp = Time::from_ns(now.as_ns() - other.below(50_000));
                let at = stamp.max(latest);
                latest = at;
                let mut packet = Packet::new(host.allocate(), 200 + other.below(1300) as u32);
                packet.arrival = at;
                packet.flow = 0x1234_0000 + other.below(5) as u32;
                packet.ecn = [Ecn::NotEct, Ecn::Ect0][other.below(2) as usize];
                let arrival = Arrival {
                    time: at,
                    pipe: direction.into(),
                    way: 0,
                    len: packet.len,
                    segments: 1,
                    ecn: packet.ecn as u32,
                    dscp: 0,
                    hash: packet.flow,
                    src: 0,
                    dst: 0,
                    tag: 0,
                };
                writer.arrival(&arrival).expect("writable");
                chain.admit(packet, &0, &mut Cx::new(at, &mut rng, &mut host));
            }
            while let Some(departure) = chain.poll(&mut Cx::new(now, &mut rng, &mut host)) {
                host.free.push(departure.packet.slot);
            }
            latest = now + Span::from_ns(1);
        }
        for (pipe, rows) in chain.into_rows() {
            for mut record in rows {
                spoil(&mut record);
                writer.packet(pipe, &record).expect("writable");
            }
        }
    }
    let end = Time::ZERO + variant.scenario.duration;
    writer.finish(End::complete(end)).expect("writable")
}

#[test]
fn every_queue_decides_again_as_it_did() {
    for queue in [
        "codel ecn",
        "pie ecn",
        "fq_codel ecn quantum 300",
        "red ecn",
        "fifo limit 20",
    ] {
        let temp = tempfile::tempdir().expect("a folder");
        let recording = record(temp.path(), &variant(queue), |_| {});
        let replay = replay_run(&recording, false).expect("a live run");
        assert!(replay.is_same(), "{queue}:\n{replay}");
        let [up, down] = &replay.pipes[..] else {
            panic!("there are two directions");
        };
        for pipe in [up, down] {
            // About 2 s / 1.1 ms times 1.5 packets arrive, 850 bytes each: 9 Mbit/s, more than 2
            // Mbit/s, so that every queue has to drop or mark.
            assert!(pipe.packets > 2000, "{queue}:\n{replay}");
            assert!(pipe.dropped + pipe.marked > 0, "{queue}:\n{replay}");
        }
        assert_ne!(
            up, down,
            "each direction has its own randomness, or at least its own name"
        );
    }
}

#[test]
fn another_verdict_or_instant_is_found_and_shown() {
    let temp = tempfile::tempdir().expect("a folder");
    let recording = record(temp.path(), &variant("codel"), |record| {
        if record.seq == 1000 {
            record.at += Span::from_ns(1);
        }
    });
    let replay = replay_run(&recording, false).expect("a live run");
    assert!(!replay.is_same());
    assert_eq!(
        replay.pipes.iter().map(|pipe| pipe.differing).sum::<u64>(),
        2
    );
    let first = replay.pipes[0]
        .first_difference
        .as_ref()
        .expect("a difference");
    let at = |what: &Option<What>| what.as_ref().map(|what| what.at_ns);
    assert_eq!(first.seq, 1000);
    assert_eq!(at(&first.recorded), at(&first.replayed).map(|ns| ns + 1));
    assert!(replay.to_string().contains("1 not as recorded"), "{replay}");
}

#[test]
fn a_simulated_run_is_refused() {
    let temp = tempfile::tempdir().expect("a folder");
    let environment = Environment::here(Backend::Sim, String::new());
    let writer = RunWriter::create(temp.path(), &variant("codel"), &environment).expect("a folder");
    let recording = writer.finish(End::complete(Time::ZERO)).expect("writable");
    let error = replay_run(&recording, false).expect_err("nothing live");
    assert!(error.to_string().contains("was simulated"), "{error}");
}

/// Packets of both directions through two links of the live router, the second of which drops.
#[test]
fn a_packet_keeps_its_number_over_both_links_of_a_live_router() {
    let text = "duration = \"2s\"\n[link]\nrate = \"10Mbit/s\"\nrtt = \"20ms\"\n[[hop]]\nrate = \
                \"5Mbit/s\"\nrtt = \"10ms\"\nqueue = \"fifo limit 5\"\n[[flow]]\ntype = \"tcp\"\n";
    let variant = Scenario::parse("s.toml", text, &[]).unwrap().remove(0);
    let temp = tempfile::tempdir().expect("a folder");
    let recording = record(temp.path(), &variant, |_| {});
    let mut paths = std::collections::BTreeMap::<u64, Vec<PacketRow>>::new();
    for row in recording.packets().expect("a table") {
        let row = row.expect("a row");
        let number = row.record.packet.expect("a number");
        paths.entry(number).or_default().push(row);
    }
    let mut dropped = 0;
    for (number, mut rows) in paths {
        rows.sort_by_key(|row| row.record.arrival);
        let words: Vec<&str> = rows.iter().map(|row| row.pipe.word()).collect();
        let is_up = number.is_multiple_of(2);
        let whole = if is_up {
            ["up", "up2"]
        } else {
            ["down2", "down"]
        };
        // A packet that was dropped first, or still on its way at the end, was in one queue.
        assert!(words == whole || words == whole[..1], "{number}: {words:?}");
        if let [first, second] = rows.as_slice() {
            let record = |row: &PacketRow| (row.record.len, row.record.flow);
            assert_eq!(record(first), record(second), "{number}");
            // Half of the link's round trip, and the transmission.
            let (ms, ns_per_byte) = if is_up { (10, 800) } else { (5, 1600) };
            let took = Span::from_ns(u64::from(first.record.len) * ns_per_byte) + Span::from_ms(ms);
            assert_eq!(second.record.arrival, first.record.at + took);
            dropped += u64::from(matches!(second.record.fate, Fate::Dropped(_)));
        }
    }
    assert!(dropped > 10, "{dropped}");
}

/// The AQMs `any:FILE`, which pass every packet.
struct Any;

/// The same AQMs as `free:FILE`, outside of a sandbox.
struct Free;

fn register() {
    sluice_loader::register(&[&Any, &Free]);
}

impl Loader for Free {
    fn scheme(&self) -> &'static str {
        "free"
    }
    fn synopsis(&self) -> &'static str {
        "free:FILE"
    }
    fn opens_files(&self) -> bool {
        true
    }
    fn load(&self, source: &Source<'_>) -> Result<Loaded, String> {
        Any.load(source)
    }
}

impl Loader for Any {
    fn scheme(&self) -> &'static str {
        "any"
    }
    fn synopsis(&self) -> &'static str {
        "any:FILE"
    }
    fn load(&self, _source: &Source<'_>) -> Result<Loaded, String> {
        Ok(Loaded {
            doc: String::new(),
            params: Vec::new(),
            code: Code::Aqm(Box::new(Any)),
        })
    }
}

impl Outside for Any {
    fn start(&self, _values: &Values) -> Result<Box<dyn Started>, ParamError> {
        Ok(Box::new(Any))
    }
}

impl Started for Any {
    fn aqm(&self) -> Box<dyn Aqm> {
        Box::new(DropTail)
    }
}

#[test]
fn a_file_that_a_run_names_is_executed_only_if_the_user_allows_it() {
    register();
    let temp = tempfile::tempdir().expect("a folder");
    let at = |name: &str| temp.path().join(name);
    std::fs::write(at("aqm"), "first").unwrap();
    let text = "duration = \"2s\"\n[link]\nrate = \"5Mbit/s\"\nqueue = \"fq_free:aqm:Item limit 20\"\n\
                [[flow]]\ntype = \"tcp\"\n";
    let file = at("s.toml").display().to_string();
    let variant = Scenario::parse(&file, text, &[]).unwrap().remove(0);
    record(&at("run"), &variant, |_| {});
    let recording = Recording::open(&at("run")).unwrap();
    let refused = replay_run(&recording, false).expect_err("nobody allowed it");
    let expected = format!(
        "`{}` names `{}`, which a replay executes with all your rights",
        at("run").display(),
        at("aqm").display()
    );
    assert_eq!(refused.to_string(), expected);
    let replay = replay_run(&recording, true).expect("the file is there");
    assert!(replay.is_same() && replay.changed.is_empty(), "{replay}");
}

#[test]
fn an_algorithm_is_found_where_the_run_found_it() {
    register();
    let temp = tempfile::tempdir().expect("a folder");
    let at = |name: &str| temp.path().join(name);
    std::fs::create_dir(at("lab")).unwrap();
    std::fs::write(at("lab/aqm"), "first").unwrap();
    let text = "duration = \"2s\"\n[link]\nrate = \"5Mbit/s\"\nqueue = \"any:aqm limit 20\"\n\
                [[flow]]\ntype = \"tcp\"\n";
    let file = at("lab/s.toml").display().to_string();
    let variant = Scenario::parse(&file, text, &[]).unwrap().remove(0);
    record(&at("run"), &variant, |_| {});
    // The recording knows the words of the queue, and neither the file nor its folder is the process's.
    let replayed = || replay_run(&Recording::open(&at("run")).unwrap(), false);
    let replay = replayed().expect("the file is there");
    assert!(replay.is_same() && replay.changed.is_empty(), "{replay}");
    assert!(replay.pipes[0].dropped > 0, "{replay}");
    std::fs::write(at("lab/aqm"), "second").unwrap();
    let replay = replayed().expect("the file is there");
    assert_eq!(replay.changed, ["any:aqm"]);
    assert!(
        replay
            .to_string()
            .contains("`any:aqm` has changed since the run")
    );
    std::fs::remove_file(at("lab/aqm")).unwrap();
    let error = replayed().expect_err("the file is gone").to_string();
    let expected = format!(
        "needs `any:aqm limit 20` from the folder `{}`",
        at("lab").display()
    );
    assert!(error.contains(&expected), "{error}");
}
