"""The checks of the documentation find the problems that they search for."""

import subprocess
import sys
from pathlib import Path

SCRIPTS = Path(__file__).parents[2] / "scripts"


def run(script: str, *args: Path) -> tuple[int, str]:
    command = [sys.executable, str(SCRIPTS / script), *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def site(folder: Path, **pages: str) -> Path:
    for name, body in pages.items():
        (folder / f"{name}.html").write_text(f"<html><body>{body}</body></html>")
    return folder


def test_a_site_without_faults_passes(tmp_path: Path) -> None:
    far = '<h1 id="x"></h1><a href="https://example.org/">out</a> <code>scripts/setup.sh</code>'
    folder = site(tmp_path, index='<a href="a.html#x">a</a>', a=far)
    assert run("check-site.py", folder) == (0, "site: 2 pages, 2 links, none dead\n")


def test_each_fault_of_a_site_is_found(tmp_path: Path) -> None:
    folder = site(
        tmp_path,
        index='<a href="gone.html">g</a><a href="a.html#y">a</a><img src="https://x.org/p.png">',
        a='<code>crates/nothing.rs</code><a href="b.html">b</a>',
        b='<a href="c.html">c</a>',
        c="",
        alone="",
    )
    status, text = run("check-site.py", folder)
    assert status == 1
    for fault in [
        "index.html:1: gone.html leads to nothing",
        "index.html:1: a.html#y: a.html has no element `y`",
        "index.html:1: loads https://x.org/p.png from outside the site",
        "a.html:1: the source has no `crates/nothing.rs`",
        "c.html: 3 clicks from the first page; at most 2 are allowed",
        "alone.html: no click from the first page; at most 2 are allowed",
    ]:
        assert f"site: {fault}\n" in text


def test_words_of_the_old_style_are_found_outside_of_code(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "It `works off` the queue.\n\n```\nworks off\n```\n\nIt works\noff the queue.\n"
    )
    status, text = run("check-english.py", page)
    assert (status, text) == (1, f"{page}:7:4: `works off`: processes, executes, drains\n")
    source = tmp_path / "code.rs"
    phrase = "is " + "told"
    source.write_text(f'let whoever = 1; // Who is taken in here?\nlet a = "{phrase}";\n')
    status, text = run("check-english.py", source)
    assert status == 1
    places = {line.split(": `")[0] for line in text.splitlines()}
    assert places == {f"{source}:1:28", f"{source}:2:10"}
