/**
 * Colours. Variants take the Okabe-Ito palette, which stays distinct under the common kinds of
 * colour blindness, darkened or lightened for the background. From the eighth variant on, the
 * colours repeat in a darker shade, for dots and bars, and with dashed lines. Each run has its number (`look`), so that it keeps its colour
 * when only some runs are drawn.
 */
import { SHADES, shaded } from "./maths/colour.ts";
import { PALETTE } from "./model.ts";

const LIGHT = PALETTE;
const DARK = ["#56b4e9", "#ff8b3d", "#2fc79b", "#e79ac5", "#f0b429", "#9fd3f5", "#bdbdbd"];
const DASHES: (number[] | undefined)[] = [
  undefined,
  [8, 4],
  [2, 3],
  [10, 3, 2, 3],
  [5, 2],
  [2, 8],
  [20, 8],
  [8, 10],
];

export interface Ink {
  text: string;
  muted: string;
  grid: string;
  paper: string;
}

const INK = {
  light: { text: "#1b1f24", muted: "#5b646e", grid: "#e3e7eb", paper: "#ffffff" },
  dark: { text: "#e6e9ec", muted: "#9aa4ae", grid: "#2d343c", paper: "#161b20" },
} satisfies Record<string, Ink>;

const darkQuery = matchMedia("(prefers-color-scheme: dark)");
let printing = false;
const watchers: (() => void)[] = [];

function isDark(): boolean {
  return darkQuery.matches && !printing;
}

export function ink(): Ink {
  return isDark() ? INK.dark : INK.light;
}

export function variantColor(index: number): string {
  return shaded(isDark() ? DARK : LIGHT, index);
}

/** Dash pattern of a line, by how often the palette has repeated and by the position of the flow. */
export function dashes(variant: number, flow = 0): number[] | undefined {
  return DASHES[(Math.floor(variant / LIGHT.length) + flow) % DASHES.length];
}

/** CSS custom property of a variant's colour, for the parts that are not drawn on a canvas. */
export function variantVariable(index: number): string {
  return `var(--variant-${index % (LIGHT.length * SHADES)})`;
}

/** Calls back when the colours change: after a change of the system setting, and for printing. */
export function onThemeChange(callback: () => void): void {
  watchers.push(callback);
}

function notify(): void {
  for (const watcher of watchers) watcher();
}

function setVariables(): void {
  const style = document.documentElement.style;
  for (let index = 0; index < LIGHT.length * SHADES; index += 1)
    style.setProperty(`--variant-${index}`, variantColor(index));
}

export function watchTheme(): void {
  setVariables();
  onThemeChange(setVariables);
  darkQuery.addEventListener("change", notify);
  addEventListener("beforeprint", () => {
    printing = true;
    notify();
  });
  addEventListener("afterprint", () => {
    printing = false;
    notify();
  });
}

export function isPrinting(): boolean {
  return printing;
}
