/** Short names for charts with little room. */

/**
 * The names without the parts that all of them share, such as `rtt=10ms` and `rtt=30ms` for
 * `target=1ms-rtt=10ms` and `target=1ms-rtt=30ms`. Names of different forms stay.
 */
export function distinct(names: string[]): string[] {
  // The minus of `x=-1` or `1e-3` separates nothing.
  // A comma and the blank behind it are one separator.
  const parts = names.map((name) => name.split(/(?<= )|(?<=,)(?! )|(?<=(?<!=|\d[eE])-)/));
  const count = parts[0]?.length ?? 0;
  if (new Set(names).size < 2 || parts.some((own) => own.length !== count)) return names;
  const differs = (at: number) => new Set(parts.map((own) => bare(own[at] ?? ""))).size > 1;
  return parts.map((own) => bare(own.filter((_, at) => differs(at)).join("")));
}

/** A part without the separator at its end. */
function bare(part: string): string {
  return part.replace(/[-, ]+$/, "");
}

/**
 * The names with at most the first number of characters of `rooms` with which those that differ still do: cut
 * in the middle, or else at another place. If no number is enough, they are cut in the middle to the last.
 */
export function shortenedApart(names: string[], rooms: number[]): string[] {
  const count = new Set(names).size;
  let short = names;
  for (const most of rooms) {
    const middle = half(most);
    const ends = Array.from({ length: Math.max(most, 1) }, (_, end) => end);
    ends.sort((a, b) => Math.abs(a - middle) - Math.abs(b - middle));
    for (const end of ends) {
      short = names.map((name) => shortened(name, most, end));
      if (new Set(short).size === count) return short;
    }
    short = names.map((name) => shortened(name, most));
  }
  return short;
}

/** At most `most` characters: the beginning, and `end` characters of the end. */
export function shortened(name: string, most: number, end = half(most)): string {
  if (name.length <= most) return name;
  return `${name.slice(0, most - 1 - end)}…${end > 0 ? name.slice(-end) : ""}`;
}

/** The characters of each half of a name that is cut in the middle. */
function half(most: number): number {
  return Math.max(Math.floor((most - 1) / 2), 0);
}
