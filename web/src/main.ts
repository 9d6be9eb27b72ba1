import { h } from "./dom.ts";
import { readEmbedded } from "./embed.ts";
import { Bench } from "./page/bench.ts";
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
    const bench = new Bench(report);
    const sections = [
      header(report),
      verdicts(report),
      expectations(report),
      scenario(report),
      summary(report),
      accuracy(report),
      bench.element,
    ];
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
