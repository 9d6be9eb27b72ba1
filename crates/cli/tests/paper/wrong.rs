//! Pictures of a scenario that cannot be drawn.

use std::fs;

use serde_json::Value;

use super::{Place, SCENARIO, text};

#[test]
fn a_check_says_nothing_about_repetitions() {
    let place = Place::new();
    let band = "[[picture]]\nfile = \"a.svg\"\nfigure = \"curve\"\nx = \"link.rtt\"\ny = \"ping.p50\"\nby = \"link.queue\"\nband = true\n";
    place.write("s.toml", &format!("{SCENARIO}{band}"));
    place.ok(&["run", "s.toml", "--check"]);
    let said = place.fails(&["run", "s.toml", "-o", "out"]);
    assert!(said.contains("a band needs at least two"), "{said}");
}

#[test]
fn a_picture_that_cannot_be_drawn_is_named_before_the_first_run() {
    let place = Place::new();
    // The lines of the scenario end before these.
    let base = "[[picture]]\nfile = \"a.svg\"\nfigure = \"curve\"\nx = \"link.rtt\"\ny = \"ping.p50\"\nby = \"link.queue\"\n";
    let [_, file, figure, x, y, by, last] =
        [0, 1, 2, 3, 4, 5, 6].map(|line| SCENARIO.lines().count() + 1 + line);
    let plain = |rest: &str| format!("[[picture]]\nfile = \"a.svg\"\n{rest}");
    let cases = [
        (
            base.replace("link.rtt", "link.rate"),
            "no axis of the runs is called `link.rate`",
            x,
        ),
        (
            base.replace("link.queue", "link.quee"),
            "did you mean `link.queue`?",
            by,
        ),
        (
            base.replace("by = \"link.queue\"\n", ""),
            "`link.queue` varies too (fifo, red)",
            figure,
        ),
        (
            base.replace("ping.p50", "pong.p50"),
            "did you mean `ping`?",
            y,
        ),
        (
            base.replace("ping.p50", "ping.p50,ping.p95"),
            "a curve shows one figure, and `ping.p50,ping.p95` names several",
            y,
        ),
        (
            format!("{base}band = true\n"),
            "a band needs at least two",
            last,
        ),
        (
            format!("{base}only = [\"link.rtt=20ms\",\n\"link.queue=codel\"]\n"),
            "no run has link.queue=codel",
            last + 1,
        ),
        (
            format!("{base}width = \"85\"\n"),
            "`85` is not a width on paper, such as 85mm",
            last,
        ),
        (
            base.replace("curve", "curv"),
            "there is no figure `curv`; did you mean `curve`?",
            figure,
        ),
        (
            base.replace("a.svg", "a.gif"),
            "`a.gif` is not the name of a picture",
            file,
        ),
        (
            base.replace("a.svg", "../a.svg"),
            "the picture `../a.svg` is not in the output folder",
            file,
        ),
        (
            plain("figure = \"repetitions\"\n"),
            "run it with --repeat 5",
            figure,
        ),
        // The runs last 2 s.
        (
            plain("from = \"3s\"\n"),
            "no time is left from 3 s to 2 s",
            figure,
        ),
        (
            plain("seed = 2\n"),
            "no run has the seed 2; there are 1",
            figure,
        ),
    ];
    for (picture, message, line) in cases {
        place.write("s.toml", &format!("{SCENARIO}{picture}"));
        let said = place.fails(&["run", "s.toml", "-o", "out"]);
        assert!(said.contains(message), "{said}");
        assert!(said.contains(&format!("s.toml:{line}:")), "{line}: {said}");
        assert!(!place.path("out").exists(), "nothing was run");
    }
}

#[test]
fn a_figure_of_what_was_not_recorded_names_the_level_that_has_it() {
    let place = Place::new();
    place.write("s.toml", SCENARIO);
    for level in ["figures", "flows"] {
        let run = ["run", "s.toml", "-q", "-o", level, "--record", level];
        let one = ["--set", "link.rtt=20ms", "--set", "link.queue=fifo"];
        place.ok(&[&run[..], &one].concat());
    }
    let draw = |level, figure| ["report", level, "-q", "--figure", figure, "--svg", "a.svg"];
    for (level, figure, needs) in [
        ("figures", "time", "flows"),
        ("figures", "flows", "flows"),
        ("figures", "tail", "flows"),
        ("figures", "box", "flows"),
        ("figures", "state", "packets"),
        ("figures", "tradeoff", "packets"),
        ("flows", "tradeoff", "packets"),
    ] {
        let said = place.fails(&draw(level, figure));
        let expected = format!(
            "sluice: a {figure} figure cannot be drawn of runs of which only the {level} are recorded: \
             run the scenario with `--record {needs}`\n"
        );
        assert_eq!(said, expected);
        assert!(!place.path("a.svg").exists(), "{figure}");
    }
    // No level has what is not there.
    let said = place.fails(&draw("figures", "fairness"));
    assert!(
        said.contains("a fairness figure needs two bulk TCP flows"),
        "{said}"
    );
    place.ok(&draw("figures", "totals"));
    place.ok(&draw("flows", "time"));
}

#[test]
fn what_charts_need_is_known_before_the_first_run() {
    let place = Place::new();
    let [file, figure] = [2, 3].map(|line| SCENARIO.lines().count() + line);
    let not_recorded = |figure: &str, kept: &str, needs: &str| {
        format!(
            "a {figure} figure cannot be drawn of runs of which only the {kept} are recorded: run the \
             scenario with `--record {needs}`"
        )
    };
    let two = "a fairness figure needs two bulk TCP flows (without `bytes`) of one direction";
    let cases: [(&[&str], &str, String, usize); 5] = [
        (
            &["--record", "figures"],
            "",
            not_recorded("time", "figures", "flows"),
            file,
        ),
        (
            &["--record", "figures"],
            "box",
            not_recorded("box", "figures", "flows"),
            figure,
        ),
        (
            &["--record", "flows"],
            "tradeoff",
            not_recorded("tradeoff", "flows", "packets"),
            figure,
        ),
        // Four variants are 52 runs, two more than those that record packets by default.
        (
            &["--repeat", "13"],
            "state",
            not_recorded("state", "figures", "packets"),
            figure,
        ),
        (&[], "fairness", two.to_owned(), figure),
    ];
    for (options, figure, message, line) in cases {
        let figure = match figure {
            "" => String::new(),
            figure => format!("figure = \"{figure}\"\n"),
        };
        let picture = format!("[[picture]]\nfile = \"a.svg\"\n{figure}");
        place.write("s.toml", &format!("{SCENARIO}{picture}"));
        let run = [&["run", "s.toml", "-o", "out"], options].concat();
        for run in [run.clone(), [&run[..], &["--check"]].concat()] {
            let said = place.fails(&run);
            assert!(said.contains(&message), "{said}");
            let at = format!("sluice: s.toml:{line}:");
            assert!(said.contains(&at), "{line}: {said}");
            assert_eq!(
                said.contains("of its 52 runs"),
                options == ["--repeat", "13"]
            );
            assert!(!place.path("out").exists(), "nothing was run");
        }
    }
    let rivals = "[[flow]]\ntype = \"tcp\"\ncount = 2\n";
    let fairness = "[[picture]]\nfile = \"a.svg\"\nfigure = \"fairness\"\n";
    place.write("s.toml", &format!("{SCENARIO}{rivals}{fairness}"));
    place.ok(&["run", "s.toml", "--check", "--record", "flows"]);
}

#[test]
fn a_picture_that_cannot_be_drawn_costs_no_other_output() {
    let place = Place::new();
    let pictures = "[[picture]]\nfile = \"first.svg\"\n\
                    [[picture]]\nfile = \"low.svg\"\nheight = \"1mm\"\n\
                    [[picture]]\nfile = \"last.svg\"\nfigure = \"box\"\n";
    let height = SCENARIO.lines().count() + 5;
    fs::create_dir(place.path("all")).expect("writable");
    place.write("all/a.toml", &format!("{SCENARIO}{pictures}"));
    place.write("all/b.toml", SCENARIO);
    let names_it = |errors: &str| {
        let place = format!("sluice: all/a.toml:{height}:");
        let message = "the picture `low.svg`: a height of 1 mm cannot hold the charts";
        assert!(
            errors.contains(&place) && errors.contains(message),
            "{errors}"
        );
    };
    let drawn = ["out/a/first.svg", "out/a/last.svg"];
    let output = place.run(&["run", "all", "-o", "out", "-q"]);
    assert_eq!(output.status.code(), Some(1));
    names_it(&text(&output.stderr));
    let told = text(&output.stdout);
    for words in [
        "report: out/a/report.html",
        "report: out/b/report.html",
        "index: out/index.html",
    ] {
        assert!(told.contains(words), "{words}: {told}");
    }
    for file in drawn {
        assert!(told.contains(&format!("picture: {file}\n")), "{told}");
    }
    let others = ["out/a/figures.csv", "out/b/figures.csv", "out/index.html"];
    for file in drawn.iter().chain(&others) {
        assert!(place.path(file).is_file(), "{file}");
    }
    assert!(!told.contains("low.svg") && !place.path("out/a/low.svg").exists());

    let output = place.run(&["run", "all", "-o", "out", "-q", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    names_it(&text(&output.stderr));
    let results: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    // Four variants of each.
    assert_eq!(results.as_array().map(Vec::len), Some(8));

    fs::remove_file(place.path("out/a/last.svg")).expect("it is there");
    let output = place.run(&["report", "out/a", "-q", "--pictures", "all/a.toml"]);
    assert_eq!(output.status.code(), Some(1));
    names_it(&text(&output.stderr));
    assert_eq!(
        text(&output.stdout),
        drawn.map(|file| format!("report: {file}\n")).concat()
    );
    assert!(place.path("out/a/last.svg").is_file());
}
