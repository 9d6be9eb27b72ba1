import { h } from "./dom.ts";
import { readEmbedded } from "./embed.ts";
import type { Report } from "./model.ts";
import { Bench } from "./page/bench.ts";
import { MOST_DRAWN, overview } from "./page/overview.ts";
import { summary } from "./page/summary.ts";
import { accuracy, expectations, header, scenario, verdicts } from "./page/top.ts";
import { watchTheme } from "./theme.ts";

const page = document.getElementById("page");
const embedded = document.getElementById("report")?.textContent ?? "";

async function draw(into: HTMLElement): Promise<void> {
  try {
    const report = await readEmbedded(embedded);
    document.title = report.title;
    watchTheme();
    const each = (report: Report) => [
      scenario(report),
      summary(report),
      accuracy(report),
      new Bench(report).element,
    ];
    // Of many runs those that are picked are told and drawn.
    const sections =
      report.runs.length > MOST_DRAWN
        ? [
            header(report),
            expectations(report),
            ...overview(report, (picked) => [verdicts(picked), ...each(picked)]),
          ]
        : [header(report), verdicts(report), expectations(report), ...each(report)];
    into.replaceChildren(...sections.filter((section) => section !== null));
    into.dataset["state"] = "drawn";
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    into.replaceChildren(h("p", { class: "banner", role: "alert" }, `This report cannot be shown: ${why}`));
    into.dataset["state"] = "failed";
    throw error;
  }
}

if (page !== null) void draw(page);
