"""Packet queues in user space: build, run, measure and compare them.

>>> import sluice
>>> queue = sluice.Queue("codel target 5ms")
>>> queue.enqueue(0, 1500)
0
>>> queue.dequeue(1_000_000)
(0, 1000000, 0)
"""

from importlib import import_module
from typing import TYPE_CHECKING

from sluice._sluice import Queue, SluiceError, __version__, algorithms

if TYPE_CHECKING:
    from sluice.aqm import DROP, MARK, PASS, Aqm, Bytes, Discipline, Rank, Rate, Span
    from sluice.plot import Plots, SweepPlots
    from sluice.recording import Recording
    from sluice.router import PortStatus, Router, RouterStatus
    from sluice.runs import Report, Run, RunFailed, run
    from sluice.scenario import Scenario
    from sluice.simulation import QueueView, Simulation
    from sluice.sweeps import Sweep, dataset, sweep
    from sluice.table import Table
else:

    def __getattr__(name: str) -> object:
        """Load a part of the package when it is needed."""
        # The command and AQMs in files do not need Arrow, which takes longer to load than a short
        # simulation takes to run.
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module 'sluice' has no attribute {name!r}")
        value = getattr(import_module(f"sluice.{home}"), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        """Return all names, loaded or not."""
        return sorted({*globals(), *_HOMES})


_HOMES = {
    name: home
    for home, names in {
        "aqm": ["DROP", "MARK", "PASS", "Aqm", "Bytes", "Discipline", "Rank", "Rate", "Span"],
        "plot": ["Plots", "SweepPlots"],
        "recording": ["Recording"],
        "router": ["PortStatus", "Router", "RouterStatus"],
        "runs": ["Report", "Run", "RunFailed", "run"],
        "scenario": ["Scenario"],
        "simulation": ["QueueView", "Simulation"],
        "sweeps": ["Sweep", "dataset", "sweep"],
        "table": ["Table"],
    }.items()
    for name in names
}

__all__ = [
    "DROP",
    "MARK",
    "PASS",
    "Aqm",
    "Bytes",
    "Discipline",
    "Plots",
    "PortStatus",
    "Queue",
    "QueueView",
    "Rank",
    "Rate",
    "Recording",
    "Report",
    "Router",
    "RouterStatus",
    "Run",
    "RunFailed",
    "Scenario",
    "Simulation",
    "SluiceError",
    "Span",
    "Sweep",
    "SweepPlots",
    "Table",
    "__version__",
    "algorithms",
    "dataset",
    "run",
    "sweep",
]
