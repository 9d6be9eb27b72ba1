import type { Cdf, Ping, Series } from "../model.ts";

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
