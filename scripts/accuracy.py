#!/usr/bin/env python3
"""Measures named links under `sluice exec` with iperf3 and ping.

`scripts/accuracy.py SLUICE [--seconds N] [--jobs N] [LINK...]`. A rate must be within 1 % of the
link's, each way, and the median round trip of an idle link within 0.5 ms. Exit status 1 if one is
not.

The rate is that of UDP datagrams that arrive while more are sent than the link carries. The first
two seconds and the last one do not count. On a busy machine, one undisturbed measurement suffices,
so a measurement that is not exact is repeated. A link whose measurements were all late, as
`--max-late` says, is not judged; more than half of the links must be. A link counts IP packets, or
the ATM cells of PPPoE frames over LLC, 40 bytes more per packet (RFC 2684). The transmission time
of the echo itself, in both directions, does not count as round trip.
"""

import argparse
import concurrent.futures
import json
import math
import statistics
import subprocess
import sys
from typing import Any

LINKS = [
    "wpt/3g",
    "wpt/3g-fast",
    "devtools/fast-4g",
    "wpt/4g",
    "wpt/lte",
    "wpt/dsl",
    "wpt/cable",
    "atc/cable",
    "wpt/fios",
    "lighthouse/desktop",
]
RATE_ERROR = 0.01
RTT_ERROR_MS = 0.5
TRIES = 4
# A tenth of the permitted error of the round trip.
MAX_LATE = "50us"
TOO_LATE = 75  # exit status of sluice exec
HEADERS = 28  # IPv4 and UDP, or IPv4 and ICMP
PING_PAYLOAD = 24


def on_link(ip_bytes: int, toml: str) -> int:
    """Return the bytes that a link counts for an IP packet."""
    if 'cells = "atm"' in toml:
        return math.ceil((ip_bytes + 40) / 48) * 53
    return ip_bytes


def received_bps(report: dict[str, Any]) -> float:
    """Return the payload that arrived per second, without the start and the end."""
    sums = [interval["sum"] for interval in report["intervals"]][2:-1]
    seconds = sum(s["seconds"] for s in sums)
    # Without intervals, nothing was measured: the rate is wrong, and the run is repeated.
    return sum(s["bytes"] for s in sums) * 8 / seconds if seconds else 0.0


def measure(
    sluice: str, name: str, link: dict[str, Any], seconds: int
) -> tuple[dict[str, float], bool]:
    """Run iperf3 and ping behind a link. Return the errors of its rates and its round trip.

    Also return whether the emulation was in time.
    """
    payload = {way: 1200 if link[f"{way}_bps"] >= 1_000_000 else 400 for way in ("up", "down")}
    commands = [f"ping -4 -n -q -c 3 -i 0.2 -s {PING_PAYLOAD} server.sluice"]
    commands.append(f"ping -4 -n -c 30 -i 0.1 -s {PING_PAYLOAD} server.sluice")
    for way, options in (("up", "--get-server-output"), ("down", "-R")):
        offered = int(1.5 * link[f"{way}_bps"])
        load = f"-u -t {seconds} -l {payload[way]} -b {offered} {options}"
        commands.append(f"iperf3 -4 -c server.sluice -J {load}")
    script = "; echo; echo ----; ".join(commands)
    link_options = [sluice, "exec", "--link", name, "--max-late", MAX_LATE]
    server = "exec iperf3 -s -J >/dev/null"
    done = subprocess.run(
        [*link_options, "--server", server, "--", "sh", "-c", script],
        capture_output=True,
        text=True,
        timeout=10 * seconds + 60,
    )
    parts = done.stdout.split("\n----\n")
    if done.returncode not in (0, TOO_LATE) or len(parts) != 4:
        raise SystemExit(f"accuracy: {name}: status {done.returncode}: {done.stdout}{done.stderr}")
    times = [
        float(line.split("time=")[1].split()[0])
        for line in parts[1].splitlines()
        if "time=" in line
    ]
    echo = on_link(HEADERS + PING_PAYLOAD, link["toml"]) * 8e3
    sending = echo / link["up_bps"] + echo / link["down_bps"]
    errors = {"rtt_ms": statistics.median(times) - sending - link["rtt_ns"] / 1e6}
    for way, text in (("up", parts[2]), ("down", parts[3])):
        report = json.loads(text)
        report = report.get("server_output_json", report)
        counted = on_link(HEADERS + payload[way], link["toml"])
        rate = received_bps(report) * counted / payload[way]
        errors[way] = rate / link[f"{way}_bps"] - 1
    said = done.stderr.partition("\n")[0].removeprefix("sluice: ")
    print(
        f"{name:22} down {errors['down']:+.2%}  up {errors['up']:+.2%}"
        f"  rtt {errors['rtt_ms']:+.3f} ms   {said}",
        flush=True,
    )
    return errors, done.returncode == 0


def is_exact(errors: dict[str, float]) -> bool:
    """Return whether all errors are within the bounds."""
    is_rate_exact = all(abs(errors[way]) <= RATE_ERROR for way in ("up", "down"))
    return is_rate_exact and abs(errors["rtt_ms"]) <= RTT_ERROR_MS


def judge(sluice: str, name: str, link: dict[str, Any], seconds: int) -> bool | None:
    """Return whether a link is exact, or `None` if the machine was too busy for a result."""
    was_in_time = False
    for _ in range(TRIES):
        errors, is_in_time = measure(sluice, name, link, seconds)
        if is_exact(errors):
            return True
        was_in_time |= is_in_time
    return False if was_in_time else None


def main() -> int:
    """Measure the links and report those that are not exact."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("sluice", help="the command")
    parser.add_argument("links", nargs="*", metavar="LINK", help="names [default: ten links]")
    parser.add_argument("--seconds", type=int, default=10, help="of each direction [default: 10]")
    parser.add_argument("--jobs", type=int, default=1, help="links at the same time [default: 1]")
    args = parser.parse_intermixed_args()
    listed = subprocess.run(
        [args.sluice, "list", "links", "--json"], capture_output=True, text=True, check=True
    )
    known = {name: link for link in json.loads(listed.stdout) for name in link["names"]}
    names = args.links or LINKS
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        judged = pool.map(lambda name: judge(args.sluice, name, known[name], args.seconds), names)
        verdicts = dict(zip(names, judged, strict=True))
    wrong = [name for name, verdict in verdicts.items() if verdict is False]
    unknown = [name for name, verdict in verdicts.items() if verdict is None]
    if wrong:
        print(f"accuracy: not within 1 % and 0.5 ms: {', '.join(wrong)}", file=sys.stderr)
    if unknown:
        print(f"accuracy: the machine was too busy for: {', '.join(unknown)}", file=sys.stderr)
    return 1 if wrong or 2 * len(unknown) >= len(names) else 0


if __name__ == "__main__":
    sys.exit(main())
