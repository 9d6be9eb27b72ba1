//! Advice: settings of a queue that do not fit its link or the flows through it, each with a value
//! that fits.
//!
//! The rules check parameters, not names of algorithms: any queue with `target` and `interval`
//! works like CoDel.

use sluice_core::param::Value;
use sluice_core::registry::Spec;
use sluice_core::{Rate, Span};

use super::{Measure, Pipe, PipeId, Rules, Scenario};

/// Bytes of a full packet.
const PACKET: u64 = 1500;
/// A queue that starts to act at a third of its limit acts late if a third of the limit is this
/// number of targets.
const LATE: u64 = 10;
/// A link of which less than this part is used is wasted, even by a cautious shaper.
const WASTED: u64 = 2;
/// RFC 6298 section 2: the first retransmission timeout is 1 s, and it doubles: a SYN that waits
/// longer has been sent three times.
const PATIENCE: Span = Span::from_secs(3);
/// RFC 8289 section 4.3: the usual worst round trip on the Internet.
const USUAL_RTT: Span = Span::from_ms(100);
/// At this rate and above, a queue that does not know its link does no harm.
const FAST: Rate = Rate::from_bps(1_000_000_000);

impl Scenario {
    /// Returns the settings that do not fit, each with its pipes: `up and down: ...`. The last one is
    /// about the measurement.
    pub fn advice(&self) -> Vec<String> {
        let mut all = Vec::new();
        for (id, pipe) in self.pipes() {
            let rate = pipe.rate.highest();
            if rate == Rate::UNLIMITED {
                continue;
            }
            for text in of_pipe(pipe, rate, self.longest_path(id.hop())) {
                all.push((id, text));
            }
        }
        let mut all = by_text(all);
        let Measure {
            interval, window, ..
        } = self.measure;
        if interval > window {
            all.push(format!(
                "a sample every {interval} is rarer than the windows of goodput, {window}: shares over \
                 time are interpolated, which hides how unequal they are; set `interval` in [measure] \
                 to at most `window`"
            ));
        }
        all
    }

    /// Returns the longest round trip of an empty path through link `hop`, and the flow that has it: the
    /// first of equal ones.
    fn longest_path(&self, hop: usize) -> Option<(Span, &str)> {
        let flows = self.flows.iter();
        let through = flows.filter(|flow| self.hops_of(flow).contains(&hop));
        let paths = through.map(|flow| {
            let own = self.links_rtt(flow).saturating_add(self.extra_rtt(flow));
            (own, flow.name.as_str())
        });
        paths.reduce(|a, b| if b.0 > a.0 { b } else { a })
    }

    /// Returns the warnings of the queues, each with its pipes, and those of the rules.
    pub fn queue_warnings(&self) -> Vec<String> {
        let of_pipe = |(id, pipe): (PipeId, &Pipe)| {
            let warnings = pipe.queue.0.warnings().into_iter();
            warnings.map(move |text| (id, text)).collect::<Vec<_>>()
        };
        let mut all = by_text(self.pipes().flat_map(of_pipe).collect());
        all.extend(self.rules.iter().flat_map(Rules::warnings));
        all
    }
}

/// Groups equal texts of several pipes: `up and down: ...`.
fn by_text(all: Vec<(PipeId, String)>) -> Vec<String> {
    let mut grouped: Vec<(String, String)> = Vec::new();
    for (id, text) in all {
        match grouped.iter_mut().find(|(_, known)| *known == text) {
            Some((pipes, _)) => {
                pipes.push_str(" and ");
                pipes.push_str(&id.to_string());
            }
            None => grouped.push((id.to_string(), text)),
        }
    }
    let line = |(pipes, text)| format!("{pipes}: {text}");
    grouped.into_iter().map(line).collect()
}

fn of_pipe(pipe: &Pipe, rate: Rate, longest: Option<(Span, &str)>) -> Vec<String> {
    let queue = &pipe.queue.0;
    let name = queue.algorithm.name;
    let span = |word: &str| match queue.value(word) {
        Some(Value::Span(span)) => Some(span),
        _ => None,
    };
    let packet = rate.transmission(PACKET);
    let mut all = Vec::new();
    let (target, interval) = (span("target"), span("interval"));
    if let (Some(target), Some(_)) = (target, interval)
        && target < packet
    {
        // RFC 8290 section 5.2.2: at least the transmission time of one MTU.
        let fits = rounded(packet);
        all.push(format!(
            "`{name}` has a target of {target}, and one packet of {PACKET} B takes {} at {rate}: \
             `target {fits}` fits",
            in_tens_of_us(packet)
        ));
    }
    // RFC 8289 section 4.3: the interval is about the longest round trip.
    for word in ["interval", "rtt"] {
        let has_target = word == "rtt" || target.is_some();
        if let (Some(set), Some((rtt, flow)), true) = (span(word), longest, has_target)
            && set < rtt
        {
            let fits = rounded(rtt);
            all.push(format!(
                "`{name}` has `{word} {set}`, and the empty path of `{flow}` takes {rtt}: \
                 `{word} {fits}` fits"
            ));
        }
    }
    if queue.value("bandwidth") == Some(Value::Rate(Rate::UNLIMITED))
        && queue.value("rtt").is_some()
        && rate < FAST
    {
        all.push(format!(
            "`{name}` shapes to no bandwidth, so it knows nothing of the {rate} of its link: \
             `bandwidth {{rate}}` fits"
        ));
    }
    let bandwidth = match queue.value("bandwidth") {
        Some(Value::Rate(own)) if queue.value("rtt").is_some() && !own.is_unlimited() => Some(own),
        _ => None,
    };
    if let Some(own) = bandwidth {
        let slowest = pipe.rate.lowest();
        if own > rate {
            all.push(format!(
                "`{name}` shapes to `bandwidth {own}`, more than the {rate} of its link, so it never \
                 shapes: `bandwidth {{rate}}` fits"
            ));
        } else if own.as_bps() < slowest.as_bps() / WASTED {
            all.push(format!(
                "`{name}` shapes to `bandwidth {own}`, less than half of the {slowest} of its link: \
                 `bandwidth {{rate}}` fits"
            ));
        }
    }
    let packet = rate.transmission(PACKET);
    if let Some(outage) = pipe.rate.shortest_outage().filter(|span| *span < packet) {
        all.push(format!(
            "an outage of {outage} cannot interrupt a packet of {PACKET} bytes, whose transmission takes \
             {packet} at {rate}: the link is faster than its `rate` says"
        ));
    }
    all.extend(of_limit(queue, rate, longest));
    let waits_for_third = queue.value("preset") == Some(Value::Choice("docsis"))
        || queue.value("onoff") == Some(Value::Flag(true));
    if let (true, Some(target), Some(Value::Count(limit))) =
        (waits_for_third, target, queue.value("limit"))
    {
        let third = rate.transmission(PACKET.saturating_mul(limit / 3));
        let late = Span::from_ns(target.as_ns().saturating_mul(LATE));
        if third > late {
            let packets = (late.as_ns() * 3 / packet.as_ns().max(1)).max(3);
            all.push(format!(
                "`{name}` acts from a third of `limit {limit}` on, {} of packets at {rate} for a \
                 target of {target}: `limit {packets}` fits",
                rounded(third)
            ));
        }
    }
    all
}

/// A queue without an AQM whose limit, if it was set, is seconds long.
fn of_limit(queue: &Spec, rate: Rate, longest: Option<(Span, &str)>) -> Option<String> {
    const PLAIN: [&str; 4] = ["limit", "limit_bytes", "drop", "shared"];
    let is_plain = queue
        .algorithm
        .params()
        .all(|param| PLAIN.contains(&param.name));
    let is_set = |word| queue.values.find(word).is_some();
    if !is_plain || !(is_set("limit") || is_set("limit_bytes")) {
        return None;
    }
    let mut limits = Vec::new();
    if let Some(Value::Count(packets)) = queue.value("limit") {
        limits.push((packets.saturating_mul(PACKET), format!("limit {packets}")));
    }
    if let Some(Value::Bytes(bytes)) = queue.value("limit_bytes") {
        limits.push((bytes.as_u64(), format!("limit_bytes {bytes}")));
    }
    let (bytes, words) = limits.into_iter().min_by_key(|(bytes, _)| *bytes)?;
    let full = rate.transmission(bytes);
    if full <= PATIENCE {
        return None;
    }
    // What a sender needs to fill the link: a round trip of packets.
    let rtt = longest.map_or(Span::ZERO, |(rtt, _)| rtt).max(USUAL_RTT);
    let packets = rtt
        .as_ns()
        .div_ceil(rate.transmission(PACKET).as_ns().max(1));
    let fits = match words.starts_with("limit_bytes") {
        true => format!("limit_bytes {}B", packets * PACKET),
        false => format!("limit {packets}"),
    };
    Some(format!(
        "`{}` with `{words}` holds {} of packets at {rate}: `{fits}` fits",
        queue.algorithm.name,
        rounded(full)
    ))
}

/// Rounds up to whole milliseconds, or to microseconds below one.
fn rounded(span: Span) -> Span {
    let unit = if span >= Span::from_ms(1) {
        1_000_000
    } else {
        1000
    };
    Span::from_ns(span.as_ns().div_ceil(unit) * unit)
}

/// Rounds to the nearest 10 us.
fn in_tens_of_us(span: Span) -> Span {
    Span::from_us((span.as_ns() + 5_000) / 10_000 * 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_of_the_rules_name_their_lines() {
        let text = "duration = \"5s\"\nrules = \"\"\"\npipe 1 config bw 10\n\
                    add pipe 1 ip from any to any out xmit em0\nadd pipe 9 ip from any to any\n\"\"\"\n\
                    [[flow]]\ntype = \"ping\"\n";
        let variants = Scenario::parse("a.toml", text, &[]).unwrap();
        let warnings = variants[0].scenario.queue_warnings();
        let begins = |start: &str| warnings.iter().any(|text| text.starts_with(start));
        for (line, words) in [(1, "10 bit/s"), (2, "em0"), (3, "pipe 9 does not exist")] {
            let start = format!("`rules`, line {line}: ");
            assert!(
                begins(&start) && warnings.iter().any(|text| text.contains(words)),
                "{warnings:?}"
            );
        }
        assert_eq!(warnings.len(), 3, "{warnings:?}");
    }

    #[test]
    fn samples_that_are_rarer_than_windows_are_named() {
        let of = |interval: &str| {
            let text = format!(
                "duration = \"20s\"\n[link]\nrate = \"10Mbit/s\"\nrtt = \"20ms\"\nqueue = \"fq_codel\"\n\
                 [measure]\nwindow = \"500ms\"\ninterval = \"{interval}\"\n[[flow]]\ntype = \"ping\"\n"
            );
            let variants = Scenario::parse("x.toml", &text, &[]).unwrap();
            variants[0].scenario.advice()
        };
        assert!(of("500ms").is_empty());
        let said = of("7s");
        assert_eq!(said.len(), 1);
        assert!(
            said[0].starts_with("a sample every 7s is rarer than the windows of goodput, 500ms: ")
        );
    }

    fn advice(rate: &str, rtt: &str, queue: &str) -> Vec<String> {
        let text = format!(
            "duration = \"5s\"\n[link]\nrate = \"{rate}\"\nrtt = \"{rtt}\"\nqueue = \"{queue}\"\n\
             [[flow]]\ntype = \"tcp\"\nname = \"bulk\"\n"
        );
        let variant = Scenario::parse("x.toml", &text, &[]).unwrap().remove(0);
        // Both directions are alike, and share their lines.
        variant.scenario.advice()
    }

    #[test]
    fn an_outage_within_a_packet_is_named() {
        let rate = |every: &str| {
            let text = format!(
                "duration = \"5s\"\n[link]\nrate = {{ every = \"{every}\", rates = [\"10Mbit/s\", \"outage\"] }}\n\
                 [[flow]]\ntype = \"tcp\"\n"
            );
            let variant = Scenario::parse("x.toml", &text, &[]).unwrap().remove(0);
            variant.scenario.advice()
        };
        // 1500 * 8 bits at 10 Mbit/s take 1.2 ms.
        assert_eq!(
            rate("100us"),
            [
                "up and down: an outage of 100us cannot interrupt a packet of 1500 bytes, whose transmission takes 1.2ms at 10Mbit/s: the link is faster than its `rate` says"
            ]
        );
        assert_eq!(rate("1200us"), [""; 0]);
    }

    #[test]
    fn a_target_below_one_packet_is_named_with_one_that_fits() {
        // 1500 * 8 bits at 10 Mbit/s take 1.2 ms, at 1 Mbit/s 12 ms.
        assert_eq!(
            advice("10Mbit/s", "20ms", "fq_codel target 1ms"),
            [
                "up and down: `fq_codel` has a target of 1ms, and one packet of 1500 B takes 1.2ms at 10Mbit/s: `target 2ms` fits"
            ]
        );
        assert_eq!(
            advice("1Mbit/s", "20ms", "fq_codel"),
            [
                "up and down: `fq_codel` has a target of 5ms, and one packet of 1500 B takes 12ms at 1Mbit/s: `target 12ms` fits"
            ]
        );
        assert_eq!(advice("1Mbit/s", "20ms", "fq_codel target 12ms"), [""; 0]);
        assert_eq!(advice("10Mbit/s", "20ms", "codel"), [""; 0]);
    }

    #[test]
    fn an_interval_below_the_round_trip_is_named() {
        assert_eq!(
            advice("10Mbit/s", "600ms", "codel"),
            [
                "up and down: `codel` has `interval 100ms`, and the empty path of `bulk` takes 600ms: `interval 600ms` fits"
            ]
        );
        assert_eq!(advice("10Mbit/s", "600ms", "codel interval 600ms"), [""; 0]);
    }

    #[test]
    fn the_round_trip_is_that_of_the_flows_through_the_link() {
        let link = "rate = \"10Mbit/s\"\nrtt = \"20ms\"\nqueue = \"codel\"\n";
        let text = format!(
            "duration = \"5s\"\n[link]\n{link}[[hop]]\n{link}\
             [[flow]]\ntype = \"tcp\"\nname = \"near\"\nhops = 1\n\
             [[flow]]\ntype = \"tcp\"\nname = \"far\"\nhops = 2\nrtt = \"600ms\"\n"
        );
        let variant = Scenario::parse("x.toml", &text, &[]).unwrap().remove(0);
        assert_eq!(
            variant.scenario.advice(),
            [
                "up2 and down2: `codel` has `interval 100ms`, and the empty path of `far` takes 600ms: `interval 600ms` fits"
            ]
        );
    }

    #[test]
    fn a_shaper_without_a_rate_is_named_on_slow_links_only() {
        assert_eq!(advice("10Mbit/s", "20ms", "cake").len(), 1);
        assert_eq!(advice("10Mbit/s", "20ms", "cake bandwidth {rate}"), [""; 0]);
        assert_eq!(advice("1Gbit/s", "20ms", "cake"), [""; 0]);
    }

    #[test]
    fn a_shaper_with_the_rate_of_another_link_is_named() {
        assert_eq!(
            advice("10Mbit/s", "20ms", "cake bandwidth 20Mbit/s"),
            [
                "up and down: `cake` shapes to `bandwidth 20Mbit/s`, more than the 10Mbit/s of its link, so it never shapes: `bandwidth {rate}` fits"
            ]
        );
        assert_eq!(
            advice("10Mbit/s", "20ms", "cake bandwidth 1Mbit/s"),
            [
                "up and down: `cake` shapes to `bandwidth 1Mbit/s`, less than half of the 10Mbit/s of its link: `bandwidth {rate}` fits"
            ]
        );
        // Shapers are often set a little below the link.
        assert_eq!(
            advice("10Mbit/s", "20ms", "cake bandwidth 9500kbit/s"),
            [""; 0]
        );
    }

    #[test]
    fn a_limit_of_seconds_is_named_if_it_was_set() {
        // 10000 packets of 12000 bit at 10 Mbit/s take 12 s; 100 ms hold 83.3 packets.
        assert_eq!(
            advice("10Mbit/s", "20ms", "fifo limit 10000"),
            [
                "up and down: `fifo` with `limit 10000` holds 12s of packets at 10Mbit/s: `limit 84` fits"
            ]
        );
        // 4 MB are 3.2 s. The other limit, 1000 packets, holds 1.2 s and comes first.
        assert_eq!(advice("10Mbit/s", "20ms", "fifo limit_bytes 4MB"), [""; 0]);
        // 1000 packets are 1.2 s: long, and the subject of many experiments.
        assert_eq!(advice("10Mbit/s", "20ms", "fifo limit 1000"), [""; 0]);
        assert_eq!(advice("1Mbit/s", "20ms", "fifo"), [""; 0]);
        // An AQM does not let its queue become full.
        assert_eq!(advice("10Mbit/s", "20ms", "codel limit 10000"), [""; 0]);
    }

    #[test]
    fn a_queue_that_waits_for_a_third_of_a_long_limit_is_named() {
        // A third of 1000 packets is 333 * 1500 * 8 / 5 Mbit/s = 799.2 ms; the target of the preset
        // is 10 ms. Ten targets hold 41.67 packets, three times that are 125.
        assert_eq!(
            advice("5Mbit/s", "20ms", "pie preset docsis limit 1000"),
            [
                "up and down: `pie` acts from a third of `limit 1000` on, 800ms of packets at 5Mbit/s for a target of 10ms: `limit 125` fits"
            ]
        );
        assert_eq!(
            advice("5Mbit/s", "20ms", "pie preset docsis limit 125"),
            [""; 0]
        );
    }
}
