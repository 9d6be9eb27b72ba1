//! Named links: `preset = "wpt/3g-fast"` in `[link]`.
//!
//! One row of [`PRESETS`] declares a link. The scenario's key, `sluice list links`, the error
//! messages and the reference page all read that table. A name begins with its source, since two
//! sources may mean different links by "3G"; one link of each kind also has a short name.
//!
//! Sources give rates, round trips and losses, but not the queue in front of the link. Each preset
//! has the FIFO that such equipment usually has, given as the time that it takes to drain. DSL
//! presets carry packets in ATM cells, as ADSL lines do.

use std::convert::Infallible;

use sluice_core::{Bytes, Rate, Span, spelling};

use crate::error::{Problem, Problems};
use crate::field::wrong_type;
use crate::schema::Field;
use crate::tree::{self, Node, Table, Value};
use crate::words::Direction;

/// A link with a name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Preset(&'static Declaration);

/// A row of [`PRESETS`].
#[derive(Debug, PartialEq)]
struct Declaration {
    /// The name in the source, other sources' names of the same link, and a short name.
    names: &'static [&'static str],
    source: &'static str,
    /// Rates towards the client, and away from it, in kbit/s. Several take turns.
    down: &'static [u64],
    up: &'static [u64],
    /// Round-trip times in ms. Several take turns.
    rtt: &'static [u64],
    /// Packets lost in each direction, in percent.
    loss: &'static str,
    /// The time that a full queue takes to drain, in ms.
    queue: u64,
    framing: Framing,
}

/// How a link carries packets.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Framing {
    /// Packets unchanged: the rate is that of IP packets.
    Ip,
    /// PPPoE over LLC in ATM cells; 40 bytes for each packet before it is cut into cells.
    Atm,
}

macro_rules! presets {
    ($($names:tt: $down:tt / $up:tt kbit/s, $rtt:tt ms, $loss:literal, fifo $queue:literal ms,
       $source:ident $(, $framing:ident)?;)+) => {
        /// Every named link, by its kind: dial-up and mobile, fixed lines, satellites.
        const PRESETS: &[Declaration] = &[$(Declaration {
            names: &$names,
            source: $source,
            down: &$down,
            up: &$up,
            rtt: &$rtt,
            loss: $loss,
            queue: $queue,
            framing: presets!(@framing $($framing)?),
        }),+];
    };
    (@framing) => { Framing::Ip };
    (@framing $framing:ident) => { Framing::$framing };
}
presets! {
    ["wpt/dial", "dial"]: [49] / [30] kbit/s, [120] ms, "0%", fifo 2000 ms, WPT;
    ["wpt/2g", "2g"]: [280] / [256] kbit/s, [800] ms, "0%", fifo 2000 ms, WPT;
    ["atc/2g-rural"]: [20] / [18] kbit/s, [1300] ms, "2%", fifo 2000 ms, ATC;
    ["wpt/edge", "atc/edge-average", "edge"]: [240] / [200] kbit/s, [840] ms, "0%", fifo 2000 ms, WPT;
    ["atc/edge-lossy"]: [240] / [200] kbit/s, [840] ms, "1%", fifo 2000 ms, ATC;
    ["wpt/3g-slow"]: [400] / [400] kbit/s, [400] ms, "0%", fifo 1000 ms, WPT;
    ["atc/3g-average"]: [780] / [330] kbit/s, [200] ms, "0%", fifo 1000 ms, ATC;
    ["lighthouse/3g"]: [700] / [700] kbit/s, [300] ms, "0%", fifo 1000 ms, LIGHTHOUSE;
    ["wpt/3g", "3g"]: [1600] / [768] kbit/s, [300] ms, "0%", fifo 1000 ms, WPT;
    ["wpt/3g-fast"]: [1600] / [768] kbit/s, [150] ms, "0%", fifo 1000 ms, WPT;
    ["devtools/slow-4g", "lighthouse/slow-4g"]: [1600] / [750] kbit/s, [150] ms, "0%", fifo 1000 ms, DEVTOOLS;
    ["devtools/fast-4g"]: [9000] / [1500] kbit/s, [60] ms, "0%", fifo 500 ms, DEVTOOLS;
    ["wpt/4g", "4g"]: [9000] / [9000] kbit/s, [170] ms, "0%", fifo 500 ms, WPT;
    ["wpt/lte", "lte"]: [12000] / [12000] kbit/s, [70] ms, "0%", fifo 500 ms, WPT;
    ["apple/lte"]: [50000] / [10000] kbit/s, [130] ms, "0%", fifo 500 ms, APPLE;
    ["apple/very-bad", "very-bad"]: [1000] / [1000] kbit/s, [1000] ms, "10%", fifo 1000 ms, APPLE;
    ["3gpp-sa4/urban-5g", "5g"]: [100000] / [100000] kbit/s, [40] ms, "0.1%", fifo 200 ms, SA4;
    ["3gpp-sa4/cell-edge"]: [5000] / [5000] kbit/s, [240] ms, "1%", fifo 200 ms, SA4;
    ["3gpp-sa4/congested"]: [1000] / [1000] kbit/s, [400] ms, "3%", fifo 200 ms, SA4;
    ["3gpp-sa4/satellite"]: [10000] / [10000] kbit/s, [1200] ms, "0.5%", fifo 200 ms, SA4;
    ["wpt/dsl", "dsl"]: [1500] / [384] kbit/s, [50] ms, "0%", fifo 1000 ms, WPT, Atm;
    ["atc/dsl"]: [2000] / [256] kbit/s, [10] ms, "0%", fifo 1000 ms, ATC, Atm;
    ["wpt/cable", "cable"]: [5000] / [1000] kbit/s, [28] ms, "0%", fifo 250 ms, WPT;
    ["atc/cable"]: [6000] / [1000] kbit/s, [4] ms, "0%", fifo 250 ms, ATC;
    ["wpt/fios", "fiber"]: [20000] / [5000] kbit/s, [4] ms, "0%", fifo 100 ms, WPT;
    ["lighthouse/desktop"]: [10240] / [10240] kbit/s, [40] ms, "0%", fifo 100 ms, LIGHTHOUSE;
    ["starlink"]: [
        178_000, 120_000, 230_000, 150_000, 205_000, 260_000, 96_000, 190_000, 140_000, 211_000
    ] / [
        17_000, 11_500, 22_000, 14_300, 19_600, 24_800, 9_200, 18_100, 13_400, 20_100
    ] kbit/s, [48, 38, 60, 44, 34, 66, 52, 40, 72, 56] ms, "0.5%", fifo 150 ms, STARLINK;
    ["geo"]: [100_000] / [10_000] kbit/s, [600] ms, "0%", fifo 500 ms, APNIC;
}

const WPT: &str = "WebPageTest's and sitespeed.io's connectivity profiles";
const ATC: &str = "Facebook's Augmented Traffic Control; its delays are per direction";
const DEVTOOLS: &str = "Chrome DevTools, nominal values: the browser multiplies them for requests";
const LIGHTHOUSE: &str = "Lighthouse, nominal values: it multiplies them for requests";
const APPLE: &str = "Apple's Network Link Conditioner, as other projects quote it";
const SA4: &str = "3GPP SA4, S4-260113: one rate for both directions, its one-way delay each way";
const STARLINK: &str = "APNIC, November 2022, and arXiv 2310.09242: mean rates 178 and 17 Mbit/s, round \
    trips of 50 ms with quartiles 40 and 60, a new rate and delay every 15 s; the spread of the \
    rates is ours";
const APNIC: &str = "APNIC, November 2022";

const DIRECTIONS: [Direction; 2] = [Direction::Down, Direction::Up];

/// The time for which each of several rates or delays applies: Starlink reassigns satellites every
/// 15 s.
const TURN: Span = Span::from_secs(15);

impl Preset {
    /// Returns every preset, in the order of the reference.
    pub fn all() -> impl Iterator<Item = Preset> {
        PRESETS.iter().map(Preset)
    }

    /// Returns the preset that is called `name`.
    ///
    /// ```
    /// use sluice_scenario::{Link, Preset};
    /// use sluice_core::Span;
    /// let link = Link::of(&Preset::find("lte").unwrap());
    /// assert_eq!(link.rtt(), Span::from_ms(70));
    /// assert!(Preset::find("letter").is_none());
    /// ```
    pub fn find(name: &str) -> Option<Preset> {
        Preset::all().find(|preset| preset.names().contains(&name))
    }

    /// Returns the name in the source.
    pub fn name(&self) -> &'static str {
        self.0.names[0]
    }

    /// Returns all names of the link: [`Preset::name`] first, a short name last.
    pub fn names(&self) -> &'static [&'static str] {
        self.0.names
    }

    /// Returns where the figures come from.
    pub fn source(&self) -> &'static str {
        self.0.source
    }

    /// Returns the link as the keys of a scenario, to be read, copied and changed.
    pub fn to_toml(&self) -> String {
        let mut link = Table::default();
        for direction in DIRECTIONS {
            link.push(direction.word(), Value::Table(self.keys(direction)));
        }
        let mut root = Table::default();
        root.push("link", Value::Table(link));
        tree::to_toml(&root)
    }

    /// Returns the mean rate of a direction.
    pub fn rate(&self, direction: Direction) -> Rate {
        let rates = self.rates(direction);
        Rate::from_bps(rates.iter().sum::<u64>() * 1000 / rates.len() as u64)
    }

    /// Returns the mean round-trip time of the empty link.
    pub fn rtt(&self) -> Span {
        Span::from_us(self.0.rtt.iter().sum::<u64>() * 1000 / self.0.rtt.len() as u64)
    }

    /// Returns the share of packets lost in each direction, such as `0.5%`.
    pub fn loss(&self) -> &'static str {
        self.0.loss
    }

    /// Returns the time that a full queue takes to drain.
    pub fn queue(&self) -> Span {
        Span::from_ms(self.0.queue)
    }

    /// Returns remarks: rates that change, and the framing.
    pub fn remarks(&self) -> String {
        let turns = (self.0.rtt.len() > 1).then(|| format!("changes every {TURN}"));
        let framing = (self.0.framing == Framing::Atm).then(|| "ATM cells".to_owned());
        let remarks: Vec<String> = turns.into_iter().chain(framing).collect();
        remarks.join(", ")
    }

    fn rates(&self, direction: Direction) -> &'static [u64] {
        match direction {
            Direction::Down => self.0.down,
            Direction::Up => self.0.up,
        }
    }

    /// Returns the keys of a direction for a table of the file, `shared`. An error about one of
    /// them points at the name of the preset there.
    pub(super) fn pipe(&self, direction: Direction, shared: &Table) -> Table {
        let at = shared.node("preset").map(|node| node.at.clone());
        let mut keys = self.keys(direction);
        for entry in &mut keys.0 {
            entry.key_at = at.clone().unwrap_or_default();
            entry.node.at.clone_from(&entry.key_at);
        }
        keys
    }

    fn keys(&self, direction: Direction) -> Table {
        let mut keys = Table::default();
        let rates = self
            .rates(direction)
            .iter()
            .map(|rate| Rate::from_bps(rate * 1000));
        keys.push("rate", constant_or_turns("rates", rates.collect()));
        // The way up has the odd nanosecond of an `rtt`; whole milliseconds have none.
        let delays = self.0.rtt.iter().map(|rtt| Span::from_us(rtt * 500));
        keys.push("delay", constant_or_turns("delays", delays.collect()));
        if self.0.loss != "0%" {
            keys.push("loss", Value::text(self.0.loss));
        }
        // bit/s times ms are thousandths of bits.
        let depth = Bytes::new(self.rate(direction).as_bps() * self.0.queue / 8000);
        let queue = format!("fifo limit unlimited limit_bytes {depth}");
        keys.push("queue", Value::Text(queue));
        if self.0.framing == Framing::Atm {
            keys.push("overhead", Value::Integer(40));
            keys.push("cells", Value::text("atm"));
        }
        keys
    }
}

/// Writes one value, or several that take turns.
fn constant_or_turns<T: std::fmt::Display>(name: &str, values: Vec<T>) -> Value {
    let [value] = values.as_slice() else {
        let mut table = Table::default();
        table.push("every", Value::text(TURN));
        let values = values.iter().map(|value| Value::text(value).into());
        table.push(name, Value::Array(values.collect()));
        return Value::Table(table);
    };
    Value::text(value)
}

impl Field for Preset {
    type Scalar = Infallible;
    const KIND: &'static str = "name of a link";

    fn read(key: &str, node: &Node, problems: &mut Problems) -> Option<Self> {
        let Value::Text(name) = &node.value else {
            problems.push(wrong_type(key, node, "the name of a link, such as \"lte\""));
            return None;
        };
        let found = Preset::find(name);
        if found.is_none() {
            let names = Preset::all().flat_map(|preset| preset.names().iter().copied());
            let hint = spelling::question(name, names)
                .unwrap_or_else(|| "`sluice list links` shows all".to_owned());
            let message = format!("no link is called `{name}`");
            problems.push(Problem::new(node.at.clone(), message).hint(hint));
        }
        found
    }

    /// A scenario is printed with the keys of the preset in its place.
    fn write(&self) -> Option<Value> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Link, Scenario};

    fn names() -> Vec<&'static str> {
        let names = Preset::all().flat_map(|preset| preset.names().iter().copied());
        names.collect()
    }

    fn scenario(link: &str) -> Result<Link, String> {
        let text = format!("duration = \"60s\"\n[link]\n{link}\n[[flow]]\ntype = \"ping\"\n");
        let variants = Scenario::parse("file.toml", &text, &[]);
        let mut variants = variants.map_err(|errors| errors.to_string())?;
        Ok(variants.remove(0).scenario.link)
    }

    #[test]
    fn every_preset_is_read_and_its_names_are_unique() {
        for name in names() {
            let link = scenario(&format!("preset = \"{name}\"")).unwrap();
            let preset = Preset::find(name).unwrap();
            assert_eq!(scenario(&preset.to_toml()).unwrap(), link, "{name}");
        }
        let mut sorted = names();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), names().len());
    }

    #[test]
    fn a_preset_is_the_link_of_its_source() {
        // WebPageTest's "3GFast": 1600 kbit/s down, 768 kbit/s up, 150 ms round trip, no loss.
        let link = scenario("preset = \"wpt/3g-fast\"").unwrap();
        assert_eq!(
            link.down.rate.at(Span::ZERO),
            Some(Rate::from_bps(1_600_000))
        );
        assert_eq!(link.up.rate.at(Span::ZERO), Some(Rate::from_bps(768_000)));
        assert_eq!(link.rtt(), Span::from_ms(150));
        // One second at 1.6 Mbit/s is 200 000 bytes, at 768 kbit/s 96 000.
        let queue = |pipe: &crate::Pipe| pipe.queue.to_string();
        assert!(queue(&link.down).contains("limit_bytes 200000B"));
        assert!(queue(&link.up).contains("limit_bytes 96000B"));
    }

    #[test]
    fn keys_of_the_file_replace_those_of_a_preset() {
        let link = scenario("preset = \"lte\"\nrtt = \"20ms\"\ndown.queue = \"fq_codel\"").unwrap();
        assert_eq!(link.rtt(), Span::from_ms(20));
        assert_eq!(link.down.queue.to_string(), "fq_codel");
        assert_eq!(
            link.down.rate.at(Span::ZERO),
            Some(Rate::from_bps(12_000_000))
        );
        let up = scenario("preset = \"lte\"").unwrap().up;
        assert_eq!(link.up.queue, up.queue);
        // A delay of one direction does not change the other: 35 ms of 70.
        let link = scenario("preset = \"lte\"\nup.delay = \"1ms\"").unwrap();
        assert_eq!(link.rtt(), Span::from_ms(36));
    }

    #[test]
    fn starlink_has_the_means_and_quartiles_of_its_source() {
        let mut link = Link::of(&Preset::find("starlink").unwrap());
        link.extend_to(Span::from_secs(150));
        let mean = |pipe: &crate::Pipe| {
            let rates = pipe.rate.steps().iter();
            let rates: Vec<u64> = rates.map(|(_, rate)| rate.unwrap().as_bps()).collect();
            assert_eq!(rates.len(), 10);
            rates.iter().sum::<u64>() / 10
        };
        assert_eq!(
            (mean(&link.down), mean(&link.up)),
            (178_000_000, 17_000_000)
        );
        let mut rtts: Vec<u64> = (0..10)
            .map(|turn| {
                let at = Span::from_secs(15 * turn);
                (link.up.delay.at(at) + link.down.delay.at(at)).as_ns() / 1_000_000
            })
            .collect();
        rtts.sort_unstable();
        // Of ten values the third and the eighth are the quartiles.
        assert_eq!((rtts[2], (rtts[4] + rtts[5]) / 2, rtts[7]), (40, 50, 60));
    }

    #[test]
    fn an_unknown_name_leads_to_the_nearest() {
        let error = scenario("preset = \"wpt/3g-fats\"").unwrap_err();
        assert!(error.contains("no link is called `wpt/3g-fats`"), "{error}");
        assert!(error.contains("did you mean `wpt/3g-fast`?"), "{error}");
        assert!(error.contains("file.toml:3:10"), "{error}");
        let error = scenario("preset = \"carrier pigeon\"").unwrap_err();
        assert!(error.contains("`sluice list links` shows all"), "{error}");
        let error = scenario("preset = 3").unwrap_err();
        assert!(error.contains("takes the name of a link"), "{error}");
    }
}
