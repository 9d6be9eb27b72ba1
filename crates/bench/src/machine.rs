//! Time that the hypervisor took from the machine.

use std::fs;

/// Processor time of all cores since the machine started, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticks {
    all: u64,
    /// Time for which a core of this virtual machine was ready and the hypervisor ran something
    /// else.
    stolen: u64,
}

impl Ticks {
    pub(super) fn now() -> Option<Ticks> {
        Ticks::of(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// proc_stat(5): user, nice, system, idle, iowait, irq, softirq, steal; user and nice contain
    /// the rest.
    fn of(stat: &str) -> Option<Ticks> {
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let ticks: Vec<u64> = line
            .split_whitespace()
            .take(8)
            .map(|field| field.parse().ok())
            .collect::<Option<_>>()?;
        Some(Ticks {
            all: ticks.iter().sum(),
            stolen: *ticks.get(7)?,
        })
    }

    /// Returns the share of all time since `earlier` that was stolen.
    pub(super) fn stolen_since(self, earlier: Ticks) -> Option<f64> {
        let all = self.all.checked_sub(earlier.all).filter(|all| *all > 0)?;
        let stolen = self.stolen.checked_sub(earlier.stolen)?;
        Some(stolen as f64 / all as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_is_a_share_of_all_time() {
        let at = |stat| Ticks::of(stat).unwrap();
        let before = at("cpu  10 0 10 70 0 5 5 0 3 0\ncpu0 1 2 3 4 5 6 7 8 9 10\n");
        let after = at("cpu  30 0 20 120 0 5 5 20 9 0\n");
        // 200 ticks after 100, of which 20 were stolen.
        assert_eq!(after.stolen_since(before), Some(0.2));
        assert_eq!(before.stolen_since(before), None);
        assert_eq!(Ticks::of("intr 1 2 3\n"), None);
        assert_eq!(Ticks::of("cpu  1 2 3\n"), None);
    }
}
