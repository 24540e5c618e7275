"""An export that was made by somebody else brings nothing into a home but what an export may hold, and takes nothing out."""

import hashlib
import json
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from crystal_prototype.home.database import opened
from tests.support.machine import Machine, Vault
from tests.support.relay_process import RelayProcess

KEY = "-----BEGIN A KEY-----\nthe person's own\n"


@pytest.fixture(scope="module")
def core(relay: RelayProcess, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    return Vault(relay, tmp_path_factory.mktemp("importing")).core


def export_of(
    folder: Path,
    *,
    files: dict[str, str] | None = None,
    hashes: dict[str, str] | None = None,
    **lines: Any,
) -> Path:
    """An export whose manifest is in order. ``lines``: of its parts; ``hashes``: of files that are made otherwise."""
    folder.mkdir()
    parts: dict[str, object] = {}
    for name in ("conversations", "memories", "sources", "documents"):
        given = lines.get(name, ())
        text = given if isinstance(given, str) else "".join(json.dumps(each) + "\n" for each in given)
        (folder / f"{name}.jsonl").write_text(text)
        parts[f"{name}.jsonl"] = {"lines": 1, "sha256": hashlib.sha256(text.encode()).hexdigest()}
    listed = [{"path": path, "size": 1, "sha256": digest} for path, digest in (hashes or {}).items()]
    for path, text in (files or {}).items():
        target = folder / "files" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        listed.append({"path": path, "size": len(text), "sha256": hashlib.sha256(text.encode()).hexdigest()})
    manifest = {
        "format": "crystal-export",
        "version": 1,
        "made_at": "",
        "device": "",
        "parts": parts,
        "files": listed,
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


@pytest.mark.parametrize(
    "path",
    [
        "config.json",
        "CONFIG.json",
        "state/gateway/token",
        "State/gateway/links.json",
        "keys/device",
        "bin/crystal",
        "memory/crystal.db",
        "memory/.env",
        "staging/x/y.jsonl",
        ".crystal-root",
        "../outside.md",
        "agents/../../outside.md",
        "/tmp/outside.md",
        "agents/a\nb.md",
    ],
)
def test_no_export_brings_a_file_among_crystals_own_or_out_of_the_home(
    core: Machine, tmp_path: Path, path: str
) -> None:
    digest = hashlib.sha256(b"x").hexdigest()
    plain = "\n" not in path and not path.startswith("/") and ".." not in path
    folder = export_of(
        tmp_path / "export", files={path: "x"} if plain else None, hashes=None if plain else {path: digest}
    )
    outcome = core.call("import", str(folder), "--json", check=False)
    assert outcome.code == 2
    files = [each for each in core.home.parent.rglob("*") if each.is_file()]
    assert [each for each in files if each.stat().st_size == 1 and each.read_bytes() == b"x"] == []


def _linked_file(folder: Path, key: Path) -> None:
    (folder / "files" / "agents").mkdir(parents=True)
    (folder / "files" / "agents" / "a.md").symlink_to(key)


def _linked_folder(folder: Path, key: Path) -> None:
    (folder / "files").mkdir()
    (folder / "files" / "agents").symlink_to(key.parent)


def _linked_files(folder: Path, key: Path) -> None:
    (key.parent / "agents").mkdir(exist_ok=True)
    (key.parent / "agents" / "a.md").write_text(KEY)
    (folder / "files").symlink_to(key.parent)


def _pipe(folder: Path, _key: Path) -> None:
    (folder / "files" / "agents").mkdir(parents=True)
    os.mkfifo(folder / "files" / "agents" / "a.md")


@pytest.mark.parametrize("lay", [_linked_file, _linked_folder, _linked_files, _pipe])
def test_no_link_in_an_export_leads_to_a_file_of_the_person(
    core: Machine, tmp_path: Path, lay: Callable[[Path, Path], None]
) -> None:
    key = tmp_path / "private" / "a.md"
    key.parent.mkdir()
    key.write_text(KEY)
    path, digest = "agents/a.md", hashlib.sha256(KEY.encode()).hexdigest()
    folder = export_of(tmp_path / "export", hashes={path: digest})
    lay(folder, key)
    assert core.call("import", str(folder), "--json", check=False).code == 2
    assert not (core.home / "agents" / "a.md").exists()


def test_a_link_in_the_home_is_not_written_through(core: Machine, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (core.home / "elsewhere").symlink_to(outside)
    folder = export_of(tmp_path / "export", files={"elsewhere/deep/a.md": "x"})
    try:
        assert core.call("import", str(folder), "--json", check=False).code == 8
    finally:
        (core.home / "elsewhere").unlink()
    assert list(outside.iterdir()) == []


_DOCUMENT = {"source": "s", "path": "p", "version": "00" * 32}


@pytest.mark.parametrize(
    "lines",
    [
        {"sources": [{"name": "a\nb"}]},
        {"sources": [{"name": "a" * 500}]},
        {"sources": [{"name": "s", "include": ["x"] * 300}]},
        {"documents": [_DOCUMENT | {"path": "a\x1b[2Jb", "pieces": [{"text": "x"}]}]},
        {"documents": [_DOCUMENT | {"pieces": [{"text": "x" * 70_000}]}]},
        {"memories": "[" * 100_000 + "\n"},
        {"memories": '{"text": "x", "new": ' + "[" * 100_000 + "]" * 100_000 + "}\n"},
        {"conversations": '{"text": "\\ud800", "agent": "", "session": "", "role": ""}\n'},
        {"conversations": [{"text": "x", "agent": "", "session": "", "role": "", "created_at": 2**60}]},
    ],
)
def test_of_lines_that_no_export_holds_none_comes_in(
    core: Machine, tmp_path: Path, lines: dict[str, object]
) -> None:
    said = [{"text": "This stood beside it.", "agent": "a", "session": "s", "role": "user"}]
    given: dict[str, Any] = {"conversations": said} | lines
    folder = export_of(tmp_path / "export", **given)
    outcome = core.call("import", str(folder), "--json", check=False)
    assert outcome.code == 2
    assert "Nothing was taken" in outcome.error["hint"]
    assert core.found("stood beside it") == []


def test_credentials_in_an_imported_document_are_blanked_out(core: Machine, tmp_path: Path) -> None:
    token = "ghp_" + "a1B2" * 9
    pieces = [{"text": f"The deploy uses {token} for now."}]
    folder = export_of(
        tmp_path / "export",
        sources=[{"name": "runbooks"}],
        documents=[_DOCUMENT | {"source": "runbooks", "path": "deploy.md", "pieces": pieces}],
    )
    core.call("import", str(folder), "--json")
    [found] = core.found("deploy uses for now")
    assert token not in found


def test_values_of_a_prototypes_database_that_are_no_text_are_passed_over_and_bytes_that_are_none_replaced(
    tmp_path: Path,
) -> None:
    path = tmp_path / "crystal.db"
    db = apsw.Connection(str(path))
    db.execute("CREATE TABLE chunks (id, text, role, source_type, source_id, agent_id, created_at)")
    db.execute("INSERT INTO chunks VALUES (1, 5, x'00', 7, 9e999, x'ff', -9e999)")
    db.execute("INSERT INTO chunks VALUES (2, x'4142', 'user', 'conversation', 's', 'a', 0)")
    db.execute("INSERT INTO chunks VALUES (3, 'said', NULL, NULL, NULL, NULL, 9e999)")
    db.execute("INSERT INTO chunks SELECT 4, o, o, o, o, o, o FROM (SELECT CAST(x'ff41' AS TEXT) AS o)")
    db.close()
    with opened(path, "a") as memory:
        said, replaced = memory.pieces()
    assert (said.text, said.session, said.created_at) == ("said", "", 0)
    assert (replaced.text, replaced.session, replaced.role) == ("\ufffdA", "\ufffdA", "user")
    assert replaced.created_at == 0


def test_a_file_that_is_larger_than_memory_comes_in_block_by_block(core: Machine, tmp_path: Path) -> None:
    size = 96 * 1024 * 1024
    folder = export_of(tmp_path / "export", hashes={"large.bin": hashlib.sha256(bytes(size)).hexdigest()})
    (folder / "files").mkdir()
    with (folder / "files" / "large.bin").open("wb") as file:
        file.truncate(size)
    tracemalloc.start()
    try:
        core.call("import", str(folder))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (core.home / "large.bin").stat().st_size == size
    assert peak < size / 2
    (core.home / "large.bin").unlink()


def test_no_export_brings_what_programs_execute_or_obey_before_its_name_was_allowed(
    core: Machine, tmp_path: Path
) -> None:
    held = [
        "blog/.git/config",
        "blog/.GIT/hooks/pre-commit",
        "blog/.envrc",
        "CLAUDE.md",
        ".vscode/tasks.json",
    ]
    files = {path: f"attack by {path}" for path in held} | {"blog/post.md": "a post"}
    folder = export_of(tmp_path / "export", files=files)
    done = core.call("import", str(folder), "--json").json
    assert done["files_held"] == held
    assert (core.home / "blog/post.md").read_text() == "a post"
    assert not any((core.home / path).exists() for path in held)
    assert "5 files left out" in core.call("import", str(folder)).out
    core.call("files", "allow", "blog/.envrc")
    done = core.call("import", str(folder), "--json").json
    assert done["files_held"] == [path for path in held if path != "blog/.envrc"]
    assert (core.home / "blog/.envrc").read_text() == "attack by blog/.envrc"
    assert (core.home / "blog/.envrc").stat().st_mode & 0o777 == 0o600
