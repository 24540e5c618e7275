"""Weaving with a language model: batch by batch, each stored before the next, nothing requested twice.

    batch:  reflect ──► journal ──► facts ──► memories accepted ──► outcome in the database ──► journal file
            each arrow behind an answer that is in the database: killed anywhere, the run goes on behind the last one
    run:    batches, while there is something to read ──► IDENTITY, SOUL, CONTEXT ──► REFERENCE, missed tasks ──► DONE

Before each call its maximum cost is compared with the rest of the budget. If it does not fit, the run is STOPPED and the next
one continues at the same place, so a budget is never exceeded. Only ``reflect`` reads transcripts; the later steps use its
notes, and quotations that were compared with the source.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec import structs

from crystal_core.llm.answers import Unreadable
from crystal_core.llm.port import Declined, Llm, Prompt, TooLong, tokens_bound
from crystal_core.weaver import prompts
from crystal_core.weaver.answers import (
    BATCH_BYTES_MIN,
    BATCH_TOKENS,
    FACTS_TOKENS,
    JOURNAL_BYTES_MAX,
    JOURNAL_TOKENS,
    MEMORIES_A_DAY_MAX,
    REFLECTION_TOKENS,
    Facts,
    Reflection,
    read_facts,
    read_reflection,
)
from crystal_core.weaver.calls import BudgetReached, ModelCalls
from crystal_core.weaver.pages import write_pages
from crystal_core.weaver.ports import Plan, Ports
from crystal_core.weaver.prose import paragraphs, whole
from crystal_core.weaver.quotations import Quotable, honest
from crystal_core.weaver.records import (
    BatchOutcome,
    Method,
    Run,
    RunState,
    WeaverBatch,
    decode_outcome,
    encode_outcome,
)
from crystal_core.weaver.runs import (
    Woven,
    run_to_go_on,
    session_mark,
    take_up,
    unread_sources,
    woven,
    write_journals,
)
from crystal_core.weaver.sources import Said, WeaverSource, batch_length, scope_of_all

_BYTES_PER_TOKEN = 3
"""A cautious estimate for what fits a model's context; budgets use ``tokens_bound``."""
_EARLIER_BYTES = 3000
_REFERENCE_TO_QUOTATION = re.compile(r"\[\s*q\d+(?:\s*[,;]\s*q\d+)*\s*\]")
_NUMBER = re.compile(r"\d+")


def batch_bytes(llm: Llm) -> int:
    """Return the size limit of a batch for this model."""
    room = llm.identity.context_tokens - REFLECTION_TOKENS - _EARLIER_BYTES // _BYTES_PER_TOKEN - 1000
    return max(min(BATCH_TOKENS, room) * _BYTES_PER_TOKEN, BATCH_BYTES_MIN)


def count_batches(sources: Sequence[WeaverSource], size_max: int) -> int:
    """Count the batches that the sources make."""
    count = at = 0
    while at < len(sources):
        at += batch_length(sources, at, size_max)
        count += 1
    return count


async def weave_with(llm: Llm, ports: Ports, plan: Plan) -> Woven:
    """Continue the agent's unfinished run, or begin one.

    Raises:
        LlmError: the model failed; finished work is kept, and the next call continues.
    """
    found = run_to_go_on(ports, plan, Method.MODEL)
    if found is None and not unread_sources(ports, plan, Method.MODEL, None):
        return Woven(None, False, 0, 0, (), False, False, (), 0)
    run = take_up(ports, plan, Method.MODEL)
    asking = ModelCalls(llm, ports, run, plan.budget)
    weaver = _Weaver(asking, ports, plan, run)
    stopped, context_updated = False, False
    write_journals(ports, plan, run)
    try:
        await weaver.batches()
        ports.heard("writing the pages", 1, 1)
        context_updated = await write_pages(asking, ports, plan, run)
        ports.database.set_run(run.id, RunState.DONE, run.leg)
    except BudgetReached:
        stopped = True
        ports.database.set_run(run.id, RunState.STOPPED, run.leg)
    return woven(ports, plan, run, stopped=stopped, context_updated=context_updated, unread=asking.unread)


class _Weaver:
    """The batches of one run."""

    def __init__(self, asking: ModelCalls, ports: Ports, plan: Plan, run: Run) -> None:
        self._asking = asking
        self._ports = ports
        self._plan = plan
        self._run = run
        self._by_key = {one.key: one for one in plan.sources}
        self._model = str(asking.llm.identity)

    async def batches(self) -> None:
        """Read until nothing is left. Raises BudgetReached, LlmError."""
        database, run = self._ports.database, self._run
        left = unread_sources(self._ports, self._plan, Method.MODEL, run)
        # A batch that an earlier process began is no longer among the unread sources, and is read first.
        begun = database.open_batch(run.id)
        total = sum(one.size for one in left) + (self._size(begun) if begun else 0) or 1
        done = 0
        at = 0
        while True:
            batch = database.open_batch(run.id)
            if batch is None:
                found = self._next(left, at)
                if not found:
                    return
                at += len(found)
                batch = database.begin_batch(
                    run.id, found[0].day, [(one.key, session_mark(one.session), one.mark) for one in found]
                )
            self._ports.heard(
                f"{batch.day}: {len(batch.keys):,} message{'s' if len(batch.keys) > 1 else ''}", done, total
            )
            if await self._batch(batch):
                done += self._size(batch)
            else:
                left = unread_sources(self._ports, self._plan, Method.MODEL, run)
                at = 0

    def _size(self, batch: WeaverBatch) -> int:
        return sum(self._by_key[key].size for key in batch.keys if key in self._by_key)

    def _next(self, left: Sequence[WeaverSource], at: int) -> list[WeaverSource]:
        """Return the next batch, smaller if the budget is almost used."""
        if at >= len(left):
            return []
        affordable = self._asking.left - tokens_bound(self._asking.llm.identity, Prompt(prompts.REFLECT, ""))
        affordable -= REFLECTION_TOKENS + _EARLIER_BYTES
        if affordable < BATCH_BYTES_MIN:
            raise BudgetReached
        size = min(batch_bytes(self._asking.llm), affordable)
        return list(left[at : at + batch_length(left, at, size)])

    async def _batch(self, batch: WeaverBatch) -> bool:
        """Process one batch. False if it was shortened and the rest of it waits."""
        here = [self._by_key[key] for key in batch.keys if key in self._by_key]
        said = await self._ports.load(here)
        if not said:  # forgotten meanwhile
            self._finish(batch, BatchOutcome(self._model, 0, 0, 0, 0))
            return True
        scope = scope_of_all(said)
        if scope is None and self._shortened(batch, _of_first_project(here)):
            return False  # begun by a version that did not end batches there
        outcome = BatchOutcome(
            self._model,
            len({one.source.session for one in said}),
            len(said),
            min(one.source.moment for one in said),
            max(one.source.moment for one in said),
            scope=scope,
        )
        try:
            made = await self._made(batch, said, scope)
        except BudgetReached:
            size = sum(one.size for one in here)
            if size < BATCH_BYTES_MIN or not self._shortened(batch, len(batch.keys) // 2):
                raise
            return False
        except TooLong:
            if self._shortened(batch, len(batch.keys) // 2):
                return False
            made = _Made(note="This part is longer than the model takes; it was not read.", unread=1)
        except Declined:
            made = _Made(note="The model declined to write about this part.", unread=1)
        self._finish(batch, _scoped(made.onto(outcome)))
        return True

    def _shortened(self, batch: WeaverBatch, kept: int) -> bool:
        """Reduce a batch that has no answers yet to its first pieces."""
        if not 0 < kept < len(batch.keys) or self._ports.database.answers(batch.run, batch.number, "reflect"):
            return False
        self._ports.database.shorten_batch(batch, kept)
        return True

    async def _made(self, batch: WeaverBatch, said: Sequence[Said], scope: str | None) -> "_Made":
        quotable = Quotable(one.text for one in said)
        size = batch_bytes(self._asking.llm)
        earlier = self._earlier(scope)
        reflection = await self._asking.ask(
            batch.number,
            "reflect",
            prompts.reflect(said, earlier, self._plan.zone, batch.day, size),
            REFLECTION_TOKENS,
            lambda text: read_reflection(text, quotable),
        )
        if reflection is None:
            return _Made(note="The model's answer about this part could not be read.", unread=1)
        if reflection == Reflection(cut=reflection.cut):
            return _Made(reflection=reflection)
        prose = await self._asking.ask(
            batch.number,
            "journal",
            prompts.journal(reflection, earlier, batch.day),
            JOURNAL_TOKENS,
            lambda text: woven_prose(text, reflection.quotations, quotable),
        )
        text, cut = prose or ("", 0)
        facts = await self._asking.ask(
            batch.number,
            "facts",
            prompts.facts(reflection, text, batch.day),
            FACTS_TOKENS,
            lambda answer: read_facts(answer, quotable),
        )
        return _Made(reflection, text, facts or Facts(), cut, unread=(prose is None) + (facts is None))

    def _finish(self, batch: WeaverBatch, outcome: BatchOutcome) -> None:
        """Store memories (only once), then the outcome, then the file; each step may be repeated after a crash."""
        ports, plan = self._ports, self._plan
        before = sum(
            decode_outcome(data).remembered for data in ports.database.outcomes_of_day(plan.agent, batch.day)
        )
        memories = outcome.memories[: max(MEMORIES_A_DAY_MAX - before, 0)]
        taken = ports.output.remember(batch.run, batch.number, memories, outcome.last) if memories else 0
        kept = structs.replace(outcome, memories=memories, remembered=taken)
        ports.database.finish_batch(batch, encode_outcome(kept))
        write_journals(ports, plan, self._run, batch.day)

    def _earlier(self, scope: str | None) -> str:
        """Return the end of what the run has last written of this project, for continuity."""
        for _, data in reversed(self._ports.database.outcomes(self._run.id)):
            outcome = decode_outcome(data)
            if scope is not None and outcome.scope == scope:
                return outcome.prose[-_EARLIER_BYTES // 3 :]
        return ""


def _of_first_project(sources: Sequence[WeaverSource]) -> int:
    """Return how many of the first pieces are of one project."""
    return next((number for number, one in enumerate(sources) if one.scope != sources[0].scope), len(sources))


def _scoped(outcome: BatchOutcome) -> BatchOutcome:
    """All memories, preferences too, are for the project that all was said in: a person may widen them. There are none if it
    was said in several."""
    if outcome.scope is None:
        return structs.replace(outcome, memories=())
    memories = tuple(structs.replace(each, scope=outcome.scope) for each in outcome.memories)
    return structs.replace(outcome, memories=memories)


@dataclass(frozen=True, slots=True)
class _Made:
    reflection: Reflection = field(default_factory=Reflection)
    prose: str = ""
    facts: Facts = field(default_factory=Facts)
    cut: int = 0
    note: str = ""
    unread: int = 0

    def onto(self, outcome: BatchOutcome) -> BatchOutcome:
        noted = self.reflection
        return BatchOutcome(
            outcome.model,
            outcome.sessions,
            outcome.pieces,
            outcome.first,
            outcome.last,
            self.prose,
            self.note,
            noted.decided,
            noted.promised,
            noted.concerned,
            noted.missed,
            noted.quotations,
            self.facts.memories,
            self.facts.references,
            0,
            self.cut + noted.cut + self.facts.cut,
            self.unread,
            outcome.scope,
        )


def woven_prose(answer: str, quotations: Sequence[str], quotable: Quotable) -> tuple[str, int]:
    """Return a model's prose with its referenced quotations inserted, and the number of others cut. Raises Unreadable."""
    text, cut = honest(whole(answer), quotable)

    def put_in(found: re.Match[str]) -> str:
        nonlocal cut
        numbers = [int(number[:6]) for number in _NUMBER.findall(found[0])]
        known = [quotations[number - 1] for number in numbers if 1 <= number <= len(quotations)]
        cut += len(numbers) - len(known)
        return " ".join(f"“{quotation}”" for quotation in known)

    prose = paragraphs(_REFERENCE_TO_QUOTATION.sub(put_in, text), JOURNAL_BYTES_MAX)
    if not prose.strip():
        raise Unreadable("there is no prose in the answer")
    return prose, cut
