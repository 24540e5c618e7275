"""One call of a tool: the memory, a report of progress, and whether a person agreed.

What cannot be undone needs consent. Where the client can ask its person, the person is asked, and nothing else counts.
Where it cannot, the first call changes nothing: it says what would happen and gives a word that is valid once, in this process,
for these texts and for ten minutes; only a second call with that word does it. So no single call does it, no text in the memory
can hold the word, and a client that shows calls to its person shows two, the second with its subject.

::

    call ==> client can ask: the person says yes ==> done              (no, or no answer ==> nothing was done)
    call ==> it cannot: the preview and a word ==> the same call with the word ==> done
"""

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from crystal_node.base.errors import UsageError
from crystal_node.search.finding.keeper import Keeper

PLEDGE_SECONDS = 600.0
PLEDGES_MAX = 64


class NotAgreed(UsageError):
    """The person was asked, and did not say yes."""

    hint = "Nothing was changed. Do not ask again unless the person wants it."


class CallCancelled(UsageError):
    """The client cancelled the call."""

    hint = "Call it again: what is done is not done twice."


class Pledges:
    """The words that were given and are not used yet."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[str, float]] = {}

    def give(self, about: str) -> str:
        """A word for the thing that ``about`` names."""
        word = secrets.token_hex(8)
        with self._lock:
            now = self._clock()
            kept = [item for item in self._kept.items() if item[1][1] > now]
            self._kept = dict(kept[-(PLEDGES_MAX - 1) :])
            self._kept[word] = (about, now + PLEDGE_SECONDS)
        return word

    def redeem(self, word: str, about: str) -> bool:
        """Whether it is a word for this. The word is used up."""
        with self._lock:
            kept, until = self._kept.pop(word, ("", 0.0))
            return kept == about and until > self._clock()


@dataclass(frozen=True, slots=True)
class Question:
    """A question to a person. ``about`` names the thing without its words; ``yes`` is the line to agree to."""

    text: str
    yes: str
    about: str


def _no_progress(_done: float, _total: float | None, _what: str) -> None:
    return None


@dataclass
class Call:
    """One call of a tool. ``asked``: the client can ask its person, and the person said yes. ``folder``: that of the work.
    ``agent``: the client's, "" for this device's."""

    keeper: Keeper
    pledges: Pledges
    asked: bool = False
    progress: Callable[[float, float | None, str], None] = _no_progress
    over: threading.Event = field(default_factory=threading.Event)
    folder: str = ""
    agent: str = ""

    def check(self) -> None:
        """Call between the steps of long work. Raises CallCancelled if the client cancelled the call."""
        if self.over.is_set():
            raise CallCancelled("the call was cancelled")
