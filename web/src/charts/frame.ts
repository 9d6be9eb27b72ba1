/** The parts that all charts have in common: figure, axes, cursor, tooltip, keys, resizing. */
import uPlot from "uplot";
import { type Child, h, swatch } from "../dom.ts";
import { besidePointer, type Range } from "../maths/range.ts";
import { apart, logTicks, STEPS, tickLabel } from "../maths/ticks.ts";
import { ink, isPrinting, onThemeChange, variantVariable } from "../theme.ts";
import type { ChartGroup } from "./group.ts";

export interface FrameSpec {
  id: string;
  title: string;
  /** What the chart shows: window, unit, direction, selection. */
  caption: string;
  height: number;
  /** Whether two of them are side by side on paper. */
  isHalf?: boolean;
}

export interface LegendEntry {
  label: string;
  /** Index of the colour; `null` for a reference. */
  hue: number | null;
  dash: number[] | undefined;
}

/** Largest number of entries of a legend. */
const MOST_ENTRIES = 24;

/** Width of the plot on paper, in CSS pixels: A4 less margins and the frame, 182 mm less 1.2 em. */
const PAPER_WIDTH = 668;
/** The width of one of two beside each other, and the share of the height on paper. */
const HALF_PAPER_WIDTH = 318;
const PAPER_HEIGHT = 0.75;

export class Frame {
  readonly figure: HTMLElement;
  readonly controls = h("div", { class: "controls" });
  readonly host = h("div", { class: "plot", tabindex: "0", role: "group" });
  readonly tooltip = h("div", { class: "tooltip", hidden: true });
  private readonly legend = h("div", { class: "legend" });
  private readonly caption: HTMLElement;
  private plot: uPlot | null = null;

  constructor(
    readonly spec: FrameSpec,
    keys: Pick<ChartGroup, "zoom" | "pan" | "reset">,
  ) {
    this.caption = h("p", { class: "caption" }, spec.caption);
    const heading = h("h3", { id: `title-${spec.id}` }, spec.title);
    this.figure = h(
      "figure",
      {
        class: "chart",
        id: `chart-${spec.id}`,
        "data-chart": spec.id,
        "aria-labelledby": `title-${spec.id}`,
      },
      h("figcaption", {}, h("div", { class: "head" }, heading, this.controls), this.caption, this.legend),
      this.host,
    );
    this.host.setAttribute("aria-label", `${spec.title}: arrow keys move, plus and minus zoom, 0 resets`);
    this.host.addEventListener("keydown", (event) => {
      const act: Record<string, () => void> = {
        ArrowLeft: () => keys.pan(-0.25),
        ArrowRight: () => keys.pan(0.25),
        "+": () => keys.zoom(0.5),
        "=": () => keys.zoom(0.5),
        "-": () => keys.zoom(2),
        "0": () => keys.reset(),
        Escape: () => keys.reset(),
      };
      const action = act[event.key];
      if (action === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      action();
    });
    new ResizeObserver(() => this.fit()).observe(this.host);
    onThemeChange(() => {
      this.fit();
      // No cursor on paper.
      if (isPrinting()) this.plot?.setCursor({ left: -10, top: -10 });
      this.plot?.redraw();
    });
  }

  setCaption(text: string): void {
    this.caption.textContent = text;
    this.label();
  }

  /** Tells a screen reader what the picture shows. */
  private label(): void {
    const label = `${this.spec.title}. ${this.caption.textContent ?? ""}`;
    this.plot?.ctx.canvas.setAttribute("aria-label", label);
  }

  /**
   * Sets the legend. With one line per variant, the toolbar serves as the legend on a screen, and
   * this legend appears only on paper.
   */
  setLegend(entries: LegendEntry[], isPlain: boolean): void {
    const shown = entries.slice(0, MOST_ENTRIES);
    const more = entries.length > shown.length ? `and ${entries.length - shown.length} more` : null;
    this.legend.classList.toggle("plain", isPlain);
    this.legend.replaceChildren(
      ...shown.map(({ label, hue, dash }) =>
        h("span", {}, swatch(hue === null ? "var(--muted)" : variantVariable(hue), dash), ` ${label}`),
      ),
      ...(more === null ? [] : [more]),
    );
  }

  /** Makes the numbers of series readable from outside, for tests. */
  setCounts(series: number, shown: number): void {
    this.figure.dataset["series"] = String(series);
    this.figure.dataset["shown"] = String(shown);
  }

  /** Replaces the plot. */
  mount(options: Omit<uPlot.Options, "width" | "height">, columns: uPlot.AlignedData): uPlot {
    this.unmount();
    const plot = new uPlot({ ...options, width: this.width(), height: this.height() }, columns, this.host);
    plot.ctx.canvas.setAttribute("role", "img");
    plot.over.append(this.tooltip);
    plot.over.addEventListener("mouseleave", () => this.hideTooltip());
    this.plot = plot;
    this.label();
    return plot;
  }

  unmount(): void {
    this.hideTooltip();
    this.tooltip.remove();
    this.plot?.destroy();
    this.plot = null;
  }

  showTooltip(plot: uPlot, ...rows: Child[]): void {
    const { left = -1, top = 0 } = plot.cursor;
    this.tooltip.replaceChildren(...rows.filter((row) => row !== null));
    this.tooltip.hidden = false;
    const start = plot.over.getBoundingClientRect().left;
    const room: Range = [-start, document.documentElement.clientWidth - start];
    const at = besidePointer(left, this.tooltip.offsetWidth, plot.over.clientWidth, room);
    this.tooltip.style.left = `${at}px`;
    const lowest = plot.over.clientHeight - this.tooltip.offsetHeight;
    this.tooltip.style.top = `${Math.max(0, Math.min(top - 10, lowest))}px`;
  }

  hideTooltip(): void {
    this.tooltip.hidden = true;
  }

  private width(): number {
    if (isPrinting()) return this.spec.isHalf ? HALF_PAPER_WIDTH : PAPER_WIDTH;
    return Math.max(this.host.clientWidth, 240);
  }

  /** Lower on paper, so that fewer charts begin a new page. */
  private height(): number {
    return isPrinting() ? Math.round(this.spec.height * PAPER_HEIGHT) : this.spec.height;
  }

  private fit(): void {
    const [width, height] = [this.width(), this.height()];
    if (this.plot !== null && (this.plot.width !== width || this.plot.height !== height)) {
      this.plot.setSize({ width, height });
    }
  }
}

const FONT = "12px system-ui, sans-serif";

export function axis(label: string, side: "x" | "y", ticks: Ticks): uPlot.Axis {
  return {
    label,
    stroke: () => ink().muted,
    font: FONT,
    labelFont: FONT,
    labelSize: 18,
    labelGap: 2,
    size: side === "x" ? 30 : 52,
    gap: 4,
    space: side === "x" ? 60 : 30,
    grid: { stroke: () => ink().grid, width: 1 },
    ticks: { stroke: () => ink().grid, width: 1, size: 5 },
    ...ticks,
  };
}

export type Ticks = Pick<uPlot.Axis, "incrs" | "splits" | "values" | "filter">;

export const linearAxis: Ticks = {
  incrs: STEPS,
  values: (_plot, splits, _axis, _space, step) =>
    splits.map((split) => (split === null ? "" : tickLabel(split, step))),
};

export const logAxis: Ticks = {
  splits: (_plot, _axis, min, max) => logTicks(min, max),
  // Keeps all ticks; uPlot's own filter suits only uPlot's own ticks.
  filter: (_plot, splits) => splits,
  values: (plot, splits, at) => {
    const { scale = "x", side = 0 } = plot.axes[at] ?? {};
    const label = (split: number) => String(Number(split.toPrecision(6)));
    const isUpright = side % 2 === 1;
    const size = (split: number) => (isUpright ? 12 : label(split).length * 7.5);
    const shown = apart(splits, (split) => plot.valToPos(split, scale), size);
    return splits.map((split) => (shown.includes(split) ? label(split) : ""));
  },
};

/** Shares as per cent. */
const shareValues: Ticks = {
  values: (_plot, splits) =>
    splits.map((split) => (split === null ? "" : `${Number((split * 100).toPrecision(3))} %`)),
};
export const shareAxis: Ticks = { ...linearAxis, ...shareValues };
export const logShareAxis: Ticks = { ...logAxis, ...shareValues };

/** Whether the pointer is over this plot; the cursors of the other plots of its group follow. */
export function isPointed(plot: uPlot): boolean {
  const { left = -1, event } = plot.cursor;
  return left >= 0 && event instanceof Event && plot.over.contains(event.target as Node);
}

/** Highlights the line nearest to the pointer, in the plot under the pointer. */
export const FOCUS: uPlot.Cursor.Focus = {
  prox: 24,
  dist: (plot, _series, _at, value, cursor) =>
    isPointed(plot) ? Math.abs(value - cursor) : Number.MAX_VALUE,
};

/** A time axis that belongs to a group: dragging zooms the group, a double click resets it. */
export function timeOptions(
  group: ChartGroup,
): Pick<uPlot.Options, "scales" | "cursor" | "hooks" | "legend"> {
  return {
    legend: { show: false },
    scales: { x: { time: false, auto: false, min: group.from, max: group.to } },
    cursor: {
      y: false,
      sync: { key: group.cursorKey, setSeries: false },
      drag: { x: true, y: false, dist: 4, setScale: false },
      bind: {
        dblclick: () => () => {
          group.reset();
          return null;
        },
      },
    },
    hooks: {
      setSelect: [
        (plot) => {
          if (plot.select.width < 4) return;
          const from = plot.posToVal(plot.select.left, "x");
          const to = plot.posToVal(plot.select.left + plot.select.width, "x");
          plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
          group.setRange(from, to);
        },
      ],
    },
  };
}
