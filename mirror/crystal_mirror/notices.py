"""Notices: what a device noticed about the relay or its peers, by name, for a person to see.

A notice stands as long as its cause does. Each round of sync determines the current notices and keeps them in the journal,
so that ``crystal status`` shows them without a network. How often each was ever raised is kept as well: a relay that lied
once and stopped is still a relay that lied.
"""

from enum import StrEnum

import msgspec

from crystal_mirror.ports import Journal


class Notice(StrEnum):
    """The names. Their texts for people are in the command line."""

    LOG_ROLLED_BACK = "log-rolled-back"
    LOG_FORKED = "log-forked"
    LOG_DAMAGED = "log-damaged"
    MIRROR_ROLLED_BACK = "mirror-rolled-back"
    MIRROR_FORKED = "mirror-forked"
    MIRROR_TAMPERED = "mirror-tampered"
    MIRROR_DAMAGED = "mirror-damaged"
    MIRROR_GAP = "mirror-gap"
    MIRROR_UNREADABLE = "mirror-unreadable"
    STREAM_TAMPERED = "stream-tampered"
    STREAM_LOST = "stream-lost"
    STREAM_UNREADABLE = "stream-unreadable"
    PEER_AHEAD = "peer-log-unknown"
    RESTORED = "device-restored"
    COPIED = "device-copied"
    CLAIM_LOST = "core-without-its-claim"
    QUARANTINED = "mirror-quarantined"
    MODEL_DIFFERS = "model-differs"
    SUPERSEDED = "superseded"
    REBUILT = "rebuilt"
    HELD_REVOKED = "revoked-device-held"
    EPOCH_OPEN = "epoch-without-end"
    KEYS_WITHHELD = "keys-withheld"
    SNAPSHOT_LOST = "snapshot-lost"
    SNAPSHOT_DAMAGED = "snapshot-damaged"
    FLOOR_PASSED = "behind-the-floor"


class _Kept(msgspec.Struct, array_like=True):
    current: dict[str, str]
    raised: dict[str, int]


_META = "notices"
_decoder = msgspec.msgpack.Decoder(_Kept)
_encoder = msgspec.msgpack.Encoder()


class NoticeBoard:
    """The notices of one device. ``begin`` opens a round, ``put`` adds to it, ``save`` makes it the current state."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._round: dict[str, str] = {}

    def begin(self) -> None:
        self._round = {}

    def put(self, notice: Notice, detail: str) -> None:
        self._round.setdefault(notice.value, detail)

    def save(self) -> None:
        """Writes the round's notices if they differ from those kept; counts the new ones."""
        kept = self._kept()
        if kept.current == self._round:
            return
        for name in self._round:
            if name not in kept.current:
                kept.raised[name] = kept.raised.get(name, 0) + 1
        kept.current = dict(self._round)
        with self._journal.transaction() as transaction:
            transaction.meta_set(_META, _encoder.encode(kept))

    def current(self) -> dict[str, str]:
        return self._kept().current

    def raised(self) -> dict[str, int]:
        """How often each notice was raised since this journal was made."""
        return self._kept().raised

    def _kept(self) -> _Kept:
        data = self._journal.meta_get(_META)
        return _decoder.decode(data) if data else _Kept({}, {})
