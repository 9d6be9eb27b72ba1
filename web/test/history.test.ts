import assert from "node:assert/strict";
import { test } from "node:test";
import { History } from "../src/live/history.ts";
import {
  coloursOf,
  extend,
  isSetBack,
  isStartedAgain,
  type Past,
  type Sample,
  timesOf,
  withGaps,
} from "../src/live/sample.ts";

const sample = (
  second: number,
  dropped: Record<string, number>,
  state: Record<string, number> = {},
  flow: string | null = null,
  sojourn: Sample["objects"][number]["sojourn"] = null,
): Sample =>
  ({
    unix_ms: second * 1000,
    objects: [
      {
        name: "pipe 1",
        flow,
        rate_bps: 1,
        backlog_packets: 0,
        marked: 0,
        sojourn,
        dropped,
        state,
        state_kinds: { drop_next: "instant" },
      },
    ],
    changes: [],
  }) as unknown as Sample;

test("a reason that occurs later has zeros before, and all columns cover the same time", () => {
  const past: Past = { series: [], changes: [] };
  extend(past, sample(1, { overflow: 2 }));
  extend(past, sample(2, { congestion: 3 }));
  extend(past, sample(2, { congestion: 3 }));
  assert.deepEqual(past.series[0]?.dropped_for, { overflow: [2, 0], congestion: [0, 3] });
  // The first two leave after 300 s.
  for (let second = 3; second <= 302; second += 1) extend(past, sample(second, {}));
  const series = past.series[0];
  assert.deepEqual(
    [
      series?.unix_ms.length,
      series?.dropped_for["overflow"]?.length,
      series?.dropped_for["congestion"]?.length,
    ],
    [300, 300, 300],
  );
});

test("a variable of the algorithm has a gap where it has no value", () => {
  const past: Past = { series: [], changes: [] };
  extend(past, sample(1, {}));
  extend(past, sample(2, {}, { drop_next: 5e6 }));
  extend(past, sample(3, {}, { count: 7 }));
  assert.deepEqual(past.series[0]?.state, {
    drop_next: { kind: "instant", values: [null, 5e6, null] },
    count: { kind: "count", values: [null, null, 7] },
  });
  for (let second = 4; second <= 302; second += 1) extend(past, sample(second, {}));
  assert.deepEqual(past.series[0]?.state["count"]?.values.slice(0, 2), [7, null]);
  assert.equal(past.series[0]?.state["count"]?.values.length, 300);
});

test("the sojourn time has a gap where no packet left", () => {
  const past: Past = { series: [], changes: [] };
  const waited = { p50_ns: 20e6, p95_ns: 25e6, p99_ns: 30e6 };
  extend(past, sample(1, {}, {}, null, waited));
  extend(past, sample(2, {}));
  extend(past, sample(3, {}, {}, null, { p50_ns: 0, p95_ns: 0, p99_ns: 1e6 }));
  assert.deepEqual(past.series[0]?.p50_ms, [20, null, 0]);
  assert.deepEqual(past.series[0]?.p99_ms, [30, null, 1]);
});

test("a pipe that is gone is forgotten after 300 s, at the finest resolution", () => {
  const past: Past = { series: [], changes: [] };
  extend(past, sample(1, {}, {}, "10.0.0.1"));
  const coarse = structuredClone(past.series).map((series) => ({ ...series, step_ms: 10_000 }));
  past.series.push(...coarse);
  for (let second = 2; second <= 1000; second += 1) extend(past, sample(second, {}, {}, `10.0.1.${second}`));
  const steps = past.series.map(({ step_ms }) => step_ms);
  assert.equal(steps.filter((step) => step === 1_000).length, 300);
  assert.equal(steps.filter((step) => step === 10_000).length, 1);
  assert.equal(past.series.at(-1)?.name, "pipe 1 10.0.1.1000");
});

test("a line has a gap where there was no sample for more than three steps", () => {
  const { time, value } = withGaps([1000, 2000, 5000, 9001, 10_000], [1, 2, null, 4, 5], 1000);
  // 2 s to 5 s are three steps; from 5 s to 9.001 s, there are more.
  assert.deepEqual(time, [1000, 2000, 5000, 6000, 9001, 10_000]);
  assert.deepEqual(value, [1, 2, null, null, 4, 5]);
  assert.deepEqual(withGaps([], [], 1000), { time: [], value: [] });
});

test("a clock that is set back is noticed, and small differences are not", () => {
  const at = (number: number, unix_ms: number) =>
    ({ number, unix_ms, interval_ns: 1e9, objects: [], changes: [] }) as unknown as Sample;
  const before = at(7, 1_000_000);
  assert.equal(isSetBack(before, at(8, 1_001_000)), false);
  // 500 ms less than expected is the limit.
  assert.equal(isSetBack(before, at(8, 1_000_500)), false);
  assert.equal(isSetBack(before, at(8, 1_000_499)), true);
  assert.equal(isSetBack(before, at(8, 401_000)), true);
  // Samples were missed: two seconds were expected.
  assert.equal(isSetBack(before, at(9, 1_001_499)), true);
  // Set forward, and a router that was started again.
  assert.equal(isSetBack(before, at(8, 9_000_000)), false);
  assert.equal(isSetBack(before, at(1, 500_000)), false);
});

test("a router that was started again is noticed", () => {
  const up = (number: number, uptime_ns: number) => ({ number, status: { uptime_ns } }) as unknown as Sample;
  assert.equal(isStartedAgain(up(7, 60e9), up(8, 61e9)), false);
  assert.equal(isStartedAgain(up(7, 60e9), up(1, 2e9)), true);
  // Samples were missed, and the new router has had more of them by now.
  assert.equal(isStartedAgain(up(7, 60e9), up(9, 59e9)), true);
});

test("a change that was refused is not marked", () => {
  const done = { unix_ms: 1000, by: "uid 0", text: "pipe 1 config bw 1Mbit/s" };
  const refused = {
    unix_ms: 2000,
    by: "uid 0",
    text: "pipe 1 config pie fq",
    refused: "unrecognised option",
  };
  assert.deepEqual(timesOf([done, refused, { ...done, unix_ms: 3000 }]), [1000, 3000]);
});

test("what stays among the busiest keeps its colour", () => {
  const first = coloursOf(["1", "2", "3", "4", "5"], new Map());
  assert.deepEqual([...first.values()], [0, 1, 2, 3, 4]);
  // The colour of 2 is free; 6 takes it.
  const next = coloursOf(["1", "3", "4", "5", "6"], first);
  assert.deepEqual(Object.fromEntries(next), { 1: 0, 3: 2, 4: 3, 5: 4, 6: 1 });
});

/** The history of a router that has had samples at these seconds. */
const kept = (...seconds: number[]): Past => {
  const past: Past = { series: [], changes: [] };
  for (const second of seconds) extend(past, sample(second, {}));
  return past;
};
const seconds = (history: History) => history.past.series[0]?.unix_ms.map((at) => at / 1000);

test("samples that come while the history is fetched stay, each once", async () => {
  const history = new History();
  history.add(sample(3, {}));
  let answer: (past: Past) => void = () => undefined;
  const fetched = history.fetch(() => new Promise((done) => (answer = done)));
  for (const second of [4, 5, 6]) history.add(sample(second, {}));
  // The answer was made between 4 s and 5 s.
  answer(kept(1, 2, 3, 4));
  assert.equal(await fetched, true);
  assert.deepEqual(seconds(history), [1, 2, 3, 4, 5, 6]);
  // The next answer was made a moment before its newest sample was kept.
  await history.fetch(async () => kept(1, 2, 3, 4, 5));
  assert.deepEqual(seconds(history), [1, 2, 3, 4, 5, 6]);
});

test("after a lost connection, the history is that of the router, also with an earlier clock", async () => {
  const history = new History();
  history.add(sample(100, {}));
  history.forget();
  await history.fetch(async () => kept(88, 89, 90));
  history.add(sample(91, {}));
  assert.deepEqual(seconds(history), [88, 89, 90, 91]);
});

test("a later request for the history ends an earlier one", async () => {
  const history = new History();
  let answer: (past: Past) => void = () => undefined;
  let isEnded = false;
  const first = history.fetch((signal) => {
    signal.addEventListener("abort", () => (isEnded = true));
    return new Promise((done) => (answer = done));
  });
  assert.equal(await history.fetch(async () => kept(1, 2)), true);
  assert.equal(isEnded, true);
  answer(kept(1));
  assert.equal(await first, false);
  assert.deepEqual(seconds(history), [1, 2]);
  // What a request that was ended throws is no error; anything else is.
  await assert.rejects(
    history.fetch(async () => {
      throw new Error("no answer");
    }),
    /no answer/,
  );
});
