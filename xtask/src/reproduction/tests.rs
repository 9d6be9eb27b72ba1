use super::folders::{KEPT_FILES, inside, repeats};
use super::*;
use sluice_recording::testing::recording;

const LIST: &str = r#"
    introduction = "Two of them."
    [[experiment]]
    name = "one"
    title = "A flow"
    source = "a paper, figure 1"
    shown = "It stays."
    why = "Same numbers."
    claims = ["bulk.goodput@fifo <= 1Mbit/s"]
    runs = ["one/fifo"]
    figures = ["flows"]
    [[experiment.number]]
    what = "goodput"
    published = "1 Mbit/s"
    metric = "bulk.goodput"
    why = "exact"
    claims = ["value = 1Mbit/s within 0 %"]
    [[experiment.number]]
    what = "score"
    published = "-"
    metric = "udp.mos"
"#;

fn page(list: &str) -> (tempfile::TempDir, Result<Vec<PathBuf>, ReproductionError>) {
    let temp = tempfile::tempdir().unwrap();
    recording(&temp.path().join("runs/one/fifo"));
    fs::write(temp.path().join("list.toml"), list).unwrap();
    let at = |name: &str| temp.path().join(name);
    let written = write(&at("list.toml"), &at("runs"), &at("page.md"));
    (temp, written)
}

#[test]
fn a_page_holds_what_was_published_beside_what_came_out() {
    let (temp, missing) = page(LIST);
    assert_eq!(missing.unwrap(), [temp.path().join("runs/one/fifo.live")]);
    let text = fs::read_to_string(temp.path().join("page.md")).unwrap();
    assert!(text.contains("## A flow\n\n**Published** (a paper, figure 1). It stays."));
    assert!(text.contains("| goodput (`bulk.goodput`) | 1 Mbit/s | 1Mbit/s | not run | exact |"));
    assert!(text.contains("| score (`udp.mos`) | - | not measured | not run |  |"));
    assert!(text.contains("](images/reproduction/one-flows-sim.png)"));
    let picture = temp.path().join("images/reproduction/one-flows-sim.png");
    assert!(fs::metadata(picture).unwrap().len() > 1000);
}

#[test]
fn a_figure_of_several_runs_is_their_median_with_both_ends() {
    let temp = tempfile::tempdir().unwrap();
    for run in ["fifo", "fifo.seed-2", "fifo.seed-10", "fifo.live"] {
        recording(&temp.path().join("runs/one").join(run));
    }
    let at = |name: &str| temp.path().join(name);
    fs::write(at("list.toml"), LIST).unwrap();
    write(&at("list.toml"), &at("runs"), &at("page.md")).unwrap();
    let text = fs::read_to_string(at("page.md")).unwrap();
    let row = "| 1 Mbit/s | 1Mbit/s (3 runs) | 1Mbit/s | exact |";
    assert!(text.contains(row), "{text}");
    let show = |value: f64| value.to_string();
    assert_eq!(spread(&[1.0, 2.0, 4.0], show), "2 (1 to 4, 3 runs)");
    assert_eq!(spread(&[1.0, 2.0, 4.0, 5.0], show), "3 (1 to 5, 4 runs)");
    let dirs = repeats(&at("runs/one/fifo"));
    let names: Vec<_> = dirs.iter().filter_map(|dir| dir.file_name()).collect();
    assert_eq!(names, ["fifo.seed-2", "fifo.seed-10"]);
    assert_eq!(rounded(0.123_449), 0.1234);
}

#[test]
fn what_is_wrong_in_the_list_is_said_with_its_experiment() {
    let (_temp, error) = page(&LIST.replace("udp.mos", "udp.moss"));
    let error = error.unwrap_err().to_string();
    assert!(
        error.starts_with("experiment `one`: `udp.moss` is not a figure of"),
        "{error}"
    );
    let (_temp, error) = page(&LIST.replace("shown =", "show ="));
    let error = error.unwrap_err().to_string();
    assert!(error.contains("unknown field `show`"), "{error}");
}

#[test]
fn the_page_says_which_program_made_which_runs() {
    let temp = tempfile::tempdir().unwrap();
    let at = |name: &str| temp.path().join(name);
    for run in ["fifo", "fifo.seed-2", "fifo.live"] {
        recording(&at("runs/one").join(run));
    }
    let file = at("runs/one/fifo.live/run.json");
    let mut run: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    run["environment"]["kernel"] = "Linux 6.18.44-of-mine".into();
    run["environment"]["program_id"] = "0123456789abcdef".into();
    run["environment"]["started_at"] = "2026-01-02T03:04:05Z".into();
    fs::write(&file, run.to_string()).unwrap();
    fs::write(at("list.toml"), LIST).unwrap();
    write(&at("list.toml"), &at("runs"), &at("page.md")).unwrap();
    let text = fs::read_to_string(at("page.md")).unwrap();
    let rows: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("sluice 0."))
        .collect();
    assert_eq!(rows.len(), 2, "{text}");
    assert!(rows[0].starts_with("| simulated | ") && rows[0].contains("| 2 |"));
    let live = concat!(
        "| live | sluice ",
        env!("CARGO_PKG_VERSION"),
        " (0123456789ab), Linux 6.18 | 1 | 2026-01-02 |"
    );
    assert_eq!(rows[1], live);
}

#[test]
fn a_live_run_of_another_scenario_has_no_place_beside_a_simulation() {
    let temp = tempfile::tempdir().unwrap();
    let at = |name: &str| temp.path().join(name);
    for run in ["fifo", "fifo.live"] {
        recording(&at("runs/one").join(run));
    }
    let file = at("runs/one/fifo.live/run.json");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("20ms", "30ms")).unwrap();
    fs::write(at("list.toml"), LIST).unwrap();
    let error = write(&at("list.toml"), &at("runs"), &at("page.md")).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("is a run of another scenario"), "{error}");
}

#[test]
fn a_folder_without_any_of_the_runs_makes_no_page() {
    let (temp, _) = page(LIST);
    let at = |name: &str| temp.path().join(name);
    let error = write(&at("list.toml"), &at("nowhere"), &at("other.md")).unwrap_err();
    assert!(error.to_string().starts_with("none of the runs"), "{error}");
    assert!(!at("other.md").exists());
}

#[test]
fn a_claim_that_does_not_hold_fails_after_the_page_is_written() {
    let list = LIST.replace("value = 1Mbit/s within 0 %", "value > 2Mbit/s");
    let (temp, written) = page(&list);
    let said = written.unwrap_err().to_string();
    // The list has one line for each key.
    let line = 1 + LIST[..LIST.find("value = 1Mbit/s").unwrap()]
        .matches('\n')
        .count();
    assert!(
        said.ends_with(&format!(
            "list.toml:{line}: experiment `one`, row `goodput`: `value > 2Mbit/s` does not hold (sim): \
             1000000 and 2000000"
        )),
        "{said}"
    );
    assert!(temp.path().join("page.md").is_file());
}

#[test]
fn a_reason_without_a_claim_is_refused() {
    let list = LIST.replace("claims = [\"value = 1Mbit/s within 0 %\"]", "");
    let (_temp, written) = page(&list);
    assert_eq!(
        written.unwrap_err().to_string(),
        "experiment `one`, row `goodput`: `why` has no claims: exact"
    );
}

#[test]
fn claims_are_checked_without_a_page() {
    let temp = tempfile::tempdir().unwrap();
    recording(&temp.path().join("runs/one/fifo"));
    let at = |name: &str| temp.path().join(name);
    fs::write(at("list.toml"), LIST).unwrap();
    assert_eq!(check(&at("list.toml"), &at("runs")).unwrap(), 2);
}

#[test]
fn live_runs_are_kept_as_summaries_and_take_the_place_of_missing_ones() {
    let temp = tempfile::tempdir().unwrap();
    let at = |name: &str| temp.path().join(name);
    for run in ["fifo", "fifo.live", "fifo.live.seed-2"] {
        recording(&at("runs/one").join(run));
    }
    // As a run stores it.
    for run in ["fifo.live", "fifo.live.seed-2"] {
        let run = Recording::open(&at("runs/one").join(run)).unwrap();
        run.store_summary(&measure(&run).unwrap()).unwrap();
    }
    fs::write(at("list.toml"), LIST).unwrap();
    assert_eq!(keep(&at("list.toml"), &at("runs")).unwrap(), 2);
    let kept = at("reproduction/live/one/fifo.live.seed-2");
    let mut files: Vec<_> = fs::read_dir(&kept)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    files.sort();
    assert_eq!(files, KEPT_FILES);
    fs::remove_dir_all(at("runs/one/fifo.live")).unwrap();
    fs::remove_dir_all(at("runs/one/fifo.live.seed-2")).unwrap();
    let missing = write(&at("list.toml"), &at("runs"), &at("page.md")).unwrap();
    assert!(missing.is_empty(), "{missing:?}");
    let text = fs::read_to_string(at("page.md")).unwrap();
    assert!(
        text.contains("| 1 Mbit/s | 1Mbit/s | 1Mbit/s (2 runs) | exact |"),
        "{text}"
    );
    // There was no picture of them yet, and without tables there is none to draw.
    assert!(!text.contains("live.png"));
    // The claims are about them, too.
    let claim = LIST.replace("value = 1Mbit/s within 0 %", "live: value > 2Mbit/s");
    fs::write(at("list.toml"), claim).unwrap();
    let error = check(&at("list.toml"), &at("runs")).unwrap_err();
    assert!(
        error.to_string().contains("does not hold (live)"),
        "{error}"
    );
}

#[test]
fn paths_above_the_runs_are_kept_below_them() {
    let kept = inside(Path::new("../codel-paper/figure-7/codel"));
    assert_eq!(kept, Path::new("codel-paper/figure-7/codel"));
}
