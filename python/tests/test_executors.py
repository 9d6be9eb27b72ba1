"""The sizes of calls on a Dask client, in figures that can be checked by hand."""

from sluice.executors import AHEAD, CALL_S, COST_OF_CALL_S, MOST_RUNS, PROBES, Fixed, Timed


def timed(threads: int, run_s: float) -> Timed:
    """Return calls for runs of a known time."""
    calls = Timed(lambda: threads)
    for _ in range(PROBES):
        calls.note(1, run_s)
    return calls


def test_the_first_runs_are_sent_alone_and_sample_the_whole_sweep() -> None:
    calls = Timed(lambda: 2)
    assert calls.next(1000, 0, 0) == 1
    assert calls.next(1000, PROBES - 1, PROBES - 1) == 1
    # Two threads are busy with less, but eight runs are measured.
    assert calls.next(1000, PROBES, PROBES) == 0
    # 1000 / (8 + 8) = 62: the first 17 runs are 62 apart.
    order = list(calls.order(1000))
    assert order[:17] == [62 * at for at in range(17)]
    assert sorted(order) == list(range(1000))
    assert list(calls.order(3)) == [0, 1, 2]


def test_all_threads_have_work_while_the_first_runs_take_long() -> None:
    calls = Timed(lambda: 100)
    assert calls.next(1000, 199, 199) == 1
    assert calls.next(1000, 200, 200) == 0


def test_a_call_has_as_many_runs_as_its_time_allows() -> None:
    # 0.15 s / 10 ms = 15.
    assert CALL_S == 0.15
    assert timed(2, 0.010).next(10_000, 4, 4) == 15
    assert timed(2, 1.0).next(10_000, 4, 4) == 1
    assert timed(2, 1e-6).next(10_000, 4, 4) == MOST_RUNS
    # A first run that includes the loading of the package does not count.
    calls = Timed(lambda: 2)
    for took_s in [0.5, 0.4, *[0.010] * 6]:
        calls.note(1, took_s)
    assert calls.next(10_000, 0, 0) == 15


def test_later_runs_that_take_longer_make_calls_smaller() -> None:
    calls = timed(2, 0.002)
    assert calls.next(10_000, 0, 0) == 75
    for _ in range(2 * PROBES):
        calls.note(2, 0.3)
    assert calls.next(10_000, 0, 0) == 1


def test_the_last_calls_are_small_so_that_all_threads_end_together() -> None:
    calls = timed(8, 0.001)
    # 8 threads have 16 calls: 160 runs are shared by calls of 10.
    assert calls.next(160, 0, 0) == 10
    assert calls.next(15, 0, 0) == 1


def test_calls_are_longer_on_many_threads_so_that_the_scheduler_keeps_them_busy() -> None:
    # 1000 threads, each with a call of 5 s, need 200 calls per second, one in 5 ms.
    assert COST_OF_CALL_S == 0.005
    calls = timed(1000, 0.1)
    assert calls.call_s == 5.0
    assert calls.most_s == 10.0
    assert calls.next(10**6, 0, 0) == 50


def test_runs_that_are_submitted_are_bounded_but_no_thread_is_idle() -> None:
    assert timed(2, 0.01).next(10**6, 800, AHEAD - 1) > 0
    assert timed(2, 0.01).next(10**6, 800, AHEAD) == 0
    assert timed(10_000, 60.0).next(10**6, 19_999, 19_999) == 1
    assert timed(10_000, 60.0).next(10**6, 20_000, 20_000) == 0


def test_workers_that_join_later_count() -> None:
    threads = 0
    calls = Timed(lambda: threads)
    # There is work for a cluster whose workers have not started.
    assert calls.next(100, 0, 0) == 1
    threads = 60
    calls._asked -= 2.0
    calls.next(100, 0, 0)
    assert calls.call_s == 60 * COST_OF_CALL_S


def test_fixed_calls_are_full_except_the_last() -> None:
    calls = Fixed(10, 3)
    assert [calls.next(25, 0, 0), calls.next(15, 1, 10), calls.next(5, 2, 20)] == [10, 10, 5]
    assert calls.next(25, 3, 30) == 0
    assert calls.most_s is None
    assert list(calls.order(3)) == [0, 1, 2]
