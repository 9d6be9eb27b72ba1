//! A long text of commands, executed piece by piece, so that a host forwards packets in between.

use sluice_core::event::Cx;

use super::Run;
use crate::engine::{Firewall, Output};
use crate::grammar::{CommandError, Flags};
use crate::objects::layout::Files;

/// How far a text is executed.
///
/// Each line takes effect when it is executed, as with [`Mode::Batch`](crate::Mode::Batch): a
/// packet between two pieces meets the lines of the first one only.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Bytes of the text that are done.
    done: usize,
    lines: u32,
    /// What the lines have written so far.
    pub output: Output,
}

impl Firewall {
    /// Executes the next lines of `text`, at least one, until `is_enough` returns true. Returns
    /// `None` while lines are left. Every call gets the same text.
    ///
    /// # Errors
    ///
    /// The command that was refused. The lines before it stay in force.
    pub fn continue_batch(
        &mut self,
        text: &str,
        batch: &mut Batch,
        files: &mut dyn Files,
        mut is_enough: impl FnMut() -> bool,
        cx: &mut Cx<'_>,
    ) -> Option<Result<(), CommandError>> {
        let now = cx.now;
        self.advance(|at| at < now, cx);
        let mut run = Run {
            files,
            is_batch: true,
            is_deferred: false,
            depth: 0,
        };
        let flags = Flags::default();
        while batch.done < text.len() {
            let rest = &text[batch.done..];
            let len = rest.find('\n').map_or(rest.len(), |end| end + 1);
            let line = rest[..len].lines().next().unwrap_or("");
            batch.done += len;
            batch.lines += 1;
            let result = self.line(line, batch.lines, &flags, &mut run, &mut batch.output, cx);
            if result.is_err() {
                return Some(result);
            }
            if is_enough() && batch.done < text.len() {
                return None;
            }
        }
        Some(Ok(()))
    }
}
