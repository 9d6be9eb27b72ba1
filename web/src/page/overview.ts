/**
 * A table of many runs with their key figures, which can be sorted and filtered. The selected runs are
 * drawn below.
 */
import { h } from "../dom.ts";
import { megabits, milliseconds, plain, whole } from "../maths/format.ts";
import { mainPing, worstJain } from "../maths/verdict.ts";
import type { Report, Run } from "../model.ts";
import { type Column, listing } from "./listing.ts";
import { callsOf, scoreOf } from "./words.ts";

/** With more runs than this, a page starts with a table of all, and only the selected ones are drawn. */
export const MOST_DRAWN = 16;
/** Number of runs that are selected at first. */
const SELECTED_FIRST = 4;

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

const COLUMNS: Column<Run>[] = [
  { head: "Goodput up", of: (run) => goodput(run, "up"), say: megabits },
  { head: "Goodput down", of: (run) => goodput(run, "down"), say: megabits },
  { head: "Jain's index", of: worstJain, say: (jain) => jain.toFixed(3) },
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
  function label(run: Run): HTMLElement {
    const box = h("input", { type: "checkbox", checked: selected.has(run) });
    box.addEventListener("change", () => {
      if (box.checked) selected.add(run);
      else selected.delete(run);
      const isFull = selected.size >= MOST_DRAWN;
      for (const [other, its] of boxes) its.disabled = isFull && !selected.has(other);
      redraw();
    });
    boxes.set(run, box);
    return h("label", {}, box, ` ${run.name}`);
  }

  const { search, table } = listing({
    head: "Run",
    items: runs,
    columns,
    name: (run) => run.name,
    label,
    example: "for example rtt=10ms codel",
  });
  redraw();
  const section = h(
    "section",
    { class: "card", id: "overview" },
    h("h2", {}, `All ${runs.length} runs`),
    search,
    h(
      "p",
      { class: "note screen" },
      `Click a heading to sort. The selected runs, at most ${MOST_DRAWN}, are drawn below.`,
    ),
    table,
  );
  return [section, below];
}
