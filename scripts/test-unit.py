#!/usr/bin/env python3
"""Starts the systemd unit under a systemd of its own: `test-unit.py SLUICE`. Needs root.

A `systemd --user` runs in namespaces that belong to this process and vanish with it; it touches
neither the machine's services nor its interfaces. The unit is that of the packages. Only its paths,
which are those of an installed system, are replaced, and so are the name of its user and what a
user's manager cannot do.

The router must start, reload, live longer than its watchdog allows without a sign of life, start
again after `kill -9` and after the process, or its packet loop alone, was stopped for so long that
the watchdog ends it, end in order, and start when an interface appears late. Each of these ends may
cost 3 s of the pings through the bridge.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

UNIT = Path(__file__).parent.parent / "packaging/sluice-router@.service"
NAME = "sluice-router@test.service"
# Not below /run/user, which the unit cannot see.
RUN = Path("/run/manager")
HOME = Path("/run/home")
LOG = Path("/run/log")
# What differs on a machine on which Sluice is not installed.
PLACES = {
    "/usr/bin/sluice ": "{sluice} ",
    "/etc/sluice/": f"{HOME}/",
    # A manager of a user has its own runtime folder.
    "/run/sluice-%i": "%t/sluice-%i",
    # The user of the package need not exist here.
    "--user sluice ": "--user nobody ",
}

# What an end of the loop may cost, in seconds of pings.
MOST_LOST = 3
# The hosts of the pings, at the other ends of the router's interfaces.
NEAR, FAR = (bytes((10, 9, 0, host)) for host in (1, 2))
# A thread that was not created by fork(2) is waited for with this flag of wait(2).
WALL = 0x40000000

EM0 = "ip link add em0 type veth peer name far0"


def main() -> int:
    """Move into namespaces of our own, start systemd, and use the unit."""
    if len(sys.argv) == 2:
        if os.geteuid() != 0:
            raise SystemExit("test-unit.py: only root can run the unit")
        apart = "unshare --mount --pid --net --fork --mount-proc --kill-child".split()
        words = [*apart, sys.executable, __file__, str(Path(sys.argv[1]).resolve()), "inside"]
        return subprocess.run(words, check=False).returncode
    prepare(sys.argv[1])
    words = ["/lib/systemd/systemd", "--user", "--log-target=console"]
    with LOG.open("ab") as log:
        manager = subprocess.Popen(words, stdout=log, stderr=log)
        try:
            use()
        except AssertionError:
            log.flush()
            for words in (("status", NAME), ("show", "--property=ExecMainStatus", NAME)):
                print(systemctl(*words, may_fail=True), file=sys.stderr)
            print(LOG.read_text(), file=sys.stderr)
            raise
        finally:
            manager.kill()
    return 0


def prepare(sluice: str) -> None:
    """Write what an administrator would write, and create two interfaces."""
    for words in ("mount -t tmpfs none /run", EM0, "ip link add em1 type veth peer name far1"):
        subprocess.run(words.split(), check=True)
    # systemd asks for this folder whether the machine runs systemd.
    for folder in (RUN, Path("/run/systemd/system"), HOME / ".config/systemd/user"):
        folder.mkdir(parents=True)
    text = UNIT.read_text()
    for old, new in PLACES.items():
        assert old in text, old
        text = text.replace(old, new.format(sluice=sluice))
    (HOME / ".config/systemd/user/sluice-router@.service").write_text(text)
    # There is no journal, and only a system's manager can hide single files.
    more = HOME / ".config/systemd/user/sluice-router@.service.d/output.conf"
    more.parent.mkdir()
    more.write_text(
        f"[Service]\nStandardError=append:{LOG}\nProtectHome=no\nProtectKernelLogs=no\n"
    )
    (HOME / "test.env").write_text('PORTS="em0 em1"\nOPTIONS=""\n')
    configure("10Mbit/s")
    os.environ.update(XDG_RUNTIME_DIR=str(RUN), HOME=str(HOME), SLUICE=sluice)
    os.environ.pop("DBUS_SESSION_BUS_ADDRESS", None)


def use() -> None:
    """Do with the unit what an administrator does, and what can happen to it."""
    until(lambda: "Version" in systemctl("show", may_fail=True), "systemd answers")
    # To a system's manager, every user may send messages. Here, the router's has to as well.
    (RUN / "systemd/notify").chmod(0o666)
    start = time.monotonic()
    systemctl("start", NAME)
    first = process()
    said("started", start)
    status = Path(f"/proc/{first}/status").read_text()
    assert f"\nUid:\t{pwd.getpwnam('nobody').pw_uid}\t" in status, "the process is still root's"
    assert "10.000 Mbit/s" in pipes()
    configure("20Mbit/s")
    systemctl("reload", NAME)
    assert "20.000 Mbit/s" in pipes()
    # The watchdog allows 2 s without a sign of life.
    time.sleep(5)
    assert process() == first, "the watchdog has ended a router that lives"
    for name in ("em0", "far0", "em1", "far1"):
        subprocess.run(f"ip link set {name} up".split(), check=True)
    faults: tuple[tuple[str, Callable[[int], None]], ...] = (
        ("kill -9", lambda number: os.kill(number, signal.SIGKILL)),
        ("a stopped process", lambda number: os.kill(number, signal.SIGSTOP)),
        ("a hung loop", hold_loop),
    )
    for number, (what, fault) in enumerate(faults, 1):
        pings = Pings()
        pings.pass_again()
        before, start = process(), time.monotonic()
        fault(int(before))
        until(lambda before=before: process() not in ("0", before) and is_active(), "it is back")
        said(f"forwards again after {what}", start)
        pings.pass_again()
        lost = pings.end()
        print(f"pings lost by {what}: {lost:.2f} s of them", flush=True)
        assert 0 < lost <= MOST_LOST, f"{what} costs {lost:.2f} s of pings, not {MOST_LOST}"
        assert shown("NRestarts") == str(number)
        assert "20.000 Mbit/s" in pipes()
    start = time.monotonic()
    systemctl("stop", NAME)
    said("stopped", start)
    assert (shown("ActiveState"), shown("Result")) == ("inactive", "success")
    # An interface that is missing at boot: systemd would give up after five attempts by default.
    subprocess.run("ip link del em0".split(), check=True)
    systemctl("start", "--no-block", NAME)
    until(lambda: int(shown("NRestarts")) > 10, "the router is tried again and again")
    start = time.monotonic()
    subprocess.run(EM0.split(), check=True)
    until(is_active, "the router starts with its late interface")
    said("started after an interface appeared", start)


class Pings:
    """Pings from `far0` to `far1`, through the router, every 10 ms until they are counted."""

    def __init__(self) -> None:
        """Begin to send."""
        # When each was sent, and the numbers of those whose answers are back.
        self.sent: list[float] = []
        self.answered: set[int] = set()
        self.is_sent = threading.Event()
        self.is_over = threading.Event()
        self.near, self.far = link("far0"), link("far1")
        works = (self._send, self._answer, self._receive)
        self.threads = [threading.Thread(target=work, daemon=True) for work in works]
        for thread in self.threads:
            thread.start()

    def pass_again(self) -> None:
        """Wait until one that is sent from now on is answered."""
        first = len(self.sent)
        until(lambda: any(number >= first for number in self.answered.copy()), "a ping is answered")

    def end(self) -> float:
        """Return how long those that were lost were sent for: each counts until the next one."""
        self.is_sent.set()
        self.threads[0].join()
        # The last ones are on their way.
        time.sleep(0.5)
        self.is_over.set()
        for thread in self.threads:
            thread.join()
        self.near.close()
        self.far.close()
        pauses = [after - at for at, after in pairwise(self.sent)]
        return sum(pause for number, pause in enumerate(pauses) if number not in self.answered)

    def _send(self) -> None:
        while not self.is_sent.wait(0.01):
            self.near.send(frame(len(self.sent), NEAR, FAR))
            self.sent.append(time.monotonic())

    def _answer(self) -> None:
        while not self.is_over.is_set():
            number = received(self.far, NEAR)
            if number is not None:
                self.far.send(frame(number, FAR, NEAR))

    def _receive(self) -> None:
        while not self.is_over.is_set():
            number = received(self.near, FAR)
            if number is not None:
                self.answered.add(number)


def link(name: str) -> socket.socket:
    """Return a socket for the IPv4 frames of an interface."""
    # Without a protocol until it is bound, so that it gets no frames of other interfaces.
    packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    packets.bind((name, 0x0800))
    packets.settimeout(0.1)
    return packets


def frame(number: int, source: bytes, destination: bytes) -> bytes:
    """Return an Ethernet frame with a datagram that has a number in it."""
    macs = bytes((2, 0, 0, 0, 9, destination[3], 2, 0, 0, 0, 9, source[3]))
    # From port 7 to port 7, 12 bytes, without a checksum.
    datagram = struct.pack("!4HI", 7, 7, 12, 0, number)
    fields = [0x4500, 20 + len(datagram), 0, 0, 64 << 8 | socket.IPPROTO_UDP, 0]
    fields += struct.unpack("!4H", source + destination)
    total = sum(fields)
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    fields[5] = ~total & 0xFFFF
    return macs + struct.pack("!H10H", 0x0800, *fields) + datagram


def received(packets: socket.socket, source: bytes) -> int | None:
    """Return the number in the next frame from this host, or nothing if it is another frame."""
    try:
        got, (_, _, kind, *_) = packets.recvfrom(2048)
    except TimeoutError:
        return None
    is_ping = kind != socket.PACKET_OUTGOING and got[26:30] == source and got[34:38] == b"\0\7\0\7"
    return int.from_bytes(got[42:46], "big") if is_ping else None


def hold_loop(process: int) -> None:
    """Stop the packet loop of a router alone, as a debugger does."""
    tasks = Path(f"/proc/{process}/task").iterdir()
    loop = next(task for task in tasks if (task / "comm").read_text() == "router\n")
    number = int(loop.name)
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
    ptrace.restype = ctypes.c_long
    # PTRACE_SEIZE and PTRACE_INTERRUPT of linux/ptrace.h.
    for request in (0x4206, 0x4207):
        assert ptrace(request, number, None, None) == 0, os.strerror(ctypes.get_errno())
    os.waitpid(number, WALL)
    # The process has ended when this has, too.
    threading.Thread(target=os.waitpid, args=(number, WALL), daemon=True).start()


def configure(rate: str) -> None:
    """Write a configuration with one pipe."""
    (HOME / "test.conf").write_text(f"pipe 1 config bw {rate}\nadd pipe 1 ip from any to any\n")


def pipes() -> str:
    """Return what the router says of its pipes."""
    environment = {**os.environ, "SLUICE_SOCKET": str(RUN / "sluice-test/sluice.sock")}
    words = [os.environ["SLUICE"], "ipfw", "pipe", "show"]
    done = subprocess.run(words, env=environment, check=True, capture_output=True, text=True)
    return done.stdout


def systemctl(*words: str, may_fail: bool = False) -> str:
    """Ask our systemd."""
    done = subprocess.run(["systemctl", "--user", *words], capture_output=True, text=True)
    assert may_fail or done.returncode == 0, f"systemctl {words}: {done.stdout}{done.stderr}"
    return done.stdout


def shown(name: str) -> str:
    """Return a property of the unit."""
    return systemctl("show", f"--property={name}", "--value", NAME).strip()


def process() -> str:
    """Return the number of the router's process, or 0."""
    return shown("MainPID")


def is_active() -> bool:
    """Whether the router has said that it is ready."""
    return shown("ActiveState") == "active"


def until(is_so: Callable[[], bool], what: str) -> None:
    """Wait until something holds, for at most 20 s."""
    end = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < end, f"not within 20 s: {what}"
        time.sleep(0.02)


def said(what: str, start: float) -> None:
    """Print how long it took."""
    print(f"{what}: {time.monotonic() - start:.2f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
