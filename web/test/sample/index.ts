/** An index over copies of the sample report. */
import { type Index, type IndexedScenario, type IndexedVariant, type Run, SCHEMA } from "../../src/model.ts";
import { sampleReport } from "./report.ts";

const COLUMNS = 90;

export function sampleIndex(seconds: number): Index {
  const report = sampleReport(seconds);
  const scenario = (title: string, path: string): IndexedScenario => ({
    path,
    title,
    about: "One bulk flow over 10 Mbit/s with a round trip of 20 ms, and a ping beside it.",
    link: `${path}/report.html`,
    duration_s: seconds,
    variants: report.runs.map((run) => variantOf(run, path, seconds)),
  });
  return {
    schema: SCHEMA,
    generated_by: report.generated_by,
    overall: [
      {
        algorithm: "fq_codel",
        sentence:
          "best for calls, games and browsing on a busy link in 4 of 4 comparisons; typically about the lowest " +
          "delay, 99 % of the best goodput",
      },
      {
        algorithm: "fifo",
        sentence:
          "others are better in 4 of 4 comparisons; typically 43 times the lowest delay, 100 % of the best goodput",
      },
    ],
    scenarios: ["First light", "The same <again>", "A third time", "And a fourth one"].map((title, at) =>
      scenario(title, `runs/sample-${at}`),
    ),
  };
}

function variantOf(run: Run, path: string, seconds: number): IndexedVariant {
  const ping = run.pings[0];
  const low: (number | null)[] = Array.from({ length: COLUMNS }, () => null);
  const high = [...low];
  ping?.two_way_ms.value.forEach((value, at) => {
    const column = Math.floor(((ping.two_way_ms.time_s[at] ?? 0) / seconds) * COLUMNS);
    if (value === null || column >= COLUMNS) return;
    low[column] = Math.min(low[column] ?? value, value);
    high[column] = Math.max(high[column] ?? value, value);
  });
  const unmet = run.expectations.filter((expectation) => !expectation.passed);
  const sum = (of: "drops" | "marks") =>
    run.queues.flatMap((queue) => queue[of]).reduce((total, count) => total + count.packets, 0);
  return {
    name: run.name,
    backend: run.backend,
    link: `${path}/${run.name}/report.html`,
    runs: run.name === "codel" ? 3 : 1,
    partial: run.name === "codel" ? "interrupted by Ctrl-C" : null,
    judgement: run.judgement,
    goodput_mbps: run.directions[0]?.goodput_mbps ?? null,
    utilisation: run.queues[0]?.utilisation ?? null,
    delay_of: "pings",
    delay_p50_ms: ping?.two_way?.p50 ?? null,
    delay_p95_ms: ping?.two_way?.p95 ?? null,
    jain: null,
    drops: sum("drops"),
    marks: sum("marks"),
    expectations_met: run.expectations.length - unmet.length,
    expectations_unmet: unmet.map(
      ({ metric, measured, bounds }) =>
        `not met: \`${metric}\` of \`${run.name}\` is ${measured}; expected ${bounds}`,
    ),
    trace: { of: "ping", low, high },
  };
}
