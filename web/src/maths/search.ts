/** The first index of an ascending column whose value is not below `wanted`. */
export function lowerBound(column: ArrayLike<number>, wanted: number): number {
  let from = 0;
  let to = column.length;
  while (from < to) {
    const middle = (from + to) >>> 1;
    if ((column[middle] ?? Number.POSITIVE_INFINITY) < wanted) from = middle + 1;
    else to = middle;
  }
  return from;
}
