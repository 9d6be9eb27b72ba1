//! The examples of `CONTRIBUTING.md` work as they are printed there.
//!
//! The workspace is copied, all examples are put into the copy, and nothing else is changed. The
//! tutorial that makes the AQM of the page is followed there too. Then every place that should find
//! an addition by itself must have it: the command line, a scenario, a replay, a router, the
//! generated references and the tests that run over a registry. The copy is built once, in the
//! workspace's own target folder, so that no library is built a second time; another version number
//! keeps its crates separate from the workspace's.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::tutorials;

mod page;
mod uses;

use page::{Example, Piece};

/// Each addition as the headings of the page name it ("Adding an AQM"), and the check of its
/// example.
const ADDITIONS: [(&str, Check); 8] = [
    ("an AQM", uses::aqm),
    ("an AQM with draws and state", uses::aqm_with_state),
    ("a discipline", uses::discipline),
    ("a congestion control", uses::congestion_control),
    ("a flow type", uses::flow_type),
    ("a figure", uses::figure),
    ("an ipfw option", uses::ipfw_option),
    ("a port", uses::port),
];

/// The addition whose example a tutorial creates.
const IN_TUTORIAL: &str = "an AQM";

/// The tests that cover a registry, and the examples' own tests: crates and targets. One call, since
/// each choice of packages has its own features of the dependencies, which are compiled again.
const TESTS: [&str; 17] = [
    "-psluice-core",
    "-psluice-tcp",
    "-psluice-ipfw",
    "-psluice-net",
    "-psluice-recording",
    "-psluice-cli",
    "--lib",
    "--test=conformance",
    "--test=sched_allocation",
    "--test=algorithm_pages",
    "--test=facts",
    "--test=transfer",
    "--test=documented",
    "--test=reference",
    // It expects the ports of this tree, in all its words.
    "--",
    "--skip",
    "port::remedy",
];

/// Checks that a copy of the source knows the example of that name.
type Check = fn(&Copy, &str) -> Result<(), String>;

/// Runs all checks.
pub fn check() -> Result<String, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let text = read(&root.join("CONTRIBUTING.md"))?;
    let mut sections = page::sections(&text)?;
    let mut examples: Vec<(Example<'_>, Check)> = Vec::new();
    for (addition, check) in ADDITIONS {
        let example = sections.remove(addition).flatten();
        let example = example
            .ok_or_else(|| format!("CONTRIBUTING.md: \"Adding {addition}\" has no example"))?;
        examples.push((example, check));
    }

    if let Some((addition, _)) = sections.iter().find(|(_, example)| example.is_some()) {
        return Err(format!(
            "CONTRIBUTING.md: nothing checks the example of \"Adding {addition}\""
        ));
    }

    let target = target_folder(&root)?;
    let copy = Copy::new(&root, target)?;
    // The first command of the tutorial builds the copy, so all other examples must be in it.
    for (example, _) in &examples {
        if example.addition != IN_TUTORIAL {
            copy.put(example)?;
        }
    }
    copy.follow_tutorial(&root.join(tutorials::IN_A_COPY))?;
    let rows = counts(&copy, &examples)?;
    copy.test()?;
    for (example, check) in &examples {
        let place = |error| format!("{} (`{}`): {error}", example.addition, example.name);
        check(&copy, example.name).map_err(place)?;
    }
    fs::remove_dir_all(&copy.folder)
        .map_err(|error| format!("{}: {error}", copy.folder.display()))?;
    println!("| addition | example | new files | lines in other files |\n|---|---|---|---|");
    println!("{}", rows.join("\n"));
    Ok(format!(
        "{} examples, each found everywhere",
        examples.len()
    ))
}

/// Compares the copy with the source; returns a row for each example: the files that it creates and
/// the lines that it inserts elsewhere.
fn counts(copy: &Copy, examples: &[(Example<'_>, Check)]) -> Result<Vec<String>, String> {
    let mut changed = BTreeMap::new();
    for file in copy.all_files()? {
        let new = fs::read(copy.folder.join(&file)).map_err(|error| format!("{file}: {error}"))?;
        let old = copy.files.get(&file);
        if old != Some(&new) {
            changed.insert(file, (old, new));
        }
    }
    let mut rows = Vec::new();
    for (example, _) in examples {
        let (mut created, mut inserted) = (0, 0);
        for piece in &example.pieces {
            let change = changed.get(piece.path);
            let (old, new) =
                change.ok_or_else(|| format!("{}: the example does not change it", piece.path))?;
            let new = String::from_utf8_lossy(new);
            let is_as_printed = match (old, piece.below) {
                (None, None) => new == piece.text,
                (Some(old), Some(_)) => {
                    // Several examples may insert something into one file.
                    let pieces = examples.iter().flat_map(|(example, _)| &example.pieces);
                    let of_file = pieces.filter(|other| other.path == piece.path);
                    let without =
                        |text: String, other: &Piece<'_>| text.replacen(other.text, "", 1);
                    of_file.fold(new.into_owned(), without) == String::from_utf8_lossy(old)
                }
                _ => false,
            };
            if !is_as_printed {
                let path = piece.path;
                return Err(format!("{path}: is not changed as CONTRIBUTING.md says"));
            }
            match piece.below {
                None => created += 1,
                Some(_) => inserted += piece.text.lines().count(),
            }
        }
        rows.push(format!(
            "| {} | `{}` | {created} | {inserted} |",
            example.addition, example.name
        ));
    }
    for (example, _) in examples {
        for piece in &example.pieces {
            changed.remove(piece.path);
        }
    }
    if !changed.is_empty() {
        let files: Vec<String> = changed.into_keys().collect();
        return Err(format!(
            "files that the page does not name are changed: {}",
            files.join(", ")
        ));
    }
    Ok(rows)
}

/// A copy of the source.
struct Copy {
    folder: PathBuf,
    /// The build directory.
    target: PathBuf,
    /// The copied files.
    files: BTreeMap<String, Vec<u8>>,
}

impl Copy {
    fn new(root: &Path, target: PathBuf) -> Result<Copy, String> {
        let folder = target.join("contributing");
        let files = copy_workspace(root, &folder)?;
        let manifest = folder.join("Cargo.toml");
        rename_version(&manifest)?;
        optimise_less(&manifest)?;
        Ok(Copy {
            folder,
            target,
            files,
        })
    }

    /// Inserts the pieces of an example at their places.
    fn put(&self, example: &Example<'_>) -> Result<(), String> {
        for piece in &example.pieces {
            let path = self.folder.join(piece.path);
            let place = |error| format!("CONTRIBUTING.md:{}: {}: {error}", piece.line, piece.path);
            let Some(below) = piece.below else {
                if path.exists() {
                    return Err(place("the file exists already".to_owned()));
                }
                write(&path, piece.text)?;
                continue;
            };
            let text = read(&path)?;
            let (mut end, mut places) = (0, Vec::new());
            for line in text.split_inclusive('\n') {
                end += line.len();
                if line.trim() == below {
                    places.push(end);
                }
            }
            let [end] = places[..] else {
                let count = places.len();
                return Err(place(format!("{count} lines read `{below}`, not one")));
            };
            let (before, after) = text.split_at(end);
            write(&path, &[before, piece.text, after].concat())?;
        }
        Ok(())
    }

    /// Follows the tutorial, which creates the AQM of the page step by step, and builds the copy.
    fn follow_tutorial(&self, tutorial: &Path) -> Result<(), String> {
        let variables = [
            ("CARGO_TARGET_DIR", &*self.target),
            ("CARGO_NET_OFFLINE", Path::new("true")),
        ];
        tutorials::follow(
            tutorial,
            &self.folder,
            &self.target.join("debug"),
            &variables,
        )?;
        Ok(())
    }

    /// Returns the files that were copied, and all others that are in `crates` now.
    fn all_files(&self) -> Result<Vec<String>, String> {
        // The version of the copy.
        let own = ["Cargo.toml", "Cargo.lock"];
        let copied = self.files.keys();
        let copied = copied.filter(|file| !own.contains(&file.as_str()));
        let mut files: Vec<String> = copied.cloned().collect();
        let mut folders = vec![self.folder.join("crates")];
        while let Some(folder) = folders.pop() {
            let fail = |error| format!("{}: {error}", folder.display());
            for entry in fs::read_dir(&folder).map_err(fail)? {
                let path = entry.map_err(fail)?.path();
                if path.is_dir() {
                    folders.push(path);
                } else if let Ok(file) = path.strip_prefix(&self.folder) {
                    files.push(file.display().to_string());
                }
            }
        }
        files.sort();
        files.dedup();
        Ok(files)
    }

    /// Runs the tests, which write the generated references.
    fn test(&self) -> Result<(), String> {
        let mut command = Command::new(env!("CARGO"));
        command
            .args(["test", "--offline", "-q"])
            .args(TESTS)
            .current_dir(&self.folder)
            .env("CARGO_TARGET_DIR", &self.target)
            // The copy is inside the workspace, which would count as the root of expected files.
            .env("CARGO_WORKSPACE_DIR", &self.folder)
            .env("UPDATE_EXPECT", "1");
        run(&mut command).map(drop)
    }

    /// Returns what `sluice` prints.
    fn sluice(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = Command::new(self.target.join("debug/sluice"));
        run(command.args(arguments).current_dir(&self.folder))
    }

    /// Checks that `sluice` prints these texts.
    fn says(&self, arguments: &[&str], texts: &[&str]) -> Result<(), String> {
        let said = self.sluice(arguments)?;
        let place = format!("`sluice {}`", arguments.join(" "));
        contains(&place, &said, texts)
    }

    /// Checks that a file has these texts.
    fn has(&self, file: &str, texts: &[&str]) -> Result<(), String> {
        contains(file, &read(&self.folder.join(file))?, texts)
    }

    fn write(&self, file: &str, bytes: impl AsRef<[u8]>) -> Result<(), String> {
        fs::write(self.folder.join(file), bytes).map_err(|error| format!("{file}: {error}"))
    }
}

fn contains(place: &str, said: &str, texts: &[&str]) -> Result<(), String> {
    match texts.iter().find(|text| !said.contains(**text)) {
        Some(text) => Err(format!("{place} does not have `{text}`:\n{said}")),
        None => Ok(()),
    }
}

/// Gives the copy's crates their own version, because cargo does not distinguish crates at the same
/// path in two workspaces.
fn rename_version(path: &Path) -> Result<(), String> {
    let text = read(path)?;
    let (before, after) = text
        .split_once("[workspace.package]\nversion = \"")
        .ok_or("Cargo.toml gives no version to the workspace")?;
    let (version, after) = after.split_once('"').ok_or("the version does not end")?;
    let version = format!("[workspace.package]\nversion = \"{version}-example\"");
    write(path, &format!("{before}{version}{after}"))
}

/// Optimises only what the copy simulates with: nothing moves live packets there, and most of the time of this
/// check goes into compiling.
fn optimise_less(path: &Path) -> Result<(), String> {
    const FAST: [&str; 3] = ["sluice-core ", "sluice-sim ", "sluice-tcp "];
    let text = read(path)?;
    let is_left_out = |line: &&str| {
        let is_own = line.starts_with("sluice-") && line.contains("{ opt-level");
        is_own && !FAST.iter().any(|name| line.starts_with(name))
    };
    let (left_out, kept): (Vec<&str>, Vec<&str>) =
        text.split_inclusive('\n').partition(is_left_out);
    if left_out.is_empty() {
        return Err("Cargo.toml optimises no crate but those that simulate".to_owned());
    }
    write(path, &kept.concat())
}

/// Copies the files that git tracks or would add, and the web pages that the laboratory embeds. The
/// copy's time stamps are those of the source, so that cargo builds only what changed since the
/// last time. Returns the files.
fn copy_workspace(root: &Path, copy: &Path) -> Result<BTreeMap<String, Vec<u8>>, String> {
    if copy.exists() {
        fs::remove_dir_all(copy).map_err(|error| format!("{}: {error}", copy.display()))?;
    }
    let mut list = Command::new("git");
    list.args(["ls-files", "-co", "--exclude-standard"]);
    let files = run(list.current_dir(root))?;
    let pages = ["web/dist/report.html", "web/dist/index.html"];
    let mut copied = BTreeMap::new();
    for file in files.lines().chain(pages) {
        let (from, to) = (root.join(file), copy.join(file));
        if from.is_file() {
            let folder = to.parent().expect("a file is in a folder");
            fs::create_dir_all(folder)
                .and_then(|()| fs::copy(&from, &to))
                .map_err(|error| format!("cannot copy {file}: {error}"))?;
            let modified = fs::metadata(&from).and_then(|m| m.modified());
            let set = |time| {
                fs::File::options()
                    .write(true)
                    .open(&to)?
                    .set_modified(time)
            };
            modified
                .and_then(set)
                .map_err(|error| format!("{file}: {error}"))?;
            let bytes = fs::read(&to).map_err(|error| format!("{file}: {error}"))?;
            copied.insert(file.to_owned(), bytes);
        }
    }
    Ok(copied)
}

pub fn target_folder(root: &Path) -> Result<PathBuf, String> {
    let mut metadata = Command::new(env!("CARGO"));
    metadata.args([
        "metadata",
        "--no-deps",
        "--offline",
        "--format-version",
        "1",
    ]);
    let json = run(metadata.current_dir(root))?;
    let json: serde_json::Value =
        serde_json::from_str(&json).map_err(|error| format!("cargo metadata: {error}"))?;
    let folder = json["target_directory"].as_str();
    folder
        .map(PathBuf::from)
        .ok_or("cargo metadata names no target directory".to_string())
}

/// Runs a command. Returns its output.
fn run(command: &mut Command) -> Result<String, String> {
    let output = command
        .output()
        .map_err(|error| format!("{command:?}: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    let (said, complained) = (text(&output.stdout), text(&output.stderr));
    Err(format!("{command:?} failed:\n{said}{complained}"))
}

pub fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

pub fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}
