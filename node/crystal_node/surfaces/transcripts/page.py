"""A conversation as one HTML file that needs nothing else: no script, no font, no image, nothing is fetched.

Its policy forbids all of that besides, whatever a message holds. Thinking is folded.
"""

from collections.abc import Iterator, Sequence
from html import escape

from crystal_core.search.turns import PERSON, UNSAID
from crystal_node.base.wording import one_line
from crystal_node.capture.redaction import redact
from crystal_node.search.conversation_documents import ConversationDocument, MessageDocument
from crystal_node.surfaces.transcripts.markdown import facts_of, shown_lines

_STYLE = """
:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto; padding: 0 1rem }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0 1rem }
dt, time, summary { opacity: .7 }
dd { margin: 0; overflow-wrap: anywhere }
article, details { margin: 1.5rem 0; padding-left: 1rem; border-left: 3px solid #8888 }
article.person { border-color: #2a7 }
h2 { font-size: 1rem; margin: 0 }
pre { font: inherit; white-space: pre-wrap; overflow-wrap: anywhere; margin: .25rem 0 }
"""


def page_of(conversation: ConversationDocument, messages: Sequence[MessageDocument]) -> str:
    """The whole file. Credentials that today's rules know are blanked."""
    return "\n".join(_lines(conversation, messages)) + "\n"


def _lines(conversation: ConversationDocument, messages: Sequence[MessageDocument]) -> Iterator[str]:
    title = _escaped(conversation.title or "A conversation")
    yield "<!doctype html>"
    yield '<html><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    yield "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
    yield f'<meta name="referrer" content="no-referrer"><title>{title}</title><style>{_STYLE}</style></head><body>'
    yield f"<h1>{title}</h1>"
    facts = "".join(f"<dt>{name}</dt><dd>{_escaped(value)}</dd>" for name, value in facts_of(conversation))
    yield f"<dl>{facts}</dl>"
    for message in messages:
        yield _message(message)
    yield "</body></html>"


def _message(message: MessageDocument) -> str:
    role = _escaped(" · ".join(one_line(part, 60) for part in (message.role, message.model) if part))
    when = f" <time>{_escaped(message.created_at)}</time>" if message.created_at else ""
    text = f"<pre>{_escaped(redact(message.text).text)}</pre>"
    if message.role in UNSAID:
        return f"<details><summary>{role}{when}</summary>{text}</details>"
    kind = "person" if message.role == PERSON else "agent"
    return f'<article class="{kind}"><h2>{role}{when}</h2>{text}</article>'


def _escaped(text: str) -> str:
    return escape("\n".join(shown_lines(text)))
