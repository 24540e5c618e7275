"""Requests to the Dream Weaver and their results, for commands, jobs, staging and other devices."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from crystal_core.weaver.estimate import Estimate

JOURNALS_SHOWN_MAX = 500
"""Newest journals named in a document; other devices accept no longer list."""

Progress = Callable[[str, int, int], None]
"""A line for people, done, total."""


def unheard(_text: str, _done: int, _total: int) -> None:
    """Discards progress."""


class WeaveMode(StrEnum):
    """``full``: everything there is. ``incremental``: what no run has read yet."""

    FULL = "full"
    INCREMENTAL = "incremental"


class WeaveState(StrEnum):
    """How a run ended."""

    DONE = "done"
    NOTHING = "nothing-new"
    BUDGET = "stopped-by-the-budget"
    DRY_RUN = "dry-run"


@dataclass(frozen=True, slots=True)
class WeaveRequest:
    """``agent`` "": this device's own. ``since``: milliseconds, 0 for all. ``provider`` "": as configured; "none": extractive,
    without any model. ``budget``: tokens, 0 for the configured ones. ``needs_model``: an extract will not do."""

    agent: str = ""
    mode: WeaveMode = WeaveMode.INCREMENTAL
    since: int = 0
    dry_run: bool = False
    provider: str = ""
    budget: int = 0
    needs_model: bool = False


@dataclass(frozen=True, slots=True)
class WeaveResult:
    """What a run did. ``model``: what wrote, or "extractive, no model". ``text`` is for people.

    ``dollars``: estimated by list prices, None if the model's is not known. ``unread``: answers of the model that could not be
    used; ``quotations_cut``: quotations that were in no transcript and were taken out. ``maybe_paid``: calls whose answer got
    lost; they count in full against the budget.
    """

    agent: str
    mode: WeaveMode
    state: WeaveState
    model: str
    sessions_processed: int
    sessions_left: int
    journals: tuple[str, ...]
    identity_created: bool
    context_updated: bool
    memories_extracted: int
    seconds: float
    tokens_in: int = 0
    tokens_out: int = 0
    dollars: float | None = 0.0
    quotations_cut: int = 0
    unread: int = 0
    maybe_paid: int = 0
    tokens_maybe_paid: int = 0
    estimate: Estimate | None = None
    text: str = ""

    def document(self) -> dict[str, object]:
        """For ``--json`` and for other devices. Holds no text of a conversation."""
        return {
            "agent": self.agent,
            "mode": self.mode.value,
            "state": self.state.value,
            "model": self.model,
            "sessions_processed": self.sessions_processed,
            "sessions_left": self.sessions_left,
            "journals": list(self.journals[-JOURNALS_SHOWN_MAX:]),
            "journals_written": len(self.journals),
            "identity_created": self.identity_created,
            "context_updated": self.context_updated,
            "memories_extracted": self.memories_extracted,
            "seconds": round(self.seconds, 3),
            "tokens": {"in": self.tokens_in, "out": self.tokens_out},
            "dollars_estimated": None if self.dollars is None else round(self.dollars, 4),
            "quotations_cut": self.quotations_cut,
            "answers_unread": self.unread,
            "calls_maybe_paid": self.maybe_paid,
            "tokens_maybe_paid": self.tokens_maybe_paid,
            "estimate": None if self.estimate is None else self.estimate.document(),
        }
