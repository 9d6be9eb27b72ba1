/** All charts of a report, and the toolbar that controls them. */
import { type Bar, BarChart, type BarGroup } from "../charts/bars.ts";
import { CdfChart, type Curve } from "../charts/cdf.ts";
import { ChartGroup } from "../charts/group.ts";
import { type Line, LineChart } from "../charts/lines.ts";
import { type Cloud, PacketChart } from "../charts/packets.ts";
import { BoxPlot, StripPlot, TradeoffPlot } from "../charts/still.ts";
import { type Child, choice, dropdown, h } from "../dom.ts";
import { boxOf, delayCdf } from "../maths/cdf.ts";
import { bytes, megabits, milliseconds, percent, plain, whole } from "../maths/format.ts";
import { preferred } from "../maths/states.ts";
import { busiestQueue, mainPing } from "../maths/verdict.ts";
import {
  type Direction,
  LOG_BEYOND,
  type Ping,
  type Queue,
  type Report,
  type Run,
  type Series,
} from "../model.ts";
import { columnsOf } from "../packed.ts";
import { FlowLines, type FlowMode } from "./flow-lines.ts";
import { keepClear } from "./sticky.ts";
import { variantName } from "./top.ts";
import {
  aboveLink,
  callsOf,
  measuredIn,
  queueKey,
  queueTitle,
  repetitionNote,
  rounds,
  route,
  scoreOf,
} from "./words.ts";

/** With more lines than this, a chart initially shows the sum of the flows. */
const MOST_LINES = 12;

const NOTHING_OVER_TIME =
  "Nothing can be drawn over time: the runs had no traffic, or recorded only their figures, as with --record figures, the default for many runs.";

type PingWay = "two_way_ms" | "up_ms" | "down_ms";

export class Bench {
  readonly element: HTMLElement;
  private readonly group: ChartGroup;
  private readonly flows: FlowLines;
  private readonly hidden = new Set<number>();
  private readonly goodput = new Map<Direction, LineChart>();
  private readonly cwnd = new Map<Direction, LineChart>();
  private readonly srtt = new Map<Direction, LineChart>();
  private readonly fairness = new Map<Direction, LineChart>();
  private readonly tradeoffs = new Map<Direction, TradeoffPlot>();
  private readonly strips: StripPlot[];
  private readonly boxes: { ping: BoxPlot; sojourn: BoxPlot };
  private readonly ping: LineChart;
  private readonly packets: PacketChart;
  private readonly backlog: LineChart;
  private readonly state: LineChart;
  private readonly cdfs: {
    sojourn: CdfChart;
    two_way_ms: CdfChart;
    up_ms: CdfChart;
    down_ms: CdfChart;
    completion: CdfChart;
  };
  private readonly totals = new BarChart();
  private flowMode: FlowMode;
  private pingWay: PingWay = "two_way_ms";
  private backlogUnit: "packets" | "bytes" = "packets";
  private queue: string;
  private stateName = "";

  constructor(private readonly report: Report) {
    const { runs } = report;
    this.group = new ChartGroup("time", 0, Math.max(...runs.map((run) => run.duration_s), 1e-3));
    this.flows = new FlowLines(report, this.group.to);
    this.flowMode = this.flows.hasCrowd() ? "quantiles" : this.countFlows() <= MOST_LINES ? "each" : "sum";
    this.queue = busiestQueue(runs);
    const isSpread = spread(runs.map((run) => mainPing(run)?.two_way?.p50 ?? null)) > LOG_BEYOND;
    const log = isSpread ? "first" : "offered";

    for (const direction of ["up", "down"] as Direction[]) {
      this.addFlowCharts(direction, log);
      this.addComparisons(direction, isSpread);
    }
    this.strips = this.repetitions();
    const isRepeated = runs.some((run) => run.repetitions.length > 1);
    const over = isRepeated ? " Each of them is the median of these quantiles of the repetitions." : "";
    const box = `Box: middle half; line: median; whiskers: 5\u00a0% to 95\u00a0%.${over}`;
    this.boxes = {
      ping: new BoxPlot("box-ping", "Ping", `Round trips of answered probes. ${box}`, isSpread),
      sojourn: new BoxPlot("box-sojourn", "Sojourn time", `Packets that left the queue. ${box}`, isSpread),
    };
    this.ping = new LineChart(
      { id: "ping", title: "Ping", caption: "", height: 240, unit: "ms", say: milliseconds, log },
      this.group,
    );
    this.packets = new PacketChart(
      { id: "packets", title: "Sojourn time of every packet", caption: "", height: 340 },
      this.group,
      isSpread,
    );
    this.backlog = new LineChart(
      {
        id: "backlog",
        title: "Backlog",
        caption: "",
        height: 220,
        unit: "packets",
        say: (v) => this.sayBacklog(v),
      },
      this.group,
    );
    this.state = new LineChart(
      { id: "state", title: "State of the AQM", caption: "", height: 220, unit: "", say: plain },
      this.group,
    );
    const cdf = (id: string, title: string) =>
      new CdfChart({ id, title, caption: "", height: 260, isHalf: true }, isSpread);
    this.cdfs = {
      sojourn: cdf("cdf-sojourn", "Sojourn time, distribution"),
      two_way_ms: cdf("cdf-ping", "Ping, distribution"),
      up_ms: cdf("cdf-up", "One-way delay up, distribution"),
      down_ms: cdf("cdf-down", "One-way delay down, distribution"),
      completion: cdf("cdf-completion", "Flow completion time, distribution"),
    };
    this.element = this.layOut();
    this.fillAll();
    this.exposeRange();
  }

  /** Makes the visible range readable from outside, for tests. */
  private exposeRange(): void {
    this.element.dataset["from"] = String(this.group.from);
    this.element.dataset["to"] = String(this.group.to);
  }

  private addFlowCharts(direction: Direction, log: "offered" | "first"): void {
    const flows = this.report.runs.flatMap((run) => run.flows).filter((flow) => flow.direction === direction);
    if (flows.length === 0) return;
    const say = (value: number) => `${plain(value)} segments`;
    const spec = (id: string, title: string, unit: string, height: number) => ({
      id: `${id}-${direction}`,
      title: `${title} ${direction}`,
      caption: "",
      height,
      unit,
    });
    this.goodput.set(
      direction,
      new LineChart({ ...spec("goodput", "Goodput", "Mbit/s", 260), say: megabits }, this.group),
    );
    if (flows.some((flow) => flow.cwnd_segments !== null)) {
      this.cwnd.set(
        direction,
        new LineChart({ ...spec("cwnd", "Congestion window", "segments", 220), say }, this.group),
      );
    }
    if (flows.some((flow) => flow.srtt_ms !== null)) {
      this.srtt.set(
        direction,
        new LineChart({ ...spec("srtt", "Smoothed RTT", "ms", 220), say: milliseconds, log }, this.group),
      );
    }
  }

  private addComparisons(direction: Direction, isSpread: boolean): void {
    const { runs, ends } = this.report;
    const totals = runs.flatMap((run) => run.directions.filter((total) => total.direction === direction));
    if (totals.some((total) => total.jain_over_time !== null)) {
      const spec = {
        id: `fairness-${direction}`,
        title: `Fairness ${direction}`,
        caption: "",
        height: 200,
        unit: "Jain's index",
        say: (value: number) => value.toFixed(3),
      };
      this.fairness.set(direction, new LineChart(spec, this.group));
    }
    if (totals.some((total) => total.tradeoff !== null)) {
      const window = [...new Set(runs.map((run) => `${run.goodput_window_s} s`))].join(", ");
      const queues = runs.flatMap((run) =>
        run.directions.flatMap((total) =>
          total.direction === direction ? (total.tradeoff?.queue ?? []) : [],
        ),
      );
      // With several links, the busiest queue of the direction.
      const queue = queues.find((name) => name !== "" && name !== direction);
      const where = queue === undefined ? "" : `. Delay: of the queue ${queue}`;
      const caption = `${route(direction, ends)}${where}. Dots: windows of ${window}; ellipse: one standard deviation of their Gaussian${isSpread ? ", over the logarithm of the delay" : ""} (RFC 7928). Up and left is better.`;
      const title = `Goodput against delay ${direction}`;
      this.tradeoffs.set(direction, new TradeoffPlot(`tradeoff-${direction}`, title, caption, isSpread));
    }
  }

  /** One chart per figure of the repetitions. */
  private repetitions(): StripPlot[] {
    const { runs } = this.report;
    const all = runs.flatMap((run) => run.repeats);
    const figures = [...new Set(all.map((repeat) => repeat.figure))];
    return figures.map((figure, at) => {
      const unit = all.find((repeat) => repeat.figure === figure)?.unit ?? "";
      const caption = `Dots: repetitions; line: median; band: ${this.bandWords()}.`;
      const chart = new StripPlot(`repeat-${at}`, figure, caption, unit);
      const others = runs.filter((run) => !run.repeats.some((repeat) => repeat.figure === figure));
      chart.setRows(
        runs.flatMap((run) =>
          run.repeats
            .filter((repeat) => repeat.figure === figure)
            .map((repeat) => ({ label: run.name + measuredIn(run, repeat), variant: run.look, ...repeat })),
        ),
        others.map((run) => run.name),
      );
      return chart;
    });
  }

  /** What the band over the repetitions is: of few, it can only be their range. */
  private bandWords(): string {
    const most = Math.max(...this.report.runs.map((run) => run.repetitions.length));
    return most < 6
      ? "from the smallest to the largest"
      : "confidence interval of the median of at least 95\u00a0%";
  }

  private fillComparisons(): void {
    const { runs, ends } = this.report;
    for (const [direction, chart] of this.fairness) {
      const lines = runs.flatMap((run): Line[] => {
        const total = run.directions.find((entry) => entry.direction === direction);
        const series = total?.jain_over_time ?? null;
        return series === null
          ? []
          : [{ label: run.name, variant: run.look, flow: 0, time: series.time_s, value: series.value }];
      });
      chart.setLines(lines);
      const windows = [...new Set(runs.map((run) => `${run.goodput_window_s} s`))].join(", ");
      chart.frame.setCaption(
        `Jain's index of the bulk TCP flows that were active throughout the last ${windows}: 1 if all get the same, 1/n if one of n gets everything; ${route(direction, ends)}`,
      );
    }
    for (const [direction, chart] of this.tradeoffs) {
      const points = runs.flatMap((run) => {
        const tradeoff = run.directions.find((entry) => entry.direction === direction)?.tradeoff ?? null;
        return tradeoff === null ? [] : [{ label: run.name, variant: run.look, tradeoff }];
      });
      chart.setPoints(points);
    }
    this.boxes.ping.setColumns(
      this.eachPing((ping) => ping.two_way_ms).flatMap(({ look, series, ping }) => {
        const ms = ping.box_ms ?? boxOf(delayCdf(ping, series));
        return ms === null ? [] : [{ label: look.label, variant: look.variant, ms }];
      }),
    );
    const curves = runs.flatMap((run): Curve[] =>
      run.completion_ms === null
        ? []
        : [{ label: run.name, variant: run.look, flow: 0, cdf: run.completion_ms }],
    );
    this.cdfs.completion.setCurves(curves);
    this.cdfs.completion.frame.setCaption(
      "From the start of a transfer to its last byte; completed transfers of a fixed size",
    );
  }

  private layOut(): HTMLElement {
    const { runs } = this.report;
    const timeCharts = [
      ...this.goodput.values(),
      this.ping,
      this.packets,
      this.state,
      this.backlog,
      ...this.fairness.values(),
      ...this.cwnd.values(),
      ...this.srtt.values(),
    ];
    const boxes = [this.boxes.ping, this.boxes.sojourn].map((chart) => chart.figure);
    this.addPingChoice();
    this.addBacklogChoice();
    return h(
      "section",
      { id: "charts" },
      this.toolbar(),
      ...(runs.length > 1 ? [h("h2", {}, "Totals"), this.totals.element] : []),
      ...(this.strips.length > 0
        ? [
            h("h2", {}, "Over repetitions"),
            h("p", { class: "note" }, repetitionNote(runs)),
            h("div", { class: "grid" }, ...this.strips.map((chart) => chart.figure)),
          ]
        : []),
      charted(
        "Delay and goodput",
        h(
          "div",
          { class: "grid" },
          ...[...this.tradeoffs.values()].map((chart) => chart.figure),
          // Beside one chart, both boxes stand in one column, so that no place stays empty.
          ...(this.tradeoffs.size === 1 ? [h("div", { class: "stack" }, ...boxes)] : boxes),
        ),
      ),
      charted(
        "Over time",
        ...timeCharts.map((chart) => chart.frame.figure),
        h("p", { class: "note absent" }, NOTHING_OVER_TIME),
      ),
      charted(
        "Distributions",
        h("div", { class: "grid" }, ...Object.values(this.cdfs).map((chart) => chart.frame.figure)),
      ),
    );
  }

  private toolbar(): HTMLElement {
    const { runs } = this.report;
    const variants = runs.map((run) => {
      const { look } = run;
      const button = h(
        "button",
        { type: "button", "aria-pressed": "true", class: "toggle" },
        variantName(run),
      );
      button.addEventListener("click", () => {
        if (!this.hidden.delete(look)) this.hidden.add(look);
        button.setAttribute("aria-pressed", String(!this.hidden.has(look)));
        this.showAll();
      });
      return button;
    });
    const reset = h("button", { type: "button", click: () => this.group.reset(), disabled: true }, "reset");
    this.group.onChange((zoomed) => {
      reset.disabled = !zoomed;
      this.exposeRange();
    });
    const names = h(
      "div",
      { class: "choice variants", role: "group", "aria-label": "Variants" },
      ...variants,
    );
    const toolbar = h(
      "div",
      { class: "toolbar", role: "toolbar", "aria-label": "Controls of the charts" },
      names,
      this.flowChoice(),
      this.queueChoice(),
      h(
        "div",
        { class: "choice", role: "group", "aria-label": "Time axis" },
        h("button", { type: "button", click: () => this.group.zoom(0.5), "aria-label": "zoom in" }, "+"),
        h("button", { type: "button", click: () => this.group.zoom(2), "aria-label": "zoom out" }, "−"),
        h("button", { type: "button", click: () => this.group.pan(-0.25), "aria-label": "earlier" }, "←"),
        h("button", { type: "button", click: () => this.group.pan(0.25), "aria-label": "later" }, "→"),
        reset,
      ),
      h("span", { class: "hint" }, "drag to zoom, double-click to reset"),
    );
    keepClear(toolbar, names);
    return toolbar;
  }

  private flowChoice(): HTMLElement | null {
    const most = Math.max(...this.report.runs.map((run) => run.flows.length));
    if (most < 2) return null;
    const quantiles: { value: FlowMode; text: string } = { value: "quantiles", text: "quantiles of flows" };
    const modes: { value: FlowMode; text: string }[] = [
      ...(this.flows.hasCrowd() ? [quantiles] : []),
      { value: "each", text: this.flows.hasCrowd() ? "fastest and slowest" : "each flow" },
      { value: "sum", text: "sum of flows" },
    ];
    return choice("Flows", modes, this.flowMode, (mode) => {
      this.flowMode = mode;
      this.fillFlows();
    });
  }

  private queueChoice(): HTMLElement | null {
    const queues = new Map<string, Queue>();
    for (const queue of this.report.runs.flatMap((run) => run.queues)) queues.set(queueKey(queue), queue);
    if (queues.size < 2) return null;
    const options = [...queues].map(([value, queue]) => ({
      value,
      text: queueTitle(queue, this.report.ends),
    }));
    return dropdown("queue", options, this.queue, (queue) => {
      this.queue = queue;
      this.fillQueue();
    });
  }

  private addPingChoice(): void {
    const has = (way: PingWay) =>
      this.report.runs.some((run) => run.pings.some((ping) => ping[way] !== null));
    const ways: { value: PingWay; text: string }[] = [
      { value: "two_way_ms", text: "two-way" },
      { value: "up_ms", text: "one-way up" },
      { value: "down_ms", text: "one-way down" },
    ];
    const measured = ways.filter(({ value }) => has(value));
    if (measured.length < 2) return;
    this.ping.frame.controls.prepend(
      choice("Direction of the ping", measured, this.pingWay, (way) => {
        this.pingWay = way;
        this.fillPing();
      }),
    );
  }

  private addBacklogChoice(): void {
    const units: { value: "packets" | "bytes"; text: string }[] = [
      { value: "packets", text: "packets" },
      { value: "bytes", text: "bytes" },
    ];
    this.backlog.frame.controls.append(
      choice("Unit of the backlog", units, this.backlogUnit, (unit) => {
        this.backlogUnit = unit;
        this.fillQueue();
      }),
    );
  }

  /** Lists the variables that the selected queue has in any run. */
  private offerStates(queues: Queue[]): void {
    const names = [...new Set(queues.flatMap((queue) => queue.state.map((state) => state.name)))];
    // A variable that never changes is a straight line, too.
    const varies = (name: string) =>
      queues.some((queue) =>
        queue.state.some((state) => state.name === name && new Set(state.series.value).size > 1),
      );
    const choices = preferred(names);
    if (!names.includes(this.stateName)) this.stateName = choices.find(varies) ?? choices[0] ?? "";
    const options = names.map((name) => ({ value: name, text: name }));
    const list = dropdown("variable", options, this.stateName, (name) => {
      this.stateName = name;
      this.fillQueue();
    });
    this.state.frame.controls.replaceChildren(...(names.length > 1 ? [list] : []));
  }

  private fillAll(): void {
    this.fillFlows();
    this.fillPing();
    this.fillQueue();
    this.fillTotals();
    this.fillComparisons();
  }

  private showAll(): void {
    const isShown = (variant: number) => !this.hidden.has(variant);
    const lineCharts = [
      this.ping,
      this.backlog,
      this.state,
      ...this.goodput.values(),
      ...this.cwnd.values(),
      ...this.srtt.values(),
      ...this.fairness.values(),
    ];
    const stills = [...this.tradeoffs.values(), ...Object.values(this.boxes), ...this.strips];
    for (const chart of [...lineCharts, this.packets, ...Object.values(this.cdfs), this.totals, ...stills])
      chart.show(isShown);
  }

  private fillFlows(): void {
    const { runs, ends } = this.report;
    for (const [direction, chart] of this.goodput) {
      const isSum = this.flowMode === "sum";
      // One of very many flows is so far below the rate of the link that its line would be flat.
      const isBelowLink = this.flows.hasCrowd(direction) && !isSum;
      chart.setLines([
        ...(isBelowLink ? [] : this.flows.link(direction)),
        ...(isSum ? this.flows.sums(direction) : this.flows.lines(direction, "goodput_mbps", this.flowMode)),
      ]);
      const windows = new Set(
        runs.map((run) => `averaged over the last ${run.goodput_window_s} s, every ${run.goodput_step_s} s`),
      );
      const counted = [...new Set(runs.map((run) => run.length_counted))].join("; ");
      const most = Math.max(
        ...runs.map((run) => run.flows.filter((flow) => flow.direction === direction).length),
      );
      const subject =
        most < 2 ? "" : isSum ? "Sum of all flows, " : `${this.flows.words(direction, this.flowMode)}, `;
      const text = `${subject}${[...windows].join("; ")}; counts ${counted}; ${route(direction, ends)}`;
      const above = isBelowLink ? "" : aboveLink(this.flows.aboveLink(direction));
      const sentence = `${text.charAt(0).toUpperCase()}${text.slice(1)}`;
      chart.frame.setCaption(above === "" ? sentence : `${sentence}. ${above}`);
    }
    for (const [direction, chart] of this.cwnd) {
      chart.setLines(this.flows.lines(direction, "cwnd_segments", this.flowMode));
      const words = this.flows.hasCrowd(direction)
        ? this.flows.words(direction, this.flowMode)
        : "Per TCP sender";
      chart.frame.setCaption(`${words}, in segments; ${route(direction, ends)}`);
    }
    for (const [direction, chart] of this.srtt) {
      chart.setLines(this.flows.lines(direction, "srtt_ms", this.flowMode));
      const words = this.flows.hasCrowd(direction)
        ? `${this.flows.words(direction, this.flowMode)}, estimated`
        : "Estimated";
      chart.frame.setCaption(`${words} by the TCP sender; ${route(direction, ends)}`);
    }
  }

  private fillPing(): void {
    const { ends } = this.report;
    const lines: Line[] = this.eachPing((ping) => ping[this.pingWay]).map((line) => ({
      ...line.look,
      time: line.series.time_s,
      value: line.series.value,
      dots: line.series.time_s.length < 400,
    }));
    this.ping.setLines(lines);
    const ways: Record<PingWay, string> = {
      two_way_ms: `Round trip ${ends.left} → ${ends.right} → ${ends.left}`,
      up_ms: `One way, ${route("up", ends)}`,
      down_ms: `One way, ${route("down", ends)}`,
    };
    this.ping.frame.setCaption(
      `${ways[this.pingWay]}, at the time each probe was sent; gaps are unanswered probes`,
    );
    for (const way of ["two_way_ms", "up_ms", "down_ms"] as PingWay[]) {
      const curves: Curve[] = this.eachPing((ping) => ping[way]).map(({ look, series, ping }) => ({
        ...look,
        cdf: delayCdf(ping, series),
      }));
      this.cdfs[way].setCurves(curves);
      const counted = way !== "two_way_ms" && callsOf(this.report.runs).length > 0;
      const what = counted ? "probes and packets of calls that arrived" : "answered probes";
      this.cdfs[way].frame.setCaption(`${ways[way]}; ${what} in the measured time`);
    }
  }

  private eachPing(pick: (ping: Ping) => Series | null) {
    const apart = rounds(this.report.runs);
    return this.report.runs.flatMap((run) => {
      // A call has no round trips.
      const known = run.pings.flatMap((ping, flow) => {
        const series = pick(ping);
        return series === null || series.value.every((value) => value === null)
          ? []
          : [{ ping, flow, series }];
      });
      return known.map(({ ping, flow, series }) => {
        const label = known.length === 1 ? run.name : `${run.name}, ${ping.name}`;
        return { look: { label, variant: run.look, flow: flow * apart }, series, ping };
      });
    });
  }

  private fillQueue(): void {
    const chosen = this.report.runs.flatMap((run) => {
      const queue = run.queues.find((entry) => queueKey(entry) === this.queue);
      return queue === undefined ? [] : [{ label: run.name, variant: run.look, flow: 0, queue }];
    });
    const title = chosen[0] === undefined ? "" : queueTitle(chosen[0].queue, this.report.ends);
    const clouds: Cloud[] = chosen.map(({ label, variant, queue }) => ({
      label,
      variant,
      packets: queue.packets,
    }));
    this.packets.setClouds(clouds);
    this.packets.frame.setCaption(
      `${title}; at the time each packet left the queue. Packets dropped on arrival lie on the axis. ${thinned(clouds)}`,
    );
    const lineOf = (look: Omit<Line, "time" | "value">, series: Series): Line => ({
      ...look,
      time: series.time_s,
      value: series.value,
    });
    const inBytes = this.backlogUnit === "bytes";
    this.backlog.setUnit(this.backlogUnit);
    this.backlog.setLines(
      chosen.map(({ queue, ...look }) => lineOf(look, inBytes ? queue.backlog_bytes : queue.backlog_packets)),
    );
    this.backlog.frame.setCaption(title);
    this.offerStates(chosen.map(({ queue }) => queue));
    const states = chosen.flatMap(({ queue, ...look }) =>
      queue.state.filter((state) => state.name === this.stateName).map((state) => ({ look, state })),
    );
    this.state.setUnit(states[0]?.state.unit ?? "");
    this.state.setLines(states.map(({ look, state }) => lineOf(look, state.series)));
    this.state.frame.setCaption(
      `${this.stateName} of ${title}: the variable of the algorithm while it handled the packets above`,
    );
    this.cdfs.sojourn.setCurves(
      chosen.flatMap(({ queue, ...look }) =>
        queue.sojourn_cdf === null ? [] : [{ ...look, cdf: queue.sojourn_cdf }],
      ),
    );
    this.cdfs.sojourn.frame.setCaption(`${title}; packets that were sent in the measured time`);
    this.boxes.sojourn.setColumns(
      chosen.flatMap(({ label, variant, queue }) => {
        const ms = queue.box_ms ?? (queue.sojourn_cdf === null ? null : boxOf(queue.sojourn_cdf));
        return ms === null ? [] : [{ label, variant, ms }];
      }),
    );
  }

  private fillTotals(): void {
    const { runs, ends } = this.report;
    const bars = (pick: (run: Run) => number | null | undefined, say: (value: number) => string): Bar[] =>
      runs.map((run) => {
        const value = pick(run) ?? null;
        return { label: run.name, variant: run.look, value, text: value === null ? "—" : say(value) };
      });
    const groups: BarGroup[] = [];
    for (const direction of ["up", "down"] as Direction[]) {
      const total = (run: Run) => run.directions.find((entry) => entry.direction === direction)?.goodput_mbps;
      groups.push({ title: `Goodput, ${route(direction, ends)}`, bars: bars(total, megabits) });
    }
    groups.push({ title: "Ping, median", bars: bars((run) => mainPing(run)?.two_way?.p50, milliseconds) });
    groups.push({
      title: "Ping, 99 % within",
      bars: bars((run) => mainPing(run)?.two_way?.p99, milliseconds),
    });
    for (const name of callsOf(runs)) {
      groups.push({ title: `MOS of ${name}`, bars: bars((run) => scoreOf(run, name), plain) });
    }
    // Over several links, the share of the packets that reach the end is a product.
    const share = (run: Run, direction: Direction, of: "loss" | "mark_ratio"): number | null => {
      const known = run.queues
        .filter((queue) => queue.direction === direction)
        .flatMap((queue) => queue[of] ?? []);
      return known.length === 0 ? null : known.reduce((a, b) => a + b - a * b);
    };
    for (const direction of ["up", "down"] as Direction[]) {
      const where = route(direction, ends);
      groups.push({
        title: `Packets dropped, ${where}`,
        bars: bars((run) => share(run, direction, "loss"), percent),
      });
      groups.push({
        title: `Packets CE-marked, ${where}`,
        bars: bars((run) => share(run, direction, "mark_ratio"), percent),
      });
    }
    this.totals.setGroups(groups.filter((group) => group.bars.some((bar) => (bar.value ?? 0) > 0)));
  }

  private sayBacklog(value: number): string {
    return this.backlogUnit === "bytes" ? bytes(value) : `${whole(value)} packets`;
  }

  private countFlows(): number {
    return this.report.runs.reduce((sum, run) => sum + run.flows.length, 0);
  }
}

/** A heading and its charts. The style hides the heading if no chart has anything to show. */
function charted(title: string, ...children: Child[]): HTMLElement {
  return h("section", { class: "charted" }, h("h2", {}, title), ...children);
}

/** Largest / smallest of the positive values. */
function spread(values: (number | null)[]): number {
  const positive = values.filter((value): value is number => value !== null && value > 0);
  return positive.length === 0 ? 1 : Math.max(...positive) / Math.min(...positive);
}

function thinned(clouds: Cloud[]): string {
  return clouds
    .filter((cloud) => cloud.packets.thinned_from !== null)
    .map(
      ({ label, packets }) =>
        `${label}: ${whole(columnsOf(packets).at_ns.length)} of ${whole(packets.thinned_from ?? 0)} packets are drawn, those with the shortest and longest waits in each slice of time.`,
    )
    .join(" ");
}
