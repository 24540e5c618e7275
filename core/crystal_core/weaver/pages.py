"""The pages at the end of a run: the model writes IDENTITY, SOUL and CONTEXT; REFERENCE and missed tasks come from outcomes.

Each page is written from its last version and the newest journals. An unusable answer leaves the page as it is. Pages contain
no quotations: a forget removes text from journals only, where the part made from it is known.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from crystal_core.llm.answers import Unreadable
from crystal_core.llm.port import Declined, TooLong
from crystal_core.weaver import documents, prompts
from crystal_core.weaver.answers import (
    DOCUMENT_INPUT_BYTES,
    DOCUMENT_TOKENS,
    IDENTITY_BYTES_MAX,
    SOUL_BYTES_MAX,
    read_warm_start,
)
from crystal_core.weaver.calls import ModelCalls
from crystal_core.weaver.database import DOCUMENTS
from crystal_core.weaver.ports import Plan, Ports
from crystal_core.weaver.prose import cut, whole
from crystal_core.weaver.quotations import NO_QUOTATIONS, unquoted
from crystal_core.weaver.records import BatchOutcome, Method, Run, decode_outcome
from crystal_core.weaver.sources import day_of

_FORMER_BYTES_MAX = 12 * 1024

T = TypeVar("T")


async def write_pages(asking: ModelCalls, ports: Ports, plan: Plan, run: Run) -> bool:
    """Write all pages. Returns whether CONTEXT was rewritten.

    Raises BudgetReached, LlmError; earlier answers are kept.
    """
    model, today = str(asking.llm.identity), day_of(ports.now_ms(), plan.zone)
    outcomes = [
        (day, decode_outcome(data)) for _, day, data in ports.database.all_outcomes(plan.agent, Method.MODEL)
    ]
    mine = [(day, decode_outcome(data)) for day, data in ports.database.outcomes(run.id)]
    for name, title, system, most in (
        (documents.IDENTITY, "Identity", prompts.IDENTITY, IDENTITY_BYTES_MAX),
        (documents.SOUL, "Soul", prompts.SOUL, SOUL_BYTES_MAX),
    ):
        former = _former(ports, name)

        def read(text: str) -> str:
            prose = unquoted(whole(text))
            if not prose.strip():
                raise Unreadable("there is nothing on the page")
            return prose

        prose = await _asked(asking, name, system, former, outcomes, today, read)
        if prose:
            page = documents.page(title, plan.agent, prose, model, today, most)
            ports.output.write(name, page, Method.MODEL, run.id)
    former = _former(ports, documents.CONTEXT)
    warm = await _asked(
        asking,
        documents.CONTEXT,
        prompts.CONTEXT,
        former,
        outcomes,
        today,
        lambda text: read_warm_start(text, NO_QUOTATIONS),
    )
    if warm is not None:
        text = documents.context(plan.agent, warm, documents.recent_days_unquoted(outcomes), model, today)
        ports.output.write(documents.CONTEXT, text, Method.MODEL, run.id)
    if any(outcome.references for _, outcome in outcomes):
        text = documents.reference(plan.agent, outcomes, model, today)
        ports.output.write(documents.REFERENCE, text, Method.MODEL, run.id)
    if any(outcome.missed for _, outcome in mine):
        before = ports.output.read(documents.MISSED) or ""
        text = documents.missed(before, mine, model, today)
        ports.output.write(documents.MISSED, text, Method.MODEL, run.id)
    return warm is not None


async def _asked(
    asking: ModelCalls,
    name: str,
    system: str,
    former: str,
    outcomes: Sequence[tuple[str, BatchOutcome]],
    today: str,
    read: Callable[[str], T],
) -> T | None:
    room = min(DOCUMENT_INPUT_BYTES, max(asking.llm.identity.context_tokens - DOCUMENT_TOKENS - 2000, 1000))
    journals = _journals(outcomes, room)
    prompt = prompts.page(system, cut(former, _FORMER_BYTES_MAX), journals, today)
    try:
        found = await asking.ask(DOCUMENTS, name, prompt, DOCUMENT_TOKENS, read)
    except (Declined, TooLong):
        found = None
    asking.unread += found is None
    return found


def _former(ports: Ports, name: str) -> str:
    return documents.unsigned(ports.output.read(name) or "")


def _journals(outcomes: Sequence[tuple[str, BatchOutcome]], room: int) -> str:
    """Return the newest journals that fit, oldest first."""
    chosen: list[str] = []
    for day, outcome in reversed(outcomes):
        notes = [
            f"{title}: {item}"
            for title, items in (
                ("decided", outcome.decided),
                ("promised", outcome.promised),
                ("mattered", outcome.concerned),
                ("missed", outcome.missed),
            )
            for item in items
        ]
        text = "\n".join([f"{day}:", outcome.prose, *notes])
        size = len(text.encode())
        if size > room:
            if not chosen:
                chosen.append(cut(text, room))
            break
        room -= size
        chosen.append(text)
    return "\n\n".join(reversed(chosen))
