"""Algorithms in Python: name a subclass of `Aqm`, `Rank` or `Discipline` as a queue.

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

import ast
import sys
import types
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args, get_origin, get_type_hints

from sluice._sluice import (
    BacklogView,
    Context,
    Packet,
    PacketView,
    QueueContext,
    SluiceError,
    errors,
    stopped,
)

__all__ = [
    "DROP",
    "MARK",
    "PASS",
    "Aqm",
    "BacklogView",
    "Bytes",
    "Context",
    "Discipline",
    "Packet",
    "PacketView",
    "QueueContext",
    "Rank",
    "Rate",
    "Span",
    "errors",
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
    `sluice.Bytes`, `int`, `float` (exact to 1e-9), `bool` and `Literal["a", "b"]`; no number is
    negative, and each has a default. A string below a parameter describes it. An instance has their
    values as numbers: nanoseconds, bits per second, bytes. Each queue has one instance. The objects
    that a hook gets are valid until it returns.

    A hook that raises, returns no verdict or marks a packet that is not ECN-capable is an error.
    The parameter `on_error`, which every class has, decides what follows: `stop` (the default)
    stops the AQM, whose queue passes every packet from then on; `pass` lets the packet pass and
    goes on; `end` ends the run. The traceback is printed, and the errors are counted and recorded.
    """

    def on_enqueue(self, packet: PacketView, queue: BacklogView, cx: Context) -> int:
        """Decide about an arriving packet: return `PASS`, `MARK` or `DROP`."""
        return PASS

    def on_dequeue(self, packet: PacketView, queue: BacklogView, cx: Context) -> int:
        """Decide about the packet at the head, which has left the queue."""
        return PASS

    def on_refused(self, packet: PacketView, queue: BacklogView, cx: Context) -> None:
        """Note that a full queue refuses a packet without a call of `on_enqueue`."""

    def on_empty(self, cx: Context) -> None:
        """Note that a dequeue found the queue empty."""

    def on_overflow(self, packets: int, cx: Context) -> None:
        """Note that packets were evicted because the queue, or the whole discipline, was full."""

    def on_activate(self, cx: Context) -> None:
        """Note that the flow queue becomes active; its first packet is in it."""

    def on_deactivate(self, cx: Context) -> None:
        """Note that the empty flow queue becomes inactive: no timer until it is active again."""

    def next_timer(self) -> int | None:
        """Return when `on_timer` is to be called, in nanoseconds.

        It is asked once before the first packet, and after each hook that the class defines.
        """
        return None

    def on_timer(self, queue: BacklogView, cx: Context) -> None:
        """Note that the timer expired. The next one must be later."""

    def state(self) -> dict[str, float]:
        """Return the variables that are recorded."""
        return {}


class Rank:
    """A scheduler by ranks: the packet with the lowest rank leaves first, as in `pifo` and `pieo`.

    Parameters are declared as in `Aqm`; each class also has `limit` (packets) and `on_error`
    (`stop` or `end`). Packets that arrive after an error leave last, in the order of their arrival.
    A full queue drops the packet with the highest rank.
    """

    def rank(self, packet: PacketView, cx: Context) -> int | tuple[int, int]:
        """Return the rank of an arriving packet, a number from 0 to 2^64 - 1.

        A pair is a rank and the time in nanoseconds before which the packet must not leave.
        """
        raise NotImplementedError

    def on_enqueue(self, packet: PacketView, rank: int, cx: Context) -> None:
        """Note that the packet was accepted with `rank`."""

    def on_dequeue(self, packet: PacketView, rank: int, cx: Context) -> None:
        """Note that the packet, which had `rank`, leaves."""

    def state(self) -> dict[str, float]:
        """Return the variables that are recorded."""
        return {}


class Discipline:
    """A discipline: holds packets and decides their order.

    Parameters are declared as in `Aqm`; each class also has `limit` (packets; beyond it arriving
    packets are dropped before the class sees them) and `on_error` (`stop` or `end`).

    A packet that the class gets is kept, returned by `dequeue` once, or dropped with `cx.drop`. A
    packet that is forgotten, returned twice or dropped after it has left is an error, as is an
    exception. Then the packets leave in the order of their arrival, and none is lost.
    """

    def enqueue(self, packet: Packet, cx: QueueContext) -> None:
        """Keep an arriving packet, or drop it or another one with `cx.drop`."""
        raise NotImplementedError

    def dequeue(self, cx: QueueContext) -> Packet | None:
        """Return the next packet. It is not called while no packet is held."""
        raise NotImplementedError

    def next_wake(self) -> int | None:
        """Return when `dequeue` may return a packet, in nanoseconds; `None` is at once.

        It is asked after each call. Only a class that defines it may return `None` from `dequeue`
        while it holds packets.
        """
        return None

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

_BASES: tuple[type, ...] = (Aqm, Rank, Discipline)

_Parameter: TypeAlias = tuple[str, str, str, list[str], str]


def _load(path: str, source: bytes, name: str | None) -> tuple[type, str, str, list[_Parameter]]:
    """Execute a file and return its class, what it extends, a line about it, and its parameters."""
    module = types.ModuleType(f"sluice_aqm_{abs(hash(path))}")
    module.__file__ = path
    # Annotations and tracebacks look a module up by its name.
    sys.modules[module.__name__] = module
    exec(compile(source, path, "exec"), module.__dict__)
    found = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, _BASES) and value not in _BASES
    ]
    names = ", ".join(sorted(cls.__name__ for cls in found)) or "none"
    chosen = [cls for cls in found if name in (None, cls.__name__)]
    if len(chosen) != 1:
        bases = "sluice.Aqm, sluice.Rank or sluice.Discipline"
        wanted = f"no subclass of {bases} is called {name!r}" if name else "it must be named"
        raise SluiceError(f"{wanted}: the file has {names}")
    cls = chosen[0]
    base = next(base for base in _BASES if issubclass(cls, base))
    own = {hook for hook in vars(base) if getattr(cls, hook) is not getattr(base, hook)}
    if base is Aqm and not own & {"on_enqueue", "on_dequeue"}:
        raise SluiceError(f"{cls.__name__} defines neither `on_enqueue` nor `on_dequeue`")
    for hook in _NEEDED.get(base, ()):
        if hook not in own:
            raise SluiceError(f"{cls.__name__} does not define `{hook}`")
    docs = _documented(source, cls.__name__)
    parameters = [
        _parameter(cls, word, annotation, docs.get(word, ""))
        for word, annotation in get_type_hints(cls).items()
    ]
    text = (cls.__doc__ or "").strip()
    about = text.splitlines()[0].rstrip(".") if text else cls.__name__
    return cls, base.__name__, about, parameters


_NEEDED: dict[type, tuple[str, ...]] = {Rank: ("rank",), Discipline: ("enqueue", "dequeue")}


def _parameter(cls: type, word: str, annotation: Any, doc: str) -> _Parameter:  # noqa: ANN401
    words = list(get_args(annotation)) if get_origin(annotation) is Literal else []
    is_choice = bool(words) and all(isinstance(item, str) for item in words)
    kind = "choice" if is_choice else _KINDS.get(annotation)
    if kind is None:
        allowed = "sluice.Span, sluice.Rate, sluice.Bytes, int, float, bool, Literal of strings"
        raise SluiceError(f"`{word}` is annotated with {annotation!r}, none of {allowed}")
    if not hasattr(cls, word):
        raise SluiceError(f"`{word}` has no default")
    default = str(getattr(cls, word))
    return word, kind, default.lower() if kind == "flag" else default, words, doc


def _documented(source: bytes, name: str) -> dict[str, str]:
    """Return the strings below the annotated variables of a class, in one line each."""
    docs = {}
    classes = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    for body in (node.body for node in classes if node.name == name):
        for node, below in pairwise(body):
            match node, below:
                case (
                    ast.AnnAssign(target=ast.Name(id=word)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    docs[word] = " ".join(text.split()).rstrip(".")
    return docs
