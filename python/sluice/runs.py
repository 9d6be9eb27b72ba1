"""Runs a scenario in this process, and reads its recording."""

import tempfile
from collections.abc import Callable, Mapping
from functools import cached_property
from html import escape
from os import PathLike
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sluice import _sluice
from sluice.plot import Plots
from sluice.progress import Stretch
from sluice.scenario import Scenario, choose
from sluice.table import Table


def run(
    scenario: str | PathLike[str] | Mapping[str, Any] | Scenario,
    overrides: Mapping[str, Any] | None = None,
    *,
    backend: str = "sim",
    seed: int | None = None,
    variant: str | None = None,
    record: str = "packets",
    progress: bool = True,
) -> "Run":
    """Run a scenario in this process and return its recording.

    `scenario` is a path, a dictionary with the keys of a scenario file, or a `Scenario`.
    `overrides` maps keys to values, as `--set` does. `variant` names one variant of a scenario with
    a matrix. The backend `live` needs root; the command `sluice run` also works with
    unprivileged user namespaces. `record` is how much is kept; a run that keeps less is faster:
    `figures`; `flows`, with the samples of flows and queues; or `packets`, with every packet.

    Other Python threads continue meanwhile. Ctrl-C ends the run. A run that takes longer than a
    second shows its progress, unless `progress` is false.

    >>> done = run({"duration": "3s", "link": {"rate": "10Mbit/s"}, "flow": [{"type": "tcp"}]},
    ...            {"link.queue": "codel"})
    >>> done.variant
    'codel'
    >>> done.figures.columns
    ['figure', 'unit', 'value', 'about']

    Raises:
        SluiceError: the scenario is wrong or cannot be run; the message is that of the
            command line.
        RunFailed: the run failed in the middle, or an error stopped an algorithm from a file, so
            that the figures are not those of its queue; the exception has what was measured.

    """
    chosen = Scenario(scenario, overrides)
    if seed is not None:
        chosen = chosen.set("seed", seed)
    one = choose(chosen, variant)
    how = (backend, record)
    if not progress:
        done, error = _sluice.run(one, how, program())
    else:
        with Stretch(one.duration_ns, one.name) as stretch:
            done, error = _sluice.run(one, how, program(), stretch)
    run = Run(done)
    if error is not None:
        raise RunFailed(error, run, run.save(tempfile.mkdtemp(prefix="sluice-failed-")))
    return run


class RunFailed(_sluice.SluiceError):
    """A run failed after it had measured something, or an error stopped an algorithm in it.

    `run` is the recording: its `cut_short` has the reason for an early end, its `stopped` names the
    algorithms. `folder` is the temporary folder in which it was saved; nothing deletes it. Another
    process may raise the exception: pickled, it has its recording.
    """

    def __init__(self, error: str, run: "Run", folder: Path) -> None:
        """Keep the recording and its folder."""
        kept = "the recording" if run.cut_short is None else "what was measured until then"
        super().__init__(f"{error}\n{kept} is in `{folder}`")
        self._error = error
        self.run = run
        self.folder = folder

    def __reduce__(self) -> "tuple[type[RunFailed], tuple[str, Run, Path]]":
        """Pickle the arguments of the constructor, which are not those of the message."""
        return type(self), (self._error, self.run, self.folder)


class Run:
    """The recording of a run, in memory until it is saved.

    Times are nanoseconds since the start of the run (`*_ns`), sizes are bytes (`*_bytes`). A
    recording can be pickled, so that another process may return it.
    """

    def __init__(self, inner: _sluice.Run) -> None:
        """Wrap the recording; `run` and `Run.open` make one."""
        self._inner = inner
        # The folder of a recording that another process returned.
        self._copy: tempfile.TemporaryDirectory[str] | None = None

    def __reduce__(self) -> "tuple[Callable[[dict[str, bytes]], Run], tuple[dict[str, bytes]]]":
        """Pickle the files of the recording, which need no disk that both processes share."""
        return _of_files, (files_of(self),)

    @classmethod
    def open(cls, folder: str | PathLike[str]) -> "Run":
        """Read the recording in a folder that `sluice run` or `save` wrote.

        Raises:
            SluiceError: the folder contains no recording, or only that of a run that was killed.

        """
        return cls(_sluice.Run.open(str(folder)))

    @property
    def variant(self) -> str:
        """The name of the variant."""
        return self._inner.variant

    @property
    def seed(self) -> int:
        """The seed of all random numbers."""
        return self._inner.seed

    @property
    def scenario(self) -> str:
        """The scenario with all defaults, as TOML."""
        return self._inner.scenario

    @property
    def cut_short(self) -> str | None:
        """The reason for an early end, or `None` if the run is complete."""
        return self._inner.cut_short

    @property
    def stopped(self) -> list[str]:
        """The algorithms from files that an error stopped, each with its first error.

        The figures of such a run are not those of its queue, which passed every packet.
        """
        return self._inner.stopped

    @cached_property
    def figures(self) -> Table:
        """One row per figure: its name, unit, value and meaning."""
        rows = self._inner.figures()
        columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], [], []]
        table = pa.table(dict(zip(FIGURES.names, columns, strict=True)), schema=FIGURES)
        return Table(table, "figures")

    def figure(self, name: str) -> float:
        """Return the value of a figure, in the unit that `figures` gives.

        Raises:
            KeyError: the run has no such figure.

        """
        for found, _, value, _ in self._inner.figures():
            if found == name:
                return value
        raise KeyError(name)

    @cached_property
    def packets(self) -> Table:
        """One row per packet and queue: arrival, size, verdict, sojourn time, reason."""
        return self._table("packets")

    @cached_property
    def flows(self) -> Table:
        """One row per flow and interval: goodput, congestion window, round-trip time."""
        return self._table("flows")

    @cached_property
    def queues(self) -> Table:
        """One row per queue, interval and variable: backlog and variables of the AQM."""
        return self._table("queues")

    @cached_property
    def pings(self) -> Table:
        """One row per probe: round-trip and one-way delays."""
        return self._table("pings")

    @cached_property
    def transfers(self) -> Table:
        """One row per complete transfer or page, and per page that was open at the end."""
        return self._table("transfers")

    @property
    def flow_names(self) -> dict[int, str]:
        """The name of each flow by its number in the tables."""
        return dict(self._inner.flows())

    @property
    def plot(self) -> Plots:
        """Plots of the recording; Matplotlib must be installed."""
        return Plots(self)

    def report(self) -> "Report":
        """Return the interactive report, which a notebook displays."""
        return Report(self._inner.report())

    def save(self, folder: str | PathLike[str]) -> Path:
        """Write the recording to `folder`, as `sluice run` does. An older recording is replaced.

        Raises:
            SluiceError: the folder contains other files, or cannot be written.

        """
        self._inner.save(str(folder))
        return Path(folder)

    def _table(self, name: str) -> Table:
        return Table(pq.read_table(pa.BufferReader(self._inner.parquet(name))), name)

    def __repr__(self) -> str:
        """Name the variant and its end."""
        end = "" if self.cut_short is None else f", cut short: {self.cut_short}"
        end += ", its algorithm was stopped" if self.stopped else ""
        return f"<Run {self.variant!r}, seed {self.seed}{end}>"


def files_of(run: Run) -> dict[str, bytes]:
    """Return the files of a recording by their names in its folder."""
    with tempfile.TemporaryDirectory(prefix="sluice-") as folder:
        run.save(folder)
        paths = [path for path in Path(folder).rglob("*") if path.is_file()]
        return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def _of_files(files: dict[str, bytes]) -> Run:
    """Return the recording with these files. Its tables are read when they are needed."""
    copy = tempfile.TemporaryDirectory(prefix="sluice-")
    for name, content in files.items():
        path = Path(copy.name, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    run = Run.open(copy.name)
    run._copy = copy
    return run


class Report:
    """A page of HTML that needs no network."""

    def __init__(self, html: str) -> None:
        """Wrap the text of the page."""
        self.html = html

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the page to a file."""
        Path(path).write_text(self.html, encoding="utf-8")
        return Path(path)

    def _repr_html_(self) -> str:
        style = "width: 100%; height: 800px; border: 0"
        return f'<iframe srcdoc="{escape(self.html)}" style="{style}"></iframe>'


def program() -> str:
    """Return the identity of the library, which changes whenever its code changes."""
    return _sluice.program(_sluice.__file__)


_FIELDS: "list[pa.Field[Any]]" = [
    pa.field("figure", pa.string()),
    pa.field("unit", pa.string()),
    pa.field("value", pa.float64()),
    pa.field("about", pa.string()),
]
# The columns of `Run.figures`.
FIGURES = pa.schema(_FIELDS)
