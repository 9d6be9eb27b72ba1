/** Labels of points that are too near to each other for all labels to be beside their points. */

/** A rectangle: left, top, right and bottom edge. */
export type Box = [left: number, top: number, right: number, bottom: number];

/** The radius of a point, and what is left free around it. */
const POINT = 5;
/** Distances of a label from its point: the first that is free is taken. */
const DISTANCES = [7, 14, 22, 30, 40, 52, 66, 80, 94, 108, 122];
/** Directions in degrees: to the right first, as long as there is room. */
const DIRECTIONS = [0, 180, 270, 90, 315, 45, 225, 135, 202.5, 157.5, 247.5, 112.5];

/** What the title of an upright axis and the gaps beside the labels of its ticks take. */
const TITLE = 25;
/** The usual width of the labels and the title. */
const USUAL_MARGIN = 52;
/** The width of a digit of 12 pixels. */
const DIGIT = 6.7;

/** The width for the labels of an upright axis and its title, which do not touch. */
export function marginOf(labels: string[]): number {
  const longest = Math.max(0, ...labels.map((label) => label.length));
  return Math.max(USUAL_MARGIN, TITLE + longest * DIGIT);
}

/**
 * Returns the boxes of the labels of some points, in their order. None touches another one, a point, or
 * leaves the room, as far as there are places for all.
 */
export function labelBoxes(points: [number, number][], widths: number[], height: number, room: Box): Box[] {
  const marks = points.map(([x, y]): Box => [x - POINT, y - POINT, x + POINT, y + POINT]);
  const placed: Box[] = [];
  for (const [at, [x, y]] of points.entries()) {
    const width = widths[at] ?? 0;
    const candidates = DISTANCES.flatMap((distance) =>
      DIRECTIONS.map((degrees) => boxAt([x, y], [width, height], distance, (degrees * Math.PI) / 180)),
    );
    const isFree = (box: Box) => isWithin(box, room) && ![...marks, ...placed].some((one) => touch(one, box));
    placed.push(candidates.find(isFree) ?? (candidates[0] as Box));
  }
  return placed;
}

/** A box in a direction from a point, whose nearest edge is at a distance. */
function boxAt([x, y]: [number, number], [width, height]: [number, number], far: number, angle: number): Box {
  const [across, down] = [Math.cos(angle), Math.sin(angle)];
  const [cx, cy] = [x + across * (far + width / 2), y + down * (far + height / 2)];
  return [cx - width / 2, cy - height / 2, cx + width / 2, cy + height / 2];
}

function isWithin(box: Box, room: Box): boolean {
  return box[0] >= room[0] && box[1] >= room[1] && box[2] <= room[2] && box[3] <= room[3];
}

function touch(one: Box, other: Box): boolean {
  return one[0] < other[2] && other[0] < one[2] && one[1] < other[3] && other[1] < one[3];
}
