//! `cargo xtask layers`: dependencies between the crates, and between the modules of a crate.
//!
//! - A crate may depend directly on the crates that [`LAYERS`] allows it, and on no other crate of
//!   the workspace. Its tests, examples and benches may use a few more.
//! - The top-level modules of a library crate must not import one another in a cycle. The check
//!   reads the paths `crate::NAME` and `super::NAME` of production code, and follows names that
//!   `lib.rs` re-exports; comments and tests do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

/// The crates that a crate may depend on directly.
struct Layer {
    name: &'static str,
    /// Crates that its production code may use.
    uses: &'static [&'static str],
    /// Crates that only its tests, examples and benches may use.
    tests: &'static [&'static str],
}

const fn layer(name: &'static str, uses: &'static [&'static str]) -> Layer {
    Layer {
        name,
        uses,
        tests: &[],
    }
}

/// The arrows of `docs/explanation/architecture.md`, lowest layer first: a crate uses only crates
/// above its line.
const LAYERS: &[Layer] = &[
    layer("core", &[]),
    layer("loader", &["core"]),
    layer("ipfw", &["core", "loader"]),
    Layer {
        name: "wasm",
        uses: &["core", "loader"],
        tests: &["ipfw"],
    },
    layer("tcp", &["core"]),
    layer("sim", &["core", "ipfw", "tcp"]),
    layer("wire", &["core"]),
    layer("net", &["core", "wire"]),
    layer("load", &["core", "net", "wire"]),
    Layer {
        name: "router",
        uses: &["core", "ipfw", "loader", "net", "wire"],
        tests: &["load"],
    },
    Layer {
        name: "http",
        uses: &["router"],
        tests: &["core", "ipfw"],
    },
    layer(
        "scenario",
        &["core", "ipfw", "loader", "sim", "tcp", "wire"],
    ),
    layer(
        "exec",
        &["core", "loader", "net", "router", "scenario", "wire"],
    ),
    layer(
        "proxy",
        &["core", "exec", "loader", "net", "router", "scenario", "tcp"],
    ),
    layer("recording", &["core", "scenario"]),
    layer(
        "lab",
        &[
            "core",
            "exec",
            "ipfw",
            "load",
            "loader",
            "net",
            "proxy",
            "recording",
            "router",
            "scenario",
            "sim",
            "tcp",
            "wire",
        ],
    ),
    layer("report", &["core", "recording", "scenario", "wire"]),
    layer(
        "bench",
        &[
            "core",
            "load",
            "net",
            "recording",
            "report",
            "router",
            "wire",
        ],
    ),
    // The command parses and prints: it runs no simulation, opens no port and reads no frame.
    Layer {
        name: "cli",
        uses: &[
            "bench",
            "core",
            "exec",
            "http",
            "ipfw",
            "lab",
            "loader",
            "proxy",
            "recording",
            "report",
            "router",
            "scenario",
            "wasm",
        ],
        tests: &["net"],
    },
    layer(
        "py",
        &[
            "cli",
            "core",
            "ipfw",
            "lab",
            "loader",
            "recording",
            "report",
            "router",
            "scenario",
            "wasm",
        ],
    ),
    layer("xtask", &["core", "recording", "report", "scenario"]),
];

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    manifest_path: PathBuf,
    dependencies: Vec<Dependency>,
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    path: Option<String>,
    /// `dev`, `build`, or empty.
    kind: Option<String>,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
}

/// Checks the workspace. Returns a summary of the checks.
///
/// # Errors
/// One line for every dependency that is not allowed and every cycle.
pub fn check() -> Result<String, Vec<String>> {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--no-deps",
            "--format-version",
            "1",
            "--offline",
        ])
        .output()
        .map_err(|error| vec![format!("cannot run cargo metadata: {error}")])?;
    let metadata: Metadata = serde_json::from_slice(&output.stdout)
        .map_err(|error| vec![format!("cargo metadata is not readable: {error}")])?;
    let mut problems = misplaced(LAYERS);
    problems.extend(violations(LAYERS, &metadata));
    let (mut libraries, mut untangled) = (0, 0);
    for package in &metadata.packages {
        let is_library = |target: &Target| target.kind.iter().any(|kind| kind == "lib");
        if !package.targets.iter().any(is_library) {
            continue;
        }
        libraries += 1;
        let short = short_name(&package.name);
        let source = package.manifest_path.with_file_name("src");
        let circle = read_modules(&source)
            .map(|modules| circle_among(&modules))
            .map_err(|error| vec![format!("cannot read {}: {error}", source.display())])?;
        match circle {
            Some(circle) => problems.push(format!(
                "modules of {short} import one another in a cycle: {}",
                circle.join(" -> ")
            )),
            None => untangled += 1,
        }
    }
    if problems.is_empty() {
        let crates = metadata.packages.len();
        Ok(format!(
            "{crates} crates use only what their layer allows; modules of {untangled} of \
             {libraries} libraries have no cycle"
        ))
    } else {
        Err(problems)
    }
}

/// Returns the arrows that do not point downwards.
fn misplaced(layers: &[Layer]) -> Vec<String> {
    let mut problems = Vec::new();
    for (index, layer) in layers.iter().enumerate() {
        for name in layer.uses.iter().chain(layer.tests) {
            if !layers[..index].iter().any(|below| below.name == *name) {
                problems.push(format!(
                    "the arrow from {} to {name} does not point to a lower layer",
                    layer.name
                ));
            }
        }
    }
    problems
}

/// Returns the dependencies that are not in the list of arrows.
fn violations(layers: &[Layer], metadata: &Metadata) -> Vec<String> {
    let mut problems = Vec::new();
    for package in &metadata.packages {
        let name = short_name(&package.name);
        let Some(layer) = layers.iter().find(|layer| layer.name == name) else {
            problems.push(format!("{name} is not in the layers"));
            continue;
        };
        for dependency in package.dependencies.iter().filter(|d| d.path.is_some()) {
            let used = short_name(&dependency.name);
            let is_test = dependency.kind.as_deref() == Some("dev");
            if layer.uses.contains(&used) || is_test && layer.tests.contains(&used) {
                continue;
            }
            problems.push(if layer.tests.contains(&used) {
                format!("only the tests of {name} may use {used}")
            } else {
                format!("{name} must not use {used}")
            });
        }
    }
    problems
}

fn short_name(package: &str) -> &str {
    package.strip_prefix("sluice-").unwrap_or(package)
}

/// Returns, for each top-level module of a crate, the other modules that its production code
/// imports.
type Imports = BTreeMap<String, BTreeSet<String>>;

fn read_modules(source: &Path) -> std::io::Result<Imports> {
    let mut files = Vec::new();
    collect(source, &mut Vec::new(), &mut files)?;
    Ok(imports(&files))
}

/// A source file: the path of its module, and its text.
struct File {
    module: Vec<String>,
    text: String,
}

fn collect(folder: &Path, module: &mut Vec<String>, files: &mut Vec<File>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let Some(stem) = path.file_stem().and_then(|stem| stem.to_str()) else {
            continue;
        };
        if path.is_dir() {
            module.push(stem.to_owned());
            collect(&path, module, files)?;
            module.pop();
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let mut module = module.clone();
            if !["lib", "main", "mod"].contains(&stem) {
                module.push(stem.to_owned());
            }
            let text = std::fs::read_to_string(&path)?;
            files.push(File { module, text });
        }
    }
    Ok(())
}

fn imports(files: &[File]) -> Imports {
    let texts: Vec<(&[String], String)> = files
        .iter()
        .map(|file| (file.module.as_slice(), production(&file.text)))
        .collect();
    let tests: BTreeSet<Vec<String>> = files
        .iter()
        .flat_map(|file| {
            test_modules(&file.text).map(|name| {
                let mut module = file.module.clone();
                module.push(name.to_owned());
                module
            })
        })
        .collect();
    let is_test = |module: &[String]| (1..=module.len()).any(|end| tests.contains(&module[..end]));
    let mut found: Imports = files
        .iter()
        .filter(|file| !is_test(&file.module))
        .filter_map(|file| file.module.first())
        .map(|name| (name.clone(), BTreeSet::new()))
        .collect();
    let exported: BTreeMap<String, String> = texts
        .iter()
        .filter(|(module, _)| module.is_empty())
        .flat_map(|(_, text)| exports(text))
        .collect();
    for (module, text) in &texts {
        let Some(own) = module.first() else { continue };
        if is_test(module) {
            continue;
        }
        for name in names_at_the_root(text, module.len()) {
            let target = exported.get(&name).unwrap_or(&name).clone();
            if target != *own && found.contains_key(&target) {
                found.entry(own.clone()).or_default().insert(target);
            }
        }
    }
    found
}

/// Returns a file without comments and without the tests at its end.
fn production(text: &str) -> String {
    let text = text
        .split_once("#[cfg(test)]\nmod tests {")
        .map_or(text, |(before, _)| before);
    text.lines()
        .map(|line| line.split_once("//").map_or(line, |(code, _)| code))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Returns the file's modules that exist only in tests: `#[cfg(test)] mod NAME;`.
fn test_modules(text: &str) -> impl Iterator<Item = &str> {
    text.split("#[cfg(test)]").skip(1).filter_map(|after| {
        let declaration = after.trim_start().lines().next()?;
        let name = declaration.strip_suffix(';')?.rsplit(' ').next()?;
        declaration.contains("mod ").then_some(name)
    })
}

/// Returns the names that `pub use MODULE::...` of `lib.rs` re-exports: `NAME -> MODULE`.
fn exports(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for after in text.split("pub use ").skip(1) {
        let statement = after.split(';').next().unwrap_or_default();
        let Some((module, rest)) = statement.split_once("::") else {
            continue;
        };
        let module = module.trim();
        let words = rest.split(|c: char| !c.is_alphanumeric() && c != '_');
        found.extend(
            words
                .filter(|word| !word.is_empty())
                .map(|word| (word.to_owned(), module.to_owned())),
        );
    }
    found
}

/// Returns the first names of all paths that begin at the crate's root, in a module `depth` levels
/// below it.
fn names_at_the_root(text: &str, depth: usize) -> Vec<String> {
    let mut names = Vec::new();
    for root in ["crate::".to_owned(), "super::".repeat(depth)] {
        for (at, _) in text.match_indices(&root) {
            let before = text[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '$' | ':')) {
                continue;
            }
            let after = &text[at + root.len()..];
            match after.strip_prefix('{') {
                Some(group) => names.extend(first_names(group)),
                None => names.push(word(after).to_owned()),
            }
        }
    }
    names
}

/// Returns the first name of each path in a group. `group` is the text after the opening brace.
fn first_names(group: &str) -> Vec<String> {
    let (mut depth, mut names, mut starts) = (0, Vec::new(), true);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => starts = true,
            c if starts && !c.is_whitespace() => {
                names.push(word(&group[at..]).to_owned());
                starts = false;
            }
            _ => {}
        }
    }
    names
}

fn word(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_');
    &text[..end.unwrap_or(text.len())]
}

/// Returns a cycle, from a module back to itself, or `None`.
fn circle_among(imports: &Imports) -> Option<Vec<String>> {
    fn search<'a>(
        at: &'a str,
        imports: &'a Imports,
        path: &mut Vec<&'a str>,
        done: &mut BTreeSet<&'a str>,
    ) -> Option<Vec<String>> {
        if let Some(start) = path.iter().position(|name| *name == at) {
            let circle = path[start..].iter().chain([&at]);
            return Some(circle.map(|name| (*name).to_owned()).collect());
        }
        if !done.insert(at) {
            return None;
        }
        path.push(at);
        let found = imports[at]
            .iter()
            .find_map(|next| search(next, imports, path, done));
        path.pop();
        found
    }
    let mut done = BTreeSet::new();
    imports
        .keys()
        .find_map(|name| search(name, imports, &mut Vec::new(), &mut done))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, on: &str, kind: Option<&str>) -> Metadata {
        Metadata {
            packages: vec![Package {
                name: name.into(),
                manifest_path: PathBuf::new(),
                targets: Vec::new(),
                dependencies: vec![Dependency {
                    name: on.into(),
                    path: Some("x".into()),
                    kind: kind.map(str::to_owned),
                }],
            }],
        }
    }

    #[test]
    fn an_arrow_that_is_not_drawn_is_found() {
        let found = |name, on| violations(LAYERS, &package(name, on, None));
        assert_eq!(
            found("sluice-core", "sluice-net"),
            ["core must not use net"]
        );
        assert_eq!(
            found("sluice-tcp", "sluice-ipfw"),
            ["tcp must not use ipfw"]
        );
        assert_eq!(found("new", "sluice-core"), ["new is not in the layers"]);
        assert!(found("sluice-net", "sluice-wire").is_empty());
    }

    #[test]
    fn only_direct_dependencies_that_are_drawn_pass() {
        // The command reaches the simulator through the laboratory, and must not use it itself.
        let found = violations(LAYERS, &package("sluice-cli", "sluice-sim", None));
        assert_eq!(found, ["cli must not use sim"]);
    }

    #[test]
    fn tests_may_use_more_than_production_code() {
        let found = |kind| violations(LAYERS, &package("sluice-router", "sluice-load", kind));
        assert!(found(Some("dev")).is_empty());
        assert_eq!(found(None), ["only the tests of router may use load"]);
    }

    #[test]
    fn arrows_point_downwards() {
        let problems = misplaced(&[layer("low", &["high"]), layer("high", &[])]);
        assert_eq!(
            problems,
            ["the arrow from low to high does not point to a lower layer"]
        );
        assert!(misplaced(LAYERS).is_empty());
    }

    fn file(module: &[&str], text: &str) -> File {
        File {
            module: module.iter().map(|name| (*name).to_owned()).collect(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn a_circle_is_found_through_groups_parents_and_exports() {
        let root = file(
            &[],
            "pub mod a;\npub mod b;\npub mod c;\npub use c::{Thing, thing};",
        );
        let forth = file(&["a"], "use crate::{Other, b::{self, x}};");
        let onward = file(&["b", "deep"], "use super::super::c::Y;");
        let files = [&root, &forth, &onward].map(|f| File {
            module: f.module.clone(),
            text: f.text.clone(),
        });
        let mut files = Vec::from(files);
        files.push(file(&["c"], "struct Thing;"));
        assert_eq!(circle_among(&imports(&files)), None);
        // Back by a name that the root re-exports.
        files.push(file(&["c", "back"], "fn f() { crate::a::g(); }"));
        let circle = circle_among(&imports(&files)).unwrap();
        assert_eq!(circle, ["a", "b", "c", "a"]);
        files.pop();
        files.push(file(&["b"], ""));
        files.push(file(&["c", "up"], "type T = super::super::b::B;"));
        let circle = circle_among(&imports(&files)).unwrap();
        assert_eq!(circle, ["b", "c", "b"]);
        files.pop();
        let exported = [
            root,
            file(&["c"], "use crate::b;"),
            file(&["b"], "crate::Thing"),
        ];
        assert_eq!(circle_among(&imports(&exported)).unwrap(), ["b", "c", "b"]);
    }

    #[test]
    fn comments_and_tests_import_nothing() {
        let files = [
            file(&["a"], "use crate::b;\n#[cfg(test)]\nmod check;\n"),
            file(
                &["b"],
                "/// See [`crate::a`].\n// crate::a\n#[cfg(test)]\nmod tests {\n    use crate::a;\n}\n",
            ),
            file(&["a", "check"], "use crate::a;"),
            file(&["b", "sub"], "macro_rules! m { () => { $crate::a::X } }"),
        ];
        assert_eq!(circle_among(&imports(&files)), None);
    }
}
