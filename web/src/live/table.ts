/** A table whose rows are exchanged with each sample, while a reader looks at it. */
import { h } from "../dom.ts";

/** What a table shows; the first cell of a row names it. */
export interface Content {
  title: string;
  heads: string[];
  rows: string[][];
}

/** Its elements stay, so that the scroll position and the keyboard focus do, too. */
export class Table {
  private readonly title = h("h2", {});
  private readonly head = h("thead", {});
  private readonly body = h("tbody", {});
  private readonly region = h(
    "div",
    { class: "scroll", tabindex: "0", role: "region" },
    h("table", {}, this.head, this.body),
  );
  readonly element = h("section", { class: "card", hidden: true }, this.title, this.region);

  /** Exchanges the content; without any, the table is hidden. */
  show(content: Content | null): void {
    this.element.hidden = content === null;
    // What is selected stays, to be copied.
    if (content === null || this.hasSelection()) return;
    const { title, heads, rows } = content;
    this.title.textContent = title;
    this.region.setAttribute("aria-label", title);
    this.head.replaceChildren(h("tr", {}, ...heads.map((text) => h("th", { scope: "col" }, text))));
    this.body.replaceChildren(
      ...rows.map(([first = "", ...cells]) =>
        h("tr", {}, h("th", { scope: "row" }, first), ...cells.map((cell) => h("td", {}, cell))),
      ),
    );
  }

  private hasSelection(): boolean {
    const selection = document.getSelection();
    if (selection === null || selection.isCollapsed) return false;
    return this.region.contains(selection.anchorNode) || this.region.contains(selection.focusNode);
  }
}
