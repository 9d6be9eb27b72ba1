/** Names of directions, queues and flows. */
import type { Direction, Ends, Flow, Queue, Run } from "../model.ts";

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
  // For a queue that is named after its direction, the direction is shown once.
  return queue.name === queue.direction ? where : `${queue.name}, ${where}`;
}

export function flowKind(flow: Flow): string {
  return flow.cc === null ? flow.kind : `${flow.kind}, ${flow.cc}`;
}

/** The repetition that the curves show, and the number of repetitions. */
export function repetitionNote(runs: Run[]): string {
  const repeated = runs.filter((run) => run.repetitions.length > 1);
  if (repeated.length === 0) return "";
  const numbers = [...new Set(repeated.map((run) => run.repetitions.length))].join(" or ");
  const seeds = [...new Set(repeated.map((run) => run.shown_seed))].join(", ");
  return `Figures are medians over ${numbers} repetitions. Curves, packets and distributions show the repetition with seed ${seeds}.`;
}
