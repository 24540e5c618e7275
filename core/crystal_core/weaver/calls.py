"""Calls to the language model within one run: each answer is stored before the next call, and the budget is never exceeded."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from crystal_core.llm.answers import Unreadable
from crystal_core.llm.port import Llm, LlmError, Prompt, tokens_bound
from crystal_core.weaver import prompts
from crystal_core.weaver.answers import ANSWER_CHARS_MAX, CALL_SECONDS_MAX, TRIES_MAX
from crystal_core.weaver.ports import Ports
from crystal_core.weaver.records import Run

T = TypeVar("T")


class BudgetReached(Exception):
    """The next call might exceed the budget and was not made."""


@dataclass
class ModelCalls:
    """A run's calls to its model: stored, counted, and made only within the budget."""

    llm: Llm
    ports: Ports
    run: Run
    budget: int
    unread: int = 0

    @property
    def left(self) -> int:
        return self.budget - self.ports.database.spent(self.run.id, self.run.leg).total

    async def ask(
        self, number: int, step: str, prompt: Prompt, tokens_max: int, read: Callable[[str], T]
    ) -> T | None:
        """Return an answer parsed by ``read``; None if it was unreadable ``TRIES_MAX`` times.

        Stored answers are used before a call is made. Raises BudgetReached and LlmError.
        """
        kept = self.ports.database.answers(self.run.id, number, step)
        for tried in range(max(TRIES_MAX, len(kept))):
            if tried < len(kept):
                text = kept[tried].text
            else:
                text = await self._call(number, step, prompts.again(prompt) if tried else prompt, tokens_max)
            try:
                return read(text[:ANSWER_CHARS_MAX])
            except Unreadable:
                continue
        return None

    async def _call(self, number: int, step: str, prompt: Prompt, tokens_max: int) -> str:
        bound = tokens_bound(self.llm.identity, prompt) + tokens_max
        if bound > self.left:
            raise BudgetReached
        call = self.ports.database.ask(self.run, number, step, bound)
        try:
            completion = await self.llm.complete(prompt, tokens_max=tokens_max, seconds_max=CALL_SECONDS_MAX)
        except LlmError as error:
            self.ports.database.unanswered(call, paid=error.paid)
            raise
        self.ports.database.answered(call, completion)
        return completion.text
