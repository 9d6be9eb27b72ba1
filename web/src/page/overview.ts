/**
 * A table of many runs with their key figures, which can be sorted and filtered. The selected runs are
 * drawn below.
 */
import { h } from "../dom.ts";
import { megabits, milliseconds, plain, whole } from "../maths/format.ts";
import { mainPing } from "../maths/verdict.ts";
import type { Report, Run } from "../model.ts";
import { callsOf, scoreOf } from "./words.ts";

/** With more runs than this, a page starts with a table of all, and only the selected ones are drawn. */
export const MOST_DRAWN = 16;
/** Number of runs that are selected at first. */
const SELECTED_FIRST = 4;

interface Column {
  head: string;
  of: (run: Run) => number | null;
  say: (value: number) => string;
}

/** The lowest mean opinion score of the calls. */
function worstScore(run: Run): number | null {
  const scores = callsOf([run]).flatMap((name) => scoreOf(run, name) ?? []);
  return scores.length === 0 ? null : Math.min(...scores);
}

/** The longest wait in a direction; with several links, that of the slowest. */
const sojourn = (run: Run, way: string): number | null => {
  const queues = run.queues.filter((queue) => queue.direction === way);
  const known = queues.flatMap((queue) => queue.sojourn_ms?.p95 ?? []);
  return known.length === 0 ? null : Math.max(...known);
};
const goodput = (run: Run, way: string) =>
  run.directions.find((total) => total.direction === way)?.goodput_mbps ?? null;

const COLUMNS: Column[] = [
  { head: "Goodput up", of: (run) => goodput(run, "up"), say: megabits },
  { head: "Goodput down", of: (run) => goodput(run, "down"), say: megabits },
  { head: "Jain's index", of: (run) => run.directions[0]?.jain ?? null, say: (jain) => jain.toFixed(3) },
  { head: "Ping p50", of: (run) => mainPing(run)?.two_way?.p50 ?? null, say: milliseconds },
  { head: "Ping p95", of: (run) => mainPing(run)?.two_way?.p95 ?? null, say: milliseconds },
  { head: "MOS, worst call", of: worstScore, say: plain },
  { head: "Sojourn up p95", of: (run) => sojourn(run, "up"), say: milliseconds },
  { head: "Sojourn down p95", of: (run) => sojourn(run, "down"), say: milliseconds },
  { head: "Drops", of: (run) => run.drops, say: whole },
  { head: "Marks", of: (run) => run.marks, say: whole },
];

/** The table of all runs, above what `draw` returns for the selected ones. */
export function overview(report: Report, draw: (selected: Report) => HTMLElement[]): HTMLElement[] {
  const { runs } = report;
  const columns = COLUMNS.filter(({ of }) => runs.some((run) => (of(run) ?? 0) > 0));
  const selected = new Set(runs.slice(0, SELECTED_FIRST));
  const below = h("div", { id: "selected" });
  const redraw = () => {
    const some = runs.filter((run) => selected.has(run));
    below.replaceChildren(...(some.length === 0 ? [] : draw({ ...report, runs: some })));
  };
  const boxes = new Map<Run, HTMLInputElement>();
  const rows = new Map(runs.map((run) => [run, row(run)]));
  const body = h("tbody", {}, ...rows.values());

  function row(run: Run): HTMLElement {
    const box = h("input", { type: "checkbox", checked: selected.has(run) });
    box.addEventListener("change", () => {
      if (box.checked) selected.add(run);
      else selected.delete(run);
      const isFull = selected.size >= MOST_DRAWN;
      for (const [other, its] of boxes) its.disabled = isFull && !selected.has(other);
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

  const words = h("input", { type: "search", placeholder: "for example rtt=10ms codel", size: 28 });
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
    h("p", { class: "screen" }, h("label", {}, "Filter by name: ", words)),
    h(
      "p",
      { class: "note screen" },
      `Click a heading to sort. The selected runs, at most ${MOST_DRAWN}, are drawn below.`,
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
            h("th", { scope: "col" }, "Run"),
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
