"""Packages of npm and PyPI that this tree pins: licences, sources, duplicates, known weaknesses.

Nothing is asked of a server. Licences are those in `web/package-lock.json` and in the metadata of
the packages that `scripts/setup.sh python` has installed.
"""

import json
import re
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs/explanation/dependencies.md"
NPM = ROOT / "web/package-lock.json"
PYPI = ROOT / "python/requirements-dev.lock"
TABLE = ROOT / "scripts/advisories-packages.toml"
REGISTRY = "https://registry.npmjs.org/"
# Licences of packages that only build or test this tree, beside those of crates: nothing of such a
# package is in what is distributed.
TOOLS_ONLY = {
    "ISC": "pexpect and ptyprocess, of the tests of notebooks",
    "MIT-CMU": "pillow, of matplotlib",
    "MPL-2.0": "pathspec, of mypy; tqdm in part, which is installed beside this program, unchanged",
    "PSF-2.0": "matplotlib, typing_extensions",
}
# What packages of Python without an SPDX expression write.
SPDX = {
    "Apache 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD": "BSD-3-Clause",
    "BSD License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}

Allowed = Callable[[str, Iterable[str]], bool]


@dataclass(frozen=True)
class Package:
    """A locked package."""

    name: str
    version: str
    licence: str | None
    # Whether a part of it is in what this tree distributes.
    is_distributed: bool


def normal(name: str) -> str:
    """Return a name of PyPI as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def npm(lock: Mapping[str, object]) -> tuple[list[Package], list[str]]:
    """Return the packages of a package-lock.json, and what is wrong with their sources."""
    packages, wrong = [], []
    for path, one in lock["packages"].items():
        if not path:
            continue
        name, version = path.split("node_modules/")[-1], str(one.get("version"))
        packages.append(Package(name, version, one.get("license"), not one.get("dev", False)))
        if not str(one.get("integrity", "")).startswith("sha512-"):
            wrong.append(f"npm: {name} {version} has no checksum (sha512) in the lock file")
        if not one.get("resolved", REGISTRY).startswith(REGISTRY):
            wrong.append(f"npm: {name} {version} comes from {one['resolved']}, not from {REGISTRY}")
    return packages, wrong


def pinned(lock: str) -> list[tuple[str, str]]:
    """Return the names and versions of a list of requirements, each of which must be exact."""
    lines = [line.strip() for line in lock.splitlines()]
    pins = [line.split("==") for line in lines if line and not line.startswith("#")]
    if unclear := ["==".join(pin) for pin in pins if len(pin) != 2]:
        raise ValueError(f"`{unclear[0]}` is not a requirement such as name==1.2.3")
    return [(name, version) for name, version in pins]


def licence_of(package: Distribution) -> str | None:
    """Return the licence in a package's metadata: its expression, its classifiers, or its text."""
    meta = package.metadata
    if expression := meta["License-Expression"]:
        return expression
    marks = [one for one in meta.get_all("Classifier", []) if one.startswith("License :: ")]
    names = [mark.split(" :: ")[-1] for mark in marks]
    names = [name for name in names if name != "OSI Approved"]
    if not names and meta["License"]:
        names = [meta["License"].splitlines()[0].strip()]
    return " AND ".join(SPDX.get(name, name) for name in names) or None


def pypi(
    pins: Iterable[tuple[str, str]], installed: Iterable[Distribution]
) -> tuple[list[Package], list[str]]:
    """Return the pinned packages, and those whose licence cannot be read."""
    found = {normal(one.metadata["Name"]): one for one in installed}
    packages, wrong = [], []
    for name, version in pins:
        package = found.get(normal(name))
        if package is None or package.version != version:
            is_there = package.version if package else "not installed"
            wrong.append(
                f"PyPI: {name} is locked as {version}, but is {is_there}: scripts/setup.sh python"
            )
            continue
        packages.append(Package(name, version, licence_of(package), False))
    return packages, wrong


def faults_of(where: str, packages: list[Package], is_allowed: Allowed) -> list[str]:
    """Return a line for each licence that is not allowed and each package in two versions."""
    wrong = []
    versions = defaultdict(set)
    for one in packages:
        versions[normal(one.name)].add(one.version)
        more = () if one.is_distributed else TOOLS_ONLY
        if not one.licence or not is_allowed(one.licence, more):
            wrong.append(
                f"{where}: {one.name} {one.version} has the licence {one.licence}, which is not "
                "allowed"
            )
    for name, found in sorted(versions.items()):
        if len(found) > 1:
            wrong.append(f"{where}: {name} is there as {' and '.join(sorted(found))}")
    return wrong


def numbers(version: str) -> tuple[int, ...]:
    """Return the numbers with which a version begins."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    if not found:
        raise ValueError(f"`{version}` is not a version such as 1.2.3")
    parts = tuple(int(one) for one in found[0].split("."))
    return parts + (0,) * (6 - len(parts))


def weaknesses(where: str, packages: list[Package], table: Path = TABLE) -> list[str]:
    """Return a line for each advisory of the table that concerns a locked version."""
    wrong = []
    for advisory in tomllib.loads(table.read_text())["advisory"]:
        if advisory["registry"] != where:
            continue
        first, patched = numbers(advisory["first"]), numbers(advisory["patched"])
        for one in packages:
            is_it = normal(one.name) == normal(advisory["package"])
            if is_it and first <= numbers(one.version) < patched:
                wrong.append(
                    f"{where}: {one.name} {one.version} is concerned by {advisory['id']}; patched: "
                    f"{advisory['patched']}"
                )
    return wrong


def pins_of_the_project(lock: Mapping[str, str]) -> list[str]:
    """Return a line for each exact version of pyproject.toml that the lock file does not have."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    named = project["build-system"]["requires"] + project["project"]["optional-dependencies"]["dev"]
    wrong = []
    for name, version in (one.split("==") for one in named):
        if lock.get(normal(name)) != version:
            wrong.append(f"PyPI: pyproject.toml has {name}=={version}, the lock file another one")
    return wrong


def not_on_the_page() -> list[str]:
    """Return a line for each package named by this tree that the page does not name."""
    page = PAGE.read_text().lower()
    web = json.loads((ROOT / "web/package.json").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [*web["dependencies"], *web["devDependencies"], *project["dependencies"]]
    for group in project["optional-dependencies"].values():
        named += group
    names = {re.split(r"[=<>]", one)[0].split("/")[-1].lower() for one in named}
    return [f"{one} is not in {PAGE.relative_to(ROOT)}" for one in sorted(names - words(page))]


def words(page: str) -> set[str]:
    """Return the words of a page, of which some are names of packages."""
    return set(re.findall(r"[a-z0-9][a-z0-9_.-]*[a-z0-9]", page))


def faults(is_allowed: Allowed) -> tuple[int, list[str]]:
    """Return the number of locked packages of both registries, and what is wrong."""
    of_npm, wrong = npm(json.loads(NPM.read_text()))
    pins = pinned(PYPI.read_text())
    folders = [str(one) for one in (ROOT / ".venv/lib").glob("python3*/site-packages")]
    of_pypi, unread = pypi(pins, distributions(path=folders))
    wrong += unread
    for where, packages in [("npm", of_npm), ("PyPI", of_pypi)]:
        wrong += faults_of(where, packages, is_allowed) + weaknesses(where, packages)
    wrong += pins_of_the_project({normal(name): version for name, version in pins})
    wrong += not_on_the_page()
    return len(of_npm) + len(pins), wrong
