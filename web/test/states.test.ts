import assert from "node:assert/strict";
import { test } from "node:test";
import { preferred, sayStates, stateUnit } from "../src/maths/states.ts";

const GAP = "\u00a0";

test("variables have units", () => {
  const state = { count: 12, delay: 4.21e6, drop_next: 5.3e6, dropping: 1, first_above: -4e8, p: 0.0123 };
  const kinds = {
    count: "count",
    delay: "span",
    drop_next: "instant",
    dropping: "flag",
    first_above: "instant",
    p: "ratio",
  } as const;
  assert.equal(
    sayStates(state, kinds).replaceAll(GAP, " "),
    "count 12, delay 4.21 ms, drop_next in 5.30 ms, dropping yes, first_above 400 ms ago, p 0.0123",
  );
  assert.equal(stateUnit("span").unit, "ms");
  assert.equal(stateUnit("instant").unit, "ms from now");
});

test("what determines the fate of packets comes first, an instant last", () => {
  assert.deepEqual(preferred(["count", "drop_next", "dropping", "probability"]), [
    "probability",
    "count",
    "dropping",
    "drop_next",
  ]);
});
