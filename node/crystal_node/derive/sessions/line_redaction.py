"""What a line of a session becomes before it is copied: credentials, private words and forgotten texts are blanked in place.

A line of JSON is changed within its strings alone: every other byte stays, so that it remains valid, the tool can resume from
it, and a line without anything to blank is copied as it is. A line that is no JSON is redacted as text. What becomes of a line
depends on the lines up to it alone, so that a copy is always the beginning of its later self.

A forgotten text is replaced by as many bytes as it took: places in the file, on which other devices' copies may stand, do not
move.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from crystal_node.capture.json_values import is_array, is_object, parse_json
from crystal_node.capture.messages import moment_of
from crystal_node.capture.private_words import without_private
from crystal_node.capture.redaction import redact

PRIVATE_MARK = "[private]"
FORGOTTEN_MARK = b"[forgotten]"
KEPT_KEYS = frozenset(
    {
        "agentId", "branch", "call_id", "commit_hash", "cwd", "entrypoint", "gitBranch", "id", "kind", "lastUpdated",
        "leafUuid", "messageId", "model", "name", "op", "operation", "originator", "parentId", "parentUuid", "parent_thread_id",
        "phase", "projectHash", "promptId", "provider", "requestId", "role", "sessionId", "session_id", "source",
        "sourceToolAssistantUUID", "startTime", "status", "stop_reason", "subtype", "timestamp", "toolUseID", "tool_use_id",
        "turn_id", "type", "userType", "uuid", "version",
    }
)  # fmt: skip
"""Keys whose values stay in a line of private time: the tool needs them to find its way through the session."""
_CACHED_CHARS_MAX = 200
_CACHED_MAX = 20_000
_PROBED_CHARS_MAX = 1000
_NESTED_MAX = 4
_TOKEN = re.compile(r'"((?:[^"\\]|\\.)*)"(\s*:)?', re.DOTALL)
_UNIT = re.compile(r"\\u[0-9a-fA-F]{4}|\\.|.", re.DOTALL)
_TELLING = re.compile(
    r"pass|secret|token|key|auth|cred|pwd|bearer|cookie|dsn|connection|private", re.IGNORECASE
)
_SPACE = " \t\r\n"
_BEFORE_FIRST = _SPACE + "["
"""A list of secrets is told by its key, too; that of structure is not."""
_TIMES = frozenset({"timestamp", "startTime", "lastUpdated", "created_at", "createdAt"})
_TIMES_DEPTH_MAX = 8

Hides = Callable[[int], bool]


class LineRedactor:
    """Blanks credentials and private words in the lines of one file. ``exact``: it leaves them as they are."""

    def __init__(self, *, exact: bool = False) -> None:
        self._exact = exact
        self._clean: dict[str, None] = {}

    def line(self, line: bytes, *, hidden: bool = False) -> bytes:
        """The line, with its end, as it may be copied. ``hidden``: it was written in private time or an excluded project, and
        only the tool's own structure stays, also of exact copies."""
        body = line.rstrip(b"\r\n")
        if not body:
            return line
        end = line[len(body) :]
        text = body.decode("utf-8", "surrogateescape")
        try:
            parse_json(body)
        except ValueError:
            if hidden:
                return json.dumps(PRIVATE_MARK).encode() + end
            done = text if self._exact else self._cleaned(text)
            return done.replace("\n", " ").encode("utf-8", "surrogateescape") + end
        if hidden:
            return _hidden(text).encode("utf-8", "surrogateescape") + end
        if "<private>" not in text.lower() and (self._exact or self._is_clean(text)):
            return line
        return self._blanked(text).encode("utf-8", "surrogateescape") + end

    def text(self, text: str) -> str:
        """A text that is no line, such as a title."""
        return self._cleaned(text)

    def whole(self, data: bytes, *, hidden: bool = False) -> bytes:
        """A file that is replaced rather than appended to: line by line if its lines are JSON, else as one text."""
        if hidden:
            return b""
        first = data.partition(b"\n")[0]
        if _is_json(data) or (first and _is_json(first)):
            lines = data.split(b"\n")
            if not _is_json(data) or len(lines) == 1:
                return b"\n".join(self.line(line) for line in lines)
            return self._blanked(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
        text = data.decode("utf-8", "surrogateescape")
        done = without_private(text) if self._exact else self._cleaned(text)
        return done.encode("utf-8", "surrogateescape")

    def _is_clean(self, text: str) -> bool:
        """Whether no string of the line holds a credential: all that is not known to be clean is looked at at once."""
        unknown = [each for each in dict.fromkeys(_looked_at(text)) if each not in self._clean]
        if not unknown:
            return True
        joined = "\n".join(unknown)
        if redact(joined).text != joined:
            return False
        if len(self._clean) + len(unknown) > _CACHED_MAX:
            self._clean.clear()
        self._clean.update((each, None) for each in unknown if len(each) <= _CACHED_CHARS_MAX)
        return True

    def _blanked(self, text: str, depth: int = 0) -> str:
        """The line with its strings blanked one by one."""
        kept: list[str] = []
        at = 0
        for token, key in _strings(text, _BEFORE_FIRST):
            value = _decoded(token)
            done = self._value(key, value, depth)
            if done != value:
                kept += (text[at : token.start()], _encoded(done))
                at = token.end(1) + 1
        return "".join([*kept, text[at:]])

    def _value(self, key: str, value: str, depth: int = 0) -> str:
        if _is_nested(value, depth):
            return self._blanked(value, depth + 1)
        done = self._cleaned(value)
        if done == value and not self._exact and _is_telling(key, value):
            probe = _probe(key, value)
            found = redact(probe).text
            if found != probe:
                start, end = probe.index(": ") + 3, 1
                inner = found[start:-end] if found.startswith(probe[:start]) and found.endswith('"') else ""
                return inner if inner.startswith("[redacted:") else "[redacted:secret]"
        return done

    def _cleaned(self, text: str) -> str:
        text = without_private(text)
        return text if self._exact else redact(text).text


def blank(line: bytes, forgotten: Collection[str]) -> bytes:
    """A line, or a whole file, with forgotten texts replaced, byte for byte of the same length. JSON stays JSON, also within
    its strings."""
    text = line.decode("utf-8", "surrogateescape")
    wanted = [*dict.fromkeys(_sixteen(each) for each in forgotten if each)]
    spans = _json_spans(text, wanted, 0) if _is_json(line) else _text_spans(text, wanted)
    kept: list[bytes] = []
    at = 0
    for start, end in _merged(spans):
        kept.append(text[at:start].encode("utf-8", "surrogateescape"))
        kept.append(_filler(len(text[start:end].encode("utf-8", "surrogateescape"))))
        at = end
    return b"".join([*kept, text[at:].encode("utf-8", "surrogateescape")])


def blank_strings(line: bytes) -> bytes:
    """A line of which something was forgotten that is not found in it literally: all its strings that are no structure are
    blanked, byte for byte of the same length."""
    kept: list[bytes] = []
    text = line.decode("utf-8", "surrogateescape")
    at = 0
    for token, key in _strings(text):
        if token[2] is None and key not in KEPT_KEYS and token[1]:
            before = text[at : token.start(1)].encode("utf-8", "surrogateescape")
            kept += (before, _filler(len(token[1].encode("utf-8", "surrogateescape"))))
            at = token.end(1)
    return b"".join([*kept, text[at:].encode("utf-8", "surrogateescape")])


def times_of(record: object, depth: int = 0) -> Iterator[int]:
    """All times that a record names, in milliseconds since 1970."""
    if depth > _TIMES_DEPTH_MAX:
        return
    if is_object(record):
        for key, value in record.items():
            if key in _TIMES and (moment := moment_of(value)):
                yield moment
            elif is_object(value) or is_array(value):
                yield from times_of(value, depth + 1)
    elif is_array(record):
        for value in record:
            yield from times_of(value, depth + 1)


def _looked_at(text: str, depth: int = 0) -> Iterator[str]:
    for token, key in _strings(text, _BEFORE_FIRST):
        value = _decoded(token)
        if token[2] is not None:
            yield value
            continue
        if _is_nested(value, depth):
            yield from _looked_at(value, depth + 1)
        elif len(value) > 5:
            yield value
        if _is_telling(key, value):
            yield _probe(key, value)


def _is_nested(value: str, depth: int) -> bool:
    """Whether a string holds JSON, as arguments of tools do: it has to stay JSON, too."""
    return (
        value[:1] in ("{", "[") and depth < _NESTED_MAX and _is_json(value.encode("utf-8", "surrogatepass"))
    )


def _is_telling(key: str, value: str) -> bool:
    return bool(key) and bool(value) and len(value) <= _PROBED_CHARS_MAX and _TELLING.search(key) is not None


def _probe(key: str, value: str) -> str:
    """What a text would look like in which this is assigned."""
    return f'"{key}": "{value}"'


def _hidden(text: str) -> str:
    kept: list[str] = []
    at = 0
    for token, key in _strings(text):
        if token[2] is None and token[1] and key not in KEPT_KEYS:
            kept += (text[at : token.start()], json.dumps(PRIVATE_MARK))
            at = token.end(1) + 1
    return "".join([*kept, text[at:]])


def _strings(text: str, before: str = _SPACE) -> Iterator[tuple["re.Match[str]", str]]:
    """Each string of a JSON text, with the key whose value it is, "" if none. ``before``: what may stand between the two."""
    key, end = "", 0
    for token in _TOKEN.finditer(text):
        if token[2] is None:
            yield token, "" if text[end : token.start()].strip(before) else key
            key = ""
        else:
            yield token, ""
            key = _decoded(token)
        end = token.end()


def _decoded(token: "re.Match[str]") -> str:
    if "\\" not in token[1]:
        return token[1]
    try:
        found: Any = json.loads(f'"{token[1]}"', strict=False)
    except ValueError:
        return token[1]
    return found if isinstance(found, str) else token[1]


def _encoded(text: str) -> str:
    """As a string of JSON. Lone surrogates, which have no UTF-8, are escaped; those that stand for bytes stay as they were."""
    return "".join(
        char if not "\ud800" <= char <= "\udfff" or "\udc80" <= char <= "\udcff" else f"\\u{ord(char):04x}"
        for char in json.dumps(text, ensure_ascii=False)
    )


def _is_json(data: bytes) -> bool:
    try:
        parse_json(data)
    except ValueError:
        return False
    return bool(data.strip())


def _filler(length: int) -> bytes:
    return FORGOTTEN_MARK.ljust(length, b"*") if length >= len(FORGOTTEN_MARK) else b"*" * length


def _json_spans(text: str, wanted: Sequence[str], depth: int) -> Iterator[tuple[int, int]]:
    """Where the wanted texts stand in the strings of a JSON text."""
    for token in _TOKEN.finditer(text):
        value = _sixteen(_decoded(token))
        inner = sorted(_value_spans(value, wanted, depth))
        if inner:
            places = _places(token[1], token.start(1))
            yield from ((places[start][0], places[end - 1][1]) for start, end in inner)


def _value_spans(value: str, wanted: Sequence[str], depth: int) -> Iterator[tuple[int, int]]:
    yield from _found(value, wanted)
    if _is_nested(value, depth):
        yield from _json_spans(value, wanted, depth + 1)
    else:
        yield from _text_spans(value, wanted)


def _text_spans(text: str, wanted: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Where they stand in a text, as they are or as a string of JSON would hold them."""
    yield from _found(text, wanted)
    for each in wanted:
        for form in (json.dumps(each, ensure_ascii=False)[1:-1], json.dumps(each)[1:-1]):
            if form != each:
                yield from _found(text, [form])


def _found(text: str, wanted: Sequence[str]) -> Iterator[tuple[int, int]]:
    for each in wanted:
        at = text.find(each)
        while at >= 0:
            yield at, at + len(each)
            at = text.find(each, at + len(each))


def _merged(spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    last: tuple[int, int] | None = None
    for start, end in sorted(spans):
        if last is not None and start <= last[1]:
            last = last[0], max(last[1], end)
        else:
            if last is not None:
                yield last
            last = start, end
    if last is not None:
        yield last


def _sixteen(text: str) -> str:
    """The text with characters beyond U+FFFF as two surrogates each, as JSON escapes them."""
    return (
        "".join(
            char if char <= "\uffff" else chr(0xD7C0 + (ord(char) >> 10)) + chr(0xDC00 + (ord(char) & 0x3FF))
            for char in text
        )
        if any(char > "\uffff" for char in text)
        else text
    )


def _places(body: str, at: int) -> list[tuple[int, int]]:
    """Where each character (of 16 bits) of a string of JSON stands in its text."""
    found: list[tuple[int, int]] = []
    for unit in _UNIT.finditer(body):
        place = at + unit.start(), at + unit.end()
        found += (place, place) if len(unit[0]) == 1 and unit[0] > "\uffff" else (place,)
    return found
