/** Charts that share a time axis: zooming one zooms all, and their cursors show the same time. */
import { inside } from "../maths/range.ts";

export interface Member {
  setRange(from: number, to: number): void;
}

export class ChartGroup {
  /** Key by which uPlot synchronizes the cursors. */
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

  /** Shows `from..to`, within the run and not narrower than a millionth of it. */
  setRange(from: number, to: number): void {
    const [first, last] = inside([from, to], [this.fullFrom, this.fullTo]);
    if (first === this.from && last === this.to) return;
    this.from = first;
    this.to = last;
    for (const member of this.members) member.setRange(this.from, this.to);
    for (const watcher of this.watchers) watcher(this.zoomed);
  }

  /** Multiplies the visible width by `factor`, around `center`. */
  zoom(factor: number, center = (this.from + this.to) / 2): void {
    this.setRange(center - (center - this.from) * factor, center + (this.to - center) * factor);
  }

  /** Moves the visible range by a share of its width. */
  pan(share: number): void {
    const by = (this.to - this.from) * share;
    this.setRange(this.from + by, this.to + by);
  }

  reset(): void {
    this.setRange(this.fullFrom, this.fullTo);
  }

  /** Extends the range of a run that has not ended; the view follows unless it is zoomed. */
  extend(to: number): void {
    const follow = !this.zoomed;
    this.fullTo = Math.max(this.fullTo, to);
    if (follow) this.reset();
  }
}
