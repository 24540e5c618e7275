"""Language models in a few lines, and a fast search over a handful of texts, for tests of the deep search's engine."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from crystal_core.deep.engine import Half
from crystal_core.deep.fusion import DeepCandidate
from crystal_core.deep.prompts import EXPAND
from crystal_core.llm.port import Completion, LlmIdentity, Prompt

EXPANSION = {
    "lexical": "hull keel",
    "rephrased": "What does the ship rest on?",
    "hypothetical": "It rests on a keel.",
}
LOCAL = LlmIdentity("test", "model", "127.0.0.1", True)
ELSEWHERE = LlmIdentity("test", "model", "models.example", False)


def judging(judge: Callable[[str], int]) -> Callable[[str, dict[str, Any]], str]:
    """A model that expands as it should, and judges a text by ``judge``."""

    def answer(system: str, data: dict[str, Any]) -> str:
        if system == EXPAND:
            return json.dumps(EXPANSION)
        return json.dumps({"scores": {str(one["n"]): judge(one["text"]) for one in data["texts"]}})

    return answer


@dataclass
class WrittenLlm:
    """``answer``: to the system's words and the data; an error is raised. ``seconds``: what each answer takes."""

    answer: Callable[[str, dict[str, Any]], str | Exception]
    seconds: Callable[[int], float] = lambda _number: 0.0
    identity: LlmIdentity = LOCAL
    cut: bool = False
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list[tuple[str, dict[str, Any]]])

    async def complete(self, prompt: Prompt, *, tokens_max: int, seconds_max: float) -> Completion:
        data = json.loads(prompt.data)
        self.asked.append((prompt.system, data))
        await asyncio.sleep(self.seconds(len(self.asked)))
        answer = self.answer(prompt.system, data)
        if isinstance(answer, Exception):
            raise answer
        return Completion(answer, 100, 10, self.identity.model, cut=self.cut)

    async def aclose(self) -> None:
        """Nothing is held."""

    @property
    def expansions_asked(self) -> int:
        return sum(system == EXPAND for system, _ in self.asked)

    @property
    def judgements_asked(self) -> int:
        return len(self.asked) - self.expansions_asked


@dataclass
class Shelf:
    """``plain``: what the query itself finds; ``others``: what other words find."""

    plain: list[DeepCandidate]
    others: dict[str, list[DeepCandidate]] = field(default_factory=dict[str, list[DeepCandidate]])
    searched: list[tuple[str, Half]] = field(default_factory=list[tuple[str, Half]])

    def __call__(self, text: str, half: Half) -> list[DeepCandidate]:
        self.searched.append((text, half))
        return self.plain if len(self.searched) == 1 else self.others.get(text, [])


def texts(count: int, first: int = 0, keyword_score: float = 0.5) -> list[DeepCandidate]:
    return [
        DeepCandidate(f"id{number}", f"text {number}", keyword_score)
        for number in range(first, first + count)
    ]
