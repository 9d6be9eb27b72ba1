import assert from "node:assert/strict";
import { test } from "node:test";
import { ChartGroup } from "../src/charts/group.ts";
import { corners, delayCdf, empiricalCdf, quantile, rangeOf, shareAtMost } from "../src/maths/cdf.ts";
import { splitFacts } from "../src/maths/facts.ts";
import { bytes, enumerate, megabits, milliseconds, percent, plain, whole } from "../src/maths/format.ts";
import { distinct, shortened, shortenedApart } from "../src/maths/names.ts";
import { batches, Places } from "../src/maths/places.ts";
import { besidePointer, inside } from "../src/maths/range.ts";
import { fitting } from "../src/maths/rows.ts";
import { lowerBound } from "../src/maths/search.ts";
import { isolated, staircase, sumSeries } from "../src/maths/series.ts";
import { isFarApart } from "../src/maths/spread.ts";
import { apart, linearTicks, logTicks, STEPS, tickLabel } from "../src/maths/ticks.ts";
import type { Ping, Report, Run } from "../src/model.ts";
import { FlowLines } from "../src/page/flow-lines.ts";
import { ends, ordered } from "../src/page/listing.ts";
import { aboveLink, callsOf, isExchange, outcome, rounds, scoreOf } from "../src/page/words.ts";

test("lower bound finds the first that is not below", () => {
  assert.equal(lowerBound([1, 3, 3, 5], 3), 1);
  assert.equal(lowerBound([1, 3, 3, 5], 4), 3);
  assert.equal(lowerBound([1, 3, 3, 5], 9), 4);
  assert.equal(lowerBound([], 1), 0);
});

test("glyphs of packets at the same place are drawn once", () => {
  // 92 000 drops on the axis of a plot of 1100 x 300: every 2 pixels one, and one at the right edge.
  const places = new Places(50, 10, 1100, 300, 2);
  const taken = Array.from({ length: 92_000 }, (_, at) => places.take(50 + (at / 91_999) * 1100, 310));
  assert.equal(taken.filter((first) => first).length, 551);
  assert.equal(taken[0], true);
  assert.equal(taken[1], false);
  // Another row, its neighbour in the same square, and points outside, which take the places at the edge.
  assert.equal(places.take(50, 100), true);
  assert.equal(places.take(51.9, 101.9), false);
  assert.equal(places.take(-7, 101), false);
  assert.equal(places.take(2000, 5000), false);
});

test("a path has a limited number of glyphs", () => {
  assert.deepEqual(batches([1, 2, 3, 4, 5], 2), [[1, 2], [3, 4], [5]]);
  assert.deepEqual(batches([], 2), []);
});

test("short names keep what distinguishes them", () => {
  const names = ["target=1ms-rtt=10ms", "target=1ms-rtt=30ms", "target=1ms-rtt=300ms"];
  assert.deepEqual(distinct(names), ["rtt=10ms", "rtt=30ms", "rtt=300ms"]);
  assert.deepEqual(distinct(["fifo", "fq_codel"]), ["fifo", "fq_codel"]);
  assert.deepEqual(distinct(["pie-loss=1e-3", "pie-loss=1e-4"]), ["loss=1e-3", "loss=1e-4"]);
  assert.deepEqual(distinct(["x=-1-codel", "x=1-codel"]), ["x=-1", "x=1"]);
  // One name, and names of different forms, stay.
  assert.deepEqual(distinct(["a-b"]), ["a-b"]);
  assert.deepEqual(distinct(["a-b", "a"]), ["a-b", "a"]);
  assert.equal(shortened("target=160ms", 7), "tar…0ms");
  // A comma and a blank are one separator, which stays between what it separates.
  assert.deepEqual(distinct(["fifo, ping", "codel, rr"]), ["fifo, ping", "codel, rr"]);
  assert.deepEqual(distinct(["fifo, ping", "codel, ping"]), ["fifo", "codel"]);
});

test("names that differ are not cut to the same", () => {
  const slow = ["fifo rate=10Mbit/s", "codel rate=10Mbit/s", "fq rate=10Mbit/s"];
  const runs = slow.flatMap((name) => [name, name.replace("10", "40")]);
  const queues = runs.flatMap((name) => [`${name}, ping`, `${name}, rr`]);
  // A cut in the middle of 20 characters hides the rates of `fifo` and `codel`.
  assert.equal(new Set(queues.map((name) => shortened(name, 20))).size, 8);
  const short = shortenedApart(distinct(queues), [20, 40]);
  assert.equal(new Set(short).size, 12);
  assert.ok(short.every((name) => name.length <= 20));
  // No two of their characters tell these three apart, so that they get the larger room.
  const names = ["ab-1-xy", "ab-2-xy", "cb-1-xz"];
  assert.deepEqual(shortenedApart(names, [3, 7]), names);
  assert.deepEqual(shortenedApart(["aaaaaa1bbb", "aaaaaa2bbb"], [3, 4]), ["aa…b", "aa…b"]);
});

test("a call has a score and no round trip", () => {
  const figure = (name: string, value: string) => ({ name, value, doc: "", chart: "" });
  const figures = [figure("ping.p50", "20 ms"), figure("ping.mos", "4.40"), figure("call.mos", "3.91")];
  const pings = ["ping", "call-1", "call-2"].map((name) => ({ name }));
  const run = { pings, figures } as unknown as Run;
  assert.deepEqual(callsOf([run]), ["call-1", "call-2"]);
  assert.equal(scoreOf(run, "call-2"), 3.91);
});

test("requests have round trips and no delay in one direction", () => {
  const figures = ["ping.p50", "ping.up.p50", "dns.p50", "call.up.p50", "call.mos"].map((name) => ({ name }));
  const run = { figures } as unknown as Run;
  const names = ["ping", "dns", "dns-2", "call", "lost"];
  const found = names.filter((name) => isExchange([run], name));
  assert.deepEqual(found, ["dns", "dns-2"]);
});

test("one expectation is not called several", () => {
  assert.equal(outcome(0, 1), "The expectation of the scenario was met.");
  assert.equal(outcome(1, 1), "The expectation of the scenario was not met.");
  assert.equal(outcome(0, 3), "All 3 expectations of the scenario were met.");
  assert.equal(outcome(1, 3), "1 of 3 expectations of the scenario was not met.");
  assert.equal(outcome(2, 3), "2 of 3 expectations of the scenario were not met.");
});

test("what was not measured comes last in both orders, and hides no extremes", () => {
  // 1000 flows of which every 50th has no round-trip time: 20 of them.
  const flows = Array.from({ length: 1000 }, (_, at) => (at % 50 === 0 ? null : at));
  const isMeasured = (flow: number | null) => flow !== null;
  const of = (flow: number | null) => flow;
  const up = ordered(flows, of, false);
  assert.deepEqual([up[0], up[979], up[980]], [1, 999, null]);
  const down = ordered(flows, of, true);
  assert.deepEqual([down[0], down[979], down[980]], [999, 1, null]);
  assert.deepEqual(ends(up, isMeasured, 4), [
    [1, 2],
    [998, 999],
  ]);
  assert.deepEqual(ends(down, isMeasured, 4), [
    [999, 998],
    [2, 1],
  ]);
  // Of few that are measured, all are shown, and each once.
  assert.deepEqual(ends([1, 2, 3, null, null, null], isMeasured, 4), [
    [1, 2],
    [3, null],
  ]);
  assert.deepEqual(ends([1, null], isMeasured, 4), [[1, null], []]);
});

test("a tooltip of many lines has the one under the pointer", () => {
  const lines = ["a", "b", "c", "d", "e"];
  assert.deepEqual(fitting(lines, 4, 3), { shown: ["a", "b", "e"], more: 2 });
  assert.deepEqual(fitting(lines, 3, 3), { shown: ["a", "b", "d"], more: 2 });
  assert.deepEqual(fitting(lines, 1, 3), { shown: ["a", "b", "c"], more: 2 });
  assert.deepEqual(fitting(lines, -1, 3), { shown: ["a", "b", "c"], more: 2 });
  assert.deepEqual(fitting(lines, 4, 5), { shown: lines, more: 0 });
});

test("a tooltip is beside the pointer and within the window", () => {
  // A plot of 600 that begins 50 from the left edge of a window of 700.
  const room: [number, number] = [-50, 650];
  assert.equal(besidePointer(100, 200, 600, room), 124);
  assert.equal(besidePointer(500, 200, 600, room), 276);
  // 500 - 24 - 700 would be outside, and 100 + 24 + 540 as well.
  assert.equal(besidePointer(500, 700, 600, room), -50);
  assert.equal(besidePointer(100, 540, 600, room), 110);
  // Wider than the window: its beginning is shown.
  assert.equal(besidePointer(100, 900, 600, room), -50);
});

test("labels of ticks do not touch", () => {
  // Each label takes 20 and a gap of 6, so of ticks 10 apart every third one stays.
  const ticks = [0, 1, 2, 3, 4, 5, 6];
  assert.deepEqual(
    apart(
      ticks,
      (tick) => tick * 10,
      () => 20,
    ),
    [0, 3, 6],
  );
});

test("a distribution counts equal samples once and leaves out gaps", () => {
  const cdf = empiricalCdf([3, null, 1, 3, 2]);
  assert.deepEqual(cdf, { count: 4, value: [1, 2, 3], fraction: [0.25, 0.5, 1] });
  assert.equal(shareAtMost(cdf, 0.9), 0);
  assert.equal(shareAtMost(cdf, 2.5), 0.5);
  assert.equal(shareAtMost(cdf, 3), 1);
  // Nearest rank: of four samples the second is the median, the fourth the 99th percentile.
  assert.equal(quantile(cdf, 0.5), 2);
  assert.equal(quantile(cdf, 0.99), 3);
  assert.equal(quantile(empiricalCdf([null]), 0.5), null);
});

test("the axis of a distribution is never reversed", () => {
  assert.deepEqual(rangeOf([12, 100], "tail"), [10, 120]);
  assert.deepEqual(rangeOf([0, 100], "linear"), [0, 102]);
  // All are below the floor of a logarithmic axis.
  const [from, to] = rangeOf([0.0002, 0.0005], "log");
  assert.ok(from === 0.001 && to > from, `${from} to ${to}`);
  assert.deepEqual(rangeOf([0], "log"), [0.001, 1]);
});

test("the tail of a distribution ends at its largest value", () => {
  // One of four is 500: above 100 and up to 500, there is a quarter.
  const tail = corners(empiricalCdf([20, 50, 100, 500]), "tail");
  assert.deepEqual(tail, { value: [0.001, 20, 50, 100, 500], share: [1, 0.75, 0.5, 0.25, 0.25] });
  assert.deepEqual(corners(empiricalCdf([20, 20]), "tail"), { value: [0.001, 20], share: [1, 1] });
  // Below the floor of the axis, there is one step.
  assert.deepEqual(corners(empiricalCdf([0, 0.0005, 3]), "log"), { value: [0.001, 3], share: [2 / 3, 1] });
  assert.deepEqual(corners(empiricalCdf([20, 50]), "linear"), { value: [0, 20, 50], share: [0, 0.5, 1] });
});

const series = (time_s: number[], value: (number | null)[]) => ({ time_s, value, thinned_from: null });

test("the distribution of a ping leaves the warm-up out", () => {
  const ping = { measured_from_s: 1 } as Ping;
  const cdf = delayCdf(ping, series([0, 0.5, 1, 1.5, 2], [900, 800, 20, null, 30]));
  assert.deepEqual(cdf, { count: 2, value: [20, 30], fraction: [0.5, 1] });
});

test("flows are summed on the grid, also when one starts later or has a gap", () => {
  const sum = sumSeries([series([0.2, 0.4, 0.6], [1, 2, null]), series([0.4000001, 0.6], [10, 20])], 0.2);
  assert.deepEqual(sum.value, [1, 12, 20]);
  assert.deepEqual(
    sum.time_s.map((time) => Number(time.toFixed(6))),
    [0.2, 0.4, 0.6],
  );
});

test("flows that start half a step apart share every slot of their sum", () => {
  // 1.05 / 0.1 = 10.500000000000002 and 1.15 / 0.1 = 11.499999999999998 are both slot 11.
  const flow = (start: number) => {
    const times = Array.from({ length: 40 }, (_, k) => start + 0.1 * k);
    return series(
      times,
      times.map(() => 2.5),
    );
  };
  const sum = sumSeries([0.5, 0.55, 0.6, 0.65].map(flow), 0.1);
  const middle = sum.value.filter((_, at) => {
    const time = sum.time_s[at] as number;
    return time >= 0.75 && time < 4.35;
  });
  assert.deepEqual(middle, Array(36).fill(10));
});

test("the sum of flows whose curves were thinned is that of all their values", () => {
  const flow = (time_s: number[]) => ({
    direction: "up",
    goodput_mbps: { ...series(time_s, [5, 5]), thinned_from: 3 },
  });
  const run = {
    name: "fifo",
    look: 0,
    goodput_step_s: 1,
    flows: [flow([1, 2]), flow([2, 3])],
    crowds: [],
    sums: [{ direction: "up", mbps: series([1, 2, 3], [10, 10, 10]) }],
  };
  const of = (sums: typeof run.sums) =>
    new FlowLines({ runs: [{ ...run, sums }] } as unknown as Report, 3).sums("up")[0]?.value;
  assert.deepEqual(of(run.sums), [10, 10, 10]);
  assert.deepEqual(of([]), [5, 10, 5]);
});

test("a goodput above the rate of the link is explained by losses only if there were some", () => {
  const run = (name: string, goodput: number, drops: number) => ({
    name,
    drops,
    flows: [],
    crowds: [],
    queues: [{ direction: "up", link_mbps: series([0], [10]) }],
    sums: [{ direction: "up", mbps: series([1, 2], [9, goodput]) }],
  });
  const above = (...runs: ReturnType<typeof run>[]) => {
    const found = new FlowLines({ runs } as unknown as Report, 2).aboveLink("up");
    return [found.map(({ name }) => name).join(), aboveLink(found)];
  };
  // Half a per cent above the rate of 10 is 10.05.
  assert.deepEqual(above(run("a", 10.04, 3), run("b", 9, 3)), ["", ""]);
  const [lossy, copies] = above(run("a", 12, 3), run("b", 9, 0));
  assert.equal(lossy, "a");
  assert.match(copies ?? "", /^Goodput above the rate of the link: .* lost packet's copy/);
  const [clean, packets] = above(run("a", 9, 3), run("b", 12, 0));
  assert.equal(clean, "b");
  assert.match(packets ?? "", /^Goodput above the rate of the link: it counts whole packets/);
});

test("two runs of one colour have no flow with the same dashes", () => {
  // As of `--backend both`: the eighth look has the colour of the first, and the next of eight patterns.
  const run = (look: number) => {
    const flow = { direction: "up", goodput_mbps: series([1], [5]) };
    return { name: `run ${look}`, look, flows: [flow, flow, flow, flow], crowds: [] };
  };
  const report = { runs: [run(0), run(7)] } as unknown as Report;
  const lines = new FlowLines(report, 1).lines("up", "goodput_mbps", "each");
  const patterns = lines.map(({ variant, flow }) => (Math.floor((variant ?? 0) / 7) + flow) % 8);
  assert.deepEqual(patterns, [0, 2, 4, 6, 1, 3, 5, 7]);
  assert.equal(rounds([run(6)] as unknown as Run[]), 1);
});

test("a rate holds until the next, and to the end", () => {
  const { time, value } = staircase(series([0, 5], [10, 1]), 8);
  assert.deepEqual(value, [10, 10, 1, 1]);
  assert.deepEqual(
    time.map((at) => Number(at.toFixed(6))),
    [0, 5, 5, 8],
  );
  assert.ok(time.every((at, k) => k === 0 || at > (time[k - 1] as number)));
});

test("a value between gaps is found, at the ends too", () => {
  assert.deepEqual(isolated([1, null, 2, 3, null, 4]), [0, 5]);
  assert.deepEqual(isolated([null, 0, null]), [1]);
  assert.deepEqual(isolated([1, 2]), []);
});

test("numbers keep three significant digits and choose their unit", () => {
  assert.equal(plain(0.01234), "0.0123");
  assert.equal(plain(9.999), "10.0");
  assert.equal(plain(12345), "12\u202f345");
  assert.equal(milliseconds(0.0205), "20.5\u00a0µs");
  assert.equal(milliseconds(20.71), "20.7\u00a0ms");
  assert.equal(milliseconds(1075.9), "1.08\u00a0s");
  assert.equal(milliseconds(999.7), "1.00\u00a0s");
  assert.equal(megabits(9.5532), "9.55\u00a0Mbit/s");
  assert.equal(megabits(0.5), "500\u00a0kbit/s");
  assert.equal(megabits(12_500), "12.5\u00a0Gbit/s");
  assert.equal(bytes(18_168), "18.2\u00a0kB");
  assert.equal(whole(1234567), "1\u202f234\u202f567");
  assert.equal(enumerate(["a", "b", "c"]), "a, b and c");
});

test("only all is 100 per cent, and only nothing is 0", () => {
  assert.equal(percent(1), "100\u00a0%");
  assert.equal(percent(0), "0\u00a0%");
  assert.equal(percent(0.99999), "99.999\u00a0%");
  assert.equal(percent(0.9999999), "99.9999\u00a0%");
  assert.equal(percent(0.998), "99.8\u00a0%");
  // Rounded, but never up to 100 %.
  assert.equal(percent(0.99784), "99.8\u00a0%");
  assert.equal(percent(0.9997), "99.97\u00a0%");
  assert.equal(percent(0.00154), "0.154\u00a0%");
  assert.equal(percent(1e-9), "1.00e-7\u00a0%");
});

test("one idle queue does not take the logarithmic axis from the others", () => {
  // 400 ms are 200 times 2 ms.
  assert.equal(isFarApart([400, 8, 2], [400, 8, 2]), true);
  assert.equal(isFarApart([400, 8, 2, 0], [400, 8, 2, 0]), true);
  // 20 times is the limit.
  assert.equal(isFarApart([40, 2, 0], [40, 2, 0]), false);
  assert.equal(isFarApart([0, 0, 5], [0]), false);
});

test("ticks are round, inside, and there are always some", () => {
  assert.deepEqual(logTicks(17.5, 1070), [20, 50, 100, 200, 500, 1000]);
  assert.deepEqual(logTicks(0.04, 1500), [0.1, 1, 10, 100, 1000]);
  assert.deepEqual(logTicks(20.1, 22.3), [20.5, 21, 21.5, 22]);
  assert.deepEqual(logTicks(0, 10), []);
  assert.deepEqual(linearTicks(0, 1, 5), [0, 0.2, 0.4, 0.6, 0.8, 1]);
});

test("no step makes two ticks look alike or a label lie", () => {
  for (const step of STEPS.filter((candidate) => candidate >= 1e-9)) {
    for (const at of [1, 2, 3, 7]) {
      const label = tickLabel(at * step, step);
      assert.ok(Math.abs(Number(label) - at * step) < step * 1e-6, `${at} * ${step} is written ${label}`);
    }
  }
});

test("facts that all runs share are separated from those that differ", () => {
  const run = (...facts: [string, string][]) =>
    ({ facts: facts.map(([label, value]) => ({ label, value })) }) as unknown as Run;
  const split = splitFacts([
    run(["link", "10 Mbit/s"], ["queue", "fifo"]),
    run(["link", "10 Mbit/s"], ["queue", "codel"], ["kernel", "6.1"]),
  ]);
  assert.deepEqual(split.common, [{ label: "link", value: "10 Mbit/s" }]);
  assert.deepEqual(split.differing, [
    { label: "queue", values: ["fifo", "codel"] },
    { label: "kernel", values: [null, "6.1"] },
  ]);
});

test("a range that is moved beyond an end keeps its width", () => {
  assert.deepEqual(inside([25, 125], [0, 100]), [0, 100], "the whole cannot move");
  assert.deepEqual(inside([60, 110], [0, 100]), [50, 100]);
  assert.deepEqual(inside([-10, 20], [0, 100]), [0, 30]);
  assert.deepEqual(inside([-50, 150], [0, 100]), [0, 100]);
  assert.deepEqual(inside([5, 5], [0, 1e6]), [5, 6], "a millionth");
});

test("zooming stays within the run and moves every member", () => {
  const group = new ChartGroup("t", 0, 10);
  const seen: [number, number][] = [];
  group.join({ setRange: (from, to) => seen.push([from, to]) });
  group.zoom(0.5);
  group.pan(1);
  group.pan(1);
  group.setRange(-5, 50);
  group.setRange(0, 10);
  assert.deepEqual(seen, [
    [2.5, 7.5],
    [5, 10],
    [0, 10],
  ]);
  assert.equal(group.zoomed, false);
});

test("a growing run is followed unless the reader has zoomed", () => {
  const group = new ChartGroup("t", 0, 10);
  group.extend(12);
  assert.deepEqual([group.from, group.to], [0, 12]);
  group.setRange(1, 2);
  group.extend(20);
  assert.deepEqual([group.from, group.to], [1, 2]);
  group.reset();
  assert.deepEqual([group.from, group.to], [0, 20]);
});
