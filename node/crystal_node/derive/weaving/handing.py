"""From one Core to the next: up to when an agent's past was woven, in a file that travels with the journals.

The book of what was read stays on its machine. When the lead moves, or the book is lost, the next Core must not read, and pay
for, everything once more: what is not later than the newest message that was read counts as read there. What comes in late from
before that is then left out, unless everything is asked for (``--mode full``). A file that claims the future claims nothing.
"""

from collections.abc import Sequence
from typing import Annotated

import msgspec

from crystal_core.weaver.book import WeaverBook
from crystal_core.weaver.documents import WOVEN
from crystal_core.weaver.records import Run
from crystal_core.weaver.sources import Source
from crystal_node.derive.weaving.output import DeviceOutput


class _Woven(msgspec.Struct, frozen=True):
    book: Annotated[str, msgspec.Meta(max_length=64)]
    until: Annotated[int, msgspec.Meta(ge=0, le=2**53)]
    version: int = 1


def take_over(output: DeviceOutput, book: WeaverBook, agent: str, now_ms: int) -> None:
    """Believes what another book has left. Idempotent."""
    found = _read(output)
    if found is None or found.book == book.id or found.until > now_ms:
        return
    if found.until > book.assumed_until(agent):
        book.assume(agent, found.until)


def hand_on(output: DeviceOutput, book: WeaverBook, run: Run, sources: Sequence[Source], now_ms: int) -> None:
    """Leaves word for the next Core, at the end of a run that a model wrote. A message from the future moves nothing."""
    until = max((one.moment for one in sources if one.moment <= now_ms), default=0)
    text = msgspec.json.format(msgspec.json.encode(_Woven(book.id, until)), indent=2).decode() + "\n"
    output.write(WOVEN, text, run.method, run.id)


def _read(output: DeviceOutput) -> _Woven | None:
    text = output.read(WOVEN)
    try:
        return msgspec.json.decode(text, type=_Woven) if text else None
    except msgspec.MsgspecError:
        return None
