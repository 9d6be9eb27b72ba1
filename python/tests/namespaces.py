"""Run a script in network, mount and process namespaces of its own."""

import os
import subprocess
from collections.abc import Mapping, Sequence

# `ip netns` keeps its names in /run, and Mininet's cleanup removes files of /tmp.
ENTER = 'mount -t tmpfs none /run && mount -t tmpfs none /tmp && ip link set lo up && exec "$@"'


def run_in_namespaces(
    words: Sequence[str], *, script: str = "", environment: Mapping[str, str] | None = None
) -> str:
    """Run `words` with `script` as input; return the output, including errors."""
    own = ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if os.geteuid() != 0:
        own += ["--user", "--map-root-user"]
    done = subprocess.run(
        [*own, "sh", "-c", ENTER, "sh", *words],
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
