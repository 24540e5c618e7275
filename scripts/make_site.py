"""Gather the project's pages for the documentation site, which `mkdocs build` then makes of them: `make docs`.

Every page keeps its path, so that links between pages stay as they are. What is linked and is no page is copied beside
them. A link to a folder leads to its README; one to a hidden file, which a site does not have, becomes plain text. Lists
and fences get the blank line before them that Python's Markdown asks for and GitHub's does not.
"""

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
TARGET = PROJECT / ".site-pages"
TOP = ("README.md", "SECURITY.md", "CHANGELOG.md", "CONTRIBUTING.md")
FOLDERS = ("docs", "deploy", "bench", "crypto", "mirror", "core", "relay", "node", "scripts", "tests")
_LINK = re.compile(r"(?<!!)\[([^\[\]]*)\]\(([^)\s]+)\)")
_IMAGE = re.compile(r"!\[[^\]]*\]\(([^)\s]+)\)")
_ITEM = re.compile(r"( *)([-*]|\d+\.) ")


def pages(root: Path = PROJECT) -> list[Path]:
    """All pages of the site, but for the texts that tests read."""
    below = (path for folder in FOLDERS for path in (root / folder).rglob("*.md"))
    kept = [path for path in below if not {"fixtures", "node_modules"} & set(path.parts)]
    return sorted([root / name for name in TOP] + kept)


def gather(root: Path = PROJECT, target: Path = TARGET) -> int:
    """Write them all below `target`, which is emptied first. Returns how many pages there are."""
    shutil.rmtree(target, ignore_errors=True)
    found = pages(root)
    for page in found:
        place = target / page.relative_to(root)
        place.parent.mkdir(parents=True, exist_ok=True)
        text = page.read_text(encoding="utf-8")
        place.write_text(_for_site(text, page, root), encoding="utf-8")
        for file in _linked_files(text, page, root, set(found)):
            copy = target / file.relative_to(root)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
    return len(found)


def _linked_files(text: str, page: Path, root: Path, known: set[Path]) -> Iterator[Path]:
    for link in [match[1] for match in _IMAGE.finditer(text)] + [match[2] for match in _LINK.finditer(text)]:
        file = (page.parent / link.partition("#")[0]).resolve()
        if file.is_file() and file not in known and not _hidden(file, root):
            yield file


def _hidden(path: Path, root: Path) -> bool:
    return not path.is_relative_to(root) or any(part.startswith(".") for part in path.relative_to(root).parts)


def _for_site(text: str, page: Path, root: Path) -> str:
    lines: list[str] = []
    fenced = False
    for line in text.splitlines():
        fence = line.lstrip().startswith(("```", "~~~"))
        before = lines[-1] if lines else ""
        if not fenced:
            item = _ITEM.match(line)
            begins = (fence and not line[0].isspace()) or (
                item is not None and not _ITEM.match(before) and not before.startswith(" ")
            )
            if begins and before.strip():
                lines.append("")
            line = re.sub(_LINK, lambda match: _link(match, page, root), line)  # noqa: PLW2901
        fenced ^= fence
        lines.append(line)
    return "\n".join(lines) + "\n"


def _link(match: "re.Match[str]", page: Path, root: Path) -> str:
    words, link = match[1], match[2]
    target, mark, anchor = link.partition("#")
    if re.match(r"[a-z][a-z0-9+.-]*:", link) or not target:
        return match[0]
    path = (page.parent / target).resolve()
    if _hidden(path, root):
        return words
    if path.is_dir():
        readme = path / "README.md"
        return f"[{words}]({target.rstrip('/')}/README.md{mark}{anchor})" if readme.exists() else words
    return match[0]


def main() -> int:
    print(f"{gather()} pages in {TARGET.relative_to(PROJECT)}/")
    return 0


if __name__ == "__main__":
    sys.exit(main())
