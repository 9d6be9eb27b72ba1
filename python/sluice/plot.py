"""Plots of a run with Matplotlib."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from sluice.runs import Run


class Plots:
    """Plots of a run. Each method draws on `ax` or on new axes, and returns the axes."""

    def __init__(self, run: "Run") -> None:
        """Draw `run`."""
        self._run = run

    def sojourn(self, ax: "Axes | None" = None, *, pipe: str = "up") -> "Axes":
        """Plot the time that each packet spent in the queue of `pipe` over its arrival time."""
        rows = [row for row in self._sent() if row["pipe"] == pipe]
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
        self, quantity: str = "sojourn", ax: "Axes | None" = None, *, hue: str | None = None
    ) -> "Axes":
        """Plot the share of packets at or below each value of a quantity.

        `quantity` is `sojourn`, `rtt`, or a numeric column of the tables `packets` or `pings`.
        `hue` is a column; each of its values has its own curve. `queue` stands for the column
        `pipe`.

        Raises:
            ValueError: there is no such quantity or column.

        """
        name = {"sojourn": "sojourn_ns", "rtt": "rtt_ns"}.get(quantity, quantity)
        column = {"queue": "pipe"}.get(hue, hue) if hue is not None else None
        run = self._run
        tables = [run.packets, run.pings]
        table = next((table for table in tables if name in table.columns), None)
        if table is None:
            known = ", ".join(dict.fromkeys(c for table in tables for c in table.columns))
            raise ValueError(f"there is no quantity `{quantity}`; one of: sojourn, rtt, {known}")
        if column is not None and column not in table.columns:
            known = ", ".join(table.columns)
            raise ValueError(f"there is no column `{hue}`; one of: queue, {known}")
        curves: dict[Any, list[float]] = {}
        scale = 1e6 if name.endswith("_ns") else 1.0
        for row in table.rows():
            if row[name] is not None and row.get("verdict") != "dropped":
                curve = run.variant if column is None else row[column]
                curves.setdefault(curve, []).append(row[name] / scale)
        ax = _axes(ax)
        names = run.flow_names if column == "flow" else {}
        for curve, values in curves.items():
            values.sort()
            # The share of packets whose value is at most this one.
            shares = [(n + 1) / len(values) for n in range(len(values))]
            ax.step(values, shares, where="post", label=str(names.get(curve, curve)))
        unit = " (ms)" if name.endswith("_ns") else ""
        ax.set(xlabel=f"{quantity}{unit}", ylabel="share of packets", ylim=(0, 1))
        ax.legend()
        return ax

    def _sent(self) -> list[dict[str, Any]]:
        rows = self._run.packets.rows()
        return [row for row in rows if row["verdict"] in ("sent", "marked")]


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
