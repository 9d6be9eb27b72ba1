"""Programs that use the package pass mypy in its strict mode; wrong ones do not."""

from pathlib import Path

from mypy import api

ROOT = Path(__file__).parents[2]

RIGHT = """
import sluice
from sluice.aqm import BacklogView, Context, PacketView
from sluice import Aqm, Router, RouterStatus, Run, Simulation, Sweep, Table


class Bound(Aqm):
    bound: sluice.Span = "50ms"
    ecn: bool = False

    def on_dequeue(self, packet: PacketView, queue: BacklogView, cx: Context) -> int:
        if packet.sojourn_ns <= self.bound:
            return sluice.PASS
        return sluice.MARK if self.ecn and packet.ecn_capable else sluice.DROP


def experiment() -> float:
    run: Run = sluice.run("scenario.toml", {"link.queue": "codel"}, backend="sim", progress=False)
    figures: Table = run.figures
    rows = len(run.packets.pandas()) + run.flows.polars().height + len(run.queues.sql("select 1"))
    axes = run.plot.cdf("sojourn", hue="queue")
    axes.set_xlabel("ms")
    run.report().save("report.html")
    names: list[str] = figures.columns
    return run.figure(names[0]) + rows


def grid() -> int:
    sweep: Sweep = sluice.sweep("s.toml", {"link.queue": ["fifo"]}, seeds=10, out="results")
    return sluice.dataset("results").count_rows() + len(sweep.runs)


def by_hand() -> dict[str, float]:
    simulation = Simulation({"link": {"rate": "10Mbit/s"}}, seed=3)
    while not simulation.step(by="10ms"):
        simulation.set_rate("5Mbit/s")
    return simulation.queue.state


def live() -> int:
    with Router("eth0", "eth1", accept=True) as router:
        text: str = router.command("pipe show")
        for status in router.watch():
            seen: RouterStatus = status
            return seen["ports"][0]["received"] + len(text)
    return router.stop()["sent"]


for algorithm in sluice.algorithms():
    print(algorithm["name"], [param["default"] for param in algorithm["params"]])
"""

WRONG = """
import sluice

sluice.run(3)
sluice.run("s.toml", variant=1)
sluice.Simulation("s.toml").step(during="2s")
sluice.Router("eth0", "eth1", spin="wildly")
sluice.Router("eth0", "eth1").status["reboots"]
sluice.Queue("codel").dequeue("now")
sluice.sweep("s.toml", {}).runs.sql(query=7)
sluice.no_such_thing
"""


def check(folder: Path, text: str) -> list[str]:
    """Return the findings of mypy in a program, one line each."""
    program = folder / "program.py"
    program.write_text(text)
    cache = f"--cache-dir={ROOT / '.mypy_cache'}"
    said, _, _ = api.run(["--strict", f"--config-file={folder / 'none.toml'}", cache, str(program)])
    return [line for line in said.splitlines() if "program.py" in line]


def test_a_program_with_every_part_passes_strict_checks(tmp_path: Path) -> None:
    (tmp_path / "none.toml").touch()
    assert check(tmp_path, RIGHT) == []


def test_each_wrong_use_is_found(tmp_path: Path) -> None:
    (tmp_path / "none.toml").touch()
    found = check(tmp_path, WRONG)
    lines = [int(line.split(":")[1]) for line in found if ": error: " in line]
    assert lines == [n for n, line in enumerate(WRONG.splitlines(), 1) if "sluice." in line]
