/**
 * Sentences about the runs. Each is computed from the numbers of the report and claims nothing
 * beyond them; what was not measured is not mentioned.
 */
import type { Count, Direction, Ping, Quantiles, Run } from "../model.ts";
import { enumerate, megabits, milliseconds, percent, whole } from "./format.ts";

/** Below this distance two values of a comparison are called equal. */
const SAME_DELAY_MS = 1;
const SAME_SHARE = 0.01;
/**
 * With this part of the most goodput a run is still one to recommend, if its delay is so many times shorter
 * than that of runs with more. As in the index of runs.
 */
const ENOUGH = [
  { share: 0.95, times: 0 },
  { share: 0.8, times: 3 },
  { share: 0.65, times: 10 },
];
/** A sentence that names more runs than this is not read. */
const MOST_NAMES = 4;

export interface Verdict {
  /** Comparison of the complete runs; empty with fewer than two. */
  overall: string[];
  /** One line per run, in their order. */
  perRun: string[];
}

export function judge(runs: Run[]): Verdict {
  const complete = runs.filter((run) => run.partial === null);
  const overall = [
    compareBoth(complete),
    compareDelay(complete),
    compareGoodput(complete, "up"),
    compareGoodput(complete, "down"),
  ];
  return { overall: overall.filter((sentence) => sentence !== null), perRun: runs.map(describe) };
}

export function packetsOf(counts: Count[]): number {
  return counts.reduce((total, count) => total + count.packets, 0);
}

/** The first ping that has answers. */
export function mainPing(run: Run): Ping | null {
  return run.pings.find((ping) => ping.two_way !== null) ?? null;
}

function describe(run: Run): string {
  const parts = [describePing(run) ?? describeWait(run), describeGoodput(run), describeSignals(run)];
  const said = parts.filter((part) => part !== null).join(" ");
  return run.partial === null ? said : `Partial run (${run.partial}), so these are not totals. ${said}`;
}

function describePing(run: Run): string | null {
  const ping = mainPing(run);
  if (ping === null || ping.two_way === null) return null;
  const { p50, p99 } = ping.two_way;
  const load = run.directions.some((total) => total.goodput_mbps > 0) ? " under load" : "";
  const tail = `99 % within ${milliseconds(p99)}`;
  const lost = ping.lost > 0 ? `; ${whole(ping.lost)} of ${whole(ping.sent)} got no answer` : "";
  if (run.base_rtt_ms === null) return `Ping${load}: median ${milliseconds(p50)}, ${tail}${lost}.`;
  const base = milliseconds(run.base_rtt_ms);
  // A rise that the displayed digits would not show is not called one.
  const rises = p50 - run.base_rtt_ms >= 0.05 && milliseconds(p50) !== base;
  const median = rises
    ? `Ping rises${load} from ${base} to ${milliseconds(p50)} at the median`
    : `Ping${load} stays at ${milliseconds(p50)} at the median (empty path ${base})`;
  return `${median}, ${tail}${lost}.`;
}

/** Where there are no pings. */
function describeWait(run: Run): string | null {
  const waits = wait(run);
  if (waits === null) return null;
  return `Packets wait ${milliseconds(waits.p50)} at the median, 99 % at most ${milliseconds(waits.p99)}.`;
}

function describeGoodput(run: Run): string | null {
  const said = run.directions
    .filter((total) => total.goodput_mbps > 0)
    .map((total) => `${megabits(total.goodput_mbps)} ${total.direction}`);
  return said.length > 0 ? `Goodput ${enumerate(said)}.` : null;
}

function describeSignals(run: Run): string | null {
  if (run.queues.length === 0) return null;
  const marks = run.queues.flatMap((queue) => queue.marks);
  const drops = run.queues.flatMap((queue) => queue.drops);
  const dropped = packetsOf(drops);
  if (run.queues.every((queue) => queue.sent + packetsOf(queue.drops) === 0))
    return "No packet reached a queue.";
  // A queue without losses, such as that of the acknowledgements, does not make those of another less.
  const losing = run.queues.filter((queue) => packetsOf(queue.drops) > 0);
  const offered = losing.reduce((total, queue) => total + queue.sent, dropped);
  const dropPart =
    dropped === 0 ? "Nothing was dropped" : `${amount(dropped, offered)} dropped (${reasons(drops)})`;
  const marked = packetsOf(marks);
  const markPart = marked === 0 ? "nothing marked" : `${whole(marked)} CE-marked`;
  return `${dropPart}, ${markPart}.`;
}

function amount(part: number, total: number): string {
  return `${whole(part)} of ${whole(total)} packets (${percent(part / total)})`;
}

function reasons(counts: Count[]): string {
  const merged = new Map<string, number>();
  for (const { reason, packets } of counts) merged.set(reason, (merged.get(reason) ?? 0) + packets);
  const used = [...merged].filter(([, packets]) => packets > 0);
  if (used.length === 1) return used.map(([reason]) => reason).join("");
  return enumerate(used.map(([reason, packets]) => `${whole(packets)} ${reason}`));
}

/** All of a few, the first of many. */
function some(words: string[]): string {
  if (words.length <= MOST_NAMES) return enumerate(words);
  return `${words.slice(0, MOST_NAMES).join(", ")} and ${words.length - MOST_NAMES} more`;
}

/** Total goodput of a run over both directions. */
function totalOf(run: Run): number {
  return run.directions.reduce((sum, total) => sum + total.goodput_mbps, 0);
}

/** The queue in which packets waited longest, at the median. */
function wait(run: Run): Quantiles | null {
  const waits = run.queues.flatMap((queue) => queue.sojourn_ms ?? []);
  return waits.reduce<Quantiles | null>(
    (most, own) => (most === null || own.p50 > most.p50 ? own : most),
    null,
  );
}

interface Measured {
  run: Run;
  delay: Quantiles;
  mbps: number;
}

/** The delays of runs: of pings if there are any, else of the packets in the queue. */
function delaysOf(runs: Run[]): { measured: Measured[]; hasPings: boolean } {
  const hasPings = runs.some((run) => mainPing(run) !== null);
  const measured = runs.flatMap((run) => {
    const delay = hasPings ? (mainPing(run)?.two_way ?? null) : wait(run);
    return delay === null ? [] : [{ run, delay, mbps: totalOf(run) }];
  });
  return { measured, hasPings };
}

/**
 * The runs that carry enough: nearly the most goodput, or less of it for a delay that is far shorter
 * than that of all before.
 */
function carriesEnough(measured: Measured[]): Measured[] {
  const most = Math.max(0, ...measured.map(({ mbps }) => mbps));
  let enough: Measured[] = [];
  for (const { share, times } of ENOUGH) {
    const shortest = Math.min(...enough.map(({ delay }) => delay.p95));
    enough = measured.filter(
      (one) => enough.includes(one) || (one.mbps >= share * most && one.delay.p95 * times <= shortest),
    );
  }
  return enough;
}

/**
 * Which run is better, and why: of those that carry enough, the one whose pings take least, judged by
 * what 95 % of them stay within. Says nothing where no run stands out.
 */
function compareBoth(runs: Run[]): string | null {
  const { measured, hasPings } = delaysOf(runs);
  const most = Math.max(0, ...measured.map(({ mbps }) => mbps));
  const eligible = carriesEnough(measured).sort((a, b) => a.delay.p95 - b.delay.p95);
  const best = eligible[0];
  if (best === undefined) return null;
  const isClose = ({ delay }: Measured) => delay.p95 - best.delay.p95 < SAME_DELAY_MS;
  const close = eligible.filter(isClose);
  const worse = measured.filter((one) => !close.includes(one) && !isClose(one));
  const worst = worse.sort((a, b) => b.delay.p95 - a.delay.p95)[0];
  if (worst === undefined) return null;
  const names = some(close.map(({ run }) => run.name));
  const share = most > 0 ? ` at ${percent(best.mbps / most)} of the most goodput` : "";
  const [here, there] = [wait(best.run)?.p50 ?? null, wait(worst.run)?.p50 ?? null];
  const why =
    hasPings && here !== null && there !== null && there - here >= SAME_DELAY_MS
      ? ` Packets wait ${milliseconds(here)} in its queue at the median, ${milliseconds(there)} in that of ${worst.run.name}.`
      : "";
  const it = close.length > 1 ? best.run.name : "";
  const delays = hasPings
    ? `95 % of ${it === "" ? "its pings" : `the pings over ${it}`} take`
    : `95 % of the packets ${it === "" ? "in its queue" : `in the queue of ${it}`} wait`;
  return `Best here: ${names}. ${delays} at most ${milliseconds(best.delay.p95)}${share}, against ${milliseconds(worst.delay.p95)} over ${worst.run.name}.${why}`;
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
    return `Delay: the ping medians of all lie within ${SAME_DELAY_MS} ms of each other.`;
  }
  const close = measured.filter((run) => run.p50 - best.p50 < SAME_DELAY_MS);
  const rest = measured.filter((run) => run.p50 - best.p50 >= SAME_DELAY_MS);
  const lead = some(close.map((run) => `${run.name} (${milliseconds(run.p50)})`));
  const nearest = rest[0] ?? worst;
  const others =
    rest.length <= MOST_NAMES
      ? enumerate(rest.map((run) => `${milliseconds(run.p50)} over ${run.name}`))
      : `${milliseconds(nearest.p50)} to ${milliseconds(worst.p50)} over the ${rest.length} others`;
  return `Lowest delay: ${lead}, against ${others} (ping medians).`;
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
    return `Goodput ${direction}: all within ${SAME_SHARE * 100} % of ${megabits(best.mbps)}.`;
  }
  const close = measured.filter((run) => short(run) < SAME_SHARE);
  const rest = measured.filter((run) => short(run) >= SAME_SHARE);
  const lead = some(close.map((run) => `${run.name} (${megabits(run.mbps)})`));
  const nearest = rest[0] ?? worst;
  const others =
    rest.length <= MOST_NAMES
      ? enumerate(rest.map((run) => `${run.name} has ${percent(short(run))} less`))
      : `the ${rest.length} others have ${percent(short(nearest))} to ${percent(short(worst))} less`;
  return `Most goodput ${direction}: ${lead}; ${others}.`;
}
