/** Elements and axes of charts that are drawn as SVG. */
import { apart, linearTicks, logTicks, tickLabel } from "../maths/ticks.ts";

type Attributes = Record<string, string | number>;

/** Creates an SVG element. */
export function s(tag: string, attributes: Attributes, ...children: (Node | string)[]): SVGElement {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}

/** The width of a digit of 12 pixels. */
const DIGIT = 7.5;

/** Maps the values `from` to `to` to pixels, linearly or logarithmically. */
export class Axis {
  constructor(
    private readonly from: number,
    private readonly to: number,
    private readonly pixels: [number, number],
    private readonly isLog: boolean,
  ) {}

  at(value: number): number {
    const [low, high] = this.pixels;
    const share = this.isLog
      ? Math.log(Math.max(value, this.from) / this.from) / Math.log(this.to / this.from)
      : (value - this.from) / (this.to - this.from);
    return low + share * (high - low);
  }

  /** The ticks, with labels that do not touch if the axis is horizontal. */
  ticks(): { tick: number; label: string }[] {
    const ticks = this.isLog ? logTicks(this.from, this.to) : linearTicks(this.from, this.to, 6);
    const step = Math.abs((ticks[1] ?? 1) - (ticks[0] ?? 0));
    const label = (tick: number) =>
      this.isLog ? String(Number(tick.toPrecision(6))) : tickLabel(tick, step);
    const isUpright = this.pixels[0] > this.pixels[1];
    const size = (tick: number) => (isUpright ? 12 : label(tick).length * DIGIT);
    const shown = apart(ticks, (tick) => this.at(tick), size);
    return shown.map((tick) => ({ tick, label: label(tick) }));
  }
}
