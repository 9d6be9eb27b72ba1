"""Packet queues in user space: build, run, measure and compare them.

>>> import sluice
>>> queue = sluice.Queue("codel target 5ms")
>>> queue.enqueue(0, 1500)
0
>>> queue.dequeue(1_000_000)
(0, 1000000, 0)
"""

from sluice._sluice import Queue, __version__, algorithms
from sluice.recording import Recording

__all__ = ["Queue", "Recording", "__version__", "algorithms"]
