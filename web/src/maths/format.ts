/** Numbers as a reader wants them: three significant digits, units chosen by size, no exponents. */

const NARROW = "\u202f";

/** Groups of three digits, separated by a narrow space. */
export function whole(value: number): string {
  return String(Math.round(value)).replace(/\B(?=(\d{3})+(?!\d))/g, NARROW);
}

/** At least three significant digits; whole numbers from 1000 on. */
export function plain(value: number): string {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 999.5) return (value < 0 ? "-" : "") + whole(size);
  const digits = Math.max(0, 2 - Math.floor(Math.log10(size) + 1e-12));
  return value.toFixed(Math.min(digits, 6));
}

/** A time given in ms, in the unit that fits its size. */
export function milliseconds(ms: number): string {
  const size = Math.abs(ms);
  if (size >= 999.5) return `${plain(ms / 1000)} s`;
  if (size >= 0.9995 || size === 0) return `${plain(ms)} ms`;
  return `${plain(ms * 1000)} µs`;
}

export function megabits(mbps: number): string {
  const size = Math.abs(mbps);
  if (size >= 999.5) return `${plain(mbps / 1000)} Gbit/s`;
  if (size >= 0.9995 || size === 0) return `${plain(mbps)} Mbit/s`;
  return `${plain(mbps * 1000)} kbit/s`;
}

/** A share as per cent. Only 1 is "100 %", and only 0 is "0 %". */
export function percent(share: number): string {
  if (share === 0 || share === 1) return `${share * 100} %`;
  const value = share * 100;
  if (value > 99.5 && value < 100) return `${Math.min(value, 99.9999).toFixed(value > 99.95 ? 3 : 1)} %`;
  return `${plain(value)} %`;
}

export function bytes(size: number): string {
  if (size >= 999_500) return `${plain(size / 1e6)} MB`;
  if (size >= 999.5) return `${plain(size / 1000)} kB`;
  return `${plain(size)} B`;
}

/** An instant of the run, to the microsecond when `exact`. */
export function instant(s: number, exact = false): string {
  return `${s.toFixed(exact ? 6 : 3)} s`;
}

/** "a, b and c". */
export function enumerate(words: string[]): string {
  if (words.length < 2) return words.join("");
  return `${words.slice(0, -1).join(", ")} and ${words[words.length - 1]}`;
}
