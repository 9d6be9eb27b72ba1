/** Empirical distributions: the share of samples up to each value. */
import uPlot from "uplot";
import { type Child, choice, h, swatch } from "../dom.ts";
import { corners, type Form, rangeOf, shareAtMost } from "../maths/cdf.ts";
import { milliseconds, percent } from "../maths/format.ts";
import { inside, type Range } from "../maths/range.ts";
import { fitting } from "../maths/rows.ts";
import type { Cdf } from "../model.ts";
import { dashes, variantColor } from "../theme.ts";
import {
  axis,
  FOCUS,
  Frame,
  type FrameSpec,
  isPointed,
  linearAxis,
  logAxis,
  logShareAxis,
  shareAxis,
} from "./frame.ts";

export interface Curve {
  label: string;
  variant: number;
  flow: number;
  cdf: Cdf;
}

export class CdfChart {
  readonly frame: Frame;
  private curves: Curve[] = [];
  private plot: uPlot | null = null;
  private form: Form;
  private isShown: (variant: number) => boolean = () => true;
  private range: Range = [0, 1];
  /** The series nearest to the pointer. */
  private focused: number | null = null;

  constructor(spec: FrameSpec, isLogFirst: boolean) {
    this.form = isLogFirst ? "log" : "linear";
    const zoom = (factor: number) => {
      const [from, to] = this.view();
      const [middle, half] = [(from + to) / 2, ((to - from) / 2) * factor];
      this.setView([middle - half, middle + half]);
    };
    const pan = (share: number) => {
      const [from, to] = this.view();
      const by = (to - from) * share;
      this.setView([from + by, to + by]);
    };
    this.frame = new Frame(spec, { zoom, pan, reset: () => this.reset() });
    const forms: { value: Form; text: string }[] = [
      { value: "linear", text: "linear" },
      { value: "log", text: "log" },
      { value: "tail", text: "log tail" },
    ];
    this.frame.controls.append(
      choice(`Scale of ${spec.title}`, forms, this.form, (form) => {
        this.form = form;
        this.build();
      }),
    );
  }

  setCurves(curves: Curve[]): void {
    this.curves = curves.filter((curve) => curve.cdf.count > 0);
    this.build();
  }

  show(isShown: (variant: number) => boolean): void {
    this.isShown = isShown;
    const plot = this.plot;
    if (plot === null) return;
    plot.batch(() => {
      this.curves.forEach((curve, at) => {
        plot.setSeries(at + 1, { show: isShown(curve.variant) });
      });
    });
    this.count();
    this.reset();
  }

  private count(): void {
    const shown = this.curves.filter((curve) => this.isShown(curve.variant));
    this.frame.setCounts(this.curves.length, shown.length);
    const isPlain = new Set(this.curves.map((curve) => curve.variant)).size === this.curves.length;
    this.frame.setLegend(
      shown.map(({ label, variant, flow }) => ({ label, hue: variant, dash: dashes(variant, flow) })),
      isPlain,
    );
  }

  /** The visible range, in positions along the axis. */
  private view(): Range {
    const { x } = this.plot?.scales ?? {};
    const [least, most] = this.range;
    return [this.position(x?.min ?? least), this.position(x?.max ?? most)];
  }

  private setView(view: Range): void {
    const [least, most] = this.range;
    const [from, to] = inside(view, [this.position(least), this.position(most)]);
    this.plot?.setScale("x", { min: this.valueAt(from), max: this.valueAt(to) });
  }

  /** The position of a value along the axis: on a logarithmic one, its logarithm. */
  private position(value: number): number {
    return this.form === "linear" ? value : Math.log10(value);
  }

  private valueAt(position: number): number {
    return this.form === "linear" ? position : 10 ** position;
  }

  private reset(): void {
    this.range = this.fullRange();
    const [min, max] = this.range;
    this.plot?.setScale("x", { min, max });
  }

  /** The range of all visible curves. */
  private fullRange(): Range {
    const visible = this.curves.filter((curve) => this.isShown(curve.variant));
    const values = visible.flatMap((curve) => curve.cdf.value);
    return rangeOf(values, this.form);
  }

  private build(): void {
    this.count();
    this.frame.figure.classList.toggle("empty", this.curves.length === 0);
    if (this.curves.length === 0) {
      this.frame.unmount();
      this.plot = null;
      return;
    }
    this.range = this.fullRange();
    const [min, max] = this.range;
    const isTail = this.form === "tail";
    this.plot = this.frame.mount(
      {
        legend: { show: false },
        scales: {
          x: {
            time: false,
            auto: false,
            min,
            max,
            distr: this.form === "linear" ? 1 : 3,
            range: (_plot, from, to) => [from, to],
          },
          y: isTail ? { distr: 3, range: () => [this.rarest(), 1] } : { range: [0, 1.015] },
        },
        axes: [
          axis(
            this.form === "linear" ? "ms" : "ms, logarithmic",
            "x",
            this.form === "linear" ? linearAxis : logAxis,
          ),
          isTail
            ? axis("share of samples above", "y", logShareAxis)
            : axis("share of samples up to", "y", shareAxis),
        ],
        series: [{}, ...this.curves.map((curve) => this.seriesOf(curve))],
        cursor: {
          y: false,
          focus: FOCUS,
          hover: { prox: 1e6, skip: [undefined, null] },
          // The tooltip shows the shares at the pointer, not at the nearest samples.
          points: { show: false },
          drag: { x: true, y: false, dist: 4, setScale: false },
          bind: {
            dblclick: () => () => {
              this.reset();
              return null;
            },
          },
        },
        focus: { alpha: 0.3 },
        hooks: {
          setSeries: [
            (_plot, series, change) => {
              if ("focus" in change) this.focused = series;
            },
          ],
          setCursor: [(plot) => this.describe(plot)],
          setSelect: [
            (plot) => {
              if (plot.select.width < 4) return;
              const from = plot.posToVal(plot.select.left, "x");
              const to = plot.posToVal(plot.select.left + plot.select.width, "x");
              plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
              this.setView([this.position(from), this.position(to)]);
            },
          ],
        },
      },
      uPlot.join(
        this.curves.map(({ cdf }): uPlot.AlignedData => {
          const { value, share } = corners(cdf, this.form);
          return [value, share];
        }),
      ),
    );
  }

  /** The smallest share that the largest sample can resolve. */
  private rarest(): number {
    const most = this.curves.reduce((count, curve) => Math.max(count, curve.cdf.count), 10);
    return Math.max(1e-6, 0.8 / most);
  }

  private seriesOf(curve: Curve): uPlot.Series {
    const dash = dashes(curve.variant, curve.flow);
    const stepped = uPlot.paths.stepped;
    return {
      label: curve.label,
      stroke: () => variantColor(curve.variant),
      width: 1.75,
      show: this.isShown(curve.variant),
      points: { show: false },
      ...(stepped === undefined ? {} : { paths: stepped({ align: 1 }) }),
      ...(dash === undefined ? {} : { dash }),
    };
  }

  private describe(plot: uPlot): void {
    if (!isPointed(plot)) {
      this.frame.hideTooltip();
      return;
    }
    const value = plot.posToVal(plot.cursor.left ?? 0, "x");
    const visible = this.curves.filter((curve) => this.isShown(curve.variant));
    const pointed = this.focused === null ? undefined : this.curves[this.focused - 1];
    const { shown, more } = fitting(visible, pointed === undefined ? -1 : visible.indexOf(pointed));
    const rows: Child[] = shown.map((curve) => {
      const share = shareAtMost(curve.cdf, value);
      return h(
        "div",
        { class: curve === pointed ? "row focused" : "row" },
        swatch(variantColor(curve.variant), dashes(curve.variant, curve.flow)),
        h("span", { class: "name" }, curve.label),
        h("span", { class: "value" }, percent(this.form === "tail" ? 1 - share : share)),
      );
    });
    if (more > 0) rows.push(`and ${more} more`);
    const heading = `${this.form === "tail" ? "above" : "up to"} ${milliseconds(value)}`;
    this.frame.showTooltip(plot, h("div", { class: "time" }, heading), ...rows);
  }
}
