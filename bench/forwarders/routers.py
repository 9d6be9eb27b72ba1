#!/usr/bin/env python3
"""Measures TCP through `sluice router`, as a user starts it, as a ratio of kernel forwarding.

`routers.py SLUICE`. Two hosts and a router between them, in namespaces that belong to this process
and vanish with it. In each round, the kernel forwards first, and then each command line does; the
ratio is to the kernel of the same round. All flows pass fq_codel without a rate; interfaces have
their offloads.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import time
from pathlib import Path

from measure import HOSTS, PORTS, Network, into_namespaces, run

RULES = """pipe 1 config
sched 1 config type fq_codel
queue 1 config sched 1
add 100 queue 1 ip from any to any {out}
add 200 allow ip from any to any
"""
# Each way to start the router: its words, and the part of the rule that chooses one pass of two.
STARTS = [
    ("router --forward --headers-only", "out"),
    ("router --forward", "out"),
    (f"router --port packet {' '.join(PORTS.values())}", "in"),
    (f"router --port xdp {' '.join(PORTS.values())}", "in"),
]
CONTROLS = ["cubic", "bbr"]


def main() -> int:
    """Move into namespaces of our own, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sluice", help="the command")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2, help="length of a measurement")
    parser.add_argument("--flows", type=int, default=4)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    into_namespaces(args.inside)
    run("mount -t tmpfs none /run")
    network = Network(offloads=True)
    server = subprocess.Popen([*network.inside("h3"), "iperf3", "-s"], stdout=subprocess.DEVNULL)
    time.sleep(0.5)
    print(f"machine  {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {os.uname().release}")
    ratios: dict[tuple[str, str], list[float]] = {}
    kernel: dict[str, list[float]] = {control: [] for control in CONTROLS}
    for number in range(args.rounds):
        network.route(True)
        reference = {control: goodput(network, control, args) for control in CONTROLS}
        for control, rate in reference.items():
            kernel[control].append(rate)
        for words, out in STARTS:
            print(f"round {number + 1} of {args.rounds}: {words}", file=sys.stderr)
            command = start(args.sluice, words, out)
            network.route("--forward" in words)
            router = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
            wait_for(network, router, command)
            for control in CONTROLS:
                rate = goodput(network, control, args)
                ratios.setdefault((words, control), []).append(rate / reference[control])
            router.terminate()
            router.communicate()
    server.terminate()
    for control, rates in kernel.items():
        print(f"kernel forwarding, {args.flows} flows of {control}: {spread(rates, '.2f')} Gbit/s")
    for (words, control), values in ratios.items():
        print(f"sluice {words} --config rules, {control}: {spread(values, '.3f')} of the kernel")
    print(f"rules:\n{RULES.format(out='out')}", end="")
    return 0


def start(sluice: str, words: str, out: str) -> list[str]:
    """Return the command that starts a router, and write its rules."""
    Path("/run/rules").write_text(RULES.format(out=out))
    line = [sluice, *shlex.split(words), "--config", "/run/rules", "--socket", "/run/s", "-q"]
    return line


def wait_for(network: Network, router: subprocess.Popen[str], command: list[str]) -> None:
    """Wait until a router forwards."""
    ping = [*network.inside("h2"), *f"ping -q -c 1 -W 1 {HOSTS['h3']}".split()]
    deadline = time.monotonic() + 20
    while subprocess.run(ping, capture_output=True).returncode != 0:
        if router.poll() is not None or time.monotonic() > deadline:
            router.terminate()
            raise SystemExit(f"routers.py: {shlex.join(command)}: {router.communicate()[1]}")


def goodput(network: Network, control: str, args: argparse.Namespace) -> float:
    """Return Gbit/s of all flows together."""
    words = f"iperf3 -J -t {args.seconds} -O 0.5 -P {args.flows} -C {control} -c {HOSTS['h3']}"
    report = json.loads(run(words, network.inside("h2")))
    rate: float = report["end"]["sum_received"]["bits_per_second"]
    return rate / 1e9


def spread(values: list[float], digits: str) -> str:
    """Return the median with the smallest and the largest value."""
    low, high = min(values), max(values)
    return f"{statistics.median(values):{digits}} ({low:{digits}} to {high:{digits}})"


if __name__ == "__main__":
    sys.exit(main())
