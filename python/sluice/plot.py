"""Plots of runs and sweeps with Matplotlib."""

import math
import statistics
import tomllib
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from sluice.runs import Run
    from sluice.sweeps import Sweep
    from sluice.table import Table


class Plots:
    """Plots of a run. Each method draws on `ax` or on new axes, and returns the axes."""

    def __init__(self, run: "Run") -> None:
        """Draw `run`."""
        self._run = run

    def sojourn(self, ax: "Axes | None" = None, *, pipe: str = "up") -> "Axes":
        """Plot the time that each packet spent in the queue of `pipe` over its arrival time.

        Packets that the queue dropped, or still held at the end, have no point. A super-packet has
        one.

        Raises:
            ValueError: no packet left the queue of this pipe.

        """
        sent = self._sent()
        rows = [row for row in sent if row["pipe"] == pipe]
        if not rows:
            known = ", ".join(dict.fromkeys(row["pipe"] for row in sent)) or "none"
            raise ValueError(
                f"no packet left the queue of a pipe `{pipe}`; pipes with packets: {known}"
            )
        ax = _axes(ax)
        ax.plot(
            [row["time_ns"] / 1e9 for row in rows],
            [row["sojourn_ns"] / 1e6 for row in rows],
            ".",
            markersize=2,
            label=self._run.variant,
        )
        ax.set(xlabel="time (s)", ylabel="sojourn time (ms)", title=f"queue {pipe}")
        ax.set_ylim(bottom=0)
        return ax

    def cdf(
        self,
        quantity: str = "sojourn",
        ax: "Axes | None" = None,
        *,
        hue: str | None = None,
        pipe: str = "up",
    ) -> "Axes":
        """Plot the share of packets at or below each value of a quantity.

        `quantity` is `sojourn`, `rtt`, or a numeric column of the tables `packets` or `pings`.
        Dropped packets do not count, nor do rows without a value. A super-packet counts as its wire
        packets, as in the figures. Unlike there, the warm-up counts, too. Times are in
        milliseconds. `hue` is a column, or `queue` for the words of the queue that handled the
        packet; each of its values has its own curve. Packets are those of the queue of `pipe`; if
        `hue` is `pipe` or `queue`, those of all queues.

        Raises:
            ValueError: there is no such quantity or column, or no row has a value.

        """
        name = {"sojourn": "sojourn_ns", "rtt": "rtt_ns"}.get(quantity, quantity)
        column = "pipe" if hue == "queue" else hue
        run = self._run
        # A recording without packets has the probes.
        tables = [run.pings] if name in OF_PINGS else [run.packets, run.pings]
        table = next((table for table in tables if name in table.columns), None)
        if table is None:
            known = ", ".join(dict.fromkeys(c for table in tables for c in _numeric(table)))
            raise ValueError(f"there is no quantity `{quantity}`; one of: sojourn, rtt, {known}")
        if name not in _numeric(table):
            known = ", ".join(_numeric(table))
            raise ValueError(f"the column `{quantity}` has no numbers; one of: {known}")
        if column is not None and column not in table.columns:
            queue = ["queue"] if "pipe" in table.columns else []
            known = ", ".join([*queue, *table.columns])
            raise ValueError(f"there is no column `{hue}`; one of: {known}")
        of_one_pipe = "pipe" in table.columns and column != "pipe"
        others: dict[str, None] = {}
        curves: dict[Any, list[tuple[float, int]]] = {}
        scale = 1e6 if name.endswith("_ns") else 1.0
        # Only these pairs are kept: a recording may have millions of packets.
        for row in table.rows():
            if row[name] is None or row.get("verdict") == "dropped":
                continue
            if of_one_pipe and row["pipe"] != pipe:
                others[row["pipe"]] = None
                continue
            curve = run.variant if column is None else row[column]
            curves.setdefault(curve, []).append((row[name] / scale, row.get("segments", 1)))
        if not curves and others:
            raise ValueError(
                f"no packet of a pipe `{pipe}` has a value of `{quantity}`; pipes with values: "
                f"{', '.join(others)}"
            )
        if not curves:
            raise ValueError(f"no row has a value of `{quantity}`, so there is nothing to draw")
        ax = _axes(ax)
        names: dict[Any, str] = run.flow_names if column == "flow" else {}
        if hue == "queue":
            names = _queues_of(run.scenario)
        for curve, points in curves.items():
            points.sort()
            values = [value for value, _ in points]
            counts = list(accumulate(count for _, count in points))
            # The share of packets whose value is at most this one.
            shares = [count / counts[-1] for count in counts]
            ax.step(values, shares, where="post", label=str(names.get(curve, curve)))
        unit = " (ms)" if name.endswith("_ns") else ""
        counted = "packets" if "verdict" in table.columns else "probes"
        label = f"{quantity.removesuffix('_ns')}{unit}"
        ax.set(xlabel=label, ylabel=f"share of {counted}", ylim=(0, 1))
        ax.legend()
        return ax

    def _sent(self) -> list[dict[str, Any]]:
        rows = self._run.packets.rows()
        return [row for row in rows if row["verdict"] in ("sent", "marked")]


class SweepPlots:
    """Plots of a sweep. Each method draws on `ax` or on new axes, and returns the axes."""

    def __init__(self, sweep: "Sweep") -> None:
        """Draw `sweep`."""
        self._sweep = sweep

    def figure(
        self, name: str, ax: "Axes | None" = None, *, x: str | None = None, hue: str | None = None
    ) -> "Axes":
        """Plot a figure over a swept key: medians over all other settings, and their range.

        `x` is a key of the sweep, by default the last one; its values are equally spaced. Each
        value of the key `hue` has its own curve; by default that is the first other key. A curve
        has a gap where no run has the figure; elsewhere, the runs without it do not count.

        Raises:
            ValueError: there is no such figure or key.

        """
        keys = self._sweep.keys
        if x is None:
            if not keys:
                raise ValueError("the sweep goes over seeds only; use `cdf`")
            x = keys[-1]
        if hue is None:
            hue = next((key for key in keys if key != x), None)
        rows = self._rows(name, x, hue)
        # In the order of the sweep, also if runs failed or did not measure the figure.
        places = list(dict.fromkeys(self._sweep.runs[x]))
        ax = _axes(ax)
        for curve in dict.fromkeys(_curve(row, hue) for row in rows):
            values: dict[int, list[float]] = {}
            for row in rows:
                if _curve(row, hue) == curve:
                    values.setdefault(places.index(row[x]), []).append(row["value"])
            at = list(range(len(places)))
            # Matplotlib draws nothing at NaN, and joins no points over it.
            of_place = [values.get(place, [math.nan]) for place in at]
            middle = [statistics.median(found) for found in of_place]
            (line,) = ax.plot(at, middle, "o-", label=str(curve))
            low, high = ([end(found) for found in of_place] for end in (min, max))
            ax.fill_between(at, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
        ax.set_xticks(range(len(places)), [str(place) for place in places])
        ax.set(xlabel=x, ylabel=_labelled(name, rows))
        ax.legend()
        return ax

    def cdf(self, name: str, ax: "Axes | None" = None, *, hue: str | None = None) -> "Axes":
        """Plot the share of runs at or below each value of a figure.

        Each value of the key `hue` has its own curve; by default that is the first key.

        Raises:
            ValueError: there is no such figure or key.

        """
        if hue is None:
            hue = next(iter(self._sweep.keys), None)
        rows = self._rows(name, hue)
        ax = _axes(ax)
        for curve in dict.fromkeys(_curve(row, hue) for row in rows):
            values = sorted(row["value"] for row in rows if _curve(row, hue) == curve)
            shares = [(n + 1) / len(values) for n in range(len(values))]
            ax.step(values, shares, where="post", label=str(curve))
        ax.set(xlabel=_labelled(name, rows), ylabel="share of runs", ylim=(0, 1))
        ax.legend()
        return ax

    def _rows(self, name: str, *keys: str | None) -> list[dict[str, Any]]:
        """Return the rows of a figure, in the order of the sweep."""
        columns = [*self._sweep.keys, "variant", "seed"]
        for key in keys:
            if key is not None and key not in columns:
                known = ", ".join(columns)
                raise ValueError(f"the sweep has no key `{key}`; one of: {known}")
        figures = self._sweep.figures
        rows = [row for row in figures.rows() if row["figure"] == name]
        if not rows:
            known = ", ".join(dict.fromkeys(figures["figure"])) or "none, since all runs failed"
            raise ValueError(f"there is no figure `{name}`; one of: {known}")
        return rows


def _curve(row: dict[str, Any], hue: str | None) -> object:
    return "all runs" if hue is None else row[hue]


def _labelled(name: str, rows: list[dict[str, Any]]) -> str:
    unit = rows[0]["unit"]
    return f"{name} ({unit})" if unit else name


def _numeric(table: "Table") -> list[str]:
    """Return the names of the columns with numbers."""
    fields = [table.arrow.schema.field(at) for at in range(len(table.columns))]
    is_integer, is_floating = pa.types.is_integer, pa.types.is_floating
    return [field.name for field in fields if is_integer(field.type) or is_floating(field.type)]


def _queues_of(scenario: str) -> dict[Any, str]:
    """Return the words of the queue of each pipe; with its pipe if several have the same words."""
    tree = tomllib.loads(scenario)
    words: dict[Any, str] = {}
    for number, link in enumerate([tree.get("link", {}), *tree.get("hop", [])], start=1):
        for direction in ("up", "down"):
            table = link.get(direction, link)
            if "queue" in table:
                words[direction if number == 1 else f"{direction}{number}"] = table["queue"]
    known = list(words.values())
    return {
        pipe: queue if known.count(queue) == 1 else f"{queue} ({pipe})"
        for pipe, queue in words.items()
    }


def _axes(ax: "Axes | None") -> "Axes":
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "this needs the package `matplotlib`: pip install matplotlib", name="matplotlib"
        ) from None
    return pyplot.figure().add_subplot()


# Columns that only the table `pings` has. A recording without packets has this table, too.
OF_PINGS = {"rtt_ns", "up_ns", "down_ns"}
