"""Texts to embed before operations are applied: at least those whose vectors applying them will request.

There may be a few more: only applying shows whether an operation on a document has an effect, and whether a text that it
removes from its place is used elsewhere.
"""

from collections.abc import Sequence
from hashlib import sha256

from crystal_core.database import Database
from crystal_core.schema import WHOLE
from crystal_crypto.hierarchy import VaultSecret
from crystal_mirror.operations import (
    Amend,
    Capture,
    ChangeFiles,
    DropDocument,
    DropFile,
    DropSource,
    Forget,
    LinkProjects,
    Operation,
    PutDocument,
    PutFile,
    PutSource,
    Remember,
    Replace,
)
from crystal_mirror.types import ACTION_ROLES


def unembedded(database: Database, secret: VaultSecret, operations: Sequence[Operation]) -> list[str]:
    """Return the texts for which applying the operations may request vectors, each once, in that order."""
    foresight = _Foresight(database, secret)
    for operation in operations:
        foresight.take(operation)
    return list(foresight.wanted)


class _Foresight:
    def __init__(self, database: Database, secret: VaultSecret) -> None:
        self._database = database
        self._secret = secret
        self._present: dict[bytes, bool] = {}
        self._suppressed: dict[bytes, bool] = {}
        self._placed: dict[str, dict[str, set[bytes]]] = {}
        """By source and path: texts that earlier operations put into documents."""
        self.wanted: dict[str, None] = {}

    def take(self, operation: Operation) -> None:
        match operation:
            case Capture():
                # Tool calls are found by their words alone.
                self._texts([piece.text for piece in operation.pieces if piece.role not in ACTION_ROLES])
            case Remember():
                forget_hash = self._forget_hash(operation.text)
                self._suppressed[forget_hash] = False
                self._text(forget_hash, operation.text)
            case Forget():
                for forget_hash in operation.targets:
                    self._suppressed[forget_hash] = True
                    self._present[forget_hash] = False
            case Replace():
                for each in operation.replaced:
                    self._suppressed[each.target] = True
                    self._texts([each.text])
                    self._present[each.target] = False
            case PutDocument():
                self._texts(operation.texts)
                self._put(operation)
            case DropDocument():
                self._leave(operation.source, operation.path, 0, WHOLE)
            case DropSource():
                self._leave(operation.name, None, 0, WHOLE)
            case Amend() | PutFile() | DropFile() | ChangeFiles() | PutSource() | LinkProjects():
                pass  # no text

    def _texts(self, texts: Sequence[str]) -> None:
        for text in texts:
            forget_hash = self._forget_hash(text)
            if not self._is_suppressed(forget_hash):
                self._text(forget_hash, text)

    def _text(self, forget_hash: bytes, text: str) -> None:
        if forget_hash not in self._present:
            self._present[forget_hash] = bool(
                self._database.rows(
                    "SELECT 1 FROM chunks WHERE forget_hash = ? AND provisional = 0", (forget_hash,)
                )
            )
        if not self._present[forget_hash]:
            self.wanted[text] = None
            self._present[forget_hash] = True

    def _put(self, operation: PutDocument) -> None:
        """Texts at the places of its pieces may be removed, except those that it has itself."""
        end = operation.first + len(operation.texts)
        before = dict(self._present)
        self._leave(
            operation.source, operation.path, operation.first, WHOLE if end == operation.total else end
        )
        placed = self._placed.setdefault(operation.source, {}).setdefault(operation.path, set())
        for text in operation.texts:
            forget_hash = self._forget_hash(text)
            placed.add(forget_hash)
            if forget_hash in before:
                self._present[forget_hash] = before[forget_hash]

    def _leave(self, source: str, path: str | None, first: int, beyond: int) -> None:
        for (forget_hash,) in self._database.each(
            "SELECT c.forget_hash FROM documents d JOIN document_parts p ON p.document = d.rowid"
            " JOIN chunks c ON c.rowid = p.chunk"
            " WHERE d.source = ? AND (?2 IS NULL OR d.path = ?2) AND p.part >= ? AND p.part < ?",
            (source, path, first, beyond),
        ):
            self._present[forget_hash] = False
        for placed_at, placed in self._placed.get(source, {}).items():
            if path in (None, placed_at):
                self._present.update(dict.fromkeys(placed, False))

    def _is_suppressed(self, forget_hash: bytes) -> bool:
        if forget_hash not in self._suppressed:
            self._suppressed[forget_hash] = bool(
                self._database.rows("SELECT 1 FROM suppressed WHERE forget_hash = ?", (forget_hash,))
            )
        return self._suppressed[forget_hash]

    def _forget_hash(self, text: str) -> bytes:
        return self._secret.forget_hash(sha256(text.encode()).digest())
