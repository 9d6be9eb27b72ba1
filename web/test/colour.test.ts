import assert from "node:assert/strict";
import { test } from "node:test";
import { SHADES, shaded } from "../src/maths/colour.ts";
import { PALETTE } from "../src/model.ts";

test("dots of the second and third round through the palette have other shades of their colour", () => {
  // 0x72 = 114 times 0.65 is 74.1, and 0xb2 = 178 times 0.65 is 115.7.
  // 45 % of the way to 255: 0 + 114.75, 114 + 63.45 and 178 + 34.65.
  const shades = [0, 1, 2].map((round) => shaded(["#0072b2"], round));
  assert.deepEqual(shades, ["#0072b2", "#004a74", "#73b1d5"]);
  assert.equal(shaded(["#0072b2"], SHADES), "#0072b2");
  const all = Array.from({ length: PALETTE.length * SHADES }, (_, at) => shaded(PALETTE, at));
  // A page draws 16 runs at most.
  assert.equal(new Set(all).size, 21);
  assert.deepEqual(all.slice(0, PALETTE.length), PALETTE);
});
