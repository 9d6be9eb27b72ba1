/** The summary table: one column per variant, one row per quantity. */
import { type Child, h } from "../dom.ts";
import { megabits, percent, plain, whole } from "../maths/format.ts";
import { isComplete, packetsOf } from "../maths/verdict.ts";
import type { Count, Direction, Quantiles, Queue, Report, Run } from "../model.ts";
import { table } from "./parts.ts";
import { variantName } from "./top.ts";
import {
  callsOf,
  completeOf,
  isExchange,
  queueKey,
  queueTitle,
  rangeOver,
  route,
  scoreOf,
  transfersKey,
  transfersOf,
  transfersTitle,
} from "./words.ts";

/** A smaller relative difference does not make a value the better one. */
const BETTER_BY = 0.01;

interface Row {
  label: Child;
  cells: { text: string; rank: number | null; condition: number }[];
  better: "low" | "high" | null;
}

export function summary(report: Report): HTMLElement {
  const rows = [
    ...goodputRows(report),
    ...pingRows(report),
    ...callRows(report),
    ...transferRows(report),
    ...queueRows(report),
    ...retransmitRows(report),
  ].filter((row) => row.cells.some((cell) => cell.text !== NOTHING));
  const counted = [...new Set(report.runs.map((run) => run.length_counted))].join("; ");
  return h(
    "section",
    { class: "card", id: "summary" },
    h("h2", {}, "Summary"),
    rows.length === 0
      ? h("p", {}, "Nothing was measured.")
      : table(["", ...report.runs.map(variantName)], rows.map(cellsOf)),
    h(
      "p",
      { class: "note" },
      `Goodput counts ${counted}; utilisation counts all bytes on the link. `,
      report.runs.length > 1
        ? "Bold: the best values of a row (by the median) among runs that differ only in their queues, if values differ by more than 1 %. "
        : "",
      report.runs.some((run) => run.repetitions.length > 1)
        ? "Values are medians over the repetitions; in brackets: the smallest and the largest, of delays those of p50."
        : "",
    ),
  );
}

const NOTHING = "—";

function cellsOf(row: Row): Child[] {
  const isBest = (cell: Row["cells"][number]): boolean => {
    if (row.better === null || cell.rank === null) return false;
    // Only runs that differ in nothing but their queues are compared.
    const rivals = row.cells.filter(({ condition }) => condition === cell.condition);
    const ranks = rivals.flatMap(({ rank }) => (rank === null ? [] : [rank]));
    const best = row.better === "low" ? Math.min(...ranks) : Math.max(...ranks);
    const worst = row.better === "low" ? Math.max(...ranks) : Math.min(...ranks);
    const matters = ranks.length > 1 && Math.abs(worst - best) > BETTER_BY * Math.abs(worst);
    return matters && Math.abs(cell.rank - best) <= BETTER_BY * Math.abs(best);
  };
  return [row.label, ...row.cells.map((cell) => (isBest(cell) ? h("strong", {}, cell.text) : cell.text))];
}

function rowOf<T>(
  label: Child,
  runs: Run[],
  pick: (run: Run) => T | null | undefined,
  say: (value: T) => string,
  better: Row["better"] = null,
  rank: (value: T) => number | null = () => null,
  repeated: { figure: string; say: (value: number) => string } | null = null,
): Row {
  const cells = runs.map((run) => {
    const value = pick(run);
    const { condition } = run;
    if (value === null || value === undefined) return { text: NOTHING, rank: null, condition };
    return {
      text: say(value) + (repeated === null ? "" : rangeOver(run, repeated.figure, repeated.say)),
      rank: isComplete(run) ? rank(value) : null,
      condition,
    };
  });
  return { label, cells, better };
}

function labelled(name: string, detail: string): HTMLElement {
  return h("span", {}, name, " ", h("small", {}, detail));
}

function goodputRows({ runs, ends }: Report): Row[] {
  return (["up", "down"] as Direction[]).flatMap((direction) => {
    const total = (run: Run) => run.directions.find((entry) => entry.direction === direction);
    return [
      rowOf(
        labelled("Goodput", route(direction, ends)),
        runs,
        (run) => total(run)?.goodput_mbps,
        megabits,
        "high",
        (mbps) => mbps,
        { figure: `Goodput ${direction}`, say: megabits },
      ),
      rowOf(
        labelled("Jain's index", `of the flows, ${direction}`),
        runs,
        (run) => total(run)?.jain,
        (jain) => jain.toFixed(3),
        "high",
        (jain) => jain,
      ),
    ];
  });
}

/** Three numbers, each on one line with its point. */
const sayQuantiles = (q: Quantiles) =>
  `${plain(q.p50)}\u00a0· ${plain(q.p95)}\u00a0· ${plain(q.p99)}\u00a0ms`;
const median = (q: Quantiles) => q.p50;
const P = "p50 · p95 · p99";

function pingRows({ runs, ends }: Report): Row[] {
  const calls = callsOf(runs);
  const all = [...new Set(runs.flatMap((run) => run.pings.map((ping) => ping.name)))];
  const names = all.filter((name) => !calls.includes(name));
  return names.flatMap((name) => {
    const ping = (run: Run) => run.pings.find((entry) => entry.name === name);
    const isPing = !isExchange(runs, name);
    const word = isPing ? "Ping" : "Requests";
    // A flow called by its type needs no other name.
    const isNamed = names.length > 1 && name !== (isPing ? "ping" : "rr");
    const label = isNamed ? `${word} ${name},` : `${word},`;
    return [
      rowOf(
        labelled(`${label} ${isPing ? "two-way" : "response time"}`, P),
        runs,
        (run) => ping(run)?.two_way,
        sayQuantiles,
        "low",
        median,
        runs.some((run) => run.main_ping === name) ? { figure: "Ping, median", say: plain } : null,
      ),
      rowOf(
        labelled(`${label} one-way`, `${route("up", ends)}, ${P}`),
        runs,
        (run) => ping(run)?.up,
        sayQuantiles,
        "low",
        median,
      ),
      rowOf(
        labelled(`${label} one-way`, `${route("down", ends)}, ${P}`),
        runs,
        (run) => ping(run)?.down,
        sayQuantiles,
        "low",
        median,
      ),
      rowOf(labelled(`${label} unanswered`, ""), runs, (run) => ping(run)?.loss, percent),
    ];
  });
}

/** The score, delay and losses of each call. */
function callRows({ runs, ends }: Report): Row[] {
  return callsOf(runs).flatMap((name) => {
    const call = (run: Run) => run.pings.find((entry) => entry.name === name);
    // A flow called call-up needs no other name.
    const title = /^call/i.test(name) ? `C${name.slice(1)}` : `Call ${name}`;
    const ways = (["up", "down"] as const).filter((way) => runs.some((run) => call(run)?.[way] != null));
    return [
      rowOf(
        labelled(`${title},`, "mean opinion score, 1 to 4.5"),
        runs,
        (run) => scoreOf(run, name),
        (score) => `MOS\u00a0${plain(score)}`,
        "high",
        (score) => score,
      ),
      ...ways.map((way) =>
        rowOf(
          labelled(`${title}, delay`, `${route(way, ends)}, ${P}`),
          runs,
          (run) => call(run)?.[way],
          sayQuantiles,
          "low",
          median,
        ),
      ),
      rowOf(labelled(`${title}, packets lost`, ""), runs, (run) => call(run)?.loss, percent),
    ];
  });
}

/** The completion times of the transfers and pages of each flow, and their number. */
function transferRows({ runs, ends }: Report): Row[] {
  return transfersOf(runs).flatMap((flow) => {
    const key = transfersKey(flow);
    const of = (run: Run) => run.transfers.find((entry) => transfersKey(entry) === key);
    const title = transfersTitle(flow);
    const isAnyOpen = runs.some((run) => (of(run)?.open ?? 0) > 0);
    // Open ones that have lasted longer than all that are complete count with their age.
    const counted = isAnyOpen ? `${P}, with slower open ones` : P;
    return [
      rowOf(
        labelled(`${title}, completion`, `${route(flow.direction, ends)}, ${counted}`),
        runs,
        (run) => of(run)?.completion_ms,
        sayQuantiles,
        "low",
        median,
      ),
      rowOf(labelled(`${title}, complete`, flow.direction), runs, of, completeOf),
    ];
  });
}

/** Whether no packet waited in the queue or was dropped or marked, so that its rows have no information. */
function isQuiet(queue: Queue): boolean {
  const signals = packetsOf(queue.drops) + packetsOf(queue.marks);
  return (
    signals === 0 &&
    (queue.sojourn_ms === null || queue.sojourn_ms.p99 < 0.1) &&
    (queue.utilisation ?? 0) < 0.1
  );
}

function queueRows({ runs, ends }: Report): Row[] {
  const all = runs.flatMap((run) => run.queues);
  const keys = [...new Set(all.filter((queue) => !isQuiet(queue)).map(queueKey))];
  return keys.flatMap((key) => {
    const queue = (run: Run) => run.queues.find((entry) => queueKey(entry) === key);
    const first = all.find((entry) => queueKey(entry) === key);
    const where = first === undefined ? key : queueTitle(first, ends);
    const reasonRows = (name: string, pick: (queue: Queue) => Count[]) => {
      const reasons = new Set(
        runs
          .flatMap((run) => (queue(run) === undefined ? [] : pick(queue(run) as Queue)))
          .filter((count) => count.packets > 0)
          .map((count) => count.reason),
      );
      return [...reasons].map((reason) =>
        rowOf(labelled(name, `${reason}; ${where}`), runs, queue, (entry) =>
          whole(packetsOf(pick(entry).filter((count) => count.reason === reason))),
        ),
      );
    };
    return [
      rowOf(
        labelled("Utilisation", where),
        runs,
        (run) => queue(run)?.utilisation,
        percent,
        "high",
        (share) => share,
      ),
      rowOf(
        labelled("Sojourn time", `${where}, ${P}`),
        runs,
        (run) => queue(run)?.sojourn_ms,
        sayQuantiles,
        "low",
        median,
        { figure: `Sojourn time ${first?.name}, median`, say: plain },
      ),
      rowOf(labelled("Packets sent", where), runs, queue, (entry) => whole(entry.sent)),
      ...reasonRows("Drops", (entry) => entry.drops),
      ...reasonRows("CE marks", (entry) => entry.marks),
    ];
  });
}

function retransmitRows({ runs }: Report): Row[] {
  const label = labelled("Retransmissions", "segments, all flows");
  return [rowOf(label, runs, (run) => run.retransmits, whole)];
}
