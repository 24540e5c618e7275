"""News of the vault in words, and the lines that wait until the person looks.

A round of sync stores the lines in the journal, for commands that open no key store: they show them, and then everything up to
that slot of the device log counts as shown. ``crystal status`` and ``crystal devices`` read the log itself.
"""

from pathlib import Path

import msgspec

from crystal_mirror.membership.changes import ChangeKind, VaultChange, mark_shown, shown_slot, vault_changes
from crystal_mirror.membership.member import Member
from crystal_mirror.ports import Journal
from crystal_node.base.wording import iso, one_line
from crystal_node.device.journal import SqliteJournal
from crystal_node.device.journal_values import META_NEWS, peek

_NAME_CHARS = 40


class WaitingNews(msgspec.Struct, frozen=True, array_like=True):
    """Lines that wait, and the slot of the log up to which they report."""

    slot: int
    lines: tuple[str, ...]


_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[WaitingNews] = msgspec.msgpack.Decoder(WaitingNews)


def line_of(piece: VaultChange, this_device: bytes) -> str:
    """One item of news as a sentence."""
    when = f" ({day})" if (day := (iso(piece.at) or "")[:10]) else ""
    who = f"{_named(piece.name, piece.device)}"
    if piece.kind is ChangeKind.ROOT_REPLACED:
        return f"The vault's root was replaced{_by(piece)}{when}: recovery kits and codes from before have no power any more."
    if piece.kind is ChangeKind.FROZEN:
        return f"The vault was frozen{_by(piece)}{when}: no device is its Core until one takes the lead (`crystal promote`)."
    subject = "This device" if piece.device == this_device else f"Device {who}"
    by_itself = piece.by == piece.device
    if piece.kind is ChangeKind.REVOKED:
        return f"{subject} was revoked{_by(piece)}{when}."
    if piece.kind is ChangeKind.NEW_CORE:
        root = " with the vault's root" if piece.by_root else ""
        how = f"took the lead{root}" if by_itself else f"was given the lead{_by(piece)}"
        return f"{subject} {how}{when}: it became the vault's Core."
    if piece.kind is ChangeKind.GRANTED:
        return f"{subject} was allowed{_by(piece)}{when} to take the lead by itself."
    if piece.by_root and by_itself:
        return f"Device {who} joined with the vault's code{when}."
    return f"Device {who} was added{_by(piece)}{when}."


def lines_of(member: Member) -> list[str]:
    """The news that was not shown yet."""
    return [line_of(piece, member.device_id) for piece in vault_changes(member)]


def mark_all_shown(member: Member) -> None:
    """Marks all news as shown."""
    if shown_slot(member) < member.log.next_slot - 1:
        mark_shown(member.journal, member.log.next_slot - 1)
    if member.journal.meta_get(META_NEWS) is not None:
        with member.journal.transaction() as transaction:
            transaction.meta_set(META_NEWS, None)


def keep_lines(member: Member) -> None:
    """Stores unread news for commands that cannot read the log. Writes only if it changed."""
    lines = tuple(lines_of(member))
    waiting = _encoder.encode(WaitingNews(member.log.next_slot - 1, lines)) if lines else None
    if member.journal.meta_get(META_NEWS) != waiting:
        with member.journal.transaction() as transaction:
            transaction.meta_set(META_NEWS, waiting)


def waiting_lines(state_database: Path) -> WaitingNews | None:
    """The lines that a round stored; None if there are none."""
    kept = peek(state_database, META_NEWS)
    return _decoder.decode(kept) if kept else None


def mark_waiting_shown(journal: SqliteJournal, waiting: WaitingNews) -> None:
    """Marks these lines as shown."""
    mark_shown(journal, waiting.slot)
    _drop(journal, waiting)


def _drop(journal: Journal, waiting: WaitingNews) -> None:
    with journal.transaction() as transaction:
        if transaction.meta_get(META_NEWS) == _encoder.encode(waiting):
            transaction.meta_set(META_NEWS, None)


def _by(piece: VaultChange) -> str:
    if piece.by is None:
        return " with the vault's root"
    return f" by {_named(piece.by_name, piece.by)}" + (" with the vault's root" if piece.by_root else "")


def _named(name: str | None, device: bytes | None) -> str:
    short = device.hex()[:8] if device is not None else "?"
    return f"{one_line(name, _NAME_CHARS)} ({short})" if name else short
