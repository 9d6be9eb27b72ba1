//! The last day in fixed memory, at falling resolution.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;

use sluice_router::control::Change;
use sluice_router::process::watch::Sample;

/// The resolutions, in milliseconds, with the number of points: 5 minutes, 1 hour, 24 hours.
const LEVELS: [(u64, usize); 3] = [(1_000, 300), (10_000, 360), (60_000, 1_440)];
/// Largest number of pipes, schedulers and queues, and of ports.
const MOST_SERIES: usize = 32;
/// Largest number of reasons of a series that have columns of their own. Few queues drop for more.
const MOST_REASONS: usize = 4;

/// The history.
#[derive(Debug, Default)]
pub(super) struct History {
    series: Vec<Series>,
    changes: Vec<Change>,
}

/// The points of an object, or of a port.
#[derive(Debug)]
struct Series {
    name: String,
    /// The reasons of drops, in the order in which they occurred first.
    reasons: Vec<String>,
    levels: [Level; LEVELS.len()],
    last_ms: u64,
}

#[derive(Debug, Default)]
struct Level {
    points: VecDeque<Point>,
    /// The point that is not complete, and the number of samples in it.
    open: Option<(Point, u32)>,
}

/// A point. Rates and medians are means over its samples, backlogs and 99th percentiles the largest,
/// drops and marks sums. Of a port, `rate_bps` is what it received and `other_bps` what it sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
struct Point {
    unix_ms: u64,
    rate_bps: f32,
    other_bps: f32,
    backlog_packets: f32,
    p50_ms: f32,
    p99_ms: f32,
    dropped: f32,
    /// The drops by reason, in the order of the series.
    dropped_for: [f32; MOST_REASONS],
    marked: f32,
}

impl Point {
    fn merge(&mut self, other: &Point, samples: u32) {
        let share = 1.0 / (samples as f32 + 1.0);
        let mean = |old: f32, new: f32| old + (new - old) * share;
        self.rate_bps = mean(self.rate_bps, other.rate_bps);
        self.other_bps = mean(self.other_bps, other.other_bps);
        self.p50_ms = mean(self.p50_ms, other.p50_ms);
        self.backlog_packets = self.backlog_packets.max(other.backlog_packets);
        self.p99_ms = self.p99_ms.max(other.p99_ms);
        self.dropped += other.dropped;
        for (sum, more) in self.dropped_for.iter_mut().zip(other.dropped_for) {
            *sum += more;
        }
        self.marked += other.marked;
    }
}

impl Level {
    fn add(&mut self, point: &Point, (step_ms, most): (u64, usize)) {
        let slot = point.unix_ms / step_ms;
        match &mut self.open {
            Some((open, samples)) if open.unix_ms / step_ms == slot => {
                open.merge(point, *samples);
                *samples += 1;
            }
            open => {
                if let Some((done, _)) = open.replace((*point, 1)) {
                    if self.points.len() == most {
                        self.points.pop_front();
                    }
                    self.points.push_back(done);
                }
            }
        }
    }
}

/// The columns of a series at one resolution.
#[derive(Serialize)]
struct Columns<'a> {
    name: &'a str,
    step_ms: u64,
    unix_ms: Vec<u64>,
    rate_bps: Vec<f32>,
    other_bps: Vec<f32>,
    backlog_packets: Vec<f32>,
    p50_ms: Vec<f32>,
    p99_ms: Vec<f32>,
    dropped: Vec<f32>,
    dropped_for: BTreeMap<&'a str, Vec<f32>>,
    marked: Vec<f32>,
}

#[derive(Serialize)]
struct Answer<'a> {
    series: Vec<Columns<'a>>,
    changes: &'a [Change],
}

impl History {
    /// Adds a sample.
    pub fn add(&mut self, sample: &Sample) {
        let unix_ms = sample.unix_ms;
        for port in &sample.ports {
            let point = Point {
                unix_ms,
                rate_bps: port.received_bps as f32,
                other_bps: port.sent_bps as f32,
                dropped: port.lost as f32,
                ..Point::default()
            };
            self.note(&format!("port {}", port.name), point, &BTreeMap::new());
        }
        for object in &sample.objects {
            let traffic = &object.traffic;
            let ms = |ns: u64| ns as f32 / 1e6;
            let point = Point {
                unix_ms,
                rate_bps: traffic.rate_bps as f32,
                other_bps: traffic.arrived_bps as f32,
                backlog_packets: object.backlog_packets as f32,
                p50_ms: traffic.sojourn.map_or(0.0, |sojourn| ms(sojourn.p50_ns)),
                p99_ms: traffic.sojourn.map_or(0.0, |sojourn| ms(sojourn.p99_ns)),
                dropped: traffic.dropped_total() as f32,
                marked: traffic.marked as f32,
                ..Point::default()
            };
            self.note(&object.label(), point, &traffic.dropped);
        }
        self.changes.clone_from(&sample.changes);
    }

    fn note(&mut self, name: &str, mut point: Point, dropped: &BTreeMap<String, u64>) {
        let place = self.series.iter().position(|series| series.name == name);
        let place = match place {
            Some(place) => place,
            None if self.series.len() < MOST_SERIES => {
                self.series.push(Series::new(name));
                self.series.len() - 1
            }
            // A series that has had no sample for the longest resolution's step makes room.
            None => {
                let oldest = self
                    .series
                    .iter()
                    .enumerate()
                    .min_by_key(|(_, s)| s.last_ms);
                let (place, oldest) = oldest.expect("the list is full");
                if oldest.last_ms + LEVELS[LEVELS.len() - 1].0 > point.unix_ms {
                    return;
                }
                self.series[place] = Series::new(name);
                place
            }
        };
        let series = &mut self.series[place];
        series.last_ms = point.unix_ms;
        for (reason, count) in dropped {
            if let Some(place) = series.place_of(reason) {
                point.dropped_for[place] = *count as f32;
            }
        }
        for (level, shape) in series.levels.iter_mut().zip(LEVELS) {
            level.add(&point, shape);
        }
    }

    /// Returns everything as JSON: each series at each resolution.
    pub fn json(&self) -> String {
        let series = self.series.iter().flat_map(|series| {
            let levels = series.levels.iter().zip(LEVELS);
            levels.map(|(level, (step_ms, _))| {
                let points = || {
                    let open = level.open.iter().map(|(point, _)| point);
                    level.points.iter().chain(open)
                };
                let reasons = series.reasons.iter().enumerate();
                let column = |pick: fn(&Point) -> f32| points().map(pick).collect();
                Columns {
                    name: &series.name,
                    step_ms,
                    unix_ms: points().map(|point| point.unix_ms).collect(),
                    rate_bps: column(|p| p.rate_bps),
                    other_bps: column(|p| p.other_bps),
                    backlog_packets: column(|p| p.backlog_packets),
                    p50_ms: column(|p| p.p50_ms),
                    p99_ms: column(|p| p.p99_ms),
                    dropped: column(|p| p.dropped),
                    dropped_for: reasons
                        .map(|(place, reason)| {
                            let counts = points().map(|point| point.dropped_for[place]);
                            (reason.as_str(), counts.collect())
                        })
                        .collect(),
                    marked: column(|p| p.marked),
                }
            })
        });
        let answer = Answer {
            series: series.collect(),
            changes: &self.changes,
        };
        serde_json::to_string(&answer).expect("the history is plain values")
    }
}

impl Series {
    fn new(name: &str) -> Series {
        Series {
            name: name.to_owned(),
            reasons: Vec::new(),
            levels: Default::default(),
            last_ms: 0,
        }
    }

    /// Returns the column of a reason, if there is room for it.
    fn place_of(&mut self, reason: &str) -> Option<usize> {
        let place = self.reasons.iter().position(|known| known == reason);
        place.or_else(|| {
            let place = self.reasons.len();
            (place < MOST_REASONS).then(|| {
                self.reasons.push(reason.to_owned());
                place
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_router::process::watch::{ObjectSample, Sojourn};

    fn sample(second: u64, name: &str, rate_bps: u64) -> Sample {
        let mut object = ObjectSample {
            name: name.to_owned(),
            backlog_packets: second % 10,
            ..ObjectSample::default()
        };
        object.traffic.rate_bps = rate_bps;
        object.traffic.marked = 1;
        object.traffic.sojourn = Some(Sojourn {
            p50_ns: 1_000_000,
            p99_ns: second % 10 * 1_000_000,
            ..Sojourn::default()
        });
        Sample {
            unix_ms: second * 1000,
            objects: vec![object],
            ..Sample::default()
        }
    }

    #[test]
    fn a_day_fits_into_fixed_memory_at_falling_resolution() {
        let mut history = History::default();
        for second in 0..100_000 {
            history.add(&sample(second, "pipe 1", second));
        }
        let levels = &history.series[0].levels;
        for (level, (_, most)) in levels.iter().zip(LEVELS) {
            assert_eq!(level.points.len(), most);
        }
        // The last whole ten seconds are 99980 to 99989; the next ten are open.
        let point = levels[1].points.back().unwrap();
        assert_eq!(point.unix_ms, 99_980_000);
        assert!((point.rate_bps - 99_984.5).abs() < 0.5, "{point:?}");
        assert_eq!((point.backlog_packets, point.p99_ms), (9.0, 9.0));
        assert_eq!((point.marked, point.p50_ms), (10.0, 1.0));
        // The oldest minute of the last resolution: 1440 whole ones before the open one.
        let oldest = levels[2].points.front().unwrap().unix_ms;
        assert_eq!(oldest, (99_999 / 60 - 1440) * 60_000);
    }

    #[test]
    fn drops_have_a_column_for_each_of_few_reasons() {
        let mut history = History::default();
        for second in 0..20 {
            let mut sample = sample(second, "pipe 1", 1);
            let dropped = &mut sample.objects[0].traffic.dropped;
            dropped.insert("congestion".to_owned(), 2);
            if second == 5 {
                for number in 0..6 {
                    dropped.insert(format!("reason {number}"), 1);
                }
            }
            history.add(&sample);
        }
        let json: serde_json::Value = serde_json::from_str(&history.json()).unwrap();
        // Ten seconds per point, the last of which is open.
        let series = &json["series"][1];
        assert_eq!(series["dropped"], serde_json::json!([26.0, 20.0]));
        let reasons = series["dropped_for"].as_object().unwrap();
        assert_eq!(reasons["congestion"], serde_json::json!([20.0, 20.0]));
        assert_eq!(reasons["reason 0"], serde_json::json!([1.0, 0.0]));
        assert_eq!(reasons.len(), MOST_REASONS);
    }

    #[test]
    fn many_names_do_not_grow_the_history_and_an_idle_one_makes_room() {
        let mut history = History::default();
        for second in 0..1000 {
            history.add(&sample(second / 10, &format!("pipe {second}"), 1));
        }
        assert_eq!(history.series.len(), MOST_SERIES);
        history.add(&sample(10_000, "pipe late", 1));
        assert!(
            history
                .series
                .iter()
                .any(|series| series.name == "pipe late")
        );
        let json: serde_json::Value = serde_json::from_str(&history.json()).unwrap();
        assert_eq!(
            json["series"].as_array().unwrap().len(),
            MOST_SERIES * LEVELS.len()
        );
    }
}
