"""An agent that has nothing to do asks the relay for nothing: it waits to be woken, and each wait lasts most of a minute."""

import signal
import time
from pathlib import Path
from random import Random

import pytest

from tests.support.machine import Machine, Vault, transcript
from tests.support.networks.lines import Line, lines
from tests.support.relay_process import RelayProcess
from tests.support.watchers import until

IDLE_SECONDS = 12.0
REQUESTS_MAX = 7
"""Fewer than one a second: four long-polls (log, conversations, cursors, commands) may end in that time, and looks follow.
Twice in a row: a single quiet window may lie between two rounds. Over minutes it is one in some thirteen seconds."""


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_an_agent_without_work_asks_the_relay_for_nothing_but_to_be_woken(
    relay: RelayProcess, tmp_path: Path
) -> None:
    with lines(relay.url, Random(7)) as network:
        way = network.join()
        vault = Vault(relay, tmp_path, lambda root: Machine(root, {"CRYSTAL_RELAY_URL": way.url}))
        transcript(vault.core, "The lamp of the pier is lit at dusk.")
        agent = vault.core.start("agent", "run")
        try:
            until(lambda: vault.core.call("status", "--json").json["memory"]["texts"] == 1, "what was said")
            vault.core.call(
                "jobs", "run", "artefacts"
            )  # which would come by itself, once, and send its files
            until(lambda: _files_sent(vault.core), "the conversation's files")
            # On a busy machine a last round may come seconds after the one before.
            until(lambda: _is_quiet(way) and _is_quiet(way), "an agent that has nothing to do", 120)
        finally:
            agent.send_signal(signal.SIGTERM)
            agent.communicate(timeout=30)


def _files_sent(machine: Machine) -> bool:
    found = machine.call("status", "--json").json
    return bool(found["files"]["tree"]) and found["outbox"]["pending"] == 0


def _is_quiet(way: Line) -> bool:
    before = way.requests
    time.sleep(IDLE_SECONDS)  # what does not happen takes time
    return way.requests - before <= REQUESTS_MAX
