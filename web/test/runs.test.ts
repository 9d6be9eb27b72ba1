import assert from "node:assert/strict";
import { test } from "node:test";
import { duration, isOver, nowRunning, type RunsState, stateWord, summary } from "../src/live/runs.ts";

const state = (left_s: number | null, done: number): RunsState => ({
  total: 3,
  done,
  failed: 1,
  is_over: false,
  left_s,
  live: null,
  runs: [],
});

test("the progress says what is left, until nothing is", () => {
  assert.equal(summary(state(61.2, 1)), "1 of 3 done, 1 failed, about 62 s left");
  assert.equal(summary(state(null, 0)), "0 of 3 done, 1 failed, the end is not known yet");
  assert.equal(summary(state(0, 2)), "2 of 3 done, 1 failed");
});

test("times have the unit that fits", () => {
  assert.deepEqual([0.2, 89, 90, 5399, 5400].map(duration), ["1 s", "89 s", "2 min", "90 min", "1.5 h"]);
});

test("a run does not take longer than it lasts", () => {
  const run = { number: 0, name: "fq", elapsed_s: 0, length_s: 8 };
  assert.deepEqual([nowRunning(run, 2.9), nowRunning(run, 9)], ["fq: 2 of 8 s", "fq: 8 of 8 s"]);
});

test("runs are over when each is done or has failed", () => {
  const done = [0, 1, 2].map((count) => isOver(state(null, count)));
  assert.deepEqual(done, [false, false, true]);
});

test("interrupted runs are over, too, and nothing is left of them", () => {
  const interrupted = { ...state(40, 1), is_over: true };
  assert.equal(isOver(interrupted), true);
  assert.equal(summary(interrupted), "1 of 3 done, 1 failed");
  const words = (["waiting", "running", "done", "failed"] as const).map((word) =>
    [false, true].map((isEnded) => stateWord({ state: word }, isEnded)),
  );
  assert.deepEqual(words, [
    ["waiting", "not run"],
    ["running", "stopped"],
    ["done", "done"],
    ["failed", "failed"],
  ]);
});
