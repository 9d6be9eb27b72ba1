"""Sweeps of one scenario over a grid of settings and seeds, on any executor."""

import hashlib
import itertools
import json
import os
import platform
import shutil
import sys
import time
import tomllib
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, suppress
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.ipc as ipc
import pyarrow.parquet as pq

from sluice import _sluice
from sluice._sluice import SluiceError
from sluice.executors import AHEAD, Executor, Fixed, Processes, Timed
from sluice.plot import SweepPlots
from sluice.progress import bar
from sluice.runs import Run, files_of, program
from sluice.scenario import Scenario, word
from sluice.sources import Source, find, localize
from sluice.table import Table


def sweep(
    scenario: str | PathLike[str] | Mapping[str, Any] | Scenario,
    over: Mapping[str, Iterable[Any]],
    *,
    seeds: int | Iterable[int] = 1,
    executor: Executor | None = None,
    jobs: int | None = None,
    batch: int | None = None,
    out: str | PathLike[str] | None = None,
    backend: str = "sim",
    progress: bool = True,
) -> "Sweep":
    """Run a scenario with every combination of settings, each with several seeds.

    `over` maps keys to lists of values, written as for `--set`. `seeds` lists the seeds of each
    combination, or is their number; they then count up from the scenario's seed.

    `executor` is anything with the `submit` of `concurrent.futures`: a pool of processes, an MPI
    pool, or the `Client` of Dask, which repeats the runs of a lost worker. Without one, `jobs`
    processes of this machine are used, by default one per core. The results are bit-identical on
    every executor.

    The executor gets `batch` runs per call. The default is one run. On a Dask client, the default
    is as many runs as take about 0.15 s together, by the time that the first runs take, because a
    call costs more there than a short run. Calls are longer on more than 30 threads, so that the
    scheduler keeps all of them busy. A lost worker repeats the runs of its unfinished call.

    `out` is a folder for the results: a Parquet dataset that DuckDB and Polars read. Runs of the
    same scenario and seed by the same program that it already has are not repeated. Results that
    this sweep does not have, such as those of other settings, are moved to `out/former`; a later
    sweep takes them back. Failed runs are repeated, and so are runs with a queue from a file
    (`py:`, `wasm:`) that has changed, or that imports a local module that has changed. Workers on
    other machines receive these files. Live runs are also repeated on another machine or kernel,
    and always if they have a program (`type = "command"`).

    All combinations are checked before the first run. If a run fails, kills its process, or stops
    its AQM from a file because of an error, its row in `Sweep.runs` has the error. With `out`, what
    a failed run had measured is kept below `out/failed`, and the error names the folder. After
    Ctrl-C, no further run begins, and the results of those that have ended are in `out`.

    >>> base = {"duration": "2s", "link": {"rate": "10Mbit/s"}, "flow": [{"type": "tcp"}]}
    >>> done = sweep(base, {"link.queue": ["fifo", "codel"]}, jobs=1, progress=False)
    >>> done.runs["link.queue"], done.runs["status"]
    (['fifo', 'codel'], ['complete', 'complete'])

    Raises:
        SluiceError: a combination is wrong (the message is that of the command line), or a worker
            has another version of Sluice.

    """
    if jobs is not None and jobs < 1:
        raise SluiceError(f"a sweep needs at least 1 process, not {jobs}")
    if batch is not None and batch < 1:
        raise SluiceError(f"a batch of {batch} runs is empty; give at least 1")
    plan = list(_plan(Scenario(scenario), over, seeds, backend, out is not None))
    store = _Store(out, list(over))
    found = {task.key: rows for task in plan if (rows := store.find(task)) is not None}
    todo = [task for task in plan if task.key not in found]
    store.begin(plan, found)
    results: dict[str, Result] = dict(found)
    reused = len(plan) - len(todo)
    calls = _Calls()
    with (
        bar(total=len(plan), initial=reused, unit="run", disable=not progress) as shown,
        closing(_carry_out(todo, executor, jobs, batch, calls)) as outcomes,
    ):
        try:
            for task, outcome in outcomes:
                results[task.key] = store.keep(task, _result(outcome))
                shown.update()
        except BaseException as error:
            # Processes of this machine are ended, also those whose calls wait.
            if executor is not None:
                calls.cancel()
            if isinstance(error, KeyboardInterrupt):
                for task, outcome in calls.ended():
                    store.keep(task, _result(outcome))
            raise
    sweep = Sweep(plan, results, reused)
    store.finish(sweep)
    return sweep


@dataclass(frozen=True)
class Task:
    """A run of a sweep, in a form that any process can execute."""

    #: The values of the swept keys, as text.
    point: tuple[tuple[str, str], ...]
    #: The variant, if the scenario has a matrix.
    variant: str
    seed: int
    #: The scenario with all defaults.
    text: str
    backend: str
    program: str
    #: The scenario's file, to which the paths of modules are relative.
    source: str
    #: The files of algorithms.
    sources: tuple[Source, ...]
    #: Whether the recording of a failed run is wanted.
    keeps_failed: bool

    @property
    def key(self) -> str:
        """The name of the result: a hash of everything that determines it."""
        parts = [FORMAT, self.program, self.backend, self.variant, self.text]
        parts += [part for source in self.sources for part in (source.path, source.digest)]
        if self.backend == "live":
            parts += [platform.node(), platform.release()]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]

    @property
    def has_program(self) -> bool:
        """Whether a program is a flow: it may have changed, so the result is not used again."""
        # Only live runs have programs; to parse the text of every simulation would take long.
        if self.backend != "live":
            return False
        return any(flow["type"] == "command" for flow in tomllib.loads(self.text)["flow"])

    @property
    def group(self) -> str:
        """The name of the combination: a hash of its settings."""
        parts = json.dumps([self.point, self.variant])
        return hashlib.sha256(parts.encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Result:
    """The result of a task: its figures, or an error."""

    figures: pa.Table | None
    error: str | None = None
    #: The files of the recording of a failed run.
    recording: Mapping[str, bytes] | None = None


# The Arrow stream of a run's figures, or its error.
Outcome = bytes | BaseException


class Sweep:
    """The results of a sweep."""

    def __init__(self, plan: Sequence[Task], results: Mapping[str, Result], found: int) -> None:
        """Collect the results in the order of the plan."""
        #: The number of runs whose results an earlier sweep had stored.
        self.found = found
        self._plan = plan
        self._results = results

    @property
    def keys(self) -> list[str]:
        """The swept keys."""
        return [key for key, _ in self._plan[0].point]

    @property
    def plot(self) -> SweepPlots:
        """Plots of the figures; Matplotlib must be installed."""
        return SweepPlots(self)

    @property
    def runs(self) -> Table:
        """One row per run: the settings, variant, seed, status, and error of a failed run."""
        rows: list[dict[str, Any]] = []
        for task in self._plan:
            error = self._results[task.key].error
            status = "complete" if error is None else "failed"
            rows.append({**_settings(task), "status": status, "error": error, "key": task.key})
        fields = [pa.field(name, pa.string()) for name in ("status", "error", "key")]
        table = pa.Table.from_pylist(rows, schema=_schema(self._plan, fields))
        return Table(table, "runs")

    @property
    def figures(self) -> Table:
        """One row per run and figure: the settings, variant, seed, figure, unit and value."""
        tables = []
        for task in self._plan:
            figures = self._results[task.key].figures
            if figures is not None:
                tables.append(_with_settings(task, figures))
        schema = _schema(self._plan, FIGURES)
        return Table(pa.concat_tables(tables) if tables else schema.empty_table(), "figures")

    def __len__(self) -> int:
        """Return the number of runs."""
        return len(self._plan)

    def __repr__(self) -> str:
        """Show the numbers of runs."""
        failed = sum(result.error is not None for result in self._results.values())
        return f"<Sweep of {len(self)} runs, {failed} failed, {self.found} found>"


def carry_out(task: Task) -> bytes:
    """Execute a task in the current process, and return its figures as an Arrow stream.

    Raises:
        SluiceError: the run failed, or this process has another version of Sluice.

    """
    if program() != task.program:
        raise ForeignWorker(
            f"the worker has Sluice {_sluice.__version__} with the library {program()[:12]}, and "
            f"the sweep was started with {task.program[:12]}: install the same wheel on both"
        )
    text = localize(task.source, task.text, task.sources)
    # Of an algorithm that fails, one wants to see the packets.
    how = (task.backend, "packets" if task.sources else "figures")
    variant = _sluice.Variant(task.source, task.variant, text)
    done, error = _sluice.run(variant, how, task.program)
    run = Run(done)
    if error is None and run.cut_short is not None:
        error = f"the run ended early: {run.cut_short}"
    if error is not None:
        raise Incomplete(error, files_of(run) if task.keeps_failed else None)
    figures = run.figures.arrow.select(FIGURES_OF_RUN)
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, figures.schema) as stream:
        stream.write_table(figures)
    return sink.getvalue().to_pybytes()


def carry_out_batch(
    tasks: Sequence[Task], most_s: float | None = None
) -> tuple[list[Outcome], float]:
    """Execute several tasks, one after another, and return their outcomes and the time in seconds.

    The outcome of a task that fails is its error. After `most_s` seconds no further task begins,
    and the remaining ones have no outcome.
    """
    outcomes: list[Outcome] = []
    start = time.monotonic()
    took_s = 0.0
    for task in tasks:
        try:
            outcomes.append(carry_out(task))
        except Exception as error:
            outcomes.append(error)
        took_s = time.monotonic() - start
        if most_s is not None and took_s >= most_s:
            break
    return outcomes, took_s


class Incomplete(SluiceError):
    """A run failed. The arguments are the reason, and the files of its recording or `None`."""

    def __str__(self) -> str:
        """Return the reason."""
        return str(self.args[0])


class ForeignWorker(SluiceError):
    """A worker has another version of Sluice."""


def _plan(
    scenario: Scenario,
    over: Mapping[str, Iterable[Any]],
    seeds: int | Iterable[int],
    backend: str,
    keeps_failed: bool = False,
) -> Iterator[Task]:
    axes = {key: [word(value) for value in _values(key, values)] for key, values in over.items()}
    for key, words in axes.items():
        _check_distinct(f"`{key}` is swept over", words)
    if not isinstance(seeds, int):
        seeds = list(seeds)
        _check_distinct("the sweep has the seed", seeds)
    if seeds == [] or (isinstance(seeds, int) and seeds < 1):
        raise SluiceError(f"a sweep of {seeds} seeds has no runs; give at least 1")
    for key, advice in RESERVED.items():
        if key in axes:
            raise SluiceError(f"`{key}` cannot be swept as a key; {advice}")
    digest = program()
    for values in itertools.product(*axes.values()):
        point = dict(zip(axes, values, strict=True))
        chosen = scenario
        for key, value in point.items():
            chosen = chosen.set(key, value)
        known = None
        if isinstance(seeds, int):
            # The resolved text includes the scenario's seed.
            known = chosen.resolve()
            first = _seed_of(known[0][1])
            numbers: Iterable[int] = range(first, first + seeds)
        else:
            numbers = seeds
        for seed in numbers:
            if known is None or seed != first:
                variants = chosen.set("seed", seed).resolve()
            else:
                variants = known
            for variant, text in variants:
                yield Task(
                    tuple(point.items()),
                    variant,
                    seed,
                    text,
                    backend,
                    digest,
                    scenario.name,
                    find(scenario.name, text),
                    keeps_failed,
                )


def _values(key: str, values: Iterable[Any]) -> list[Any]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise SluiceError(f"`{key}` is swept over {values!r}, which is not a list of values")
    listed = list(values)
    if not listed:
        raise SluiceError(f"`{key}` is swept over an empty list; give at least one value")
    return listed


def _check_distinct(what: str, values: Sequence[object]) -> None:
    """Refuse a value that is there twice, whose runs would count twice."""
    seen = set()
    for value in values:
        if value in seen:
            raise SluiceError(f"{what} `{value}` twice; give each value once")
        seen.add(value)


def _seed_of(text: str) -> int:
    return int(tomllib.loads(text)["seed"])


@dataclass
class _Calls:
    """The calls of an executor whose outcomes are not stored."""

    #: The tasks of each call that has not ended, as far as this is known.
    futures: dict[Any, list[Task]] = field(default_factory=dict)
    #: Tasks that have ended, and their outcomes.
    ready: deque[tuple[Task, Outcome]] = field(default_factory=deque)

    def cancel(self) -> None:
        """Cancel the calls that have not begun."""
        for future in self.futures:
            future.cancel()

    def ended(self) -> list[tuple[Task, Outcome]]:
        """Return the tasks that have ended without an error, and their outcomes."""
        found = list(self.ready)
        for future, some in self.futures.items():
            if future.done() and not future.cancelled() and future.exception() is None:
                outcome = future.result()
                outcomes = outcome[0] if isinstance(outcome, tuple) else [outcome]
                found += zip(some, outcomes, strict=False)
        return [(task, outcome) for task, outcome in found if isinstance(outcome, bytes)]


def _carry_out(
    tasks: Sequence[Task],
    executor: Executor | None,
    jobs: int | None,
    batch: int | None,
    calls: _Calls,
) -> Generator[tuple[Task, Outcome], None, None]:
    """Yield each task with its outcome, in the order in which the tasks end."""
    if executor is None:
        count = len(os.sched_getaffinity(0)) if jobs is None else jobs
        yield from _in_processes(tasks, count, batch, calls)
    else:
        yield from _submit(executor, tasks, AHEAD, batch, calls)


def _result(outcome: Outcome) -> Result:
    """Return the result of a task, or raise the error that ends the sweep."""
    if isinstance(outcome, bytes):
        return Result(ipc.open_stream(outcome).read_all())
    if isinstance(outcome, ForeignWorker):
        raise outcome
    if isinstance(outcome, ModuleNotFoundError) and outcome.name == "sluice":
        raise ForeignWorker("a worker has no package `sluice`: install the same wheel there")
    files = outcome.args[1] if isinstance(outcome, Incomplete) else None
    return Result(None, str(outcome) or type(outcome).__name__, files)


def _in_processes(
    tasks: Sequence[Task], jobs: int, batch: int | None, calls: _Calls
) -> Iterator[tuple[Task, Outcome]]:
    lost = []
    with Processes(max(1, min(jobs, len(tasks)))) as processes:
        for task, outcome in _submit(processes, tasks, AHEAD_OF_PROCESS * jobs, batch, calls):
            if isinstance(outcome, BrokenProcessPool):
                lost.append(task)
            else:
                yield task, outcome
    # Each run of a lost process is repeated in a separate one, so that the run that kills its
    # process is identified.
    for task in lost:
        with Processes(1) as processes:
            yield from _submit(processes, [task], 1, 1, calls)


def _submit(
    workers: Executor,
    tasks: Sequence[Task],
    ahead: int,
    batch: int | None,
    calls: _Calls | None = None,
) -> Iterator[tuple[Task, Outcome]]:
    """Submit tasks in at most `ahead` calls of `batch` tasks, and yield each with its outcome."""
    get_executor = getattr(workers, "get_executor", None)
    sizes: Fixed | Timed = Fixed(batch or 1, ahead)
    if get_executor is not None:
        # Dask's `Client` returns futures of another type, and `pure=False` stops it from caching
        # results by their arguments, which it would never release. Each thread has a second call
        # waiting.
        nthreads = workers.nthreads  # type: ignore[attr-defined]
        if batch is None:
            sizes = Timed(lambda: sum(nthreads().values()))
        else:
            sizes = Fixed(batch, max(ahead, 2 * sum(nthreads().values())))
        workers = get_executor(pure=False)
    waiting = deque(tasks[at] for at in sizes.order(len(tasks)))
    calls = _Calls() if calls is None else calls
    futures, ready = calls.futures, calls.ready
    unfinished = 0
    suspects: list[Task] = []
    while waiting or futures:
        while waiting and (size := sizes.next(len(waiting), len(futures), unfinished)) > 0:
            some = [waiting.popleft() for _ in range(size)]
            try:
                if isinstance(sizes, Fixed) and sizes.size == 1:
                    future = workers.submit(carry_out, some[0])
                else:
                    future = workers.submit(carry_out_batch, some, sizes.most_s)
                futures[future] = some
                unfinished += len(some)
            except BrokenProcessPool as error:
                yield from ((task, error) for task in some)
        if futures:
            done, _ = wait(futures, return_when=FIRST_COMPLETED)
            for future in done:
                outcome = _outcome(future)
                some = futures.pop(future)
                unfinished -= len(some)
                if isinstance(outcome, tuple):
                    outcomes, took_s = outcome
                    sizes.note(len(outcomes), took_s)
                    waiting.extendleft(reversed(some[len(outcomes) :]))
                    ready.extend(zip(some, outcomes, strict=False))
                elif len(some) > 1 and not isinstance(outcome, BrokenProcessPool):
                    suspects.extend(some)
                else:
                    ready.extend((task, outcome) for task in some)
            yield from _each(ready)
    # The runs of a call that failed as a whole, such as one that ends its worker. Each is repeated
    # alone, with no other run beside it, so that only the one that causes this fails.
    for task in suspects:
        future = workers.submit(carry_out, task)
        futures[future] = [task]
        ready.append((task, _outcome(future)))
        del futures[future]
        yield from _each(ready)


def _each(ready: deque[tuple[Task, Outcome]]) -> Iterator[tuple[Task, Outcome]]:
    """Yield each outcome, and remove it when the next one is wanted: then it is stored."""
    while ready:
        yield ready[0]
        ready.popleft()


def _outcome(future: "Future[Any]") -> Any:  # noqa: ANN401
    """Return the result of a call, or its error. Ctrl-C in a worker is no error of its run."""
    error = future.exception()
    if isinstance(error, KeyboardInterrupt):
        raise error
    return future.result() if error is None else error


class _Store:
    """A folder of results: a file per run, partitioned by the combination of settings.

    Its folder `figures` has the results of the last sweep only. Those of earlier sweeps that it did
    not have are in the folder `former`, under the same names.
    """

    def __init__(self, out: str | PathLike[str] | None, keys: list[str]) -> None:
        self._folder = None if out is None else Path(out)
        if self._folder is None or not self._folder.exists():
            return
        if not self._folder.is_dir():
            raise SluiceError(f"`{self._folder}` is not a folder")
        places = [self._folder / RUNS, self._folder / FORMER / RUNS]
        runs = next((place for place in places if place.is_file()), None)
        if runs is not None:
            names = pq.read_schema(runs).names
            known = names[: names.index("variant")]
            if known != keys:
                # Files with different columns do not form a dataset.
                raise SluiceError(
                    f"`{self._folder}` contains a sweep over {', '.join(known) or 'seeds'}, but "
                    f"this one goes over {', '.join(keys) or 'seeds'}; choose another folder"
                )

    def _file(self, task: Task) -> Path | None:
        if self._folder is None:
            return None
        return self._folder / "figures" / f"point={task.group}" / f"{task.key}.parquet"

    @staticmethod
    def _former(path: Path) -> Path:
        """Return the place of a file of `figures` in `former`."""
        figures = path.parents[1]
        return figures.parent / FORMER / path.relative_to(figures.parent)

    def find(self, task: Task) -> Result | None:
        """Return the result of an earlier run."""
        path = self._file(task)
        if path is None:
            return None
        place = path if path.is_file() else self._former(path)
        if not place.is_file() or task.has_program:
            return None
        try:
            return Result(pq.ParquetFile(place).read(FIGURES_OF_RUN))
        except (pa.ArrowInvalid, OSError):
            # An unreadable file is replaced.
            return None

    def begin(self, plan: Sequence[Task], found: Mapping[str, Result]) -> None:
        """Put the results that were found into `figures`, and all others into `former`."""
        if self._folder is None:
            return
        own = {
            path: task
            for task in plan
            if task.key in found and (path := self._file(task)) is not None
        }
        others = [
            path for path in (self._folder / "figures").glob("point=*/*.parquet") if path not in own
        ]
        for path in others:
            _move(path, self._former(path))
        for path, task in own.items():
            figures = found[task.key].figures
            if path.is_file():
                continue
            if (former := self._former(path)).is_file():
                _move(former, path)
            elif figures is not None:
                # Another combination, which results in the same scenario, has the same figures.
                _write(path, _with_settings(task, figures))
        former = self._folder / FORMER
        if others and (self._folder / RUNS).is_file():
            _move(self._folder / RUNS, former / RUNS)
        # Live runs of programs are repeated: their former results are replaced.
        planned = {self._file(task) for task in plan}
        if strange := sum(path not in planned for path in others):
            print(
                f"sluice: results of earlier sweeps that this one does not have: {strange}, "
                f"moved to `{former}`",
                file=sys.stderr,
            )

    def keep(self, task: Task, result: Result) -> Result:
        """Write the result of a run. That of a failed one names the folder of its recording."""
        path = self._file(task)
        if path is None or self._folder is None:
            return result
        failed = self._folder / "failed" / task.key
        shutil.rmtree(failed, ignore_errors=True)
        if result.figures is not None:
            _write(path, _with_settings(task, result.figures))
            return result
        if result.recording is None:
            return result
        for name, content in result.recording.items():
            (failed / name).parent.mkdir(parents=True, exist_ok=True)
            (failed / name).write_bytes(content)
        return Result(None, f"{result.error}\nwhat was measured until then is in `{failed}`")

    def finish(self, sweep: Sweep) -> None:
        """Write the table of runs."""
        if self._folder is None:
            return
        _write(self._folder / RUNS, sweep.runs.arrow)


def _write(path: Path, table: pa.Table) -> None:
    """Write a file under a hidden name, which readers skip, and rename it when it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    pq.write_table(table, part)
    part.rename(path)


def _move(path: Path, target: Path) -> None:
    """Move a file; a folder that becomes empty is removed."""
    target.parent.mkdir(parents=True, exist_ok=True)
    path.replace(target)
    with suppress(OSError):
        path.parent.rmdir()


def dataset(out: str | PathLike[str]) -> ds.Dataset:
    """Open the figures of the last sweep in a folder without reading them.

    Raises:
        SluiceError: the folder contains no sweep.

    """
    folder = Path(out) / "figures"
    if not folder.is_dir():
        raise SluiceError(f"`{out}` contains no results of a sweep: it has no folder `figures`")
    return ds.dataset(folder, format="parquet", partitioning="hive")


def _settings(task: Task) -> dict[str, Any]:
    return {**dict(task.point), "variant": task.variant, "seed": task.seed}


def _with_settings(task: Task, figures: pa.Table) -> pa.Table:
    schema = _schema([task], FIGURES)
    settings = [
        pa.repeat(pa.scalar(v, schema.field(k).type), figures.num_rows)
        for k, v in _settings(task).items()
    ]
    return pa.table([*settings, *figures.select(FIGURES_OF_RUN).columns], schema=schema)


def _schema(plan: Sequence[Task], fields: "Sequence[pa.Field[Any]]") -> pa.Schema:
    columns: list[pa.Field[Any]] = [pa.field(key, pa.string()) for key, _ in plan[0].point]
    columns += [pa.field("variant", pa.string()), pa.field("seed", pa.int64()), *fields]
    return pa.schema(columns)


FIGURES: "list[pa.Field[Any]]" = [
    pa.field("figure", pa.string()),
    pa.field("unit", pa.string()),
    pa.field("value", pa.float64()),
]
FIGURES_OF_RUN = [field.name for field in FIGURES]
# Keys that cannot be swept, because the results have columns with these names.
RESERVED = {
    "seed": "use `seeds`",
    "variant": "all variants of the scenario are run, and the column `variant` has their names; to "
    "run one row of [[variant]], set `variant` in the scenario",
}
# The table of the last sweep's runs in its folder.
RUNS = "runs.parquet"
# The folder of results of earlier sweeps that the last one did not have.
FORMER = "former"
# Increment this when the format of the stored results changes.
FORMAT = "1"
# The number of runs submitted per local process at a time: the next run starts without waiting for
# a message.
AHEAD_OF_PROCESS = 2
