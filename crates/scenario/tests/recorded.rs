//! A recording names algorithms from files. A reader of it executes none of them.

use std::path::PathBuf;

use sluice_loader::{Loaded, Loader, Source};
use sluice_scenario::{Rules, Scenario};

/// The algorithms `free:FILE`, which run outside of a sandbox.
struct Free;

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
        panic!("`{}` is executed", source.path.display());
    }
}

#[test]
fn the_algorithms_of_a_recording_are_not_executed_when_it_is_read() {
    sluice_loader::register(&[&Free]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a");
    std::fs::write(&file, "code").unwrap();
    let words = format!("fq_free:{}:Item target 7ms", file.display());

    let text = "duration = \"2s\"\n[link]\nrate = \"1Mbit/s\"\nqueue = \"codel target 7ms\"\n\
                [[flow]]\ntype = \"ping\"\n";
    let variant = Scenario::parse("s.toml", text, &[]).unwrap().remove(0);
    let own = serde_json::to_string(&variant.scenario).unwrap();
    let recorded = own.replace("codel target 7ms", &words);
    assert_ne!(recorded, own);
    let read: Scenario = serde_json::from_str(&recorded).unwrap();
    assert_eq!(read.link.up.queue.to_string(), words);

    let bare = |queue: &str| {
        let rules = Rules {
            text: format!("pipe 1 config bw 1Mbit/s {queue}"),
            path: None,
            folder: PathBuf::new(),
        };
        rules.without_queues().text
    };
    assert_eq!(bare(&words), bare("codel target 7ms"));
}
