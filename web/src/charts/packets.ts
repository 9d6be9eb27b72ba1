/**
 * One point per packet: when it left the queue, and how long it had waited. Sent packets are dots,
 * CE-marked ones triangles, dropped ones crosses. A packet that was dropped on arrival has not waited
 * and lies on the axis.
 */
import type uPlot from "uplot";
import { choice, h, swatch } from "../dom.ts";
import { instant, milliseconds, whole } from "../maths/format.ts";
import { batches, Places } from "../maths/places.ts";
import { lowerBound } from "../maths/search.ts";
import { type Packets, VERDICT } from "../model.ts";
import { type Columns, columnsOf } from "../packed.ts";
import { dashes, ink, variantColor } from "../theme.ts";
import { axis, Frame, type FrameSpec, isPointed, linearAxis, logAxis, timeOptions } from "./frame.ts";
import type { ChartGroup, Member } from "./group.ts";

/** Width of the stripes in which variants with dots at the same place take turns, in dots. */
const STRIPE = 2;

/** Whether the dot of a layer at a place is drawn, and not that of another layer there. */
function hasTurn(taken: Uint8Array[], layer: number, place: number, stripe: number): boolean {
  const present = taken.flatMap((places, at) => (places[place] === 1 ? [at] : []));
  return present[stripe % present.length] === layer;
}

export interface Cloud {
  label: string;
  variant: number;
  packets: Packets;
}

/** The packets of a cloud, with times in the units of the axes. */
interface Layer {
  cloud: Cloud;
  columns: Columns;
  time: Float64Array;
  wait: Float64Array;
}

interface Hit {
  layer: Layer;
  at: number;
  distance: number;
}

/** Largest / smallest value of a logarithmic axis; shorter waits lie on its lower edge. */
const LOG_SPAN = 30_000;
/** Distance from which the pointer finds a packet, in CSS pixels. */
const REACH = 18;
const MARK_SIZE = 4;
const DROP_SIZE = 3.5;
/** Marks, and drops, that are nearer to each other look the same, in CSS pixels. */
const SIGNAL_PLACE = 2;
/** Glyphs of a path: the time to stroke one grows faster than its length. */
const MOST_GLYPHS = 256;

/** A place on the canvas. */
type Point = [number, number];

/** Paths of glyphs, each of a limited length. */
function pathsOf(points: Point[], add: (path: Path2D, x: number, y: number) => void): Path2D[] {
  return batches(points, MOST_GLYPHS).map((some) => {
    const path = new Path2D();
    for (const [x, y] of some) add(path, x, y);
    return path;
  });
}

function triangle(path: Path2D, x: number, y: number, size: number): void {
  path.moveTo(x, y - size);
  path.lineTo(x + size, y + size * 0.75);
  path.lineTo(x - size, y + size * 0.75);
  path.closePath();
}

function cross(path: Path2D, x: number, y: number, size: number): void {
  path.moveTo(x - size, y - size);
  path.lineTo(x + size, y + size);
  path.moveTo(x + size, y - size);
  path.lineTo(x - size, y + size);
}

export class PacketChart implements Member {
  readonly frame: Frame;
  private layers: Layer[] = [];
  private plot: uPlot | null = null;
  private isLog: boolean;
  private isShown: (variant: number) => boolean = () => true;
  /** Surrounds the packet that the tooltip describes. It is an element, so that hovering needs no redraw. */
  private readonly ring = h("div", { class: "ring", hidden: true });

  constructor(
    spec: FrameSpec,
    private readonly group: ChartGroup,
    isLogFirst: boolean,
  ) {
    this.frame = new Frame(spec, group);
    this.isLog = isLogFirst;
    group.join(this);
    const scales = [
      { value: "linear", text: "linear" },
      { value: "log", text: "log" },
    ];
    this.frame.controls.append(
      h(
        "span",
        { class: "glyphs" },
        h("span", {}, h("b", {}, "·"), " sent"),
        h("span", {}, h("b", {}, "△"), " CE-marked"),
        h("span", {}, h("b", {}, "×"), " dropped"),
      ),
      choice(`Scale of ${spec.title}`, scales, isLogFirst ? "log" : "linear", (scale) => {
        this.isLog = scale === "log";
        this.build();
      }),
    );
  }

  setClouds(clouds: Cloud[]): void {
    this.layers = clouds.map((cloud) => {
      const columns = columnsOf(cloud.packets);
      return {
        cloud,
        columns,
        time: columns.at_ns.map((ns) => ns / 1e9),
        wait: columns.sojourn_ns.map((ns) => ns / 1e6),
      };
    });
    this.build();
  }

  show(isShown: (variant: number) => boolean): void {
    this.isShown = isShown;
    this.count();
    this.rescale();
  }

  setRange(min: number, max: number): void {
    this.plot?.setScale("x", { min, max });
    this.rescale();
  }

  private rescale(): void {
    // The chart has no uPlot series, so uPlot does not scale the y axis by itself.
    const [min, max] = this.yRange();
    this.plot?.setScale("y", { min, max });
  }

  private shown(): Layer[] {
    return this.layers.filter((layer) => this.isShown(layer.cloud.variant));
  }

  private count(): void {
    this.frame.setCounts(this.layers.length, this.shown().length);
    const entries = this.shown().map(({ cloud: { label, variant } }) => ({
      label,
      hue: variant,
      dash: dashes(variant),
    }));
    this.frame.setLegend(entries, true);
  }

  private build(): void {
    this.count();
    const isEmpty = this.layers.every(({ time }) => time.length === 0);
    this.frame.figure.classList.toggle("empty", isEmpty);
    if (isEmpty) {
      this.frame.unmount();
      this.plot = null;
      return;
    }
    const shared = timeOptions(this.group);
    const [min, max] = this.yRange();
    this.plot = this.frame.mount(
      {
        ...shared,
        scales: { ...shared.scales, y: { auto: false, min, max, distr: this.isLog ? 3 : 1 } },
        axes: [
          axis("time (s)", "x", linearAxis),
          axis(this.isLog ? "ms, logarithmic" : "ms", "y", this.isLog ? logAxis : linearAxis),
        ],
        series: [{}, { show: false }],
        hooks: {
          ...shared.hooks,
          draw: [(plot) => this.draw(plot)],
          setCursor: [(plot) => this.describe(plot)],
        },
      },
      [
        [this.group.from, this.group.to],
        [null, null],
      ],
    );
    this.ring.hidden = true;
    this.plot.over.append(this.ring);
  }

  private yRange(): [number, number] {
    let max = 0;
    let min = Number.POSITIVE_INFINITY;
    for (const { time, wait } of this.shown()) {
      const end = lowerBound(time, this.group.to);
      for (let at = lowerBound(time, this.group.from); at < end; at += 1) {
        const here = wait[at] as number;
        if (here > max) max = here;
        if (here > 0 && here < min) min = here;
      }
    }
    if (!this.isLog) return [0, max > 0 ? max * 1.06 : 1];
    if (max === 0) return [0.01, 1];
    return [Math.min(Math.max(min / 1.25, max / LOG_SPAN), max / 10), max * 1.25];
  }

  private draw(plot: uPlot): void {
    const { ctx, bbox } = plot;
    ctx.save();
    const margin = 6 * devicePixelRatio;
    ctx.beginPath();
    // The margin prevents glyphs on the axis from being cut off.
    ctx.rect(bbox.left - margin, bbox.top - margin, bbox.width + 2 * margin, bbox.height + 2 * margin);
    ctx.clip();
    this.drawSent(plot);
    for (const layer of this.shown()) this.drawSignals(plot, layer);
    ctx.restore();
  }

  /**
   * Dots, at most one per place: a million packets cost no more than the plot has places. Where several
   * variants have dots, they take turns in narrow stripes, so that none hides another.
   */
  private drawSent(plot: uPlot): void {
    const { ctx, bbox } = plot;
    const size = Math.max(1, Math.round(1.6 * devicePixelRatio));
    const [left, top] = [Math.round(bbox.left), Math.round(bbox.top)];
    const columns = Math.ceil(bbox.width / size) + 1;
    const rows = Math.ceil(bbox.height / size) + 1;
    const [toX, toY] = this.projection(plot);
    const taken = this.shown().map(({ columns: { verdict }, time, wait }) => {
      const places = new Uint8Array(columns * rows);
      const end = lowerBound(time, this.group.to);
      for (let at = lowerBound(time, this.group.from); at < end; at += 1) {
        if (verdict[at] !== VERDICT.sent) continue;
        const column = Math.floor((toX(time[at] as number) - left) / size);
        const row = Math.floor((toY(wait[at] as number) - top) / size);
        places[row * columns + column] = 1;
      }
      return places;
    });
    ctx.globalAlpha = 0.65;
    for (const [layer, { cloud }] of this.shown().entries()) {
      ctx.fillStyle = variantColor(cloud.variant);
      for (let row = 0; row < rows; row += 1) {
        for (let column = 0; column < columns; column += 1) {
          const place = row * columns + column;
          if (taken[layer]?.[place] === 1 && hasTurn(taken, layer, place, Math.floor(column / STRIPE))) {
            ctx.fillRect(left + column * size, top + row * size, size, size);
          }
        }
      }
    }
    ctx.globalAlpha = 1;
  }

  /**
   * Marks and drops, at most one of each per place, as for the dots: an overloaded queue drops more
   * packets than it sends.
   */
  private drawSignals(plot: uPlot, { cloud, columns, time, wait }: Layer): void {
    const { ctx, bbox } = plot;
    const ratio = devicePixelRatio;
    const [toX, toY] = this.projection(plot);
    const places = () => new Places(bbox.left, bbox.top, bbox.width, bbox.height, SIGNAL_PLACE * ratio);
    const [markPlaces, dropPlaces] = [places(), places()];
    const marked: Point[] = [];
    const dropped: Point[] = [];
    const end = lowerBound(time, this.group.to);
    for (let at = lowerBound(time, this.group.from); at < end; at += 1) {
      const verdict = columns.verdict[at];
      if (verdict === VERDICT.sent) continue;
      const x = toX(time[at] as number);
      const y = toY(wait[at] as number);
      if (verdict === VERDICT.marked) {
        if (markPlaces.take(x, y)) marked.push([x, y]);
      } else if (dropPlaces.take(x, y)) dropped.push([x, y]);
    }
    const marks = pathsOf(marked, (path, x, y) => triangle(path, x, y, MARK_SIZE * ratio));
    const drops = pathsOf(dropped, (path, x, y) => cross(path, x, y, DROP_SIZE * ratio));
    // A halo in the background colour separates the glyphs from the dots of the same variant.
    ctx.lineJoin = "round";
    ctx.lineCap = "round";
    ctx.strokeStyle = ink().paper;
    ctx.lineWidth = 3.5 * ratio;
    for (const path of [...marks, ...drops]) ctx.stroke(path);
    ctx.strokeStyle = variantColor(cloud.variant);
    ctx.fillStyle = ink().paper;
    ctx.lineWidth = 1.6 * ratio;
    for (const path of marks) ctx.fill(path);
    for (const path of marks) ctx.stroke(path);
    ctx.lineWidth = 1.9 * ratio;
    for (const path of drops) ctx.stroke(path);
  }

  /** Maps times and waits to canvas pixels, without a call into uPlot per packet. */
  private projection(plot: uPlot): [(time: number) => number, (wait: number) => number] {
    const { bbox, scales } = plot;
    const xMin = scales["x"]?.min ?? 0;
    const xMax = scales["x"]?.max ?? 1;
    const yMin = scales["y"]?.min ?? 0;
    const yMax = scales["y"]?.max ?? 1;
    const toX = (time: number) => bbox.left + ((time - xMin) / (xMax - xMin)) * bbox.width;
    if (!this.isLog) return [toX, (wait) => bbox.top + (1 - (wait - yMin) / (yMax - yMin)) * bbox.height];
    const span = Math.log(yMax / yMin);
    return [toX, (wait) => bbox.top + (1 - Math.log(Math.max(wait, yMin) / yMin) / span) * bbox.height];
  }

  private nearest(plot: uPlot, left: number, top: number): Hit | null {
    const [toX, toY] = this.projection(plot);
    const ratio = devicePixelRatio;
    const x = left * ratio + plot.bbox.left;
    const y = top * ratio + plot.bbox.top;
    let best: Hit | null = null;
    for (const layer of this.shown()) {
      const end = lowerBound(layer.time, plot.posToVal(left + REACH, "x"));
      for (let at = lowerBound(layer.time, plot.posToVal(left - REACH, "x")); at < end; at += 1) {
        const dx = toX(layer.time[at] as number) - x;
        const dy = toY(layer.wait[at] as number) - y;
        // Drops and marks are few, so they take precedence over a dot that is slightly nearer.
        const weight = layer.columns.verdict[at] === VERDICT.sent ? 1 : 0.4;
        const distance = Math.hypot(dx, dy) * weight;
        if (distance <= REACH * ratio * weight && (best === null || distance < best.distance)) {
          best = { layer, at, distance };
        }
      }
    }
    return best;
  }

  private describe(plot: uPlot): void {
    const { left = 0, top = 0 } = plot.cursor;
    const hit = isPointed(plot) ? this.nearest(plot, left, top) : null;
    this.ring.hidden = hit === null;
    if (hit === null) {
      this.frame.hideTooltip();
      return;
    }
    const [toX, toY] = this.projection(plot);
    this.ring.style.left = `${(toX(hit.layer.time[hit.at] as number) - plot.bbox.left) / devicePixelRatio}px`;
    this.ring.style.top = `${(toY(hit.layer.wait[hit.at] as number) - plot.bbox.top) / devicePixelRatio}px`;
    this.frame.showTooltip(plot, ...this.explain(hit));
  }

  private explain({ layer: { cloud, columns, time, wait }, at }: Hit): HTMLElement[] {
    const { label, packets, variant } = cloud;
    const reason = packets.reasons[columns.reason[at] ?? 0] ?? "";
    const verdict = columns.verdict[at];
    const number = columns.number[at] ?? 0;
    const why = reason === "" ? "" : `: ${reason}`;
    const what =
      verdict === VERDICT.dropped ? `dropped${why}` : verdict === VERDICT.marked ? `CE-marked${why}` : "sent";
    const line = (name: string, value: string) =>
      h("div", { class: "row" }, h("span", { class: "name" }, name), h("span", { class: "value" }, value));
    return [
      h(
        "div",
        { class: "row focused" },
        swatch(variantColor(variant), dashes(variant)),
        h("span", { class: "name" }, label),
        h("span", { class: "value" }, what),
      ),
      line("waited", milliseconds(wait[at] as number)),
      line("at", instant(time[at] as number, true)),
      line("flow", packets.flows[columns.flow[at] ?? 0] ?? "?"),
      line("size", `${whole(columns.size_bytes[at] ?? 0)} B`),
      // The same in the charts of all queues of the path.
      ...(number > 0 ? [line("packet", String(number - 1))] : []),
    ];
  }
}
