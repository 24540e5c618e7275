"""A second reader of snapshots, and of the file tree, written from docs/protocol.md alone; see ``independent_vault.py``."""

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tests.crypto.independent_blob import generation_name, read_blob
from tests.crypto.independent_reader import mac, sha256, unzstd
from tests.mirror.independent_memories import Kept, add_rows

Row = tuple[Any, ...]
TURNS = 4


@dataclass
class Blobs:
    """The blobs of a vault, with what opens them."""

    vault: bytes
    objects: dict[str, bytes]
    generations: dict[int, bytes]
    name_key: bytes

    def name(self, content: bytes, named: int | bytes) -> bytes:
        if isinstance(named, bytes):
            return named
        return mac(self.name_key, content + (bytes([named]) if named else b""))

    def read(self, content: bytes, length: int, named: int | bytes) -> bytes:
        name = self.name(content, named)
        data = self.objects[f"v/{self.vault.hex()}/blob/{name.hex()}"]
        g = int.from_bytes(data[8:12], "big")
        found = read_blob(
            data,
            vault=self.vault,
            name=name,
            g=g,
            generation_key=self.generations[g],
            content_hash=content,
        )
        if isinstance(named, bytes):
            made = (
                generation_name(self.vault, g, self.generations[g], content, turn) for turn in range(TURNS)
            )
            assert named in made, "nothing was put back in these vaults under a later key"
        assert len(found) == length
        assert sha256(found) == content
        return found


@dataclass
class Rows:
    """What the parts of a snapshot hold together."""

    chunks: dict[bytes, list[bytes]] = field(default_factory=dict[bytes, list[bytes]])
    occurrences: dict[Row, Row] = field(default_factory=dict[Row, Row])
    kept: Kept = field(default_factory=Kept)
    suppressed: set[bytes] = field(default_factory=set[bytes])
    done: dict[tuple[bytes, bytes], set[int]] = field(default_factory=dict[tuple[bytes, bytes], set[int]])
    files: dict[str, Row] = field(default_factory=dict[str, Row])
    condemned: set[bytes] = field(default_factory=set[bytes])


def read_snapshot(announced: list[Any], blobs: Blobs) -> Rows:
    """The rows of the snapshot that a batch announces."""
    epoch, sequence, previous, digest, content, length, named = announced
    manifest = msgspec.msgpack.decode(blobs.read(content, length, named))
    version, *stated, _model, parts, _ends = manifest
    assert (version, stated) == (1, [epoch, sequence, previous, digest])
    rows = Rows()
    for part in parts:
        _add(rows, msgspec.msgpack.decode(blobs.read(*part)))
    return rows


def _add(rows: Rows, part: list[Any]) -> None:
    version, names, devices, frames, frame_lengths, frame_of, text_lengths = part[:7]
    windows, size, vectors, known, places, chunk_of, place_of = part[7:14]
    uuids, tails, messages, pieces, roles, moments = part[14:20]
    suppressed, acks, sparse, files, condemned = part[21:26]
    assert version == 1
    texts = _texts(frames, frame_lengths, frame_of, text_lengths)
    contents = [sha256(text) for text in texts]
    at = 0
    for content, count in zip(contents, windows, strict=True):
        assert content not in rows.chunks
        rows.chunks[content] = [vectors[at + i * size : at + (i + 1) * size] for i in range(count)]
        at += count * size
    assert at == len(vectors)
    numbered = contents + known
    assert set(known) <= set(rows.chunks)
    moment = 0
    models = [names[n] for n in part[34]] if len(part) > 34 else [""] * len(chunk_of)
    columns = zip(
        chunk_of, place_of, _messages(uuids, tails, messages), pieces, roles, moments, models, strict=True
    )
    for chunk, place, message, piece, role, step, model in columns:
        moment += step
        content = numbered[chunk]
        agent, session, project, repository, source = (names[n] for n in places[place][:5])
        row = (
            agent,
            session,
            project,
            repository,
            source,
            devices[places[place][5]],
            content,
            message,
            piece,
            names[role],
            moment,
            *([model] if model else []),
        )
        rows.occurrences[content, session, message, piece, agent] = row
    add_rows(rows.kept, names, devices, numbered, part)
    rows.suppressed |= set(suppressed)
    for device, incarnation, top in acks:
        rows.done.setdefault((device, incarnation), set()).update(range(top + 1))
    for device, incarnation, number in sparse:
        rows.done.setdefault((device, incarnation), set()).add(number)
    for path, device, incarnation, number, executable, modified_at, gone, packed in files:
        rows.files[path] = ((device, incarnation, number), executable, modified_at, gone, packed)
    rows.condemned |= set(condemned)


def _texts(
    frames: list[bytes], lengths: list[int], frame_of: list[int], text_lengths: list[int]
) -> list[bytes]:
    plain = [
        frame if len(frame) == length else unzstd(frame, length)
        for frame, length in zip(frames, lengths, strict=True)
    ]
    at = [0] * len(plain)
    texts: list[bytes] = []
    for number, length in zip(frame_of, text_lengths, strict=True):
        texts.append(plain[number][at[number] : at[number] + length])
        at[number] += length
    assert at == [len(frame) for frame in plain]
    return texts


def _messages(uuids: bytes, tails: list[str], codes: list[int]) -> Iterator[str]:
    ids = iter([uuids[i : i + 16].hex() for i in range(0, len(uuids), 16)])
    left = iter(tails)
    before = ""
    for code in codes:
        if code == 1:
            i = next(ids)
            before = f"{i[:8]}-{i[8:12]}-{i[12:16]}-{i[16:20]}-{i[20:]}"
        elif code >= 2:
            before = before[: code - 2] + next(left)
        yield before
    assert next(ids, None) is None
    assert next(left, None) is None


def put(
    files: dict[str, Row], condemned: set[bytes], blobs: Blobs, origin: Row, operation: list[Any]
) -> None:
    """A put, by the document's rules for the tree."""
    _, path, base, executable, modified_at, parts = operation
    named = [(part[0], part[1], part[2] if len(part) > 2 else 0) for part in parts]
    if any(blobs.name(content, which) in condemned for content, _, which in named):
        return
    packed = b"".join(_packed(*part) for part in named)
    row = files.get(path)
    if row is not None and not row[3] and base is not None and tuple(base) == row[0]:
        target = path
    elif row is not None and not row[3] and (row[1], _contents(row[4])) == (executable, _contents(packed)):
        return
    elif (row is None or row[3]) and _free(files, path):
        target = path
    else:
        target = _beside(path, origin)
        assert _free(files, target), "this reader knows the first conflict path only"
    files[target] = (origin, executable, modified_at, False, packed)


def drop(files: dict[str, Row], origin: Row, operation: list[Any]) -> None:
    _, path, base = operation
    row = files.get(path)
    if row is not None and not row[3] and row[0] == tuple(base):
        files[path] = (origin, False, 0, True, b"")


def _contents(packed: bytes) -> list[bytes]:
    found: list[bytes] = []
    while packed:
        found.append(packed[:32])
        packed = packed[68:] if packed[32] & 0x80 else packed[37:]
    return found


def _packed(content: bytes, length: int, which: int | bytes) -> bytes:
    if isinstance(which, bytes):
        return content + (length + 2**31).to_bytes(4, "big") + which
    return content + length.to_bytes(4, "big") + bytes([which])


def _folded(path: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", path).casefold())


def _free(files: dict[str, Row], path: str) -> bool:
    form = _folded(path)
    living = [_folded(other) for other, row in files.items() if not row[3]]
    return not any(
        other == form or form.startswith(other + "/") or other.startswith(form + "/") for other in living
    )


def _beside(path: str, origin: Row) -> str:
    folder, slash, name = path.rpartition("/")
    stem, dot, suffix = name.rpartition(".")
    if not stem:
        stem, dot, suffix = name, "", ""
    return f"{folder}{slash}{stem} (conflict {origin[0].hex()[:8]}-{origin[2]}){dot}{suffix}"
