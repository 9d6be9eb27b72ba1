#!/usr/bin/env python3
"""Check the built documentation site, without a network: `check-site.py SITE`.

Every link leads to a file of the site and, with a `#`, to an element in it. Every page is at most
two clicks from the first one. No page loads anything from outside. Every path of the source that a
page names exists, and every page that the source names.
"""

import re
import subprocess
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# Attributes that load a resource.
LOADS = {("img", "src"), ("script", "src"), ("link", "href"), ("iframe", "src"), ("source", "src")}
# These are not pages for readers: the error page, and the contents that every page shows in its
# sidebar.
NO_PAGES = {"404.html", "toc.html"}
MOST_CLICKS = 2
# Paths of the source in inline code. Words in capitals stand for names. Pages about the past are
# not checked.
SOURCE = re.compile(r"(?:bench|crates|docs|fuzz|python|scenarios|scripts|web|xtask)/[^\s*{}:]*")
HISTORY = ("notebook/", "changelog.html")
ROOT = Path(__file__).parent.parent
# The files that the examples of CONTRIBUTING.md and of the tutorials create.
CREATED = re.compile(r"^`([^`]+)`:$", re.MULTILINE)
ADDED = {"docs/algorithms/bound.md", *CREATED.findall((ROOT / "CONTRIBUTING.md").read_text())}
# Pages that sources refer to, and the places.
PAGE = re.compile(r"\bdocs/[\w./+-]+\.(?:md|toml|csv|png)\b")
NAMING = ["bench", "crates", "fuzz", "python", "scenarios", "scripts", "web", "xtask", "Makefile"]


@dataclass
class Page(HTMLParser):
    """The links, resources and anchors of a page."""

    links: list[tuple[int, str]] = field(default_factory=list)
    loads: list[tuple[int, str]] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)
    paths: list[tuple[int, str]] = field(default_factory=list)
    open_tags: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Start the parser."""
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the links of the element."""
        if tag in {"code", "pre"}:
            self.open_tags.append(tag)
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            elif value and (tag, name) == ("a", "href"):
                self.links.append((self.getpos()[0], value))
            elif value and (tag, name) in LOADS:
                self.loads.append((self.getpos()[0], value))

    def handle_endtag(self, tag: str) -> None:
        """Note the end of code."""
        if self.open_tags and tag == self.open_tags[-1]:
            self.open_tags.pop()

    def handle_data(self, data: str) -> None:
        """Note paths in inline code. Blocks are skipped: their commands may create the paths."""
        if (
            self.open_tags == ["code"]
            and SOURCE.fullmatch(data)
            and not re.search("[A-Z]{3}", data)
        ):
            self.paths.append((self.getpos()[0], data))


def read(path: Path) -> Page:
    """Parse one page."""
    page = Page()
    page.feed(path.read_text())
    return page


def check(site: Path) -> list[str]:
    """Return the problems, one line each."""
    pages = {path.relative_to(site).as_posix(): read(path) for path in site.rglob("*.html")}
    if "index.html" not in pages:
        return [f"{site} has no index.html"]
    problems: list[str] = []
    leads: dict[str, set[str]] = {name: set() for name in pages}
    # mdBook writes the contents once, and a script with the same links shows them on every page.
    contents = pages["toc.html"].links if "toc.html" in pages else []
    for name, page in pages.items():
        for line, url in page.links + page.loads:
            parts = urlsplit(url)
            if parts.scheme or parts.netloc:
                if (line, url) in page.loads and parts.scheme != "data":
                    problems.append(f"{name}:{line}: loads {url} from outside the site")
                continue
            # Links of the contents and of the error page are relative to the first page.
            folder = site if name in NO_PAGES else (site / name).parent
            path = folder / unquote(parts.path).lstrip("/") if parts.path else site / name
            path = path / "index.html" if path.is_dir() else path
            if not path.is_file():
                problems.append(f"{name}:{line}: {url} leads to nothing")
                continue
            target = path.resolve().relative_to(site).as_posix()
            if target in pages:
                leads[name].add(target)
                anchor = unquote(parts.fragment)
                if anchor and anchor not in pages[target].anchors:
                    problems.append(f"{name}:{line}: {url}: {target} has no element `{anchor}`")
            elif (line, url) in page.links and target.endswith(".md"):
                problems.append(f"{name}:{line}: {url} is a source of the site, not a page")
        if not name.startswith(HISTORY):
            paths = ((line, path) for line, path in page.paths if path not in ADDED)
            missing = [(line, path) for line, path in paths if not (ROOT / path).exists()]
            problems += [f"{name}:{line}: the source has no `{path}`" for line, path in missing]
    for _, url in contents:
        leads["index.html"].add(unquote(urlsplit(url).path))
    clicks = {"index.html": 0}
    near = ["index.html"]
    for name in near:
        for target in sorted(leads.get(name, ())):
            if target not in clicks:
                clicks[target] = clicks[name] + 1
                near.append(target)
    for name in sorted(set(pages) - NO_PAGES):
        if clicks.get(name, MOST_CLICKS + 1) > MOST_CLICKS:
            far = f"{clicks[name]} clicks" if name in clicks else "no click"
            problems.append(f"{name}: {far} from the first page; at most {MOST_CLICKS} are allowed")
    if not problems:
        links = sum(len(page.links) for page in pages.values())
        print(f"site: {len(pages) - len(NO_PAGES & pages.keys())} pages, {links} links, none dead")
    return problems


def check_sources() -> list[str]:
    """Return the pages that sources refer to and that do not exist."""
    command = ["git", "ls-files", "-co", "--exclude-standard", "--", *NAMING]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    problems = []
    for name in listed.stdout.splitlines():
        path = ROOT / name
        text = path.read_text(errors="ignore") if path.is_file() else ""
        for match in PAGE.finditer(text):
            page = match[0]
            if page not in ADDED and not re.search("[A-Z]{4}", page) and not (ROOT / page).exists():
                line = text.count("\n", 0, match.start()) + 1
                problems.append(f"{name}:{line}: there is no page `{page}`")
    return problems


def main() -> int:
    """Check the given site, and the sources that refer to its pages."""
    if len(sys.argv) != 2:
        print("usage: check-site.py SITE", file=sys.stderr)
        return 2
    problems = check(Path(sys.argv[1]).resolve()) + check_sources()
    for problem in problems:
        print(f"site: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
