/** A table of many items with their figures, which can be sorted and filtered by name. */
import { type Child, h } from "../dom.ts";
import { whole } from "../maths/format.ts";

export interface Column<T> {
  head: string;
  of: (item: T) => number | null;
  say: (value: number) => string;
}

export interface Listing<T> {
  /** What the items are, the heading of the first column. */
  head: string;
  items: T[];
  columns: Column<T>[];
  name: (item: T) => string;
  /** The first cell of a row, if it holds more than the name. */
  label?: (item: T) => Child;
  /** An example of what to search for. */
  example: string;
  /** Of more rows than this, the first half and the last half are shown. */
  most?: number;
}

/** The items in the order of a figure. Those without one come last, also if the largest come first. */
export function ordered<T>(items: T[], of: (item: T) => number | null, isDescending: boolean): T[] {
  const [measured, others]: [{ item: T; value: number }[], T[]] = [[], []];
  for (const item of items) {
    const value = of(item);
    if (value === null) others.push(item);
    else measured.push({ item, value });
  }
  const sign = isDescending ? -1 : 1;
  measured.sort((a, b) => sign * (a.value - b.value));
  return [...measured.map(({ item }) => item), ...others];
}

/**
 * The first half and the last half of more items than `most`; otherwise all of them, and none. The last
 * half ends with the last that is measured; the others follow it.
 */
export function ends<T>(items: T[], isMeasured: (item: T) => boolean, most: number): [T[], T[]] {
  if (items.length <= most) return [items, []];
  const half = Math.floor(most / 2);
  const last = Math.max(items.filter(isMeasured).length, 2 * half);
  return [items.slice(0, half), items.slice(last - half, last)];
}

/** The box of the search, and the table. */
export function listing<T>(spec: Listing<T>): { search: HTMLElement; table: HTMLElement } {
  const { items, columns, name, most = Number.POSITIVE_INFINITY } = spec;
  const rows = new Map<T, HTMLElement>();
  const body = h("tbody", {});
  let order = items;
  let isMeasured: (item: T) => boolean = () => true;
  let sorted = "";
  let wanted: string[] = [];

  // A row is made when it is first shown.
  function rowOf(item: T): HTMLElement {
    const known = rows.get(item);
    if (known !== undefined) return known;
    const cells = columns.map(({ of, say }) => {
      const value = of(item);
      return h("td", { class: "number" }, value === null ? "—" : say(value));
    });
    const row = h("tr", {}, h("th", { scope: "row" }, spec.label?.(item) ?? name(item)), ...cells);
    rows.set(item, row);
    return row;
  }

  function fill(): void {
    const found = order.filter((item) => wanted.every((word) => ` ${name(item)} `.includes(word)));
    const [first, last] = ends(found, isMeasured, most);
    const more = found.length - first.length - last.length;
    const left = h("td", { class: "left-out", colspan: columns.length + 1 }, `${whole(more)} more`);
    body.replaceChildren(...first.map(rowOf), ...(more > 0 ? [h("tr", {}, left)] : []), ...last.map(rowOf));
  }

  function sort(column: Column<T>): void {
    const { head, of } = column;
    const isDescending = sorted === head;
    order = ordered(items, of, isDescending);
    isMeasured = (item) => of(item) !== null;
    sorted = isDescending ? "" : head;
    for (const [at, cell] of heads.entries()) {
      if (columns[at] !== column) cell.removeAttribute("aria-sort");
      else cell.setAttribute("aria-sort", isDescending ? "descending" : "ascending");
    }
    fill();
  }

  const words = h("input", { type: "search", placeholder: spec.example, size: 28 });
  words.addEventListener("input", () => {
    wanted = words.value.split(/\s+/).filter((word) => word !== "");
    fill();
  });
  fill();
  const heads = columns.map((column) =>
    h("th", { scope: "col" }, h("button", { type: "button", click: () => sort(column) }, column.head)),
  );
  return {
    search: h("p", { class: "screen" }, h("label", {}, "Filter by name: ", words)),
    table: h(
      "div",
      { class: "scroll tall", tabindex: "0", role: "group" },
      h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, spec.head), ...heads)), body),
    ),
  };
}
