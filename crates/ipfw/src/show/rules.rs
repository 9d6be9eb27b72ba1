//! Rules, sets and states in the layout of `list` and `show`.

use std::fmt::Write as _;

use sluice_core::units::Time;

use super::{DynamicRuleState, GroupState, RuleState, Snapshot};
use crate::grammar::{Dynamic, RuleFormat, ShowRule, Times};
use crate::rules::states::{End, State};
use crate::rules::{Entry, Rules};
use crate::words::names;

/// The form in which rules are shown.
pub(crate) struct Style {
    pub has_counters: bool,
    pub times: Times,
    /// Seconds from the Unix epoch to the origin of virtual time.
    pub origin_s: u64,
    pub dynamic: Dynamic,
    pub has_expired: bool,
    pub format: RuleFormat,
}

/// Returns the rules as values.
pub(crate) fn states(rules: &Rules, shown: impl Fn(&Entry) -> bool) -> Vec<RuleState> {
    let entries = rules.entries().iter().filter(|e| shown(e));
    entries
        .map(|e| RuleState {
            number: e.number,
            set: e.rule.set,
            is_enabled: !rules.is_set_disabled(e.rule.set),
            packets: e.packets,
            bytes: e.bytes,
            last_match_ns: e.last_match.map(Time::as_ns),
            text: ShowRule(&e.rule, RuleFormat::default()).to_string(),
        })
        .collect()
}

/// Adds the dynamic rules as values to a snapshot: those alive at `now`, and expired ones on request.
pub(crate) fn add_dynamic(snapshot: &mut Snapshot, rules: &Rules, has_expired: bool, now: Time) {
    let states = rules.states.list(now, has_expired);
    let name_of = |name: u32| rules.states.name_of(name).to_owned();
    let groups = rules.states.groups_of(&states).into_iter();
    snapshot.groups = groups
        .map(|listed| GroupState {
            rule: listed.group.rule.number,
            name: name_of(listed.name),
            proto: listed.group.proto,
            src: listed.group.from.address,
            src_port: listed.group.from.port,
            dst: listed.group.to.address,
            dst_port: listed.group.to.port,
            states: listed.states,
        })
        .collect();
    let states = states.into_iter();
    snapshot.states = states
        .map(|state| DynamicRuleState {
            rule: state.rule.number,
            kind: if state.is_limited() {
                "limit"
            } else {
                "keep-state"
            },
            name: name_of(state.name),
            proto: state.proto,
            src: state.from.address,
            src_port: state.from.port,
            dst: state.to.address,
            dst_port: state.to.port,
            packets: state.packets,
            bytes: state.bytes,
            expires_in_ns: state.expires.since(now).as_ns(),
        })
        .collect();
}

/// Returns the rules as text, one line each.
pub(crate) fn list(
    rules: &Rules,
    shown: impl Fn(&Entry) -> bool,
    style: &Style,
    now: Time,
) -> String {
    let mut out = String::new();
    let shown: Vec<&Entry> = rules.entries().iter().filter(|e| shown(e)).collect();
    let states = if style.dynamic == Dynamic::No {
        Vec::new()
    } else {
        rules.states.list(now, style.has_expired)
    };
    let width = |of_rule: fn(&Entry) -> u64, of_state: fn(&State) -> u64| {
        let of_rules = shown.iter().map(|e| of_rule(e));
        let of_states = states.iter().map(|s| of_state(s));
        of_rules
            .chain(of_states)
            .max()
            .unwrap_or(0)
            .to_string()
            .len()
    };
    let widths = (
        width(|e| e.packets, |s| s.packets),
        width(|e| e.bytes, |s| s.bytes),
    );
    if style.dynamic != Dynamic::Only {
        for entry in shown {
            // A line that is read back is then a remark.
            if rules.is_set_disabled(entry.rule.set) {
                out.push_str("# DISABLED ");
            }
            let _ = write!(out, "{:05} ", entry.number);
            if style.has_counters {
                let _ = write!(
                    out,
                    "{:>2$} {:>3$} ",
                    entry.packets, entry.bytes, widths.0, widths.1
                );
            }
            put_time(&mut out, entry.last_match, style);
            let _ = writeln!(out, "{}", ShowRule(&entry.rule, style.format));
        }
    }
    if !states.is_empty() {
        let groups = rules.states.groups_of(&states);
        let count = states.len() + groups.len();
        let _ = writeln!(out, "## Dynamic rules ({count}):");
        let states = states.into_iter().map(|state| DynamicLine {
            rule: state.rule.number,
            counters: (state.packets, state.bytes),
            expires: state.expires,
            kind: String::from(if state.is_limited() { "LIMIT" } else { "STATE" }),
            proto: state.proto,
            ends: [state.from, state.to],
            name: state.name,
        });
        let groups = groups.into_iter().map(|listed| DynamicLine {
            rule: listed.group.rule.number,
            // ipfw counts no packets for a group.
            counters: (0, 0),
            expires: listed.expires,
            kind: format!("PARENT {}", listed.states),
            proto: listed.group.proto,
            ends: [listed.group.from, listed.group.to],
            name: listed.name,
        });
        for line in states.chain(groups) {
            line.put(&mut out, rules, widths, now);
        }
    }
    out
}

/// A state, or a group of states, as a line.
struct DynamicLine {
    rule: u32,
    /// Packets and bytes.
    counters: (u64, u64),
    expires: Time,
    kind: String,
    proto: u8,
    ends: [End; 2],
    name: u32,
}

impl DynamicLine {
    fn put(&self, out: &mut String, rules: &Rules, widths: (usize, usize), now: Time) {
        let left = self.expires.since(now).as_ns() / 1_000_000_000;
        let proto = match names::protocol_name(self.proto) {
            Some(name) => name.to_string(),
            None => format!("proto {}", self.proto),
        };
        let [from, to] = self.ends;
        let _ = writeln!(
            out,
            "{:05} {:>w0$} {:>w1$} ({left}s) {} {proto} {} {} <-> {} {} :{}",
            self.rule,
            self.counters.0,
            self.counters.1,
            self.kind,
            from.address,
            from.port,
            to.address,
            to.port,
            rules.states.name_of(self.name),
            w0 = widths.0,
            w1 = widths.1,
        );
    }
}

/// Writes when a rule last matched, in the width of a date.
fn put_time(out: &mut String, at: Option<Time>, style: &Style) {
    let seconds = at.map(|at| style.origin_s + at.as_ns() / 1_000_000_000);
    let _ = match (style.times, seconds) {
        (Times::No, _) => Ok(()),
        (Times::Seconds, seconds) => write!(out, "{:10} ", seconds.unwrap_or(0)),
        (Times::Date, Some(seconds)) => write!(out, "{} ", date(seconds)),
        (Times::Date, None) => write!(out, "{:25}", ""),
    };
}

/// Formats a date like `ctime`, in UTC.
fn date(seconds: u64) -> String {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    let (days, rest) = (seconds / 86400, seconds % 86400);
    // Days since 1 March of year 0, in eras of 400 years (H. Hinnant, "chrono-Compatible Low-Level
    // Date Algorithms").
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = (shifted_month + 2) % 12;
    let year = era * 400 + year_of_era + u64::from(month < 2);
    format!(
        "{} {} {day:2} {:02}:{:02}:{:02} {year}",
        DAYS[(days % 7) as usize],
        MONTHS[month as usize],
        rest / 3600,
        rest % 3600 / 60,
        rest % 60
    )
}

/// Returns the output of `set show`.
pub(crate) fn sets(rules: &Rules) -> String {
    let list = |is_disabled: bool| {
        let sets = (0..31u8).filter(|s| rules.is_set_disabled(*s) == is_disabled);
        sets.map(|s| format!(" {s}")).collect::<String>()
    };
    let disabled = list(true);
    let mut out = String::new();
    if !disabled.is_empty() {
        let _ = write!(out, "disable{disabled} ");
    }
    let _ = writeln!(out, "enable{}", list(false));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_ctime() {
        // date -u -d @N
        assert_eq!(date(0), "Thu Jan  1 00:00:00 1970");
        assert_eq!(date(951_826_332), "Tue Feb 29 12:12:12 2000");
        assert_eq!(date(1_709_251_199), "Thu Feb 29 23:59:59 2024");
        assert_eq!(date(1_735_689_600), "Wed Jan  1 00:00:00 2025");
    }
}
