/**
 * Many runs: a row for each with its key figures, sorted by any of them, narrowed down by a word, and of
 * which some are picked to be drawn below.
 */
import { h } from "../dom.ts";
import { megabits, milliseconds, whole } from "../maths/format.ts";
import { mainPing, packetsOf } from "../maths/verdict.ts";
import type { Report, Run } from "../model.ts";

/** With more runs than these a page starts with all in a table, and some are drawn. */
export const MOST_DRAWN = 16;
/** So many are picked at first. */
const PICKED_FIRST = 4;

interface Column {
  head: string;
  of: (run: Run) => number | null;
  say: (value: number) => string;
}

const longest = (values: (number | null | undefined)[]): number | null => {
  const known = values.filter((value) => value !== null && value !== undefined);
  return known.length === 0 ? null : Math.max(...known);
};
const goodput = (run: Run, way: string) =>
  run.directions.find((total) => total.direction === way)?.goodput_mbps ?? null;
const count = (run: Run, of: "drops" | "marks") =>
  run.queues.reduce((sum, queue) => sum + packetsOf(queue[of]), 0);

const COLUMNS: Column[] = [
  { head: "goodput up", of: (run) => goodput(run, "up"), say: megabits },
  { head: "goodput down", of: (run) => goodput(run, "down"), say: megabits },
  { head: "Jain", of: (run) => run.directions[0]?.jain ?? null, say: (jain) => jain.toFixed(3) },
  { head: "ping p50", of: (run) => mainPing(run)?.two_way?.p50 ?? null, say: milliseconds },
  { head: "ping p95", of: (run) => mainPing(run)?.two_way?.p95 ?? null, say: milliseconds },
  {
    head: "sojourn p95",
    of: (run) => longest(run.queues.map((queue) => queue.sojourn_ms?.p95)),
    say: milliseconds,
  },
  { head: "drops", of: (run) => count(run, "drops"), say: whole },
  { head: "marks", of: (run) => count(run, "marks"), say: whole },
];

/** The table of all runs, above what `draw` makes of those that are picked. */
export function overview(report: Report, draw: (picked: Report) => HTMLElement[]): HTMLElement[] {
  const { runs } = report;
  const columns = COLUMNS.filter(({ of }) => runs.some((run) => (of(run) ?? 0) > 0));
  const picked = new Set(runs.slice(0, PICKED_FIRST));
  const below = h("div", { id: "picked" });
  const redraw = () => {
    const some = runs.filter((run) => picked.has(run));
    below.replaceChildren(...(some.length === 0 ? [] : draw({ ...report, runs: some })));
  };
  const boxes = new Map<Run, HTMLInputElement>();
  const rows = new Map(runs.map((run) => [run, row(run)]));
  const body = h("tbody", {}, ...rows.values());

  function row(run: Run): HTMLElement {
    const box = h("input", { type: "checkbox", checked: picked.has(run) });
    box.addEventListener("change", () => {
      if (box.checked) picked.add(run);
      else picked.delete(run);
      const isFull = picked.size >= MOST_DRAWN;
      for (const [other, its] of boxes) its.disabled = isFull && !picked.has(other);
      redraw();
    });
    boxes.set(run, box);
    const cells = columns.map(({ of, say }) => {
      const value = of(run);
      return h("td", { class: "number" }, value === null ? "—" : say(value));
    });
    return h("tr", {}, h("th", { scope: "row" }, h("label", {}, box, ` ${run.name}`)), ...cells);
  }

  let sorted = "";
  function sort({ head, of }: Column): void {
    const order = [...runs].sort((a, b) => (of(a) ?? Infinity) - (of(b) ?? Infinity));
    if (sorted === head) order.reverse();
    sorted = sorted === head ? "" : head;
    body.append(...order.map((run) => rows.get(run) as HTMLElement));
  }

  const words = h("input", { type: "search", placeholder: "such as rtt=10ms codel" });
  words.addEventListener("input", () => {
    const wanted = words.value.split(/\s+/).filter((word) => word !== "");
    for (const [run, element] of rows) {
      const has = ` ${run.name} `;
      element.hidden = !wanted.every((word) => has.includes(word));
    }
  });
  redraw();
  const table = h(
    "section",
    { class: "card", id: "overview" },
    h("h2", {}, `All ${runs.length} runs`),
    h("p", {}, h("label", {}, "those whose name has ", words)),
    h(
      "p",
      { class: "note" },
      `A figure's name sorts by it; the runs that are ticked, at most ${MOST_DRAWN}, are drawn below.`,
    ),
    h(
      "div",
      { class: "scroll tall", tabindex: "0", role: "group" },
      h(
        "table",
        {},
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            h("th", { scope: "col" }, "run"),
            ...columns.map((column) =>
              h(
                "th",
                { scope: "col" },
                h("button", { type: "button", click: () => sort(column) }, column.head),
              ),
            ),
          ),
        ),
        body,
      ),
    ),
  );
  return [table, below];
}
