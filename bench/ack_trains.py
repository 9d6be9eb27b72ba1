#!/usr/bin/env python3
"""Prints how acknowledgements leave the queue of a link: evenly, or in trains.

`bench/ack_trains.py RUN...` reads the packets of runs of `scenarios/seeds/004-5-slow-start.toml`.
It looks at the acknowledgements of the first flow in the direction down, from 0.3 s to 3 s: the
coefficient of variation of the gaps between two of them, the share of those that leave in trains of
at least three with gaps below 0.3 ms (a packet of 1500 bytes takes 1.2 ms), the longest train, and
how long the link up was idle. Needs pyarrow.
"""

import statistics
import sys
from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as parquet

ACK_BYTES = 80  # 20 of IPv4 and at most 60 of TCP
CLOSE_NS = 300_000
PACKET_NS = 1_200_000
SECONDS = (0.3, 3.0)


def trains(times: list[int]) -> list[int]:
    """Return the lengths of the trains."""
    lengths = [1]
    for before, after in pairwise(times):
        if after - before < CLOSE_NS:
            lengths[-1] += 1
        else:
            lengths.append(1)
    return lengths


def row(run: Path) -> str:
    """Return the figures of a run as a row of a table."""
    packets = parquet.read_table(
        run / "packets.parquet",
        columns=["pipe", "flow", "size_bytes", "verdict", "at_ns"],
    ).to_pylist()
    low, high = (seconds * 1e9 for seconds in SECONDS)
    acks, others, drops = [], [], 0
    for packet in packets:
        if packet["verdict"] == "dropped":
            drops += packet["at_ns"] < high
        elif packet["at_ns"] is not None and low < packet["at_ns"] < high and packet["flow"] == 0:
            if packet["pipe"] == "down" and packet["size_bytes"] <= ACK_BYTES:
                acks.append(packet["at_ns"])
            elif packet["pipe"] == "up":
                others.append(packet["at_ns"])
    acks.sort()
    others.sort()
    gaps = [after - before for before, after in pairwise(acks)]
    variation = statistics.pstdev(gaps) / statistics.fmean(gaps)
    lengths = trains(acks)
    together = sum(length for length in lengths if length >= 3) / len(acks)
    idle = sum(max(0, after - before - PACKET_NS) for before, after in pairwise(others))
    return (
        f"| {run.name} | {drops} | {variation:.2f} | {together:.0%} | {max(lengths)} |"
        f" {idle / 1e6:.0f} ms |"
    )


def main() -> None:
    """Print a table."""
    print("| run | lost | variation of the gaps | in trains | longest | link up idle |")
    print("|---|---|---|---|---|---|")
    for run in sys.argv[1:]:
        print(row(Path(run)))


main()
