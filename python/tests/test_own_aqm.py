"""Algorithms in Python under the commands that run on live packets, and a start of your own.

The commands are those of the package: `sluice` from pip.
"""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import sluice

ENVIRONMENT = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

OWN = """
import sluice

class Bound(sluice.Aqm):
    bound: sluice.Span = "50ms"

    def on_dequeue(self, packet, queue, cx):
        {body}
"""


def command(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run the package's command in a folder."""
    return subprocess.run(
        [sys.executable, "-m", "sluice", *words],
        cwd=folder,
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "own.py").write_text(
        OWN.format(body="return sluice.PASS if packet.sojourn_ns <= self.bound else sluice.DROP")
    )
    (tmp_path / "broken.py").write_text(OWN.format(body="raise RuntimeError('a wrong idea')"))
    return tmp_path


def test_a_start_of_your_own_passes_its_test_and_the_conformance_suite(tmp_path: Path) -> None:
    made = command(tmp_path, "new", "aqm", "my_aqm", "--lang", "py")
    assert made.returncode == 0, made.stderr
    # The line that it prints is what a new user runs.
    line = made.stdout.partition("test it with: ")[2].strip()
    assert line.startswith("cd my_aqm && ")
    tested = subprocess.run(
        ["sh", "-c", line], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True
    )
    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert "ok      conservation" in tested.stdout
    assert (tmp_path / "my_aqm" / "check.png").is_file()
    run = sluice.run(tmp_path / "my_aqm" / "scenario.toml", variant="py:my_aqm.py:MyAqm")
    assert run.cut_short is None
    assert (
        "exists; choose another name"
        in command(tmp_path, "new", "aqm", "my_aqm", "--lang", "py").stderr
    )


def test_a_start_of_your_own_works_in_a_folder_with_a_space(tmp_path: Path) -> None:
    home = tmp_path / "My Research"
    home.mkdir()
    made = command(home, "new", "aqm", "my_aqm", "--lang", "py")
    assert made.returncode == 0, made.stderr
    test = home / "my_aqm" / "test_my_aqm.py"
    for words in (["test_my_aqm.py"], [str(test)], ["-m", "pytest", "-q", str(test)]):
        tested = subprocess.run(
            [sys.executable, *words],
            cwd=tmp_path if "-m" in words else home / "my_aqm",
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
        )
        assert tested.returncode == 0, tested.stdout + tested.stderr


def test_no_start_of_your_own_has_the_name_of_a_module_of_python() -> None:
    root = Path(__file__).parents[2]
    refused = set((root / "crates/cli/src/new/aqm/modules.txt").read_text().split())
    possible = {name for name in sys.stdlib_module_names if re.fullmatch("[a-z][a-z0-9_]*", name)}
    assert possible <= refused


def test_a_router_checks_a_queue_in_python_with_its_parameters(folder: Path) -> None:
    config = folder / "r.conf"
    config.write_text("pipe 1 config bw 1Mbit/s py:own.py:Bound bound 20ms\n")
    done = command(folder, "router", "--check", "r.conf")
    assert done.returncode == 0, done.stderr
    # As in dummynet, an unknown word is warned of.
    config.write_text("pipe 1 config bw 1Mbit/s py:own.py:Bound bond 20ms\n")
    warned = command(folder, "router", "--check", "r.conf").stderr
    assert "r.conf:1:42: warning: `bond`" in warned
    assert "did you mean `bound`?" in warned
    # 0, if it were cut.
    config.write_text("pipe 1 config bw 1Mbit/s py:gain.py:Gain gain 1.25e-10\n")
    (folder / "gain.py").write_text(OWN.format(body="return 0").replace("Bound", "Gain"))
    with (folder / "gain.py").open("a") as file:
        file.write("    gain: float = 0.5\n")
    done = command(folder, "router", "--check", "r.conf")
    assert done.returncode != 0
    assert "`1.25e-10` for `gain`: needs more than the nine decimals" in done.stderr
    for words, message in [("gone.py", "No such file"), ("own.py:Gone", "the file has Bound")]:
        config.write_text(f"pipe 1 config bw 1Mbit/s py:{words}\n")
        done = command(folder, "router", "--check", "r.conf")
        assert done.returncode != 0
        assert "r.conf:1:26: " in done.stderr
        assert message in done.stderr


# The answer crosses the link, too.
PROGRAM = """
import socket
server = socket.create_connection(("server.sluice", 7))
server.sendall(b"hello")
print(server.makefile().read())
"""
SERVER = """
import socket
with socket.create_server(("", 7)) as server:
    peer = server.accept()[0]
    peer.sendall(peer.recv(5).upper())
"""


def test_a_program_runs_behind_a_queue_in_python(folder: Path) -> None:
    (folder / "server.py").write_text(SERVER)
    (folder / "program.py").write_text(PROGRAM)
    words = ["exec", "--rate", "10Mbit/s", "--rtt", "20ms", "--server"]
    words += [f"{sys.executable} server.py", "--queue"]
    program = ["--", sys.executable, "program.py"]
    done = command(folder, *words, "fq_py:own.py:Bound bound 20ms", *program)
    assert (done.returncode, done.stdout) == (0, "HELLO\n"), done.stderr
    # An error stops the queue, and the program goes on; or ends it, with a status of its own.
    done = command(folder, *words, "py:broken.py:Bound", *program)
    assert (done.returncode, done.stdout) == (0, "HELLO\n"), done.stderr
    assert "a wrong idea" in done.stderr
    done = command(folder, *words, "py:broken.py:Bound on_error end", *program)
    assert done.returncode == 70, done.stderr
    assert "sluice: the program was ended: `py:broken.py:Bound`" in done.stderr
    assert "a wrong idea" in done.stderr


# The packet does not leave the queue. The address is that of nobody (RFC 5737).
SENDS = """
import signal, socket, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("192.0.2.1", 9))
time.sleep({seconds})
print("ended", flush=True)
"""
ENDLESS = """
import sluice

class Endless(sluice.Aqm):
    def on_enqueue(self, packet, queue, cx):
        while True:
            pass
"""
HUNG = r"`py:endless\.py:Endless` has not returned from `on_enqueue` for [2-9] s"


def test_an_endless_loop_ends_with_the_program(folder: Path) -> None:
    (folder / "endless.py").write_text(ENDLESS)
    (folder / "program.py").write_text(SENDS.format(seconds=0))
    words = ["exec", "--rate", "10Mbit/s", "--queue", "py:endless.py:Endless"]
    program = ["--", sys.executable, "program.py"]
    # `command` gives up after 100 s.
    done = command(folder, *words, *program)
    assert (done.returncode, done.stdout) == (70, "ended\n"), done.stderr
    assert re.search(f"sluice: the link was ended: {HUNG}", done.stderr), done.stderr
    # What was recorded and captured until then is kept. A capture begins with these bytes.
    done = command(folder, *words, "--report", "out", "--pcapng", "out.pcapng", *program)
    assert (done.returncode, done.stdout) == (70, "ended\n"), done.stderr
    assert re.search(HUNG, (folder / "out" / "run.json").read_text())
    assert (folder / "out.pcapng").read_bytes().startswith(b"\x0a\x0d\x0d\x0a")


def test_the_second_signal_ends_a_program_behind_an_endless_loop(folder: Path) -> None:
    (folder / "endless.py").write_text(ENDLESS)
    (folder / "program.py").write_text(SENDS.format(seconds=600))
    words = ["exec", "--rate", "10Mbit/s", "--queue", "py:endless.py:Endless", "--"]
    process = subprocess.Popen(
        [sys.executable, "-m", "sluice", *words, sys.executable, "program.py"],
        cwd=folder,
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        said = ""
        while not re.search(f"sluice: {HUNG}; the second Ctrl-C", said):
            line = process.stderr.readline()
            assert line, said
            said += line
        # Two signals of different kinds: the kernel merges equal ones. The program ignores both.
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, out) == (70, ""), err
    assert re.search(f"sluice: the link was ended: {HUNG}", err), err


THREADS = """
import threading
import sluice

scenario = {
    "duration": "3s",
    "link": {"rate": "10Mbit/s", "queue": "py:own.py:Bound"},
    "flow": [{"type": "tcp"}],
}
begin, done = threading.Barrier(4), []

def work():
    begin.wait()
    done.append(sluice.run(scenario, progress=False).figure("tcp.goodput"))

threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert len(done) == 4 and len(set(done)) == 1, done
"""


def test_threads_can_name_the_same_algorithm_at_the_same_time(folder: Path) -> None:
    own = folder / "own.py"
    # The imports and the loop give other threads the interpreter while the file is loaded.
    own.write_text("import json, csv\nfor _ in range(10**6): pass\n" + own.read_text())
    done = subprocess.run(
        [sys.executable, "-c", THREADS],
        cwd=folder,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
