/** Names of directions, queues and flows, and sentences about them. */
import { whole } from "../maths/format.ts";
import {
  type Direction,
  type Ends,
  type Flow,
  PALETTE,
  type Queue,
  type Repeat,
  type Run,
  type Transfers,
} from "../model.ts";

/** Whether a flow is a call: it has a mean opinion score, and its delay in one direction only. */
export function isCall(runs: Run[], name: string): boolean {
  const has = figuresOf(runs, name);
  return has("mos") && !has("p50");
}

/** Whether a flow is requests and responses over a connection: it has round trips, and no one-way delay. */
export function isExchange(runs: Run[], name: string): boolean {
  const has = figuresOf(runs, name);
  return has("p50") && !has("up.p50") && !has("down.p50");
}

/** Whether any run has a figure of the flow. */
function figuresOf(runs: Run[], name: string): (figure: string) => boolean {
  // Several of one flow share its figures.
  const flow = [name, name.replace(/-\d+$/, "")];
  return (figure) =>
    runs.some((run) => run.figures.some((entry) => flow.some((word) => entry.name === `${word}.${figure}`)));
}

/** "All 3 expectations of the scenario were met." */
export function outcome(failed: number, all: number): string {
  if (all === 1) return `The expectation of the scenario was ${failed === 1 ? "not met" : "met"}.`;
  if (failed === 0) return `All ${all} expectations of the scenario were met.`;
  return `${failed} of ${all} expectations of the scenario ${failed === 1 ? "was" : "were"} not met.`;
}

/** The mean opinion score of a call, or of several of one flow. */
export function scoreOf(run: Run, name: string): number | null {
  const names = [`${name}.mos`, `${name.replace(/-\d+$/, "")}.mos`];
  const found = run.figures.find((figure) => names.includes(figure.name));
  const score = Number.parseFloat(found?.value ?? "");
  return Number.isFinite(score) ? score : null;
}

/** The names of the calls. */
export function callsOf(runs: Run[]): string[] {
  const names = [...new Set(runs.flatMap((run) => run.pings.map((ping) => ping.name)))];
  return names.filter((name) => isCall(runs, name));
}

/** The transfers or pages of each flow that has some in any run, those of the first such run. */
export function transfersOf(runs: Run[]): Transfers[] {
  const all = new Map<string, Transfers>();
  for (const one of runs.flatMap((run) => run.transfers)) {
    const key = transfersKey(one);
    if (!all.has(key)) all.set(key, one);
  }
  return [...all.values()];
}

/** Identifies the same transfers in different runs: "12 flows" may be the name of those of both directions. */
export function transfersKey({ name, is_pages, direction }: Transfers): string {
  return `${direction} ${is_pages} ${name}`;
}

/** "Pages of browser", or "Transfers of file". */
export function transfersTitle({ name, is_pages }: Transfers): string {
  const what = is_pages ? "Pages" : "Transfers";
  // A flow called pages needs no other name.
  return name.toLowerCase() === what.toLowerCase() ? what : `${what} of ${name}`;
}

/** How many were complete, "38", and how many were still open at the end, "38 (2 open)". */
export function completeOf({ completion_ms, open }: Transfers): string {
  const complete = whole(completion_ms?.count ?? 0);
  return (open ?? 0) > 0 ? `${complete} (${whole(open ?? 0)} open)` : complete;
}

/** "up, h2 → h3". */
export function route(direction: Direction, ends: Ends): string {
  const [from, to] = direction === "up" ? [ends.left, ends.right] : [ends.right, ends.left];
  return `${direction}, ${from} → ${to}`;
}

/** Identifies the same queue in different runs. */
export function queueKey(queue: Queue): string {
  return `${queue.direction} ${queue.name}`;
}

export function queueTitle(queue: Queue, ends: Ends): string {
  const where = route(queue.direction, ends);
  // For a queue that is named after its direction, the direction is shown once.
  return queue.name === queue.direction ? where : `${queue.name}, ${where}`;
}

export function flowKind(flow: Flow): string {
  return flow.cc === null ? flow.kind : `${flow.kind}, ${flow.cc}`;
}

/** The repetition that the curves show, and the number of repetitions. */
export function repetitionNote(runs: Run[]): string {
  const repeated = runs.filter((run) => run.repetitions.length > 1);
  if (repeated.length === 0) return "";
  const numbers = [...new Set(repeated.map((run) => run.repetitions.length))].join(" or ");
  const seeds = [...new Set(repeated.map((run) => run.shown_seed))].join(", ");
  return `Figures are medians over ${numbers} repetitions. Curves, packets and distributions show the repetition with seed ${seeds}.`;
}

/** In how many of the repetitions a figure was measured, ", in 5 of 8 runs"; nothing if in all. */
export function measuredIn(run: Run, repeat: Repeat): string {
  const [count, all] = [repeat.values.length, run.repetitions.length];
  return count < all ? `, in ${count} of ${all} runs` : "";
}

/**
 * The range of a figure over the repetitions, " (9.4 to 9.6)", and in how many of them it was measured
 * unless in all, ", in 5 of 8 runs"; nothing for a single run. `say` formats a value as the one before it.
 */
export function rangeOver(run: Run, figure: string, say: (value: number) => string): string {
  const repeat = run.repeats.find((entry) => entry.figure === figure);
  if (repeat === undefined) return "";
  const [low, high] = [say(Math.min(...repeat.values)), say(Math.max(...repeat.values))];
  return (low === high ? "" : ` (${low} to ${high})`) + measuredIn(run, repeat);
}

/**
 * How often the palette is gone through. The lines of a run whose colour another run has, too, differ in
 * dashes: its flows are this many patterns apart.
 */
export function rounds(runs: Run[]): number {
  return 1 + Math.floor(Math.max(0, ...runs.map((run) => run.look)) / PALETTE.length);
}

/** Why the goodput of some runs is above the rate of the link; empty if that of none is. */
export function aboveLink(runs: Pick<Run, "drops">[]): string {
  if (runs.length === 0) return "";
  const why = runs.some((run) => run.drops > 0)
    ? "TCP delivers in order, so the arrival of a lost packet's copy releases all bytes behind it at once"
    : "it counts whole packets, and few of them fit into the time over which it is averaged";
  return `Goodput above the rate of the link: ${why}.`;
}
