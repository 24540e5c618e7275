"""A conversation as Markdown (CommonMark).

Messages are Markdown already and stay as they were said, but for three things. Outside of code, raw HTML is shown instead
of obeyed. An image becomes its link, since showing it would fetch it from wherever the text says. A fenced block begins at
the left margin, where no list or quotation can end it early. Thinking is folded.

What is code is decided so that no CommonMark reader takes it for anything else. In doubt it is no code: then the reader
shows ``&lt;`` in it.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from crystal_core.search.turns import UNSAID
from crystal_node.base.wording import one_line, printable
from crystal_node.capture.redaction import redact
from crystal_node.search.conversation_documents import ConversationDocument, MessageDocument

_TITLE_CHARS = 200
_FENCE = re.compile(r"([ \t]*)(`{3,}|~{3,})(.*)")
_BACKTICKS = re.compile("`+")
_HTML = re.compile(r"<(?=[A-Za-z/!?])")
_IMAGE = re.compile(r"!+\[?")
_MARKUP = re.compile(r"([\\`*_\[\]<>#|~&])")


def markdown_of(conversation: ConversationDocument, messages: Sequence[MessageDocument]) -> str:
    """The whole text. Credentials that today's rules know are blanked."""
    return "\n".join([*_head(conversation), *(line for each in messages for line in _message(each))]) + "\n"


def _head(conversation: ConversationDocument) -> Iterator[str]:
    yield f"# {_plain(one_line(conversation.title, _TITLE_CHARS) or 'A conversation')}"
    yield ""
    for name, value in facts_of(conversation):
        yield f"- {name}: {_plain(value)}"
    yield ""


def facts_of(conversation: ConversationDocument) -> list[tuple[str, str]]:
    """What is known of a conversation, named for people."""
    facts = [
        ("Tool", conversation.tool),
        ("Machine", conversation.device_name),
        ("Project", conversation.project),
        ("Agent", conversation.agent),
        ("Began", conversation.began_at),
        ("Ended", conversation.ended_at),
        ("Session", conversation.session),
    ]
    return [(name, one_line(value, _TITLE_CHARS)) for name, value in facts if value]


def _message(message: MessageDocument) -> Iterator[str]:
    when = f" · {message.created_at}" if message.created_at else ""
    model = f" · {one_line(message.model, 60)}" if message.model else ""
    said = f"{one_line(message.role, 60)}{model}{when}"
    text = _harmless(redact(message.text).text)
    if message.role in UNSAID:
        yield from ("<details>", f"<summary>{_plain(said)}</summary>", "", text, "", "</details>", "")
    else:
        yield from (f"## {_plain(said)}", "", text, "")


def _harmless(text: str) -> str:
    lines: list[str] = []
    fence, margin = "", 0
    clear = True
    for line in shown_lines(text):
        mark = _FENCE.fullmatch(line)
        if fence:
            if mark and mark[2][0] == fence[0] and len(mark[2]) >= len(fence) and not mark[3].strip():
                fence = ""
                lines.append(line.lstrip())
            else:
                lines.append(line[min(margin, len(line) - len(line.lstrip())) :])
        elif mark and not ("`" in mark[2] and "`" in mark[3]):
            fence, margin, clear = mark[2], len(mark[1]), True
            lines.append(line.lstrip().replace("|", " "))  # a bar might make it a table's head
        else:
            spans, certain = _code_spans(line)
            clear = (clear or not line.strip()) and certain
            lines.append(_without_html(line, spans if clear else ()))
    if fence:
        lines.append(fence)  # what follows is another message's
    return "\n".join(lines)


def _code_spans(line: str) -> tuple[list[tuple[int, int]], bool]:
    """Where code begins and ends on this line, and whether every backtick certainly is of one of these. A backslash may take a
    backtick's meaning away, and a bar may end a table's cell in the middle of code."""
    runs = list(_BACKTICKS.finditer(line))
    alike: dict[str, deque[int]] = {}
    for number, run in enumerate(runs):
        alike.setdefault(run[0], deque()).append(number)
    spans: list[tuple[int, int]] = []
    certain = not runs or ("|" not in line and "\\`" not in line)
    number = 0
    while number < len(runs):
        later = alike[runs[number][0]]
        while later and later[0] <= number:
            later.popleft()
        if later:
            spans.append((runs[number].start(), runs[later[0]].end()))
            number = later[0]
        else:
            certain = False
        number += 1
    return spans, certain


def _without_html(line: str, code: Iterable[tuple[int, int]]) -> str:
    made, behind = "", 0
    for start, end in code:
        made += _disarmed(line[behind:start]) + line[start:end]
        behind = end
    return made + _disarmed(line[behind:])


def _disarmed(text: str) -> str:
    # Not by a backslash: one that stands before it would take its meaning away.
    return _IMAGE.sub(lambda found: "[" if found[0][-1] == "[" else found[0], _HTML.sub("&lt;", text))


def shown_lines(text: str) -> list[str]:
    """A text's lines without control characters, but for tabs, which code needs."""
    return ["\t".join(printable(part) for part in line.split("\t")) for line in text.splitlines()]


def _plain(text: str) -> str:
    return _MARKUP.sub(r"\\\1", text)
