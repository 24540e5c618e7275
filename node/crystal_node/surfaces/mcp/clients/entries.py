"""Entries of ours: named ``crystal``, running our program's ``mcp`` with this home. No other entry is ours."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from crystal_node.agent.hooks.jsondocument import elements, members
from crystal_node.agent.hooks.program import arguments_after, program
from crystal_node.base.settings import Settings

NAME = "crystal"
_HOME = "CRYSTAL_HOME"


class EntryForm(StrEnum):
    """How a client writes a server that is a process. PLAIN: command, args, env. TYPED: with its type, "stdio".

    COPILOT: its type is "local", and all its tools are named. OPENCODE: "local", the command in one list, env as "environment".
    """

    PLAIN = "plain"
    TYPED = "typed"
    COPILOT = "copilot"
    OPENCODE = "opencode"


@dataclass(frozen=True, slots=True)
class EntryOwner:
    """The owner of entries: one home."""

    home: Path
    person: Path

    @classmethod
    def of(cls, settings: Settings) -> "EntryOwner":
        return cls(settings.home.root, settings.person_home)

    def entry(self, form: EntryForm) -> dict[str, object]:
        """The entry as it is written: an absolute command, since an agent may know no search path of its person's."""
        words = [*program(), "mcp"]
        started: dict[str, object] = {"command": words[0], "args": words[1:]}
        entry: dict[str, object]
        match form:
            case EntryForm.PLAIN:
                entry = started
            case EntryForm.TYPED:
                entry = {"type": "stdio"} | started
            case EntryForm.COPILOT:
                entry = {"type": "local"} | started | {"tools": ["*"]}
            case EntryForm.OPENCODE:
                entry = {"type": "local", "command": words, "enabled": True}
        if self.home != self._default:
            entry["environment" if form is EntryForm.OPENCODE else "env"] = {_HOME: str(self.home)}
        return entry

    def owns(self, entry: object) -> bool:
        """Whether an entry is this home's, wherever the program was when it was written."""
        found = members(entry)
        command = found.get("command")
        begun = [command] if isinstance(command, str) else elements(command)
        words = arguments_after([*map(str, begun), *map(str, elements(found.get("args")))])
        named = (members(found.get("env")) | members(found.get("environment"))).get(_HOME)
        home = self._default
        if isinstance(named, str) and named:
            home = self.person / named.removeprefix("~/")  # an absolute path stays what it is
        return words is not None and words[:1] == ["mcp"] and home == self.home

    @property
    def _default(self) -> Path:
        return self.person / ".ldm"
