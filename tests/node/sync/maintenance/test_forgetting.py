"""What a forget reaches, what it cannot reach and says so, and by when."""

import os
from pathlib import Path

from tests.support.machine import Machine, Vault, transcript

_TEXT = "The code of the harbour safe is four times seven."


def _found(vault: Vault) -> str:
    (hit,) = [
        hit
        for hit in vault.core.call("search", "--json", "harbour safe").json["results"]
        if hit["text"] == _TEXT
    ]
    return str(hit["id"])


def _report(machine: Machine) -> dict[str, list[dict[str, object]]]:
    found: dict[str, list[dict[str, object]]] = {}
    for holder in machine.call("forget", "--report", "--json").json["holders"]:
        found.setdefault(str(holder["where"]), []).append(holder)
    return found


def test_the_report_names_what_still_holds_a_text_and_until_when(vault: Vault) -> None:
    laptop, tablet = vault.add(), vault.add()
    vault.core.call("remember", _TEXT)
    (vault.core.home / "safe.md").write_text(f"# Safe\n\n{_TEXT}\n")
    vault.settle()
    backup = vault.core.home / "memory" / "crystal.db.schema-1"
    backup.write_bytes(b"an older form of the memory")
    done = vault.core.call("forget", _found(vault))
    assert "safe.md" in done.err
    assert set(_report(vault.core)) == {"forget-waits", "file", "database-copy"}
    vault.core.call("sync")
    laptop.call("sync")
    vault.core.call("sync")
    told = _report(vault.core)
    assert {"relay-log", "conversations", "own-log", "device", "device-away"} <= set(told)
    assert told["device"][0]["device"] == _id(laptop)
    assert told["device-away"][0]["device"] == _id(tablet)
    assert told["device-away"][0]["until"] is None
    assert told["relay-log"][0]["until"] is not None
    (file,) = told["file"]
    assert file["what"] == "safe.md"
    (vault.core.home / "safe.md").unlink()
    assert "file" not in _report(vault.core)
    assert {"relay-log", "own-log"} <= set(_report(laptop))
    assert "gone by" in vault.core.call("forget", "--report").out


def test_a_text_is_looked_for_in_the_files_of_a_machine_that_did_not_forget_it(vault: Vault) -> None:
    laptop = vault.add()
    folder = laptop.home / "notes"
    folder.mkdir()
    (folder / "long.md").write_bytes(b"x" * (1024 * 1024 - 20) + _TEXT.encode() + b"y" * 100)
    (folder / "other.md").write_text("nothing of the kind")
    assert _report(laptop) == {}
    found = laptop.call("forget", "--report", "--text", "--json", typed=_TEXT + "\n").json
    assert [holder["what"] for holder in found["holders"]] == ["notes/long.md"]
    assert laptop.call("forget", "--report", _TEXT, check=False).code == 2


def test_a_forgotten_text_leaves_no_machine_again(vault: Vault) -> None:
    laptop = vault.add()
    vault.core.call("remember", _TEXT)
    vault.settle()
    vault.core.call("forget", _found(vault))
    vault.settle()
    transcript(laptop, _TEXT, "Something else that was said.")
    laptop.call("capture")
    for path in (laptop.home / "state").glob("state.db*"):
        assert _TEXT.encode() not in path.read_bytes()
    vault.settle()
    assert _TEXT not in laptop.found("harbour safe")
    assert laptop.found("something else said") == ["Something else that was said."]


def test_copies_of_the_memory_from_before_go_after_a_week(vault: Vault) -> None:
    memory = vault.core.home / "memory"
    old, fresh, other = (
        memory / name for name in ("crystal.db.schema-1", "crystal.db.before-2026", "crystal.db.mine")
    )
    for path in (old, fresh, other):
        path.write_bytes(b"a copy")
    _age(old, 8)
    _age(fresh, 6)
    _age(other, 80)
    vault.core.call("sync")
    assert not old.exists()
    assert fresh.exists()
    assert other.exists(), "only what Crystal has made"


def _age(path: Path, days: int) -> None:
    moment = path.stat().st_mtime - days * 86_400
    os.utime(path, (moment, moment))


def _id(machine: Machine) -> str:
    return str(machine.call("status", "--json").json["device"])
