"""What tests of the Dream Weaver need: conversations, a model that answers as a good one would, and a place to write to."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from crystal_core.llm.port import Completion, LlmIdentity, Prompt
from crystal_core.projects import ProjectKey, scope_of
from crystal_core.weaver import prompts
from crystal_core.weaver.answers import ExtractedMemory
from crystal_core.weaver.database import WeaverDatabase
from crystal_core.weaver.engine import weave_with
from crystal_core.weaver.ports import Plan, Ports
from crystal_core.weaver.records import Method
from crystal_core.weaver.runs import Woven
from crystal_core.weaver.sources import PIECE_OVERHEAD_BYTES, Said, WeaverSource, day_of

BEGIN = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
INVENTED = "we shall certainly sell the house and move to the moon"
AGENT = "codex"
STEPS = {
    prompts.REFLECT: "reflect",
    prompts.JOURNAL: "journal",
    prompts.FACTS: "facts",
    prompts.IDENTITY: "identity",
    prompts.SOUL: "soul",
    prompts.CONTEXT: "context",
}


def said(
    number: int,
    text: str,
    *,
    day: int = 0,
    session: str = "one",
    role: str = "user",
    project: ProjectKey = ("", ""),
) -> Said:
    """The ``number``-th message."""
    moment = int((BEGIN + timedelta(days=day, minutes=number)).timestamp() * 1000)
    key = number.to_bytes(16, "big")
    source = WeaverSource(
        key,
        number,
        session,
        moment,
        len(text.encode()) + PIECE_OVERHEAD_BYTES,
        day_of(moment, UTC),
        key * 2,
        scope_of(project),
    )
    return Said(source, role, text, project)


def days_of(count: int, messages: int = 3) -> list[Said]:
    """So many days with a conversation each."""
    return [
        said(
            day * 100 + number,
            f"On day {day} we talked about ship number {day * messages + number} and its sails.",
            day=day,
            session=f"session-{day}",
            role="assistant" if number % 2 else "user",
        )
        for day in range(count)
        for number in range(messages)
    ]


def good_answer(system: str, data: str) -> str:
    """What a model would answer that does as it is told, but for one invented quotation."""
    step = STEPS[system.removesuffix(prompts.AGAIN)]
    day = (re.search(r"Day: (\S+)", data) or [""])[0]
    match step:
        case "reflect":
            lines = [json.loads(line) for line in data.splitlines() if line.startswith("{")]
            return "Here you are:\n" + json.dumps(
                {
                    "decisions": [f"{day}: decided to keep {len(lines)} ships."],
                    "promises": ["I promised to mend the sails."],
                    "concerns": [],
                    "missed": ["The anchor was never weighed."],
                    "quotations": [lines[0]["text"], INVENTED],
                }
            )
        case "journal":
            return f'I worked on ships ({day}).\n\n[q1]\n\nSomebody said "{INVENTED}", they say.'
        case "facts":
            return json.dumps(
                {
                    "memories": [
                        {"text": f"The fleet was counted ({day}).", "category": "event"},
                        {"text": f"Sails are mended by hand ({day}).", "category": "skill"},
                    ],
                    "reference": [{"topic": "Ships", "text": f"Ships are listed in fleet.md ({day})."}],
                }
            )
        case "context":
            return json.dumps(
                {
                    "now": ["Ships."],
                    "last_48_hours": ["Ships were counted."],
                    "user": ["Content."],
                    "blocked": ["The anchor."],
                    "next": ["Weigh it."],
                    "background": "Ships and sails. " * 300,
                }
            )
        case _:
            return f"I am an agent that keeps ships ({step}). " * 200


@dataclass
class WrittenModel:
    """A model in this process. ``asked``: system and data of each call, as they came."""

    answer: Any = good_answer
    asked: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    tokens: int = 0
    context_tokens: int = 200_000

    @property
    def identity(self) -> LlmIdentity:
        return LlmIdentity("test", "written", "", True, self.context_tokens)

    @property
    def steps(self) -> list[str]:
        return [STEPS[system.removesuffix(prompts.AGAIN)] for system, _ in self.asked]

    async def complete(self, prompt: Prompt, *, tokens_max: int, seconds_max: float) -> Completion:
        self.asked.append((prompt.system, prompt.data))
        text = self.answer(prompt.system, prompt.data)
        took, gave = len((prompt.system + prompt.data).encode()) // 4, len(text.encode()) // 4
        gave = min(gave, tokens_max)
        self.tokens += took + gave
        return Completion(text[: tokens_max * 4], took, gave, "written-1")

    async def aclose(self) -> None:
        """Keeps nothing open."""


@dataclass
class Shelf:
    """An output in memory. ``memories``: what was accepted, by run and number of the batch."""

    files: dict[str, str] = field(default_factory=dict[str, str])
    memories: dict[tuple[str, int], Sequence[ExtractedMemory]] = field(
        default_factory=dict[tuple[str, int], Sequence[ExtractedMemory]]
    )
    accepted: int = 0

    def read(self, name: str) -> str | None:
        return self.files.get(name)

    def write(self, name: str, text: str, method: Method, run: str) -> bool:
        changed = self.files.get(name) != text
        self.files[name] = text
        return changed

    def remember(self, run: str, number: int, memories: Sequence[ExtractedMemory], moment: int) -> int:
        if (run, number) not in self.memories:
            self.accepted += len(memories)
            self.memories[run, number] = memories
        return len(self.memories[run, number])


def ports_of(database: WeaverDatabase, texts: Sequence[Said], shelf: Shelf) -> Ports:
    by_key = {one.source.key: one for one in texts}

    async def load(sources: Sequence[WeaverSource]) -> list[Said]:
        return [by_key[source.key] for source in sources if source.key in by_key]

    now = int((BEGIN + timedelta(days=30)).timestamp() * 1000)
    return Ports(database, load, shelf, lambda: now, lambda _text, _done, _total: None)


def plan_of(
    texts: Sequence[Said],
    *,
    full: bool = False,
    budget: int = 10**9,
    new_id: str = "0a0b0c0d",
    since: int = 0,
) -> Plan:
    return Plan(AGENT, full, since, [one.source for one in texts], UTC, budget, new_id)


async def woven(
    database: WeaverDatabase, model: WrittenModel, shelf: Shelf, days: int = 2, **plan: object
) -> Woven:
    """Weaves so many days."""
    texts = days_of(days)
    return await weave_with(model, ports_of(database, texts, shelf), plan_of(texts, **plan))  # type: ignore[arg-type]
