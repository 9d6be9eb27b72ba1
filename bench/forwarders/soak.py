#!/usr/bin/env python3
"""Disturbs a running `sluice router` for a long time, and then checks its books.

`soak.py SLUICE --time 1h -o FOLDER`. Two hosts and a router between them, in namespaces that belong
to this process and vanish with it. All the time, one host floods the other in bursts, and pings
cross. Every few seconds something happens: an interface goes down, or is deleted and created again;
the configuration is reloaded; a pipe gets another queue, AQM or scheduler; clients of the control
socket misbehave.

At the end nothing is in transit, and these must hold: every frame that came in is counted once;
every packet that was admitted left or was counted as lost; every slot of the packet memory is free
or kept by a port for a frame to come; the last 100 pings are answered; the memory of the process
has grown by less than 1 % between the second and the last tenth of the time, if that is at least
half an hour. Before that time, the memory is brought to what it needs at most (`warm_up`).

With `packet` ports, the only ones whose stamps are readings of the system clock, a second router is
disturbed for another quarter of the time. Its clock is also stepped, back and forth, by 5 ms to an
hour: for this process alone, by a library (`clock_steps.c`, built with `cc`), because the clock is
the machine's. After each step the pipes must pass packets as before. The library refuses the
receive rings of `packet` ports, so this part covers the ports without them.

The folder gets `soak.json`, `soak.md` and `soak.png`, and for the second router `steps.json`,
`steps.md` and `steps.png`.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import mmap
import os
import random
import re
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from measure import HOSTS, MACS, PORTS, ROUTER_MACS, Network, into_namespaces, plain, run

SOCKET = "/run/s"
RULES = Path("/run/rules")
AQMS = ["codel", "pie", "pi2", "cobalt", "blue", "queue 100", "red 0.002/20/60/0.1 queue 80"]
SCHEDULERS = ["fifo", "rr", "wf2q+", "qfq", "prio", "fq_codel", "fq_pie", "cake", "dualpi2", "sfq"]
# Slots that a `packet` port keeps ready for frames to come: a batch.
KEPT = 32
# A step takes effect later than it is announced, so that no reading in between misses it.
NOTICE_NS = 5_000_000
# Pipe 2 passes 20 Mbit/s of a flood whose packets have 680 bytes on average: 3600 packets a second.
# While the pipes wait for a clock that was set back, next to none leave.
LEAST_SENT = 500
SECONDS_NS = [seconds * 1_000_000_000 for seconds in (1, 60, 3600)]
# Causes for which a frame that came in is not admitted.
NOT_ADMITTED = ["malformed", "no_exit", "tiny_segments", "evasive", "denied", "over_share"]
FLOOD = """
import random, socket, sys, time
target, seconds = sys.argv[1], float(sys.argv[2])
sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(64)]
end = time.monotonic() + seconds
while time.monotonic() < end:
    for sender in sockets:
        try:
            length, port = random.choice((20, 500, 1400)), 4000 + random.randrange(64)
            sender.sendto(bytes(length), (target, port))
        except OSError:
            pass
    time.sleep(0.004)
"""


def main() -> int:
    """Move into namespaces of our own, disturb, check, report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sluice", help="the command")
    parser.add_argument("--time", default="1h", help="such as 90s, 10m, 8h")
    parser.add_argument("--port", default="packet", help="the kind of port")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--out", type=Path, default=Path("artifacts/soak"))
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if shutil.which("ping") is None:
        raise SystemExit("soak.py: the command `ping` is missing (Debian: iputils-ping)")
    into_namespaces(args.inside)
    run("mount -t tmpfs none /run")
    network, seconds = Network(), seconds_of(args.time)
    network.aim(False)
    rng = random.Random(args.seed)
    parts: list[tuple[str, float, Clock | None]] = [("soak", seconds, None)]
    if args.port == "packet":
        parts.append(("steps", seconds / 4, Clock()))
    has_failed = False
    for name, length, clock in parts:
        soak = Soak(args.sluice, args.port, rng, network, clock)
        soak.run(length)
        failures = soak.failures()
        report = soak.report(failures)
        (args.out / f"{name}.json").write_text(json.dumps(report, indent=1) + "\n")
        (args.out / f"{name}.md").write_text(page(report))
        picture(soak.samples, soak.happened, args.out / f"{name}.png")
        print(page(report), flush=True)
        has_failed |= bool(failures)
    return 1 if has_failed else 0


def seconds_of(text: str) -> float:
    """Return the seconds of `90s`, `10m` or `8h`."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text)
    if not found:
        raise SystemExit(f"soak.py: {text!r} is not a time such as 90s, 10m or 8h")
    return float(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2]]


class Clock:
    """The system clock as one program sees it, which can be stepped (see `clock_steps.c`)."""

    def __init__(self) -> None:
        """Build the library, and create the file that it reads."""
        source = Path(__file__).with_name("clock_steps.c")
        self.folder = tempfile.TemporaryDirectory()
        library, path = (Path(self.folder.name, name) for name in ("library", "clock"))
        words = "cc -O2 -Wall -shared -fPIC -o".split()
        try:
            run([*words, str(library), str(source), "-ldl"])
        except FileNotFoundError:
            raise SystemExit("soak.py: cc is missing (gcc), which builds clock_steps.c") from None
        path.write_bytes(bytes(1 << 20))
        with path.open("r+b") as file:
            self.page = mmap.mmap(file.fileno(), 0)
        # The loader of programs and the library read these (ld.so(8)).
        self.environment = {"LD_PRELOAD": str(library), "SOAK_CLOCK": str(path)}
        self.sum_ns = 0

    def step(self, by_ns: int) -> None:
        """Step the clock, and wait until it is stepped."""
        (count,) = struct.unpack_from("=q", self.page)
        self.sum_ns += by_ns
        at = time.clock_gettime_ns(time.CLOCK_REALTIME) + NOTICE_NS
        struct.pack_into("=qq", self.page, 24 + 16 * count, at, self.sum_ns)
        struct.pack_into("=q", self.page, 0, count + 1)
        time.sleep(NOTICE_NS / 1e9)

    def shifted(self) -> tuple[int, int]:
        """Return how many readings of the clock and how many stamps were shifted."""
        readings, stamps = struct.unpack_from("=qq", self.page, 8)
        return readings, stamps


class Soak:
    """A router, its network and what happens to them."""

    def __init__(
        self, sluice: str, port: str, rng: random.Random, network: Network, clock: Clock | None
    ) -> None:
        """Start the router."""
        self.sluice, self.port, self.rng = sluice, port, rng
        self.network, self.clock = network, clock
        # What was sent in the second after a step, if it was too little.
        self.stalls: list[str] = []
        self.write_rules()
        ports = [f"{port}:{name}" for name in PORTS.values()]
        words = [sluice, "router", *ports, "--config", str(RULES), "--socket", SOCKET, "-q"]
        self.log = Path("/run/log").open("w+")
        environment = {**os.environ, **(clock.environment if clock else {})}
        self.router = subprocess.Popen(
            [*words, "--json"], stdout=subprocess.PIPE, stderr=self.log, env=environment
        )
        self.happened: list[tuple[float, str]] = []
        self.samples: list[dict[str, float]] = []
        self.start = time.monotonic()
        self.flood: subprocess.Popen[bytes] | None = None
        self.refused = 0
        self.end: dict[str, Any] = {}
        self.answered = 0
        deadline = time.monotonic() + 30
        while not self.ping(1):
            if self.router.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"soak.py: the router does not start: {self.said()}")

    def run(self, seconds: float) -> None:
        """Disturb the router, and let it come to rest."""
        self.warm_up(seconds / 30)
        self.start = time.monotonic()
        pings = subprocess.Popen(
            [*self.network.inside("h3"), *f"ping -q -i 0.05 {HOSTS['h2']}".split()],
            stdout=subprocess.DEVNULL,
        )
        next_event = self.start + 2
        while time.monotonic() < self.start + seconds:
            self.sample()
            if self.flood is None or self.flood.poll() is not None:
                self.flood = self.start_flood(self.rng.choice((1, 2, 5)))
            if time.monotonic() >= next_event:
                self.disturb()
                next_event = time.monotonic() + self.rng.uniform(1, 4)
            time.sleep(1)
        pings.terminate()
        if self.flood is not None:
            self.flood.kill()
        self.ipfw("-f flush")
        self.ipfw("add allow ip from any to any")
        time.sleep(3)
        self.answered = self.ping(100)
        time.sleep(1)
        self.end = self.status()
        self.router.terminate()
        self.router.wait(timeout=10)

    def warm_up(self, seconds: float) -> None:
        """Bring the memory to what it needs at most, without pauses.

        The C library has a heap for each thread that lives at the same time as others (malloc(3),
        M_ARENA_MAX). Each grows until the thread with the largest needs has had it: up to 0.2 MB in
        each of 14 heaps of clients, within half an hour.
        """
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.flood is None or self.flood.poll() is not None:
                self.flood = self.start_flood(1)
            self.misbehave(20)
            self.rng.choice((self.reload, self.requeue, self.reschedule))()

    def start_flood(self, seconds: int) -> subprocess.Popen[bytes]:
        """Let h2 flood h3."""
        words = ["-c", FLOOD, HOSTS["h3"], str(seconds)]
        return subprocess.Popen([*self.network.inside("h2"), sys.executable, *words])

    def disturb(self) -> None:
        """Let one thing happen."""
        links, queues = [self.flap, self.remake], [self.requeue, self.reschedule]
        things = [*links, *queues, self.reload, self.misbehave]
        thing = self.rng.choice([*things, *([self.step_clock] * 3 if self.clock else [])])
        self.happened.append((time.monotonic() - self.start, thing.__name__))
        thing()

    def flap(self) -> None:
        """Take an interface down for a moment."""
        port = self.rng.choice(list(PORTS.values()))
        run(f"ip link set {port} down")
        time.sleep(self.rng.choice((0.01, 0.3)))
        run(f"ip link set {port} up")

    def remake(self) -> None:
        """Delete the wire to h3, and create it again."""
        host, port = "h3", PORTS["h3"]
        run(f"ip link delete {port}")
        time.sleep(self.rng.choice((0.0, 0.3)))
        holder = self.network.holders[host].pid
        peer = f"eth0 netns {holder} address {MACS[host]}"
        run(f"ip link add {port} address {ROUTER_MACS[host]} type veth peer name {peer}")
        run(f"ip link set {port} up")
        inside = self.network.inside(host)
        run("ip link set eth0 up", inside)
        run(f"ip address add {HOSTS[host]}/24 dev eth0", inside)
        source = str(Path(__file__).with_name("measure.py"))
        run([sys.executable, source, "plain", "eth0"], inside)
        plain(port)
        self.network.aim(False)

    def reload(self) -> None:
        """Load other rules."""
        self.write_rules()
        self.router.send_signal(signal.SIGHUP)

    def step_clock(self) -> None:
        """Step the clock of the router under a flood, and see what the pipes pass then."""
        assert self.clock is not None
        by_ns = self.rng.choice((-1, 1)) * self.rng.choice((5_000_000, *SECONDS_NS))
        flood = self.start_flood(3)
        time.sleep(0.5)
        before = self.status()["sent"]
        self.clock.step(by_ns)
        time.sleep(1)
        sent = self.status()["sent"] - before
        if sent < LEAST_SENT:
            self.stalls.append(f"{sent} packets were sent in the second after {by_ns / 1e9:g} s")
        flood.kill()
        flood.wait()

    def requeue(self) -> None:
        """Give the pipe another rate and another queue."""
        rate = self.rng.choice((2, 10, 100))
        self.ipfw(f"pipe 1 config bw {rate}Mbit/s {self.rng.choice(AQMS)}")

    def reschedule(self) -> None:
        """Give the scheduler another kind."""
        self.ipfw(f"sched 2 config pipe 2 type {self.rng.choice(SCHEDULERS)}")

    def misbehave(self, count: int = 0) -> None:
        """Be one or 20 bad clients of the control socket, or as many as given."""
        clients = []
        for _ in range(count or self.rng.choice((1, 20))):
            client = socket.socket(socket.AF_UNIX)
            client.settimeout(1)
            with contextlib.suppress(OSError):
                client.connect(SOCKET)
                client.sendall(self.rng.choice((
                    b"",
                    b'{"do":"comm',
                    self.rng.randbytes(5000),
                    b'{"do":"commands","commands":"pipe 1 config bw 0.0.1"}\n',
                    b'{"do":"status"}\n' * 50,
                )))  # fmt: skip
            clients.append(client)
        time.sleep(0.2)
        for client in clients:
            client.close()

    def write_rules(self) -> None:
        """Write a configuration with two pipes, and a table of any length."""
        lines = [
            f"pipe 1 config bw {self.rng.choice((5, 50))}Mbit/s {self.rng.choice(AQMS)}",
            "pipe 2 config bw 20Mbit/s",
            f"sched 2 config pipe 2 type {self.rng.choice(SCHEDULERS)}",
            "queue 2 config sched 2 weight 10 mask dst-port 0x003f",
            "add 100 pipe 1 udp from any to any dst-port 4000-4031 in",
            "add 200 queue 2 udp from any to any in",
            "add 300 deny udp from any to any dst-port 4063 out",
            "add 400 allow ip from any to any",
            "table t create type addr",
        ]
        count = self.rng.choice((0, 100, 3000))
        lines += [f"table t add 11.0.{n >> 8}.{n & 255} {n}" for n in range(count)]
        RULES.write_text("\n".join(lines) + "\n")

    def ipfw(self, command: str) -> None:
        """Execute a command. A refusal is counted: the socket may be busy with bad clients."""
        words = [self.sluice, "ipfw", "--socket", SOCKET, *command.split()]
        done = subprocess.run(words, capture_output=True, text=True)
        self.refused += done.returncode != 0

    def status(self) -> dict[str, Any]:
        """Ask the router for its status."""
        deadline = time.monotonic() + 20
        while True:
            with (
                contextlib.suppress(OSError, ValueError, KeyError),
                socket.socket(socket.AF_UNIX) as client,
            ):
                client.settimeout(5)
                client.connect(SOCKET)
                client.sendall(b'{"do":"status"}\n')
                status: dict[str, Any] = json.loads(client.makefile().readline())["status"]
                return status
            if self.router.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"soak.py: the router does not answer: {self.said()}")
            time.sleep(0.2)

    def sample(self) -> None:
        """Record memory and counters."""
        status = self.status()
        memory = Path(f"/proc/{self.router.pid}/status").read_text()
        rss = re.search(r"VmRSS:\s+(\d+)", memory)
        self.samples.append({
            "s": time.monotonic() - self.start,
            "rss_kb": float(rss[1]) if rss else 0.0,
            "received": sum(port["received"] for port in status["ports"]),
            "sent": status["sent"],
            "dropped": sum(status["dropped"].values()),
        })  # fmt: skip

    def ping(self, count: int) -> int:
        """Return how many pings are answered."""
        words = f"ping -q -c {count} -i 0.01 -W 1 {HOSTS['h3']}"
        command = [*self.network.inside("h2"), *words.split()]
        done = subprocess.run(command, capture_output=True, text=True)
        found = re.search(r"(\d+) received", done.stdout)
        return int(found[1]) if found else 0

    def said(self) -> str:
        """Return what the router wrote."""
        self.log.seek(0)
        return self.log.read()[-2000:]

    def growth(self) -> float:
        """Return the growth of the memory from the second tenth of the time to the last."""
        tenth = max(1, len(self.samples) // 10)
        early = statistics.median(
            s["rss_kb"] for s in self.samples[tenth : 2 * tenth] or self.samples
        )
        late = statistics.median(s["rss_kb"] for s in self.samples[-tenth:])
        return late / early - 1

    def failures(self) -> list[str]:
        """Return what does not hold at the end."""
        end, failures = self.end, []
        lost = Counter(end["lost"])
        received = sum(port["received"] for port in end["ports"])
        taken = end["admitted"] + end["bypassed"] + sum(lost[cause] for cause in NOT_ADMITTED)
        if received != taken:
            failures.append(f"{received} frames came in, but {taken} are counted")
        inward = end["admitted"] + end["bypassed"]
        outward = end["sent"] + sum(end["dropped"].values()) + lost["port_blocked"]
        if inward != outward:
            failures.append(
                f"{inward} packets were taken, but {outward} left or are counted as lost"
            )
        gone = end["sent"] - sum(port["sent"] for port in end["ports"])
        if not 0 <= gone <= sum(sum(port["lost"].values()) for port in end["ports"]):
            failures.append(
                f"ports have sent {gone} packets less than they got, and do not say why"
            )
        used = end["slots"] - end["free_slots"] - end["port_slots"]
        if used != 0:
            failures.append(
                f"nothing is queued, but {used} of {end['slots']} slots are neither free nor kept "
                "by a port"
            )
        if self.port == "packet" and end["port_slots"] > KEPT * len(end["ports"]):
            failures.append(f"the ports keep {end['port_slots']} slots, more than {KEPT} each")
        failures += self.stalls
        if self.clock and 0 in self.clock.shifted():
            failures.append(
                "no reading of the clock, or no stamp, was shifted: is the command linked "
                "statically?"
            )
        if self.answered != 100:
            failures.append(f"{self.answered} of the last 100 pings are answered")
        # In the first minutes, caches fill.
        if self.growth() >= 0.01 and self.samples[-1]["s"] >= 1800:
            failures.append(f"the memory has grown by {self.growth():.2%}")
        if self.router.returncode != 0:
            failures.append(f"the router ended with status {self.router.returncode}: {self.said()}")
        return failures

    def report(self, failures: list[str]) -> dict[str, Any]:
        """Return everything as an object."""
        return {
            "seconds": round(self.samples[-1]["s"]),
            "machine": f"{os.cpu_count()} cores, {os.uname().release}",
            "happened": dict(Counter(thing for _, thing in self.happened)),
            "refused_commands": self.refused,
            "rss_kb": [self.samples[0]["rss_kb"], self.samples[-1]["rss_kb"]],
            "rss_growth": round(self.growth(), 5),
            "answered": self.answered,
            "shifted": self.clock.shifted() if self.clock else None,
            "status": self.end,
            "failures": failures,
            "events": self.happened,
            "samples": self.samples,
        }


def page(report: dict[str, Any]) -> str:
    """Return the report as Markdown."""
    status, happened = report["status"], report["happened"]
    ports = status["ports"]
    things = [f"{count} {thing}" for thing, count in sorted(happened.items())]
    shifted = []
    if report["shifted"]:
        readings, stamps = report["shifted"]
        shifted = [f"- Shifted by steps: {readings} readings of the clock, {stamps} stamps"]
    lines = [
        f"{report['seconds']} s on {report['machine']}.",
        "",
        f"- What happened: {', '.join(things)}",
        f"- Frames in: {sum(port['received'] for port in ports)}; admitted {status['admitted']}, "
        f"sent {status['sent']}, dropped {status['dropped']}, lost {status['lost']}",
        f"- Lost at ports: {[port['lost'] for port in ports]}",
        f"- Memory: {report['rss_kb'][0]:.0f} to {report['rss_kb'][1]:.0f} KB, "
        f"growth {report['rss_growth']:.2%}",
        f"- Slots: {status['slots']}, of which {status['free_slots']} free, "
        f"{status['port_slots']} kept by ports",
        *shifted,
        f"- The last 100 pings: {report['answered']} answered",
        f"- {'Failed: ' + '; '.join(report['failures']) if report['failures'] else 'All holds.'}",
    ]
    return "\n".join(lines) + "\n"


def picture(samples: list[dict[str, float]], happened: list[tuple[float, str]], path: Path) -> None:
    """Draw the means of rates, what happened, and the memory over time."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (rates, events, memory) = plt.subplots(
        3, 1, sharex=True, figsize=(9, 6.5), height_ratios=[3, 2, 2]
    )
    # Each value is the mean of a hundredth of the time. Most samples are a second apart.
    marks = samples[:: max(1, len(samples) // 100)]
    pairs = list(itertools.pairwise(marks))
    at = [(a["s"] + b["s"]) / 2 for a, b in pairs]
    mean = {
        key: [(b[key] - a[key]) / (b["s"] - a["s"]) for a, b in pairs]
        for key in ("received", "sent", "dropped")
    }
    rates.stackplot(at, mean["sent"], mean["dropped"], labels=["sent", "dropped"], alpha=0.6)
    rates.plot(at, mean["received"], label="received", color="black", linewidth=1)
    rates.set_ylabel("packets per second")
    rates.set_ylim(0, 1.3 * max(mean["received"]))
    rates.legend(loc="upper right", ncols=3)
    things = sorted({thing for _, thing in happened}, reverse=True)
    times = [[s for s, thing in happened if thing == one] for one in things]
    events.eventplot(times, linelengths=0.7, linewidths=0.6, colors="tab:red")
    counts = [f"{len(of)} {one.replace('_', ' ')}" for one, of in zip(things, times, strict=True)]
    events.set_yticks(range(len(things)), counts)
    memory.plot([s["s"] for s in samples], [s["rss_kb"] / 1024 for s in samples], color="black")
    memory.set_ylabel("memory in MB")
    memory.set_ylim(0, 1.2 * max(s["rss_kb"] for s in samples) / 1024)
    memory.set_xlabel("seconds")
    memory.set_xlim(0, samples[-1]["s"])
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    sys.exit(main())
