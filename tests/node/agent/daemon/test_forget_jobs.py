"""Where no agent runs, `crystal sync` keeps up what one began, and begins nothing."""

from pathlib import Path

from tests.support.agreement import text_ids
from tests.support.machine import Machine, Vault, transcript

SECRET = "The combination of the harbour safe is on the blue card."
OTHER = "The crane is greased on Mondays."


def _holding(machine: Machine, words: str) -> list[Path]:
    agents = machine.home / "agents"
    return [path for path in agents.rglob("*") if path.is_file() and words in path.read_text()]


def test_a_forget_reaches_the_files_that_an_agent_made_though_none_runs_any_more(vault: Vault) -> None:
    core = vault.core
    transcript(core, SECRET, OTHER)
    core.call("capture")
    core.call("sync")
    assert not (core.home / "agents").exists(), "where no agent ever ran, nothing is made"
    core.call("config", "set", "time_zone", "UTC")
    told = core.call("jobs", "run", "artefacts")
    assert (told.out + told.err).count("artefacts: ") == 1, "its end is told once"
    assert _holding(core, SECRET)
    core.call("forget", text_ids(core)[SECRET])
    core.call("sync")
    assert _holding(core, SECRET) == []
    assert _holding(core, OTHER)
