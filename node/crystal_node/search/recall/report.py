"""The recall log for people and programs: ``crystal recall log``, and a report of a week for ``crystal status`` and the page.

Moments are ISO 8601 in UTC. Documents only ever gain fields.
"""

from collections.abc import Sequence

import apsw
from msgspec import Struct

from crystal_core.database import Database
from crystal_crypto.errors import CrystalError
from crystal_node.base.settings import Settings
from crystal_node.base.wording import counted, iso, one_line
from crystal_node.search.recall.database import PROMPT_CHARS, Logged, RecallDatabase
from crystal_node.search.recall.hook import HookEvent

WEEK_DAYS = 7
_DAY_MS = 86_400_000
_ENTRIES_SHOWN = 1_000


class RecordDocument(Struct, frozen=True, kw_only=True):
    """A record that an agent was given. ``why``: "fits the prompt", "last worked on", "left open" or "remembered". ``used``:
    whether the answer has words of it that its prompt has not; null if that is not known, or not yet."""

    id: str
    why: str
    relevance: float
    score: float
    used: bool | None


class EntryDocument(Struct, frozen=True, kw_only=True):
    """What an agent was given at one moment. ``mode`` is "hybrid" or "keyword", "" at a start; ``prompt``: its first words, ""
    where they are not kept; ``tokens``: estimated. ``judged``: whether ``used`` stays as it is."""

    at: str
    session: str
    event: str
    mode: str
    prompt: str
    tokens: int
    judged: bool
    records: list[RecordDocument]


class LogDocument(Struct, frozen=True, kw_only=True):
    """The log, the latest first. ``more``: older entries were left out."""

    entries: list[EntryDocument]
    more: bool


class RecallReport(Struct, frozen=True, kw_only=True):
    """What recall was worth on some days, today's among them. ``prompts``: those that something was looked up for, ``silent``:
    those at which nothing was told; ``injections``: times that an agent was given something, at prompts and starts, with so
    many ``records`` and ``tokens``.

    ``judged`` are records of which it is known whether the answer used their words, ``used`` those that it did; the shares are
    null where there is nothing to divide by. An answer that has the words by itself counts too."""

    days: int
    since: str
    prompts: int
    silent: int
    silent_share: float | None
    injections: int
    records: int
    tokens: int
    judged: int
    used: int
    used_share: float | None

    @property
    def line(self) -> str:
        """In one line for people; "" if nothing happened."""
        if not (self.injections or self.prompts):
            return ""
        text = (
            f"{counted(self.records, 'record')} told {counted(self.injections, 'time')} in {self.days} days, "
            f"about {counted(self.tokens, 'token')}"
        )
        if self.used_share is not None:
            text += f"; answers used {self.used_share:.0%} of {counted(self.judged, 'record')} that they can be judged by"
        if self.silent_share is not None:
            text += f"; silent at {self.silent_share:.0%} of {counted(self.prompts, 'prompt')}"
        return text


def recall_log(
    settings: Settings, memory: Database, now_ms: int, *, since_ms: int = 0, session: str = ""
) -> LogDocument:
    """The log, judged as far as possible. Raises LocalStorage, VaultDataError, apsw.Error."""
    from crystal_node.search.recall.worth import judge, texts_of  # lazy: loads the search

    log = RecallDatabase.open(settings.home.recall_database)
    try:
        judge(log, memory, now_ms)
        found = log.entries(since_ms=since_ms, session=session)
    finally:
        log.close()
    shown = found[:_ENTRIES_SHOWN]
    prompts = texts_of(memory, [entry.prompt_id for entry in shown if entry.prompt_id])
    return LogDocument(entries=[_entry(entry, prompts) for entry in shown], more=len(found) > len(shown))


def recall_report(
    settings: Settings, memory: Database, now_ms: int, *, days: int = WEEK_DAYS, judging: bool = True
) -> RecallReport:
    """The report of the last days. ``judging``: look at new answers first. Empty where the log cannot be read, since it is no
    reason to show nothing else."""
    since = (now_ms // _DAY_MS - days + 1) * _DAY_MS
    prompts = silent = 0
    entries: Sequence[Logged] = ()
    try:
        if settings.home.recall_database.exists():
            from crystal_node.search.recall.worth import follow, judge  # lazy, as above

            log = RecallDatabase.open(settings.home.recall_database)
            try:
                if judging:
                    judge(log, memory, now_ms)
                else:
                    follow(log, memory)
                entries, counts = log.entries(since_ms=since), log.days(since)
                prompts, silent = counts.prompts, counts.silent
            finally:
                log.close()
    except (CrystalError, apsw.Error, OSError):
        entries = ()
    records = [record for entry in entries for record in entry.records]
    known = [record for record in records if record.used is not None]
    used = sum(bool(record.used) for record in known)
    return RecallReport(
        days=days,
        since=iso(since) or "",
        prompts=prompts,
        silent=silent,
        silent_share=round(silent / prompts, 4) if prompts else None,
        injections=len(entries),
        records=len(records),
        tokens=sum(entry.tokens for entry in entries),
        judged=len(known),
        used=used,
        used_share=round(used / len(known), 4) if known else None,
    )


def log_lines(log: LogDocument) -> list[str]:
    """The log for people, a line for each moment and one for each record."""
    return [line for entry in log.entries for line in _lines(entry)]


def _lines(entry: EntryDocument) -> list[str]:
    asked = f'"{one_line(entry.prompt, PROMPT_CHARS)}"' if entry.prompt else "a prompt"
    if entry.event == HookEvent.START:
        asked = "start of a session"
    elif entry.event == HookEvent.SUBAGENT:
        asked = "start of a sub-agent"
    elif entry.event == HookEvent.FAILURE:
        asked = f"failure of {asked}" if entry.prompt else "a failure"
    by_words = ", by words alone" if entry.mode == "keyword" else ""
    cost = f"{entry.tokens} tokens{by_words} (session {one_line(entry.session, 12)})"
    return [
        f"{entry.at[:19].replace('T', ' ')}  {asked}  {cost}",
        *(_record_line(record) for record in entry.records),
    ]


def _record_line(record: RecordDocument) -> str:
    use = {None: "not known whether used", True: "used", False: "not used"}[record.used]
    relevance = f" {record.relevance:.2f}" if record.relevance else ""
    return f"  {record.id[:12]}  {record.why}{relevance}, {use}"


def _entry(entry: Logged, prompts: dict[str, str]) -> EntryDocument:
    return EntryDocument(
        at=iso(entry.at) or "",
        session=entry.session,
        event=entry.event,
        mode=entry.mode,
        prompt=one_line(prompts.get(entry.prompt_id, entry.prompt), PROMPT_CHARS),
        tokens=entry.tokens,
        judged=entry.judged,
        records=[
            RecordDocument(
                id=record.id,
                why=record.why,
                relevance=round(record.relevance, 4),
                score=round(record.score, 6),
                used=record.used,
            )
            for record in entry.records
        ],
    )
