"""Re-embedding after a change of model: explicit, resumable, and followed by every Node.

::

    vectors of another model --begin: a control entry drops them all and names the new model--> some chunks without vectors
    some without --step: waiting texts are embedded, one control entry a step-> none without: done

What is left to do is what has no vectors, so a kill loses at most one step. Until a chunk has vectors again it is found by
its words. New text gets vectors of the new model as it comes.
"""

from dataclasses import dataclass

from crystal_crypto.errors import TooLarge
from crystal_mirror.entries.control_state import META_MODEL
from crystal_mirror.errors import TransactionStale, Unready
from crystal_mirror.history.control_entries import write_control_entry
from crystal_mirror.membership.member import Member
from crystal_mirror.replication.publish import Published, publish
from crystal_mirror.requests import Embed, Flow

TEXTS_AT_ONCE = 128


def begin_reembedding(member: Member, model: str, *, anew: bool = False) -> Flow[bool]:
    """Drops the vectors of another model, everywhere. False if the vault's vectors are of this model already, unless
    ``anew``.

    Raises:
        Unready: this device is not the Core.
        TransactionStale: its log is not published yet; sync and repeat.
    """
    if not member.is_core:
        raise Unready("only the Core embeds", hint="Run it on the Core: `crystal role` names it.")
    kept = member.replica.meta_get(META_MODEL)
    if kept == model.encode() and not anew:
        return False
    write_control_entry(member, model=model, drops_vectors=True)
    yield from publish(member)
    return True


@dataclass(frozen=True, slots=True)
class ReembedStep:
    """What one step embedded; ``bytes`` are bytes of text."""

    texts: int
    bytes: int


def embed_some(member: Member, model: str, at_once: int = TEXTS_AT_ONCE) -> Flow[ReembedStep | None]:
    """One step: embeds ``at_once`` texts at most of those without vectors, in one entry. None if nothing is left.

    Raises:
        Unready, TransactionStale: as ``begin_reembedding``.
    """
    while True:
        waiting = member.replica.without_vectors(at_once)
        if not waiting:
            return None
        windows: list[list[bytes]] = yield Embed(tuple(text for _, text in waiting), needed=True)
        embedded = [(content, tuple(some)) for (content, _), some in zip(waiting, windows, strict=True)]
        try:
            write_control_entry(member, model=model, embedded=embedded)
        except TooLarge:
            if at_once > 1:
                at_once = max(1, at_once // 2)
                continue
            # The windows of one text do not fit an entry: only its first windows are kept.
            content, some = embedded[0]
            write_control_entry(member, model=model, embedded=[(content, some[: max(1, len(some) // 2)])])
        if (yield from publish(member)) is not Published.DONE:
            raise TransactionStale("the log went on elsewhere")
        return ReembedStep(len(waiting), sum(len(text.encode()) for _, text in waiting))
