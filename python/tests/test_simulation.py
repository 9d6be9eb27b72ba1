from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import sluice

SCENARIO: dict[str, Any] = {
    "duration": "10s",
    "link": {"rate": "10Mbit/s", "rtt": "20ms", "queue": "codel"},
    "flow": [{"type": "udp", "name": "flood", "rate": "50Mbit/s"}],
}


def test_the_link_follows_the_rate_that_was_set() -> None:
    simulation = sluice.Simulation(SCENARIO)
    assert not simulation.step(until="2s")
    before = simulation.queue.sent_bytes
    simulation.set_rate("5Mbit/s")
    assert simulation.rate_bps == 5_000_000
    assert not simulation.step(by=2_000_000_000)
    # 5 Mbit/s for 2 s are 1 250 000 bytes; a packet may be on the wire at either end.
    assert abs(simulation.queue.sent_bytes - before - 1_250_000) <= 2 * 1500
    assert simulation.queue.packets > 0
    assert simulation.queue.bytes > 0
    assert simulation.queue.dropped_packets > 0
    assert simulation.queue.marked_packets == 0
    assert simulation.received_bytes["flood"] > 0
    assert simulation.step()
    assert simulation.time_ns == 10_000_000_000


def test_steps_do_not_change_what_happens() -> None:
    fine, coarse = sluice.Simulation(SCENARIO), sluice.Simulation(SCENARIO)
    while not fine.step(by="10ms"):
        pass
    coarse.step()
    assert fine.queue.sent_bytes == coarse.queue.sent_bytes
    assert fine.queue.sojourn_ns == coarse.queue.sojourn_ns
    assert fine.received_bytes == coarse.received_bytes


def test_a_new_queue_gets_the_packets_of_the_old_one() -> None:
    simulation = sluice.Simulation(SCENARIO)
    simulation.step(until="1s")
    held = simulation.queue.packets
    assert held > 0
    assert "drop_next" in simulation.queue.state
    simulation.set_queue("pie")
    assert simulation.queue.packets == held
    assert "probability" in simulation.queue.state


def test_a_step_may_have_a_number_of_numpy() -> None:
    simulation = sluice.Simulation(SCENARIO)
    simulation.step(by=np.int64(5_000_000))  # type: ignore[arg-type]
    assert simulation.time_ns == 5_000_000


def test_mistakes_are_named() -> None:
    with pytest.raises(sluice.SluiceError, match="there is no pipe `up2`; one of: up, down"):
        sluice.Simulation(SCENARIO, pipe="up2")
    simulation = sluice.Simulation(SCENARIO)
    simulation.step(until="1s")
    with pytest.raises(sluice.SluiceError, match="before 1000000000 ns"):
        simulation.step(until="500ms")
    with pytest.raises(sluice.SluiceError, match=r"-5 is before 1000000000 ns, .* a later time"):
        simulation.step(until=-5)
    words = 'a step by -5 ns would go back; give a span of 0 or more, such as 5 or "20ms"'
    with pytest.raises(sluice.SluiceError, match=words):
        simulation.step(by=-5)
    with pytest.raises(sluice.SluiceError, match=r"0\.5 is not a time; give text such as"):
        simulation.step(by=0.5)  # type: ignore[arg-type]
    assert simulation.time_ns == 1_000_000_000
    with pytest.raises(sluice.SluiceError, match="`soon` is not a time"):
        simulation.step(until="soon")
    with pytest.raises(sluice.SluiceError, match="not both"):
        simulation.step(until="2s", by="1s")
    with pytest.raises(sluice.SluiceError, match="`fast` is not a rate"):
        simulation.set_rate("fast")
    with pytest.raises(sluice.SluiceError, match=r"no parameter `tarqet` \(at character 7"):
        simulation.set_queue("codel tarqet 5ms")


COMMANDS = """
pipe 1 config bw 1Mbit/s
add 100 pipe 1 ip from any to any out
add 200 allow ip from any to any
"""
RULES: dict[str, Any] = {
    "duration": "10s",
    "rules": COMMANDS,
    "flow": [{"type": "udp", "name": "flood", "rate": "8Mbit/s"}],
}


def test_commands_change_the_router_of_rules() -> None:
    simulation = sluice.Simulation(RULES)
    counts = []
    for until in ("2s", "4s", "6s"):
        simulation.step(until=until)
        counts.append(simulation.received_bytes["flood"])
        if until == "4s":
            assert simulation.command("pipe 1 config bw 4Mbit/s") == ""
    slow, fast = counts[1] - counts[0], counts[2] - counts[1]
    # 1 Mbit/s for 2 s are 250 000 bytes with headers, and 4 Mbit/s four times as many. A packet may
    # be on either side of an instant, and the one on the link at the change may take 9 ms longer.
    assert slow > 200_000
    assert abs(fast - 4 * slow) <= 10 * 1500
    assert simulation.show("pipe")["pipes"][0]["link"]["rate_bps"] == 4_000_000
    assert simulation.command("pipe show").startswith("00001:   4.000 Mbit/s")
    with pytest.raises(sluice.SluiceError, match="Line 1: column 15: unrecognised option ``bv''"):
        simulation.command("pipe 1 config bv 2Mbit/s")
    with pytest.warns(UserWarning, match="the delay is 5 ms"):
        simulation.command("pipe 9 config delay 5x")
    with pytest.raises(sluice.SluiceError, match="no files can be read here"):
        simulation.command("/etc/rules")
    assert simulation.step()


def test_rules_and_pipes_are_told_apart() -> None:
    simulation = sluice.Simulation(RULES)
    uses: list[Callable[[], object]] = [
        lambda: simulation.rate_bps,
        lambda: simulation.set_rate("5Mbit/s"),
        lambda: simulation.set_queue("codel"),
        lambda: simulation.queue.packets,
    ]
    for use in uses:
        with pytest.raises(sluice.SluiceError, match="in place of the pipe `up`: use `command`"):
            use()
    with pytest.raises(sluice.SluiceError, match="the scenario has no `rules`, whose router"):
        sluice.Simulation(SCENARIO).command("pipe show")


def test_a_simulation_belongs_to_its_thread() -> None:
    simulation = sluice.Simulation(SCENARIO)
    uses = [
        lambda: simulation.step(by="1s"),
        lambda: simulation.time_ns,
        lambda: simulation.set_rate("5Mbit/s"),
        lambda: simulation.queue.packets,
        lambda: simulation.received_bytes,
    ]
    with ThreadPoolExecutor(1) as pool:
        for use in uses:
            with pytest.raises(sluice.SluiceError, match="this Simulation belongs to the thread"):
                pool.submit(use).result()
        other = pool.submit(sluice.Simulation, SCENARIO).result()
        assert not pool.submit(other.step, until="1s").result()
    assert not simulation.step(until="1s")
