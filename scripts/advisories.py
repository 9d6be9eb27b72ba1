"""Known weaknesses of crates: the table `advisories.toml`, and versions that are locked.

The facts come from the RustSec advisory database (<https://rustsec.org>), which is in the public
domain (CC0). `update-advisories.py` writes the table from a copy of that database.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path

ROOT = Path(__file__).parent.parent
TABLE = ROOT / "scripts/advisories.toml"
LOCKS = [ROOT / "Cargo.lock", ROOT / "models/Cargo.lock", ROOT / "sdk/rust/Cargo.lock"]
# Advisories that concern a locked version and are no reason to replace it, each with its reason.
ACCEPTED = {
    "RUSTSEC-2026-0192": "ttf-parser is unmaintained, and plotters needs it through ab_glyph; it "
    "reads the program's own fonts and, if the user names one, those of the machine",
}

Numbers = tuple[int, ...]
# The numbers, then the parts of the pre-release. The version itself follows all its pre-releases.
Version = tuple[Numbers, tuple[tuple[int, int, str], ...]]
RELEASE = ((2, 0, ""),)
VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?")
COMPARATOR = re.compile(
    r"(\^|~|=|>=|<=|>|<|)\s*(\d+)(?:\.(\d+)(?:\.(\d+)(?:-([0-9A-Za-z.-]+))?)?)?"
    r"(?:\+[0-9A-Za-z.-]+)?"
)
WILDCARD = re.compile(r"(\d+(?:\.\d+)?)(?:\.[*xX]){1,2}")


@dataclass(frozen=True)
class Advisory:
    """The facts of one advisory."""

    id: str
    crate: str
    kind: str
    patched: list[str]
    unaffected: list[str]

    def concerns(self, version: str) -> bool:
        """Whether this version is neither patched nor unaffected."""
        return not any(matches(one, version) for one in self.patched + self.unaffected)


def parts_of(pre_release: str | None) -> tuple[tuple[int, int, str], ...]:
    """Return the parts of a pre-release by their precedence: numbers come before words."""
    if pre_release is None:
        return RELEASE
    parts = pre_release.split(".")
    return tuple((0, int(one), "") if one.isdecimal() else (1, 0, one) for one in parts)


def version_of(text: str) -> Version:
    """Read a full version. What follows a `+` has no precedence."""
    found = VERSION.fullmatch(text)
    if not found:
        raise ValueError(f"`{text}` is not a version such as 1.2.3")
    major, minor, patch, pre_release = found.groups()
    return (int(major), int(minor), int(patch)), parts_of(pre_release)


def lowest(numbers: Numbers) -> Version:
    """Return the version of these numbers, with zeros for those that are not given."""
    return numbers + (0,) * (3 - len(numbers)), RELEASE


def after(numbers: Numbers) -> Version:
    """Return the first version that no longer begins with these numbers."""
    return lowest((*numbers[:-1], numbers[-1] + 1))


def holds(operator: str, given: Numbers, pre_release: str | None, version: Version) -> bool:
    """Whether a version meets one comparator of Cargo's requirements."""
    low = lowest(given)[0], parts_of(pre_release)
    # `= 1.2`, `> 1.2` and `<= 1.2` mean all versions that begin with 1.2.
    part = len(given) < 3
    match operator:
        case ">=":
            return version >= low
        case "<":
            return version < low
        case ">":
            return version >= after(given) if part else version > low
        case "<=":
            return version < after(given) if part else version <= low
        case "=":
            return low <= version < after(given) if part else version == low
        case "~":
            return low <= version < after(given[:2])
    # A caret: the first number that is not zero stays.
    fixed = next((i for i, number in enumerate(given) if number), len(given) - 1)
    return low <= version < after(given[: fixed + 1])


def matches(requirement: str, text: str) -> bool:
    """Whether a version meets a requirement by Cargo's rules.

    A pre-release only meets a requirement that names a pre-release of the same version.
    """
    version = version_of(text)
    named = version[1] == RELEASE
    for comparator in map(str.strip, requirement.split(",")):
        if comparator == "*":
            continue
        comparator = WILDCARD.sub(r"= \1", comparator)
        found = COMPARATOR.fullmatch(comparator)
        if not found:
            raise ValueError(f"`{requirement}` is not a requirement such as >= 1.2, < 2")
        operator, *numbers, pre_release = found.groups()
        given = tuple(int(one) for one in numbers if one is not None)
        if not holds(operator, given, pre_release, version):
            return False
        named |= pre_release is not None and given == version[0]
    return named


def read_table(path: Path = TABLE) -> list[Advisory]:
    """Read the table."""
    return [Advisory(**one) for one in tomllib.loads(path.read_text())["advisory"]]


def table_date(path: Path = TABLE) -> date:
    """Return the day of the database from which the table was written."""
    day: date = tomllib.loads(path.read_text())["date"]
    return day


def locked(paths: Iterable[Path] = LOCKS) -> set[tuple[str, str]]:
    """Read the names and versions of all crates that come from a registry."""
    packages = [one for path in paths for one in tomllib.loads(path.read_text())["package"]]
    return {(one["name"], one["version"]) for one in packages if "source" in one}


def faults(
    crates: Iterable[tuple[str, str]],
    table: Iterable[Advisory],
    accepted: Mapping[str, str] = ACCEPTED,
) -> list[str]:
    """Return a line for each advisory that concerns a locked version, or is accepted needlessly."""
    lines = []
    concerned = set()
    crates = sorted(crates)
    for advisory in table:
        for name, version in crates:
            if name != advisory.crate or not advisory.concerns(version):
                continue
            concerned.add(advisory.id)
            patched = " or ".join(advisory.patched) or "no version"
            if advisory.id not in accepted:
                known = f"{advisory.id} ({advisory.kind})"
                lines.append(f"{name} {version} is concerned by {known}; patched: {patched}")
    for unused in sorted(set(accepted) - concerned):
        lines.append(f"{unused} is in ACCEPTED, but concerns no locked version")
    return lines
