//! `cargo xtask reproduce`: compares published figures and numbers with those of our runs.

use std::path::PathBuf;

use crate::reproduction;

/// The folders to compare.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// List of published results (TOML)
    list: PathBuf,
    /// Folder of the runs, as written by `sluice run DIR --backend both -o FOLDER`
    #[arg(long, value_name = "FOLDER", default_value = "runs")]
    runs: PathBuf,
    /// Page to write; its figures go into images/reproduction beside it
    #[arg(short, long, value_name = "FILE", default_value = "reproduction.md")]
    output: PathBuf,
    /// Only check the claims of the list; write no page
    #[arg(long, conflicts_with = "output")]
    check: bool,
    /// Only copy the summaries of live runs into reproduction/live beside the list; write no page
    #[arg(long, conflicts_with_all = ["output", "check"])]
    keep: bool,
}

/// Writes the page and returns its path.
///
/// # Errors
/// A sentence with the error and its place.
pub fn run(args: &Args) -> Result<String, String> {
    if args.check {
        return reproduction::check(&args.list, &args.runs)
            .map(|claims| format!("{claims} claims, all of them hold"))
            .map_err(|error| error.to_string());
    }
    if args.keep {
        return reproduction::keep(&args.list, &args.runs)
            .map(|count| format!("kept {count} live runs"))
            .map_err(|error| error.to_string());
    }
    let missing = reproduction::write(&args.list, &args.runs, &args.output)
        .map_err(|error| error.to_string())?;
    match missing.as_slice() {
        [] => {}
        [one] => eprintln!("reproduce: {} is missing; the page says so", one.display()),
        [first, rest @ ..] => eprintln!(
            "reproduce: {} and {} other runs are missing; the page says so",
            first.display(),
            rest.len()
        ),
    }
    Ok(args.output.display().to_string())
}
