import os
import signal
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import matplotlib as mpl
import numpy as np
import polars as pl
import pytest
from distributed import Client, LocalCluster

import sluice
from sluice import sweeps

mpl.use("Agg")

SCENARIO: dict[str, Any] = {
    "duration": "2s",
    "link": {"rate": "10Mbit/s", "rtt": "20ms"},
    "flow": [{"type": "tcp", "name": "bulk"}],
}
OVER = {"link.queue": ["fifo", "codel"], "link.rate": ["1Mbit/s", "5Mbit/s"]}


def sweep(**options: Any) -> sluice.Sweep:  # noqa: ANN401
    return sluice.sweep(SCENARIO, OVER, seeds=3, progress=False, **options)


@pytest.fixture(scope="module")
def alone() -> sluice.Sweep:
    return sweep(jobs=1)


class Counting:
    """Counts the runs, and executes each in a thread."""

    def __init__(self, fail: Callable[[sweeps.Task], None] = lambda task: None) -> None:
        self.submitted: list[sweeps.Task] = []
        self._fail = fail
        self._threads = ThreadPoolExecutor(2)

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> "Future[Any]":  # noqa: ANN401
        self.submitted.append(args[0])

        def call() -> Any:  # noqa: ANN401
            self._fail(args[0])
            return fn(*args)

        return self._threads.submit(call)


def test_every_combination_has_its_runs_in_order(alone: sluice.Sweep) -> None:
    assert len(alone) == 2 * 2 * 3
    assert alone.runs["link.queue"] == ["fifo"] * 6 + ["codel"] * 6
    assert alone.runs["link.rate"] == (["1Mbit/s"] * 3 + ["5Mbit/s"] * 3) * 2
    assert alone.runs["seed"] == [1, 2, 3] * 4
    assert set(alone.runs["status"]) == {"complete"}
    # A sweep's figures are those of the runs themselves.
    one = sluice.run(SCENARIO, {"link.queue": "codel", "link.rate": "5Mbit/s"}, seed=2)
    rows = alone.figures.sql(
        """select figure, unit, value from self where "link.queue" = 'codel' """
        """and "link.rate" = '5Mbit/s' and seed = 2"""
    )
    assert rows.arrow == one.figures.arrow.select(["figure", "unit", "value"])


def test_four_processes_threads_and_dask_give_the_same_bits(
    alone: sluice.Sweep, cluster: LocalCluster
) -> None:
    assert sweep(jobs=4).figures == alone.figures
    assert sweep(jobs=2, batch=5).figures == alone.figures
    with ThreadPoolExecutor(3) as threads:
        assert sweep(executor=threads).figures == alone.figures
        assert sweep(executor=threads, batch=100).figures == alone.figures
    with Client(cluster) as client:
        assert sweep(executor=client).figures == alone.figures
        assert sweep(executor=client, batch=4).figures == alone.figures


def test_an_error_in_a_batch_is_of_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(task: sweeps.Task) -> bytes:
        if task.seed == 2:
            raise RuntimeError("the disk is on fire")
        return ORIGINAL(task)

    monkeypatch.setattr(sweeps, "carry_out", fail)
    with ThreadPoolExecutor(1) as threads:
        done = sweep(executor=threads, batch=12)
    assert done.runs["error"] == [None, "the disk is on fire", None] * 4


def test_finished_runs_are_found_again(alone: sluice.Sweep, tmp_path: Path) -> None:
    first, second, third = Counting(), Counting(), Counting()
    done = sweep(executor=first, out=tmp_path)
    assert (len(first.submitted), done.found) == (12, 0)
    done = sweep(executor=second, out=tmp_path)
    assert (len(second.submitted), done.found) == (0, 12)
    assert done.figures == alone.figures
    assert done.runs == alone.runs
    # One more value of a key adds only its own runs.
    more = {**OVER, "link.rate": [*OVER["link.rate"], "2Mbit/s"]}
    sluice.sweep(SCENARIO, more, seeds=3, progress=False, out=tmp_path, executor=third)
    assert len(third.submitted) == 2 * 3
    assert {dict(task.point)["link.rate"] for task in third.submitted} == {"2Mbit/s"}
    # A result that cannot be read is made again.
    broken = next((tmp_path / "figures").rglob("*.parquet"))
    broken.write_bytes(b"PAR1")
    fourth = Counting()
    assert sweep(executor=fourth, out=tmp_path).figures == alone.figures
    assert len(fourth.submitted) <= 1


def test_another_program_or_scenario_finds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = {"link.queue": ["fifo"]}
    sluice.sweep(SCENARIO, over, out=tmp_path, executor=Counting(), progress=False)
    longer = Counting()
    sluice.sweep(
        {**SCENARIO, "duration": "3s"}, over, out=tmp_path, executor=longer, progress=False
    )
    assert len(longer.submitted) == 1
    newer = Counting()
    monkeypatch.setattr(sweeps, "program", lambda: "0" * 64)
    sluice.sweep(SCENARIO, over, out=tmp_path, executor=newer, progress=False)
    assert len(newer.submitted) == 1


def test_duckdb_and_polars_read_the_folder(alone: sluice.Sweep, tmp_path: Path) -> None:
    sweep(jobs=2, out=tmp_path)
    rows = len(alone.figures)
    files = str(tmp_path / "figures" / "*" / "*.parquet")
    with duckdb.connect() as connection:
        query = (
            "select count(*), count(distinct point) from read_parquet(?, hive_partitioning=true)"
        )
        assert connection.execute(query, [files]).fetchone() == (rows, 4)
    assert pl.scan_parquet(files).select(pl.len()).collect().item() == rows
    assert sluice.dataset(tmp_path).count_rows() == rows
    with pytest.raises(sluice.SluiceError, match="contains no results of a sweep"):
        sluice.dataset(tmp_path / "figures")
    # Incomplete files of a killed process are skipped.
    (next((tmp_path / "figures").iterdir()) / ".x.parquet.1.part").write_bytes(b"PAR1")
    assert sluice.dataset(tmp_path).count_rows() == rows
    # A sweep over other keys would have other columns.
    other = Counting()
    with pytest.raises(sluice.SluiceError, match=r"a sweep over link\.queue, link\.rate, but this"):
        sluice.sweep(SCENARIO, {"link.rtt": ["1ms"]}, out=tmp_path, executor=other, progress=False)
    assert other.submitted == []


def test_a_failed_run_is_a_row_with_its_error_and_is_repeated(tmp_path: Path) -> None:
    def fail(task: sweeps.Task) -> None:
        if task.seed == 2 and ("link.queue", "codel") in task.point:
            raise RuntimeError("the disk is on fire")

    done = sweep(executor=Counting(fail), out=tmp_path)
    failed = [row for row in done.runs.rows() if row["status"] == "failed"]
    assert [(row["link.rate"], row["seed"], row["error"]) for row in failed] == [
        ("1Mbit/s", 2, "the disk is on fire"),
        ("5Mbit/s", 2, "the disk is on fire"),
    ]
    again = Counting()
    assert set(sweep(executor=again, out=tmp_path).runs["status"]) == {"complete"}
    assert len(again.submitted) == 2


def kill_once(task: sweeps.Task) -> bytes:
    """End this process on the first try of one run; record every try of each process."""
    folder = Path(os.environ["SLUICE_TEST_TRIES"])
    (folder / f"{task.key}.{os.getpid()}").touch()
    if dict(task.point)["link.queue"] == "codel" and task.seed == 2:
        try:
            (folder / "killed").symlink_to(str(os.getpid()))
        except FileExistsError:
            return ORIGINAL(task)
        os.kill(os.getpid(), signal.SIGKILL)
    return ORIGINAL(task)


ORIGINAL = sweeps.carry_out


def tries(folder: Path) -> tuple[dict[str, list[str]], str]:
    """Return the processes that tried each run, and the one that was killed."""
    killed = str((folder / "killed").readlink())
    found: dict[str, list[str]] = {}
    for path in folder.iterdir():
        if path.name != "killed":
            key, pid = path.name.split(".")
            found.setdefault(key, []).append(pid)
    return found, killed


def test_a_killed_process_costs_only_the_runs_that_had_not_ended(
    alone: sluice.Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLUICE_TEST_TRIES", str(tmp_path))
    monkeypatch.setattr(sweeps, "carry_out", kill_once)
    done = sweep(jobs=1)
    assert done.figures == alone.figures
    by_key, killed = tries(tmp_path)
    # The only process executes the runs in order. Those before the killed one had ended, and were
    # not repeated.
    keys = done.runs["key"]
    assert [by_key[key] for key in keys[:7]] == [[killed]] * 7
    assert killed in by_key[keys[7]]
    assert len(by_key[keys[7]]) == 2


def test_a_killed_process_leaves_the_runs_of_its_neighbour_alone(
    alone: sluice.Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLUICE_TEST_TRIES", str(tmp_path))
    monkeypatch.setattr(sweeps, "carry_out", kill_once)
    assert sweep(jobs=3).figures == alone.figures
    by_key, killed = tries(tmp_path)
    # Only the run that was in the killed process is done a second time.
    repeated = [pids for pids in by_key.values() if len(pids) > 1]
    assert len(repeated) == 1
    assert killed in repeated[0]


def test_a_killed_worker_of_dask_costs_only_its_runs(
    alone: sluice.Sweep, cluster: LocalCluster, noted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeps, "carry_out", kill_once)
    with Client(cluster) as client:
        done = sweep(executor=client)
    assert done.figures == alone.figures
    by_key, killed = tries(noted)
    repeated = [pids for pids in by_key.values() if len(pids) > 1]
    assert repeated
    assert all(killed in pids for pids in repeated)


def test_a_run_that_kills_every_process_is_a_failed_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeps, "carry_out", kill_codel)
    done = sluice.sweep(SCENARIO, {"link.queue": ["fifo", "codel", "pie"]}, jobs=1, progress=False)
    assert done.runs["status"] == ["complete", "failed", "complete"]


def kill_codel(task: sweeps.Task) -> bytes:
    if dict(task.point)["link.queue"] == "codel":
        os.kill(os.getpid(), signal.SIGKILL)
    return ORIGINAL(task)


def test_a_sweep_draws_its_figures(alone: sluice.Sweep) -> None:
    assert alone.keys == ["link.queue", "link.rate"]
    rows = [row for row in alone.figures.rows() if row["figure"] == "bulk.goodput"]
    of = {
        (queue, rate): [
            row["value"] for row in rows if (row["link.queue"], row["link.rate"]) == (queue, rate)
        ]
        for queue in OVER["link.queue"]
        for rate in OVER["link.rate"]
    }
    axes = alone.plot.figure("bulk.goodput")
    assert [text.get_text() for text in axes.get_xticklabels()] == OVER["link.rate"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("link.rate", "bulk.goodput (bit/s)")
    for line, queue in zip(axes.lines, OVER["link.queue"], strict=True):
        medians = [sorted(of[queue, rate])[1] for rate in OVER["link.rate"]]
        assert np.asarray(line.get_ydata()).tolist() == medians
        assert line.get_label() == queue
    axes = alone.plot.cdf("bulk.goodput", hue="link.rate")
    slow = sorted(of["fifo", "1Mbit/s"] + of["codel", "1Mbit/s"])
    assert np.asarray(axes.lines[0].get_xdata()).tolist() == slow
    assert np.asarray(axes.lines[0].get_ydata())[-1] == 1.0
    with pytest.raises(ValueError, match="no figure `goodput`; one of: "):
        alone.plot.cdf("goodput")
    with pytest.raises(ValueError, match=r"no key `queue`; one of: link\.queue, "):
        alone.plot.figure("bulk.goodput", hue="queue")


def test_a_worker_with_another_program_ends_the_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = list(sweeps._plan(sluice.Scenario(SCENARIO), {}, 1, "sim"))
    monkeypatch.setattr(sweeps, "program", lambda: "0" * 64)
    with pytest.raises(sluice.SluiceError, match="install the same wheel on both"):
        sweeps.carry_out(plan[0])

    class Foreign:
        def submit(self, fn: Callable[..., Any], /, *args: Any) -> "Future[Any]":  # noqa: ANN401
            future: Future[Any] = Future()
            future.set_exception(sweeps.ForeignWorker("the worker has Sluice 0.0"))
            return future

    with pytest.raises(sluice.SluiceError, match=r"the worker has Sluice 0\.0"):
        sweep(executor=Foreign())


def test_a_worker_of_dask_with_another_program_ends_the_sweep(cluster: LocalCluster) -> None:
    def become(digest: str | None) -> None:
        from sluice import runs, sweeps

        known = runs.program if digest is None else lambda: digest
        setattr(sweeps, "program", known)  # noqa: B010 - to mypy it is not of this module

    with Client(cluster) as client:
        client.run(become, "0" * 64)
        try:
            with pytest.raises(sluice.SluiceError, match="with the library 000000000000"):
                sweep(executor=client)
        finally:
            client.run(become, None)


def test_a_worker_without_the_package_ends_the_sweep() -> None:
    class Bare:
        def submit(self, fn: Callable[..., Any], /, *args: Any) -> "Future[Any]":  # noqa: ANN401
            future: Future[Any] = Future()
            future.set_exception(ModuleNotFoundError("No module named 'sluice'", name="sluice"))
            return future

    with pytest.raises(sluice.SluiceError, match="a worker has no package `sluice`"):
        sweep(executor=Bare())


def test_everything_is_checked_before_the_first_run(tmp_path: Path) -> None:
    executor = Counting()
    cases: list[tuple[dict[str, Any], str]] = [
        ({"link.queue": ["fifo", "codle"]}, "did you mean `codel`"),
        ({"link.queue": []}, "an empty list"),
        ({"link.queue": "fifo"}, "not a list of values"),
        ({"seed": [1, 2]}, "use `seeds`"),
    ]
    for over, words in cases:
        with pytest.raises(sluice.SluiceError, match=words):
            sluice.sweep(SCENARIO, over, executor=executor, progress=False)
    with pytest.raises(sluice.SluiceError, match="give at least 1"):
        sluice.sweep(SCENARIO, OVER, seeds=0, executor=executor, progress=False)
    with pytest.raises(sluice.SluiceError, match="a batch of 0 runs"):
        sluice.sweep(SCENARIO, OVER, batch=0, executor=executor, progress=False)
    with pytest.raises(sluice.SluiceError, match="at least 1 process, not 0"):
        sluice.sweep(SCENARIO, OVER, jobs=0, progress=False)
    with pytest.raises(sluice.SluiceError, match="give at least 1"):
        sluice.sweep(SCENARIO, OVER, seeds=[], executor=executor, progress=False)
    (tmp_path / "file").touch()
    with pytest.raises(sluice.SluiceError, match="is not a folder"):
        sluice.sweep(SCENARIO, OVER, out=tmp_path / "file", executor=executor, progress=False)
    assert executor.submitted == []


def test_the_variants_of_a_matrix_are_crossed_with_the_sweep() -> None:
    crossed = {**SCENARIO, "matrix": {"link.queue": ["fifo", "codel"]}}
    over = {"link.rate": ["1Mbit/s", "2Mbit/s"]}
    done = sluice.sweep(crossed, over, seeds=[7], executor=Counting(), progress=False)
    assert done.runs["variant"] == ["fifo", "codel"] * 2
    assert done.runs["seed"] == [7] * 4
