//! The tests of flent as which a run can appear, and the names of its flows in them.

use std::collections::{BTreeMap, BTreeSet};

use sluice_scenario::{Direction, FlentSeries, Flow, FlowInstance};

/// A test of flent as which a run can appear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Test {
    word: &'static str,
    streams: Streams,
    /// The flows that a run must have: TCP flows up, down, and others.
    needs: Needs,
}

/// The names of TCP flows in a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Streams {
    /// By their class: `TCP upload BK`.
    Classes,
    /// `TCP upload BE`, `TCP upload BE2` ...
    BestEffort,
    /// `TCP upload BE::1` ...
    Numbers(&'static str),
    /// By the host at the far end; here by the name of the flow.
    Hosts,
    /// `TCP upload`, a single one.
    Single,
}

/// The parts of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    Classes,
    FourEachWay,
    Both,
    Up,
    Down,
    OneUp,
    OneDown,
    OneEachWay,
    OwnRtts,
    Call,
    CallOneUp,
    Pages,
    PagesOneUp,
    Datagrams,
    Nothing,
}

/// The reason why a run cannot be exported as a test.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TestError {
    /// There is no such test.
    #[error(
        "`{word}` is not a test of flent to which runs can be exported; expected one of: {}",
        Test::words()
    )]
    Unknown {
        /// The requested name.
        word: String,
    },
    /// The run does not have the flows of the test.
    #[error("the run cannot be shown as flent's `{test}`: {reason}")]
    Unlike {
        /// The requested name.
        test: &'static str,
        /// The part of the test that the run lacks.
        reason: &'static str,
    },
}

const fn test(word: &'static str, streams: Streams, needs: Needs) -> Test {
    Test {
        word,
        streams,
        needs,
    }
}

/// The tests, in the order in which a run is compared with them: the first test that the run
/// resembles is the default. Each test after `ping` has fewer plots than an earlier one, and must
/// be requested.
const TESTS: [Test; 18] = [
    test("rrul", Streams::Classes, Needs::Classes),
    test("rtt_fair_var", Streams::Hosts, Needs::OwnRtts),
    test("rrul_be", Streams::BestEffort, Needs::FourEachWay),
    test("rrul_be_nflows", Streams::Numbers(" BE"), Needs::Both),
    test("voip-1up", Streams::Single, Needs::CallOneUp),
    test("http-1up", Streams::Single, Needs::PagesOneUp),
    test("tcp_nup", Streams::Numbers(""), Needs::Up),
    test("tcp_ndown", Streams::Numbers(""), Needs::Down),
    test("voip", Streams::Numbers(""), Needs::Call),
    test("http", Streams::Numbers(""), Needs::Pages),
    test("udp_flood", Streams::Numbers(""), Needs::Datagrams),
    test("ping", Streams::Numbers(""), Needs::Nothing),
    test("rtt_fair", Streams::Hosts, Needs::OwnRtts),
    test("tcp_1up", Streams::Single, Needs::OneUp),
    test("tcp_upload", Streams::Single, Needs::OneUp),
    test("tcp_1down", Streams::Single, Needs::OneDown),
    test("tcp_download", Streams::Single, Needs::OneDown),
    test("tcp_bidirectional", Streams::Single, Needs::OneEachWay),
];

impl Test {
    /// Returns the name in flent.
    pub const fn word(self) -> &'static str {
        self.word
    }

    pub(super) const fn streams(self) -> Streams {
        self.streams
    }

    fn words() -> String {
        TESTS.map(Test::word).join(", ")
    }

    /// Returns the test of that name.
    ///
    /// # Errors
    /// There is no such test.
    pub fn from_word(word: &str) -> Result<Test, TestError> {
        let found = TESTS.into_iter().find(|test| test.word == word);
        found.ok_or_else(|| TestError::Unknown { word: word.into() })
    }

    /// Returns the test that `flows` resemble.
    pub fn of(flows: &[Flow]) -> Test {
        let found = TESTS.into_iter().find(|test| test.check(flows).is_ok());
        found.expect("every run resembles `ping`")
    }

    /// Returns whether a run with `flows` has the series that the test's plots need.
    pub(super) fn check(self, flows: &[Flow]) -> Result<(), TestError> {
        let tcp = |direction| -> u64 {
            let of_it = flows.iter().filter(|f| f.direction == direction);
            let of_it = of_it.filter(|f| f.kind.flent() == FlentSeries::Tcp);
            of_it.map(|f| f.count).sum()
        };
        let (up, down) = (tcp(Direction::Up), tcp(Direction::Down));
        let has = |series| flows.iter().any(|flow| flow.kind.flent() == series);
        let call = has(FlentSeries::Voip);
        let pages = has(FlentSeries::Http);
        let one_up = (up, down) == (1, 0);
        let (is_like, reason) = match self.needs {
            Needs::Classes => (
                has_classes(flows),
                "it has a TCP flow in each of the classes CS0, CS1, CS5 and EF, both ways",
            ),
            Needs::FourEachWay => ((up, down) == (4, 4), "it has four TCP flows each way"),
            Needs::Both => (up > 0 && down > 0, "it has TCP both ways"),
            Needs::Up => (up > 0, "it has TCP up"),
            Needs::Down => (down > 0, "it has TCP down"),
            Needs::OneUp => (up == 1, "it has one TCP flow up"),
            Needs::OneDown => (down == 1, "it has one TCP flow down"),
            Needs::OneEachWay => ((up, down) == (1, 1), "it has one TCP flow each way"),
            Needs::OwnRtts => (
                own_rtts(flows) > 1,
                "it has TCP flows with different `rtt` of their own",
            ),
            Needs::Call => (call, "it has a call"),
            Needs::CallOneUp => (call && one_up, "it has a call and one TCP flow up"),
            Needs::Pages => (pages, "it has pages"),
            Needs::PagesOneUp => (pages && one_up, "it has pages and one TCP flow up"),
            Needs::Datagrams => (has(FlentSeries::Udp), "it has UDP"),
            Needs::Nothing => (true, ""),
        };
        let test = self.word;
        let unlike = TestError::Unlike { test, reason };
        is_like.then_some(()).ok_or(unlike)
    }
}

/// Returns the number of different round-trip times that TCP flows set.
fn own_rtts(flows: &[Flow]) -> usize {
    let tcp = flows.iter().filter(|f| f.kind.flent() == FlentSeries::Tcp);
    let rtts: BTreeSet<_> = tcp.filter_map(|flow| flow.rtt).collect();
    rtts.len()
}

/// Whether there is one TCP flow of each of rrul's classes each way.
fn has_classes(flows: &[Flow]) -> bool {
    [Direction::Up, Direction::Down]
        .into_iter()
        .all(|direction| {
            let of_it = flows.iter().filter(|f| f.direction == direction);
            let mut classes: Vec<&str> = of_it
                .filter(|f| f.kind.flent() == FlentSeries::Tcp && f.count == 1)
                .filter_map(class)
                .collect();
            classes.sort_unstable();
            classes == ["BE", "BK", "CS5", "EF"]
        })
}

/// Returns the name of the class of a flow's packets in rrul.
fn class(flow: &Flow) -> Option<&'static str> {
    match flow.kind.dscp().value() {
        0 => Some("BE"),
        8 => Some("BK"),
        40 => Some("CS5"),
        46 => Some("EF"),
        _ => None,
    }
}

/// Returns the series of each flow; `None` for a flow without a series in flent.
pub(super) fn series_names(instances: &[FlowInstance<'_>], test: Test) -> Vec<Option<String>> {
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    let mut number = |stem: &str| {
        let count = seen.entry(stem.to_owned()).or_default();
        *count += 1;
        *count
    };
    let way = |flow: &Flow| match flow.direction {
        Direction::Up => "upload",
        Direction::Down => "download",
    };
    let name = |instance: &FlowInstance<'_>| {
        let flow = instance.flow;
        // The first of a kind has no suffix.
        let mut first_or = |stem: String, other: String| match number(&stem) {
            1 => stem,
            _ => other,
        };
        match flow.kind.flent() {
            FlentSeries::Tcp => {
                let stem = format!("TCP {}", way(flow));
                Some(match test.streams() {
                    Streams::Classes => format!("{stem} {}", class(flow)?),
                    Streams::BestEffort => match number(&stem) {
                        1 => format!("{stem} BE"),
                        n => format!("{stem} BE{n}"),
                    },
                    Streams::Numbers(word) => format!("{stem}{word}::{}", number(&stem)),
                    Streams::Hosts => format!("{stem} BE {}", instance.name),
                    Streams::Single => {
                        let other = format!("{stem} {}", instance.name);
                        first_or(stem, other)
                    }
                })
            }
            FlentSeries::Ping => {
                let class = class(flow).unwrap_or("BE");
                let is_first = class == "BE" && number("probe") == 1;
                let stem = match test.word() {
                    _ if is_first => return Some("Ping (ms) ICMP".to_owned()),
                    "ping" => "Ping (ms) UDP".to_owned(),
                    "rrul_be" => {
                        let n = number("best effort");
                        return Some(format!("Ping (ms) UDP BE{n}"));
                    }
                    _ => format!("Ping (ms) UDP {class}"),
                };
                Some(match number(&stem) {
                    1 => stem,
                    n => format!("{stem}::{n}"),
                })
            }
            FlentSeries::Voip => {
                let other = format!("VoIP {}", instance.name);
                Some(first_or("VoIP".to_owned(), other))
            }
            FlentSeries::Http => {
                let other = format!("HTTP latency {}", instance.name);
                Some(first_or("HTTP latency".to_owned(), other))
            }
            FlentSeries::Udp => {
                let stem = format!("UDP {}", way(flow));
                let other = format!("{stem} {}", instance.name);
                Some(first_or(stem, other))
            }
            FlentSeries::TcpPing => Some(format!("Ping (ms) TCP {}", instance.name)),
            FlentSeries::None => None,
        }
    };
    instances.iter().map(name).collect()
}
