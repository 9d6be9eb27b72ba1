import assert from "node:assert/strict";
import { test } from "node:test";
import { placeOf } from "../src/page/links.ts";

test("a link leads to a chart that is drawn, or else to the summary", () => {
  const isDrawn =
    (...ids: string[]) =>
    (id: string) =>
      ids.includes(id);
  const drawn = isDrawn("chart-ping", "summary", "accuracy");
  assert.equal(placeOf("ping", drawn), "chart-ping");
  assert.equal(placeOf("accuracy", drawn), "accuracy");
  // No flow goes down, and only figures were recorded.
  assert.equal(placeOf("goodput-down", drawn), "summary");
  assert.equal(placeOf("packets", drawn), "summary");
  // Of many runs, none is selected.
  assert.equal(placeOf("ping", isDrawn()), null);
});
