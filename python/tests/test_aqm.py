import base64
import json
import random
import re
import shutil
import signal
import zlib
from pathlib import Path
from typing import Any

import pytest

import sluice
from sluice.__main__ import main
from sluice.aqm import errors, stopped

ROOT = Path(__file__).parents[2]

Fate = tuple[int, int, str]


def fates(words: str, *, seed: int, rate_ns: int) -> list[Fate]:
    """Return the fate of every packet of a random overload at one packet per `rate_ns`."""
    queue = sluice.Queue(words)
    rng = random.Random(seed)
    found: list[Fate] = []
    arrival = departure = 0
    for _ in range(4000):
        # Bursts and pauses around the rate of the link.
        arrival += rng.choice([0, rate_ns // 2, rate_ns, rate_ns, 2 * rate_ns])
        while departure <= arrival:
            out = queue.dequeue(departure)
            found += [(number, at, reason) for number, at, reason in queue.take_drops()]
            if out is not None:
                found.append((out[0], departure, f"left {out[2]}"))
            departure += rate_ns
        queue.enqueue(arrival, 1500, flow=rng.randrange(4), ecn=rng.choice([0, 2]))
    return found


@pytest.mark.parametrize("settings", ["", " ecn", " target 1ms interval 20ms mtu 0"])
@pytest.mark.parametrize("form", ["", "fq_"])
def test_codel_in_python_and_c_gives_the_fates_of_ours(settings: str, form: str) -> None:
    python = f"{form}py:{ROOT}/sdk/examples/codel.py:Codel{settings}"
    module = f"{form}wasm:{ROOT}/fuzz/corpus/module/codel{settings}"
    signals = 0
    for seed in range(5):
        ours = fates(f"{form}codel{settings}", seed=seed, rate_ns=1_200_000)
        assert fates(python, seed=seed, rate_ns=1_200_000) == ours
        assert fates(module, seed=seed, rate_ns=1_200_000) == ours
        signals += sum(fate[2] in ("congestion", "left 3") for fate in ours)
    assert signals > 20, "the traffic is an overload"


def aqm(folder: Path, body: str, head: str = "") -> str:
    """Return the words for a class with the method `on_dequeue`."""
    file = folder / "a.py"
    file.write_text(
        f"import sluice\nclass A(sluice.Aqm):\n    {head or 'pass'}\n"
        f"    def on_dequeue(self, packet, queue, cx):\n        {body}\n"
    )
    return f"py:{file}:A"


@pytest.mark.parametrize(
    "body", ["raise KeyError('here')", "return 7", "return 'x'", "return sluice.MARK"]
)
def test_an_error_stops_the_aqm_and_its_packets_pass(
    tmp_path: Path, body: str, capfd: pytest.CaptureFixture[str]
) -> None:
    queue = sluice.Queue(aqm(tmp_path, body))
    for _ in range(3):
        queue.enqueue(0, 100)
    assert [queue.dequeue(1) for _ in range(3)] == [(0, 1, 0), (1, 1, 0), (2, 1, 0)]
    lines = capfd.readouterr().err
    assert lines.count("is stopped at 1 ns") == 1
    if "KeyError" in body:
        assert "a.py" in lines
        assert "KeyError" in lines
    if body == "return 7":
        assert "in `on_dequeue`, for packet 0 (100 bytes, arrived at 0 ns), it returned 7" in lines


def test_randomness_is_that_of_the_queues_seed(tmp_path: Path) -> None:
    def left(seed: int) -> list[int]:
        words = aqm(tmp_path, "return sluice.DROP if cx.random() < 0.5 else sluice.PASS")
        queue = sluice.Queue(words, seed=seed)
        for _ in range(64):
            queue.enqueue(0, 100)
        return [out[0] for out in iter(lambda: queue.dequeue(1), None)]

    assert left(1) == left(1)
    assert left(1) != left(2)


def test_parameters_are_checked_like_any_others(tmp_path: Path) -> None:
    head = "bound: sluice.Span = '20ms'; share: float = 0.5; on: bool = True; n: int = 3"
    right = "(self.bound, self.share, self.on, self.n) == (20_000_000, 0.5, True, 3)"
    words = aqm(tmp_path, f"return sluice.PASS if {right} else sluice.DROP", head)
    queue = sluice.Queue(words)
    queue.enqueue(0, 100)
    assert queue.dequeue(1) == (0, 1, 0)
    with pytest.raises(ValueError, match="has no parameter `bond`"):
        sluice.Queue(f"{words} bond 5ms")
    with pytest.raises(ValueError, match="`x` for `bound`"):
        sluice.Queue(f"{words} bound x")


def test_a_parameter_of_every_kind_can_be_set(tmp_path: Path) -> None:
    head = (
        "wait: sluice.Span = '20ms'; speed: sluice.Rate = '10Mbit/s'; room: sluice.Bytes = '1500B';"
        " share: float = 0.5; n: int = 3"
    )
    # Shares are powers of two, so exact.
    set_to = "(5_000_000, 20_000_000, 3000, 0.25, 7)"
    right = f"(self.wait, self.speed, self.room, self.share, self.n) == {set_to}"
    words = aqm(tmp_path, f"return sluice.PASS if {right} else sluice.DROP", head)
    queue = sluice.Queue(f"{words} wait 5ms speed 20Mbit/s room 3000B share 0.25 n 7")
    queue.enqueue(0, 100)
    assert queue.dequeue(1) == (0, 1, 0)
    sluice.Queue(f"{words} speed unlimited")


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ("bound: str = 'a'", "line 3: `bound` is annotated with `str`, none of sluice.Span"),
        ("bound: int", "`bound` has no default"),
        ("bound: sluice.Span = '5 fathoms'", "the default `5 fathoms` of `bound`"),
        ("gain: float = -0.5", "the default `-0.5` of `gain`: must not be negative"),
        (
            "gain: float = 1.25e-10",
            "the default `0.000000000125` of `gain`: needs more than the nine decimals",
        ),
        ("limit: int = 3", "its parameter `limit` is declared twice, or a queue has it already"),
    ],
)
def test_a_wrong_declaration_is_named(tmp_path: Path, head: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sluice.Queue(aqm(tmp_path, "return 0", head))


def test_a_class_that_is_not_there_is_named(tmp_path: Path) -> None:
    words = aqm(tmp_path, "return 0")
    with pytest.raises(sluice.SluiceError, match=r"no subclass .* is called 'B': the file has A"):
        sluice.Queue(words.removesuffix("A") + "B")
    (tmp_path / "a.py").write_text("import sluice\nclass A(sluice.Aqm): pass\n")
    with pytest.raises(sluice.SluiceError, match="A defines neither `on_enqueue` nor `on_dequeue`"):
        sluice.Queue(words)


def test_a_class_may_have_a_second_name(tmp_path: Path) -> None:
    words = aqm(tmp_path, "return sluice.DROP")
    with (tmp_path / "a.py").open("a") as file:
        file.write("\nDefault = A\n")
    queue = sluice.Queue(words)
    queue.enqueue(0, 100)
    assert queue.dequeue(1) is None


def test_a_default_may_be_a_small_number(tmp_path: Path) -> None:
    # Python writes it as 1e-05. A ratio is exact to 1e-9.
    body = "return sluice.DROP if abs(self.gain - 1e-5) < 1e-9 else sluice.PASS"
    queue = sluice.Queue(aqm(tmp_path, body, "gain: float = 0.00001"))
    queue.enqueue(0, 100)
    assert queue.dequeue(1) is None


def test_a_number_may_have_an_exponent_and_is_not_cut_to_another_one(tmp_path: Path) -> None:
    body = "return sluice.PASS if self.gain == {value} else sluice.DROP"
    # Three tenths are computed here as 0.30000000000000004.
    for text, value in [("1e-05", 1e-5), ("2.5E-1", 0.25), (f"{0.1 + 0.2}", 0.3)]:
        words = aqm(tmp_path, body.format(value=value), "gain: float = 0.5")
        queue = sluice.Queue(f"{words} gain {text}")
        queue.enqueue(0, 100)
        assert queue.dequeue(1) == (0, 1, 0), text
    # Nine decimals would make these 1e-9 and 0.
    for text in ["1.25e-9", "0.000000000125"]:
        with pytest.raises(sluice.SluiceError, match=f"`{text}` for `gain`: needs more than the"):
            sluice.Queue(f"{words} gain {text}")
    with pytest.raises(sluice.SluiceError, match="`-1` for `gain`: must not be negative"):
        sluice.Queue(f"{words} gain -1")
    scenario = sluice.Scenario(SCENARIO, {"link.queue": words, "link.queue.gain": 1e-5})
    ((_, text),) = scenario.resolve()
    assert f"{words} gain 0.00001" in text
    with pytest.raises(sluice.SluiceError, match="needs more than the nine decimals"):
        scenario.set("link.queue.gain", 1.25e-9).resolve()


SCENARIO: dict[str, Any] = {
    "duration": "4s",
    "link": {"rate": "10Mbit/s", "delay": "20ms", "queue": "codel"},
    "flow": [{"type": "tcp", "count": 3}],
}
CODEL = f"py:{ROOT}/sdk/examples/codel.py:Codel"


@pytest.mark.parametrize("form", ["", "fq_"])
@pytest.mark.parametrize("settings", ["", " target 2ms ecn"])
def test_a_simulated_run_through_codel_in_python_has_the_packets_of_ours(
    form: str, settings: str
) -> None:
    ours = sluice.run(SCENARIO, {"link.queue": f"{form}codel{settings}"})
    python = sluice.run(SCENARIO, {"link.queue": f"{form}{CODEL}{settings}"})
    assert "congestion" in ours.packets["reason"] or "mark" in ours.packets["verdict"]
    for table in ("packets", "flows", "pings", "transfers"):
        assert getattr(python, table).arrow.equals(getattr(ours, table).arrow), table
    assert python.figures.arrow.equals(ours.figures.arrow)


def test_a_simulation_is_driven_with_it_and_shows_its_state() -> None:
    def received(queue: str) -> dict[str, int]:
        simulation = sluice.Simulation(SCENARIO, {"link.queue": queue})
        simulation.step(until="1s")
        simulation.set_queue(f"{queue} target 1ms")
        simulation.step(until="2s")
        assert {"count", "dropping", "drop_next"} <= simulation.queue.state.keys()
        return simulation.received_bytes

    assert received(CODEL) == received("codel")


def test_paths_are_relative_to_the_scenarios_file(tmp_path: Path) -> None:
    words = aqm(tmp_path, "return sluice.PASS")
    file = tmp_path / "s.toml"
    file.write_text(
        'duration = "2s"\n[link]\nrate = "10Mbit/s"\nqueue = "py:a.py:A"\n[[flow]]\ntype = "tcp"\n'
    )
    assert sluice.run(file).figures.arrow == sluice.run(file, {"link.queue": words}).figures.arrow
    assert not sluice.Simulation(file).step(by="10ms")
    (tmp_path / "a.py").write_text("import sluice\n1 / 0\n")
    with pytest.raises(sluice.SluiceError, match=r"a\.py\", line 2(.|\n)*s\.toml:4") as error:
        sluice.run(file)
    assert "ZeroDivisionError" in str(error.value)


TIMER = """
import sluice
class Timer(sluice.Aqm):
    at = {first}
    def on_enqueue(self, packet, queue, cx):
        self.at = cx.now_ns + 1e6
        return sluice.PASS
    def next_timer(self): return self.at
class Wake(sluice.Discipline):
    def __init__(self): self.packets = []
    def enqueue(self, packet, cx): self.packets.append(packet)
    def dequeue(self, cx): return self.packets.pop(0)
    def next_wake(self): return "soon"
"""


def test_a_time_that_is_no_int_is_named_with_its_method(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "t.py"
    file.write_text(TIMER.format(first="None"))
    kinds = "which is neither None nor an int of nanoseconds from 0 to 2^64 - 1"
    for name, returned in [
        ("Timer", "`next_timer` returned 1000005.0"),
        ("Wake", "`next_wake` returned 'soon'"),
    ]:
        sluice.Queue(f"py:{file}:{name}").enqueue(5, 100)
        said = capfd.readouterr().err
        assert "is stopped at 5 ns, queue 0" in said
        assert f"{returned}, {kinds}" in said


HASTY = """
import sluice
class Timer(sluice.Aqm):
    step: int = 15
    at = 1
    def on_dequeue(self, packet, queue, cx): return sluice.PASS
    def next_timer(self): return self.at
    def on_timer(self, queue, cx): self.at = cx.now_ns + self.step
class Wake(sluice.Discipline):
    def __init__(self): self.packets = []; self.at = None
    def enqueue(self, packet, cx): self.packets.append(packet)
    def dequeue(self, cx): self.at = cx.now_ns + 15
    def next_wake(self): return self.at
"""


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "Timer",
            r"`next_timer` returned \d+, 15 ns later than now, and timers have expired too",
        ),
        ("Wake", "None too often: `next_wake` asks for the next call 15 ns later"),
    ],
)
def test_an_algorithm_that_asks_for_a_call_each_15_ns_is_stopped_and_the_run_goes_on(
    tmp_path: Path, name: str, said: str
) -> None:
    file = tmp_path / "t.py"
    file.write_text(HASTY)
    scenario = SCENARIO | {"duration": "2s"}
    with pytest.raises(sluice.RunFailed, match=said) as caught:
        sluice.run(scenario, {"link.queue": f"py:{file}:{name}"})
    try:
        assert caught.value.run.cut_short is None
    finally:
        shutil.rmtree(caught.value.folder)


def test_a_timer_each_10_us_is_not_too_often(tmp_path: Path) -> None:
    file = tmp_path / "t.py"
    file.write_text(HASTY)
    words = f"py:{file}:Timer step 10000"
    run = sluice.run(SCENARIO | {"duration": "2s"}, {"link.queue": words})
    assert run.stopped == []


def test_the_timers_of_all_flow_queues_count_together(tmp_path: Path) -> None:
    file = tmp_path / "t.py"
    file.write_text(HASTY)
    # A call each 6 us is not too often; those of three flows are one each 2 us.
    with pytest.raises(sluice.RunFailed, match="timers have expired too often") as caught:
        sluice.run(SCENARIO, {"link.queue": f"fq_py:{file}:Timer step 6000"})
    shutil.rmtree(caught.value.folder)


def test_an_error_before_the_first_packet_is_printed_once_for_a_run(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "t.py"
    file.write_text(TIMER.format(first="1e7"))
    before = stopped()
    said = r"is stopped before its first packet, (.|\n)*`next_timer` returned 10000000\.0, which"
    with pytest.raises(sluice.RunFailed, match=said):
        sluice.run(SCENARIO, {"link.queue": f"py:{file}:Timer"})
    # The queues up and down. Other instances are created to check the class, and get no packets.
    assert stopped() == before + 2
    assert capfd.readouterr().err.count("before its first packet") == 1


def test_a_run_whose_aqm_is_stopped_goes_on_and_raises_with_its_recording(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    # Queues exist 1.2 s before the run, so this is 1 s of the run.
    words = aqm(tmp_path, "return sluice.PASS if cx.now_ns < 22 * 10**8 else {}[packet.flow]")
    before = stopped()
    with pytest.raises(sluice.RunFailed, match="are not those of the queue") as caught:
        sluice.run(SCENARIO, {"link.queue": words})
    assert "KeyError" in str(caught.value)
    run, folder = caught.value.run, caught.value.folder
    try:
        assert sluice.Run.open(folder).stopped == run.stopped
    finally:
        shutil.rmtree(folder)
    # One AQM in each direction of the link.
    assert stopped() == before + 2
    assert run.cut_short is None
    (why,) = run.stopped
    assert why.startswith(f"`{words}` is stopped at 1000")
    assert "stopped" in run.queues["variable"]
    plain = sluice.run(SCENARIO, {"link.queue": "fifo"})
    assert run.packets.arrow.equals(plain.packets.arrow), "it passes every packet, as before"
    lines = capfd.readouterr().err
    assert lines.count("is stopped") == 2
    assert f"`{words}` is stopped at 1000" in lines, "in the time of the run"
    for pipe in ("up", "down"):
        assert lines.count(f" ns, queue 0 of `{pipe}`, and its queue passes every packet") == 1
    assert "KeyError" in lines


@pytest.mark.parametrize("verdict", ["True", "False"])
def test_a_bool_is_no_verdict(
    tmp_path: Path, verdict: str, capfd: pytest.CaptureFixture[str]
) -> None:
    queue = sluice.Queue(aqm(tmp_path, f"return {verdict}"))
    queue.enqueue(0, 100, ecn=2)
    out = queue.dequeue(1)
    assert out is not None
    assert out[2] == 2, "it is not marked"
    message = f"returned {verdict}, a bool (True would be MARK), which is none of sluice.PASS"
    assert message in capfd.readouterr().err


def test_a_step_in_which_an_aqm_is_stopped_raises(tmp_path: Path) -> None:
    words = aqm(tmp_path, "return sluice.PASS if cx.now_ns < 22 * 10**8 else {}[packet.flow]")
    simulation = sluice.Simulation(SCENARIO, {"link.queue": words})
    # Queues exist 1.2 s before the run, so this is 1 s of the run.
    assert not simulation.step(until="900ms")
    with pytest.raises(sluice.SluiceError, match=r"are not those of the queue(.|\n)*KeyError"):
        simulation.step(until="2s")


@pytest.mark.parametrize(
    ("number", "right"), [("5_000_000", '"5ms"'), ("2_000", '"2us"'), ("7", '"7ns"'), ("0", '"0s"')]
)
def test_a_time_without_a_unit_is_refused(tmp_path: Path, number: str, right: str) -> None:
    words = aqm(tmp_path, "return sluice.PASS", head=f"target: sluice.Span = {number}")
    with pytest.raises(sluice.SluiceError, match=f"line 3: .*`target`.*has no unit.*{right}"):
        sluice.Queue(words)
    words = aqm(tmp_path, "return sluice.PASS", head=f"target: sluice.Span = {right}")
    assert sluice.Queue(words)


def test_every_flow_queue_is_stopped_for_itself(tmp_path: Path) -> None:
    words = aqm(tmp_path, "return {1: sluice.PASS}[packet.flow]")
    queue = sluice.Queue(f"fq_{words}")
    before = stopped()
    for flow in (1, 2, 3, 1, 2, 3):
        queue.enqueue(0, 100, flow=flow)
    assert len(list(iter(lambda: queue.dequeue(1), None))) == 6
    assert stopped() == before + 2


def test_ctrl_c_in_a_hook_ends_the_run_and_stops_no_aqm(tmp_path: Path) -> None:
    before = stopped()
    # A background job ignores Ctrl-C.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            sluice.run(SCENARIO, {"link.queue": aqm(tmp_path, "raise KeyboardInterrupt")})
    finally:
        signal.signal(signal.SIGINT, handler)
    assert stopped() == before


def test_ctrl_c_in_a_discipline_accuses_it_of_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "d.py"
    file.write_text(
        "import collections, sluice\n"
        "class D(sluice.Discipline):\n"
        "    def __init__(self):\n"
        "        self.held = collections.deque()\n"
        "        self.left = 0\n"
        "    def enqueue(self, packet, cx):\n"
        "        self.held.append(packet)\n"
        "    def dequeue(self, cx):\n"
        "        self.left += 1\n"
        "        packet = self.held.popleft()\n"
        "        if self.left == 100:\n"
        "            raise KeyboardInterrupt\n"
        "        return packet\n"
    )
    before = (stopped(), errors())
    # A background job ignores Ctrl-C.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            sluice.run(SCENARIO, {"link.queue": f"py:{file}:D"})
    finally:
        signal.signal(signal.SIGINT, handler)
    assert (stopped(), errors()) == before
    assert "lost" not in capfd.readouterr().err


def ticks(folder: Path) -> str:
    """Return the words for an AQM that counts the ticks of its timer in its state."""
    file = folder / "t.py"
    file.write_text(
        "import sluice\n"
        "class Ticks(sluice.Aqm):\n"
        "    every: sluice.Span = '10ms'\n"
        "    may_be_late: bool = False\n"
        "    def __init__(self): self.at, self.ticks = None, 0\n"
        "    def on_enqueue(self, packet, queue, cx):\n"
        "        self.at = self.at or cx.now_ns + self.every\n"
        "        return sluice.PASS\n"
        "    def next_timer(self): return self.at\n"
        "    def on_timer(self, queue, cx):\n"
        "        assert cx.now_ns == self.at or self.may_be_late\n"
        "        self.ticks += 1\n"
        "        while self.at <= cx.now_ns: self.at += self.every\n"
        "    def state(self): return {'ticks': self.ticks}\n"
    )
    return f"py:{file} every 100ms"


def computing(folder: Path, init: str) -> str:
    """Return the words for an AQM whose `__init__` computes what its state shows."""
    file = folder / "c.py"
    file.write_text(
        "import sluice\n"
        "class Computing(sluice.Aqm):\n"
        "    gain: float = 0.1\n"
        "    target: sluice.Span = '5ms'\n"
        f"    def __init__(self): {init}\n"
        "    def on_enqueue(self, packet, queue, cx): return sluice.PASS\n"
        "    def state(self): return {'gain': self.kept, 'limit': self.limit}\n"
    )
    return f"py:{file} gain 0.9 target 20ms"


def test_init_sees_the_parameters_of_the_queue(tmp_path: Path) -> None:
    queue = computing(tmp_path, "self.kept = self.gain; self.limit = 2 * self.target")
    simulation = sluice.Simulation(SCENARIO, {"link.queue": queue})
    simulation.step(until="1s")
    assert simulation.queue.state == {"gain": 0.9, "limit": 40_000_000}


def test_init_cannot_change_a_parameter(tmp_path: Path) -> None:
    queue = computing(tmp_path, "self.gain = 0.1")
    with pytest.raises(
        sluice.SluiceError, match=r"`__init__` changes the parameter `gain` from 0\.9 to 0\.1"
    ):
        sluice.Simulation(SCENARIO, {"link.queue": queue})


def test_timers_and_state(tmp_path: Path) -> None:
    simulation = sluice.Simulation(SCENARIO, {"link.queue": ticks(tmp_path)})
    simulation.step(until="2s")
    # The first packet, a SYN, arrives at 0 s; ticks follow at 0.1 s, 0.2 s, ... 2 s.
    assert simulation.queue.state["ticks"] == pytest.approx(20, abs=1)
    assert "stopped" not in simulation.queue.state


def drawn_states(page: str) -> dict[str, Any]:
    """Return the model of the chart "State of the AQM", by variable."""
    found = re.search(r'<script id="model"[^>]*>(.*?)</script>', page, re.DOTALL)
    assert found is not None
    # Raw deflate (web/src/embed.ts).
    model = json.loads(zlib.decompress(base64.b64decode(found[1]), wbits=-15))
    [up] = [queue for queue in model["runs"][0]["queues"] if queue["name"] == "up"]
    return {state["name"]: state for state in up["state"]}


@pytest.mark.parametrize(
    ("kind", "variable"), [("py", "ticks"), ("fq_py", "ticks"), ("wasm", "count")]
)
def test_state_is_recorded_and_drawn(tmp_path: Path, kind: str, variable: str) -> None:
    queues = {
        "py": ticks(tmp_path),
        # The timer of a flow queue stops while it is idle, as in the other direction of the link.
        "fq_py": f"fq_{ticks(tmp_path)} may_be_late",
        "wasm": f"wasm:{ROOT}/fuzz/corpus/module/codel",
    }
    scenario = {**SCENARIO, "flow": [{"type": "tcp"}]}
    run = sluice.run(scenario, {"link.queue": queues[kind]})
    rows = [row for row in run.queues.arrow.to_pylist() if row["variable"] == variable]
    values = [row["value"] for row in rows if row["pipe"] == "up"]
    # An interval of 50 ms in 4 s.
    assert len(values) >= 4 / 0.05 - 1
    if variable == "ticks":
        # The SYN arrives at 0 s; the last of the ticks, one every 0.1 s, is that of 4 s.
        assert max(values) == pytest.approx(40, abs=1)
        assert values == sorted(values)
    else:
        assert max(values) > 0, "CoDel counts its drops"
    drawn = drawn_states(run.report().html)
    [name] = [name for name in drawn if name.split(" of queue ")[0] == variable]
    assert max(drawn[name]["series"]["value"]) == max(values)
    folder = run.save(tmp_path / "run")
    picture = tmp_path / "state.svg"
    assert main(["report", str(folder), "--figure", "state", "--svg", str(picture)]) == 0
    assert re.search(rf">\s*{variable}\s*<", picture.read_text())


@pytest.mark.parametrize(
    ("state", "word"),
    [
        ("return {'a': 'b'}", "it returned 'b' for `a`, which is no number"),
        ("return {1: 2}", "it returned the name 1, which is no string"),
        ("return [1]", "it returned [1], which is no dictionary"),
        ("1 / 0", "ZeroDivisionError"),
    ],
)
def test_a_wrong_state_stops_the_aqm(
    tmp_path: Path, state: str, word: str, capfd: pytest.CaptureFixture[str]
) -> None:
    head = f"def state(self): {state}"
    queue = aqm(tmp_path, "return sluice.PASS", head)
    simulation = sluice.Simulation(SCENARIO, {"link.queue": queue})
    simulation.step(until="1s")
    assert simulation.queue.state["stopped"] == 1
    assert word in capfd.readouterr().err


def test_a_sweep_repeats_the_runs_of_a_changed_file_and_reports_a_stopped_aqm(
    tmp_path: Path,
) -> None:
    words = aqm(tmp_path, "return sluice.PASS")
    over = {"link.queue": ["codel", words]}
    base = {**SCENARIO, "duration": "2s"}

    def status() -> tuple[list[Any], int]:
        done = sluice.sweep(base, over, jobs=1, out=tmp_path / "out", progress=False)
        return done.runs["status"], done.found

    assert status() == (["complete", "complete"], 0)
    assert status() == (["complete", "complete"], 2)
    aqm(tmp_path, "return sluice.PASS if cx.now_ns < 10**8 else None")
    assert status() == (["complete", "failed"], 1)
