#!/usr/bin/env python3
"""Measures the processor time of shaping: `sluice router` with one pipe, exact and with slack.

`shaping.py SLUICE`. Two hosts and a router between them, in namespaces that belong to this process
and vanish with it. TCP from one host to the other passes one pipe with fq_codel, so every packet of
1500 bytes has its own due time. The rates and the options of the router alternate in each round,
with kernel forwarding and the kernel's token bucket (tbf), whose burst is one packet, or one packet
and what the rate allows in 50 us.

The hosts have the first core and the router the last one. The share of a core is that of the loop's
thread; "all cores" is the time for which the machine was not idle, with both hosts. With
`--shared-core`, the kernel processes a packet for the receiving host, and that host's
acknowledgement, on the thread that sends the packet, so that the loop's share includes the
receiving host's work.

The lateness is that of the packets, to within an eighth.
"""

from __future__ import annotations

import argparse
import json
import math
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
KERNEL = {"kernel tbf": 0.0, "kernel tbf, burst of 50us": 50e-6}
OPTIONS = [*KERNEL, "", "--slack 50us", "--slack 100us", "--spin none"]


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
    parser.add_argument(
        "--shared-core",
        action="store_true",
        help="let hosts use all cores, and receive on that of the loop",
    )
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    into_namespaces(args.inside)
    run("mount -t tmpfs none /run")
    network = Network(offloads=True)
    if not args.shared_core:
        keep_hosts_apart(network)
    network.aim(False)
    server = subprocess.Popen(
        [*network.inside("h3"), "iperf3", "-s"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    time.sleep(0.5)
    print(f"machine  {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {os.uname().release}")
    found: dict[tuple[int, str], list[tuple[float, ...]]] = {}
    for _ in range(args.rounds):
        for rate in args.rates:
            for options in args.options:
                found.setdefault((rate, options), []).append(once(network, rate, options, args))
    server.terminate()
    head = f"{'Mbit/s':>6}  {'options':26} {'share of a core':>18} {'all cores':>18} {'Mbit/s':>7}"
    print(f"{head} {'late 50 %':>10} {'99 %':>8}")
    for (rate, options), rounds in found.items():
        core, machine, goodput, middle, late = zip(*rounds, strict=True)
        row = f"{rate:6}  {options.strip() or 'exact':26} {spread(core):>18} {spread(machine):>18}"
        row = f"{row} {statistics.median(goodput):7.1f}"
        if options not in KERNEL:
            row = f"{row} {statistics.median(middle):7.1f} us {statistics.median(late):5.0f} us"
        print(row)
    return 0


def spread(shares: tuple[float, ...]) -> str:
    """Return the median with the smallest and the largest share; nothing without shares."""
    if math.isnan(shares[0]):
        return ""
    return f"{statistics.median(shares):.0%} ({min(shares):.0%} to {max(shares):.0%})"


def keep_hosts_apart(network: Network) -> None:
    """Let this process and all that it starts run on the first core, also what hosts receive.

    The kernel hands what a host receives over to that core (receive packet steering), where its TCP
    then works, as if the host were a machine of its own.
    """
    os.sched_setaffinity(0, {0})
    steer = "mount -t sysfs none /sys && echo 1 > /sys/class/net/eth0/queues/rx-0/rps_cpus"
    for host in HOSTS:
        run(["unshare", "--mount", "sh", "-c", steer], network.inside(host))


def once(network: Network, rate: int, options: str, args: argparse.Namespace) -> tuple[float, ...]:
    """Return the shares of a core and of the machine, Mbit/s, and the lateness in us (p50, p99)."""
    if options in KERNEL:
        # All frames of a packet's size: 1514 bytes, and 4 that tbf needs not.
        burst = 1518 + int(rate * 1e6 / 8 * KERNEL[options])
        network.route(True)
        run(f"tc qdisc add dev {PORTS['h3']} root tbf rate {rate}mbit burst {burst} limit 1500000")
        shares, goodput = traffic(network, args, None)
        run(f"tc qdisc del dev {PORTS['h3']} root")
        network.route(False)
        return *shares, goodput, math.nan, math.nan
    Path("/run/rules").write_text(RULES.format(rate=rate, source=HOSTS["h2"]))
    # Every packet of the highest rate is also split.
    words = f"router --port packet {' '.join(PORTS.values())} --split-below 2Gbit/s {options}"
    command = [args.sluice, *shlex.split(words), *shlex.split("--config /run/rules -q --json")]
    if not args.shared_core:
        command = ["taskset", "--cpu-list", str((os.cpu_count() or 1) - 1), *command]
    router = subprocess.Popen(
        [*command, "--socket", "/run/s"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_for(network, router, command)
    shares, goodput = traffic(network, args, router.pid)
    router.send_signal(signal.SIGINT)
    status = json.loads(router.communicate()[0])
    return *shares, goodput, status["late_p50_ns"] / 1e3, status["late_p99_ns"] / 1e3


def traffic(
    network: Network, args: argparse.Namespace, pid: int | None
) -> tuple[tuple[float, float], float]:
    """Send TCP. Return the share of a core of a process's busiest thread, of all, and Mbit/s."""
    words = f"iperf3 -J -t {args.seconds} -O 0.5 -P {args.flows} -C cubic -c {HOSTS['h3']}"
    client = subprocess.Popen(
        [*network.inside("h2"), *words.split()], stdout=subprocess.PIPE, text=True
    )
    # The flows have started.
    time.sleep(0.5)
    before, idle, start = busiest(pid), idle_time(), time.monotonic()
    time.sleep(args.seconds - 0.2)
    took = time.monotonic() - start
    loop = (busiest(pid) - before) / took
    machine = (os.cpu_count() or 1) - (idle_time() - idle) / took
    report = json.loads(client.communicate()[0])
    return (loop, machine), report["end"]["sum_received"]["bits_per_second"] / 1e6


def busiest(pid: int | None) -> float:
    """Return the processor time of the busiest thread, in seconds (proc(5), `schedstat`)."""
    if pid is None:
        return math.nan
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return max(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def idle_time() -> float:
    """Return for how long all cores together have been idle, in seconds (proc(5), `stat`)."""
    words = Path("/proc/stat").read_text().split("\n")[0].split()
    return (int(words[4]) + int(words[5])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(main())
