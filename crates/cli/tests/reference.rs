//! The reference pages that are generated from the registry and the command line are up to date.
//!
//! `UPDATE_EXPECT=1 cargo test -p sluice-cli --test reference` rewrites them.

mod documented;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::process::Command;

use expect_test::expect_file;
use serde_json::Value as Json;
use serde_json::value::RawValue;
use sluice_core::link::LinkParams;
use sluice_core::param::{Kind, ParamDecl};
use sluice_core::{Cx, DropCounter, Packet, Rng, Time};
use sluice_ipfw::{Direction, Files, Firewall, Headers, Settings};
use sluice_router::control::{Change, Place, Remark, Reply, Request};
use sluice_router::process::watch::{
    FlowSample, ObjectSample, PortSample, Sample, Sojourn, TrafficSample,
};

/// Returns the list that a command prints.
fn list(words: &[&str]) -> Vec<Json> {
    let output = Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args(words)
        .output()
        .expect("the command runs");
    assert!(output.status.success());
    let json: Json = serde_json::from_slice(&output.stdout).expect("it prints JSON");
    json.as_array().expect("a list").clone()
}

/// Returns the output of `sluice list --json`.
fn algorithms() -> Vec<Json> {
    list(&["list", "--json"])
}

fn text<'a>(json: &'a Json, key: &str) -> &'a str {
    json[key].as_str().unwrap_or_default()
}

fn params(algorithm: &Json) -> &[Json] {
    algorithm["params"].as_array().expect("a list")
}

/// Formats `target 5ms` or `noecn`: a parameter with its default, as a user would write it.
fn setting(param: &Json) -> String {
    match (text(param, "kind"), text(param, "default")) {
        ("switch", "on") => text(param, "name").to_string(),
        ("switch", _) => format!("no{}", text(param, "name")),
        (_, default) => format!("{} {default}", text(param, "name")),
    }
}

/// Formats a parameter with its default. For a switch, this is the plain word; the row explains its
/// meaning.
fn heading(param: &Json) -> String {
    match (text(param, "kind"), text(param, "default")) {
        ("switch", "on") => format!("`{}`, on", text(param, "name")),
        ("switch", _) => format!("`{}`, off", text(param, "name")),
        _ => format!("`{}`", setting(param)),
    }
}

/// Describes the values that a parameter accepts.
fn accepted(param: &Json) -> String {
    if let Some(words) = param["words"].as_array() {
        let words: Vec<&str> = words.iter().filter_map(Json::as_str).collect();
        return format!("`{}`", words.join("`, `"));
    }
    match text(param, "kind") {
        "switch" => format!("`{0}` or `no{0}`", text(param, "name")),
        kind => format!("{kind}, {} to {}", text(param, "low"), text(param, "high")),
    }
}

/// Formats a text for a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

const FORMS: [(&str, &str); 3] = [
    ("discipline", "Disciplines"),
    ("aqm", "AQMs on a single queue"),
    (
        "flow-queued aqm",
        "AQMs in every queue of a flow-queueing discipline",
    ),
];

#[test]
fn the_index_of_algorithms_is_up_to_date() {
    let algorithms = algorithms();
    let mut page = String::from(
        "# Algorithms\n\n\
         Generated from the registry by `UPDATE_EXPECT=1 cargo test -p sluice-cli --test reference`; do not edit.\n\
         [parameters.md](parameters.md) explains every parameter and says where its default comes from.\n\
         A queue is written as words, `codel target 7ms ecn`, the same in every scenario, rule and command.\n",
    );
    let known: Vec<&str> = FORMS.iter().map(|(form, _)| *form).collect();
    for algorithm in &algorithms {
        assert!(
            known.contains(&text(algorithm, "form")),
            "a form is missing above"
        );
    }
    for (form, heading) in FORMS {
        let _ = write!(
            page,
            "\n## {heading}\n\n| name | what it does | parameters and defaults |\n|---|---|---|\n"
        );
        for algorithm in algorithms.iter().filter(|a| text(a, "form") == form) {
            let name = text(algorithm, "name");
            let settings: Vec<String> = params(algorithm).iter().map(setting).collect();
            let link = match form {
                "flow-queued aqm" => format!("`{name}`"),
                _ if has_page(name) => format!("[`{name}`]({name}.md)"),
                _ => format!("[`{name}`](parameters.md#{name})"),
            };
            let doc = cell(text(algorithm, "doc"));
            let _ = writeln!(page, "| {link} | {doc} | {} |", settings.join(", "));
        }
    }
    expect_file!["../../../docs/algorithms/README.md"].assert_eq(&page);
}

#[test]
fn the_reference_of_parameters_is_up_to_date() {
    let mut page = String::from(
        "# Parameters\n\n\
         Generated from the registry by `UPDATE_EXPECT=1 cargo test -p sluice-cli --test reference`; do not edit.\n\
         A time without a unit counts milliseconds, a size bytes. Switches are written `word` or `noword`.\n",
    );
    for algorithm in &algorithms() {
        let _ = write!(
            page,
            "\n## {}\n\n{}.\n",
            text(algorithm, "name"),
            text(algorithm, "doc")
        );
        if params(algorithm).is_empty() {
            page.push_str("\nNo parameters.\n");
            continue;
        }
        page.push_str(
            "\n| parameter and default | accepts | meaning | source of the default |\n|---|---|---|---|\n",
        );
        for param in params(algorithm) {
            let _ = writeln!(
                page,
                "| {} | {} | {} | {} |",
                heading(param),
                cell(&accepted(param)),
                cell(text(param, "doc")),
                cell(text(param, "source")),
            );
        }
    }
    expect_file!["../../../docs/algorithms/parameters.md"].assert_eq(&page);
}

/// Returns the output of `sluice WORDS --help`.
fn help(words: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args(words)
        .arg("--help")
        .env_remove("SLUICE_SOCKET")
        .output()
        .expect("the command runs");
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("help is text");
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.join("\n").trim().to_owned()
}

#[test]
fn the_reference_of_the_command_line_is_up_to_date() {
    let all = help(&[]);
    let mut page = format!(
        "# Command line\n\n\
         Generated from the program's options by `UPDATE_EXPECT=1 cargo test -p sluice-cli --test \
         reference`;\ndo not edit. [Runs and folders](suite.md) lists exit statuses.\n\n\
         ## sluice\n\n```text\n{all}\n```\n"
    );
    let commands = all
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        // The words of a subcommand are indented by two columns, the continuation of its text by
        // more.
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next())
        .filter(|word| !word.is_empty() && *word != "help");
    for name in commands {
        let _ = write!(
            page,
            "\n## sluice {name}\n\n```text\n{}\n```\n",
            help(&[name])
        );
    }
    assert!(page.contains("\n## sluice replay\n"), "{page}");
    expect_file!["../../../docs/command-line.md"].assert_eq(&page);
}

/// The pages that a page of the documentation links to.
fn links(page: &str) -> BTreeSet<String> {
    let path = format!("{}/../../docs/{page}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let targets = text.split("](").skip(1).filter_map(|rest| {
        let (target, _) = rest.split_once(')')?;
        let (file, _) = target.split_once('#').unwrap_or((target, ""));
        file.ends_with(".md").then(|| file.to_owned())
    });
    targets.collect()
}

#[test]
fn the_first_page_lists_every_page_of_the_contents() {
    let listed = links("README.md");
    // Single algorithms and measurements are listed by the pages of their folders.
    let is_below = |page: &str| {
        let folders = ["algorithms/", "notebook/"];
        folders.iter().any(|folder| page.starts_with(folder))
    };
    let missing: Vec<String> = links("SUMMARY.md")
        .into_iter()
        .filter(|page| page != "README.md" && !is_below(page) && !listed.contains(page))
        .collect();
    assert_eq!(missing, [""; 0], "docs/README.md does not list these pages");
}

/// The page of a router's status names exactly the keys of the status.
#[test]
fn the_reference_of_the_router_status_is_complete() {
    let folder = tempfile::tempdir().expect("a folder");
    // A capture without packets: magic number, version 2.4, zone, accuracy, snap length, Ethernet.
    let words: [u32; 6] = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 1];
    let capture: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    std::fs::write(folder.path().join("in.pcap"), capture).expect("writable");
    let output = Command::new(env!("CARGO_BIN_EXE_sluice"))
        .current_dir(folder.path())
        .args(["router", "pcap:in.pcap::full", "pcap::out.pcap:full"])
        .args(["--accept", "--quiet", "--json", "--socket", "socket"])
        .output()
        .expect("the command runs");
    assert!(output.status.success(), "{output:?}");
    let status: Json = serde_json::from_slice(&output.stdout).expect("it prints JSON");
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    assert!(status["started_unix_ms"].is_u64(), "{status}");
    let keys = |json: &Json| -> BTreeSet<String> {
        json.as_object()
            .expect("an object")
            .keys()
            .cloned()
            .collect()
    };
    let page = include_str!("../../../docs/router-status.md");
    let (all, port) = page
        .split_once("Each entry of `ports`:")
        .expect("the page has two tables");
    let port = port.split("\n## ").next().expect("a part");
    let named = |table: &str| -> BTreeSet<String> {
        let keys = table.lines().filter_map(|line| line.strip_prefix("| `"));
        keys.filter_map(|line| line.split('`').next())
            .map(str::to_owned)
            .collect()
    };
    assert_eq!(named(all), keys(&status));
    assert_eq!(named(port), keys(&status["ports"][0]));
}

/// The page of samples names every key of a sample.
#[test]
fn the_reference_of_samples_is_complete() {
    fn keys(json: &Json, found: &mut BTreeSet<String>) {
        match json {
            Json::Object(members) => {
                for (key, value) in members {
                    found.insert(key.clone());
                    // The status has a page of its own; reasons and variables are not keys.
                    if !["status", "dropped", "total_dropped", "state", "state_kinds"]
                        .contains(&key.as_str())
                    {
                        keys(value, found);
                    }
                }
            }
            Json::Array(items) => items.iter().for_each(|item| keys(item, found)),
            _ => {}
        }
    }
    let mut sample = Sample::default();
    sample.ports.push(PortSample::default());
    sample.rtt = Some(sluice_router::process::watch::RttSample {
        hosts: vec![Default::default()],
        ..Default::default()
    });
    sample.flow_export = Some(Default::default());
    sample.flow_log = Some(Default::default());
    sample.changes.push(Change {
        refused: Some(String::new()),
        ..Change::default()
    });
    let traffic = TrafficSample {
        sojourn: Some(Sojourn::default()),
        ..TrafficSample::default()
    };
    sample.flows.push(FlowSample {
        object: String::new(),
        src: [0; 4].into(),
        src_port: 0,
        dst: [0; 4].into(),
        dst_port: 0,
        proto: 0,
        icmp_id: None,
        backlog_packets: 0,
        traffic: traffic.clone(),
    });
    sample.objects.push(ObjectSample {
        traffic,
        ..ObjectSample::default()
    });
    let mut found = BTreeSet::new();
    let json = serde_json::to_value(&sample).expect("a sample is plain");
    keys(&json, &mut found);
    let page = include_str!("../../../docs/watching.md");
    let missing: Vec<&String> = found
        .iter()
        .filter(|key| !page.contains(&format!("`{key}`")))
        .collect();
    assert!(missing.is_empty(), "docs/watching.md lacks {missing:?}");
}

#[test]
fn the_page_of_json_has_the_keys_of_lists() {
    let mut found = BTreeSet::new();
    for words in [&["list", "--json"][..], &["list", "links", "--json"]] {
        documented::add_keys(&list(words).into(), &mut found);
    }
    assert_eq!(documented::named("Lists of algorithms and links"), found);
}

/// The names of requests, and of their keys, are in the errors of wrong ones.
#[test]
fn the_page_of_json_has_the_keys_of_the_control_socket() {
    let expected = |request: &str| -> Vec<String> {
        let error = serde_json::from_str::<Request>(request).unwrap_err();
        let error = error.to_string();
        let (_, rest) = error.split_once("expected").expect("words are expected");
        documented::words(rest).collect()
    };
    let requests = expected(r#"{"do":"?"}"#);
    assert!(requests.len() >= 4, "{requests:?}");
    for word in &requests {
        let section = documented::section("Control socket");
        assert!(section.contains(&format!("`{word}`")), "{word}");
    }
    let mut found = BTreeSet::from(["do".to_owned()]);
    found.extend(expected(r#"{"do":"commands","?":1}"#));
    found.extend(expected(r#"{"do":"watch","?":1}"#));
    let place = Place {
        file: Some(String::new()),
        ..Place::default()
    };
    let text = String::new();
    let reply = Reply {
        warnings: vec![Remark { place, text }],
        state: Some(1),
        status: Some(1),
        sample: Some(RawValue::from_string("1".to_owned()).expect("a number is JSON")),
        ..Reply::refusal(String::new(), 75)
    };
    let json = serde_json::to_value(&reply).expect("a reply is plain");
    documented::add_keys(&json, &mut found);
    assert_eq!(documented::named("Control socket"), found);
}

/// The text of every file that commands name: a delay profile.
struct Profile;

impl Files for Profile {
    fn read(&mut self, _: &str) -> Result<String, String> {
        Ok("name p\nsamples 10\nloss-level 1\nprob delay\n0 1\n1 20\n".to_owned())
    }
}

#[test]
fn the_page_of_json_has_the_keys_of_the_state() {
    let mut firewall = Firewall::new(&Settings::default());
    let (mut rng, mut sink) = (Rng::from_seed(1), DropCounter::default());
    let mut at = |ns, work: &mut dyn FnMut(&mut Firewall, &mut Cx<'_>)| {
        let mut cx = Cx::new(Time::from_ns(ns), &mut rng, &mut sink);
        work(&mut firewall, &mut cx);
    };
    let configuration = "pipe 1 config bw 1Mbit/s mask dst-port 0xffff profile /p\n\
        pipe 2 config bw 1Mbit/s\n\
        sched 2 config pipe 2 type wf2q+\n\
        queue 1 config sched 2\n\
        add 100 allow udp from any to any dst-port 80 limit src-addr 2\n\
        add 200 pipe 1 udp from any to any dst-port 53\n";
    at(0, &mut |firewall, cx| {
        let done = firewall.command(configuration, &mut Profile, cx);
        done.expect("the commands are right");
        let (from, to) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        for (slot, port) in [(0, 53), (1, 80)] {
            let headers = Headers {
                src_port: 1000,
                dst_port: port,
                ip_len: 1000,
                ..Headers::new(Direction::In, 17, from, to)
            };
            firewall.handle(Packet::new(slot, 1000), &headers, cx);
        }
    });
    let mut found = BTreeSet::new();
    // The packet takes 8 ms, and at most 20 ms of the profile.
    at(1_000_000_000, &mut |firewall, cx| {
        while firewall.poll(cx).is_some() {}
        for words in [
            "pipe show",
            "sched show",
            "queue show",
            "-d list",
            "-D list",
        ] {
            let shown = firewall.command(&format!("--json {words}"), &mut Profile, cx);
            let state = shown.expect("it shows").snapshot.expect("there is a state");
            let json = serde_json::to_value(&state).expect("a state is plain");
            documented::add_keys(&json, &mut found);
        }
    });
    assert_eq!(documented::named("State of pipes and rules"), found);
}

/// Returns whether an algorithm has a page, which the index then links to.
fn has_page(name: &str) -> bool {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/algorithms");
    std::fs::exists(format!("{folder}/{name}.md")).unwrap_or(false)
}

/// The table of `docs/links.md` has every parameter of a link as it is declared.
#[test]
fn the_table_of_link_parameters_is_complete() {
    let page = include_str!("../../../docs/links.md");
    let missing: Vec<String> = LinkParams::decls()
        .map(row)
        .filter(|row| !page.contains(row.as_str()))
        .collect();
    assert!(
        missing.is_empty(),
        "docs/links.md lacks these rows:\n{}",
        missing.join("\n")
    );
}

fn row(decl: &ParamDecl) -> String {
    let default = match decl.kind {
        Kind::Flag => format!("no{}", decl.name),
        _ => format!("{} {}", decl.name, decl.default),
    };
    let accepts = match (decl.kind, decl.range) {
        (Kind::Choice(words), _) => format!("`{}`", words.join("`, `")),
        (_, Some((low, high))) => format!("{low} to {high}"),
        _ => format!("`{0}` or `no{0}`", decl.name),
    };
    format!("| `{default}` | {accepts} | {} |", decl.doc)
}
