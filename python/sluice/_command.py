"""The `sluice` command that `pip install` adds."""

import os
import signal
import sys
from collections.abc import Sequence

from sluice import _sluice


def main(words: Sequence[str] | None = None) -> int:
    """Carry out a command line, by default that of this process; return its exit status."""
    # As in the program: without a handler of its own, a command ends on Ctrl-C.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # `sluice sweep` starts the interpreter that has this package.
    os.environ.setdefault("SLUICE_PYTHON", sys.executable)
    return _sluice.command(sys.argv if words is None else words)
