"""Compare Sluice's simulator with ns-3: the same scenarios, one after the other in the same minute.

Usage: compare.py NS3_PYTHON SPEED SLUICE, where NS3_PYTHON is an interpreter that has the package
`ns3`, SPEED the built example `speed` of sluice-sim, and SLUICE the command. All times are
processor time, so that other load on the machine has little effect. ns-3 runs each scenario twice:
as a dumbbell with a router, and `direct`, with as few parts as Sluice (see dumbbell.py).

The first table has the simulations alone. Sluice's time is the best of three runs, ns-3's that of a
single one. The second table has what a user waits for: in ns-3 from the first node on until the
files of the flow monitor and of the trace at the bottleneck are written; in Sluice the whole
command, which records every packet, once with the page and once without it (`--json`). ns-3 draws
nothing.

Exit code 1 if a dumbbell with a router is less than 50 times faster in Sluice, simulated alone or
recorded without the page.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

# The first cases of the example `speed`, in its order: flows, Mbit/s, seconds.
CASES = [(4, 10, 60), (4, 100, 60), (16, 1000, 10)]
FASTER = 50
# Those that are also run with everything recorded: the trace of the third has 1 GB.
RECORDED = CASES[:2]
SCENARIO = """
duration = "{seconds}s"
[link]
rate = "{mbps}Mbit/s"
rtt = "20ms"
queue = "fq_codel"
[[flow]]
type = "tcp"
cc = "cubic"
count = {flows}
"""


def sluice(speed: str, case: int) -> tuple[float, float]:
    """Run a case. Return its seconds and its goodput in Mbit/s."""
    lines = subprocess.run([speed, str(case), "3"], check=True, capture_output=True, text=True)
    header, row = lines.stdout.strip().splitlines()
    assert header.split()[:3] == ["flows", "Mbit/s", "seconds"], "the columns of `speed`"
    fields = row.split()
    # The columns "run ms" and "goodput %"; 100 % is the link's payload rate, 1448 of 1514 bytes.
    capacity = CASES[case][1] * 1448 / 1514
    return float(fields[3]) / 1e3, float(fields[7]) / 100 * capacity


def recorded(command: str, case: tuple[int, int, int], words: list[str]) -> float:
    """Run a scenario with everything recorded three times. Return the median processor time."""
    flows, mbps, seconds = case
    times = []
    for _ in range(3):
        with tempfile.TemporaryDirectory() as folder:
            scenario = Path(folder, "dumbbell.toml")
            scenario.write_text(SCENARIO.format(flows=flows, mbps=mbps, seconds=seconds))
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            run = [command, "run", str(scenario), "--backend", "sim", *words, "-o", f"{folder}/out"]
            subprocess.run(run, check=True, capture_output=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(times)


def ns3(
    python: str, shape: str, case: tuple[int, int, int], folder: str | None = None
) -> dict[str, float]:
    """Run dumbbell.py. Return its output."""
    script = str(Path(__file__).with_name("dumbbell.py"))
    words = [python, script, shape, *map(str, case), *([folder] if folder else [])]
    # Cling reports on stderr what it cannot preload, which does not matter.
    done = subprocess.run(
        words, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    figures: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return figures


def main() -> int:
    """Print the table."""
    python, speed, command = sys.argv[1:]
    print("flows  Mbit/s  seconds |  Sluice s  Mbit/s | ns-3     s  Mbit/s  times slower")
    too_slow = 0
    for case, (flows, mbps, seconds) in enumerate(CASES):
        own, goodput = sluice(speed, case)
        for shape in ("router", "direct"):
            other = ns3(python, shape, CASES[case])
            times = other["cpu_s"] / own
            too_slow += shape == "router" and times < FASTER
            print(
                f"{flows:>5} {mbps:>7} {seconds:>8} | {own:>9.4f} {goodput:>7.1f} |"
                f" {shape:<6} {other['cpu_s']:>5.2f} {other['goodput_mbps']:>7.1f} {times:>8.0f}",
                flush=True,
            )
    print("\nwith everything recorded: all processor time in seconds, and times slower")
    print("flows  Mbit/s  seconds | Sluice with page     without | ns-3     s  with page  without")
    for flows, mbps, seconds in RECORDED:
        pages = [recorded(command, (flows, mbps, seconds), words) for words in ([], ["--json"])]
        for shape in ("router", "direct"):
            with tempfile.TemporaryDirectory() as folder:
                spent = ns3(python, shape, (flows, mbps, seconds), folder)["all_cpu_s"]
            too_slow += shape == "router" and spent / pages[1] < FASTER
            print(
                f"{flows:>5} {mbps:>7} {seconds:>8} | {pages[0]:>16.3f} {pages[1]:>11.3f} |"
                f" {shape:<6} {spent:>5.1f} {spent / pages[0]:>9.0f} {spent / pages[1]:>8.0f}",
                flush=True,
            )
    return int(too_slow > 0)


if __name__ == "__main__":
    sys.exit(main())
