import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { embed, readEmbedded } from "../src/embed.ts";
import type { Queue, Report, Run } from "../src/model.ts";
import { columnsOf, pack, unpack } from "../src/packed.ts";

/** The tests of crates/report check that the same file fits the types of the model. */
const text = await readFile(new URL("./fixture.json", import.meta.url), "utf8");

const fixture = JSON.parse(text) as Report;

test("an embedded model is read back unchanged", async () => {
  assert.deepEqual(readEmbedded(embed(text)), fixture);
});

test("a model of another version is refused", async () => {
  const other = embed(JSON.stringify({ ...fixture, schema: 2 }));
  assert.throws(() => readEmbedded(other), /version 2 of the model, this script reads version 11/);
});

test("a page that was cut off is refused", async () => {
  const encoded = embed(text);
  assert.throws(() => readEmbedded(encoded.slice(0, encoded.length - (encoded.length % 4) - 40)));
});

test("packed columns of the fixture hold the values that were packed", () => {
  const { packets } = (fixture.runs[0] as Run).queues[0] as Queue;
  const columns = columnsOf(packets);
  // The same numbers are in the tests of crates/report.
  assert.deepEqual([...columns.at_ns], [1_500_000, 2_700_000, 2_700_000, 3_900_000, 1_000_003_900_000]);
  assert.deepEqual([...columns.sojourn_ns], [0, 1_200_000, 0, 2_400_000, 5_000_000_000]);
  assert.deepEqual([...columns.size_bytes], [1514, 1514, 98, 1514, 65226]);
  assert.deepEqual([...columns.flow], [0, 0, 1, 0, 0]);
  assert.deepEqual([...columns.verdict], [0, 1, 2, 0, 2]);
  assert.deepEqual([...columns.reason], [0, 1, 0, 0, 1]);
  assert.deepEqual([...columns.number], [8, 9, 12, 13, 70001]);
  assert.equal(columnsOf(packets), columns, "unpacked once");
});

test("a column that ends within a number is refused", () => {
  // zigzag(16) = 32 = 0 + 1 * 32: the groups 0 with "more follows" (32, "g") and 1 ("B").
  assert.equal(pack([16]), "gB");
  assert.throws(() => unpack("g"), /packed column ends within a number/);
  assert.throws(() => unpack("A-"), /not of base64/);
});

test("packing is exact for every length of difference", () => {
  const columns = [[], [0], [15, 31, 32, 16, 0], [2 ** 51, 0, 2 ** 51 - 1, 5], [1e12, 1e12 + 1]];
  for (const column of columns) assert.deepEqual([...unpack(pack(column))], column);
});
