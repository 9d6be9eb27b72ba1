import type { Cdf, Ping, Series } from "../model.ts";
import type { Range } from "./range.ts";

/** The distribution of samples, with one point per different value; gaps are left out. */
export function empiricalCdf(samples: ArrayLike<number | null>): Cdf {
  const sorted = Float64Array.from(Array.from(samples).filter((sample) => sample !== null)).sort();
  const value: number[] = [];
  const fraction: number[] = [];
  for (let at = 0; at < sorted.length; at += 1) {
    const here = sorted[at] as number;
    if (here === sorted[at + 1]) continue;
    value.push(here);
    fraction.push((at + 1) / sorted.length);
  }
  return { count: sorted.length, value, fraction };
}

/** The distribution of one of the series of delays of a ping, without the warm-up. */
export function delayCdf(ping: Ping, { time_s, value }: Series): Cdf {
  return empiricalCdf(value.filter((_, at) => (time_s[at] as number) >= ping.measured_from_s));
}

/** The share of samples that do not exceed `value`. */
export function shareAtMost(cdf: Cdf, value: number): number {
  let share = 0;
  for (let at = 0; at < cdf.value.length && (cdf.value[at] as number) <= value; at += 1) {
    share = cdf.fraction[at] as number;
  }
  return share;
}

/** The smallest value that at least the share `fraction` of the samples does not exceed. */
export function quantile(cdf: Cdf, fraction: number): number | null {
  const at = cdf.fraction.findIndex((share) => share >= fraction);
  return cdf.value[at] ?? null;
}

/** The values that 5, 25, 50, 75 and 95 % of the samples do not exceed. */
export type Five = [number, number, number, number, number];

/** What a box shows of a distribution; `null` without samples. */
export function boxOf(cdf: Cdf): Five | null {
  if (cdf.count === 0) return null;
  return [0.05, 0.25, 0.5, 0.75, 0.95].map((share) => quantile(cdf, share) ?? 0) as Five;
}

/** What a chart of distributions draws: the share up to each value, or the share above it. */
export type Form = "linear" | "log" | "tail";

/** The smallest value of a logarithmic axis. */
const FLOOR_MS = 0.001;

/**
 * The corners of a staircase, from 0 below the first value to 1 at the last; of a tail, the shares above.
 * A share of zero has no logarithm: a tail is level up to the last value.
 */
export function corners(cdf: Cdf, form: Form): { value: number[]; share: number[] } {
  const isLog = form !== "linear";
  const value: number[] = [];
  const share: number[] = [];
  const add = (x: number, fraction: number) => {
    const above = 1 - fraction;
    value.push(isLog ? Math.max(x, FLOOR_MS) : x);
    share.push(form === "tail" ? (above > 1e-12 ? above : (share.at(-1) ?? 1)) : fraction);
  };
  const first = cdf.value[0] ?? 0;
  // All samples are above what is left of the first: a tail begins at the end of the axis.
  const start = { linear: 0, log: first, tail: FLOOR_MS }[form];
  add(Math.min(start, first * 0.999999), 0);
  for (let at = 0; at < cdf.value.length; at += 1) {
    const here = cdf.value[at] as number;
    // Values below the floor of a logarithmic axis collapse into one step.
    if (isLog && here <= FLOOR_MS && (cdf.value[at + 1] ?? Number.POSITIVE_INFINITY) <= FLOOR_MS) continue;
    if (isLog && here <= FLOOR_MS) value.length = share.length = 0;
    add(here, cdf.fraction[at] as number);
  }
  return { value, share };
}

/** The range of an axis that has all values; a logarithmic one begins at its floor at the earliest. */
export function rangeOf(values: number[], form: Form): Range {
  const most = values.reduce((a, b) => Math.max(a, b), 0);
  if (form === "linear") return [0, most > 0 ? most * 1.02 : 1];
  if (most <= 0) return [FLOOR_MS, 1];
  const least = values.reduce((a, b) => (b > 0 ? Math.min(a, b) : a), most);
  return [Math.max(least / 1.2, FLOOR_MS), Math.max(most, FLOOR_MS) * 1.2];
}
