"""What a head says of a working folder: asked of the real git, which runs nothing that the repository names."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from crystal_node.derive.sessions.facts import (
    GIT_PAUSE_SECONDS,
    UncommittedFiles,
    git_place,
    uncommitted_files,
)
from crystal_node.derive.sessions.layout import CHANGED_FILES_MAX
from crystal_node.derive.sessions.writer import SessionWriter
from tests.node.derive.sessions.machines import Machine, sync
from tests.node.derive.sessions.support import SESSION
from tests.support.machine import turn


def git(folder: Path, *arguments: str) -> None:
    named = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "init.defaultBranch=main")
    subprocess.run(
        ["git", *named, *arguments],
        cwd=folder,
        check=True,
        capture_output=True,
        env=os.environ | {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"},
    )


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    (folder / "src").mkdir(parents=True)
    git(folder, "init")
    for name in ("kept.py", "staged.py", "src/changed.py", "gone.py"):
        (folder / name).write_text("as it was\n")
    (folder / ".gitignore").write_text("*.log\n")
    git(folder, "add", ".")
    git(folder, "commit", "-m", "first")
    return folder


def test_changed_staged_deleted_and_new_files_are_named_and_others_not(repository: Path) -> None:
    assert uncommitted_files(str(repository)) == ()
    (repository / "staged.py").write_text("changed and staged\n")
    git(repository, "add", "staged.py")
    (repository / "src" / "changed.py").write_text("changed\n")
    (repository / "gone.py").unlink()
    (repository / "new\nfile.py").write_text("new")
    (repository / "debug.log").write_text("ignored")
    for folder in (repository, repository / "src"):
        assert sorted(uncommitted_files(str(folder)) or ()) == [
            "gone.py",
            "new file.py",
            "src/changed.py",
            "staged.py",
        ]


def test_nothing_that_the_repository_names_is_run_and_nothing_is_written(
    repository: Path, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    trap = tmp_path / "trap"
    trap.write_text(f"#!/bin/sh\ntouch {ran}\ncat\n")
    trap.chmod(0o755)
    (repository / ".gitattributes").write_text("* filter=trap diff=trap\n")
    hooks = repository / ".git" / "hooks"
    for name in ("post-index-change", "fsmonitor-watchman", "reference-transaction"):
        (hooks / name).write_bytes(trap.read_bytes())
        (hooks / name).chmod(0o755)
    for name in (
        "core.fsmonitor",
        "filter.trap.clean",
        "filter.trap.smudge",
        "diff.trap.command",
        "diff.external",
    ):
        git(repository, "config", name, str(trap))
    for name in ("kept.py", "src/changed.py"):
        (repository / name).write_text("as it is\n")  # the same size: only its content or its times tell
    ran.unlink(missing_ok=True)
    index = (repository / ".git" / "index").stat().st_mtime_ns
    found = uncommitted_files(str(repository))
    assert found is not None
    assert {"kept.py", "src/changed.py", ".gitattributes"} <= set(found)
    git(repository, "config", "filter.a=b.clean", str(trap))
    assert uncommitted_files(str(repository)) is None, "its name is one that no option of git can hold"
    assert not ran.exists()
    assert (repository / ".git" / "index").stat().st_mtime_ns == index


def test_what_a_partial_clone_lacks_is_not_fetched_whatever_its_configuration_allows(
    repository: Path, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    trap = tmp_path / "trap"
    trap.write_text(f"#!/bin/sh\ntouch {ran}\n")
    trap.chmod(0o755)
    for name, value in {
        "core.repositoryFormatVersion": "1",
        "extensions.partialClone": "origin",
        "remote.origin.url": str(repository),
        "remote.origin.promisor": "true",
        "remote.origin.uploadpack": str(trap),
        "protocol.file.allow": "always",
    }.items():
        git(repository, "config", name, value)
    tree = subprocess.run(
        ["git", "rev-parse", "HEAD^{tree}"], cwd=repository, check=True, capture_output=True, text=True
    ).stdout.strip()
    (repository / ".git" / "objects" / tree[:2] / tree[2:]).unlink()
    assert uncommitted_files(str(repository)) is None
    assert not ran.exists()


def test_no_repository_none_that_works_and_no_git_are_unknown(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert uncommitted_files(str(tmp_path)) is None
    assert uncommitted_files("") is None
    assert uncommitted_files("work") is None
    (repository / ".git" / "index").write_bytes(b"damaged")
    assert uncommitted_files(str(repository)) is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert uncommitted_files(str(repository)) is None


def test_a_git_that_hangs_or_never_ends_is_stopped(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crystal_node.derive.sessions.facts.GIT_SECONDS_MAX", 0.2)
    program = tmp_path / "git"
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)
    assert uncommitted_files(str(repository)) is None
    program.write_text("#!/bin/sh\nexec yes a-file-that-changed\n")
    assert uncommitted_files(str(repository)) is None
    monkeypatch.setattr("crystal_node.derive.sessions.facts.GIT_SECONDS_MAX", 30.0)
    program.write_text(f'#!/bin/sh\ncase "$*" in *get-regexp*) exit 1;; esac\nexec cat {tmp_path}/many\n')
    (tmp_path / "many").write_bytes(b"".join(b"f%d\0" % n for n in range(100_000)))
    assert len(uncommitted_files(str(repository)) or ()) == CHANGED_FILES_MAX


def test_a_folder_is_asked_about_seldom(repository: Path) -> None:
    now = 100.0
    files = UncommittedFiles(lambda: now)
    assert files.of(str(repository)) == ()
    (repository / "kept.py").write_text("changed\n")
    assert files.of(str(repository)) is None
    now += GIT_PAUSE_SECONDS
    assert files.of(str(repository)) == ("kept.py",)


def test_a_head_names_what_a_live_session_has_seen_and_not_what_another_machine_saw(
    repository: Path, tmp_path: Path
) -> None:
    one, two = Machine(tmp_path, "a"), Machine(tmp_path, "b")
    one.writer = SessionWriter(
        one.root, one.device, one.database, one.adapter, person_home=one.person, uncommitted=uncommitted_files
    )
    said = turn("A marmot.", session=SESSION, cwd=str(repository)).encode()
    one.says(said)
    yesterday = time.time() - 86_400
    os.utime(one.transcript, (yesterday, yesterday))
    one.copy()
    [head] = one.copies.heads()
    assert (head.branch, head.commit, head.changed) == ("", "", None), (
        "what is there today says nothing of it"
    )
    (repository / "kept.py").write_text("changed\n")
    token = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"[:36]
    (repository / token).write_text("new")
    one.says(said)
    one.copy()
    [head] = one.copies.heads()
    assert (head.branch, head.commit) == git_place(str(repository))
    assert head.changed == ("kept.py", "[redacted:github-token]")
    sync(one, two)
    two.transcript.write_bytes(two.tip())
    two.says(turn("Another marmot.", session=SESSION, cwd=str(tmp_path)).encode())
    two.copy()
    [mine] = [each for each in two.copies.heads() if each.device == two.device]
    assert (mine.branch, mine.commit, mine.changed) == ("", "", None), "it is in no repository here"
