"""Checks that every relative link in the project's pages leads to a file, and every `#anchor` to a heading.

`python -m scripts.check_links [DIRECTORY]` prints `path:line: link` for each dead one; exit code 1 if any.
Links to other sites are not visited: a check that needs the network fails for reasons that are not ours.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

_LINK = re.compile(r"!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
_HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*$")
_FENCE = re.compile(r"^\s*(```|~~~)")
_CODE = re.compile(r"`[^`]*`")
_SKIPPED = frozenset({".venv", ".git", "node_modules", "build", "dist"})


def pages(root: Path) -> list[Path]:
    """Every Markdown page of the project."""
    return sorted(
        path
        for path in root.rglob("*.md")
        if not any(part.startswith(".") or part in _SKIPPED for part in path.relative_to(root).parts)
    )


def dead_links(root: Path) -> list[str]:
    """One line for each link that leads nowhere."""
    return [
        f"{page.relative_to(root)}:{line}: {link}" for page in pages(root) for line, link in _dead(root, page)
    ]


def anchors(text: str) -> set[str]:
    """The anchors that GitHub gives to a page's headings; a repeated heading gets -1, -2, …"""
    found: dict[str, int] = {}
    names: set[str] = set()
    for _, line in _prose(text):
        heading = _HEADING.match(line)
        if heading is None:
            continue
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.group(1))
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        names.add(f"{slug}-{found[slug]}" if slug in found else slug)
        found[slug] = found.get(slug, 0) + 1
    return names


def _dead(root: Path, page: Path) -> Iterator[tuple[int, str]]:
    for number, line in _prose(page.read_text(encoding="utf-8")):
        for match in _LINK.finditer(_CODE.sub("", line)):
            link = match.group(1)
            if re.match(r"^[a-z][a-z0-9+.-]*:", link):
                continue
            target, _, anchor = link.partition("#")
            path = (page.parent / target).resolve() if target else page
            # A link that leaves the project works on the writer's machine only.
            leaves = not path.is_relative_to(root.resolve())
            missing = leaves or not path.exists()
            if missing or (
                anchor and path.suffix == ".md" and anchor not in anchors(path.read_text("utf-8"))
            ):
                yield number, link


def _prose(text: str) -> Iterator[tuple[int, str]]:
    """The numbered lines outside fenced code."""
    fenced = False
    for number, line in enumerate(text.splitlines(), start=1):
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            yield number, line


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    dead = dead_links(root)
    for line in dead:
        print(line)
    return 1 if dead else 0


if __name__ == "__main__":
    sys.exit(main())
