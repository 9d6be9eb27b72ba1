//! The options that describe a link.

use std::path::PathBuf;

use clap_complete::engine::ArgValueCandidates;
use sluice_core::{Rate, Span};
use sluice_exec::link::LinkWords;
use sluice_scenario::Texts;

use crate::completion;

/// A link: a name or a file, and what options change.
#[derive(Clone, Debug, clap::Args)]
pub struct LinkArgs {
    /// A link by its name (`sluice list links`), or a scenario whose `[link]` and
    /// `[[hop]]`s are used
    #[arg(long, value_name = "NAME|FILE", help_heading = LINK,
          add = ArgValueCandidates::new(completion::links))]
    link: Option<String>,
    /// Rate of both directions [default: unlimited]
    #[arg(long, value_name = "RATE", value_parser = Rate::parse, help_heading = LINK)]
    rate: Option<Rate>,
    /// Rate of the direction from the program
    #[arg(long, value_name = "RATE", value_parser = Rate::parse, help_heading = LINK)]
    up: Option<Rate>,
    /// Round-trip time: twice the delay of each direction
    #[arg(long, value_name = "TIME", value_parser = Span::parse, conflicts_with = "delay",
          help_heading = LINK)]
    rtt: Option<Span>,
    /// Delay of each direction
    #[arg(long, value_name = "TIME", value_parser = Span::parse, help_heading = LINK)]
    delay: Option<Span>,
    /// Random loss in each direction, e.g. 0.5% (0.5 is half)
    #[arg(long, value_name = "SHARE", allow_hyphen_values = true, help_heading = LINK)]
    loss: Option<String>,
    /// Queue of both directions, written as in `sluice list`
    #[arg(long, value_name = "QUEUE", help_heading = LINK,
          add = ArgValueCandidates::new(completion::queues))]
    queue: Option<String>,
    /// Mahimahi trace of the direction to the program
    #[arg(long, value_name = "FILE", conflicts_with = "rate", help_heading = LINK)]
    trace: Option<PathBuf>,
    /// Mahimahi trace of the direction from the program
    #[arg(long, value_name = "FILE", conflicts_with = "up", help_heading = LINK)]
    up_trace: Option<PathBuf>,
    /// Set a key of `[link]`, of both directions or of one, e.g. down.queue=fq_codel, or seed=N
    /// of random losses
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_and_value,
          help_heading = LINK)]
    sets: Vec<(String, String)>,
    #[arg(skip)]
    texts: Texts,
}

impl LinkArgs {
    /// Returns the name of the link, or the path of its file.
    pub fn name(&self) -> Option<&str> {
        self.link.as_deref()
    }

    /// Returns whether an option describes a link.
    pub fn is_given(&self) -> bool {
        let words = self.words();
        let has_trace = words.traces.iter().any(Option::is_some);
        // A seed alone changes nothing.
        let has_key = words.sets.iter().any(|(key, _)| key != "seed");
        words.link.is_some() || !words.options.is_empty() || has_key || has_trace
    }

    /// Warns of a value that is accepted, but is rarely what was meant.
    pub fn warn(&self) {
        let loss = self.loss.as_deref().map(str::trim);
        if let Some(loss) = loss.filter(|loss| loss.parse::<f64>() == Ok(1.0)) {
            eprintln!(
                "sluice: warning: `--loss {loss}` loses all packets; one packet in a hundred is `--loss 1%`"
            );
        }
    }

    /// Returns the description of the link.
    pub fn words(&self) -> LinkWords {
        LinkWords {
            link: self.link.clone(),
            options: options(self),
            sets: self.sets.clone(),
            traces: [self.trace.clone(), self.up_trace.clone()],
            texts: self.texts.clone(),
            ..LinkWords::default()
        }
    }
}

/// Returns the options that set a key of the link.
fn options(args: &LinkArgs) -> Vec<(&'static str, &'static str, String)> {
    let words = [
        ("--rate", "rate", args.rate.map(|rate| rate.to_string())),
        ("--up", "up.rate", args.up.map(|rate| rate.to_string())),
        (
            "--delay",
            "delay",
            args.delay.map(|delay| delay.to_string()),
        ),
        (
            "--rtt",
            "rtt",
            args.rtt.map(|rtt| format!("{}ns", rtt.as_ns())),
        ),
        ("--loss", "loss", args.loss.clone()),
        ("--queue", "queue", args.queue.clone()),
    ];
    let words = words.into_iter();
    words
        .filter_map(|(option, key, value)| Some((option, key, value?)))
        .collect()
}

fn key_and_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => {
            Ok((key.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err("write it as KEY=VALUE, such as down.queue=fq_codel".to_owned()),
    }
}

/// The heading of the options.
pub const LINK: &str = "The link";
