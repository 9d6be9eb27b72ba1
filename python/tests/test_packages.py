"""Locked packages of npm and PyPI: licences, sources, duplicates and advisories."""

import runpy
from collections.abc import Iterable
from email.message import Message
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"
PACKAGES = runpy.run_path(str(SCRIPTS / "packages.py"), run_name="packages")
Package = PACKAGES["Package"]
CHECKSUM = "sha512-AAAA"


def is_mit(licence: str, more: Iterable[str]) -> bool:
    return licence == "MIT" or licence in more


class Installed:
    """What `importlib.metadata` has of a package."""

    def __init__(self, name: str, version: str, *fields: tuple[str, str]) -> None:
        self.version = version
        self.metadata = Message()
        for key, value in (("Name", name), *fields):
            self.metadata[key] = value


def test_packages_of_npm_need_a_checksum_and_the_registry() -> None:
    lock = {
        "packages": {
            "": {"name": "own"},
            "node_modules/a": {"version": "1.0.0", "license": "MIT", "integrity": CHECKSUM},
            "node_modules/a/node_modules/@x/b": {"version": "2.0.0", "dev": True},
            "node_modules/c": {
                "version": "3.0.0",
                "integrity": CHECKSUM,
                "resolved": "git+ssh://git@example.org/c.git",
            },
        }
    }
    packages, wrong = PACKAGES["npm"](lock)
    assert packages == [
        Package("a", "1.0.0", "MIT", True),
        Package("@x/b", "2.0.0", None, False),
        Package("c", "3.0.0", None, True),
    ]
    assert wrong == [
        "npm: @x/b 2.0.0 has no checksum (sha512) in the lock file",
        "npm: c 3.0.0 comes from git+ssh://git@example.org/c.git, not from "
        "https://registry.npmjs.org/",
    ]


def test_a_licence_is_allowed_and_some_only_for_tools() -> None:
    packages = [
        Package("a", "1.0.0", "MIT", True),
        Package("b", "1.0.0", "ISC", True),
        Package("c", "1.0.0", "ISC", False),
        Package("d", "1.0.0", None, False),
        Package("A", "1.1.0", "MIT", True),
    ]
    assert PACKAGES["faults_of"]("npm", packages, is_mit) == [
        "npm: b 1.0.0 has the licence ISC, which is not allowed",
        "npm: d 1.0.0 has the licence None, which is not allowed",
        "npm: a is there as 1.0.0 and 1.1.0",
    ]


@pytest.mark.parametrize(
    ("fields", "licence"),
    [
        ([("License-Expression", "MIT OR Apache-2.0"), ("License", "x")], "MIT OR Apache-2.0"),
        ([("License", "BSD"), ("Classifier", "License :: OSI Approved :: MIT License")], "MIT"),
        ([("License", "Apache 2.0")], "Apache-2.0"),
        ([("License", "Proprietary\nAll rights reserved")], "Proprietary"),
        ([("Classifier", "Topic :: Internet")], None),
    ],
)
def test_a_licence_of_python_is_read_from_its_metadata(
    fields: list[tuple[str, str]], licence: str | None
) -> None:
    assert PACKAGES["licence_of"](Installed("a", "1", *fields)) == licence


def test_the_installed_version_is_the_locked_one() -> None:
    pins = PACKAGES["pinned"]("# a comment\nA_b==1.0\nc==2.0\nd==3.0\n")
    there = [Installed("a-B", "1.0", ("License", "MIT")), Installed("c", "2.1")]
    packages, wrong = PACKAGES["pypi"](pins, there)
    assert packages == [Package("A_b", "1.0", "MIT", False)]
    assert wrong == [
        "PyPI: c is locked as 2.0, but is 2.1: scripts/setup.sh python",
        "PyPI: d is locked as 3.0, but is not installed: scripts/setup.sh python",
    ]
    with pytest.raises(ValueError, match="`c>=2` is not a requirement"):
        PACKAGES["pinned"]("c>=2")


def test_a_version_from_the_first_to_the_patched_one_is_concerned(tmp_path: Path) -> None:
    table = tmp_path / "table.toml"
    table.write_text(
        "[[advisory]]\nregistry = 'PyPI'\npackage = 'A_b'\nid = 'CVE-1'\n"
        "first = '1.2'\npatched = '1.10.1'\n"
    )
    versions = ["1.1.9", "1.2", "1.10.0", "1.10.1", "2"]
    packages = [Package("a-b", version, "MIT", False) for version in versions]
    assert PACKAGES["weaknesses"]("PyPI", packages, table) == [
        "PyPI: a-b 1.2 is concerned by CVE-1; patched: 1.10.1",
        "PyPI: a-b 1.10.0 is concerned by CVE-1; patched: 1.10.1",
    ]
    assert PACKAGES["weaknesses"]("npm", packages, table) == []
