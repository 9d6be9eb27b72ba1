import assert from "node:assert/strict";
import { test } from "node:test";
import { contour } from "../src/maths/ellipse.ts";
import { megabits, plain } from "../src/maths/format.ts";
import { describe, mainPing, worstJain } from "../src/maths/verdict.ts";
import type { Count, Repeat, Run, Transfers } from "../src/model.ts";
import { completeOf, measuredIn, rangeOver, transfersOf, transfersTitle } from "../src/page/words.ts";

interface Sketch {
  p50?: number;
  p99?: number;
  lost?: number;
  base?: number | null;
  up?: number;
  drops?: Count[];
  marks?: Count[];
  sent?: number;
  partial?: string;
  stopped?: string[];
  condition?: number;
}

function run(name: string, sketch: Sketch): Run {
  const { p50, p99 = p50 } = sketch;
  const two_way =
    p50 === undefined || p99 === undefined ? null : { count: 100, p50, p95: p99, p99, max: p99 };
  return {
    name,
    partial: sketch.partial ?? null,
    stopped: sketch.stopped ?? [],
    condition: sketch.condition ?? 0,
    condition_words: sketch.condition === undefined ? "" : `link.rtt ${sketch.condition}ms`,
    base_rtt_ms: sketch.base === undefined ? 20 : sketch.base,
    repetitions: [1],
    directions: sketch.up === undefined ? [] : [{ direction: "up", goodput_mbps: sketch.up, jain: null }],
    pings: two_way === null ? [] : [{ name: "ping", loss: (sketch.lost ?? 0) / 100, two_way }],
    main_ping: "ping",
    marks: (sketch.marks ?? []).reduce((sum, { packets }) => sum + packets, 0),
    queues: sketch.sent === undefined ? [] : [queueOf(sketch.sent, sketch.drops ?? [], sketch.marks ?? [])],
  } as unknown as Run;
}

function queueOf(sent: number, drops: Count[], marks: Count[]): object {
  const dropped = drops.reduce((sum, { packets }) => sum + packets, 0);
  return { name: "up", direction: "up", sent, drops, marks, loss: dropped / (sent + dropped) };
}

/** The sentence as read: non-breaking spaces do not matter here. */
const plainly = (sentence = "") => sentence.replaceAll("\u00a0", " ");
const only = (sketch: Sketch) => plainly(describe([run("x", sketch)]).perRun[0]);

test("a run is described by its rise in delay, its goodput and its signals", () => {
  assert.equal(
    only({ p50: 830, p99: 905, lost: 2, up: 9.5, sent: 12000, drops: [{ reason: "overflow", packets: 45 }] }),
    "The median ping rises under load from 20.0 ms to 830 ms, 99 % within 905 ms; 2.00 % unanswered. " +
      "Goodput 9.50 Mbit/s up. Dropped: 45 packets up (0.374 %; overflow). CE-marked: none.",
  );
});

test("no rise is claimed that the digits do not show", () => {
  assert.equal(
    only({ p50: 20.01, p99: 20.3, up: 9.5, sent: 10, marks: [{ reason: "congestion", packets: 1 }] }),
    "The median ping under load stays at 20.0 ms (empty path: 20.0 ms), 99 % within 20.3 ms. " +
      "Goodput 9.50 Mbit/s up. Dropped: none. CE-marked: 1.",
  );
});

test("without load, base or ping they are not mentioned", () => {
  assert.equal(only({ p50: 20.4, p99: 21, base: null }), "Ping: median 20.4 ms, 99 % within 21.0 ms.");
  assert.equal(only({ up: 1 }), "Goodput 1.00 Mbit/s up.");
  assert.equal(only({}), "");
});

test("several drop reasons are counted one by one", () => {
  const drops = [
    { reason: "overflow", packets: 3 },
    { reason: "congestion", packets: 2 },
    { reason: "overflow", packets: 1 },
    { reason: "loss", packets: 0 },
  ];
  assert.match(only({ sent: 94, drops }), /6 packets up \(6\.00 %; 4 overflow and 2 congestion\)/);
});

test("runs are compared by delay and by goodput", () => {
  const { overall } = describe([
    run("fifo", { p50: 830, up: 9.55 }),
    run("codel", { p50: 23.4, up: 9.43 }),
    run("fq_codel", { p50: 20.7, up: 9.54 }),
  ]);
  assert.deepEqual(overall.map(plainly), [
    "Lowest ping median: fq_codel (20.7 ms), compared with 23.4 ms with codel and 830 ms with fifo.",
    // 1 - 9.43 / 9.55 = 1.2565 %; fq_codel is 0.1 % below the best, which counts as equal.
    "Highest goodput up: fifo (9.55 Mbit/s) and fq_codel (9.54 Mbit/s); codel has 1.26 % less.",
  ]);
});

test("small differences are not made into winners", () => {
  const { overall } = describe([run("a", { p50: 20.2, up: 9.5 }), run("b", { p50: 20.9, up: 9.48 })]);
  assert.deepEqual(overall.map(plainly), [
    "Delay: all ping medians are within 1 ms of each other.",
    "Goodput up: all are within 1 % of 9.50 Mbit/s.",
  ]);
});

test("the ping is the same flow in all runs, also in one without a reply", () => {
  const two_way = { count: 1, p50: 25, p95: 25, p99: 25, max: 25 };
  const pings = [
    { name: "far", two_way: null },
    { name: "near", two_way },
  ];
  const starved = { ...run("fifo", {}), pings, main_ping: "far" } as unknown as Run;
  assert.equal(mainPing(starved)?.name, "far");
  assert.deepEqual(describe([starved, run("codel", { p50: 230 })]).overall, []);
});

test("a run has one index of fairness, that of the worse direction", () => {
  const of = (...jains: (number | null)[]) =>
    worstJain({ directions: jains.map((jain) => ({ jain })) } as unknown as Run);
  assert.equal(of(1, 0.4), 0.4);
  assert.equal(of(0.4, 1), 0.4);
  // One flow up has no index, and does not hide that of the flows down.
  assert.equal(of(null, 0.4), 0.4);
  assert.equal(of(null), null);
});

test("of many runs the first are named and the others counted", () => {
  const fast = [1, 2, 3, 4, 5, 6].map((n) => run(`a${n}`, { p50: 20 + n / 10 }));
  const slow = [1, 2, 3, 4, 5].map((n) => run(`b${n}`, { p50: 100 * n }));
  assert.deepEqual(describe([...slow, ...fast]).overall.map(plainly), [
    "Lowest ping median: a1 (20.1 ms), a2 (20.2 ms), a3 (20.3 ms), a4 (20.4 ms) and 2 more, " +
      "compared with 100 ms to 500 ms with the 5 others.",
  ]);
});

test("a partial run is named as such and has no part in the comparison", () => {
  const { overall, perRun } = describe([
    run("a", { p50: 20 }),
    run("b", { p50: 500, partial: "interrupted by Ctrl-C" }),
  ]);
  assert.deepEqual(overall, []);
  assert.match(perRun[1] ?? "", /^Partial run \(interrupted by Ctrl-C\): these are not totals\. /);
});

test("a run whose queue was stopped by an error has no part in the comparison", () => {
  const { overall, perRun } = describe([
    run("a", { p50: 500 }),
    run("b", { p50: 20, stopped: ["`py:bad.py:Oops` is stopped at 1 ns"] }),
  ]);
  assert.deepEqual(overall, []);
  assert.match(perRun[1] ?? "", /^Its queue was stopped by an error: these are not its figures\. /);
});

test("without pings the wait in the queue is described", () => {
  const waits = {
    ...run("codel", { up: 30.8 }),
    queues: [
      {
        name: "up",
        direction: "up",
        sent: 0,
        drops: [],
        marks: [],
        sojourn_ms: { p50: 7, p95: 13.9, p99: 14 },
      },
    ],
  } as unknown as Run;
  assert.equal(
    plainly(describe([waits]).perRun[0]),
    "Packets wait 7.00 ms in the queue up at the median, 99 % at most 14.0 ms. Goodput 30.8 Mbit/s up. No packet reached a queue.",
  );
});

test("drops are counted for each queue, with its own share", () => {
  const drops = (packets: number) => [{ reason: "overflow", packets }];
  const down = { ...queueOf(95, drops(5), []), name: "down", direction: "down" };
  const queues = [queueOf(99, drops(1), []), down, queueOf(900, drops(0), [])];
  assert.match(
    plainly(describe([{ ...run("x", {}), queues } as unknown as Run]).perRun[0]),
    /Dropped: 1 packets up \(1\.00 %; overflow\) and 5 packets down \(5\.00 %; overflow\)/,
  );
});

test("a contour has the moments of its Gaussian", () => {
  const of = {
    queue: "up",
    delay_ms: [],
    goodput_mbps: [],
    mean_delay_ms: 10,
    mean_goodput_mbps: 5,
    delay_deviation_ms: 2,
    goodput_deviation_mbps: 1,
    correlation: 0.5,
  };
  const corners = contour(of, false, 4);
  // At 0, 90, 180 and 270 degrees: (10 + 2, 5 + 0.5), (10, 5 + sqrt(0.75)) and their mirrors.
  const near = (got: number, wanted: number) => assert.ok(Math.abs(got - wanted) < 1e-12, `${got}`);
  near(corners[0]?.[0] as number, 12);
  near(corners[0]?.[1] as number, 5.5);
  near(corners[1]?.[0] as number, 10);
  near(corners[1]?.[1] as number, 5 + Math.sqrt(0.75));
  near(corners[2]?.[0] as number, 8);
  // Cut at zero: -2 and 0 at 180 degrees.
  const wide = contour({ ...of, delay_deviation_ms: 12, goodput_deviation_mbps: 12 }, false, 4);
  assert.deepEqual(wide[2], [0, 0]);
  near(wide[0]?.[0] as number, 22);
});

test("waits of different directions are never compared", () => {
  const queue = (name: string, p50: number) => ({
    name,
    direction: name,
    sent: 1,
    drops: [],
    marks: [],
    sojourn_ms: { p50, p95: p50, p99: p50 },
  });
  // The downlink of cake is its busier one, but the others are compared by their uplinks.
  const cake = { ...run("cake", {}), queues: [queue("up", 1), queue("down", 4)] } as unknown as Run;
  const fifo = { ...run("fifo", {}), queues: [queue("up", 631), queue("down", 0)] } as unknown as Run;
  const said = describe([cake, fifo]).perRun.map(plainly);
  assert.match(said[0] ?? "", /wait 1\.00 ms in the queue up/);
  assert.match(said[1] ?? "", /wait 631 ms in the queue up/);
});

test("a round-trip time is a condition and not a merit", () => {
  const { overall } = describe([
    run("rtt=10ms fifo", { p50: 300, condition: 10 }),
    run("rtt=10ms codel", { p50: 15, condition: 10 }),
    run("rtt=80ms fifo", { p50: 400, condition: 80 }),
    run("rtt=80ms codel", { p50: 90, condition: 80 }),
  ]);
  assert.deepEqual(overall.map(plainly), [
    "At link.rtt 10ms: lowest ping median: rtt=10ms codel (15.0 ms), compared with 300 ms with rtt=10ms fifo.",
    "At link.rtt 80ms: lowest ping median: rtt=80ms codel (90.0 ms), compared with 400 ms with rtt=80ms fifo.",
  ]);
});

test("a figure that some repetitions did not measure says in how many it was", () => {
  const eight = { repetitions: [1, 2, 3, 4, 5, 6, 7, 8] } as unknown as Run;
  const of = (values: number[]) => measuredIn(eight, { values } as unknown as Repeat);
  assert.equal(of([1, 2, 3, 4, 5]), ", in 5 of 8 runs");
  assert.equal(of([1, 2, 3, 4, 5, 6, 7, 8]), "");
});

test("a range over repetitions has the unit of its value", () => {
  const repeats = [
    { figure: "Goodput up", values: [0.95, 0.94, 0.96] },
    { figure: "Goodput down", values: [1920, 1880, 1900] },
    { figure: "Ping, median", values: [20.5, 20.1, 21] },
    { figure: "Constant", values: [5, 5, 5] },
  ];
  const run = { repetitions: [1, 2, 3], repeats } as unknown as Run;
  assert.equal(rangeOver(run, "Goodput up", megabits), " (940\u00a0kbit/s to 960\u00a0kbit/s)");
  assert.equal(rangeOver(run, "Goodput down", megabits), " (1.88\u00a0Gbit/s to 1.92\u00a0Gbit/s)");
  assert.equal(rangeOver(run, "Ping, median", plain), " (20.1 to 21.0)");
  assert.equal(rangeOver(run, "Constant", plain), "");
  assert.equal(rangeOver(run, "None", plain), "");
});

test("pages and transfers of a flow are named and counted with those that are open", () => {
  const times = { count: 1234, p50: 1940, p95: 4100, p99: 4200, max: 4300 };
  const pages: Transfers = {
    name: "browser",
    is_pages: true,
    direction: "down",
    completion_ms: times,
    open: 2,
  };
  const file: Transfers = { name: "file", is_pages: false, direction: "up", completion_ms: null, open: 3 };
  assert.equal(transfersTitle(pages), "Pages of browser");
  assert.equal(transfersTitle({ ...pages, name: "pages" }), "Pages");
  assert.equal(transfersTitle(file), "Transfers of file");
  // Groups of three digits are separated by a narrow space.
  assert.equal(completeOf(pages), "1\u202f234 (2 open)");
  assert.equal(completeOf({ ...pages, open: 0 }), "1\u202f234");
  // A recording of an older program does not know how many were open.
  assert.equal(completeOf({ ...pages, open: null }), "1\u202f234");
  assert.equal(completeOf(file), "0 (3 open)");
  // A flow has one row, whichever runs have it.
  const runs = [{ transfers: [file] }, { transfers: [pages, file] }] as unknown as Run[];
  assert.deepEqual(transfersOf(runs), [file, pages]);
  // Many flows are called by their number, in both directions.
  const up = { ...file, name: "12 flows" };
  const down: Transfers = { ...up, direction: "down" };
  assert.deepEqual(transfersOf([{ transfers: [up, down] }] as unknown as Run[]), [up, down]);
  assert.equal(transfersTitle(up), "Transfers of 12 flows");
});
