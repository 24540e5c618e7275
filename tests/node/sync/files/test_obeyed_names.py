"""Names that programs execute or obey: another device's are not applied before a person of this device has allowed them."""

import os
import shutil
import subprocess
from hashlib import sha256
from pathlib import Path

import pytest

from crystal_crypto.kit import encode_kit
from crystal_mirror.operations import DropFile, FilePart, PutFile
from crystal_mirror.snapshots.blobs import put_blob
from crystal_node.base.file_rules import TreeRules
from crystal_node.base.obeyed_names import obeyed_part
from tests.mirror.support import new_root
from tests.support.desks import Desk, Desks, settle

GIT = shutil.which("git")
assert GIT is not None, "the attack is shown with the real program"


def put_as_member(desk: Desk, path: str, content: bytes, *, executable: bool = False) -> None:
    """What a member sends that keeps no rule of its own: the part and the operation, without a file."""
    part = FilePart(sha256(content).digest(), len(content))
    if content:
        desk.store.run(put_blob(desk.member, content, 0, compress=True))
    desk.member.accept(PutFile(path, None, executable, 0, (part,) if content else ()))
    desk.memory()


def git(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    assert GIT is not None
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    return subprocess.run(
        [GIT, *words], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=60
    )


def allow(desk: Desk, *names: str) -> None:
    desk.disk.tree = TreeRules(allowed=names)


def repository_files(folder: Path) -> dict[str, bytes]:
    """A real repository's own files, by their path in it."""
    folder.mkdir()
    assert git(folder, "init", "--quiet", ".").returncode == 0
    root = folder / ".git"
    found = {each.relative_to(root).as_posix(): each for each in root.rglob("*") if each.is_file()}
    return {path: each.read_bytes() for path, each in found.items() if not path.startswith("hooks/")}


def attacking_config(mark: Path, worktree: str = "") -> bytes:
    bare = f"\tbare = false\n\tworktree = {worktree}\n" if worktree else "\tbare = false\n"
    return (f'[core]\n\trepositoryformatversion = 0\n{bare}\tfsmonitor = "touch {mark}; false"\n').encode()


def test_a_repository_of_another_device_has_git_run_nothing(core: Desk, laptop: Desk, tmp_path: Path) -> None:
    mark = tmp_path / "was-run"
    for path, content in repository_files(tmp_path / "made").items():
        sent = attacking_config(mark) if path == "config" else content
        put_as_member(core, f"notes/.git/{path}", sent)
    put_as_member(core, "notes/.git/refs/other/x", b"x")
    put_as_member(core, "notes/.git/objects/x", b"x")
    core.write("notes/plan.md", "a plan")
    settle(core, laptop)
    assert (laptop.root / "notes/plan.md").exists()
    git(laptop.root / "notes", "status")
    assert not mark.exists()
    assert not (laptop.root / "notes/.git").exists()


def test_the_attack_works_where_a_person_of_this_device_allowed_the_name(
    core: Desk, laptop: Desk, tmp_path: Path
) -> None:
    """So the test above fails for the right reason where the rule is missing."""
    mark = tmp_path / "was-run"
    for path, content in repository_files(tmp_path / "made").items():
        sent = attacking_config(mark) if path == "config" else content
        put_as_member(core, f"notes/.git/{path}", sent)
    put_as_member(core, "notes/.git/refs/other/x", b"x")
    put_as_member(core, "notes/.git/objects/x", b"x")
    allow(laptop, ".git")
    settle(core, laptop)
    git(laptop.root / "notes", "status")
    assert mark.exists()


def test_a_repository_without_its_usual_name_has_git_run_nothing(
    core: Desk, laptop: Desk, tmp_path: Path
) -> None:
    """git takes any folder with HEAD, objects and refs for a repository: it need not be called .git."""
    mark = tmp_path / "was-run"
    for path, content in repository_files(tmp_path / "made").items():
        sent = attacking_config(mark, "..") if path == "config" else content
        put_as_member(core, f"notes/old/{path}", sent)
    put_as_member(core, "notes/old/refs/other/x", b"x")
    put_as_member(core, "notes/old/objects/x", b"x")
    settle(core, laptop)
    assert (laptop.root / "notes/old/config").exists()
    git(laptop.root / "notes/old", "status")
    assert not mark.exists()
    allow(laptop, "HEAD")
    settle(core, laptop)
    git(laptop.root / "notes/old", "status")
    assert mark.exists()


def test_a_repository_of_this_device_is_neither_sent_nor_changed_by_another(
    core: Desk, laptop: Desk, tmp_path: Path
) -> None:
    (laptop.root / "work.git").mkdir()
    assert git(laptop.root / "work.git", "init", "--quiet", "--bare", ".").returncode == 0
    before = (laptop.root / "work.git/config").read_bytes()
    settle(core, laptop)
    assert core.tree() == {}
    mark = tmp_path / "was-run"
    put_as_member(core, "work.git/config", attacking_config(mark, ".."))
    put_as_member(core, "work.git/hooks/post-update", b"#!/bin/sh\n", executable=True)
    settle(core, laptop)
    again = laptop.files(scan=False)
    assert (laptop.root / "work.git/config").read_bytes() == before
    assert not (laptop.root / "work.git/hooks/post-update").exists()
    git(laptop.root / "work.git", "status")
    assert not mark.exists()
    assert again.conflicts == []


SPELLINGS = [
    *(".git/config", ".GIT/config", ".Git", "a/b/.git", "deep/er/.git/hooks/post-checkout"),
    *(".g\u200cit/config", "\u200d.git/config", ".gi\ufefft", "．git/config", "\u2024git/config", ".gıt"),
    *(".hg/hgrc", ".svn/wc.db", ".jj/repo/config.toml", "_darcs/prefs/defaults", "_FOSSIL_"),
    *(".envrc", "work/.envrc", ".vscode/tasks.json", ".idea/workspace.xml", "x.code-workspace", ".exrc"),
    *(".claude/settings.json", ".mcp.json", "mcp.json", ".cursor/mcp.json", ".husky/pre-commit", ".npmrc"),
    *(".pre-commit-config.yaml", ".bashrc", ".profile", ".zshenv", ".obsidian/plugins/x/main.js"),
    *("CLAUDE.md", "agents/claude.md", "Claude.Md", "AGENTS.md", "notes/GEMINI.md", "opencode.json"),
    *("HEAD", "repo/head", "node_modules/x/index.js", "GIT~1/config", "CLAUDE~1.JSO", "desktop.ini", "a.lnk"),
]  # fmt: skip


@pytest.mark.parametrize("path", SPELLINGS)
def test_no_spelling_of_such_a_name_is_applied_at_any_depth(core: Desk, laptop: Desk, path: str) -> None:
    put_as_member(core, path, b"obey me")
    settle(core, laptop)
    assert laptop.tree() == core.tree() == {}
    allow(laptop, str(obeyed_part(path)))
    settle(core, laptop)
    assert list(laptop.tree()) == [path]


@pytest.mark.parametrize(
    "path",
    [
        *("notes/git/config", "a.git.md", "Makefile", "package.json", "src/conftest.py", "heads", "head.md"),
        *("notes/claude.markdown", "agents/head/SOUL.md", "agents/claude.md/CONTEXT.md", "über/größe.md"),
        *("my~notes.md", "a.b.c", "x/node_modules.md", "linked.lnk.txt"),
    ],
)  # fmt: skip
def test_other_names_are_applied(core: Desk, laptop: Desk, path: str) -> None:
    put_as_member(core, path, b"a file")
    settle(core, laptop)
    assert laptop.tree() == core.tree() == {path: b"a file"}


def test_what_is_held_back_is_no_deletion_and_keeps_nobody_else_from_it(tmp_path: Path) -> None:
    desks = Desks(tmp_path, "laptop", "desktop")
    core, laptop, desktop = (desks.open(name) for name in ("core", "laptop", "desktop"))
    try:
        allow(core, ".envrc")
        allow(desktop, ".envrc")
        core.write("work/.envrc", "first")
        settle(core, laptop, desktop)
        assert desktop.tree() == {"work/.envrc": b"first"}
        assert laptop.tree() == {}
        core.write("work/.envrc", "second")
        settle(core, laptop, desktop)
        row = core.replica.file("work/.envrc")
        assert row is not None
        assert not row.gone
        assert desktop.tree() == {"work/.envrc": b"second"}
        assert laptop.replica.digest() == core.replica.digest()
        laptop.sync()
        laptop.store.requests = 0
        quiet = laptop.files()
        assert laptop.store.requests == 0
        assert quiet.put == quiet.dropped == quiet.fetched == 0
        allow(laptop, "work/.envrc")
        settle(core, laptop, desktop)
        assert laptop.tree() == {"work/.envrc": b"second"}
    finally:
        for desk in (core, laptop, desktop):
            desk.close()


def test_files_that_were_synced_before_the_rule_stay_as_they_are(core: Desk, laptop: Desk) -> None:
    for desk in (core, laptop):
        allow(desk, ".vscode")
    core.write("work/.vscode/tasks.json", "{}")
    settle(core, laptop)
    allow(laptop)
    core.write("work/.vscode/tasks.json", '{"run": "this"}')
    settle(core, laptop)
    assert (laptop.root / "work/.vscode/tasks.json").read_text() == "{}"
    row = core.replica.file("work/.vscode/tasks.json")
    assert row is not None
    core.member.accept(DropFile("work/.vscode/tasks.json", row.version))
    settle(core, laptop)
    assert (laptop.root / "work/.vscode/tasks.json").read_text() == "{}"
    assert laptop.files().removed == 0


def test_a_file_of_this_device_is_not_overwritten_once_its_name_is_allowed(core: Desk, laptop: Desk) -> None:
    laptop.write("CLAUDE.md", "mine")
    put_as_member(core, "CLAUDE.md", b"theirs")
    settle(core, laptop)
    assert laptop.tree() == {"CLAUDE.md": b"mine"}
    assert core.tree() == {}
    allow(laptop, "CLAUDE.md")
    settle(core, laptop)
    assert laptop.tree()["CLAUDE.md"] == b"theirs"
    assert sorted(laptop.tree().values()) == [b"mine", b"theirs"]


def test_the_report_names_the_folder_once_with_the_command_that_allows_it(core: Desk) -> None:
    for number in range(30):
        core.write(f"work/.git/objects/{number}", "x")
    core.write("CLAUDE.md", "obey")
    report = core.sync()
    assert set(report.refused) == {"work/.git/", "CLAUDE.md"}
    assert "`crystal files allow work/.git`" in report.refused["work/.git/"]
    assert report.put == 0


def test_a_name_that_is_allowed_is_allowed_with_all_that_lies_below_and_nowhere_else(
    core: Desk, laptop: Desk
) -> None:
    allow(laptop, "one/.git")
    for path in ("one/.git/HEAD", "one/.git/modules/x/.git", "two/.git/HEAD", "one/.GIT", "one/.envrc"):
        put_as_member(core, path, path.encode())
    settle(core, laptop)
    assert sorted(laptop.tree()) == ["one/.git/HEAD", "one/.git/modules/x/.git"]


def test_a_recovery_kit_and_another_home_go_to_no_device(core: Desk, laptop: Desk) -> None:
    root = new_root()
    core.write("papers/kit.txt", "Print this.\n\n" + "\n".join(encode_kit(root, root.vault)))
    core.write("old/.crystal-root", "{}")
    core.write("old/state/secrets/identity", "a key")
    core.write("notes/plan.md", "a plan")
    settle(core, laptop)
    assert laptop.tree() == {"notes/plan.md": b"a plan"}
    refused = core.files().refused
    assert "recovery kit" in refused["papers/kit.txt"]
    assert "another home" in refused["old/"]
    core.write("papers/kit.txt", "Burnt.")
    settle(core, laptop)
    assert laptop.tree()["papers/kit.txt"] == b"Burnt."
