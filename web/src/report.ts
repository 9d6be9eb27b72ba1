/** The page of a report. */
import type { Report } from "./model.ts";
import { Bench } from "./page/bench.ts";
import { crowds } from "./page/crowds.ts";
import { figures } from "./page/figures.ts";
import { MOST_DRAWN, overview } from "./page/overview.ts";
import { summary } from "./page/summary.ts";
import { sweeps } from "./page/sweeps.ts";
import { accuracy, expectations, header, scenario, verdicts } from "./page/top.ts";
import { start } from "./start.ts";

const each = (report: Report) => [
  scenario(report),
  summary(report),
  accuracy(report),
  new Bench(report).element,
  ...crowds(report),
  figures(report),
];

start<Report>((report) =>
  report.runs.length > MOST_DRAWN
    ? [
        header(report),
        sweeps(report),
        expectations(report),
        // Of many runs, only the selected ones are described and drawn.
        ...overview(report, (selected) => [verdicts(selected), ...each(selected)]),
      ]
    : [header(report), verdicts(report), sweeps(report), expectations(report), ...each(report)],
);
