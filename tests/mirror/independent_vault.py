"""A second reader of a whole vault, written from docs/protocol.md alone: from the root and a relay's objects to the memory.

It stands on the second reader of the byte formats and on a MessagePack decoder, and takes nothing from the project. It is
made for honest logs: it shows that the document says what another implementation has to know, not how to survive a liar.
"""

from dataclasses import dataclass, field
from typing import Any

import msgspec

from tests.crypto.independent_reader import hkdf, label, mac, read_entry, root_keys, sha256
from tests.mirror.independent_log import ROOT, Log, recovery_key
from tests.mirror.independent_memories import Kept
from tests.mirror.independent_snapshot import Blobs, drop, put, read_snapshot

Row = tuple[Any, ...]
PREVIOUS = 120
"""Where an entry's header has the hash before it."""
ALWAYS = ("acks", "chunks", "condemned", "files", "memories", "occurrences", "suppressed")
WITH_ROWS = ("document_parts", "documents", "memory_changes", "project_links", "sources")


def canonical(*values: bytes | str | int) -> bytes:
    """Fields, each behind its length; numbers are 8 bytes."""
    encoded = b""
    for value in values:
        data = (
            value.encode()
            if isinstance(value, str)
            else value.to_bytes(8, "big")
            if isinstance(value, int)
            else value
        )
        encoded += len(data).to_bytes(4, "big") + data
    return encoded


@dataclass
class State:
    """The replicated tables, as the document names them."""

    keys: dict[str, bytes]
    blobs: Blobs
    chunks: dict[bytes, list[bytes]] = field(default_factory=dict[bytes, list[bytes]])
    occurrences: dict[Row, Row] = field(default_factory=dict[Row, Row])
    kept: Kept = field(default_factory=Kept)
    suppressed: set[bytes] = field(default_factory=set[bytes])
    done: dict[tuple[bytes, bytes], set[int]] = field(default_factory=dict[tuple[bytes, bytes], set[int]])
    files: dict[str, Row] = field(default_factory=dict[str, Row])
    condemned: set[bytes] = field(default_factory=set[bytes])

    def apply(self, origin: Row, operation: list[Any], vectors: "list[list[bytes]]") -> None:
        device: bytes = origin[0]
        match operation:
            case ["p", *_]:
                put(self.files, self.condemned, self.blobs, origin, operation)
            case ["d", *_]:
                drop(self.files, origin, operation)
            case ["cf", changes]:
                for change in changes:
                    self.apply(origin, change, vectors)
            case [
                "c",
                agent,
                session,
                project,
                repository,
                source,
                texts,
                roles,
                times,
                messages,
                parts,
                *more,
            ]:
                if isinstance(messages, bytes):
                    ids = [messages[i : i + 16].hex() for i in range(0, len(messages), 16)]
                    messages = [f"{i[:8]}-{i[8:12]}-{i[12:16]}-{i[16:20]}-{i[20:]}" for i in ids]
                models = (more[0] if more else []) or [""] * len(texts)
                moment = 0
                for text, role, step, message, part, model in zip(
                    texts, roles, times, messages, parts, models, strict=True
                ):
                    moment += step
                    content = sha256(text.encode())
                    if self.hidden(content) in self.suppressed:
                        continue
                    self.add_chunk(content, vectors)
                    identity = (content, session, message, part, agent)
                    row = (
                        agent,
                        session,
                        project,
                        repository,
                        source,
                        device,
                        content,
                        message,
                        part,
                        role,
                        moment,
                        *([model] if model else []),
                    )
                    self.occurrences.setdefault(identity, row)
            case ["r", text, *_]:
                content = sha256(text.encode())
                self.suppressed.discard(self.hidden(content))
                self.add_chunk(content, vectors)
                self.kept.remember(content, device, operation, self.hidden)
            case ["a", *_]:
                self.kept.amend(device, operation, self.hidden)
            case ["lp", *_]:
                self.kept.link(device, operation)
            case ["ps", name, *source]:
                self.kept.sources[name] = (device, *source)
            case ["ds", name]:
                self.release(self.kept.drop_source(name))
            case ["dd", source, path]:
                self.release(self.kept.drop_document(device, source, path))
            case ["pd", *_]:
                self.release(self.kept.put_document(device, operation, lambda text: self.take(text, vectors)))
            case ["f", targets]:
                for target in targets:
                    self.forget(target)
            case ["rp", replaced]:
                for target, text in replaced:
                    self.suppressed.add(target)
                    for old in [old for old in self.chunks if self.hidden(old) == target]:
                        new = self.take(text, vectors)
                        if new is not None:
                            for place in [place for place in self.occurrences if place[0] == old]:
                                said = self.occurrences[place]
                                self.occurrences.setdefault((new, *place[1:]), (*said[:6], new, *said[7:]))
                            self.kept.replace(old, new, self.hidden)
                    self.forget(target)
            case _:
                raise AssertionError(f"an operation that the document does not know: {operation[0]}")

    def forget(self, target: bytes) -> None:
        self.suppressed.add(target)
        for content in [content for content in self.chunks if self.hidden(content) == target]:
            del self.chunks[content]
            self.kept.forget(content)
            self.occurrences = {k: v for k, v in self.occurrences.items() if k[0] != content}

    def hidden(self, content: bytes) -> bytes:
        return mac(self.keys["forget"], content)

    def add_chunk(self, content: bytes, vectors: "list[list[bytes]]") -> None:
        if content not in self.chunks:
            self.chunks[content] = vectors.pop(0)

    def take(self, text: str, vectors: "list[list[bytes]]") -> bytes | None:
        content = sha256(text.encode())
        if self.hidden(content) in self.suppressed:
            return None
        self.add_chunk(content, vectors)
        return content

    def release(self, contents: set[bytes]) -> None:
        said = {row[0] for row in self.occurrences}
        for content in contents - said - self.kept.memories.keys() - self.kept.stand():
            del self.chunks[content]

    def mark(self, device: bytes, incarnation: bytes, sequence: int) -> None:
        self.done.setdefault((device, incarnation), set()).add(sequence)

    def digest(self) -> bytes:
        rows: dict[str, list[bytes]] = {table: [] for table in ALWAYS}
        for (device, incarnation), numbers in self.done.items():
            top = next(n for n in range(len(numbers) + 1) if n not in numbers) - 1
            if top >= 0:
                rows["acks"].append(canonical(b"contiguous", device, incarnation, top))
            rows["acks"] += [canonical(b"sparse", device, incarnation, n) for n in numbers if n > top]
        rows["chunks"] = [canonical(content, *windows) for content, windows in self.chunks.items()]
        rows["occurrences"] = [canonical(*row) for row in self.occurrences.values()]
        rows |= self.kept.rows(canonical)
        rows["suppressed"] = [canonical(target) for target in self.suppressed]
        rows["condemned"] = [canonical(name) for name in self.condemned]
        rows["files"] = [
            canonical(path, *version, int(executable), modified_at, int(gone), parts)
            for path, (version, executable, modified_at, gone, parts) in self.files.items()
        ]
        whole = b"crystal/v2/state"
        for table in sorted(rows):
            if table in WITH_ROWS and not rows[table]:
                continue
            hashes = [
                int.from_bytes(mac(self.keys["state"], table.encode() + b"\0" + row), "big")
                for row in rows[table]
            ]
            name = len(table).to_bytes(1, "big") + table.encode()
            whole += name + (sum(hashes) % 2**256).to_bytes(32, "big") + len(hashes).to_bytes(8, "big")
        return sha256(whole)


def read_log(vault: bytes, objects: dict[str, bytes]) -> Log:
    log = Log(vault)
    for slot, key in enumerate(key for key in sorted(objects) if key.startswith(f"v/{vault.hex()}/devlog/")):
        assert key.endswith(f"/{slot:016d}")
        log.judge(objects[key])
    return log


def read_vault(
    root: bytes, objects: dict[str, bytes], vault: bytes | None = None, *, from_snapshot: bool = False
) -> tuple[State, list[bytes]]:
    """The state that the log leads to, and every digest that a batch states, each checked against the state there.

    ``root`` is the one in force; ``vault`` the vault's id, if another root founded it. ``from_snapshot``: the state begins with
    the newest snapshot that is announced, and only what follows it is read.
    """
    vault = vault or root_keys(root)["vault"]
    log = read_log(vault, objects)
    assert log.root is not None
    assert log.root[1] == root_keys(root)["admin"], "the root in force, and no other"
    keys, secret = log.keys(ROOT, recovery_key(root))
    assert sorted(keys) == list(range(1, log.generation + 1))
    derived = {
        name: hkdf(secret, b"", label(f"crystal/v2/secret/{name}"), 32)
        for name in ("state", "forget", "blob-name")
    }
    blobs = Blobs(vault, objects, keys, derived["blob-name"])
    state = State(derived, blobs)
    stated: list[bytes] = []
    slots = _slots(vault, objects, log, keys)
    if from_snapshot:
        announced = [head[6] for _, _, _, (head, *_) in slots if head[6] is not None][-1]
        rows = read_snapshot(announced, blobs)
        for name in vars(rows):
            setattr(state, name, getattr(rows, name))
        assert state.digest() == announced[3], "the snapshot is not of the state that it states"
        slots = [slot for slot in slots if slot[:2] >= (announced[0], announced[1])]
        assert not slots or slots[0][2] == announced[2], "the log goes on behind the snapshot"
    for epoch, slot, _, frames in slots:
        digest = _apply(state, frames)
        assert state.digest() == digest, f"the state after {epoch}/{slot} is not the stated one"
        stated.append(digest)
    return state, stated


def _slots(
    vault: bytes, objects: dict[str, bytes], log: Log, keys: dict[int, bytes]
) -> list[tuple[int, int, bytes, list[Any]]]:
    """Epoch, slot, the hash before it and the frames, the head parsed, of every batch."""
    found: list[tuple[int, int, bytes, list[Any]]] = []
    prefix = f"v/{vault.hex()}/mirror/"
    for key in sorted(key for key in objects if key.startswith(prefix)):
        data = objects[key]
        g = int.from_bytes(data[12:16], "big")
        _, frames = read_entry(data, log.devices[data[32:48]].signing, g, keys[g])
        if frames:  # else a seal
            epoch, slot = key[len(prefix) :].split("/")
            head = msgspec.msgpack.decode(frames[0])
            found.append((int(epoch), int(slot), data[PREVIOUS : PREVIOUS + 32], [head, *frames[1:]]))
    return found


def _apply(state: State, frames: list[Any]) -> bytes:
    """Applies a batch; returns the digest that it states."""
    head, raw, *operations = frames
    origins, also_done, windows, size, _, digest, _, _, condemned, anew, drops, _ = head
    vectors: list[list[bytes]] = []
    at = 0
    for count in windows:
        vectors.append([raw[at + i * size : at + (i + 1) * size] for i in range(count)])
        at += count * size
    if drops:
        state.chunks = {content: [] for content in state.chunks}
    for origin, operation in zip(origins, operations, strict=True):
        state.apply(tuple(origin), msgspec.msgpack.decode(operation), vectors)
        state.mark(*origin)
    for place in also_done:
        state.mark(*place)
    for content in anew:
        fresh = vectors.pop(0)
        if content in state.chunks:
            state.chunks[content] = fresh
    state.condemned |= set(condemned)
    assert not vectors
    return digest  # type: ignore[no-any-return]
