"""Read a run's folder."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


class Recording:
    """The folder of a run: metadata, summary, and one Arrow table per Parquet file.

    Times are nanoseconds since the start of the run (`*_ns`), sizes are bytes (`*_bytes`).

    Raises:
        FileNotFoundError: the folder or the requested file is missing; the message names it.

    """

    def __init__(self, folder: str | Path) -> None:
        """Open the run folder `folder`."""
        self.folder = Path(folder)
        if not (self.folder / "run.json").is_file():
            raise FileNotFoundError(f"{self.folder} is not a run folder: it has no run.json")

    @property
    def run(self) -> dict[str, Any]:
        """The resolved scenario, seed, versions, host and status."""
        return self._json("run.json")

    @property
    def summary(self) -> dict[str, Any]:
        """The figures as they are in summary.json; `Run.open` computes edited ones again."""
        summary = self._json("summary.json")
        summary.pop("seal", None)  # the checksum of the file, not a figure
        return summary

    @property
    def packets(self) -> pa.Table:
        """One row per packet and queue: arrival, size, verdict, sojourn, reason."""
        return self._table("packets")

    @property
    def flows(self) -> pa.Table:
        """One row per flow and interval: goodput, cwnd, srtt, retransmits."""
        return self._table("flows")

    @property
    def queues(self) -> pa.Table:
        """One row per queue and interval: backlog and AQM variables."""
        return self._table("queues")

    @property
    def pings(self) -> pa.Table:
        """One row per probe: round trip and one-way delays."""
        return self._table("pings")

    def _json(self, name: str) -> dict[str, Any]:
        path = self.folder / name
        if not path.is_file():
            raise FileNotFoundError(f"{path} is missing: the run did not end")
        loaded: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return loaded

    def _table(self, name: str) -> pa.Table:
        path = self.folder / f"{name}.parquet"
        if not path.is_file():
            raise FileNotFoundError(f"{path} is missing")
        return pq.read_table(path)
