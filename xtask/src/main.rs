//! Checks of the workspace that no compiler makes, and the pages that it generates: `cargo xtask --help`.
//!
//! The layers are those of `docs/explanation/architecture.md`. A crate may depend on what its arrows lead to,
//! directly or through others; every other dependency inside the workspace is a failure, also one
//! that only tests use.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, ExitCode};

use clap::Parser as _;
use serde::Deserialize;

mod contributing;
mod reproduce;
mod reproduction;
mod tutorials;

/// `crate -> crates that it may build on`, as drawn in the architecture.
const ARROWS: &[(&str, &[&str])] = &[
    ("sluice-core", &[]),
    ("sluice-ipfw", &["sluice-core"]),
    ("sluice-tcp", &["sluice-core"]),
    ("sluice-net", &["sluice-core"]),
    ("sluice-sim", &["sluice-ipfw", "sluice-tcp"]),
    ("sluice-router", &["sluice-net", "sluice-ipfw"]),
    ("sluice-scenario", &["sluice-sim", "sluice-net"]),
    ("sluice-recording", &["sluice-scenario"]),
    ("sluice-lab", &["sluice-recording", "sluice-router"]),
    ("sluice-report", &["sluice-recording"]),
    ("sluice-bench", &["sluice-report", "sluice-router"]),
    ("sluice-cli", &["sluice-lab", "sluice-bench"]),
    ("sluice-py", &["sluice-lab"]),
    ("xtask", &["sluice-report"]),
];

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    path: Option<String>,
}

/// Checks of the workspace that no compiler makes, and the pages that it generates.
#[derive(clap::Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Task {
    /// Check that every dependency between crates is an arrow of the architecture
    Layers,
    /// Build the example of CONTRIBUTING.md in a copy of the source
    Contributing,
    /// Run the commands of the tutorials and guides as they are printed
    Tutorials,
    /// Write the page that puts published figures beside those of our runs
    Reproduce(reproduce::Args),
}

fn main() -> ExitCode {
    let (name, outcome) = match Task::parse() {
        Task::Layers => ("layers", layers()),
        Task::Contributing => ("contributing", contributing::check()),
        Task::Tutorials => (
            "tutorials",
            tutorials::check().map(|n| format!("{n} commands, all as printed")),
        ),
        Task::Reproduce(args) => ("reproduce", reproduce::run(&args)),
    };
    match outcome {
        Ok(said) => {
            println!("{name}: {said}");
            ExitCode::SUCCESS
        }
        Err(problems) => {
            for problem in problems.lines() {
                eprintln!("{name}: {problem}");
            }
            ExitCode::FAILURE
        }
    }
}

fn layers() -> Result<String, String> {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--no-deps",
            "--format-version",
            "1",
            "--offline",
        ])
        .output()
        .map_err(|error| format!("cannot run cargo metadata: {error}"))?;
    let metadata: Metadata = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("cargo metadata is not readable: {error}"))?;
    let problems = violations(&metadata);
    if problems.is_empty() {
        Ok(format!(
            "{} crates, every dependency is an arrow of the design",
            metadata.packages.len()
        ))
    } else {
        Err(problems.join("\n"))
    }
}

fn violations(metadata: &Metadata) -> Vec<String> {
    let arrows: BTreeMap<&str, &[&str]> = ARROWS.iter().copied().collect();
    let mut problems = Vec::new();
    for package in &metadata.packages {
        if !arrows.contains_key(package.name.as_str()) {
            problems.push(format!("{} has no place in the layers", package.name));
            continue;
        }
        let below = reachable(&arrows, &package.name);
        for dependency in package.dependencies.iter().filter(|d| d.path.is_some()) {
            if !below.contains(dependency.name.as_str()) {
                problems.push(format!(
                    "{} must not know {}",
                    package.name, dependency.name
                ));
            }
        }
    }
    problems
}

fn reachable<'a>(arrows: &BTreeMap<&'a str, &'a [&'a str]>, from: &str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut open: Vec<&str> = arrows.get(from).copied().unwrap_or_default().to_vec();
    while let Some(name) = open.pop() {
        if let Some((name, below)) = arrows.get_key_value(name)
            && found.insert(*name)
        {
            open.extend(*below);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, on: &str) -> Metadata {
        Metadata {
            packages: vec![Package {
                name: name.into(),
                dependencies: vec![Dependency {
                    name: on.into(),
                    path: Some("x".into()),
                }],
            }],
        }
    }

    #[test]
    fn an_arrow_that_is_not_drawn_is_found() {
        assert_eq!(
            violations(&package("sluice-core", "sluice-net")),
            ["sluice-core must not know sluice-net"]
        );
        assert_eq!(
            violations(&package("sluice-tcp", "sluice-ipfw")),
            ["sluice-tcp must not know sluice-ipfw"]
        );
        assert_eq!(
            violations(&package("new", "sluice-core")),
            ["new has no place in the layers"]
        );
    }

    #[test]
    fn a_drawn_arrow_passes_also_through_others() {
        assert!(violations(&package("sluice-lab", "sluice-tcp")).is_empty());
        assert!(violations(&package("sluice-cli", "sluice-core")).is_empty());
    }
}
