"""Gemini's conversations as Google Takeout has them: "My Activity" of Gemini Apps, as JSON or as HTML.

One activity is one question and its answer, newest first::

    JSON   {"header": "Gemini Apps", "title": "Prompted …", "time": ISO 8601, "products": [...],
            "safeHtmlItem": [{"html": answer}], "titleUrl": perhaps the conversation's address}
    HTML   <div class="outer-cell …"> with a title, then a <div class="content-cell …"> of
           Prompted&nbsp;question<br>Jan 5, 2026, 9:00:01 AM UTC<br>answer

Where no address tells the conversation, those of one day (UTC) are one: another export, taken later, has the same then. The
fields are those of Google's reference of exported activities; verbs, products and the HTML are as public readers of real
exports describe them.
"""

import html
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, BinaryIO

from crystal_node.capture.json_values import as_array, as_object, as_text
from crystal_node.capture.messages import derived_id, moment_of, plain
from crystal_node.safekeeping.portable.conversation import (
    CONVERSATION_BYTES_MAX,
    TOO_LONG,
    Conversation,
    Said,
    Skipped,
)

AGENT = "gemini-app"
CELL_BYTES_MAX = 8 * 1024 * 1024
"""One activity of an HTML file. A longer one is left out, and counted."""
ACTIVITIES_MAX = 10_000
"""Of one day or conversation that are put in order together."""
BLOCK_BYTES = 256 * 1024

_ASKED = (
    "Prompted with: ",
    "Asked Gemini: ",
    "Asked Bard: ",
    "Prompted ",
    "Asked ",
    "Said ",
    "Branched ",
    "Answered ",
)
_DONE = (
    "Added ", "Created ", "Deleted ", "Edited ", "Exported ", "Gave ", "Pinned ", "Renamed ", "Searched ", "Selected ",
    "Shared ", "Updated ", "Used ", "Viewed ", "Visited ",
)  # fmt: skip
_ADDRESS = re.compile(r"https://gemini\.google\.com/(?:app|gem/[\w-]{1,64})(?:/c)?/([\w-]{8,64})(?:[?#].*)?")
_CELL = b'<div class="outer-cell'
_CONTENT = '<div class="content-cell'
_HEADER = re.compile(r'<p class="mdl-typography--title">([^<]{0,200})')
_BREAK = re.compile(r"<br\s?/?>", re.IGNORECASE)
_TIME = re.compile(
    r"([A-Z][a-z]{2}) (\d{1,2}), (\d{4}), (\d{1,2}):(\d\d):(\d\d)\s([AP])M (?:([A-Z]{2,4})|GMT([+-]\d{1,2})(?::?(\d\d))?)"
)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_ZONES = {
    "UTC": 0, "GMT": 0, "WET": 0, "BST": 1, "WEST": 1, "CET": 1, "CEST": 2, "EET": 2, "EEST": 3, "EST": -5, "EDT": -4,
    "CST": -6, "CDT": -5, "MST": -7, "MDT": -6, "PST": -8, "PDT": -7, "AKST": -9, "AKDT": -8, "HST": -10,
}  # fmt: skip
"""Hours before UTC of the short names that English dates have (Unicode CLDR, en and en-GB)."""
_TOKEN = re.compile(r"<(/?)([A-Za-z][A-Za-z0-9]*+)[^<>]*+>|<!--[^<>]*-->|([^<]+|<)")
_SPACES = re.compile(r"[ \t\r\n\f]+")
_PARAGRAPHS = frozenset(
    ("blockquote", "div", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "ol", "p", "table", "ul")
)
_LINES = frozenset(("br", "tr"))


def is_activity(found: dict[str, Any]) -> bool:
    """Whether an object is an activity of Takeout, of whatever product."""
    return "title" in found and "time" in found and ("header" in found or "products" in found)


def of_object(found: dict[str, Any], skipped: Skipped) -> Conversation | None:
    """A question and its answer, as a conversation that has only these; None if it is none."""
    labels = [found.get("header"), *as_array(found.get("products"))]
    if not any(_is_gemini(as_text(label) or "") for label in labels):
        skipped["activity of another product"] += 1
        return None
    answer = "\n\n".join(
        words_of(as_text(as_object(item).get("html")) or "") for item in as_array(found.get("safeHtmlItem"))
    )
    moment = moment_of(found.get("time"))
    address = _ADDRESS.fullmatch(as_text(found.get("titleUrl")) or "")
    return _activity(
        as_text(found.get("title")) or "", answer, moment, address[1] if address else "", skipped
    )


def of_html(file: BinaryIO, skipped: Skipped) -> Iterator[tuple[Conversation | None, int]]:
    """Each activity of an HTML file, and how many bytes were read by then; memory does not grow with the file. Raises
    OSError."""
    for cell, read in _cells(file):
        if cell is None:
            skipped[TOO_LONG] += 1
            yield None, read
            continue
        found = cell.decode("utf-8", "replace")
        label = _HEADER.search(found)
        if label is None or not _is_gemini(html.unescape(label[1])):
            skipped["activity of another product"] += 1
            yield None, read
            continue
        body = found.partition(_CONTENT)[2].partition(">")[2].partition(_CONTENT)[0]
        yield _of_cell(body, skipped), read


def by_conversation(
    activities: Iterator[tuple[Conversation | None, int]],
) -> Iterator[tuple[Conversation | None, int]]:
    """Activities of one conversation that follow each other as one, so that it has the order in which it was held. Others'
    conversations pass."""
    held: Conversation | None = None
    size = read = 0
    for activity, read in activities:
        if activity is None:
            yield None, read
            continue
        if activity.agent != AGENT:
            if held is not None:
                yield held, read
                held = None
            yield activity, read
            continue
        added = sum(len(text) for one in activity.said for text in one.texts.values())
        whole = held is not None and (
            len(held.said) >= ACTIVITIES_MAX or size + added > CONVERSATION_BYTES_MAX
        )
        if held is not None and (held.session != activity.session or whole):
            yield held, read
            held = None
        if held is None:
            held, size = activity, added
        else:
            held.said[:0] = activity.said  # newest first
            size += added
    if held is not None:
        yield held, read


def words_of(markup: str) -> str:
    """The words of HTML, paragraphs and code as Markdown has them. Takes time and memory in proportion to its length."""
    out: list[str] = []
    code = 0
    for closing, name, text in _TOKEN.findall(markup):
        tag = name.lower()
        if text:
            out.append(html.unescape(text) if code else _SPACES.sub(" ", html.unescape(text)))
        elif tag == "pre":
            code = max(code + (-1 if closing else 1), 0)
            out.append("\n```\n\n" if closing else "\n\n```\n")
        elif tag == "li" and not closing:
            out.append("\n- ")
        elif tag in _PARAGRAPHS:
            out.append("\n\n")
        elif tag in _LINES:
            out.append("\n")
        elif tag in ("td", "th"):
            out.append(" ")
    lines = [line.rstrip() for line in "".join(out).replace("\xa0", " ").split("\n")]
    return plain(re.sub(r"\n{3,}", "\n\n", "\n".join(lines)))


def _activity(title: str, answer: str, moment: int, address: str, skipped: Skipped) -> Conversation | None:
    asked = next((title[len(verb) :] for verb in _ASKED if title.startswith(verb)), None)
    if asked is None:  # an account in another language has other verbs: one that was answered is a question
        asked = title if answer.strip() and not title.startswith(_DONE) else None
    if asked is None or not plain(asked):
        skipped["not a question"] += 1
        return None
    if not moment:
        skipped["question without a date that can be read (JSON has one)"] += 1
        return None
    question, seconds = plain(asked), str(moment // 1000)
    session = address or f"gemini-{datetime.fromtimestamp(moment / 1000, UTC):%Y-%m-%d}"
    said = [
        Said(derived_id(AGENT, role, seconds, " ".join(question.split())), moment, {role: text})
        for role, text in (("user", question), ("assistant", plain(answer)))
        if text
    ]
    return Conversation(AGENT, AGENT, session, moment, said)


def _is_gemini(label: str) -> bool:
    return "gemini" in label.lower() or "bard" in label.lower()


def _of_cell(body: str, skipped: Skipped) -> Conversation | None:
    asked: list[str] = []
    end = 0
    for found in _BREAK.finditer(body):
        segment = words_of(body[end : found.start()])
        end = found.end()
        moment = _moment(segment)
        if moment is not None:
            return _activity("\n".join(asked), words_of(body[end:]), moment, "", skipped)
        asked.append(segment)
    skipped["question without a date that can be read (JSON has one)"] += 1
    return None


def _moment(text: str) -> int | None:
    """Milliseconds since 1970 of a date as English accounts have it; 0 if its zone is not known, None if it is none."""
    found = _TIME.fullmatch(text)
    if found is None or found[1] not in _MONTHS:
        return None
    zone, hours, minutes = found[8], found[9], found[10]
    if zone is not None and zone not in _ZONES:
        return 0
    offset = timedelta(hours=_ZONES[zone]) if zone else timedelta(hours=int(hours), minutes=int(minutes or 0))
    hour = int(found[4]) % 12 + (12 if found[7] == "P" else 0)
    try:
        local = datetime(
            int(found[3]),
            _MONTHS.index(found[1]) + 1,
            int(found[2]),
            hour,
            int(found[5]),
            int(found[6]),
            tzinfo=UTC,
        )
        return moment_of((local - offset).timestamp())
    except (ValueError, OverflowError):
        return None


def _cells(file: BinaryIO) -> Iterator[tuple[bytes | None, int]]:
    """The activities' cells, None for one over ``CELL_BYTES_MAX``; each with how many bytes were read by then."""
    held = b""
    read = 0
    inside = is_long = False
    while True:
        block = file.read(BLOCK_BYTES)
        read += len(block)
        looked = max(len(held) - len(_CELL), 1 if inside else 0)
        held += block
        while (at := held.find(_CELL, looked)) >= 0:
            if inside:
                yield (None if is_long else held[:at]), read
            held, inside, is_long, looked = held[at:], True, False, 1
        if not block:
            break
        if not inside or is_long:
            held = held[-len(_CELL) :]
        elif len(held) > CELL_BYTES_MAX:
            held, is_long = held[-len(_CELL) :], True
    if inside:
        yield (None if is_long else held), read
