/** Creates an element. Text is always inserted as text, so names from a scenario cannot become markup. */
type Attributes = Record<string, string | number | boolean | ((event: Event) => void) | undefined>;
export type Child = Node | string | null;

export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (name === "style") element.style.cssText = String(value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== undefined && value !== false) element.setAttribute(name, String(value));
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** A row of buttons, exactly one of which is pressed. */
export function choice<T extends string>(
  label: string,
  options: { value: T; text: string }[],
  chosen: T,
  onChoose: (value: T) => void,
): HTMLElement {
  const buttons = options.map(({ value, text }) =>
    h("button", { type: "button", "aria-pressed": String(value === chosen), "data-value": value }, text),
  );
  const group = h("div", { class: "choice", role: "group", "aria-label": label }, ...buttons);
  group.addEventListener("click", (event) => {
    const button = (event.target as Element).closest("button");
    const value = options.find((option) => option.value === button?.dataset["value"])?.value;
    if (value === undefined) return;
    for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
    onChoose(value);
  });
  return group;
}

/** A drop-down list, for more options than fit into buttons. */
export function dropdown(
  label: string,
  options: { value: string; text: string }[],
  chosen: string,
  onChoose: (value: string) => void,
): HTMLElement {
  const select = h(
    "select",
    {},
    ...options.map(({ value, text }) => h("option", { value, selected: value === chosen }, text)),
  );
  select.addEventListener("change", () => onChoose(select.value));
  return h("label", { class: "select" }, `${label} `, select);
}

/** A sample of a variant's line, for legends and tables. */
export function swatch(color: string, dash: number[] | undefined): HTMLElement {
  // A drawing, because a dashed border shows only one pattern of dashes.
  const space = "http://www.w3.org/2000/svg";
  const drawing = document.createElementNS(space, "svg");
  drawing.setAttribute("viewBox", "0 0 24 4");
  const line = document.createElementNS(space, "line");
  for (const [name, value] of Object.entries({ x1: 0, x2: 24, y1: 2, y2: 2, "stroke-width": 3 }))
    line.setAttribute(name, String(value));
  line.style.stroke = color;
  if (dash !== undefined) line.setAttribute("stroke-dasharray", dash.join(" "));
  drawing.append(line);
  return h("span", { class: "swatch", "aria-hidden": "true" }, drawing);
}
