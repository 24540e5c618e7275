"""Links in the project's pages lead somewhere, and what they name of the code and the tests exists."""

import ast
import importlib
import re
import tomllib
from itertools import chain
from pathlib import Path

import pytest

from scripts.check_links import anchors, dead_links, pages

PROJECT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
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


def _resolves(name: str) -> bool:
    """Whether a dotted name is a module or a public name in one."""
    module, _, attribute = name.rpartition(".")
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        if not module:
            return False
        try:
            return hasattr(importlib.import_module(module), attribute)
        except ModuleNotFoundError:
            return False
    return True


def test_every_module_that_a_page_names_exists() -> None:
    named = {
        (str(page.relative_to(PROJECT)), name)
        for page in pages(PROJECT)
        for name in re.findall(
            r"`(crystal_(?:crypto|mirror|core|relay|node)(?:\.\w+)*)`", page.read_text(encoding="utf-8")
        )
    }
    assert len(named) > 10
    assert [(page, name) for page, name in sorted(named) if not _resolves(name)] == []


def test_every_metric_that_a_page_names_is_counted() -> None:
    code = (PROJECT / "relay" / "crystal_relay" / "server" / "metrics.py").read_text(encoding="utf-8")
    counted = set(re.findall(r'"(crystal_relay_\w+)"', code))
    named = {
        (str(page.relative_to(PROJECT)), name.removesuffix("_total").removesuffix("_bucket"))
        for page in pages(PROJECT)
        for name in re.findall(r"`(crystal_relay_\w+)", page.read_text(encoding="utf-8"))
    }
    assert len(named) > 5
    assert [(page, name) for page, name in sorted(named) if name not in counted] == []


def test_every_file_that_the_architecture_names_exists() -> None:
    text = (PROJECT / "docs" / "architecture.md").read_text(encoding="utf-8")
    folders = {f"crystal_{name}": name for name in ("crypto", "mirror", "core", "relay", "node")}
    named = set(re.findall(r"`((?:[a-z_]+/)+(?:[a-z_]+\.py)?)`", text))
    assert len(named) > 10
    missing = [
        name
        for name in sorted(named)
        if not (PROJECT / name).exists()
        and not (PROJECT / folders.get(name.split("/")[0], "") / name).exists()
    ]
    assert missing == []


def _modules(folder: Path) -> set[str]:
    """What somebody finds who opens the folder: modules and packages."""
    found = {path.stem for path in folder.glob("*.py")} | {
        path.parent.name for path in folder.glob("*/__init__.py")
    }
    return {name for name in found if not name.startswith(("_", "test_")) and name != "conftest"}


WINGS = sorted(path.parent.name for path in (PROJECT / "node" / "crystal_node").glob("*/__init__.py"))


@pytest.mark.parametrize(
    ("page", "folder"),
    [
        *((name, f"{name}/crystal_{name}") for name in ("crypto", "mirror", "core", "relay", "node")),
        ("relay/crystal_prototype", "relay/crystal_prototype"),
        ("tests/sim", "tests/sim"),
        *((f"node/crystal_node/{wing}", f"node/crystal_node/{wing}") for wing in WINGS),
    ],
)
def test_each_folders_page_names_all_of_its_modules(page: str, folder: str) -> None:
    modules = _modules(PROJECT / folder)
    assert len(modules) > 1
    text = (PROJECT / page / "README.md").read_text(encoding="utf-8")
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    named = {word for code in re.findall(r"`([^`]+)`", text) for word in re.findall(r"\w+", code)}
    assert sorted(modules - named) == []


def test_every_dependency_is_accounted_for() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *chain.from_iterable(project["optional-dependencies"].values())]
    names = {re.split(r"[^\w.-]", line)[0].lower() for line in wanted}
    assert len(names) > 30
    said = (PROJECT / "docs" / "decisions" / "0005-dependencies.md").read_text(encoding="utf-8").lower()
    assert [
        name for name in sorted(names) if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", said)
    ] == []


@pytest.mark.slow
def test_every_test_that_the_threat_model_names_exists() -> None:
    text = (PROJECT / "docs" / "threat-model.md").read_text(encoding="utf-8")
    named = re.findall(r"\[`(test_\w+)`\]\(\.\./(tests/[\w/]+\.py)\)", text)
    assert len(named) > 25
    missing: list[str] = []
    for test, path in named:
        tree = ast.parse((PROJECT / path).read_text(encoding="utf-8"))
        if test not in {
            node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }:
            missing.append(f"{path}::{test}")
    assert missing == []
    # Every test name in the page is in that form, so that none escapes the check.
    assert len(re.findall(r"\btest_\w+`", text)) == len(named)
