"""AQMs in Python: subclass `Aqm` and name it where a queue is named.

>>> import pathlib, tempfile, sluice
>>> folder = tempfile.TemporaryDirectory()
>>> file = pathlib.Path(folder.name, "my_aqm.py")
>>> _ = file.write_text('''
... import sluice
...
... class Bound(sluice.Aqm):
...     "Drops packets that waited too long."
...     bound: sluice.Span = "50ms"
...
...     def on_dequeue(self, packet, queue, cx):
...         return sluice.PASS if packet.sojourn_ns <= self.bound else sluice.DROP
... ''')
>>> queue = sluice.Queue(f"py:{file}:Bound bound 20ms")
>>> number = queue.enqueue(0, 1500)
>>> queue.dequeue(30_000_000) is None
True
>>> queue.take_drops()
[(0, 30000000, 'congestion')]
>>> folder.cleanup()
"""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING, Any, TypeAlias, get_type_hints

from sluice._sluice import BacklogView, Context, PacketView, SluiceError, stopped

__all__ = [
    "DROP",
    "MARK",
    "PASS",
    "Aqm",
    "BacklogView",
    "Bytes",
    "Context",
    "PacketView",
    "Rate",
    "Span",
    "stopped",
]

PASS = 0
"""The packet passes."""
MARK = 1
"""The packet is marked and passes. Only for a packet with `ecn_capable`."""
DROP = 2
"""The packet is dropped."""


if TYPE_CHECKING:
    # A default is a text and an instance has a number: for a type checker they are anything.
    Span: TypeAlias = Any
    Rate: TypeAlias = Any
    Bytes: TypeAlias = Any
else:

    class Span(int):
        """A length of time in nanoseconds; its default is a text such as `"50ms"`."""

    class Rate(int):
        """A rate in bits per second; its default is a text such as `"10Mbit/s"`."""

    class Bytes(int):
        """A number of bytes; its default is a text such as `"1514"`, or a number."""


class Aqm:
    """An AQM: decides whether a packet passes, is marked or is dropped.

    Annotated class variables are parameters. Their types are `sluice.Span`, `sluice.Rate`,
    `sluice.Bytes`, `int`, `float` (exact to 1e-9) and `bool`; none is negative, and each has a
    default. An instance has their values as numbers: nanoseconds, bits per second, bytes. Each
    queue has one instance. The objects that a hook gets are valid until it returns.

    A hook that raises, returns no verdict or marks a packet that is not ECN-capable stops the AQM:
    its queue passes every packet from then on, and the traceback is printed.
    """

    def on_enqueue(self, packet: PacketView, queue: BacklogView, cx: Context) -> int:
        """Decide about an arriving packet: return `PASS`, `MARK` or `DROP`."""
        return PASS

    def on_dequeue(self, packet: PacketView, queue: BacklogView, cx: Context) -> int:
        """Decide about the packet at the head, which has left the queue."""
        return PASS

    def on_empty(self, cx: Context) -> None:
        """Note that a dequeue found the queue empty."""

    def next_timer(self) -> int | None:
        """Return when `on_timer` is to be called, in nanoseconds. It is asked after each hook."""
        return None

    def on_timer(self, queue: BacklogView, cx: Context) -> None:
        """Note that the timer expired. The next one must be later."""

    def state(self) -> dict[str, float]:
        """Return the variables that are recorded."""
        return {}


_KINDS: dict[type, str] = {
    Span: "span",
    Rate: "rate",
    Bytes: "bytes",
    int: "count",
    float: "ratio",
    bool: "flag",
}


def _load(path: str, source: bytes, name: str | None) -> tuple[type[Aqm], str, list[Any]]:
    """Execute a file and return its AQM, a line about it, and its parameters."""
    module = types.ModuleType(f"sluice_aqm_{abs(hash(path))}")
    module.__file__ = path
    # Annotations and tracebacks look a module up by its name.
    sys.modules[module.__name__] = module
    exec(compile(source, path, "exec"), module.__dict__)
    found = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Aqm) and value is not Aqm
    ]
    names = ", ".join(sorted(cls.__name__ for cls in found)) or "none"
    chosen = [cls for cls in found if name in (None, cls.__name__)]
    if len(chosen) != 1:
        wanted = f"no subclass of sluice.Aqm is called {name!r}" if name else "it must be named"
        raise SluiceError(f"{wanted}: the file has {names}")
    cls = chosen[0]
    if cls.on_enqueue is Aqm.on_enqueue and cls.on_dequeue is Aqm.on_dequeue:
        raise SluiceError(f"{cls.__name__} defines neither `on_enqueue` nor `on_dequeue`")
    parameters = []
    for word, annotation in get_type_hints(cls).items():
        kind = _KINDS.get(annotation)
        if kind is None:
            allowed = "sluice.Span, sluice.Rate, sluice.Bytes, int, float, bool"
            raise SluiceError(f"`{word}` is annotated with {annotation!r}, none of {allowed}")
        if not hasattr(cls, word):
            raise SluiceError(f"`{word}` has no default")
        default = getattr(cls, word)
        parameters.append((word, kind, str(default).lower() if kind == "flag" else str(default)))
    text = (cls.__doc__ or "").strip()
    return cls, text.splitlines()[0].rstrip(".") if text else cls.__name__, parameters
