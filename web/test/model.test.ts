import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { embed, readEmbedded } from "../src/embed.ts";
import { decodeReport, type Queue, type Run } from "../src/model.ts";
import { pack, unpack } from "../src/packed.ts";

/** The same file is read by crates/lab/src/report/tests.rs. */
const text = await readFile(new URL("./fixture.json", import.meta.url), "utf8");

/** The fixture with a change; the copy is untyped on purpose. */
// biome-ignore lint/suspicious/noExplicitAny: the changes make it something that no type allows
function changed(change: (json: any) => void): unknown {
  const json = JSON.parse(text);
  change(json);
  return json;
}

test("the fixture fits the model, with its gaps", () => {
  const report = decodeReport(JSON.parse(text));
  assert.equal(report.title, "Both sides read this </title><script>");
  const run = report.runs[0] as Run;
  assert.equal(run.partial, "interrupted by Ctrl-C");
  assert.deepEqual(run.flows[0]?.goodput_mbps.value, [9.4, null, 9.6]);
  assert.equal(run.pings[0]?.down_ms, null);
});

test("packed columns of the fixture hold what its author put in", () => {
  const run = decodeReport(JSON.parse(text)).runs[0] as Run;
  const { packets } = run.queues[0] as Queue;
  // The same numbers stand in crates/lab/src/report/tests.rs.
  assert.deepEqual([...packets.at_ns], [1_500_000, 2_700_000, 2_700_000, 3_900_000, 1_000_003_900_000]);
  assert.deepEqual([...packets.sojourn_ns], [0, 1_200_000, 0, 2_400_000, 5_000_000_000]);
  assert.deepEqual([...packets.size_bytes], [1514, 1514, 98, 1514, 65226]);
  assert.deepEqual([...packets.flow], [0, 0, 1, 0, 0]);
  assert.deepEqual([...packets.verdict], [0, 1, 2, 0, 2]);
  assert.deepEqual([...packets.reason], [0, 1, 0, 0, 1]);
});

test("every key of the fixture is needed, and no other is taken", () => {
  // Walks the whole fixture: each key removed must be missed, each object refuses a new one.
  const paths: (string | number)[][] = [];
  const walk = (json: unknown, path: (string | number)[]) => {
    if (Array.isArray(json)) {
      for (const [at, item] of json.entries()) walk(item, [...path, at]);
    } else if (typeof json === "object" && json !== null) {
      for (const [key, value] of Object.entries(json)) {
        paths.push([...path, key]);
        walk(value, [...path, key]);
      }
    }
  };
  walk(JSON.parse(text), []);
  assert.ok(paths.length > 150, `only ${paths.length} keys`);
  for (const path of paths) {
    const key = path.at(-1) as string;
    const alter = (how: (holder: Record<string, unknown>) => void) =>
      changed((json) => how(path.slice(0, -1).reduce((at, step) => at[step], json)));
    const missing = alter((holder) => delete holder[key]);
    assert.throws(
      () => decodeReport(missing),
      new RegExp(`\\.${key}: expected .*, found nothing`),
      path.join("."),
    );
    const extra = alter((holder) => {
      holder["more"] = 1;
    });
    assert.throws(() => decodeReport(extra), /\.more: unknown key/, path.join("."));
  }
});

test("what does not fit is named with its path", () => {
  const wrong = (change: Parameters<typeof changed>[0]) => () => decodeReport(changed(change));
  assert.throws(
    wrong((json) => {
      json.runs[1].backend = "ns3";
    }),
    /report\.runs\[1\]\.backend: expected sim or live, found "ns3"/,
  );
  assert.throws(
    wrong((json) => {
      json.schema = 3;
    }),
    /report\.schema: expected 2, found 3/,
  );
  assert.throws(
    wrong((json) => {
      json.runs[0].queues[0].packets.at_ns = "gA==";
    }),
    /packets\.at_ns: packed column ends within a number/,
  );
});

test("packing is exact for every length of difference", () => {
  const columns = [[], [0], [63, 127, 128, 64, 0], [2 ** 51, 0, 2 ** 51 - 1, 5], [1e12, 1e12 + 1]];
  for (const column of columns) assert.deepEqual([...unpack(pack(column))], column);
  // RFC 4648 base64 of 0x80 0x01: zigzag(64) = 128 = 0 + 1 * 128.
  assert.equal(pack([64]), "gAE=");
});

test("a page that was cut off is refused", async () => {
  const encoded = await embed(text);
  await assert.rejects(readEmbedded(encoded.slice(0, encoded.length - (encoded.length % 4) - 40)));
});

test("an embedded report comes out as it went in", async () => {
  const report = await readEmbedded(await embed(text));
  assert.deepEqual(report, decodeReport(JSON.parse(text)));
});
