//! Reduces a report to what a page can hold: sorts packets by time, and keeps only those that shape the
//! picture if there are too many. A direction with many flows becomes a crowd.
//!
//! A thinned column keeps its extremes: time is cut into equal slices, and the packets with the
//! shortest and the longest wait of each slice stay. All marks and drops stay as long as they fill
//! less than half of the limit; beyond that, marks and drops are each thinned in the same way.
//! `thinned_from` holds the original number, which the page shows.

use std::sync::Mutex;
use std::thread;

use super::crowd;
use super::model::{Cdf, Direction, GoodputSum, Packets, Queue, Report, Run, Series, Verdict};

/// Packets of all queues together: a hundred per pixel of a wide screen. Packing them takes a fifth
/// of the time of their simulation; such a page has 2 to 3 MB.
pub const MOST_PACKETS: usize = 250_000;
/// Values of one series: more than any screen has pixels.
pub const MOST_VALUES: usize = 20_000;

/// Returns the report as the page receives it.
pub fn for_page(mut report: Report) -> Report {
    let lengths = report.runs.iter().flat_map(|run| &run.queues);
    let most_packets = fair_limit(lengths.map(|queue| queue.packets.len()), MOST_PACKETS);
    for run in &mut report.runs {
        crowd::gather(run);
        run.sums = sums(run);
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
    }
    let queues = report.runs.iter_mut().flat_map(|run| &mut run.queues);
    in_parallel(queues.collect(), |queue| prepare_queue(queue, most_packets));
    report
}

/// The sums of flows that will be thinned. Afterwards it is too late: which values are kept differs by
/// flow. A crowd has its own sum.
fn sums(run: &Run) -> Vec<GoodputSum> {
    let sum = |direction: Direction| {
        let flows = run.flows.iter().filter(|flow| flow.direction == direction);
        let parts: Vec<&Series> = flows.map(|flow| &flow.goodput_mbps).collect();
        let is_thinned = parts.iter().any(|part| part.value.len() > MOST_VALUES);
        let is_crowd = run.crowds.iter().any(|crowd| crowd.direction == direction);
        (is_thinned && parts.len() > 1 && !is_crowd).then(|| {
            let mut mbps = Series::sum(parts.into_iter(), run.goodput_step_s);
            thin_series(&mut mbps, MOST_VALUES);
            GoodputSum { direction, mbps }
        })
    };
    let both = [Direction::Up, Direction::Down].into_iter();
    both.filter_map(sum).collect()
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
    let is_ready = queue.packets.len() <= most_packets && queue.packets.at_ns.is_sorted();
    if !is_ready {
        queue.packets = thin_packets(&queue.packets, most_packets);
    }
}

/// Keeps about `most` packets at most, sorted by time.
pub fn thin_packets(packets: &Packets, most: usize) -> Packets {
    let mut order = by_time(&packets.at_ns);
    let total = order.len();
    if total > most {
        let count = |verdict| packets.verdict.iter().filter(|v| **v == verdict).count();
        let signals = [count(Verdict::Marked), count(Verdict::Dropped)];
        let kept_signals: usize = signals.iter().sum();
        let (room, room_for_each_signal) = if kept_signals <= most / 2 {
            (most - kept_signals, usize::MAX)
        } else {
            (most / 2, most / 4)
        };
        let mut kept = vec![false; total];
        let mut keep = |verdict, room| keep_extremes(packets, &order, verdict, room, &mut kept);
        keep(Verdict::Sent, room);
        keep(Verdict::Marked, room_for_each_signal);
        keep(Verdict::Dropped, room_for_each_signal);
        order.retain(|at| kept[*at as usize]);
    }
    let mut thinned = packets.pick(&order);
    if order.len() < total {
        thinned.thinned_from.get_or_insert(total as u64);
    }
    thinned
}

/// Returns the indexes of the instants in the order of time; those of the same time keep their order.
fn by_time(at_ns: &[u64]) -> Vec<u32> {
    let length = u32::try_from(at_ns.len()).expect("a page of less than 2^32 packets");
    if at_ns.is_sorted() {
        return (0..length).collect();
    }
    let first = at_ns.iter().min().copied().unwrap_or(0);
    let last = at_ns.iter().max().copied().unwrap_or(0);
    let bits = u32::BITS - length.leading_zeros();
    if (last - first).leading_zeros() < bits {
        let mut order: Vec<u32> = (0..length).collect();
        order.sort_by_key(|at| at_ns[*at as usize]);
        return order;
    }
    // Time and index in one number: sorting numbers takes a fraction of the time.
    let joined = |(at, ns): (usize, &u64)| (ns - first) << bits | at as u64;
    let mut order: Vec<u64> = at_ns.iter().enumerate().map(joined).collect();
    order.sort_unstable();
    let index = |joined: u64| (joined & ((1 << bits) - 1)) as u32;
    order.into_iter().map(index).collect()
}

/// Marks the packets of one verdict to keep, by their index: all if there is room for them. `order`
/// is that of time.
fn keep_extremes(
    packets: &Packets,
    order: &[u32],
    verdict: Verdict,
    room: usize,
    kept: &mut [bool],
) {
    let is_of_it = |at: &usize| packets.verdict[*at] == verdict;
    let in_order = order.iter().map(|&at| at as usize);
    let of_verdict: Vec<usize> = in_order.filter(is_of_it).collect();
    if of_verdict.len() <= room {
        of_verdict.into_iter().for_each(|at| kept[at] = true);
        return;
    }
    let (Some(&first), Some(&last)) = (order.first(), order.last()) else {
        return;
    };
    let at_ns = |at: usize| packets.at_ns[at];
    let (first, last) = (at_ns(first as usize), at_ns(last as usize));
    let slices = (room / 2).max(1) as u64;
    let span = u128::from(last - first) + 1;
    // Most runs need no 128-bit division.
    let short_span = u64::try_from(span).ok();
    let short_span = short_span.filter(|span| span.checked_mul(slices).is_some());
    let slice_of = |at: usize| match short_span {
        Some(span) => (at_ns(at) - first) * slices / span,
        None => (u128::from(at_ns(at) - first) * u128::from(slices) / span) as u64,
    };
    let numbered: Vec<(u64, usize)> = of_verdict.iter().map(|&at| (slice_of(at), at)).collect();
    for slice in numbered.chunk_by(|a, b| a.0 == b.0) {
        let wait = |(_, at): &&(u64, usize)| packets.sojourn_ns[*at];
        let extremes = [slice.iter().min_by_key(wait), slice.iter().max_by_key(wait)];
        extremes
            .into_iter()
            .flatten()
            .for_each(|(_, at)| kept[*at] = true);
    }
}

/// Applies `apply` to all `items`, on as many threads as there are processors.
pub fn in_parallel<T: Send>(items: Vec<T>, apply: impl Fn(T) + Sync) {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let threads = processors.min(items.len());
    let items = Mutex::new(items.into_iter());
    let next = || items.lock().expect("nobody panics with the lock").next();
    let work = || {
        while let Some(item) = next() {
            apply(item);
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Ends, Flow};

    /// Two flows of `count` values, 0.25 s apart, which together have 10 Mbit/s at all times.
    fn report(count: u32) -> Report {
        let flow = |mbps: fn(u32) -> f64| {
            let times = (0..count).map(|k| f64::from(k) * 0.25).collect();
            Flow {
                goodput_mbps: Series::new(times, (0..count).map(mbps).collect()),
                ..Flow::default()
            }
        };
        let mut report = Report::new("two flows", Ends::default());
        report.runs.push(Run {
            goodput_step_s: 0.25,
            flows: vec![
                flow(|k| f64::from(k % 5)),
                flow(|k| 10.0 - f64::from(k % 5)),
            ],
            ..Run::default()
        });
        report
    }

    #[test]
    fn the_sum_of_flows_is_taken_before_their_curves_are_thinned() {
        // Two hours.
        let long = for_page(report(28_800));
        let run = &long.runs[0];
        assert!(
            run.flows
                .iter()
                .all(|flow| flow.goodput_mbps.thinned_from.is_some())
        );
        let [sum] = run.sums.as_slice() else {
            panic!("one direction has flows: {}", run.sums.len());
        };
        assert_eq!(sum.direction, Direction::Up);
        assert_eq!(sum.mbps.thinned_from, Some(28_800));
        assert!(sum.mbps.value.len() <= MOST_VALUES);
        assert!(sum.mbps.value.iter().all(|mbps| *mbps == 10.0));
        // The page adds curves that are complete.
        assert_eq!(for_page(report(2000)).runs[0].sums, []);
    }
}
