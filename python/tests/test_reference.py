"""`docs/python.md` describes the package: `UPDATE_EXPECT=1` rewrites it."""

import ast
import inspect
import os
import re
from pathlib import Path

import sluice
from sluice import _sluice

ROOT = Path(__file__).parents[2]
MODULES = [
    "runs.py",
    "table.py",
    "plot.py",
    "sweeps.py",
    "simulation.py",
    "router.py",
    "aqm.py",
    "scenario.py",
    "_sluice.pyi",
    "recording.py",
]
PAGE = ROOT / "docs" / "python.md"
WIDTH = 88
HEAD = """# Python

`pip install .` in the source tree builds the package `sluice` (Python 3.11 or newer). This page is
generated from its signatures and docstrings; do not edit it. To update it, run
`UPDATE_EXPECT=1 pytest python/tests/test_reference.py`.

```python
{example}
```
"""


def fenced(code: str) -> str:
    """Format code as a block of Python."""
    return f"```python\n{code}\n```"


def signature(node: ast.FunctionDef) -> str:
    """Format a function as in its stub, without `self`; a long one has a line per argument."""
    node.args.args = [arg for arg in node.args.args if arg.arg not in ("self", "cls")]
    returns = "" if node.returns is None else f" -> {ast.unparse(node.returns)}"
    line = f"{node.name}({ast.unparse(node.args)}){returns}"
    if len(line) <= WIDTH:
        return fenced(line)
    # Split at the commas outside of brackets.
    arguments = re.split(r", (?![^\[]*\])", ast.unparse(node.args))
    listed = "".join(f"    {argument},\n" for argument in arguments)
    return fenced(f"{node.name}(\n{listed}){returns}")


def prose(doc: str | None) -> str:
    """Format a docstring as Markdown: its examples as blocks, the errors as a list."""
    text = (doc or "").replace("Raises:\n", "Raises:\n\n")
    error = re.compile(r"^    (\w+): (.*(?:\n        .*)*)", re.MULTILINE)
    text = error.sub(lambda found: f"- `{found[1]}`: {' '.join(found[2].split())}", text)
    example = re.compile(r"^>>> .*(?:\n(?!\n|$).*)*", re.MULTILINE)
    return example.sub(lambda found: fenced(found[0]), text)


def is_property(node: ast.FunctionDef) -> bool:
    """Distinguish attributes from methods."""
    return any(
        isinstance(d, ast.Name) and d.id in ("property", "cached_property")
        for d in node.decorator_list
    )


def describe(owner: object, node: ast.FunctionDef, title: str) -> str:
    """Describe one function, method or attribute under a title."""
    doc = inspect.getdoc(getattr(owner, node.name))
    assert doc, f"{title} has no docstring"
    if is_property(node):
        returns = "" if node.returns is None else ast.unparse(node.returns)
        return f"\n{title[:-1]}: {returns}`\n\n{prose(doc)}\n"
    return f"\n{title}\n\n{signature(node)}\n\n{prose(doc)}\n"


def describe_class(node: ast.ClassDef) -> str:
    """Describe a class with its public members."""
    owner = getattr(sluice, node.name)
    members = [member for member in node.body if isinstance(member, ast.FunctionDef)]
    init = next((member for member in members if member.name == "__init__"), None)
    page = f"\n## `{node.name}`\n\n"
    if init is not None:
        init.returns = None
        init.name = node.name
        page += f"{signature(init)}\n\n"
    page += f"{prose(inspect.getdoc(owner))}\n"
    for member in members:
        if member is not init and not member.name.startswith("_"):
            page += describe(owner, member, f"### `{node.name}.{member.name}`")
    return page


def reference() -> str:
    """Generate the page from the extension's stubs and the other modules' source."""
    example = "\n".join((inspect.getdoc(sluice) or "").splitlines()[2:])
    page = HEAD.format(example=example)
    for name in MODULES:
        tree = ast.parse((ROOT / "python" / "sluice" / name).read_text())
        for node in tree.body:
            symbol = getattr(node, "name", None)
            if symbol not in sluice.__all__:
                continue
            # The extension has classes of its own under the names of those that wrap them.
            is_wrapped = getattr(sluice, symbol) is not getattr(_sluice, symbol, None)
            if name.endswith(".pyi") and is_wrapped:
                continue
            if isinstance(node, ast.ClassDef):
                page += describe_class(node)
            elif isinstance(node, ast.FunctionDef):
                page += describe(sluice, node, f"## `{node.name}`")
    return page


def test_the_page_is_up_to_date() -> None:
    page = reference()
    if os.environ.get("UPDATE_EXPECT"):
        PAGE.write_text(page)
    assert PAGE.read_text() == page
