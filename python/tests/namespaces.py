"""Run a script in network, mount and process namespaces of its own."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

# `ip netns` keeps its names in /run, and Mininet's cleanup removes files of /tmp. A checkout in
# /tmp stays visible.
ENTER = """
set -e
root=$1; shift
mount -t tmpfs none /run
mkdir /run/checkout
mount --bind "$root" /run/checkout
mount -t tmpfs none /tmp
case $root in
/tmp/*) mkdir -p "$root"; mount --bind /run/checkout "$root"; cd "$root" ;;
esac
ip link set lo up
exec "$@"
"""
ROOT = Path(__file__).parents[2]


def run_in_namespaces(
    words: Sequence[str], *, script: str = "", environment: Mapping[str, str] | None = None
) -> str:
    """Run `words` with `script` as input; return the output, including errors."""
    own = ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if os.geteuid() != 0:
        own += ["--user", "--map-root-user"]
    done = subprocess.run(
        [*own, "sh", "-c", ENTER, "sh", str(ROOT), *words],
        input=script,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        env={**os.environ, **(environment or {})},
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout
