//! A loop that is pinned to a core. This is a separate process, because its threads are found by
//! name.

use std::fs::{self, File};

use sluice_net::cores;
use sluice_router::process::{Router, Settings, StartError};
use sluice_wire::capture::{Writer, link_type};

/// A router between two files. The first has no packets, but its header gives the link type.
fn settings(folder: &tempfile::TempDir, core: usize) -> Settings {
    let input = folder.path().join("in.pcap");
    Writer::new(File::create(&input).unwrap(), link_type::RAW).unwrap();
    let left = format!("pcap:{}:", input.display());
    let right = format!("pcap::{}", folder.path().join("out.pcap").display());
    Settings {
        cores: vec![core],
        ..Settings::new(left.parse().unwrap(), right.parse().unwrap())
    }
}

/// `Cpus_allowed_list` of the threads of this name.
fn places(name: &str) -> Vec<String> {
    let threads = fs::read_dir("/proc/self/task").unwrap();
    let status = threads.map(|thread| fs::read_to_string(thread.unwrap().path().join("status")));
    let of_name = status
        .flatten()
        .filter(|status| status.lines().next() == Some(&format!("Name:\t{name}")));
    of_name
        .filter_map(|status| {
            let mut lines = status.lines();
            let list = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
            Some(list.trim().to_owned())
        })
        .collect()
}

#[test]
fn the_loop_stays_on_the_core_that_was_asked_for_and_nobody_else_does() {
    let folder = tempfile::tempdir().unwrap();
    let before = cores::allowed().unwrap();
    for core in &before {
        let router = Router::start(&settings(&folder, *core)).unwrap();
        assert_eq!(places("router"), [core.to_string()]);
        assert_eq!(
            cores::allowed().unwrap(),
            before,
            "the starting thread is not pinned"
        );
        router.stop();
    }
    let refused = Router::start(&settings(&folder, 1023)).err().unwrap();
    assert!(matches!(refused, StartError::Core(_)), "{refused}");
    assert!(refused.to_string().starts_with("there is no core 1023"));
    assert_eq!(places("router"), [""; 0]);
}
