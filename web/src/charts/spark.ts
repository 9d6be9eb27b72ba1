/** The small picture of a run in the index: its delay or its backlog over time. */
import type { Trace } from "../model.ts";
import { Axis, s } from "./svg.ts";

const [WIDTH, HEIGHT] = [180, 44];
/** Zero has no logarithm, so an empty queue is drawn as a tenth of a packet. */
const FLOOR = 0.1;

/** The vertical axis that the pictures of a scenario share: whole decades, at least one. */
export interface Decades {
  low: number;
  high: number;
}

/** The decades that hold all values of the traces; `null` if there are none. */
export function decadesOf(traces: Trace[]): Decades | null {
  const values = traces.flatMap(({ low, high }) => [...low, ...high]).filter((value) => value !== null);
  if (values.length === 0) return null;
  const floored = values.map((value) => Math.max(value, FLOOR));
  const low = 10 ** Math.floor(Math.log10(Math.min(...floored)));
  const high = 10 ** Math.ceil(Math.log10(Math.max(...floored)));
  return { low, high: Math.max(high, low * 10) };
}

/** What a picture shows. */
export const CONTENT: Record<Trace["of"], string> = {
  ping: "Round trip",
  backlog: "Packets in the queue",
};

/** What the pictures of a scenario show. */
export function caption(of: Trace["of"], { low, high }: Decades, seconds: number): string {
  const ms = (decade: number) => (decade < 1000 ? `${decade}\u00a0ms` : `${decade / 1000}\u00a0s`);
  const range = of === "ping" ? `${ms(low)} to ${ms(high)}` : `${low} to ${high}`;
  const length = seconds < 10 ? Number(seconds.toPrecision(2)) : Math.round(seconds);
  return `${CONTENT[of]} over ${length}\u00a0s, ${range}, logarithmic`;
}

/** The pictures of a scenario that show the same: their axis and their caption. */
export interface Pictures {
  of: Trace["of"];
  decades: Decades;
  title: string;
}

/**
 * The kinds of pictures among the traces, in the order of the first of each: a queue that loses all pings
 * has a backlog beside the round trips of the others. Traces without values have no picture.
 */
export function picturesOf(traces: Trace[], seconds: number): Pictures[] {
  const kinds = new Set(traces.map(({ of }) => of));
  return [...kinds].flatMap((of) => {
    const decades = decadesOf(traces.filter((trace) => trace.of === of));
    return decades === null ? [] : [{ of, decades, title: caption(of, decades, seconds) }];
  });
}

/** Draws a trace: from the smallest to the largest value of each column, joined by a line. */
export function spark(trace: Trace, { low, high }: Decades, label: string): SVGElement {
  const y = new Axis(low, high, [HEIGHT - 1, 1], true);
  const rules: SVGElement[] = [];
  for (let decade = low; decade <= high * 1.001; decade *= 10) {
    const at = y.at(decade).toFixed(1);
    rules.push(s("line", { x1: 0, x2: WIDTH, y1: at, y2: at, class: "rule" }));
  }
  const steps = trace.high.flatMap((most, column) => {
    if (most === null) return [];
    const x = (((column + 0.5) * WIDTH) / trace.high.length).toFixed(1);
    const [top, bottom] = [y.at(most), y.at(trace.low[column] ?? most)];
    const span = bottom - top >= 0.5 ? `V${bottom.toFixed(1)}` : "";
    return [`${x} ${top.toFixed(1)}${span}`];
  });
  return s(
    "svg",
    { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label },
    ...rules,
    s("path", { d: steps.length === 0 ? "" : `M${steps.join("L")}` }),
  );
}
