/** The variables of algorithms: which of them is shown first, and their units. */
import { milliseconds, plain, whole } from "./format.ts";

/** The kinds of variables; an instant is relative to now. */
export type StateKind = "count" | "instant" | "span" | "ratio" | "flag";

/** Sorts the names of variables: those that say most come first. */
export function preferred(names: string[]): string[] {
  // Variables that determine what happens to packets come before counters.
  const first = ["prob", "delay", "count", "average"].flatMap((word) =>
    names.filter((name) => name.startsWith(word)),
  );
  // An instant, such as that of the next drop, is a straight line and tells least, so it comes last.
  const others = names.filter((name) => !/^\w+_next\b/.test(name));
  return [...new Set([...first, ...others, ...names])];
}

export interface StateUnit {
  /** The unit of the axis; empty for a plain number. */
  unit: string;
  /** The factor from the value of a sample, whose times are in nanoseconds. */
  scale: number;
  /** Formats a value in this unit. */
  say: (value: number) => string;
}

export function stateUnit(kind: StateKind): StateUnit {
  if (kind === "span") return { unit: "ms", scale: 1e-6, say: milliseconds };
  if (kind === "instant") return { unit: "ms from now", scale: 1e-6, say: fromNow };
  if (kind === "flag")
    return { unit: "0: no, 1: yes", scale: 1, say: (value) => (value === 0 ? "no" : "yes") };
  return { unit: "", scale: 1, say: kind === "count" ? whole : plain };
}

function fromNow(ms: number): string {
  return ms < 0 ? `${milliseconds(-ms)} ago` : `in ${milliseconds(ms)}`;
}

/** The variables of a sample: `count 10, drop_next in 5.30 ms, dropping yes`. */
export function sayStates(state: Record<string, number>, kinds: Record<string, StateKind>): string {
  return Object.entries(state)
    .map(([name, value]) => {
      const { scale, say } = stateUnit(kinds[name] ?? "count");
      return `${name} ${say(value * scale)}`;
    })
    .join(", ");
}
