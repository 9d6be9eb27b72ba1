//! The words of the command line: usage, examples, and messages about wrong values.

use std::fs;
use std::process::{Command, Output};

fn sluice(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    command.args(words).env("COLUMNS", "80");
    command.output().expect("the command runs")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_wrong_number_is_answered_with_what_is_accepted() {
    let number = "expected a whole number from ";
    for (words, value, expected) in [
        (
            &["exec", "--forward", "abc", "--", "true"][..],
            "abc",
            &format!("{number}1 to 65535"),
        ),
        (
            &["exec", "--forward", "-1", "--", "true"],
            "-1",
            &format!("{number}1 to 65535"),
        ),
        (
            &["exec", "--rate", "-5Mbit/s", "--", "true"],
            "-5Mbit/s",
            &"must not be negative".into(),
        ),
        (
            &["exec", "--rtt", "-5ms", "--", "true"],
            "-5ms",
            &"must not be negative".into(),
        ),
        (
            &["exec", "--max-late", "soon", "--", "true"],
            "soon",
            &"not a time such as 20ms".into(),
        ),
        (
            &["proxy", "--listen", "-1"],
            "-1",
            &"with a port up to 65535".into(),
        ),
        (
            &["proxy", "--delay", "-1ms", "--listen", "0"],
            "-1ms",
            &"must not be negative".into(),
        ),
        (
            &["attach", "--pid", "-7"],
            "-7",
            &format!("{number}1 to 2147483647"),
        ),
        (
            &["router", "a", "b", "--workers", "-1"],
            "-1",
            &format!("{number}1 to 128"),
        ),
        (
            &["router", "a", "b", "--workers", "many"],
            "many",
            &format!("{number}1 to 128"),
        ),
        (
            &["router", "a", "b", "--cpu", "-1"],
            "-1",
            &format!("{number}0 to 8191"),
        ),
        (
            &["router", "a", "b", "--room", "5"],
            "5",
            &format!("{number}1024 to 4194304"),
        ),
        (
            &["router", "a", "b", "--seed", "-1"],
            "-1",
            &format!("{number}0 to 18446744073709551615"),
        ),
        (
            &["router", "a", "b", "--dynamic-memory", "-1"],
            "-1",
            &"must not be negative".into(),
        ),
        (
            &["router", "--local", "--nfqueue", "70000"],
            "70000",
            &format!("{number}0 to 65535"),
        ),
        (
            &["router", "a", "b", "--spin", "-x"],
            "-x",
            &"adaptive".into(),
        ),
    ] {
        let output = sluice(words);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {text}");
        let refused = format!("error: invalid value '{value}' for '--");
        assert!(text.starts_with(&refused), "{words:?}: {text}");
        assert!(text.contains(expected.as_str()), "{words:?}: {text}");
    }
    let output = sluice(&["exec", "--loss", "-2", "--", "true"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).contains("--loss -2"), "{}", stderr(&output));
}

#[test]
fn an_attachment_without_a_link_names_what_is_missing() {
    let output = sluice(&["attach", "--netns", "nosuch"]);
    assert_eq!(output.status.code(), Some(125));
    let text = stderr(&output);
    assert!(
        text.contains("no link is described") && text.contains("--rate"),
        "{text}"
    );
    // With one, the namespace is looked up.
    let text = stderr(&sluice(&["attach", "--netns", "nosuch", "--rtt", "5ms"]));
    assert!(text.contains("there is no namespace `nosuch`"), "{text}");
}

#[test]
fn the_usage_of_the_router_has_all_its_forms() {
    let text = stderr(&sluice(&["router"]));
    for form in [
        "<PORT> <PORT>...",
        "--forward",
        "--local",
        "--check <FILE>",
        "status|save",
    ] {
        assert!(text.contains(form), "{text}");
    }
}

#[test]
fn a_configuration_that_is_not_text_fails_its_check() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rules");
    fs::write(&path, b"pipe 1 config\n\xff\xfe\n").unwrap();
    let output = sluice(&["router", "--check", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(65));
    let expected = format!("sluice: {}:2:1: this is not UTF-8", path.display());
    assert!(
        stderr(&output).starts_with(&expected),
        "{}",
        stderr(&output)
    );
}
