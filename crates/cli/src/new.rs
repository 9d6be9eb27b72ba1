//! `sluice new`: files to start from.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What to create.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// A scenario with a link, two queues to compare, and three flows
    Scenario {
        /// File to write; an existing one is not overwritten
        #[arg(default_value = "scenario.toml", value_name = "FILE")]
        file: PathBuf,
    },
    /// An AQM with its test and a scenario, in a folder of its own
    Aqm {
        /// Name of the AQM and of the new folder: lower-case letters, digits and `_`
        #[arg(default_value = "bound", value_name = "NAME", value_parser = name)]
        name: String,
        /// Language: a class in Python, or a WebAssembly module in another one
        #[arg(long, value_enum, value_name = "LANGUAGE", default_value_t = Language::Py)]
        lang: Language,
    },
}

/// A language of AQMs.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Language {
    /// Python: nothing to compile
    Py,
    /// C, with clang and lld
    C,
    /// Rust, with the target wasm32-unknown-unknown
    Rust,
    /// Zig, from PyPI's ziglang
    Zig,
}

/// Why there is no new file.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file or folder exists.
    #[error("`{}` exists; choose another name", file.display())]
    Exists {
        /// The file.
        file: PathBuf,
    },
    /// A file of the AQM would hide a module that its test needs.
    #[error(
        "an AQM cannot have the name `{name}`, that of {owner}, which its file would hide; choose another \
         name, such as `my_{name}`"
    )]
    Taken {
        /// The name.
        name: String,
        /// What has the name.
        owner: &'static str,
    },
    /// The file cannot be written.
    #[error("cannot write `{}`: {error}", file.display())]
    Write {
        /// The file.
        file: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// Standard output cannot be written.
    #[error("cannot write to standard output: {0}")]
    Output(#[from] io::Error),
}

/// Writes the files.
///
/// # Errors
/// [`Error`]. What exists is left as it is.
pub fn run(args: Args) -> Result<ExitCode, Error> {
    let said = match args.what {
        What::Scenario { file } => {
            write_new(&file, SCENARIO)?;
            let file = file.display();
            format!("wrote {file}; run it with: sluice run {file}\n")
        }
        What::Aqm { name, lang } => {
            if let Some(owner) = lang.owner_of(&name) {
                return Err(Error::Taken { name, owner });
            }
            let folder = PathBuf::from(&name);
            fs::create_dir(&folder).map_err(|error| of_write(&folder, error))?;
            for (file, text) in lang.files() {
                let file = folder.join(fill(file, &name, lang));
                write_new(&file, &fill(text, &name, lang))?;
            }
            let test = match lang {
                Language::Py => format!("python3 test_{name}.py && sluice check {name}.py"),
                Language::C | Language::Rust | Language::Zig => "make test".to_owned(),
            };
            format!("wrote the folder {name}; test it with: cd {name} && {test}\n")
        }
    };
    crate::print(&said)?;
    Ok(ExitCode::SUCCESS)
}

fn write_new(file: &Path, text: &str) -> Result<(), Error> {
    let written = File::create_new(file).and_then(|mut new| new.write_all(text.as_bytes()));
    written.map_err(|error| of_write(file, error))
}

fn of_write(file: &Path, error: io::Error) -> Error {
    let file = file.to_owned();
    match error.kind() {
        io::ErrorKind::AlreadyExists => Error::Exists { file },
        _ => Error::Write { file, error },
    }
}

fn name(text: &str) -> Result<String, String> {
    let is_right = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let is_name = text.starts_with(|c: char| c.is_ascii_lowercase()) && text.chars().all(is_right);
    match is_name {
        true => Ok(text.to_owned()),
        false => Err("write lower-case letters, digits and `_`, such as my_aqm".to_owned()),
    }
}

impl Language {
    /// Returns what has the name `name` already, and is imported under it beside an AQM.
    fn owner_of(self, name: &str) -> Option<&'static str> {
        let mut modules = PYTHON_MODULES.split_whitespace();
        match self {
            _ if name == "sluice" => Some("Sluice's own module"),
            Language::Py if modules.any(|module| module == name) => Some("a module of Python"),
            Language::Py | Language::C | Language::Rust | Language::Zig => None,
        }
    }

    /// Returns the files of an AQM, by their names.
    fn files(self) -> Vec<(&'static str, &'static str)> {
        let mut files = vec![("scenario.toml", include_str!("new/aqm/scenario.toml"))];
        files.extend(match self {
            Language::Py => [
                ("NAME.py", include_str!("new/aqm/NAME.py.in")),
                ("test_NAME.py", include_str!("new/aqm/test_NAME.py.in")),
            ]
            .to_vec(),
            Language::C => vec![
                ("NAME.c", include_str!("new/aqm/NAME.c.in")),
                ("sluice.h", include_str!("../../../sdk/c/sluice.h")),
                ("Makefile", include_str!("new/aqm/c.mk")),
            ],
            Language::Rust => vec![
                ("NAME.rs", include_str!("new/aqm/NAME.rs.in")),
                ("sluice.rs", include_str!("../../../sdk/rust/src/sluice.rs")),
                ("Makefile", include_str!("new/aqm/rust.mk")),
            ],
            Language::Zig => vec![
                ("NAME.zig", include_str!("new/aqm/NAME.zig.in")),
                ("sluice.zig", include_str!("../../../sdk/zig/sluice.zig")),
                ("Makefile", include_str!("new/aqm/zig.mk")),
            ],
        });
        files
    }
}

/// Inserts the name, and words derived from it, into a text.
fn fill(text: &str, name: &str, lang: Language) -> String {
    let words = name.split('_').filter(|word| !word.is_empty());
    let class: String = words
        .map(|word| word[..1].to_uppercase() + &word[1..])
        .collect();
    let queue = match lang {
        Language::Py => format!("py:{name}.py:{class}"),
        Language::C | Language::Rust | Language::Zig => format!("wasm:{name}.wasm"),
    };
    text.replace("TESTS\n", include_str!("new/aqm/tests.mk"))
        .replace("QUEUE bound", &format!("{queue} bound"))
        .replace("VARIANT", &queue)
        .replace("CLASS", &class)
        .replace("NAME", name)
}

const SCENARIO: &str = include_str!("new/scenario.toml");

/// The names of `sys.stdlib_module_names` in Python 3.11 to 3.15 that an AQM could have.
const PYTHON_MODULES: &str = include_str!("new/aqm/modules.txt");

const EXAMPLES: &str = "\
Examples:
  sluice new scenario line.toml
  sluice new aqm bound --lang py";
