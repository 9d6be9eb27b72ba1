/**
 * What a report is made of: the contract between the laboratory and this page.
 *
 * The same structures are `crates/lab/src/report/model.rs`. Both sides read
 * `web/test/fixture.json` in their tests and refuse missing and unknown keys, so that one
 * cannot change without the other. Units are part of the names. `null` means "not measured".
 */
import {
  type Decoder,
  flag,
  int,
  list,
  literal,
  nullable,
  num,
  object,
  oneOf,
  packedColumn,
  text,
  within,
} from "./decode.ts";

/** Version of this contract; a page refuses any other. */
export const SCHEMA = 2;

/** One or several runs (variants), drawn over each other. */
export interface Report {
  schema: 2;
  /** The scenario's name. */
  title: string;
  /** Program and version that wrote the report. */
  generated_by: string;
  /** What the two directions mean: `up` is from left to right. */
  ends: Ends;
  runs: Run[];
}

export interface Ends {
  left: string;
  right: string;
}

/** `up` carries packets from `ends.left` to `ends.right`. */
export type Direction = "up" | "down";

/** A line of the scenario's description, such as "delay" and "10 ms each way". */
export interface Fact {
  label: string;
  value: string;
}

/** One execution of one variant of the scenario. */
export interface Run {
  /** The variant's name, unique within a report. */
  name: string;
  backend: "sim" | "live";
  /** Link, delay, queue, flows, seed, versions, host, kernel ... in reading order. */
  facts: Fact[];
  duration_s: number;
  /** Round trip of an empty path, as configured. */
  base_rtt_ms: number | null;
  /** Why the run ended early; `null` for a complete one. */
  partial: string | null;
  /** Which bytes goodput counts, such as "TCP payload (1448 of 1514 bytes on the link)". */
  length_counted: string;
  /** Each goodput value is an average over this long, ending at its time. */
  goodput_window_s: number;
  /** Distance of two goodput values. */
  goodput_step_s: number;
  accuracy: Accuracy;
  /** What was expected of the run, and what came out; those that were not kept first. */
  expectations: Expectation[];
  /** Totals per direction that carries load. */
  directions: DirectionTotal[];
  flows: Flow[];
  pings: Ping[];
  queues: Queue[];
  /** How long the transfers took that were to carry a number of bytes. */
  completion_ms: Cdf | null;
  /** What the repetitions came to; empty if there was one run. All else is that of the first. */
  repeats: Repeat[];
}

/** A figure over the repetitions of a run. */
export interface Repeat {
  figure: string;
  /** `ms`, `Mbit/s`, `%`, or empty. */
  unit: string;
  /** Of each repetition that measured it. */
  values: number[];
  median: number;
  /** The 95 % confidence interval of the mean. */
  interval: number[] | null;
}

/** A bound of the scenario, and whether the run kept it. */
export interface Expectation {
  /** The figure's name, such as `ping.p50`. */
  metric: string;
  /** What was measured, with its unit. */
  measured: string | null;
  /** The bounds in words. */
  bounds: string;
  passed: boolean;
  /** The chart or section of the page that shows it. */
  chart: string;
}

/** How far the emulation itself was from what was asked of it. */
export interface Accuracy {
  /** Measured rate / configured rate - 1, over the time the link was busy. */
  rate_error: number | null;
  /** How late packets left the delay line, after the instant they were due. */
  release_lateness_us: Quantiles | null;
  /** Packets lost to anything but a queue, by reason. */
  lost_elsewhere: Count[];
  /** Anything else the reader should know before trusting the numbers. */
  notes: string[];
}

export interface Quantiles {
  /** Number of samples. */
  count: number;
  p50: number;
  p95: number;
  p99: number;
  max: number;
}

export interface Count {
  reason: string;
  packets: number;
}

export interface DirectionTotal {
  direction: Direction;
  /** All flows of this direction together, over the run. */
  goodput_mbps: number;
  /** Jain's index over the flows' goodputs; `null` with fewer than two flows. */
  jain: number | null;
  /** The index over the bulk flows that were active in each window. */
  jain_over_time: Series | null;
  tradeoff: Tradeoff | null;
}

/** What goodput a queue gave for what delay: a point per window, and their Gaussian. */
export interface Tradeoff {
  /** Mean sojourn time of the packets that left in each window. */
  delay_ms: number[];
  /** Goodput of all flows in the same window. */
  goodput_mbps: number[];
  mean_delay_ms: number;
  mean_goodput_mbps: number;
  delay_deviation_ms: number;
  goodput_deviation_mbps: number;
  /** -1 to 1. */
  correlation: number;
}

/** Values over time. Steps between values are at `time_s`, which increases. */
export interface Series {
  time_s: number[];
  /** `null` is a gap. */
  value: (number | null)[];
  /** Number of values before thinning for the page (extremes kept); `null`: all are here. */
  thinned_from: number | null;
}

export interface Flow {
  name: string;
  /** `tcp`, `udp`, `web` ... */
  kind: string;
  /** Congestion control, for TCP. */
  cc: string | null;
  direction: Direction;
  goodput_mbps: Series;
  cwnd_segments: Series | null;
  srtt_ms: Series | null;
  /** Segments retransmitted so far. */
  retransmits: Series | null;
}

/** Probes from one end to the other and back. Lost ones are gaps in the series. */
export interface Ping {
  name: string;
  sent: number;
  lost: number;
  /** At the time each probe was sent. */
  two_way_ms: Series;
  /** From left to right; `null` where the ends share no clock. */
  up_ms: Series | null;
  down_ms: Series | null;
  two_way: Quantiles | null;
  up: Quantiles | null;
  down: Quantiles | null;
}

/** One queue in front of one link of the path. */
export interface Queue {
  name: string;
  direction: Direction;
  /** The link's rate: a value holds until the next. */
  link_mbps: Series;
  /** Bytes on the link / bytes that its rate allows, over the run, 0 to 1. */
  utilisation: number | null;
  backlog_packets: Series;
  backlog_bytes: Series;
  /** The AQM's own variables over time. */
  state: State[];
  /** Packets that left through the link. */
  sent: number;
  marks: Count[];
  drops: Count[];
  /** Sojourn time of the packets that left through the link. */
  sojourn_ms: Quantiles | null;
  sojourn_cdf: Cdf | null;
  packets: Packets;
}

export interface State {
  name: string;
  /** Empty for a bare number. */
  unit: string;
  series: Series;
}

/** Points of an empirical distribution: a share `fraction` of `count` samples is at most `value`. */
export interface Cdf {
  count: number;
  value: number[];
  fraction: number[];
}

/**
 * Per-packet columns, ordered by `at_ns`. On the wire each is a packed column (see `packed.ts`);
 * `reason` indexes `reasons`, `flow` indexes `flows`.
 */
export interface Packets {
  flows: string[];
  /** Why a packet was marked or dropped. */
  reasons: string[];
  /** Number of packets before thinning for the page; `null`: all are here. */
  thinned_from: number | null;
  /** When the packet left the queue: was sent, or dropped. */
  at_ns: Float64Array;
  /** How long it had waited by then. */
  sojourn_ns: Float64Array;
  size_bytes: Float64Array;
  flow: Float64Array;
  /** See `VERDICT`. */
  verdict: Float64Array;
  /** Meaningless for a packet that was sent unmarked. */
  reason: Float64Array;
}

/** Codes of the column `verdict`. */
export const VERDICT = { sent: 0, marked: 1, dropped: 2 } as const;

const direction: Decoder<Direction> = oneOf("up", "down");
const count: Decoder<Count> = object({ reason: text, packets: int });
const quantiles: Decoder<Quantiles> = object({ count: int, p50: num, p95: num, p99: num, max: num });
const series: Decoder<Series> = object({
  time_s: list(num),
  value: list(nullable(num)),
  thinned_from: nullable(int),
});
const cdf: Decoder<Cdf> = object({ count: int, value: list(num), fraction: list(num) });
const tradeoff: Decoder<Tradeoff> = object({
  delay_ms: list(num),
  goodput_mbps: list(num),
  mean_delay_ms: num,
  mean_goodput_mbps: num,
  delay_deviation_ms: num,
  goodput_deviation_mbps: num,
  correlation: num,
});
const flow: Decoder<Flow> = object({
  name: text,
  kind: text,
  cc: nullable(text),
  direction,
  goodput_mbps: series,
  cwnd_segments: nullable(series),
  srtt_ms: nullable(series),
  retransmits: nullable(series),
});
const ping: Decoder<Ping> = object({
  name: text,
  sent: int,
  lost: int,
  two_way_ms: series,
  up_ms: nullable(series),
  down_ms: nullable(series),
  two_way: nullable(quantiles),
  up: nullable(quantiles),
  down: nullable(quantiles),
});
const packets: Decoder<Packets> = object({
  flows: list(text),
  reasons: list(text),
  thinned_from: nullable(int),
  at_ns: packedColumn,
  sojourn_ns: packedColumn,
  size_bytes: packedColumn,
  flow: packedColumn,
  verdict: packedColumn,
  reason: packedColumn,
});
const queue: Decoder<Queue> = object({
  name: text,
  direction,
  link_mbps: series,
  utilisation: nullable(num),
  backlog_packets: series,
  backlog_bytes: series,
  state: list(object<State>({ name: text, unit: text, series })),
  sent: int,
  marks: list(count),
  drops: list(count),
  sojourn_ms: nullable(quantiles),
  sojourn_cdf: nullable(cdf),
  packets,
});
const run: Decoder<Run> = object({
  name: text,
  backend: oneOf("sim", "live"),
  facts: list(object<Fact>({ label: text, value: text })),
  duration_s: num,
  base_rtt_ms: nullable(num),
  partial: nullable(text),
  length_counted: text,
  goodput_window_s: num,
  goodput_step_s: num,
  accuracy: object<Accuracy>({
    rate_error: nullable(num),
    release_lateness_us: nullable(quantiles),
    lost_elsewhere: list(count),
    notes: list(text),
  }),
  expectations: list(
    object<Expectation>({ metric: text, measured: nullable(text), bounds: text, passed: flag, chart: text }),
  ),
  directions: list(
    object<DirectionTotal>({
      direction,
      goodput_mbps: num,
      jain: nullable(num),
      jain_over_time: nullable(series),
      tradeoff: nullable(tradeoff),
    }),
  ),
  flows: list(flow),
  pings: list(ping),
  queues: list(queue),
  completion_ms: nullable(cdf),
  repeats: list(
    object<Repeat>({
      figure: text,
      unit: text,
      values: list(num),
      median: num,
      interval: nullable(list(num)),
    }),
  ),
});
const report: Decoder<Report> = object({
  schema: literal(SCHEMA),
  title: text,
  generated_by: text,
  ends: object<Ends>({ left: text, right: text }),
  runs: list(run),
});

/** Checks parsed JSON against the contract; throws with the path of the first thing that does not fit. */
export function decodeReport(json: unknown): Report {
  return within(() => "report", report, json);
}
