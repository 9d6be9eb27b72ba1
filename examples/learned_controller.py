"""A queue as a Gymnasium environment: an agent sets the buffer, and observes goodput and delay.

Install Gymnasium beside Sluice (`pip install gymnasium`), then run this file.
"""

from typing import Any

import gymnasium
import numpy as np

import sluice

LIMITS = [10, 40, 160, 640]
LINK = {"rate": "10Mbit/s", "rtt": "40ms"}
SCENARIO = {"duration": "20s", "link": LINK, "flow": [{"type": "tcp", "count": 4}]}


class BufferSize(gymnasium.Env[np.ndarray, np.int64]):
    """Each action is a limit in packets for the next 100 ms; the reward is goodput less delay."""

    action_space = gymnasium.spaces.Discrete(len(LIMITS))
    observation_space = gymnasium.spaces.Box(0.0, np.inf, (2,), np.float64)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:  # noqa: ANN401
        """Start a new run."""
        super().reset(seed=seed)
        self.simulation = sluice.Simulation(SCENARIO, seed=seed or 1)
        return np.zeros(2), {}

    def step(self, action: np.int64) -> Any:  # noqa: ANN401
        """Set the limit, and continue for 100 ms."""
        queue = self.simulation.queue
        before = queue.sent_packets, queue.sent_bytes, queue.sojourn_ns
        self.simulation.set_queue(f"fifo limit {LIMITS[action]}")
        is_over = self.simulation.step(by="100ms")
        packets, sent, sojourn = queue.sent_packets, queue.sent_bytes, queue.sojourn_ns
        goodput = (sent - before[1]) * 8 / 0.1 / self.simulation.rate_bps
        delay_s = (sojourn - before[2]) / max(1, packets - before[0]) / 1e9
        return np.array([goodput, delay_s]), goodput - 10 * delay_s, False, is_over, {}


def main() -> None:
    """Try each limit for a whole run, and print its mean reward."""
    environment = BufferSize()
    for action, limit in enumerate(LIMITS):
        environment.reset(seed=1)
        rewards, is_over = [], False
        while not is_over:
            _, reward, _, is_over, _ = environment.step(np.int64(action))
            rewards.append(reward)
        print(f"limit {limit} packets: mean reward {np.mean(rewards):.3f}")


if __name__ == "__main__":
    main()
