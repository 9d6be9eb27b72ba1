/** The figures over the axes of a matrix, which the program has drawn. */
import { h } from "../dom.ts";
import type { Report } from "../model.ts";

export function sweeps({ sweeps }: Report): HTMLElement | null {
  if (sweeps.length === 0) return null;
  const figures = sweeps.map(({ caption, svg }, at) =>
    h(
      "figure",
      { class: "still sweep", id: `sweep-${at}` },
      h("img", { src: `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`, alt: caption }),
      h("figcaption", {}, h("p", { class: "caption" }, caption)),
    ),
  );
  return h(
    "section",
    { id: "sweeps" },
    h("h2", {}, "Over the matrix"),
    h("div", { class: "grid" }, ...figures),
  );
}
