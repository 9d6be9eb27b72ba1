import type { Series } from "../model.ts";

/**
 * The sum of several series on a common grid of `step` seconds. A series without a value at a time
 * (its flow has not started, or has ended) adds nothing there. The points of a series are whole steps apart,
 * and only the first is rounded to the grid: half a step from it, rounding errors would put two points
 * into one slot and none into the next.
 */
export function sumSeries(parts: Series[], step: number): Series {
  const sums = new Map<number, number>();
  for (const part of parts) {
    const first = part.time_s[0] ?? 0;
    for (let at = 0; at < part.time_s.length; at += 1) {
      const value = part.value[at];
      if (value === null || value === undefined) continue;
      const slot = Math.round(first / step) + Math.round(((part.time_s[at] as number) - first) / step);
      sums.set(slot, (sums.get(slot) ?? 0) + value);
    }
  }
  const slots = [...sums.keys()].sort((a, b) => a - b);
  return {
    time_s: slots.map((slot) => slot * step),
    value: slots.map((slot) => sums.get(slot) ?? null),
    thinned_from: parts.some((part) => part.thinned_from !== null)
      ? parts.reduce((total, part) => total + (part.thinned_from ?? part.time_s.length), 0)
      : null,
  };
}

/** The corners of a staircase: each value holds until the next one, the last until `end`. */
export function staircase(series: Series, end: number): { time: number[]; value: (number | null)[] } {
  const time: number[] = [];
  const value: (number | null)[] = [];
  for (let at = 0; at < series.time_s.length; at += 1) {
    const from = series.time_s[at] as number;
    if (from > end) break;
    const held = series.value[at] ?? null;
    // Just before the step: the charts need ascending times.
    const until =
      at + 1 < series.time_s.length ? Math.min(end, (series.time_s[at + 1] as number) - 1e-9) : end;
    time.push(from);
    value.push(held);
    if (until > from) {
      time.push(until);
      value.push(held);
    }
  }
  return { time, value };
}

/** Indexes of the values with a gap or an end on both sides. */
export function isolated(values: (number | null)[]): number[] {
  const isGap = (at: number) => (values[at] ?? null) === null;
  return values.flatMap((_, at) => (!isGap(at) && isGap(at - 1) && isGap(at + 1) ? [at] : []));
}
