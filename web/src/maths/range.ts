/** A part of an axis, from its lower to its upper end. */
export type Range = [from: number, to: number];

/** Moves `part` into `whole`. It keeps its width, within a millionth of the whole and all of it. */
export function inside([from, to]: Range, [least, most]: Range): Range {
  const smallest = (most - least) * 1e-6;
  const width = Math.min(Math.max(to - from, smallest), most - least);
  const start = Math.min(Math.max(from, least), most - width);
  return [start, start + width];
}

/** The distance of a tooltip from the pointer. */
const DISTANCE = 24;

/**
 * The left edge of a tooltip: on the side of the pointer with more room in the plot, so that it does not
 * cover what it describes, but within `room`, the window. All are positions in the plot.
 */
export function besidePointer(pointer: number, width: number, plot: number, room: Range): number {
  const left = pointer > plot / 2 ? pointer - DISTANCE - width : pointer + DISTANCE;
  const last = Math.max(room[0], room[1] - width);
  return Math.min(Math.max(left, room[0]), last);
}
