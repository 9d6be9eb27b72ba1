"""Compare the simulator with live runs: a Markdown table of the figures that both have.

Usage: compare.py SIMULATED LIVE [LIVE ...]

Each is the folder of one run of the same scenario (`sluice run FILE --backend sim -o SIMULATED`).
A figure of the simulator is compared with the median of the live runs, within the bounds of
docs/explanation/validation.md; the exit status is the number of figures outside.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from statistics import median

# Figure, unit, and the largest accepted difference of the simulator.
BOUNDS = {
    "goodput": ("Mbit/s", 0.02),
    "sojourn p50": ("ms", 0.15),
    "sojourn p95": ("ms", 0.25),
    "sojourn mean": ("ms", 0.15),
    "srtt p50": ("ms", 0.15),
    "srtt p95": ("ms", 0.25),
    "ping p50": ("ms", 0.15),
    "ping p95": ("ms", 0.25),
    "drops a minute": ("", 0.30),
}


def figures(folder: Path) -> dict[str, float]:
    """Read the compared figures of one variant of one run, in the units above."""
    summary = json.loads((folder / "summary.json").read_text())
    window = summary["window"]
    minutes = (window["end_ns"] - window["warmup_ns"]) / 60e9
    up = next(pipe for pipe in summary["pipes"] if pipe["name"] == "up")
    out = {
        "goodput": summary["total_goodput_bps"] / 1e6,
        "sojourn p50": up["sojourn"]["p50_ns"] / 1e6,
        "sojourn p95": up["sojourn"]["p95_ns"] / 1e6,
        "sojourn mean": up["sojourn"]["mean_ns"] / 1e6,
        "drops a minute": sum(up["drops"].values()) / minutes,
    }
    for key, name in (("srtt", "srtt"), ("rtt", "ping")):
        found = [flow[key] for flow in summary["flows"] if flow.get(key)]
        if found:
            for percentile in ("p50", "p95"):
                # With several flows, the median one.
                values = [flow[f"{percentile}_ns"] / 1e6 for flow in found]
                out[f"{name} {percentile}"] = median(values)
    return out


def variants(run: Path) -> list[str]:
    """List the folders of a run's variants."""
    return sorted(path.parent.name for path in run.glob("*/summary.json"))


def main() -> int:
    """Print the table; return the number of figures outside their bounds."""
    simulated, *live = (Path(word) for word in sys.argv[1:])
    outside = 0
    print("| variant | figure | live, median (all) | simulated | difference | bound |")
    print("|---|---|---:|---:|---:|---:|")
    for variant in variants(simulated):
        ours = figures(simulated / variant)
        theirs = [figures(run / variant) for run in live]
        for name, (unit, bound) in BOUNDS.items():
            if name not in ours or any(name not in run for run in theirs):
                continue
            values = sorted(run[name] for run in theirs)
            middle = median(values)
            if middle == 0:
                error = 0.0 if ours[name] == 0 else math.inf
            else:
                error = ours[name] / middle - 1
            is_outside = abs(error) > bound
            outside += is_outside
            listed = ", ".join(f"{value:.4g}" for value in values)
            mark = "**" if is_outside else ""
            print(
                f"| {variant} | {name}{f' ({unit})' if unit else ''} | {middle:.4g} ({listed}) "
                f"| {ours[name]:.4g} | {mark}{100 * error:+.1f} %{mark} | {100 * bound:.0f} % |"
            )
    return outside


if __name__ == "__main__":
    sys.exit(main())
