"""Hooks of Crystal in an AI tool's settings: installed, checked and removed.

Everything else in the file stays as it is, above all other programs' hooks. Installing twice changes nothing; hooks of an
earlier version or installation are replaced. Before the first change the file is copied to ``….before-crystal``; the copy goes
with the last of what is ours in the file: nothing of another program's settings stays behind in a file of ours.

Most hooks only touch a file that the background service watches. Those at a session's start and at a prompt also recall
(``recall``): the tool waits for what they print. All succeed whatever happens, since a failing hook could keep a prompt from
its program. They are ``async`` where the tool can and goes on anyway; not at a session's end, which ends async hooks too. There
is none at a compaction: Claude Code tells its person of each that ran.
"""

import os
import shlex
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from crystal_node.agent.hooks import jsondocument, jsonfile
from crystal_node.agent.hooks.jsondocument import DamagedDocument, members
from crystal_node.agent.hooks.program import program, words_after
from crystal_node.agent.hooks.tools import HookedTool, OwnFileTool
from crystal_node.base.errors import LocalStorage, NoSuchEntry
from crystal_node.base.settings import Settings

_EVEN_IF_GONE = " || true"
"""If Crystal was removed without `crystal uninstall`, the shell's "not found" must not fail the hook."""
WITH_ITS_SHELL = ' <&0 & trap "kill $!" TERM; wait $!'
"""Behind a command: it ends when its shell is ended. ``<&0``: what runs beside a shell would have no input otherwise."""


_WORDS = {False: ("nudge",), True: ("recall", "--hook")}


def command(home: Path, *, recalls: bool = False, tool: str = "", ends_shell_alone: bool = False) -> str:
    """The shell command that wakes the background service of that home, and recalls. ``ends_shell_alone``: as ``HookedTool``
    has it. Raises LocalStorage if the path is not UTF-8."""
    if os.fsencode(home).decode("utf-8", "replace") != str(home):
        raise LocalStorage(f"the path {str(home)!r} is no UTF-8", hint="Use a home whose path is.")
    named = ["--tool", tool] if recalls and tool else []
    run = shlex.join([*program(), *_WORDS[recalls], *named, "--home", str(home)])
    return run + (WITH_ITS_SHELL if ends_shell_alone else "") + _EVEN_IF_GONE


def hook(tool: HookedTool, event: str, home: Path) -> dict[str, object]:
    """The hook of one event."""
    entry: dict[str, object] = {
        "type": "command",
        "command": command(home, recalls=event in tool.recalling, ends_shell_alone=tool.ends_shell_alone),
        "timeout": tool.timeout,
    }
    return entry | {"async": True} if tool.beside and event in tool.waking else entry


def is_ours(entry: object, home: Path, default_home: Path) -> bool:
    """Whether a hook is of that home, wherever the program was installed then.

    A command without a home means the default one.
    """
    given = members(entry).get("command")
    words = words_after(given) if isinstance(given, str) else None
    if not words or words[0] not in ("nudge", "recall"):
        return False
    named = default_home
    options = words[2:] if words[1:2] == ["--hook"] else words[1:]
    if options[:1] == ["--home"] and len(options) > 1:
        named = default_home.parent / options[1].removeprefix("~/")  # an absolute path stays what it is
    return named == home


_HOOKS = "hooks"
_EVERYTHING = ("", "*")
"""Matchers that match everything."""


class HookState(StrEnum):
    """State of an event's hook. OUTDATED: of another version or installation, doubled, or narrowed by a matcher."""

    INSTALLED = "installed"
    OUTDATED = "outdated"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class HooksLook:
    """``there``: the tool has a folder. ``others``: number of other programs' hooks.

    ``disabled``: the file turns all hooks off. ``strays``: hooks of ours at events that have none any more. ``copied``: the
    copy from before the first hook is there, and nothing else of ours needs it.
    """

    tool: "HookedTool | OwnFileTool"
    there: bool
    states: dict[str, HookState]
    others: int = 0
    disabled: bool = False
    strays: int = 0
    copied: bool = False

    @property
    def file(self) -> Path:
        return self.tool.file

    @property
    def installed(self) -> bool:
        return not self.strays and all(state is HookState.INSTALLED for state in self.states.values())

    @property
    def absent(self) -> bool:
        gone = all(state is HookState.MISSING for state in self.states.values())
        return gone and not (self.strays or self.copied)


class ToolHooks:
    """The hooks of one Crystal home in one tool."""

    def __init__(self, settings: Settings, tool: HookedTool) -> None:
        self.tool = tool
        self._home = settings.home.root
        self._default_home = settings.person_home / ".ldm"

    @property
    def there(self) -> bool:
        """Whether the tool is on this machine."""
        return self.tool.folder.is_dir()

    @property
    def file(self) -> Path:
        return self.tool.file

    @property
    def settings_file(self) -> Path:
        """The file of the tool's person that is changed."""
        return self.tool.file

    @property
    def backup(self) -> Path:
        return self.tool.backup

    @property
    def installed(self) -> bool:
        """Whether all are there as they should be; no if the file cannot be read without a doubt."""
        with suppress(DamagedDocument):
            return self.look().installed
        return False

    @property
    def absent(self) -> bool:
        """Whether nothing of ours is there; no if the file cannot be read without a doubt."""
        with suppress(DamagedDocument):
            return self.look().absent
        return False

    def look(self) -> HooksLook:
        """The hooks as they are. Raises DamagedDocument."""
        with self._named():
            text = jsonfile.read_text(self.file)
            found = self._checked(text) if text and text.strip() else {}
            ours = list(self._ours(found))
            entries = [entry for _, entry in _entries(found)]
            return HooksLook(
                self.tool,
                self.there,
                {event: self._state(found, event) for event in self.tool.events},
                len(entries) - len(ours),
                found.get("disableAllHooks") is True,
                sum(path[1] not in self.tool.events for path in ours),
                self.backup.exists() and not self._serves(found),
            )

    def install(self) -> bool:
        """Installs missing hooks. Returns whether anything was changed.

        Raises:
            NoSuchEntry: the tool is not here.
            DamagedDocument: its settings cannot be read without a doubt. Nothing was changed.
            HomeBusy: another program writes them again and again.
        """
        if not self.there:
            raise NoSuchEntry(
                f"there is no {self.tool.title} on this machine: no folder {self.tool.folder}",
                hint="Start it once. Without hooks Crystal still sees what it writes.",
            )
        with self._named():
            # A copy with our server in it would be none of what was there before.
            backup = None if self._serves(jsondocument.parse(self._text() or "{}")) else self.backup
            return jsonfile.change(self.file, self._with_hooks, backup=backup)

    def holds(self, text: str) -> bool:
        """Whether the file's text has a hook of ours. Raises DamagedDocument."""
        return any(True for _ in self._ours(self._checked(text))) if text.strip() else False

    def uninstall(self) -> bool:
        """Removes all hooks of this home, and the copy. Returns whether there were any. Raises as ``install``, except
        NoSuchEntry."""
        changed = serves = False
        if self.there and self.file.exists():
            made_here = not self.backup.exists()
            with self._named():
                changed = jsonfile.change(self.file, self._without_hooks)
                found = jsondocument.parse(self._text() or "null")
                serves = self._serves(found)
                emptied: dict[str, object] = {name: {} for name in self.tool.server[:1]}
                if changed and made_here and found in ({}, emptied):
                    jsonfile.remove(self.file)
        if not serves:
            with suppress(FileNotFoundError):
                self.backup.unlink()
        return changed

    def _text(self) -> str | None:
        text = jsonfile.read_text(self.file)
        return None if text is None or not text.strip() else text

    def _serves(self, found: object) -> bool:
        """Whether our MCP server stands in the same file."""
        return bool(self.tool.server) and jsondocument.value_at(found, self.tool.server) is not None

    def _with_hooks(self, text: str) -> str:
        text = text if text.strip() else "{}\n"
        found = self._checked(text)
        events = self.tool.events
        strays = any(path[1] not in events for path in self._ours(found))
        good = {event for event in events if self._state(found, event) is HookState.INSTALLED}
        if not strays and len(good) == len(events):
            return text
        text = self._stripped(text, keep=good)
        for event in events:
            if event in good:
                continue
            found = self._checked(text)
            group = {_HOOKS: [hook(self.tool, event, self._home)]}
            if _HOOKS not in found:
                text = jsondocument.with_member(text, (), _HOOKS, {event: [group]})
            elif jsondocument.value_at(found, (_HOOKS, event)) is None:
                text = jsondocument.with_member(text, (_HOOKS,), event, [group])
            else:
                text = jsondocument.with_element(text, (_HOOKS, event), group)
        self._checked(text)
        return text

    def _without_hooks(self, text: str) -> str:
        if not text.strip():
            return text
        left = self._stripped(text, keep=set())
        before = jsonfile.read_text(self.backup) if left != text else None
        # What our server left empty when it went goes now, too.
        return before if before is not None and self._emptied(left, before) else left

    def _emptied(self, left: str, before: str) -> bool:
        """Whether they differ by an empty object of servers alone."""
        found, servers = jsondocument.parse(left), self.tool.server[:1]
        if not servers or jsondocument.value_at(found, servers) != {}:
            return False
        with suppress(DamagedDocument):
            return jsondocument.same(jsondocument.without(left, servers), before)
        return False

    def _stripped(self, text: str, *, keep: set[str]) -> str:
        """Without our hooks, except of ``keep``, and without what held only them and was not there before."""
        found = self._checked(text)
        before: object = None
        with suppress(DamagedDocument):
            before = jsondocument.parse(jsonfile.read_text(self.backup) or "null")
        for path in reversed([path for path in self._ours(found) if path[1] not in keep]):
            text = jsondocument.without(text, path)
            group = jsondocument.members(jsondocument.value_at(jsondocument.parse(text), path[:-2]))
            # A person's own group with more in it stays, with an empty list.
            if group.get(_HOOKS) == [] and set(group) <= {_HOOKS, "matcher"}:
                text = jsondocument.without(text, path[:-2])
            for outer in (path[:2], path[:1]):
                was_there = jsondocument.value_at(before, outer) is not None
                if not was_there and not jsondocument.value_at(jsondocument.parse(text), outer):
                    text = jsondocument.without(text, outer)
        return text

    def _state(self, found: dict[str, object], event: str) -> HookState:
        ours = [path for path in self._ours(found) if path[1] == event]
        if not ours:
            return HookState.MISSING
        group = jsondocument.members(jsondocument.value_at(found, ours[0][:3]))
        narrowed = group.get("matcher", "") not in _EVERYTHING
        same = jsondocument.value_at(found, ours[0]) == hook(self.tool, event, self._home)
        return HookState.INSTALLED if len(ours) == 1 and same and not narrowed else HookState.OUTDATED

    def _ours(self, found: dict[str, object]) -> Iterator[jsondocument.Path]:
        for path, entry in _entries(found):
            if is_ours(entry, self._home, self._default_home):
                yield path

    def _checked(self, text: str) -> dict[str, object]:
        """The settings. Raises DamagedDocument if hooks could not be put into them."""
        parsed = jsondocument.parse(text)
        found = jsondocument.members(parsed)
        if parsed != found:
            raise DamagedDocument(f"{jsondocument.place(text, ())}: the settings are no object")
        if _HOOKS in found and not isinstance(found[_HOOKS], dict):
            raise DamagedDocument(f'{jsondocument.place(text, (_HOOKS,))}: "hooks" is no object')
        for event, groups in jsondocument.members(found.get(_HOOKS)).items():
            if event in self.tool.events and not isinstance(groups, list):
                where = jsondocument.place(text, (_HOOKS, event))
                raise DamagedDocument(f'{where}: "{event}" is no list of hooks')
        return found

    def _named(self) -> "_Named":
        return _Named(self.file)


class _Named:
    """Adds the file's name to errors."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, DamagedDocument) and str(self._file) not in str(error):
            raise DamagedDocument(f"{self._file} cannot be changed: {error}") from None


def _entries(found: dict[str, object]) -> Iterator[tuple[jsondocument.Path, object]]:
    """Every hook of any program, with its path. Values of another shape are skipped."""
    for event, groups in jsondocument.members(found.get(_HOOKS)).items():
        for at, group in enumerate(jsondocument.elements(groups)):
            for index, entry in enumerate(jsondocument.elements(jsondocument.members(group).get(_HOOKS))):
                yield (_HOOKS, event, at, _HOOKS, index), entry
