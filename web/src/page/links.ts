/** Links to the charts and sections that show figures. */
import { type Child, h } from "../dom.ts";

/** The sections, as opposed to charts, that show figures. */
const SECTIONS = ["accuracy", "summary", "figures"];

/**
 * The id of the chart or section, or of the summary if the page has no such chart, or nothing to draw in it;
 * `null` without a summary. `isDrawn` is whether something is shown under an id.
 */
export function placeOf(chart: string, isDrawn: (id: string) => boolean): string | null {
  const own = SECTIONS.includes(chart) ? chart : `chart-${chart}`;
  return [own, "summary"].find(isDrawn) ?? null;
}

/** A link to the chart or section that shows a figure. */
export function linkTo(chart: string, title: string | undefined, ...children: Child[]): HTMLElement {
  const link = h("a", { title }, ...children);
  const settle = () => {
    const place = placeOf(chart, isDrawn);
    if (place === null) link.removeAttribute("href");
    else link.setAttribute("href", `#${place}`);
  };
  // Once the whole page is drawn, and again when a chart may be empty by now.
  queueMicrotask(settle);
  link.addEventListener("click", settle);
  return link;
}

function isDrawn(id: string): boolean {
  const place = document.getElementById(id);
  return place !== null && !place.classList.contains("empty");
}
