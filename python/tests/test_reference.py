"""`docs/python.md` describes the package: `UPDATE_EXPECT=1` rewrites it."""

import ast
import inspect
import os
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
    "aqm.py",
    "scenario.py",
    "_sluice.pyi",
    "recording.py",
]
PAGE = ROOT / "docs" / "python.md"
HEAD = """# Python

`pip install .` in the source tree builds the package `sluice` (Python 3.11 or newer). This page is
generated from its signatures and docstrings; do not edit it. To update it, run
`UPDATE_EXPECT=1 pytest python/tests/test_reference.py`.

```python
{example}
```
"""


def signature(node: ast.FunctionDef) -> str:
    """Format a function as in its stub, without `self`."""
    node.args.args = [arg for arg in node.args.args if arg.arg not in ("self", "cls")]
    returns = "" if node.returns is None else f" -> {ast.unparse(node.returns)}"
    name = node.name
    return f"{name}({ast.unparse(node.args)}){returns}"


def is_property(node: ast.FunctionDef) -> bool:
    """Distinguish attributes from methods."""
    return any(
        isinstance(d, ast.Name) and d.id in ("property", "cached_property")
        for d in node.decorator_list
    )


def describe(owner: object, node: ast.FunctionDef, prefix: str) -> str:
    """Describe one function, method or attribute."""
    doc = inspect.getdoc(getattr(owner, node.name)) or ""
    if is_property(node):
        returns = "" if node.returns is None else ast.unparse(node.returns)
        title = f"{prefix}{node.name}: {returns}"
    else:
        title = prefix + signature(node)
    assert doc, f"{title} has no docstring"
    return f"\n### `{title}`\n\n{doc}\n"


def describe_class(node: ast.ClassDef) -> str:
    """Describe a class with its public members."""
    owner = getattr(sluice, node.name)
    members = [member for member in node.body if isinstance(member, ast.FunctionDef)]
    init = next((member for member in members if member.name == "__init__"), None)
    title = node.name
    if init is not None:
        init.returns = None
        init.name = node.name
        title = signature(init)
    page = f"\n## `{title}`\n\n{inspect.getdoc(owner)}\n"
    for member in members:
        if member is not init and not member.name.startswith("_"):
            page += describe(owner, member, "")
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
                doc = inspect.getdoc(getattr(sluice, node.name))
                page += f"\n## `{signature(node)}`\n\n{doc}\n"
    return page


def test_the_page_is_up_to_date() -> None:
    page = reference()
    if os.environ.get("UPDATE_EXPECT"):
        PAGE.write_text(page)
    assert PAGE.read_text() == page
