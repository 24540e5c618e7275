"""What is inside of sealed entries and blobs, as a member can seal it, and the names of objects that a relay lists.

The encodings are MessagePack, which has more than one form for a number: what was read is written and read again, and must be
the same value.
"""
# pyright: reportPrivateUsage=false

import unicodedata
from collections.abc import Iterable, Sequence
from typing import cast

import msgspec

from crystal_crypto.entry import Channel, Entry, Header, Kind
from crystal_crypto.errors import UNDECODABLE, Malformed
from crystal_crypto.hierarchy import GenerationKey
from crystal_mirror import file_paths, operations
from crystal_mirror.commands.messages import (
    Action,
    Arguments,
    CommandState,
    Message,
    Report,
    Request,
    Withdraw,
    decode_message,
    encode_message,
)
from crystal_mirror.devicelog.records import (
    Details,
    NameRecord,
    Record,
    decode_record,
    encode_details,
    encode_record,
    entry_details,
)
from crystal_mirror.entries.batches import Announced, Batch, Pack, decode_batch, encode_batch
from crystal_mirror.entries.offers import open_offer
from crystal_mirror.membership import cursors
from crystal_mirror.operations import (
    Amend,
    Capture,
    ChangeFiles,
    DropDocument,
    DropFile,
    DropSource,
    FilePart,
    Forget,
    LinkProjects,
    Piece,
    PutDocument,
    PutFile,
    PutSource,
    Remember,
    Replace,
    Replaced,
    decode_operation,
    encode_operation,
)
from crystal_mirror.snapshots.blobs import BlobRef
from crystal_mirror.snapshots.manifest import Manifest, decode_manifest, encode_manifest
from crystal_mirror.snapshots.packs import packed, unpacked
from crystal_mirror.store_keys import StoreKeys
from crystal_mirror.types import Origin
from tests.fuzz.seeds import with_nested
from tests.fuzz.target import Target
from tests.mirror.logs import Logbook

_HASH = bytes(range(32))
_DEVICE = bytes(range(16))
_ANNOUNCED = Announced(3, 9, _HASH, _HASH, _HASH, 512, 0)
_BOOK = Logbook.founded()
_KEY = _BOOK.key(1)
_KEYS = StoreKeys(_BOOK.log.vault)

_OPERATIONS: tuple[operations.Operation, ...] = (
    Capture("main", "s", "src/x", "host/x", "claude-code", (Piece("text", "user", 1, "m", 0),)),
    Capture(
        "main", "s", "", "", "codex", (Piece("a", "user", 5, "7d0c6f0e-0b5e-4d0e-9a52-0f3f9f0f0a01", 0),) * 2
    ),
    Remember("tea, no sugar", "preference", "main", 5, 90, (_HASH,), "host/x"),
    Amend(_HASH, "fact", 50, "retired", "main", 7, ""),
    Forget((_HASH, bytes(32))),
    Replace((Replaced(_HASH, "the key is [redacted:assignment]"),)),
    PutFile("agents/main/CONTEXT.md", None, False, 4, (FilePart(_HASH, 9, 0), FilePart(_HASH, 9, _HASH))),
    DropFile("agents/main/CONTEXT.md", (_DEVICE, bytes(8), 3)),
    ChangeFiles((PutFile("a.md", None, False, 4, ()), DropFile("b.md", (_DEVICE, bytes(8), 3)))),
    PutSource("notes", "", ("*.md",), (), 0),
    DropSource("notes"),
    PutDocument("notes", "a.md", _HASH, 0, "md", 0, 1, ("text",), ("title",)),
    DropDocument("notes", "a.md"),
    LinkProjects(("src/x", ""), ("", "host/x"), True, 0),
)
_BATCH = Batch(
    operations=((Origin(_DEVICE, bytes(8), 3), encode_operation(_OPERATIONS[2])),),
    also_done=(Origin(_DEVICE, bytes(8), 4),),
    vectors=((b"12345678",),),
    model="built-in",
    digest=_HASH,
    announced=_ANNOUNCED,
    floor=(1, 2),
    condemned=(_HASH,),
    packs=(Pack(1, 0, 64, _HASH, 900, 0),),
)
_MESSAGES: tuple[Message, ...] = (
    Request(_DEVICE, Action.VERIFY.value, Arguments(agent="main", limit=3), 1, 9),
    Report(_DEVICE, 1, CommandState.DONE, "done", b"{}", 3, 3),
    Withdraw(_DEVICE),
)


def _operation(data: bytes) -> None:
    found = decode_operation(data)
    assert decode_operation(encode_operation(found)) == found


def _framed(frames: Iterable[bytes]) -> bytes:
    return b"".join(len(frame).to_bytes(2, "big") + frame for frame in frames)


def _frames(data: bytes) -> list[bytes]:
    found: list[bytes] = []
    while len(data) >= 2:
        length = int.from_bytes(data[:2], "big")
        found.append(data[2 : 2 + length])
        data = data[2 + length :]
    return found


def _batch(data: bytes) -> None:
    found = decode_batch(_frames(data))
    assert decode_batch([frame.data for frame in encode_batch(found)]) == found
    found.decoded()


def _batch_seeds() -> Iterable[bytes]:
    head, *rest = [frame.data for frame in encode_batch(_BATCH)]
    yield from (_framed([each, *rest]) for each in with_nested([head]))
    yield _framed([head, b""])


class _Opened:
    """An authentic entry with these frames. Sealing one for each input would take nearly all of the time."""

    header = Header(
        kind=Kind.OFFER,
        channel=Channel.CONVERSATIONS,
        vault=bytes(16),
        sender=_DEVICE,
        incarnation=bytes(8),
        epoch=1,
        generation=1,
        log_head=_HASH,
        sequence=1,
        previous=_HASH,
    )

    def __init__(self, frames: list[bytes]) -> None:
        self._frames = frames

    def open(self, _key: GenerationKey) -> list[bytes]:
        return self._frames


def _opened(data: bytes) -> Entry:
    return cast("Entry", _Opened(_frames(data)))


def _offer(data: bytes) -> None:
    open_offer(_opened(data), _KEY)


def _manifest(data: bytes) -> None:
    found = decode_manifest(data, _ANNOUNCED)
    stated = {name: getattr(_ANNOUNCED, name) for name in ("epoch", "sequence", "previous", "digest")}
    assert decode_manifest(encode_manifest(**stated, manifest=found), _ANNOUNCED) == found


def _manifest_seeds() -> Iterable[bytes]:
    manifest = Manifest(b"built-in", (BlobRef(_HASH, 900, 0), BlobRef(_HASH, 900, _HASH)), ((1, 9),))
    stated = {name: getattr(_ANNOUNCED, name) for name in ("epoch", "sequence", "previous", "digest")}
    return with_nested([encode_manifest(**stated, manifest=manifest)])


def _pack(data: bytes) -> None:
    found = unpacked(data)
    assert unpacked(packed(found)) == found


def _command(data: bytes) -> None:
    found = decode_message(data)
    assert decode_message(encode_message(found)) == found


def _record(data: bytes) -> None:
    found = decode_record(data)
    if found is not None:
        assert decode_record(encode_record(found)) == found


def _device_log(data: bytes) -> None:
    """A record by the root, in its place and signed; the log judges it, and says no more than that it is void."""
    made = _BOOK.seal(data, frames=[])
    taken = _BOOK.log.would_take(made)
    assert not taken or decode_record(data) is not None


def _record_seeds() -> Iterable[bytes]:
    records: list[Record] = [
        NameRecord(_BOOK.core.id),
        _BOOK.add(_BOOK.laptop),
        _BOOK.revoke(_BOOK.phone.id),
        _BOOK.generation(),
        _BOOK.root_record(_BOOK.root),
    ]
    return with_nested(encode_record(record) for record in records)


def _details(data: bytes) -> None:
    found = entry_details(_opened(data), _KEY)
    assert found is None or len(found.name) <= 1000


def _details_seeds() -> Iterable[bytes]:
    return (_framed([each]) for each in with_nested([encode_details(Details("laptop", "Linux", 5))]))


def _cursor(data: bytes) -> None:
    body = cursors._body_decoder.decode(data)
    assert cursors._body_decoder.decode(msgspec.msgpack.encode(body)) == body


def _cursor_seeds() -> Iterable[bytes]:
    body = cursors._Body(1, 9, _HASH, 0, 5, False, "0.1.0", _HASH, (1, 2), _DEVICE)
    return with_nested([msgspec.msgpack.encode(body)])


def _keys(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    prefixed = [text]
    prefixed += [prefix + text for prefix in (_KEYS.conversations_prefix, _KEYS.commands_prefix)]
    for key in prefixed:
        found = _KEYS.parse_stream(key)
        assert found is None or _KEYS.conversation(*found) == key
        found = _KEYS.parse_command(key)
        assert found is None or _KEYS.command(*found) == key
    prefix = _KEYS.epoch_prefix(1)
    slot = _KEYS.parse_slot(prefix, prefix + text)
    assert slot is None or _KEYS.mirror(1, slot) == prefix + text


def _key_seeds() -> Sequence[bytes]:
    whole = _KEYS.conversation(_DEVICE, bytes(8), 3)
    return [
        whole.encode(),
        whole[len(_KEYS.conversations_prefix) :].encode(),
        _KEYS.mirror(1, 5)[len(_KEYS.epoch_prefix(1)) :].encode(),
    ]


def _path(data: bytes) -> None:
    path = data.decode("utf-8", "surrogateescape")
    file_paths.check_path(path)
    assert unicodedata.is_normalized("NFC", path)
    other = file_paths.conflict_path(path, _DEVICE, 3)
    assert len(other.encode()) <= file_paths.PATH_BYTES_MAX
    file_paths.folded(path)


TARGETS = (
    Target(
        "mirror.operation",
        _operation,
        (Malformed,),
        lambda: with_nested(encode_operation(operation) for operation in _OPERATIONS),
    ),
    Target("mirror.batch", _batch, (Malformed,), _batch_seeds),
    Target(
        "mirror.offer",
        _offer,
        (Malformed,),
        lambda: [_framed([b"\x91\xc0", encode_operation(each)]) for each in _OPERATIONS],
    ),
    Target("mirror.manifest", _manifest, (Malformed,), _manifest_seeds),
    Target("mirror.pack", _pack, UNDECODABLE, lambda: with_nested([packed([b"one", b"two"])])),
    Target(
        "mirror.command",
        _command,
        (Malformed,),
        lambda: with_nested(encode_message(message) for message in _MESSAGES),
    ),
    Target("mirror.record", _record, (), _record_seeds),
    Target("mirror.device_log", _device_log, (), _record_seeds),
    Target("mirror.details", _details, (), _details_seeds),
    Target("mirror.cursor", _cursor, UNDECODABLE, _cursor_seeds),
    Target("mirror.keys", _keys, (), _key_seeds),
    Target(
        "mirror.path",
        _path,
        (Malformed,),
        lambda: [b"agents/main/a b.md", b"a/\xc3\xa9.txt", b"con", b"../x"],
    ),
)
