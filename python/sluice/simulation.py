"""Simulations that advance step by step, for learned controllers and interactive experiments."""

import json
import operator
import warnings
from collections.abc import Mapping
from os import PathLike
from typing import Any

from sluice import _sluice
from sluice.scenario import Scenario, choose


class Simulation:
    """A simulation that advances when `step` is called, and can be changed between steps.

    It records only counters; `run` makes a full recording. Only the thread that created it can use
    it. `queue` and `set_rate` apply to `pipe`: `up` and `down` are the directions of the link,
    `up2` is the second link. A scenario with `rules` has a router in place of these pipes:
    `command` changes it, and `show` returns its state.

    >>> link = {"rate": "10Mbit/s", "rtt": "20ms", "queue": "codel"}
    >>> simulation = Simulation({"duration": "5s", "link": link, "flow": [{"type": "tcp"}]})
    >>> simulation.step(until="2s")
    False
    >>> simulation.set_rate("5Mbit/s")
    >>> simulation.step(by="3s"), simulation.time_ns, simulation.rate_bps
    (True, 5000000000, 5000000)
    >>> sorted(simulation.queue.state)
    ['count', 'drop_next', 'dropping', 'first_above']

    Raises:
        SluiceError: the scenario is wrong or cannot be simulated.

    """

    def __init__(
        self,
        scenario: str | PathLike[str] | Mapping[str, Any] | Scenario,
        overrides: Mapping[str, Any] | None = None,
        *,
        seed: int | None = None,
        variant: str | None = None,
        pipe: str = "up",
    ) -> None:
        """Build the network at time 0."""
        chosen = Scenario(scenario, overrides)
        if seed is not None:
            chosen = chosen.set("seed", seed)
        self._inner = _sluice.Simulation(choose(chosen, variant))
        self._pipe = pipe
        if not self._inner.has_rules:
            # A wrong name raises its error here.
            self._inner.backlog(pipe)

    def step(self, *, until: "str | int | None" = None, by: "str | int | None" = None) -> bool:
        """Advance to the time `until`, or by the span `by`. Return whether the end is reached.

        Times are text such as `"20ms"`, or nanoseconds. Without either, advance to the end.

        Raises:
            SluiceError: the step would go back, or is no time; or an error has stopped an algorithm
                from a file.

        """
        if until is not None and by is not None:
            raise _sluice.SluiceError("give `until` or `by`, not both")
        now = self.time_ns
        if by is not None:
            target = now + _ns(by)
            if target < now:
                raise _sluice.SluiceError(
                    f"a step by {target - now} ns would go back; give a span of 0 or more, such as "
                    f'{now - target} or "20ms"'
                )
        else:
            target = self._inner.end_ns if until is None else _ns(until)
            if target < now:
                raise _sluice.SluiceError(
                    f"{until!r} is before {now} ns, the current time; give a later time"
                )
        return self._inner.step(target)

    @property
    def time_ns(self) -> int:
        """The virtual time in nanoseconds."""
        return self._inner.now_ns

    @property
    def rate_bps(self) -> int:
        """The current rate of the pipe in bits per second."""
        return self._inner.rate_bps(self._pipe)

    def set_rate(self, rate: str) -> None:
        """Set the rate of the pipe from now on.

        Raises:
            SluiceError: the rate follows a schedule or a trace.

        """
        self._inner.set_rate(self._pipe, rate)

    def set_queue(self, queue: str) -> None:
        """Replace the queue of the pipe, such as by `"codel target 3ms"`. Its packets stay."""
        self._inner.set_queue(self._pipe, queue)

    def command(self, commands: str) -> str:
        """Execute commands of dummynet's language now, one per line, and return their output.

        This is for scenarios with `rules`. If a command is refused, those before it stay in force.
        The warnings of `sluice ipfw` become Python warnings.

        >>> allow = "add 100 allow ip from any to any"
        >>> ping = {"duration": "3s", "rules": allow, "flow": [{"type": "ping"}]}
        >>> simulation = Simulation(ping)
        >>> simulation.step(until="2s")
        False
        >>> simulation.command("pipe 1 config bw 4Mbit/s")
        ''
        >>> simulation.show("pipe")["pipes"][0]["link"]["rate_bps"]
        4000000

        Raises:
            SluiceError: a command is refused, with its line and column; or the scenario has no
                `rules`.

        """
        output, remarks, _ = self._inner.command(commands)
        for remark in remarks:
            warnings.warn(remark, stacklevel=2)
        return output

    def show(self, words: str = "pipe") -> dict[str, Any]:
        """Return what `sluice ipfw --json WORDS show` prints of the router of `rules`.

        `words` is `pipe`, `queue` or `sched`, or empty for the rules. Times in it are those of the
        router, which exists for the scenario's `lead` before 0 s.

        Raises:
            SluiceError: the router refuses the command, or the scenario has no `rules`.

        """
        text = f"ipfw --json {words} show"
        _, _, state = self._inner.command(text)
        if state is None:
            raise _sluice.SluiceError(f"`{text}` has no state")
        shown: dict[str, Any] = json.loads(state)
        return shown

    @property
    def queue(self) -> "QueueView":
        """The queue of the pipe."""
        return QueueView(self._inner, self._pipe)

    @property
    def received_bytes(self) -> dict[str, int]:
        """The payload bytes of each flow that have arrived."""
        return dict(self._inner.received())


class QueueView:
    """The queue of a pipe in a simulation. Each attribute has its current value."""

    def __init__(self, inner: _sluice.Simulation, pipe: str) -> None:
        """View the queue of `pipe`."""
        self._inner, self._pipe = inner, pipe

    @property
    def state(self) -> dict[str, float]:
        """The variables of the algorithm; in a discipline, those of queue N are called `N.NAME`."""
        return self._inner.state(self._pipe)

    @property
    def packets(self) -> int:
        """The wire packets in the queue."""
        return self._inner.backlog(self._pipe)[0]

    @property
    def bytes(self) -> int:
        """The bytes in the queue."""
        return self._inner.backlog(self._pipe)[1]

    @property
    def sent_packets(self) -> int:
        """The wire packets that the queue has returned since the start."""
        return self._inner.passed(self._pipe)["sent_packets"]

    @property
    def sent_bytes(self) -> int:
        """The bytes that the queue has returned since the start."""
        return self._inner.passed(self._pipe)["sent_bytes"]

    @property
    def dropped_packets(self) -> int:
        """The wire packets that the queue has dropped since the start."""
        return self._inner.passed(self._pipe)["dropped_packets"]

    @property
    def marked_packets(self) -> int:
        """The wire packets that the queue has marked since the start."""
        return self._inner.passed(self._pipe)["marked_packets"]

    @property
    def sojourn_ns(self) -> int:
        """The sum of the sojourn times of the returned packets since the start."""
        return self._inner.passed(self._pipe)["sojourn_ns"]

    def __repr__(self) -> str:
        """Name the pipe, and what its queue holds."""
        held = f"{self.packets} packets, {self.bytes} bytes"
        return f"<queue {self._pipe}: {held}, {self.state}>"


def _ns(time: str | int) -> int:
    if isinstance(time, str):
        return _sluice.parse_span(time)
    try:
        # NumPy's integers are no `int`.
        return operator.index(time)
    except TypeError:
        raise _sluice.SluiceError(
            f'{time!r} is not a time; give text such as "20ms", or whole nanoseconds'
        ) from None
