/** Short names for charts with little room. */

/**
 * The names without the parts that all of them share, such as `rtt=10ms` and `rtt=30ms` for
 * `target=1ms-rtt=10ms` and `target=1ms-rtt=30ms`. Names of different forms stay.
 */
export function distinct(names: string[]): string[] {
  // The minus of `x=-1` or `1e-3` separates nothing.
  const parts = names.map((name) => name.split(/(?<=[, ]|(?<!=|\d[eE])-)/));
  const count = parts[0]?.length ?? 0;
  if (new Set(names).size < 2 || parts.some((own) => own.length !== count)) return names;
  const differs = (at: number) => new Set(parts.map((own) => bare(own[at] ?? ""))).size > 1;
  return parts.map((own) => bare(own.filter((_, at) => differs(at)).join("")));
}

/** A part without the separator at its end. */
function bare(part: string): string {
  return part.replace(/[-, ]+$/, "");
}

/** At most `most` characters: the beginning and the end, where names differ most often. */
export function shortened(name: string, most: number): string {
  if (name.length <= most) return name;
  const end = Math.floor((most - 1) / 2);
  return `${name.slice(0, most - 1 - end)}…${end > 0 ? name.slice(-end) : ""}`;
}
