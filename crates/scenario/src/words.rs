//! Types whose values are written as words.

use std::convert::Infallible;
use std::fmt::{self, Display};

use super::error::{Problem, Problems};
use super::field::{read_text, wrong_type};
use super::schema::Field;
use super::tree::{Node, Value};

/// The direction in which packets pass the router.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    serde::Serialize,
    serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From host `h2` to host `h3`.
    #[default]
    Up,
    /// From host `h3` to host `h2`.
    Down,
}

/// One direction of one link of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PipeId {
    direction: Direction,
    /// The link, in the order of the path up, from 0.
    hop: u8,
}

impl PipeId {
    /// The largest number of links on a path.
    pub const MOST_HOPS: usize = 16;

    /// Returns `direction` of link `hop`, counted from 0 in the order of the path up.
    ///
    /// # Panics
    /// `hop` is not below [`PipeId::MOST_HOPS`].
    pub const fn new(direction: Direction, hop: usize) -> Self {
        assert!(hop < Self::MOST_HOPS, "a path has at most 16 links");
        PipeId {
            direction,
            hop: hop as u8,
        }
    }

    /// Returns the direction of its packets.
    pub const fn direction(self) -> Direction {
        self.direction
    }

    /// Returns the link's index, from 0.
    pub const fn hop(self) -> usize {
        self.hop as usize
    }

    /// Returns the name in figures and recordings: `up`; for the second link, `up2`.
    pub const fn word(self) -> &'static str {
        match self.direction {
            Direction::Up => UP_WORDS[self.hop as usize],
            Direction::Down => DOWN_WORDS[self.hop as usize],
        }
    }

    /// Returns the pipe that `word` names.
    pub fn from_word(word: &str) -> Option<Self> {
        let place = |words: &[&str]| words.iter().position(|w| *w == word);
        let up = place(&UP_WORDS).map(|hop| PipeId::new(Direction::Up, hop));
        up.or_else(|| place(&DOWN_WORDS).map(|hop| PipeId::new(Direction::Down, hop)))
    }
}

impl From<Direction> for PipeId {
    fn from(direction: Direction) -> Self {
        PipeId::new(direction, 0)
    }
}

impl PartialEq<Direction> for PipeId {
    fn eq(&self, other: &Direction) -> bool {
        *self == PipeId::from(*other)
    }
}

impl Display for PipeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

const UP_WORDS: [&str; PipeId::MOST_HOPS] = [
    "up", "up2", "up3", "up4", "up5", "up6", "up7", "up8", "up9", "up10", "up11", "up12", "up13",
    "up14", "up15", "up16",
];
const DOWN_WORDS: [&str; PipeId::MOST_HOPS] = [
    "down", "down2", "down3", "down4", "down5", "down6", "down7", "down8", "down9", "down10",
    "down11", "down12", "down13", "down14", "down15", "down16",
];

/// The backend of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// Virtual time.
    Sim,
    /// Network namespaces and the kernel's own TCP.
    Live,
}

/// One of the two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostWord {
    /// The host where flows in the direction up start.
    H2,
    /// The host where they end.
    H3,
}

/// The instants at which the packets of a UDP flow leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpacingWord {
    /// At equal intervals.
    Constant,
    /// At exponentially distributed intervals.
    Poisson,
    /// At equal intervals during a burst, followed by silence.
    OnOff,
    /// At equal intervals during bursts, with bursts and silences of random length.
    RandomOnOff,
}

impl SpacingWord {
    /// Returns whether there are bursts, with silence between them.
    pub const fn has_bursts(self) -> bool {
        matches!(self, SpacingWord::OnOff | SpacingWord::RandomOnOff)
    }
}

/// The protocol of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// An ICMP echo request, which the kernel answers.
    Icmp,
    /// A UDP datagram, which a program answers.
    Udp,
}

/// The unit in which CUBIC counts its growth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// Whole segments, as in Linux.
    Segments,
    /// Bytes, by the formulas of RFC 9438.
    Bytes,
}

/// The condition that ends slow start before the first loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlowStart {
    /// Reaching ssthresh (RFC 5681).
    Standard,
    /// A long train of ACKs or an increased RTT, as in Linux's CUBIC.
    Hystart,
    /// An increased RTT, followed by conservative slow start (RFC 9406).
    HystartPlusPlus,
}

/// A type whose values are words.
macro_rules! word_enum {
    ($type:ident, $kind:literal, $($variant:ident = $word:literal),+) => {
        impl $type {
            /// The word in files, tables and recordings.
            pub const fn word(self) -> &'static str {
                match self { $($type::$variant => $word),+ }
            }

            /// Returns the value that `word` names.
            pub fn from_word(word: &str) -> Option<Self> {
                match word { $($word => Some($type::$variant),)+ _ => None }
            }
        }

        impl Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.word())
            }
        }

        impl Field for $type {
            type Scalar = Infallible;
            const KIND: &'static str = $kind;

            fn read(key: &str, node: &Node, problems: &mut Problems) -> Option<Self> {
                let text = read_text(key, node, problems)?;
                let value = $type::from_word(text);
                if value.is_none() {
                    problems.push(
                        Problem::new(node.at.clone(), format!("`{key}` cannot be `{text}`"))
                            .nearest(text, [$($word),+]),
                    );
                }
                value
            }

            fn write(&self) -> Option<Value> {
                Some(Value::text(self))
            }
        }
    };
}

word_enum!(Direction, "`up` or `down`", Up = "up", Down = "down");
word_enum!(HostWord, "`h2` or `h3`", H2 = "h2", H3 = "h3");
word_enum!(Backend, "`sim` or `live`", Sim = "sim", Live = "live");

word_enum!(
    SpacingWord,
    "`constant`, `poisson`, `on_off` or `random_on_off`",
    Constant = "constant",
    Poisson = "poisson",
    OnOff = "on_off",
    RandomOnOff = "random_on_off"
);
word_enum!(Protocol, "`icmp` or `udp`", Icmp = "icmp", Udp = "udp");
word_enum!(
    Growth,
    "`segments` or `bytes`",
    Segments = "segments",
    Bytes = "bytes"
);
word_enum!(
    SlowStart,
    "`standard`, `hystart` or `hystart_plus_plus`",
    Standard = "standard",
    Hystart = "hystart",
    HystartPlusPlus = "hystart_plus_plus"
);

/// Use of explicit congestion notification by a TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpEcn {
    /// No ECN.
    Off,
    /// RFC 3168.
    On,
    /// Accurate ECN (RFC 9768).
    Accurate,
}

impl TcpEcn {
    /// Returns whether packets are marked instead of dropped.
    pub const fn is_on(self) -> bool {
        !matches!(self, TcpEcn::Off)
    }
}

impl Field for TcpEcn {
    type Scalar = Infallible;
    const KIND: &'static str = "`true`, `false` or `\"accurate\"`";

    fn read(key: &str, node: &Node, problems: &mut Problems) -> Option<Self> {
        match &node.value {
            Value::Bool(false) => Some(TcpEcn::Off),
            Value::Bool(true) => Some(TcpEcn::On),
            Value::Text(text) if text == "accurate" => Some(TcpEcn::Accurate),
            _ => problems.refuse(wrong_type(key, node, "true, false or \"accurate\"")),
        }
    }

    fn write(&self) -> Option<Value> {
        Some(match self {
            TcpEcn::Off => Value::Bool(false),
            TcpEcn::On => Value::Bool(true),
            TcpEcn::Accurate => Value::text("accurate"),
        })
    }
}
