"""Packets per second that a router passes live through one queue with an AQM in Python.

    maturin develop --release
    python bench/live_rate.py

A capture of small packets, equally spaced, is played in real time through `sluice router`. The same
is done with `codel`, so that losses of a busy machine can be distinguished from those of the AQM.
"""

import resource
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

RATES = [100_000, 200_000, 400_000]
SECONDS = 2

BOUND = """
import sluice

class Bound(sluice.Aqm):
    bound: sluice.Span = "50ms"

    def on_dequeue(self, packet, queue, cx):
        return sluice.PASS if packet.sojourn_ns <= self.bound else sluice.DROP
"""


def frame() -> bytes:
    """Return a UDP packet of 94 bytes."""
    addresses = bytes([10, 0, 0, 1, 10, 0, 0, 2])
    header = struct.pack("!BBHHHBBH", 0x45, 0, 80, 0, 0, 64, 17, 0) + addresses
    total = sum(struct.unpack("!10H", header))
    total = (total & 0xFFFF) + (total >> 16)
    header = header[:10] + struct.pack("!H", 0xFFFF ^ total) + header[12:]
    ethernet = bytes([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0])
    return ethernet + header + struct.pack("!HHHH", 5000, 53, 60, 0) + bytes(52)


def play(folder: Path, rate: int, queue: str) -> tuple[int, float]:
    """Return the packets that left, and the processor time in seconds."""
    packet, step = frame(), 10**9 // rate
    with Path(folder, "in.pcap").open("wb") as capture:
        capture.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 1))
        for at in range(0, SECONDS * 10**9, step):
            stamp = struct.pack("<IIII", at // 10**9, at % 10**9, len(packet), len(packet))
            capture.write(stamp + packet)
    lines = [f"pipe 1 config bw 1Gbit/s queue 10000 {queue}", "add 100 pipe 1 ip from any to any"]
    Path(folder, "router.conf").write_text("\n".join(lines))
    words = ["router", "pcap:in.pcap:", "pcap::out.pcap", "-q", "--config", "router.conf"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "sluice", *words, "--socket", "socket"],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    sent = Path(folder, "out.pcap").stat().st_size - 24
    took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return sent // (16 + len(packet)), took


def main() -> int:
    """Measure, print, and fail if a hundredth of the packets is lost at the lowest rate."""
    shares = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        Path(folder, "bound.py").write_text(BOUND)
        for rate in RATES:
            for queue in ["codel", "py:bound.py:Bound"]:
                sent, took = play(folder, rate, queue)
                share = sent / (rate * SECONDS)
                print(f"{rate} packets/s, {queue:18} {share:7.2%} sent, {took:.2f} s of processor")
                shares.append(share)
    return 0 if shares[1] >= 0.99 else 1


if __name__ == "__main__":
    sys.exit(main())
