import assert from "node:assert/strict";
import { test } from "node:test";
import { type Box, labelBoxes, marginOf } from "../src/maths/labels.ts";

const ROOM: Box = [52, 12, 600, 268];
const touch = (a: Box, b: Box) => a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3];

test("a number is to the right of its point", () => {
  // 7 from the point, 8 wide and 14 high.
  assert.deepEqual(labelBoxes([[100, 100]], [8], 14, ROOM), [[107, 93, 115, 107]]);
});

test("numbers of points at the same place do not touch each other or leave the room", () => {
  const points = Array.from({ length: 16 }, (_, at): [number, number] => [595 - (at % 3), 20 + (at % 5)]);
  const boxes = labelBoxes(
    points,
    points.map(() => 15),
    14,
    ROOM,
  );
  for (const [at, box] of boxes.entries()) {
    assert.ok(box[0] >= 52 && box[1] >= 12 && box[2] <= 600 && box[3] <= 268, `${box}`);
    for (const other of boxes.slice(0, at)) assert.ok(!touch(box, other), `${box} and ${other}`);
    for (const [x, y] of points) assert.ok(!touch(box, [x - 5, y - 5, x + 5, y + 5]), `${box}: ${x}, ${y}`);
  }
});

test("long labels of an axis make room for its title", () => {
  assert.equal(marginOf(["0", "5", "10"]), 52);
  // Five characters of 6.7 and 25 for the title.
  assert.equal(marginOf(["0", "0.016"]), 58.5);
  assert.equal(marginOf([]), 52);
});
