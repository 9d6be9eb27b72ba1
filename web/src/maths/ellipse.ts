import type { Tradeoff } from "../model.ts";

/** The ellipse of one standard deviation of a Gaussian: corners of delay and goodput, closed. */
export function contour(of: Tradeoff, corners = 72): [number, number][] {
  const across = Math.sqrt(1 - of.correlation * of.correlation);
  return Array.from({ length: corners + 1 }, (_, corner) => {
    const angle = (corner / corners) * 2 * Math.PI;
    return [
      of.mean_delay_ms + of.delay_deviation_ms * Math.cos(angle),
      of.mean_goodput_mbps +
        of.goodput_deviation_mbps * (of.correlation * Math.cos(angle) + across * Math.sin(angle)),
    ];
  });
}
