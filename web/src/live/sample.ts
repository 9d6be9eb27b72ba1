/** The parts of a sample and of the history that the page reads; docs/watching.md explains them. */
import type { StateKind } from "../maths/states.ts";

export interface Traffic {
  arrived_bps: number;
  rate_bps: number;
  marked: number;
  dropped: Record<string, number>;
  sojourn: { p50_ns: number; p95_ns: number; p99_ns: number } | null;
}

export interface LiveObject extends Traffic {
  name: string;
  flow: string | null;
  words: string;
  link_bps: number;
  backlog_packets: number;
  state: Record<string, number>;
  state_kinds: Record<string, StateKind>;
}

export interface LiveFlow extends Traffic {
  object: string;
  src: string;
  src_port: number;
  dst: string;
  dst_port: number;
  proto: number;
  icmp_id: number | null;
  backlog_packets: number;
}

export interface LivePort {
  name: string;
  received_bps: number;
  sent_bps: number;
  received_per_s: number;
  sent_per_s: number;
  lost: number;
}

/** Round-trip times over the last minute. */
export interface RttRow {
  name: string;
  /** The signal that they are measured from. */
  source: "tcp" | "quic";
  samples: number;
  rtt: Traffic["sojourn"];
}

export interface Change {
  unix_ms: number;
  by: string;
  text: string;
  refused?: string;
}

export interface Sample {
  number: number;
  unix_ms: number;
  interval_ns: number;
  status: {
    uptime_ns: number;
    commands: number;
    dropped: Record<string, number>;
    /** In the order of the ports below; null for a port without an interface. */
    ports?: { interface: "up" | "down" | "gone" | null }[];
  };
  ports: LivePort[];
  lateness: { p50_ns: number; p99_ns: number };
  objects: LiveObject[];
  unlisted: number;
  flows: LiveFlow[];
  rtt: { all: RttRow[]; objects: RttRow[]; hosts: RttRow[] } | null;
  changes: Change[];
}

/** A series of the history at one resolution. */
export interface Series {
  name: string;
  step_ms: number;
  unix_ms: number[];
  rate_bps: number[];
  backlog_packets: number[];
  /** Sojourn times; null where no packet left. */
  p50_ms: (number | null)[];
  p99_ms: (number | null)[];
  dropped: number[];
  /** The drops by reason. */
  dropped_for: Record<string, number[]>;
  marked: number[];
  /** The variables of the algorithm; null where one had no value. */
  state: Record<string, { kind: StateKind; values: (number | null)[] }>;
}

export interface Past {
  series: Series[];
  changes: Change[];
}

/** The resolutions of the history in ms, with the time that each covers and the unit of its axis in s. */
export const LEVELS = [
  { step: 1_000, span: 300, text: "5 min", unit: "s", seconds: 1 },
  { step: 10_000, span: 3_600, text: "1 h", unit: "min", seconds: 60 },
  { step: 60_000, span: 86_400, text: "24 h", unit: "h", seconds: 3_600 },
] as const;

export const label = (object: LiveObject): string =>
  object.flow === null ? object.name : `${object.name} ${object.flow}`;

/** Returns the name of a port, with the state of its interface unless it is up. */
export function portName(name: string, state: "up" | "down" | "gone" | null | undefined): string {
  return state === "down" || state === "gone" ? `${name} (${state})` : name;
}

const PROTOCOLS: Record<number, string> = { 1: "icmp", 6: "tcp", 17: "udp", 58: "icmp6" };

export function flowLabel(flow: LiveFlow): string {
  const end = (address: string, port: number) => {
    if (port === 0) return address;
    return address.includes(":") ? `[${address}]:${port}` : `${address}:${port}`;
  };
  const proto = PROTOCOLS[flow.proto] ?? `protocol ${flow.proto}`;
  const id = flow.icmp_id === null ? "" : ` id ${flow.icmp_id}`;
  return `${proto} ${end(flow.src, flow.src_port)} → ${end(flow.dst, flow.dst_port)}${id}`;
}

/** The traffic of a host in the listed flows. */
export interface Host {
  name: string;
  flows: number;
  sent_bps: number;
  received_bps: number;
  backlog_packets: number;
  dropped: number;
}

/**
 * Returns the hosts of the listed flows, busiest first. What waits and what was dropped counts for the
 * host that sent it.
 */
export function hosts(flows: LiveFlow[]): Host[] {
  const all = new Map<string, Host>();
  const of = (name: string): Host => {
    const host = all.get(name) ?? {
      name,
      flows: 0,
      sent_bps: 0,
      received_bps: 0,
      backlog_packets: 0,
      dropped: 0,
    };
    all.set(name, host);
    return host;
  };
  for (const flow of flows) {
    const from = of(flow.src);
    const to = of(flow.dst);
    from.flows += 1;
    if (to !== from) to.flows += 1;
    from.sent_bps += flow.rate_bps;
    to.received_bps += flow.rate_bps;
    from.backlog_packets += flow.backlog_packets;
    from.dropped += total(flow.dropped);
  }
  const rate = (host: Host) => host.sent_bps + host.received_bps;
  return [...all.values()].sort((a, b) => rate(b) - rate(a) || (a.name < b.name ? -1 : 1));
}

export const total = (counts: Record<string, number>): number =>
  Object.values(counts).reduce((sum, count) => sum + count, 0);

/** Counts by reason, most frequent first. */
export function reasons(counts: Record<string, number>): string {
  const sorted = Object.entries(counts).sort((a, b) => b[1] - a[1]);
  return sorted.map(([reason, count]) => `${reason} ${count}`).join(", ");
}

/** Adds a sample to the finest resolution of the past, which then covers the same time as before. */
export function extend(past: Past, sample: Sample): void {
  const { step, span } = LEVELS[0];
  const start = sample.unix_ms - span * 1000;
  for (const object of sample.objects) {
    const name = label(object);
    let series = past.series.find((one) => one.name === name && one.step_ms === step);
    if (series === undefined) {
      series = {
        name,
        step_ms: step,
        unix_ms: [],
        rate_bps: [],
        backlog_packets: [],
        p50_ms: [],
        p99_ms: [],
        dropped: [],
        dropped_for: {},
        marked: [],
        state: {},
      };
      past.series.push(series);
    }
    if ((series.unix_ms.at(-1) ?? 0) >= sample.unix_ms) continue;
    series.unix_ms.push(sample.unix_ms);
    series.rate_bps.push(object.rate_bps);
    series.backlog_packets.push(object.backlog_packets);
    series.p50_ms.push(object.sojourn === null ? null : object.sojourn.p50_ns / 1e6);
    series.p99_ms.push(object.sojourn === null ? null : object.sojourn.p99_ns / 1e6);
    series.dropped.push(total(object.dropped));
    series.marked.push(object.marked);
    for (const reason of Object.keys(object.dropped)) {
      series.dropped_for[reason] ??= series.unix_ms.slice(1).map(() => 0);
    }
    for (const [reason, counts] of Object.entries(series.dropped_for)) {
      counts.push(object.dropped[reason] ?? 0);
    }
    for (const name of Object.keys(object.state)) {
      series.state[name] ??= {
        kind: object.state_kinds[name] ?? "count",
        values: series.unix_ms.slice(1).map(() => null),
      };
    }
    for (const [name, { values }] of Object.entries(series.state)) values.push(object.state[name] ?? null);
    const old = series.unix_ms.findIndex((at) => at > start);
    for (const column of [
      series.unix_ms,
      series.rate_bps,
      series.backlog_packets,
      series.p50_ms,
      series.p99_ms,
      series.dropped,
      ...Object.values(series.dropped_for),
      series.marked,
      ...Object.values(series.state).map(({ values }) => values),
    ] as unknown[][]) {
      column.splice(0, old);
    }
  }
  // The pipes of a mask come and go, for as long as the page is open.
  past.series = past.series.filter(
    ({ step_ms, unix_ms }) => step_ms !== step || (unix_ms.at(-1) ?? 0) > start,
  );
  past.changes = sample.changes;
}

/** Points further apart than this many steps have a gap between them. */
const MOST_STEPS = 3;

/** The points of a line, with a gap where there was no sample for some steps. */
export function withGaps(
  unixMs: number[],
  values: (number | null)[],
  step: number,
): { time: number[]; value: (number | null)[] } {
  const time: number[] = [];
  const value: (number | null)[] = [];
  for (const [at, here] of unixMs.entries()) {
    const before = unixMs[at - 1];
    if (before !== undefined && here - before > MOST_STEPS * step) {
      time.push(before + step);
      value.push(null);
    }
    time.push(here);
    value.push(values[at] ?? null);
  }
  return { time, value };
}

/** Steps of the system's clock up to this many ms are as good as none; the router's limit is the same. */
const LEAST_STEP_MS = 500;

/** Whether the clock was set back between two samples. The router has then moved its history, too. */
export function isSetBack(before: Sample, now: Sample): boolean {
  const expected = before.unix_ms + ((now.number - before.number) * now.interval_ns) / 1e6;
  return now.number > before.number && expected - now.unix_ms > LEAST_STEP_MS;
}

/**
 * Whether the router was started again between two samples. Its configuration may then be another one,
 * without any change of it.
 */
export function isStartedAgain(before: Sample, now: Sample): boolean {
  return now.status.uptime_ns < before.status.uptime_ns;
}

/** The times of the changes that took place, as opposed to those that were refused. */
export function timesOf(changes: Change[]): number[] {
  return changes.flatMap(({ unix_ms, refused }) => (refused === undefined ? [unix_ms] : []));
}

/** The colours of the names that are drawn: a name keeps its own, and others take the first that are free. */
export function coloursOf(names: string[], before: ReadonlyMap<string, number>): Map<string, number> {
  const kept = names.flatMap((name): [string, number][] => {
    const hue = before.get(name);
    return hue === undefined ? [] : [[name, hue]];
  });
  const colours = new Map(kept);
  const taken = new Set(colours.values());
  for (const name of names) {
    if (colours.has(name)) continue;
    let hue = 0;
    while (taken.has(hue)) hue += 1;
    taken.add(hue);
    colours.set(name, hue);
  }
  return colours;
}
