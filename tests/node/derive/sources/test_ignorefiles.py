"""Ignore files are honoured as git honours them: the same trees are put to both."""

import random
import shutil
import subprocess
from pathlib import Path

import pytest
from pathspec.patterns.gitignore.base import GitIgnorePatternError
from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

from crystal_node.derive.sources.ignorefiles import patterns
from crystal_node.derive.sources.scan import SourceScan

NAMES = ("a", "b", "foo", "bar", "x.py", "y.txt", "z.md", "A", "deep")
PATTERNS = (
    "foo", "foo/", "/foo", "/foo/", "foo/*", "foo/**", "**/foo", "**/foo/", "a/**/b", "*", "!*/", "*/", "!*.py", "*.py", "!foo",
    "!foo/", "!/a", "a/b", "!a/b", "/a/*", "!/a/b", "[ab]", "[!a]", "?", "b*r", "# comment", "", "\\#x", "x.py ", "*.txt",
    "!y.txt",
    "deep/**", "!deep/a", "**", "/**/x.py", "a**", "!", "/", "foo//", "fo[o", "\\", "a/", "!a/", "*.md\r", "!z.md",
)  # fmt: skip

git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not here")


def tree(root: Path, dice: random.Random, depth: int = 3) -> None:
    root.mkdir(exist_ok=True)
    for name in dice.sample(NAMES, dice.randrange(2, len(NAMES))):
        if depth and dice.random() < 0.4:
            tree(root / name, dice, depth - 1)
        else:
            (root / name).write_text("something")
    if dice.random() < 0.5 or depth == 3:
        lines = dice.sample(PATTERNS, dice.randrange(1, 7))
        (root / ".gitignore").write_bytes("\n".join(lines).encode())


def of_git(root: Path, below: str = ".") -> set[str]:
    """The files that git would add."""
    listed = subprocess.run(
        ["git", "-c", "core.excludesFile=", "-c", "core.ignoreCase=false", "ls-files", "-z", "-o", "--exclude-standard", below],
        cwd=root,
        capture_output=True,
        check=True,
    ).stdout.decode()  # fmt: skip
    return {name for name in listed.split("\0") if name and not name.endswith(".gitignore")}


def scanned(root: Path) -> set[str]:
    return {path for path, _ in SourceScan(root).files()}


def repository(root: Path) -> None:
    subprocess.run(["git", "init", "-q", str(root)], check=True)


@git
@pytest.mark.parametrize("seed", range(40))
def test_a_tree_is_read_as_git_would_add_it(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    root = tmp_path / "tree"
    tree(root, dice)
    repository(root)
    (root / ".git" / "info").mkdir(exist_ok=True)
    (root / ".git" / "info" / "exclude").write_text("\n".join(dice.sample(PATTERNS, 2)))
    assert scanned(root) == of_git(root)
    below = next((entry for entry in sorted(root.iterdir()) if entry.is_dir() and entry.name != ".git"), None)
    if below is not None and of_git(root, below.name):
        inside = {path.removeprefix(f"{below.name}/") for path in of_git(root, below.name)}
        assert scanned(below) == inside, "a folder of a repository"


@git
def test_a_repository_inside_has_its_own_rules(tmp_path: Path) -> None:
    root, inner = tmp_path / "outer", tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    repository(root)
    repository(inner)
    (root / ".gitignore").write_text("*.txt")
    (inner / ".gitignore").write_text("*.md")
    for name in ("one.txt", "two.md", "three.py"):
        (root / name).write_text("x")
        (inner / name).write_text("x")
    assert scanned(root) == {"two.md", "three.py", "inner/one.txt", "inner/three.py"}


def test_rules_hold_without_a_repository_and_crystals_own_count_most(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("*.txt\n")
    (tmp_path / ".ignore").write_text("!notes.txt\n*.md\n")
    (tmp_path / ".crystalignore").write_text("!readme.md\nsecret/\n")
    (tmp_path / "secret").mkdir()
    for name in ("notes.txt", "other.txt", "readme.md", "more.md", "secret/x.py"):
        (tmp_path / name).write_text("x")
    assert scanned(tmp_path) == {"notes.txt", "readme.md"}


def test_an_ignore_file_that_is_a_link_or_no_text_is_no_obstacle(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("*\n")
    root = tmp_path / "root"
    root.mkdir()
    (root / ".gitignore").symlink_to(outside)
    (root / ".ignore").write_bytes(b"\xff\xfe\0*.c\n\n[z-a]\n" + b"x" * 5000)
    (root / ".crystalignore").mkdir()
    (root / "file.txt").write_text("x")
    assert scanned(root) == {"file.txt"}


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("*a" * 60 + "*b", "a" * 250),
        ("*?" * 60 + "b", "a" * 250),
        ("*[!b]" * 60 + "*b", "a" * 250),
        ("a**" * 60 + "b", "a" * 250),
        ("**/a/" * 60 + "b", "a/" * 60 + "c"),
        ("**/*a*a*a/" * 20 + "b", "aaaa/" * 60 + "c"),
    ],
)
def test_no_pattern_of_many_stars_keeps_anybody_busy(pattern: str, path: str) -> None:
    """Without the rewriting each of these would take longer than anybody waits: it is enough that they end."""
    assert patterns([pattern]).verdict(path) is None
    assert patterns([pattern]).verdict(path[:-1] + "b") is not False


@pytest.mark.parametrize("seed", range(20))
def test_rewritten_patterns_match_what_they_matched(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(200):
        parts = ("a", "b", "*", "*", "**", "/", "?", "/**/", "**/", "\\*", ".")
        written = "".join(dice.choice(parts) for _ in range(dice.randrange(1, 9)))
        try:
            plain = GitIgnoreSpecPattern(written)
        except GitIgnorePatternError:
            continue
        if plain.regex is None:
            continue
        for _ in range(10):
            names = ("".join(dice.choice("ab.*") for _ in range(dice.randrange(1, 5))) for _ in range(3))
            path = "/".join(names)
            # What is below a folder matches by its folder, so each folder above is asked, too.
            own = any(patterns([written.removeprefix("!")]).verdict(each) for each in (path, *_folders(path)))
            assert own == (plain.match_file(path) is not None), (written, path)


def _folders(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:depth]) + "/" for depth in range(1, len(parts))]
