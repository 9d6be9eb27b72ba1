//! Packet for packet: the verdict and the instant of every packet of a trace.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::cases::{Case, Cases, Implementation, unpack};

/// The comparison of one queue on one trace with one implementation.
#[derive(Debug)]
pub struct Compared {
    /// `linux/t01_steady.codel`.
    pub name: String,
    /// The queue in our words.
    pub queue: String,
    pub packets: u64,
    /// Packets with another verdict or another instant.
    pub differing: u64,
    /// The first of them, as a sentence.
    pub first: Option<String>,
    /// The known reason for differences.
    pub differs: Option<String>,
}

impl Compared {
    /// Returns the error: an unknown difference, or a known one that no longer exists.
    pub fn complaint(&self) -> Option<String> {
        match (&self.first, &self.differs) {
            (Some(first), None) => Some(format!(
                "{}: {} of {} packets differ from `{}`; {first}",
                self.name, self.differing, self.packets, self.queue
            )),
            (None, Some(reason)) => Some(format!(
                "{}: no packet differs, although cases.toml says why: {reason}",
                self.name
            )),
            _ => None,
        }
    }
}

/// Compares all stored decisions, or those of the quick list.
///
/// # Errors
/// A file has no case, or the command fails.
pub fn compare(
    cases: &Cases,
    sluice: &Path,
    scratch: &Path,
    is_quick: bool,
) -> Result<Vec<Compared>, String> {
    let mut all = Vec::new();
    for implementation in &cases.implementation {
        let folder = cases.folder.join(&implementation.folder);
        let entries = fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter_map(|name| Some(name.strip_suffix(".csv.gz")?.to_owned()))
            .collect();
        names.sort();
        for name in names {
            let file = format!("{}/{name}", implementation.folder);
            if is_quick && !cases.quick.files.contains(&file) {
                continue;
            }
            let words = || {
                format!(
                    "{}/cases.toml has no case for `{file}`",
                    cases.folder.display()
                )
            };
            let (trace, queue) = name.split_once('.').ok_or_else(words)?;
            let case = cases.find(trace, queue).ok_or_else(words)?;
            all.push(one(
                cases,
                implementation,
                case,
                trace,
                &file,
                sluice,
                scratch,
            )?);
        }
    }
    Ok(all)
}

fn one(
    cases: &Cases,
    implementation: &Implementation,
    case: &Case,
    trace: &str,
    file: &str,
    sluice: &Path,
    scratch: &Path,
) -> Result<Compared, String> {
    let variant = case.variant.as_ref().unwrap_or(&implementation.variant);
    let queue = format!("{} variant {variant}", case.queue);
    let trace_file = scratch.join(format!("{trace}.csv"));
    let text = unpack(&cases.folder.join(format!("traces/{trace}.csv.gz")))?;
    write(&trace_file, &text)?;
    let arrivals = arrivals(&text);
    let rows_file = scratch.join("rows.csv");
    let mut command = Command::new(sluice);
    command
        .arg("replay")
        .arg(&trace_file)
        .args(["--queue", &queue, "--rate", &cases.rate, "--hash", "flow"])
        .arg("--out")
        .arg(&rows_file);
    if let Some(draws) = case.draws {
        let draws_file = scratch.join("draws.txt");
        // At most one draw for a packet.
        write(&draws_file, &draws.text(arrivals.len()))?;
        command.arg("--draws").arg(&draws_file);
    }
    let output = command
        .output()
        .map_err(|error| format!("{}: {error}", sluice.display()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{file}: `{queue}`: {}", said.trim()));
    }
    let rows = super::cases::read(&rows_file)?;
    let theirs = unpack(&cases.folder.join(format!("{file}.csv.gz")))?;
    let mut compared = Compared {
        name: file.to_owned(),
        queue,
        packets: 0,
        differing: 0,
        first: None,
        differs: cases.known(file).map(str::to_owned),
    };
    let theirs: Vec<(&str, u64)> = decisions(&theirs);
    let ours: Vec<(&str, u64)> = rows.lines().skip(1).filter_map(our_row).collect();
    if theirs.len() != arrivals.len() || ours.len() != arrivals.len() {
        return Err(format!(
            "{file}: {} packets arrive, they decided {}, we {}",
            arrivals.len(),
            theirs.len(),
            ours.len()
        ));
    }
    for (number, (their, our)) in theirs.iter().zip(&ours).enumerate() {
        compared.packets += 1;
        if their != our {
            compared.differing += 1;
            compared.first.get_or_insert_with(|| {
                format!(
                    "packet {number}: {} at {} ns there, {} at {} ns here",
                    their.0, their.1, our.0, our.1
                )
            });
        }
    }
    Ok(compared)
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("cannot write `{}`: {error}", path.display()))
}

fn arrivals(trace: &str) -> Vec<&str> {
    trace.lines().skip(1).collect()
}

/// Reads `verdict,dt_ns`: the instant is the sum of the distances, some of which are negative. `D`
/// (dropped at a dequeue), `T` (refused) and `E` (evicted) are drops.
fn decisions(text: &str) -> Vec<(&str, u64)> {
    let mut at: i64 = 0;
    text.lines()
        .skip(1)
        .filter_map(|line| {
            let (verdict, distance) = line.split_once(',')?;
            at += distance.parse::<i64>().ok()?;
            let verdict = match verdict {
                "S" => "sent",
                "M" => "marked",
                "D" | "T" | "E" => "dropped",
                other => other,
            };
            Some((verdict, at as u64))
        })
        .collect()
}

/// Reads a row of `sluice replay`: seq, time_ns, flow, size_bytes, verdict, at_ns ...
fn our_row(line: &str) -> Option<(&str, u64)> {
    let mut cells = line.split(',').skip(4);
    Some((cells.next()?, cells.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_add_up_and_may_step_back() {
        let text = "verdict,dt_ns\nS,100\nD,50\nT,-20\nM,5\n";
        let expected = [
            ("sent", 100),
            ("dropped", 150),
            ("dropped", 130),
            ("marked", 135),
        ];
        assert_eq!(decisions(text), expected);
    }

    #[test]
    fn verdict_and_instant_of_a_row_are_found() {
        let row = "7,1000,1,1500,dropped,2500,1500,congestion";
        assert_eq!(our_row(row), Some(("dropped", 2500)));
    }
}
