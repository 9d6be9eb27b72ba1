/**
 * The page of a running router, and of runs under way: the charts of the report, fed by server-sent
 * events.
 */
import { ChartGroup } from "./charts/group.ts";
import { type Line, LineChart } from "./charts/lines.ts";
import { choice, dropdown, h } from "./dom.ts";
import { Control } from "./live/control.ts";
import { Feed } from "./live/feed.ts";
import { History } from "./live/history.ts";
import { Hold } from "./live/hold.ts";
import { fetchRuns, isOver, type LiveRun, nowRunning, Runs, type RunsState } from "./live/runs.ts";
import {
  coloursOf,
  flowLabel,
  hosts,
  isSetBack,
  isStartedAgain,
  LEVELS,
  type LiveObject,
  label,
  type Past,
  portName,
  reasons,
  type Sample,
  type Series,
  timesOf,
  total,
  withGaps,
} from "./live/sample.ts";
import { type Content, Table } from "./live/table.ts";
import { megabits, milliseconds, whole } from "./maths/format.ts";
import { preferred, type StateUnit, sayStates, stateUnit } from "./maths/states.ts";
import { watchTheme } from "./theme.ts";

/** Pipes and queues that are drawn at the same time, unless one is chosen. */
const MOST_DRAWN = 5;
/** How often the coarser resolutions are fetched again. */
const REFRESH_MS = 10_000;
/** How often the progress of runs is fetched. */
const FOLLOW_MS = 1_000;
const BUSIEST = "the busiest";

type Level = (typeof LEVELS)[number];

class Live {
  private readonly history = new History();
  private sample: Sample | null = null;
  private chosen = BUSIEST;
  /** The colours of what is drawn, by name. */
  private colours = new Map<string, number>();
  private level: Level = LEVELS[0];
  private charts: { chart: LineChart; lines: (series: Series, hue: number, alone: boolean) => Line[] }[] = [];
  private stateChart: LineChart | null = null;
  /** The variable of the algorithm that is drawn, and those that are offered. */
  private stateName = "";
  private stateNames = "";
  private stateUnit: StateUnit = stateUnit("count");
  private readonly heading = h("div", {});
  private readonly ports = new Table();
  private readonly header = h("header", { class: "live-head" }, this.heading, this.ports.element);
  private readonly picker = h("div", { class: "live-picker" });
  private readonly grid = h("div", { class: "live-charts" });
  private readonly hold = new Hold();
  private readonly held = h(
    "span",
    { class: "note live-held", hidden: true },
    "charts paused for the pointer",
  );
  private readonly idle = h("p", { class: "note", hidden: true }, "No pipe or queue has had a packet yet.");
  private readonly tables: { table: Table; content: (sample: Sample) => Content | null }[];
  private readonly control = new Control();
  private changed = 0;
  private names = "";
  private isOver = false;
  private readonly refreshing: ReturnType<typeof setInterval>;

  /** Draws into `place`. `page` says what is drawn; `run` is the live run, if it is not a router. */
  constructor(
    private readonly page: HTMLElement,
    place: HTMLElement,
    private readonly run: LiveRun | null,
  ) {
    const windows = LEVELS.map(({ text }) => ({ value: text as string, text }));
    const windowChoice = choice("Time shown", windows, this.level.text, (text) => {
      this.level = LEVELS.find((level) => level.text === text) ?? LEVELS[0];
      this.makeCharts();
      this.catchUp();
    });
    const toolbar = h("div", { class: "live-toolbar" }, this.picker, windowChoice, this.held);
    this.makeCharts();
    this.holdForPointers();
    this.tables = TABLES.map((content) => ({ table: new Table(), content }));
    place.replaceChildren(
      this.header,
      toolbar,
      this.grid,
      this.control.element,
      this.idle,
      ...this.tables.map(({ table }) => table.element),
    );
    this.refreshing = setInterval(() => {
      if (this.level !== LEVELS[0] && !this.isOver && !document.hidden) this.catchUp();
    }, REFRESH_MS);
  }

  /** Keeps the last figures, of a run that is over. */
  end(): void {
    this.isOver = true;
    clearInterval(this.refreshing);
    this.hold.release();
    this.draw();
  }

  async refresh(): Promise<void> {
    const isNew = await this.history.fetch(async (signal) => {
      const answer = await fetch("/history", { signal });
      if (!answer.ok) throw new Error(await answer.text());
      return (await answer.json()) as Past;
    });
    if (isNew) this.draw();
  }

  /** Fetches what came while no sample did. The page stays as it is if there is no answer. */
  catchUp(): void {
    this.refresh().catch(() => undefined);
  }

  /** Fetches what a lost connection may have hidden: samples, and a router that was started again. */
  reconnect(): void {
    this.changed = 0;
    this.history.forget();
    this.catchUp();
  }

  take(sample: Sample): void {
    const before = this.sample;
    this.sample = sample;
    this.history.add(sample);
    if (before !== null && isSetBack(before, sample)) this.catchUp();
    this.draw();
    if (before !== null && isStartedAgain(before, sample)) this.changed = 0;
    // Others may have changed what the form shows.
    const newest = sample.changes.at(-1)?.unix_ms ?? 1;
    if (newest !== this.changed) {
      this.changed = newest;
      void this.control.load();
    }
    this.page.dataset["state"] = "drawn";
    this.page.dataset["number"] = String(sample.number);
  }

  private makeCharts(): void {
    this.hold.release();
    // A run may be shorter than the finest resolution shows.
    const span = Math.min(this.level.span, this.run?.length_s ?? Number.POSITIVE_INFINITY);
    const group = new ChartGroup("live", -span / this.level.seconds, 0);
    const timeUnit = this.level.unit;
    const marks = () => timesOf(this.history.past.changes).map((at) => this.ago(at));
    const chart = (
      id: string,
      title: string,
      caption: string,
      unit: string,
      say: (value: number) => string,
      lines: (series: Series, hue: number, alone: boolean) => Line[],
    ) => ({
      chart: new LineChart({ id, title, caption, height: 200, unit, say, marks, timeUnit }, group),
      lines,
    });
    const line = (
      series: Series,
      hue: number,
      values: (number | null)[],
      suffix: string,
      flow: number,
      scale = 1,
    ): Line => {
      // With very many pipes, samples are further apart than the finest step.
      const step = Math.max(series.step_ms, (this.sample?.interval_ns ?? 0) / 1e6);
      const { time, value } = withGaps(series.unix_ms, values, step);
      return {
        label: suffix === "" ? series.name : `${series.name}, ${suffix}`,
        variant: hue,
        flow,
        time: time.map((at) => this.ago(at)),
        value: value.map((one) => (one === null ? null : one * scale)),
      };
    };
    this.charts = [
      chart("rate", "Rate", "at which packets left the queue", "Mbit/s", megabits, (series, hue) => [
        line(series, hue, series.rate_bps, "", 0, 1e-6),
      ]),
      chart(
        "sojourn",
        "Sojourn time",
        "from enqueue to dequeue: median, and 99th percentile dashed; a gap where no packet left",
        "ms",
        milliseconds,
        (series, hue) => [
          line(series, hue, series.p50_ms, "median", 0),
          line(series, hue, series.p99_ms, "99 %", 1),
        ],
      ),
      chart("backlog", "Backlog", "packets that wait", "packets", whole, (series, hue) => [
        line(series, hue, series.backlog_packets, "", 0),
      ]),
      chart(
        "drops",
        "Drops and marks",
        "packets in each interval: dropped (by reason if one row is chosen), and CE-marked dashed",
        "packets",
        whole,
        (series, hue, alone) => {
          const reasons = alone ? Object.entries(series.dropped_for) : [];
          const drops = reasons.map(([reason, counts], number) => line(series, number, counts, reason, 0));
          return [
            ...(drops.length > 0 ? drops : [line(series, hue, series.dropped, "dropped", 0)]),
            line(series, hue, series.marked, "marked", 1),
          ];
        },
      ),
      chart(
        "state",
        "State of the AQM",
        "",
        "",
        (value) => this.stateUnit.say(value),
        (series, hue) => {
          const column = series.state[this.stateName];
          return column === undefined ? [] : [line(series, hue, column.values, "", 0, this.stateUnit.scale)];
        },
      ),
    ];
    this.stateChart = this.charts.at(-1)?.chart ?? null;
    this.stateNames = "";
    this.grid.replaceChildren(...this.charts.map(({ chart }) => chart.frame.figure));
  }

  private holdForPointers(): void {
    const touch = (event: PointerEvent) => {
      const isInPlot = (event.target as Element).closest(".u-over") !== null;
      if (isInPlot) this.hold.touch(event.pointerType, performance.now());
      else this.hold.leave(event.pointerType);
    };
    this.grid.addEventListener("pointermove", touch);
    this.grid.addEventListener("pointerdown", touch);
    this.grid.addEventListener("pointerleave", (event) => this.hold.leave(event.pointerType));
  }

  /** Time before the newest sample in the unit of the axis, as a negative number. */
  private ago(unixMs: number): number {
    return (unixMs - (this.sample?.unix_ms ?? Date.now())) / 1000 / this.level.seconds;
  }

  /** The names of the pipes and queues that are drawn. */
  private drawn(): string[] {
    if (this.chosen !== BUSIEST) return [this.chosen];
    const objects = [...(this.sample?.objects ?? [])];
    objects.sort((a, b) => b.rate_bps - a.rate_bps || b.backlog_packets - a.backlog_packets);
    return objects.slice(0, MOST_DRAWN).map(label).sort();
  }

  private draw(): void {
    const sample = this.sample;
    if (sample === null) return;
    this.drawHeader(sample);
    this.drawPicker(sample);
    // A tooltip stays while somebody reads it.
    this.held.hidden = !this.hold.isHeld(performance.now());
    if (this.held.hidden) {
      const names = this.drawn();
      this.colours = coloursOf(names, this.colours);
      const all = this.history.past.series.filter(({ step_ms }) => step_ms === this.level.step);
      this.offerStates(all.filter(({ name }) => names.includes(name)));
      for (const { chart, lines } of this.charts) {
        const drawn = names.flatMap((name) => {
          const series = all.find((one) => one.name === name);
          return series === undefined ? [] : lines(series, this.colours.get(name) ?? 0, names.length === 1);
        });
        chart.setLines(drawn);
      }
    }
    this.idle.hidden = sample.objects.length > 0;
    for (const { table, content } of this.tables) table.show(content(sample));
  }

  /** Lists the variables of the algorithms that are drawn. */
  private offerStates(drawn: Series[]): void {
    const names = [...new Set(drawn.flatMap(({ state }) => Object.keys(state)))].sort();
    const columns = (name: string) => drawn.flatMap(({ state }) => state[name] ?? []);
    if (!names.includes(this.stateName)) {
      const varies = (name: string) =>
        columns(name).some(({ values }) => new Set(values.filter((value) => value !== null)).size > 1);
      const choices = preferred(names);
      this.stateName = choices.find(varies) ?? choices[0] ?? "";
    }
    this.stateUnit = stateUnit(columns(this.stateName)[0]?.kind ?? "count");
    this.stateChart?.setUnit(this.stateUnit.unit);
    const key = [this.stateName, ...names].join("\n");
    if (key === this.stateNames) return;
    this.stateNames = key;
    const options = names.map((name) => ({ value: name, text: name }));
    const list = dropdown("variable", options, this.stateName, (name) => {
      this.stateName = name;
      this.hold.release();
      this.draw();
    });
    this.stateChart?.frame.controls.replaceChildren(...(names.length > 1 ? [list] : []));
    this.stateChart?.frame.setCaption(
      `${this.stateName}: a variable of the algorithm; of several queues and of an interval, the largest value`,
    );
  }

  private drawHeader(sample: Sample): void {
    const up = Math.floor(sample.status.uptime_ns / 1e9);
    const two = (value: number) => String(value).padStart(2, "0");
    const upText = `${Math.floor(up / 3600)}:${two(Math.floor(up / 60) % 60)}:${two(up % 60)}`;
    const late = milliseconds(sample.lateness.p99_ns / 1e6);
    const dropped = reasons(sample.status.dropped);
    const time = new Date(sample.unix_ms).toLocaleTimeString();
    const lateText = `packets late at most ${late} (99 %)`;
    const [title, note] =
      this.run === null
        ? [
            h("h1", {}, "Sluice router"),
            `up ${upText} · ${time} · ${lateText} · ${whole(sample.status.commands)} commands`,
          ]
        : [
            h("h2", {}, this.isOver ? `${this.run.name}: over` : nowRunning(this.run, up)),
            `live · ${time} · ${lateText}`,
          ];
    this.heading.replaceChildren(
      title,
      h("p", { class: "note" }, note),
      ...(dropped === "" ? [] : [h("p", { class: "note" }, `dropped since the start: ${dropped}`)]),
    );
    this.ports.show({
      title: "Ports",
      heads: ["port", "in", "out", "in, packets/s", "out, packets/s", "lost"],
      rows: sample.ports.map((port, number) => [
        portName(port.name, sample.status.ports?.[number]?.interface),
        megabits(port.received_bps / 1e6),
        megabits(port.sent_bps / 1e6),
        whole(port.received_per_s),
        whole(port.sent_per_s),
        whole(port.lost),
      ]),
    });
  }

  private drawPicker(sample: Sample): void {
    const names = [BUSIEST, ...sample.objects.map(label)];
    // A pipe of a mask may be idle for a while.
    if (!names.includes(this.chosen)) names.push(this.chosen);
    if (names.join("\n") === this.names) return;
    const used = this.picker.contains(document.activeElement) ? this.picker.querySelector("select") : null;
    if (used !== null) {
      // A list that may be open stays, and with it the names that are gone.
      const offered = new Set([...used.options].map(({ value }) => value));
      const added = names.filter((name) => !offered.has(name));
      used.append(...added.map((name) => h("option", { value: name }, name)));
      return;
    }
    this.names = names.join("\n");
    const options = names.map((name) => ({ value: name, text: name }));
    const select = dropdown("Show", options, this.chosen, (name) => {
      this.chosen = name;
      this.hold.release();
      this.draw();
    });
    this.picker.replaceChildren(select);
  }
}

const sojourn = (traffic: Pick<LiveObject, "sojourn">): string[] =>
  traffic.sojourn === null
    ? ["–", "–", "–"]
    : [traffic.sojourn.p50_ns, traffic.sojourn.p95_ns, traffic.sojourn.p99_ns].map((ns) =>
        milliseconds(ns / 1e6),
      );

function objects(sample: Sample): Content | null {
  if (sample.objects.length === 0) return null;
  const rows = sample.objects.map((object) => [
    label(object),
    megabits(object.rate_bps / 1e6),
    object.link_bps === 0 ? "no limit" : megabits(object.link_bps / 1e6),
    whole(object.backlog_packets),
    ...sojourn(object),
    reasons(object.dropped) || "0",
    whole(object.marked),
    sayStates(object.state, object.state_kinds),
    object.words,
  ]);
  const more = sample.unlisted > 0 ? `, and ${whole(sample.unlisted)} more` : "";
  const heads = [
    "",
    "rate",
    "link",
    "queued",
    "p50",
    "p95",
    "p99",
    "dropped",
    "marked",
    "AQM state",
    "queue",
  ];
  return { title: `Pipes and queues${more}`, heads, rows };
}

function roundTrips(sample: Sample): Content | null {
  if (!sample.rtt) return null;
  const { all, objects, hosts } = sample.rtt;
  const rows = [...all, ...objects, ...hosts.slice(0, 20)].map(({ name, source, samples, rtt }) => [
    name,
    source,
    whole(samples),
    ...sojourn({ sojourn: rtt }),
  ]);
  const heads = ["", "from", "samples", "p50", "p95", "p99"];
  return { title: "Round-trip times, last minute", heads, rows };
}

function flows(sample: Sample): Content | null {
  if (sample.flows.length === 0) return null;
  const rows = sample.flows
    .slice(0, 20)
    .map((flow) => [
      flowLabel(flow),
      flow.object,
      megabits(flow.rate_bps / 1e6),
      whole(flow.backlog_packets),
      ...sojourn(flow),
      whole(total(flow.dropped)),
      whole(flow.marked),
    ]);
  const heads = ["", "in", "rate", "queued", "p50", "p95", "p99", "dropped", "marked"];
  return { title: "Busiest flows", heads, rows };
}

function busiestHosts(sample: Sample): Content | null {
  if (sample.flows.length === 0) return null;
  const rows = hosts(sample.flows)
    .slice(0, 20)
    .map((host) => [
      host.name,
      whole(host.flows),
      megabits(host.sent_bps / 1e6),
      megabits(host.received_bps / 1e6),
      whole(host.backlog_packets),
      whole(host.dropped),
    ]);
  const heads = ["", "flows", "sent", "received", "queued", "dropped"];
  return { title: `Busiest hosts, of the ${sample.flows.length} busiest flows`, heads, rows };
}

function changes(sample: Sample): Content | null {
  if (sample.changes.length === 0) return null;
  const rows = [...sample.changes]
    .reverse()
    .map((change) => [
      new Date(change.unix_ms).toLocaleTimeString(),
      change.by,
      change.text,
      change.refused === undefined ? "done" : `refused: ${change.refused}`,
    ]);
  return { title: "Changes", heads: ["", "by", "command", ""], rows };
}

/** The tables below the charts, in their order. */
const TABLES = [objects, roundTrips, flows, busiestHosts, changes];

/** Exchanges the token behind the address for a cookie, and removes it from the address. */
async function login(): Promise<void> {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (token === null) return;
  history.replaceState(null, "", location.pathname);
  const answer = await fetch("/login", { method: "POST", body: token });
  if (!answer.ok) throw new Error("the token is wrong");
}

async function followRouter(page: HTMLElement): Promise<void> {
  const live = new Live(page, page, null);
  await live.refresh();
  const alarm = h("p", { class: "banner", role: "alert", hidden: true }, "The router does not answer.");
  page.prepend(alarm);
  const again = async (): Promise<void> => {
    await new Promise((done) => setTimeout(done, FOLLOW_MS));
    const answer = await fetch("/state").catch(() => null);
    if (answer?.status === 401) {
      alarm.textContent = "The token has changed: open the page again, with #token=TOKEN behind its address.";
    } else {
      feed.open();
    }
  };
  const feed = new Feed({
    take: (sample) => {
      if (!alarm.hidden) live.reconnect();
      alarm.hidden = true;
      live.take(sample);
    },
    lose: (isRefused) => {
      alarm.hidden = false;
      if (isRefused) void again();
    },
    back: () => live.reconnect(),
  });
}

/** Shows the progress of runs, and the live run that goes on. */
class Suite {
  private readonly runs = new Runs();
  private readonly place = h("div", {});
  private shown: { run: LiveRun; live: Live; feed: Feed } | null = null;

  constructor(private readonly page: HTMLElement) {
    page.replaceChildren(this.runs.element, this.place);
  }

  /** Follows the runs until they are over. Without an answer, it asks again unless no run was left. */
  async follow(first: RunsState): Promise<void> {
    let last = first;
    let answer: RunsState | null = first;
    while (answer !== null || !isOver(last)) {
      if (answer === null) {
        this.runs.say("No answer; the runs may have ended.");
      } else {
        last = answer;
        this.runs.show(answer);
        this.page.dataset["runs"] = String(answer.done);
        this.turnTo(answer.live);
      }
      if (last.is_over) break;
      await new Promise((done) => setTimeout(done, FOLLOW_MS));
      answer = await fetchRuns().catch((error: unknown) => {
        if (!(error instanceof TypeError)) throw error;
        return null;
      });
    }
    this.turnTo(null);
    this.runs.show(last, true);
  }

  private turnTo(run: LiveRun | null): void {
    if (this.shown !== null && this.shown.run.number !== run?.number) {
      this.shown.feed.close();
      this.shown.live.end();
      this.shown = null;
    }
    if (run === null) return;
    if (this.shown === null) {
      const live = new Live(this.page, this.place, run);
      this.shown = { run, live, feed: this.listen(live) };
    } else if (this.shown.feed.isRefused) {
      this.shown.feed.open();
    }
  }

  private listen(live: Live): Feed {
    let isLost = false;
    // What came before.
    live.catchUp();
    return new Feed({
      take: (sample) => {
        if (isLost) live.reconnect();
        isLost = false;
        live.take(sample);
      },
      lose: () => {
        isLost = true;
      },
      back: () => live.reconnect(),
    });
  }
}

async function run(page: HTMLElement): Promise<void> {
  await login();
  watchTheme();
  const runs = await fetchRuns();
  if (runs === null) await followRouter(page);
  else await new Suite(page).follow(runs);
}

const page = document.getElementById("page");
if (page !== null) {
  run(page).catch((error: unknown) => {
    const why = error instanceof Error ? error.message : String(error);
    page.replaceChildren(h("p", { class: "banner", role: "alert" }, `This page cannot be shown: ${why}`));
    page.dataset["state"] = "failed";
  });
}
