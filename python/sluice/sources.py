"""Files of algorithms: the local modules that they import, and copies for other machines."""

import ast
import functools
import hashlib
import itertools
import os
import re
import site
import sys
import sysconfig
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from sluice._sluice import SluiceError


@dataclass(frozen=True)
class Source:
    """The file of an algorithm that a scenario names, with the local modules that it imports."""

    #: The path in the scenario, relative to the scenario's file.
    path: str
    #: Names, relative to the folder of the copy, and contents; the file itself comes first.
    files: tuple[tuple[str, bytes], ...]

    @property
    def digest(self) -> str:
        """The SHA-256 of all files with their names."""
        digest = hashlib.sha256()
        for name, content in self.files:
            digest.update(f"{name}\0{len(content)}\0".encode() + content)
        return digest.hexdigest()

    def unpack(self) -> Path:
        """Write the files to a temporary folder of this process; return the path of the first."""
        return Path(_unpacked(self).name, self.files[0][0])


def find(scenario: str, text: str) -> tuple[Source, ...]:
    """Return the files of the algorithms in the resolved text of a scenario file.

    Raises:
        SluiceError: a file cannot be read.

    """
    if not WORD.search(text):
        return ()
    tree = tomllib.loads(text)
    words = itertools.chain(_queues(tree), _rules(tree))
    paths = {path for text in words for path in WORD.findall(text)}
    return tuple(read(scenario, path) for path in sorted(paths))


def _queues(tree: object) -> Iterator[str]:
    """Yield the words of each queue in a resolved scenario."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            if key == "queue" and isinstance(value, str):
                yield value
            else:
                yield from _queues(value)
    elif isinstance(tree, list):
        for each in tree:
            yield from _queues(each)


def _rules(tree: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of the rules, without comments, in a resolved scenario or in its file."""
    rules = tree.get("rules", "")
    text = rules if isinstance(rules, str) else rules["file"]["text"]
    for line in text.splitlines():
        yield line.partition("#")[0]


def read(scenario: str, path: str) -> Source:
    """Read the file of an algorithm and the local modules that it imports.

    Raises:
        SluiceError: the file cannot be read.

    """
    file = Path(scenario).parent / path
    try:
        content = file.read_bytes()
    except OSError as error:
        raise SluiceError(f"cannot read `{path}`: {error.strerror}") from None
    found = {file.name: content}
    if file.suffix != ".wasm":
        found.update(imported(file, content))
    return Source(path, tuple(found.items()))


def localize(scenario: str, text: str, sources: tuple[Source, ...]) -> str:
    """Replace the paths of files that differ here, or do not exist, by those of copies."""
    for source in sources:
        try:
            is_here = read(scenario, source.path) == source
        except SluiceError:
            is_here = False
        if not is_here:
            word = re.compile(rf'({SCHEME}){re.escape(source.path)}(?![^:\s"\\])')
            text = word.sub(rf"\g<1>{source.unpack()}", text)
    return text


def imported(file: Path, content: bytes) -> dict[str, bytes]:
    """Return the local modules that a file imports, and those that they import, by their names.

    A module is local if it is beside the file, or in a folder of `sys.path` into which no package
    was installed. A package counts with all its modules.
    """
    found: dict[str, bytes] = {}
    todo = [content]
    while todo:
        for name in _imports(todo.pop()):
            for relative, path in _local(name, file):
                if relative not in found and path != file:
                    found[relative] = path.read_bytes()
                    todo.append(found[relative])
    return dict(sorted(found.items()))


def fingerprint(path: str, content: bytes) -> bytes:
    """Return a hash of the local modules that a file imports; empty if it imports none."""
    modules = imported(Path(path), content)
    if not modules:
        return b""
    return hashlib.sha256(repr(modules).encode()).digest()


@functools.lru_cache(maxsize=256)
def _imports(content: bytes) -> tuple[str, ...]:
    """Return the first parts of the names of imported modules."""
    try:
        nodes = list(ast.walk(ast.parse(content)))
    except (SyntaxError, ValueError):
        return ()
    names: dict[str, None] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= dict.fromkeys(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names[node.module.partition(".")[0]] = None
    return tuple(name for name in names if name not in FOREIGN)


def _local(name: str, file: Path) -> Iterator[tuple[str, Path]]:
    """Yield the files of a local module or package with their paths in a copy."""
    places = [file.parent, *_folders()]
    for place in places:
        module, package = place / f"{name}.py", place / name
        if module.is_file():
            yield module.name, module
            return
        if (package / "__init__.py").is_file():
            yield from _modules(package, place)
            return
    # Folders without `__init__.py` are a package only if nothing else has the name.
    portions = [place for place in places if (place / name).is_dir()]
    if portions:
        elsewhere = PathFinder.find_spec(name)
        if elsewhere is None or elsewhere.origin is None:
            for place in portions:
                yield from _modules(place / name, place)


def _modules(package: Path, place: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted(package.rglob("*.py")):
        yield str(path.relative_to(place)), path


def _folders() -> list[Path]:
    """Return the folders of `sys.path` that nothing was installed into."""
    installed = {os.path.realpath(path) for path in sysconfig.get_paths().values()}
    installed |= {os.path.realpath(path) for path in (*site.getsitepackages(), str(OWN))}
    return [Path(entry) for entry in sys.path if os.path.realpath(entry or ".") not in installed]


@functools.lru_cache(maxsize=64)
def _unpacked(source: Source) -> "tempfile.TemporaryDirectory[str]":
    folder = tempfile.TemporaryDirectory(prefix="sluice-")
    for name, content in source.files:
        path = Path(folder.name, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


# The folder of this package.
OWN = Path(__file__).parents[1]
# Modules that are no part of an algorithm.
FOREIGN = sys.stdlib_module_names | {"sluice"}
# The start of such a word. In a text of TOML, the character before it can be an escape.
SCHEME = r"(?:\b|(?<=\\[nrt]))(?:fq_)?(?:py|wasm):"
# The file of an algorithm in the words of a queue: `fq_py:FILE:CLASS bound 20ms`.
WORD = re.compile(rf'{SCHEME}([^:\s"\\]+)')
