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

/** The box of the search, and the table. */
export function listing<T>(spec: Listing<T>): { search: HTMLElement; table: HTMLElement } {
  const { items, columns, name, most = Number.POSITIVE_INFINITY } = spec;
  const rows = new Map<T, HTMLElement>();
  const body = h("tbody", {});
  let order = items;
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
    if (found.length <= most) {
      body.replaceChildren(...found.map(rowOf));
      return;
    }
    const half = Math.floor(most / 2);
    const left = h(
      "td",
      { class: "left-out", colspan: columns.length + 1 },
      `${whole(found.length - 2 * half)} more`,
    );
    body.replaceChildren(
      ...found.slice(0, half).map(rowOf),
      h("tr", {}, left),
      ...found.slice(-half).map(rowOf),
    );
  }

  function sort({ head, of }: Column<T>): void {
    order = [...items].sort((a, b) => (of(a) ?? Infinity) - (of(b) ?? Infinity));
    if (sorted === head) order.reverse();
    sorted = sorted === head ? "" : head;
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
