"""What becomes of an agent that is new to the Core: at each step, when it fails, when it is refused, and what is never held
back."""

import asyncio
import os
from pathlib import Path

import pytest

from crystal_node.base.errors import NoSuchEntry
from crystal_node.derive.artefacts.builder import catalog_lock
from crystal_node.derive.catalog.agents import (
    CannotStage,
    Staged,
    StagingState,
    Weave,
    find_staged,
    staged_agents,
)
from crystal_node.derive.staging.service import Moves, StagingService, clear_staging
from tests.core.builders import NOW, capture, forget, texts
from tests.support.workbench import Workbench, texts_of

STAGED = "staging/codex/transcripts/session.jsonl"
MARKER = "staging/codex/READY"
TRANSCRIPT = "agents/codex/memory/transcripts/session.jsonl"


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    return Workbench(tmp_path / "home")


def staging_run(bench: Workbench, *, run: str = "", weave: Weave | None = None) -> Moves:
    """What `advance` does up to weaving."""

    async def work() -> Moves:
        shop = bench.shop()
        try:
            desk = StagingService(shop)
            await shop.update(bench.now)
            if run:
                desk.hurry(run, bench.now, weave)
            await shop.make(bench.now)
            return await desk.move_on(bench.now)
        finally:
            shop.catalog.close()

    return asyncio.run(work())


def ended(bench: Workbench, agent: str, why_not: str = "") -> None:
    shop = bench.shop()
    desk = StagingService(shop)
    desk.woven(agent, why_not, bench.now)
    desk.clean()
    shop.catalog.close()


def codex(bench: Workbench) -> Staged:
    return find_staged(staged_agents(bench.settings.home), "codex")


def test_a_pipe_in_the_place_of_the_marker_keeps_nobody_waiting(bench: Workbench) -> None:
    bench.apply(capture("the past", agent="codex"))
    marker = bench.settings.home.root / MARKER
    marker.parent.mkdir(parents=True)
    os.mkfifo(marker)
    staging_run(bench)
    assert codex(bench).failure
    marker.unlink()
    staging_run(bench, run="codex")
    assert codex(bench).state is StagingState.ASKING


def test_a_new_agent_waits_to_be_asked_about_with_its_files_made(bench: Workbench) -> None:
    bench.apply(capture("the past", agent="codex"))
    moves = staging_run(bench)
    assert codex(bench).state is StagingState.ASKING
    assert codex(bench).waits_for_a_person
    assert moves.weaving == []
    assert {STAGED, MARKER, TRANSCRIPT} <= set(bench.files())
    assert any("is new here" in line for line in bench.told)
    assert any("waits for you" in line for line in bench.told)
    told = list(bench.told)
    staging_run(bench)
    assert bench.told == told


def test_the_memory_itself_is_never_held_back(bench: Workbench) -> None:
    bench.apply(capture("the past of a stranger", agent="codex"))
    assert "the past of a stranger" in texts(bench.replica.database)
    assert bench.replica.without_vectors(10) == []


@pytest.mark.parametrize("choice", [Weave.EXTRACTIVE, Weave.LLM])
def test_an_answer_weaves_and_then_the_agent_is_live_and_staging_is_gone(
    bench: Workbench, choice: Weave
) -> None:
    bench.apply(capture("the past", agent="codex"))
    staging_run(bench)
    moves = staging_run(bench, run="codex", weave=choice)
    assert moves.weaving == [("codex", choice)]
    assert codex(bench).state is StagingState.WEAVING
    assert {STAGED, MARKER, TRANSCRIPT} <= set(bench.files())
    ended(bench, "codex")
    assert codex(bench).state is StagingState.LIVE
    assert not (bench.root / "staging").exists()
    assert TRANSCRIPT in bench.files()


@pytest.mark.parametrize(
    ("setting", "state"), [("never", StagingState.LIVE), ("extractive", StagingState.WEAVING)]
)
def test_what_is_configured_is_not_asked(tmp_path: Path, setting: str, state: StagingState) -> None:
    bench = Workbench(tmp_path / "home", environment={"CRYSTAL_STAGING": setting})
    bench.apply(capture("the past", agent="codex"))
    staging_run(bench)
    assert codex(bench).state is state
    assert (bench.root / "staging").exists() is (state is StagingState.WEAVING)


def test_weaving_that_fails_says_so_keeps_everything_and_is_tried_again_when_told_to(
    bench: Workbench,
) -> None:
    bench.apply(capture("the past", agent="codex"))
    staging_run(bench)
    staging_run(bench, run="codex", weave=Weave.LLM)
    before = bench.files()
    ended(bench, "codex", "the model's server does not answer")
    assert codex(bench).failure == "the model's server does not answer"
    assert codex(bench).state is StagingState.WEAVING
    assert codex(bench).waits_for_a_person
    assert bench.files() == before
    assert staging_run(bench).weaving == []  # not by itself: it may cost money each time
    assert staging_run(bench, run="codex").weaving == [("codex", Weave.LLM)]
    ended(bench, "codex")
    assert codex(bench).state is StagingState.LIVE


def test_a_file_that_cannot_be_written_stops_the_agent_where_it_is(bench: Workbench, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (bench.root / "agents").mkdir()
    (bench.root / "agents" / "codex").symlink_to(tmp_path / "elsewhere")
    bench.apply(capture("the past", agent="codex"))
    staging_run(bench)
    assert codex(bench).state is StagingState.BACKFILL
    assert "link" in codex(bench).failure
    assert STAGED in bench.files()
    assert list((tmp_path / "elsewhere").iterdir()) == []
    (bench.root / "agents" / "codex").unlink()
    staging_run(bench, run="codex")
    assert codex(bench).state is StagingState.ASKING


def test_an_agent_is_ready_only_when_its_conversations_are_quiet(bench: Workbench) -> None:
    bench.now = NOW + 60_000
    bench.apply(capture("it goes on", agent="codex", created_at=NOW))
    staging_run(bench)
    assert codex(bench).state is StagingState.GATHERING
    assert bench.files() == {}
    bench.now = NOW + 11 * 60_000
    staging_run(bench)
    assert codex(bench).state is StagingState.ASKING


def test_agents_that_the_core_records_itself_are_known(bench: Workbench) -> None:
    bench.apply(capture("mine", agent="codex"), device=bench.own)
    bench.apply(capture("mine", agent=bench.settings.agent_id))
    staging_run(bench)
    assert {one.state for one in staged_agents(bench.settings.home)} == {StagingState.LIVE}
    assert not (bench.root / "staging").exists()


def test_a_staged_agent_that_the_core_begins_to_record_is_live(bench: Workbench) -> None:
    bench.apply(capture("the past", agent="codex"))
    staging_run(bench)
    bench.apply(capture("here", agent="codex", session="here"), device=bench.own)
    staging_run(bench)
    assert codex(bench).state is StagingState.LIVE
    assert not (bench.root / "staging").exists()


def test_a_forgotten_text_leaves_staging_in_every_state(bench: Workbench) -> None:
    secrets = [f"secret number {number}." for number in range(4)]
    bench.now = NOW + 11 * 60_000
    bench.apply(capture("the past", *secrets, agent="codex"))
    bench.run()
    assert STAGED in bench.files()
    for number, secret in enumerate(secrets):
        bench.apply(forget(secret))
        staging_run(bench, run="codex" if number == 2 else "", weave=Weave.LLM if number == 2 else None)
        assert secret.encode() not in bench.everywhere()
        assert texts_of(bench.files(), secrets) == set(secrets[number + 1 :])
    assert codex(bench).state is StagingState.WEAVING


def test_a_rejected_agent_has_no_files_and_stays_in_the_memory(bench: Workbench) -> None:
    bench.apply(capture("the past", agent="codex"))
    staging_run(bench)

    async def reject() -> None:
        shop = bench.shop()
        desk = StagingService(shop)
        desk.reject("codex", bench.now)
        await shop.make(bench.now)
        desk.clean()
        shop.catalog.close()

    asyncio.run(reject())
    assert bench.files() == {}
    bench.apply(capture("it goes on", agent="codex", message="2"))
    staging_run(bench)
    assert bench.files() == {}
    assert "the past" in texts(bench.replica.database)
    assert codex(bench).state is StagingState.REJECTED
    staging_run(bench, run="codex", weave=Weave.NEVER)
    assert codex(bench).state is StagingState.LIVE
    assert TRANSCRIPT in bench.files()


def test_what_means_nothing_is_refused_and_changes_nothing(bench: Workbench) -> None:
    bench.apply(capture("mine", agent="codex"), device=bench.own)
    staging_run(bench)
    shop = bench.shop()
    desk = StagingService(shop)
    with pytest.raises(CannotStage):
        desk.hurry("codex", bench.now, None)
    with pytest.raises(CannotStage):
        desk.reject("codex", bench.now)
    with pytest.raises(NoSuchEntry):
        desk.reject("nobody", bench.now)
    shop.catalog.close()
    assert codex(bench).state is StagingState.LIVE


def test_a_device_that_leads_no_more_keeps_nothing_of_staging(bench: Workbench) -> None:
    bench.apply(capture("the past", agent="codex"))
    staging_run(bench)
    with catalog_lock(bench.settings.home):
        assert clear_staging(bench.settings.home)
    assert not (bench.root / "staging").exists()
    assert TRANSCRIPT in bench.files()  # a file like any other: it is the tree's
    assert staged_agents(bench.settings.home) == []
