//! The last day in fixed memory, at falling resolution.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;

use sluice_router::control::{Change, Journal};
use sluice_router::process::watch::{ObjectSample, Sample};

/// The resolutions, in milliseconds, with the number of points: 5 minutes, 1 hour, 24 hours.
const LEVELS: [(u64, usize); 3] = [(1_000, 300), (10_000, 360), (60_000, 1_440)];
/// Largest number of pipes, schedulers and queues, and of ports.
const MOST_SERIES: usize = 32;
/// Largest number of reasons of a series that have columns of their own. Few queues drop for more.
const MOST_REASONS: usize = 4;
/// Largest number of variables of an algorithm that are kept. No algorithm has more.
const MOST_VARIABLES: usize = 8;

/// The history.
#[derive(Debug, Default)]
pub(super) struct History {
    series: Vec<Series>,
    changes: Vec<Change>,
    /// The instant of the last sample by the system's clock.
    last_ms: u64,
}

/// The points of an object, or of a port.
#[derive(Debug)]
struct Series {
    name: String,
    /// The reasons of drops, in the order in which they occurred first.
    reasons: Vec<String>,
    variables: Vec<Variable>,
    levels: [Level; LEVELS.len()],
    last_ms: u64,
}

/// A variable of the algorithm, which has a column.
#[derive(Debug)]
struct Variable {
    name: String,
    kind: String,
    last_ms: u64,
}

#[derive(Debug, Default)]
struct Level {
    points: VecDeque<Point>,
    open: Option<Open>,
}

/// The point that is not complete.
#[derive(Debug)]
struct Open {
    point: Point,
    samples: u32,
    /// The packets whose sojourn times are in it.
    packets: u64,
}

/// A point. Rates are means over its samples, medians means weighted by the packets of the samples,
/// backlogs, 99th percentiles and variables the largest, drops and marks sums. Of a port, `rate_bps` is
/// what it received and `other_bps` what it sent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Point {
    unix_ms: u64,
    rate_bps: f32,
    other_bps: f32,
    backlog_packets: f32,
    sojourn: SojournPoint,
    dropped: f32,
    /// The drops by reason, in the order of the series.
    dropped_for: [f32; MOST_REASONS],
    marked: f32,
    state: State,
}

/// Sojourn times. Not a number: no packet left the queue.
#[derive(Clone, Copy, Debug, PartialEq)]
struct SojournPoint {
    p50_ms: f32,
    p99_ms: f32,
}

impl Default for SojournPoint {
    fn default() -> SojournPoint {
        SojournPoint {
            p50_ms: f32::NAN,
            p99_ms: f32::NAN,
        }
    }
}

/// The variables of the algorithm, in the order of the series. Not a number: it has none.
#[derive(Clone, Copy, Debug, PartialEq)]
struct State([f32; MOST_VARIABLES]);

impl Default for State {
    fn default() -> State {
        State([f32::NAN; MOST_VARIABLES])
    }
}

impl Open {
    fn merge(&mut self, other: &Point, packets: u64) {
        self.samples += 1;
        let share = 1.0 / self.samples as f32;
        let mean = |old: f32, new: f32| old + (new - old) * share;
        let point = &mut self.point;
        point.rate_bps = mean(point.rate_bps, other.rate_bps);
        point.other_bps = mean(point.other_bps, other.other_bps);
        point.backlog_packets = point.backlog_packets.max(other.backlog_packets);
        point.sojourn.merge(self.packets, other.sojourn, packets);
        self.packets += packets;
        point.dropped += other.dropped;
        for (sum, more) in point.dropped_for.iter_mut().zip(other.dropped_for) {
            *sum += more;
        }
        point.marked += other.marked;
        for (largest, value) in point.state.0.iter_mut().zip(other.state.0) {
            // The larger one, or the one that is a number.
            *largest = largest.max(value);
        }
    }
}

impl SojournPoint {
    fn merge(&mut self, own: u64, other: SojournPoint, packets: u64) {
        // The larger one, or the one that is a number.
        self.p99_ms = self.p99_ms.max(other.p99_ms);
        if own == 0 {
            self.p50_ms = other.p50_ms;
        } else if packets > 0 {
            let share = packets as f32 / (own + packets) as f32;
            self.p50_ms += (other.p50_ms - self.p50_ms) * share;
        }
    }
}

impl Level {
    fn add(&mut self, point: &Point, packets: u64, (step_ms, most): (u64, usize)) {
        let slot = point.unix_ms / step_ms;
        match &mut self.open {
            Some(open) if open.point.unix_ms / step_ms == slot => open.merge(point, packets),
            open => {
                let new = Open {
                    point: *point,
                    samples: 1,
                    packets,
                };
                if let Some(done) = open.replace(new) {
                    if self.points.len() == most {
                        self.points.pop_front();
                    }
                    self.points.push_back(done.point);
                }
            }
        }
    }
}

/// The columns of a series at one resolution; null where there is no sojourn time.
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
    state: BTreeMap<&'a str, Column<'a>>,
}

/// A variable over time; null where it had no value.
#[derive(Serialize)]
struct Column<'a> {
    kind: &'a str,
    values: Vec<f32>,
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
        // If the clock was set back, the past moves with it, as the changes do in their journal:
        // otherwise, it would lie in the future.
        let expected_ms = self.last_ms + sample.interval_ns / 1_000_000;
        let back_ms = expected_ms.saturating_sub(unix_ms);
        if self.last_ms > 0 && back_ms > Journal::LEAST_STEP_MS {
            self.series.iter_mut().for_each(|s| s.move_back(back_ms));
        }
        self.last_ms = unix_ms;
        for port in &sample.ports {
            let point = Point {
                unix_ms,
                rate_bps: port.received_bps as f32,
                other_bps: port.sent_bps as f32,
                dropped: port.lost as f32,
                ..Point::default()
            };
            if let Some(series) = self.series(&format!("port {}", port.name), unix_ms) {
                series.add(&point, 0);
            }
        }
        for object in &sample.objects {
            let Some(series) = self.series(&object.label(), unix_ms) else {
                continue;
            };
            let traffic = &object.traffic;
            let ms = |ns: u64| ns as f32 / 1e6;
            let sojourn = traffic.sojourn.map(|sojourn| SojournPoint {
                p50_ms: ms(sojourn.p50_ns),
                p99_ms: ms(sojourn.p99_ns),
            });
            // Without a sojourn time, a sample has no weight.
            let packets = sojourn.map_or(0, |_| traffic.packets.max(1));
            let point = Point {
                unix_ms,
                rate_bps: traffic.rate_bps as f32,
                other_bps: traffic.arrived_bps as f32,
                backlog_packets: object.backlog_packets as f32,
                sojourn: sojourn.unwrap_or_default(),
                dropped: traffic.dropped_total() as f32,
                marked: traffic.marked as f32,
                dropped_for: series.reasons_of(&traffic.dropped),
                state: series.state_of(object, unix_ms),
            };
            series.add(&point, packets);
        }
        self.changes.clone_from(&sample.changes);
    }

    /// Returns the series of this name, if there is room for it.
    fn series(&mut self, name: &str, unix_ms: u64) -> Option<&mut Series> {
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
                if oldest.last_ms + LEVELS[LEVELS.len() - 1].0 > unix_ms {
                    return None;
                }
                self.series[place] = Series::new(name);
                place
            }
        };
        Some(&mut self.series[place])
    }

    /// Returns everything as JSON: each series at each resolution.
    pub fn json(&self) -> String {
        let series = self.series.iter().flat_map(|series| {
            let levels = series.levels.iter().zip(LEVELS);
            levels.map(|(level, (step_ms, _))| {
                let points = || {
                    let open = level.open.iter().map(|open| &open.point);
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
                    p50_ms: column(|p| p.sojourn.p50_ms),
                    p99_ms: column(|p| p.sojourn.p99_ms),
                    dropped: column(|p| p.dropped),
                    dropped_for: reasons
                        .map(|(place, reason)| {
                            let counts = points().map(|point| point.dropped_for[place]);
                            (reason.as_str(), counts.collect())
                        })
                        .collect(),
                    marked: column(|p| p.marked),
                    state: series.columns(points),
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
            variables: Vec::new(),
            levels: Default::default(),
            last_ms: 0,
        }
    }

    /// Adds a sample, and the number of packets whose sojourn times are in it.
    fn add(&mut self, point: &Point, packets: u64) {
        self.last_ms = point.unix_ms;
        for (level, shape) in self.levels.iter_mut().zip(LEVELS) {
            level.add(point, packets, shape);
        }
    }

    /// Moves everything into the past.
    fn move_back(&mut self, by_ms: u64) {
        let levels = self.levels.iter_mut().flat_map(|level| {
            let open = level.open.iter_mut().map(|open| &mut open.point);
            level.points.iter_mut().chain(open)
        });
        let points = levels.map(|point| &mut point.unix_ms);
        let variables = self.variables.iter_mut().map(|known| &mut known.last_ms);
        for at in points.chain(variables).chain([&mut self.last_ms]) {
            *at = at.saturating_sub(by_ms);
        }
    }

    /// Returns the drops by reason, in the order of the series.
    fn reasons_of(&mut self, dropped: &BTreeMap<String, u64>) -> [f32; MOST_REASONS] {
        let mut counts = [0.0; MOST_REASONS];
        for (reason, count) in dropped {
            if let Some(place) = self.place_of(reason) {
                counts[place] = *count as f32;
            }
        }
        counts
    }

    /// Returns the variables of the algorithm, in the order of the series.
    fn state_of(&mut self, object: &ObjectSample, unix_ms: u64) -> State {
        let mut state = State::default();
        // Those that have a value keep their columns when a new one needs room.
        for known in &mut self.variables {
            if object.state.contains_key(&known.name) {
                known.last_ms = unix_ms;
            }
        }
        for (name, value) in &object.state {
            let kind = object.state_kinds.get(name).map_or("count", String::as_str);
            if let Some(place) = self.place_of_variable(name, kind, unix_ms) {
                state.0[place] = *value as f32;
            }
        }
        state
    }

    /// Returns the column of a variable, if there is room for it. A variable that has had no value for
    /// longest, since the algorithm is another one by now, makes room.
    fn place_of_variable(&mut self, name: &str, kind: &str, unix_ms: u64) -> Option<usize> {
        let is_it = |known: &Variable| known.name == name && known.kind == kind;
        let place = self.variables.iter().position(is_it);
        if place.is_some() {
            return place;
        }
        let variable = Variable {
            name: name.to_owned(),
            kind: kind.to_owned(),
            last_ms: unix_ms,
        };
        if self.variables.len() < MOST_VARIABLES {
            self.variables.push(variable);
            return Some(self.variables.len() - 1);
        }
        let known = self.variables.iter().enumerate();
        let (place, oldest) = known.min_by_key(|(_, known)| known.last_ms)?;
        if oldest.last_ms == unix_ms {
            return None;
        }
        self.variables[place] = variable;
        for level in &mut self.levels {
            let open = level.open.iter_mut().map(|open| &mut open.point);
            for point in level.points.iter_mut().chain(open) {
                point.state.0[place] = f32::NAN;
            }
        }
        Some(place)
    }

    /// Returns the variables that have a value in these points.
    fn columns<'a, P: Iterator<Item = &'a Point>>(
        &self,
        points: impl Fn() -> P,
    ) -> BTreeMap<&str, Column<'_>> {
        let known = self.variables.iter().enumerate();
        let columns = known.map(|(place, variable)| {
            let values = points().map(|point| point.state.0[place]).collect();
            let kind = variable.kind.as_str();
            (variable.name.as_str(), Column { kind, values })
        });
        let has_value = |column: &Column<'_>| column.values.iter().any(|value| !value.is_nan());
        columns.filter(|(_, column)| has_value(column)).collect()
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
    use sluice_router::process::watch::{PortSample, Sojourn};

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
        assert_eq!((point.backlog_packets, point.sojourn.p99_ms), (9.0, 9.0));
        assert_eq!((point.marked, point.sojourn.p50_ms), (10.0, 1.0));
        // The oldest minute of the last resolution: 1440 whole ones before the open one.
        let oldest = levels[2].points.front().unwrap().unix_ms;
        assert_eq!(oldest, (99_999 / 60 - 1440) * 60_000);
    }

    #[test]
    fn the_past_stays_in_the_past_when_the_clock_is_set_back() {
        let mut history = History::default();
        for second in 1000..1010 {
            // After five seconds, the clock is set back by 300 s.
            let shown = if second < 1005 { second } else { second - 300 };
            history.add(&Sample {
                interval_ns: 1_000_000_000,
                ..sample(shown, "pipe 1", second)
            });
        }
        let level = &history.series[0].levels[0];
        let points: Vec<(u64, f32)> = level
            .points
            .iter()
            .map(|point| (point.unix_ms, point.rate_bps))
            .collect();
        let expected = (1000..1009_u16).map(|s| (u64::from(s - 300) * 1000, f32::from(s)));
        assert_eq!(points, expected.collect::<Vec<_>>());
    }

    #[test]
    fn an_interval_in_which_no_packet_left_has_no_sojourn_time_and_no_weight() {
        let mut history = History::default();
        // Of 20 seconds, one has a packet that waited for 100 ms, and one has three that waited for
        // 20 ms: their mean is (100 + 3 * 20) / 4 ms = 40 ms.
        for second in 0..20 {
            let mut sample = sample(second, "pipe 1", 1);
            sample.ports.push(PortSample {
                name: "eth0".to_owned(),
                ..PortSample::default()
            });
            let traffic = &mut sample.objects[0].traffic;
            (traffic.packets, traffic.sojourn) = match second {
                13 => (1, Some(waited(100, 120))),
                17 => (3, Some(waited(20, 30))),
                _ => (0, None),
            };
            history.add(&sample);
        }
        let json = answer(&history);
        let of = |name: &str, step_ms: u64| {
            let all = json["series"].as_array().unwrap();
            let is_it = |series: &&serde_json::Value| {
                series["name"] == name && series["step_ms"] == step_ms
            };
            all.iter().find(is_it).unwrap()
        };
        let fine = of("pipe 1", 1_000);
        for (column, values) in [("p50_ms", [100.0, 20.0]), ("p99_ms", [120.0, 30.0])] {
            let column = fine[column].as_array().unwrap();
            assert_eq!(column.len(), 20);
            assert_eq!([&column[13], &column[17]], values);
            let gaps = column.iter().filter(|value| value.is_null());
            assert_eq!(gaps.count(), 18);
        }
        let coarse = of("pipe 1", 10_000);
        assert_eq!(coarse["p50_ms"], serde_json::json!([null, 40.0]));
        assert_eq!(coarse["p99_ms"], serde_json::json!([null, 120.0]));
        // No packet waits in a port.
        assert_eq!(
            of("port eth0", 10_000)["p50_ms"],
            serde_json::json!([null, null])
        );
    }

    fn waited(p50_ms: u64, p99_ms: u64) -> Sojourn {
        Sojourn {
            p50_ns: p50_ms * 1_000_000,
            p99_ns: p99_ms * 1_000_000,
            ..Sojourn::default()
        }
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

    fn with_state(second: u64, variables: &[(&str, &str, f64)]) -> Sample {
        let mut sample = sample(second, "pipe 1", 1);
        for (name, kind, value) in variables {
            let object = &mut sample.objects[0];
            object.state.insert((*name).to_owned(), *value);
            object
                .state_kinds
                .insert((*name).to_owned(), (*kind).to_owned());
        }
        sample
    }

    fn answer(history: &History) -> serde_json::Value {
        serde_json::from_str(&history.json()).unwrap()
    }

    #[test]
    fn the_state_of_the_algorithm_has_a_column_for_each_variable() {
        let mut history = History::default();
        for second in 0..20 {
            let mut variables = vec![("count", "count", second as f64)];
            if second >= 15 {
                variables.push(("drop_next", "instant", 5e6));
            }
            history.add(&with_state(second, &variables));
        }
        let json = answer(&history);
        let fine = &json["series"][0]["state"]["drop_next"];
        assert_eq!(fine["kind"], "instant");
        let values = fine["values"].as_array().unwrap();
        assert_eq!(values.iter().filter(|value| value.is_null()).count(), 15);
        assert_eq!(values[19], 5e6);
        // Ten seconds per point: the largest value, or the only ones.
        let coarse = &json["series"][1]["state"];
        assert_eq!(coarse["count"]["values"], serde_json::json!([9.0, 19.0]));
        assert_eq!(
            coarse["drop_next"]["values"],
            serde_json::json!([null, 5e6])
        );
    }

    #[test]
    fn the_variables_of_another_algorithm_take_the_room_of_old_ones() {
        let mut history = History::default();
        let names: Vec<String> = (0..MOST_VARIABLES).map(|n| format!("old {n}")).collect();
        let old: Vec<(&str, &str, f64)> =
            names.iter().map(|n| (n.as_str(), "count", 1.0)).collect();
        history.add(&with_state(0, &old));
        // One of them remains in use.
        history.add(&with_state(
            1,
            &[("new", "ratio", 0.5), ("old 0", "count", 2.0)],
        ));
        let json = answer(&history);
        let state = json["series"][0]["state"].as_object().unwrap();
        assert_eq!(state.len(), MOST_VARIABLES);
        assert_eq!(state["new"]["values"], serde_json::json!([null, 0.5]));
        assert_eq!(state["old 0"]["values"], serde_json::json!([1.0, 2.0]));
        // More variables than columns: those that find room are kept.
        let more: Vec<String> = (0..20).map(|n| format!("more {n}")).collect();
        let more: Vec<(&str, &str, f64)> =
            more.iter().map(|n| (n.as_str(), "count", 1.0)).collect();
        history.add(&with_state(2, &more));
        let json = answer(&history);
        let state = json["series"][0]["state"].as_object().unwrap();
        assert_eq!(state.len(), MOST_VARIABLES);
        assert!(state.keys().all(|name| name.starts_with("more")));
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
