/** The kind of an axis. */

/** An axis is logarithmic if the largest value is more than this factor above the least median. */
const LOG_BEYOND = 20;

/**
 * Whether an axis of values, none below zero, is logarithmic. Medians that are zero do not count, such as that
 * of an idle queue: zeros have a place of their own, left of a logarithmic axis.
 */
export function isFarApart(values: number[], medians: number[]): boolean {
  return Math.max(...values) > LOG_BEYOND * Math.min(...medians.filter((median) => median > 0));
}
