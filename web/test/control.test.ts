import assert from "node:assert/strict";
import { test } from "node:test";
import { commandOf, fieldsOf, sourceOf } from "../src/live/control.ts";

test("the fields of an object make its command again", () => {
  for (const [object, command] of [
    [
      { name: "pipe 1", rate: "10Mbit/s", settings: "delay 3ms queue 50", algorithm: "codel target 7ms" },
      "pipe 1 config bw 10Mbit/s delay 3ms queue 50 codel target 7ms",
    ],
    [
      { name: "sched 1", rate: null, settings: "", algorithm: "type fq_codel" },
      "sched 1 config type fq_codel",
    ],
    [
      { name: "queue 4", rate: null, settings: "sched 2 weight 7 queue 50", algorithm: "red 0.5/5/9/0.1" },
      "queue 4 config sched 2 weight 7 queue 50 red 0.5/5/9/0.1",
    ],
  ] as const) {
    assert.equal(commandOf(object, fieldsOf(object)), command);
  }
});

test("a changed field changes its word only", () => {
  const pipe = { name: "pipe 1", rate: "10Mbit/s", settings: "queue 50", algorithm: "droptail" };
  const fields = { ...fieldsOf(pipe), rate: " 5Mbit/s ", algorithm: "pie", parameters: "target 20ms" };
  assert.equal(commandOf(pipe, fields), "pipe 1 config bw 5Mbit/s queue 50 pie target 20ms");
});

test("the fields are filled again only if their object changes", () => {
  const pipe = { name: "pipe 1", rate: "10Mbit/s", settings: "queue 50", algorithm: "droptail" };
  const form = {
    is_allowed: true,
    undo: null,
    objects: [pipe, { ...pipe, name: "pipe 2" }],
    aqms: ["droptail", "codel"],
    schedulers: ["fifo"],
  };
  const source = sourceOf(form, "pipe 1");
  assert.equal(sourceOf(structuredClone(form), "pipe 1"), source);
  // Another pipe, and what can be taken back, change nothing that the fields show.
  const others = [pipe, { ...pipe, name: "pipe 2", rate: "5Mbit/s" }];
  assert.equal(sourceOf({ ...form, undo: "pipe 2 config", objects: others }, "pipe 1"), source);
  assert.notEqual(sourceOf({ ...form, objects: [{ ...pipe, rate: "5Mbit/s" }] }, "pipe 1"), source);
  assert.notEqual(sourceOf({ ...form, aqms: ["droptail"] }, "pipe 1"), source);
  assert.notEqual(sourceOf({ ...form, objects: [] }, "pipe 1"), source);
});
