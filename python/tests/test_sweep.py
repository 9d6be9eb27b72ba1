import os
import pickle
import signal
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import duckdb
import matplotlib as mpl
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
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


class LikeDask:
    """Has the methods of a Dask client that sweeps use, and does calls in threads."""

    def __init__(self, fail: Callable[[list[sweeps.Task]], None] = lambda tasks: None) -> None:
        self.calls: list[list[sweeps.Task]] = []
        self._fail = fail
        self._threads = ThreadPoolExecutor(2)

    def nthreads(self) -> dict[str, int]:
        return {"a": 1, "b": 1}

    def get_executor(self, pure: bool) -> "LikeDask":
        assert not pure
        return self

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> "Future[Any]":  # noqa: ANN401
        tasks = args[0] if isinstance(args[0], list) else [args[0]]
        self.calls.append(tasks)

        def call() -> Any:  # noqa: ANN401
            self._fail(tasks)
            return fn(*args)

        return self._threads.submit(call)


class Clock:
    """A clock that each run advances."""

    def __init__(self, run_s: float) -> None:
        self.now_s = 0.0
        self._run_s = run_s

    def monotonic(self) -> float:
        return self.now_s

    def carry_out(self, task: sweeps.Task) -> bytes:
        self.now_s += self._run_s
        return f"{task.seed}".encode()


def plan(seeds: int) -> list[sweeps.Task]:
    return list(sweeps._plan(sluice.Scenario(SCENARIO), {}, seeds, "sim"))


def test_short_runs_are_sent_to_dask_in_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = sweeps.carry_out(plan(1)[0])
    monkeypatch.setattr(sweeps, "carry_out", lambda task: result)
    client = LikeDask()
    over = {"link.queue": ["fifo", "codel"]}
    done = sluice.sweep(SCENARIO, over, seeds=200, progress=False, executor=client, out=tmp_path)
    assert done.runs["status"] == ["complete"] * 400
    assert done.runs["seed"] == list(range(1, 201)) * 2
    # Each run was sent once, and is found again alone.
    assert sorted(task.key for call in client.calls for task in call) == sorted(done.runs["key"])
    assert len(client.calls) < 400 / 2
    next((tmp_path / "figures").rglob("*.parquet")).unlink()
    again = LikeDask()
    done = sluice.sweep(SCENARIO, over, seeds=200, progress=False, executor=again, out=tmp_path)
    assert done.found == 399
    assert [len(call) for call in again.calls] == [1]


def test_a_worker_returns_a_batch_that_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(0.25)
    monkeypatch.setattr(sweeps, "carry_out", clock.carry_out)
    monkeypatch.setattr(sweeps, "time", clock)
    tasks = plan(10)
    # 0.25 s x 3 < 0.9 s <= 0.25 s x 4.
    assert sweeps.carry_out_batch(tasks, 0.9) == ([b"1", b"2", b"3", b"4"], 1.0)
    assert sweeps.carry_out_batch(tasks, 0.01) == ([b"1"], 0.25)
    outcomes, took_s = sweeps.carry_out_batch(tasks)
    assert (len(outcomes), took_s) == (10, 2.5)


def test_the_runs_that_a_batch_left_are_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    did: list[int] = []

    def carry_out_batch(
        tasks: list[sweeps.Task], most_s: float | None
    ) -> tuple[list[sweeps.Outcome], float]:
        some = tasks[: max(1, len(tasks) // 2)]
        did.extend(task.seed for task in some)
        return [f"{task.seed}".encode() for task in some], 0.001

    monkeypatch.setattr(sweeps, "carry_out_batch", carry_out_batch)
    ended = dict(sweeps._submit(LikeDask(), plan(300), 10, None))
    assert {task.seed: outcome for task, outcome in ended.items()} == {
        seed: f"{seed}".encode() for seed in range(1, 301)
    }
    assert sorted(did) == list(range(1, 301))


@pytest.mark.parametrize("batch", [None, 50])
def test_a_run_that_ends_its_worker_fails_alone(
    batch: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(tasks: list[sweeps.Task]) -> None:
        if any(task.seed == 77 for task in tasks):
            raise RuntimeError("the worker died")

    monkeypatch.setattr(sweeps, "carry_out", lambda task: b"done")
    client = LikeDask(fail)
    ended = dict(sweeps._submit(client, plan(100), 10, batch))
    assert len(ended) == 100
    failed = {task.seed: str(outcome) for task, outcome in ended.items() if outcome != b"done"}
    assert failed == {77: "the worker died"}


def test_live_results_belong_to_a_machine_and_not_to_a_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (simulated,) = sweeps._plan(sluice.Scenario(SCENARIO), {}, 1, "sim")
    figures = sweeps.carry_out(simulated)

    class Measured:
        """Returns the same figures for every run, without a live run."""

        def submit(self, fn: Callable[..., Any], /, *args: Any) -> "Future[Any]":  # noqa: ANN401
            future: Future[Any] = Future()
            future.set_result(figures)
            return future

    def found_again(name: str, flow: dict[str, str]) -> tuple[int, int, int]:
        def found() -> int:
            return sluice.sweep(
                {**SCENARIO, "flow": [flow]},
                {},
                backend="live",
                out=tmp_path / name,
                executor=Measured(),
                progress=False,
            ).found

        with monkeypatch.context() as elsewhere:
            first, second = found(), found()
            elsewhere.setattr("platform.release", lambda: "another kernel")
            return first, second, found()

    assert found_again("tcp", {"type": "tcp"}) == (0, 1, 0)
    assert found_again("program", {"type": "command", "run": "sh app.sh"}) == (0, 0, 0)


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


def test_the_dataset_has_the_results_of_the_last_sweep_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def stored(rates: list[str], duration: str) -> tuple[int, list[str], str]:
        """Sweep; return the reused runs, the rates in the dataset, and the message."""
        scenario = {**SCENARIO, "duration": duration}
        over = {"link.rate": rates}
        done = sluice.sweep(scenario, over, out=tmp_path, executor=Counting(), progress=False)
        figures = sluice.Table(sluice.dataset(tmp_path).to_table())
        assert len(figures) == len(done.figures)
        return done.found, sorted(set(figures["link.rate"])), capsys.readouterr().err

    def moved(count: int) -> str:
        words = f"that this one does not have: {count}, moved to `{tmp_path / 'former'}`"
        return f"sluice: results of earlier sweeps {words}\n"

    former = tmp_path / "former" / "figures"
    assert stored(["1Mbit/s", "2Mbit/s"], "2s") == (0, ["1Mbit/s", "2Mbit/s"], "")
    # One run is reused, and the other one is put away.
    assert stored(["2Mbit/s", "5Mbit/s"], "2s") == (1, ["2Mbit/s", "5Mbit/s"], moved(1))
    (kept,) = former.rglob("*.parquet")
    assert set(sluice.Table(pq.ParquetFile(kept).read())["link.rate"]) == {"1Mbit/s"}
    # It is found again there.
    assert stored(["1Mbit/s", "2Mbit/s"], "2s") == (2, ["1Mbit/s", "2Mbit/s"], moved(1))
    # The same settings of another scenario.
    assert stored(["1Mbit/s", "2Mbit/s"], "3s") == (0, ["1Mbit/s", "2Mbit/s"], moved(2))
    assert len(list(former.rglob("*.parquet"))) == 3
    # Another combination with the same scenario as one that was run has its own rows.
    assert stored(["1Mbit/s", "1000kbit/s"], "3s") == (2, ["1000kbit/s", "1Mbit/s"], moved(1))


@pytest.mark.parametrize(
    "error",
    [
        sluice.SluiceError("it is wrong"),
        sweeps.Incomplete("it ended", {"run.json": b"{}"}),
        sweeps.ForeignWorker("it is another"),
    ],
)
def test_errors_pass_between_processes(error: sluice.SluiceError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.args, str(again)) == (type(error), error.args, str(error))


class Ends:
    """Ends its first calls at once, and never begins the others."""

    def __init__(self, count: int) -> None:
        self.futures: list[Future[Any]] = []
        self._count = count

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> "Future[Any]":  # noqa: ANN401
        future: Future[Any] = Future()
        if len(self.futures) < self._count:
            future.set_result(fn(*args))
        self.futures.append(future)
        return future


@pytest.mark.parametrize(("batch", "ended", "kept"), [(1, 2, 2), (3, 1, 3)])
def test_ctrl_c_cancels_the_calls_that_wait_and_keeps_what_has_ended(
    batch: int, ended: int, kept: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    executor = Ends(ended)
    with monkeypatch.context() as patch:
        patch.setattr(sweeps, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            sweep(executor=executor, batch=batch, out=tmp_path)
    waiting = 12 // batch - ended
    assert [f.cancelled() for f in executor.futures] == [False] * ended + [True] * waiting
    assert sweep(executor=Counting(), out=tmp_path).found == kept


def test_ctrl_c_while_a_result_is_stored_loses_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep = sweeps._Store.keep
    stored: list[str] = []

    def interrupted(
        store: sweeps._Store, task: sweeps.Task, result: sweeps.Result
    ) -> sweeps.Result:
        stored.append(task.key)
        if len(stored) == 5:
            raise KeyboardInterrupt
        return keep(store, task, result)

    with monkeypatch.context() as patch:
        patch.setattr(sweeps._Store, "keep", interrupted)
        with pytest.raises(KeyboardInterrupt):
            sweep(executor=Ends(12), out=tmp_path)
    assert sweep(executor=Counting(), out=tmp_path).found == 12


def test_an_error_that_ends_the_sweep_cancels_the_calls_that_wait() -> None:
    class Foreign(Ends):
        def submit(self, fn: Callable[..., Any], /, *args: Any) -> "Future[Any]":  # noqa: ANN401
            future = super().submit(fn, *args)
            if len(self.futures) == 1:
                future.set_exception(sweeps.ForeignWorker("the worker has Sluice 0.0"))
            return future

    executor = Foreign(0)
    with pytest.raises(sluice.SluiceError, match=r"the worker has Sluice 0\.0"):
        sweep(executor=executor)
    assert [future.cancelled() for future in executor.futures] == [False] + [True] * 11


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


def kill_once_in_batch(
    tasks: list[sweeps.Task], most_s: float | None
) -> tuple[list[sweeps.Outcome], float]:
    """Do a batch with `kill_once` for each run."""
    sweeps.carry_out = kill_once
    try:
        return ORIGINAL_BATCH(tasks, most_s)
    finally:
        sweeps.carry_out = ORIGINAL


ORIGINAL_BATCH = sweeps.carry_out_batch


@pytest.mark.parametrize("batch", [None, 1, 4])
def test_a_killed_worker_of_dask_costs_only_its_runs(
    batch: int | None,
    alone: sluice.Sweep,
    cluster: LocalCluster,
    noted: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for path in noted.iterdir():
        path.unlink()
    monkeypatch.setattr(sweeps, "carry_out", kill_once)
    monkeypatch.setattr(sweeps, "carry_out_batch", kill_once_in_batch)
    with Client(cluster) as client:
        done = sweep(executor=client, batch=batch)
    assert done.figures == alone.figures
    by_key, killed = tries(noted)
    repeated = [pids for pids in by_key.values() if len(pids) > 1]
    # Those of its unfinished call, and those whose results the client had not fetched yet.
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


def test_a_failed_run_does_not_change_the_order_of_a_drawing() -> None:
    def fail(task: sweeps.Task) -> None:
        if dict(task.point) == {"link.queue": "fifo", "link.rate": "1Mbit/s"}:
            raise RuntimeError("the disk is on fire")

    done = sweep(executor=Counting(fail))
    axes = done.plot.figure("bulk.goodput")
    assert [text.get_text() for text in axes.get_xticklabels()] == OVER["link.rate"]
    # FIFO has a value at the second rate only.
    drawn = [np.isfinite(np.asarray(line.get_ydata())).tolist() for line in axes.lines]
    assert drawn == [[False, True], [True, True]]


class Measured:
    """A sweep of three delays, of which some runs did not measure the figure."""

    keys: ClassVar[list[str]] = ["queue", "rtt"]
    runs = sluice.Table(pa.table({"queue": ["fifo"] * 3 + ["codel"] * 3, "rtt": [20, 50, 100] * 2}))
    figures = sluice.Table(
        pa.table(
            {
                "queue": ["fifo", "fifo", "codel"],
                "rtt": [20, 100, 20],
                "figure": ["fct"] * 3,
                "unit": ["ms"] * 3,
                "value": [1.0, 3.0, 2.0],
            }
        )
    )


def test_a_drawing_has_a_gap_where_no_run_has_the_figure() -> None:
    measured: Any = Measured()
    axes = sluice.SweepPlots(measured).figure("fct")
    fifo, codel = (np.asarray(line.get_ydata()).tolist() for line in axes.lines)
    assert [str(value) for value in fifo] == ["1.0", "nan", "3.0"]
    assert [str(value) for value in codel] == ["2.0", "nan", "nan"]
    # No run has it at 50, which has its place nevertheless.
    assert [text.get_text() for text in axes.get_xticklabels()] == ["20", "50", "100"]
    left, right = axes.get_xlim()
    assert (left <= 0, right >= 2) == (True, True)


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
        ({"link.queue": ["fifo", "pie", "fifo"]}, "`link.queue` is swept over `fifo` twice"),
        ({"link.queue": "fifo"}, "not a list of values"),
        ({"seed": [1, 2]}, "use `seeds`"),
        ({"variant": ["fifo"]}, "`variant` cannot be swept as a key; all variants"),
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
    with pytest.raises(sluice.SluiceError, match="the sweep has the seed `3` twice"):
        sluice.sweep(SCENARIO, OVER, seeds=[3, 4, 3], executor=executor, progress=False)
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


def test_a_row_of_a_scenario_is_chosen_by_an_override_and_named_in_the_results(
    tmp_path: Path,
) -> None:
    rows = [{"name": name, "link.queue": name} for name in ("fifo", "codel")]
    scenario = sluice.Scenario({**SCENARIO, "variant": rows})
    over = {"link.rate": ["1Mbit/s"]}
    both = sluice.sweep(scenario, over, executor=Counting(), progress=False)
    assert both.runs["variant"] == ["fifo", "codel"]
    one = scenario.set("variant", "codel")
    done = sluice.sweep(one, over, executor=Counting(), out=tmp_path, progress=False)
    assert done.runs["variant"] == ["codel"]
    assert set(sluice.Table(sluice.dataset(tmp_path).to_table())["variant"]) == {"codel"}
