/** Shades of the colours of a palette. */

/** The number of shades of each colour: itself, and a darker one. */
export const SHADES = 2;
/** The brightness of the darker shade. */
const DARKER = 0.65;

/** The colour of an index: from the second round through the palette on, in another shade. */
export function shaded(palette: readonly string[], index: number): string {
  const color = palette[index % palette.length] as string;
  const round = Math.floor(index / palette.length) % SHADES;
  return round === 0 ? color : scaled(color, DARKER);
}

/** A colour, `#rrggbb`, whose parts are multiplied by a factor up to 1. */
function scaled(color: string, factor: number): string {
  const parts = [1, 3, 5].map((at) => Math.round(Number.parseInt(color.slice(at, at + 2), 16) * factor));
  return `#${parts.map((part) => part.toString(16).padStart(2, "0")).join("")}`;
}
