/** A report of plausible size and shape, with numbers from `path.ts`. */
import { boxOf, empiricalCdf, quantile } from "../../src/maths/cdf.ts";
import {
  type Cdf,
  type Count,
  type Direction,
  type Judgement,
  type Quantiles,
  type Queue,
  type Report,
  type Run,
  SCHEMA,
  type Series,
  type Tradeoff,
} from "../../src/model.ts";
import { pack } from "../../src/packed.ts";
import { type Outcome, type Passed, type QueueKind, type Sample, simulate } from "./path.ts";

const MBPS = 10;
const WINDOW_S = 1;
const STEP_S = 0.2;
/** The distribution has few points; this number is enough for a line. */
const CDF_POINTS = 600;

interface Variant {
  name: string;
  kind: QueueKind;
  queue: string;
  ecn: boolean;
}

const VARIANTS: Variant[] = [
  { name: "fifo", kind: "fifo", queue: "fifo limit 1000", ecn: false },
  { name: "codel", kind: "codel", queue: "codel target 5ms interval 100ms noecn", ecn: false },
  { name: "fq_codel", kind: "fq_codel", queue: "fq_codel target 5ms interval 100ms ecn", ecn: true },
];

const JUDGEMENTS: Record<QueueKind, Judgement> = {
  fifo: {
    outcome: "another queue is better",
    is_best: false,
    why: "95 % of pings take up to 902 ms, 43 times as long as with fq_codel; full goodput (9.57 Mbit/s)",
  },
  codel: {
    outcome: "another queue is better",
    is_best: false,
    why: "95 % of pings take up to 31.4 ms, 1.5 times as long as with fq_codel; full goodput (9.50 Mbit/s)",
  },
  fq_codel: {
    outcome: "best for calls, games and browsing on a busy link",
    is_best: true,
    why: "the lowest delay of all: 95 % of pings within 20.9 ms; full goodput (9.55 Mbit/s)",
  },
};

export function sampleReport(seconds: number): Report {
  return {
    schema: SCHEMA,
    title: "Sample: one bulk flow and a ping over 10 Mbit/s",
    generated_by: "the page's own tests (synthetic numbers, not a measurement)",
    ends: { left: "h2", right: "h3" },
    sweeps: [],
    runs: VARIANTS.map((variant) => runOf(variant, seconds)),
  };
}

function runOf(variant: Variant, seconds: number): Run {
  const outcome = simulate(variant.kind, { seconds, mbps: MBPS, ecn: variant.ecn });
  const bytes = outcome.delivered.reduce((sum, piece) => sum + piece.bytes, 0);
  const pings = {
    two: outcome.ping.map((p) => (p.up === null || p.down === null ? null : (p.up + p.down) / 1e6)),
    up: outcome.ping.map((p) => (p.up === null ? null : p.up / 1e6)),
    down: outcome.ping.map((p) => (p.down === null ? null : p.down / 1e6)),
  };
  const sentAt = outcome.ping.map((p) => p.sent / 1e9);
  const series = (value: (number | null)[]): Series => ({ time_s: sentAt, value, thinned_from: null });
  const goodput = (bytes * 8) / (seconds - 0.5) / 1e6;
  return {
    name: variant.name,
    backend: "sim",
    facts: [
      { label: "link", value: `${MBPS} Mbit/s each way` },
      { label: "delay", value: "10 ms each way, RTT 20 ms" },
      { label: "queue", value: variant.queue },
      { label: "flows", value: "1 TCP (cubic) h2 → h3 from 0.5 s; ping every 100 ms" },
      { label: "length", value: `${seconds} s` },
      { label: "seed", value: "1" },
      { label: "host", value: "none, synthetic" },
    ],
    duration_s: seconds,
    base_rtt_ms: 20,
    partial: null,
    stopped: [],
    length_counted: "TCP payload (1448 of 1514 bytes on the wire)",
    goodput_window_s: WINDOW_S,
    goodput_step_s: STEP_S,
    accuracy: {
      rate_error: 0.00012,
      release_lateness_us: { count: 12000, p50: 3.1, p95: 20.4, p99: 61.7, max: 412 },
      lost_elsewhere: [],
      notes: [],
    },
    judgement: JUDGEMENTS[variant.kind],
    expectations:
      variant.name === "fifo"
        ? [
            {
              metric: "ping.p95",
              measured: "905ms",
              bounds: "at most 50ms",
              passed: false,
              chart: "ping",
            },
          ]
        : [
            {
              metric: "bulk.goodput",
              measured: "9.4Mbit/s",
              bounds: "at least 9Mbit/s",
              passed: true,
              chart: "goodput-up",
            },
          ],
    figures: [
      {
        name: "bulk.goodput",
        value: `${goodput.toPrecision(4)}Mbit/s`,
        doc: "payload that arrived, per second",
        chart: "goodput-up",
      },
      {
        name: "up.longest_gap",
        value: "12.5ms",
        doc: "longest time between two departures",
        chart: "figures",
      },
    ],
    directions: [
      {
        direction: "up",
        goodput_mbps: goodput,
        jain: null,
        jain_over_time: {
          time_s: Array.from({ length: seconds }, (_, at) => at + 1),
          value: Array.from({ length: seconds }, (_, at) => 1 - 0.4 * Math.exp(-at / 5)),
          thinned_from: null,
        },
        tradeoff: tradeoffOf(outcome, seconds),
      },
    ],
    completion_ms: null,
    repeats: [
      {
        figure: "Ping, median",
        unit: "ms",
        values: [0.98, 1, 1.01, 1.03, 0.97].map((factor) => factor * (quantilesOf(pings.two)?.p50 ?? 0)),
        median: quantilesOf(pings.two)?.p50 ?? 0,
        interval: [0.97 * (quantilesOf(pings.two)?.p50 ?? 0), 1.03 * (quantilesOf(pings.two)?.p50 ?? 0)],
      },
    ],
    repetitions: [1, 2, 3, 4, 5],
    shown_seed: 1,
    links: [],
    look: VARIANTS.indexOf(variant),
    condition: 0,
    condition_words: "",
    flows: [
      {
        name: "bulk",
        kind: "tcp",
        cc: "cubic",
        direction: "up",
        goodput_mbps: goodputOf(outcome, seconds),
        cwnd_segments: seriesOf(outcome.cwnd, 1),
        srtt_ms: seriesOf(outcome.srtt, 1e6),
        retransmits: seriesOf(outcome.retransmits, 1),
        figures: {
          goodput_mbps: goodput,
          retransmits: outcome.retransmits.at(-1)?.value ?? 0,
          rtt_p50_ms: null,
          rtt_p99_ms: null,
          loss: null,
        },
      },
    ],
    crowds: [],
    sums: [],
    pings: [
      {
        name: "ping",
        loss: pings.two.filter((value) => value === null).length / outcome.ping.length,
        two_way_ms: series(pings.two),
        up_ms: series(pings.up),
        down_ms: series(pings.down),
        measured_from_s: 0,
        two_way: quantilesOf(pings.two),
        up: quantilesOf(pings.up),
        down: quantilesOf(pings.down),
        box_ms: boxOf(empiricalCdf(pings.two)),
      },
    ],
    main_ping: "ping",
    transfers: [
      {
        name: "pages",
        is_pages: true,
        direction: "up",
        completion_ms: quantilesOf([310, 250, 480]),
        open: 1,
      },
    ],
    retransmits: outcome.retransmits.at(-1)?.value ?? 0,
    drops: [...outcome.up, ...outcome.down].filter(({ verdict }) => verdict === 2).length,
    marks: [...outcome.up, ...outcome.down].filter(({ verdict }) => verdict === 1).length,
    queues: [
      queueOf("bottleneck", "up", outcome.up, outcome, (goodput * (1514 / 1448)) / MBPS),
      queueOf(
        "bottleneck",
        "down",
        outcome.down,
        null,
        (outcome.down.length * 66 * 8) / seconds / 1e6 / MBPS,
      ),
    ],
  };
}

function seriesOf(samples: Sample[], unit: number): Series {
  return {
    time_s: samples.map((sample) => sample.at / 1e9),
    value: samples.map((sample) => sample.value / unit),
    thinned_from: null,
  };
}

function goodputOf(outcome: Outcome, seconds: number): Series {
  const out: Series = { time_s: [], value: [], thinned_from: null };
  for (let step = 1; step * STEP_S <= seconds; step += 1) {
    const until = step * STEP_S;
    let bytes = 0;
    for (const piece of outcome.delivered) {
      if (piece.at / 1e9 > until - WINDOW_S && piece.at / 1e9 <= until) bytes += piece.bytes;
    }
    out.time_s.push(Number(until.toFixed(6)));
    out.value.push((bytes * 8) / WINDOW_S / 1e6);
  }
  return out;
}

function tradeoffOf(outcome: Outcome, seconds: number): Tradeoff {
  const windows = Array.from({ length: seconds - 2 }, (_, at) => at + 1);
  const inside = (at: number, from: number) => at / 1e9 >= from && at / 1e9 < from + 1;
  const delay_ms = windows.map((from) => {
    const left = outcome.up.filter((packet) => inside(packet.at_ns, from) && packet.verdict !== 2);
    return left.reduce((sum, packet) => sum + packet.sojourn_ns / 1e6, 0) / Math.max(1, left.length);
  });
  const goodput_mbps = windows.map(
    (from) =>
      (outcome.delivered
        .filter((piece) => inside(piece.at, from))
        .reduce((sum, piece) => sum + piece.bytes, 0) *
        8) /
      1e6,
  );
  const mean = (values: number[]) => values.reduce((a, b) => a + b, 0) / values.length;
  const deviation = (values: number[]) => Math.sqrt(mean(values.map((value) => (value - mean(values)) ** 2)));
  return {
    queue: "up",
    delay_ms,
    goodput_mbps,
    mean_delay_ms: mean(delay_ms),
    mean_goodput_mbps: mean(goodput_mbps),
    delay_deviation_ms: deviation(delay_ms),
    goodput_deviation_mbps: deviation(goodput_mbps),
    correlation: 0.3,
  };
}

function quantilesOf(samples: (number | null)[]): Quantiles | null {
  const cdf = empiricalCdf(samples);
  if (cdf.count === 0) return null;
  const at = (share: number) => quantile(cdf, share) ?? 0;
  return { count: cdf.count, p50: at(0.5), p95: at(0.95), p99: at(0.99), max: at(1) };
}

function fewer(cdf: Cdf): Cdf {
  const every = Math.ceil(cdf.value.length / CDF_POINTS);
  const kept = (_: number, at: number) => at % every === 0 || at === cdf.value.length - 1;
  return { count: cdf.count, value: cdf.value.filter(kept), fraction: cdf.fraction.filter(kept) };
}

function queueOf(
  name: string,
  direction: Direction,
  passed: Passed[],
  outcome: Outcome | null,
  utilisation: number,
): Queue {
  const packets = [...passed].sort((a, b) => a.at_ns - b.at_ns);
  const left = packets.filter((packet) => packet.verdict !== 2);
  const waits = left.map((packet) => packet.sojourn_ns / 1e6);
  const reasons = ["overflow", "congestion"];
  const countOf = (verdict: number): Count[] =>
    reasons
      .map((reason, at) => ({
        reason,
        packets: packets.filter((packet) => packet.verdict === verdict && packet.reason === at).length,
      }))
      .filter((count) => count.packets > 0);
  const backlog = outcome?.backlog ?? [{ at: 0, packets: 0, bytes: 0 }];
  const column = (pick: (packet: Passed) => number) => pack(packets.map(pick));
  return {
    name,
    direction,
    link_mbps: { time_s: [0], value: [MBPS], thinned_from: null },
    utilisation,
    backlog_packets: seriesOf(
      backlog.map(({ at, packets }) => ({ at, value: packets })),
      1,
    ),
    backlog_bytes: seriesOf(
      backlog.map(({ at, bytes }) => ({ at, value: bytes })),
      1,
    ),
    state: outcome === null ? [] : [{ name: "count", unit: "drops", series: seriesOf(outcome.count, 1) }],
    sent: left.length,
    loss: packets.length === 0 ? null : 1 - left.length / packets.length,
    mark_ratio: left.length === 0 ? null : left.filter((packet) => packet.verdict === 1).length / left.length,
    marks: countOf(1),
    drops: countOf(2),
    sojourn_ms: quantilesOf(waits),
    sojourn_cdf: fewer(empiricalCdf(waits)),
    box_ms: boxOf(empiricalCdf(waits)),
    packets: {
      flows: ["bulk", "ping"],
      reasons,
      thinned_from: null,
      at_ns: column((packet) => packet.at_ns),
      sojourn_ns: column((packet) => packet.sojourn_ns),
      size_bytes: column((packet) => packet.size),
      flow: column((packet) => packet.flow),
      verdict: column((packet) => packet.verdict),
      reason: column((packet) => packet.reason),
      number: column(() => 0),
    },
  };
}
