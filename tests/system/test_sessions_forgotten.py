"""A session of a device that is gone: what is forgotten goes from its copies elsewhere, and it can be resumed all the same."""

import signal

import pytest

from crystal_node.derive.sessions.copies import SessionCopies
from tests.support.machine import Machine, Vault, transcript
from tests.support.watchers import until

NAME = "5f0c6f0e-0b5e-4d0e-9a52-0f3f9f0f0a00"
SECRET = "The marmot hides its nuts below the pier."


def held(machine: Machine) -> bytes:
    copies = SessionCopies(machine.home)
    return b"".join(b"".join(copies.read(branch.tip)) for branch in copies.branches("claude-code", NAME))


@pytest.mark.timeout(300)
def test_a_forget_reaches_the_copies_of_a_device_that_was_revoked(vault: Vault) -> None:
    gone, other = vault.add(), vault.add()
    path = transcript(gone, "The first marmot.", SECRET, "The last marmot.", name=NAME)
    agent = gone.start("agent", "run")
    try:
        until(lambda: (gone.home / "sessions").is_dir() and held(gone) == path.read_bytes(), "the copy", 60)
    finally:
        agent.send_signal(signal.SIGTERM)
        agent.communicate(timeout=60)
    gone.run("sync")
    for machine in (vault.core, gone, other):
        machine.run("sync")
    assert held(vault.core) == held(other) == path.read_bytes()
    device = str(gone.call("status", "--json").json["device"])
    vault.core.run("devices", "revoke", device, "--yes")
    [found] = [
        hit["id"]
        for hit in vault.core.call("search", "--json", "marmot nuts pier").json["results"]
        if hit["text"] == SECRET
    ]
    vault.core.run("forget", found, "--yes")
    for machine in (vault.core, vault.core, other, vault.core, other):
        machine.run("sync")
    for machine in (vault.core, other):
        kept = held(machine)
        assert SECRET.encode() not in kept
        assert len(kept) == path.stat().st_size, "nothing moved"
        heads = list(machine.home.glob("sessions/**/head.json"))
        assert heads
        assert not [head for head in heads if SECRET in head.read_text()]
        machine.run("sessions", "restore", NAME, "--to", str(machine.root / "restored"))
        [restored] = (machine.root / "restored").rglob(f"{NAME}.jsonl")
        assert restored.read_bytes() == kept
