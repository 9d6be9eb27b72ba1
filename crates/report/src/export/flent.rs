//! A data file of flent (format version 4): gzipped JSON, which flent 2 loads and plots without its
//! measuring tools.
//!
//! flent selects plots by the name of a file's test, and curves by the names of its series. A run
//! appears as the test that its flows resemble ([`Test::of`]), or as a requested test:
//!
//! | test | flows of the run | series |
//! |---|---|---|
//! | `rrul` | TCP both ways in the four classes CS0, CS1, CS5 and EF | `TCP upload BE`, `TCP upload BK` ... |
//! | `rrul_be` | four TCP flows each way | `TCP upload BE`, `TCP upload BE2` ... |
//! | `rrul_be_nflows` | TCP both ways | `TCP upload BE::1`, `TCP download BE::1` ... |
//! | `rtt_fair`, `rtt_fair_var` | TCP flows with round trips of their own | `TCP upload BE NAME` ... |
//! | `tcp_nup` | TCP up only | `TCP upload::1` ... |
//! | `tcp_ndown` | TCP down only | `TCP download::1` ... |
//! | `tcp_1up`, `tcp_upload` | one TCP flow up | `TCP upload` |
//! | `tcp_1down`, `tcp_download` | one TCP flow down | `TCP download` |
//! | `tcp_bidirectional` | one each way | both |
//! | `voip`, `voip-1up` | a call, and a TCP flow beside it | `VoIP`, `VoIP::delay`, `VoIP::jitter`, `VoIP::loss` ... |
//! | `http`, `http-1up` | pages, and a TCP flow beside them | `HTTP latency` |
//! | `udp_flood` | UDP up | `UDP upload` |
//! | `ping` | no TCP | `Ping (ms) ICMP`, `Ping (ms) UDP` |
//!
//! By default a run is exported as the test with the most plots among those that it resembles.
//! Calls and pages have their series in every test.
//!
//! Probes are `Ping (ms) ICMP`, and further ones `Ping (ms) UDP` with their class. Rates are in
//! Mbit/s over the time since the previous sample, for each step the mean; delays are in ms. The
//! first call is `VoIP`: the one-way delay, from which flent computes the score. Further calls are
//! `VoIP NAME`. `x_values` are the instants of `[measure] step`; the raw values are all samples, with
//! congestion window and smoothed RTT where the sender reported them.
//!
//! flent's box plots and distributions leave out the first and last five seconds, the settling time of
//! its own runs (`DELAY`); `flent --data-cutoff 0,LENGTH` shows all.

mod call;
mod test;
mod track;

use std::io::{self, Write as _};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Map, Value, json};
use sluice_core::{Span, Time};

use super::pcapng::epoch_ns;
use super::{ExportError, write_whole};
use sluice_recording::{ReadError, Recording, part};
use sluice_scenario::{FlentSeries, FlowInstance, Schedule};

pub use test::{Test, TestError};

use test::series_names;
use track::Track;

/// Writes `recording` as a data file of flent, as `test` or as the test that it resembles.
///
/// # Errors
/// [`ExportError`]; no incomplete file is left behind.
pub fn write(recording: &Recording, path: &Path, test: Option<Test>) -> Result<(), ExportError> {
    let test = test.unwrap_or_else(|| Test::of(&recording.run().scenario.flows));
    test.check(&recording.run().scenario.flows)?;
    let file = file(recording, test)?;
    let fail = |error: io::Error| ExportError::Write {
        path: path.to_owned(),
        error,
    };
    write_whole(path, part::ANYONE, |out| {
        let mut gzip = GzEncoder::new(out, Compression::default());
        serde_json::to_writer(&mut gzip, &file).map_err(|error| fail(error.into()))?;
        gzip.flush().and_then(|()| gzip.finish()).map_err(fail)?;
        Ok(())
    })
}

fn file(recording: &Recording, test: Test) -> Result<Value, ReadError> {
    let run = recording.run();
    let scenario = &run.scenario;
    let epoch = epoch_ns(&run.environment.started_at);
    let end = Time::from_ns(run.end_ns);
    let instances: Vec<FlowInstance<'_>> = scenario.instances().collect();
    let names = series_names(&instances, test);
    let step = step_of(scenario.measure.step, end, names.iter().flatten().count());
    let mut tracks: Vec<Track> = instances.iter().map(|_| Track::new(epoch)).collect();
    for sample in recording.flow_samples()?.bounded()? {
        let sample = sample?;
        if let Some(track) = tracks.get_mut(sample.flow as usize)
            && sample.time <= end
            && !is_page(&instances, sample.flow)
        {
            track.sample(&sample);
        }
    }
    for probe in recording.pings()?.bounded()? {
        let probe = probe?;
        if let Some(track) = tracks.get_mut(probe.flow as usize)
            && probe.time <= end
        {
            track.probe(&probe);
        }
    }
    for transfer in recording.transfers()?.bounded()? {
        let transfer = transfer?;
        let Some(track) = tracks.get_mut(transfer.flow as usize) else {
            continue;
        };
        let at = transfer.start + transfer.took;
        if is_page(&instances, transfer.flow) && !transfer.is_open() && at <= end {
            track.delay(at, transfer.took);
        }
    }
    for (number, track) in (0..).zip(&mut tracks) {
        if is_page(&instances, number) {
            track.sort();
        }
    }
    let mut instants = Vec::new();
    let mut at = Time::ZERO;
    while at <= end {
        instants.push(at);
        at = at.saturating_add(step);
    }
    let mut results = Map::new();
    let mut raw = Map::new();
    for ((track, name), instance) in tracks.into_iter().zip(&names).zip(&instances) {
        let Some(name) = name else { continue };
        if instance.flow.kind.flent() == FlentSeries::Voip {
            for series in call::series(&track, name, &instants) {
                results.insert(series.name.clone(), series.column);
                raw.insert(series.name, Value::Array(series.raw));
            }
            continue;
        }
        results.insert(name.clone(), track.at(&instants));
        raw.insert(name.clone(), Value::Array(track.raw));
    }
    let seconds: Vec<f64> = instants.iter().map(|at| at.as_ns() as f64 / 1e9).collect();
    Ok(json!({
        "version": 4,
        "x_values": seconds,
        "results": results,
        "raw_values": raw,
        "metadata": metadata(recording, test, &names, step),
    }))
}

/// Returns the time between two instants: `step`, or a multiple of it if the values of `series` until `end`
/// would be too many.
fn step_of(step: Span, end: Time, series: usize) -> Span {
    let instants = end.as_ns() / step.as_ns().max(1);
    let values = instants.saturating_mul(series as u64 + 1);
    Span::from_ns(step.as_ns().saturating_mul(values / MOST_VALUES + 1))
}

/// Whether the flow loads pages. Its series is their latency; its samples are bytes.
fn is_page(instances: &[FlowInstance<'_>], flow: u32) -> bool {
    let instance = instances.get(flow as usize);
    instance.is_some_and(|one| one.flow.kind.flent() == FlentSeries::Http)
}

fn metadata(recording: &Recording, test: Test, names: &[Option<String>], step: Span) -> Value {
    let run = recording.run();
    let scenario = &run.scenario;
    let total = run.end_ns as f64 / 1e9;
    // flent reads a time as UTC only with a fraction of a second.
    let started = UNIX_EPOCH + Duration::from_nanos(epoch_ns(&run.environment.started_at));
    let started = humantime::format_rfc3339_micros(started).to_string();
    let streams = |direction: &str| {
        let of_it = |name: &&String| name.starts_with(&format!("TCP {direction}"));
        names.iter().flatten().filter(of_it).count().to_string()
    };
    let mut units = Map::new();
    for name in names.iter().flatten() {
        let is_delay = ["Ping", "HTTP", "VoIP"];
        let is_delay = is_delay.iter().any(|word| name.starts_with(word));
        let unit = if is_delay { "ms" } else { "Mbits/s" };
        units.insert(name.clone(), json!({ "UNITS": unit }));
    }
    let rate = |rate: &Schedule| rate.highest().to_string();
    let mut kernel = run.environment.kernel.splitn(2, ' ');
    json!({
        "NAME": test.word(),
        "TITLE": run.variant,
        "NOTE": format!("{}; {} by {}", run.title, run.environment.backend, run.environment.program),
        "HOST": "h3",
        "HOSTS": ["h3"],
        "LOCAL_HOST": "h2",
        "TIME": started,
        "T0": started,
        "LENGTH": settled(total),
        "TOTAL_LENGTH": total,
        "STEP_SIZE": step.as_secs_f64(),
        "IP_VERSION": 4,
        "FLENT_VERSION": run.environment.program,
        "KERNEL_NAME": kernel.next(),
        "KERNEL_RELEASE": kernel.next(),
        "EGRESS_INFO": {
            "qdisc": scenario.link.up.queue.to_string(),
            "bandwidth": rate(&scenario.link.up.rate),
        },
        "TEST_PARAMETERS": {
            "upload_streams": streams("upload"),
            "download_streams": streams("download"),
        },
        "SERIES_META": units,
    })
}

/// Returns the length of a test in flent: the run without the time before and after the load.
fn settled(total: f64) -> u64 {
    const DELAY_S: f64 = 5.0;
    let length = total - 2.0 * DELAY_S;
    (if length > 0.0 { length } else { total }).round() as u64
}

/// The most values of all series, one for each instant: 32 bytes each.
const MOST_VALUES: u64 = 50_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_instants_of_a_very_long_run_are_further_apart() {
        let (step, second) = (Span::from_ms(1), Time::from_ns(1_000_000_000));
        assert_eq!(step_of(step, second, 1), step);
        // 10^6 s have 10^9 instants. With the instants themselves, a series has 2 * 10^9 values, which
        // are 40 times the most.
        let long = Time::from_ns(1_000_000_000_000_000);
        assert_eq!(step_of(step, long, 1), Span::from_ms(41));
    }
}
