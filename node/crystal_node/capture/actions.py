"""Tool calls as records: which tool, on what, how it ended, and which files it changed.

A record is a text of a few lines, so that every device can show and find it::

    Bash failed, exit code 1
    command: npm install
    error: npm ERR! code ERESOLVE
      npm ERR! unable to resolve dependency tree

The first line has the tool, how it ended (``done``, ``failed``, ``cancelled``, ``unanswered``) and the exit code where there
is one. Then come ``command``, ``path``, ``url``, ``query``, ``file`` (a changed file with the lines added and removed),
``error``, and in full records ``arguments`` and ``output``. Further lines of a value are indented by two spaces. What a tool
returned is otherwise left out. docs/decisions/0100-tool-calls.md says why.

Values are redacted before they are cut: half a credential is recognised by nobody.
"""

import json
import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

import msgspec

from crystal_mirror.types import ACTION
from crystal_node.base.settings.options import ActionDetail
from crystal_node.capture.json_values import as_array, as_object, as_text, is_array, is_object, parse_json
from crystal_node.capture.messages import SkippedRecord, TranscriptMessage, derived_id, plain
from crystal_node.capture.redaction import redact

RAW_CHARS_MAX = 48 * 1024
"""Of one value that are looked at: the first third and the last two."""
TOOL_CHARS_MAX = 100
NAME_CHARS_MAX = 400
"""Of a path, an address or a query."""
COMMAND_CHARS_MAX = {ActionDetail.BRIEF: 1000, ActionDetail.FULL: 4000}
ERROR_CHARS_MAX = {ActionDetail.BRIEF: 600, ActionDetail.FULL: 2000}
OUTPUT_CHARS_MAX = 1000
ARGUMENTS_CHARS_MAX = 500
CHANGES_MAX = 20
"""Changed files that one record names; the others are counted."""
CHANGES_READ_MAX = 1000
"""Changed files of one call, and edits of one file, that are looked at: the rest of a call that has more is left out."""
OPEN_CALLS_MAX = 64
"""Calls of one transcript that wait for their results. If there are more, the oldest counts as unanswered."""

_COMMANDS = ("command", "cmd", "commands", "script")
_PATHS = (
    "file_path",
    "path",
    "filePath",
    "absolute_path",
    "notebook_path",
    "target_file",
    "relative_path",
    "dir_path",
    "filename",
)
_URLS = ("url", "uri")
_QUERIES = ("query", "pattern", "search_query", "regex", "q", "prompt", "question", "message", "description")
_EDITS = (
    ("old_string", "new_string"),
    ("oldText", "newText"),
    ("old_str", "new_str"),
    ("oldString", "newString"),
)
_CONTENTS = ("content", "contents", "file_text")
_PATCHES = ("input", "patch", "patchText", "patch_text")
_SHELLS = frozenset(
    {"bash", "sh", "zsh", "/bin/bash", "/bin/sh", "/bin/zsh", "/usr/bin/bash", "/usr/bin/zsh"}
)
_PATCH = re.compile(r"\*\*\* Begin Patch\n(.*?)(?:\n\*\*\* End Patch|\Z)", re.DOTALL)
_PATCHED = re.compile(r"\*\*\* (?:Add|Update|Delete) File: (.+)")
_LOOKING = frozenset(
    {
        *(
            "read",
            "readfile",
            "readmanyfiles",
            "readmediafile",
            "view",
            "viewimage",
            "viewfile",
            "open",
            "cat",
        ),
        *(
            "grep",
            "grepsearch",
            "searchfilecontent",
            "searchfiles",
            "codebasesearch",
            "glob",
            "findfiles",
            "find",
        ),
        *("ls", "list", "listdirectory", "listdir", "listfiles", "listcodedefinitionnames", "readlints"),
        *(
            "todowrite",
            "todoread",
            "writetodos",
            "updatetodos",
            "updateplan",
            "plan",
            "exitplanmode",
            "enterplanmode",
        ),
        *(
            "taskcreate",
            "taskupdate",
            "tasklist",
            "taskget",
            "toolsearch",
            "reportintent",
            "attemptcompletion",
        ),
        *("askuserquestion", "askfollowupquestion", "savememory"),
    }
)
"""Tools that look and plan, by their names without case and punctuation."""
_OWN = "crystal_"
"""In the names of our own tools, which are never recorded: they return texts of the memory, also what is forgotten later."""
_WRITING = ("write", "create", "save", "newfile")
_NAME_MARKS = re.compile(r"[^a-z0-9]")


class FileChange(msgspec.Struct, frozen=True, array_like=True):
    """A file that was changed, and how many lines were added and removed."""

    path: str
    added: int
    removed: int


class OpenCall(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """A call whose result has not come yet, redacted and cut. ``moment``: milliseconds since 1970, 0 if unknown. ``named``:
    what it is on, as names and values in the record's order."""

    id: str
    moment: int
    tool: str
    named: tuple[tuple[str, str], ...] = ()
    changes: tuple[FileChange, ...] = ()


@dataclass(frozen=True, slots=True)
class Ending:
    """How a call ended. ``failed`` None: nobody knows. ``at``: when, in milliseconds, 0 if unknown. ``changes``: as the tool
    itself states them; None if it does not."""

    failed: bool | None = False
    exit_code: int | None = None
    text: str = ""
    at: int = 0
    cancelled: bool = False
    changes: tuple[FileChange, ...] | None = None

    @property
    def status(self) -> str:
        if self.cancelled:
            return "cancelled"
        if self.failed is None:
            return "unanswered"
        return "failed" if self.failed or self.exit_code else "done"


UNANSWERED = Ending(failed=None)
Outcome = TranscriptMessage | SkippedRecord


@dataclass(frozen=True, slots=True)
class CallPlace:
    """Where calls happen: what ``TranscriptMessage`` has of it."""

    session: str
    cwd: str = ""
    repository: str = ""
    subagent: bool = False


def opened(number: object, tool: object, arguments: object, moment: int) -> OpenCall:
    """A call, from any tool's arguments: an object, its JSON, or plain text. Never raises."""
    named, given = as_text(tool) or "tool", _parsed(arguments)
    if named == "tool_call" and (meant := as_text(given.get("name"))):  # of a tool that calls others
        named, given = meant, as_object(given.get("args"))
    command = _command(given)
    changes = _changes(named, given, command)
    values = {
        "command": "apply_patch" if command and _PATCH.search(command) else command,
        "path": _first(given, _PATHS) if not changes else "",
        "url": _first(given, _URLS),
        "query": _first(given, _QUERIES) if not command and not changes else "",
        "arguments": _others(given),
    }
    limits = {"command": COMMAND_CHARS_MAX[ActionDetail.FULL], "arguments": ARGUMENTS_CHARS_MAX}
    return OpenCall(
        as_text(number) or "",
        moment,
        "_".join(redact(named).text.split())[:TOOL_CHARS_MAX] or "tool",
        tuple(
            (name, _cleaned(value, limits.get(name, NAME_CHARS_MAX)))
            for name, value in values.items()
            if value
        ),
        changes,
    )


def ended(call: OpenCall, ending: Ending, detail: ActionDetail, place: CallPlace) -> Outcome:
    """The record of a call; a reason if it is not to be recorded."""
    text = _record(call, ending, detail, place.cwd)
    if not text:
        return SkippedRecord("tool call")
    return TranscriptMessage(
        message=derived_id(ACTION, place.session, call.id or str(call.moment), "" if call.id else text),
        session=place.session,
        texts={ACTION: text},
        moment=call.moment,
        dated=call.moment > 0,
        cwd=place.cwd,
        repository=place.repository,
        subagent=place.subagent,
        ended=ending.at,
    )


class Waiting(Protocol):
    """What keeps the calls that wait for their results: the ``Context`` of a file."""

    calls: tuple[OpenCall, ...]


def hold(waiting: Waiting, call: OpenCall, detail: ActionDetail, place: CallPlace) -> Iterator[Outcome]:
    """Keeps a call until its result comes. Without room the oldest counts as unanswered."""
    if detail is ActionDetail.OFF:
        return
    calls = (*waiting.calls, call)
    over = max(len(calls) - OPEN_CALLS_MAX, 0)
    waiting.calls = calls[over:]
    yield from (ended(one, UNANSWERED, detail, place) for one in calls[:over])


def answer(
    waiting: Waiting, number: object, ending: Ending, detail: ActionDetail, place: CallPlace
) -> Iterator[Outcome]:
    """The record of the call with that id, if it waits."""
    found = next((one for one in waiting.calls if one.id and one.id == number), None)
    if found is not None:
        waiting.calls = tuple(one for one in waiting.calls if one is not found)
        yield ended(found, ending, detail, place)


def release(waiting: Waiting, detail: ActionDetail, place: CallPlace) -> Iterator[Outcome]:
    """The calls that nobody answered: the person has spoken again."""
    calls, waiting.calls = waiting.calls, ()
    yield from (ended(one, UNANSWERED, detail, place) for one in calls)


_EXIT_CODE = re.compile(
    r"^(?:Error: )?(?:Process exited with code|Exit [Cc]ode:?) +(-?\d{1,9})\b *\n?", re.MULTILINE
)


def stated_exit_code(text: str) -> int | None:
    """The exit code on a line of its own in what a tool says around a command's output; None if there is none."""
    found = _EXIT_CODE.search(text[:RAW_CHARS_MAX])
    return None if found is None else int(found[1])


def result_text(content: object) -> str:
    """What a tool returned, as text: of blocks and parts those that have one."""
    if is_array(content):
        return "\n".join(filter(None, (as_text(as_object(part).get("text")) for part in content)))
    if is_object(content):
        for name in ("error", "output", "content", "text", "stderr"):
            if text := as_text(content.get(name)):
                return text
        return ""
    return as_text(content) or ""


def diff_changes(path: str, lines: Iterable[str]) -> FileChange:
    """A change by the lines of its hunks, which begin with ``+``, ``-`` or something else."""
    added = removed = 0
    for line in lines:
        added += line.startswith("+")
        removed += line.startswith("-")
    return FileChange(_cleaned(path, NAME_CHARS_MAX), added, removed)


def unified_changes(path: object, diff: object) -> tuple[FileChange, ...] | None:
    """A change by a unified diff of one file; None if that is none."""
    named, text = as_text(path), as_text(diff)
    if not named or not text or "@@" not in text:
        return None
    return (diff_changes(named, text[text.index("@@") :].splitlines()),)


def edit_change(path: str, before: str, after: str) -> FileChange:
    """A change by the text that was replaced and what replaced it: lines at both ends that are the same do not count."""
    old, new = before.splitlines(), after.splitlines()
    first = 0
    while first < min(len(old), len(new)) and old[first] == new[first]:
        first += 1
    last = 0
    while last < min(len(old), len(new)) - first and old[-1 - last] == new[-1 - last]:
        last += 1
    same = first + last
    return FileChange(_cleaned(path, NAME_CHARS_MAX), len(new) - same, len(old) - same)


def _record(call: OpenCall, ending: Ending, detail: ActionDetail, cwd: str) -> str:
    status = ending.status
    dull = detail is ActionDetail.BRIEF and status != "failed" and _plain_name(call.tool) in _LOOKING
    if detail is ActionDetail.OFF or dull or _OWN in call.tool:
        return ""
    code = f", exit code {ending.exit_code}" if ending.exit_code is not None else ""
    lines = [f"{call.tool} {status}{code}"]
    changes = (ending.changes if ending.changes is not None else call.changes) if status == "done" else ()
    for name, value in call.named:
        if name == "arguments" and detail is not ActionDetail.FULL:
            continue
        if name == "path" and any(change.path == value for change in changes):
            continue
        limit = COMMAND_CHARS_MAX[detail] if name == "command" else NAME_CHARS_MAX
        lines += _value(name, _relative(_cut(value, limit), cwd) if name == "path" else _cut(value, limit))
    if status != "done" and not any(name == "path" for name, _ in call.named):
        lines += [line for change in call.changes[:1] for line in _value("path", _relative(change.path, cwd))]
    for change in changes[:CHANGES_MAX]:
        lines.append(f"file: {_relative(_one_line(change.path), cwd)} +{change.added} -{change.removed}")
    if len(changes) > CHANGES_MAX:
        lines.append(f"file: and {len(changes) - CHANGES_MAX} more")
    if status == "failed":
        lines += _value("error", _cleaned(ending.text, ERROR_CHARS_MAX[detail]))
    elif detail is ActionDetail.FULL:
        lines += _value("output", _cleaned(ending.text, OUTPUT_CHARS_MAX))
    return "\n".join(lines)


def _plain_name(tool: str) -> str:
    return _NAME_MARKS.sub("", tool.lower())


def _value(name: str, value: str) -> list[str]:
    if not value:
        return []
    first, *rest = value.splitlines()
    return [f"{name}: {first}", *(f"  {line}" for line in rest)]


def _cleaned(text: str, limit: int) -> str:
    """A value without credentials, then cut."""
    return _cut(redact(_cut(plain(text), RAW_CHARS_MAX)).text.strip(), limit)


def _cut(text: str, limit: int) -> str:
    """A third of the room for the beginning, the rest for the end, which tells how it came out."""
    if len(text) <= limit:
        return text
    head = limit // 3
    return f"{text[:head].rstrip()} […] {text[head - limit :].lstrip()}"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _relative(path: str, cwd: str) -> str:
    inside = path.removeprefix(cwd.rstrip("/") + "/") if cwd else path
    return inside or path


def _parsed(arguments: object) -> dict[str, Any]:
    if isinstance(arguments, str):
        try:
            found = parse_json(arguments.encode("utf-8", "replace"))
        except ValueError:
            found = None
        return found if is_object(found) else {"input" if _PATCH.search(arguments) else "command": arguments}
    return as_object(arguments)


def _first(given: dict[str, Any], names: Iterable[str]) -> str:
    for name in names:
        value = given.get(name)
        if is_array(value):
            value = ", ".join(filter(None, map(as_text, value)))
        if text := as_text(value):
            return text
    return ""


def _command(given: dict[str, Any]) -> str:
    """What was run; of a shell's ``-c`` the script."""
    for name in _COMMANDS:
        value = given.get(name)
        if is_array(value):
            words = _looked_at([text for part in value if (text := as_text(part)) is not None])
            is_script = len(words) == 3 and words[0] in _SHELLS and words[1] in ("-c", "-lc")
            return words[2] if is_script else "\n".join(words) if name == "commands" else shlex.join(words)
        if text := as_text(value):
            return text
    return ""


def _looked_at(words: list[str]) -> list[str]:
    """The words that can be in what is left of a command that is cut to RAW_CHARS_MAX: quoting millions takes many seconds."""
    head, tail = RAW_CHARS_MAX // 6 + 1, RAW_CHARS_MAX // 3 + 1
    return words if len(words) <= head + tail else words[:head] + words[-tail:]


def _others(given: dict[str, Any]) -> str:
    told = {
        *_COMMANDS,
        *_PATHS,
        *_URLS,
        *_QUERIES,
        *_CONTENTS,
        *_PATCHES,
        "edits",
        *(n for pair in _EDITS for n in pair),
    }
    rest = {name: value for name, value in given.items() if name not in told}
    try:
        text = json.dumps(rest, ensure_ascii=False, default=str)[:RAW_CHARS_MAX] if rest else ""
    except (ValueError, RecursionError):  # nested as deep as can just be parsed
        return ""
    return as_text(text) or ""


def _changes(tool: str, given: dict[str, Any], command: str) -> tuple[FileChange, ...]:
    for given_text in (command, *(as_text(given.get(name)) or "" for name in _PATCHES)):
        if (patch := _PATCH.search(given_text)) is not None:
            return tuple(islice(_patched(patch[1]), CHANGES_READ_MAX))
    path = _first(given, _PATHS)
    if not path:
        return ()
    edits = [as_object(one) for one in as_array(given.get("edits"))] or [given]
    made = [
        edit_change(path, before, after)
        for edit in edits[:CHANGES_READ_MAX]
        for old, new in _EDITS
        if (before := as_text(edit.get(old))) is not None and (after := as_text(edit.get(new))) is not None
    ]
    if made:
        return (_sum(made),)
    content = next((text for name in _CONTENTS if (text := as_text(given.get(name))) is not None), None)
    if content is not None and any(word in _plain_name(tool) for word in _WRITING):
        return (edit_change(path, "", content),)
    return ()


def _sum(changes: list[FileChange]) -> FileChange:
    """Several changes of one file as one."""
    return FileChange(changes[0].path, sum(one.added for one in changes), sum(one.removed for one in changes))


def _patched(patch: str) -> Iterator[FileChange]:
    path, lines = "", list[str]()
    for line in patch.splitlines():
        if (named := _PATCHED.fullmatch(line)) is not None:
            if path:
                yield diff_changes(path, lines)
            path, lines = named[1], []
        elif not line.startswith("*** "):
            lines.append(line)
    if path:
        yield diff_changes(path, lines)
