"""The memory's indexes, compared with its rows, and the embedding model's files.

An index can be written anew from the rows at any time. Rows cannot: where they are not what they should be, the memory is made
anew from the log by `crystal repair`, which asks the relay.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from crystal_core.errors import VaultDamaged
from crystal_node.agent.health.findings import Check, State
from crystal_node.base.errors import ExitCode, LocalStorage
from crystal_node.base.settings import Settings
from crystal_node.base.wording import counted

if TYPE_CHECKING:
    from crystal_core.database import Database
    from crystal_node.device.device import Device

_REPAIR = "`crystal repair` makes the memory anew from the log; nothing that waits to be sent is touched."


def indexes(device: "Device", *, deep: bool) -> Iterator[Check]:
    """The index of words, that of vectors, and with ``deep`` every constraint and every row's digest."""
    database = device.replica.database
    found = [*_words(device), *_vectors(database)]
    if not found and deep:
        found = [*_deep(device)]
    if found:
        yield from found
        return
    texts = int(database.value("SELECT count(*) FROM chunks"))
    yield Check("indexes", State.OK, f"words and vectors of {counted(texts, 'text')} are indexed as they are")


def model() -> Iterator[Check]:
    """All files of the model that embeds texts, by their hashes."""
    from crystal_core.embed.builtin import BuiltinEmbedder

    embedder = BuiltinEmbedder()
    embedder.check()
    yield Check(
        "model", State.OK, f"{embedder.identity.partition('/')[0]}: its files are those that were shipped"
    )


def embedding(device: "Device") -> Iterator[Check]:
    """Whether texts and queries get vectors as the settings say. Asks no provider: `crystal embed status` does."""
    from crystal_mirror.entries.control_state import META_MODEL
    from crystal_node.models.embedding.selection import query_embedder
    from crystal_node.sync.embedding_notes import META_PROBLEM

    vault = (device.replica.meta_get(META_MODEL) or b"").decode()
    problem = (device.journal.meta_get(META_PROBLEM) or b"").decode() if device.member.is_core else ""
    if problem:
        what = f"new texts get no vectors for now: {problem}"
        yield Check("embedding", State.WARNING, what, "`crystal embed status` tries the provider.")
        return
    found, reason = query_embedder(device.settings, vault)
    if found is not None:
        found.close()
        yield Check("embedding", State.OK, f"queries are embedded with {vault}")
    elif vault:
        what = f"searches go by words alone: {reason}"
        yield Check("embedding", State.WARNING, what, "`crystal embed status` says more.")
    else:
        yield Check("embedding", State.OK, "there are no vectors yet")


def _words(device: "Device") -> Iterator[Check]:
    settings = device.settings
    try:
        device.replica.database.run("INSERT INTO chunks_fts (chunks_fts, rank) VALUES ('integrity-check', 1)")
    except VaultDamaged as error:
        yield Check(
            "indexes",
            State.FAILED,
            f"the index of words is not what the texts are: {error}",
            "`crystal doctor --fix` writes it anew from the texts.",
            ExitCode.STORAGE,
            mend=lambda: _rebuild(settings),
        )


def _vectors(database: "Database") -> Iterator[Check]:
    if not database.value("SELECT dimensions FROM index_state"):
        return
    windows = int(database.value("SELECT count(*) FROM windows"))
    kept = int(database.value("SELECT count(*) FROM chunks_vec_rowids"))
    if windows != kept:
        what = f"{windows:,} vectors are listed and {kept:,} kept: searching by meaning misses texts"
        yield Check("indexes", State.FAILED, what, _REPAIR, ExitCode.STORAGE)


def _deep(device: "Device") -> Iterator[Check]:
    from crystal_node.sync.maintenance.verification import verify

    settings, faults = device.settings, device.replica.database.check()
    if faults:
        yield Check(
            "indexes",
            State.FAILED,
            f"{device.replica.database.path}: {faults[0]}",
            "`crystal doctor --fix` writes the indexes anew from the rows.",
            ExitCode.STORAGE,
            mend=lambda: _rebuild(settings),
        )
    elif not verify(device, passes_damage=True).ok:
        what = "the memory's rows are not those that the log gives"
        yield Check("indexes", State.FAILED, what, _REPAIR, ExitCode.STORAGE)


def _rebuild(settings: Settings) -> str:
    from crystal_core.fulltext import rebuild
    from crystal_node.device.device import opened

    with opened(settings) as device:
        database = device.replica.database
        with database.transaction():
            rebuild(database)
        left = database.check()
    if left:
        raise LocalStorage(f"{database.path} is damaged itself: {left[0]}", hint=_REPAIR)
    return "wrote the indexes of the memory anew from its rows"
