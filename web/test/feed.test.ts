import assert from "node:assert/strict";
import { test } from "node:test";
import { Feed } from "../src/live/feed.ts";
import type { Sample } from "../src/live/sample.ts";

/** A page, a server, and what a feed between them has said. */
function start(isHidden: boolean) {
  const page = Object.assign(new EventTarget(), { hidden: isHidden });
  const open: EventSource[] = [];
  const said: string[] = [];
  const feed = new Feed(
    {
      take: ({ number }: Sample) => said.push(`sample ${number}`),
      lose: (isRefused) => said.push(isRefused ? "refused" : "lost"),
      back: () => said.push("back"),
    },
    page as unknown as Document,
    () => {
      const events: EventSource = {
        readyState: 1,
        close: () => open.splice(open.indexOf(events), 1),
      } as unknown as EventSource;
      open.push(events);
      return events;
    },
  );
  const turn = (hidden: boolean) => {
    page.hidden = hidden;
    page.dispatchEvent(new Event("visibilitychange"));
  };
  const send = (number: number) => {
    for (const events of open) events.onmessage?.({ data: `{"number":${number}}` } as MessageEvent);
  };
  return { feed, open, said, turn, send };
}

test("a hidden page has no connection, and catches up when it is seen again", () => {
  const { feed, open, said, turn, send } = start(false);
  assert.equal(open.length, 1);
  send(1);
  turn(true);
  assert.equal(open.length, 0);
  turn(false);
  assert.equal(open.length, 1);
  send(9);
  assert.deepEqual(said, ["sample 1", "back", "sample 9"]);
  feed.close();
  assert.equal(open.length, 0);
  // What is closed stays closed.
  turn(true);
  turn(false);
  assert.equal(open.length, 0);
});

test("a page that is opened in a hidden tab connects when it is seen", () => {
  const { open, said, turn } = start(true);
  assert.equal(open.length, 0);
  turn(false);
  assert.equal(open.length, 1);
  assert.deepEqual(said, ["back"]);
});

test("a connection that was refused is opened again on demand, and is the only one", () => {
  const { feed, open, said } = start(false);
  const [first] = open;
  Object.assign(first as EventSource, { readyState: 2 });
  first?.onerror?.(new Event("error"));
  assert.equal(feed.isRefused, true);
  feed.open();
  assert.equal(open.length, 1);
  assert.equal(feed.isRefused, false);
  open[0]?.onerror?.(new Event("error"));
  assert.deepEqual(said, ["refused", "lost"]);
});
