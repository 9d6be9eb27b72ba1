/** Charts that share a time axis: zooming one zooms all, and the cursor is at the same time in all. */
export interface Member {
  setRange(from: number, to: number): void;
}

export class ChartGroup {
  /** Key under which uPlot moves the cursors together. */
  readonly cursorKey: string;
  from: number;
  to: number;
  private readonly members: Member[] = [];
  private readonly watchers: ((zoomed: boolean) => void)[] = [];

  constructor(
    key: string,
    private readonly fullFrom: number,
    private fullTo: number,
  ) {
    this.cursorKey = key;
    this.from = fullFrom;
    this.to = fullTo;
  }

  join(member: Member): void {
    this.members.push(member);
  }

  onChange(watcher: (zoomed: boolean) => void): void {
    this.watchers.push(watcher);
  }

  get zoomed(): boolean {
    return this.from > this.fullFrom || this.to < this.fullTo;
  }

  /** Shows `from..to`, limited to what there is and to a sensible smallest width. */
  setRange(from: number, to: number): void {
    const smallest = (this.fullTo - this.fullFrom) * 1e-6;
    const width = Math.min(Math.max(to - from, smallest), this.fullTo - this.fullFrom);
    const start = Math.min(Math.max(from, this.fullFrom), this.fullTo - width);
    if (start === this.from && start + width === this.to) return;
    this.from = start;
    this.to = start + width;
    for (const member of this.members) member.setRange(this.from, this.to);
    for (const watcher of this.watchers) watcher(this.zoomed);
  }

  /** Makes the visible width `factor` times as large, around `center` (default: the middle). */
  zoom(factor: number, center = (this.from + this.to) / 2): void {
    this.setRange(center - (center - this.from) * factor, center + (this.to - center) * factor);
  }

  /** Moves by a share of the visible width. */
  pan(share: number): void {
    const by = (this.to - this.from) * share;
    this.setRange(this.from + by, this.to + by);
  }

  reset(): void {
    this.setRange(this.fullFrom, this.fullTo);
  }

  /** A live run has become longer: follow it, unless the reader has zoomed in. */
  extend(to: number): void {
    const follow = !this.zoomed;
    this.fullTo = Math.max(this.fullTo, to);
    if (follow) this.reset();
  }
}
