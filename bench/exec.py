#!/usr/bin/env python3
"""Measures `sluice exec`: start and end, many at once, throughput. Prints a line for each figure.

`bench/exec.py SLUICE`. Each figure has a reference from the same minute: `true` without Sluice, and
TCP over the loopback. The same figures are measured for Mahimahi and netem; a line reports which of
them is missing. Needs iperf3.
"""

import argparse
import concurrent.futures
import json
import os
import shutil
import statistics
import subprocess
import sys
import time

STARTS = 50
AT_ONCE = 50
SECONDS = 4


def seconds_of(command: list[str]) -> float:
    """Return how long a command takes."""
    start = time.monotonic()
    subprocess.run(command, check=True, capture_output=True)
    return time.monotonic() - start


def starts(command: list[str]) -> str:
    """Run a command several times, one after the other. Return its times as text."""
    took = sorted(seconds_of(command) for _ in range(STARTS))
    ms = [1e3 * seconds for seconds in took]
    return f"median {statistics.median(ms):.1f} ms, {ms[0]:.1f} to {ms[-1]:.1f} ms"


def answer_of(sluice: str, number: int) -> bool:
    """Run a server and a client behind a link. Return whether the client reached that server."""
    script = (
        "import socket\ns = socket.create_server(('', 8000))\n"
        f"c = s.accept()[0]; c.sendall(b'{number}'); c.close()\n"
        "import time; time.sleep(60)\n"
    )
    client = (
        "import socket\nc = socket.create_connection(('server.sluice', 8000), 60)\n"
        "print(c.makefile().read())\n"
    )
    link = [sluice, "exec", "--link", "lte", "--server"]
    done = subprocess.run(
        [*link, f'exec python3 -c "{script}"', "--", "python3", "-c", client],
        capture_output=True,
        text=True,
    )
    return done.stdout.strip() == str(number)


def iperf(command: list[str], server: list[str] | None = None) -> float:
    """Run iperf3's client. Return Gbit/s at the receiver."""
    beside = subprocess.Popen(server, stdout=subprocess.DEVNULL) if server else None
    try:
        time.sleep(0.5 if beside else 0)
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"bench/exec.py: {command}: {done.stdout}{done.stderr}")
        received: float = json.loads(done.stdout)["end"]["sum_received"]["bits_per_second"]
        return received / 1e9
    finally:
        if beside:
            beside.terminate()
            beside.wait()


def has_netem() -> bool:
    """Return whether the kernel has netem, by trying it in a separate namespace."""
    if shutil.which("tc") is None or shutil.which("unshare") is None:
        return False
    command = [
        "unshare",
        "-Urn",
        "tc",
        "qdisc",
        "add",
        "dev",
        "lo",
        "root",
        "netem",
        "delay",
        "1ms",
    ]
    return subprocess.run(command, capture_output=True).returncode == 0


def main() -> int:
    """Take the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("sluice", help="the command")
    sluice = parser.parse_args().sluice
    load = os.getloadavg()[0]
    print(f"machine        {os.cpu_count()} cores, load {load:.1f}, Linux {os.uname().release}")
    print(f"start and end  true alone: {starts(['true'])}")
    print(f"start and end  sluice exec: {starts([sluice, 'exec', '--link', 'lte', '--', 'true'])}")

    start = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        own = list(pool.map(lambda number: answer_of(sluice, number), range(AT_ONCE)))
    took = time.monotonic() - start
    print(
        f"{AT_ONCE} at once     {sum(own)} of {AT_ONCE} reached their own server, in {took:.1f} s"
    )

    client = ["iperf3", "-J", "-t", str(SECONDS), "-c"]
    loopback = iperf([*client, "127.0.0.1", "-p", "5311"], ["iperf3", "-s", "-p", "5311"])
    link = [sluice, "exec", "--server", "exec iperf3 -s >/dev/null", "--"]
    up = iperf([*link, *client, "server.sluice"])
    down = iperf([*link, *client, "server.sluice", "-R"])
    print(f"throughput     loopback {loopback:.2f} Gbit/s")
    print(
        f"throughput     sluice exec without a rate: up {up:.2f} Gbit/s ({up / loopback:.0%}),"
        f" down {down:.2f} Gbit/s ({down / loopback:.0%})"
    )

    if shutil.which("mm-delay") is None:
        print("Mahimahi       left out: mm-delay is not installed (Debian 12 has no package)")
    else:
        print(f"Mahimahi       start and end of mm-delay: {starts(['mm-delay', '35', 'true'])}")
    if not has_netem():
        print("netem          left out: the kernel has no sch_netem, or allows no namespaces")
    else:
        setup = "ip link set lo up; tc qdisc add dev lo root netem delay 35ms rate 12mbit; true"
        print(f"netem          start and end: {starts(['unshare', '-Urn', 'sh', '-c', setup])}")
        script = f"{setup}; iperf3 -s -D; sleep 1; iperf3 -J -t {SECONDS} -c 127.0.0.1"
        rate = iperf(["unshare", "-Urnpf", "--mount-proc", "sh", "-c", script])
        print(f"netem          12 Mbit/s, 70 ms: {1e3 * rate:.2f} Mbit/s of payload")
    return 0


if __name__ == "__main__":
    sys.exit(main())
