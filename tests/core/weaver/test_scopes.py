"""What is remembered of a project's conversations is for that project, and has no word of another's."""

import json
from collections.abc import Sequence
from datetime import UTC

from msgspec import structs

from crystal_core.weaver import prompts
from crystal_core.weaver.database import WeaverDatabase
from crystal_core.weaver.engine import weave_with
from crystal_core.weaver.records import Method, Run, RunState
from crystal_core.weaver.runs import session_mark
from crystal_core.weaver.sources import Said, batch_length, list_sources, scope_of_all
from tests.core.builders import NOW, apply, capture, new_replica
from tests.support.woven import AGENT, Shelf, WrittenModel, good_answer, plan_of, ports_of, said

APP, CLONE, PUMP, NONE = ("work/app", "host/me/app"), ("src/app", "host/me/app"), ("work/pump", ""), ("", "")
DAY = [
    said(1, "The mast is of mastwood.", project=APP, session="app"),
    said(2, "It was felled by mastwood merchants.", project=CLONE, session="app"),
    said(3, "The pump is of pumpmetal.", project=PUMP, session="pump"),
    said(4, "Supper is of suppermeal.", project=NONE, session="supper"),
    said(5, "The mast has two mastwood spars.", project=APP, session="more"),
]
WORDS = {"host/me/app": "mastwood", "work/pump": "pumpmetal", "": "suppermeal"}


def repeating(system: str, data: str) -> str:
    """A model that lets into each of its answers all that it was shown."""
    answer = good_answer(system, data)
    shown = " ".join(word for word in WORDS.values() if word in data)
    if system.startswith(prompts.REFLECT):
        return answer.replace("decided to keep", f"{shown}: decided to keep")
    if system.startswith(prompts.JOURNAL):
        return f"{answer} {shown}"
    if system.startswith(prompts.FACTS):
        facts = json.loads(answer)
        facts["memories"][0] |= {"text": f"Told: {shown}, {len(data)}.", "category": "preference"}
        facts["memories"][1]["text"] += f" {shown}"
        return json.dumps(facts)
    return answer


async def remembered(database: WeaverDatabase, texts: Sequence[Said]) -> list[tuple[str, str]]:
    """Scope and text of all that is remembered of them."""
    shelf = Shelf()
    await weave_with(WrittenModel(repeating), ports_of(database, texts, shelf), plan_of(texts))
    return [(each.scope, each.text) for memories in shelf.memories.values() for each in memories]


async def test_what_is_remembered_of_a_project_has_its_scope_and_no_word_of_another(
    database: WeaverDatabase,
) -> None:
    found = await remembered(database, DAY)
    assert {scope for scope, _ in found} == set(WORDS)
    for scope, text in found:
        assert [word for word in WORDS.values() if word in text] == [WORDS[scope]]


async def test_a_batch_of_several_projects_that_was_begun_before_is_read_in_parts(
    database: WeaverDatabase,
) -> None:
    run = Run("0a0b0c0d", AGENT, Method.MODEL, "incremental", 0, RunState.OPEN, 1, True)
    database.begin(run, 0)
    sources = [one.source for one in DAY]
    database.begin_batch(
        run.id, sources[0].day, [(one.key, session_mark(one.session), one.mark) for one in sources]
    )
    for scope, text in await remembered(database, DAY):
        assert [word for word in WORDS.values() if word in text] == [WORDS[scope]]


def test_pieces_of_several_projects_have_no_scope() -> None:
    assert scope_of_all(DAY[:2]) == "host/me/app"
    assert scope_of_all(DAY[:3]) is None
    assert scope_of_all([DAY[0], DAY[3]]) is None
    assert scope_of_all([DAY[3]]) == ""


def test_a_day_is_read_project_by_project() -> None:
    replica = new_replica()
    for number, project in enumerate((APP, PUMP, CLONE, NONE, PUMP)):
        spoken = capture(f"message {number}", session=f"s{number}", created_at=NOW + number * 60_000)
        apply(replica, structs.replace(spoken, project=project[0], repository=project[1]))
    sources = list_sources(replica.database, "agent", UTC)
    assert [one.scope for one in sources] == ["host/me/app", "host/me/app", "work/pump", "work/pump", ""]
    lengths: list[int] = []
    while sum(lengths) < len(sources):
        lengths.append(batch_length(sources, sum(lengths), 10**6))
    assert lengths == [2, 2, 1]
