#!/usr/bin/env python3
"""Search for unidiomatic phrases: `check-english.py [PATH...]`, by default in the whole tree.

Each line of `english.txt` has a pattern and its replacement. In Markdown, code is not checked; in
sources, only comments and strings are checked.
"""

import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
C_LIKE = {".rs", ".ts", ".mjs", ".c", ".h", ".css"}
ENDINGS = C_LIKE | {".md", ".py", ".toml", ".pyi", ".sh", ".ipynb"}


def entries(path: Path) -> list[str]:
    """Read a list of lines, without comments."""
    lines = (line.strip() for line in path.read_text().splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def patterns() -> list[tuple[re.Pattern[str], str]]:
    """Read the patterns and their replacements."""
    found = []
    for line in entries(HERE / "english.txt"):
        pattern, _, better = line.partition(" -> ")
        # A word may be broken over a line's end.
        spread = pattern.replace(" ", r"\s+")
        found.append((re.compile(rf"\b(?:{spread})\b", re.IGNORECASE), better))
    return found


def blank(match: re.Match[str]) -> str:
    """Blank a match, and keep its length and its lines."""
    return re.sub(r"[^\n]", " ", match[0])


def prose(path: Path) -> str:
    """Return the file's text with code blanked out."""
    text = path.read_text()
    if path.suffix == ".md":
        text = re.sub(r"^```.*?^```", blank, text, flags=re.DOTALL | re.MULTILINE)
        return re.sub(r"`[^`\n]*`|\]\([^)\s]*\)", blank, text)
    c_like = r"//[^\n]*|/\*[\s\S]*?\*/|\"(?:[^\"\\]|\\.)*\""
    marks = c_like if path.suffix in C_LIKE else r"#[^\n]*|\"[^\"]*\""
    kept = [" " if char != "\n" else char for char in text]
    for match in re.finditer(marks, text):
        kept[match.start() : match.end()] = match[0]
    return re.sub(r"`[^`\n]*`", blank, "".join(kept))


def problems(path: Path, words: list[tuple[re.Pattern[str], str]]) -> list[str]:
    """Return each unidiomatic phrase with its place."""
    text = prose(path)
    found = []
    for pattern, better in words:
        for match in pattern.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            column = match.start() - text.rfind("\n", 0, match.start())
            name = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
            phrase = " ".join(match[0].split())
            found.append(f"{name}:{line}:{column}: `{phrase}`: {better}")
    return found


def tree() -> list[Path]:
    """Return all files that git tracks or would add."""
    command = ["git", "ls-files", "-co", "--exclude-standard", "-z"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [ROOT / name for name in names.split("\0") if name]


def below(name: str) -> list[Path]:
    """Return the file, or all files in the folder."""
    top = Path(name).resolve()
    return [top] if top.is_file() else sorted(top.rglob("*"))


def main() -> int:
    """Check the paths given as arguments, or the whole tree."""
    words = patterns()
    wrong: list[str] = []
    count = 0
    files = [path for name in sys.argv[1:] for path in below(name)] if sys.argv[1:] else tree()
    for path in files:
        if path.suffix not in ENDINGS or not path.is_file():
            continue
        wrong += problems(path, words)
        count += 1
    for line in wrong:
        print(line, file=sys.stderr)
    if not wrong:
        print(f"english: {count} files")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
