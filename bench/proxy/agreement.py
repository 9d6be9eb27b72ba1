#!/usr/bin/env python3
"""Compare `sluice exec` with namespaces and without (`--proxy`), on links that have names.

Both modes run the same client against the same server on this machine's loopback, in turns, so that
a busy machine affects both equally. For each link the script prints, for both modes and with their
ratios, the median time to the first byte of a connection, its handshake included, and the median
goodput of a download and an upload, and the lowest and the highest ratio of a run's figure to the
median with namespaces. With `--check` it fails if a ratio of medians is outside its bound: 5 % for
the first byte, 2 % for goodput. If the runs with namespaces differ among themselves by more than
the bound, medians of a few runs say little. Then the figures of both modes must overlap.

A download or upload is long enough for several seconds on the link. Goodput counts the whole
transfer from the first byte on, with slow start and recovery.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time
from urllib.parse import urlsplit

FIRST_BYTE_BOUND = 0.05
GOODPUT_BOUND = 0.02
BLOCK = bytes(64 << 10)
# Connections of each run whose first bytes are timed.
CONNECTIONS = 5


def serve(listener: socket.socket) -> None:
    """Answer each connection: 8 bytes to download, 8 bytes to upload, then both."""
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=answer, args=(connection,), daemon=True).start()


def answer(connection: socket.socket) -> None:
    """Send and receive the numbers of bytes that a client requests."""
    with connection:
        down, up = struct.unpack("!QQ", receive(connection, 16))
        connection.sendall(b".")
        send(connection, down)
        receive_count(connection, up)
        connection.sendall(b".")


def receive(connection: socket.socket, count: int) -> bytes:
    """Return the next bytes of a connection."""
    received = b""
    while len(received) < count:
        part = connection.recv(count - len(received))
        if not part:
            raise EOFError
        received += part
    return received


def receive_count(connection: socket.socket, count: int) -> None:
    """Read and discard bytes."""
    while count > 0:
        part = connection.recv(min(count, 1 << 18))
        if not part:
            raise EOFError
        count -= len(part)


def send(connection: socket.socket, count: int) -> None:
    """Send the given number of bytes."""
    while count > 0:
        part = BLOCK[: min(count, len(BLOCK))]
        connection.sendall(part)
        count -= len(part)


def connect(port: int) -> socket.socket:
    """Connect to host.sluice: through the proxy if the environment names one."""
    proxy = os.environ.get("http_proxy")
    if not proxy:
        return socket.create_connection(("host.sluice", port))
    parts = urlsplit(proxy)
    connection = socket.create_connection((parts.hostname, parts.port))
    connection.sendall(f"CONNECT host.sluice:{port} HTTP/1.1\r\n\r\n".encode())
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += receive(connection, 1)
    if b" 200 " not in head.splitlines()[0]:
        raise ConnectionError(head.decode())
    return connection


def request(port: int, down: int, up: int) -> tuple[socket.socket, float]:
    """Return a connection whose first byte has arrived, and the time that this took."""
    start = time.perf_counter()
    connection = connect(port)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(struct.pack("!QQ", down, up))
    receive(connection, 1)
    return connection, time.perf_counter() - start


def client(port: int, down: int, up: int) -> None:
    """Transfer bytes both ways and print the times."""
    times = []
    for _ in range(1 + CONNECTIONS):
        connection, took = request(port, 0, 0)
        connection.close()
        times.append(took)
    # During the first connection, Python loads its resolver, which takes 1 to 4 ms: not the link's.
    figures = {"first_byte": statistics.median(times[1:])}
    connection, _ = request(port, down, up)
    first = time.perf_counter()
    receive_count(connection, down)
    middle = time.perf_counter()
    send(connection, up)
    receive(connection, 1)
    end = time.perf_counter()
    if down:
        figures["down"] = down * 8 / (middle - first)
    if up:
        figures["up"] = up * 8 / (end - middle)
    print(json.dumps(figures))


def rates(sluice: str, link: str) -> tuple[float, float]:
    """Return the rates of a link, down and up, in bits per second."""
    listed = subprocess.run([sluice, "list", "links", "--json"], check=True, capture_output=True)
    for entry in json.loads(listed.stdout):
        if link in entry["names"]:
            return float(entry["down_bps"]), float(entry["up_bps"])
    raise SystemExit(f"there is no link {link}")


def measure(
    sluice: str, link: str, mode: list[str], port: int, sizes: tuple[int, int]
) -> dict[str, float]:
    """Run the client behind a link and return what it printed."""
    command = [sluice, "exec", "--link", link, *mode, "--", sys.executable, __file__]
    command += ["--client", str(port), *map(str, sizes)]
    environment = {key: value for key, value in os.environ.items() if "proxy" not in key.lower()}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {done.stderr}")
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def main() -> int:
    """Compare both modes on every link."""
    if sys.argv[1:2] == ["--client"]:
        client(*map(int, sys.argv[2:5]))
        return 0
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sluice", help="the command")
    parser.add_argument("links", nargs="+", help="links by their names")
    parser.add_argument("--repeat", type=int, default=5, help="runs of each mode")
    parser.add_argument("--seconds", type=float, default=8, help="length of a transfer")
    parser.add_argument("--cc", default="reno", help="congestion control of both modes")
    parser.add_argument("--check", action="store_true", help="fail if a ratio is out of bounds")
    args = parser.parse_args()

    with contextlib.suppress(PermissionError):
        # Before all ordinary programs, so that a busy machine disturbs less. Root may.
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    threading.Thread(target=serve, args=(listener,), daemon=True).start()
    port = listener.getsockname()[1]

    print(f"{'link':16} {'figure':10} {'exec':>12} {'proxy':>12} {'ratio':>7}  runs")
    failures = []
    for link in args.links:
        down, up = rates(args.sluice, link)
        sizes = (int(down / 8 * args.seconds), int(up / 8 * args.seconds))
        figures: dict[str, dict[str, list[float]]] = {}
        for _ in range(args.repeat):
            for name, mode in (("exec", []), ("proxy", ["--proxy"])):
                measured = measure(args.sluice, link, [*mode, "--cc", args.cc], port, sizes)
                for figure, value in measured.items():
                    figures.setdefault(figure, {}).setdefault(name, []).append(value)
        for figure, values in figures.items():
            medians = {name: statistics.median(of) for name, of in values.items()}
            ratio = medians["proxy"] / medians["exec"]
            scale, unit = (1e3, "ms") if figure == "first_byte" else (1e-6, "Mbit/s")
            shown = [f"{medians[name] * scale:.3f} {unit}" for name in ("exec", "proxy")]
            low = {name: min(of) / medians["exec"] for name, of in values.items()}
            high = {name: max(of) / medians["exec"] for name, of in values.items()}
            spread = "  ".join(f"{name} {low[name]:.3f} to {high[name]:.3f}" for name in values)
            print(
                f"{link:16} {figure:10} {shown[0]:>12} {shown[1]:>12} {ratio:7.4f}  {spread}",
                flush=True,
            )
            bound = FIRST_BYTE_BOUND if figure == "first_byte" else GOODPUT_BOUND
            is_sure = high["exec"] - low["exec"] <= bound
            overlap = low["proxy"] <= high["exec"] and low["exec"] <= high["proxy"]
            if abs(ratio - 1) > bound and (is_sure or not overlap):
                failures.append(f"{link}: {figure} differs by {ratio - 1:+.1%} ({spread})")
    for failure in failures:
        print(failure, file=sys.stderr)
    return int(args.check and bool(failures))


if __name__ == "__main__":
    sys.exit(main())
