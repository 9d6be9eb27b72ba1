//! Traffic: the keys of all flows, and the types of flow.
//!
//! A type of flow has two files and one line in `flow_types!` below. The file here declares the
//! language: keys, names of figures, and the facts that recordings and reports depend on. The other
//! half, in the laboratory's `flow` folder, runs the type on both backends; without it the
//! laboratory does not compile. No other code distinguishes types of flow.

use std::collections::BTreeMap;

use sluice_core::{Bytes, Span};

use super::error::{Problem, Problems};
use super::field::{Dscp, Name, Word};
use super::schema::{KeyDecl, Keys, Section, beyond_defaults, items, keys, names};
use super::source::Place;
use super::tree::{Node, Table, Value};
use super::words::{Direction, TcpEcn};

keys! {
    /// The keys that all types of flow have.
    pub struct FlowKeys {
        /// name in tables and charts; without it the type: `tcp`, or `tcp1`, `tcp2` for several
        name: Option<Name>;
        /// number of flows; they are named `NAME-1`, `NAME-2` ...
        count: u64 = 1, 1 => 10_000;
        /// time between the starts of two of these flows; each stops later by the same time, but
        /// not after the end of the run
        stagger: Span = Span::ZERO;
        /// `up`, from host `h2` to host `h3`, or `down`; `both` makes a flow in each direction,
        /// `NAME-up` and `NAME-down`, such as the two of a call
        direction: Direction = Direction::Up;
        /// start of the flow
        start: Span = Span::ZERO;
        /// end of the flow; the end of the run if it is not given
        stop: Option<Span>;
        /// round-trip time of the flow's own empty path, instead of the link's and not below it
        rtt: Option<Span>, Span::ZERO => Span::from_secs(120);
        /// first and last link that the flow passes, in the order of the path up: `[link]` is 1,
        /// the first `[[hop]]` is 2; all links if it is not given
        hops: Option<Hops>;
        /// host of the flow on the side where flows in the direction `up` start, from 1 to `up` in
        /// `[hosts]`
        host_up: u64 = 1, 1 => 100;
        /// host of the flow on the other side, from 1 to `down` in `[hosts]`
        host_down: u64 = 1, 1 => 100;
        /// class of the flow's packets, for a queue with classes such as `prio`
        class: u64 = 0, 0 => 65_535;
    }
}

/// The declarations of a type of flow.
pub(crate) trait FlowType: Keys {
    /// One sentence for the reference.
    const DOC: &'static str;
    /// The names of its figures, from [`crate::metric::FLOW_METRICS`].
    const METRICS: &'static [&'static str];
    /// The content of its rows in a recording.
    const MEASURED: Measured;
    /// Series in flent's format.
    const FLENT: FlentSeries;

    /// Describes its settings in a few words, for the description of a run.
    fn describe(&self) -> String;

    /// The transfer on its connection, for a type with one connection at a time.
    fn transfer(&self) -> Option<TransferSettings> {
        None
    }

    /// The initial window of its connections in segments, if it is set.
    fn initial_window(&self) -> Option<u64> {
        None
    }

    /// The number of flows, if the type itself determines it.
    fn own_count(&self) -> Option<u64> {
        None
    }

    /// Congestion control and ECN of its connections, if it has any.
    fn tcp(&self) -> Option<(&Word, TcpEcn)> {
        None
    }

    /// Warnings about settings that have no effect.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// The codepoint of its packets.
    fn dscp(&self) -> Dscp;

    /// The place of its main key as `file:line:column`, for errors of a run.
    fn place(&self) -> Option<&str> {
        None
    }

    /// Whether a live run recognises its packets by the addresses of hosts, because nothing else is
    /// known about them.
    fn has_own_addresses(&self) -> bool {
        false
    }

    /// Whether it is a program from outside the scenario, which may differ between two runs.
    fn is_program(&self) -> bool {
        false
    }

    /// Figures that its settings declare.
    fn figures(&self) -> &[OwnFigure] {
        &[]
    }

    /// Reports keys that are valid by themselves, but not together.
    fn check(&self, table: &Table, section: &Section, problems: &mut Problems) -> bool {
        let _ = (table, section, problems);
        true
    }
}

/// The content of a flow's rows in a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measured {
    /// Payload of connections over time.
    Connections,
    /// Payload of datagrams over time. The delay of the packets is measured at their queue.
    Datagrams,
    /// The delay of each packet or exchange.
    Delays,
    /// Nothing: there are no rows.
    Nothing,
}

/// One of the series that flent knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlentSeries {
    /// `TCP upload`: a bulk transfer.
    Tcp,
    /// `UDP upload`: datagrams without feedback.
    Udp,
    /// `Ping (ms)`: probes.
    Ping,
    /// `Ping (ms) TCP`: exchanges over a connection.
    TcpPing,
    /// `VoIP`: a call.
    Voip,
    /// `HTTP latency`: pages.
    Http,
    /// No such series.
    None,
}

/// The payload of a flow with one connection at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferSettings {
    /// Bytes of each transfer; `None` if the flow sends until it is stopped.
    pub bytes: Option<Bytes>,
    /// Whether transfers follow one another until the flow is stopped.
    pub repeats: bool,
}

/// A flow, or several equal ones.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// The name, unique in the scenario.
    pub name: String,
    /// The number of flows.
    pub count: u64,
    /// The direction of its payload.
    pub direction: Direction,
    /// Time between the starts of two of these flows.
    pub stagger: Span,
    /// The start of the first flow.
    pub start: Span,
    /// The end of the first flow.
    pub stop: Span,
    /// Round-trip time of the flow's empty path, if it differs from the link's.
    pub rtt: Option<Span>,
    /// The links that the flow passes; `None` for all.
    pub hops: Option<Hops>,
    /// The number of its host on the side where flows in the direction up start, from 1.
    pub host_up: u64,
    /// The number of its host on the other side, from 1.
    pub host_down: u64,
    /// The class of the flow's packets.
    pub class: u64,
    /// The type and its settings.
    pub kind: FlowKind,
    /// The settings of its TCP, if it has one.
    pub tcp: Option<TcpSettings>,
    /// Where the scenario has the flow and its keys.
    pub places: Places,
}

/// One single flow of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowInstance<'a> {
    /// The number in recordings, from 0.
    pub id: u32,
    /// The name: that of the flow, followed by a number if there are several.
    pub name: String,
    /// The flow.
    pub flow: &'a Flow,
    /// The index among the flows of this name, from 0.
    pub number: usize,
    /// The start.
    pub start: Span,
    /// The end, if the flow does not end by itself.
    pub stop: Span,
}

/// Passes every type of flow to the macro `$each`: the name of its module, and the type. This list
/// registers both halves of a type.
#[macro_export]
macro_rules! flow_types {
    ($each:ident) => {
        $each! {
            tcp::Tcp,
            udp::Udp,
            voip::Voip,
            ping::Ping,
            rr::Rr,
            web::Web,
            pcap::Pcap,
            command::Command,
        }
    };
}

macro_rules! declare {
    ($($module:ident::$type:ident,)+) => {
        $(mod $module; pub use $module::$type;)+

        /// The settings of every type.
        pub mod types {
            pub use super::{$($type),+};
        }

        /// A type of flow with its settings.
        #[derive(Clone, Debug, PartialEq)]
        pub enum FlowKind {
            $(#[doc = concat!("`type = \"", stringify!($module), "\"`")] $type($type),)+
        }

        impl FlowKind {
            /// The words for `type`.
            pub const TYPES: &'static [&'static str] = &[$(stringify!($module)),+];

            /// Returns the word for `type`.
            pub const fn type_name(&self) -> &'static str {
                match self { $(FlowKind::$type(_) => stringify!($module),)+ }
            }

            /// Returns the codepoint of its packets.
            pub fn dscp(&self) -> Dscp {
                match self { $(FlowKind::$type(flow) => FlowType::dscp(flow),)+ }
            }

            /// Returns the names of its figures.
            pub fn metrics(&self) -> &'static [&'static str] {
                match self { $(FlowKind::$type(_) => $type::METRICS,)+ }
            }

            /// Returns the content of its rows in a recording.
            pub const fn measured(&self) -> Measured {
                match self { $(FlowKind::$type(_) => $type::MEASURED,)+ }
            }

            /// Returns its series in flent's format.
            pub const fn flent(&self) -> FlentSeries {
                match self { $(FlowKind::$type(_) => $type::FLENT,)+ }
            }

            fn describe(&self) -> String {
                match self { $(FlowKind::$type(flow) => flow.describe(),)+ }
            }

            /// Returns the transfer on its connection, if it has one connection at a time.
            pub fn transfer(&self) -> Option<TransferSettings> {
                match self { $(FlowKind::$type(flow) => flow.transfer(),)+ }
            }

            /// Returns the initial window of its connections in segments, if it is set.
            pub fn initial_window(&self) -> Option<u32> {
                let segments = match self {
                    $(FlowKind::$type(flow) => FlowType::initial_window(flow),)+
                };
                segments.map(|segments| segments as u32)
            }

            /// Returns congestion control and ECN of its connections, if it has any.
            pub fn tcp(&self) -> Option<(&Word, TcpEcn)> {
                match self { $(FlowKind::$type(flow) => FlowType::tcp(flow),)+ }
            }

            /// Returns warnings about settings that have no effect.
            pub fn warnings(&self) -> Vec<String> {
                match self { $(FlowKind::$type(flow) => FlowType::warnings(flow),)+ }
            }

            /// Returns the place of its main key as `file:line:column`, for errors of a run.
            pub fn place(&self) -> Option<&str> {
                match self { $(FlowKind::$type(flow) => flow.place(),)+ }
            }

            /// Returns whether a live run recognises its packets by the addresses of hosts.
            pub fn has_own_addresses(&self) -> bool {
                match self { $(FlowKind::$type(flow) => flow.has_own_addresses(),)+ }
            }

            /// Returns whether it is a program from outside the scenario, which may differ between two
            /// runs.
            pub fn is_program(&self) -> bool {
                match self { $(FlowKind::$type(flow) => flow.is_program(),)+ }
            }

            /// Returns the figures that its settings declare.
            pub fn figures(&self) -> &[OwnFigure] {
                match self { $(FlowKind::$type(flow) => FlowType::figures(flow),)+ }
            }

            fn own_count(&self) -> Option<u64> {
                match self { $(FlowKind::$type(flow) => flow.own_count(),)+ }
            }

            fn read(
                type_name: &str,
                table: &Table,
                section: &Section,
                problems: &mut Problems,
            ) -> Option<FlowKind> {
                match type_name {
                    $(stringify!($module) => {
                        let flow = $type::read(table, section, problems)?;
                        let is_right = flow.check(table, section, problems);
                        is_right.then_some(FlowKind::$type(flow))
                    })+
                    _ => None,
                }
            }

            fn write(&self, table: &mut Table) {
                match self { $(FlowKind::$type(flow) => flow.write(table),)+ }
            }
        }

        /// Type, documentation, keys and metrics of every type.
        pub(crate) const TYPES: &[(&str, &str, &[KeyDecl], &[&str])] = &[
            $((stringify!($module), $type::DOC, $type::KEYS, $type::METRICS),)+
        ];
    };
}

mod hops;
mod naming;
mod places;
mod report;
mod settings;

pub use hops::Hops;
use naming::{RESERVED, is_of_hop};
pub(crate) use naming::{instance_names, name_all};
pub use pcap::PcapPacket;
pub use places::Places;
pub use report::OwnFigure;
pub use settings::TcpSettings;
pub use web::ObjectSize;

flow_types!(declare);

/// The segments of 1448 bytes that fit into 65535 bytes, the largest window without scaling.
const MOST_OFFERED: u32 = 65_535 / 1448;

impl FlowKind {
    /// Returns whether the flow ends by itself.
    pub fn is_sized(&self) -> bool {
        let sized = |transfer: TransferSettings| transfer.bytes.is_some() && !transfer.repeats;
        self.transfer().is_some_and(sized)
    }

    /// Returns whether the flow is bulk TCP: it sends as much as it can for as long as it lasts.
    pub fn is_bulk(&self) -> bool {
        self.transfer()
            .is_some_and(|transfer| transfer.bytes.is_none())
    }
}

impl Flow {
    /// Describes all settings that determine its traffic, without its name, its number and its times:
    /// those of its type in a few words, and every other key that is not at its default.
    pub fn describe(&self) -> String {
        const NAMED: &[&str] = &["name", "count", "direction", "start", "stop"];
        let own = self.kind.describe();
        let tcp = self.tcp.as_ref();
        let tcp = tcp.map_or(String::new(), |tcp| beyond_defaults(tcp, &[]));
        own + &tcp + &beyond_defaults(&self.keys(), NAMED)
    }

    /// Returns how long each flow lasts, unless the run ends before.
    pub fn life(&self) -> Span {
        self.stop.saturating_sub(self.start)
    }

    /// Returns `file:line:column` of the flow's main key, or of the flow, for errors of a run.
    pub fn place(&self) -> Option<&str> {
        self.kind.place().or(self.places.first(&[]))
    }

    /// Returns warnings about settings that have no effect.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = self.kind.warnings();
        if let Some(segments) = self.kind.initial_window().filter(|n| *n > MOST_OFFERED) {
            warnings.push(format!(
                "`initial_window` {segments} acts like {MOST_OFFERED}: the window of a SYN-ACK is not \
                 scaled, so that a receiver offers 65535 bytes at most before the first \
                 acknowledgement (RFC 7323, 2.2)"
            ));
        }
        if let (Some(settings), Some((cc, ecn))) = (&self.tcp, self.kind.tcp()) {
            warnings.extend(settings.warnings(cc, ecn));
        }
        warnings
    }

    /// Returns the starts of the flows.
    fn starts(&self) -> impl Iterator<Item = Span> + '_ {
        let shift = |n| Span::from_ns(self.stagger.as_ns().saturating_mul(n));
        (0..self.count).map(move |n| self.start.saturating_add(shift(n)))
    }

    /// Returns every single flow: name, start and end in a run of `duration`.
    pub(crate) fn instances(
        &self,
        duration: Span,
    ) -> impl Iterator<Item = (String, Span, Span)> + '_ {
        instance_names(self)
            .zip(self.starts())
            .map(move |(name, start)| {
                let stop = start.saturating_add(self.life()).min(duration);
                (name, start, stop)
            })
    }

    fn read(node: &Node, duration: Span, problems: &mut Problems) -> Option<Flow> {
        let Some(table) = node.as_table() else {
            let message = format!("a flow is a table, not {}", node.value.kind());
            return problems
                .refuse(Problem::new(node.at.clone(), message).hint("write it as [[flow]]"));
        };
        let mut section = Section::new("[[flow]]", node.at.clone());
        let Some((type_name, declared)) = read_type(table, &section, problems) else {
            // Without the type only the common keys can be checked.
            FlowKeys::read(table, &section, problems);
            return None;
        };
        section.name = format!("a flow of type `{type_name}`");
        // A type with a congestion control uses TCP.
        let is_tcp = names(declared).any(|name| name == "cc");
        let of_tcp = if is_tcp { TcpSettings::KEYS } else { &[] };
        let known: Vec<&str> = ["type"]
            .into_iter()
            .chain(names(FlowKeys::KEYS))
            .chain(names(declared))
            .chain(names(of_tcp))
            .collect();
        section.check_keys(table, &known, problems);
        let common = FlowKeys::read(table, &section, problems);
        let kind = FlowKind::read(type_name, table, &section, problems);
        let settings = is_tcp.then(|| TcpSettings::read(table, &section, problems));
        let (common, kind) = (common?, kind?);
        let tcp = match (settings, kind.tcp()) {
            (Some(settings), Some((cc, _))) => {
                let settings = settings?;
                let is_right = settings.check(cc, table, problems);
                Some(is_right.then_some(settings)?)
            }
            _ => None,
        };
        let flow = Flow {
            name: common.name.expect("flows are named before they are read").0,
            count: kind.own_count().unwrap_or(common.count),
            direction: common.direction,
            stagger: common.stagger,
            start: common.start,
            stop: common.stop.unwrap_or(duration),
            rtt: common.rtt,
            hops: common.hops,
            host_up: common.host_up,
            host_down: common.host_down,
            class: common.class,
            kind,
            tcp,
            places: Places::of(node, table, problems),
        };
        flow.check_times(table, duration, problems).then_some(flow)
    }

    fn check_times(&self, table: &Table, duration: Span, problems: &mut Problems) -> bool {
        let place = |key| {
            table
                .node(key)
                .map_or(Place::Nowhere, |node| node.at.clone())
        };
        let last = self.starts().last().unwrap_or(self.start);
        let problem = if self.start < duration && last >= duration {
            Problem::new(
                place("stagger"),
                format!(
                    "the last of {} flows `{}` starts at {last}, after the end of the run",
                    self.count, self.name
                ),
            )
            .hint(format!("the run lasts {duration}"))
        } else if self.start >= duration {
            Problem::new(
                place("start"),
                format!(
                    "flow `{}` starts at {}, after the end of the run",
                    self.name, self.start
                ),
            )
            .hint(format!("the run lasts {duration}"))
        } else if self.stop > duration {
            Problem::new(
                place("stop"),
                format!(
                    "flow `{}` stops at {}, after the end of the run",
                    self.name, self.stop
                ),
            )
            .hint(format!("the run lasts {duration}"))
        } else if self.stop <= self.start {
            Problem::new(
                place("stop"),
                format!(
                    "flow `{}` stops at {} before it starts",
                    self.name, self.stop
                ),
            )
            .hint(format!("it starts at {}", self.start))
        } else {
            return true;
        };
        problems.push(problem);
        false
    }

    fn write(&self) -> Table {
        let mut table = Table::default();
        table.push("type", Value::text(self.kind.type_name()));
        self.keys().write(&mut table);
        self.kind.write(&mut table);
        if let Some(settings) = &self.tcp {
            settings.write(&mut table);
        }
        table
    }

    fn keys(&self) -> FlowKeys {
        FlowKeys {
            name: Some(Name(self.name.clone())),
            count: self.count,
            direction: self.direction,
            stagger: self.stagger,
            start: self.start,
            stop: Some(self.stop),
            rtt: self.rtt,
            hops: self.hops,
            host_up: self.host_up,
            host_down: self.host_down,
            class: self.class,
        }
    }
}

fn read_type<'t>(
    table: &'t Table,
    section: &Section,
    problems: &mut Problems,
) -> Option<(&'t str, &'static [KeyDecl])> {
    let Some(node) = table.node("type") else {
        return problems.refuse(
            Problem::new(section.at.clone(), "a flow needs a `type`")
                .hint(format!("one of: {}", FlowKind::TYPES.join(", "))),
        );
    };
    let Value::Text(word) = &node.value else {
        return problems.refuse(super::field::wrong_type("type", node, "a string"));
    };
    let found = TYPES.iter().find(|(name, ..)| name == word);
    if found.is_none() {
        problems.push(
            Problem::new(node.at.clone(), format!("unknown type of flow `{word}`"))
                .nearest(word, FlowKind::TYPES.iter().copied()),
        );
    }
    found.map(|(_, _, keys, _)| (word.as_str(), *keys))
}

/// Reads all flows; returns none if one of them has an error.
pub(crate) fn read_all(root: &Table, duration: Span, problems: &mut Problems) -> Option<Vec<Flow>> {
    let mut flows: Vec<Flow> = Vec::new();
    let mut is_right = true;
    let mut names: BTreeMap<String, Place> = BTreeMap::new();
    for node in items("flow", root, problems)? {
        let Some(flow) = Flow::read(node, duration, problems) else {
            is_right = false;
            continue;
        };
        let at = node
            .as_table()
            .and_then(|table| table.node("name"))
            .map_or(Place::Nowhere, |name| name.at.clone());
        // The figures of several flows have the name that they share. All flows in a direction may share
        // its name.
        let shared = (flow.count > 1).then(|| flow.name.clone());
        // Older programs accepted such names, and their recordings stay readable.
        if !problems.is_recording() && is_of_hop(&flow.name, root) {
            let message = format!("a flow cannot be named `{}`", flow.name);
            let hint = "that is the name of a direction of a [[hop]]";
            problems.push(Problem::new(at.clone(), message).hint(hint));
        }
        for name in shared.iter().cloned().chain(instance_names(&flow)) {
            if RESERVED.contains(&name.as_str()) && shared.as_ref() != Some(&name) {
                let message = format!("a flow cannot be named `{name}`");
                let hint = format!("reserved names: {}", RESERVED.join(", "));
                problems.push(Problem::new(at.clone(), message).hint(hint));
            }
            if let Some(first) = names.get(&name) {
                problems.push(
                    Problem::new(at.clone(), format!("two flows are named `{name}`"))
                        .other(first.clone(), "the first is named"),
                );
                break;
            }
            names.insert(name, at.clone());
        }
        flows.push(flow);
    }
    is_right.then_some(flows)
}

pub(crate) fn write_all(flows: &[Flow], root: &mut Table) {
    if !flows.is_empty() {
        let tables = flows.iter().map(|f| Value::Table(f.write()).into());
        root.push("flow", Value::Array(tables.collect()));
    }
}

/// Returns the types of flow that have a figure of this name.
pub(crate) fn flow_types_with(metric: &str) -> Vec<&'static str> {
    let with = TYPES
        .iter()
        .filter(|(_, _, _, metrics)| metrics.contains(&metric));
    with.map(|(name, ..)| *name).collect()
}
