/** Charts without interaction, drawn as SVG, so that they print and follow the theme by themselves. */
import { h, swatch } from "../dom.ts";
import type { Five } from "../maths/cdf.ts";
import { contour, middle } from "../maths/ellipse.ts";
import { megabits, milliseconds, plain } from "../maths/format.ts";
import { type Box, labelBoxes, marginOf } from "../maths/labels.ts";
import { distinct, shortenedApart } from "../maths/names.ts";
import { isFarApart } from "../maths/spread.ts";
import type { Tradeoff } from "../model.ts";
import { dashes, isPrinting, onThemeChange, variantVariable } from "../theme.ts";
import { Axis, s } from "./svg.ts";

/** Limits of a drawing's width in CSS pixels: it has its container's width, so that text keeps its size. */
const WIDTHS = [280, 640] as const;
/** Width on paper, where two drawings are side by side. */
const PAPER_WIDTH = 322;
/** The width until a drawing has a container. */
const USUAL_WIDTH = 560;
/** With more runs than this, a chart of points shows only their means, with numbers. */
const MOST_CLOUDS = 8;
/** Smaller samples are drawn at this value when the axis is logarithmic. */
const FLOOR_MS = 0.001;
/** The distance of zero from a logarithmic axis, so that its label touches no other. */
const ZERO_ROOM = 36;

function delayAxis(values: number[], pixels: [number, number], isLog: boolean): Axis {
  const most = Math.max(...values, FLOOR_MS);
  const least = Math.min(...values.filter((value) => value > 0), most);
  return isLog
    ? new Axis(Math.max(least / 1.25, FLOOR_MS), most * 1.25, pixels, true)
    : new Axis(0, values.some((value) => value > 0) ? most * 1.06 : 1, pixels, false);
}

abstract class StillChart {
  readonly figure: HTMLElement;
  private readonly host = h("div", { class: "drawing" });
  private readonly legend = h("div", { class: "legend" });
  protected isShown: (variant: number) => boolean = () => true;
  protected width = USUAL_WIDTH;

  constructor(
    id: string,
    private readonly title: string,
    private readonly caption: string,
  ) {
    new ResizeObserver(() => this.fit(this.host.clientWidth)).observe(this.host);
    onThemeChange(() => {
      if (isPrinting()) this.fit(PAPER_WIDTH);
    });
    this.figure = h(
      "figure",
      { class: "still", "data-chart": id, id: `chart-${id}` },
      h("figcaption", {}, h("h3", {}, title), h("p", { class: "caption" }, caption), this.legend),
      this.host,
    );
  }

  show(isShown: (variant: number) => boolean): void {
    this.isShown = isShown;
    this.draw();
  }

  private fit(room: number): void {
    const width = Math.min(Math.max(room, WIDTHS[0]), WIDTHS[1]);
    if (room === 0 || Math.abs(width - this.width) < 2) return;
    this.width = width;
    this.draw();
  }

  /**
   * The width for the names of rows, and for each label the name that distinguishes it from the others. If
   * names would look alike, they get more room.
   */
  protected names(labels: string[]): { left: number; short: Map<string, string> } {
    const usual = Math.min(150, Math.round(this.width * 0.34));
    const wide = Math.min(300, Math.round(this.width * 0.5));
    const most = (room: number) => Math.floor((room - 10) / 7);
    const short = shortenedApart(distinct(labels), [most(usual), most(wide)]);
    const fits = short.every((name) => name.length <= most(usual));
    return {
      left: fits ? usual : wide,
      short: new Map(labels.map((label, at): [string, string] => [label, short[at] ?? label])),
    };
  }

  /** The parts to draw, with their height; `null` if there is nothing. */
  protected abstract picture(): { height: number; parts: SVGElement[] } | null;
  protected abstract entries(): { label: string; variant: number }[];

  protected draw(): void {
    const picture = this.picture();
    this.figure.classList.toggle("empty", picture === null);
    this.legend.replaceChildren(
      ...this.entries().map(({ label, variant }) =>
        h("span", {}, swatch(variantVariable(variant), dashes(variant)), ` ${label}`),
      ),
    );
    if (picture === null) {
      this.host.replaceChildren();
      return;
    }
    const label = `${this.title}. ${this.caption}`;
    this.host.replaceChildren(
      s(
        "svg",
        { viewBox: `0 0 ${this.width} ${picture.height}`, role: "img", "aria-label": label },
        ...picture.parts,
      ),
    );
  }
}

export interface BoxColumn {
  label: string;
  variant: number;
  /** The delays that 5, 25, 50, 75 and 95 % of the samples do not exceed. */
  ms: Five;
}

/** One row per variant: whiskers from 5 % to 95 %, the middle half as a box, the median as a line. */
export class BoxPlot extends StillChart {
  private columns: BoxColumn[] = [];

  constructor(
    id: string,
    title: string,
    caption: string,
    private readonly isLog: boolean,
  ) {
    super(id, title, caption);
  }

  setColumns(columns: BoxColumn[]): void {
    this.columns = columns;
    this.draw();
  }

  protected entries(): { label: string; variant: number }[] {
    return [];
  }

  protected picture() {
    const rows = this.columns.filter((column) => this.isShown(column.variant));
    if (rows.length === 0) return null;
    const { left, short } = this.names(this.columns.map(({ label }) => label));
    const row = 30;
    const bottom = rows.length * row + 8;
    const all = rows.flatMap(({ ms }) => ms);
    const x = delayAxis(all, [left, this.width - 24], this.isLog);
    const parts = grid(x, [4, bottom], this.width, this.isLog ? "ms, logarithmic" : "ms");
    for (const [at, { label, variant, ms }] of rows.entries()) {
      const [p5, p25, p50, p75, p95] = ms.map((value) => x.at(value)) as Five;
      const y = 4 + at * row + row / 2;
      const color = variantVariable(variant);
      const stroke = { stroke: color, "stroke-width": 1.5 };
      const line = (x1: number, x2: number, y1: number, y2: number, width = 1.5) =>
        s("line", { x1, x2, y1, y2, ...stroke, "stroke-width": width });
      const said = ms.map(milliseconds);
      parts.push(
        s("text", { x: left - 10, y: y + 4, "text-anchor": "end", class: "name" }, short.get(label) ?? label),
        s(
          "g",
          {},
          s(
            "title",
            {},
            `${label}: 5 % ${said[0]}, 25 % ${said[1]}, median ${said[2]}, 75 % ${said[3]}, 95 % ${said[4]}`,
          ),
          line(p5, p25, y, y),
          line(p75, p95, y, y),
          line(p5, p5, y - 5, y + 5),
          line(p95, p95, y - 5, y + 5),
          s("rect", {
            x: p25,
            y: y - 9,
            width: Math.max(1, p75 - p25),
            height: 18,
            fill: color,
            "fill-opacity": 0.22,
            ...stroke,
          }),
          line(p50, p50, y - 9, y + 9, 3),
        ),
      );
    }
    return { height: bottom + 40, parts };
  }
}

export interface StripRow {
  label: string;
  variant: number;
  values: number[];
  median: number;
  interval: number[] | null;
}

/** One row per variant: a dot per repetition, the median, and the confidence interval of the mean. */
export class StripPlot extends StillChart {
  private rows: StripRow[] = [];
  private others: string[] = [];

  constructor(
    id: string,
    title: string,
    caption: string,
    private readonly unit: string,
  ) {
    super(id, title, caption);
  }

  /** Draws the rows. Their names also distinguish them from `others`, which have no row. */
  setRows(rows: StripRow[], others: string[]): void {
    this.rows = rows;
    this.others = others;
    this.draw();
  }

  protected entries(): { label: string; variant: number }[] {
    return [];
  }

  protected picture() {
    const rows = this.rows.filter((row) => this.isShown(row.variant));
    if (rows.length === 0) return null;
    const { left, short } = this.names([...this.rows.map(({ label }) => label), ...this.others]);
    const step = 28;
    const bottom = rows.length * step + 8;
    const all = rows.flatMap(({ values, interval }) => [...values, ...(interval ?? [])]);
    const least = Math.min(...rows.flatMap(({ values }) => values));
    const medians = rows.map((row) => row.median);
    const isLog = least >= 0 && isFarApart(all, medians);
    const hasZero = isLog && Math.min(...all) <= 0;
    const x = delayAxis(
      all.map((value) => Math.max(value, 0)),
      [hasZero ? left + ZERO_ROOM : left, this.width - 24],
      isLog,
    );
    const place = (value: number) => (hasZero && value <= 0 ? left : x.at(Math.max(value, 0)));
    const parts = grid(x, [4, bottom], this.width, isLog ? `${this.unit}, logarithmic` : this.unit);
    if (hasZero) parts.push(...rule(left, [4, bottom], "0"));
    for (const [at, { label, variant, values, median, interval }] of rows.entries()) {
      const y = 4 + at * step + step / 2;
      const color = variantVariable(variant);
      const [low, high] = (interval ?? []).map(place);
      const said = `${label}: median ${plain(median)} ${this.unit} of ${values.length}, ${plain(Math.min(...values))} to ${plain(Math.max(...values))}`;
      parts.push(
        s("text", { x: left - 10, y: y + 4, "text-anchor": "end" }, short.get(label) ?? label),
        s(
          "g",
          {},
          s("title", {}, said),
          ...(low === undefined || high === undefined
            ? []
            : [
                s("rect", {
                  x: low,
                  y: y - 7,
                  width: Math.max(1, high - low),
                  height: 14,
                  fill: color,
                  "fill-opacity": 0.2,
                }),
              ]),
          ...values.map((value) =>
            s("circle", { cx: place(value), cy: y, r: 3, fill: color, "fill-opacity": 0.75 }),
          ),
          s("line", {
            x1: place(median),
            x2: place(median),
            y1: y - 9,
            y2: y + 9,
            stroke: color,
            "stroke-width": 2.5,
          }),
        ),
      );
    }
    return { height: bottom + 40, parts };
  }
}

export interface TradeoffPoint {
  label: string;
  variant: number;
  tradeoff: Tradeoff;
}

/** Goodput against delay: a dot per window, and the ellipse of one standard deviation. */
export class TradeoffPlot extends StillChart {
  private points: TradeoffPoint[] = [];

  constructor(
    id: string,
    title: string,
    caption: string,
    private readonly isLog: boolean,
  ) {
    super(id, title, caption);
  }

  setPoints(points: TradeoffPoint[]): void {
    this.points = points;
    this.draw();
  }

  protected entries(): { label: string; variant: number }[] {
    const shown = this.points.filter((point) => this.isShown(point.variant));
    if (shown.length <= MOST_CLOUDS) return shown;
    return shown.map(({ label, variant }, at) => ({ label: `${at + 1}: ${label}`, variant }));
  }

  protected picture() {
    const shown = this.points.filter((point) => this.isShown(point.variant));
    if (shown.length === 0) return null;
    const ellipses = shown.map(({ tradeoff }) => contour(tradeoff, this.isLog));
    const bottom = 268;
    // The dots and ellipses of many runs would cover each other.
    const isFew = shown.length <= MOST_CLOUDS;
    const delays = [
      ...ellipses.flat().map(([delay]) => delay),
      ...(isFew ? shown.flatMap((p) => p.tradeoff.delay_ms) : []),
    ];
    const rates = [
      ...ellipses.flat().map(([, mbps]) => mbps),
      ...(isFew ? shown.flatMap((p) => p.tradeoff.goodput_mbps) : []),
    ];
    const [least, most] = [Math.min(...rates), Math.max(...rates)];
    // The axis starts at zero, unless that would flatten all ellipses.
    const floor = least > 0.5 * most ? least - Math.max(0.15 * (most - least), 0.02 * most) : 0;
    const y = new Axis(floor, most + Math.max(0.1 * (most - floor), 1e-3), [bottom, 12], false);
    const ticks = y.ticks();
    const left = marginOf(ticks.map(({ label }) => label));
    const x = delayAxis(delays, [left, this.width - 24], this.isLog);
    const unit = this.isLog ? "mean sojourn time (ms, logarithmic)" : "mean sojourn time (ms)";
    const parts = grid(x, [12, bottom], this.width, unit);
    for (const { tick, label } of ticks) {
      const at = y.at(tick);
      parts.push(
        s("line", { x1: left, x2: this.width - 24, y1: at, y2: at, class: "rule" }),
        s("text", { x: left - 8, y: at + 4, "text-anchor": "end" }, label),
      );
    }
    parts.push(
      s(
        "text",
        {
          x: 12,
          y: (12 + bottom) / 2,
          transform: `rotate(-90 12 ${(12 + bottom) / 2})`,
          "text-anchor": "middle",
          class: "axis",
        },
        "Mbit/s",
      ),
    );
    const centers = shown.map(({ tradeoff }): [number, number] => {
      const [delay, mbps] = middle(tradeoff, this.isLog);
      return [x.at(delay), y.at(mbps)];
    });
    const widths = shown.map((_, at) => String(at + 1).length * NUMBER.digit);
    const room: Box = [left, 12, this.width - 24, bottom];
    const numbers = isFew ? [] : labelBoxes(centers, widths, NUMBER.height, room);
    for (const [at, { label, variant, tradeoff }] of shown.entries()) {
      const color = variantVariable(variant);
      const path = (ellipses[at] as [number, number][]).map(
        ([delay, mbps]) => `${x.at(delay)},${y.at(mbps)}`,
      );
      const center = centers[at] as [number, number];
      const number = numbers[at];
      const said = `${label}: ${megabits(tradeoff.mean_goodput_mbps)} ± ${megabits(tradeoff.goodput_deviation_mbps)}, ${milliseconds(tradeoff.mean_delay_ms)} ± ${milliseconds(tradeoff.delay_deviation_ms)}`;
      parts.push(
        s(
          "g",
          {},
          s("title", {}, said),
          ...(isFew ? tradeoff.delay_ms : []).map((delay, dot) =>
            s("circle", {
              cx: x.at(delay),
              cy: y.at(tradeoff.goodput_mbps[dot] as number),
              r: 1.8,
              fill: color,
              "fill-opacity": 0.55,
            }),
          ),
          s("polygon", {
            points: path.join(" "),
            fill: color,
            "fill-opacity": isFew ? 0.18 : 0,
            stroke: color,
            "stroke-width": isFew ? 1.6 : 0.6,
            "stroke-dasharray": (dashes(variant) ?? []).join(" ") || "none",
          }),
          s("circle", {
            cx: center[0],
            cy: center[1],
            r: 4,
            fill: color,
            stroke: "var(--paper)",
            "stroke-width": 1.2,
          }),
          ...(number === undefined ? [] : numbered(`${at + 1}`, center, number, color)),
        ),
      );
    }
    return { height: bottom + 40, parts };
  }
}

/** The size of a number beside a point. */
const NUMBER = { digit: 7.5, height: 14 };
/** A number that is further from its point is joined to it by a line. */
const BESIDE = 10;

/** The number of a point at its place. */
function numbered(text: string, [x, y]: [number, number], box: Box, stroke: string): SVGElement[] {
  const [left, top, right, bottom] = box;
  // The nearest place of the box.
  const x2 = Math.min(Math.max(x, left), right);
  const y2 = Math.min(Math.max(y, top), bottom);
  const isBeside = Math.hypot(x2 - x, y2 - y) <= BESIDE;
  const line = s("line", { x1: x, y1: y, x2, y2, stroke, "stroke-width": 0.6 });
  return [...(isBeside ? [] : [line]), s("text", { x: left, y: top + 11 }, text)];
}

/** A vertical line with its number below. */
function rule(at: number, [top, bottom]: [number, number], label: string): SVGElement[] {
  return [
    s("line", { x1: at, x2: at, y1: top, y2: bottom, class: "rule" }),
    s("text", { x: at, y: bottom + 16, "text-anchor": "middle" }, label),
  ];
}

/** Vertical lines with numbers below, and their unit. */
function grid(x: Axis, ends: [number, number], width: number, unit: string): SVGElement[] {
  const lines = x.ticks().flatMap(({ tick, label }) => rule(x.at(tick), ends, label));
  return [
    ...lines,
    s("text", { x: width / 2, y: ends[1] + 34, "text-anchor": "middle", class: "axis" }, unit),
  ];
}
