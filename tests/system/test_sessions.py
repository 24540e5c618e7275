"""A raw session on two real devices over a real relay: it is on the other one as it grows, and after a kill."""

import signal
import subprocess

import pytest

from crystal_crypto.errors import CrystalError
from crystal_node.derive.sessions.copies import SessionCopies
from tests.support.machine import Machine, Vault, transcript
from tests.support.watchers import until

NAME = "5f0c6f0e-0b5e-4d0e-9a52-0f3f9f0f0a00"


def streams(machine: Machine) -> list[bytes]:
    """What the session's branches hold here; nothing while something of it is on its way."""
    copies = SessionCopies(machine.home)
    try:
        return [b"".join(copies.read(each.tip)) for each in copies.branches("claude-code", NAME)]
    except CrystalError:
        return []


def stop(process: "subprocess.Popen[str]") -> None:
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)


@pytest.mark.timeout(300)
def test_a_session_is_on_the_other_machine_as_it_grows_and_after_a_kill(vault: Vault) -> None:
    node = vault.add()
    path = transcript(node, "The first marmot.", name=NAME)
    core, agent = vault.core.start("agent", "run"), node.start("agent", "run")
    try:
        until(lambda: streams(vault.core) == [path.read_bytes()], "the session on the Core", 60)
        transcript(node, *(f"Marmot {number}." for number in range(30)), name=NAME)
        agent.kill()
        agent.communicate()
        transcript(node, "Said while nobody looked.", name=NAME)
        agent = node.start("agent", "run")
        until(lambda: streams(vault.core) == [path.read_bytes()], "the session after a kill", 60)
    finally:
        stop(agent)
        stop(core)
