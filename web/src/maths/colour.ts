/** Shades of the colours of a palette. */

/** The number of shades of each colour: itself, a darker and a lighter one. */
export const SHADES = 3;
/** The brightness of the darker shade. */
const DARKER = 0.65;
/** The part of the way to white that the lighter shade goes. */
const LIGHTER = 0.45;

/** The colour of an index: from the second round through the palette on, in another shade. */
export function shaded(palette: readonly string[], index: number): string {
  const color = palette[index % palette.length] as string;
  const round = Math.floor(index / palette.length) % SHADES;
  const darker = (part: number) => part * DARKER;
  const lighter = (part: number) => part + (255 - part) * LIGHTER;
  return round === 0 ? color : changed(color, round === 1 ? darker : lighter);
}

/** A colour, `#rrggbb`, with each of its parts changed. */
function changed(color: string, of: (part: number) => number): string {
  const parts = [1, 3, 5].map((at) => Math.round(of(Number.parseInt(color.slice(at, at + 2), 16))));
  return `#${parts.map((part) => part.toString(16).padStart(2, "0")).join("")}`;
}
