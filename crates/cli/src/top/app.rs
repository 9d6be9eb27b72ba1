//! The state of the screen, and what keys do to it.

use std::collections::{BTreeMap, HashMap, VecDeque};

use ratatui::crossterm::event::KeyCode;
use sluice_router::process::watch::{FlowSample, ObjectSample, Sample, TrafficSample};

use crate::watch::clock;

/// What comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Order {
    /// The rate at which packets leave
    Rate,
    /// Packets that wait
    Backlog,
    /// The 99th percentile of the sojourn time
    Sojourn,
    /// Packets dropped in the interval
    Drops,
    /// The number of the pipe or queue
    Number,
}

impl Order {
    const ALL: [Order; 5] = [
        Order::Rate,
        Order::Backlog,
        Order::Sojourn,
        Order::Drops,
        Order::Number,
    ];

    pub(super) const fn word(self) -> &'static str {
        match self {
            Order::Rate => "rate",
            Order::Backlog => "backlog",
            Order::Sojourn => "sojourn",
            Order::Drops => "drops",
            Order::Number => "number",
        }
    }

    fn next(self) -> Order {
        let place = Order::ALL.iter().position(|order| *order == self);
        Order::ALL[(place.unwrap_or(0) + 1) % Order::ALL.len()]
    }

    fn key(self, traffic: &TrafficSample, backlog: u64) -> u64 {
        match self {
            Order::Rate => traffic.rate_bps,
            Order::Backlog => backlog,
            Order::Sojourn => traffic.sojourn.map_or(0, |sojourn| sojourn.p99_ns),
            Order::Drops => traffic.dropped_total(),
            Order::Number => 0,
        }
    }
}

/// What is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum View {
    /// Pipes, schedulers and queues.
    Objects,
    /// One of them, by its label, with its flows.
    Object(String),
    /// All flows.
    Flows,
    /// Changes and events.
    Log,
}

/// How a line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    Plain,
    Head,
    Selected,
}

/// A line of the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ScreenLine {
    pub text: String,
    pub look: Look,
}

/// The state of the screen.
pub(super) struct App {
    pub sample: Sample,
    pub view: View,
    pub order: Order,
    pub filter: String,
    pub is_typing: bool,
    pub is_paused: bool,
    pub selected: usize,
    /// The reason why the newest sample is old.
    pub error: Option<String>,
    /// The last rates by label.
    pub history: HashMap<String, VecDeque<u64>>,
    /// What happened, oldest first.
    pub events: VecDeque<(u64, String)>,
    /// Whether each label has dropped packets in the last interval.
    dropping: BTreeMap<String, bool>,
    /// The changes of the router so far.
    changes: u64,
    /// How long the router had run.
    uptime_ns: u64,
}

/// Rates in a row's sparkline, and the most that are kept.
const HISTORY: usize = 60;
/// The most events.
const EVENTS: usize = 200;

impl App {
    pub fn new(order: Order, filter: String) -> App {
        App {
            sample: Sample::default(),
            view: View::Objects,
            order,
            filter,
            is_typing: false,
            is_paused: false,
            selected: 0,
            error: None,
            history: HashMap::new(),
            events: VecDeque::new(),
            dropping: BTreeMap::new(),
            changes: 0,
            uptime_ns: 0,
        }
    }

    /// Returns the number of the sample.
    pub fn number(&self) -> u64 {
        self.sample.number
    }

    /// Adds the new changes to the log, by their number: the system's clock may be set back, and moves
    /// their times.
    fn log_changes(&mut self, sample: &Sample) {
        // A router that was started again counts from 0.
        if sample.status.uptime_ns < self.uptime_ns || sample.changes_total < self.changes {
            self.changes = 0;
        }
        let new = sample.changes_total.saturating_sub(self.changes);
        let new = usize::try_from(new).unwrap_or(usize::MAX);
        let skipped = sample.changes.len().saturating_sub(new);
        for change in sample.changes.iter().skip(skipped) {
            let text = match &change.refused {
                Some(why) => format!("refused: {} ({why})", change.text),
                None => change.text.clone(),
            };
            self.events.push_back((change.unix_ms, text));
        }
        (self.changes, self.uptime_ns) = (sample.changes_total, sample.status.uptime_ns);
    }

    /// Shows a newer sample. The log follows what happens while its end is shown.
    pub fn take(&mut self, sample: Sample) {
        let is_at_end = self.view == View::Log && self.selected + 1 >= self.events.len();
        if self.error.take().is_some() {
            self.note(sample.unix_ms, "the router answers again".to_owned());
        }
        self.log_changes(&sample);
        let mut dropping = BTreeMap::new();
        for object in &sample.objects {
            let label = object.label();
            let drops = object.traffic.dropped_total();
            let before = self.dropping.get(&label).copied().unwrap_or(false);
            if (drops > 0) != before {
                let what = if drops > 0 {
                    "drops packets"
                } else {
                    "no longer drops packets"
                };
                self.note(sample.unix_ms, format!("{label} {what}"));
            }
            dropping.insert(label, drops > 0);
        }
        self.dropping = dropping;
        for port in sample.ports.iter().filter(|port| port.lost > 0) {
            self.note(
                sample.unix_ms,
                format!("{} lost {} frames", port.name, port.lost),
            );
        }
        while self.events.len() > EVENTS {
            self.events.pop_front();
        }
        let objects = sample
            .objects
            .iter()
            .map(|o| (o.label(), o.traffic.rate_bps));
        let flows = sample
            .flows
            .iter()
            .map(|f| (flow_key(f), f.traffic.rate_bps));
        let mut history = HashMap::new();
        for (label, rate) in objects.chain(flows) {
            let mut rates = self.history.remove(&label).unwrap_or_default();
            if rates.len() == HISTORY {
                rates.pop_front();
            }
            rates.push_back(rate);
            history.insert(label, rates);
        }
        self.history = history;
        if !self.is_paused {
            self.sample = sample;
            let last = self.rows().saturating_sub(1);
            self.selected = match is_at_end {
                true => last,
                false => self.selected.min(last),
            };
        }
    }

    /// Shows that there is no newer sample.
    pub fn fail(&mut self, why: String) {
        self.error = Some(why);
    }

    fn note(&mut self, unix_ms: u64, text: String) {
        self.events.push_back((unix_ms, text));
    }

    /// Handles a key. Returns false for the one that ends.
    pub fn press(&mut self, key: KeyCode) -> bool {
        if self.is_typing {
            match key {
                KeyCode::Enter => self.is_typing = false,
                KeyCode::Esc => {
                    self.is_typing = false;
                    self.filter.clear();
                }
                KeyCode::Backspace => {
                    self.filter.pop();
                }
                KeyCode::Char(c) => self.filter.push(c),
                _ => {}
            }
            self.select_first();
            return true;
        }
        let last = self.rows().saturating_sub(1);
        match key {
            KeyCode::Char('q') => return false,
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Char('s') => self.order = self.order.next(),
            KeyCode::Char('p') => {
                self.is_paused = !self.is_paused;
                // After a pause, the log goes on at its end.
                if !self.is_paused && self.view == View::Log {
                    self.select_first();
                }
            }
            KeyCode::Char('l') => self.go(View::Log),
            KeyCode::Char('f') => self.go(View::Flows),
            KeyCode::Tab => {
                let next = match self.view {
                    View::Objects => View::Flows,
                    View::Flows => View::Log,
                    View::Log | View::Object(_) => View::Objects,
                };
                self.go(next);
            }
            KeyCode::Up | KeyCode::Char('k') => self.selected = self.selected.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.selected = (self.selected + 1).min(last),
            KeyCode::PageUp => self.selected = self.selected.saturating_sub(10),
            KeyCode::PageDown => self.selected = (self.selected + 10).min(last),
            KeyCode::Home => self.selected = 0,
            KeyCode::End => self.selected = last,
            KeyCode::Enter => {
                let objects = self.objects();
                let label = objects.get(self.selected).map(|object| object.label());
                if self.view == View::Objects
                    && let Some(label) = label
                {
                    self.go(View::Object(label));
                }
            }
            KeyCode::Esc | KeyCode::Left | KeyCode::Char('h') => {
                if self.view == View::Objects {
                    self.filter.clear();
                }
                self.go(View::Objects);
            }
            _ => {}
        }
        true
    }

    fn go(&mut self, view: View) {
        self.view = view;
        self.select_first();
    }

    /// Selects the first row, or the newest line of the log.
    fn select_first(&mut self) {
        self.selected = match self.view {
            View::Log => self.rows().saturating_sub(1),
            _ => 0,
        };
    }

    /// The number of rows that can be selected.
    fn rows(&self) -> usize {
        match &self.view {
            View::Objects => self.objects().len(),
            View::Object(_) | View::Flows => self.flows().len(),
            View::Log => self.events.len(),
        }
    }

    /// Returns the objects that the filter passes, in order.
    pub fn objects(&self) -> Vec<&ObjectSample> {
        let objects = self.sample.objects.iter();
        let mut rows: Vec<&ObjectSample> = objects
            .filter(|object| self.passes(&object.label()) || self.passes(&object.words))
            .collect();
        // Equal rows keep the order of their numbers.
        rows.sort_by_key(|object| {
            std::cmp::Reverse(self.order.key(&object.traffic, object.backlog_packets))
        });
        rows
    }

    /// Returns the flows of the view that the filter passes, in order.
    pub fn flows(&self) -> Vec<&FlowSample> {
        let object = match &self.view {
            // The flows of a mask are objects, of which the flows of packets are a part.
            View::Object(label) => self.object(label).map(|object| match &object.parent {
                Some(parent) => parent.clone(),
                None => object.name.clone(),
            }),
            _ => None,
        };
        let mut rows: Vec<&FlowSample> = self
            .sample
            .flows
            .iter()
            .filter(|flow| object.as_ref().is_none_or(|name| *name == flow.object))
            .filter(|flow| self.passes(&flow.label()) || self.passes(&flow.object))
            .collect();
        rows.sort_by_key(|flow| {
            std::cmp::Reverse(self.order.key(&flow.traffic, flow.backlog_packets))
        });
        rows
    }

    /// Returns the object with this label.
    pub fn object(&self, label: &str) -> Option<&ObjectSample> {
        self.sample
            .objects
            .iter()
            .find(|object| object.label() == label)
    }

    fn passes(&self, text: &str) -> bool {
        text.to_lowercase().contains(&self.filter.to_lowercase())
    }

    /// Returns the last lines of the log.
    pub fn last_events(&self, count: usize) -> Vec<String> {
        let skip = self.events.len().saturating_sub(count);
        let events = self.events.iter().skip(skip);
        events
            .map(|(at, text)| format!("{} {text}", clock(*at)))
            .collect()
    }
}

/// The key of a flow in the history.
pub(super) fn flow_key(flow: &FlowSample) -> String {
    format!("{} {}", flow.object, flow.label())
}
