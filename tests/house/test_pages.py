"""Links in the project's pages lead somewhere, and the checker sees those that do not."""

from pathlib import Path

import pytest

from scripts.check_links import anchors, dead_links

PROJECT = Path(__file__).resolve().parents[2]


def test_no_page_has_a_dead_link() -> None:
    assert dead_links(PROJECT) == []


@pytest.mark.parametrize("link", ["gone.md", "there.md#gone", "#gone", "../outside.md", "folder/gone.py"])
def test_a_dead_link_is_seen(link: str, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (tmp_path / "outside.md").write_text("# Outside\n", encoding="utf-8")
    (project / "there.md").write_text("# There\n", encoding="utf-8")
    (project / "page.md").write_text(f"# Page\n\nSee [it]({link}).\n", encoding="utf-8")
    assert dead_links(project) == [f"page.md:3: {link}"]


@pytest.mark.parametrize(
    "text",
    ["[it](there.md)", "[it](there.md#a-heading)", "[it](https://example.invalid/)", "`[it](gone.md)`"],
)
def test_a_good_link_passes(text: str, tmp_path: Path) -> None:
    (tmp_path / "there.md").write_text("# There\n\n## A `heading`!\n", encoding="utf-8")
    (tmp_path / "page.md").write_text(f"{text}\n\n```\n[it](gone.md)\n```\n", encoding="utf-8")
    assert dead_links(tmp_path) == []


def test_headings_that_repeat_are_numbered() -> None:
    assert anchors("# One\n## Two\n## Two\n") == {"one", "two", "two-1"}
