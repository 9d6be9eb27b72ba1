#!/usr/bin/env python3
"""Check crates and packages of npm and PyPI: licences, sources, duplicates, the page about them.

- Every crate has a licence under which it may be distributed with this program. For a choice of
  licences (`A OR B`), one must be allowed; for `A AND B`, both.
- Every crate comes from crates.io, with the checksum in Cargo.lock. No crate comes from a
  repository or a path outside this tree.
- No crate is there in two versions, except those in `TWICE`, each with its reason.
- Every crate that this tree names is on the page `docs/explanation/dependencies.md`.
- No locked version has a known weakness (RustSec) or is unmaintained, by the table of
  `advisories.toml`, except those in `ACCEPTED` of `advisories.py`, each with its reason. This
  includes the lock files of `models/` and `sdk/rust/`.
- `fuzz/` has no lock file: it is built for a fuzzer's run, never distributed, and uses crates of
  this tree's lock file, but for those in `OF_FUZZERS`.
- Packages of npm and PyPI: see `packages.py`.
"""

import json
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import advisories
import packages

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs/explanation/dependencies.md"
CRATES_IO = "registry+https://github.com/rust-lang/crates.io-index"
ALLOWED = {
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
}
TWICE = {
    "cpufeatures": "of sha2 and of chacha20",
    "foldhash": "of hashbrown 0.15 and of serde_json",
    "getrandom": "of rand, of ahash, and of const-random",
    "hashbrown": "of string-interner, of this tree, and of parquet",
    "miniz_oxide": "of png and of flate2",
    "r-efi": "of two versions of getrandom; not compiled on Linux",
    "roxmltree": "of fontconfig-parser and of usvg",
    "signal-hook": "of crossterm and of this tree",
    "syn": "derive macros move to syn 3 one by one; ts-rs and zerocopy have not",
    "wasmparser": "of wasmi and of wasm-encoder",
}

# Crates of fuzz/Cargo.toml that no lock file has.
OF_FUZZERS = {"libfuzzer-sys"}


def is_allowed(licence: str, more: Iterable[str] = ()) -> bool:
    """Whether a crate or a package under this SPDX expression may be used."""
    allowed = ALLOWED | set(more)
    licence = licence.replace("/", " OR ")
    parts = re.split(r" AND (?![^(]*\))", licence)
    return all(
        any(one.strip(" ()") in allowed for one in re.split(r" OR ", part)) for part in parts
    )


def metadata() -> dict[str, list[dict[str, object]]]:
    """Read what cargo knows about all crates of the build."""
    command = ["cargo", "metadata", "--locked", "--format-version", "1"]
    return json.loads(subprocess.check_output(command, cwd=ROOT, stderr=subprocess.DEVNULL))


def unlocked_of_fuzzers() -> list[str]:
    """Return a line for each crate of fuzz/Cargo.toml that no lock file has."""
    manifest = tomllib.loads((ROOT / "fuzz/Cargo.toml").read_text())
    named = {
        name
        for name, one in manifest["dependencies"].items()
        if isinstance(one, str) or "path" not in one
    }
    locked = {name for name, _ in advisories.locked()}
    why = "of fuzz/Cargo.toml, is in no lock file and not in OF_FUZZERS"
    return [f"{one}, {why}" for one in sorted(named - locked - OF_FUZZERS)]


def main() -> int:
    """Print what is wrong; return the exit status."""
    crates = metadata()["packages"]
    wrong = []
    versions = defaultdict(list)
    page = PAGE.read_text()
    for package in crates:
        name, version = str(package["name"]), str(package["version"])
        source, licence = package["source"], package["license"]
        versions[name].append(version)
        if source is None:
            if not Path(str(package["manifest_path"])).is_relative_to(ROOT):
                wrong.append(f"{name} {version} is at a path outside the tree")
            for dependency in package["dependencies"]:
                own = dependency["name"]
                if dependency["source"] and own not in page:
                    wrong.append(f"{own}, which {name} uses, is not in {PAGE.relative_to(ROOT)}")
            continue
        if source != CRATES_IO:
            wrong.append(f"{name} {version} comes from {source}, not from crates.io")
        if not licence or not is_allowed(str(licence)):
            wrong.append(f"{name} {version} has the licence {licence}, which is not in ALLOWED")
    for name, found in sorted(versions.items()):
        if len(found) > 1 and name not in TWICE:
            wrong.append(f"{name} is there as {' and '.join(found)}; TWICE has no reason for that")
    for name in sorted(TWICE):
        if len(versions[name]) < 2:
            wrong.append(f"{name} is in TWICE, but there is only one version")
    known = advisories.read_table()
    wrong += advisories.faults(advisories.locked(), known)
    wrong += unlocked_of_fuzzers()
    others, wrong_packages = packages.faults(is_allowed)
    wrong += wrong_packages
    for line in sorted(set(wrong)):
        print(f"dependencies: {line}")
    if not wrong:
        day = advisories.table_date()
        state = f"{len(known)} advisories, state of {day}"
        print(f"dependencies: {len(crates)} crates; {state}; {others} packages of npm and PyPI")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
