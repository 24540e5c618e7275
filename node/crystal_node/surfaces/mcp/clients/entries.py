"""Entries of ours: named ``crystal``, running our program's ``mcp`` with this home. No other entry is ours."""

from dataclasses import dataclass
from pathlib import Path

from crystal_node.agent.hooks.jsondocument import elements, members
from crystal_node.agent.hooks.program import arguments_after, program
from crystal_node.base.settings import Settings

NAME = "crystal"
_HOME = "CRYSTAL_HOME"


@dataclass(frozen=True, slots=True)
class EntryOwner:
    """The owner of entries: one home."""

    home: Path
    person: Path

    @classmethod
    def of(cls, settings: Settings) -> "EntryOwner":
        return cls(settings.home.root, settings.person_home)

    def entry(self, *, typed: bool) -> dict[str, object]:
        """The entry as it is written: an absolute command, since an agent may know no search path of its person's."""
        words = program()
        entry: dict[str, object] = {"type": "stdio"} if typed else {}
        entry |= {"command": words[0], "args": [*words[1:], "mcp"]}
        if self.home != self._default:
            entry["env"] = {_HOME: str(self.home)}
        return entry

    def owns(self, entry: object) -> bool:
        """Whether an entry is this home's, wherever the program was when it was written."""
        found = members(entry)
        command = found.get("command")
        if not isinstance(command, str):
            return False
        words = arguments_after([command, *map(str, elements(found.get("args")))])
        named = members(found.get("env")).get(_HOME)
        home = self._default
        if isinstance(named, str) and named:
            home = self.person / named.removeprefix("~/")  # an absolute path stays what it is
        return words is not None and words[:1] == ["mcp"] and home == self.home

    @property
    def _default(self) -> Path:
        return self.person / ".ldm"
