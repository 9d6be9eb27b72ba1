"""Live routers, started in this process or connected to by their sockets."""

import json
import os
import tempfile
import time
import warnings
import weakref
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypedDict

from sluice import _sluice
from sluice._sluice import SluiceError


class PortStatus(TypedDict):
    """A port of a router; docs/router-status.md describes the keys."""

    name: str
    kind: str
    reason: str
    interface: Literal["up", "down", "gone"] | None
    promiscuous: bool | None
    received: int
    received_bytes: int
    sent: int
    sent_bytes: int
    sent_trains: int
    lost: dict[str, int]
    limits: dict[str, int]
    attach_error: str | None
    write_error: str | None


class RouterStatus(TypedDict):
    """The state of a router; docs/router-status.md describes the keys."""

    version: str
    started_unix_ms: int | None
    uptime_ns: int
    ports: list[PortStatus]
    admitted: int
    bypassed: int
    sent: int
    dropped: dict[str, int]
    lost: dict[str, int]
    refused: dict[str, int]
    limits: dict[str, int]
    last_refused: dict[str, str]
    clients_refused: dict[str, int]
    damaged: dict[str, int]
    late_p50_ns: int
    late_p99_ns: int
    commands: int
    is_real_time: bool
    warmth_requests: int | None
    cpu_latency_ns: int | None
    logged: int
    log_lost: int
    given_up: list[str]
    fail_open: bool | None
    workers: list[dict[str, int]]
    handed_over: int
    slots: int
    free_slots: int
    port_slots: int


class Router:
    """A live router in this process: packets between ports, through rules, pipes and queues.

    `ports` come in pairs, each of which is a transparent bridge. A port is an interface such as
    `"eth0"`, or another kind that docs/ports.md describes. `commands` are executed at the start, at
    one instant; `config` is a file of commands. The other options are those of `sluice router`.
    Without `socket`, the router listens in a temporary folder.

    The router runs until `stop`, the end of the `with` block, or the end of the process. It also
    stops when the object is no longer referenced, so keep it in a variable. Its packet loop is a
    thread that uses the interpreter only for AQMs in Python.

    >>> import pathlib, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> header = bytes.fromhex("4d3cb2a1 02000400 0000000000000000 ffff0000 01000000")
    >>> capture = pathlib.Path(folder.name, "in.pcap")
    >>> _ = capture.write_bytes(header)
    >>> out = pathlib.Path(folder.name, "out.pcap")
    >>> with Router(f"pcap:{capture}:", f"pcap::{out}", accept=True) as router:
    ...     router.command("pipe 1 config bw 10Mbit/s delay 20 codel")
    ...     router.show("pipe")["pipes"][0]["link"]["rate_bps"]
    ''
    10000000
    >>> router.has_ended
    True
    >>> folder.cleanup()

    Raises:
        SluiceError: the router cannot start; nothing is left open.

    """

    def __init__(
        self,
        *ports: str,
        commands: str | None = None,
        config: str | PathLike[str] | None = None,
        accept: bool = False,
        socket: str | PathLike[str] | None = None,
        netns: str | PathLike[str] | None = None,
        port: str = "auto",
        compat: bool = False,
        strict: bool = False,
        split_below: str | None = None,
        spin: Literal["none", "adaptive", "always"] = "adaptive",
        slack: str | None = None,
        cpu: int | None = None,
        cpu_latency: str | None = None,
        room: int | None = None,
        seed: int | None = None,
    ) -> None:
        """Start the router."""
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        if socket is None:
            self._folder = tempfile.TemporaryDirectory(prefix="sluice-")
            socket = Path(self._folder.name, "sluice.sock")
        self.socket = Path(socket)
        namespace = None if netns is None else os.fspath(netns)
        if namespace is not None and "/" not in namespace:
            namespace = f"/run/netns/{namespace}"
        options: _sluice.RouterOptions = {
            "ports": list(ports),
            "port": port,
            "config": None if config is None else os.fspath(config),
            "socket": str(self.socket),
            "netns": namespace,
            "accept": accept,
            "compat": compat,
            "strict": strict,
            "split_below": split_below,
            "spin": spin,
            "slack": slack,
            "cpu": cpu,
            "cpu_latency": cpu_latency,
            "room": room,
            "seed": seed,
        }
        self._last: RouterStatus | None = None
        self._inner: _sluice.Router | None = _sluice.Router(options)
        # Also at the end of the process: a packet loop with an AQM in Python must not outlive the
        # interpreter.
        weakref.finalize(self, _end, self._inner, self._folder)
        for remark in self._inner.remarks:
            warnings.warn(remark, stacklevel=2)
        if commands is not None:
            try:
                self.command(commands, how="atomic")
            except SluiceError:
                self.stop()
                raise

    @classmethod
    def connect(cls, socket: str | PathLike[str] | None = None) -> "Router":
        """Return the router that listens on a socket, such as that of `sluice router`.

        Without `socket`, the environment variable SLUICE_SOCKET or else the default path is used.

        Raises:
            SluiceError: no router listens there.

        """
        found = cls.__new__(cls)
        found._folder, found._inner, found._last = None, None, None
        named = socket or os.environ.get("SLUICE_SOCKET") or _sluice.default_socket()
        found.socket = Path(named)
        _ = found.status
        return found

    def command(
        self, commands: str, *, how: Literal["command", "batch", "atomic", "replace"] = "command"
    ) -> str:
        """Execute commands of dummynet's language, one per line, and return their output.

        `how` is `command` for one command, `batch` for lines up to the first that is refused,
        `atomic` for all lines at one instant or none, and `replace` to remove everything else as
        well. The warnings of `sluice ipfw` become Python warnings.

        Raises:
            SluiceError: a command is refused; the message is that of the command line, and
                `exit_code` its exit status.

        """
        output, remarks, _, failure = _sluice.router_command(str(self.socket), commands, how)
        for remark in remarks:
            warnings.warn(remark, stacklevel=2)
        if failure is not None:
            raise _refusal(*failure)
        return output

    def show(self, words: str = "pipe") -> dict[str, Any]:
        """Return what `sluice ipfw --json WORDS show` prints.

        `words` is `pipe`, `queue` or `sched`, or empty for the rules.

        Raises:
            SluiceError: the router refuses the command.

        """
        text = f"ipfw --json {words} show"
        _, _, state, failure = _sluice.router_command(str(self.socket), text, "command")
        if failure is not None:
            raise _refusal(*failure)
        if state is None:
            raise SluiceError(f"`{text}` has no state")
        shown: dict[str, Any] = json.loads(state)
        return shown

    @property
    def status(self) -> RouterStatus:
        """The current counters of the router and its ports; the last ones if it has stopped.

        Raises:
            SluiceError: the router does not answer.

        """
        if self._last is not None:
            return self._last
        status: RouterStatus = json.loads(_sluice.router_status(str(self.socket)))
        return status

    def log(self) -> list[str]:
        """Return the lines that `log` rules have written since the last call, in ipfw's words.

        The router keeps some thousand lines between two calls; `log_lost` of the status counts the
        others.

        Raises:
            SluiceError: the router runs in another process, which writes its log itself.

        """
        if self._inner is None:
            raise SluiceError(
                f"the router at {self.socket} runs in another process, which writes its log itself"
            )
        return self._inner.log()

    def watch(self, every: str = "1s") -> Iterator[RouterStatus]:
        """Yield the status at the interval `every`, until the router ends."""
        pause_s = _sluice.parse_span(every) / 1e9
        while not self.has_ended:
            yield self.status
            time.sleep(pause_s)

    @property
    def has_ended(self) -> bool:
        """Whether the router was stopped, or its input files have ended."""
        return self._last is not None or (self._inner is not None and self._inner.has_ended())

    def stop(self) -> RouterStatus:
        """Stop the router and return its last status. Packets in its queues are dropped.

        Raises:
            SluiceError: the router runs in another process.

        """
        if self._inner is None:
            raise SluiceError(f"the router at {self.socket} runs in another process; end it there")
        last = self._inner.stop()
        if last is not None:
            self._last = json.loads(last)
            if self._folder is not None:
                self._folder.cleanup()
        assert self._last is not None, "a stopped router has a last status"
        return self._last

    def __enter__(self) -> "Router":
        """Return the router itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop the router, if it runs in this process."""
        if self._inner is not None:
            self.stop()

    def __repr__(self) -> str:
        """Name the socket."""
        return f"<Router at {str(self.socket)!r}{', ended' if self.has_ended else ''}>"


def _refusal(message: str, exit_code: int) -> SluiceError:
    error = SluiceError(message)
    error.exit_code = exit_code
    return error


def _end(router: _sluice.Router, folder: tempfile.TemporaryDirectory[str] | None) -> None:
    router.stop()
    if folder is not None:
        folder.cleanup()
