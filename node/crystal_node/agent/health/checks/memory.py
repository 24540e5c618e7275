"""The memory's indexes against its rows, and the embedding model's files.

An index can always be rebuilt from the rows. Wrong rows cannot: `crystal repair` rebuilds the memory from the log, and asks the
relay.
"""

from collections.abc import Iterator

from crystal_core.database import Database
from crystal_core.embed.builtin import BuiltinEmbedder
from crystal_core.errors import VaultDamaged
from crystal_core.inspection import foreign_tables
from crystal_core.search.judge import JudgeUnavailable
from crystal_mirror.entries.control_state import META_MODEL
from crystal_node.agent.health.findings import Finding, FindingName, Severity
from crystal_node.agent.health.vault_findings import vector_findings
from crystal_node.base.errors import ExitCode, LocalStorage
from crystal_node.base.settings import Settings
from crystal_node.base.wording import counted
from crystal_node.device.device import Device, opened
from crystal_node.models.embedding.selection import query_embedder
from crystal_node.models.judge import judge_for
from crystal_node.sync.maintenance.verification import verify

_TABLES_SHOWN = 20
_REPAIR = "`crystal repair` makes the memory anew from the log; nothing that waits to be sent is touched."


def indexes(device: Device, *, deep: bool) -> Iterator[Finding]:
    """The indexes of words and vectors, and with ``deep`` every constraint and every row's digest."""
    database = device.replica.database
    found = [*_words(device), *_vectors(database)]
    if not found and deep:
        found = [*_deep(device)]
    if found:
        yield from found
        return
    texts = int(database.value("SELECT count(*) FROM chunks"))
    yield Finding(
        "indexes", Severity.OK, f"words and vectors of {counted(texts, 'text')} are indexed as they are"
    )


def foreign(device: Device) -> Iterator[Finding]:
    """Tables that another program has put into the memory's file."""
    names = foreign_tables(device.replica.database)
    if names:
        yield Finding(
            "foreign tables",
            Severity.WARNING,
            f"{device.settings.home.database} has tables that are not Crystal's: {', '.join(names[:_TABLES_SHOWN])}",
            "Another program writes into it: the published prototype does, where a hook, an MCP server, a cron job or OpenClaw "
            "starts it: remove that entry. The memory is not harmed; what is in these tables is on no other device.",
        )


def model() -> Iterator[Finding]:
    """The files of the embedding model, by their hashes."""
    embedder = BuiltinEmbedder()
    embedder.check()
    yield Finding(
        "model", Severity.OK, f"{embedder.identity.partition('/')[0]}: its files are those that were shipped"
    )


def embedding(device: Device) -> Iterator[Finding]:
    """Whether texts and queries get vectors as configured. Asks no provider; `crystal embed status` does."""
    vault = (device.replica.meta_get(META_MODEL) or b"").decode()
    problems = [*vector_findings(device)]
    yield from (each.named("embedding") for each in problems)
    if any(each.name == FindingName.NO_VECTORS for each in problems):
        return
    found, reason = query_embedder(device.settings, vault)
    if found is not None:
        found.close()
        yield Finding("embedding", Severity.OK, f"queries are embedded with {vault}")
    elif vault:
        what = f"searches go by words alone: {reason}"
        yield Finding("embedding", Severity.WARNING, what, "`crystal embed status` says more.")
    else:
        yield Finding("embedding", Severity.OK, "there are no vectors yet")


def judge(settings: Settings) -> Iterator[Finding]:
    """Whether the first hits are judged as configured; nothing where no judge is wanted. Loads the model, in seconds."""
    found, reason = judge_for(settings)
    if found is not None:
        try:
            found.prepare()
        except JudgeUnavailable as error:
            reason = f"{error}. {error.hint}".rstrip(".")
        else:
            found.release()
            yield Finding("judge", Severity.OK, f"the first hits are judged by {found.identity}")
    if reason:
        yield Finding("judge", Severity.WARNING, f"hits are not judged: {reason}", "Searches go on without.")


def _words(device: Device) -> Iterator[Finding]:
    settings = device.settings
    try:
        device.replica.database.run("INSERT INTO chunks_fts (chunks_fts, rank) VALUES ('integrity-check', 1)")
    except VaultDamaged as error:
        yield Finding(
            "indexes",
            Severity.FAILED,
            f"the index of words is not what the texts are: {error}",
            "`crystal doctor --fix` writes it anew from the texts.",
            ExitCode.STORAGE,
            mend=lambda: _rebuild(settings),
        )


def _vectors(database: Database) -> Iterator[Finding]:
    windows = int(database.value("SELECT count(*) FROM windows"))
    kept = int(database.value("SELECT count(*) FROM vectors"))
    if windows != kept:
        what = f"{windows:,} vectors are listed and {kept:,} kept: searching by meaning misses texts"
        yield Finding("indexes", Severity.FAILED, what, _REPAIR, ExitCode.STORAGE)


def _deep(device: Device) -> Iterator[Finding]:
    settings, faults = device.settings, device.replica.database.check()
    if faults:
        yield Finding(
            "indexes",
            Severity.FAILED,
            f"{device.replica.database.path}: {faults[0]}",
            "`crystal doctor --fix` writes the indexes anew from the rows.",
            ExitCode.STORAGE,
            mend=lambda: _rebuild(settings),
        )
    elif not verify(device, passes_damage=True).ok:
        what = "the memory's rows are not those that the log gives"
        yield Finding("indexes", Severity.FAILED, what, _REPAIR, ExitCode.STORAGE)


def _rebuild(settings: Settings) -> str:
    with opened(settings) as device:
        database = device.replica.database
        with database.transaction():
            database.rebuild_indexes()
        left = database.check()
    if left:
        raise LocalStorage(f"{database.path} is damaged itself: {left[0]}", hint=_REPAIR)
    return "wrote the indexes of the memory anew from its rows"
