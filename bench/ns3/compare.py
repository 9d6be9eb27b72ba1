"""Compare Sluice's simulator with ns-3: the same scenarios, one after the other in the same minute.

Usage: compare.py NS3_PYTHON SPEED, where NS3_PYTHON is an interpreter that has the package `ns3`,
and SPEED the built example `speed` of sluice-sim. Only the run is timed, in seconds of processor
time, so that other load on the machine has little effect. Sluice's time is the best of three runs,
ns-3's that of a single one. ns-3 runs each scenario twice: as a dumbbell with a router, and
`direct`, with as few parts as Sluice (see dumbbell.py).

Exit code 1 if any dumbbell is less than 50 times faster in Sluice.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

# The first cases of the example `speed`, in its order: flows, Mbit/s, seconds.
CASES = [(4, 10, 60), (4, 100, 60), (16, 1000, 10)]
FASTER = 50


def sluice(speed: str, case: int) -> tuple[float, float]:
    """Run a case. Return its seconds and its goodput in Mbit/s."""
    lines = subprocess.run([speed, str(case), "3"], check=True, capture_output=True, text=True)
    header, row = lines.stdout.strip().splitlines()
    assert header.split()[:3] == ["flows", "Mbit/s", "seconds"], "the columns of `speed`"
    fields = row.split()
    # The columns "run ms" and "goodput %"; 100 % is the link's payload rate, 1448 of 1514 bytes.
    capacity = CASES[case][1] * 1448 / 1514
    return float(fields[3]) / 1e3, float(fields[7]) / 100 * capacity


def ns3(python: str, shape: str, case: int) -> dict[str, float]:
    """Run dumbbell.py. Return its output."""
    script = str(Path(__file__).with_name("dumbbell.py"))
    words = [python, script, shape, *map(str, CASES[case])]
    # Cling reports on stderr what it cannot preload, which does not matter.
    done = subprocess.run(
        words, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    return json.loads(done.stdout.strip().splitlines()[-1])


def main() -> int:
    """Print the table."""
    python, speed = sys.argv[1:]
    print("flows  Mbit/s  seconds |  Sluice s  Mbit/s | ns-3     s  Mbit/s  times slower")
    too_slow = 0
    for case, (flows, mbps, seconds) in enumerate(CASES):
        own, goodput = sluice(speed, case)
        for shape in ("router", "direct"):
            other = ns3(python, shape, case)
            times = other["cpu_s"] / own
            too_slow += shape == "router" and times < FASTER
            print(
                f"{flows:>5} {mbps:>7} {seconds:>8} | {own:>9.4f} {goodput:>7.1f} |"
                f" {shape:<6} {other['cpu_s']:>5.2f} {other['goodput_mbps']:>7.1f} {times:>8.0f}",
                flush=True,
            )
    return int(too_slow > 0)


if __name__ == "__main__":
    sys.exit(main())
