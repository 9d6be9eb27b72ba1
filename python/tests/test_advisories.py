"""Requirements by Cargo's rules, versions that advisories concern, and the table's update."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"
ADVISORIES = runpy.run_path(str(SCRIPTS / "advisories.py"), run_name="advisories")
matches, version_of = ADVISORIES["matches"], ADVISORIES["version_of"]
Advisory, faults = ADVISORIES["Advisory"], ADVISORIES["faults"]

LOCK = """
[[package]]
name = "smallvec"
version = "1.6.0"
source = "registry+https://github.com/rust-lang/crates.io-index"

[[package]]
name = "own"
version = "0.1.0"
"""


# The ranges are those of "Specifying dependencies" in Cargo's book. For `=`, `>` and `<=` with a
# part of a version, they are those of `Op` in the documentation of the crate semver.
@pytest.mark.parametrize(
    ("requirement", "inside", "outside"),
    [
        ("1.2.3", "1.2.3 1.2.4 1.3.0 1.99.0", "1.2.2 2.0.0 0.9.0"),
        ("^1.2.3", "1.2.3 1.99.0", "1.2.2 2.0.0"),
        ("^ 1.2.3", "1.2.3 1.99.0", "1.2.2 2.0.0"),
        ("^1.2", "1.2.0 1.99.0", "1.1.9 2.0.0"),
        ("^1", "1.0.0 1.99.0", "0.99.0 2.0.0"),
        ("^0.2.3", "0.2.3 0.2.99", "0.2.2 0.3.0 1.0.0"),
        ("^0.2", "0.2.0 0.2.99", "0.1.9 0.3.0"),
        ("^0.0.3", "0.0.3", "0.0.2 0.0.4 0.1.0"),
        ("^0.0", "0.0.0 0.0.99", "0.1.0 1.0.0"),
        ("^0", "0.0.0 0.99.0", "1.0.0"),
        ("~1.2.3", "1.2.3 1.2.99", "1.2.2 1.3.0"),
        ("~1.2", "1.2.0 1.2.99", "1.1.9 1.3.0"),
        ("~1", "1.0.0 1.99.0", "0.99.0 2.0.0"),
        ("*", "0.0.0 1.2.3 99.0.0", "1.0.0-alpha"),
        ("1.*", "1.0.0 1.99.0", "0.99.0 2.0.0"),
        ("1.2.*", "1.2.0 1.2.99", "1.1.9 1.3.0"),
        (">= 1.2.0", "1.2.0 2.0.0", "1.1.99"),
        (">=1.2", "1.2.0 2.0.0", "1.1.99"),
        ("> 1", "2.0.0 3.1.0", "1.0.0 1.99.0"),
        ("> 1.2", "1.3.0 2.0.0", "1.2.0 1.2.99"),
        ("> 1.2.3", "1.2.4 2.0.0", "1.2.3 1.2.2"),
        ("< 2", "1.99.0 0.0.0", "2.0.0 2.1.0"),
        ("< 1.2.3", "1.2.2 0.9.0", "1.2.3 1.2.4"),
        ("<= 1.2", "1.2.99 0.1.0", "1.3.0"),
        ("<= 1.2.3", "1.2.3 0.1.0", "1.2.4"),
        ("= 1.2.3", "1.2.3 1.2.3+build", "1.2.2 1.2.4 1.2.3-alpha"),
        ("= 1", "1.0.0 1.99.0", "0.99.0 2.0.0"),
        (">= 1.2, < 1.5", "1.2.0 1.4.99", "1.1.9 1.5.0 2.0.0"),
        ("< 0.10.0, >= 0.9.3", "0.9.3 0.9.99", "0.9.2 0.10.0 0.10.1"),
        # Only a requirement that names a pre-release of this version admits one.
        ("1.0", "1.0.0", "1.0.0-alpha 1.1.0-alpha 2.0.0-alpha"),
        (">= 1.0.0-alpha.1", "1.0.0-alpha.1 1.0.0-beta 1.0.0 2.0.0", "1.0.0-alpha 1.1.0-beta"),
        ("^1.0.0-beta.2", "1.0.0-beta.2 1.0.0-beta.11 1.5.0", "1.0.0-beta.1 1.5.0-beta.3 2.0.0"),
    ],
)
def test_a_requirement_matches_the_versions_of_cargos_book(
    requirement: str, inside: str, outside: str
) -> None:
    assert [one for one in inside.split() if not matches(requirement, one)] == []
    assert [one for one in outside.split() if matches(requirement, one)] == []


def test_pre_releases_are_ordered_as_in_the_specification_of_semver() -> None:
    # The example of its section 11.4.
    names = "alpha alpha.1 alpha.beta beta beta.2 beta.11 rc.1".split()
    order = [version_of(f"1.0.0-{name}") for name in names] + [version_of("1.0.0")]
    assert order == sorted(order)
    assert len(set(order)) == len(order)


@pytest.mark.parametrize("text", ["", ">=", "1.2.3.4", "== 1", "1.2-", ">= 1,"])
def test_what_is_no_requirement_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a requirement"):
        matches(text, "1.2.3")


def test_a_locked_version_with_a_weakness_is_named_with_the_patched_ones(tmp_path: Path) -> None:
    lock = tmp_path / "Cargo.lock"
    lock.write_text(LOCK)
    locked = ADVISORIES["locked"]([lock])
    assert locked == {("smallvec", "1.6.0")}
    (known,) = (one for one in ADVISORIES["read_table"]() if one.id == "RUSTSEC-2021-0003")
    patched = "patched: >= 0.6.14, < 1.0.0 or >= 1.6.1"
    line = f"smallvec 1.6.0 is concerned by RUSTSEC-2021-0003 (vulnerability); {patched}"
    assert faults(locked, [known], {}) == [line]
    # 1.6.1 is the first patched version, 0.6.2 the last unaffected one.
    assert faults([("smallvec", "1.6.1"), ("smallvec", "0.6.2")], [known], {}) == []
    # Each of two locked versions is compared.
    assert faults([("smallvec", "1.6.1"), ("smallvec", "1.6.0")], [known], {}) == [line]
    assert faults([("other", "1.6.0")], [known], {}) == []


def test_an_unmaintained_crate_needs_a_reason_and_a_reason_needs_a_crate() -> None:
    unmaintained = Advisory("RUSTSEC-2031-0001", "old", "unmaintained", [], [])
    crates = [("old", "1.0.0")]
    line = "old 1.0.0 is concerned by RUSTSEC-2031-0001 (unmaintained); patched: no version"
    assert faults(crates, [unmaintained], {}) == [line]
    reason = {"RUSTSEC-2031-0001": "nothing else reads this format"}
    assert faults(crates, [unmaintained], reason) == []
    line = "RUSTSEC-2031-0001 is in ACCEPTED, but concerns no locked version"
    assert faults([], [unmaintained], reason) == [line]


def test_every_requirement_of_the_table_is_readable() -> None:
    for one in ADVISORIES["read_table"]():
        for requirement in one.patched + one.unaffected:
            matches(requirement, "1.0.0")


def advisory(folder: Path, crate: str, number: str, lines: str, versions: str) -> None:
    path = folder / "crates" / crate / f"RUSTSEC-{number}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    head = f'[advisory]\nid = "RUSTSEC-{number}"\npackage = "{crate}"\n{lines}'
    path.write_text(f"```toml\n{head}\n[versions]\n{versions}\n```\n\n# Title\n\nText.\n")


def update(database: Path, output: Path) -> tuple[int, str]:
    script = SCRIPTS / "update-advisories.py"
    command = [sys.executable, str(script), str(database), "-o", str(output)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_the_table_is_written_from_a_copy_of_the_database(tmp_path: Path) -> None:
    date = 'date = "2031-05-02"\n'
    later = 'date = "2031-05-03"\n'
    patched = 'patched = [\n  "^0.2.9", # with a comment\n  ">= 1.2",\n]'
    unsound = 'informational = "unsound"\n'
    advisory(tmp_path, "libc", "2031-0002", date, patched)
    advisory(tmp_path, "bytes", "2031-0001", date + unsound, 'patched = []\nunaffected = ["< 1"]')
    advisory(tmp_path, "bytes", "2031-0003", f'{date}withdrawn = "2031-05-02"', "patched = []")
    advisory(tmp_path, "bytes", "0000-0000", 'date = "2032-01-01"\n', "patched = []")
    advisory(tmp_path, "no-crate-of-ours", "2031-0004", later, "patched = []")
    output = tmp_path / "table.toml"
    status, text = update(tmp_path, output)
    said = "advisories: 2 of 4 are about locked crates; state of 2031-05-03\n"
    assert (status, text) == (0, said)
    lines = [line for line in output.read_text().splitlines() if not line.startswith("#")]
    expected = """
date = 2031-05-03

[[advisory]]
id = "RUSTSEC-2031-0001"
crate = "bytes"
kind = "unsound"
patched = []
unaffected = ["< 1"]

[[advisory]]
id = "RUSTSEC-2031-0002"
crate = "libc"
kind = "vulnerability"
patched = ["^0.2.9", ">= 1.2"]
unaffected = []
"""
    assert lines == expected.splitlines()
    assert [one.id[-4:] for one in ADVISORIES["read_table"](output)] == ["0001", "0002"]


def test_the_date_of_a_table_from_a_repository_is_that_of_the_last_commit(tmp_path: Path) -> None:
    advisory(tmp_path, "libc", "2031-0002", 'date = "2031-05-02"\n', "patched = []")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=A", "-c", "user.email=a@example.org"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "crates"], check=True)
    when = {**os.environ, "GIT_COMMITTER_DATE": "2031-06-07T12:00:00Z"}
    subprocess.run([*git, "commit", "-q", "-m", "State"], check=True, env=when)
    output = tmp_path / "table.toml"
    assert update(tmp_path, output)[0] == 0
    assert "\ndate = 2031-06-07\n" in output.read_text()


def test_a_folder_without_advisories_leaves_the_table_alone(tmp_path: Path) -> None:
    output = tmp_path / "table.toml"
    status, text = update(tmp_path, output)
    assert (status, text) == (1, f"{tmp_path}: no file crates/*/RUSTSEC-*.md\n")
    assert not output.exists()
