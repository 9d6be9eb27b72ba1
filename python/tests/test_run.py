import pickle
import signal
import subprocess
import sys
import threading
import time
import tomllib
from pathlib import Path
from typing import Any, ClassVar

import matplotlib as mpl
import numpy as np
import pyarrow as pa
import pytest

import sluice
from sluice import progress
from sluice.scenario import word

mpl.use("Agg")

SCENARIO: dict[str, Any] = {
    "duration": "5s",
    "link": {"rate": "10Mbit/s", "rtt": "20ms", "queue": "codel"},
    "flow": [{"type": "tcp", "name": "bulk"}, {"type": "ping", "name": "probe"}],
}


@pytest.fixture(scope="module")
def done() -> sluice.Run:
    return sluice.run(SCENARIO)


def test_the_figures_have_a_row_each_with_its_unit(done: sluice.Run) -> None:
    assert done.cut_short is None
    rows = {row["figure"]: row for row in done.figures.rows()}
    assert len(rows) == len(done.figures)
    goodput = rows["bulk.goodput"]
    assert goodput["unit"] == "bit/s"
    # At most 1448 payload bytes in each 1500 bytes on the link, and at least 80 % of that, since
    # CoDel has little backlog to fill the link from after a drop.
    most = 10e6 * 1448 / 1500
    assert 0.8 * most < goodput["value"] <= most
    assert done.figure("bulk.goodput") == goodput["value"]
    with pytest.raises(KeyError, match="nothing"):
        done.figure("nothing")


def test_the_tables_agree_with_the_figures(done: sluice.Run) -> None:
    packets = done.packets
    dropped = [row for row in packets.rows() if row["verdict"] == "dropped" and row["pipe"] == "up"]
    # The figures leave out the warm-up of 1 s.
    measured = sum(row["segments"] for row in dropped if row["time_ns"] >= 1_000_000_000)
    assert measured == sum(
        row["value"] for row in done.figures.rows() if row["figure"].startswith("up.drops.")
    )
    assert set(done.queues["pipe"]) == {"up", "down"}
    assert done.flow_names == {0: "bulk", 1: "probe"}
    assert len(done.flows) > 0
    assert len(done.pings) > 0
    assert len(done.transfers) == 0


def test_less_can_be_recorded_with_the_same_figures(done: sluice.Run) -> None:
    figures = sluice.run(SCENARIO, record="figures")
    assert list(figures.figures.rows()) == list(done.figures.rows())
    with pytest.raises(sluice.SluiceError, match="no table `flows`"):
        len(figures.flows)
    flows = sluice.run(SCENARIO, record="flows")
    assert len(flows.flows) == len(done.flows)
    with pytest.raises(sluice.SluiceError, match="no table `packets`"):
        len(flows.packets)
    with pytest.raises(sluice.SluiceError, match="`all`; one of figures, flows, packets"):
        sluice.run(SCENARIO, record="all")


def test_tables_go_to_other_libraries(done: sluice.Run) -> None:
    count = len(done.packets)
    assert len(done.packets.pandas()) == count
    assert len(done.packets.polars()) == count
    assert done.packets.sql("select count(*) as n from self")["n"] == [count]
    assert done.packets.sql("select count(*) as n from packets")["n"] == [count]
    assert "<table>" in done.figures._repr_html_()


def test_the_same_seed_gives_the_same_bits_and_another_seed_others(done: sluice.Run) -> None:
    assert sluice.run(SCENARIO).packets == done.packets
    assert sluice.run(SCENARIO, seed=2).packets != done.packets


def test_a_saved_recording_is_that_of_the_command(done: sluice.Run, tmp_path: Path) -> None:
    folder = done.save(tmp_path / "run")
    again = sluice.Run.open(folder)
    assert again.figures == done.figures
    assert again.packets == done.packets
    assert sluice.Recording(folder).run["variant"] == "codel"
    assert {path.name for path in folder.iterdir()} >= {"run.json", "summary.json"}
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").touch()
    with pytest.raises(sluice.SluiceError, match="is not empty and contains no run"):
        done.save(tmp_path / "other")


def test_a_recording_passes_between_processes(done: sluice.Run) -> None:
    again = pickle.loads(pickle.dumps(done))
    assert (again.variant, again.seed, again.scenario) == (done.variant, done.seed, done.scenario)
    assert again.figures == done.figures
    assert again.packets == done.packets


def test_a_file_and_a_dictionary_are_the_same_scenario(tmp_path: Path, done: sluice.Run) -> None:
    path = tmp_path / "scenario.toml"
    path.write_text(
        'duration = "5s"\n[link]\nrate = "10Mbit/s"\nrtt = "20ms"\nqueue = "fifo"\n'
        '[[flow]]\ntype = "tcp"\nname = "bulk"\n[[flow]]\ntype = "ping"\nname = "probe"\n'
    )
    assert sluice.run(path, {"link.queue": "codel"}).packets == done.packets
    assert sluice.run(sluice.Scenario(path).set("link.queue", "codel")).packets == done.packets


def test_errors_have_the_words_and_the_place_of_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text('duration = "5s"\n[link]\nrate = "10Mbit/s"\nqueue = "codle"\n[[flow]]\n')
    with pytest.raises(sluice.SluiceError) as caught:
        sluice.run(path)
    assert isinstance(caught.value, ValueError)
    assert f"{path}:4:10" in str(caught.value)
    assert "did you mean `codel`?" in str(caught.value)
    with pytest.raises(sluice.SluiceError, match=r"--set link\.rat=1"):
        sluice.run(SCENARIO, {"link.rat": 1})
    with pytest.raises(sluice.SluiceError, match="cannot read the scenario"):
        sluice.run(tmp_path / "missing.toml")
    with pytest.raises(sluice.SluiceError, match="there is no backend `hardware`"):
        sluice.run(SCENARIO, backend="hardware")
    with pytest.raises(sluice.SluiceError, match="`Path` is a class; name it by its file"):
        sluice.run(SCENARIO, {"link.queue": Path})
    with pytest.raises(sluice.SluiceError, match="cannot be written as TOML"):
        sluice.run({**SCENARIO, "title": object()})


def test_the_last_override_counts() -> None:
    def queues(scenario: sluice.Scenario) -> list[str]:
        ((_, text),) = scenario.resolve()
        link = tomllib.loads(text)["link"]
        return [link.get(direction, link)["queue"].split()[0] for direction in ("up", "down")]

    scenario = sluice.Scenario(SCENARIO, {"link.queue": "pie", "link.up.queue": "sfq"})
    assert queues(scenario) == ["sfq", "pie"]
    # As with `--set`, a key of the link applies to both directions.
    assert queues(scenario.set("link.queue", "fifo")) == ["fifo", "fifo"]
    assert queues(sluice.Scenario(scenario, {"link.queue": "fifo"})) == ["fifo", "fifo"]


def test_values_of_numpy_are_those_of_toml() -> None:
    assert [word(np.bool_(True)), word(np.float64(0.5)), word(np.int64(3))] == ["true", "0.5", "3"]


def test_one_variant_of_a_matrix_is_chosen_by_its_name() -> None:
    crossed = {**SCENARIO, "matrix": {"link.queue": ["fifo", "codel"]}}
    with pytest.raises(sluice.SluiceError, match="has 2 variants: fifo, codel"):
        sluice.run(crossed)
    with pytest.raises(sluice.SluiceError, match="no variant `pie`; one of: fifo, codel"):
        sluice.run(crossed, variant="pie")
    assert sluice.run(crossed, {"duration": "2s"}, variant="fifo").variant == "fifo"


def test_the_drawings_show_what_was_recorded(done: sluice.Run) -> None:
    sent = [
        row
        for row in done.packets.rows()
        if row["pipe"] == "up" and row["verdict"] in ("sent", "marked")
    ]
    line = done.plot.sojourn().lines[0]
    assert np.asarray(line.get_ydata()).tolist() == [row["sojourn_ns"] / 1e6 for row in sent]
    axes = done.plot.cdf("sojourn", hue="queue")
    legend = axes.get_legend()
    assert legend is not None
    # Both directions have the scenario's queue.
    assert [text.get_text() for text in legend.get_texts()] == ["codel (up)", "codel (down)"]
    other = sluice.run(SCENARIO, {"link.down.queue": "fifo limit 50"}, progress=False)
    legend = other.plot.cdf("sojourn", hue="queue").get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["codel", "fifo limit 50"]
    legend = other.plot.cdf("sojourn", hue="pipe").get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["up", "down"]
    up = axes.lines[0]
    assert np.asarray(up.get_xdata()).tolist() == sorted(row["sojourn_ns"] / 1e6 for row in sent)
    assert np.asarray(up.get_ydata()).tolist()[-1] == 1.0
    # On axes of your own, and of probes.
    assert done.plot.cdf("rtt", axes) is axes
    with pytest.raises(ValueError, match="there is no quantity `colour`"):
        done.plot.cdf("colour")
    with pytest.raises(ValueError, match="there is no column `colour`"):
        done.plot.cdf("sojourn", hue="colour")


class Recorded:
    """A recording with two packets that left, of which one stands for three."""

    variant, scenario = "codel", ""
    flow_names: ClassVar[dict[int, str]] = {}
    packets = sluice.Table(
        pa.table(
            {
                "pipe": ["up", "up", "up", "down"],
                "verdict": ["sent", "marked", "dropped", "queued"],
                "segments": [3, 1, 5, 7],
                "time_ns": [0, 1_000_000_000, 0, 0],
                "sojourn_ns": [4_000_000, 2_000_000, 9_000_000, None],
            }
        )
    )
    pings = sluice.Table(
        pa.table({"rtt_ns": pa.array([None], pa.int64()), "lost": pa.array([True])})
    )


def test_a_super_packet_counts_as_its_wire_packets_in_a_drawing() -> None:
    recorded: Any = Recorded()
    plot = sluice.Plots(recorded)
    axes = plot.cdf("sojourn")
    line = axes.lines[0]
    # One packet of four waited 2 ms, the three of the other row 4 ms.
    assert np.asarray(line.get_xdata()).tolist() == [2.0, 4.0]
    assert np.asarray(line.get_ydata()).tolist() == [0.25, 1.0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("sojourn (ms)", "share of packets")
    # The unit of the column is not that of the axis.
    assert plot.cdf("time_ns").get_xlabel() == "time (ms)"
    dots = plot.sojourn().lines[0]
    assert np.asarray(dots.get_xdata()).tolist() == [0.0, 1.0]
    assert np.asarray(dots.get_ydata()).tolist() == [4.0, 2.0]


class WithAcks(Recorded):
    """A recording whose ACKs do not wait."""

    packets = sluice.Table(
        pa.table(
            {
                "pipe": ["up", "down", "up", "down"],
                "verdict": ["sent"] * 4,
                "segments": [1] * 4,
                "time_ns": [0] * 4,
                "sojourn_ns": [4_000_000, 0, 2_000_000, 0],
            }
        )
    )


def test_a_distribution_is_that_of_one_direction() -> None:
    recorded: Any = WithAcks()
    plot = sluice.Plots(recorded)
    for axes, values in [(plot.cdf(), [2.0, 4.0]), (plot.cdf(pipe="down"), [0.0, 0.0])]:
        assert np.asarray(axes.lines[0].get_xdata()).tolist() == values
    assert [line.get_label() for line in plot.cdf(hue="pipe").lines] == ["up", "down"]
    words = "no packet of a pipe `up2` has a value of `sojourn`; pipes with values: up, down$"
    with pytest.raises(ValueError, match=words):
        plot.cdf(pipe="up2")


def test_what_cannot_be_drawn_is_named(done: sluice.Run) -> None:
    recorded: Any = Recorded()
    plot = sluice.Plots(recorded)
    for pipe in ("down", "up2"):
        words = rf"no packet left the queue of a pipe `{pipe}`; pipes with packets: up$"
        with pytest.raises(ValueError, match=words):
            plot.sojourn(pipe=pipe)
    with pytest.raises(ValueError, match="no row has a value of `rtt`"):
        plot.cdf("rtt")
    with pytest.raises(ValueError, match="the column `verdict` has no numbers; one of: segments"):
        plot.cdf("verdict")
    with pytest.raises(ValueError, match="there is no column `queue`; one of: time_ns, flow"):
        done.plot.cdf("rtt", hue="queue")


def test_the_probes_of_a_recording_without_packets_are_drawn() -> None:
    run = sluice.run(SCENARIO, record="flows")
    axes = run.plot.cdf("rtt")
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("rtt (ms)", "share of probes")
    answered = sorted(rtt / 1e6 for rtt in run.pings["rtt_ns"] if rtt is not None)
    assert np.asarray(axes.lines[0].get_xdata()).tolist() == answered
    with pytest.raises(sluice.SluiceError, match="no table `packets`"):
        run.plot.cdf("sojourn")


def test_the_report_is_a_page_and_shows_itself(done: sluice.Run, tmp_path: Path) -> None:
    report = done.report()
    assert report.html.lower().startswith("<!doctype html>")
    assert report.save(tmp_path / "page.html").read_text() == report.html
    assert report._repr_html_().startswith("<iframe srcdoc=")


def test_other_threads_run_during_a_simulation() -> None:
    # If the simulation held the interpreter, no other thread could count meanwhile.
    ended, counted = threading.Event(), []

    def count() -> None:
        while not ended.is_set():
            counted.append(time.monotonic())
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    started = time.monotonic()
    sluice.run(SCENARIO, {"duration": "60s"})
    stopped = time.monotonic()
    ended.set()
    thread.join()
    assert any(started < at < stopped for at in counted)


def test_two_simulations_run_at_one_time() -> None:
    # Linux reports whether each thread could run. A thread that waits for the interpreter sleeps.
    # So both can run only if neither holds it, however busy the machine is. Before and after the
    # simulations, Python code holds it.
    both = 0
    ready = threading.Barrier(3)
    ids: list[int] = []
    idents: list[int] = []

    def simulate() -> None:
        ids.append(threading.get_native_id())
        idents.append(threading.get_ident())
        ready.wait()
        sluice.run(SCENARIO, {"duration": "300s"}, progress=False)

    threads = [threading.Thread(target=simulate) for _ in range(2)]
    for thread in threads:
        thread.start()
    ready.wait()

    def are_simulating() -> bool:
        # The frame of `sluice.run` is the innermost one while the extension works.
        frames = sys._current_frames()
        return all(n in frames and frames[n].f_code is sluice.run.__code__ for n in idents)

    looks = 0
    while all(thread.is_alive() for thread in threads):
        began = are_simulating()
        try:
            states = [Path(f"/proc/self/task/{n}/stat").read_text().rsplit(") ")[1][0] for n in ids]
        except FileNotFoundError:
            break
        if began and are_simulating():
            looks += 1
            both += states == ["R", "R"]
        time.sleep(0.005)
    for thread in threads:
        thread.join()
    assert looks >= 5
    assert both > looks / 2, f"{both} of {looks}"


def test_a_long_run_shows_its_progress_and_a_short_one_does_not(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sluice.run(SCENARIO, {"duration": "2s"})
    assert capsys.readouterr().err == ""
    shown: list[float] = []
    monkeypatch.setattr(progress.Stretch, "__call__", lambda self, ns: shown.append(ns))
    sluice.run(SCENARIO, {"duration": "300s"})
    assert shown == sorted(shown)
    assert 0 < shown[0] < shown[-1] <= 300e9
    stretch = progress.Stretch(10_000_000_000, "codel")
    monkeypatch.undo()
    stretch._bar.start_t -= 2
    stretch(2_500_000_000)
    stretch._bar.refresh()
    said = capsys.readouterr().err
    assert "codel:  25%" in said
    assert "2.5/10.0 s" in said


ENDLESS = """
import sys, threading, time, sluice

def wait_for_the_simulation():
    main, seen = threading.main_thread().ident, 0
    while seen < 2:
        # The frame of `sluice.run` is the innermost one while the extension works.
        seen = seen + 1 if sys._current_frames()[main].f_code is sluice.run.__code__ else 0
        time.sleep(0.05)
    print("simulating", flush=True)

threading.Thread(target=wait_for_the_simulation, daemon=True).start()
try:
    sluice.run({"duration": "10h", "link": {"rate": "100Mbit/s"}, "flow": [{"type": "tcp"}]})
except KeyboardInterrupt:
    sys.exit(42)
"""


def test_ctrl_c_ends_a_simulation() -> None:
    child = subprocess.Popen([sys.executable, "-c", ENDLESS], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"simulating\n"
        child.send_signal(signal.SIGINT)
        # The whole simulation would take more than an hour.
        assert child.wait(timeout=120) == 42
    finally:
        child.kill()
        child.wait()
