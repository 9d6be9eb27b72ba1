#!/usr/bin/env python3
"""Execute the example workflow and the composite action on this machine.

`scripts/test-action.py PACKAGE`: a wheel or a tarball made by `make dist`, or the `sluice` command
itself, of which a tarball is made. It supports only the parts of the format that both files use.
Anything else is an error, so that no step is skipped unnoticed.
"""

import itertools
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
WORKFLOW = ROOT / "examples/ci/workflow.yml"
KNOWN_STEP = {"name", "uses", "with", "run", "shell", "env", "if"}


class Runner:
    """The files and variables that a CI service shares between the steps of a job."""

    def __init__(self, folder: Path) -> None:
        """Keep these files in a folder."""
        self.temp = folder / "temp"
        self.temp.mkdir()
        self.path = folder / "path"
        self.path.touch()

    def run(self, script: str, variables: dict[str, str]) -> None:
        """Run a script as `shell: bash` does."""
        added = list(reversed(self.path.read_text().split()))
        environment = os.environ | variables
        environment["PATH"] = os.pathsep.join([*added, os.environ["PATH"]])
        environment["RUNNER_TEMP"] = str(self.temp)
        environment["GITHUB_PATH"] = str(self.path)
        shell = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", script]
        done = subprocess.run(shell, env=environment, cwd=ROOT, check=False)
        if done.returncode != 0:
            sys.exit(f"test-action: exit status {done.returncode} of:\n{script}")


def filled(text: str, contexts: dict[str, dict[str, str]]) -> str:
    """Replace `${{ context.name }}`."""

    def value(found: re.Match[str]) -> str:
        context, _, name = found[1].partition(".")
        return contexts[context][name]

    return re.sub(r"\$\{\{\s*([\w.-]+)\s*\}\}", value, text)


def is_met(condition: str, contexts: dict[str, dict[str, str]]) -> bool:
    """Evaluate `context.name != ''`, the only supported form."""
    found = re.fullmatch(r"(\w+)\.([\w-]+) != ''", condition)
    if found is None:
        sys.exit(f"test-action: unknown condition `{condition}`")
    return contexts[found[1]][found[2]] != ""


def carry_out(steps: list[dict[str, Any]], contexts: dict[str, Any], runner: Runner) -> None:
    """Execute the steps of a job or of a composite action."""
    for step in steps:
        if unknown := step.keys() - KNOWN_STEP:
            sys.exit(f"test-action: unknown keys of a step: {unknown}")
        if "if" in step and not is_met(step["if"], contexts):
            continue
        print(f"-- {step.get('name', step.get('uses'))}", flush=True)
        if step.get("uses", "").startswith("actions/checkout@"):
            continue
        if "run" in step:
            env = {key: filled(text, contexts) for key, text in step.get("env", {}).items()}
            runner.run(filled(step["run"], contexts), env)
            continue
        if step["uses"] != "./":
            sys.exit(f"test-action: unknown action {step['uses']}")
        action = yaml.safe_load((ROOT / "action.yml").read_text())
        given = {key: filled(text, contexts) for key, text in step.get("with", {}).items()}
        if unknown := given.keys() - action["inputs"].keys():
            sys.exit(f"test-action: the action has no inputs {unknown}")
        defaults = {key: declared["default"] for key, declared in action["inputs"].items()}
        carry_out(action["runs"]["steps"], {"inputs": defaults | given}, runner)


def packed(package: Path, folder: Path) -> Path:
    """Return a package. A command is packed into a tarball like that of `make dist`."""
    if package.suffix in (".xz", ".whl"):
        return package
    tarball = folder / "sluice.tar.xz"
    with tarfile.open(tarball, "w:xz", preset=0) as archive:
        archive.add(package, "sluice/bin/sluice")
    return tarball


def main() -> None:
    """Execute every job, with every combination of its matrix."""
    with tempfile.TemporaryDirectory() as name:
        package = packed(Path(sys.argv[1]).resolve(), Path(name))
        workflow = yaml.safe_load(WORKFLOW.read_text())
        runs = 0
        for job in workflow["jobs"].values():
            matrix = job.get("strategy", {}).get("matrix", {})
            for values in itertools.product(*matrix.values()):
                folder = Path(name) / f"run-{runs}"
                folder.mkdir()
                contexts = {
                    "matrix": dict(zip(matrix, values, strict=True)),
                    "vars": {"SLUICE_PACKAGE": str(package)},
                }
                carry_out(job["steps"], contexts, Runner(folder))
                runs += 1
    print(f"test-action: {runs} jobs of {WORKFLOW.relative_to(ROOT)} succeed")


main()
