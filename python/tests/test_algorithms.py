"""Rank functions, disciplines, errors in the packet path, and the worked examples."""

import gzip
import json
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import sluice
from sluice.aqm import errors, stopped
from sluice.runs import program

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "sdk" / "examples"

Fate = tuple[int, int, str]

RATE_NS = 1_200_000
STEPS = [0, RATE_NS // 2, RATE_NS // 2, RATE_NS, RATE_NS]


def fates(words: str, *, seed: int) -> list[Fate]:
    """Return the fate of every packet of a random overload of a link of 10 Mbit/s."""
    queue = sluice.Queue(words, seed=seed)
    rng = random.Random(seed)
    found: list[Fate] = []
    arrival = departure = 0
    for _ in range(4000):
        # An overload by two thirds, with occasional pauses in which the queue drains.
        is_pause = rng.random() < 0.002
        arrival += 200 * RATE_NS if is_pause else rng.choice(STEPS)
        while departure <= arrival:
            out = queue.dequeue(departure)
            found += queue.take_drops()
            if out is not None:
                found.append((out[0], departure, f"left {out[2]}"))
            departure += RATE_NS
        tag = rng.choice([0, 2_000, 30_000])
        queue.enqueue(arrival, 1500, flow=rng.randrange(4), ecn=rng.choice([0, 2]), tag=tag)
    return found


@pytest.mark.parametrize(
    ("python", "ours", "signal"),
    [
        ("red.py:Red", "red", "congestion"),
        (
            "red.py:Red ecn max_p 0.1 wq 0.01 limit 12",
            "red ecn max_p 0.1 wq 0.01 limit 12",
            "left 3",
        ),
        ("pie.py:Pie", "pie", "congestion"),
        ("pie.py ecn max_ecnth 1 limit 90", "pie ecn max_ecnth 1 limit 90", "left 3"),
        ("edf.py:Edf limit 40", "pifo rank edf limit 40", "evicted"),
        ("edf.py:Edf deadline 1ms", "pifo rank edf deadline 1ms", "left 0"),
    ],
)
def test_the_examples_give_the_fates_of_ours(python: str, ours: str, signal: str) -> None:
    signals = 0
    for seed in range(4):
        expected = fates(ours, seed=seed)
        assert fates(f"py:{EXAMPLES}/{python}", seed=seed) == expected
        signals += sum(fate[2] == signal for fate in expected)
    assert signals > 20, "the traffic makes it decide"


def test_earliest_deadline_first_does_not_serve_in_the_order_of_arrival() -> None:
    left = [number for number, _, word in fates(f"py:{EXAMPLES}/edf.py", seed=1) if "left" in word]
    assert left != sorted(left)


def test_a_discipline_serves_flows_in_turn_and_drops_what_it_says() -> None:
    queue = sluice.Queue(f"py:{EXAMPLES}/fair.py share 2")
    for _ in range(3):
        queue.enqueue(0, 1500, flow=1)
    queue.enqueue(0, 1500, flow=2)
    # The third packet of flow 1 evicts its first one.
    assert queue.take_drops() == [(0, 0, "evicted")]
    assert queue.variables() == [("flows", 2.0)]
    assert [queue.dequeue(1) for _ in range(4)] == [(1, 1, 0), (3, 1, 0), (2, 1, 0), None]
    assert queue.backlog == (0, 0)


def file(folder: Path, text: str) -> str:
    """Write a class and return the words of its queue."""
    path = folder / "a.py"
    path.write_text("import sluice\n" + text)
    return f"py:{path}"


DISCIPLINE = """
class Mine(sluice.Discipline):
    def __init__(self): self.packets = []; self.kept = None
    def enqueue(self, packet, cx): {enqueue}
    def dequeue(self, cx): {dequeue}
"""
APPEND, POP = "self.packets.append(packet)", "return self.packets.pop(0)"


@pytest.mark.parametrize(
    ("enqueue", "dequeue", "message"),
    [
        ("pass", POP, "lost packet 0 (100 bytes, arrived at 0 ns)"),
        (APPEND, "self.packets.pop(0); return self.packets.pop(0)", "lost packet 0"),
        (
            APPEND,
            "self.kept = self.kept or self.packets.pop(0); return self.kept",
            "packet 0 was returned after it had left",
        ),
        (APPEND, "p = self.packets.pop(0); cx.drop(p); return p", "was returned after it had left"),
        (APPEND, "return 7", "returned 7, which is neither a packet nor None"),
        (APPEND, "return None", "returned None while it holds 3 packets"),
        ("1 / 0", POP, "ZeroDivisionError"),
        ("cx.mark(packet)", POP, "a packet that is not ECN-capable cannot be marked"),
        ("cx.drop(packet, 'mood')", POP, "`mood` is no reason of a queue; one of: congestion"),
    ],
)
def test_a_discipline_that_breaks_the_contract_is_stopped_and_loses_nothing(
    tmp_path: Path, enqueue: str, dequeue: str, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    queue = sluice.Queue(file(tmp_path, DISCIPLINE.format(enqueue=enqueue, dequeue=dequeue)))
    before = stopped()
    for _ in range(3):
        queue.enqueue(0, 100, flow=7)
    left = [out[0] for out in iter(lambda: queue.dequeue(1), None)]
    dropped = [number for number, _, _ in queue.take_drops()]
    assert sorted(left + dropped) == [0, 1, 2]
    assert queue.backlog == (0, 0)
    assert stopped() == before + 1
    assert dict(queue.variables())["stopped"] == 1
    assert message in capfd.readouterr().err


SHARED = """
class Mine(sluice.Discipline):
    shared = []
    def __init__(self): self.packets = []
    def enqueue(self, packet, cx):
        self.shared.append(packet)
        self.packets.append(packet)
        if self.shared[0] is not packet:
            cx.{operation}(self.shared[0])
    def dequeue(self, cx): return self.packets.pop(0)
"""


@pytest.mark.parametrize("operation", ["drop", "mark"])
def test_a_discipline_cannot_drop_or_mark_a_packet_of_another_queue(
    tmp_path: Path, operation: str, capfd: pytest.CaptureFixture[str]
) -> None:
    words = file(tmp_path, SHARED.format(operation=operation))
    first, second = sluice.Queue(words), sluice.Queue(words)
    before = stopped()
    # Both packets have the number 0 in their queues.
    first.enqueue(0, 100, ecn=2)
    second.enqueue(0, 100, ecn=2)
    assert stopped() == before + 1
    assert f"`cx.{operation}` got a packet of another queue" in capfd.readouterr().err
    assert second.take_drops() == []
    assert [queue.dequeue(1) for queue in (first, second)] == [(0, 1, 2), (0, 1, 2)]
    assert [queue.backlog for queue in (first, second)] == [(0, 0), (0, 0)]


def test_a_discipline_may_hold_packets_back(tmp_path: Path) -> None:
    text = """
class Late(sluice.Discipline):
    wait: sluice.Span = "5ms"
    def __init__(self): self.packets = []; self.now = 0
    def enqueue(self, packet, cx): self.packets.append(packet); self.now = cx.now_ns
    def dequeue(self, cx):
        self.now = cx.now_ns
        return self.packets.pop(0) if self.next_wake() <= cx.now_ns else None
    def next_wake(self): return self.packets[0].arrival_ns + self.wait if self.packets else None
"""
    queue = sluice.Queue(file(tmp_path, text))
    queue.enqueue(1_000_000, 100)
    before = stopped()
    assert queue.dequeue(5_999_999) is None
    assert queue.dequeue(6_000_000) == (0, 5_000_000, 0)
    assert stopped() == before


def test_a_rank_may_hold_packets_back_and_hears_what_leaves(tmp_path: Path) -> None:
    text = """
class Paced(sluice.Rank):
    def __init__(self): self.accepted = self.left = 0
    def rank(self, packet, cx): return 9 - packet.class_, cx.now_ns + 10
    def on_enqueue(self, packet, rank, cx): self.accepted += rank
    def on_dequeue(self, packet, rank, cx): self.left += rank
    def state(self): return {"accepted": self.accepted, "left": self.left}
"""
    queue = sluice.Queue(f"{file(tmp_path, text)} limit 2")
    for number in range(3):
        queue.enqueue(0, 100, class_=number)
    # Ranks 9, 8 and 7. None may leave yet, so the third finds no room.
    assert queue.take_drops() == [(2, 0, "overflow")]
    assert queue.dequeue(9) is None
    assert [queue.dequeue(10), queue.dequeue(10)] == [(1, 10, 0), (0, 10, 0)]
    assert queue.variables() == [("accepted", 17.0), ("left", 17.0)]


@pytest.mark.parametrize("body", ["return -1", "return 'x'", "return 1, 2, 3", "return {}[1]"])
def test_a_wrong_rank_stops_the_scheduler(
    tmp_path: Path, body: str, capfd: pytest.CaptureFixture[str]
) -> None:
    words = file(tmp_path, f"class R(sluice.Rank):\n    def rank(self, packet, cx): {body}\n")
    queue = sluice.Queue(words)
    for _ in range(3):
        queue.enqueue(0, 100)
    assert [queue.dequeue(1) for _ in range(3)] == [(0, 1, 0), (1, 1, 0), (2, 1, 0)]
    assert "leave in the order of their arrival" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("class A(sluice.Rank): pass", "A does not define `rank`"),
        ("class A(sluice.Discipline):\n def enqueue(self, p, cx): pass", "not define `dequeue`"),
        ("class A(sluice.Aqm):\n limit: str = 'x'", "neither `on_enqueue` nor `on_dequeue`"),
        (
            "class A(sluice.Rank):\n state: int = 1\n def rank(self, packet, cx): return 1",
            "line 3: `state` is a method of sluice.Rank; give the parameter another name",
        ),
        (
            "from typing import Literal\nclass A(sluice.Rank):\n x: Literal['a b', 'c'] = 'c'\n"
            " def rank(self, packet, cx): return 1",
            "line 4: `x` has the choice 'a b': write it as one word",
        ),
    ],
)
def test_what_a_class_lacks_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(sluice.SluiceError, match=message):
        sluice.Queue(file(tmp_path, text + "\n"))


def test_a_discipline_has_no_flow_queued_form() -> None:
    with pytest.raises(sluice.SluiceError, match=r"it is a discipline, .*leave out `fq_`"):
        sluice.Queue(f"fq_py:{EXAMPLES}/fair.py")


FAILS = """
class Fails(sluice.Aqm):
    def on_dequeue(self, packet, queue, cx):
        if packet.flow == 1: raise KeyError(packet.size_bytes)
        return sluice.DROP
"""


def test_the_errors_of_an_aqm_stop_it_pass_or_end_the_run(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = file(tmp_path, FAILS)

    def left(on_error: str) -> tuple[list[int], dict[str, float]]:
        queue = sluice.Queue(f"{words} on_error {on_error}")
        for flow in (0, 1, 0, 1):
            queue.enqueue(0, 100, flow=flow)
        numbers = [out[0] for out in iter(lambda: queue.dequeue(1), None)]
        return numbers, dict(queue.variables())

    before = errors()
    # The second packet stops the algorithm: this packet and all later ones pass.
    assert left("stop") == ([1, 2, 3], {"errors": 1, "stopped": 1})
    # Only the packets for which it fails pass.
    assert left("pass") == ([1, 3], {"errors": 2, "stopped": 0})
    assert errors() == before + 3
    assert capfd.readouterr().err.count("KeyError: 100") == 2, "one traceback per queue"
    with pytest.raises(sluice.SluiceError, match=r"failed at 1 ns(.|\n)*KeyError"):
        left("end")
    with pytest.raises(sluice.SluiceError, match=r"go_on.*stop, pass, end"):
        left("go_on")


SCENARIO: dict[str, Any] = {
    "duration": "3s",
    "link": {"rate": "10Mbit/s", "delay": "20ms", "queue": "codel"},
    "flow": [{"type": "tcp", "count": 3}],
}


def test_a_run_that_an_error_ends_raises_the_traceback(tmp_path: Path) -> None:
    # Queues exist 1.2 s before the run, so this is 1 s of the run, as in the message.
    text = FAILS.replace("packet.flow == 1", "cx.now_ns > 22 * 10**8").replace("DROP", "PASS")
    words = file(tmp_path, text)
    with pytest.raises(
        sluice.SluiceError, match=r"the run was ended: .* at 100\d{7} ns(.|\n)*KeyError"
    ):
        sluice.run(SCENARIO, {"link.queue": f"{words} on_error end"})
    simulation = sluice.Simulation(SCENARIO, {"link.queue": f"{words} on_error end"})
    simulation.step(until="900ms")
    with pytest.raises(sluice.SluiceError, match=r" at 100\d{7} ns(.|\n)*KeyError"):
        simulation.step(until="2s")


def test_choices_and_their_documentation_are_listed(tmp_path: Path) -> None:
    text = """
from typing import Literal
class A(sluice.Aqm):
    mode: Literal["slow", "fast"] = "slow"
    \"\"\"how it
    decides.\"\"\"
    def on_enqueue(self, packet, queue, cx):
        return sluice.PASS if self.mode == "slow" else sluice.DROP
"""
    words = file(tmp_path, text)
    for mode, left in [("slow", (0, 1, 0)), ("fast", None)]:
        queue = sluice.Queue(f"{words} mode {mode}")
        queue.enqueue(0, 100)
        assert queue.dequeue(1) == left
    listed = command("list", words)
    assert "how it decides" in listed
    assert "accepts: slow, fast" in listed


def command(*words: str, fails: bool = False, folder: Path | None = None) -> str:
    """Run the command of the package in a separate process."""
    done = subprocess.run(
        [sys.executable, "-m", "sluice", *words], capture_output=True, text=True, cwd=folder
    )
    assert (done.returncode != 0) == fails, done.stderr
    return done.stderr if fails else done.stdout


def traces() -> list[Path]:
    """Return the recorded traces of arrivals in the source tree."""
    listed = subprocess.run(
        ["git", "ls-files", "*.csv", "*.csv.gz"], cwd=ROOT, capture_output=True, text=True
    )
    return [
        ROOT / name
        for name in listed.stdout.split()
        if re.search(r"^time_ns,(flow|size_bytes)", head(ROOT / name), re.MULTILINE)
    ]


def head(path: Path) -> str:
    opened = gzip.open(path, "rt") if path.suffix == ".gz" else path.open()
    with opened as lines:
        return lines.read(2000)


def test_codel_gives_the_rows_of_ours_for_every_trace_in_the_tree(tmp_path: Path) -> None:
    found = traces()
    assert len(found) >= 4
    module = tmp_path / "codel.wasm"
    module.write_bytes((ROOT / "fuzz/corpus/module/codel").read_bytes())
    decided = 0
    for trace in found:
        unpacked = tmp_path / "trace.csv"
        packed = trace.read_bytes()
        unpacked.write_bytes(gzip.decompress(packed) if trace.suffix == ".gz" else packed)
        rows = []
        for name in ["codel", f"py:{EXAMPLES}/codel.py:Codel", f"wasm:{module}"]:
            out = tmp_path / "rows.csv"
            words = ["--queue", f"{name} target 1ms interval 20ms mtu 0 ecn", "--rate", "8Mbit/s"]
            command("replay", str(unpacked), *words, "--out", str(out))
            rows.append(out.read_text())
        assert rows[0] == rows[1] == rows[2], trace
        decided += rows[0].count("marked") + rows[0].count("congestion")
    assert decided > 5


COUNTS = """
class Counts(sluice.Aqm):
    arrived = 0
    def on_enqueue(self, packet, queue, cx):
        self.arrived += 1
        return sluice.PASS
    def state(self): return {"arrived": self.arrived, "pairs": self.arrived // 2}
"""


def test_a_replay_records_the_variables_of_algorithms_from_files(tmp_path: Path) -> None:
    words = file(tmp_path, COUNTS)
    rows = "".join(f"{at},1,1500,0\n" for at in (0, 1_000_000, 2_000_000, 3_000_000))
    (tmp_path / "t.csv").write_text("time_ns,flow,size_bytes,ecn\n" + rows)

    def replay(queue: str) -> tuple[list[list[str]], sluice.Run]:
        report = queue.partition(":")[0]
        out = ["--state", "state.csv", "--report", report]
        trace = ["t.csv", "--queue", queue, "--rate", "10Mbit/s"]
        command("replay", *trace, *out, folder=tmp_path)
        table = (tmp_path / "state.csv").read_text().splitlines()[1:]
        return [line.split(",") for line in table], sluice.Run.open(tmp_path / report)

    changes, run = replay(words)
    # Each change, at the arrival that makes it.
    assert [(int(at), name, float(value)) for at, _, name, value, _ in changes] == [
        (0, "arrived", 1),
        (0, "pairs", 0),
        (1_000_000, "arrived", 2),
        (1_000_000, "pairs", 1),
        (2_000_000, "arrived", 3),
        (3_000_000, "arrived", 4),
        (3_000_000, "pairs", 2),
    ]
    assert {"arrived", "pairs"} < set(run.queues["variable"])
    (tmp_path / "codel.wasm").write_bytes((ROOT / "fuzz/corpus/module/codel").read_bytes())
    changes, run = replay("wasm:codel.wasm")
    # The variables that its source declares.
    declared = {"count", "dropping", "drop_next", "first_above"}
    assert {name for _, _, name, _, _ in changes} == declared
    assert declared < set(run.queues["variable"])


def test_the_command_runs_and_replays_queues_in_python(tmp_path: Path) -> None:
    rows = "".join(f"{at * 600_000},{at % 3},1500,2\n" for at in range(2000))
    (tmp_path / "t.csv").write_text("time_ns,flow,size_bytes,ecn\n" + rows)
    codel = f"{EXAMPLES}/codel.py"

    def replay(queue: str) -> str:
        out = tmp_path / "o.csv"
        command(
            "replay",
            "t.csv",
            "--queue",
            queue,
            "--rate",
            "10Mbit/s",
            "--out",
            str(out),
            folder=tmp_path,
        )
        return out.read_text()

    assert replay(f"py:{codel} ecn") == replay("codel ecn")
    assert replay(f"py:{codel} ecn").count("marked") > 10
    (tmp_path / "s.toml").write_text(
        'duration = "2s"\n[link]\nrate = "10Mbit/s"\n[[flow]]\ntype = "tcp"\n'
        f'[matrix]\n"link.queue" = ["codel", "fq_py:{codel}"]\n'
    )
    table = command("run", "s.toml", "-q", folder=tmp_path)
    assert "fq_py" in table
    # The program is the library, not the interpreter.
    run = json.loads((tmp_path / "runs" / "s" / "codel" / "run.json").read_text())
    assert run["environment"]["program_id"] == program()
    failed = command(
        "run",
        "s.toml",
        "-q",
        "--set",
        f"link.queue=py:{EXAMPLES}/cdel.py",
        fails=True,
        folder=tmp_path,
    )
    assert "No such file" in failed


def test_a_live_run_through_codel_in_python_has_the_verdicts_of_ours(tmp_path: Path) -> None:
    """The arrivals of the run, replayed in virtual time through both, have the recorded fates."""
    (tmp_path / "s.toml").write_text(
        'duration = "3s"\n[link]\nrate = "10Mbit/s"\nrtt = "20ms"\nqueue = "codel"\n'
        '[[flow]]\ntype = "tcp"\n'
    )
    words = ["run", "s.toml", "--backend", "live", "-q"]
    check = [sys.executable, "-m", "sluice", *words, "--check"]
    checked = subprocess.run(check, cwd=tmp_path, capture_output=True, text=True)
    assert checked.returncode == 0, f"this test needs a live run: {checked.stderr}"
    python = f"py:{EXAMPLES}/codel.py:Codel"
    command(*words, "-o", "out", "--set", f"link.queue={python}", folder=tmp_path)
    (recorded,) = (tmp_path / "out").glob("*/run.json")
    refused = command("replay", str(recorded.parent), fails=True)
    assert f"names `{EXAMPLES}/codel.py`, which a replay executes" in refused
    replayed = command("replay", str(recorded.parent), "--execute-python")
    assert replayed.count("all as recorded") == 2, replayed
    assert " 0 dropped, 0 queued" not in replayed.splitlines()[0], "CoDel drops"
    text = recorded.read_text()
    assert python in text
    recorded.write_text(text.replace(python, "codel"))
    assert command("replay", str(recorded.parent)) == replayed


def test_a_recording_executes_no_file_that_it_names(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text((EXAMPLES / "codel.py").read_text())
    (tmp_path / "s.toml").write_text(
        f'duration = "2s"\n[link]\nrate = "2Mbit/s"\nqueue = "py:{file}:Codel"\n'
        '[[flow]]\ntype = "tcp"\n'
    )
    command("run", "s.toml", "-q", "-o", "out", folder=tmp_path)
    (recorded,) = (tmp_path / "out").glob("*/run.json")
    run = recorded.parent
    executed = tmp_path / "executed"
    file.write_text(f"open({str(executed)!r}, 'w')\n")
    command("report", str(run))
    command("export", str(run), "--csv", str(tmp_path / "csv"))
    assert f"py:{file}:Codel" in sluice.Run.open(run).scenario
    assert not executed.exists()
    # The file is one that would be executed.
    command("run", "s.toml", "-q", "-o", "out", fails=True, folder=tmp_path)
    assert executed.exists()


RANDOM = """
import random
class Dice(sluice.Aqm):
    def on_enqueue(self, packet, queue, cx):
        return sluice.DROP if {draw} < 0.01 else sluice.PASS
"""


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        (RANDOM.format(draw="cx.random()"), None),
        (RANDOM.format(draw="random.random()"), "FAILED  same run: two simulations with one seed"),
        (FAILS, "FAILED  no errors: "),
        (DISCIPLINE.format(enqueue=APPEND, dequeue=POP), None),
        (DISCIPLINE.format(enqueue="pass", dequeue=POP), "it lost packet 0"),
        (
            "class M(sluice.Aqm):\n    def on_dequeue(self, p, q, cx): return sluice.MARK\n",
            "it returned MARK, but the packet is not ECN-capable",
        ),
        (
            "class Nothing(sluice.Aqm):\n    def on_dequeue(self, p, q, cx): pass\n",
            "it returned None, which is none of sluice.PASS, sluice.MARK and sluice.DROP",
        ),
        # No packet leaves, which violates nothing: the picture has the drops.
        ("class All(sluice.Aqm):\n    def on_enqueue(self, p, q, cx): return sluice.DROP\n", None),
        ("class All(sluice.Aqm):\n    def on_dequeue(self, p, q, cx): return sluice.DROP\n", None),
        (
            "class Count(sluice.Aqm):\n    n = 0\n"
            "    def on_dequeue(self, p, q, cx): return sluice.DROP if self.n % 5 == 4 else 0\n"
            "    def on_empty(self, cx): self.n += 1\n",
            "FAILED  spurious wake-ups: sequence ",
        ),
    ],
)
def test_the_check_finds_what_breaks_the_contract(
    tmp_path: Path, text: str, finding: str | None
) -> None:
    file(tmp_path, text)
    words = [sys.executable, "-m", "sluice", "check", "a.py"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
    if finding is None:
        assert done.returncode == 0, done.stdout + done.stderr
        assert (tmp_path / "check.png").read_bytes().startswith(b"\x89PNG")
        assert "ns per packet" in done.stdout
    else:
        assert done.returncode == 1
        assert finding in done.stdout, done.stdout + done.stderr
        if "sequence" in finding:
            assert re.search(r": packet \d+ .* [\d.]+ ms.*; in the second pass ", done.stdout)


LATE = """
class Late(sluice.Aqm):
    calls = 0

    def on_dequeue(self, packet, queue, cx):
        self.calls += 1
        return sluice.PASS if self.calls < 1000 else 1 / 0
"""


@pytest.mark.parametrize("words", ["on_error stop", "on_error pass"])
def test_the_check_finds_an_error_that_only_traffic_provokes(tmp_path: Path, words: str) -> None:
    # The other properties are checked with at most 250 packets, the standard traffic has thousands.
    file(tmp_path, LATE)
    check = [sys.executable, "-m", "sluice", "check", f"a.py {words}"]
    done = subprocess.run(check, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAILED  no errors: " in done.stdout
    assert "ZeroDivisionError" in done.stdout
