"""Pages about Python work as printed.

A block whose head names a file (`python my_aqm.py`) is written to it. Other blocks of Python are
executed one after another. In a `console` block, lines after `$ ` are commands, and the lines below
are what they print; `...` stands for any text within a line.
"""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest

mpl.use("Agg")

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\S+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TUTORIAL = "docs/tutorials/aqm-in-python.md"


def blocks(page: str) -> list[tuple[str, str, str]]:
    """Return the blocks of a page: language, name of the file, text."""
    return BLOCK.findall((ROOT / page).read_text())


def follow(page: str, folder: Path) -> int:
    """Follow the instructions of a page; return the number of commands and blocks."""
    variables: dict[str, Any] = {}
    count = 0
    for language, name, text in blocks(page):
        if name:
            (folder / name).write_text(text)
        elif language == "python":
            exec(compile(text, page, "exec"), variables)
            count += 1
        elif language == "console":
            for part in text.split("$ ")[1:]:
                command, _, expected = part.partition("\n")
                assert run(command, folder, expected), command
                count += 1
    return count


def run(command: str, folder: Path, expected: str) -> bool:
    """Run a command of a page and compare what it prints."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env={**os.environ, "PATH": path, "MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
        check=True,
    )
    pattern = ".*".join(map(re.escape, expected.split("...")))
    assert re.fullmatch(pattern, done.stdout), f"{command} printed {done.stdout!r}"
    return True


@pytest.mark.parametrize("page", [TUTORIAL, "docs/how-to/python-sweeps.md"])
def test_a_page_works_as_printed(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scenarios").symlink_to(ROOT / "scenarios")
    assert follow(page, tmp_path) >= 2


def test_the_figure_of_the_paper_page_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = blocks("docs/how-to/paper.md")
    sweep = next(text for _, name, text in page if name == "sweep.toml")
    snippet = next(text for language, _, text in page if language == "python")
    (tmp_path / "sweep.toml").write_text(sweep.replace("10s", "2s"))
    sluice = Path(sys.executable).parent / "sluice"
    command = [str(sluice), "run", "sweep.toml", "--repeat", "2", "--quiet"]
    subprocess.run(command, check=True, capture_output=True)
    exec(compile(snippet, "paper.md", "exec"), {})
    assert (tmp_path / "own.pdf").read_bytes().startswith(b"%PDF")


def test_the_first_picture_takes_at_most_25_lines() -> None:
    files = {name: text for _, name, text in blocks(TUTORIAL) if name}
    assert sorted(files) == ["my_aqm.py", "picture.py"]
    assert sum(len(text.splitlines()) for text in files.values()) <= 25
