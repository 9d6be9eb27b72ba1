// Generated from the Rust types of the pages (`report::model` and `index::model`): do not edit.
// `UPDATE_EXPECT=1 cargo test -p sluice-report typescript` updates it.
//
// Units are part of the names; `null` means "not measured".

/** Version of these types. */
export const SCHEMA = 11;

/** Codes of the column `verdict`. */
export const VERDICT = { sent: 0, marked: 1, dropped: 2 } as const;

/** Colours of the variants, on white. */
export const PALETTE = ["#0072b2", "#d55e00", "#007a5a", "#b2508f", "#b07a00", "#3a9bd9", "#555555"];

/** The direction of packets on the path: up is from the left end to the right one. */
export type Direction = "up" | "down";

/** Delays get a logarithmic axis if the medians of the variants differ by more than this factor. */
export const LOG_BEYOND = 8;

/** One or several runs (variants), drawn over each other. */
export type Report = {
  /** Version of the types, `SCHEMA`. */
  schema: number;
  /** The scenario's name. */
  title: string;
  /** The program that wrote the report, with its version. */
  generated_by: string;
  /** The hosts at the two ends of the path. */
  ends: Ends;
  /** The runs, in the order in which they are listed and coloured. */
  runs: Array<Run>;
  /** The figures over the axes of the matrix; empty if the runs are no sweep. */
  sweeps: Array<SweepPicture>;
};

/** A figure over the axes of a matrix. */
export type SweepPicture = {
  /** What it shows. */
  caption: string;
  /** The picture, an SVG document. */
  svg: string;
};

/** The hosts at the two ends of the path. */
export type Ends = {
  /** The source of packets that go up. */
  left: string;
  /** The destination of packets that go up. */
  right: string;
};

/** The backend of a run. */
export type Backend = "sim" | "live";

/** One line that describes the scenario, such as "delay: 10 ms each way". */
export type Fact = {
  /** The subject of the line. */
  label: string;
  /** The description. */
  value: string;
};

/** One execution of one variant of the scenario. */
export type Run = {
  /** The variant's name, unique within a report. */
  name: string;
  /** The backend. */
  backend: Backend;
  /**
   * Link, delay, queue, flows, seed, versions, host, kernel ... in reading order. The page shows
   * facts that all runs share once, and the others side by side.
   */
  facts: Array<Fact>;
  /** Duration. */
  duration_s: number;
  /** Round-trip time of the empty path, as configured. */
  base_rtt_ms: number | null;
  /** The reason why the run ended early; `null` for a complete one. */
  partial: string | null;
  /** The algorithms from files that an error stopped, in words: the figures are not theirs. */
  stopped: Array<string>;
  /** The bytes that goodput counts, such as "TCP payload (1448 of 1514 bytes on the link)". */
  length_counted: string;
  /** Each goodput value is the average over a window of this length that ends at its time. */
  goodput_window_s: number;
  /** Time between two goodput values. */
  goodput_step_s: number;
  /** The accuracy of the emulation. */
  accuracy: Accuracy;
  /** The comparison of the queue with those of the other runs. */
  judgement: Judgement;
  /** The scenario's expectations and their outcomes, those not met first. */
  expectations: Array<Expectation>;
  /**
   * The figures of the run, of the directions of its links, and of the flows of its scenario; a
   * flow with a `count` is one entry.
   */
  figures: Array<Figure>;
  /** Totals per direction that carries load. */
  directions: Array<DirectionTotal>;
  /** The flows, without pings. Of a direction that has a crowd, the fastest and the slowest. */
  flows: Array<Flow>;
  /** What stands for the flows of a direction that are too many to draw each. */
  crowds: Array<Crowd>;
  /**
   * The sum of the goodputs of each direction with several flows whose curves were thinned. The
   * page adds the curves of other flows itself.
   */
  sums: Array<GoodputSum>;
  /** The probes. */
  pings: Array<Ping>;
  /**
   * Name of the probes whose round trips are compared, the same in all runs of a scenario. `null` if
   * no run has a reply.
   */
  main_ping: string | null;
  /** The transfers and pages of each flow of the scenario that has some. */
  transfers: Array<Transfers>;
  /** Segments that all TCP flows sent again; `null` without such flows. */
  retransmits: number | null;
  /** Packets that all queues dropped. */
  drops: number;
  /** Packets that all queues marked with CE. */
  marks: number;
  /** The queues of the path, in the order in which a packet passes them. */
  queues: Array<Queue>;
  /**
   * Completion times of the transfers that had a fixed number of bytes to carry; `null` if there
   * were none.
   */
  completion_ms: Cdf | null;
  /**
   * Figures over the repetitions of this run; empty if there was only one. Other figures are
   * medians over the repetitions; curves and packets are those of one of them.
   */
  repeats: Array<Repeat>;
  /** The seeds of the repetitions; empty if there was only one run. */
  repetitions: Array<number>;
  /** The seed of the run whose curves and packets are shown. */
  shown_seed: number;
  /** Relative URLs of the pages of the single repetitions; empty if there are none. */
  links: Array<RepetitionLink>;
  /**
   * Number of its colour and line, unique within a report: colour `look % 7`, and a pattern of
   * dashes for each further round.
   */
  look: number;
  /**
   * Number of its condition. Runs with the same number differ only in their queues and can be
   * compared; a link's round-trip time is a condition, for example, and no queue's merit.
   */
  condition: number;
  /** The condition in words, such as `link.rtt 20ms`; empty if the scenario has only one. */
  condition_words: string;
};

/** The page of a repetition. */
export type RepetitionLink = {
  /** Its seed. */
  seed: number;
  /** Relative URL. */
  link: string;
};

/** The comparison of a queue with the queues of runs that differ from its run only in the queue. */
export type Judgement = {
  /**
   * The result in a few words, such as "best for calls". Empty if there is no queue to compare
   * with.
   */
  outcome: string;
  /** Whether the queue is the best for something. */
  is_best: boolean;
  /** The measured figures, in words. */
  why: string;
};

/** A figure over the repetitions of a run. */
export type Repeat = {
  /** Name. */
  figure: string;
  /** `ms`, `Mbit/s`, `%`, or empty for a bare number. */
  unit: string;
  /** One value per repetition that measured it, in order. */
  values: Array<number>;
  /** Median of the values. */
  median: number;
  /**
   * A confidence interval of their median, between two of them: of 95 % from six values on, of fewer
   * their range. `null` for a single value.
   */
  interval: [number, number] | null;
};

/** One of the scenario's expectations and its outcome. */
export type Expectation = {
  /** The figure's name, such as `ping.p50`. */
  metric: string;
  /** The measured value with its unit, and in how many runs it was measured unless it was in all. */
  measured: string | null;
  /** The bounds in words. */
  bounds: string;
  /** Whether the measured value is within them. */
  passed: boolean;
  /** The chart or section of the page that shows the figure. */
  chart: string;
};

/** A figure of a run. */
export type Figure = {
  /** Name, as `[[expect]]` writes it. */
  name: string;
  /** The measured value with its unit. */
  value: string;
  /** The meaning. */
  doc: string;
  /** The chart or section of the page that shows it. */
  chart: string;
};

/** The accuracy of the emulation, compared with its configuration. */
export type Accuracy = {
  /** Measured rate / configured rate - 1, while the link was busy. */
  rate_error: number | null;
  /** Delay between the instant at which a packet was due to leave the delay line and its departure. */
  release_lateness_us: Quantiles | null;
  /** Packets lost outside the queues, by reason. */
  lost_elsewhere: Array<Count>;
  /** Other remarks that matter for the reliability of the numbers. */
  notes: Array<string>;
};

/** Some quantiles of a distribution, in the unit of the field's name. */
export type Quantiles = {
  /** Number of samples. */
  count: number;
  /** Median. */
  p50: number;
  /** 95th percentile. */
  p95: number;
  /** 99th percentile. */
  p99: number;
  /** Largest sample. */
  max: number;
};

/** A number of packets. */
export type Count = {
  /** The reason for the marks, drops or losses. */
  reason: string;
  /** Number of these packets. */
  packets: number;
};

/** Totals of all flows of one direction over the run. */
export type DirectionTotal = {
  /** The direction. */
  direction: Direction;
  /** Sum of the flows' goodputs. */
  goodput_mbps: number;
  /** Jain's index over the flows' goodputs; `null` with fewer than two flows. */
  jain: number | null;
  /**
   * The index over the bulk flows that were active in each window; `null` if there were never two
   * at a time.
   */
  jain_over_time: Series | null;
  /** Delay against goodput, window by window. */
  tradeoff: Tradeoff | null;
};

/**
 * Goodput against delay (RFC 7928 section 2.7): one point per window, and the moments of the
 * Gaussian whose ellipse of one standard deviation is drawn.
 */
export type Tradeoff = {
  /** The queue: of several in the direction, the busiest. */
  queue: string;
  /** Mean sojourn time of the packets that left in each window. */
  delay_ms: Array<number>;
  /** Goodput of all flows, without calls and probes, in the same window. */
  goodput_mbps: Array<number>;
  /** Mean of the delays. */
  mean_delay_ms: number;
  /** Mean of the goodputs. */
  mean_goodput_mbps: number;
  /** Standard deviation of the delays. */
  delay_deviation_ms: number;
  /** Standard deviation of the goodputs. */
  goodput_deviation_mbps: number;
  /** Correlation of delay and goodput, -1 to 1. */
  correlation: number;
};

/** Values over time. */
export type Series = {
  /** The time of each value; ascending. */
  time_s: Array<number>;
  /** One value per time; `null` in JSON is a gap. */
  value: Array<number | null>;
  /**
   * Number of values before the series was thinned for the page, which keeps the extremes; `null` if
   * it was not.
   */
  thinned_from: number | null;
};

/** One flow. */
export type Flow = {
  /** Name in the scenario. */
  name: string;
  /** `tcp`, `udp`, `web` ... */
  kind: string;
  /** Congestion control, for TCP. */
  cc: string | null;
  /** The direction of its payload. */
  direction: Direction;
  /** Goodput in windows of `Run.goodput_window_s`. */
  goodput_mbps: Series;
  /** Congestion window. */
  cwnd_segments: Series | null;
  /** The sender's smoothed round-trip time. */
  srtt_ms: Series | null;
  /** Segments retransmitted so far. */
  retransmits: Series | null;
  /** Its figures over the run, without the warm-up. */
  figures: FlowFigures;
};

/** The flows of a direction, if they are too many to draw each. */
export type Crowd = {
  /** The direction. */
  direction: Direction;
  /** The figures of each flow, in the order of the scenario. */
  flows: Array<CrowdFlow>;
  /** The sum of the goodputs. */
  sum_mbps: Series;
  /** Quantiles of the goodputs over the flows, the largest first. */
  goodput_mbps: Array<QuantileLine>;
  /** Quantiles of the congestion windows; empty if no flow has one. */
  cwnd_segments: Array<QuantileLine>;
  /** Quantiles of the smoothed round-trip times; empty if no flow has one. */
  srtt_ms: Array<QuantileLine>;
};

/** A flow of a crowd. */
export type CrowdFlow = {
  /** Name in the scenario, with its number. */
  name: string;
  /** Its figures over the run, without the warm-up. */
  figures: FlowFigures;
};

/** The figures of a flow. Those that its type does not have are `null`. */
export type FlowFigures = {
  /** Goodput. */
  goodput_mbps: number | null;
  /** Segments sent again. */
  retransmits: number | null;
  /** Median of the sender's smoothed round-trip time. */
  rtt_p50_ms: number | null;
  /** Its 99th percentile. */
  rtt_p99_ms: number | null;
  /** Share of the packets sent that did not arrive. */
  loss: number | null;
};

/** The goodput of all flows of a direction together. */
export type GoodputSum = {
  /** The direction. */
  direction: Direction;
  /** Values over time. */
  mbps: Series;
};

/** A quantile over the flows of a crowd, at each time. */
export type QuantileLine = {
  /** `largest`, `95 %`, `median`, `5 %` or `smallest`. */
  name: string;
  /** Values over time. */
  series: Series;
};

/** Probes from one end of the path to the other and back. Lost probes are gaps in the series. */
export type Ping = {
  /** Name in the scenario. */
  name: string;
  /** Share of the probes without an answer. */
  loss: number | null;
  /** Round-trip time of each probe, at the time it was sent. */
  two_way_ms: Series;
  /** Delay from left to right; `null` if the ends share no clock. */
  up_ms: Series | null;
  /** Delay from right to left; `null` if the ends share no clock. */
  down_ms: Series | null;
  /** End of its warm-up: distributions begin with the probes that were sent then. */
  measured_from_s: number;
  /** Quantiles of `Ping.two_way_ms`. */
  two_way: Quantiles | null;
  /** Quantiles of `Ping.up_ms`. */
  up: Quantiles | null;
  /** Quantiles of `Ping.down_ms`. */
  down: Quantiles | null;
  /**
   * The round-trip times that 5, 25, 50, 75 and 95 % of the probes do not exceed, without the
   * warm-up: medians over the repetitions. `null` if they are to be computed from `two_way_ms`.
   */
  box_ms: [number, number, number, number, number] | null;
};

/** The transfers or pages of a flow of the scenario; of one with a `count`, those of all its flows. */
export type Transfers = {
  /** Name in the scenario; of many flows together, their number. */
  name: string;
  /** Whether they are pages. */
  is_pages: boolean;
  /** The direction of their payload. */
  direction: Direction;
  /**
   * Quantiles of the completion times, with the ages of those open ones that have lasted longer than
   * all that are complete; the number is that of the complete ones. `null` if none was complete.
   */
  completion_ms: Quantiles | null;
  /** Number of those that had begun and were not complete at the end; `null` if it is not known. */
  open: number | null;
};

/** A queue in front of a link of the path. */
export type Queue = {
  /** Name; the same queue has the same name in all runs. */
  name: string;
  /** The direction of its packets. */
  direction: Direction;
  /** The link's rate; each value holds until the next. */
  link_mbps: Series;
  /** Bytes sent over the link / bytes that its rate allows, over the run, 0 to 1. */
  utilisation: number | null;
  /** Packets in the queue. */
  backlog_packets: Series;
  /** Bytes in the queue. */
  backlog_bytes: Series;
  /** The AQM's own variables over time. */
  state: Array<State>;
  /** Packets that left through the link. */
  sent: number;
  /** Share of the packets that were dropped, among those that left or were dropped. */
  loss: number | null;
  /** Share of the packets that left with a CE mark from here. */
  mark_ratio: number | null;
  /** CE marks set here, by reason. */
  marks: Array<Count>;
  /** Packets dropped here, by reason. */
  drops: Array<Count>;
  /** Sojourn time of the packets that left through the link. */
  sojourn_ms: Quantiles | null;
  /**
   * Distribution of the sojourn times, without the warm-up. `null` if it is to be computed from all
   * of `packets`, which must then be complete.
   */
  sojourn_cdf: Cdf | null;
  /**
   * The sojourn times that 5, 25, 50, 75 and 95 % of these packets do not exceed, without the
   * warm-up: medians over the repetitions. `null` if they are to be computed from the distribution.
   */
  box_ms: [number, number, number, number, number] | null;
  /** The fate of each packet. */
  packets: Packets;
};

/** One of an AQM's variables over time. */
export type State = {
  /** Name in the algorithm. */
  name: string;
  /** Empty for a bare number. */
  unit: string;
  /** Values over time. */
  series: Series;
};

/** Points of an empirical distribution: a share `fraction` of `count` samples is at most `value`. */
export type Cdf = {
  /** Number of samples. */
  count: number;
  /** Ascending. */
  value: Array<number>;
  /** Ascending, up to 1. */
  fraction: Array<number>;
};

/**
 * One column per property of the packets, each packed into a string in JSON. The page receives the
 * packets in order of time; elsewhere their order is arbitrary.
 */
export type Packets = {
  /** Names of the flows, including pings. */
  flows: Array<string>;
  /** Reasons for which packets were marked or dropped. */
  reasons: Array<string>;
  /** Number of packets before thinning for the page; `null` if all are here. */
  thinned_from: number | null;
  /** The instant at which each packet was sent or dropped. */
  at_ns: string;
  /** The time that each packet had been in the queue by then. */
  sojourn_ns: string;
  /** The length of each packet on the link. */
  size_bytes: string;
  /** The flow of each packet, as an index into `flows`. */
  flow: string;
  /** The fate of each packet, as a code. */
  verdict: string;
  /**
   * The reason for which each packet was marked or dropped, as an index into `reasons`;
   * meaningless for others.
   */
  reason: string;
  /** The number of each packet, the same in every queue, plus 1; 0 if it is not known. */
  number: string;
};

/** All runs of a folder. */
export type Index = {
  /** Version of the types, `SCHEMA`. */
  schema: number;
  /** The program that wrote the page, with its version. */
  generated_by: string;
  /** The results of each algorithm over all scenarios, the best first. */
  overall: Array<AlgorithmSummary>;
  /** The scenarios, in order of their paths. */
  scenarios: Array<IndexedScenario>;
};

/** The results of an algorithm over all scenarios in which it is compared with others. */
export type AlgorithmSummary = {
  /** Name. */
  algorithm: string;
  /** The result, in words. */
  sentence: string;
};

/** A scenario of the index. */
export type IndexedScenario = {
  /** Folder below that of the index, unique. */
  path: string;
  /** Title. */
  title: string;
  /** Description. */
  about: string | null;
  /** Relative URL of the report of all its runs. */
  link: string | null;
  /** Duration that the traces of its variants span. */
  duration_s: number;
  /** Variants on each backend. */
  variants: Array<IndexedVariant>;
};

/** The runs of a variant of a scenario on one backend. Figures are medians over the runs. */
export type IndexedVariant = {
  /** Name. */
  name: string;
  /** The backend. */
  backend: Backend;
  /** Relative URL of the report of its first run. */
  link: string | null;
  /** Number of runs. */
  runs: number;
  /** The reason why a run ended early, or how its algorithm was stopped; `null` if all are complete. */
  partial: string | null;
  /** The comparison of its queue with those of the other variants. */
  judgement: Judgement;
  /** Goodput of all flows together. */
  goodput_mbps: number | null;
  /** Share of the link that was used, 0 to 1. */
  utilisation: number | null;
  /** The packets on which the delays were measured. */
  delay_of: DelayOf;
  /** Median delay. */
  delay_p50_ms: number | null;
  /** 95th percentile of the delay. */
  delay_p95_ms: number | null;
  /** Jain's index over the flows' goodputs. */
  jain: number | null;
  /** Packets dropped, in both directions. */
  drops: number;
  /** Packets marked, in both directions. */
  marks: number;
  /** Number of expectations that were met. */
  expectations_met: number;
  /** The expectations that were not met, in words. */
  expectations_unmet: Array<string>;
  /** A small picture of the first run. */
  trace: Trace;
};

/** A curve over time, reduced to its smallest and largest value in each of equally long columns. */
export type Trace = {
  /** The content of the curve. */
  of: TraceOf;
  /** Smallest value of each column; `null` if it holds none. */
  low: Array<number | null>;
  /** Largest value of each column; `null` if it holds none. */
  high: Array<number | null>;
};

/** The packets on which delays are measured. */
export type DelayOf = "pings" | "packets";

/** The content of a curve. */
export type TraceOf = "ping" | "backlog";
