/** The places of a drawing. Points at the same place look the same, so one of them is enough. */
export class Places {
  private readonly columns: number;
  private readonly rows: number;
  private readonly taken: Uint8Array;

  /** Divides a rectangle into squares of `size`. */
  constructor(
    private readonly left: number,
    private readonly top: number,
    width: number,
    height: number,
    private readonly size: number,
  ) {
    // One more, for the points on the right and on the lower edge.
    this.columns = Math.floor(width / size) + 1;
    this.rows = Math.floor(height / size) + 1;
    this.taken = new Uint8Array(this.columns * this.rows);
  }

  /** Takes the place of a point, or the nearest one of a point outside; false if it is taken. */
  take(x: number, y: number): boolean {
    const column = within((x - this.left) / this.size, this.columns);
    const row = within((y - this.top) / this.size, this.rows);
    const place = row * this.columns + column;
    if (this.taken[place] === 1) return false;
    this.taken[place] = 1;
    return true;
  }
}

/** The index of a position among `count` steps. */
function within(position: number, count: number): number {
  return Math.min(Math.max(Math.floor(position), 0), count - 1);
}

/** Splits items into lists of at most `most`. */
export function batches<T>(items: readonly T[], most: number): T[][] {
  const lists: T[][] = [];
  for (let at = 0; at < items.length; at += most) lists.push(items.slice(at, at + most));
  return lists;
}
