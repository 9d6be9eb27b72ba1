"""Mininet of Debian and of PyPI, with `SluiceLink`, as root in namespaces of their own.

`scripts/setup.sh mininet` installs both.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from namespaces import run_in_namespaces

ROOT = Path(__file__).parents[2]
# Only the extension and the standard library are needed, so other interpreters can be used.
ENVIRONMENT = {"PYTHONPATH": str(ROOT / "python"), "PYTHONDONTWRITEBYTECODE": "1"}
PYPI = ROOT / ".venv-mininet" / "bin"
PYTHONS = {"debian": Path("/usr/bin/python3"), "pypi": PYPI / "python"}
COMMANDS = {"debian": Path("/usr/bin/mn"), "pypi": PYPI / "mn"}
NET = Path(__file__).with_name("mininet_net.py")
SOURCES = ["debian", "pypi"]


def seen_by(said: str) -> dict[str, Any]:
    """Return what mininet_net.py printed."""
    line = next(line for line in said.splitlines() if line.startswith("{"))
    seen: dict[str, Any] = json.loads(line)
    return seen


@pytest.mark.parametrize("source", SOURCES)
def test_a_net_of_three_switches_has_queues_of_sluice(source: str) -> None:
    seen = seen_by(run_in_namespaces([str(PYTHONS[source]), str(NET)], environment=ENVIRONMENT))
    assert seen["lost"] == 0.0
    # One process for all links: three of hosts, two between switches.
    assert (seen["processes"], seen["links"]) == (1, 5)
    # 2 + 10 + 6 + 2 ms, there and back; each rate adds less than 0.2 ms.
    answers, shortest_ms = seen["ping"]
    assert answers == 4
    assert 40 <= shortest_ms < 80
    assert seen["pipes"] == [10_000_000] * 2
    assert seen["schedulers"].count("FQ_CODEL") >= 2
    assert "codel target 8ms" in seen["codel"].lower()
    # Another direction keeps its 10 ms: 2 + 40 + 6 + 2 and 2 + 6 + 10 + 2 ms.
    answers, shortest_ms = seen["slower"]
    assert answers == 4
    assert 70 <= shortest_ms < 110
    assert seen["changed"] == [5_000_000, 10_000_000]
    # 5 Mbit/s of frames carry at most 1448 of 1514 bytes; a busy machine may need far longer.
    assert 1e6 < seen["bits"] <= 5e6 * 1448 / 1514 * 1.05
    assert seen["left"] == [[], ["lo"]]


CLEANUP = """
import json, subprocess, sys
sys.path.insert(0, sys.argv[2])
net = subprocess.Popen([sys.executable, sys.argv[3], "wait"], stdout=subprocess.PIPE, text=True)
net.stdout.readline()
import mininet_net
before = [len(mininet_net.processes()), len(mininet_net.interfaces())]
subprocess.run([sys.argv[1], "-c"], capture_output=True, check=True)
print(json.dumps({"before": before, "after": [mininet_net.processes(), mininet_net.interfaces()]}))
net.kill()
"""


def test_mn_c_removes_what_a_net_left() -> None:
    python, command = str(PYTHONS["debian"]), str(COMMANDS["debian"])
    words = [python, "-", command, str(NET.parent), str(NET)]
    seen = seen_by(run_in_namespaces(words, script=CLEANUP, environment=ENVIRONMENT))
    routers, interfaces = seen["before"]
    assert routers == 1
    assert interfaces > 5
    # A bridge of `lxbr` is not among the links that Mininet removes.
    processes, left = seen["after"]
    assert processes == []
    assert [name for name in left if "-eth" in name or name.startswith("link")] == []


@pytest.mark.parametrize("source", SOURCES)
def test_mn_finds_the_link_with_its_keywords(source: str) -> None:
    custom = run_in_namespaces(
        [str(PYTHONS[source]), "-m", "sluice.mininet"], environment=ENVIRONMENT
    )
    words = [str(PYTHONS[source]), str(COMMANDS[source]), "--custom", custom.strip()]
    words += ["--topo", "linear,3", "--switch", "lxbr", "--controller", "none"]
    words += ["--link", "sluice,bw=10,delay=2ms,queue=fq_codel", "--test", "pingall"]
    said = run_in_namespaces(words, environment=ENVIRONMENT)
    assert "(10.00Mbit 2ms delay fq_codel)" in said
    assert "Results: 0% dropped (6/6 received)" in said


def test_the_interpreters_are_there() -> None:
    for path in [*PYTHONS.values(), *COMMANDS.values()]:
        assert path.is_file(), f"{path} is missing: scripts/setup.sh mininet"
    assert Path(sys.executable) != PYTHONS["debian"]
