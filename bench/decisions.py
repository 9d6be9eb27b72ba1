"""Measure the cost of a decision in Python, beside a bare call of the method, and in a module.

    maturin develop --release
    python bench/decisions.py [MODULE.wasm]

The packet loop attaches to the interpreter, fills the objects that the method gets, calls it, and
reads the verdict. A bare call is made from Python with the same objects. Both are measured in
turns, so that a slower machine affects both, and in processor time of the thread, because other
programs may run.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

from sluice import _sluice

DECISIONS = 100_000
ROUNDS = 15

BOUND = """
import sluice

KEPT = []

class Bound(sluice.Aqm):
    bound: sluice.Span = "50ms"
    ecn: bool = False

    def __init__(self):
        KEPT[:] = [self]

    def on_dequeue(self, packet, queue, cx):
        if packet.sojourn_ns <= self.bound:
            return sluice.PASS
        return sluice.MARK if self.ecn and packet.ecn_capable else sluice.DROP

class Keep(Bound):
    def on_dequeue(self, packet, queue, cx):
        KEPT[1:] = [packet, queue, cx]
        return sluice.PASS
"""


def bare(decide: object, arguments: tuple[object, ...]) -> float:
    """Return the nanoseconds of a bare call."""
    first, second, third = arguments
    start = time.thread_time_ns()
    for _ in range(DECISIONS):
        decide(first, second, third)  # type: ignore[operator]
    with_loop = time.thread_time_ns() - start
    start = time.thread_time_ns()
    for _ in range(DECISIONS):
        pass
    return (with_loop - (time.thread_time_ns() - start)) / DECISIONS


def decided(words: str) -> float:
    """Return the nanoseconds of a decision."""
    start = time.thread_time_ns()
    _sluice.time_decisions(words, DECISIONS)
    return (time.thread_time_ns() - start) / DECISIONS


def main() -> int:
    """Measure, print, and fail if a decision costs more than it may."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "bound.py")
        file.write_text(BOUND)
        _sluice.time_decisions(f"py:{file}:Keep", 1)
        module = next(m for m in list(sys.modules.values()) if hasattr(m, "KEPT"))
        instance, *arguments = module.KEPT
        own = type(instance).__mro__[1]()
        own.bound = 50_000_000
        words = [f"py:{file}:Bound", *(f"wasm:{path}" for path in sys.argv[1:])]
        rounds: list[list[float]] = []
        for _ in range(ROUNDS):
            times = [decided(word) for word in words]
            rounds.append([bare(own.on_dequeue, tuple(arguments)), *times])
    medians = [statistics.median(column) for column in zip(*rounds, strict=True)]
    call, python = medians[:2]
    print(f"bare method call      {call:7.0f} ns")
    print(
        f"decision in Python    {python:7.0f} ns, {python - call:.0f} ns more, "
        f"{python / call:.1f} times a bare call; bound: 600 ns more"
    )
    for cost in medians[2:]:
        print(f"decision in a module  {cost:7.0f} ns; bound: 300 ns")
    is_met = python - call <= 600 and all(cost <= 300 for cost in medians[2:])
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
