//! `sluice sweep`: a scenario over a grid of settings, carried out by the Python package.

use std::ffi::OsString;
use std::io;
use std::num::{NonZeroU32, NonZeroUsize};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

/// What to sweep.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Scenario (TOML)
    #[arg(value_name = "FILE")]
    scenario: PathBuf,
    /// Values of a key: a list, as in link.queue=fifo,codel, or a range, as in
    /// link.rate=1..100Mbit/s:log:9 and link.rtt=10..50ms:lin:5. Several keys are crossed
    #[arg(long, required = true, value_name = "KEY=VALUES")]
    over: Vec<String>,
    /// Override a key of the scenario, e.g. --set duration=10s
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
    /// Run each combination this many times, with consecutive seeds
    #[arg(long, value_name = "N", default_value = "1")]
    seeds: NonZeroU32,
    /// Number of processes [default: one per core]
    #[arg(short, long, value_name = "N", conflicts_with = "dask")]
    jobs: Option<NonZeroUsize>,
    /// Address of a Dask scheduler, whose workers carry the runs out; they need the same Python
    /// package
    #[arg(long, value_name = "ADDRESS")]
    dask: Option<String>,
    /// Folder for the results; runs that are already there are not repeated [default:
    /// runs/NAME-sweep]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Show no progress
    #[arg(short, long)]
    quiet: bool,
}

/// Why there is no sweep.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Python cannot be started.
    #[error("cannot start `{}`: {error}; SLUICE_PYTHON names another one", python.display())]
    Python {
        /// The interpreter.
        python: OsString,
        /// The error of the system.
        error: io::Error,
    },
    /// Python does not know the package.
    #[error(
        "`{}` has no package `sluice`: run `pip install .` in Sluice's source tree, or name the \
         interpreter that has it in SLUICE_PYTHON",
        python.display()
    )]
    NoPackage {
        /// The interpreter.
        python: OsString,
    },
}

/// Replaces this process by the Python package's command.
///
/// # Errors
/// [`Error`].
pub fn run(args: &Args) -> Result<ExitCode, Error> {
    let python = std::env::var_os("SLUICE_PYTHON").unwrap_or_else(|| "python3".into());
    let fail = |error| Error::Python {
        python: python.clone(),
        error,
    };
    let find = "import importlib.util as u, sys; sys.exit(u.find_spec('sluice') is None)";
    let found = Command::new(&python)
        .args(["-c", find])
        .stdin(Stdio::null())
        .status()
        .map_err(fail)?;
    if !found.success() {
        return Err(Error::NoPackage { python });
    }
    Err(fail(command(&python, args).exec()))
}

fn command(python: &OsString, args: &Args) -> Command {
    let mut command = Command::new(python);
    command.args(["-m", "sluice", "sweep"]);
    // With `=`, no value can be taken for an option.
    let mut option = |name: &str, value: &dyn AsRef<std::ffi::OsStr>| {
        let mut word = OsString::from(format!("--{name}="));
        word.push(value);
        command.arg(word);
    };
    for over in &args.over {
        option("over", over);
    }
    for set in &args.sets {
        option("set", set);
    }
    option("seeds", &args.seeds.to_string());
    if let Some(jobs) = args.jobs {
        option("jobs", &jobs.to_string());
    }
    if let Some(address) = &args.dask {
        option("dask", address);
    }
    if let Some(folder) = &args.output {
        option("output", folder);
    }
    if args.quiet {
        command.arg("--quiet");
    }
    command.arg("--").arg(&args.scenario);
    command
}
