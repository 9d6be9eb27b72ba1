//! Pages over short TCP connections.

use sluice_core::param::Ratio;
use sluice_core::{Bytes, Span, traffic};

use super::super::error::{Problem, Problems};
use super::super::field::{Dscp, Word};
use super::super::schema::{Field, beyond_defaults, keys};
use super::super::tree::{Node, Table, Value};
use super::super::words::TcpEcn;
use super::{FlentSeries, FlowType, Measured};

keys! {
    /// Pages over short TCP connections, requested at the instants of a Poisson process.
    pub struct Web {
        /// mean time between two pages
        interval: Span, Span::from_us(10) => Span::from_secs(3600);
        /// number of connections opened at once for a page, each for one object
        objects: u64 = 6, 1 => 1000;
        /// size of an object: a constant, `{ mean = "20kB" }` for an exponential distribution, or
        /// `{ min = "4kB", max = "2MB", shape = 1.2 }` for a Pareto distribution
        size: ObjectSize = ObjectSize::default();
        /// bytes of a request
        request: Bytes = Bytes::new(350), Bytes::new(1) => Bytes::new(1 << 20);
        /// congestion control of both ends
        cc: Word = Word::new("cubic");
        /// segments that each end may send before the first acknowledgement; if it is not given,
        /// the congestion control decides: 10 (RFC 6928), `ledbat` 2. More than 45 have no effect: a
        /// SYN-ACK offers 65535 bytes at most (RFC 7323, 2.2)
        initial_window: Option<u64>, 1 => 1000;
        /// negotiate ECN (RFC 3168), or accurate ECN (RFC 9768)
        ecn: TcpEcn = TcpEcn::Off;
        /// codepoint of the packets: a number or a word such as `ef`
        dscp: Dscp = Dscp::default();
    }
}

impl FlowType for Web {
    const DOC: &'static str = "Pages over short TCP connections, requested at the instants of a \
        Poisson process, whether or not earlier pages have arrived. Objects go in the `direction`, \
        requests in the opposite one.";
    const METRICS: &'static [&'static str] = &[
        "goodput",
        "transfers",
        "fct.p50",
        "fct.p95",
        "fct.p99",
        "fct.max",
        "sojourn.p50",
        "sojourn.p95",
        "sojourn.p99",
        "sojourn.max",
        "drops",
        "marks",
    ];
    const MEASURED: Measured = Measured::Connections;
    const FLENT: FlentSeries = FlentSeries::Http;

    fn dscp(&self) -> Dscp {
        self.dscp
    }

    fn describe(&self) -> String {
        let others = beyond_defaults(self, &["interval", "objects"]);
        format!(
            "pages of {} objects every {} (Poisson){others}",
            self.objects, self.interval
        )
    }

    fn tcp(&self) -> Option<(&Word, TcpEcn)> {
        Some((&self.cc, self.ecn))
    }

    fn initial_window(&self) -> Option<u64> {
        self.initial_window
    }
}

/// The size of the objects of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectSize {
    /// The same size for all.
    Fixed(Bytes),
    /// An exponential distribution with this mean, at least one byte.
    Exponential {
        /// The mean.
        mean: Bytes,
    },
    /// A Pareto distribution, cut at a largest size.
    Pareto {
        /// The smallest size.
        min: Bytes,
        /// The largest size, to which larger draws are cut.
        max: Bytes,
        /// The tail index.
        shape: Ratio,
    },
}

impl Default for ObjectSize {
    /// Sizes on the web have a tail index of 1.2 (Crovella and Bestavros, 1997); 4 kB to 2 MB make
    /// a mean of 17 kB.
    fn default() -> Self {
        ObjectSize::Pareto {
            min: Bytes::new(4_000),
            max: Bytes::new(2_000_000),
            shape: Ratio::from_billionths(1_200_000_000),
        }
    }
}

impl From<ObjectSize> for traffic::ObjectSize {
    fn from(size: ObjectSize) -> Self {
        match size {
            ObjectSize::Fixed(bytes) => traffic::ObjectSize::Fixed(bytes.as_u64().max(1)),
            ObjectSize::Exponential { mean } => traffic::ObjectSize::Exponential(mean.as_u64()),
            ObjectSize::Pareto { min, max, shape } => {
                let thousandths = shape.as_billionths() / (Ratio::ONE.as_billionths() / 1000);
                traffic::ObjectSize::Pareto {
                    min: min.as_u64(),
                    shape_milli: u32::try_from(thousandths).unwrap_or(u32::MAX),
                    max: max.as_u64(),
                }
            }
        }
    }
}

impl Field for ObjectSize {
    type Scalar = std::convert::Infallible;
    const KIND: &'static str = "size or distribution";

    fn read(key: &str, node: &Node, problems: &mut Problems) -> Option<Self> {
        let Value::Table(table) = &node.value else {
            return Bytes::read(key, node, problems).map(ObjectSize::Fixed);
        };
        let mut size = |key| table.node(key).map(|node| Bytes::read(key, node, problems));
        let (mean, min, max) = (size("mean"), size("min"), size("max"));
        let shape = table
            .node("shape")
            .map(|node| Ratio::read("shape", node, problems));
        let found = match (mean, min, max, shape) {
            (Some(mean), None, None, None) => ObjectSize::Exponential { mean: mean? },
            (None, Some(min), Some(max), Some(shape)) => {
                let (min, max, shape) = (min?, max?, shape?);
                ObjectSize::Pareto { min, max, shape }
            }
            _ => {
                let message = format!("`{key}` as a table has other keys");
                return problems.refuse(Problem::new(node.at.clone(), message).hint(FORMS));
            }
        };
        let is_right = table.0.len() <= 3
            && match found {
                ObjectSize::Fixed(_) => true,
                ObjectSize::Exponential { mean } => mean > Bytes::ZERO && table.0.len() == 1,
                ObjectSize::Pareto { min, max, shape } => {
                    min > Bytes::ZERO && min <= max && shape >= Ratio::from_billionths(1_000_000)
                }
            };
        if !is_right {
            let message = format!("`{key}` is not a distribution of sizes");
            problems.push(
                Problem::new(node.at.clone(), message)
                    .hint("sizes above zero, `min` not above `max`, `shape` at least 0.001"),
            );
        }
        is_right.then_some(found)
    }

    fn write(&self) -> Option<Value> {
        let mut table = Table::default();
        match self {
            ObjectSize::Fixed(size) => return Some(Value::text(size)),
            ObjectSize::Exponential { mean } => table.push("mean", Value::text(mean)),
            ObjectSize::Pareto { min, max, shape } => {
                table.push("min", Value::text(min));
                table.push("max", Value::text(max));
                table.push("shape", Value::text(shape));
            }
        }
        Some(Value::Table(table))
    }
}

const FORMS: &str =
    "write \"20kB\", { mean = \"20kB\" } or { min = \"4kB\", max = \"2MB\", shape = 1.2 }";
