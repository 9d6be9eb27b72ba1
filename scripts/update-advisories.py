#!/usr/bin/env python3
"""Update `advisories.toml`: `update-advisories.py PATH [-o FILE]`.

PATH is a copy of the RustSec advisory database (<https://github.com/rustsec/advisory-db>). The
table has only the crates of the lock files. Its date is that of the last commit in PATH or, without
git, that of the newest advisory of any crate.
"""

import argparse
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from advisories import TABLE, Advisory, locked

HEAD = """\
# Advisories of the crates in the lock files, whether they concern a locked version or not.
# scripts/check-dependencies.py reads this table.
#
# Source: the RustSec advisory database (https://rustsec.org) in its state of `date`. It is in the
# public domain (CC0), except for texts for which an advisory states another licence. No texts are
# copied. To update the table, clone https://github.com/rustsec/advisory-db and call
# scripts/update-advisories.py with its path.

"""


def facts(path: Path) -> tuple[str, Advisory | None]:
    """Read an advisory's date and its facts, or None if it was withdrawn."""
    head = re.search(r"^```toml\n(.*?)^```", path.read_text(), re.DOTALL | re.MULTILINE)
    if not head:
        sys.exit(f"{path}: no table between ```toml and ```")
    table = tomllib.loads(head[1])
    own, versions = table["advisory"], table.get("versions", {})
    kind = own.get("informational", "vulnerability")
    ranges = versions.get("patched", []), versions.get("unaffected", [])
    advisory = Advisory(own["id"], own["package"], kind, *ranges)
    return str(own["date"]), None if "withdrawn" in own else advisory


def day_of(database: Path, newest: str) -> str:
    """Return the day of the database's last commit, or of its newest advisory without git."""
    if not (database / ".git").exists():
        return newest
    command = ["git", "-C", str(database), "log", "-1", "--format=%cs"]
    return subprocess.check_output(command, text=True).strip()


def entry(advisory: Advisory) -> str:
    """Return the advisory's lines in the table."""
    # A list of strings in JSON is the same list in TOML.
    return f"""
[[advisory]]
id = "{advisory.id}"
crate = "{advisory.crate}"
kind = "{advisory.kind}"
patched = {json.dumps(advisory.patched)}
unaffected = {json.dumps(advisory.unaffected)}
"""


def main() -> int:
    """Write the table; return the exit status."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("path", type=Path)
    arguments.add_argument("-o", "--output", type=Path, default=TABLE)
    given = arguments.parse_args()
    # Drafts have the number 0000.
    files = given.path.glob("crates/*/RUSTSEC-*.md")
    found = [facts(one) for one in sorted(files) if "-0000" not in one.name]
    if not found:
        sys.exit(f"{given.path}: no file crates/*/RUSTSEC-*.md")
    names = {name for name, _ in locked()}
    own = [one for _, one in found if one and one.crate in names]
    own.sort(key=lambda one: (one.crate, one.id))
    date = day_of(given.path, max(date for date, _ in found))
    given.output.write_text(f"{HEAD}date = {date}\n" + "".join(map(entry, own)))
    print(f"advisories: {len(own)} of {len(found)} are about locked crates; state of {date}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
