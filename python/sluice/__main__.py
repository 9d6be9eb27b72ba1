"""Runs the `sluice` command in this process: `python3 -m sluice`, with queues in Python."""

import argparse
import math
import re
import sys
from collections.abc import Sequence
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from sluice import SluiceError, _command

if TYPE_CHECKING:
    from sluice import Sweep


def main(words: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status."""
    words = sys.argv[1:] if words is None else words
    if words and words[0] == "sweep":
        return _main_of_sweep(words)
    return _command.main(["sluice", *words])


def _main_of_sweep(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python3 -m sluice", allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True)
    of_sweep = commands.add_parser(
        "sweep", help="run a scenario over a grid of settings and seeds", allow_abbrev=False
    )
    option = of_sweep.add_argument
    option("scenario", metavar="FILE", help="scenario (TOML)")
    option(
        "--over",
        action="append",
        required=True,
        metavar="KEY=VALUES",
        help="values of a key: a list (link.queue=fifo,codel) or a range "
        "(link.rate=1..100Mbit/s:log:9, link.rtt=10..50ms:lin:5); several keys are crossed",
    )
    option(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override a key of the scenario",
    )
    option(
        "--seeds",
        type=int,
        default=1,
        metavar="N",
        help="runs of each combination, with consecutive seeds",
    )
    option("--jobs", type=int, metavar="N", help="number of processes [default: one per core]")
    option("--dask", metavar="ADDRESS", help="Dask scheduler whose workers do the runs")
    option(
        "--output",
        metavar="DIR",
        help="folder for the results; runs that it already has are not repeated "
        "[default: runs/NAME-sweep]",
    )
    option("--quiet", action="store_true", help="show no progress")
    options = parser.parse_args(words)
    try:
        return _sweep(options)
    except SluiceError as error:
        print(f"sluice: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("sluice: interrupted; the finished runs are kept", file=sys.stderr)
        return 130


def _sweep(options: argparse.Namespace) -> int:
    # Arrow is loaded for this command only.
    from sluice import Scenario, sweep

    scenario = Scenario(options.scenario, dict(_pair(word, "--set") for word in options.set))
    over = _over(options.over)
    out = Path(options.output or Path("runs") / f"{Path(options.scenario).stem}-sweep")
    common = {"seeds": options.seeds, "out": out, "progress": not options.quiet}
    if options.dask is None:
        done = sweep(scenario, over, jobs=options.jobs, **common)
    else:
        try:
            from distributed import Client
        except ModuleNotFoundError:
            raise SluiceError(
                "--dask needs the package `distributed`: pip install distributed"
            ) from None
        try:
            client = Client(options.dask)
        except (OSError, ValueError) as error:
            raise SluiceError(
                f"cannot reach the Dask scheduler `{options.dask}`: {error}"
            ) from None
        with client:
            done = sweep(scenario, over, executor=client, **common)
    return _say(done, out)


def _say(done: "Sweep", out: Path) -> int:
    failed = [row for row in done.runs.rows() if row["error"] is not None]
    for row in failed:
        settings = [f"{key}={row[key]}" for key in row if key not in ("status", "error", "key")]
        print(f"sluice: {', '.join(settings)}: {row['error']}", file=sys.stderr)
    print(f"{len(done)} runs, {done.found} reused, {len(failed)} failed: {out}")
    return 1 if failed else 0


def _over(words: Sequence[str]) -> dict[str, list[str]]:
    """Return the values of each key that `--over` gives."""
    over: dict[str, list[str]] = {}
    for word in words:
        key, text = _pair(word, "--over")
        if key in over:
            raise SluiceError(
                f"`--over {word}`: `{key}` is given twice; write all its values in one `--over`"
            )
        try:
            over[key] = values_of(text)
        except SluiceError as error:
            raise SluiceError(f"`--over {word}`: {error}") from None
    return over


def _pair(word: str, option: str) -> tuple[str, str]:
    key, is_there, value = word.partition("=")
    key = key.strip()
    if not is_there or not key:
        raise SluiceError(f"`{option} {word}`: write it as KEY=VALUE, such as link.rate=10Mbit/s")
    return key, value


def values_of(text: str) -> list[str]:
    """Parse the values of a key: `A,B,C`, `LOW..HIGH:log:N` or `LOW..HIGH:lin:N`.

    The low end has the unit of the high end unless it has its own. The ends are used as written.

    >>> values_of("fifo,codel target 10ms")
    ['fifo', 'codel target 10ms']
    >>> values_of("1..100Mbit/s:log:3"), values_of("5ms..20ms:lin:4")
    (['1Mbit/s', '10Mbit/s', '100Mbit/s'], ['5ms', '10ms', '15ms', '20ms'])

    Raises:
        SluiceError: the string has another form.

    """
    if RANGE.search(text) is None:
        listed = [value.strip() for value in text.split(",")]
        if "" in listed:
            raise SluiceError(f"`{text}` has an empty value: write a list such as fifo,codel")
        return listed
    form = re.fullmatch(rf"{NUMBER}{UNIT}\.\.{NUMBER}{UNIT}:(log|lin):(\d+)", text)
    if form is None:
        raise SluiceError(
            f"`{text}` is not a range: write it as LOW..HIGH:log:N or LOW..HIGH:lin:N, such as "
            "1..100Mbit/s:log:9"
        )
    low, low_unit, high, unit, spacing, count = form.groups()
    if low_unit not in ("", unit):
        raise SluiceError(f"`{text}`: both ends need one unit, not `{low_unit}` and `{unit}`")
    first, last, n = float(low), float(high), int(count)
    if n < 2:
        raise SluiceError(f"`{text}`: a range has at least 2 values, not {n}")
    if first == last:
        raise SluiceError(f"`{text}`: a range has two different ends; write `{low}{unit}` for one")
    if spacing == "log" and not (first > 0 and last > 0):
        raise SluiceError(f"`{text}`: the ends of a logarithmic range are above 0")
    exact = []
    for step in range(n):
        part = step / (n - 1)
        if spacing == "log":
            exact.append(math.exp(math.log(first) * (1 - part) + math.log(last) * part))
        else:
            exact.append(first * (1 - part) + last * part)
    # Rounding to four digits changes a value by less than the accuracy of any link. Values that are
    # close to each other need more, so that they stay in order and evenly spaced.
    most = min(abs(b - a) for a, b in pairwise(exact)) / 10
    for digits in range(4, 17):
        between = [_rounded(value, digits) for value in exact[1:-1]]
        pairs = zip(between, exact[1:-1], strict=True)
        if all(abs(float(number) - value) <= most for number, value in pairs):
            break
    return [f"{number}{unit}" for number in (low, *between, high)]


def _rounded(value: float, digits: int) -> str:
    """Format a number without an exponent. Whole numbers are exact."""
    whole = round(value)
    if math.isclose(value, whole, rel_tol=1e-9):
        return str(whole)
    return f"{Decimal(f'{value:.{digits}g}'):f}"


# Two points that are not those of a path such as `py:../my_aqm.py`.
RANGE = re.compile(r"(?<!/)\.\.(?!/)")
NUMBER = r"(\d+(?:\.\d+)?)"
UNIT = r"([A-Za-z/%]*)"

if __name__ == "__main__":
    sys.exit(main())
