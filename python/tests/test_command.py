from pathlib import Path

import pyarrow.parquet as pq
import pytest
from distributed import LocalCluster

import sluice
from sluice.__main__ import main, values_of

TEXT = """
duration = "2s"
[link]
rate = "10Mbit/s"
[[flow]]
type = "tcp"
"""


@pytest.fixture
def scenario(tmp_path: Path) -> str:
    path = tmp_path / "scenario.toml"
    path.write_text(TEXT)
    return str(path)


def test_ranges_are_spaced_as_they_say() -> None:
    # 9 values over two decades: a factor of 10^(1/4) = 1.77828 each.
    assert values_of("1..100Mbit/s:log:9") == [
        f"{value}Mbit/s"
        for value in ["1", "1.778", "3.162", "5.623", "10", "17.78", "31.62", "56.23", "100"]
    ]
    assert values_of("10ms..50ms:lin:5") == ["10ms", "20ms", "30ms", "40ms", "50ms"]
    assert values_of("0..1:lin:3") == ["0", "0.5", "1"]
    assert values_of("100..1:log:3") == ["100", "10", "1"]
    assert values_of("fifo limit 10, codel") == ["fifo limit 10", "codel"]
    # The points of a path are not those of a range.
    assert values_of("codel,py:../a.py:Mine") == ["codel", "py:../a.py:Mine"]


def test_the_values_of_a_range_have_its_ends_and_differ() -> None:
    assert values_of("10001..10005:lin:5") == ["10001", "10002", "10003", "10004", "10005"]
    # To four digits, 12345.5 is 12350, which is above the end.
    assert values_of("12344..12347s:lin:3") == ["12344s", "12345.5s", "12347s"]
    # A third of the way is 0.000016667; TOML has no number `1e-05s`.
    assert values_of("0.00001..0.00003s:lin:4")[:2] == ["0.00001s", "0.00001667s"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1..10", "is not a range"),
        ("1..10Mbit/s:cubic:3", "is not a range"),
        ("1kbit/s..10Mbit/s:log:3", "both ends need one unit, not `kbit/s` and `Mbit/s`"),
        ("1..10:lin:1", "at least 2 values, not 1"),
        ("0..10:log:3", "above 0"),
        ("5..5:lin:3", "two different ends; write `5` for one"),
        ("..5:lin:3", "is not a range"),
        ("1...5", "is not a range"),
        ("1..10:lin:3,20", "is not a range"),
        ("fifo,,codel", "`fifo,,codel` has an empty value"),
        ("", "has an empty value"),
    ],
)
def test_a_wrong_range_is_named(text: str, words: str) -> None:
    with pytest.raises(sluice.SluiceError, match=words):
        values_of(text)


def test_the_command_writes_the_results_and_reuses_them(
    scenario: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = [
        "sweep",
        "--over=link.rate=1..4Mbit/s:log:3",
        "--over=link.queue=fifo,codel",
        "--set=duration=3s",
        "--seeds=2",
        "--jobs=2",
        f"--output={out}",
        "--quiet",
        scenario,
    ]
    assert main(words) == 0
    assert capsys.readouterr().out == f"12 runs, 0 reused, 0 failed: {out}\n"
    runs = pq.read_table(out / "runs.parquet")
    assert set(runs.column("link.rate").to_pylist()) == {"1Mbit/s", "2Mbit/s", "4Mbit/s"}
    assert main(words) == 0
    assert capsys.readouterr().out == f"12 runs, 12 reused, 0 failed: {out}\n"


def test_the_workers_of_a_dask_cluster_carry_it_out(
    scenario: str, tmp_path: Path, cluster: LocalCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    address = f"--dask={cluster.scheduler_address}"
    words = ["sweep", "--over=link.queue=fifo,codel", address, f"--output={out}", "--quiet"]
    assert main([*words, scenario]) == 0
    assert capsys.readouterr().out == f"2 runs, 0 reused, 0 failed: {out}\n"


def test_mistakes_are_said_in_the_words_of_the_command_line(
    scenario: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", "--over=link.queue=codle", scenario]) == 1
    assert "did you mean `codel`" in capsys.readouterr().err
    assert main(["sweep", "--over=link.queue", scenario]) == 1
    assert "sluice: `--over link.queue`: write it as KEY=VALUE" in capsys.readouterr().err
    assert main(["sweep", "--over=link.rate=1..10", scenario]) == 1
    assert "sluice: `--over link.rate=1..10`: `1..10` is not a range" in capsys.readouterr().err
    twice = ["--over=link.queue=fifo", "--over=link.queue=codel"]
    assert main(["sweep", *twice, scenario]) == 1
    words = "sluice: `--over link.queue=codel`: `link.queue` is given twice"
    assert words in capsys.readouterr().err
    assert main(["sweep", "--over=link.queue=fifo", "missing.toml"]) == 1
    assert "sluice: cannot read the scenario `missing.toml`" in capsys.readouterr().err
