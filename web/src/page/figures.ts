/** All figures of the runs, by the names that `[[expect]]` uses: one row per figure. */
import { h } from "../dom.ts";
import type { Report } from "../model.ts";
import { linkTo } from "./links.ts";
import { table } from "./parts.ts";
import { variantName } from "./top.ts";

export function figures({ runs }: Report): HTMLElement {
  const all = new Map(runs.flatMap((run) => run.figures).map((figure) => [figure.name, figure]));
  const values = runs.map((run) => new Map(run.figures.map(({ name, value }) => [name, value])));
  const rows = [...all.values()].map(({ name, doc, chart }) => [
    linkTo(chart, doc, h("code", {}, name)),
    ...values.map((of) => of.get(name) ?? "—"),
  ]);
  return h(
    "section",
    { class: "card" },
    h("h2", {}, "All figures"),
    h(
      "details",
      {},
      h("summary", {}, `${all.size} figures, each with a link to the chart or section that shows it`),
      // A link to this id opens the details around it.
      h("div", { id: "figures" }, table(["", ...runs.map(variantName)], rows)),
    ),
  );
}
