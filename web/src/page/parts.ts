/** Parts that both pages share. */
import { type Child, h } from "../dom.ts";
import type { Judgement } from "../model.ts";

/** Number of columns that fit on paper in the usual size. */
const MOST_COLUMNS = 6;

/** A table whose first column names the rows; wide ones scroll. */
export function table(head: Child[], rows: Child[][]): HTMLElement {
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "group" },
    h(
      "table",
      // On paper, tables of many columns have smaller text.
      { class: head.length > MOST_COLUMNS ? "many" : undefined },
      h("thead", {}, h("tr", {}, ...head.map((cell) => h("th", { scope: "col" }, cell)))),
      h(
        "tbody",
        {},
        ...rows.map(([name, ...cells]) =>
          h("tr", {}, h("th", { scope: "row" }, name ?? ""), ...cells.map((cell) => h("td", {}, cell))),
        ),
      ),
    ),
  );
}

/** Groups items whose judgements are equal, in the order of the first of each. */
export function alike<T extends { judgement: Judgement }>(items: T[]): [Judgement, ...T[]][] {
  const groups = new Map<string, [Judgement, ...T[]]>();
  for (const item of items) {
    const key = JSON.stringify(item.judgement);
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [item.judgement, item]);
    else group.push(item);
  }
  return [...groups.values()];
}

/** "**best for calls**. The lowest delay of all: 95 % of pings within 20 ms." */
export function sentence({ outcome, is_best, why }: Judgement): Child[] {
  if (outcome === "") return [`${why}.`];
  const lead = is_best ? h("strong", {}, outcome) : outcome;
  return [lead, `. ${why.charAt(0).toUpperCase()}${why.slice(1)}.`];
}

/** Shows the parts of a message between backticks as code. */
export function withCode(message: string): Child[] {
  return message.split("`").map((part, at) => (at % 2 === 1 ? h("code", {}, part) : part));
}

/** "1 run", "2 runs". */
export function count(n: number, what: string): string {
  return n === 1 ? `1 ${what}` : `${n} ${what}s`;
}

/** Separates names by commas, and the last one by "and". */
export function enumerated(names: Child[]): Child[] {
  return names.flatMap((name, at) => {
    if (at === 0) return [name];
    return [at === names.length - 1 ? " and " : ", ", name];
  });
}
