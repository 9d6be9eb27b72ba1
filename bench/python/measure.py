"""Measure what the Python package adds to runs: alone, and in sweeps of 1000 short runs.

Usage: measure.py [RUNS], in an environment that has `sluice` and `distributed`. It prints the table
of docs/how-to/python-sweeps.md, and fails if the figures of a sweep depend on the executor, or if a
bound is missed. Costs are in processor time, so that other load on the machine has little effect;
whole sweeps are timed by the wall clock.
"""

from __future__ import annotations

import os
import pickle
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from distributed import Client, LocalCluster

import sluice
from sluice import sweeps

# 10 Mbit/s for 1.2 s are 1000 packets of 1500 bytes.
RUN: dict[str, Any] = {
    "duration": "1.2s",
    "measure": {"warmup": "200ms"},
    "link": {"rate": "10Mbit/s", "rtt": "20ms", "queue": "codel"},
    "flow": [{"type": "udp", "name": "cbr", "rate": "9.8Mbit/s", "size": 1472}],
}
MOST_OVERHEAD_MS = 1.0
MOST_FOUND_S = 2.0
MOST_DASK_MS = 5.0


def seconds(work: Callable[[], object]) -> float:
    """Return the time that a call takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def per_run_ms(works: dict[str, Callable[[], object]], times: int) -> dict[str, float]:
    """Return the median cost of each call in milliseconds, after one call that does not count.

    The calls take turns, so that a machine whose speed changes affects all of them equally.
    """
    costs: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(1 + times):
        for name, work in works.items():
            start = time.process_time()
            work()
            costs[name].append(time.process_time() - start)
    return {name: statistics.median(of[1:]) * 1e3 for name, of in costs.items()}


def overhead() -> list[tuple[str, str]]:
    """Compare a run with its simulation, which records nothing."""
    packets = len([row for row in sluice.run(RUN).packets.rows() if row["pipe"] == "up"])
    simulations = [sluice.Simulation(RUN) for _ in range(201)]
    whole, alone = f"a run of {packets} packets", "... its simulation alone"
    works: dict[str, Callable[[], object]] = {
        whole: lambda: sluice.run(RUN, progress=False),
        "... with a progress bar": lambda: sluice.run(RUN),
        "... with its table of packets": lambda: sluice.run(RUN, progress=False).packets,
        alone: lambda: simulations.pop().step(),
        "... reading the scenario": lambda: sluice.Scenario(RUN).one(),
    }
    costs = per_run_ms(works, 200)
    added = costs[whole] - costs[alone]
    assert added < MOST_OVERHEAD_MS, f"{added:.2f} ms"
    return [(name, f"{cost:.2f} ms") for name, cost in costs.items()]


def sizes() -> list[tuple[str, str]]:
    """Measure the bytes that a run sends over the network, and the cost of its plan."""
    plan: list[sweeps.Task] = []
    scenario = sluice.Scenario(RUN)
    took = seconds(lambda: plan.extend(sweeps._plan(scenario, {"link.rtt": ["9ms"]}, 1000, "sim")))
    return [
        ("planning of a run", f"{took / len(plan) * 1e3:.2f} ms"),
        ("a call", f"{len(pickle.dumps(plan[0]))} bytes"),
        ("its result", f"{len(sweeps.carry_out(plan[0]))} bytes"),
    ]


def simulate_once() -> None:
    """Make the worker return the result of its first run for every run."""
    run = sweeps.carry_out
    results: list[bytes] = []

    def carry_out(task: sweeps.Task) -> bytes:
        if not results:
            results.append(run(task))
        return results[0]

    sweeps.carry_out = carry_out


def run_sweep(count: int, **options: Any) -> sluice.Sweep:  # noqa: ANN401
    """Do `count` runs: two queues, with many seeds."""
    over = {"link.queue": ["codel", "pie"]}
    return sluice.sweep(RUN, over, seeds=count // 2, progress=False, **options)


def costs(client: Client) -> tuple[float, float]:
    """Return the processor time of this process, which has the scheduler, and of the workers."""

    def spent() -> float:
        return sum(os.times()[:2])

    return spent(), sum(client.run(spent).values())


def compare(count: int, folder: Path) -> list[tuple[str, str]]:
    """Run one sweep on every executor, and compare the results."""
    lines = []
    alone: sluice.Sweep | None = None

    def note(name: str, **options: Any) -> float:  # noqa: ANN401
        nonlocal alone
        done: list[sluice.Sweep] = []
        took = seconds(lambda: done.append(run_sweep(count, **options)))
        assert set(done[0].runs["status"]) == {"complete"}, name
        alone = alone or done[0]
        assert done[0].figures == alone.figures, f"{name}: other figures"
        lines.append((name, f"{took:.1f} s, {took / count * 1e3:.2f} ms per run"))
        return took

    note(f"{count} runs in 1 process", jobs=1, out=folder)
    note(f"{count} runs in 4 processes", jobs=4)
    found = note(f"{count} runs that are found again", out=folder)
    assert found < MOST_FOUND_S, f"{found:.1f} s"
    options = {"dashboard_address": None, "host": "127.0.0.1", "threads_per_worker": 1}
    for workers in (1, 2):
        with LocalCluster(n_workers=workers, **options) as cluster, Client(cluster) as client:
            run_sweep(2 * workers, executor=client)
            note(f"{count} runs on Dask, {workers} worker(s)", executor=client)
            note("... one run per call", executor=client, batch=1)
    with LocalCluster(n_workers=1, **options) as cluster, Client(cluster) as client:
        client.run(simulate_once)
        for batch, name in (
            (1, "a call of one run"),
            (10, "a run of 10 per call"),
            (None, "a run"),
        ):
            run_sweep(20, executor=client, batch=batch)
            before = costs(client)
            run_sweep(count, executor=client, batch=batch)
            after = costs(client)
            own, worker = ((b - a) / count * 1e3 for a, b in zip(before, after, strict=True))
            lines.append((f"Dask's client and scheduler, for {name}", f"{own:.2f} ms"))
            lines.append((f"Dask's worker, for {name}, without its simulation", f"{worker:.2f} ms"))
    # The last of these sweeps is the default.
    assert own + worker < MOST_DASK_MS, f"{own + worker:.2f} ms"
    return lines


def main() -> None:
    """Print the table."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    with tempfile.TemporaryDirectory() as folder:
        lines = overhead() + sizes() + compare(count, Path(folder))
    print("| measured | value |\n|---|---|")
    for name, value in lines:
        print(f"| {name} | {value} |")


if __name__ == "__main__":
    main()
