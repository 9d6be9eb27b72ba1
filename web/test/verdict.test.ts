import assert from "node:assert/strict";
import { test } from "node:test";
import { contour } from "../src/maths/ellipse.ts";
import { judge } from "../src/maths/verdict.ts";
import type { Count, Run } from "../src/model.ts";

interface Told {
  p50?: number;
  p99?: number;
  lost?: number;
  base?: number | null;
  up?: number;
  drops?: Count[];
  marks?: Count[];
  sent?: number;
  partial?: string;
}

function run(name: string, told: Told): Run {
  const { p50, p99 = p50 } = told;
  const two_way =
    p50 === undefined || p99 === undefined ? null : { count: 100, p50, p95: p99, p99, max: p99 };
  return {
    name,
    partial: told.partial ?? null,
    base_rtt_ms: told.base === undefined ? 20 : told.base,
    directions: told.up === undefined ? [] : [{ direction: "up", goodput_mbps: told.up, jain: null }],
    pings: two_way === null ? [] : [{ name: "ping", sent: 100, lost: told.lost ?? 0, two_way }],
    queues:
      told.sent === undefined ? [] : [{ sent: told.sent, drops: told.drops ?? [], marks: told.marks ?? [] }],
  } as unknown as Run;
}

/** As it reads: which spaces keep a number and its unit together is no matter here. */
const plainly = (sentence = "") => sentence.replaceAll("\u00a0", " ");
const only = (told: Told) => plainly(judge([run("x", told)]).perRun[0]);

test("a run is described by its rise in delay, its goodput and its signals", () => {
  assert.equal(
    only({ p50: 830, p99: 905, lost: 2, up: 9.5, sent: 12000, drops: [{ reason: "overflow", packets: 45 }] }),
    "Ping rises under load from 20.0 ms to 830 ms at the median, 99 % within 905 ms; 2 of 100 got no answer. " +
      "Goodput 9.50 Mbit/s up. 45 of 12\u202f045 packets (0.374 %) dropped (overflow), nothing marked.",
  );
});

test("no rise is claimed that the digits do not show", () => {
  assert.equal(
    only({ p50: 20.01, p99: 20.3, up: 9.5, sent: 10, marks: [{ reason: "congestion", packets: 1 }] }),
    "Ping under load stays at 20.0 ms at the median (empty path 20.0 ms), 99 % within 20.3 ms. " +
      "Goodput 9.50 Mbit/s up. Nothing was dropped, 1 CE-marked.",
  );
});

test("without load, base or ping nothing is said of them", () => {
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
  assert.match(
    only({ sent: 94, drops }),
    /6 of 100 packets \(6\.00 %\) dropped \(4 overflow and 2 congestion\)/,
  );
});

test("runs are compared by delay and by goodput", () => {
  const { overall } = judge([
    run("fifo", { p50: 830, up: 9.55 }),
    run("codel", { p50: 23.4, up: 9.43 }),
    run("fq_codel", { p50: 20.7, up: 9.54 }),
  ]);
  assert.deepEqual(overall.map(plainly), [
    // 9.54 / 9.55 = 99.895 %, cut to 99.8.
    "Best here: fq_codel. 95 % of its pings take at most 20.7 ms at 99.8 % of the most goodput, against 830 ms over fifo.",
    "Lowest delay: fq_codel (20.7 ms), against 23.4 ms over codel and 830 ms over fifo (ping medians).",
    // 1 - 9.43 / 9.55 = 1.2565 %; fq_codel is 0.1 % below the best, which counts as equal.
    "Most goodput up: fifo (9.55 Mbit/s) and fq_codel (9.54 Mbit/s); codel has 1.26 % less.",
  ]);
});

test("small differences are not made into winners", () => {
  const { overall } = judge([run("a", { p50: 20.2, up: 9.5 }), run("b", { p50: 20.9, up: 9.48 })]);
  assert.deepEqual(overall.map(plainly), [
    "Delay: the ping medians of all lie within 1 ms of each other.",
    "Goodput up: all within 1 % of 9.50 Mbit/s.",
  ]);
});

test("of many runs the first are named and the others counted", () => {
  const fast = [1, 2, 3, 4, 5, 6].map((n) => run(`a${n}`, { p50: 20 + n / 10 }));
  const slow = [1, 2, 3, 4, 5].map((n) => run(`b${n}`, { p50: 100 * n }));
  assert.deepEqual(judge([...slow, ...fast]).overall.map(plainly), [
    "Best here: a1, a2, a3, a4 and 2 more. 95 % of the pings over a1 take at most 20.1 ms, against 500 ms over b5.",
    "Lowest delay: a1 (20.1 ms), a2 (20.2 ms), a3 (20.3 ms), a4 (20.4 ms) and 2 more, " +
      "against 100 ms to 500 ms over the 5 others (ping medians).",
  ]);
});

test("a partial run is named as such and has no part in the comparison", () => {
  const { overall, perRun } = judge([
    run("a", { p50: 20 }),
    run("b", { p50: 500, partial: "interrupted by Ctrl-C" }),
  ]);
  assert.deepEqual(overall, []);
  assert.match(perRun[1] ?? "", /^Partial run \(interrupted by Ctrl-C\), so these are not totals\. /);
});

test("a short queue that wastes the link is not called the best, and the best is told why", () => {
  const with_wait = (ms: number) => ({
    sent: 0,
    drops: [],
    marks: [],
    sojourn_ms: { p50: ms, p95: ms, p99: ms },
  });
  const told = (name: string, p50: number, up: number, ms: number) =>
    ({ ...run(name, { p50, up }), queues: [with_wait(ms)] }) as unknown as Run;
  const { overall } = judge([
    told("short", 20.5, 5, 0.1),
    told("codel", 25, 9.5, 5),
    told("fifo", 800, 9.6, 780),
  ]);
  assert.equal(
    plainly(overall[0]),
    // 9.5 / 9.6 = 98.958 %.
    "Best here: codel. 95 % of its pings take at most 25.0 ms at 99.0 % of the most goodput, against 800 ms over fifo. " +
      "Packets wait 5.00 ms in its queue at the median, 780 ms in that of fifo.",
  );
});

test("without pings the wait in the queue decides, and a far shorter one is worth some goodput", () => {
  const told = (name: string, up: number, p95: number) =>
    ({
      ...run(name, { up }),
      queues: [{ sent: 0, drops: [], marks: [], sojourn_ms: { p50: p95 / 2, p95, p99: p95 } }],
    }) as unknown as Run;
  const droptail = told("droptail", 41.5, 492);
  const { overall, perRun } = judge([droptail, told("red", 31.6, 42.8), told("codel", 30.8, 13.9)]);
  assert.equal(
    plainly(overall[0]),
    // 30.8 / 41.5 = 74.2 %, above 65 %, and 492 / 13.9 is more than ten.
    "Best here: codel. 95 % of the packets in its queue wait at most 13.9 ms at 74.2 % of the most goodput, " +
      "against 492 ms over droptail.",
  );
  assert.match(plainly(perRun[0]), /^Packets wait 246 ms at the median, 99 % at most 492 ms\. Goodput/);
  // 25.0 / 41.5 = 60 %: no delay is worth that, so neither stands out.
  assert.match(judge([droptail, told("short", 25, 1)]).overall[0] ?? "", /^Most goodput up: droptail/);
});

test("losses are told of the queues that lost", () => {
  const queue = (sent: number, packets: number) => ({
    sent,
    drops: [{ reason: "overflow", packets }],
    marks: [],
  });
  const both = { ...run("x", {}), queues: [queue(95, 5), queue(900, 0)] } as unknown as Run;
  assert.match(plainly(judge([both]).perRun[0]), /5 of 100 packets \(5\.00 %\) dropped/);
});

test("a contour has the moments of its Gaussian", () => {
  const of = {
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
});
