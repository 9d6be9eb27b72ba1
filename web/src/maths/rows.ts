/** Rows of a tooltip; it says how many more there are. */
const MOST_ROWS = 14;

/** At most `most` of the items, the one at `focused` among them, and the number of the others. */
export function fitting<T>(items: T[], focused: number, most = MOST_ROWS): { shown: T[]; more: number } {
  const shown = items.slice(0, most);
  const pointed = items[focused];
  if (focused >= most && pointed !== undefined) shown[most - 1] = pointed;
  return { shown, more: items.length - shown.length };
}
