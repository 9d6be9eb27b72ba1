"""`docs/python.md` describes the package: `UPDATE_EXPECT=1` rewrites it."""

import ast
import inspect
import os
import re
from pathlib import Path

import sluice
from sluice import _sluice, aqm

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
    "mininet.py",
]
PAGE = ROOT / "docs" / "python.md"
WIDTH = 88
HEAD = """# Python

[Install](how-to/install.md#the-python-package) the package `sluice` (Python 3.11 or newer). This
page is generated from its signatures and docstrings; do not edit it. To update it, run
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
    doc = docstring(owner, node)
    assert doc, f"{title} has no docstring"
    if is_property(node):
        returns = "" if node.returns is None else ast.unparse(node.returns)
        return f"\n{title[:-1]}: {returns}`\n\n{prose(doc)}\n"
    return f"\n{title}\n\n{signature(node)}\n\n{prose(doc)}\n"


def docstring(owner: object, node: ast.FunctionDef | ast.ClassDef) -> str | None:
    """Return the docstring in the source, or else, for a stub, that of the extension."""
    return ast.get_docstring(node) or inspect.getdoc(getattr(owner, node.name))


def describe_class(node: ast.ClassDef, name: str, owner: object, base: ast.ClassDef | None) -> str:
    """Describe a class with its public members, and those of a base that is not public."""
    bodies = node.body + ([] if base is None else base.body)
    members = [member for member in bodies if isinstance(member, ast.FunctionDef)]
    init = next((member for member in members if member.name in ("__init__", "__new__")), None)
    page = f"\n## `{name}`\n\n"
    if init is not None:
        init.returns = None
        init.name = node.name
        page += f"{signature(init)}\n\n"
    page += f"{prose(docstring(owner, node))}\n"
    itself = getattr(owner, node.name, None)
    for member in members:
        if member is not init and not member.name.startswith("_"):
            page += describe(itself, member, f"### `{node.name}.{member.name}`")
    return page


def public(file: str) -> dict[str, str]:
    """Return the public names that a module of the package may define, with their full names."""
    names = {name: name for name in sluice.__all__}
    if file in ("aqm.py", "_sluice.pyi"):
        names |= {name: f"aqm.{name}" for name in aqm.__all__ if name not in names}
    if file == "mininet.py":
        names = {name: f"mininet.{name}" for name in ("SluiceIntf", "SluiceLink", "links")}
    return names


def statements(tree: ast.Module) -> list[ast.stmt]:
    """Return the statements of a module, also those that only run outside of type checkers."""
    found = []
    for node in tree.body:
        found += node.orelse if isinstance(node, ast.If) else [node]
    return found


def reference() -> str:
    """Generate the page from the extension's stubs and the other modules' source."""
    example = "\n".join((inspect.getdoc(sluice) or "").splitlines()[2:])
    page = HEAD.format(example=example)
    for name in MODULES:
        names = public(name)
        body = statements(ast.parse((ROOT / "python" / "sluice" / name).read_text()))
        classes = {node.name: node for node in body if isinstance(node, ast.ClassDef)}
        owner = aqm if name == "aqm.py" else _sluice if name == "_sluice.pyi" else sluice
        for node, below in zip(body, [*body[1:], None], strict=True):
            symbol = getattr(node, "name", None)
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                symbol = node.targets[0].id
            if symbol not in names:
                continue
            if name == "_sluice.pyi":
                # The extension has classes of its own under the names of those that wrap them.
                home = aqm if names[symbol].startswith("aqm.") else sluice
                if getattr(home, symbol) is not getattr(_sluice, symbol, None):
                    continue
            if isinstance(node, ast.ClassDef):
                bases = [ast.unparse(base) for base in node.bases]
                base = next((classes[b] for b in bases if b in classes and b not in names), None)
                page += describe_class(node, names[symbol], owner, base)
            elif isinstance(node, ast.FunctionDef):
                page += describe(owner, node, f"## `{names[symbol]}`")
            elif isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                page += f"\n## `{names[symbol]}`\n\n{below.value.value!s}\n"
    return page


def test_the_page_is_up_to_date() -> None:
    page = reference()
    if os.environ.get("UPDATE_EXPECT"):
        PAGE.write_text(page)
    assert PAGE.read_text() == page


def test_the_page_has_every_public_name() -> None:
    headings = set(re.findall(r"^## `([\w.]+)`$", PAGE.read_text(), re.MULTILINE))
    mininet = ast.parse((ROOT / "python" / "sluice" / "mininet.py").read_text())
    (listed,) = (
        ast.literal_eval(node.value)
        for node in mininet.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    names = {*sluice.__all__, *(f"mininet.{name}" for name in listed)} - {"__version__"}
    names |= {f"aqm.{name}" for name in aqm.__all__ if name not in sluice.__all__}
    assert headings == names
