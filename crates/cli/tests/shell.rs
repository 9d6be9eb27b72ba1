//! The output for shells and `man`: completion scripts, candidates, manual pages.

use std::collections::BTreeSet;
use std::process::Command;

use sluice_core::registry;
use sluice_scenario::Preset;

/// Returns the candidates that bash receives for the last of `words`.
fn candidates(words: &[&str]) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_sluice"))
        .env("SLUICE_COMPLETE", "bash")
        .env("_CLAP_IFS", "\n")
        .env("_CLAP_COMPLETE_INDEX", words.len().to_string())
        .env("_CLAP_COMPLETE_COMP_TYPE", "9")
        .env("_CLAP_COMPLETE_SPACE", "true")
        .args(["--", "sluice"])
        .args(words)
        .output()
        .expect("the command runs");
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("candidates are text");
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_queue_is_completed_from_the_registry() {
    let queues = registry::algorithms().map(|algorithm| algorithm.name);
    let expected: BTreeSet<String> = queues
        .filter(|name| name.starts_with("fq_"))
        .map(str::to_owned)
        .collect();
    assert!(expected.contains("fq_codel"));
    assert_eq!(candidates(&["replay", "--queue", "fq_"]), expected);
}

#[test]
fn a_link_is_completed_from_the_presets() {
    let names = Preset::all().flat_map(|preset| preset.names().iter().copied());
    let expected: BTreeSet<String> = names
        .filter(|name| name.starts_with("wpt/"))
        .map(str::to_owned)
        .collect();
    assert!(expected.contains("wpt/lte"));
    assert_eq!(candidates(&["list", "wpt/"]), expected);
}

#[test]
fn values_from_fixed_lists_are_completed() {
    for (words, expected) in [
        (&["exec", "--link", "wpt/lt"][..], "wpt/lte"),
        (&["attach", "--queue", "fq_cod"], "fq_codel"),
        (&["proxy", "--cc", "cub"], "cubic"),
        (&["shape", "--overhead", "docs"], "docsis"),
        (&["check", "fq_cod"], "fq_codel"),
        (&["completion", "zs"], "zsh"),
        (&["bench", "--only", "overl"], "overload"),
        (&["bench", "--figures", "loaded_p"], "loaded_ping_us"),
        (&["router", "--spin", "adap"], "adaptive"),
        (&["top", "--sort", "back"], "backlog"),
        (&["router", "stat"], "status"),
    ] {
        assert_eq!(candidates(words), [expected.to_owned()].into(), "{words:?}");
    }
}

#[test]
fn an_unknown_shell_is_refused_with_those_that_are_known() {
    let output = Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args(["completion", "tcsh"])
        .output()
        .expect("the command runs");
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("`tcsh`") && text.contains("zsh"), "{text}");
}

#[test]
fn every_subcommand_has_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    let status = Command::new(env!("CARGO_BIN_EXE_sluice"))
        .arg("manual")
        .arg(folder.path())
        .status()
        .expect("the command runs");
    assert!(status.success());
    let help = Command::new(env!("CARGO_BIN_EXE_sluice"))
        .arg("--help")
        .output()
        .expect("the command runs");
    let help = String::from_utf8(help.stdout).unwrap();
    let (_, commands) = help.split_once("Commands:\n").unwrap();
    let names = commands
        .lines()
        .take_while(|line| !line.is_empty())
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next());
    for name in names.filter(|name| *name != "help") {
        let page = folder.path().join(format!("sluice-{name}.1"));
        let text = std::fs::read_to_string(&page).unwrap_or_default();
        assert!(text.contains(".SH OPTIONS"), "{}", page.display());
    }
}

#[test]
fn the_help_of_exec_fits_two_screens_with_five_examples() {
    let help = Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args(["exec", "--help"])
        .env("COLUMNS", "80")
        .output()
        .unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    // A terminal has 24 lines of 80 characters.
    assert!(help.lines().count() <= 2 * 24, "{}", help.lines().count());
    assert!(help.lines().all(|line| line.chars().count() <= 80));
    let examples = help
        .lines()
        .filter(|line| line.starts_with("  sluice exec "));
    assert_eq!(examples.count(), 5);
}
