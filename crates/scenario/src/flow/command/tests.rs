use crate::metric::{Metric, Unit};
use crate::{FlowKind, Scenario, ScenarioErrors};

fn parse(keys: &str, rest: &str) -> Result<Scenario, String> {
    let text = format!(
        "duration = \"5s\"\n[link]\nrate = \"1Mbit/s\"\n[[flow]]\ntype = \"command\"\nname = \"tool\"\n\
         {keys}\n{rest}\n"
    );
    match Scenario::parse("x.toml", &text, &[]) {
        Ok(mut variants) => Ok(variants.remove(0).scenario),
        Err(ScenarioErrors::Invalid(errors)) => Err(errors
            .iter()
            .map(|error| {
                let hint = error.hint.as_deref().unwrap_or_default();
                format!("{:?} {}; {hint}", error.position, error.message)
            })
            .collect::<Vec<_>>()
            .join("\n")),
        Err(error) => Err(error.to_string()),
    }
}

fn figures(keys: &str, output: &str) -> Result<Vec<(String, f64)>, String> {
    let scenario = parse(&format!("run = \"tool\"\nfigures = {keys}"), "").unwrap();
    let FlowKind::Command(command) = &scenario.flows[0].kind else {
        panic!("not a command");
    };
    command.read_figures(output)
}

#[test]
fn words_are_those_of_a_shell_and_know_the_other_host() {
    let run = r#"run = '''sh -c 'curl "http://{peer}:80/$1" | tee ${out}' -- "a b" '''"#;
    let scenario = parse(run, "").unwrap();
    let FlowKind::Command(command) = &scenario.flows[0].kind else {
        panic!("not a command");
    };
    let script = "curl \"http://10.0.23.3:80/$1\" | tee ${out}";
    assert_eq!(
        command.words("10.0.23.3"),
        ["sh", "-c", script, "--", "a b"]
    );
    assert_eq!(crate::flow::FlowType::place(command), Some("x.toml:7:7"));
    let run = r#"run = "curl -w '%{time_total} %{json}' x | awk '{print}'""#;
    assert!(
        parse(run, "").is_ok(),
        "these braces belong to the programs"
    );
}

#[test]
fn figures_come_from_json_and_text_in_their_units() {
    let json = r#"{"end": {"rate": 9.5e6, "list": [{"rtt": "24.5"}], "cpu": 12.5}}"#;
    let of_json = figures(
        r#"{ goodput = { at = "/end/rate", unit = "bit/s" }, rtt = { at = "/end/list/0/rtt", unit = "ms" }, cpu = "/end/cpu" }"#,
        json,
    );
    let expected = [("goodput", 9.5e6), ("rtt", 24.5e6), ("cpu", 12.5)];
    assert_eq!(
        of_json,
        Ok(expected
            .map(|(name, value)| (name.to_owned(), value))
            .to_vec())
    );
    // The last line of iputils' ping, and of netperf.
    let text = "10 packets transmitted, 9 received, 10% packet loss\n\
                rtt min/avg/max/mdev = 20.1/21.5/30.2/1.5 ms\n 131072  16384  16384    10.00       9.51\n";
    let of_text = figures(
        r#"{ loss = { match = '([0-9.]+)% packet loss', unit = "%" }, mean = { match = 'mdev = [0-9.]+/([0-9.]+)/', unit = "ms" }, rate = { match = '10\.00 +([0-9.]+)', unit = "Mbit/s" } }"#,
        text,
    );
    let expected = [("loss", 0.1), ("mean", 21.5e6), ("rate", 9.51e6)];
    let close = |found: Vec<(String, f64)>| {
        let same = |((name, value), (own, right)): (&(String, f64), &(&str, f64))| {
            name == own && (value - right).abs() < right * 1e-12
        };
        found.len() == 3 && found.iter().zip(&expected).all(same)
    };
    assert!(of_text.is_ok_and(close));
}

#[test]
fn a_missing_figure_is_named_with_what_is_there() {
    let missing = |keys: &str, output: &str| figures(keys, output).unwrap_err();
    let json = r#"{"end": {"sum": {"bytes": "many", "seconds": null}, "streams": []}}"#;
    assert_eq!(
        missing(r#"{ a = "/end/total/bytes" }"#, json),
        "no figure `a`: the output has no `/end/total/bytes`; `/end` has sum, streams"
    );
    assert_eq!(
        missing(r#"{ a = "/end/streams/0/rtt" }"#, json),
        "no figure `a`: the output has no `/end/streams/0/rtt`; `/end/streams` has 0 items"
    );
    assert_eq!(
        missing(r#"{ a = "/error" }"#, json),
        "no figure `a`: the output has no `/error`; the output has end"
    );
    assert_eq!(
        missing(r#"{ a = "/end/sum/bytes" }"#, json),
        "no figure `a`: `/end/sum/bytes` is a string, not a number"
    );
    assert_eq!(
        missing(r#"{ a = "/end/sum/seconds" }"#, json),
        "no figure `a`: `/end/sum/seconds` is null, not a number"
    );
    assert_eq!(
        missing(r#"{ a = "/x" }"#, " \n"),
        "no figure `a`: the output is empty"
    );
    assert_eq!(
        missing(r#"{ a = "/x" }"#, "hello"),
        "no figure `a`: the output is not JSON: expected value at line 1 column 1"
    );
    assert_eq!(
        missing(r#"{ a = { match = 'rtt (.*)' } }"#, "loss 3"),
        "no figure `a`: no match of `rtt (.*)`"
    );
    assert_eq!(
        missing(r#"{ a = { match = 'rtt (.*)' } }"#, "rtt long"),
        "no figure `a`: `long`, a match of `rtt (.*)`, is not a number"
    );
}

#[test]
fn wrong_keys_are_refused_with_their_place() {
    let wrong = |keys: &str| parse(keys, "").unwrap_err();
    assert_eq!(
        wrong("run = ''"),
        "Some((7, 7)) `run` names no program; write it as in \"iperf3 -c {peer} -J\""
    );
    assert_eq!(
        wrong("run = 'iperf3 -c {pear}'"),
        "Some((7, 18)) `run` cannot contain `{pear}`; `{peer}` is the other host's address"
    );
    assert_eq!(
        wrong("run = 'iperf3 -c {host}'"),
        "Some((7, 18)) `run` cannot contain `{host}`; `{peer}` is the other host's address"
    );
    assert_eq!(
        wrong("run = \"sh -c 'x\""),
        "Some((7, 7)) `run` has a quote or a backslash without an end; "
    );
    assert_eq!(
        wrong("run = 'x'\nready = 80\nstart = '1s'"),
        "Some((9, 9)) a program with `ready` has no `start`; it starts before the run"
    );
    assert_eq!(
        wrong("run = 'x'\nfigures = { a = 'end/sum' }"),
        "Some((8, 17)) `end/sum` is not a JSON pointer; it begins with `/`, such as \
         \"/end/sum_sent/bytes\""
    );
    assert_eq!(
        wrong("run = 'x'\nfigures = { a = { at = '/end', unit = 'mbit/s' } }"),
        "Some((8, 39)) unknown `unit` `mbit/s`; did you mean `Mbit/s`?"
    );
    assert_eq!(
        wrong("run = 'x'\nfigures = { a = { match = '[0-9]+' } }"),
        "Some((8, 27)) `[0-9]+` has no group; parentheses enclose the number, as in \"= ([0-9.]+) \
         ms\""
    );
    assert_eq!(
        wrong("run = 'x'\nfigures = { runtime = '/a' }"),
        "Some((8, 11)) `runtime` is a figure of every command; choose another name"
    );
    assert_eq!(
        wrong("run = 'x'\nhost = 'h4'"),
        "Some((8, 8)) `host` cannot be `h4`; did you mean `h2` or `h3`?"
    );
}

#[test]
fn expectations_know_the_figures_of_a_program_and_their_units() {
    let keys = "run = 'x'\nfigures = { rate = { at = '/r', unit = 'Mbit/s' }, cpu = '/c' }";
    let expect = |metric: &str, bound: &str| {
        parse(
            keys,
            &format!("[[expect]]\nmetric = '{metric}'\nmin = {bound}"),
        )
    };
    let scenario = expect("tool.rate", "'9Mbit/s'").unwrap();
    assert_eq!(scenario.expect[0].bounds(), "at least 9Mbit/s");
    assert_eq!(
        expect("tool.cpu", "0.5").unwrap().expect[0].bounds(),
        "at least 0.5"
    );
    assert_eq!(
        expect("tool.cpu", "200").unwrap().expect[0].bounds(),
        "at least 200"
    );
    assert_eq!(
        expect("tool.rats", "1").unwrap_err(),
        "Some((10, 16)) `tool` has no metric `rats`; did you mean `rate`?"
    );
    let unit = |name: &str| Metric::parse(name, &scenario.flows).unwrap().unit();
    assert_eq!(
        (unit("tool.rate"), unit("tool.cpu")),
        (Unit::Rate, Unit::Number)
    );
    // A recording contains the scenario as it was resolved.
    let server = parse("run = 'x'\nready = 80", "").unwrap();
    assert!(Scenario::parse("y.toml", &server.to_toml(), &[]).is_ok());
    let again = Scenario::parse("y.toml", &scenario.to_toml(), &[]).unwrap();
    assert_eq!(again[0].scenario, scenario);
}
