/**
 * Ticks of a logarithmic axis: powers of ten; in a short range also 2 and 5 times these; in a range
 * with fewer than three of them, linear steps.
 */
export function logTicks(min: number, max: number): number[] {
  if (!(min > 0) || !(max > min)) return [];
  for (const multiples of [[1], [1, 2, 5]]) {
    const ticks: number[] = [];
    for (let power = Math.floor(Math.log10(min)); power <= Math.log10(max); power += 1) {
      for (const multiple of multiples) {
        // Parsed from text, because 3 * 10 ** -1 is not 0.3.
        const tick = Number(`${multiple}e${power}`);
        if (tick >= min && tick <= max) ticks.push(tick);
      }
    }
    if (ticks.length >= 3) return ticks;
  }
  return linearTicks(min, max, 4);
}

/** Multiples of 1, 2 or 5 times a power of ten, about `count` of them. */
export function linearTicks(min: number, max: number, count: number): number[] {
  const rough = (max - min) / count;
  const power = Math.floor(Math.log10(rough));
  const multiple = [1, 2, 5, 10].find((candidate) => Number(`${candidate}e${power}`) >= rough * 0.85) ?? 10;
  const step = Number(`${multiple}e${power}`);
  const ticks: number[] = [];
  for (let at = Math.ceil(min / step - 1e-9); at * step <= max * (1 + 1e-12); at += 1) {
    ticks.push(Number((at * step).toPrecision(12)));
  }
  return ticks;
}

/** Distances of ticks, ascending. uPlot's own include 2.5, which needs one more decimal than it shows. */
export const STEPS: number[] = Array.from({ length: 25 }, (_, at) => at - 9).flatMap((power) =>
  [1, 2, 5].map((multiple) => Number(`${multiple}e${power}`)),
);

/** The ticks whose labels do not touch: all, or else every other one, every third one, and so on. */
export function apart(
  ticks: number[],
  at: (tick: number) => number,
  size: (tick: number) => number,
): number[] {
  const fits = (some: number[]): boolean =>
    some.every((tick, place) => {
      const before = some[place - 1];
      if (before === undefined) return true;
      return Math.abs(at(tick) - at(before)) >= (size(tick) + size(before)) / 2 + LABEL_GAP;
    });
  for (let step = 1; step < ticks.length; step += 1) {
    const some = ticks.filter((_, place) => place % step === 0);
    if (fits(some)) return some;
  }
  return ticks.slice(0, 1);
}

/** The least distance of two labels, in pixels. */
const LABEL_GAP = 6;

/** The label of a tick, with as many decimals as its step needs. */
export function tickLabel(value: number, step: number): string {
  return value.toFixed(Math.min(9, Math.max(0, -Math.floor(Math.log10(step) + 1e-9))));
}
