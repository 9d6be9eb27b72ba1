#!/usr/bin/env python3
"""Starts the systemd unit under a systemd of its own: `test-unit.py SLUICE`. Needs root.

A `systemd --user` runs in namespaces that belong to this process and vanish with it; it touches
neither the machine's services nor its interfaces. The unit is that of the packages. Only its paths,
which are those of an installed system, are replaced, and so are the name of its user and what a
user's manager cannot do.

The router must start, reload, live longer than its watchdog allows without a sign of life, start
again after `kill -9` and after it was stopped for so long that the watchdog ends it, end in
order, and start when an interface appears late.
"""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

UNIT = Path(__file__).parent.parent / "packaging/sluice-router@.service"
NAME = "sluice-router@test.service"
# Not below /run/user, which the unit cannot see.
RUN = Path("/run/manager")
HOME = Path("/run/home")
LOG = Path("/run/log")
# What differs on a machine on which Sluice is not installed.
PLACES = {
    "/usr/bin/sluice ": "{sluice} ",
    "/etc/sluice/": f"{HOME}/",
    # A manager of a user has its own runtime folder.
    "/run/sluice-%i": "%t/sluice-%i",
    # The user of the package need not exist here.
    "--user sluice ": "--user nobody ",
}


EM0 = "ip link add em0 type veth peer name far0"


def main() -> int:
    """Move into namespaces of our own, start systemd, and use the unit."""
    if len(sys.argv) == 2:
        if os.geteuid() != 0:
            raise SystemExit("test-unit.py: only root can run the unit")
        apart = "unshare --mount --pid --net --fork --mount-proc --kill-child".split()
        words = [*apart, sys.executable, __file__, str(Path(sys.argv[1]).resolve()), "inside"]
        return subprocess.run(words, check=False).returncode
    prepare(sys.argv[1])
    words = ["/lib/systemd/systemd", "--user", "--log-target=console"]
    with LOG.open("ab") as log:
        manager = subprocess.Popen(words, stdout=log, stderr=log)
        try:
            use()
        except AssertionError:
            log.flush()
            for words in (("status", NAME), ("show", "--property=ExecMainStatus", NAME)):
                print(systemctl(*words, may_fail=True), file=sys.stderr)
            print(LOG.read_text(), file=sys.stderr)
            raise
        finally:
            manager.kill()
    return 0


def prepare(sluice: str) -> None:
    """Write what an administrator would write, and create two interfaces."""
    for words in ("mount -t tmpfs none /run", EM0, "ip link add em1 type veth peer name far1"):
        subprocess.run(words.split(), check=True)
    # systemd asks for this folder whether the machine runs systemd.
    for folder in (RUN, Path("/run/systemd/system"), HOME / ".config/systemd/user"):
        folder.mkdir(parents=True)
    text = UNIT.read_text()
    for old, new in PLACES.items():
        assert old in text, old
        text = text.replace(old, new.format(sluice=sluice))
    (HOME / ".config/systemd/user/sluice-router@.service").write_text(text)
    # There is no journal, and only a system's manager can hide single files.
    more = HOME / ".config/systemd/user/sluice-router@.service.d/output.conf"
    more.parent.mkdir()
    more.write_text(
        f"[Service]\nStandardError=append:{LOG}\nProtectHome=no\nProtectKernelLogs=no\n"
    )
    (HOME / "test.env").write_text('PORTS="em0 em1"\nOPTIONS=""\n')
    configure("10Mbit/s")
    os.environ.update(XDG_RUNTIME_DIR=str(RUN), HOME=str(HOME), SLUICE=sluice)
    os.environ.pop("DBUS_SESSION_BUS_ADDRESS", None)


def use() -> None:
    """Do with the unit what an administrator does, and what can happen to it."""
    until(lambda: "Version" in systemctl("show", may_fail=True), "systemd answers")
    # To a system's manager, every user may send messages. Here, the router's has to as well.
    (RUN / "systemd/notify").chmod(0o666)
    start = time.monotonic()
    systemctl("start", NAME)
    first = process()
    said("started", start)
    status = Path(f"/proc/{first}/status").read_text()
    assert f"\nUid:\t{pwd.getpwnam('nobody').pw_uid}\t" in status, "the process is still root's"
    assert "10.000 Mbit/s" in pipes()
    configure("20Mbit/s")
    systemctl("reload", NAME)
    assert "20.000 Mbit/s" in pipes()
    # The watchdog allows 2 s without a sign of life.
    time.sleep(5)
    assert process() == first, "the watchdog has ended a router that lives"
    for number, (what, signal) in enumerate((("kill -9", "KILL"), ("a hung router", "STOP")), 1):
        before, start = process(), time.monotonic()
        subprocess.run(["kill", f"-{signal}", before], check=True)
        until(lambda before=before: process() not in ("0", before) and is_active(), "it is back")
        said(f"forwards again after {what}", start)
        assert shown("NRestarts") == str(number)
        assert "20.000 Mbit/s" in pipes()
    start = time.monotonic()
    systemctl("stop", NAME)
    said("stopped", start)
    assert (shown("ActiveState"), shown("Result")) == ("inactive", "success")
    # An interface that is missing at boot: systemd would give up after five attempts by default.
    subprocess.run("ip link del em0".split(), check=True)
    systemctl("start", "--no-block", NAME)
    until(lambda: int(shown("NRestarts")) > 10, "the router is tried again and again")
    start = time.monotonic()
    subprocess.run(EM0.split(), check=True)
    until(is_active, "the router starts with its late interface")
    said("started after an interface appeared", start)


def configure(rate: str) -> None:
    """Write a configuration with one pipe."""
    (HOME / "test.conf").write_text(f"pipe 1 config bw {rate}\nadd pipe 1 ip from any to any\n")


def pipes() -> str:
    """Return what the router says of its pipes."""
    environment = {**os.environ, "SLUICE_SOCKET": str(RUN / "sluice-test/sluice.sock")}
    words = [os.environ["SLUICE"], "ipfw", "pipe", "show"]
    done = subprocess.run(words, env=environment, check=True, capture_output=True, text=True)
    return done.stdout


def systemctl(*words: str, may_fail: bool = False) -> str:
    """Ask our systemd."""
    done = subprocess.run(["systemctl", "--user", *words], capture_output=True, text=True)
    assert may_fail or done.returncode == 0, f"systemctl {words}: {done.stdout}{done.stderr}"
    return done.stdout


def shown(name: str) -> str:
    """Return a property of the unit."""
    return systemctl("show", f"--property={name}", "--value", NAME).strip()


def process() -> str:
    """Return the number of the router's process, or 0."""
    return shown("MainPID")


def is_active() -> bool:
    """Whether the router has said that it is ready."""
    return shown("ActiveState") == "active"


def until(is_so: Callable[[], bool], what: str) -> None:
    """Wait until something holds, for at most 20 s."""
    end = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < end, f"not within 20 s: {what}"
        time.sleep(0.02)


def said(what: str, start: float) -> None:
    """Print how long it took."""
    print(f"{what}: {time.monotonic() - start:.2f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
