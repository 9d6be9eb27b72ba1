#!/usr/bin/env python3
"""Measures forwarders in C, Go, Python and Rust beside the kernel and Sluice.

Every forwarder connects the same two hosts, without offloads: `h2 -- router -- h3`, in namespaces
that belong to this process and vanish with it, however it ends. One TCP flow measures the
throughput, pings the round trip of the idle network. The methods alternate in each round.

`measure.py SLUICE -o FOLDER` writes `forwarding.json` and the table `forwarding.md`; with
`--chart FILE` it also draws a chart (matplotlib). A language without toolchain is left out.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import fcntl
import json
import os
import re
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILT = HERE.parent.parent / "target" / "forwarders"
HOSTS = {"h2": "10.23.0.2", "h3": "10.23.0.3"}
PORTS = {"h2": "r2", "h3": "r3"}
MACS = {"h2": "02:00:00:00:00:02", "h3": "02:00:00:00:00:03"}
ROUTER_MACS = {"h2": "02:00:00:00:00:0c", "h3": "02:00:00:00:00:0d"}

# For each language: the program that must exist, the Debian package with it, and the compilation.
LANGUAGES: dict[str, tuple[str, str, list[str]]] = {
    "C": ("cc", "gcc", ["cc", "-O2", "-pthread", "-o", "{out}", "forward.c"]),
    "Go": ("go", "golang-go", ["go", "build", "-o", "{out}", "forward.go"]),
    "Python": ("python3", "python3", []),
    "Rust": ("rustc", "rustc", ["rustc", "--edition", "2024", "-O", "-o", "{out}", "forward.rs"]),
}


def main() -> int:
    """Move into namespaces of our own, build, measure, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sluice", help="the command")
    parser.add_argument("-o", "--output", type=Path, metavar="FOLDER", required=True)
    parser.add_argument("--chart", type=Path, metavar="FILE")
    parser.add_argument("--rounds", type=int, default=5, help="0 only compiles")
    parser.add_argument("--seconds", type=float, default=2, help="length of a TCP flow")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    for tool, package in (
        ("unshare", "util-linux"),
        ("ip", "iproute2"),
        ("ping", "iputils-ping"),
        ("iperf3", "iperf3"),
        (args.sluice, "make build"),
    ):
        if shutil.which(tool) is None:
            raise SystemExit(f"measure.py: {tool} is missing ({package})")
    into_namespaces(args.inside, needs_root=False)
    BUILT.mkdir(parents=True, exist_ok=True)
    methods, left_out = build(args.sluice)
    for reason in left_out:
        print(reason, file=sys.stderr)
    if args.rounds == 0:
        return 0
    results = measure(methods, args.rounds, args.seconds)
    args.output.mkdir(parents=True, exist_ok=True)
    figures = summary(results, left_out, args)
    (args.output / "forwarding.json").write_text(dumped(figures))
    text = table(figures)
    (args.output / "forwarding.md").write_text(text)
    print(text, end="")
    if args.chart:
        draw(figures, args.chart)
    return 0


def build(sluice: str) -> tuple[dict[str, list[str] | None], list[str]]:
    """Return the command of each method (None for the kernel), and what is left out and why."""
    methods: dict[str, list[str] | None] = {"kernel": None}
    left_out = []
    for language, (tool, package, compilation) in LANGUAGES.items():
        if shutil.which(tool) is None:
            left_out.append(f"{language} is left out: {tool} is missing ({package})")
            continue
        binary = BUILT / f"forward-{language.lower()}"
        command = [sys.executable, str(HERE / "forward.py")]
        if compilation:
            reason = compile_with(compilation, binary)
            if reason:
                left_out.append(f"{language} is left out: {reason}")
                continue
            command = [str(binary)]
        for threads in ("1", "2"):
            methods[f"{language}-{threads}"] = [*command, *PORTS.values(), threads]
    # /run is a file system of our own.
    control = "/run/sluice.sock"
    methods["sluice"] = [sluice, "router", *PORTS.values(), "--accept", "-q", "--socket", control]
    return methods, left_out


def compile_with(compilation: list[str], binary: Path) -> str:
    """Compile a forwarder if its binary is older. Return why that failed, or an empty text."""
    source = HERE / compilation[-1]
    if binary.exists() and binary.stat().st_mtime > source.stat().st_mtime:
        return ""
    words = [word.format(out=binary) for word in compilation]
    env = {**os.environ, "GO111MODULE": "off"}
    done = subprocess.run(words, cwd=HERE, env=env, capture_output=True, text=True)
    return (done.stderr.strip() or f"{words[0]} failed") if done.returncode else ""


class Network:
    """Two hosts and a router between them: this process's own namespace is the router's."""

    def __init__(self, offloads: bool = False) -> None:
        """Create the network."""
        self.holders: dict[str, subprocess.Popen[bytes]] = {}
        for host, address in HOSTS.items():
            holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
            self.holders[host] = holder
            while own_namespace(holder.pid) == own_namespace(os.getpid()):
                time.sleep(0.01)
            port = PORTS[host]
            run(f"ip link add {port} address {ROUTER_MACS[host]} type veth peer name eth0 netns "
                f"{holder.pid} address {MACS[host]}")  # fmt: skip
            run(f"ip link set {port} up")
            inside = self.inside(host)
            for words in (
                "ip link set lo up",
                "ip link set eth0 up",
                f"ip address add {address}/24 dev eth0",
            ):
                run(words, inside)
            if not offloads:
                run([sys.executable, __file__, "plain", "eth0"], inside)
                plain(port)

    def inside(self, host: str) -> list[str]:
        """Return the words that run a command on a host."""
        return ["nsenter", f"--net=/proc/{self.holders[host].pid}/ns/net", "--"]

    def aim(self, through_router: bool) -> None:
        """Let the hosts address each other, or the router in front of them."""
        for host, peer in (("h2", "h3"), ("h3", "h2")):
            mac = ROUTER_MACS[host] if through_router else MACS[peer]
            words = f"ip neighbour replace {HOSTS[peer]} lladdr {mac} dev eth0 nud permanent"
            run(words, self.inside(host))

    def route(self, is_on: bool) -> None:
        """Let the kernel forward between the hosts, or not."""
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1" if is_on else "0")
        self.aim(is_on)
        for host, port in PORTS.items():
            address = HOSTS[host]
            if is_on:
                run(f"ip route replace {address}/32 dev {port}")
                run(f"ip neighbour replace {address} lladdr {MACS[host]} dev {port} nud permanent")
            else:
                subprocess.run(["ip", "route", "flush", "dev", port], capture_output=True)


def into_namespaces(is_inside: bool, needs_root: bool = True) -> None:
    """Start this program again with `--inside`, in namespaces of its own; return there.

    The first process of a PID namespace takes all others with it, even when it is killed, and the
    network namespaces end with their last process. Outside user namespaces a router has real-time
    priority and AF_XDP: where `needs_root` is true, root stays outside.
    """
    if not is_inside:
        user = [] if needs_root and os.geteuid() == 0 else ["--user", "--map-root-user"]
        words = "--net --mount --pid --fork --kill-child --mount-proc".split()
        here = [sys.executable, str(Path(sys.argv[0]).resolve()), *sys.argv[1:], "--inside"]
        os.execvp("unshare", ["unshare", *user, *words, *here])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def own_namespace(pid: int) -> str:
    """Return the network namespace of a process."""
    return os.readlink(f"/proc/{pid}/ns/net")


def run(words: str | list[str], before: list[str] | None = None) -> str:
    """Run a command. Return its output."""
    command = [*(before or []), *(words.split() if isinstance(words, str) else words)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"measure.py: {' '.join(command)}: {done.stdout}{done.stderr}")
    return done.stdout


def plain(interface: str) -> None:
    """Switch off checksum and segmentation offloads, as the paper did (linux/ethtool.h)."""
    receive_checksums, send_checksums, tso, gso, gro = 0x15, 0x17, 0x1F, 0x24, 0x2C
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for command in (tso, gso, gro, send_checksums, receive_checksums):
            value = bytearray(struct.pack("II", command, 0))
            address = (ctypes.c_char * 8).from_buffer(value)
            request = struct.pack("16sP", interface.encode(), ctypes.addressof(address))
            # The kernel may refuse what an interface does not have.
            with contextlib.suppress(OSError):
                fcntl.ioctl(any_socket, 0x8946, request)  # SIOCETHTOOL


@contextlib.contextmanager
def forwarding(command: list[str] | None, network: Network) -> Iterator[None]:
    """Forward by a method for a while."""
    network.route(command is None)
    if command is None:
        yield
        return
    forwarder = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 20
        once = f"ping -q -c 1 -W 1 {HOSTS['h3']}".split()
        while subprocess.run([*network.inside("h2"), *once], capture_output=True).returncode != 0:
            if forwarder.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"measure.py: {' '.join(command)} forwards nothing")
        yield
    finally:
        forwarder.terminate()
        forwarder.wait()


def measure(
    methods: dict[str, list[str] | None], rounds: int, seconds: float
) -> dict[str, list[dict[str, float]]]:
    """Measure each method once per round."""
    run("mount -t tmpfs none /run")
    network = Network()
    server = subprocess.Popen([*network.inside("h3"), "iperf3", "-s"], stdout=subprocess.DEVNULL)
    time.sleep(0.5)
    results: dict[str, list[dict[str, float]]] = {name: [] for name in methods}
    for number in range(rounds):
        for name, command in methods.items():
            print(f"round {number + 1} of {rounds}: {name}", file=sys.stderr)
            with forwarding(command, network):
                results[name].append(once(network, seconds))
    server.terminate()
    server.wait()
    return results


def once(network: Network, seconds: float) -> dict[str, float]:
    """Measure the method that forwards now."""
    inside, peer = network.inside("h2"), HOSTS["h3"]
    output = run(f"ping -i 0.002 -c 500 {peer}", inside)
    trips = [float(ms) for ms in re.findall(r"time=([0-9.]+) ms", output)]
    report = json.loads(run(f"iperf3 -J -t {seconds} -O 0.5 -c {peer}", inside))
    stream = report["end"]["streams"][0]["sender"]
    return {
        "mbit_per_s": report["end"]["sum_received"]["bits_per_second"] / 1e6,
        "idle_rtt_us": 1e3 * statistics.median(trips),
        "idle_rtt_p99_us": 1e3 * sorted(trips)[int(0.99 * len(trips))],
        "loaded_rtt_us": stream["mean_rtt"],
        "retransmits": stream["retransmits"],
    }


def summary(
    results: dict[str, list[dict[str, float]]], left_out: list[str], args: argparse.Namespace
) -> dict[str, object]:
    """Return medians and extremes of each method, with the conditions."""
    methods = {}
    for name, rounds in results.items():
        figures = {}
        for figure in rounds[0]:
            values = sorted(each[figure] for each in rounds)
            figures[figure] = [
                round(value, 1) for value in (statistics.median(values), values[0], values[-1])
            ]
        methods[name] = figures
    return {
        "conditions": {
            "machine": f"{os.cpu_count()} cores",
            "kernel": ".".join(os.uname().release.split(".")[:2]),
            "load": round(os.getloadavg()[0], 1),
            "date": time.strftime("%Y-%m-%d"),
            "rounds": args.rounds,
            "seconds": args.seconds,
            "versions": versions(args.sluice),
        },
        "left_out": left_out,
        "order": ["median", "least", "most"],
        "methods": methods,
    }


def dumped(figures: dict[str, object]) -> str:
    """Return the figures as JSON with the values of a figure on one line."""
    text = json.dumps(figures, indent=2)
    return re.sub(r"\[\s+([-0-9.,\s]+?)\s+\]", lambda m: f"[{' '.join(m[1].split())}]", text) + "\n"


def title(name: str) -> str:
    """Return a method's name for people."""
    language, _, threads = name.partition("-")
    if not threads:
        return {"sluice": "Sluice"}.get(name, name)
    return f"{language}, {threads} thread{'s' if threads == '2' else ''}"


def versions(sluice: str) -> list[str]:
    """Return the versions of the toolchains."""
    found = []
    for words in ("cc --version", "go version", "python3 --version", "rustc --version"):
        if shutil.which(words.split()[0]):
            found.append(run(words).splitlines()[0])
    return [*found, run([sluice, "--version"]).strip()]


def table(figures: dict) -> str:  # type: ignore[type-arg]
    """Return the table of the page."""
    head = (
        "| forwarder | throughput, Mbit/s | idle round trip, us | 99 % of them, us |"
        " round trip under load, us |\n|---|---|---|---|---|\n"
    )
    rows = ""
    for name, each in figures["methods"].items():
        keys = ("mbit_per_s", "idle_rtt_us", "idle_rtt_p99_us", "loaded_rtt_us")
        cells = [f"{each[k][0]:.0f} ({each[k][1]:.0f} to {each[k][2]:.0f})" for k in keys]
        rows += f"| {title(name)} | {' | '.join(cells)} |\n"
    conditions = figures["conditions"]
    left_out = "".join(f" {reason}." for reason in figures["left_out"])
    return (
        f"{head}{rows}\nMedians of {conditions['rounds']} alternating rounds with the smallest and"
        f" the largest; one TCP flow of {conditions['seconds']:g} s and 500 pings 2 ms apart."
        f" {conditions['machine']}, Linux {conditions['kernel']}, load {conditions['load']} at the"
        f" end, {conditions['date']}. {'; '.join(conditions['versions'])}.{left_out}\n"
    )


def draw(figures: dict, path: Path) -> None:  # type: ignore[type-arg]
    """Draw both figures as bars."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    methods = figures["methods"]
    names = list(methods)[::-1]
    chart, axes = pyplot.subplots(1, 2, figsize=(10, 4.2), sharey=True, layout="constrained")
    for axis, figure, label in (
        (axes[0], "mbit_per_s", "throughput of a TCP flow, Mbit/s"),
        (axes[1], "idle_rtt_us", "idle round trip, us"),
    ):
        middle = [methods[name][figure][0] for name in names]
        low = [m - methods[name][figure][1] for m, name in zip(middle, names, strict=True)]
        high = [methods[name][figure][2] - m for m, name in zip(middle, names, strict=True)]
        colours = ["tab:orange" if name == "sluice" else "tab:blue" for name in names]
        axis.barh(
            [title(name) for name in names],
            middle,
            xerr=[low, high],
            color=colours,
            ecolor="black",
            capsize=2,
        )
        axis.bar_label(axis.containers[-1], [f" {m:.0f}" for m in middle], padding=4)
        axis.set_xlabel(label)
        axis.margins(x=0.15)
        axis.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    chart.savefig(path, dpi=100)


if __name__ == "__main__":
    if sys.argv[1:2] == ["plain"]:
        plain(sys.argv[2])
    else:
        sys.exit(main())
