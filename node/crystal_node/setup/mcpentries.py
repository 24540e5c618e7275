"""Crystal's entry among Claude Code's MCP servers, in ``.claude.json``: looked for, and taken out.

Only one that is named ``crystal`` and runs our program with this home is ours. Nobody but the person puts it there.
"""

from collections.abc import Iterator
from pathlib import Path

from crystal_node.hooks import document, jsonfile
from crystal_node.hooks.document import DamagedDocument
from crystal_node.hooks.program import arguments_after
from crystal_node.settings import Settings

_NAME = "crystal"
_SERVERS = "mcpServers"


class McpEntries:
    """See the module."""

    def __init__(self, settings: Settings) -> None:
        self._home = settings.home.root
        self._person, self._default_home = settings.person_home, settings.person_home / ".ldm"
        self._files = dict.fromkeys(
            (settings.person_home / ".claude.json", settings.claude_folder / ".claude.json")
        )

    def found(self) -> list[Path]:
        """The files that hold one. Raises DamagedDocument."""
        return [file for file in self._files if self._in(file)]

    def remove(self) -> list[Path]:
        """Takes all of them out; everything else in those files keeps its bytes. Raises DamagedDocument, HomeBusy."""
        return [file for file in self.found() if jsonfile.change(file, self._without)]

    def _in(self, file: Path) -> bool:
        text = jsonfile.read_text(file)
        if text is None or f'"{_NAME}"' not in text:
            return False
        try:
            return any(self._ours(document.parse(text)))
        except DamagedDocument as error:
            raise DamagedDocument(f"{file} cannot be read: {error}") from None

    def _without(self, text: str) -> str:
        for path in list(self._ours(document.parse(text))):
            text = document.without(text, path)
        return text

    def _ours(self, found: object) -> Iterator[document.Path]:
        """The entries of the person, and those of single projects."""
        projects = document.members(document.value_at(found, ("projects",)))
        outer: list[document.Path] = [(), *(("projects", name) for name in projects)]
        for path in outer:
            entry = document.members(document.value_at(found, (*path, _SERVERS, _NAME)))
            if self._is_ours(entry):
                yield (*path, _SERVERS, _NAME)

    def _is_ours(self, entry: dict[str, object]) -> bool:
        command = entry.get("command")
        if not isinstance(command, str):
            return False
        words = arguments_after([command, *map(str, document.elements(entry.get("args")))])
        named = document.members(entry.get("env")).get("CRYSTAL_HOME")
        home = self._default_home
        if isinstance(named, str) and named:
            home = self._person / named.removeprefix("~/")  # an absolute path stays what it is
        return words is not None and words[:1] == ["mcp"] and home == self._home
