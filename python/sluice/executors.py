"""Executors of sweeps: processes of this machine, and the number of runs in a call."""

import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Protocol

import loky


class Executor(Protocol):
    """An object with the `submit` of `concurrent.futures`, which does the runs."""

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Any:  # noqa: ANN401
        """Start a call and return its future."""


class Processes:
    """Processes of this machine. Each is a pool: one that ends breaks its pool, but no other."""

    def __init__(self, count: int) -> None:
        """Prepare the processes; each starts with its first call."""
        # Unlike the standard library's, loky's processes do not import the caller's script.
        self._pools = [loky.ProcessPoolExecutor(1) for _ in range(count)]
        self._futures: list[list[Future[Any]]] = [[] for _ in range(count)]

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> "Future[Any]":  # noqa: ANN401
        """Start a call in the process with the fewest unfinished calls."""
        for futures in self._futures:
            futures[:] = [future for future in futures if not future.done()]
        at = min(range(len(self._pools)), key=lambda n: len(self._futures[n]))
        try:
            future: Future[Any] = self._pools[at].submit(fn, *args)
        except BrokenProcessPool:
            self._pools[at].shutdown(wait=False)
            self._pools[at] = loky.ProcessPoolExecutor(1)
            future = self._pools[at].submit(fn, *args)
        self._futures[at].append(future)
        return future

    def __enter__(self) -> "Processes":
        """Return the processes."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Wait for the calls; after an error, end the processes."""
        for pool in self._pools:
            if kind is None:
                pool.shutdown()
            else:
                pool.shutdown(wait=False, kill_workers=True)


class Fixed:
    """Calls with a fixed number of runs, of which a limited number are unfinished at a time."""

    #: A worker does all runs of a call.
    most_s = None

    def __init__(self, size: int, calls: int) -> None:
        """Set the number of runs in a call, and the number of unfinished calls."""
        self.size = size
        self._calls = calls

    def order(self, runs: int) -> Iterable[int]:
        """Return the order in which runs are submitted."""
        return range(runs)

    def next(self, waiting: int, calls: int, runs: int) -> int:
        """Return the number of runs in the next call, or 0 as long as none may be submitted.

        `waiting` runs are not submitted yet. `calls` calls with `runs` runs are unfinished.
        """
        return min(self.size, waiting) if calls < self._calls else 0

    def note(self, runs: int, took_s: float) -> None:
        """Ignore the time that a call took."""


class Timed:
    """Calls that take about `CALL_S`, by the time that earlier runs took.

    Dask's client and scheduler handle one call after another, each in about `COST_OF_CALL_S`. If
    calls of `CALL_S` do not keep all threads busy at this pace, calls are longer. The first calls
    have one run each and sample the whole sweep. The last ones become smaller, so that all threads
    end at about the same time.
    """

    def __init__(self, threads: Callable[[], int]) -> None:
        """Ask `threads` for the number of the workers' threads, which may change."""
        self._ask = threads
        self._threads = threads()
        self._asked = time.monotonic()
        #: The mean times of a run in the latest calls.
        self._times: deque[float] = deque(maxlen=2 * PROBES)

    @property
    def call_s(self) -> float:
        """The intended time of a call, in seconds."""
        return max(CALL_S, COST_OF_CALL_S * self._threads)

    @property
    def most_s(self) -> float:
        """The time after which a worker returns a call whose runs take longer than expected."""
        return 2 * self.call_s

    def order(self, runs: int) -> Iterable[int]:
        """Return the order in which runs are submitted: first a sample of all."""
        step = max(1, runs // (PROBES + self._ahead))
        return [*range(0, runs, step), *(at for at in range(runs) if at % step)]

    def next(self, waiting: int, calls: int, runs: int) -> int:
        """Return the number of runs in the next call, or 0 as long as none may be submitted."""
        if time.monotonic() - self._asked > THREADS_EVERY_S:
            self._threads = self._ask()
            self._asked = time.monotonic()
        if len(self._times) < PROBES:
            return 1 if calls < self._ahead else 0
        if runs >= AHEAD and calls >= self._ahead:
            return 0
        by_time = self.call_s / max(statistics.median(self._times), 1e-9)
        share = waiting // self._ahead
        return int(max(1, min(by_time, share, MOST_RUNS)))

    def note(self, runs: int, took_s: float) -> None:
        """Note that a call did `runs` runs in the given time."""
        self._times.append(took_s / runs)

    @property
    def _ahead(self) -> int:
        """The number of unfinished calls that keeps all threads busy: each has a second one."""
        return max(2 * self._threads, PROBES)


# The number of runs submitted to an executor at a time: enough for thousands of cores, in bounded
# memory.
AHEAD = 10_000
# The intended time of a call: 50 times its cost.
CALL_S = 0.15
# The processor time of Dask's client and scheduler for a call is 3 ms (bench/python/measure.py), so
# that they are busy for at most 60 % of the time.
COST_OF_CALL_S = 0.005
# The most runs in a call. More would save less than 1 % of the cost of a call per run.
MOST_RUNS = 100
# The number of runs that are measured before the size of calls is chosen.
PROBES = 8
# The number of threads changes when workers join. It is read no more often than this.
THREADS_EVERY_S = 1.0
