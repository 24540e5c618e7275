"""An export is whole, plain and its owner's; what comes in from one is what went out, once, and nothing damaged comes in."""

import json
import shutil
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from crystal_node.base.settings import resolve
from crystal_node.device.device import opened
from crystal_node.safekeeping.portable import export as export_module
from crystal_node.safekeeping.portable.export import export
from crystal_node.safekeeping.portable.export_format import CONVERSATIONS
from crystal_node.safekeeping.portable.importer import import_export
from tests.support.machine import Machine, Vault
from tests.support.relay_process import RelayProcess


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def fill(machine: Machine) -> None:
    """Conversations, memories of each state, files."""
    project = machine.root / ".claude" / "projects" / "-work"
    project.mkdir(parents=True)
    (project / "s.jsonl").write_text(
        "".join(
            json.dumps(
                {
                    "type": "user" if number % 2 == 0 else "assistant",
                    "uuid": f"00000000-0000-4000-8000-{number:012d}",
                    "sessionId": "11111111-1111-4111-8111-111111111111",
                    "timestamp": f"2026-01-05T10:00:{number:02d}.000Z",
                    "cwd": str(machine.root / "work"),
                    "message": {
                        "role": "user" if number % 2 == 0 else "assistant",
                        "content": [{"type": "text", "text": f"Remark {number} about retries."}],
                    },
                }
            )
            + "\n"
            for number in range(20)
        )
    )
    machine.call("capture")
    first = machine.call("remember", "The relay restarts at two.", "--json").json["id"]
    machine.call("remember", "The relay restarts at three.", "--supersedes", first)
    machine.call("remember", "Tea, not coffee.", "--category", "preference", "--confidence", "70")
    forgotten = machine.call("remember", "A secret that was taken back.", "--json").json["id"]
    journal = machine.home / "agents" / "claude-code" / "memory" / "journals" / "2026-01-05.md"
    journal.parent.mkdir(parents=True, exist_ok=True)
    journal.write_text("# A day\n")
    machine.call("sync")
    machine.call("forget", forgotten)
    machine.call("sync")


@pytest.fixture(scope="module")
def source(relay: RelayProcess, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """A device with something to export."""
    core = Vault(relay, tmp_path_factory.mktemp("source")).core
    fill(core)
    return core


@pytest.fixture(scope="module")
def exported(source: Machine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exports") / "export"
    source.call("export", str(folder))
    return folder


def test_both_ways_say_how_much_there_is_in_all(source: Machine, exported: Path, tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    with (
        opened(resolve(environment=source.environment | {"CRYSTAL_HOME": str(source.home)})) as device,
        mock.patch.object(export_module, "_PAGE", 5),
    ):
        export(
            device, tmp_path / "again", progress=lambda what, done, total: told.append((what, done, total))
        )
        assert [each for each in told if each[0] == CONVERSATIONS] == [
            (CONVERSATIONS, done, 20) for done in (5, 10, 15, 20, 20)
        ]
        told.clear()
        import_export(
            device,
            exported,
            dry_run=True,
            progress=lambda what, done, total: told.append((what, done, total)),
        )
    assert (CONVERSATIONS, 20, 20) in told


def test_an_export_holds_everything_in_lines_that_any_program_reads(exported: Path, source: Machine) -> None:
    said = lines(exported / "conversations.jsonl")
    assert [each["text"] for each in said] == [f"Remark {number} about retries." for number in range(20)]
    assert {each["project"] for each in said} == {"work"}
    memories = {each["text"]: each for each in lines(exported / "memories.jsonl")}
    assert set(memories) == {"The relay restarts at two.", "The relay restarts at three.", "Tea, not coffee."}
    assert memories["The relay restarts at two."]["superseded_by"]
    assert memories["Tea, not coffee."]["confidence"] == 70
    manifest = json.loads((exported / "manifest.json").read_text())
    journal = "agents/claude-code/memory/journals/2026-01-05.md"
    assert journal in {each["path"] for each in manifest["files"]}
    assert (exported / "files" / journal).read_text() == "# A day\n"
    assert b"taken back" not in b"".join(path.read_bytes() for path in exported.rglob("*") if path.is_file())
    assert all(path.stat().st_mode & 0o077 == 0 for path in [exported, *exported.rglob("*")])
    refused = source.call("export", str(exported), check=False)
    assert refused.code == 2


def test_what_went_out_comes_into_another_vault_once(
    exported: Path, relay: RelayProcess, tmp_path: Path
) -> None:
    other = Vault(relay, tmp_path / "other").core
    counted = other.call("import", str(exported), "--dry-run", "--json").json
    assert (counted["new"], counted["memories"]) == (20, 3)
    assert other.found("retries") == []
    other.call("import", str(exported))
    other.call("sync")
    found = other.found("remarks about retries", "-n", "50", "--by", "message")
    assert {text for text in found if text.startswith("Remark")} == {
        f"Remark {number} about retries." for number in range(20)
    }
    again = other.call("import", str(exported), "--json").json
    assert (again["new"], again["known"], again["memories"], again["files"]) == (0, 20, 0, 0)
    second = tmp_path / "second"
    other.call("export", str(second))
    for name in ("conversations.jsonl", "memories.jsonl"):
        went, came = lines(exported / name), lines(second / name)
        assert sorted(map(json.dumps, went)) == sorted(map(json.dumps, came)), name


def test_a_file_that_is_another_one_here_stays_and_the_imported_one_is_put_beside(
    exported: Path, relay: RelayProcess, tmp_path: Path
) -> None:
    other = Vault(relay, tmp_path / "other").core
    journal = other.home / "agents" / "claude-code" / "memory" / "journals" / "2026-01-05.md"
    journal.parent.mkdir(parents=True)
    journal.write_text("# My own day\n")
    done = other.call("import", str(exported), "--json").json
    assert journal.read_text() == "# My own day\n"
    [beside] = done["files_beside"]
    assert (other.home / beside).read_text() == "# A day\n"
    assert other.call("import", str(exported), "--json").json["files_beside"] == []


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _climb(path: Path) -> None:
    manifest = json.loads(path.read_text())
    manifest["files"].append({"path": "../outside.md", "size": 1, "sha256": "00" * 32})
    path.write_text(json.dumps(manifest))


def _later(path: Path) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | {"version": 99}))


def _empty(path: Path) -> None:
    path.write_text("{}")


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("conversations.jsonl", _flip),
        ("memories.jsonl", _flip),
        ("memories.jsonl", Path.unlink),
        ("manifest.json", Path.unlink),
        ("manifest.json", _climb),
        ("manifest.json", _later),
        ("manifest.json", _empty),
        ("files/agents/claude-code/memory/journals/2026-01-05.md", _flip),
    ],
)
def test_of_a_damaged_export_nothing_comes_in(
    exported: Path, source: Machine, tmp_path: Path, name: str, damage: Any
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(exported, copy)
    damage(copy / name)
    outcome = source.call("import", str(copy), "--json", check=False)
    assert outcome.code == 2
    assert outcome.error["hint"]
    assert not (source.home.parent / "outside.md").exists()


def test_a_disk_that_is_full_leaves_no_half_export(source: Machine, tmp_path: Path) -> None:
    with mock.patch(
        "crystal_node.safekeeping.portable.export.os.fsync",
        side_effect=OSError(28, "No space left on device"),
    ):
        outcome = source.call("export", str(tmp_path / "export"), "--json", check=False)
    assert outcome.code == 8
    assert not [path for path in tmp_path.iterdir() if "export" in path.name]
