/**
 * Stand-in for a recording, for looking at the page: one window-based sender and a ping over a
 * bottleneck, enough to make plausible curves. It measures nothing and does not model a real TCP;
 * the simulator is in crates/sim.
 */

export type QueueKind = "fifo" | "codel" | "fq_codel";

export interface Passed {
  at_ns: number;
  sojourn_ns: number;
  size: number;
  flow: number;
  verdict: number;
  reason: number;
}

export interface Sample {
  at: number;
  value: number;
}

export interface Outcome {
  up: Passed[];
  down: Passed[];
  delivered: { at: number; bytes: number }[];
  cwnd: Sample[];
  srtt: Sample[];
  retransmits: Sample[];
  ping: { sent: number; up: number | null; down: number | null }[];
  backlog: { at: number; packets: number; bytes: number }[];
  count: Sample[];
}

interface Waiting {
  flow: number;
  size: number;
  since: number;
  id: number;
}

const SEGMENT = 1514;
const PING = 98;
const ACK = 66;
const MS = 1e6;
const TARGET = 5 * MS;
const INTERVAL = 100 * MS;
const SAMPLING = 50 * MS;

/** A small generator with a seed, so that the sample is the same each time. */
export function generator(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

class Agenda {
  private readonly heap: { at: number; order: number; act: () => void }[] = [];
  private order = 0;
  now = 0;

  add(at: number, act: () => void): void {
    const entry = { at: Math.max(at, this.now), order: this.order, act };
    this.order += 1;
    let low = 0;
    let high = this.heap.length;
    // In descending order, so that the next one is at the end.
    while (low < high) {
      const middle = (low + high) >>> 1;
      const other = this.heap[middle] as { at: number; order: number };
      if (other.at > entry.at || (other.at === entry.at && other.order > entry.order)) low = middle + 1;
      else high = middle;
    }
    this.heap.splice(low, 0, entry);
  }

  run(until: number): void {
    for (;;) {
      const next = this.heap.pop();
      if (next === undefined || next.at > until) return;
      this.now = next.at;
      next.act();
    }
  }
}

export function simulate(kind: QueueKind, options: { seconds: number; mbps: number; ecn: boolean }): Outcome {
  const random = generator(kind.length * 7919);
  const agenda = new Agenda();
  const out: Outcome = {
    up: [],
    down: [],
    delivered: [],
    cwnd: [],
    srtt: [],
    retransmits: [],
    ping: [],
    backlog: [],
    count: [],
  };
  const nsPerByte = 8000 / options.mbps;
  const halfDelay = 10 * MS;
  const jitter = () => random() * 0.03 * MS;

  // The sender: window, slow start, CUBIC's curve after a loss, one reduction per round trip.
  let window = 10;
  let threshold = Number.POSITIVE_INFINITY;
  let inFlight = 0;
  let reducedAt = Number.NEGATIVE_INFINITY;
  let plateau = 0;
  let smoothed = 20 * MS;
  let lostSegments = 0;
  const reduce = () => {
    if (agenda.now - reducedAt < smoothed) return;
    plateau = window;
    window = Math.max(2, window * 0.7);
    threshold = window;
    reducedAt = agenda.now;
  };
  const onAck = (sentAt: number, congested: boolean) => {
    inFlight -= 1;
    smoothed += (agenda.now - sentAt - smoothed) / 8;
    if (congested) reduce();
    else if (window < threshold) window += 1;
    else {
      const t = (agenda.now - reducedAt) / 1e9;
      const k = Math.cbrt((plateau * 0.3) / 0.4);
      const cubic = 0.4 * (t - k) ** 3 + plateau;
      window += Math.max(cubic - window, 0.3) / window;
    }
    send();
  };

  // The bottleneck: queue 0 holds bulk segments, queue 1 the ping when flows are kept apart.
  const queues: Waiting[][] = [[], []];
  let backlogBytes = 0;
  let transmitting = false;
  let above = Number.POSITIVE_INFINITY;
  let dropping = false;
  let dropNext = 0;
  let count = 0;
  let ids = 0;
  const handlers = new Map<number, (verdict: number) => void>();

  const record = (packet: Waiting, verdict: number, reason: number) => {
    out.up.push({
      at_ns: Math.round(agenda.now),
      sojourn_ns: Math.round(agenda.now - packet.since),
      size: packet.size,
      flow: packet.flow,
      verdict,
      reason,
    });
    handlers.get(packet.id)?.(verdict);
    handlers.delete(packet.id);
  };
  const arrive = (flow: number, size: number, handler: (verdict: number) => void) => {
    const packet = { flow, size, since: agenda.now, id: ids };
    ids += 1;
    handlers.set(packet.id, handler);
    if (queues.reduce((sum, queue) => sum + queue.length, 0) >= 1000) {
      record(packet, 2, 0);
      return;
    }
    queues[kind === "fq_codel" && flow === 1 ? 1 : 0]?.push(packet);
    backlogBytes += size;
    if (!transmitting) transmit();
  };
  /** RFC 8289's control law, accurate enough for a picture. */
  const signals = (packet: Waiting): boolean => {
    const now = agenda.now;
    if (now - packet.since < TARGET || backlogBytes <= SEGMENT) {
      above = Number.POSITIVE_INFINITY;
      dropping = false;
      return false;
    }
    if (above === Number.POSITIVE_INFINITY) above = now + INTERVAL;
    if (!dropping && now >= above) {
      dropping = true;
      count = count > 2 && now - dropNext < 8 * INTERVAL ? count - 2 : 1;
      dropNext = now + INTERVAL / Math.sqrt(count);
      return true;
    }
    if (!dropping || now < dropNext) return false;
    count += 1;
    dropNext += INTERVAL / Math.sqrt(count);
    return true;
  };
  const transmit = () => {
    const queue = (queues[1] as Waiting[]).length > 0 ? queues[1] : queues[0];
    const packet = queue?.shift();
    transmitting = packet !== undefined;
    if (packet === undefined) return;
    backlogBytes -= packet.size;
    const signal = kind !== "fifo" && packet.flow === 0 && signals(packet);
    if (signal && !options.ecn) {
      record(packet, 2, 1);
      transmit();
      return;
    }
    record(packet, signal ? 1 : 0, 1);
    agenda.add(agenda.now + packet.size * nsPerByte, transmit);
  };

  const reply = (size: number, flow: number, act: () => void) => {
    agenda.add(agenda.now + 2 * halfDelay - halfDelay + jitter(), () => {
      out.down.push({
        at_ns: Math.round(agenda.now),
        sojourn_ns: Math.round(jitter() / 10),
        size,
        flow,
        verdict: 0,
        reason: 0,
      });
      agenda.add(agenda.now + halfDelay, act);
    });
  };
  const send = () => {
    while (inFlight < Math.floor(window)) {
      inFlight += 1;
      const sentAt = agenda.now;
      // Real hosts do not send with an accuracy of nanoseconds; without this, all waits would be
      // multiples of one packet.
      const onTheWay = random() * 0.8 * MS;
      const enter = (handler: (verdict: number) => void) =>
        agenda.add(sentAt + onTheWay, () => arrive(0, SEGMENT, handler));
      enter((verdict) => {
        if (verdict === 2) {
          agenda.add(agenda.now + Math.max(smoothed, 20 * MS), () => {
            lostSegments += 1;
            inFlight -= 1;
            reduce();
            send();
          });
          return;
        }
        out.delivered.push({ at: agenda.now + halfDelay, bytes: SEGMENT - 66 });
        reply(ACK, 0, () => onAck(sentAt, verdict === 1));
      });
    }
  };
  const probe = () => {
    const sent = agenda.now;
    const answer = { sent, up: null as number | null, down: null as number | null };
    out.ping.push(answer);
    arrive(1, PING, (verdict) => {
      if (verdict === 2) return;
      const leftQueue = agenda.now;
      reply(PING, 1, () => {
        answer.down = halfDelay + jitter();
        answer.up = leftQueue - sent + PING * nsPerByte + halfDelay;
      });
    });
    agenda.add(sent + 100 * MS, probe);
  };
  const sample = () => {
    const at = agenda.now;
    out.cwnd.push({ at, value: Math.floor(window) });
    out.srtt.push({ at, value: smoothed });
    out.retransmits.push({ at, value: lostSegments });
    agenda.add(at + SAMPLING, sample);
  };
  const watch = () => {
    const packets = queues.reduce((sum, queue) => sum + queue.length, 0);
    out.backlog.push({ at: agenda.now, packets, bytes: backlogBytes });
    out.count.push({ at: agenda.now, value: dropping ? count : 0 });
    agenda.add(agenda.now + 10 * MS, watch);
  };
  agenda.add(0, sample);
  agenda.add(0, watch);
  agenda.add(37 * MS, probe);
  agenda.add(500 * MS, send);
  agenda.run(options.seconds * 1e9);
  return out;
}
