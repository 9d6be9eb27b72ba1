import contextlib
import gc
import json
import os
import struct
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import get_type_hints

import pytest
from namespaces import run_in_namespaces

import sluice


def capture(path: Path, sizes: list[int]) -> None:
    """Write IPv4 packets of these sizes that all arrive at one instant (pcap, raw IP)."""
    data = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 101)
    for size in sizes:
        address = bytes([10, 0, 0, 2]) + bytes([10, 0, 0, 3])
        header = struct.pack(">BBHHHBBH", 0x45, 0, size, 0, 0, 64, 17, 0) + address
        udp = struct.pack(">HHHH", 1, 2, size - 20, 0)
        packet = (header + udp).ljust(size, b"\0")
        data += struct.pack("<IIII", 0, 0, size, size) + packet
    path.write_bytes(data)


def times_ns(path: Path) -> list[int]:
    """Return the times of a capture in nanoseconds (pcap with nanoseconds)."""
    data = path.read_bytes()
    assert struct.unpack_from("<I", data)[0] == 0xA1B23C4D
    times, at = [], 24
    while at < len(data):
        seconds, nanoseconds, length, _ = struct.unpack_from("<IIII", data, at)
        times.append(seconds * 1_000_000_000 + nanoseconds)
        at += 16 + length
    return times


def between_files(folder: Path, rules: str) -> sluice.Router:
    """Return a router that carries the packets of `in.pcap` to `out.pcap`."""
    (folder / "rules").write_text(rules)
    return sluice.Router(
        f"pcap:{folder}/in.pcap::full",
        f"pcap::{folder}/out.pcap:full",
        config=folder / "rules",
        accept=True,
    )


def test_files_pass_a_pipe_in_their_own_time(tmp_path: Path) -> None:
    capture(tmp_path / "in.pcap", [1000] * 5)
    router = between_files(
        tmp_path, "pipe 1 config bw 8Mbit/s delay 10ms\nadd pipe 1 ip from any to any out\n"
    )
    statuses = list(router.watch(every="10ms"))
    status = router.stop()
    assert router.has_ended
    assert router.status == status == router.stop()
    assert len(statuses) >= 0
    assert [port["received"] for port in status["ports"]] == [5, 0]
    assert [port["sent"] for port in status["ports"]] == [0, 5]
    # 1000 bytes at 8 Mbit/s take 1 ms, and the delay is 10 ms.
    first = times_ns(tmp_path / "out.pcap")[0]
    assert [t - first for t in times_ns(tmp_path / "out.pcap")] == [n * 1_000_000 for n in range(5)]


def test_log_rules_reach_python(tmp_path: Path) -> None:
    capture(tmp_path / "in.pcap", [100] * 5)
    router = between_files(
        tmp_path,
        "sysctl net.inet.ip.fw.verbose=1\nadd 100 count log logamount 2 ip from any to any in\n",
    )
    list(router.watch(every="10ms"))
    router.stop()
    lines = router.log()
    entry = "100 Count UDP 10.0.0.2:1 10.0.0.3:2 in via "
    assert [line.startswith(entry) for line in lines] == [True, True, False]
    assert lines[2] == "limit 2 reached on entry 100"
    assert router.log() == []


@pytest.fixture
def idle(tmp_path: Path) -> sluice.Router:
    """Return a router that has no packets and needs no privileges."""
    capture(tmp_path / "in.pcap", [])
    return sluice.Router(f"pcap:{tmp_path}/in.pcap:", f"pcap::{tmp_path}/out.pcap")


def test_commands_have_the_words_of_the_command_line(idle: sluice.Router) -> None:
    with idle:
        assert idle.command("pipe 1 config bw 10Mbit/s delay 20") == ""
        assert idle.command("add 100 pipe 1 ip from any to any out") == (
            "00100 pipe 1 ip from any to any out\n"
        )
        assert "10.000 Mbit/s   20 ms" in idle.command("pipe show")
        (pipe,) = idle.show("pipe")["pipes"]
        assert pipe["link"]["rate_bps"] == 10_000_000
        with pytest.raises(sluice.SluiceError, match="frobnicate"):
            idle.command("pipe 1 frobnicate")
        # All lines at one instant, or none.
        with pytest.raises(sluice.SluiceError):
            idle.command("pipe 2 config bw 1Mbit/s\npipe 3 config bw fast", how="atomic")
        assert len(idle.show("pipe")["pipes"]) == 1
        with pytest.warns(UserWarning, match="the delay is 5 ms"):
            idle.command("pipe 9 config delay 5x")
        with pytest.raises(sluice.SluiceError, match="cannot be executed `twice`"):
            idle.command("pipe show", how="twice")  # type: ignore[arg-type]


def test_a_router_without_references_is_stopped(tmp_path: Path) -> None:
    capture(tmp_path / "in.pcap", [])
    (tmp_path / "a.py").write_text(
        "import sluice\n\nclass A(sluice.Aqm):\n"
        "    def on_dequeue(self, packet, queue, cx): return sluice.PASS\n"
    )

    def timers() -> int:
        """Return the number of open timers: a packet loop closes its own when it ends."""
        open_now: list[str] = []
        for number in os.listdir("/proc/self/fd"):
            # Another thread may close its descriptor meanwhile.
            with contextlib.suppress(FileNotFoundError):
                open_now.append(os.readlink(f"/proc/self/fd/{number}"))
        return open_now.count("anon_inode:[timerfd]")

    before = timers()

    def start() -> Path:
        router = sluice.Router(f"pcap:{tmp_path}/in.pcap:", f"pcap::{tmp_path}/out.pcap")
        router.command(f"pipe 1 config bw 1Mbit/s py:{tmp_path}/a.py")
        assert timers() > before
        return router.socket

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        socket = start()
        gc.collect()
    assert timers() == before
    assert not socket.parent.exists()


def test_another_program_finds_the_router_by_its_socket(idle: sluice.Router) -> None:
    with idle, warnings.catch_warnings():
        warnings.simplefilter("error")
        found = sluice.Router.connect(idle.socket)
        found.command("pipe 7 config bw 3Mbit/s")
        assert idle.show("pipe")["pipes"][0]["link"]["rate_bps"] == 3_000_000
        assert not found.has_ended
        with pytest.raises(sluice.SluiceError, match="runs in another process"):
            found.stop()
        with found:
            pass
        assert idle.status["commands"] >= 2
    with pytest.raises(sluice.SluiceError, match="no router listens at") as gone:
        sluice.Router.connect(idle.socket)
    # EX_TEMPFAIL of sysexits.h, as on the command line.
    assert gone.value.exit_code == 75


def test_a_refusal_has_the_exit_status_of_the_command_line(idle: sluice.Router) -> None:
    # As in ipfw: EX_USAGE, EX_DATAERR and EX_UNAVAILABLE of sysexits.h.
    cases = {"frobnicate": 64, "pipe 1 config bw 2Tbit/s": 65, "delete 7": 69}
    with idle:
        for command, status in cases.items():
            with pytest.raises(sluice.SluiceError) as refused:
                idle.command(command)
            assert refused.value.exit_code == status, command
        with pytest.raises(sluice.SluiceError) as refused:
            idle.show("frobnicate")
        assert refused.value.exit_code == 64
    with pytest.raises(sluice.SluiceError) as other:
        sluice.Queue("cdoel")
    assert other.value.exit_code is None


def test_the_types_have_every_key_of_the_status(idle: sluice.Router) -> None:
    with idle:
        status = idle.status
    assert set(get_type_hints(sluice.RouterStatus)) == set(status)
    assert set(get_type_hints(sluice.PortStatus)) == set(status["ports"][0])


def test_ipfw_gives_a_running_router_a_queue_in_python(idle: sluice.Router, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "import sluice\n\nclass A(sluice.Aqm):\n    bound: sluice.Span = '5ms'\n"
        "    def on_dequeue(self, packet, queue, cx): return sluice.PASS\n"
    )

    def ipfw(queue: str) -> subprocess.CompletedProcess[str]:
        words = ["ipfw", "pipe", "1", "config", "bw", "10Mbit/s", *queue.split()]
        return subprocess.run(
            [sys.executable, "-m", "sluice", *words],
            env=dict(os.environ, SLUICE_SOCKET=str(idle.socket)),
            capture_output=True,
            text=True,
            check=False,
        )

    with idle:
        done = ipfw(f"py:{tmp_path}/a.py:A bound 7ms")
        assert done.returncode == 0, done.stderr
        assert f"py:{tmp_path}/a.py:A bound 7ms" in idle.command("pipe show")
        # The queue stays, and the message says what the file has.
        wrong = ipfw(f"py:{tmp_path}/a.py:B")
        assert wrong.returncode != 0
        assert "is called 'B': the file has A" in wrong.stderr
        assert "bound 7ms" in idle.command("pipe show")


def test_a_router_that_cannot_start_leaves_nothing_behind(tmp_path: Path) -> None:
    before = {thread.name for thread in threading.enumerate()}
    cases: list[tuple[tuple[str, ...], dict[str, str], str]] = [
        (("no_such_if0", "no_such_if1"), {}, "no_such_if0"),
        (("pcap:a:",), {}, "ports come in pairs"),
        (("pcap:a:", "pcap::b"), {"port": "carrier"}, "no kind of port `carrier`"),
        (("pcap:a:", "pcap::b"), {"spin": "wildly"}, "cannot spin `wildly`"),
        (("pcap:a:", "pcap::b"), {"slack": "11ms"}, "at most 10ms"),
        (("pcap:a:", "pcap::b"), {"slack": "50us", "spin": "always"}, "a loop that sleeps"),
        (("pcap:a:", "pcap::b"), {"split_below": "fast"}, "`fast` is not a rate"),
        ((f"pcap:{tmp_path}/missing:", f"pcap::{tmp_path}/out"), {}, "missing"),
    ]
    for ports, options, words in cases:
        with pytest.raises(sluice.SluiceError, match=words):
            sluice.Router(*ports, **options)  # type: ignore[arg-type]
    capture(tmp_path / "in.pcap", [])
    with pytest.raises(sluice.SluiceError, match="frobnicate"):
        sluice.Router(
            f"pcap:{tmp_path}/in.pcap:",
            f"pcap::{tmp_path}/out.pcap",
            socket=tmp_path / "socket",
            commands="pipe 1 frobnicate",
        )
    assert not (tmp_path / "socket").exists()
    assert {thread.name for thread in threading.enumerate()} == before


LIVE = """
import json, pathlib, re, subprocess, sluice

def sh(text):
    return subprocess.run(text, shell=True, check=True, capture_output=True, text=True).stdout

for host, side, address in (("h2", "left", "10.0.0.2"), ("h3", "right", "10.0.0.3")):
    sh(f"ip netns add {host}")
    sh(f"ip link add {side} type veth peer name eth0 netns {host}")
    sh(f"ip -n {host} address add {address}/24 dev eth0")
    sh(f"ip -n {host} link set eth0 up")
    sh(f"ip link set {side} up")

def ping(count=5):
    said = sh(f"ip netns exec h2 ping -q -c {count} -i 0.2 -W 20 10.0.0.3 || true")
    times = re.search(r"= ([0-9.]+)/", said)
    return [int(re.search(r"(\\d+) received", said)[1]), float(times[1]) if times else None]

aqm = pathlib.Path("/tmp/my_aqm.py")
aqm.write_text('''
import sluice

class Nothing(sluice.Aqm):
    "Drops every packet."

    def on_dequeue(self, packet, queue, cx):
        return sluice.DROP
''')
shown = {}
with sluice.Router("left", "right", accept=True, commands="pipe 1 config bw 10Mbit/s") as router:
    shown["wire"] = ping()
    router.command("add 100 pipe 1 ip from any to any out")
    router.command("pipe 1 config bw 10Mbit/s delay 30")
    shown["delayed"] = ping()
    shown["watched"] = next(router.watch())["sent"]
    router.command(f"pipe 1 config bw 10Mbit/s delay 30 py:{aqm}:Nothing")
    shown["dropped"] = ping(2)
shown["last"] = router.status
# Until the end of the process, without a `with` block.
forgotten = sluice.Router("left", "right", accept=True)
print(json.dumps(shown))
"""


def test_real_packets_pass_a_router_that_python_drives() -> None:
    shown = json.loads(run_in_namespaces([sys.executable, "-"], script=LIVE).splitlines()[-1])
    received, shortest_ms = shown["wire"]
    assert received == 5
    assert shortest_ms < 60
    received, shortest_ms = shown["delayed"]
    assert received == 5
    # 30 ms there and back, and twice the 84 bytes of a ping at 10 Mbit/s.
    assert 60.1 < shortest_ms < 120
    # Each ping and its answer pass once.
    assert shown["watched"] >= 20
    assert shown["dropped"] == [0, None]
    # The hosts also look for neighbours (IPv6).
    assert shown["last"]["dropped"]["congestion"] >= 2
    assert [port["name"] for port in shown["last"]["ports"]] == ["left", "right"]


def test_the_command_is_installed_with_the_package() -> None:
    sluice_command = Path(sys.executable).with_name("sluice")
    said = subprocess.run([sluice_command, "--version"], capture_output=True, text=True, check=True)
    assert said.stdout == f"sluice {sluice.__version__}\n"
    wrong = subprocess.run([sluice_command, "run"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2
    assert "Usage: sluice run" in wrong.stderr
