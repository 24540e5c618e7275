"""What a relay may do with snapshots, files, cursors and deletions: more lies, for vaults that have these."""

from collections.abc import Callable
from random import Random

from crystal_crypto.limits import BLOB_BYTES_MAX
from crystal_mirror.requests import Condemn, List, Listing
from tests.sim.lies import Honest, flipped
from tests.sim.store import Lie, SimStore

BLOB, CURSOR, MIRROR = "/blob/", "/cursor/", "/mirror/"


class LosesBlobs(Honest):
    """Has blobs, and then it has not."""

    name = "loses blobs"

    def get(self, store: SimStore, device: str, key: str) -> bytes | None:
        return None if BLOB in key else store.objects.get(key)


class LosesSomeBlobs(Honest):
    """Has every other blob."""

    name = "loses some blobs"

    def get(self, store: SimStore, device: str, key: str) -> bytes | None:
        return None if BLOB in key and key[-1] in "02468ace" else store.objects.get(key)


class PretendsToHaveBlobs(LosesBlobs):
    """Says that it has blobs that it does not show."""

    name = "pretends to have blobs"

    def has(self, store: SimStore, device: str, key: str) -> bool | None:
        return True if BLOB in key else None


class DeniesBlobs(Honest):
    """Says that it lacks blobs that it shows."""

    name = "denies blobs"

    def has(self, store: SimStore, device: str, key: str) -> bool | None:
        return False if BLOB in key else None


class SwallowsBlobs(Honest):
    """Says that new blobs are stored, and keeps none."""

    name = "swallows blobs"

    def put_new(self, store: SimStore, device: str, key: str, body: bytes) -> bool | None:
        return True if BLOB in key else None


class RefusesBlobs(Honest):
    """Says of each new blob that one of that name is there already."""

    name = "calls blobs taken"

    def put_new(self, store: SimStore, device: str, key: str, body: bytes) -> bool | None:
        return False if BLOB in key else None


class TampersWithBlobs(Honest):
    """Flips a bit of each blob."""

    name = "tampers with blobs"

    def __init__(self, part: float) -> None:
        self._part = part

    def get(self, store: SimStore, device: str, key: str) -> bytes | None:
        data = store.objects.get(key)
        return flipped(data, self._part) if data and BLOB in key else data


class TruncatesBlobs(Honest):
    """Shows the first half of each blob."""

    name = "truncates blobs"

    def get(self, store: SimStore, device: str, key: str) -> bytes | None:
        data = store.objects.get(key)
        return data[: len(data) // 2] if data and BLOB in key else data


class SwellsBlobs(Honest):
    """Shows blobs that go on and on."""

    name = "swells blobs"

    def get(self, store: SimStore, device: str, key: str) -> bytes | None:
        data = store.objects.get(key)
        return data + bytes(BLOB_BYTES_MAX + 1 - len(data)) if data and BLOB in key else data


class ExchangesBlobs(Honest):
    """Shows one blob under the name of another."""

    name = "exchanges blobs"

    def get(self, store: SimStore, device: str, key: str) -> bytes | None:
        keys = store.keys("blob")
        return store.objects[keys[keys.index(key) - 1]] if key in keys else store.objects.get(key)


class ReplaysCursors(Honest):
    """Shows the cursors as they stood some time ago: what they tell of snapshots and readers is old."""

    name = "replays cursors"

    def __init__(self, before: dict[str, bytes]) -> None:
        self._before = {key: body for key, body in before.items() if CURSOR in key}

    def get(self, store: SimStore, device: str, key: str) -> bytes | None:
        return self._before.get(key) if CURSOR in key else store.objects.get(key)


class CrossesCursors(Honest):
    """Shows each device's cursor as another's."""

    name = "crosses cursors"

    def get(self, store: SimStore, device: str, key: str) -> bytes | None:
        keys = store.keys("cursor")
        return store.objects[keys[keys.index(key) - 1]] if key in keys else store.objects.get(key)


class HidesCursors(Honest):
    """Shows no cursor."""

    name = "hides cursors"

    def get(self, store: SimStore, device: str, key: str) -> bytes | None:
        return None if CURSOR in key else store.objects.get(key)


class TampersWithCursors(Honest):
    """Flips a bit of each cursor."""

    name = "tampers with cursors"

    def __init__(self, part: float) -> None:
        self._part = part

    def get(self, store: SimStore, device: str, key: str) -> bytes | None:
        data = store.objects.get(key)
        return flipped(data, self._part) if data and CURSOR in key else data


class KeepsEverything(Honest):
    """Says that it will delete, and deletes nothing."""

    name = "keeps what was condemned"

    def condemn(self, store: SimStore, request: Condemn) -> frozenset[str] | None:
        return frozenset()


class DeletesMore(Honest):
    """Deletes the whole log and every blob when it is asked for a part."""

    name = "deletes more than it was asked"
    harms = True

    def condemn(self, store: SimStore, request: Condemn) -> frozenset[str] | None:
        return frozenset(key for key in store.objects if MIRROR in key or BLOB in key)


class ShowsDeleted(Honest):
    """Shows objects as they once stood, also where they were deleted since."""

    name = "shows what was deleted"

    def __init__(self, before: dict[str, bytes]) -> None:
        self._before = before

    def get(self, store: SimStore, device: str, key: str) -> bytes | None:
        return store.objects.get(key, self._before.get(key))

    def listing(self, store: SimStore, device: str, request: List) -> Listing | None:
        keys = {*store.objects, *self._before}
        found = sorted(key for key in keys if key.startswith(request.prefix) and key > request.after)
        return Listing(tuple(found[: request.limit]), len(found) > request.limit)


BLOB_LIES: tuple[Callable[[Random, dict[str, bytes]], Lie], ...] = (
    lambda _draw, _: LosesBlobs(),
    lambda _draw, _: LosesSomeBlobs(),
    lambda _draw, _: PretendsToHaveBlobs(),
    lambda _draw, _: DeniesBlobs(),
    lambda _draw, _: SwallowsBlobs(),
    lambda _draw, _: RefusesBlobs(),
    lambda draw, _: TampersWithBlobs(draw.random()),
    lambda _draw, _: TruncatesBlobs(),
    lambda _draw, _: SwellsBlobs(),
    lambda _draw, _: ExchangesBlobs(),
    lambda _draw, before: ReplaysCursors(before),
    lambda _draw, _: CrossesCursors(),
    lambda _draw, _: HidesCursors(),
    lambda draw, _: TampersWithCursors(draw.random()),
    lambda _draw, _: KeepsEverything(),
    lambda _draw, _: DeletesMore(),
    lambda _draw, before: ShowsDeleted(before),
)
