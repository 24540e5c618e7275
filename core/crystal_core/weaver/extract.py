"""Extractive weaving, without a model: sentences are copied verbatim, and the files say so.

Sentences are selected by words such as "decided" or "blocked". Nothing is weighed or summarised, so there is no IDENTITY, SOUL
or memory from it, and an extract never replaces what a model wrote.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import tzinfo

from crystal_core.weaver import documents
from crystal_core.weaver.answers import ITEM_CHARS_MAX, WarmStart
from crystal_core.weaver.database import WeaverDatabase
from crystal_core.weaver.documents import NO_MODEL
from crystal_core.weaver.ports import Plan, Ports
from crystal_core.weaver.prose import one_line
from crystal_core.weaver.quotations import flat
from crystal_core.weaver.records import BatchOutcome, Method, Run, RunState, decode_outcome, encode_outcome
from crystal_core.weaver.runs import (
    Woven,
    run_to_go_on,
    session_mark,
    take_up,
    unread_sources,
    woven,
    write_journals,
)
from crystal_core.weaver.sources import Said, batch_length, clock_of, day_of

BATCH_BYTES = 4 * 1024 * 1024
"""Size of a batch, held in memory at once; each is a part of a day's journal."""
_SENTENCES_MAX = 8
_SENTENCE_CHARS_MIN = 12
_SENTENCE_CHARS_MAX = 240
_FIRST_CHARS_MAX = 300
_TEXT_CHARS_MAX = 20_000
"""Part of a message that is searched for sentences."""
_TWO_DAYS_MS = 48 * 3600 * 1000

_SENTENCE = re.compile(r"[^.!?\n]{3,400}[.!?]?")
_DECIDED = re.compile(
    r"\b(decided|decision|we(?:'ll| will) use|agreed|settled on|entschieden|beschlossen)\b", re.IGNORECASE
)
_PROMISED = re.compile(r"\b(i(?:'ll| will)|i am going to|i'm going to|i promise|ich werde)\b", re.IGNORECASE)
_MATTERED = re.compile(
    r"\b(prefer|important|worried|annoy\w*|please (?:always|never)|don't ever|wichtig)\b", re.IGNORECASE
)
_BLOCKED = re.compile(
    r"\b(blocked|waiting (?:for|on)|stuck|cannot continue|blockiert|warte auf)\b", re.IGNORECASE
)
_NEXT = re.compile(
    r"\b(next step|next,|to-?do|remaining|follow[- ]up|as a next|als nächstes)\b", re.IGNORECASE
)


async def extract(ports: Ports, plan: Plan) -> Woven:
    """Continue the agent's unfinished extract, or begin one. Makes no calls and costs nothing."""
    found = run_to_go_on(ports, plan, Method.EXTRACTIVE)
    if found is None and not unread_sources(ports, plan, Method.EXTRACTIVE, None):
        return Woven(None, False, 0, 0, (), False, False, (), 0)
    run = take_up(ports, plan, Method.EXTRACTIVE)
    by_key = {one.key: one for one in plan.sources}
    left = unread_sources(ports, plan, Method.EXTRACTIVE, run)
    begun = ports.database.open_batch(run.id)
    total, done, at = len(left) + (len(begun.keys) if begun else 0) or 1, 0, 0
    while True:
        batch = ports.database.open_batch(run.id)
        if batch is None:
            part = left[at : at + batch_length(left, at, BATCH_BYTES)] if at < len(left) else []
            if not part:
                break
            at += len(part)
            marks = [(one.key, session_mark(one.session), one.mark) for one in part]
            batch = ports.database.begin_batch(run.id, part[0].day, marks)
        ports.heard(
            f"{batch.day}: {len(batch.keys):,} message{'s' if len(batch.keys) > 1 else ''}", done, total
        )
        said = await ports.load([by_key[key] for key in batch.keys if key in by_key])
        ports.database.finish_batch(batch, encode_outcome(extracted(said, plan.zone)))
        done += len(batch.keys)
        write_journals(ports, plan, run, batch.day)
    write_journals(ports, plan, run)
    updated = _write_context(ports, plan, run)
    ports.database.set_run(run.id, RunState.DONE, run.leg)
    return woven(ports, plan, run, stopped=False, context_updated=updated)


def extracted(said: Sequence[Said], zone: tzinfo) -> BatchOutcome:
    """Extract a part of a day: beginning and end of each conversation, and sentences with telling words."""
    sessions: dict[str, list[Said]] = {}
    for one in said:
        sessions.setdefault(one.source.session, []).append(one)
    lines: list[str] = []
    quotations: list[str] = []
    for number, pieces in enumerate(sessions.values(), start=1):
        first = next((piece for piece in pieces if piece.role == "user"), pieces[0])
        last = next((piece for piece in reversed(pieces) if piece.role == "assistant"), pieces[-1])
        begun, ended = clock_of(pieces[0].source.moment, zone), clock_of(pieces[-1].source.moment, zone)
        hours = f", {begun} to {ended}" if begun and ended else ""
        lines.append(f"Conversation {number}{hours}: {len(pieces):,} messages.")
        for what, piece in (("It began with", first), ("It ended with", last)):
            quoted = _beginning(piece.text)
            if quoted:
                quotations.append(quoted)
                lines.append(f"{what} ({one_line(piece.role, 20)}): “{one_line(quoted, _FIRST_CHARS_MAX)}”")
    return BatchOutcome(
        NO_MODEL,
        len(sessions),
        len(said),
        min((one.source.moment for one in said), default=0),
        max((one.source.moment for one in said), default=0),
        prose="\n\n".join(lines),
        decided=_sentences(said, _DECIDED),
        promised=_sentences(said, _PROMISED),
        concerned=_sentences(said, _MATTERED),
        quotations=tuple(quotations[-24:]),
        references=tuple(
            (kind, text)
            for kind, telling in (("blocked", _BLOCKED), ("next", _NEXT))
            for text in _sentences(said, telling)
        ),
    )


def _write_context(ports: Ports, plan: Plan, run: Run) -> bool:
    """Write CONTEXT, or EXTRACT if a model or a person wrote CONTEXT. Returns whether it was CONTEXT."""
    text = context_of(ports.database, plan.agent, ports.now_ms(), plan.zone)
    if text is None:
        return False
    written = ports.database.written(plan.agent, documents.CONTEXT)
    free = ports.output.read(documents.CONTEXT) is None or (
        written is not None and written[1] is Method.EXTRACTIVE
    )
    ports.output.write(documents.CONTEXT if free else documents.EXTRACT, text, Method.EXTRACTIVE, run.id)
    return free


def context_of(database: WeaverDatabase, agent: str, now_ms: int, zone: tzinfo) -> str | None:
    """Return CONTEXT from the extracts in the database; None without any."""
    outcomes = [
        (day, decode_outcome(data)) for _, day, data in database.all_outcomes(agent, Method.EXTRACTIVE)
    ]
    told = [(day, outcome) for day, outcome in outcomes if outcome.pieces]
    if not told:
        return None
    recent = [(day, outcome) for day, outcome in told if outcome.last >= now_ms - _TWO_DAYS_MS] or told[-1:]
    items = [item for _, outcome in recent for item in outcome.references]
    warm = WarmStart(
        now=tuple(f"Last: “{one_line(text, ITEM_CHARS_MAX)}”" for text in told[-1][1].quotations[-2:]),
        recent=tuple(
            f"{day}: {outcome.sessions:,} conversations, {outcome.pieces:,} messages"
            for day, outcome in recent
        ),
        user=("Not known: no model has read the conversations.",),
        blocked=tuple(text for kind, text in items if kind == "blocked"),
        next=tuple(text for kind, text in items if kind == "next"),
    )
    return documents.context(agent, warm, documents.recent_days(told), NO_MODEL, day_of(now_ms, zone))


def _beginning(text: str) -> str:
    """Return the first words of a message, verbatim."""
    short = flat(text[: _FIRST_CHARS_MAX * 2])
    return short if len(short) <= _FIRST_CHARS_MAX else short[:_FIRST_CHARS_MAX].rpartition(" ")[0]


def _sentences(said: Sequence[Said], telling: re.Pattern[str]) -> tuple[str, ...]:
    found = dict.fromkeys(_telling(said, telling))
    return tuple(list(found)[-_SENTENCES_MAX:])


def _telling(said: Sequence[Said], telling: re.Pattern[str]) -> Iterator[str]:
    for one in said:
        if one.role not in ("user", "assistant"):
            continue
        for match in _SENTENCE.finditer(one.text[:_TEXT_CHARS_MAX]):
            sentence = flat(match[0])
            if _SENTENCE_CHARS_MIN <= len(sentence) <= _SENTENCE_CHARS_MAX and telling.search(sentence):
                yield f"“{one_line(sentence, _SENTENCE_CHARS_MAX)}”"
