/** Values over time, one line per variant or per variant and flow. */
import uPlot from "uplot";
import { type Child, choice, h, swatch } from "../dom.ts";
import { instant } from "../maths/format.ts";
import { fitting } from "../maths/rows.ts";
import { lowerBound } from "../maths/search.ts";
import { isolated } from "../maths/series.ts";
import { dashes, ink, variantColor } from "../theme.ts";
import { axis, FOCUS, Frame, type FrameSpec, isPointed, linearAxis, logAxis, timeOptions } from "./frame.ts";
import type { ChartGroup, Member } from "./group.ts";

export interface Line {
  label: string;
  /** Index of the variant, which determines the colour; `null` for a reference, drawn in grey. */
  variant: number | null;
  /** Index of the colour, if it is not that of the variant. */
  hue?: number;
  /** Index among the lines of a variant, which determines the dashes. */
  flow: number;
  time: number[];
  value: (number | null)[];
  /** Whether to draw the samples too, for sparse ones. */
  dots?: boolean;
}

export interface LineSpec extends FrameSpec {
  unit: string;
  /** Formats a value with its unit, for the tooltip. */
  say: (value: number) => string;
  /** Whether a logarithmic axis is offered, and whether it comes first. */
  log?: "offered" | "first";
  /** The unit of times; seconds if it is missing. */
  timeUnit?: "s" | "min" | "h";
  /** Times that are marked by a vertical line. */
  marks?: () => number[];
}

export class LineChart implements Member {
  readonly frame: Frame;
  private lines: Line[] = [];
  private plot: uPlot | null = null;
  private isLog: boolean;
  private unit: string;
  private isShown: (variant: number) => boolean = () => true;
  /** The series nearest to the pointer. */
  private focused: number | null = null;

  constructor(
    private readonly spec: LineSpec,
    private readonly group: ChartGroup,
  ) {
    this.frame = new Frame(spec, group);
    this.unit = spec.unit;
    this.isLog = spec.log === "first";
    group.join(this);
    if (spec.log !== undefined) {
      const scales = [
        { value: "linear", text: "linear" },
        { value: "log", text: "log" },
      ];
      this.frame.controls.append(
        choice(`Scale of ${spec.title}`, scales, this.isLog ? "log" : "linear", (scale) => {
          this.isLog = scale === "log";
          this.build();
        }),
      );
    }
  }

  /** Takes effect with the next `setLines`. */
  setUnit(unit: string): void {
    this.unit = unit;
  }

  setLines(lines: Line[]): void {
    const drawn = lines.filter((line) => line.value.some((value) => value !== null));
    // A reference alone does not make a chart.
    this.lines = drawn.some((line) => line.variant !== null) ? drawn : [];
    this.build();
  }

  show(isShown: (variant: number) => boolean): void {
    this.isShown = isShown;
    const plot = this.plot;
    if (plot === null) return;
    plot.batch(() => {
      this.lines.forEach((line, at) => {
        plot.setSeries(at + 1, { show: this.isLineShown(line) });
      });
    });
    this.count();
  }

  setRange(min: number, max: number): void {
    this.plot?.setScale("x", { min, max });
  }

  private isLineShown(line: Line): boolean {
    return line.variant === null || this.isShown(line.variant);
  }

  private count(): void {
    const shown = this.lines.filter((line) => this.isLineShown(line));
    this.frame.setCounts(this.lines.length, shown.length);
    const variants = this.lines.filter((line) => line.variant !== null).map((line) => line.variant);
    const isPlain = new Set(variants).size === variants.length;
    this.frame.setLegend(
      shown.map((line) => ({ label: line.label, hue: hueOf(line), dash: dashOf(line) })),
      isPlain,
    );
  }

  private build(): void {
    this.count();
    this.frame.figure.classList.toggle("empty", this.lines.length === 0);
    if (this.lines.length === 0) {
      this.frame.unmount();
      this.plot = null;
      return;
    }
    const shared = timeOptions(this.group);
    const tables = this.lines.map((line): uPlot.AlignedData => [line.time, this.drawable(line.value)]);
    this.plot = this.frame.mount(
      {
        ...shared,
        scales: { ...shared.scales, y: this.yScale() },
        axes: [
          axis(`time (${this.spec.timeUnit ?? "s"})`, "x", linearAxis),
          axis(this.isLog ? `${this.unit}, logarithmic` : this.unit, "y", this.isLog ? logAxis : linearAxis),
        ],
        series: [{}, ...this.lines.map((line) => this.seriesOf(line))],
        cursor: {
          ...shared.cursor,
          focus: FOCUS,
          hover: { prox: 60, skip: [undefined, null] },
          points: { size: 7 },
        },
        focus: { alpha: 0.3 },
        hooks: {
          ...shared.hooks,
          setSeries: [
            (_plot, series, change) => {
              if ("focus" in change) this.focused = series;
            },
          ],
          setCursor: [(plot) => this.describe(plot)],
          draw: [(plot) => this.mark(plot)],
        },
      },
      uPlot.join(tables),
    );
  }

  private mark(plot: uPlot): void {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.strokeStyle = ink().muted;
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
    for (const at of this.spec.marks?.() ?? []) {
      const x = Math.round(plot.valToPos(at, "x", true));
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    }
    ctx.restore();
  }

  /** Replaces values that a logarithmic axis cannot show. */
  private drawable(values: (number | null)[]): (number | null)[] {
    return this.isLog ? values.map((value) => (value !== null && value > 0 ? value : null)) : values;
  }

  private yScale(): uPlot.Scale {
    if (this.isLog) {
      return {
        distr: 3,
        range: (_plot, min, max) => (min > 0 && max > 0 ? [min / 1.15, max * 1.15] : [1, 10]),
      };
    }
    return { range: (_plot, min, max) => [Math.min(0, min ?? 0), max > 0 ? max * 1.06 : 1] };
  }

  private seriesOf(line: Line): uPlot.Series {
    const hue = hueOf(line);
    const color = () => (hue === null ? ink().muted : variantColor(hue));
    const dash = dashOf(line);
    return {
      label: line.label,
      stroke: color,
      width: line.variant === null ? 1 : 1.75,
      show: this.isLineShown(line),
      points: { show: true, size: 4, fill: color, filter: line.dots ? null : onlyAlone(line) },
      ...(dash === undefined ? {} : { dash }),
    };
  }

  private describe(plot: uPlot): void {
    if (!isPointed(plot)) {
      this.frame.hideTooltip();
      return;
    }
    const { left = 0, idxs } = plot.cursor;
    const valued = this.lines.flatMap((line, at) => {
      const value = plot.data[at + 1]?.[idxs?.[at + 1] ?? -1];
      if (value === null || value === undefined || !this.isLineShown(line)) return [];
      return [{ line, at: at + 1, value }];
    });
    const { shown, more } = fitting(
      valued,
      valued.findIndex(({ at }) => at === this.focused),
    );
    const rows: Child[] = shown.map(({ line, at, value }) => this.row(line, at, value));
    if (more > 0) rows.push(`and ${more} more`);
    const time = h("div", { class: "time" }, this.instant(plot.posToVal(left, "x")));
    this.frame.showTooltip(plot, time, ...rows);
  }

  private instant(at: number): string {
    const unit = this.spec.timeUnit;
    return unit === undefined || unit === "s" ? instant(at) : `${at.toFixed(2)} ${unit}`;
  }

  private row(line: Line, at: number, value: number): HTMLElement {
    const hue = hueOf(line);
    const color = hue === null ? ink().muted : variantColor(hue);
    return h(
      "div",
      { class: at === this.focused ? "row focused" : "row" },
      swatch(color, dashOf(line)),
      h("span", { class: "name" }, line.label),
      h("span", { class: "value" }, this.spec.say(value)),
    );
  }
}

/** Selects the samples with a gap on both sides, which no line would show. */
function onlyAlone(line: Line): (plot: uPlot) => number[] {
  const times = isolated(line.value).map((at) => line.time[at] as number);
  return (plot) => times.map((time) => lowerBound(plot.data[0], time));
}

function hueOf(line: Line): number | null {
  return line.hue ?? line.variant;
}

function dashOf(line: Line): number[] | undefined {
  return line.variant === null ? [2, 4] : dashes(line.variant, line.flow);
}
