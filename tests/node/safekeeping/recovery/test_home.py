"""The relay is gone or emptied, and of the devices one home is left, without its keys: kit and home bring the vault back."""

import os
import shutil
import sqlite3
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from crystal_crypto.entry import parse
from crystal_crypto.hierarchy import Root
from crystal_mirror.streams.reoffers import held_entries, hold_entry
from crystal_node.base.home import Home
from crystal_node.device.device import opened
from crystal_node.device.journal import SqliteJournal
from crystal_node.device.recovery_kit import KitPage
from crystal_node.safekeeping.recovery import source_home
from crystal_node.safekeeping.recovery.source_home import copy_journal, find_source_home
from tests.support.invited import settings_of
from tests.support.machine import Machine, Outcome, Vault
from tests.support.recovery import (
    device_of,
    digest_of,
    fresh_machine,
    home_bytes,
    kit_of,
    lived_in,
    lost_copy,
)
from tests.support.relay_process import RelayProcess, running_relay

_TEXTS = (
    "The boiler is serviced in October.",
    "The spare key hangs behind the archive's door.",
    "Invoices are numbered by year.",
)


@pytest.fixture(scope="module")
def another_relay(tmp_path_factory: pytest.TempPathFactory) -> Generator[RelayProcess]:
    """Where the vault goes after its own relay was lost."""
    with running_relay(tmp_path_factory.mktemp("another-relay") / "store") as running:
        yield running


def _restore(machine: Machine, home: Path, relay: RelayProcess, kit: str, *, check: bool = True) -> Outcome:
    return machine.call(
        *("recovery", "restore", "--from", str(home), "--relay", relay.url, "--enroll-token", "-", "--json"),
        typed=f"{relay.enroll_token}\n{kit}",
        check=check,
    )


@pytest.mark.parametrize("whose", ["core", "node"])
def test_a_vault_comes_back_from_the_kit_and_any_home_without_its_keys(
    vault: Vault, another_relay: RelayProcess, tmp_path: Path, whose: str
) -> None:
    core, laptop, tablet = lived_in(vault, _TEXTS)
    kit, digest = kit_of(core), digest_of(core)
    home = lost_copy(core if whose == "core" else laptop, tmp_path)
    before = home_bytes(home)
    new = fresh_machine(tmp_path)
    told = _restore(new, home, another_relay, kit).json
    assert home_bytes(home) == before, "the other home is only read"
    assert (told["role"], told["digest"], told["relay_lost"]) == ("core", digest, True)
    assert told["put_back"]["device_log"] == 5
    assert told["put_back"]["mirror"] >= 1
    assert told["device"] not in {device_of(machine) for machine in vault.machines}
    assert digest_of(new) == digest
    for text in _TEXTS:
        assert text in new.found(text)
    assert not (new.home / "state" / "restore.json").exists()
    # A device that is still there comes along, with what it has not sent yet.
    tablet.call("remember", "Recorded while there was no relay.")
    tablet.call("recovery", "restore", "--relay", another_relay.url, typed=kit)
    for machine in (tablet, new, tablet):
        machine.call("sync")
    assert "Recorded while there was no relay." in new.found("recorded while no relay")
    assert digest_of(tablet) == digest_of(new)


def test_what_the_lost_device_had_not_sent_comes_along_under_its_old_names_and_once(
    vault: Vault, tmp_path: Path
) -> None:
    _, laptop, _ = lived_in(vault, _TEXTS)
    kit = kit_of(vault.core)
    for text in ("First of what was never sent.", "Second of what was never sent."):
        laptop.call("remember", text)
    names = _names(laptop.home)
    home = lost_copy(laptop, tmp_path)
    new = fresh_machine(tmp_path)
    told = _restore(new, home, vault.relay, kit).json
    assert (told["taken_over"], told["relay_lost"], told["role"]) == (2, False, "node")
    assert _names(new.home) == names
    # The lost one turns up again and sends the same: nothing is there twice.
    laptop.call("sync")
    for machine in (vault.core, new, vault.core, laptop, new):
        machine.call("sync")
    assert new.call("status", "--json").json["outbox"]["pending"] == 0
    for machine in (vault.core, laptop, new):
        assert len(machine.found("of what was never sent", "-n", "9")) >= 2
        assert _count(machine, "First of what was never sent.") == 1
    assert len({digest_of(machine) for machine in (vault.core, laptop, new)}) == 1


def test_a_core_that_lost_only_its_keys_is_followed_by_its_restored_home(
    vault: Vault, tmp_path: Path
) -> None:
    core, laptop, _ = lived_in(vault, _TEXTS)
    kit = kit_of(core)
    core.call("remember", "Accepted by the Core, sent to nobody.")
    home = lost_copy(core, tmp_path)
    new = fresh_machine(tmp_path)
    told = _restore(new, home, vault.relay, kit).json
    assert (told["role"], told["taken_over"], told["relay_lost"]) == ("core", 1, False)
    laptop.call("sync")
    assert "Accepted by the Core, sent to nobody." in laptop.found("accepted sent to nobody")
    assert digest_of(laptop) == digest_of(new)


def test_revoked_devices_stay_revoked_and_all_generations_open(
    vault: Vault, another_relay: RelayProcess, tmp_path: Path
) -> None:
    core, laptop, tablet = lived_in(vault, _TEXTS)
    old_kit, ids = kit_of(core), [device_of(laptop), device_of(tablet)]
    for number, device in enumerate(ids, start=2):
        core.call("devices", "revoke", device, "--yes")
        core.call("remember", f"Sealed under generation {number}.")
        core.call("sync")
    kit, digest = kit_of(core), digest_of(core)
    home = lost_copy(core, tmp_path)
    new = fresh_machine(tmp_path)
    refused = _restore(new, home, another_relay, old_kit, check=False)
    assert (refused.code, "outdated" in refused.error["error"]) == (7, True)
    assert not (new.home / "memory" / "crystal.db").exists(), "nothing is left of a copy for the wrong kit"
    told = _restore(new, home, another_relay, kit).json
    assert (told["role"], told["digest"]) == ("core", digest)
    for text in (*_TEXTS, "Sealed under generation 2.", "Sealed under generation 3."):
        assert text in new.found(text)
    listed = {entry["id"]: entry for entry in new.call("devices", "--all", "--json").json["devices"]}
    assert all(listed[device]["revoked"] for device in ids)
    back = laptop.call("recovery", "restore", "--relay", another_relay.url, "--json", typed=kit, check=False)
    assert (back.code, "revoked" in back.error["error"]) == (7, True)


def test_a_home_that_missed_the_new_root_needs_the_relay_or_the_old_kit(
    vault: Vault, another_relay: RelayProcess, tmp_path: Path
) -> None:
    core, laptop, _ = lived_in(vault, _TEXTS)
    old_kit, home = kit_of(core), lost_copy(laptop, tmp_path)
    core.call("devices", "revoke", device_of(laptop), "--yes")
    kit = kit_of(core)
    new = fresh_machine(tmp_path)
    refused = _restore(new, home, another_relay, kit, check=False)
    assert (refused.code, "newer than all that is known here" in refused.error["error"]) == (7, True)
    # The refusal has left nothing at that relay: by the old kit the vault comes back as that home had it.
    told = _restore(new, home, another_relay, old_kit).json
    assert (told["role"], told["digest"]) == ("core", digest_of(laptop))
    # With the relay that knows the new root the same home is one: its memory is good, its keys are not asked for.
    told = _restore(fresh_machine(tmp_path, "second"), home, vault.relay, kit).json
    assert told["digest"] == digest_of(core)


def test_another_home_can_be_given_after_one_that_did_not_do(
    vault: Vault, another_relay: RelayProcess, tmp_path: Path
) -> None:
    core, laptop, _ = lived_in(vault, _TEXTS)
    older = lost_copy(laptop, tmp_path)
    core.call("devices", "revoke", device_of(laptop), "--yes")
    core.call("sync")
    new, kit, better = fresh_machine(tmp_path), kit_of(core), lost_copy(core, tmp_path / "better")
    assert _restore(new, older, another_relay, kit, check=False).code == 7
    assert _restore(new, better, another_relay, kit).json["digest"] == digest_of(core)


def test_a_home_that_is_being_written_is_not_copied_half(
    vault: Vault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit, home = kit_of(vault.core), lost_copy(vault.core, tmp_path)
    new = fresh_machine(tmp_path)
    copy_bytes: Callable[[Path, Path], None] = vars(source_home)["_copy_bytes"]

    def while_somebody_writes(source: Path, target: Path) -> None:
        copy_bytes(source, target)
        os.utime(source)

    with monkeypatch.context() as patch:
        patch.setattr(source_home, "_copy_bytes", while_somebody_writes)
        refused = _restore(new, home, vault.relay, kit, check=False)
    assert (refused.code, "being written" in refused.error["error"]) == (9, True)
    assert _restore(new, home, vault.relay, kit).json["role"] == "core"


def test_memory_that_is_older_than_its_journal_is_named_as_what_could_not_be_brought_back(
    vault: Vault, another_relay: RelayProcess, tmp_path: Path
) -> None:
    core, laptop, _ = lived_in(vault, _TEXTS)
    older = lost_copy(laptop, tmp_path) / "memory"
    core.call("remember", "Ordered later.")
    for machine in (core, laptop):
        machine.call("sync")
    home = lost_copy(laptop, tmp_path / "later")
    shutil.rmtree(home / "memory")
    shutil.copytree(older, home / "memory")
    new = fresh_machine(tmp_path)
    told = _restore(new, home, another_relay, kit_of(core)).json
    assert told["role"] == "core"
    (lack,) = [lack for lack in told["not_brought_back"] if lack["device"] is None]
    assert lack["epoch"] == 1
    said = fresh_machine(tmp_path, "human").call(
        *("recovery", "restore", "--from", str(home), "--relay", vault.relay.url), typed=kit_of(core)
    )
    assert "That home itself" not in said.out, "the relay that is still there has it all"
    # The laptop, which has more, brings it along.
    laptop.call("recovery", "restore", "--relay", another_relay.url, typed=kit_of(core))
    for machine in (laptop, new, laptop):
        machine.call("sync")
    assert "Ordered later." in new.found("ordered later")
    assert digest_of(new) == digest_of(laptop)


def test_a_home_whose_databases_were_left_open_is_copied_with_its_logs(
    vault: Vault, another_relay: RelayProcess, tmp_path: Path
) -> None:
    core, *_ = lived_in(vault, _TEXTS)
    kit, digest = kit_of(core), digest_of(core)
    reader = sqlite3.connect(core.home / "memory" / "crystal.db")
    journal = SqliteJournal.open(core.home / "state" / "state.db")
    try:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM chunks").fetchone()
        core.call("remember", "Only in the write-ahead log.")
        assert (core.home / "state" / "state.db-wal").stat().st_size > 0
        home = lost_copy(core, tmp_path)
    finally:
        reader.close()
        journal.close()
    before = home_bytes(home)
    new = fresh_machine(tmp_path)
    told = _restore(new, home, another_relay, kit).json
    assert home_bytes(home) == before
    assert told["taken_over"] == 1
    assert "Only in the write-ahead log." in new.found("write-ahead log")
    assert digest_of(new) != digest


def test_a_home_that_cannot_be_used_is_told_by_what_is_wrong_with_it(vault: Vault, tmp_path: Path) -> None:
    lived_in(vault, _TEXTS)
    kit, home = kit_of(vault.core), lost_copy(vault.core, tmp_path)
    root = Root.generate()
    foreign = KitPage(root, root.vault, "", "2026-03-04", "").text()
    new = fresh_machine(tmp_path)
    refused = _restore(new, tmp_path / "nowhere", vault.relay, kit, check=False)
    assert (refused.code, "no folder" in refused.error["error"]) == (2, True)
    refused = _restore(new, tmp_path, vault.relay, kit, check=False)
    assert (refused.code, "no whole home" in refused.error["error"]) == (2, True)
    refused = _restore(new, home, vault.relay, foreign, check=False)
    assert (refused.code, "another vault" in refused.error["error"]) == (7, True)
    refused = _restore(vault.core, vault.core.home, vault.relay, kit, check=False)
    assert (refused.code, "own home" in refused.error["error"]) == (2, True)
    refused = _restore(vault.core, home, vault.relay, kit, check=False)
    assert (refused.code, "set up already" in refused.error["error"]) == (2, True)
    for name in ("memory/crystal.db", "state/state.db"):
        broken = tmp_path / "broken"
        shutil.copytree(home, broken)
        data = bytearray((broken / name).read_bytes())
        data[4096:12288] = b"\x55" * 8192
        (broken / name).write_bytes(data)
        before = home_bytes(broken)
        refused = _restore(new, broken, vault.relay, kit, check=False)
        assert (refused.code, "damaged" in refused.error["error"]) == (8, True)
        assert home_bytes(broken) == before
        shutil.rmtree(broken)
    assert not (new.home / "memory" / "crystal.db").exists()
    assert new.call("status", "--json", check=False).code == 3
    # None of that stands in the way of the right one.
    assert _restore(new, home, vault.relay, kit).json["role"] == "core"


def test_a_fresh_home_that_holds_a_memory_is_not_written_over(vault: Vault, tmp_path: Path) -> None:
    kit, home = kit_of(vault.core), lost_copy(vault.core, tmp_path)
    new = fresh_machine(tmp_path)
    memory = new.home / "memory" / "crystal.db"
    memory.parent.mkdir(parents=True)
    memory.write_bytes(b"somebody's memory")
    refused = _restore(new, home, vault.relay, kit, check=False)
    assert (refused.code, "a memory here already" in refused.error["error"]) == (2, True)
    assert memory.read_bytes() == b"somebody's memory"


def test_nothing_of_the_old_device_alone_is_taken_over(vault: Vault, tmp_path: Path) -> None:
    core, *_ = lived_in(vault, _TEXTS)
    core.call("remember", "Waits to be sent.")
    core.call("private", "on")
    home, target = lost_copy(core, tmp_path), tmp_path / "copy.db"
    before = _values(home / "state" / "state.db")
    claim = copy_journal(find_source_home(home, Home(tmp_path / "none")), target)
    after = _values(target)
    assert claim == before["claim"]
    assert set(after) <= {"node.vault", "node.private", "node.pending-since", "floor", "cursors.seen"}
    assert {"node.vault", "node.private"} <= set(after)
    assert all(before[name] == after[name] for name in after)
    journal = SqliteJournal.open(target)
    try:
        assert journal.stream() is None, "the old device's place in its stream is its own"
        assert journal.outbox_count() == 1
        assert journal.log_entries()
    finally:
        journal.close()
    told = _restore(fresh_machine(tmp_path), home, vault.relay, kit_of(core)).json
    assert told["private"] is True, "what its person wanted holds on"


def test_what_the_owner_has_yet_to_decide_about_comes_along(vault: Vault, tmp_path: Path) -> None:
    core = vault.core
    core.call("remember", "The owner has not decided about this.")
    core.call("sync")
    with opened(settings_of(core)) as device, device.journal.transaction() as transaction:
        kept = parse(device.replica.entries(1, 0, 1)[0].data)
        hold_entry(transaction, kept)
    new = fresh_machine(tmp_path)
    _restore(new, lost_copy(core, tmp_path), vault.relay, kit_of(core))
    with opened(settings_of(new)) as device:
        assert held_entries(device.journal, kept.header.sender) == [kept.data]


def _values(database: Path) -> dict[str, bytes]:
    connection = sqlite3.connect(f"file:{database}?mode=ro&immutable=1", uri=True)
    try:
        return dict(connection.execute("SELECT name, value FROM meta").fetchall())
    finally:
        connection.close()


def _names(home: Path) -> list[tuple[object, ...]]:
    """The names of what waits in the outbox."""
    journal = SqliteJournal.open(home / "state" / "state.db")
    try:
        return [tuple(name.origin) for name in journal.names()]
    finally:
        journal.close()


def _count(machine: Machine, text: str) -> int:
    connection = sqlite3.connect(machine.home / "memory" / "crystal.db")
    try:
        row = connection.execute("SELECT count(*) FROM chunks WHERE text = ?", (text,)).fetchone()
        return int(row[0])
    finally:
        connection.close()
