"""Killed at every commit, at every write and inside calls: nothing that was kept is paid for again, and the end is the same."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from crystal_core.weaver import prompts
from crystal_core.weaver.answers import ExtractedMemory
from crystal_core.weaver.database import WeaverDatabase
from crystal_core.weaver.records import Method
from tests.support.woven import AGENT, Shelf, WrittenModel, good_answer, woven


class Killed(BaseException):
    """The process dies here."""


class DyingDatabase(WeaverDatabase):
    """Dies at its n-th transaction, before or after the commit."""

    left = -1
    after = False

    @contextmanager
    def transaction(self) -> Generator[None]:
        self.left -= 1
        with super().transaction():
            yield
            if self.left == 0 and not self.after:
                raise Killed
        if self.left == 0:
            raise Killed


class DyingShelf(Shelf):
    """Dies at its n-th write, before or behind it."""

    left = -1
    after = False

    def write(self, name: str, text: str, method: Method, run: str) -> bool:
        self._step()
        changed = super().write(name, text, method, run)
        self._stepped()
        return changed

    def remember(self, run: str, number: int, memories: Sequence[ExtractedMemory], moment: int) -> int:
        self._step()
        taken = super().remember(run, number, memories, moment)
        self._stepped()
        return taken

    def _step(self) -> None:
        self.left -= 1
        if self.left == 0 and not self.after:
            raise Killed

    def _stepped(self) -> None:
        if self.left == 0:
            raise Killed


@pytest.mark.parametrize("after", [False, True], ids=["before a commit", "after a commit"])
async def test_killed_at_every_commit_a_run_pays_for_no_kept_answer_twice(
    tmp_path: Path, after: bool
) -> None:
    """The one call whose answer had not reached the disk may be made once more, and counts in full."""
    whole, expected = WrittenModel(), Shelf()
    with WeaverDatabase.open(tmp_path / "whole.db") as database:
        await woven(database, whole, expected, days=1)
    steps = 0
    for step in range(1, 60):
        model, shelf = WrittenModel(), Shelf()
        path = tmp_path / f"{step}.db"
        with DyingDatabase.open(path) as database:
            assert isinstance(database, DyingDatabase)
            database.left, database.after = step, after
            try:
                await woven(database, model, shelf, days=1)
                break
            except Killed:
                steps += 1
        before = len(model.asked)
        with WeaverDatabase.open(path) as database:
            run = database.unfinished(AGENT, "model")  # type: ignore[arg-type]
            kept = 0 if run is None else database.spent(run.id).lost
            result = await woven(database, model, shelf, days=1)
            if result.run is not None:
                assert database.spent(result.run.id).lost == kept
        assert len(model.asked) <= len(whole.asked) + kept, step
        assert before <= len(model.asked)
        assert shelf.files == expected.files, step
        assert shelf.accepted == expected.accepted, step
    else:
        pytest.fail("the run never came to its end")
    assert steps > 15


@pytest.mark.parametrize("after", [False, True], ids=["before a write", "after a write"])
async def test_killed_at_every_write_a_run_comes_to_the_same_end_for_the_same_money(
    tmp_path: Path, after: bool
) -> None:
    whole, expected = WrittenModel(), Shelf()
    with WeaverDatabase.open(tmp_path / "whole.db") as database:
        await woven(database, whole, expected)
    steps = 0
    for step in range(1, 40):
        model, shelf = WrittenModel(), DyingShelf()
        shelf.left, shelf.after = step, after
        with WeaverDatabase.open(tmp_path / f"{step}.db") as database:
            try:
                await woven(database, model, shelf)
                break
            except Killed:
                steps += 1
            shelf.left = -1
            await woven(database, model, shelf)
        assert len(model.asked) == len(whole.asked), step
        assert shelf.files == expected.files, step
        assert shelf.accepted == expected.accepted, step
    assert steps >= 9


async def test_a_budget_holds_over_the_crashes_of_a_run(database: WeaverDatabase) -> None:
    """A process that is started again and again must not spend its budget each time."""
    shelf = Shelf()

    def dies(system: str, data: str) -> str:
        if system.startswith(prompts.JOURNAL):
            raise Killed
        return good_answer(system, data)

    model = WrittenModel(dies)
    for _ in range(20):
        try:
            result = await woven(database, model, shelf, budget=40_000)
        except Killed:
            continue
        assert result.stopped
        break
    else:
        pytest.fail("the budget stopped nothing")
    assert result.run is not None
    assert database.spent(result.run.id).total <= 40_000
    assert 2 <= len(model.asked) < 12


async def test_killed_while_the_model_answers_the_run_goes_on_and_counts_the_lost_call(
    database: WeaverDatabase,
) -> None:
    shelf = Shelf()

    def dies(system: str, data: str) -> str:
        if system.startswith(prompts.FACTS):
            raise Killed
        return good_answer(system, data)

    model = WrittenModel(dies)
    with pytest.raises(Killed):
        await woven(database, model, shelf)
    model.answer = good_answer
    result = await woven(database, model, shelf)
    assert model.steps.count("reflect") == 2
    assert model.steps.count("journal") == 2
    assert model.steps.count("facts") == 3
    assert result.run is not None
    spent = database.spent(result.run.id)
    assert spent.lost == 1
    assert spent.unsure > 2500
