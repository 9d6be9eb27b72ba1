/** A report of one run with a thousand flows up, with synthetic numbers. */
import type { Crowd, QuantileLine, Report, Run } from "../../src/model.ts";
import { sampleReport } from "./report.ts";

const FLOWS = 1000;

/** Flow n has n / 1000 Mbit/s, and so have the quantiles: 950 of the flows are not above 0.95. */
export function sampleCrowd(seconds: number): Report {
  const report = sampleReport(seconds);
  const run = report.runs[2] as Run;
  const time_s = Array.from({ length: seconds + 1 }, (_, at) => at);
  const line = (name: string, share: number, scale: number): QuantileLine => ({
    name,
    series: { time_s, value: time_s.map(() => share * scale), thinned_from: null },
  });
  const lines = (scale: number) => [
    line("largest", 1, scale),
    line("95 %", 0.95, scale),
    line("median", 0.5, scale),
    line("5 %", 0.05, scale),
    line("smallest", 1 / FLOWS, scale),
  ];
  const crowd: Crowd = {
    direction: "up",
    flows: Array.from({ length: FLOWS }, (_, at) => ({
      name: `tcp-${at + 1}`,
      figures: {
        goodput_mbps: (at + 1) / FLOWS,
        retransmits: at % 7,
        rtt_p50_ms: 20 + (at % 10),
        rtt_p99_ms: 30 + (at % 10),
        loss: null,
      },
    })),
    sum_mbps: { time_s, value: time_s.map(() => (FLOWS + 1) / 2), thinned_from: null },
    goodput_mbps: lines(1),
    cwnd_segments: lines(40),
    srtt_ms: lines(50),
  };
  const bulk = run.flows[0] as Run["flows"][number];
  const flows = ["tcp-1000", "tcp-1"].map((name) => ({ ...bulk, name }));
  return { ...report, runs: [{ ...run, repeats: [], repetitions: [], flows, crowds: [crowd] }] };
}
