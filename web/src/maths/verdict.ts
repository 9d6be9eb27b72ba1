/**
 * Sentences about the runs that are shown. Each states numbers of the report; quantities that were
 * not measured are not mentioned. Which queue is best is part of the report (`Judgement`).
 */
import type { Count, Direction, Ping, Run } from "../model.ts";
import { enumerate, megabits, milliseconds, percent, whole } from "./format.ts";

/** Differences below these count as none. */
const SAME_DELAY_MS = 1;
const SAME_SHARE = 0.01;
/** Comparisons on a page; a sweep over many conditions has a curve. */
const MOST_SENTENCES = 9;
/** Names per sentence; further runs are only counted. */
const MOST_NAMES = 4;

export interface Description {
  /** Comparisons of the complete runs whose queues worked; empty with fewer than two. */
  overall: string[];
  /** One line per run, in their order. */
  perRun: string[];
}

export function describe(runs: Run[]): Description {
  const complete = runs.filter(isComplete);
  // Waits are compared only within one queue.
  const queue = busiestQueue(runs);
  const groups = conditions(complete);
  const overall = groups.flatMap((group) => {
    const words = groups.length > 1 ? (group[0]?.condition_words ?? "") : "";
    const lead = words === "" ? "" : `At ${words}: `;
    const said = [compareDelay(group), compareGoodput(group, "up"), compareGoodput(group, "down")];
    return said.flatMap((sentence) =>
      sentence === null
        ? []
        : [lead === "" ? sentence : `${lead}${sentence.charAt(0).toLowerCase()}${sentence.slice(1)}`],
    );
  });
  return {
    overall: overall.slice(0, MOST_SENTENCES),
    perRun: runs.map((run) => describeRun(run, queue)),
  };
}

/** Whether the figures of a run are those of its queue, over its whole duration. */
export function isComplete(run: Run): boolean {
  return run.partial === null && run.stopped.length === 0;
}

/** Groups runs that differ only in their queues: only these are compared. */
function conditions(runs: Run[]): Run[][] {
  const groups = new Map<number, Run[]>();
  for (const run of runs) groups.set(run.condition, [...(groups.get(run.condition) ?? []), run]);
  return [...groups.values()];
}

/** The key of the queue with the longest waits over all runs, `DIRECTION NAME`. */
export function busiestQueue(runs: Run[]): string {
  const waits = new Map<string, number>();
  for (const { direction, name, sojourn_ms } of runs.flatMap((run) => run.queues)) {
    const key = `${direction} ${name}`;
    waits.set(key, (waits.get(key) ?? 0) + (sojourn_ms?.p50 ?? 0));
  }
  return [...waits].sort(([, a], [, b]) => b - a)[0]?.[0] ?? "";
}

export function packetsOf(counts: Count[]): number {
  return counts.reduce((total, count) => total + count.packets, 0);
}

/** The ping whose round trips are compared; in this run, none may have been answered. */
export function mainPing(run: Run): Ping | null {
  return run.pings.find((ping) => ping.name === run.main_ping) ?? null;
}

/** Jain's index in the worse direction, as in all tables of figures; `null` if neither has one. */
export function worstJain(run: Run): number | null {
  const known = run.directions.flatMap(({ jain }) => jain ?? []);
  return known.length === 0 ? null : Math.min(...known);
}

function describeRun(run: Run, queue: string): string {
  const parts = [describePing(run) ?? describeWait(run, queue), describeGoodput(run), describeSignals(run)];
  const said = parts.filter((part) => part !== null).join(" ");
  if (run.stopped.length > 0) return `Its queue was stopped by an error: these are not its figures. ${said}`;
  return run.partial === null ? said : `Partial run (${run.partial}): these are not totals. ${said}`;
}

function describePing(run: Run): string | null {
  const ping = mainPing(run);
  if (ping === null || ping.two_way === null) return null;
  const { p50, p99 } = ping.two_way;
  const load = run.directions.some((total) => total.goodput_mbps > 0) ? " under load" : "";
  const tail = `99 % within ${milliseconds(p99)}`;
  const lost = (ping.loss ?? 0) > 0 ? `; ${percent(ping.loss ?? 0)} unanswered` : "";
  if (run.base_rtt_ms === null) return `Ping${load}: median ${milliseconds(p50)}, ${tail}${lost}.`;
  const base = milliseconds(run.base_rtt_ms);
  // A rise is mentioned only if the displayed digits show it.
  const rises = p50 - run.base_rtt_ms >= 0.05 && milliseconds(p50) !== base;
  const median = rises
    ? `The median ping rises${load} from ${base} to ${milliseconds(p50)}`
    : `The median ping${load} stays at ${milliseconds(p50)} (empty path: ${base})`;
  return `${median}, ${tail}${lost}.`;
}

/** Describes the wait in the queue, for runs without pings. */
function describeWait(run: Run, key: string): string | null {
  const queue = run.queues.find((entry) => `${entry.direction} ${entry.name}` === key);
  const waits = queue?.sojourn_ms ?? null;
  if (queue === undefined || waits === null) return null;
  return `Packets wait ${milliseconds(waits.p50)} in the queue ${queue.name} at the median, 99 % at most ${milliseconds(waits.p99)}.`;
}

function describeGoodput(run: Run): string | null {
  const said = run.directions
    .filter((total) => total.goodput_mbps > 0)
    .map((total) => `${megabits(total.goodput_mbps)} ${total.direction}`);
  return said.length > 0 ? `Goodput ${enumerate(said)}.` : null;
}

function describeSignals(run: Run): string | null {
  if (run.queues.length === 0) return null;
  if (run.queues.every((queue) => queue.sent + packetsOf(queue.drops) === 0))
    return "No packet reached a queue.";
  // One queue at a time: the acknowledgements in another one would dilute its share.
  const losing = run.queues.filter((queue) => packetsOf(queue.drops) > 0);
  const drops = losing.map(({ drops, loss, name, direction }) => {
    const where = name === direction ? direction : `in ${name}`;
    return `${whole(packetsOf(drops))} packets ${where} (${percent(loss ?? 0)}; ${reasons(drops)})`;
  });
  const marks = run.marks === 0 ? "none" : whole(run.marks);
  return `Dropped: ${drops.length === 0 ? "none" : enumerate(drops)}. CE-marked: ${marks}.`;
}

function reasons(counts: Count[]): string {
  const merged = new Map<string, number>();
  for (const { reason, packets } of counts) merged.set(reason, (merged.get(reason) ?? 0) + packets);
  const used = [...merged].filter(([, packets]) => packets > 0);
  if (used.length === 1) return used.map(([reason]) => reason).join("");
  return enumerate(used.map(([reason, packets]) => `${whole(packets)} ${reason}`));
}

/** Lists all of a few names, and the first of many. */
function some(words: string[]): string {
  if (words.length <= MOST_NAMES) return enumerate(words);
  return `${words.slice(0, MOST_NAMES).join(", ")} and ${words.length - MOST_NAMES} more`;
}

function compareDelay(runs: Run[]): string | null {
  const measured: { name: string; p50: number }[] = [];
  for (const run of runs) {
    const p50 = mainPing(run)?.two_way?.p50;
    if (p50 !== undefined) measured.push({ name: run.name, p50 });
  }
  if (measured.length < 2) return null;
  measured.sort((a, b) => a.p50 - b.p50);
  const best = measured[0] as { name: string; p50: number };
  const worst = measured[measured.length - 1] as { name: string; p50: number };
  if (worst.p50 - best.p50 < SAME_DELAY_MS) {
    return `Delay: all ping medians are within ${SAME_DELAY_MS} ms of each other.`;
  }
  const close = measured.filter((run) => run.p50 - best.p50 < SAME_DELAY_MS);
  const rest = measured.filter((run) => run.p50 - best.p50 >= SAME_DELAY_MS);
  const lead = some(close.map((run) => `${run.name} (${milliseconds(run.p50)})`));
  const nearest = rest[0] ?? worst;
  const others =
    rest.length <= MOST_NAMES
      ? enumerate(rest.map((run) => `${milliseconds(run.p50)} with ${run.name}`))
      : `${milliseconds(nearest.p50)} to ${milliseconds(worst.p50)} with the ${rest.length} others`;
  return `Lowest ping median: ${lead}, compared with ${others}.`;
}

function compareGoodput(runs: Run[], direction: Direction): string | null {
  const measured: { name: string; mbps: number }[] = [];
  for (const run of runs) {
    const total = run.directions.find((entry) => entry.direction === direction);
    if (total !== undefined) measured.push({ name: run.name, mbps: total.goodput_mbps });
  }
  if (measured.length < 2) return null;
  measured.sort((a, b) => b.mbps - a.mbps);
  const best = measured[0] as { name: string; mbps: number };
  if (best.mbps <= 0) return null;
  const short = (run: { mbps: number }) => 1 - run.mbps / best.mbps;
  const worst = measured[measured.length - 1] as { name: string; mbps: number };
  if (short(worst) < SAME_SHARE) {
    return `Goodput ${direction}: all are within ${SAME_SHARE * 100} % of ${megabits(best.mbps)}.`;
  }
  const close = measured.filter((run) => short(run) < SAME_SHARE);
  const rest = measured.filter((run) => short(run) >= SAME_SHARE);
  const lead = some(close.map((run) => `${run.name} (${megabits(run.mbps)})`));
  const nearest = rest[0] ?? worst;
  const others =
    rest.length <= MOST_NAMES
      ? enumerate(rest.map((run) => `${run.name} has ${percent(short(run))} less`))
      : `the ${rest.length} others have ${percent(short(nearest))} to ${percent(short(worst))} less`;
  return `Highest goodput ${direction}: ${lead}; ${others}.`;
}
