"""Changing the embedding model: what it will cost, making the vectors of the next model, and the change itself.

::

    planned ─ confirmed ─► vectors made, text after text (`PreparedVectors`; the old ones answer) ─► change over

Making the vectors needs only the provider, neither the home's lock nor the relay; a running agent goes on beside it. A kill
loses what one request brought. What is recorded meanwhile gets vectors of the old model, and of the next one at the change.

The change drops the old vectors everywhere and sends the new ones to the other devices, which takes as long as the upload.
Until they arrive, texts are found by keyword. After a kill the Core's next rounds complete it, or another run.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace

from msgspec import structs

from crystal_core.database import Database
from crystal_core.embed.identities import LOCAL_PROVIDERS, parse_identity
from crystal_core.embed.port import AnotherModel, Embedder, EmbedderUnavailable
from crystal_core.embed.prices import dollars, known_model, tokens_expected
from crystal_mirror.entries.control_state import META_MODEL
from crystal_mirror.errors import TransactionStale
from crystal_mirror.replication.reembedding import begin_reembedding
from crystal_node.base.errors import BadConfig, UsageError
from crystal_node.base.settings import Settings
from crystal_node.base.settings.options import BY_NAME
from crystal_node.base.settings.settings import Setting, SettingSource
from crystal_node.device.device import Device
from crystal_node.models.embedding.embedder import HeldEmbedder
from crystal_node.models.embedding.prepared import PreparedVectors
from crystal_node.models.embedding.selection import BUILTIN, NONE, builtin
from crystal_node.models.llm.addresses import is_loopback
from crystal_node.sync.embedding_notes import META_AGREED, META_UNAGREED
from crystal_node.sync.members.rights import check_is_core
from crystal_node.sync.progress import ProgressLines
from crystal_node.sync.syncer import syncing

OPTION_PROVIDER, OPTION_MODEL, OPTION_URL = "embedding_provider", "embedding_model", "embedding_url"

TEXTS_AT_ONCE = 64
"""A kill loses the vectors of at most this many texts."""
READ_AT_ONCE = 256
TRIES_MAX = 4
AGAIN_SECONDS = 5.0
MEASURED_TEXTS = 12
MEASURED_SECONDS_MAX = 6.0
REQUEST_SECONDS = 1.2
"""Approximate time of a request to a remote provider, which is not measured."""
REQUEST_BYTES = 96 * 1024

WHAT = "making the vectors"
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class MigrationPlan:
    """What a migration will do. ``bytes``: text without vectors of ``model``; ``dollars``: None where the price is not known;
    ``seconds``: an estimate; ``anew``: all vectors are made again."""

    former: str
    model: str
    provider: str
    destination: str
    texts: int
    bytes: int
    made: int
    free: bool
    dollars: float | None
    seconds: float
    anew: bool

    @property
    def tokens(self) -> int:
        return tokens_expected(self.bytes)

    @property
    def changes_over(self) -> bool:
        """Whether the vault's vectors are replaced; else only texts without vectors get some."""
        return self.anew or (bool(self.former) and self.former != self.model)


def settings_for(settings: Settings, provider: str, model: str, url: str) -> Settings:
    """These settings with the embedding that is asked for; "" is as it is configured.

    Raises:
        Usage: no such provider, no such address; nothing is there to migrate to; or the environment says otherwise.
    """
    before = settings.embedding
    provider = provider or before.provider
    if provider == NONE:
        raise UsageError(
            "there is nothing to migrate to: embedding is switched off on this device",
            hint="Name a provider: `crystal embed migrate builtin`.",
        )
    same = before.provider in (provider, BUILTIN, NONE)
    wanted = {
        OPTION_PROVIDER: provider,
        OPTION_MODEL: model or (before.model if same else ""),
        OPTION_URL: url or (before.url if same else ""),
    }
    if provider == BUILTIN:
        wanted[OPTION_MODEL] = wanted[OPTION_URL] = ""
    options = dict(settings.options)
    for name, value in wanted.items():
        option, now = BY_NAME[name], options[name]
        try:
            checked = option.check(value, "the command line")
        except BadConfig as error:
            raise UsageError(str(error), hint=error.hint) from error
        if now.source is SettingSource.ENVIRONMENT and now.value != checked:
            raise UsageError(
                f"{option.variable} says {now.value[:80]!r}, and comes before what is configured",
                hint=f"Unset {option.variable}, for the background service too, and run it again.",
            )
        if now.value != checked:
            options[name] = Setting(name, checked, SettingSource.FLAG)
    return replace(settings, options=options)


def target(settings: Settings) -> HeldEmbedder:
    """The embedder, which waits for a provider that limits its rate. Raises EmbedderRefused, LocalStorage."""
    if settings.embedding.provider == BUILTIN:
        return builtin(None)
    # Lazy: loads the HTTP client.
    from crystal_node.models.embedding.providers import MIGRATION_PATIENCE_SECONDS, provided

    return provided(settings, patience=MIGRATION_PATIENCE_SECONDS)


def planned(device: Device, settings: Settings, embedder: HeldEmbedder, *, anew: bool) -> MigrationPlan:
    """Computes the plan. ``anew``, once begun, also holds for a run without it. A local model is timed on some texts; a paid
    one is only asked for the dimensions of a model that is not known.

    Raises:
        EmbeddingError: the model cannot be used.
    """
    former = (device.replica.meta_get(META_MODEL) or b"").decode()
    model = embedder.identity
    database, path = device.replica.database, device.settings.home.embedding_database
    anew = anew or (former == model and _anew_begun(device, model))
    lacking = former == model and not anew
    texts = size = made = 0
    if path.exists() and not lacking:
        with closing(PreparedVectors.open(path)) as kept:
            same = kept.model == model
            for _, content, length in _sizes(database, lacking=False):
                if same and kept.has(content):
                    made += 1
                    continue
                texts, size = texts + 1, size + length
    else:
        for _, _, length in _sizes(database, lacking=lacking):
            texts, size = texts + 1, size + length
    price = _price(model, settings)
    return MigrationPlan(
        former=former,
        model=model,
        provider=settings.embedding.provider,
        destination=_destination(settings),
        texts=texts,
        bytes=size,
        made=made,
        free=price == 0.0,
        dollars=None if price is None else dollars(price, size),
        seconds=_seconds(database, embedder, model, size),
        anew=anew,
    )


def _anew_begun(device: Device, model: str) -> bool:
    """Whether all vectors of ``model`` were being made again, and the vault has not changed over to them."""
    path = device.settings.home.embedding_database
    if not path.exists():
        return False
    with closing(PreparedVectors.open(path)) as kept:
        return kept.anew and kept.model == model


def make_all(
    device: Device, embedder: HeldEmbedder, plan: MigrationPlan, progress: Progress | None = None
) -> int:
    """Makes vectors for all texts of the memory, beside the present ones, and goes on after an interruption. Returns the number
    of texts.

    Raises:
        EmbeddingError: repeat it; what was made is kept.
    """
    if not plan.changes_over:
        return 0
    database = device.replica.database
    done = size = 0
    with closing(PreparedVectors.open(device.settings.home.embedding_database)) as made:
        made.begin(plan.model, embedder.dimensions, anew=plan.anew)
        made.prune(database)
        _compare(embedder, made, database, anew=plan.anew)
        for rows in _without(database, made):
            windows = _embedded(embedder, [text for _, text in rows])
            made.add([(chunk, text, each) for (chunk, text), each in zip(rows, windows, strict=True)])
            done += len(rows)
            size += sum(len(text.encode("utf-8", "replace")) for _, text in rows)
            if progress is not None:
                progress(WHAT, size, max(plan.bytes, size))
        made.prune(database)  # what was forgotten meanwhile
    return done


def _compare(embedder: Embedder, made: PreparedVectors, database: Database, *, anew: bool) -> None:
    """Checks that the vectors made before are of this model. With ``anew``, drops them if they are not."""
    expect = getattr(embedder, "expect", None)
    sample = made.sample(database) if expect is not None else None
    if expect is None or sample is None:
        return
    expect(sample)
    try:
        embedder.embed_windows([sample[0]])
    except AnotherModel:
        if not anew:
            raise
        made.clear()
        expect(None)


def _embedded(embedder: Embedder, texts: list[str]) -> list[list[bytes]]:
    for left in reversed(range(TRIES_MAX)):
        try:
            return embedder.embed_windows(texts)
        except EmbedderUnavailable as error:
            if not left:
                raise
            time.sleep(max(AGAIN_SECONDS, error.after or 0.0) if not error.paid else 0.0)
    raise AssertionError("the last try raises or returns")


def _without(database: Database, made: PreparedVectors) -> Iterator[list[tuple[int, str]]]:
    """Yields batches of (number, text) without prepared vectors."""
    after, waiting = 0, list[tuple[int, str]]()
    while True:
        rows = database.rows(
            "SELECT rowid, id, text FROM chunks WHERE provisional = 0 AND rowid > ?"
            " AND rowid NOT IN (SELECT chunk FROM actions) ORDER BY rowid LIMIT ?",
            (after, READ_AT_ONCE),
        )
        if not rows:
            break
        after = rows[-1][0]
        waiting += [(rowid, text) for rowid, content, text in rows if not made.has(content)]
        while len(waiting) >= TEXTS_AT_ONCE:
            yield waiting[:TEXTS_AT_ONCE]
            waiting = waiting[TEXTS_AT_ONCE:]
    if waiting:
        yield waiting


def _sizes(database: Database, *, lacking: bool) -> Iterator[tuple[int, bytes, int]]:
    """Yields (number, hash, bytes) of the texts; with ``lacking`` only of those without vectors."""
    after = 0
    while rows := database.rows(
        "SELECT rowid, id, length(CAST(text AS BLOB)) FROM chunks WHERE provisional = 0 AND rowid > ?1"
        " AND rowid NOT IN (SELECT chunk FROM actions)"
        " AND NOT (?2 AND EXISTS (SELECT 1 FROM windows WHERE chunk = chunks.rowid)) ORDER BY rowid LIMIT 5000",
        (after, int(lacking)),
    ):
        yield from ((rowid, content, size) for rowid, content, size in rows)
        after = rows[-1][0]


def _price(model: str, settings: Settings) -> float | None:
    """Dollars for a million tokens; 0 on the person's own machines; None if unknown, as for a custom address."""
    identity, url = parse_identity(model), settings.embedding.url
    if identity is None or identity.provider in LOCAL_PROVIDERS or (url and is_loopback(url)):
        return 0.0
    if url:
        return None
    known = known_model(identity.provider, identity.model)
    return known.price if known is not None else None


def _destination(settings: Settings) -> str:
    if settings.embedding.provider == BUILTIN:
        return ""
    from crystal_node.models.embedding.providers import destination  # lazy, as above

    return destination(settings)


def _seconds(database: Database, embedder: Embedder, model: str, size: int) -> float:
    """Estimated seconds, measured on some texts where that costs nothing."""
    identity = parse_identity(model)
    if identity is not None and identity.provider in ("openai", "google"):
        return size / REQUEST_BYTES * REQUEST_SECONDS
    rows = database.rows(
        "SELECT text FROM chunks WHERE provisional = 0 ORDER BY rowid DESC LIMIT ?", (MEASURED_TEXTS,)
    )
    texts = [text for (text,) in rows]
    if not texts or not size:
        return 0.0
    embedder.embed_windows(texts[:1])  # loads the model
    started, measured = time.monotonic(), 0
    for text in texts:
        embedder.embed_windows([text])
        measured += len(text.encode("utf-8", "replace"))
        if time.monotonic() - started > MEASURED_SECONDS_MAX:
            break
    return (time.monotonic() - started) * size / max(measured, 1)


def save(settings: Settings, chosen: Settings) -> None:
    """Writes the changed options into ``config.json``: from now on this device embeds with them."""
    names = (OPTION_PROVIDER, OPTION_MODEL, OPTION_URL)
    changed: dict[str, str | None] = {
        name: chosen.options[name].value or None
        for name in names
        if chosen.options[name].value != settings.options[name].value
    }
    if changed:
        settings.save(structs.replace(settings.config, **changed))


CHANGING_OVER = "changing over"
PURPOSE = "crystal embed migrate"


@dataclass(frozen=True, slots=True)
class Reembedded:
    """``former``: the model that had made the vectors, "" if there were none."""

    former: str
    model: str
    texts: int
    seconds: float


def former_model(device: Device) -> str:
    return (device.replica.meta_get(META_MODEL) or b"").decode()


async def change_over(
    device: Device, model: str, progress: Callable[[str], None] | None, *, anew: bool = False
) -> Reembedded:
    """Drops vectors of other models, or with ``anew`` all, and embeds until no text lacks vectors of ``model``, which the
    settings name. Goes on after an interruption. Other rounds of this home may run between two steps.

    Raises:
        NotAllowed: this device is not the Core.
        HomeBusy: another process of this home syncs all the time.
        StoreFailure, EmbeddingError: repeat it.
    """
    started = time.monotonic()
    former = former_model(device)
    pace = ProgressLines(progress) if progress is not None else None
    texts = done = 0
    with device.journal.transaction() as transaction:
        transaction.meta_set(META_AGREED, model.encode())
        transaction.meta_set(META_UNAGREED, None)
    async with syncing(device, PURPOSE, progress) as syncer:
        await syncer.round()
        check_is_core(device, "embeds")
        total = _bytes_without_vectors(device)
        if anew or former != model:
            await syncer.run(begin_reembedding(device.member, model, anew=anew))
            syncer.ingest.begin_anew()
            total = _bytes_without_vectors(device)
        while True:
            try:
                async with syncer.alone():
                    step = await syncer.ingest.step(model)
            except TransactionStale:
                await syncer.round()
                check_is_core(device, "embeds")
                continue
            if step is None:
                break
            texts += step.texts
            done += step.bytes
            if pace is not None:
                pace(CHANGING_OVER, done, max(total, done))
        await syncer.round()
        return Reembedded(former, model, texts, time.monotonic() - started)


def _bytes_without_vectors(device: Device) -> int:
    """Approximate bytes of text without vectors, for an estimate."""
    found = device.replica.database.value(
        "SELECT sum(length(text)) FROM chunks WHERE provisional = 0 AND rowid NOT IN (SELECT chunk FROM windows)"
        " AND rowid NOT IN (SELECT chunk FROM actions)"
    )
    return int(found or 0)
