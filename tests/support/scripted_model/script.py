"""What the scripted model answers: steps to prompts that hold a phrase, and what was asked of it."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Role = Literal["system", "user", "assistant", "tool"]
WITHOUT_TOOLS = "without-tools"
"""The model of a program that gives its model no tools."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool. ``name`` may be the end of the name that the program gives the tool."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer: words, thoughts before them, or a call. ``stalls``: only half of it is sent, and the connection stays open."""

    text: str = ""
    thinking: str = ""
    call: Call | None = None
    stalls: bool = False


@dataclass(frozen=True, slots=True)
class Turn:
    """One part of the conversation that a request holds: what somebody said, a call, or a tool's result."""

    role: Role
    text: str


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, the same for all APIs. ``tools``: the names by which the program offers them."""

    api: str
    model: str
    turns: list[Turn]
    tools: list[str]
    body: dict[str, Any]

    @property
    def is_aside(self) -> bool:
        """Whether it is not part of the conversation: programs ask for titles and summaries without offering tools."""
        return not self.tools and self.model != WITHOUT_TOOLS

    @property
    def text(self) -> str:
        """Everything that the model reads, system prompt and tool results too."""
        return "\n".join(turn.text for turn in self.turns)

    @property
    def results(self) -> list[str]:
        """The results of tools in it, in order."""
        return [turn.text for turn in self.turns if turn.role == "tool"]


ASIDE = Reply("A short title")
"""The answer to requests that are asides."""


@dataclass
class Script:
    """Steps by the phrase that a prompt holds. ``asked``: all requests, the oldest first."""

    steps: dict[str, list[Reply]] = field(default_factory=dict[str, list[Reply]])
    asked: list[Asked] = field(default_factory=list[Asked])
    aside: Reply = ASIDE
    unknown: list[str] = field(default_factory=list[str])
    """Paths that no API has."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def says(self, phrase: str, *steps: Reply | Call | str) -> str:
        """Answer prompts that hold this phrase so: a step for each request of the turn. Returns the phrase."""
        self.steps[phrase] = [_reply(step) for step in steps]
        return phrase

    def reply(self, asked: Asked) -> Reply:
        """The next step of the newest prompt with a known phrase. A tool that is not offered is called by its plain name."""
        with self._lock:
            self.asked.append(asked)
        if asked.is_aside:
            return self.aside
        for at in reversed(range(len(asked.turns))):
            turn = asked.turns[at]
            said = _without_records(turn.text)
            known = [phrase for phrase in self.steps if phrase in said] if turn.role == "user" else []
            if known:
                steps = self.steps[max(known, key=said.rfind)]
                done = sum(later.role == "assistant" for later in asked.turns[at:])
                return _offered(steps[min(done, len(steps) - 1)], asked.tools)
        return Reply("There is no step for this.")

    def holding(self, phrase: str) -> list[Asked]:
        """The requests of conversations whose prompts hold this phrase."""
        return [
            one
            for one in self.asked
            if not one.is_aside and any(turn.role == "user" and phrase in turn.text for turn in one.turns)
        ]


def _without_records(text: str) -> str:
    """A prompt without what a hook recalled: a record quotes prompts of before."""
    return "\n".join(line for line in text.split("\n") if not line.startswith("- ["))


def _reply(step: Reply | Call | str) -> Reply:
    match step:
        case Reply():
            return step
        case Call():
            return Reply(call=step)
        case str():
            return Reply(step)


def _offered(reply: Reply, tools: Sequence[str]) -> Reply:
    if reply.call is None or reply.call.name in tools:
        return reply
    ending = [tool for tool in tools if tool.endswith(reply.call.name)]
    if len(ending) != 1:
        return reply
    return Reply(reply.text, reply.thinking, Call(ending[0], reply.call.arguments), reply.stalls)
