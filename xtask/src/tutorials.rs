//! Checks that the commands of all pages work as printed: `cargo xtask tutorials`.
//!
//! A fenced block whose head has a second word (`toml dsl.toml`) is written to the file of that
//! name. In a block with the head `console`, each line that begins with `$ ` is a command, and the
//! lines below it are its expected output. `...` stands for any text within a line and, alone, for
//! any number of lines. A command that fails is an error unless the next one prints its status
//! (`echo $?`). In a block with the head `sh run`, each line is a command, whatever it prints. What
//! a page needs first, but does not show, is in a comment (`<!--`) around such blocks.
//!
//! All commands of a page go to one shell, so that directories, variables and background processes
//! persist. If a command starts another shell (`unshare ... bash`), the following ones go to that
//! shell.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::contributing::{read, target_folder, write};

/// The page whose commands need a copy of the source; `cargo xtask contributing` follows it.
pub const IN_A_COPY: &str = "docs/tutorials/write-an-aqm.md";

/// The folders with pages. The examples of the algorithms' pages are replayed by a test of `core`.
const FOLDERS: [&str; 5] = [
    "docs",
    "docs/tutorials",
    "docs/how-to",
    "docs/explanation",
    "scenarios/rfc7928",
];

/// Pages that are other files: the changelog and CONTRIBUTING.
const ELSEWHERE: [&str; 2] = ["docs/changelog.md", "docs/contributing.md"];

/// The page that needs the Python package: `python/tests/test_pages.py` follows it.
const IN_PYTHON: &str = "docs/tutorials/aqm-in-python.md";

/// Follows every page, each in a folder of its own. Returns the number of commands.
pub fn check() -> Result<usize, String> {
    let root = fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
        .map_err(|error| format!("cannot find the source: {error}"))?;
    let target = target_folder(&root)?;
    let mut commands = 0;
    for page in pages(&root)? {
        let start = Instant::now();
        let count = follow_anew(&page, &root, &target)?;
        if count > 0 {
            let name = page.strip_prefix(&root).unwrap_or(&page);
            let took = start.elapsed().as_secs_f64();
            println!(
                "tutorials: {}: {count} commands, {took:.1} s",
                name.display()
            );
        }
        commands += count;
    }
    Ok(commands)
}

/// Follows a page in a new folder. A page with a live scenario is followed up to three times,
/// because another virtual machine may have used the processor for half a second.
fn follow_anew(page: &Path, root: &Path, target: &Path) -> Result<usize, String> {
    // Pages of several folders may have one name.
    let name = page.strip_prefix(root).unwrap_or(page).with_extension("");
    let folder = target.join("tutorials").join(name);
    let is_live = read(page)?.contains("backend = \"live\"");
    let mut attempts = if is_live { 3 } else { 1 };
    loop {
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        symlink(root.join("scenarios"), folder.join("scenarios"))
            .map_err(|error| format!("{}: {error}", folder.display()))?;
        attempts -= 1;
        match follow(page, &folder, &target.join("debug"), &[]) {
            Err(error) if attempts > 0 => eprintln!("tutorials: followed again: {error}"),
            result => return result,
        }
    }
}

fn pages(root: &Path) -> Result<Vec<PathBuf>, String> {
    let mut pages = vec![root.join("README.md")];
    for folder in FOLDERS {
        let entries =
            fs::read_dir(root.join(folder)).map_err(|error| format!("{folder}: {error}"))?;
        for entry in entries {
            let path = entry.map_err(|error| format!("{folder}: {error}"))?.path();
            let is_left_out = [IN_A_COPY, IN_PYTHON]
                .iter()
                .chain(&ELSEWHERE)
                .any(|page| path == root.join(page));
            if path.extension().is_some_and(|ending| ending == "md") && !is_left_out {
                pages.push(path);
            }
        }
    }
    pages.sort();
    Ok(pages)
}

/// Follows `page` in `folder`, with the programs of `programs` and these environment variables.
/// Returns the number of commands.
pub fn follow(
    page: &Path,
    folder: &Path,
    programs: &Path,
    variables: &[(&str, &Path)],
) -> Result<usize, String> {
    let steps = steps(&read(page)?).map_err(|error| format!("{}:{error}", page.display()))?;
    let mut shell = Shell::start(folder, programs, variables)?;
    let mut commands = 0;
    for (at, step) in steps.iter().enumerate() {
        match step {
            Step::File { name, text } => {
                let path = folder.join(name);
                // An existing file keeps its time stamp, which builds depend on.
                if fs::read_to_string(&path).is_ok_and(|old| old == *text) {
                    continue;
                }
                if let Some(parent) = path.parent() {
                    fs::create_dir_all(parent)
                        .map_err(|error| format!("{}: {error}", parent.display()))?;
                }
                write(&path, text)?;
            }
            Step::Command {
                line,
                command,
                expected,
            } => {
                let place = format!("{}:{line}: `{command}`", page.display());
                let (printed, status) = shell
                    .run(command)
                    .map_err(|error| format!("{place}: {error}"))?;
                let is_asked_for = matches!(steps.get(at + 1),
                    Some(Step::Command { command, .. }) if command == "echo $?");
                if status != 0 && !is_asked_for {
                    return Err(format!("{place} failed ({status}):\n{printed}"));
                }
                if !matches(expected, &printed) {
                    return Err(format!(
                        "{place} printed\n{printed}\ninstead of\n{expected}"
                    ));
                }
                commands += 1;
            }
        }
    }
    Ok(commands)
}

#[derive(Debug, PartialEq)]
enum Step {
    File {
        name: String,
        text: String,
    },
    Command {
        line: usize,
        command: String,
        expected: String,
    },
}

/// Returns the files and commands of a page, in their order.
fn steps(page: &str) -> Result<Vec<Step>, String> {
    let mut steps = Vec::new();
    let mut lines = page.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        let Some(head) = line.strip_prefix("```") else {
            continue;
        };
        let mut block = Vec::new();
        loop {
            let (at, line) = lines
                .next()
                .ok_or(format!("{}: a block does not end", at + 1))?;
            if line == "```" {
                break;
            }
            block.push((at + 1, line));
        }
        match head.split_once(' ') {
            Some(("sh", "run")) => all_lines(&block, &mut steps),
            Some((_, name)) => steps.push(Step::File {
                name: name.to_owned(),
                text: block.iter().map(|(_, line)| format!("{line}\n")).collect(),
            }),
            None if head == "console" => commands(&block, &mut steps)?,
            None => {}
        }
    }
    Ok(steps)
}

fn commands(block: &[(usize, &str)], steps: &mut Vec<Step>) -> Result<(), String> {
    for &(at, text) in block {
        if let Some(command) = text.strip_prefix("$ ") {
            steps.push(Step::Command {
                line: at,
                command: command.to_owned(),
                expected: String::new(),
            });
        } else if let Some(Step::Command { expected, .. }) = steps.last_mut() {
            expected.push_str(text);
            expected.push('\n');
        } else {
            return Err(format!("{at}: output without a command"));
        }
    }
    Ok(())
}

/// Makes each line of a block a command that may print anything. A line that ends with a backslash
/// continues on the next one.
fn all_lines(block: &[(usize, &str)], steps: &mut Vec<Step>) {
    let mut begun: Option<(usize, String)> = None;
    for &(at, text) in block {
        let (line, mut command) = begun.take().unwrap_or((at, String::new()));
        command.push_str(text);
        if command.ends_with('\\') {
            command.push('\n');
            begun = Some((line, command));
        } else if !command.trim().is_empty() {
            steps.push(Step::Command {
                line,
                command,
                expected: "...\n".to_owned(),
            });
        }
    }
}

/// Returns whether `printed` matches a page's text, in which `...` stands for omitted text.
fn matches(expected: &str, printed: &str) -> bool {
    fn lines_match(expected: &[&str], printed: &[&str]) -> bool {
        match expected.split_first() {
            None => printed.is_empty(),
            Some((&"...", rest)) => {
                (0..=printed.len()).any(|skipped| lines_match(rest, &printed[skipped..]))
            }
            Some((line, rest)) => printed.split_first().is_some_and(|(first, others)| {
                line_matches(line, first) && lines_match(rest, others)
            }),
        }
    }
    let expected: Vec<&str> = expected.lines().map(str::trim_end).collect();
    let printed: Vec<&str> = printed.lines().map(str::trim_end).collect();
    lines_match(&expected, &printed)
}

fn line_matches(expected: &str, printed: &str) -> bool {
    let mut parts = expected.split("...");
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = printed.strip_prefix(first) else {
        return false;
    };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else {
        return rest.is_empty();
    };
    for part in middle {
        match rest.find(part) {
            Some(found) => rest = &rest[found + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// A shell that stays open from one command to the next.
struct Shell {
    child: Child,
    input: ChildStdin,
    output: Receiver<String>,
}

impl Shell {
    fn start(folder: &Path, programs: &Path, variables: &[(&str, &Path)]) -> Result<Shell, String> {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut child = Command::new("bash")
            .args(["--noprofile", "--norc"])
            .current_dir(folder)
            .env("PATH", format!("{}:{path}", programs.display()))
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|error| format!("cannot start bash: {error}"))?;
        let mut input = child.stdin.take().expect("the input is piped");
        let output = child.stdout.take().expect("the output is piped");
        writeln!(input, "exec 2>&1").map_err(|error| format!("bash: {error}"))?;
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                if sender
                    .send(String::from_utf8_lossy(&line).into_owned())
                    .is_err()
                {
                    break;
                }
            }
        });
        Ok(Shell {
            child,
            input,
            output: receiver,
        })
    }

    /// Runs one command. Returns its output and its status, which is also `$?` for the next
    /// command.
    fn run(&mut self, command: &str) -> Result<(String, i32), String> {
        let end = format!("status=$?; echo; echo {MARK} $status; (exit $status)");
        writeln!(self.input, "{command}\n{end}").map_err(|error| format!("bash: {error}"))?;
        let mut printed = String::new();
        let deadline = Instant::now() + LONGEST;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.output.recv_timeout(left) {
                Ok(line) => match line.strip_prefix(MARK) {
                    Some(status) => {
                        // The mark has a line of its own, whatever the command's last line ends
                        // with.
                        let printed = printed.strip_suffix('\n').unwrap_or(&printed).to_owned();
                        let status = status.trim().parse();
                        return Ok((printed, status.map_err(|_| "no status")?));
                    }
                    None => printed += &(line + "\n"),
                },
                Err(RecvTimeoutError::Timeout) => {
                    return Err(format!("no end after {} s:\n{printed}", LONGEST.as_secs()));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(format!("the shell has ended:\n{printed}"));
                }
            }
        }
    }
}

impl Drop for Shell {
    /// Ends all processes that the page has started: the shell leads a process group of its own.
    fn drop(&mut self) {
        let group = format!("-{}", self.child.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = self.child.wait();
    }
}

const MARK: &str = "--- end of the command, status";
/// One command of a tutorial builds the workspace, perhaps on a busy machine.
const LONGEST: Duration = Duration::from_secs(1800);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_a_block_that_runs_is_a_command() {
        let page = "```sh run\necho a \\\n  b   # said\n\ntrue\n```\n";
        let command = |line, command: &str| Step::Command {
            line,
            command: command.to_owned(),
            expected: "...\n".to_owned(),
        };
        assert_eq!(
            steps(page).unwrap(),
            [command(2, "echo a \\\n  b   # said"), command(5, "true")]
        );
        assert!(matches("...\n", "anything\nat all\n"));
        assert!(matches("...\n", ""));
    }

    #[test]
    fn files_and_commands_are_found_in_their_order() {
        let page = "# A\n```toml a.toml\nx = 1\n```\ntext\n```console\n$ echo a\na\n$ true\n```\n```sh\n$ no\n```\n";
        let command = |line, command: &str, expected: &str| Step::Command {
            line,
            command: command.to_owned(),
            expected: expected.to_owned(),
        };
        assert_eq!(
            steps(page).unwrap(),
            [
                Step::File {
                    name: "a.toml".to_owned(),
                    text: "x = 1\n".to_owned()
                },
                command(7, "echo a", "a\n"),
                command(9, "true", ""),
            ]
        );
        assert_eq!(
            steps("```console\n$ a").unwrap_err(),
            "1: a block does not end"
        );
    }

    #[test]
    fn dots_stand_for_any_text_or_lines() {
        assert!(matches("a\n...\nd\n", "a\nb\nc\nd\n"));
        assert!(matches("...\n", ""));
        assert!(matches("time=4... ms\n", "time=40.1 ms\n"));
        assert!(matches("... of ... runs\n", "2 of 3 runs\n"));
        assert!(!matches("a\n...\nd\n", "a\nb\nc\n"));
        assert!(!matches("time=4... ms\n", "time=50.1 ms\n"));
        assert!(!matches("a\n", "a\nb\n"));
    }

    #[test]
    fn a_shell_keeps_its_state_and_tells_failures() {
        let folder = std::env::temp_dir();
        let mut shell = Shell::start(&folder, &folder, &[]).unwrap();
        assert_eq!(shell.run("x=5").unwrap(), (String::new(), 0));
        assert_eq!(shell.run("echo $x; false").unwrap(), ("5\n".to_owned(), 1));
        assert_eq!(shell.run("echo $?").unwrap(), ("1\n".to_owned(), 0));
        assert_eq!(shell.run("bash").unwrap(), (String::new(), 0));
        assert_eq!(shell.run("printf $SHLVL").unwrap().1, 0);
    }
}
