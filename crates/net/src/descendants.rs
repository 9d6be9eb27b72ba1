//! The processes that descend from this one, in whatever namespaces they are.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Pid, Signal, getpid, kill_process};

use crate::process::changed_child;

/// The processes that descend from this one. One whose parent ends becomes a child of this process,
/// so that none is lost.
#[derive(Debug)]
pub struct Descendants {
    /// Children that this process had before.
    helpers: BTreeSet<i32>,
}

impl Descendants {
    /// Adopts all descendants from now on. Children that this process has already are not among them.
    ///
    /// # Errors
    /// The kernel refuses, or `/proc` cannot be read.
    pub fn adopt() -> io::Result<Descendants> {
        rustix::process::set_child_subreaper(Some(getpid()))?;
        let own = getpid().as_raw_nonzero().get();
        let children = parents()?.into_iter().filter(|(_, parent)| *parent == own);
        Ok(Descendants {
            helpers: children.map(|(child, _)| child).collect(),
        })
    }

    /// Kills all of them. Repeats until none is left, since a process may start others meanwhile.
    pub fn kill(&self) {
        for _ in 0..MOST_ROUNDS {
            // A process that has ended counts until its parent has looked at it.
            while matches!(changed_child(), Ok(Some(_))) {}
            let Ok(parents) = parents() else {
                sleep(PAUSE);
                continue;
            };
            let found: Vec<i32> = self.among(&parents).collect();
            if found.is_empty() {
                return;
            }
            for pid in found.into_iter().filter_map(Pid::from_raw) {
                // This fails if the process has just ended.
                let _ = kill_process(pid, Signal::KILL);
            }
            sleep(PAUSE);
        }
    }

    /// Returns the descendants among processes, of each of which the parent is given.
    fn among<'a>(&'a self, parents: &'a BTreeMap<i32, i32>) -> impl Iterator<Item = i32> + 'a {
        let own = getpid().as_raw_nonzero().get();
        let descends = move |pid: &i32| {
            let mut at = *pid;
            // Processes that start and end while `/proc` is read could make a circle.
            for _ in 0..parents.len() {
                match parents.get(&at) {
                    Some(parent) if *parent == own => return !self.helpers.contains(&at),
                    Some(parent) => at = *parent,
                    None => return false,
                }
            }
            false
        };
        parents.keys().copied().filter(descends)
    }
}

/// Returns all processes that can be seen, each with its parent.
fn parents() -> io::Result<BTreeMap<i32, i32>> {
    let mut parents = BTreeMap::new();
    for process in fs::read_dir("/proc")? {
        let process = process?;
        let name = process.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // It may have ended since.
        let Ok(stat) = fs::read(process.path().join("stat")) else {
            continue;
        };
        parents.extend(parent(&String::from_utf8_lossy(&stat)).map(|parent| (pid, parent)));
    }
    Ok(parents)
}

/// Returns the parent in `/proc/PID/stat` (proc_pid_stat(5)): the second field behind the name, which
/// is in parentheses and may have any characters.
fn parent(stat: &str) -> Option<i32> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(1)?.parse().ok()
}

/// The time for processes to end, between two searches.
const PAUSE: Duration = Duration::from_millis(2);
/// The largest number of searches.
const MOST_ROUNDS: u32 = 500;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_look_like_the_end_of_a_name() {
        assert_eq!(parent("7 (a) S 5) R 42 7 7 0"), Some(42));
        assert_eq!(parent("7 (sh) S"), None);
        assert_eq!(parent(""), None);
    }

    #[test]
    fn helpers_and_processes_of_others_are_spared() {
        let own = getpid().as_raw_nonzero().get();
        let far = i32::MAX;
        // 1 to 4 are a helper, its child, a child and its child; the rest is another tree, and a circle.
        let names: Vec<i32> = (0..8).map(|n| far - n).collect();
        let parents = BTreeMap::from([
            (own, 1),
            (names[0], own),
            (names[1], names[0]),
            (names[2], own),
            (names[3], names[2]),
            (names[4], 1),
            (names[5], names[4]),
            (names[6], names[7]),
            (names[7], names[6]),
        ]);
        let descendants = Descendants {
            helpers: BTreeSet::from([names[0]]),
        };
        let found: BTreeSet<i32> = descendants.among(&parents).collect();
        assert_eq!(found, BTreeSet::from([names[2], names[3]]));
    }
}
