//! Reduces a report to what a page can hold: sorts packets by time, and keeps only those that shape the
//! picture if there are too many. A direction with many flows becomes a crowd.
//!
//! A thinned column keeps its extremes: time is cut into equal slices, and the packets with the
//! shortest and the longest wait of each slice stay. All marks and drops stay as long as they fill
//! less than half of the limit; beyond that, marks and drops are each thinned in the same way.
//! `thinned_from` holds the original number, which the page shows.

use super::crowd;
use super::model::{Cdf, PacketRow, Packets, Queue, Report, Series, Verdict};

/// Packets of all queues together. A page of this size has less than 5 MB and opens within two seconds.
pub const MOST_PACKETS: usize = 500_000;
/// Values of one series: more than any screen has pixels.
pub const MOST_VALUES: usize = 20_000;

/// Returns the report as the page receives it.
pub fn for_page(report: &Report) -> Report {
    let mut report = report.clone();
    let lengths = report.runs.iter().flat_map(|run| &run.queues);
    let most_packets = fair_limit(lengths.map(|queue| queue.packets.len()), MOST_PACKETS);
    for run in &mut report.runs {
        crowd::gather(run);
        for flow in &mut run.flows {
            thin_series(&mut flow.goodput_mbps, MOST_VALUES);
            let optional = [
                &mut flow.cwnd_segments,
                &mut flow.srtt_ms,
                &mut flow.retransmits,
            ];
            for series in optional.into_iter().flatten() {
                thin_series(series, MOST_VALUES);
            }
        }
        // Pings are few, and the page computes their distribution: they are not thinned.
        for queue in &mut run.queues {
            prepare_queue(queue, most_packets);
        }
    }
    report
}

/// The limit per column that keeps the sum within `most`; shorter columns leave their room to others.
pub fn fair_limit(lengths: impl Iterator<Item = usize>, most: usize) -> usize {
    let mut lengths: Vec<usize> = lengths.collect();
    lengths.sort_unstable();
    let mut room = most;
    for (at, &length) in lengths.iter().enumerate() {
        let share = room / (lengths.len() - at);
        if length > share {
            return share;
        }
        room -= length;
    }
    usize::MAX
}

fn prepare_queue(queue: &mut Queue, most_packets: usize) {
    thin_series(&mut queue.backlog_packets, MOST_VALUES);
    thin_series(&mut queue.backlog_bytes, MOST_VALUES);
    for state in &mut queue.state {
        thin_series(&mut state.series, MOST_VALUES);
    }
    if queue.sojourn_cdf.is_none() {
        queue.sojourn_cdf = Some(Cdf::of_sojourn(&queue.packets));
    }
    queue.packets = thin_packets(&queue.packets, most_packets);
}

/// Keeps about `most` packets at most, sorted by time.
pub fn thin_packets(packets: &Packets, most: usize) -> Packets {
    let mut rows: Vec<PacketRow> = packets.rows().collect();
    // The sort is stable: packets of the same time keep their order.
    rows.sort_by_key(|row| row.at_ns);
    let total = rows.len();
    if total > most {
        let count = |verdict| rows.iter().filter(|row| row.verdict == verdict).count();
        let signals = [count(Verdict::Marked), count(Verdict::Dropped)];
        let kept_signals: usize = signals.iter().sum();
        let (room, room_for_each_signal) = if kept_signals <= most / 2 {
            (most - kept_signals, usize::MAX)
        } else {
            (most / 2, most / 4)
        };
        let mut kept = vec![false; total];
        keep_extremes(&rows, Verdict::Sent, room, &mut kept);
        keep_extremes(&rows, Verdict::Marked, room_for_each_signal, &mut kept);
        keep_extremes(&rows, Verdict::Dropped, room_for_each_signal, &mut kept);
        let mut keep = kept.into_iter();
        rows.retain(|_| keep.next() == Some(true));
    }
    let mut thinned = Packets {
        flows: packets.flows.clone(),
        reasons: packets.reasons.clone(),
        thinned_from: packets
            .thinned_from
            .or((rows.len() < total).then_some(total as u64)),
        ..Packets::default()
    };
    rows.into_iter().for_each(|row| thinned.push(row));
    thinned
}

/// Marks the packets of one verdict to keep: all if there is room for them.
fn keep_extremes(rows: &[PacketRow], verdict: Verdict, room: usize, kept: &mut [bool]) {
    let of_verdict: Vec<usize> = (0..rows.len())
        .filter(|&at| rows[at].verdict == verdict)
        .collect();
    if of_verdict.len() <= room {
        of_verdict.into_iter().for_each(|at| kept[at] = true);
        return;
    }
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
        return;
    };
    let slices = (room / 2).max(1) as u128;
    let span = u128::from(last.at_ns - first.at_ns) + 1;
    let slice_of = |at: usize| u128::from(rows[at].at_ns - first.at_ns) * slices / span;
    for slice in of_verdict.chunk_by(|&a, &b| slice_of(a) == slice_of(b)) {
        let wait = |at: &&usize| rows[**at].sojourn_ns;
        let extremes = [slice.iter().min_by_key(wait), slice.iter().max_by_key(wait)];
        extremes
            .into_iter()
            .flatten()
            .for_each(|&at| kept[at] = true);
    }
}

/// Keeps at most `most` values: the smallest and the largest value of each slice of the column, or a
/// gap if the slice has no value.
pub fn thin_series(series: &mut Series, most: usize) {
    let total = series.value.len();
    if total <= most {
        return;
    }
    let per_slice = total.div_ceil(most / 2);
    let mut kept = Vec::with_capacity(most);
    for from in (0..total).step_by(per_slice) {
        let slice = from..total.min(from + per_slice);
        let finite = || slice.clone().filter(|&at| series.value[at].is_finite());
        let by_value = |a: &usize, b: &usize| series.value[*a].total_cmp(&series.value[*b]);
        let mut pair = match (finite().min_by(by_value), finite().max_by(by_value)) {
            (Some(least), Some(most)) => vec![least, most],
            _ => vec![from],
        };
        pair.sort_unstable();
        pair.dedup();
        kept.extend(pair);
    }
    series.time_s = kept.iter().map(|&at| series.time_s[at]).collect();
    series.value = kept.iter().map(|&at| series.value[at]).collect();
    series.thinned_from.get_or_insert(total as u64);
}
