/** A part of an axis, from its lower to its upper end. */
export type Range = [from: number, to: number];

/** Moves `part` into `whole`. It keeps its width, within a millionth of the whole and all of it. */
export function inside([from, to]: Range, [least, most]: Range): Range {
  const smallest = (most - least) * 1e-6;
  const width = Math.min(Math.max(to - from, smallest), most - least);
  const start = Math.min(Math.max(from, least), most - width);
  return [start, start + width];
}
