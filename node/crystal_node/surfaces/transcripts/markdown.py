"""A conversation as Markdown (CommonMark).

Messages are Markdown already and stay as they were said, but for two things. Outside of code, raw HTML is shown instead of
obeyed; and an image becomes its link, since showing it would fetch it from wherever the text says. Thinking is folded.
"""

import re
from collections.abc import Iterator, Sequence

from crystal_core.search.turns import THOUGHTS
from crystal_node.base.wording import one_line, printable
from crystal_node.capture.redaction import redact
from crystal_node.search.conversation_documents import ConversationDocument, MessageDocument

_TITLE_CHARS = 200
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_CODE_SPAN = re.compile(r"(?<!`)(`+)(?!`).+?(?<!`)\1(?!`)")
_HTML = re.compile(r"<(?=[A-Za-z/!?])")
_IMAGE = re.compile(r"!(?=\[)")
_MARKUP = re.compile(r"([\\`*_\[\]<>#|~])")


def markdown_of(conversation: ConversationDocument, messages: Sequence[MessageDocument]) -> str:
    """The whole text. Credentials that today's rules know are blanked."""
    return "\n".join([*_head(conversation), *(line for each in messages for line in _message(each))]) + "\n"


def _head(conversation: ConversationDocument) -> Iterator[str]:
    yield f"# {_plain(conversation.title or 'A conversation')}"
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
    said = f"{one_line(message.role, 60)}{when}"
    text = _harmless(redact(message.text).text)
    if message.role in THOUGHTS:
        yield from ("<details>", f"<summary>{_plain(said)}</summary>", "", text, "", "</details>", "")
    else:
        yield from (f"## {_plain(said)}", "", text, "")


def _harmless(text: str) -> str:
    lines: list[str] = []
    fence = ""
    for line in text.splitlines():
        mark = _FENCE.fullmatch(line)
        if fence:
            if mark and mark[1][0] == fence[0] and len(mark[1]) >= len(fence) and not mark[2].strip():
                fence = ""
            lines.append(printable(line))
        elif mark and not ("`" in mark[1] and "`" in mark[2]):
            fence = mark[1]
            lines.append(printable(line))
        else:
            lines.append(_harmless_line(printable(line)))
    if fence:
        lines.append(fence)  # what follows is another message's
    return "\n".join(lines)


def _harmless_line(line: str) -> str:
    made, end = "", 0
    for code in _CODE_SPAN.finditer(line):
        made += _disarmed(line[end : code.start()]) + code[0]
        end = code.end()
    return made + _disarmed(line[end:])


def _disarmed(text: str) -> str:
    return _IMAGE.sub("", _HTML.sub(r"\<", text))


def _plain(text: str) -> str:
    return _MARKUP.sub(r"\\\1", text)
