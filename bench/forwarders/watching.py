#!/usr/bin/env python3
"""Measures what it costs to watch a router: TCP through it, watched and not, in the same rounds.

`watching.py SLUICE`. Two hosts and a router between them, in namespaces that belong to this process
and vanish with it. In each round a router without watchers comes first, and then each command line
does, with a reader of the page's events and a scrape of the metrics once a second. Printed are the
ratios of the goodput to that of the unwatched router of the same round.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

from measure import PORTS, Network, into_namespaces, run
from routers import RULES, goodput, spread, wait_for

TRAFFIC = f"router --port packet {' '.join(PORTS.values())}"
# The ways to watch; the first is compared with itself, for the noise of the machine.
WAYS = {
    "not watched": "",
    "page, and a scrape a second": "--http 127.0.0.1:0",
    "round-trip times": "--rtt",
    "flow log": "--flow-log /run/flows.json",
}


def main() -> int:
    """Move into namespaces of our own, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sluice", help="the command")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=3, help="length of a measurement")
    parser.add_argument("--flows", type=int, default=4)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    into_namespaces(args.inside)
    run("mount -t tmpfs none /run")
    run("ip link set lo up")
    network = Network(offloads=True)
    network.route(False)
    server = subprocess.Popen([*network.inside("h3"), "iperf3", "-s"], stdout=subprocess.DEVNULL)
    time.sleep(0.5)
    print(f"machine  {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {os.uname().release}")
    Path("/run/rules").write_text(RULES.format(out="in"))
    ratios: dict[str, list[float]] = {way: [] for way in WAYS}
    rates: list[float] = []
    for number in range(args.rounds):
        print(f"round {number + 1} of {args.rounds}", file=sys.stderr)
        reference = measured(network, "", args)
        rates.append(reference)
        for way, words in WAYS.items():
            ratios[way].append(measured(network, words, args) / reference)
    server.terminate()
    print(f"sluice {TRAFFIC}, {args.flows} flows of cubic: {spread(rates, '.2f')} Gbit/s")
    for way, values in ratios.items():
        print(f"{way} {WAYS[way]}: {spread(values, '.3f')} of the goodput without")
    return 0


def measured(network: Network, words: str, args: argparse.Namespace) -> float:
    """Return the goodput through a router that is watched in this way."""
    line = f"{TRAFFIC} {words} --config /run/rules --socket /run/s"
    command = [args.sluice, *shlex.split(line)]
    log = Path("/run/log")
    with log.open("w") as errors:
        router = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, text=True)
    wait_for(network, router, command)
    is_over = threading.Event()
    readers = []
    if found := re.search(r"http://[\d.:]+", log.read_text()):
        work = [(read_events, found[0]), (scrape, found[0])]
        readers = [threading.Thread(target=do, args=(at, is_over)) for do, at in work]
    for reader in readers:
        reader.start()
    # The first sample is taken before the measurement begins.
    time.sleep(1.5)
    rate = goodput(network, "cubic", args)
    is_over.set()
    router.terminate()
    for reader in readers:
        reader.join()
    router.wait()
    return rate


def read_events(address: str, is_over: threading.Event) -> None:
    """Read the events of the page, as a browser does."""
    with urllib.request.urlopen(f"{address}/events", timeout=10) as stream:
        while not is_over.is_set() and stream.readline():
            pass


def scrape(address: str, is_over: threading.Event) -> None:
    """Read the metrics once a second, as Prometheus does."""
    while not is_over.wait(1):
        with urllib.request.urlopen(f"{address}/metrics", timeout=10) as answer:
            answer.read()


if __name__ == "__main__":
    sys.exit(main())
