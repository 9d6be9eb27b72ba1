#!/usr/bin/env python3
"""Run real programs under `sluice exec` against servers that this script starts.

`scripts/test-programs.py SLUICE [NAME...]`. Servers listen on the loopback, which programs behind
the link find as `host.sluice`. All programs run as an ordinary user, uid 1000, if root starts this.
"""

import argparse
import contextlib
import functools
import http.server
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tarfile
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent
USER = 1000
# WebPageTest's 3G Fast: 1.6 Mbit/s down, 768 kbit/s up, 150 ms.
DOWN_BPS, UP_BPS, RTT_MS = 1_600_000, 768_000, 150
PICTURES, PICTURE_BYTES = 6, 40_000


class Site:
    """A folder that every user may read, with the command in it."""

    def __init__(self, sluice: str, folder: Path) -> None:
        """Copy the command, whose own folder may be closed to the user."""
        self.folder = folder
        folder.chmod(0o755)
        self.home = folder / "home"
        self.home.mkdir()
        self.sluice = shutil.copy(sluice, folder / "sluice")
        if os.getuid() == 0:
            os.chown(self.home, USER, USER)

    def run(self, options: list[str], program: list[str], is_user: bool = True) -> str:
        """Run a program behind a link. Return what it prints."""
        done = self.behind(options, program, is_user)
        if done.returncode != 0:
            raise SystemExit(
                f"test-programs: {program}: status {done.returncode}\n{done.stdout}{done.stderr}"
            )
        return done.stdout

    def behind(
        self, options: list[str], program: list[str], is_user: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a program behind a link as the user."""
        user: dict[str, Any] = {}
        if is_user and os.getuid() == 0:
            user = {"user": USER, "group": USER, "extra_groups": []}
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.home), "TMPDIR": str(self.home)}
        return subprocess.run(
            [str(self.sluice), "exec", *options, "--", *program],
            capture_output=True,
            text=True,
            cwd=self.home,
            env=environment,
            timeout=180,
            **user,
        )


@contextlib.contextmanager
def files(folder: Path) -> Iterator[int]:
    """Serve a folder over HTTP/1.1. Yield the port."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_words: object) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()


@contextlib.contextmanager
def node_servers() -> Iterator[dict[str, int]]:
    """Start the WebSocket and HTTP/2 servers. Yield their ports."""
    command = ["node", str(ROOT / "programs/servers.mjs")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield json.loads(server.stdout.readline())
        finally:
            server.kill()


def check(is_true: bool, what: str) -> None:
    """Fail with a message unless the condition is true."""
    if not is_true:
        raise SystemExit(f"test-programs: {what}")


def capabilities(site: Site) -> None:
    """Check programs of an ordinary user, which have no capability."""
    text = site.run([], ["cat", "/proc/self/status"])
    for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        check(f"{name}:\t0000000000000000" in text, f"{name} is not empty: {text}")
    if os.getuid() == 0:
        check(f"Uid:\t{USER}\t{USER}" in text, text)


def attach(site: Site) -> None:
    """Attach a link to a namespace that the user owns, and detach it."""
    script = str(shutil.copy(ROOT / "programs/container.sh", site.folder))
    user: dict[str, Any] = {}
    if os.getuid() == 0:
        user = {"user": USER, "group": USER, "extra_groups": []}
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--net", script, str(site.sluice)],
        capture_output=True,
        text=True,
        cwd=site.home,
        timeout=60,
        **user,
    )
    check(done.returncode == 0, f"{done.stdout}{done.stderr}")
    times = dict(line.split() for line in done.stdout.splitlines())
    check(float(times["attached"]) >= 100, str(times))
    check(float(times["before"]) < 50 and float(times["after"]) < 50, str(times))


def curl(site: Site) -> None:
    """Download with curl, and record the run."""
    (site.folder / "files").mkdir()
    (site.folder / "files/data").write_bytes(bytes(300_000))
    with files(site.folder / "files") as port:
        url = f"http://host.sluice:{port}/data"
        command = ["curl", "-sS", "-o", "data", "-w", "%{size_download} %{time_total}", url]
        text = site.run(["--link", "wpt/lte", "--report", "report"], command)
    size, took = text.split()
    check(int(size) == 300_000, text)
    # 300 kB at 12 Mbit/s after two round trips of 70 ms
    check(float(took) >= 0.14 + 300_000 * 8 / 12e6, f"curl took {took} s")
    run = json.loads((site.home / "report/run.json").read_text())
    names = [flow["name"] for flow in run["flows"]]
    check(names == [f"host.sluice:{port}"], str(names))
    check((site.home / "report/report.html").exists(), "there is no report")


def pip(site: Site) -> None:
    """Install a package with pip from a local index."""
    index = site.folder / "index/simple/tiny"
    index.mkdir(parents=True)
    source = site.folder / "tiny-1.0"
    source.mkdir()
    wheel = "tiny-1.0-py3-none-any.whl"
    contents = {
        "tiny.py": "ANSWER = 42\n",
        "tiny-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
        "tiny-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nTag: py3-none-any\n",
        "tiny-1.0.dist-info/RECORD": "",
    }
    with zipfile.ZipFile(index / wheel, "w") as archive:
        for name, text in contents.items():
            archive.writestr(name, text)
    (index / "index.html").write_text(f'<a href="{wheel}">{wheel}</a>')
    with files(site.folder / "index") as port:
        simple = f"http://host.sluice:{port}/simple"
        options = ["-q", "--target=site", "--disable-pip-version-check"]
        options += ["--trusted-host", "host.sluice", "-i", simple, "tiny"]
        # The user has no access to a Python in the caller's home.
        is_open = site.behind([], ["python3", "-m", "pip", "--version"]).returncode == 0
        python = "python3" if is_open else sys.executable
        site.run(["--link", "wpt/lte"], [python, "-m", "pip", "install", *options], is_open)
    check((site.home / "site/tiny.py").read_text() == "ANSWER = 42\n", "pip installed nothing")


def npm(site: Site) -> None:
    """Install a package with npm from a local archive."""
    packages = site.folder / "packages"
    source = packages / "package"
    source.mkdir(parents=True)
    (source / "package.json").write_text('{"name": "tiny", "version": "1.0.0"}')
    with tarfile.open(packages / "tiny.tgz", "w:gz") as archive:
        archive.add(source, "package")
    with files(packages) as port:
        command = [
            "npm",
            "install",
            "--no-audit",
            "--no-fund",
            f"http://host.sluice:{port}/tiny.tgz",
        ]
        site.run(["--link", "wpt/lte"], command)
    check((site.home / "node_modules/tiny/package.json").exists(), "npm installed nothing")


def git(site: Site) -> None:
    """Clone with git from a local daemon."""
    repositories = site.folder / "repositories"
    source = repositories / "tiny"
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    subprocess.run(["git", "init", "-q", str(source)], check=True)
    subprocess.run(
        ["git", *identity, "-C", str(source), "commit", "-q", "--allow-empty", "-m", "first"],
        check=True,
    )
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    daemon = [
        "git",
        "daemon",
        "--export-all",
        "--listen=127.0.0.1",
        f"--port={port}",
        "--reuseaddr",
    ]
    daemon.append(f"--base-path={repositories}")
    environment = {**os.environ, "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory"}
    environment["GIT_CONFIG_VALUE_0"] = "*"
    with subprocess.Popen(daemon, env=environment, stderr=subprocess.DEVNULL) as server:
        try:
            wait_for_port(port)
            command = ["git", "clone", "-q", f"git://host.sluice:{port}/tiny", "clone"]
            site.run(["--link", "wpt/lte"], command)
        finally:
            server.terminate()
    check((site.home / "clone/.git/HEAD").exists(), "git cloned nothing")


def wait_for_port(port: int) -> None:
    """Wait until something listens."""
    for _ in range(200):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        threading.Event().wait(0.05)
    raise SystemExit(f"test-programs: nothing listens on port {port}")


def websocket(site: Site) -> None:
    """Exchange messages over a WebSocket: each takes a round trip."""
    script = str(shutil.copy(ROOT / "programs/servers.mjs", site.folder))
    with node_servers() as ports:
        url = f"http://host.sluice:{ports['websocket']}/"
        text = site.run(["--rtt", "50ms"], ["node", script, "client", url, "20"])
    times = json.loads(text)
    check(len(times) == 20 and min(times) >= 50, f"round trips of {times} ms")
    check(statistics.median(times) < 100, f"round trips of {times} ms")


def http2(site: Site) -> None:
    """Read a stream of HTTP/2."""
    with node_servers() as ports:
        url = f"http://host.sluice:{ports['http2']}/"
        command = ["curl", "-sS", "--http2-prior-knowledge", "-w", "%{http_version}", url]
        text = site.run(["--link", "3g"], command)
    expected = "".join(f"{number}\n" for number in range(1, 11)) + "2"
    check(text == expected, f"curl printed {text!r}")


def udp(site: Site) -> None:
    """Exchange datagrams with a server on the loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))

        def echo() -> None:
            with contextlib.suppress(OSError):
                while True:
                    data, sender = server.recvfrom(2048)
                    server.sendto(data, sender)

        threading.Thread(target=echo, daemon=True).start()
        client = (
            "import socket, sys, time\n"
            "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(10)\n"
            "s.connect(('host.sluice', int(sys.argv[1])))\n"
            "for number in range(10):\n"
            "    start = time.monotonic(); s.send(b'%d' % number)\n"
            "    assert s.recv(100) == b'%d' % number\n"
            "    print(time.monotonic() - start)\n"
        )
        command = ["python3", "-c", client, str(server.getsockname()[1])]
        times = [float(line) for line in site.run(["--rtt", "50ms"], command).split()]
    check(len(times) == 10 and min(times) >= 0.05, f"round trips of {times} s")


def only_ipv6(site: Site) -> None:
    """Reach a server that listens on ::1 only."""
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:

        def greet() -> None:
            with contextlib.suppress(OSError):
                while True:
                    stream, _ = server.accept()
                    with stream:
                        stream.recv(1000)
                        stream.sendall(b"HTTP/1.0 200 OK\r\n\r\nsix\n")

        threading.Thread(target=greet, daemon=True).start()
        url = f"http://host.sluice:{server.getsockname()[1]}/"
        text = site.run(["--link", "lte"], ["curl", "-sS", url])
    check(text == "six\n", f"curl printed {text!r}")


def browser(site: Site) -> None:
    """Load a page in Chromium, and compare with the browser's own throttling."""
    folder = site.folder / "page"
    folder.mkdir()
    for number in range(PICTURES):
        (folder / f"{number}.js").write_bytes(b"//" + bytes([120]) * (PICTURE_BYTES - 2))
    tags = "".join(f'<script src="{number}.js"></script>' for number in range(PICTURES))
    (folder / "index.html").write_text(f"<!doctype html><title>page</title>{tags}")
    program = ["node", str(ROOT / "programs/browser.mjs")]
    rows = {}
    with files(folder) as port:
        throttled = subprocess.run(
            [*program, f"http://127.0.0.1:{port}/", str(DOWN_BPS), str(UP_BPS), str(RTT_MS)],
            capture_output=True,
            text=True,
            timeout=180,
            check=True,
        )
        rows["throttling"] = json.loads(throttled.stdout)
        # The user may have no access to the repository, so this runs as the caller.
        link = [str(site.sluice), "exec", "--link", "wpt/3g-fast", "--"]
        behind = subprocess.run(
            [*link, *program, f"http://host.sluice:{port}/"],
            capture_output=True,
            text=True,
            timeout=180,
        )
        check(behind.returncode == 0, f"browser: {behind.stdout}{behind.stderr}")
        rows["sluice exec"] = json.loads(behind.stdout)
    for name, times in rows.items():
        words = ("connect", "firstByte", "document", "load")
        print(f"  {name:12}", ", ".join(f"{word} {times[word]:.0f} ms" for word in words))
    own = rows["sluice exec"]
    check(own["resources"] == PICTURES, str(own))
    # Chromium may begin to connect before the page's own clock starts. A request and its answer
    # take one round trip; the page takes its transmission time at 1.6 Mbit/s.
    check(own["firstByte"] >= RTT_MS, str(own))
    sending = PICTURES * PICTURE_BYTES * 8e3 / DOWN_BPS
    check(own["load"] >= RTT_MS + sending, f"{own['load']} ms, sent in {sending} ms")
    check(own["load"] <= 3 * (2 * RTT_MS + sending), f"{own['load']} ms, sent in {sending} ms")


PROGRAMS: list[Callable[[Site], None]] = [
    capabilities,
    attach,
    curl,
    pip,
    npm,
    git,
    websocket,
    http2,
    udp,
    only_ipv6,
    browser,
]


def main() -> int:
    """Run the programs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("sluice", help="the command")
    parser.add_argument("names", nargs="*", metavar="NAME", help="programs [default: all]")
    args = parser.parse_args()
    for program in PROGRAMS:
        if args.names and program.__name__ not in args.names:
            continue
        print(f"{program.__name__}: {program.__doc__}", flush=True)
        with tempfile.TemporaryDirectory(prefix="sluice-programs-") as folder:
            program(Site(args.sluice, Path(folder)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
