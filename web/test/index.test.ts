import assert from "node:assert/strict";
import { test } from "node:test";
import { caption, decadesOf, picturesOf } from "../src/charts/spark.ts";
import type { Judgement } from "../src/model.ts";
import { alike } from "../src/page/parts.ts";

const judged = (name: string, outcome: string) => {
  const judgement: Judgement = { outcome, is_best: outcome !== "", why: "" };
  return { name, judgement };
};

test("queues with the same judgement share a sentence, at the position of the first one", () => {
  const groups = alike([judged("rfc", "best"), judged("fifo", ""), judged("linux", "best")]);
  const names = groups.map(([, ...same]) => same.map(({ name }) => name));
  assert.deepEqual(names, [["rfc", "linux"], ["fifo"]]);
});

const trace = (values: (number | null)[]) => ({ of: "ping" as const, low: values, high: values });

test("pictures share an axis of whole decades", () => {
  assert.deepEqual(decadesOf([trace([20, null]), trace([1100])]), { low: 10, high: 10_000 });
  assert.deepEqual(decadesOf([trace([10])]), { low: 10, high: 100 }, "at least one decade");
  assert.deepEqual(decadesOf([trace([0, 5])]), { low: 0.1, high: 10 }, "zero has no logarithm");
  assert.equal(decadesOf([trace([null])]), null);
});

test("a queue that lost all pings has a picture of its own kind beside those of the others", () => {
  const backlog = { of: "backlog" as const, low: [0, 5], high: [2, 50] };
  const axes = picturesOf([backlog, trace([20]), trace([1100])], 10).map(({ of, decades }) => [of, decades]);
  assert.deepEqual(axes, [
    ["backlog", { low: 0.1, high: 100 }],
    ["ping", { low: 10, high: 10_000 }],
  ]);
  const kinds = picturesOf([{ ...backlog, low: [null], high: [null] }, trace([20])], 10);
  const drawn = kinds.map(({ of }) => of);
  assert.deepEqual(drawn, ["ping"], "a trace without values has none");
});

test("the caption names the axis of the pictures", () => {
  const plainly = (text: string) => text.replaceAll("\u00a0", " ");
  const decades = { low: 10, high: 10_000 };
  assert.equal(plainly(caption("ping", decades, 30.2)), "Round trip over 30 s, 10 ms to 10 s, logarithmic");
  assert.equal(
    plainly(caption("backlog", { low: 0.1, high: 100 }, 8)),
    "Packets in the queue over 8 s, 0.1 to 100, logarithmic",
  );
  assert.equal(plainly(caption("ping", decades, 0.01)), "Round trip over 0.01 s, 10 ms to 10 s, logarithmic");
});
