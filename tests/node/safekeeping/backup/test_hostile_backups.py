"""Backups that somebody else has made or changed: reading and restoring one costs an error, and nothing else."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from crystal_node.safekeeping.backup.manifest import BackupDamaged, read_manifest
from tests.support.backups import backed_up
from tests.support.machine import Machine

Change = Callable[[Path], None]


def written(folder: Path, document: str) -> None:
    """A manifest that is consistent with its sums."""
    data = document.encode()
    (folder / "manifest.json").write_bytes(data)
    sums = [f"{hashlib.sha256(data).hexdigest()}  manifest.json\n"]
    sums += [f"{item['sha256']}  home/{item['path']}\n" for item in json.loads(document)["items"]]
    (folder / "SHA256SUMS").write_text("".join(sums), encoding="utf-8")


def with_file(folder: Path, path: str, data: bytes, **fields: object) -> None:
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    (folder / "home" / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / "home" / path).write_bytes(data)
    item = {"path": path, "size": len(data), "sha256": hashlib.sha256(data).hexdigest(), **fields}
    manifest["items"] = [each for each in manifest["items"] if each["path"] != path] + [item]
    written(folder, json.dumps(manifest, ensure_ascii=False))


def test_a_hostile_backup_is_an_error_and_changes_nothing(lived: Machine, tmp_path: Path) -> None:
    folder = backed_up(lived, tmp_path / "destination", "--with-keys")
    text = (folder / "manifest.json").read_text(encoding="utf-8")
    nested = "[" * 2_000 + "]" * 2_000
    attacks: dict[str, Change] = {
        "times beyond any": lambda at: with_file(at, "notes/plan.md", b"x", modified_ns=10**30),
        "settings of a wrong type": lambda at: with_file(at, "config.json", b'{"vault": 5}'),
        "settings nested": lambda at: with_file(at, "config.json", b'{"more": ' + b"[" * 100_000),
        "settings that are none": lambda at: with_file(at, "config.json", b"\xff\xfe{"),
        "sizes beyond any": lambda at: written(at, text.replace('"unsent": ', f'"unsent": {2**64}')),
    }
    for number, (name, attack) in enumerate(attacks.items()):
        hostile = tmp_path / str(number) / folder.name
        shutil.copytree(folder, hostile)
        attack(hostile)
        machine = Machine(tmp_path / str(number))
        refused = machine.call("backup", "restore", str(hostile), "--yes", check=False)
        assert refused.code in (3, 8), (name, refused.code, refused.err)
        assert "bug in Crystal" not in refused.err
        assert not machine.home.exists(), name
    (folder / "manifest.json").write_text(text[:-2] + f', "more": {nested}}}')
    with pytest.raises(BackupDamaged):
        read_manifest(folder)


@pytest.mark.parametrize("name", ["manifest.json", "SHA256SUMS"])
def test_a_pipe_or_link_in_the_place_of_a_manifest_keeps_nobody_waiting(
    lived: Machine, tmp_path: Path, name: str
) -> None:
    folder = backed_up(lived, tmp_path / "destination")
    (folder / name).unlink()
    os.mkfifo(folder / name)
    assert "! " in lived.call("backup", "list", "--to", str(tmp_path / "destination")).out
    backed_up(lived, tmp_path / "destination")
    (folder / name).unlink()
    (folder / name).symlink_to("/dev/zero")
    assert "! " in lived.call("backup", "list", "--to", str(tmp_path / "destination")).out


def test_a_file_whose_name_is_a_terminals_command_is_named_without_it(lived: Machine, tmp_path: Path) -> None:
    (lived.home / "notes" / "\x1b]0;pwned\x07").symlink_to("/nowhere")
    folder = Path(lived.call("backup", "--to", str(tmp_path / "destination"), "--json").json["folder"])
    said = lived.call("backup", "--to", str(tmp_path / "destination")).out
    with_file(folder, "notes/\x9b2J\u202e.md", b"one")
    (folder / "home" / "notes" / "\x9b2J\u202e.md").write_bytes(b"two")
    told = lived.call("backup", "verify", str(folder), check=False)
    assert "damaged" in told.err
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(said + told.out + told.err)
