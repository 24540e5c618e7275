"""P6: what is still needed. Checked whenever the relay has deleted what it was asked to, and whenever a snapshot is announced.

What may go is judged by what the devices hold, not by what the Core believes: the log below the newest announced snapshot and
below every reader, conversations that the log carries, blobs that neither the newest snapshot nor a living file refers to.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from crystal_crypto.entry import parse
from crystal_crypto.errors import CrystalError
from crystal_mirror.entries.batches import Announced
from crystal_mirror.membership.member import Member
from crystal_mirror.operations import blob_name
from crystal_mirror.snapshots.blobs import BlobRef, opened
from crystal_mirror.snapshots.manifest import decode_manifest
from crystal_mirror.store_keys import StoreKeys
from crystal_mirror.types import EntryState, Origin
from tests.sim import filemodel
from tests.sim.model import Histories, History, Violation

if TYPE_CHECKING:
    from tests.sim.device import Home


class Needs:
    """``homes`` gives the readers that live, ``objects`` is what the relay truly holds.

    ``strict``: no reader was away for long, no clock is wrong and nobody forced anything, so that nobody may be left behind by
    the log. ``harmed``: objects vanished that nobody had condemned, so that a snapshot may be announced that is not whole.
    """

    def __init__(
        self,
        vault: bytes,
        histories: Histories,
        homes: Callable[[], Sequence["Home"]],
        objects: dict[str, bytes],
    ) -> None:
        self.strict = True
        self.harmed = False
        self.checked = 0
        self._keys = StoreKeys(vault)
        self._histories = histories
        self._homes = homes
        self._objects = objects
        self._names: dict[bytes, tuple[str, ...]] = {}
        """Per manifest the keys of the snapshot's blobs."""

    def p6_nothing_needed_is_deleted(self, keys: frozenset[str]) -> None:
        """Raises Violation. ``keys`` have just been deleted as the Core had asked."""
        self.checked += 1
        standing = self._standing()
        for key in keys:
            if "/devlog/" in key or "/cursor/" in key:
                raise Violation(f"P6: {key} was deleted, which every device needs for good")
            place = self._keys.parse_stream(key)
            if place is not None and not any(Origin(*place) in held.state.done for held in standing):
                raise Violation(f"P6: the conversation {key} was deleted before the log carried it")
        believed = max(standing, key=lambda held: (held.epoch, held.sequence), default=None)
        if believed is None:
            return
        gone = keys - self._objects.keys()
        self._check_slots(sorted(filter(None, map(self._slot, gone))), believed)
        if not gone.isdisjoint(
            self._names.get(believed.announced.manifest, ()) if believed.announced else ()
        ):
            raise Violation("P6: a part of the newest snapshot was deleted")
        names = {self._keys.blob(name) for name in believed.state.condemned}
        if any("/blob/" in key and key not in names for key in keys):
            raise Violation("P6: a blob was deleted whose name the log does not condemn")
        if not gone.isdisjoint(self._living(believed)):
            raise Violation("P6: a part of a living file was deleted")

    def p6_an_announced_snapshot_is_whole(self, announced: Announced) -> None:
        """Raises Violation if what was just announced does not come back as the state that it is said to be."""
        member = next((home.member for home in self._homes() if home.member is not None), None)
        if member is None:
            return
        try:
            data = self._content(member, BlobRef(announced.manifest, announced.length, announced.named))
            manifest = decode_manifest(data, announced)
            sums = member.replica.part_sums()
            for part in manifest.parts:
                sums.add(self._content(member, part))
        except (CrystalError, KeyError) as error:
            if self.harmed:
                return
            raise Violation(f"P6: a snapshot was announced that does not come back: {error!r}") from error
        if sums.digest().to_bytes() != announced.digest:
            raise Violation("P3: a snapshot was announced that holds another state than its digest says")
        refs = [
            *((part.content, part.named) for part in manifest.parts),
            (announced.manifest, announced.named),
        ]
        condemned = {name for held in self._standing() for name in held.state.condemned}
        if any(blob_name(member.secret, *ref) in condemned for ref in refs):
            raise Violation("P6: a snapshot is announced that is made of condemned names")
        self._names[announced.manifest] = self._blobs(refs)

    def _content(self, member: Member, ref: BlobRef) -> bytes:
        key = self._keys.blob(blob_name(member.secret, ref.content, ref.named))
        return opened(member, ref, self._objects[key])

    def _check_slots(self, slots: Sequence[tuple[int, int]], believed: History) -> None:
        if not slots:
            return
        newest = believed.announced
        if newest is None or slots[-1] >= newest.position[:2]:
            raise Violation(f"P6: slot {slots[-1]} of the log was deleted, which no snapshot covers")
        if slots[-1] >= believed.floor:
            raise Violation(f"P6: slot {slots[-1]} was deleted, and the log's floor is {believed.floor}")
        if not self.strict:
            return
        for home in self._homes():
            if home.member is None or home.restores or self._histories.get(_previous(home.member)) is None:
                continue
            place = home.member.replica.position()[:2]
            if place > (1, 0) and slots[-1] >= place:
                raise Violation(f"P6: slot {slots[-1]} was deleted, and {home.name} stands at {place}")

    def _standing(self) -> list[History]:
        """What each device has applied, less what it has not published."""
        found: list[History] = []
        for home in self._homes():
            if home.replica is None or home.member is None:
                continue
            unsent = home.member.replica.kept(EntryState.UNSENT)
            previous = _behind(unsent[0].data) if unsent else _previous(home.member)
            history = self._histories.get(previous)
            if history is not None:
                found.append(history)
        return found

    def _slot(self, key: str) -> tuple[int, int] | None:
        if not key.startswith(self._keys.mirror_prefix):
            return None
        epoch, _, sequence = key[len(self._keys.mirror_prefix) :].partition("/")
        return int(epoch), int(sequence)

    def _living(self, history: History) -> tuple[str, ...]:
        rows = filemodel.living(history.state.files).values()
        return self._blobs((part.content, part.named) for row in rows for part in row[3])

    def _blobs(self, refs: Iterable[tuple[bytes, int | bytes]]) -> tuple[str, ...]:
        secret = self._histories.secret
        return tuple(self._keys.blob(blob_name(secret, content, named)) for content, named in refs)


def _previous(member: Member) -> bytes:
    return member.replica.position().previous


def _behind(data: bytes) -> bytes:
    return parse(data).header.previous
