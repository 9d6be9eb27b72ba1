/** The lines of the flows of a report: of each, of their sum, or quantiles over many. */
import type { Line } from "../charts/lines.ts";
import { staircase, sumSeries } from "../maths/series.ts";
import type { Crowd, Direction, Report, Run } from "../model.ts";
import { rounds } from "./words.ts";

/** `quantiles` is offered only if a direction has a crowd. */
export type FlowMode = "each" | "quantiles" | "sum";

export class FlowLines {
  constructor(
    private readonly report: Report,
    /** The end of the time axis in seconds. */
    private readonly end: number,
  ) {}

  /** Whether there are too many flows, of the direction or any, to draw each. */
  hasCrowd(direction?: Direction): boolean {
    const isOfIt = (crowd: Crowd) => direction === undefined || crowd.direction === direction;
    return this.report.runs.some((run) => run.crowds.some(isOfIt));
  }

  /** What the lines of single flows, or those that stand for many, show. */
  words(direction: Direction, mode: FlowMode): string {
    if (!this.hasCrowd(direction)) return "Per flow";
    return mode === "each"
      ? "The ten fastest and the ten slowest flows"
      : "Quantiles over all flows at each time";
  }

  /** The lines of the flows of a direction; of a crowd, quantiles unless single flows are chosen. */
  lines(direction: Direction, column: "goodput_mbps" | "cwnd_segments" | "srtt_ms", mode: FlowMode): Line[] {
    const isAlone = this.report.runs.length === 1;
    const apart = rounds(this.report.runs);
    return this.report.runs.flatMap((run) => {
      const crowd = run.crowds.find((entry) => entry.direction === direction);
      if (crowd !== undefined && mode !== "each") {
        return crowd[column].map(({ name, series }, place): Line => {
          const look = isAlone ? { hue: place, flow: 0 } : { flow: place * apart };
          const label = isAlone ? name : `${run.name}, ${name}`;
          return { label, variant: run.look, ...look, time: series.time_s, value: series.value };
        });
      }
      const flows = run.flows.filter((flow) => flow.direction === direction);
      return flows.flatMap((flow, place): Line[] => {
        const series = flow[column];
        if (series === null) return [];
        const label = flows.length === 1 ? run.name : isAlone ? flow.name : `${run.name}, ${flow.name}`;
        // A single run compares its flows, so the flows have the colours.
        const look = isAlone ? { hue: place, flow: Math.floor(place / 7) } : { flow: place * apart };
        return [{ label, variant: run.look, ...look, time: series.time_s, value: series.value }];
      });
    });
  }

  /** The sum of the goodputs of a direction. */
  sums(direction: Direction): Line[] {
    return this.report.runs.map((run) => {
      const parts = run.flows.filter((flow) => flow.direction === direction).map((flow) => flow.goodput_mbps);
      const crowd = run.crowds.find((entry) => entry.direction === direction);
      // Curves that were thinned have values at different times.
      const whole = run.sums.find((entry) => entry.direction === direction);
      const sum = crowd?.sum_mbps ?? whole?.mbps ?? sumSeries(parts, run.goodput_step_s);
      return { label: run.name, variant: run.look, flow: 0, time: sum.time_s, value: sum.value };
    });
  }

  /** The rate of the link, if it is the same in all runs. */
  link(direction: Direction): Line[] {
    const links = this.report.runs.map((run) => run.queues.filter((queue) => queue.direction === direction));
    if (links.some((queues) => queues.length !== 1)) return [];
    const written = new Set(links.map((queues) => JSON.stringify(queues[0]?.link_mbps)));
    const link = links[0]?.[0]?.link_mbps;
    if (written.size !== 1 || link === undefined || link.time_s.length === 0) return [];
    return [{ label: "link rate", variant: null, flow: 0, ...staircase(link, this.end) }];
  }

  /** The runs whose goodput is above the rate of the link, which is the same in all runs. */
  aboveLink(direction: Direction): Run[] {
    const rates = this.link(direction).flatMap((line) => line.value);
    const most = Math.max(...rates.map((rate) => rate ?? 0));
    const exceeds = (line: Line) => line.value.some((value) => (value ?? 0) > most * 1.005);
    const sums = this.sums(direction);
    return this.report.runs.filter((_, at) => {
      const line = sums[at];
      return most > 0 && line !== undefined && exceeds(line);
    });
  }
}
