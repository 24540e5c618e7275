"""What an ex-device in league with the relay can tell from names and lengths: it has every key up to its revocation, knows each
object and each request, and guesses what people write."""

import hmac
from collections.abc import Iterator
from hashlib import sha256

from crystal_crypto.hierarchy import GenerationKey, VaultSecret
from crystal_mirror.devicelog.keyring import KeyRing
from crystal_mirror.membership.administration import revoke
from crystal_mirror.requests import PutBlob, PutBlobs, Request
from tests.sim.administering import NOW_MS, add
from tests.sim.device import Home
from tests.sim.mixed_script import MixedStage
from tests.sim.smallness import small
from tests.sim.thief import Thief, member_of
from tests.sim.tree import cut

SECRET = b"the offer is 40,000"
OLD = b"what it could read, it read"


class Scene(MixedStage):
    """A phone that syncs files is revoked; whoever has it has its keys, and sees the relay."""

    def __init__(self, name: str = "names") -> None:
        super().__init__(name)
        self.phone = self.world.add_home("phone", has_kit=False)
        self.act(self.core, lambda member: add(member, self.phone))
        self.file(self.laptop, "old.txt", OLD)
        self.meet(self.laptop, self.core, self.phone)
        self.snapshot(self.core)
        self.meet(self.laptop, self.core, self.phone)
        self.before = set(self.world.store.objects)
        device = self.phone.identity.id
        self.act(self.core, lambda member: revoke(member, device, now_ms=NOW_MS))
        self.thief = Thief(self.world, self.phone.identity)
        self.sync(self.laptop, self.core, self.laptop)

    def new_names(self) -> set[bytes]:
        store = self.world.store.objects
        return {
            bytes.fromhex(key.rpartition("/")[2]) for key in store.keys() - self.before if "/blob/" in key
        }

    def guesses(self, content: bytes) -> set[bytes]:
        """Every name that what the ex-device has may give to a content."""
        ring = KeyRing.of_device(self.phone.identity, self.thief.log())
        held = [key for n in range(1, ring.newest_held().number + 1) if (key := ring.key(n)) is not None]
        assert [key.number for key in held] == [1]
        digest = sha256(content).digest()
        return set(_names(ring.secret, held, self.world.vault, digest))


def _names(secret: VaultSecret, held: list[GenerationKey], vault: bytes, digest: bytes) -> Iterator[bytes]:
    yield digest
    for turn in range(4):
        yield secret.blob_name(digest, turn)
        yield from (key.blob_name(vault, digest, turn) for key in held)
    yield from (hmac.digest(key.secret, digest, "sha256") for key in held)


def parts_of(home: Home, path: str) -> list[int | bytes]:
    row = member_of(home).replica.file(path)
    assert row is not None
    return [part.named for part in row.parts]


def test_an_ex_device_cannot_guess_a_file_that_was_written_after_it_was_out() -> None:
    with small():
        scene = Scene()
        scene.file(scene.laptop, "offer.txt", SECRET)
        scene.meet(scene.laptop, scene.core)
        parts = [
            SECRET[at : at + part.length] for at, part in zip(range(0, 99, 24), cut(SECRET), strict=False)
        ]
        assert scene.new_names(), "the file is on the relay"
        for part in parts:
            assert not scene.guesses(part) & scene.new_names()
        assert scene.guesses(OLD[:24]) & {
            bytes.fromhex(key.rpartition("/")[2]) for key in scene.before if "/blob/" in key
        }, "what it had, it has: the guess is a good one"
        assert all(isinstance(named, bytes) for named in parts_of(scene.core, "offer.txt"))
        scene.world.agree(newcomer=True)
        assert scene.world.guesser.tried


def test_a_file_of_before_stays_where_it_is_and_is_not_sent_again() -> None:
    with small():
        scene = Scene("stays")
        blobs = {key for key in scene.before if "/blob/" in key}
        assert parts_of(scene.laptop, "old.txt") == [0, 0]
        scene.meet(scene.laptop, scene.core)
        assert not scene.new_names()
        scene.snapshot(scene.core)
        scene.meet(scene.laptop, scene.core)
        assert blobs <= scene.world.store.objects.keys()
        assert parts_of(scene.core, "old.txt") == [0, 0]
        late = scene.world.add_home("late")
        for _ in range(3):
            scene.world.run_round(late)
        assert late.disk is not None
        assert late.disk.files["old.txt"].data == OLD
        scene.world.agree()


def test_a_part_that_was_there_before_has_another_name_and_one_blob_in_a_generation() -> None:
    with small():
        scene = Scene("again")
        text = OLD[:24] + b"and then something else"
        for home, path in ((scene.laptop, "one.txt"), (scene.core, "other.txt")):
            scene.file(home, path, text)
            scene.meet(scene.laptop, scene.core)
        one, other = (parts_of(scene.core, path) for path in ("one.txt", "other.txt"))
        assert one == other
        assert all(isinstance(named, bytes) for named in one)
        assert not scene.guesses(OLD[:24]) & scene.new_names()
        assert len(scene.new_names()) == len(one)
        scene.world.agree()


def test_a_copy_of_a_whole_file_of_before_is_not_sent_and_shows_nothing() -> None:
    with small():
        scene = Scene("copied")
        scene.file(scene.laptop, "copy.txt", OLD)
        scene.meet(scene.laptop, scene.core)
        assert parts_of(scene.core, "copy.txt") == [0, 0]
        assert not scene.new_names()
        scene.world.agree()


def test_a_new_file_and_a_copy_that_share_a_part_and_go_together_are_named_each_in_its_own_way() -> None:
    with small():
        scene = Scene("together")
        old = {key for key in scene.before if "/blob/" in key}
        put: list[str] = []
        scene.world.store.asked = lambda _name, request: put.extend(_keys_put(request))
        scene.file(scene.laptop, "a new one.txt", OLD[:24] + b"and then something else")
        scene.file(scene.laptop, "copy.txt", OLD)
        scene.file(scene.laptop, "the new one again.txt", OLD[:24] + b"and then something else")
        scene.meet(scene.laptop, scene.core)
        assert parts_of(scene.core, "copy.txt") == [0, 0]
        for path in ("a new one.txt", "the new one again.txt"):
            assert all(isinstance(named, bytes) for named in parts_of(scene.core, path))
        assert put
        assert not old & set(put)
        scene.world.agree()


def _keys_put(request: Request) -> list[str]:
    if isinstance(request, PutBlobs):
        return [key for key, _ in request.blobs]
    return [request.key] if isinstance(request, PutBlob) else []
