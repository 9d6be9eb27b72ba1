"""The `sluice` command that `pip install` adds."""

import os
import signal
import sys
from collections.abc import Sequence

from sluice import _sluice


def main(words: Sequence[str] | None = None) -> int:
    """Run a command line, by default that of this process, and return its exit status."""
    # As in the program, Ctrl-C ends a command that installs no handler.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # `sluice sweep` starts this interpreter, which has the package.
    os.environ.setdefault("SLUICE_PYTHON", sys.executable)
    return _sluice.command(sys.argv if words is None else words, _sluice.__file__)
