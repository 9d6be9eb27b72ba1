//! A long text of commands, executed piece by piece, so that a host forwards packets in between.

use sluice_core::event::Cx;
use sluice_core::registry::NoLoaders;

use super::Run;
use crate::engine::{Firewall, Mode, Output};
use crate::grammar::{self, Command, CommandError, Flags};
use crate::objects::layout::{Files, read_file};

/// A text that is executed line by line, and how far it is.
///
/// Each line takes effect when it is executed: a packet between two pieces meets the lines of the
/// first one only.
#[derive(Clone, Debug)]
pub struct Batch {
    text: String,
    /// The file that the text is from, if a command named it.
    file: Option<String>,
    flags: Flags,
    /// Whether errors name their line.
    is_batch: bool,
    /// Bytes of the text that are done.
    done: usize,
    lines: u32,
    /// The output of the lines so far.
    pub output: Output,
}

impl Firewall {
    /// Returns `text` as a batch if its lines take effect one by one: if it has several, or is in
    /// [`Mode::Batch`], or is one command that names a file of commands, without `--atomic` or `-n`.
    pub fn begin_batch(&self, text: &str, mode: Mode, files: &mut dyn Files) -> Option<Batch> {
        let new = |text, file, flags| Batch {
            text,
            file,
            flags,
            is_batch: mode != Mode::Command,
            done: 0,
            lines: 0,
            output: Output::default(),
        };
        match mode {
            Mode::Batch => return Some(new(text.to_owned(), None, Flags::default())),
            Mode::Command if text.trim_end().contains('\n') => {
                return Some(new(text.to_owned(), None, Flags::default()));
            }
            Mode::Command => {}
            Mode::Atomic | Mode::Replace => return None,
        }
        // A command that names a batch loads no algorithm.
        let is_compat = self.switches.is_compat;
        let parsed = grammar::parse_with(&NoLoaders, text.trim_end(), 1, is_compat).ok()?;
        let invocation = parsed.invocation?;
        let Command::Batch(path) = invocation.command else {
            return None;
        };
        let is_one_change = invocation.flags.atomic || invocation.flags.check_only;
        if is_one_change || !parsed.warnings.is_empty() || !parsed.notices.is_empty() {
            return None;
        }
        // What cannot be read is refused by `execute`.
        let text = read_file(files, &path).ok()?;
        let batch = new(text, Some(path.value), invocation.flags);
        Some(Batch {
            is_batch: true,
            ..batch
        })
    }

    /// Executes the next lines, at least one, until `is_enough` returns true. Returns `None` while
    /// lines are left.
    ///
    /// # Errors
    ///
    /// The command that was refused. The lines before it stay in force.
    pub fn continue_batch(
        &mut self,
        batch: &mut Batch,
        files: &mut dyn Files,
        mut is_enough: impl FnMut() -> bool,
        cx: &mut Cx<'_>,
    ) -> Option<Result<(), CommandError>> {
        let now = cx.now;
        self.advance(|at| at < now, cx);
        let mut run = Run {
            files,
            is_batch: batch.is_batch,
            is_deferred: false,
            depth: usize::from(batch.file.is_some()),
        };
        while batch.done < batch.text.len() {
            let rest = &batch.text[batch.done..];
            let len = rest.find('\n').map_or(rest.len(), |end| end + 1);
            let line = rest[..len].lines().next().unwrap_or("");
            batch.done += len;
            batch.lines += 1;
            let (flags, output) = (&batch.flags, &mut batch.output);
            let said = output.warnings.len();
            let result = self.line(line, batch.lines, flags, &mut run, output, cx);
            for warning in &mut output.warnings[said..] {
                warning.file = warning.file.take().or_else(|| batch.file.clone());
            }
            if let Err(mut error) = result {
                error.file = error.file.or_else(|| batch.file.clone());
                return Some(Err(error.in_text(&batch.text)));
            }
            if is_enough() && batch.done < batch.text.len() {
                return None;
            }
        }
        Some(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Settings;
    use crate::objects::layout::NoFiles;
    use sluice_core::event::DropCounter;
    use sluice_core::{Rng, Time};

    const TEXT: &str = "table t add 10.0.0.9 3\n\n# comment\nadd 100 pipe 1 ip from any to any\n\
                        pipe 1 config bw 1Mbit/s weight 2\nadd 100 nonsense\nadd 200 allow ip from any to any";

    /// One file, whatever its name.
    struct File;

    impl Files for File {
        fn read(&mut self, _: &str) -> Result<String, String> {
            Ok(TEXT.into())
        }
    }

    type Ran = (Output, Result<(), CommandError>, Output);

    /// Executes `text`, a line at a time if `pieces`. Returns the number of pieces and what it said
    /// and did.
    fn run(text: &str, mode: Mode, pieces: bool) -> (u32, Ran) {
        let mut firewall = Firewall::new(&Settings::default());
        let (mut rng, mut sink) = (Rng::from_seed(1), DropCounter::default());
        let mut cx = Cx::new(Time::ZERO, &mut rng, &mut sink);
        let (mut calls, mut output) = (0, Output::default());
        let result = if pieces {
            let mut batch = firewall.begin_batch(text, mode, &mut File).unwrap();
            loop {
                calls += 1;
                let step = firewall.continue_batch(&mut batch, &mut File, || true, &mut cx);
                if let Some(result) = step {
                    output = batch.output;
                    break result;
                }
            }
        } else {
            firewall.execute(text, mode, &mut File, &mut output, &mut cx)
        };
        let rules = firewall.command("list", &mut NoFiles, &mut cx).unwrap();
        (calls, (output, result, rules))
    }

    #[test]
    fn a_batch_in_pieces_says_and_does_what_it_does_as_a_whole() {
        for (text, mode) in [
            (TEXT, Mode::Batch),
            (TEXT, Mode::Command),
            ("ipfw -q /a/file", Mode::Command),
        ] {
            let (whole, pieces) = (run(text, mode, false), run(text, mode, true));
            // The sixth line is refused.
            assert_eq!((whole.0, pieces.0), (0, 6));
            assert!(whole.1.1.is_err());
            assert_eq!(whole.1, pieces.1);
        }
    }

    #[test]
    fn one_change_is_no_batch() {
        let firewall = Firewall::new(&Settings::default());
        for (text, mode) in [
            (TEXT, Mode::Atomic),
            ("ipfw --atomic /a/file", Mode::Command),
            ("ipfw -n /a/file", Mode::Command),
            ("pipe 1 config bw 1Mbit/s", Mode::Command),
        ] {
            assert!(
                firewall.begin_batch(text, mode, &mut File).is_none(),
                "{text}"
            );
        }
    }
}
