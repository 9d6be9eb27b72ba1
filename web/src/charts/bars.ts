/** Totals side by side: one group per quantity, one bar per variant. Plain elements, so that they print. */
import { h } from "../dom.ts";
import { distinct } from "../maths/names.ts";
import { variantVariable } from "../theme.ts";

export interface Bar {
  label: string;
  variant: number;
  value: number | null;
  text: string;
}

export interface BarGroup {
  title: string;
  bars: Bar[];
}

export class BarChart {
  readonly element = h("div", { class: "bars", "data-chart": "totals" });
  private groups: BarGroup[] = [];
  private isShown: (variant: number) => boolean = () => true;

  setGroups(groups: BarGroup[]): void {
    this.groups = groups;
    this.build();
  }

  show(isShown: (variant: number) => boolean): void {
    this.isShown = isShown;
    this.build();
  }

  private build(): void {
    this.element.replaceChildren(
      ...this.groups.map((group) => {
        const bars = group.bars.filter((bar) => this.isShown(bar.variant));
        const most = bars.reduce((top, bar) => Math.max(top, bar.value ?? 0), 0);
        const names = distinct(bars.map((bar) => bar.label));
        return h(
          "section",
          {},
          h("h4", {}, group.title),
          h("dl", {}, ...bars.flatMap((bar, at) => rowOf(bar, most, names[at] ?? bar.label))),
        );
      }),
    );
  }
}

function rowOf(bar: Bar, most: number, name: string): HTMLElement[] {
  const width = most > 0 && bar.value !== null ? (bar.value / most) * 100 : 0;
  return [
    h("dt", { title: bar.label }, name),
    h(
      "dd",
      {},
      h(
        "span",
        { class: "track" },
        h("span", {
          class: "bar",
          style: `width: ${width}%; min-width: ${width > 0 ? 1 : 0}px; background: ${variantVariable(bar.variant)}`,
        }),
      ),
      h("span", { class: "value" }, bar.text),
    ),
  ];
}
