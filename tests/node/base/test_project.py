"""Names of projects and repositories: the same on every machine, never with credentials."""

from pathlib import Path

import pytest

from crystal_node.base.project import (
    NAME_CHARS_MAX,
    Project,
    ProjectFinder,
    normalised_remote,
    project_name,
    repository_name,
)

HOME = Path("/home/mara")


@pytest.mark.parametrize(
    ("cwd", "name"),
    [
        ("/home/mara/src/tide", "src/tide"),
        ("/home/mara", "."),
        ("/srv/data/tide/deep", "…/3kehc7ptwqve/tide/deep"),
        ("/", ""),
        ("", ""),
        ("a\0b", ""),
        ("/home/mara2/tide", "…/hsjjg4k57f5u/mara2/tide"),
        ("/home/mara/../noor/tide", "…/r2eg5pmadqcz/noor/tide"),
        ("/" + "d/" * 3000, ""),
        ("relative/tide", "…/7azcpf25yitu/relative/tide"),
        ("C:\\Users\\mara\\tide", "…/dw4n7of3gcz5/mara/tide"),
    ],
)
def test_project_names(cwd: str, name: str) -> None:
    assert project_name(cwd, HOME) == name


def test_no_two_folders_outside_of_the_home_or_deep_within_have_one_name() -> None:
    deep = "/".join(f"part{number}" for number in range(100))
    folders = [
        "/mnt/acme/app/src",
        "/mnt/other/app/src",
        "/app/src",
        *(f"/home/mara/{deep}/{end}" for end in "ab"),
    ]
    names = {project_name(folder, HOME) for folder in folders}
    assert len(names) == len(folders)
    assert all(name.startswith("…/") and len(name) <= NAME_CHARS_MAX for name in names)
    assert not any("acme" in name or "mnt" in name for name in names)


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


def repository(folder: Path, config: str) -> Path:
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "config").write_text(config)
    return folder


def test_a_linked_home_is_the_home(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    assert project_name(str(real / "tide"), link) == "tide"
    assert project_name(str(link / "tide"), link) == "tide"


def test_a_folder_within_a_repository_names_its_remote(tmp_path: Path) -> None:
    folder = repository(tmp_path, '[remote "origin"]\n\turl = git@example.org:a/b.git\n') / "deep" / "er"
    assert repository_name(str(folder)) == "example.org/a/b", "the folder itself may be gone"


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (
            '[remote "fork"]\nurl = git@example.org:me/b\n[remote "origin"]\nurl = git@example.org:a/b\n',
            "example.org/a/b",
        ),
        (
            '[remote "z"]\nurl = git@example.org:z/b\n[remote "fork"]\nurl = git@example.org:me/b\n',
            "example.org/me/b",
        ),
        ('[remote "a"]\nurl = /srv/git/b\n[remote "z"]\nurl = git@example.org:z/b\n', "example.org/z/b"),
        ('[Remote "origin"]\r\n\tURL = "https://example.org/a/b.git"\r\n', "example.org/a/b"),
        ('[remote "origin"] url = https://example.org/a/b # work\n', "example.org/a/b"),
        ('[core]\n\turl = https://example.org/not/this\n[branch "main"]\n\tremote = origin\n', ""),
        ('[remote "origin"]\n\tpushurl = https://example.org/not/this\n', ""),
        ('[remote "origin"]\n\turl = https://oauth2:t0k3n@example.org/a/b.git\n', "example.org/a/b"),
    ],
)
def test_git_configurations(tmp_path: Path, config: str, name: str) -> None:
    assert repository_name(str(repository(tmp_path, config))) == name


def test_a_huge_configuration_is_read_to_a_limit(tmp_path: Path) -> None:
    remote = '[remote "origin"]\nurl = git@example.org:a/b\n'
    folder = repository(tmp_path / "near", remote + "# long\n" * 100_000)
    assert repository_name(str(folder)) == "example.org/a/b"
    assert repository_name(str(repository(tmp_path / "far", "# long\n" * 100_000 + remote))) == ""


def test_a_pass_looks_at_each_place_once_and_the_next_pass_anew(tmp_path: Path) -> None:
    folder = repository(tmp_path / "tide", '[remote "origin"]\nurl = git@example.org:a/b\n')
    places = ProjectFinder(tmp_path)
    assert places.of(str(folder)) == Project("tide", "example.org/a/b", "tide")
    (folder / ".git" / "config").write_text("")
    assert places.of(str(folder)) == Project("tide", "example.org/a/b", "tide")
    assert ProjectFinder(tmp_path).of(str(folder)) == Project("tide", "")


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


def test_a_git_file_that_leads_nowhere_is_no_error(tmp_path: Path) -> None:
    inside = tmp_path / "g" / "w"
    inside.mkdir(parents=True)
    (tmp_path / ".git").write_text("gitdir: g/w\n")
    (inside / "commondir").write_bytes(b"..\0/..")
    assert repository_name(str(tmp_path)) == ""
    (inside / "commondir").unlink()
    (inside / "commondir").symlink_to(inside / "commondir")
    assert repository_name(str(tmp_path)) == ""
    (tmp_path / ".git").write_bytes(b"gitdir: \0\n")
    assert repository_name(str(tmp_path)) == ""
