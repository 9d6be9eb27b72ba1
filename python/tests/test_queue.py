from concurrent.futures import ThreadPoolExecutor

import pytest

import sluice


def test_every_registered_algorithm_can_be_built_and_carries_a_packet() -> None:
    for algorithm in sluice.algorithms():
        queue = sluice.Queue(algorithm["name"])
        number = queue.enqueue(0, 1000)
        time_ns = 0
        # A shaping queue may hold a packet for a while.
        while (out := queue.dequeue(time_ns)) is None and time_ns < 10_000_000_000:
            time_ns += 1_000_000
        assert out is not None, algorithm["name"]
        assert out[0] == number


def test_a_full_queue_says_what_it_dropped() -> None:
    queue = sluice.Queue("fifo limit 1")
    queue.enqueue(0, 100)
    queue.enqueue(5, 100)
    assert queue.take_drops() == [(1, 5, "overflow")]
    assert queue.backlog == (1, 100)


def test_a_wrong_word_is_named_with_its_place() -> None:
    with pytest.raises(ValueError, match=r"no parameter `tarqet` \(at character 7"):
        sluice.Queue("codel tarqet 5ms")


def test_time_does_not_run_backwards() -> None:
    queue = sluice.Queue("fifo")
    queue.enqueue(10, 100)
    with pytest.raises(ValueError, match="before 10"):
        queue.dequeue(9)


def test_a_packet_has_a_byte_at_least() -> None:
    queue = sluice.Queue("fq_codel")
    with pytest.raises(ValueError, match="size_bytes 0 is below 1"):
        queue.enqueue(0, 0)


def test_a_queue_belongs_to_its_thread() -> None:
    queue = sluice.Queue("codel")
    queue.enqueue(0, 100)
    uses = [
        lambda: queue.enqueue(0, 100),
        lambda: queue.dequeue(0),
        lambda: queue.take_drops(),
        lambda: queue.variables(),
        lambda: queue.backlog,
    ]
    with ThreadPoolExecutor(1) as pool:
        for use in uses:
            with pytest.raises(sluice.SluiceError, match="this Queue belongs to the thread that"):
                pool.submit(use).result()
        # One that is created there works there, and may be released here.
        other = pool.submit(sluice.Queue, "codel").result()
        assert pool.submit(other.enqueue, 0, 100).result() == 0
    del other
    assert queue.dequeue(1) is not None
