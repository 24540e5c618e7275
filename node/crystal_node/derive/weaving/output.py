"""Output of the Dream Weaver on this device: an agent's folder, and memories.

Nothing is written through a link. A page that a person changed is kept in ``memory/former/`` beside the new one. Memories are
accepted in one transaction with a note of their batch, in the same journal, so that a crash neither loses nor doubles them.

``hand_on`` and ``take_over`` carry from one Core to the next up to when an agent's past was woven, in a file that travels with
the journals, because weaver.db stays on its machine. The next Core does not read, and pay for, anything up to the newest
message that was read; what arrives late from before is left out, unless everything is asked for (``--mode full``). A claim
about the future counts for nothing.
"""

from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Annotated

import msgspec

from crystal_core.memories import memory as kept_memory
from crystal_core.weaver.answers import ExtractedMemory
from crystal_core.weaver.database import WeaverDatabase
from crystal_core.weaver.documents import JOURNALS, PAGES, WOVEN
from crystal_core.weaver.records import Method, Run
from crystal_core.weaver.sources import WeaverSource
from crystal_crypto.errors import UNDECODABLE
from crystal_mirror.operations import Remember
from crystal_node.base.agent_names import agent_folder
from crystal_node.base.decoding import from_json
from crystal_node.base.errors import LocalStorage, UsageError
from crystal_node.base.home import DIRECTORY_MODE, write_private
from crystal_node.capture.line_reader import NotAFile, open_regular
from crystal_node.capture.recorder import clean_text
from crystal_node.device.device import Device
from crystal_node.device.privacy import PrivateNow, read_privacy

FILE_BYTES_MAX = 8 * 1024 * 1024
"""A larger page is neither read nor replaced."""
FORMER = "memory/former"
WOVEN_CONFIDENCE = 70
"""Confidence of a memory in a language model's words: less than of a person's."""
_META = "node.woven."


class DeviceOutput:
    """One agent's files and memories. ``allowed`` is called before each write and raises if this device may not write."""

    def __init__(
        self, device: Device, database: WeaverDatabase, agent: str, allowed: Callable[[], None]
    ) -> None:
        self._device = device
        self._database = database
        self._agent = agent
        self._allowed = allowed
        self._folder = agent_folder(device.settings.home, agent)
        self._marker = _META + sha256(agent.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def read(self, name: str) -> str | None:
        path = self._path(name)
        try:
            with open_regular(path) as file:
                data = file.read(FILE_BYTES_MAX + 1)
        except FileNotFoundError:
            return None
        except NotAFile as error:
            raise LocalStorage(f"{path} is no file", hint="Remove it; nothing was written.") from error
        if len(data) > FILE_BYTES_MAX:
            raise LocalStorage(f"{path} is over {FILE_BYTES_MAX // 2**20} MiB", hint="Move it elsewhere.")
        return data.decode("utf-8", "replace")

    def write(self, name: str, text: str, method: Method, run: str) -> bool:
        return self._write(name, text, method, run, keep=True)

    def rewrite(self, name: str, text: str, method: Method, run: str) -> bool:
        """As ``write``, without keeping the old text: something in it was forgotten. Makes no file that is gone."""
        return self.read(name) is not None and self._write(name, text, method, run, keep=False)

    def is_as_written(self, name: str) -> bool:
        """Whether a file is as this machine last wrote it."""
        text = self.read(name)
        return text is not None and _is_ours(text, self._database.written(self._agent, name))

    def _write(self, name: str, text: str, method: Method, run: str, *, keep: bool) -> bool:
        self._allowed()
        data = text.encode("utf-8", "replace")
        before = self.read(name)
        digest = sha256(data).digest()
        if before is not None and before.encode() == data:
            self._note(name, digest, method)
            return False
        known = self._database.written(self._agent, name)
        keep = keep and name != WOVEN
        if keep and before is not None and before not in text and not _is_ours(before, known):
            stem = name.rpartition("/")[2].removesuffix(".md")
            former = self._path(f"{FORMER}/{stem}-{run}.md")
            if not former.exists():
                self._put(former, before.encode())
        self._put(self._path(name), data)
        self._note(name, digest, method)
        return True

    def remember(self, run: str, number: int, memories: Sequence[ExtractedMemory], moment: int) -> int:
        self._allowed()
        journal = self._device.journal
        place = f"{run}:{number}:"

        def taken_before() -> int | None:
            value = (journal.meta_get(self._marker) or b"").decode()
            return int(value.removeprefix(place)) if value.startswith(place) else None

        before = taken_before()
        if before is not None:
            return before
        operations = [
            Remember(text, memory.category.value, self._agent, moment, WOVEN_CONFIDENCE, scope=memory.scope)
            for memory in memories
            if (text := _clean(memory.text)) and self._is_new(sha256(text.encode()).digest())
        ]

        def mark() -> None:
            if read_privacy(journal).on:
                raise PrivateNow("private mode is on: nothing is recorded")
            assert taken_before() is None, "one process weaves at a time"
            journal.meta_set(self._marker, f"{place}{len(operations)}".encode())

        if operations:
            self._device.accept(operations, mark)
        return len(operations)

    def _is_new(self, content: bytes) -> bool:
        """Whether it is neither forgotten nor a memory of any state: a model changes no existing memory."""
        replica = self._device.replica
        return not replica.hides(content) and kept_memory(replica.database, content) is None

    def _note(self, name: str, digest: bytes, method: Method) -> None:
        if self._database.written(self._agent, name) != (digest, method):
            self._database.set_written(self._agent, name, digest, method)

    def _path(self, name: str) -> Path:
        """Raises LocalStorage if a link is on the way."""
        assert name in (*PAGES, WOVEN) or name.startswith((f"{JOURNALS}/", f"{FORMER}/")), "names are ours"
        home = self._device.settings.home.root
        path = self._folder / name
        for part in (path, *path.parents):
            if part == home:
                break
            if part.is_symlink():
                raise LocalStorage(
                    f"{part} is a link", hint="Put the file or folder itself there; nothing was written."
                )
        return path

    def _put(self, path: Path, data: bytes) -> None:
        for folder in reversed(path.parents):
            if folder.is_relative_to(self._device.settings.home.root):
                folder.mkdir(DIRECTORY_MODE, exist_ok=True)
        write_private(path, data)


def _is_ours(text: str, known: tuple[bytes, Method] | None) -> bool:
    return known is not None and known[0] == sha256(text.encode()).digest()


def _clean(text: str) -> str:
    try:
        return clean_text(text).text
    except UsageError:  # nothing is left of it
        return ""


class _Woven(msgspec.Struct, frozen=True):
    database: Annotated[str, msgspec.Meta(max_length=64)]
    until: Annotated[int, msgspec.Meta(ge=0, le=2**53)]
    version: int = 1


def take_over(output: DeviceOutput, database: WeaverDatabase, agent: str, now_ms: int) -> None:
    """Applies what another machine has handed on. Idempotent."""
    found = _read(output)
    if found is None or found.database == database.id or found.until > now_ms:
        return
    if found.until > database.assumed_until(agent):
        database.assume(agent, found.until)


def hand_on(
    output: DeviceOutput, database: WeaverDatabase, run: Run, sources: Sequence[WeaverSource], now_ms: int
) -> None:
    """Writes the file for the next Core, after a run with a model. Messages of the future do not count."""
    until = max((one.moment for one in sources if one.moment <= now_ms), default=0)
    text = msgspec.json.format(msgspec.json.encode(_Woven(database.id, until)), indent=2).decode() + "\n"
    output.write(WOVEN, text, run.method, run.id)


def _read(output: DeviceOutput) -> _Woven | None:
    text = output.read(WOVEN)
    try:
        return from_json(text, _Woven) if text else None
    except UNDECODABLE:
        return None
