import assert from "node:assert/strict";
import { test } from "node:test";
import { SHADES, shaded } from "../src/maths/colour.ts";
import { PALETTE } from "../src/model.ts";

test("dots of the second round through the palette have another shade of their colour", () => {
  // 0x72 = 114 times 0.65 is 74.1, and 0xb2 = 178 times 0.65 is 115.7.
  assert.deepEqual([shaded(["#0072b2"], 0), shaded(["#0072b2"], 1)], ["#0072b2", "#004a74"]);
  assert.equal(shaded(["#0072b2"], SHADES), "#0072b2");
  const all = Array.from({ length: PALETTE.length * SHADES }, (_, at) => shaded(PALETTE, at));
  assert.equal(new Set(all).size, 14);
  assert.deepEqual(all.slice(0, PALETTE.length), PALETTE);
});
