import assert from "node:assert/strict";
import { test } from "node:test";
import { Hold } from "../src/live/hold.ts";

test("charts stay while a mouse moves over them, and 5 s longer, or until it leaves", () => {
  const hold = new Hold();
  assert.equal(hold.isHeld(0), false);
  hold.touch("mouse", 1000);
  hold.touch("mouse", 4000);
  assert.deepEqual([hold.isHeld(4000), hold.isHeld(8999), hold.isHeld(9000)], [true, true, false]);
  hold.touch("mouse", 10_000);
  hold.leave("mouse");
  assert.equal(hold.isHeld(10_001), false);
});

test("a tap holds the charts for 3 s, and not forever", () => {
  const hold = new Hold();
  hold.touch("touch", 1000);
  // After a tap, the finger is gone.
  hold.leave("touch");
  assert.deepEqual([hold.isHeld(3999), hold.isHeld(4000)], [true, false]);
  hold.touch("touch", 5000);
  hold.release();
  assert.equal(hold.isHeld(5001), false);
});
