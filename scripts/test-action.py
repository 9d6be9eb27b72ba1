#!/usr/bin/env python3
"""Execute the example workflow and the composite action on this machine.

Without a package, the action must fail and install nothing; without namespaces, it must go on. It
must not execute what is in its options.

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
        """Run a script as `shell: bash` does; it must succeed."""
        done = self.done(script, variables)
        if done.returncode != 0:
            sys.exit(f"test-action: exit status {done.returncode} of:\n{script}")

    def done(
        self, script: str, variables: dict[str, str], output: int | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a script as `shell: bash` does."""
        added = list(reversed(self.path.read_text().split()))
        environment = os.environ | variables
        environment["PATH"] = os.pathsep.join([*added, os.environ["PATH"]])
        environment["RUNNER_TEMP"] = str(self.temp)
        environment["GITHUB_PATH"] = str(self.path)
        shell = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", script]
        return subprocess.run(
            shell, env=environment, cwd=ROOT, check=False, stdout=output, text=True
        )


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
        action = read_action()
        given = {key: filled(text, contexts) for key, text in step.get("with", {}).items()}
        if unknown := given.keys() - action["inputs"].keys():
            sys.exit(f"test-action: the action has no inputs {unknown}")
        carry_out(action["runs"]["steps"], {"inputs": defaults(action) | given}, runner)


def read_action() -> dict[str, Any]:
    """Return the composite action."""
    action: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
    return action


def defaults(action: dict[str, Any]) -> dict[str, str]:
    """Return the values of inputs that a workflow leaves out."""
    return {key: declared.get("default", "") for key, declared in action["inputs"].items()}


def refuse_nothing(folder: Path) -> None:
    """Call the action's first step without a package, with a package index that has none."""
    action = read_action()
    step = action["runs"]["steps"][0]
    contexts = {"inputs": defaults(action)}
    env = {key: filled(text, contexts) for key, text in step["env"].items()}
    runner = Runner(folder)
    done = runner.done(step["run"], env | {"PIP_NO_INDEX": "1"}, subprocess.PIPE)
    sentence = "::error::the input 'package' is empty: "
    if done.returncode == 0 or not done.stdout.startswith(sentence) or any(runner.temp.iterdir()):
        sys.exit(f"test-action: without a package, the action says: {done.stdout!r}")


def warn_without_namespaces(folder: Path) -> None:
    """Call the action's second step with a `sluice` whose doctor finds something missing.

    The job must go on: `sluice exec` also works where a container forbids namespaces.
    """
    stub = folder / "sluice"
    stub.write_text("#!/bin/sh\nexit 1\n")
    stub.chmod(0o755)
    runner = Runner(folder)
    runner.path.write_text(f"{folder}\n")
    done = runner.done(read_action()["runs"]["steps"][1]["run"], {}, subprocess.PIPE)
    if done.returncode != 0 or not done.stdout.startswith("::warning::without namespaces"):
        sys.exit(f"test-action: without namespaces, the action ends: {done.stdout!r}")


def execute_no_options(folder: Path) -> None:
    """Call the action's last step with options that a shell would expand.

    They are words, with the quotes of a command line, and nothing more.
    """
    stub = folder / "sluice"
    stub.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    stub.chmod(0o755)
    runner = Runner(folder)
    runner.path.write_text(f"{folder}\n")
    script = read_action()["runs"]["steps"][2]["run"]
    variables = {"LINK": "lte", "MAX_LATE": "", "RUN": "true"}
    cases: dict[str, list[str]] = {
        "": [],
        "--rate 1Mbit/s\n$(echo x) `id` $HOME *": [
            *("--rate", "1Mbit/s", "$(echo", "x)", "`id`", "$HOME", "*"),
        ],
        "--rate 1Mbit/s \\\n--rtt 60ms": ["--rate", "1Mbit/s", "--rtt", "60ms"],
        '--set \'link.queue="codel"\' "two words"': ["--set", 'link.queue="codel"', "two words"],
    }
    for options, words in cases.items():
        done = runner.done(script, variables | {"OPTIONS": options}, subprocess.PIPE)
        bash = "-- bash --noprofile --norc -e -o pipefail -c true".split()
        if done.stdout.splitlines() != ["exec", *words, "--link", "lte", *bash]:
            sys.exit(f"test-action: of the options {options!r}, the action makes {done.stdout!r}")
    done = runner.done(script, variables | {"OPTIONS": "--link 'lte"}, subprocess.PIPE)
    if done.returncode == 0 or "::error::the input 'options' has a quote" not in done.stdout:
        sys.exit(f"test-action: with half a quote, the action says: {done.stdout!r}")


def packed(package: Path, folder: Path) -> Path:
    """Return a package. A command is packed into a tarball like that of `make dist`.

    Beside the command is a `python3`, as in the environment of a wheel. It fails: the steps of a
    job must use the job's own.
    """
    if package.suffix in (".xz", ".whl"):
        return package
    tarball = folder / "sluice.tar.xz"
    python = folder / "python3"
    python.write_text("#!/bin/sh\necho this is not the python3 of the job >&2\nexit 1\n")
    python.chmod(0o755)
    with tarfile.open(tarball, "w:xz", preset=0) as archive:
        archive.add(package, "sluice/bin/sluice")
        archive.add(python, "sluice/bin/python3")
    return tarball


def check_path(runner: Runner) -> None:
    """Check that the folders on the path have the command, and nothing that hides a program."""
    for folder in runner.path.read_text().split():
        if (found := sorted(os.listdir(folder))) != ["sluice"]:
            sys.exit(f"test-action: on the path are {found}, not only the command")


def main() -> None:
    """Execute every job, with every combination of its matrix."""
    with tempfile.TemporaryDirectory() as name:
        package = packed(Path(sys.argv[1]).resolve(), Path(name))
        refused = Path(name) / "refused"
        refused.mkdir()
        refuse_nothing(refused)
        warned = Path(name) / "warned"
        warned.mkdir()
        warn_without_namespaces(warned)
        optional = Path(name) / "optional"
        optional.mkdir()
        execute_no_options(optional)
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
                runner = Runner(folder)
                carry_out(job["steps"], contexts, runner)
                check_path(runner)
                runs += 1
    print(f"test-action: {runs} jobs of {WORKFLOW.relative_to(ROOT)} succeed")


main()
