"""Arrow tables, and conversions to other libraries."""

import importlib
from collections.abc import Iterator
from html import escape
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl


class Table:
    """An Arrow table. Any library that reads the Arrow C stream can use it directly.

    >>> table = Table(pa.table({"queue": ["fifo", "codel"], "drops": [1, 2]}))
    >>> table.columns, len(table)
    (['queue', 'drops'], 2)
    >>> next(table.rows())
    {'queue': 'fifo', 'drops': 1}
    """

    def __init__(self, arrow: pa.Table, name: str | None = None) -> None:
        """Wrap `arrow`, which queries may also call `name`."""
        self.arrow = arrow
        self._name = name

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self.arrow.column_names)

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.arrow.num_rows

    def __getitem__(self, column: str) -> list[Any]:
        """Return the values of a column."""
        return list(self.arrow.column(column).to_pylist())

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield each row as a dictionary."""
        for batch in self.arrow.to_batches():
            yield from batch.to_pylist()

    def pandas(self) -> "pd.DataFrame":
        """Return a pandas data frame; pandas must be installed."""
        _need("pandas")
        frame: pd.DataFrame = self.arrow.to_pandas()
        return frame

    def polars(self) -> "pl.DataFrame":
        """Return a Polars data frame; Polars must be installed."""
        polars = _need("polars")
        frame: pl.DataFrame = polars.from_arrow(self.arrow)
        return frame

    def sql(self, query: str) -> "Table":
        """Return the result of a query, in which the table is called `self` or by its name.

        The name of `run.packets` is `packets`. DuckDB must be installed.

        >>> Table(pa.table({"drops": [1, 2]})).sql("select sum(drops)::int as n from self")["n"]
        [3]
        """
        duckdb = _need("duckdb")
        with duckdb.connect() as connection:
            for name in filter(None, ("self", self._name)):
                connection.register(name, self.arrow)
            return Table(connection.sql(query).to_arrow_table())

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Export the table as an Arrow C stream."""
        stream: object = self.arrow.__arrow_c_stream__(requested_schema)  # type: ignore[no-untyped-call]
        return stream

    def __eq__(self, other: object) -> bool:
        """Return whether both have the same columns and values."""
        return isinstance(other, Table) and bool(self.arrow.equals(other.arrow))

    def __repr__(self) -> str:
        """Show the first rows."""
        return self.arrow.to_string(preview_cols=10)

    def _repr_html_(self) -> str:
        shown = 20
        head = "".join(f"<th>{escape(name)}</th>" for name in self.columns)
        rows = self.arrow.slice(0, shown).to_pylist()
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(_shown(v))}</td>" for v in row.values()) + "</tr>"
            for row in rows
        )
        more = f"<p>{len(self) - shown} more rows</p>" if len(self) > shown else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _shown(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else "" if value is None else str(value)


def _need(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            f"this needs the package `{name}`: pip install {name}", name=name
        ) from None
