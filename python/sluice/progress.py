"""Progress bars, in terminals and notebooks."""

import warnings
from typing import Any

from tqdm import TqdmWarning


def bar(**options: Any) -> Any:  # noqa: ANN401
    """Return a tqdm bar that suits the terminal or the notebook."""
    with warnings.catch_warnings():
        # In a notebook without ipywidgets the bar is plain text; that needs no warning.
        warnings.simplefilter("ignore", TqdmWarning)
        from tqdm.auto import tqdm
    return tqdm(**options)


class Stretch:
    """A bar over the virtual time of a run. It appears if the run takes longer than a second."""

    def __init__(self, duration_ns: int, name: str) -> None:
        """Prepare the bar of a run called `name`."""
        self._bar = bar(
            total=duration_ns / 1e9,
            desc=name,
            delay=1,
            leave=False,
            bar_format="{l_bar}{bar}| {n:.1f}/{total:.1f} s [{elapsed}<{remaining}]",
        )

    def __call__(self, done_ns: int) -> None:
        """Show how much of the run is done."""
        self._bar.update(done_ns / 1e9 - self._bar.n)

    def __enter__(self) -> "Stretch":
        """Return the bar itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the bar."""
        self._bar.close()
