"""Packet queues in user space: build, run, measure and compare them.

>>> import sluice
>>> queue = sluice.Queue("codel target 5ms")
>>> queue.enqueue(0, 1500)
0
>>> queue.dequeue(1_000_000)
(0, 1000000, 0)
"""

from sluice._sluice import Queue, SluiceError, __version__, algorithms
from sluice.aqm import DROP, MARK, PASS, Aqm, Bytes, Rate, Span
from sluice.plot import Plots
from sluice.recording import Recording
from sluice.runs import Report, Run, run
from sluice.scenario import Scenario
from sluice.simulation import QueueView, Simulation
from sluice.sweeps import Sweep, dataset, sweep
from sluice.table import Table

__all__ = [
    "DROP",
    "MARK",
    "PASS",
    "Aqm",
    "Bytes",
    "Plots",
    "Queue",
    "QueueView",
    "Rate",
    "Recording",
    "Report",
    "Run",
    "Scenario",
    "Simulation",
    "SluiceError",
    "Span",
    "Sweep",
    "Table",
    "__version__",
    "algorithms",
    "dataset",
    "run",
    "sweep",
]
