//! Checks that the program accepts every command that a page prints.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{CommandFactory as _, Parser as _};

use super::Sluice;

/// The pages for users: README and everything in docs.
fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            pages(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "md") {
            found.push(path);
        }
    }
}

/// The words of a command of `sluice` on a line of a page; `None` for other lines, and for those
/// that stand for several commands.
fn words(line: &str) -> Option<Vec<String>> {
    let line = line.trim_start_matches("$ ").trim_start_matches("sudo ");
    let line = line
        .split(" #")
        .next()
        .unwrap_or(line)
        .split(['|', '>', '&', ';'])
        .next()?;
    if !line.starts_with("sluice ") || line.contains("...") {
        return None;
    }
    // A substitution of the shell is one word.
    let line = match (line.find("$("), line.rfind(')')) {
        (Some(start), Some(end)) if start < end => {
            &format!("{}1{}", &line[..start], &line[end + 1..])
        }
        _ => line,
    };
    let mut words = vec![String::new()];
    let mut quote = None;
    for c in line.trim().chars() {
        match (c, quote) {
            ('\'' | '"', None) => quote = Some(c),
            (c, Some(open)) if c == open => quote = None,
            (' ', None) => words.push(String::new()),
            (c, _) => words.last_mut().expect("there is a word").push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    Some(words)
}

#[test]
fn every_command_with_options_has_examples_that_are_understood() {
    for command in Sluice::command().get_subcommands() {
        let name = command.get_name();
        // One prints its own help, and the others have next to no options.
        if ["ipfw", "grafana", "doctor", "completion"].contains(&name) {
            continue;
        }
        let text = command.get_after_help().map(ToString::to_string);
        let text = text.unwrap_or_else(|| panic!("{name} has no examples"));
        let examples = text
            .lines()
            .filter_map(|line| line.strip_prefix("  sluice "));
        let examples: Vec<&str> = examples.collect();
        assert!(examples.len() >= 2, "{name}: {examples:?}");
        for example in examples {
            let words = words(&format!("sluice {example}")).expect("a command");
            assert_eq!(words[1], name, "{example}");
            if let Err(error) = Sluice::try_parse_from(&words) {
                panic!("{example}: {error}");
            }
        }
    }
}

#[test]
fn every_command_on_a_page_is_understood() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut all = vec![root.join("README.md"), root.join("CONTRIBUTING.md")];
    pages(&root.join("docs"), &mut all);
    pages(&root.join("scenarios"), &mut all);
    let mut wrong = Vec::new();
    let mut count = 0;
    for page in all {
        let text = fs::read_to_string(&page).expect("readable");
        let mut is_shell = false;
        // A command may continue on the next line.
        let text = text.replace("\\\n", " ");
        for line in text.lines() {
            if let Some(kind) = line.trim_start().strip_prefix("```") {
                let kind = kind.split_whitespace().next().unwrap_or_default();
                is_shell = !is_shell && matches!(kind, "sh" | "console" | "bash" | "shell");
                continue;
            }
            let Some(words) = words(line).filter(|_| is_shell) else {
                continue;
            };
            count += 1;
            if let Err(error) = Sluice::try_parse_from(&words)
                && error.use_stderr()
            {
                wrong.push(format!("{}: {line}\n{error}", page.display()));
            }
        }
    }
    assert!(count > 50, "only {count} commands were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
