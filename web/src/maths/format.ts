/** Formats numbers with three significant digits and a unit that fits their size. */

const NARROW = "\u202f";
/** Keeps a number and its unit on one line. */
const GAP = "\u00a0";

/** Groups of three digits, separated by a narrow space. */
export function whole(value: number): string {
  return String(Math.round(value)).replace(/\B(?=(\d{3})+(?!\d))/g, NARROW);
}

/** Three significant digits; whole numbers from 1000 on. */
export function plain(value: number): string {
  if (value === 0) return "0";
  const size = Math.abs(Number(value.toPrecision(3)));
  if (size >= 1000) return (value < 0 ? "-" : "") + whole(Math.abs(value));
  if (size < 1e-6) return value.toExponential(2);
  return value.toFixed(Math.max(0, 2 - Math.floor(Math.log10(size) + 1e-12)));
}

/** A time given in ms, in the unit that fits its size. */
export function milliseconds(ms: number): string {
  const size = Math.abs(ms);
  if (size >= 999.5) return `${plain(ms / 1000)}${GAP}s`;
  if (size >= 0.9995 || size === 0) return `${plain(ms)}${GAP}ms`;
  return `${plain(ms * 1000)}${GAP}µs`;
}

export function megabits(mbps: number): string {
  const size = Math.abs(mbps);
  if (size >= 999.5) return `${plain(mbps / 1000)}${GAP}Gbit/s`;
  if (size >= 0.9995 || size === 0) return `${plain(mbps)}${GAP}Mbit/s`;
  return `${plain(mbps * 1000)}${GAP}kbit/s`;
}

/** A share in per cent. Only 1 is "100 %", and only 0 is "0 %". */
export function percent(share: number): string {
  if (share === 0 || share === 1) return `${share * 100}${GAP}%`;
  const value = share * 100;
  if (value < 99.5 || value > 100) return `${plain(value)}${GAP}%`;
  // As many decimals as distinguish it from 100.
  for (let decimals = 1; decimals <= 4; decimals += 1) {
    const text = value.toFixed(decimals);
    if (Number(text) < 100) return `${text}${GAP}%`;
  }
  return `99.9999${GAP}%`;
}

export function bytes(size: number): string {
  if (size >= 999_500) return `${plain(size / 1e6)}${GAP}MB`;
  if (size >= 999.5) return `${plain(size / 1000)}${GAP}kB`;
  return `${plain(size)}${GAP}B`;
}

/** A time of the run, to the millisecond, or to the microsecond if `exact`. */
export function instant(s: number, exact = false): string {
  return `${s.toFixed(exact ? 6 : 3)}${GAP}s`;
}

/** "a, b and c". */
export function enumerate(words: string[]): string {
  if (words.length < 2) return words.join("");
  return `${words.slice(0, -1).join(", ")} and ${words[words.length - 1]}`;
}
