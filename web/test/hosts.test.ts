import assert from "node:assert/strict";
import { test } from "node:test";
import { hosts, type LiveFlow, portName } from "../src/live/sample.ts";

const flow = (src: string, dst: string, rate_bps: number, dropped = 0): LiveFlow => ({
  object: "pipe 1",
  src,
  src_port: 1,
  dst,
  dst_port: 2,
  proto: 6,
  icmp_id: null,
  arrived_bps: rate_bps,
  rate_bps,
  marked: 0,
  dropped: dropped > 0 ? { overflow: dropped } : {},
  sojourn: null,
  backlog_packets: 1,
});

test("a host has the sums of its flows in both directions, and its own drops", () => {
  const all = hosts([flow("a", "b", 30, 4), flow("c", "a", 20, 5), flow("a", "d", 10)]);
  assert.deepEqual(
    all.map(({ name, flows, sent_bps, received_bps, dropped }) => [
      name,
      flows,
      sent_bps,
      received_bps,
      dropped,
    ]),
    [
      ["a", 3, 40, 20, 4],
      ["b", 1, 0, 30, 0],
      ["c", 1, 20, 0, 5],
      ["d", 1, 0, 10, 0],
    ],
  );
  assert.equal(all[0]?.backlog_packets, 2);
});

test("a flow from a host to itself counts once", () => {
  const [own, ...others] = hosts([flow("a", "a", 8)]);
  assert.deepEqual([own?.flows, own?.sent_bps, own?.received_bps, others.length], [1, 8, 8, 0]);
});

test("a port is marked while its interface is not up", () => {
  assert.equal(portName("eth0", "up"), "eth0");
  assert.equal(portName("eth0", "down"), "eth0 (down)");
  assert.equal(portName("eth0", "gone"), "eth0 (gone)");
  // A port without an interface, and a program behind a link.
  assert.equal(portName("pcap:in.pcap:", null), "pcap:in.pcap:");
  assert.equal(portName("network", undefined), "network");
});
