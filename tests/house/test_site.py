"""The documentation site has every page, in the order of its readers, and builds without a warning."""

import os
import re
import subprocess
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml

from scripts.make_site import gather, pages
from tests.support.release_files import PROJECT

MKDOCS = PROJECT / ".venv-docs" / "bin" / "mkdocs"


def navigation() -> list[str]:
    text = (PROJECT / "mkdocs.yml").read_text(encoding="utf-8")
    return re.findall(r": ([\w./-]+\.md)$", text[text.index("\nnav:") :], re.MULTILINE)


def test_every_page_for_people_is_in_the_navigation_once() -> None:
    listed = navigation()
    assert len(listed) == len(set(listed))
    written = {str(path.relative_to(PROJECT)) for path in (PROJECT / "docs").glob("*.md")}
    assert written <= set(listed)
    assert set(listed) <= {str(path.relative_to(PROJECT)) for path in pages()}
    assert listed[:2] == ["README.md", "docs/install.md"]


def test_links_of_a_site_lead_to_pages_and_lists_are_lists(tmp_path: Path) -> None:
    root, target = tmp_path / "project", tmp_path / "site"
    for folder in ("docs", "node/part", ".github"):
        (root / folder).mkdir(parents=True)
    for name in (
        "SECURITY.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "node/part/README.md",
        ".github/x.yml",
        "node/a.py",
    ):
        (root / name).write_text("x\n")
    (root / "README.md").write_text(
        "Said:\n- [part](node/part) and [hidden](.github/x.yml)\n- [code](node/a.py)\n```\n- [kept](node/part)\n```\n"
    )
    assert gather(root, target) == 5
    assert (target / "README.md").read_text() == (
        "Said:\n\n- [part](node/part/README.md) and hidden\n- [code](node/a.py)\n\n```\n- [kept](node/part)\n```\n"
    )
    assert (target / "node" / "a.py").exists()
    assert not (target / ".github").exists()


class Loaded(HTMLParser):
    """Addresses that a browser would fetch by itself when it shows a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag in {"script", "img", "iframe", "source"}:
            self.found.append(values.get("src") or "")
        if tag == "link" and "canonical" not in (values.get("rel") or ""):
            self.found.append(values.get("href") or "")


@pytest.mark.slow
@pytest.mark.skipif(not MKDOCS.exists(), reason="what builds the site is not installed: make docs")
def test_the_site_builds_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    gather(PROJECT, tmp_path / "pages")
    (tmp_path / "mkdocs.yml").write_text(
        yaml.safe_dump(
            {
                "INHERIT": str(PROJECT / "mkdocs.yml"),
                "docs_dir": str(tmp_path / "pages"),
                "site_dir": str(tmp_path / "site"),
            }
        )
    )
    done = subprocess.run(
        [str(MKDOCS), "build", "--strict", "--quiet", "--config-file", str(tmp_path / "mkdocs.yml")],
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    built = list((tmp_path / "site").rglob("*.html"))
    assert len(built) > 100
    assert (tmp_path / "site" / "search" / "search_index.json").stat().st_size > 100_000
    assert sorted(set(_foreign(built))) == []


def _foreign(built: list[Path]) -> Iterator[str]:
    for page in built:
        loaded = Loaded()
        loaded.feed(page.read_text(encoding="utf-8"))
        yield from (address for address in loaded.found if re.match(r"(https?:)?//", address))
