/** Names of directions, queues and flows. */
import type { Direction, Ends, Flow, Queue } from "../model.ts";

export function arrow(direction: Direction): string {
  return direction === "up" ? "↑" : "↓";
}

/** "up, h2 → h3". */
export function route(direction: Direction, ends: Ends): string {
  const [from, to] = direction === "up" ? [ends.left, ends.right] : [ends.right, ends.left];
  return `${direction}, ${from} → ${to}`;
}

/** Identifies the same queue in different runs. */
export function queueKey(queue: Queue): string {
  return `${queue.direction} ${queue.name}`;
}

export function queueTitle(queue: Queue, ends: Ends): string {
  const where = route(queue.direction, ends);
  // A queue that is named after its direction needs the direction only once.
  return queue.name === queue.direction ? where : `${queue.name}, ${where}`;
}

export function flowKind(flow: Flow): string {
  return flow.cc === null ? flow.kind : `${flow.kind}, ${flow.cc}`;
}
