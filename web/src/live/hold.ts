/**
 * Charts stay as they are while a pointer reads them, since new samples would move what it points at.
 * Only for a while: a mouse may lie on a chart for hours, and a finger that has tapped never leaves it.
 */
const MOUSE_MS = 5_000;
const TOUCH_MS = 3_000;

export class Hold {
  private until = Number.NEGATIVE_INFINITY;

  /** A pointer has moved or tapped on a chart at a time in ms. */
  touch(kind: string, at: number): void {
    this.until = at + (kind === "mouse" ? MOUSE_MS : TOUCH_MS);
  }

  /** A pointer has left the charts; a finger leaves with the end of each tap, which says nothing. */
  leave(kind: string): void {
    if (kind === "mouse") this.release();
  }

  /** Something else is to be shown. */
  release(): void {
    this.until = Number.NEGATIVE_INFINITY;
  }

  isHeld(at: number): boolean {
    return at < this.until;
  }
}
