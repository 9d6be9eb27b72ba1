//! From an experiment to a paper: repetitions, comparisons, pictures and tables.

#[path = "paper/wrong.rs"]
mod wrong;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::DeflateDecoder;
use serde_json::Value;

/// Random arrivals at two queues, so that figures vary with the seed.
const SCENARIO: &str = r#"
title = "Two queues"
duration = "2s"
[link]
rate = "1Mbit/s"
rtt = "20ms"
[measure]
warmup = "0s"
window = "500ms"
[matrix]
"link.rtt" = ["20ms", "60ms"]
"link.queue" = ["fifo limit 50", "red min 2 max 8 max_p 0.5 wq 0.2"]
[[flow]]
type = "udp"
name = "load"
rate = "1100kbit/s"
size = 500
[[flow]]
type = "ping"
interval = "50ms"
"#;

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().expect("a folder"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("writable");
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    fn run(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
        let command = command.current_dir(self.0.path()).args(args);
        command.output().expect("the binary starts")
    }

    /// Runs a command that succeeds, and returns what it prints.
    fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(
            output.status.success(),
            "{args:?}: {}",
            text(&output.stderr)
        );
        text(&output.stdout)
    }

    /// Runs a command that fails, and returns its message.
    fn fails(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(
            !output.status.success(),
            "{args:?}: {}",
            text(&output.stdout)
        );
        text(&output.stderr)
    }

    /// The model of a page.
    fn model(&self, page: &str) -> Value {
        let page = self.read(page);
        let (_, rest) = page.split_once("octet-stream\">").expect("a model");
        let (encoded, _) = rest.split_once("</script>").expect("scripts end");
        let deflated = STANDARD.decode(encoded).expect("base64");
        serde_json::from_reader(DeflateDecoder::new(deflated.as_slice())).expect("JSON")
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn repetitions_are_one_report_with_medians_and_spread_everywhere() {
    let place = Place::new();
    place.write("s.toml", SCENARIO);
    let one_rtt = [
        "run",
        "s.toml",
        "--repeat",
        "3",
        "-o",
        "out",
        "--set",
        "link.rtt=20ms",
    ];
    place.ok(&one_rtt);
    let model = place.model("out/report.html");
    let runs = model["runs"].as_array().expect("runs");
    assert_eq!(
        runs.len(),
        2,
        "two variants, and no repetition is a run of its own"
    );
    for run in runs {
        assert_eq!(run["repetitions"], serde_json::json!([1, 2, 3]));
        assert_eq!(run["shown_seed"], 1);
        assert!(
            run["repeats"].as_array().is_some_and(|all| !all.is_empty()),
            "{run}"
        );
        let links = run["links"].as_array().expect("links");
        assert_eq!(links.len(), 3, "each repetition can be chosen");
    }
    // The share of unanswered pings is the median of those of the repetitions.
    let whole = runs.iter().find(|run| run["name"] == "red").expect("red");
    let alone = |seed: &str| {
        let folder = place.path("out").join(seed);
        place.ok(&["report", folder.to_str().expect("UTF-8"), "-o", "one.html"]);
        place.model("one.html")["runs"][0]["pings"][0]["loss"]
            .as_f64()
            .expect("a share")
    };
    let mut lost: Vec<f64> = ["red", "red.seed-2", "red.seed-3"].map(alone).to_vec();
    lost.sort_by(f64::total_cmp);
    assert!(lost[2] > 0.0, "{lost:?}: the load overflows");
    assert_eq!(whole["pings"][0]["loss"].as_f64(), Some(lost[1]));
    // Median, smallest and largest of the summaries of the single runs.
    let of_seed = |folder: &str| -> f64 {
        let summary = place.read(&format!("out/{folder}/summary.json"));
        let summary: Value = serde_json::from_str(&summary).expect("JSON");
        summary["total_goodput_bps"].as_f64().expect("goodput") / 1e6
    };
    let mut values = [of_seed("red"), of_seed("red.seed-2"), of_seed("red.seed-3")];
    values.sort_by(f64::total_cmp);
    let red = runs.iter().find(|run| run["name"] == "red").expect("red");
    let median = red["directions"][0]["goodput_mbps"]
        .as_f64()
        .expect("a median");
    assert!((median - values[1]).abs() < 1e-9, "{median} of {values:?}");
    // The goodput is that of a constant load, the same with every seed. The median ping is not, and
    // it is not that of the first seed.
    let ping_of_seed = |folder: &str| -> f64 {
        let summary = place.read(&format!("out/{folder}/summary.json"));
        let summary: Value = serde_json::from_str(&summary).expect("JSON");
        let flows = summary["flows"].as_array().expect("flows");
        let ping = flows.iter().find(|flow| flow["name"] == "ping");
        ping.expect("it")["rtt"]["p50_ns"].as_f64().expect("a ping") / 1e6
    };
    let pings = ["red", "red.seed-2", "red.seed-3"].map(ping_of_seed);
    let mut sorted = pings;
    sorted.sort_by(f64::total_cmp);
    assert!(sorted[1] != pings[0], "{pings:?}: the seeds must differ");
    let ping = red["pings"][0]["two_way"]["p50"].as_f64().expect("it");
    assert!((ping - sorted[1]).abs() < 1e-9, "{ping} of {pings:?}");
    let figures = red["figures"].as_array().expect("figures");
    let ping = figures
        .iter()
        .find(|figure| figure["name"] == "ping.p95")
        .expect("it");
    assert!(
        ping["value"].as_str().expect("text").contains(" to "),
        "{ping}"
    );

    // The page that `sluice report` writes is the same.
    place.ok(&["report", "out", "-o", "again.html"]);
    let again = place.model("again.html");
    assert_eq!(again["runs"][1]["repeats"], model["runs"][1]["repeats"]);
    assert_eq!(again["runs"][1]["figures"], model["runs"][1]["figures"]);
    let chosen = place.ok(&["report", "out", "-o", "third.html", "--seed", "3"]);
    assert!(chosen.contains("medians of 3 runs"), "{chosen}");
    assert_eq!(place.model("third.html")["runs"][0]["shown_seed"], 3);
    let unknown = place.fails(&["report", "out", "--seed", "7", "-o", "seventh.html"]);
    assert!(
        unknown.contains("no run has the seed 7; there are 1, 2, 3"),
        "{unknown}"
    );
    assert!(!place.path("seventh.html").exists());

    // A line per variant, and not one per repetition.
    let table = place.ok(&["report", "out", "--figure", "repetitions", "--svg", "r.svg"]);
    let (variants, _) = table
        .split_once("\n\n")
        .expect("the tables of queues and flows follow");
    assert_eq!(variants.matches("\nred ").count(), 1, "{table}");
    let drawn = place.read("r.svg");
    assert!(drawn.contains("Ping, median") && drawn.contains("confidence interval"));

    let quiet = [
        "report", "out", "--quiet", "--figure", "totals", "--svg", "t.svg",
    ];
    assert_eq!(place.ok(&quiet), "report: t.svg\n");
    let bare = ["report", "out", "-q", "--bare", "--svg", "t.svg"];
    let said = place.ok(&bare);
    assert!(
        said.contains("the repetition with seed 1, one of 3"),
        "{said}"
    );

    // Two queues of one scenario are compared, each with its repetitions. The answer comes first.
    let compared = place.ok(&["compare", "out/fifo", "out/red"]);
    let lines: Vec<&str> = compared.lines().collect();
    assert_eq!(lines[0], "fifo against red: 3 runs against 3", "{compared}");
    // RED keeps the queue short, with several times the drops of a queue that is rarely full.
    assert_eq!(
        lines[1].trim(),
        "each is better at something (more than chance)",
        "{compared}"
    );
    let chosen = place.ok(&["compare", "out/fifo", "out/red", "--figures", "ping.p50"]);
    assert!(chosen.contains("\n  ping.p50 "), "{chosen}");
    assert!(!chosen.contains("\n  ping.p95 "), "{chosen}");
    let unknown = place.fails(&["compare", "out/fifo", "out/red", "--figures", "png.p50"]);
    assert!(unknown.contains("did you mean `ping.p50`"), "{unknown}");
    let single = place.ok(&["compare", "out/fifo.seed-2", "out/red.seed-2"]);
    assert!(single.contains("1 run against 1"), "{single}");
    assert!(single.contains("perhaps chance"), "{single}");
}

#[test]
fn a_comparison_overwrites_no_page_and_exports_create_folders() {
    let place = Place::new();
    place.write("s.toml", SCENARIO);
    place.ok(&["run", "s.toml", "-o", "out", "--set", "link.rtt=20ms"]);
    let (own, all) = (
        place.read("out/fifo/report.html"),
        place.read("out/report.html"),
    );
    let said = place.ok(&["report", "out/fifo", "out/red"]);
    assert!(said.contains("report: comparison.html"), "{said}");
    assert_eq!(
        place.read("out/fifo/report.html"),
        own,
        "the page of the first run is its own"
    );
    fs::remove_file(place.path("out/report.html")).expect("it is there");
    let json = place.ok(&["report", "out", "--json"]);
    assert!(serde_json::from_str::<Value>(&json).is_ok());
    assert!(
        !place.path("out/report.html").exists(),
        "--json writes no page"
    );
    assert!(all.len() > 1000);

    let flent = place.ok(&["export", "out/fifo", "--flent", "a/b/run.flent.gz"]);
    assert_eq!(flent, "a/b/run.flent.gz\n");
    place.ok(&["report", "out", "--svg", "c/d.svg"]);
    assert!(place.path("c/d.svg").is_file());
}

#[test]
fn an_expectation_that_is_not_met_is_said_once() {
    let place = Place::new();
    let expect = "[[expect]]\nmetric = \"ping.p50\"\nmax = \"1ms\"\n";
    place.write("s.toml", &format!("{SCENARIO}{expect}"));
    let output = place.run(&[
        "run",
        "s.toml",
        "--set",
        "link.rtt=20ms",
        "--set",
        "link.queue=fifo",
        "-q",
    ]);
    assert!(!output.status.success());
    let all = text(&output.stdout) + &text(&output.stderr);
    assert_eq!(all.matches("not met:").count(), 1, "{all}");
    assert!(all.contains("1 expectation not met"), "{all}");
}

#[test]
fn a_sweep_becomes_a_curve_a_heat_map_and_tables() {
    let place = Place::new();
    let pictures = r#"
[[picture]]
file = "delay.pdf"
figure = "curve"
x = "link.rtt"
y = "ping.p50"
by = "link.queue"
width = "85mm"
band = true
bare = true
"#;
    place.write("s.toml", &format!("{SCENARIO}{pictures}"));
    let said = place.ok(&["run", "s.toml", "--repeat", "2", "-o", "out", "-q"]);
    assert!(said.contains("picture: out/delay.pdf"), "{said}");
    let pdf = fs::read(place.path("out/delay.pdf")).expect("a picture");
    assert!(pdf.starts_with(b"%PDF-"));
    // 85 mm are 85 / 25.4 * 72 = 240.94 points.
    let words = String::from_utf8_lossy(&pdf).into_owned();
    let (_, media) = words.split_once("/MediaBox [").expect("a size");
    let width: f64 = media
        .split_whitespace()
        .nth(2)
        .expect("a width")
        .parse()
        .expect("a number");
    assert!((width - 240.94).abs() < 0.1, "{width}");

    // The place on the axes is in the summary and in a table with a row per run.
    let summary: Value = serde_json::from_str(&place.read("out/summary.json")).expect("JSON");
    assert_eq!(summary[3]["matrix"]["link.rtt"], "60ms");
    assert!(
        summary[3]["matrix"]["link.queue"]
            .as_str()
            .expect("text")
            .starts_with("red min 2")
    );
    let tidy = place.read("out/figures.csv");
    let lines: Vec<&str> = tidy.lines().collect();
    assert_eq!(
        lines.len(),
        1 + 4 * 2,
        "a heading, and four variants in two runs"
    );
    assert!(lines[0].starts_with("scenario,variant,backend,seed,complete,link.rtt,link.queue,"));
    assert!(lines[0].contains(",ping.p50_ns,"));
    assert!(
        lines[1].contains(",sim,1,true,20ms,fifo limit 50,"),
        "{}",
        lines[1]
    );

    let sweep = |rest: &[&str]| {
        let mut words = vec!["report", "out", "--figure", "curve", "--svg", "x.svg"];
        words.extend(rest);
        words
            .into_iter()
            .map(str::to_owned)
            .collect::<Vec<String>>()
    };
    let run =
        |rest: &[&str]| place.run(&sweep(rest).iter().map(String::as_str).collect::<Vec<_>>());
    let drawn = run(&["--x", "link.rtt", "--y", "ping.p50", "--by", "link.queue"]);
    assert!(drawn.status.success(), "{}", text(&drawn.stderr));
    let svg = place.read("x.svg");
    assert!(
        svg.contains("RTT (ms)") && svg.contains("median of 2 runs"),
        "{svg}"
    );
    fs::remove_file(place.path("x.svg")).expect("it is there");
    // The message names what cannot be drawn, and no file is left behind.
    let wrong = [
        (
            vec!["--x", "link.rt", "--y", "ping.p50"],
            "did you mean `link.rtt`?",
        ),
        (
            vec!["--x", "link.rtt", "--y", "ping.p51", "--by", "link.queue"],
            "did you mean `ping.p5",
        ),
        (
            vec!["--x", "link.rtt", "--y", "ping.p50"],
            "`link.queue` varies too (fifo, red)",
        ),
        (
            vec![
                "--x",
                "link.rtt",
                "--y",
                "ping.p50",
                "--only",
                "link.queue=codel",
            ],
            "no run has link.queue=codel",
        ),
        (vec!["--y", "ping.p50"], "a curve needs `x`"),
    ];
    for (rest, message) in wrong {
        let output = run(&rest);
        assert!(!output.status.success());
        let said = text(&output.stderr);
        assert!(said.contains(message), "{rest:?}: {said}");
        assert!(!place.path("x.svg").exists(), "{rest:?}");
    }
    let heat = [
        "report",
        "out",
        "--figure",
        "heatmap",
        "--x",
        "link.rtt",
        "--by",
        "link.queue",
        "--y",
        "total.goodput",
        "--png",
        "heat.png",
    ];
    place.ok(&heat);
    assert!(
        fs::read(place.path("heat.png"))
            .expect("a picture")
            .starts_with(b"\x89PNG")
    );

    place.ok(&[
        "export",
        "out",
        "--table",
        "t.tex",
        "--figures",
        "ping.p95,total.goodput",
    ]);
    let latex = place.read("t.tex");
    assert!(
        latex.contains(
            "\\toprule\nvariant & ping.p95 (ms) & total.goodput (Mbit/s) \\\\\n\\midrule"
        ),
        "{latex}"
    );
    assert_eq!(latex.matches(" \\\\\n").count(), 5, "{latex}");
    place.ok(&["export", "out", "--table", "t.md"]);
    assert!(
        place
            .read("t.md")
            .starts_with("| variant | total.goodput (Mbit/s) |")
    );
    place.ok(&["export", "out", "--table", "t.csv", "--figures", "ping.p95"]);
    assert!(
        place
            .read("t.csv")
            .starts_with("variant,backend,runs,link.rtt,link.queue,ping.p95_ns,ping.p95:min_ns,")
    );
    let unknown = place.fails(&["export", "out", "--table", "u.csv", "--figures", "ping.p59"]);
    assert!(
        unknown.contains("no run has the figure `ping.p59`; did you mean"),
        "{unknown}"
    );
    assert!(!place.path("u.csv").exists());
    for (name, message) in [
        ("goodput", "did you mean `total.goodput`"),
        ("total.godput", "did you mean `total.goodput`?"),
        ("up.sojorn", "up.sojourn.p50"),
    ] {
        let unknown = place.fails(&["export", "out", "--table", "u.csv", "--figures", name]);
        assert!(unknown.contains(message), "{name}: {unknown}");
    }
    own_tables(&place);
    own_pictures(&place);
}

/// Headings, units, digits and rows of a paper's own.
fn own_tables(place: &Place) {
    let table = [
        "export",
        "out",
        "--table",
        "own.md",
        "--figures",
        "ping.p95,total.goodput",
    ];
    let own = [
        "--heading",
        "variant=Queue",
        "--heading",
        "ping.p95=Ping (s)",
        "--unit",
        "ping.p95=s",
        "--unit",
        "total.goodput=kbit/s",
        "--digits",
        "2",
        "--spread",
        "none",
        "--only",
        "link.queue=fifo",
        "--only",
        "link.rtt=20ms",
        "--only",
        "link.rtt=60ms",
    ];
    place.ok(&[&table[..], &own].concat());
    let lines: Vec<String> = place.read("own.md").lines().map(str::to_owned).collect();
    assert_eq!(lines[0], "| Queue | Ping (s) | total.goodput (kbit/s) |");
    assert_eq!(
        lines.len(),
        6,
        "a heading, a rule, two variants, and what they are: {lines:?}"
    );
    assert_eq!(lines[5], "Medians of 2 runs.");
    // Two digits of a ping below a second, and a whole number of kbit/s.
    let cells: Vec<&str> = lines[2]
        .trim_matches('|')
        .split('|')
        .map(str::trim)
        .collect();
    assert!(
        cells[1].starts_with("0.") && cells[1].len() <= 5,
        "{cells:?}"
    );
    assert!(cells[2].parse::<u64>().expect("whole") > 100, "{cells:?}");
    // Headings are text, unless they are said to be LaTeX.
    let latex = |rest: &[&str]| {
        let heading = ["--heading", r"ping.p95=\shortstack{Ping\\$p_{95}$}"];
        let table = ["export", "out", "--table", "h.tex", "--figures", "ping.p95"];
        place.ok(&[&table[..], &heading, rest].concat());
        place.read("h.tex")
    };
    assert!(latex(&[]).contains(r"\textbackslash{}shortstack\{Ping"));
    assert!(latex(&["--raw-headings"]).contains(r"variant & \shortstack{Ping\\$p_{95}$} \\"));
    for (rest, message) in [
        (
            ["--heading", "png.p95=x"],
            "the table has no column `png.p95`; did you mean `ping.p95`?",
        ),
        (
            ["--unit", "ping.p95=km"],
            "`ping.p95` cannot be shown in `km`",
        ),
        (["--digits", "0"], "expected a number from 1 to 9"),
        (
            ["--only", "link.rtt=30ms"],
            "the values of `link.rtt` are 20ms, 60ms",
        ),
    ] {
        let bad = ["export", "out", "--table", "no.md", "--figures", "ping.p95"];
        let said = place.fails(&[&bad[..], &rest].concat());
        assert!(said.contains(message), "{rest:?}: {said}");
        assert!(!place.path("no.md").exists(), "{rest:?}");
    }
}

/// Repetitions of some figures, and curves over words.
fn own_pictures(place: &Place) {
    let repetitions = [
        "report",
        "out",
        "--figure",
        "repetitions",
        "--svg",
        "r.svg",
        "--width",
        "85mm",
    ];
    let drawn = |rest: &[&str]| {
        place.ok(&[&repetitions[..], rest].concat());
        place.read("r.svg")
    };
    let height = |svg: &str| -> f64 {
        let (_, height) = svg.split_once("height=\"").expect("a height");
        let (height, _) = height.split_once("mm").expect("in mm");
        height.parse().expect("a number")
    };
    let (all, one) = (drawn(&["--bare"]), drawn(&["--bare", "--y", "ping.p50"]));
    assert!(
        height(&one) < 130.0 && height(&all) > 2.0 * height(&one),
        "{} {}",
        height(&one),
        height(&all)
    );
    let boxes = ["--width", "300mm", "--y", "ping.p50", "--marks", "box"];
    let wide = ["report", "out", "--figure", "repetitions", "--svg", "w.svg"];
    place.ok(&[&wide[..], &boxes].concat());
    assert!(
        place
            .read("w.svg")
            .contains("Boxes reach from the smallest to the largest repetition")
    );
    let up = drawn(&["--direction", "up"]);
    assert!(
        up.contains("Goodput up") && !up.contains("dropped down"),
        "{up}"
    );
    // Between two words there is no line, so no line has more ends than a stroke has.
    let curve = ["report", "out", "--figure", "curve", "--svg", "c.svg"];
    let axes = ["--x", "link.queue", "--by", "link.rtt", "--y", "ping.p50"];
    place.ok(&[&curve[..], &axes].concat());
    let svg = place.read("c.svg");
    assert!(
        svg.contains("error bars reach from the smallest to the largest"),
        "{svg}"
    );
    // Words of the paper's own, a logarithmic axis, and a height.
    let own = [
        "--heading",
        "ping.p50=Delay",
        "--y-axis",
        "log",
        "--height",
        "90mm",
    ];
    place.ok(&[&curve[..], &axes, &own].concat());
    let svg = place.read("c.svg");
    assert!(
        svg.contains("Delay") && svg.contains("ms, log") && svg.contains("height=\"90."),
        "{svg}"
    );
    for (rest, message) in [
        (
            ["--figure", "repetitions", "--y", "ping.p51"],
            "did you mean `ping.p50`",
        ),
        (
            ["--figure", "tail", "--y", "ping.p50"],
            "`y` has a meaning only for curves, heat maps and repetitions",
        ),
        (
            ["--figure", "repetitions", "--from", "1s"],
            "`from` has no meaning for `repetitions`",
        ),
        (
            ["--figure", "box", "--marks", "dots"],
            "`marks` has a meaning only for curves and repetitions",
        ),
        (
            ["--figure", "repetitions", "--height", "20mm"],
            "a height of 20 mm cannot hold the charts",
        ),
    ] {
        let said = place.fails(&[&["report", "out", "--svg", "no.svg"][..], &rest].concat());
        assert!(said.contains(message), "{rest:?}: {said}");
        assert!(!place.path("no.svg").exists(), "{rest:?}");
    }
    let said = place.fails(&[&curve[..], &axes, &["--direction", "up"]].concat());
    assert!(
        said.contains("`direction` has no meaning for `curve`"),
        "{said}"
    );
    // Without a file to draw it in, a figure is not drawn; only a PNG has a scale.
    for (rest, missing) in [
        (&["--figure", "tail"][..], "--svg <FILE>"),
        (&["--scale", "3", "--svg", "no.svg"][..], "--png <FILE>"),
    ] {
        let said = place.fails(&[&["report", "out"][..], rest].concat());
        assert!(
            said.contains("not provided") && said.contains(missing),
            "{said}"
        );
        assert!(!place.path("no.svg").exists(), "{rest:?}");
    }
}
