//! Linked variants, words of a queue as keys, the link's own rate, flows in both directions, and
//! pictures.

use super::super::*;
use super::errors::errors;
use super::{PLAIN, names, variants};

const CABLE: &str = r#"duration = "10s"
[link]
rtt = "20ms"
[link.up]
rate = "5Mbit/s"
[link.down]
rate = "50Mbit/s"
[[variant]]
name = "cake"
"link.queue" = "cake bandwidth {rate}"
[[variant]]
name = "docsis"
"link.up.queue" = "pie preset docsis limit 125"
"link.down.queue" = "fifo limit 400"
[[flow]]
type = "tcp"
"#;

fn queues(variant: &Variant) -> [String; 2] {
    let link = &variant.scenario.link;
    [&link.up, &link.down].map(|pipe| pipe.queue.to_string())
}

#[test]
fn a_row_sets_several_keys_and_rate_is_that_of_its_own_link() {
    let all = variants(CABLE, &[]);
    assert_eq!(names(&all), ["cake", "docsis"]);
    let rates = ["cake bandwidth 5Mbit/s", "cake bandwidth 50Mbit/s"];
    assert_eq!(queues(&all[0]), rates);
    assert_eq!(
        queues(&all[1]),
        ["pie preset docsis limit 125", "fifo limit 400"]
    );
    assert_eq!(
        all[1].coordinates,
        [Coordinate {
            key: "variant".into(),
            value: "docsis".into(),
            name: "docsis".into(),
        }]
    );
    // One row, and rows crossed with a matrix.
    assert_eq!(names(&variants(CABLE, &["variant=docsis"])), ["docsis"]);
    let crossed = format!("{CABLE}[matrix]\n\"link.rtt\" = [\"10ms\", \"80ms\"]\n");
    let all = variants(&crossed, &[]);
    assert_eq!(
        names(&all),
        [
            "cake rtt=10ms",
            "cake rtt=80ms",
            "docsis rtt=10ms",
            "docsis rtt=80ms"
        ]
    );
    let keys: Vec<(&str, &str)> = all[3]
        .coordinates
        .iter()
        .map(|at| (at.key.as_str(), at.value.as_str()))
        .collect();
    assert_eq!(keys, [("variant", "docsis"), ("link.rtt", "80ms")]);
    // A condition is not a choice of the queue.
    let choices: Vec<bool> = all[3]
        .coordinates
        .iter()
        .map(Coordinate::is_choice)
        .collect();
    assert_eq!(choices, [true, false]);
}

#[test]
fn a_key_of_the_link_is_set_for_both_directions() {
    let text = PLAIN.replace(
        "[[flow]]",
        "[link.up]\nqueue = \"codel\"\nrate = \"3Mbit/s\"\n[[flow]]",
    );
    let all = |sets: &[&str]| variants(&text, sets).remove(0).scenario.link;
    assert_eq!(all(&[]).up.queue.to_string(), "codel");
    let link = all(&["link.queue=pie", "link.rate=5Mbit/s"]);
    for pipe in [&link.up, &link.down] {
        let words = (pipe.queue.to_string(), pipe.rate.to_string());
        assert_eq!(words, ("pie".into(), "5Mbit/s".into()));
    }
    // What is set later, or for one direction, counts.
    let link = all(&["link.queue=pie", "link.up.queue=sfq"]);
    let queues_of = |link: &crate::Link| [&link.up, &link.down].map(|pipe| pipe.queue.to_string());
    assert_eq!(queues_of(&link), ["sfq", "pie"]);
    let link = all(&["link.up.queue=sfq", "link.queue=pie"]);
    assert_eq!(queues_of(&link), ["pie", "pie"]);
    // An axis of one direction counts, whichever comes first.
    for axes in [
        "\"link.queue\" = [\"pie\"]\n\"link.up.queue\" = [\"fifo\", \"sfq\"]\n",
        "\"link.up.queue\" = [\"fifo\", \"sfq\"]\n\"link.queue\" = [\"pie\"]\n",
    ] {
        let all = variants(&format!("{text}[matrix]\n{axes}"), &[]);
        assert_eq!(queues(&all[1]), ["sfq", "pie"], "{axes}");
    }
}

#[test]
fn a_delay_that_the_user_sets_replaces_a_round_trip_time() {
    let delays = |text: &str, sets: &[&str]| {
        let link = variants(text, sets).remove(0).scenario.link;
        [&link.up, &link.down].map(|pipe| pipe.delay.first().as_ns())
    };
    // An odd 3 ns: the way up has two of them.
    let text = PLAIN.replace("20ms", "3ns");
    assert_eq!(delays(&text, &["link.delay=9ns"]), [9, 9]);
    assert_eq!(delays(&text, &["link.down.delay=9ns"]), [2, 9]);
    assert_eq!(delays(&text, &["link.up.delay=9ns"]), [9, 1]);
    let both = ["link.up.delay=9ns", "link.rtt=8ns"];
    assert_eq!(delays(&text, &both), [4, 4]);
    let text = PLAIN.replace("rtt = \"20ms\"", "delay = \"7ns\"\ndown.delay = \"5ns\"");
    assert_eq!(delays(&text, &[]), [7, 5]);
    assert_eq!(delays(&text, &["link.rtt=8ns"]), [4, 4]);
    // A link of [[hop]], and an axis.
    let hop = format!("{PLAIN}[[hop]]\nrate = \"1Mbit/s\"\nrtt = \"4ns\"\n");
    let hops = variants(&hop, &["hop.2.delay=9ns"]).remove(0).scenario.hops;
    assert_eq!(hops[0].rtt().as_ns(), 18);
    let swept = format!("{PLAIN}[matrix]\n\"link.rtt\" = [\"10ns\", \"80ns\"]\n");
    assert_eq!(variants(&swept, &["link.delay=9ns"]).len(), 1);
    assert_eq!(delays(&swept, &["link.delay=9ns"]), [9, 9]);
}

#[test]
fn a_word_of_a_queue_is_a_key() {
    let text = PLAIN.replace("[[flow]]", "queue = \"codel target 7ms ecn\"\n[[flow]]");
    let swept = format!(
        "{text}[matrix]\n\"link.queue.target\" = [\"1ms\", \"20ms\"]\n\"link.queue.ecn\" = [true, false]\n"
    );
    let all = variants(&swept, &[]);
    assert_eq!(
        names(&all),
        [
            "target=1ms ecn=true",
            "target=1ms ecn=false",
            "target=20ms ecn=true",
            "target=20ms ecn=false",
        ]
    );
    assert_eq!(queues(&all[2])[0], "codel target 20ms ecn");
    assert_eq!(queues(&all[3])[1], "codel target 20ms noecn");
    // Set by the user, in one direction.
    let set = variants(&text, &["link.up.queue.target=3ms"]);
    assert_eq!(
        queues(&set[0]),
        ["codel target 3ms ecn", "codel target 7ms ecn"]
    );
    // Beside an axis that chooses the queue.
    let both = format!(
        "{PLAIN}[matrix]\n\"link.queue.target\" = [\"1ms\"]\n\"link.queue\" = [\"codel\", \"pie\"]\n"
    );
    let all = variants(&both, &[]);
    assert_eq!(queues(&all[1])[0], "pie target 1ms");
}

#[test]
fn a_key_that_the_user_sets_makes_no_two_rows_the_same() {
    // Nothing is left to vary: one run, named after its queue.
    let all = variants(CABLE, &["link.queue=codel"]);
    assert_eq!(names(&all), ["codel"]);
    assert_eq!(queues(&all[0]), ["codel", "codel"]);
    let matrix = format!("{PLAIN}[matrix]\n\"link.up.queue\" = [\"fifo\", \"red\"]\n");
    let all = variants(&matrix, &["link.queue=codel"]);
    assert_eq!(names(&all), ["codel"]);
    assert_eq!(queues(&all[0]), ["codel", "codel"]);
    // The rows still differ.
    let all = variants(CABLE, &["link.up.queue=codel"]);
    assert_eq!(names(&all), ["cake", "docsis"]);
    assert_eq!(queues(&all[0]), ["codel", "cake bandwidth 50Mbit/s"]);
    assert_eq!(queues(&all[1]), ["codel", "fifo limit 400"]);
    // Two of three rows would be the same run under two names.
    let third = "[[variant]]\nname = \"short\"\n\"link.up.queue\" = \"fifo limit 9\"\n\
                 \"link.down.queue\" = \"fifo limit 400\"\n[[flow]]";
    let told = errors(&CABLE.replace("[[flow]]", third), &["link.up.queue=codel"]);
    assert!(
        told.contains("the variants `docsis` and `short` differ in nothing but `link.up.queue`")
            && told.contains("--set variant=docsis"),
        "{told}"
    );
}

#[test]
fn what_cannot_be_varied_is_named_with_its_place() {
    // To TOML these are different keys.
    let twice = CABLE.replace("name = \"cake\"", "name = \"cake\"\nlink.queue = \"fifo\"");
    let told = errors(&twice, &[]);
    assert!(
        told.contains("`link.queue` is set twice") && told.contains("x.toml:"),
        "{told}"
    );
    let also = format!("{CABLE}[matrix]\n\"link.up.queue\" = [\"fifo\"]\n");
    let told = errors(&also, &[]);
    assert!(
        told.contains("`link.up.queue` is set twice") && told.contains("leave out one of the two"),
        "{told}"
    );
    let told = errors(&CABLE.replace("name = \"docsis\"", "name = \"cake\""), &[]);
    assert!(told.contains("two variants are named `cake`"), "{told}");
    let told = errors(&CABLE.replace("name = \"docsis\"\n", ""), &[]);
    assert!(told.contains("needs a `name`"), "{told}");
    let told = errors(CABLE, &["variant=cak"]);
    assert!(
        told.contains("there is no variant `cak`") && told.contains("`cake`"),
        "{told}"
    );
    let told = errors(PLAIN, &["link.queue.target=1ms"]);
    assert!(
        told.contains("there is no queue whose `target` could be set"),
        "{told}"
    );
    let unlimited = PLAIN
        .replace("10Mbit/s", "unlimited")
        .replace("[[flow]]", "queue = \"cake bandwidth {rate}\"\n[[flow]]");
    let told = errors(&unlimited, &[]);
    assert!(
        told.contains("`{rate}` needs a link with one rate"),
        "{told}"
    );
    let unknown = format!("{PLAIN}[matrix]\n\"link.queue.tarqet\" = [\"1ms\"]\n");
    let told = errors(
        &unknown.replace("[[flow]]", "queue = \"codel\"\n[[flow]]"),
        &[],
    );
    assert!(told.contains("no parameter `tarqet`"), "{told}");
}

#[test]
fn a_flow_in_both_directions_is_two() {
    let call = format!("{PLAIN}[[flow]]\ntype = \"voip\"\nname = \"call\"\ndirection = \"both\"\n");
    let scenario = &variants(&call, &[])[0].scenario;
    let ways: Vec<(&str, Direction)> = scenario.flows[1..]
        .iter()
        .map(|flow| (flow.name.as_str(), flow.direction))
        .collect();
    assert_eq!(
        ways,
        [("call-up", Direction::Up), ("call-down", Direction::Down)]
    );
}

#[test]
fn both_directions_can_be_set_and_varied() {
    let call = format!("{PLAIN}[[flow]]\ntype = \"voip\"\nname = \"call\"\n");
    let calls = |text: &str, sets: &[&str]| -> Vec<Vec<(String, Direction, Span)>> {
        let all = variants(text, sets);
        let of = |variant: &Variant| {
            let flows = variant.scenario.flows[1..].iter();
            flows
                .map(|flow| (flow.name.clone(), flow.direction, flow.start))
                .collect()
        };
        all.iter().map(of).collect()
    };
    let at = |name: &str, direction, s| (name.to_owned(), direction, Span::from_secs(s));
    let one = vec![at("call", Direction::Up, 0)];
    let two = |up, down| {
        vec![
            at("call-up", Direction::Up, up),
            at("call-down", Direction::Down, down),
        ]
    };
    assert_eq!(calls(&call, &["flow.call.direction=both"]), [two(0, 0)]);
    let axis = "[matrix]\n\"flow.call.direction\" = [\"up\", \"both\"]\n";
    assert_eq!(calls(&format!("{call}{axis}"), &[]), [one, two(0, 0)]);
    // Keys of the flow are those of both, and each of the two has its own name.
    let both = format!("{call}direction = \"both\"\n");
    assert_eq!(calls(&both, &["flow.call.start=1s"]), [two(1, 1)]);
    assert_eq!(calls(&both, &["flow.call-down.start=2s"]), [two(0, 2)]);
    let sets = ["flow.call-down.start=2s", "flow.call.start=1s"];
    assert_eq!(calls(&both, &sets), [two(1, 1)]);
    let axes =
        "[matrix]\n\"flow.call-up.start\" = [\"2s\", \"3s\"]\n\"flow.call.start\" = [\"1s\"]\n";
    let varied = calls(&format!("{both}{axes}"), &[]);
    assert_eq!(varied, [two(2, 1), two(3, 1)]);
}

#[test]
fn names_of_flows_may_have_dots_where_keys_are_set() {
    let text = format!(
        "{PLAIN}[[flow]]\ntype = \"tcp\"\nname = \"a.b\"\n[[flow]]\ntype = \"tcp\"\nname = \"a\"\n"
    );
    let all = variants(&text, &["flow.a.b.start=1s", "flow.a.start=2s"]);
    let starts: Vec<Span> = all[0].scenario.flows[1..]
        .iter()
        .map(|flow| flow.start)
        .collect();
    assert_eq!(starts, [Span::from_secs(1), Span::from_secs(2)]);
    let told = errors(&text, &["flow.c.d.start=1s"]);
    assert!(told.contains("there is no flow `c`"), "{told}");
    let told = errors(&text, &["flow.a.b=1s"]);
    assert!(told.contains("unknown key `b`"), "a key of `a`: {told}");
}

#[test]
fn no_flow_has_the_name_of_a_hops_direction() {
    let hop = "[[hop]]\nrate = \"1Mbit/s\"\n";
    let text = |hop: &str, name: &str| {
        format!("{PLAIN}{hop}[[flow]]\ntype = \"tcp\"\nname = \"{name}\"\n")
    };
    let told = errors(&text(hop, "up2"), &[]);
    assert!(told.contains("a flow cannot be named `up2`"), "{told}");
    assert!(
        told.contains("x.toml:14:8"),
        "the place of the name: {told}"
    );
    // There is no third link.
    assert_eq!(
        variants(&text(hop, "down3"), &[])[0].scenario.flows.len(),
        2
    );
    assert_eq!(variants(&text("", "up2"), &[])[0].scenario.flows.len(), 2);
    // Older programs recorded such a scenario.
    let scenario = &variants(&text(hop, "old"), &[])[0].scenario;
    let json = serde_json::to_string(scenario).unwrap();
    let json = json.replace("\"old\"", "\"up2\"");
    let again: Scenario = serde_json::from_str(&json).unwrap();
    assert_eq!(again.flows[1].name, "up2");
}

#[test]
fn two_equal_names_of_rows_are_one_error() {
    let told = errors(&CABLE.replace("\"docsis\"", "\"cake\""), &[]);
    assert!(told.contains("two variants are named `cake`"), "{told}");
    assert!(!told.contains("combinations"), "{told}");
}

#[test]
fn a_variant_has_a_name_without_control_characters() {
    let why = "the name of a variant has the control character U+001B";
    let row = CABLE.replace("\"docsis\"", "\"\\u001b]52;c;eA==\\u0007\"");
    let told = errors(&row, &[]);
    assert!(told.contains(why) && told.contains("x.toml:"), "{told}");
    for values in [
        "{ \"\\u001b[2J\" = \"fifo\" }",
        "[\"fifo\", \"1\\u001b[2J\"]",
    ] {
        let text = format!("{PLAIN}[matrix]\n\"link.queue\" = {values}\n");
        let told = errors(&text, &[]);
        assert!(told.contains(why) && !told.contains('\u{1b}'), "{told}");
    }
    let row = CABLE.replace("\"docsis\"", "\"a\\nb\"");
    assert!(errors(&row, &[]).contains("character U+000A"));
    // Lines of a value become one.
    let lines = format!("{PLAIN}[matrix]\nabout = [\"1\\n 2\", \"3\"]\n");
    assert_eq!(names(&variants(&lines, &[])), ["about=1 2", "about=3"]);
}

#[test]
fn pictures_are_read_apart_from_the_scenario() {
    let row = "[[picture]]\nfile = \"a.pdf\"\nfigure = \"curve\"\nx = \"link.rtt\"\ny = \"ping.p50\"\nonly = \"link.queue=codel\"\n";
    let text = format!("{PLAIN}{row}");
    assert_eq!(names(&variants(&text, &[])), ["fifo"]);
    let all = Picture::parse_all("x.toml", &text).unwrap();
    let picture = &all[0].picture;
    assert_eq!((picture.file.as_str(), picture.only.0.len()), ("a.pdf", 1));
    assert_eq!(all[0].place("x"), Some("x.toml:13:5"));
    // A key that is not set has the place of the name, a single condition that of its key.
    assert_eq!(all[0].place("marks"), Some("x.toml:11:8"));
    assert_eq!(all[0].place("only.0"), Some("x.toml:15:8"));
    let list = text.replace("\"link.queue=codel\"", "[\"a=b\",\n\"c=d\"]");
    let all = Picture::parse_all("x.toml", &list).unwrap();
    assert_eq!(all[0].place("only.1"), Some("x.toml:16:1"));
    // Several figures are a list or a text with commas.
    let y = |value: &str| {
        let text = text.replace("y = \"ping.p50\"", &format!("y = {value}"));
        Picture::parse_all("x.toml", &text).map(|all| all[0].picture.y.0.clone())
    };
    assert_eq!(y("[\"a.p50\", \"b.p50\"]").unwrap(), "a.p50,b.p50");
    assert_eq!(y("\"a.p50,b.p50\"").unwrap(), "a.p50,b.p50");
    let told = y("[\"a.p50\", 3]").unwrap_err().to_string();
    assert!(told.contains("x.toml:14:15"), "{told}");
    for (from, to, message) in [
        ("a.pdf", "a.doc", "`a.doc` is not the name of a picture"),
        (
            "a.pdf",
            "../../a.pdf",
            "the picture `../../a.pdf` is not in the output folder",
        ),
        (
            "a.pdf",
            "fifo/a.pdf",
            "give a name without a folder: \"a.pdf\"",
        ),
        (
            "a.pdf",
            "/tmp/a.pdf",
            "the picture `/tmp/a.pdf` is not in the output folder",
        ),
        ("only", "onyl", "unknown key `onyl` in [[picture]]"),
        ("link.queue=codel", "codel", "AXIS"),
    ] {
        let told = Picture::parse_all("x.toml", &text.replace(from, to))
            .unwrap_err()
            .to_string();
        assert!(
            told.contains(message) || message == "AXIS" && told.contains("condition"),
            "{told}"
        );
    }
    let twice = format!("{text}{row}");
    let told = Picture::parse_all("x.toml", &twice)
        .unwrap_err()
        .to_string();
    assert!(
        told.contains("two pictures would be written to `a.pdf`"),
        "{told}"
    );
}
