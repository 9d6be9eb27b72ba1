"""Algorithms in Python: subclasses of `Aqm`, `Rank` or `Discipline` that can be named as queues.

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
import importlib
import os
import sys
import threading
import types
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
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
    # A default is a string, but an instance holds a number, so type checkers see `Any`.
    Span: TypeAlias = Any
    Rate: TypeAlias = Any
    Bytes: TypeAlias = Any
else:

    class Span(int):
        """A span of time in nanoseconds; its default is a string such as `"50ms"`."""

    class Rate(int):
        """A rate in bits per second; its default is a string such as `"10Mbit/s"`."""

    class Bytes(int):
        """A number of bytes; its default is a string such as `"1514"`, or a number."""


class Aqm:
    """An AQM: decides whether a packet passes, is marked or is dropped.

    Annotated class variables are parameters. Their types are `sluice.Span`, `sluice.Rate`,
    `sluice.Bytes`, `int`, `float`, `bool` and `Literal["a", "b"]`. A `float` has nine decimals; a
    number that this changes by more than a thousandth is refused, and needs a larger unit. Numbers
    are not negative, and each parameter has a default. A string below a parameter describes it. An
    instance holds the values as numbers, also in `__init__`: nanoseconds, bits per second, bytes.
    `__init__` must not change them. Each queue has one instance. Others are created to check the
    class and its parameters; they get no packets, so `__init__` should have no effects elsewhere.
    The objects that a hook receives are valid until it returns.

    An exception in a hook, an invalid verdict, and a mark of a packet that is not ECN-capable are
    errors.
    The parameter `on_error`, which every class has, selects the reaction: `stop` (the default)
    stops the AQM, and its queue passes every packet from then on; `pass` lets this packet pass and
    continues; `end` ends the run. The traceback is printed, and the errors are counted and
    recorded.
    """

    def on_enqueue(self, packet: PacketView, queue: BacklogView, cx: Context) -> int:
        """Return the verdict on an arriving packet: `PASS`, `MARK` or `DROP`."""
        return PASS

    def on_dequeue(self, packet: PacketView, queue: BacklogView, cx: Context) -> int:
        """Return the verdict on the packet at the head, which has left the queue."""
        return PASS

    def on_refused(self, packet: PacketView, queue: BacklogView, cx: Context) -> None:
        """Handle the refusal of a packet by a full queue, which does not call `on_enqueue`."""

    def on_empty(self, cx: Context) -> None:
        """Handle a dequeue that found the queue empty."""

    def on_overflow(self, packets: int, cx: Context) -> None:
        """Handle the eviction of packets because the queue, or the whole discipline, was full."""

    def on_activate(self, cx: Context) -> None:
        """Handle the activation of the flow queue, which already holds its first packet."""

    def on_deactivate(self, cx: Context) -> None:
        """Handle the deactivation of the empty flow queue; its timer stops until it is active."""

    def next_timer(self) -> int | None:
        """Return when `on_timer` is to be called, in nanoseconds.

        It is called once before the first packet, and after each hook that the class defines.
        """
        return None

    def on_timer(self, queue: BacklogView, cx: Context) -> None:
        """Handle the expiry of the timer. The next one must be later than now."""

    def state(self) -> dict[str, float]:
        """Return the variables that are recorded."""
        return {}


class Rank:
    """A scheduler with ranks: the packet of the lowest rank leaves first, as in `pifo` and `pieo`.

    Parameters are declared as in `Aqm`; each class also has `limit` (packets) and `on_error`
    (`stop` or `end`). Packets that arrive after an error leave last, in the order of their arrival.
    A full queue drops the packet with the highest rank.
    """

    def rank(self, packet: PacketView, cx: Context) -> int | tuple[int, int]:
        """Return the rank of an arriving packet, a number from 0 to 2^64 - 1.

        A pair is a rank and the earliest departure time in nanoseconds.
        """
        raise NotImplementedError

    def on_enqueue(self, packet: PacketView, rank: int, cx: Context) -> None:
        """Handle the acceptance of a packet with `rank`."""

    def on_dequeue(self, packet: PacketView, rank: int, cx: Context) -> None:
        """Handle the departure of a packet that had `rank`."""

    def state(self) -> dict[str, float]:
        """Return the variables that are recorded."""
        return {}


class Discipline:
    """A discipline: holds packets and decides their order.

    Parameters are declared as in `Aqm`; each class also has `limit` (packets; beyond it arriving
    packets are dropped before the class sees them) and `on_error` (`stop` or `end`).

    The class keeps each packet that it receives until it returns it once from `dequeue` or drops it
    with `cx.drop`. Forgetting a packet, returning it twice, dropping it after it has left, dropping
    or marking that of another queue, and raising an exception are errors. After an error, packets
    leave in the order of their arrival, and none is lost.
    """

    def enqueue(self, packet: Packet, cx: QueueContext) -> None:
        """Keep an arriving packet, or drop it or another one with `cx.drop`."""
        raise NotImplementedError

    def dequeue(self, cx: QueueContext) -> Packet | None:
        """Return the next packet. Called only while packets are held."""
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
    """Execute a file; return its class, the base's name, a one-line summary, and its parameters."""
    with _LOADS:
        return _load_alone(path, source, name)


# Loading changes `sys.path` and `sys.modules`. A file that is executed may load another one.
_LOADS = threading.RLock()


def _load_alone(
    path: str, source: bytes, name: str | None
) -> tuple[type, str, str, list[_Parameter]]:
    module = types.ModuleType(f"sluice_aqm_{abs(hash(path))}")
    module.__file__ = path
    # Annotations and tracebacks look modules up by name.
    sys.modules[module.__name__] = module
    with _beside(path):
        exec(compile(source, path, "exec"), module.__dict__)
    # A class with a second name is one class.
    values = {value: None for value in vars(module).values() if isinstance(value, type)}
    found = [value for value in values if issubclass(value, _BASES) and value not in _BASES]
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
    docs, lines = _written(source, cls.__name__)
    for word in get_type_hints(cls):
        if callable(getattr(base, word, None)):
            raise SluiceError(
                f"{lines.get(word, '')}`{word}` is a method of sluice.{base.__name__}; give the "
                "parameter another name"
            )
    parameters = [
        _parameter(cls, word, annotation, docs.get(word, ""), lines.get(word, ""))
        for word, annotation in get_type_hints(cls).items()
    ]
    text = (cls.__doc__ or "").strip()
    about = text.splitlines()[0].rstrip(".") if text else cls.__name__
    return cls, base.__name__, about, parameters


@contextmanager
def _beside(path: str) -> Iterator[None]:
    """Let imports find the modules beside a file, as in a script, each time in their last state."""
    folder = os.path.dirname(os.path.realpath(path))
    kept = _modules_in(folder)
    for name in kept:
        del sys.modules[name]
    writes = sys.dont_write_bytecode
    # A compiled module does not notice a change within a second.
    sys.dont_write_bytecode = True
    sys.path.insert(0, folder)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(folder)
        sys.dont_write_bytecode = writes
        for name in _modules_in(folder):
            del sys.modules[name]
        sys.modules.update(kept)


def _modules_in(folder: str) -> dict[str, types.ModuleType]:
    """Return the modules and packages of a folder that are imported, with their submodules."""
    tops = set()
    for name, module in sys.modules.items():
        if "." in name or name in ("__main__", "sluice") or name.startswith("sluice_aqm_"):
            continue
        known = getattr(module, "__dict__", {})
        if file := known.get("__file__"):
            home, base = os.path.split(os.path.realpath(file))
            homes = {os.path.dirname(home) if base == "__init__.py" else home}
        else:
            # A package without `__init__.py` has folders only.
            homes = {os.path.dirname(os.path.realpath(p)) for p in known.get("__path__") or ()}
        if folder in homes:
            tops.add(name)
    return {name: m for name, m in sys.modules.items() if name.partition(".")[0] in tops}


_NEEDED: dict[type, tuple[str, ...]] = {Rank: ("rank",), Discipline: ("enqueue", "dequeue")}


def _parameter(
    cls: type,
    word: str,
    annotation: Any,  # noqa: ANN401
    doc: str,
    line: str,
) -> _Parameter:
    words = list(get_args(annotation)) if get_origin(annotation) is Literal else []
    is_choice = bool(words) and all(isinstance(item, str) for item in words)
    for item in words if is_choice else []:
        if len(item.split()) != 1:
            raise SluiceError(f"{line}`{word}` has the choice {item!r}: write it as one word")
    kind = "choice" if is_choice else _KINDS.get(annotation)
    if kind is None:
        allowed = "sluice.Span, sluice.Rate, sluice.Bytes, int, float, bool, Literal of strings"
        given = annotation.__name__ if isinstance(annotation, type) else annotation
        raise SluiceError(f"{line}`{word}` is annotated with `{given}`, none of {allowed}")
    if not hasattr(cls, word):
        raise SluiceError(f"{line}`{word}` has no default: write `{word}: ... = VALUE`")
    value = getattr(cls, word)
    if kind == "span" and not isinstance(value, str):
        raise SluiceError(
            f"{line}the default of `{word}`, {value!r}, has no unit: write a string such as "
            f"{_span_words(value)}"
        )
    # Ratios have no exponent, with which `str` writes small numbers.
    default = f"{Decimal(str(value)):f}" if isinstance(value, float) else str(value)
    return word, kind, default.lower() if kind == "flag" else default, words, doc


def _span_words(value: Any) -> str:  # noqa: ANN401
    """Return the string for a number of nanoseconds, which an instance holds."""
    if not isinstance(value, int):
        return '"5ms"'
    for unit, ns in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if value % ns == 0:
            return f'"{value // ns}{unit}", if it is in nanoseconds'
    return f'"{value}ns", if it is in nanoseconds'


def _written(source: bytes, name: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the string below each annotated variable of a class, and where the variable is."""
    docs, lines = {}, {}
    classes = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    for body in (node.body for node in classes if node.name == name):
        for node, below in pairwise([*body, None]):
            match node, below:
                case (ast.AnnAssign(target=ast.Name(id=word)), _):
                    lines[word] = f"line {node.lineno}: "
                    match below:
                        case ast.Expr(value=ast.Constant(value=str(text))):
                            docs[word] = " ".join(text.split()).rstrip(".")
    return docs, lines
