//! A configuration that is built beside a running engine and replaces its own at one instant.

use std::mem;

use sluice_core::event::{Cx, DropCounter};
use sluice_core::{Rng, Time};

use super::Run;
use crate::engine::{Firewall, Output, Settings};
use crate::grammar::{CommandError, Flags};
use crate::headers::Interface;
use crate::objects::layout::{Files, Layout, Touched};
use crate::rules::Ruleset;
use crate::variables::Variables;

/// A configuration, read and checked, for engines with the same settings.
///
/// Building one takes time in proportion to its text, and needs no running engine: another thread
/// can do it while packets flow. [`Firewall::replace`] then puts it in place at one instant.
///
/// ```
/// use sluice_core::{Cx, DropCounter, Rng, Time};
/// use sluice_ipfw::{Firewall, NoFiles, Output, Prepared, Settings};
///
/// let settings = Settings::default();
/// let mut firewall = Firewall::new(&settings);
/// let text = "pipe 1 config bw 1Mbit/s\nadd 100 pipe 1 ip from any to any";
/// let builder = std::thread::spawn(move || {
///     let mut output = Output::default();
///     Prepared::new(&settings, Vec::new(), text, &mut NoFiles, &mut output)
/// });
/// let prepared = builder.join().unwrap().unwrap();
/// let (mut rng, mut dropped) = (Rng::from_seed(1), DropCounter::default());
/// let mut cx = Cx::new(Time::ZERO, &mut rng, &mut dropped);
/// drop(firewall.replace(prepared, &mut cx));
/// assert_eq!(firewall.snapshot(&mut cx).pipes.len(), 1);
/// ```
#[derive(Clone)]
pub struct Prepared {
    pub(super) layout: Layout,
    pub(super) rules: Ruleset,
    pub(super) variables: Variables,
}

/// A configuration that was replaced. Freeing a large one takes milliseconds: drop it on a thread
/// for which no packet waits.
#[expect(dead_code, reason = "it is only kept until it is dropped")]
pub struct Replaced {
    pub(super) layout: Layout,
    pub(super) rules: Ruleset,
    pub(super) touched: [Touched; 2],
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepared").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Replaced {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replaced").finish_non_exhaustive()
    }
}

impl Prepared {
    /// Executes the lines of `text` as the whole configuration of an engine with these settings and
    /// interfaces. `output` keeps what was written before a command was refused.
    ///
    /// # Errors
    ///
    /// The command that was refused.
    pub fn new(
        settings: &Settings,
        interfaces: Vec<Interface>,
        text: &str,
        files: &mut dyn Files,
        output: &mut Output,
    ) -> Result<Prepared, CommandError> {
        let (prepared, mut refused) = Self::read(settings, interfaces, text, files, output, 1);
        match refused.pop() {
            Some(error) => Err(error),
            None => Ok(prepared),
        }
    }

    /// Like [`Prepared::new`], but continues after a refused command and returns all of them.
    pub fn check(
        settings: &Settings,
        interfaces: Vec<Interface>,
        text: &str,
        files: &mut dyn Files,
        output: &mut Output,
    ) -> Vec<CommandError> {
        Self::read(settings, interfaces, text, files, output, usize::MAX).1
    }

    /// Executes lines until `most` are refused.
    fn read(
        settings: &Settings,
        interfaces: Vec<Interface>,
        text: &str,
        files: &mut dyn Files,
        output: &mut Output,
        most: usize,
    ) -> (Prepared, Vec<CommandError>) {
        let mut firewall = Firewall::new(settings);
        firewall.set_interfaces(interfaces);
        firewall.variables_changed();
        let (mut rng, mut sink) = (Rng::from_seed(1), DropCounter::default());
        let mut cx = Cx::new(Time::ZERO, &mut rng, &mut sink);
        let mut run = Run {
            files,
            is_batch: true,
            is_deferred: true,
            depth: 0,
        };
        let flags = Flags::default();
        let mut refused = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let result = firewall.line(line, number, &flags, &mut run, output, &mut cx);
            if let Err(error) = result {
                // What is said about the whole text is said once.
                refused.push(match refused.is_empty() {
                    true => error.in_text(text),
                    false => error,
                });
            }
            if refused.len() >= most {
                break;
            }
        }
        firewall.settle(&mut output.warnings);
        let prepared = Prepared {
            layout: firewall.layout,
            rules: firewall.rules.into_ruleset(),
            variables: firewall.variables,
        };
        (prepared, refused)
    }
}

impl Firewall {
    /// Replaces the whole configuration, and the interfaces with it. Packets inside stay where a
    /// place for them remains, and rules that remain keep their counters and states.
    ///
    /// Returns the old configuration.
    pub fn replace(&mut self, prepared: Prepared, cx: &mut Cx<'_>) -> Replaced {
        let now = cx.now;
        self.advance(|at| at < now, cx);
        self.revision += 1;
        self.trial.forget();
        let layout = mem::replace(&mut self.layout, prepared.layout);
        self.layout.touch_all();
        self.variables = prepared.variables;
        self.refresh_switches();
        let rules = self.rules.replace(prepared.rules);
        let touched = self.runtime.apply(&mut self.layout, cx);
        Replaced {
            layout,
            rules,
            touched,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::engine::Disposition;
    use crate::headers::{Direction, Headers};
    use crate::objects::layout::NoFiles;
    use sluice_core::Packet;

    fn headers(source: [u8; 4]) -> Headers {
        let (from, to) = (IpAddr::from(source), IpAddr::from([10, 0, 0, 2]));
        Headers::new(Direction::In, 17, from, to)
    }

    fn is_passed(firewall: &mut Firewall, source: [u8; 4], cx: &mut Cx<'_>) -> bool {
        let disposition = firewall.handle(Packet::new(0, 1000), &headers(source), cx);
        matches!(disposition, Disposition::Pass(_))
    }

    #[test]
    fn a_prepared_configuration_replaces_rules_tables_and_interfaces_at_one_instant() {
        let settings = Settings::default();
        let mut firewall = Firewall::new(&settings);
        let (mut rng, mut sink) = (Rng::from_seed(1), DropCounter::default());
        let mut cx = Cx::new(Time::ZERO, &mut rng, &mut sink);
        let old = "add 100 count ip from any to any\nadd 200 allow ip from me to any";
        firewall.batch(old, true, &mut NoFiles, &mut cx).unwrap();
        assert!(!is_passed(&mut firewall, [10, 0, 0, 1], &mut cx));
        let interfaces = vec![Interface {
            name: "left".into(),
            addresses: vec![[10, 0, 0, 1].into()],
        }];
        let new = "add 100 count ip from any to any\nadd 200 allow ip from me to any\n\
                   table t add 10.0.0.9\nadd 300 allow ip from table(t) to any";
        let mut output = Output::default();
        let prepared =
            Prepared::new(&settings, interfaces, new, &mut NoFiles, &mut output).unwrap();
        // Nothing has changed yet.
        assert!(!is_passed(&mut firewall, [10, 0, 0, 1], &mut cx));
        drop(firewall.replace(prepared, &mut cx));
        assert!(is_passed(&mut firewall, [10, 0, 0, 1], &mut cx));
        assert!(is_passed(&mut firewall, [10, 0, 0, 9], &mut cx));
        assert!(!is_passed(&mut firewall, [10, 0, 0, 8], &mut cx));
        // Rule 100 stayed and has counted all five.
        let shown = firewall
            .command("-a list 100", &mut NoFiles, &mut cx)
            .unwrap();
        assert_eq!(
            shown.stdout.split_whitespace().nth(1),
            Some("5"),
            "{}",
            shown.stdout
        );
    }
}
