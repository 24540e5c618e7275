"""The engine: what was answered is never asked for again, a budget is never passed, nothing invented stands as a quotation."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from crystal_core.llm.errors import Declined, RateLimited, TooLong, Unavailable
from crystal_core.weaver import documents, prompts
from crystal_core.weaver.answers import CONTEXT_BYTES_MAX, IDENTITY_BYTES_MAX
from crystal_core.weaver.database import WeaverDatabase
from crystal_core.weaver.engine import weave_with
from crystal_core.weaver.extract import extract
from crystal_core.weaver.ports import Ports
from crystal_core.weaver.quotations import TAKEN_OUT
from crystal_core.weaver.records import RunState
from crystal_core.weaver.runs import Woven
from crystal_core.weaver.sources import Said
from tests.support.woven import (
    AGENT,
    INVENTED,
    Shelf,
    WrittenModel,
    days_of,
    good_answer,
    plan_of,
    ports_of,
    said,
    woven,
)


async def test_a_run_writes_journals_pages_and_memories(database: WeaverDatabase) -> None:
    model, shelf = WrittenModel(), Shelf()
    result = await woven(database, model, shelf)
    assert model.steps == ["reflect", "journal", "facts"] * 2 + ["identity", "soul", "context"]
    assert result.sessions_done == 2
    assert result.sessions_left == 0
    assert not result.stopped
    assert result.identity_created
    assert result.context_updated
    assert result.journals == (
        "memory/journals/2026-01-05-0a0b0c0d.md",
        "memory/journals/2026-01-06-0a0b0c0d.md",
    )
    assert shelf.accepted == 4
    assert set(shelf.files) == {*result.journals, *documents.PAGES} - {documents.EXTRACT}
    assert "written (test)" in shelf.files[result.journals[0]]
    assert len(shelf.files[documents.IDENTITY].encode()) <= IDENTITY_BYTES_MAX
    context = shelf.files[documents.CONTEXT]
    assert 5000 <= len(context.encode()) <= CONTEXT_BYTES_MAX
    warm = context.partition("## Warm start")[2].partition("\n## ")[0]
    assert len(warm.splitlines()) < 50
    for title in ("Now", "The last 48 hours", "The user", "Blocked", "Next"):
        assert f"**{title}**" in warm
    assert "- [ ] 2026-01-05: The anchor was never weighed." in shelf.files[documents.MISSED]
    assert "Ships are listed in fleet.md" in shelf.files[documents.REFERENCE]


async def test_an_invented_quotation_is_cut_and_counted_and_a_true_one_stands(
    database: WeaverDatabase,
) -> None:
    shelf = Shelf()
    result = await woven(database, WrittenModel(), shelf)
    for name, text in shelf.files.items():
        assert INVENTED not in text, name
    journal = shelf.files[result.journals[0]]
    assert "“On day 0 we talked about ship number 0 and its sails.”" in journal
    assert TAKEN_OUT in journal
    for name in (documents.IDENTITY, documents.SOUL, documents.CONTEXT):
        assert "On day 0 we talked" not in shelf.files[name]
    assert sum(outcome.cut for outcome in result.outcomes) == 4  # two in notes, two in prose


async def test_what_was_woven_is_not_woven_again_until_everything_is_asked_for(
    database: WeaverDatabase,
) -> None:
    model, shelf = WrittenModel(), Shelf()
    await woven(database, model, shelf)
    asked = len(model.asked)
    again = await woven(database, model, shelf, new_id="11111111")
    assert again.run is None
    assert len(model.asked) == asked
    more = await woven(database, model, shelf, days=3, new_id="22222222")
    assert model.steps[asked:] == ["reflect", "journal", "facts", "identity", "soul", "context"]
    assert more.journals == ("memory/journals/2026-01-07-22222222.md",)
    assert not more.identity_created
    full = await woven(database, model, shelf, days=3, full=True, new_id="33333333")
    assert len(full.journals) == 3


async def test_what_comes_late_for_a_day_that_was_woven_is_woven_next_time(database: WeaverDatabase) -> None:
    model, shelf = WrittenModel(), Shelf()
    texts = days_of(2)
    await weave_with(model, ports_of(database, texts, shelf), plan_of(texts))
    late = [*texts, said(5, "A laptop that was away for a week says this.", session="late")]
    late.sort(key=lambda one: one.source.day)
    result = await weave_with(model, ports_of(database, late, shelf), plan_of(late, new_id="22222222"))
    assert result.journals == ("memory/journals/2026-01-05-22222222.md",)
    assert "A laptop that was away" in shelf.files[result.journals[0]]


@pytest.mark.parametrize("budget", [1_000, 8_000, 12_000, 20_000, 40_000, 60_000])
async def test_a_budget_stops_before_it_is_passed_and_the_next_run_goes_on(
    database: WeaverDatabase, budget: int
) -> None:
    model, shelf = WrittenModel(), Shelf()
    result = await woven(database, model, shelf, days=6, budget=budget)
    assert model.tokens <= budget
    if result.stopped:
        assert result.sessions_left + result.sessions_done >= 6
        assert result.run is not None
        assert database.unfinished(AGENT, result.run.method).state is RunState.STOPPED  # type: ignore[union-attr]
    rest = await woven(database, model, shelf, days=6)
    assert not rest.stopped
    assert len(model.asked) == 6 * 3 + 3
    assert rest.sessions_left == 0
    assert shelf.accepted == 12


async def test_small_budgets_one_after_the_other_come_to_the_end(database: WeaverDatabase) -> None:
    model, shelf = WrittenModel(), Shelf()
    for _ in range(40):
        before = model.tokens
        result = await woven(database, model, shelf, days=3, budget=30_000)
        assert model.tokens - before <= 30_000
        if not result.stopped:
            break
    else:
        pytest.fail("the runs never came to the end")
    assert len(model.asked) == 3 * 3 + 3


async def test_a_batch_that_the_rest_of_a_budget_cannot_pay_is_cut_smaller(database: WeaverDatabase) -> None:
    texts = [said(number, f"{number}: " + '"\\\n' * 300) for number in range(40)]
    model, shelf = WrittenModel(), Shelf()
    for _ in range(60):
        before = model.tokens
        plan = plan_of(texts, budget=30_000)
        result = await weave_with(model, ports_of(database, texts, shelf), plan)
        assert model.tokens - before <= 30_000
        if not result.stopped:
            break
    else:
        pytest.fail("the runs never came to the end")


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "I am sorry, Dave.",
        "[1, 2]",
        '{"decisions": ',
        "{" * 5000,
        '{"decisions": "text", "quotations": 7}',
    ],
)
async def test_an_answer_of_no_use_is_asked_for_once_more_and_then_said(
    database: WeaverDatabase, answer: str
) -> None:
    def always(_system: str, _data: str) -> str:
        return answer

    model, shelf = WrittenModel(always), Shelf()
    result = await woven(database, model, shelf, days=1)
    assert len(model.asked) <= 2 + 3 * 2
    assert not result.stopped
    assert documents.CONTEXT not in shelf.files or "Nothing known." in shelf.files[documents.CONTEXT]
    assert (await woven(database, model, shelf, days=1)).run is None


@pytest.mark.parametrize("error", [Unavailable, RateLimited])
async def test_a_model_that_fails_ends_the_run_which_goes_on_later(
    database: WeaverDatabase, error: Callable[[str], Exception]
) -> None:
    shelf = Shelf()
    calls = 0

    def fails(system: str, data: str) -> str:
        nonlocal calls
        calls += 1
        if calls == 5:
            raise error("not now")
        return good_answer(system, data)

    model = WrittenModel(fails)
    with pytest.raises((Unavailable, RateLimited)):
        await woven(database, model, shelf)
    result = await woven(database, model, shelf)
    assert len(model.asked) == 2 * 3 + 3 + 1
    assert result.run is not None
    assert database.spent(result.run.id).lost == 0


@pytest.mark.parametrize("model", [WrittenModel(), None])
async def test_a_run_that_goes_on_is_never_further_than_its_end(
    database: WeaverDatabase, model: WrittenModel | None
) -> None:
    texts = days_of(3)
    told: list[float] = []

    def heard(_text: str, done: int, total: int) -> None:
        told.append(done / total)

    ports = replace(ports_of(database, texts, Shelf()), heard=heard)

    async def breaks(_sources: object) -> list[Said]:
        raise OSError("the disk is away")

    async def weave(through: Ports) -> Woven:
        return await (
            weave_with(model, through, plan_of(texts)) if model else extract(through, plan_of(texts))
        )

    with pytest.raises(OSError, match="away"):
        await weave(replace(ports, load=breaks))
    told.clear()
    await weave(ports)
    assert told == sorted(told)
    assert told[0] == 0
    assert all(each < 1 for each in told[:3]), "as each of the three days begins"


async def test_what_the_model_declines_is_said_and_not_asked_for_again(database: WeaverDatabase) -> None:
    def declines(system: str, data: str) -> str:
        if "ship number 0" in data and system == prompts.REFLECT:
            raise Declined("no", paid=True)
        return good_answer(system, data)

    shelf = Shelf()
    result = await woven(database, WrittenModel(declines), shelf)
    assert result.unread == 1
    assert "declined" in shelf.files[result.journals[0]]
    assert "declined" not in shelf.files[result.journals[1]]


async def test_a_batch_over_the_context_is_halved_until_it_fits(database: WeaverDatabase) -> None:
    def short(system: str, data: str) -> str:
        if system == prompts.REFLECT and data.count('{"n"') > 2:
            raise TooLong("too long")
        return good_answer(system, data)

    texts, shelf = [said(number, f"Message {number} about ships.") for number in range(9)], Shelf()
    result = await weave_with(WrittenModel(short), ports_of(database, texts, shelf), plan_of(texts))
    assert sum(outcome.pieces for outcome in result.outcomes) == 9
    assert result.unread == 0


@pytest.mark.slow
async def test_one_giant_message_is_read_without_its_middle(database: WeaverDatabase) -> None:
    texts, shelf = [said(1, "x" * 60_000), said(2, "short and sweet")], Shelf()
    model = WrittenModel(context_tokens=8_192)
    result = await weave_with(model, ports_of(database, texts, shelf), plan_of(texts))
    assert "bytes left out" in model.asked[0][1]
    assert sum(outcome.pieces for outcome in result.outcomes) == 2


async def test_a_forgotten_text_is_not_read_by_a_run_that_goes_on(database: WeaverDatabase) -> None:
    shelf = Shelf()
    with pytest.raises(Unavailable):
        await woven(database, WrittenModel(_unavailable), shelf)
    texts = days_of(2)[3:]
    model = WrittenModel()
    result = await weave_with(model, ports_of(database, texts, shelf), plan_of(texts))
    assert not any("ship number 0" in data for _, data in model.asked)
    assert result.journals == ("memory/journals/2026-01-06-0a0b0c0d.md",)


def _unavailable(_system: str, _data: str) -> str:
    raise Unavailable("nobody")
