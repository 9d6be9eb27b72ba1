"""Scenarios from a file, a dictionary or another scenario, with overrides."""

import copy
import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import tomli_w

from sluice import _sluice
from sluice._sluice import SluiceError


class Scenario:
    """An experiment: a scenario file, or a dictionary with the same keys.

    `overrides` maps keys to values, as `--set KEY=VALUE` does: `{"link.rate": "5Mbit/s"}`. Mistakes
    are reported when the scenario is resolved, with the message and the place that the command line
    prints.

    >>> scenario = Scenario({"duration": "5s", "link": {"rate": "10Mbit/s"},
    ...                      "flow": [{"type": "tcp"}]})
    >>> scenario.set("link.queue", "codel").variants
    ['codel']

    Raises:
        SluiceError: the file cannot be read.

    """

    def __init__(
        self,
        source: "str | PathLike[str] | Mapping[str, Any] | Scenario",
        overrides: Mapping[str, Any] | None = None,
    ) -> None:
        """Read the scenario from a path, a dictionary or another scenario."""
        self.name: str
        self.text: str
        self._sets: dict[str, str] = {}
        if isinstance(source, Scenario):
            self.name, self.text, self._sets = source.name, source.text, dict(source._sets)
        elif isinstance(source, Mapping):
            self.name, self.text = "scenario", _to_toml(source)
        else:
            self.name = str(source)
            try:
                self.text = Path(source).read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                reason = error.strerror if isinstance(error, OSError) else str(error)
                raise SluiceError(f"cannot read the scenario `{self.name}`: {reason}") from None
        for key, value in (overrides or {}).items():
            self._sets = _with(self._sets, key, value)

    def set(self, key: str, value: object) -> "Scenario":
        """Return a copy with one more override, which counts more than earlier ones."""
        changed = copy.copy(self)
        changed._sets = _with(self._sets, key, value)
        return changed

    @property
    def variants(self) -> list[str]:
        """The names of the variants: one, or the combinations of the matrix."""
        return [variant.name for variant in self._all()]

    def resolve(self) -> list[tuple[str, str]]:
        """Return each variant as `(name, TOML text with all defaults)`.

        Raises:
            SluiceError: everything that is wrong in the scenario and the overrides.

        """
        return [(variant.name, variant.text) for variant in self._all()]

    def _all(self) -> list[_sluice.Variant]:
        sets = [f"{key}={value}" for key, value in self._sets.items()]
        return _sluice.variants(self.name, self.text, sets)

    def one(self, variant: str | None = None) -> tuple[str, str]:
        """Return the variant called `variant`, or the only one.

        Raises:
            SluiceError: there is no such variant, or there are several.

        """
        found = choose(self, variant)
        return found.name, found.text

    def __repr__(self) -> str:
        """Name the source and the overrides."""
        return f"Scenario({self.name!r}, {self._sets!r})"


def choose(scenario: Scenario, variant: str | None) -> _sluice.Variant:
    """Return the variant of `scenario` called `variant`, or the only one.

    Raises:
        SluiceError: there is no such variant, or there are several.

    """
    variants = scenario._all()
    names = ", ".join(found.name for found in variants)
    if variant is None:
        if len(variants) > 1:
            raise SluiceError(
                f"`{scenario.name}` has {len(variants)} variants: {names}; choose one with "
                "`variant`, set the key of its matrix, or run all with `sluice.sweep`"
            )
        return variants[0]
    for found in variants:
        if found.name == variant:
            return found
    raise SluiceError(f"`{scenario.name}` has no variant `{variant}`; one of: {names}")


def _with(sets: dict[str, str], key: str, value: object) -> dict[str, str]:
    # Of `link.queue` and `link.up.queue`, the later one counts.
    return {**{name: text for name, text in sets.items() if name != key}, key: word(value)}


def word(value: object) -> str:
    """Format a value as after `--set KEY=`: a string as it is, anything else as TOML.

    >>> word("10Mbit/s"), word(True), word(["fifo", "codel"]), word({"a": 1})
    ('10Mbit/s', 'true', '["fifo", "codel"]', '{"a" = 1}')
    """
    return value if isinstance(value, str) else _inline(value)


def _inline(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Mapping):
        pairs = (f"{json.dumps(str(key))} = {_inline(item)}" for key, item in value.items())
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_inline, value)) + "]"
    if isinstance(value, type):
        raise SluiceError(
            f"`{value.__name__}` is a class; name it by its file, as in "
            f"`py:my_aqm.py:{value.__name__}` (in a notebook, `%%writefile my_aqm.py` writes a "
            "cell to a file)"
        )
    # NumPy's values print like Python's.
    text = str(value)
    return text.lower() if text in ("True", "False") else text


def _to_toml(tree: Mapping[str, Any]) -> str:
    try:
        return tomli_w.dumps(tree)
    except TypeError as error:
        raise SluiceError(f"a value of the scenario cannot be written as TOML: {error}") from None
