"""Algorithms that import local modules: what a change of one reaches, and workers without them."""

import pickle
import shutil
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import sluice
from sluice import sources, sweeps

SCENARIO: dict[str, Any] = {
    "duration": "2s",
    "link": {"rate": "1Mbit/s"},
    "flow": [{"type": "udp", "rate": "2Mbit/s"}],
}
# It drops every packet that has waited for the bound, which another module has.
MINE = """
import queue
import sluice
import bounds
from helpers import unused

class Mine(sluice.Aqm):
    def on_dequeue(self, packet, queue, cx):
        return sluice.DROP if packet.sojourn_ns > bounds.BOUND_NS else sluice.PASS
"""


@pytest.fixture
def words(tmp_path: Path) -> str:
    """Write an algorithm with a module and a package beside it; return the words of its queue."""
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "bounds.py").write_text("BOUND_NS = 20_000_000\n")
    (tmp_path / "helpers").mkdir()
    (tmp_path / "helpers" / "__init__.py").write_text("from helpers.more import unused\n")
    (tmp_path / "helpers" / "more.py").write_text("unused = 1\n")
    return f"py:{tmp_path / 'mine.py'}:Mine"


def longest_ms(words: str) -> float:
    """Return the longest time in the queue."""
    packets = sluice.run(SCENARIO, {"link.queue": words}, progress=False).packets
    sent = [row for row in packets.rows() if row["pipe"] == "up" and row["verdict"] == "sent"]
    waited: list[int] = [row["sojourn_ns"] for row in sent]
    return max(waited) / 1e6


def test_modules_beside_the_file_are_imported_in_their_last_state(
    words: str, tmp_path: Path
) -> None:
    # A packet of 1500 bytes takes 12 ms, so the delay stays within that of the bound.
    assert 8 < longest_ms(words) <= 20
    (tmp_path / "bounds.py").write_text("BOUND_NS = 60_000_000\n")
    assert 48 < longest_ms(words) <= 60
    assert "bounds" not in sys.modules
    assert str(tmp_path) not in sys.path


def test_a_source_has_the_local_modules_and_no_others(words: str, tmp_path: Path) -> None:
    plan = list(sweeps._plan(sluice.Scenario(SCENARIO), {"link.queue": [words]}, 1, "sim"))
    (source,) = plan[0].sources
    names = ["mine.py", "bounds.py", "helpers/__init__.py", "helpers/more.py"]
    assert [name for name, _ in source.files] == names
    # Rules name files, too, and links of their own.
    text = (
        f'rules = "pipe 1 config bw 1Mbit/s {words}\\nadd 1 pipe 1 ip from any to any"\n'
        f'title = "py:nothing.py"\n[[hop]]\nqueue = "fq_wasm:{tmp_path}/m.wasm"\n'
    )
    (tmp_path / "m.wasm").write_bytes(b"module")
    found = sources.find("scenario", text)
    assert [each.files[0][0] for each in found] == ["m.wasm", "mine.py"]
    assert sources.localize("scenario", text, found) == text
    (tmp_path / "m.wasm").unlink()
    moved = sources.localize("scenario", text, found)
    assert str(tmp_path / "m.wasm") not in moved
    assert words in moved
    copy = Path(moved.partition("fq_wasm:")[2].partition('"')[0])
    assert copy.read_bytes() == b"module"


RULES = """
duration = "2s"
rules = { file = "rules/r.conf" }
[[flow]]
type = "udp"
rate = "2Mbit/s"
"""
# The path is relative to the scenario, in whichever folder the commands are.
COMMANDS = """
# once: py:gone.py
pipe 1 config bw 1Mbit/s\tpy:mine.py:Mine # not py:gone.py
add 1 pipe 1 ip from any to any out
"""


def test_an_algorithm_in_a_file_of_rules_is_a_source(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert words.startswith("py:")
    rules = tmp_path / "rules" / "r.conf"
    rules.parent.mkdir()
    rules.write_text(COMMANDS)
    (tmp_path / "s.toml").write_text(RULES)
    monkeypatch.chdir(rules.parent)

    def planned() -> sweeps.Task:
        (task,) = sweeps._plan(sluice.Scenario(tmp_path / "s.toml"), {}, 1, "sim")
        return task

    first = planned()
    (source,) = first.sources
    assert source.path == "mine.py"
    assert [name for name, _ in source.files][:2] == ["mine.py", "bounds.py"]
    assert planned().key == first.key
    here = sweeps.carry_out(first)
    (tmp_path / "bounds.py").write_text("BOUND_NS = 30_000_000\n")
    second = planned()
    assert second.key != first.key
    # A worker that lacks the file, or has another one, uses a copy.
    assert sweeps.carry_out(first) == here
    (tmp_path / "mine.py").rename(tmp_path / "other.py")
    assert sweeps.carry_out(first) == here
    (tmp_path / "other.py").rename(tmp_path / "mine.py")
    rules.write_text(COMMANDS.replace("1Mbit/s", "3Mbit/s"))
    assert planned().key != second.key


def test_a_package_without_init_is_a_local_module(tmp_path: Path) -> None:
    own, part = tmp_path / "own.py", tmp_path / "parts_of_own" / "part.py"
    part.parent.mkdir()
    own.write_text(
        "import sluice\nfrom parts_of_own.part import VERDICT\n"
        "class Own(sluice.Aqm):\n    def on_enqueue(self, packet, queue, cx): return VERDICT\n"
    )

    def held(verdict: str) -> int:
        part.write_text(f"import sluice\nVERDICT = sluice.{verdict}\n")
        queue = sluice.Queue(f"py:{own}")
        queue.enqueue(0, 100)
        return queue.backlog[0]

    assert [held("PASS"), held("DROP")] == [1, 0]
    assert list(sources.imported(own, own.read_bytes())) == ["parts_of_own/part.py"]
    assert "parts_of_own" not in sys.modules


def test_a_changed_module_repeats_the_runs_of_a_sweep(words: str, tmp_path: Path) -> None:
    def found() -> int:
        with ThreadPoolExecutor(1) as threads:
            return sluice.sweep(
                SCENARIO,
                {"link.queue": [words, "codel"]},
                out=tmp_path / "out",
                executor=threads,
                progress=False,
            ).found

    assert found() == 0
    assert found() == 2
    (tmp_path / "helpers" / "more.py").write_text("unused = 22\n")
    assert found() == 1
    assert found() == 2


def test_a_worker_without_the_files_gets_them_with_the_run(words: str, tmp_path: Path) -> None:
    class Elsewhere:
        """Carries a run out where the files do not exist."""

        def submit(self, fn: Any, /, *args: Any) -> "Future[bytes]":  # noqa: ANN401
            future: Future[bytes] = Future()
            moved = (tmp_path / "mine.py").rename(tmp_path / "moved.py")
            (tmp_path / "bounds.py").rename(tmp_path / "elsewhere.py")
            try:
                future.set_result(fn(*args))
            finally:
                moved.rename(tmp_path / "mine.py")
                (tmp_path / "elsewhere.py").rename(tmp_path / "bounds.py")
            return future

    here = sluice.sweep(SCENARIO, {"link.queue": [words]}, jobs=1, progress=False)
    there = sluice.sweep(SCENARIO, {"link.queue": [words]}, executor=Elsewhere(), progress=False)
    assert here.runs["status"] == ["complete"]
    assert there.figures == here.figures


BROKEN = """
import sluice

class Broken(sluice.Aqm):
    def on_dequeue(self, packet, queue, cx):
        if cx.now_ns > {after}:
            raise RuntimeError("the idea was wrong")
        return sluice.PASS
"""


def test_a_run_that_fails_keeps_what_it_measured(tmp_path: Path) -> None:
    # The run begins 1.2 s before its time 0.
    (tmp_path / "broken.py").write_text(BROKEN.format(after=2_200_000_000))
    words = f"py:{tmp_path / 'broken.py'} on_error end"
    with pytest.raises(sluice.RunFailed, match="the idea was wrong") as caught:
        sluice.run(SCENARIO, {"link.queue": words})
    failed = caught.value
    assert isinstance(failed, sluice.SluiceError)
    assert str(failed).endswith(f"is in `{failed.folder}`")
    pickled = pickle.dumps(failed)
    try:
        kept = sluice.Run.open(failed.folder)
        assert "the idea was wrong" in str(kept.cut_short)
        assert kept.packets == failed.run.packets
        sent = [row["time_ns"] for row in kept.packets.rows() if row["pipe"] == "up"]
        # It fails at 1 s. A simulation looks every 200 ms whether it is to end.
        assert 1e9 <= max(sent) <= 1.2e9
    finally:
        shutil.rmtree(failed.folder)
    # Another process, which may have no folder in common with this one, receives all of it.
    again = pickle.loads(pickled)
    assert (type(again), str(again)) == (sluice.RunFailed, str(failed))
    assert (again.folder, again.run.cut_short) == (failed.folder, failed.run.cut_short)
    assert again.run.packets == failed.run.packets


def test_a_failed_run_of_a_sweep_names_the_folder_of_its_recording(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(BROKEN.format(after=2_200_000_000))
    words = f"py:{tmp_path / 'broken.py'}"
    over = {"link.queue": ["codel", f"{words} on_error end", words]}
    out = tmp_path / "out"
    done = sluice.sweep(SCENARIO, over, jobs=2, batch=2, out=out, progress=False)
    assert done.runs["status"] == ["complete", "failed", "failed"]
    keys = done.runs["key"]
    for key, error, is_partial in zip(keys[1:], done.runs["error"][1:], (True, False), strict=True):
        assert error.endswith(f"is in `{out / 'failed' / key}`")
        kept = sluice.Run.open(out / "failed" / key)
        assert len(kept.packets) > 50
        assert (kept.cut_short is not None) == is_partial
    # Without a folder for results, only the error is kept.
    alone = sluice.sweep(SCENARIO, over, jobs=1, progress=False)
    assert "measured until then" not in alone.runs["error"][1]
    # A later success replaces it.
    (tmp_path / "broken.py").write_text(BROKEN.format(after=9_000_000_000_000))
    assert set(sluice.sweep(SCENARIO, over, jobs=1, out=out, progress=False).runs["status"]) == {
        "complete"
    }
