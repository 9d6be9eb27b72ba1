import type { Tradeoff } from "../model.ts";

/**
 * The ellipse of one standard deviation of a Gaussian, as a closed line of delays and goodputs. For a
 * logarithmic axis of delays, it is computed from the logarithms of the delays: a symmetric one would
 * reach below zero. It is cut at zero, since no delay and no goodput is negative.
 */
export function contour(of: Tradeoff, isLog = false, corners = 72): [number, number][] {
  const { mean, deviation, correlation } = isLog ? logMoments(of) : moments(of);
  const across = Math.sqrt(1 - correlation * correlation);
  return Array.from({ length: corners + 1 }, (_, corner) => {
    const angle = (corner / corners) * 2 * Math.PI;
    const delay = mean + deviation * Math.cos(angle);
    const mbps =
      of.mean_goodput_mbps +
      of.goodput_deviation_mbps * (correlation * Math.cos(angle) + across * Math.sin(angle));
    return [Math.max(0, isLog ? 10 ** delay : delay), Math.max(0, mbps)];
  });
}

/** The centre of the ellipse. */
export function middle(of: Tradeoff, isLog: boolean): [number, number] {
  return [isLog ? 10 ** logMoments(of).mean : of.mean_delay_ms, of.mean_goodput_mbps];
}

interface Moments {
  mean: number;
  deviation: number;
  correlation: number;
}

function moments(of: Tradeoff): Moments {
  return { mean: of.mean_delay_ms, deviation: of.delay_deviation_ms, correlation: of.correlation };
}

/** Moments of the logarithms of the delays, with n - 1 like those of the model. */
function logMoments(of: Tradeoff): Moments {
  const logs = of.delay_ms.map((delay) => Math.log10(Math.max(delay, 1e-3)));
  const mean = logs.reduce((sum, log) => sum + log, 0) / logs.length;
  let [square, product] = [0, 0];
  for (const [at, log] of logs.entries()) {
    square += (log - mean) ** 2;
    product += (log - mean) * ((of.goodput_mbps[at] as number) - of.mean_goodput_mbps);
  }
  const deviation = Math.sqrt(square / (logs.length - 1));
  const both = deviation * of.goodput_deviation_mbps * (logs.length - 1);
  const correlation = both > 0 ? Math.min(1, Math.max(-1, product / both)) : 0;
  return { mean, deviation, correlation };
}
