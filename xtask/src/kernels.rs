//! `cargo xtask kernels`: compares our queues with those of real kernels.
//!
//! `bench/kernels` has the decisions of other implementations about every packet of some traces,
//! and the end-to-end figures of a booted kernel. This command replays the traces with
//! `sluice replay`, compares every verdict and instant, and can write the page with the results.
//! The file names of the folder are checked against `SHA256SUMS` first.

mod cases;
mod closed_loop;
mod decisions;
mod page;

use std::path::{Path, PathBuf};

use cases::Cases;

/// What to compare.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The command to compare
    #[arg(long, value_name = "FILE", default_value = "target/debug/sluice")]
    sluice: PathBuf,
    /// Folder of the kernels' decisions
    #[arg(long, value_name = "FOLDER", default_value = "bench/kernels")]
    folder: PathBuf,
    /// Compare only one short trace for each queue, and simulate nothing
    #[arg(long, conflicts_with = "page")]
    quick: bool,
    /// Write this page
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
}

/// Compares all decisions and, unless it is to be quick, the figures of simulations. Returns the number
/// of equal decisions.
///
/// # Errors
/// A decision or a figure differs that is not listed as known, or the folder is damaged.
pub fn run(args: &Args) -> Result<String, String> {
    let cases = Cases::read(&args.folder)?;
    let scratch = scratch()?;
    let compared = decisions::compare(&cases, &args.sluice, &scratch, args.quick)?;
    let beside = match args.quick {
        true => Vec::new(),
        false => closed_loop::compare(&cases, &args.sluice, &scratch)?,
    };
    if let Some(path) = &args.page {
        let text = page::text(&cases, &compared, &beside);
        std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let unexpected = compared.iter().filter_map(|c| c.complaint());
    let unexpected = unexpected.chain(beside.iter().filter_map(|one| one.complaint()));
    let unexpected: Vec<String> = unexpected.collect();
    if !unexpected.is_empty() {
        return Err(unexpected.join("\n"));
    }
    let packets: u64 = compared.iter().map(|c| c.packets).sum();
    let files = compared.len();
    Ok(format!(
        "{packets} packets in {files} comparisons, all as expected"
    ))
}

/// Returns an empty folder for traces and rows, which the next call empties again.
fn scratch() -> Result<PathBuf, String> {
    let folder = Path::new("target/kernels").to_owned();
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(folder)
}
