/** The flows of directions that have too many to draw each. */
import { h } from "../dom.ts";
import { megabits, milliseconds, percent, whole } from "../maths/format.ts";
import type { CrowdFlow, Report } from "../model.ts";
import { type Column, listing } from "./listing.ts";
import { route } from "./words.ts";

/** Rows that are shown at a time: the first ten and the last ten of the order. */
const MOST_ROWS = 20;

const COLUMNS: Column<CrowdFlow>[] = [
  { head: "Goodput", of: ({ figures }) => figures.goodput_mbps, say: megabits },
  { head: "Sent again", of: ({ figures }) => figures.retransmits, say: whole },
  { head: "RTT p50", of: ({ figures }) => figures.rtt_p50_ms, say: milliseconds },
  { head: "RTT p99", of: ({ figures }) => figures.rtt_p99_ms, say: milliseconds },
  { head: "Loss", of: ({ figures }) => figures.loss, say: percent },
];

/** A table for each crowd. */
export function crowds({ runs, ends }: Report): HTMLElement[] {
  return runs.flatMap((run) =>
    run.crowds.map((crowd, at) => {
      const { flows } = crowd;
      const of = (flow: CrowdFlow) => flow.figures.goodput_mbps ?? 0;
      const { search, table } = listing({
        head: "Flow",
        // The fastest and the slowest come first.
        items: [...flows].sort((a, b) => of(b) - of(a)),
        columns: COLUMNS.filter((column) => flows.some((flow) => column.of(flow) !== null)),
        name: ({ name }) => name,
        example: `for example ${flows[0]?.name ?? ""}`,
        most: MOST_ROWS,
      });
      const ofRun = runs.length > 1 ? ` of ${run.name}` : "";
      return h(
        "section",
        { class: "card", id: at === 0 ? `flows-${run.look}` : undefined },
        h("h2", {}, `${whole(flows.length)} flows${ofRun}, ${route(crowd.direction, ends)}`),
        search,
        h(
          "p",
          { class: "note screen" },
          "Click a heading to sort. The first ten and the last ten of the order are shown.",
        ),
        table,
      );
    }),
  );
}
