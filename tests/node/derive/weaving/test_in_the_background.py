"""The Dream Weaver in a Core's agent: asked for by a Node, and by the timetable."""

import time
from collections.abc import Generator
from pathlib import Path

import pytest

from crystal_node.base.locking import FileLock
from crystal_node.base.settings import resolve
from crystal_node.derive.catalog.agents import StagingState
from crystal_node.derive.catalog.database import Catalog
from crystal_node.derive.weaving.job import agents_to_weave
from tests.node.agent.daemon.running import agent
from tests.support.llm_server import LlmServer, llm_server
from tests.support.machine import Machine, Vault, transcript
from tests.support.relay_process import RelayProcess
from tests.support.watchers import until
from tests.support.woven import good_answer


@pytest.fixture(scope="module")
def house(
    relay: RelayProcess, tmp_path_factory: pytest.TempPathFactory
) -> Generator[tuple[Vault, Machine, LlmServer]]:
    """A Core whose agent runs, with a model, and a Node on which something was said."""
    with llm_server(good_answer) as server:
        vault = Vault(relay, tmp_path_factory.mktemp("house"))
        node = vault.add()
        vault.core.extra |= {
            "CRYSTAL_SUMMARY_PROVIDER": "openai-compatible",
            "CRYSTAL_LLM_URL": server.openai,
            "CRYSTAL_WEAVE_EVERY_HOURS": "1000",
        }
        transcript(node, "We decided to use teak.", "And to mend the sails.")
        node.call("capture")
        vault.settle()
        with agent(vault.core):
            deadline = time.monotonic() + 60
            while node.call("run", "status", "--json", check=False).code:  # until its list is no longer new
                assert time.monotonic() < deadline
            yield vault, node, server


def test_a_node_has_the_core_weave_and_gets_what_came_of_it(house: tuple[Vault, Machine, LlmServer]) -> None:
    _, node, server = house
    looked = node.call("dream-weave", "--dry-run", "--json").json
    assert looked["state"] == "done"
    assert looked["result"]["estimate"]["pieces"] == 2
    assert server.asked == []
    done = node.call("dream-weave").out
    assert "On the Core: 1 session of claude-code woven (" in done
    assert len(server.asked) == 6
    node.call("sync")
    assert (node.home / "agents" / "claude-code" / "CONTEXT.md").is_file() or _comes(node)
    refused = node.call("dream-weave", "--provider", "anthropic", check=False)
    assert refused.code == 2
    assert "Core" in refused.err
    assert not (node.home / "state" / "weaver.db").exists()


def test_the_timetable_weaves_and_lets_go(house: tuple[Vault, Machine, LlmServer]) -> None:
    core, server = house[0].core, house[2]
    jobs = {job["name"]: job for job in core.call("jobs", "list", "--json").json["jobs"]}
    assert {"dream-weave", "unweave"} <= set(jobs)
    asked = len(server.asked)
    transcript(core, "Another ship came in.", name="later")
    core.call("nudge")
    until(lambda: _ordered(core, "another ship came in"), "what was said, in order")
    core.call("jobs", "run", "dream-weave")
    until(lambda: len(server.asked) > asked, "the model asked by the timetable")
    journals = core.home / "agents" / "claude-code" / "memory" / "journals"
    until(lambda: _holding(journals, "Another ship came in."), "its journal")
    core.call("forget", core.call("search", "--json", "--", "another ship came in").json["results"][0]["id"])

    def let_go() -> bool:
        core.call("jobs", "run", "unweave")
        return not _holding(journals, "Another ship came in.")

    until(let_go, "a journal without what was forgotten")
    assert _holding(journals, "has been forgotten since")


def test_an_agent_that_waits_in_staging_or_was_rejected_is_not_woven_by_itself(tmp_path: Path) -> None:
    settings = resolve(environment={"CRYSTAL_HOME": str(tmp_path), "CRYSTAL_AGENT_ID": "mine"})
    (tmp_path / "state").mkdir()
    assert agents_to_weave(settings) == {"mine": 0}
    with Catalog.open(settings.home.works_database) as works, works.transaction():
        for number, (state, weave) in enumerate(
            [
                (StagingState.ASKING, "ask"),
                (StagingState.REJECTED, "ask"),
                (StagingState.LIVE, "llm"),
                (StagingState.LIVE, "never"),
            ]
        ):
            works.run(
                "INSERT INTO agent (agent, state, since, weave, failure) VALUES (?, ?, ?, ?, '')",
                (f"{state.value}-{weave}", state.value, 1000 + number, weave),
            )
    assert agents_to_weave(settings) == {"mine": 0, "live-llm": 0, "live-never": 1003}


def test_one_process_of_a_home_weaves_at_a_time(vault: Vault, tmp_path: Path) -> None:
    transcript(vault.core, "Something.")
    vault.core.call("capture")
    vault.core.call("sync")
    with FileLock(vault.core.home / "state" / "weaver.lock", purpose="crystal dream-weave"):
        busy = vault.core.call("dream-weave", "--provider", "none", check=False)
    assert busy.code == 9
    assert "crystal dream-weave" in busy.err


def _holding(folder: Path, words: str) -> bool:
    return any(words in path.read_text(encoding="utf-8") for path in folder.glob("*.md"))


def _ordered(core: Machine, words: str) -> bool:
    hits = core.call("search", "--json", "--", words).json["results"]
    return any("Another ship" in hit["text"] and not hit["provisional"] for hit in hits)


def _comes(node: Machine) -> bool:
    def there() -> bool:
        node.call("sync")
        return (node.home / "agents" / "claude-code" / "CONTEXT.md").is_file()

    until(there, "the page on the Node")
    return True
