#!/usr/bin/env python3
"""Measures the processor time of shaping: `sluice router` with one pipe, exact and with slack.

`shaping.py SLUICE`. Two hosts and a router between them, in namespaces that belong to this process
and vanish with it. TCP from one host to the other passes one pipe with fq_codel, so every packet of
1500 bytes has its own due time. The rates and the options of the router alternate in each round.

The share of a core is that of the loop's thread. On virtual interfaces, the kernel processes a
packet for the receiving host, and that host's acknowledgement, on the thread that sends the packet,
so the share includes the receiving host's work. The lateness is that of the packets, in powers of
two: 65.536 and 131.072 us are the upper bounds of two of them.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

from measure import HOSTS, PORTS, Network, into_namespaces, run
from routers import wait_for

RULES = """pipe 1 config bw {rate}Mbit/s
sched 1 config type fq_codel
queue 1 config sched 1
add 100 queue 1 ip from {source} to any in
add 200 allow ip from any to any
"""
RATES = [100, 300, 1000]
OPTIONS = ["", "--slack 50us", "--slack 100us", "--spin none", "--spin none --slack 100us"]


def main() -> int:
    """Move into namespaces of our own, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sluice", help="the command")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2, help="length of a measurement")
    parser.add_argument("--flows", type=int, default=4)
    parser.add_argument("--rates", type=int, nargs="+", default=RATES, help="in Mbit/s")
    parser.add_argument("--options", nargs="+", default=OPTIONS, help="of routers")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    into_namespaces(args.inside)
    run("mount -t tmpfs none /run")
    network = Network(offloads=True)
    network.aim(False)
    server = subprocess.Popen(
        [*network.inside("h3"), "iperf3", "-s"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    time.sleep(0.5)
    print(f"machine  {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {os.uname().release}")
    found: dict[tuple[int, str], list[tuple[float, float, float, float]]] = {}
    for _ in range(args.rounds):
        for rate in args.rates:
            for options in args.options:
                found.setdefault((rate, options), []).append(once(network, rate, options, args))
    server.terminate()
    head = f"{'Mbit/s':>6}  {'options':40} {'share of a core':>18} {'Mbit/s':>7}"
    print(f"{head} {'late 50 %':>11} {'99 %':>10}")
    for (rate, options), rounds in found.items():
        core, goodput, middle, late = (
            statistics.median(each) for each in zip(*rounds, strict=True)
        )
        shares = [each[0] for each in rounds]
        spread = f"{core:.0%} ({min(shares):.0%} to {max(shares):.0%})"
        row = f"{rate:6}  {options.strip() or 'exact':40} {spread:>18} {goodput:7.1f}"
        print(f"{row} {middle:8.1f} us {late:7.1f} us")
    return 0


def once(
    network: Network, rate: int, options: str, args: argparse.Namespace
) -> tuple[float, float, float, float]:
    """Return the share of a core, the goodput in Mbit/s, and median and p99 of the lateness."""
    Path("/run/rules").write_text(RULES.format(rate=rate, source=HOSTS["h2"]))
    # Every packet of the highest rate is also split.
    words = f"router --port packet {' '.join(PORTS.values())} --split-below 2Gbit/s {options}"
    command = [args.sluice, *shlex.split(words), *shlex.split("--config /run/rules -q --json")]
    router = subprocess.Popen(
        [*command, "--socket", "/run/s"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_for(network, router, command)
    words = f"iperf3 -J -t {args.seconds} -O 0.5 -P {args.flows} -C cubic -c {HOSTS['h3']}"
    traffic = subprocess.Popen(
        [*network.inside("h2"), *words.split()], stdout=subprocess.PIPE, text=True
    )
    # The flows have started.
    time.sleep(0.5)
    before, start = busiest(router.pid), time.monotonic()
    time.sleep(args.seconds - 0.2)
    share = (busiest(router.pid) - before) / (time.monotonic() - start)
    report = json.loads(traffic.communicate()[0])
    router.send_signal(signal.SIGINT)
    status = json.loads(router.communicate()[0])
    goodput: float = report["end"]["sum_received"]["bits_per_second"] / 1e6
    return share, goodput, status["late_p50_ns"] / 1e3, status["late_p99_ns"] / 1e3


def busiest(pid: int) -> float:
    """Return the processor time of the busiest thread, in seconds (proc(5), `schedstat`)."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return max(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


if __name__ == "__main__":
    sys.exit(main())
