"""Names of projects and repositories: the same on every machine, never with credentials."""

from pathlib import Path

import pytest

from crystal_node.capture.cleaning import clean
from crystal_node.capture.project import normalised_remote, project_name, repository_name

HOME = Path("/home/mara")


@pytest.mark.parametrize(
    ("cwd", "name"),
    [
        ("/home/mara/src/tide", "src/tide"),
        ("/home/mara", "."),
        ("/srv/data/tide/deep", "…/tide/deep"),
        ("/", ""),
        ("", ""),
        ("a\0b", ""),
        ("C:\\Users\\mara\\tide", "…/mara/tide"),
    ],
)
def test_project_names(cwd: str, name: str) -> None:
    assert project_name(cwd, HOME) == name


@pytest.mark.parametrize(
    ("remote", "name"),
    [
        ("git@git.example.org:harbour/tide.git", "git.example.org/harbour/tide"),
        ("https://git.example.org/harbour/tide.git", "git.example.org/harbour/tide"),
        ("https://mara:secret@git.example.org/harbour/tide", "git.example.org/harbour/tide"),
        ("ssh://git@git.example.org:2222/harbour/tide.git/", "git.example.org/harbour/tide"),
        ("GIT.example.org:harbour/tide", "git.example.org/harbour/tide"),
        ("/srv/git/tide.git", ""),
        ("../tide", ""),
        ("C:/git/tide", ""),
        ("https://[broken/tide", ""),
        ("", ""),
    ],
)
def test_remotes(remote: str, name: str) -> None:
    assert normalised_remote(remote) == name


def test_a_worktree_names_its_repositorys_remote(tmp_path: Path) -> None:
    main = tmp_path / "main" / ".git"
    (main / "worktrees" / "fix").mkdir(parents=True)
    (main / "config").write_text('[remote "origin"]\nurl = git@example.org:a/b.git\n')
    (main / "worktrees" / "fix" / "commondir").write_text("../..\n")
    fix = tmp_path / "fix"
    fix.mkdir()
    (fix / ".git").write_text(f"gitdir: {main / 'worktrees' / 'fix'}\n")
    assert repository_name(str(fix)) == "example.org/a/b"


def test_damaged_and_missing_configurations_are_no_error(tmp_path: Path) -> None:
    git = tmp_path / ".git"
    git.mkdir()
    for text in ("", "no section", "[remote", '[remote "origin"]\n', "\0\0\0", '[remote "x"]\nurl\n'):
        (git / "config").write_text(text)
        assert repository_name(str(tmp_path)) == ""
    assert repository_name("/nowhere/at/all") == ""
    assert repository_name("relative") == ""


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("<system-reminder>x</system-reminder>hello", "hello"),
        ("a <command-name>/clear</command-name> b", "a  b"),
        ("<command-name>/x</command-name>\n<command-args>y</command-args>", ""),
        ("write <system-reminder> tags", "write <system-reminder> tags"),
        ("[Request interrupted by user]", ""),
        ("nul\0byte", "nulbyte"),
    ],
)
def test_mark_up_goes_and_words_stay(text: str, cleaned: str) -> None:
    assert clean(text) == cleaned


def test_many_open_tags_take_linear_time() -> None:
    openings = "<system-reminder>" * 50_000
    assert clean(openings + "</system-reminder>") == openings.removesuffix("<system-reminder>")
    assert clean(openings + "</system-reminder>" * 50_000) == ""
