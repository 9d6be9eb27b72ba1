/** Elements and axes of charts that are drawn as SVG. */
import { linearTicks, logTicks } from "../maths/ticks.ts";

type Attributes = Record<string, string | number>;

/** Creates an SVG element. */
export function s(tag: string, attributes: Attributes, ...children: (Node | string)[]): SVGElement {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}

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

  ticks(): number[] {
    return this.isLog ? logTicks(this.from, this.to) : linearTicks(this.from, this.to, 6);
  }
}
