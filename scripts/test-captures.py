#!/usr/bin/env python3
"""Compares the findings of tshark in exported captures with the recording.

``scripts/test-captures.py SLUICE FOLDER``; tshark must be installed.
"""

from __future__ import annotations

import csv
import subprocess
import sys
from collections import Counter
from pathlib import Path

# tshark's names for a segment whose numbers it has seen before; they depend on the time.
AGAIN = (
    "tcp.analysis.retransmission || tcp.analysis.fast_retransmission"
    " || tcp.analysis.spurious_retransmission || tcp.analysis.out_of_order"
)
GAPS = "tcp.analysis.lost_segment || tcp.analysis.ack_lost_segment"
WRONG = (
    "_ws.malformed || ip.checksum.status == 0 || tcp.checksum.status == 0"
    " || udp.checksum.status == 0 || icmp.checksum.status == 0"
)
SYN = (
    "tcp.flags.syn == 1 && tcp.options.mss_val == 1460 && tcp.options.sack_perm"
    " && tcp.options.wscale.shift && tcp.options.timestamp.tsval"
)
# Two uploads are sent at h2, a download at h3. In the capture of the sender's port, each segment
# appears before it can be lost.
SENDERS = {0: "h2", 1: "h2", 2: "h3"}


def fail(what: str) -> None:
    """End the check."""
    sys.exit(f"test-captures: {what}")


def expect(what: str, found: object, expected: object) -> None:
    """Compare a figure of tshark with one of the recording."""
    if found != expected:
        fail(f"{what}: tshark finds {found}, expected {expected}")


class Run:
    """The captures and tables of a run."""

    def __init__(self, sluice: str, run: Path, folder: Path) -> None:
        """Export a run into a folder."""
        folder.mkdir(parents=True)
        command = [sluice, "export", run, "--pcapng", folder, "--csv", folder]
        subprocess.run([*map(str, command)], check=True, stdout=subprocess.DEVNULL)
        self.name = run.name
        self.folder = folder

    def capture(self, place: str, only: str, *fields: str) -> list[list[str]]:
        """Return the fields of the packets that a display filter selects at a place."""
        capture = next(self.folder.glob(f"*-{place}.pcapng"))
        command = ["tshark", "-r", str(capture), "-T", "fields", "-Y", only]
        for protocol in ["ip", "tcp", "udp"]:
            command += ["-o", f"{protocol}.check_checksum:TRUE"]
        for field in fields or ("frame.number",):
            command += ["-e", field]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return [line.split("\t") for line in done.stdout.splitlines()]

    def flow(self, flow: int, only: str, *fields: str) -> list[list[str]]:
        """Return the fields of packets of a TCP flow, at its sender."""
        return self.capture(SENDERS[flow], f"tcp.port == {5000 + flow} && ({only})", *fields)

    def table(self, name: str) -> list[dict[str, str]]:
        """Read a table."""
        with (self.folder / f"{name}.csv").open(newline="") as file:
            return list(csv.DictReader(file))


def check_segments(run: Run, loses: bool, marks: bool) -> int:
    """Check the segments of all flows. Return the number of retransmissions."""
    again: Counter[int] = Counter()
    for row in run.table("headers"):
        if row["jump_bytes"] and int(row["jump_bytes"]) < 0 < int(row["payload_bytes"]):
            again[int(row["flow"])] += 1
    samples = run.table("flows")
    for flow in SENDERS:
        found = run.flow(flow, f"tcp.len > 0 && ({AGAIN})")
        expect(f"retransmissions of flow {flow}", len(found), again[flow])
        expect(f"gaps in the numbers of flow {flow}", run.flow(flow, GAPS), [])
        expect(f"options of flow {flow}", len(run.flow(flow, SYN)), 2)
        # The smallest round trip that the sender has seen.
        rtts = [row["min_rtt_ns"] for row in samples if row["flow"] == str(flow)]
        least = min(int(rtt) for rtt in rtts if rtt)
        acks = f"tcp.srcport == {5000 + flow} && tcp.analysis.ack_rtt"
        seen = [float(rtt) for [rtt] in run.flow(flow, acks, "tcp.analysis.ack_rtt")]
        expect(f"least RTT of flow {flow} in ns", round(min(seen) * 1e9), least)
    expect("FINs of the download", len(run.flow(2, "tcp.flags.fin == 1")), 2)
    if loses and not run.capture("h2", "tcp.options.sack.count > 0"):
        fail("no SACK block in spite of losses")
    if not loses and not marks:
        found = run.capture("h2", "tcp.analysis.flags && !tcp.analysis.window_update")
        expect("what is wrong without losses", found, [])
    return sum(again.values())


def check_marks(run: Run, packets: list[dict[str, str]]) -> int:
    """Check the ECN bits. Return the number of marked packets."""
    # A mark of the first link is visible at the second link and at h3; a mark on the path down is
    # visible at h2.
    for end, pipe in [("h3", "up2"), ("h2", "down")]:
        passed = [p for p in packets if p["pipe"] == pipe and p["verdict"] in ("sent", "marked")]
        expected = sum(p["ecn"] == "3" or p["verdict"] == "marked" for p in passed)
        found = run.capture(end, "ip.dsfield.ecn == 3 && frame.packet_flags_direction == 2")
        expect(f"CE marks at {end}", len(found), expected)
    marked = sum(p["verdict"] == "marked" for p in packets)
    for flag in ["ece", "cwr"] if marked else []:
        if not run.capture("h2", f"tcp.flags.{flag} == 1 && tcp.flags.syn == 0"):
            fail(f"no segment has {flag.upper()} in spite of {marked} marks")
    return marked


def check(run: Run, loses: bool, marks: bool) -> str:
    """Check a run. Return a line that summarises it."""
    places = ["h2", "link1-link2", "h3"]
    for place in places:
        expect(f"malformed packets or wrong checksums at {place}", run.capture(place, WRONG), [])
    if not run.capture("h2", "tcp.checksum.status == 1"):
        fail("tshark has verified no checksum")
    repeats = check_segments(run, loses, marks)
    if loses != (repeats > 0):
        fail(f"{run.name}: {repeats} retransmissions")

    packets = run.table("packets")
    marked = check_marks(run, packets)
    if marks != (marked > 0):
        fail(f"{run.name}: {marked} marks")

    pings = {row["seq"]: int(row["rtt_ns"]) for row in run.table("pings") if row["rtt_ns"]}
    found = run.capture("h2", "icmp.resptime", "icmp.seq", "icmp.resptime")
    expect("round trips of pings", {seq: round(float(ms) * 1e6) for seq, ms in found}, pings)

    # One packet over both links: the same number at three places.
    numbers = {p: [n[0] for n in run.capture(p, "ip", "frame.packet_id")] for p in places}
    for place, all_numbers in numbers.items():
        if len(all_numbers) != len(set(all_numbers)):
            fail(f"two packets at {place} have one number")
    passed = {p["packet"] for p in packets if p["pipe"] == "up2" and p["verdict"] == "sent"}
    for place in places:
        if missing := passed - set(numbers[place]):
            fail(f"{len(missing)} packets that passed both links are not at {place}")
    return (
        f"{run.name}: {len(packets)} rows, {repeats} retransmissions, {len(pings)} pings,"
        f" {marked} marks, {len(passed)} packets over both links: as recorded"
    )


def main() -> None:
    """Run the scenario and check each variant."""
    sluice, out = sys.argv[1], Path(sys.argv[2])
    scenario, runs = Path(__file__).with_name("captures.toml"), out / "runs"
    command = [sluice, "run", scenario, "--backend", "sim", "--quiet", "-o", runs]
    subprocess.run([*map(str, command)], check=True, stdout=subprocess.DEVNULL)
    found = sorted(path.parent for path in runs.glob("*/run.json"))
    expect("runs", len(found), 3)
    for folder in found:
        marks, roomy = "codel" in folder.name, "100000" in folder.name
        run = Run(sluice, folder, out / folder.name)
        print(check(run, loses=not marks and not roomy, marks=marks))


main()
