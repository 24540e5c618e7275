"""Embedding of new texts in a device's rounds while it is the Core. No failure of a provider holds a round up.

::

    round begins ─ settings and the vault's model read ─► an embedder, or "" for a round without
    texts come   ─ embedded ──────────────────────────► committed with vectors
                 ├ too many at once ──────────────────► committed without, found by keyword
                 └ failed, once ─► noted, shown by `crystal status` ─► committed without, found by keyword
    round ends   ─ texts without vectors, and no recent failure? ─► the oldest are embedded, a step at a time

After a failure the provider is left alone: as long as it asks for, else 15 seconds, doubling up to ten minutes. If the
built-in model's process dies, fewer and fewer texts are tried at once, until the text with which it dies is found; that text is
set aside. A costly backlog is embedded only after the person has agreed (`crystal embed migrate` shows the cost and asks).
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from math import inf
from typing import TYPE_CHECKING

from crystal_core.embed.identities import LOCAL_PROVIDERS, parse_identity
from crystal_core.embed.port import AnotherModel, EmbedderDied, EmbedderUnavailable, EmbeddingError
from crystal_core.embed.prices import known_model
from crystal_crypto.errors import CrystalError
from crystal_mirror.entries.control_state import META_MODEL
from crystal_mirror.errors import TransactionStale
from crystal_mirror.replication.reembedding import TEXTS_AT_ONCE, ReembedStep, embed_some
from crystal_node.base.errors import LocalStorage
from crystal_node.base.settings import with_current_options
from crystal_node.models.embedding.embedder import HeldEmbedder, NoEmbedder, compare_with
from crystal_node.models.embedding.prepared import PreparedEmbedder, PreparedVectors
from crystal_node.models.embedding.selection import embedder_for
from crystal_node.models.llm.addresses import is_loopback
from crystal_node.sync.embedding_notes import META_AGREED, META_PROBLEM, META_UNAGREED, note_set_aside

if TYPE_CHECKING:
    from crystal_node.device.device import Device
    from crystal_node.device.runner import Runner

AFTER_FAILURE_SECONDS = 15.0
AFTER_FAILURE_SECONDS_MAX = 600.0
AFTER_STALE_SECONDS = 5.0
CATCH_UP_SECONDS = 1.0
"""Time that a round spends on texts that lack vectors. What is written meanwhile waits for that long."""
DEATHS_MAX = 3
"""Deaths of the model's process with a single text, after which the text is set aside."""
SOUND_TEXT = "The lamp of the pier is lit at dusk."
"""The model has to work with this text; if it does not, no other text is at fault."""
UNASKED_TEXTS_MAX = 1000
UNASKED_BYTES_MAX = 2 * 1024 * 1024
"""Backlog that is embedded by a paid provider without asking the person: a cent or two."""


class RoundEmbedder:
    """The embedder of one device's rounds. ``clock`` is monotonic, in seconds. ``worker``: the built-in model runs in a process
    of its own."""

    def __init__(
        self, device: "Device", clock: Callable[[], float] = time.monotonic, *, worker: bool = False
    ) -> None:
        self._device = device
        self._worker = worker
        self._settings = device.settings
        self._clock = clock
        self._embedder: HeldEmbedder = NoEmbedder("no round was begun yet")
        self._for: tuple[object, ...] | None = None
        self._compared_with = ""
        self._rest_until = 0.0
        self._failures = 0
        self._made: PreparedVectors | None = None
        self._at_once = TEXTS_AT_ONCE
        self._among = 0
        """Number of next texts that hold one with which the model's process died."""
        self._deaths: tuple[bytes, int] = b"", 0
        """The content hash of a single text, and how often the model's process died with it."""
        self.runner: Runner | None = None
        """Runs the flows that embed what lacks vectors."""
        self.needed_at = 0.0
        self.problem = ""

    async def begin(self) -> str:
        """Reads the settings and the vault. Returns the model of this round, "" for a round without vectors.

        On a device that does not lead nothing is asked, and nothing is wrong: it embeds no texts.
        """
        leads = self._device.member.is_core
        try:
            embedder = self._chosen()
            if self.resting or (_asks(embedder) and not leads):
                return ""
            model = (
                await asyncio.to_thread(lambda: embedder.identity) if _asks(embedder) else embedder.identity
            )
        except (EmbeddingError, LocalStorage) as error:
            if leads:
                self.failed(error)
            return ""
        self._compare(model)
        return model

    @property
    def model(self) -> str:
        """The identity of what embeds, as far as it was looked at. Raises EmbeddingError."""
        return self._embedder.identity

    def words(self) -> str:
        """The present problem, for people; "" if there is none."""
        return f"new texts get no vectors for now: {self.problem}" if self.problem else ""

    @property
    def resting(self) -> bool:
        """Whether the provider is left alone after a failure."""
        return self._clock() < self._rest_until

    @property
    def loaded(self) -> bool:
        return self._embedder.loaded

    def source(self) -> HeldEmbedder:
        """The embedder for the runner, when a flow needs vectors."""
        self.needed_at = self._clock()
        return self._embedder

    def failed(self, error: CrystalError) -> None:
        """Notes a failure, and leaves the provider alone for a while."""
        after = getattr(error, "after", None)
        wait = min(AFTER_FAILURE_SECONDS * 2**self._failures, AFTER_FAILURE_SECONDS_MAX)
        self._failures = min(self._failures + 1, 10)
        self._rest_until = self._clock() + max(wait, after or 0.0)
        if isinstance(error, AnotherModel):
            self._compared_with = ""  # with another text the next time: all may have been made anew meanwhile
        self._note(str(error))

    def embedded(self) -> None:
        """Notes that the provider works."""
        self.needed_at = self._clock()
        self._failures, self._rest_until = 0, 0.0
        self._note("")

    async def step(self, model: str) -> ReembedStep | None:
        """One step with ``model``, in place of what the settings name if that is another. Belongs under the home's lock.

        Raises:
            EmbeddingError: it is not to be had.
            TransactionStale: a round is needed first.
        """
        self._rest_until = 0.0
        if await self.begin() != model:
            why = self.problem or "the settings name another model by now"
            raise EmbedderUnavailable(f"{model} is not at hand: {why}")
        step = await self._step(model)
        if step is None:
            self._drop_made()
        return step

    def begin_anew(self) -> None:
        """Chooses and compares the embedder again, after all vectors were dropped."""
        self._for = None
        path = self._device.settings.home.embedding_database
        if path.exists():
            with closing(PreparedVectors.open(path)) as made:
                made.changed_over()

    async def catch_up(self) -> None:
        """Embeds some texts without vectors, if allowed. Call it under the home's lock, after a round as the Core."""
        ends = self._clock() + CATCH_UP_SECONDS
        while self.due() == 0.0:
            try:
                step = await self._step(self.model)
            except TransactionStale:
                self._rest_until = self._clock() + AFTER_STALE_SECONDS
                return
            except EmbeddingError as error:
                self.failed(error)
                return
            if step is None or self._clock() > ends:
                break
        self._drop_made()
        self._keep(META_UNAGREED, self._unagreed())

    async def _step(self, model: str) -> ReembedStep | None:
        """``embed_some``, of fewer texts while the one is looked for with which the model's process dies."""
        try:
            step = await self._runs().run(embed_some(self._device.member, model, self._at_once))
        except EmbedderDied:
            if self._at_once == 1:
                if not await self._set_aside():
                    raise
                step = ReembedStep(1, 0)
            else:
                self._among, self._at_once = self._at_once, self._at_once // 2
                self._failures = 0  # the pause stays short, since something else is tried
                raise
        self._among -= 0 if step is None else step.texts
        if step is None or self._among <= 0:
            self._among, self._at_once = 0, TEXTS_AT_ONCE
        return step

    async def _set_aside(self) -> bool:
        """Counts that the model's process died with the first text without vectors. Returns whether that text was set aside:
        after the last of ``DEATHS_MAX`` times, if the model works with another text."""
        replica = self._device.replica
        content, _ = replica.without_vectors(1)[0]
        before, times = self._deaths
        self._deaths = content, times + 1 if content == before else 1
        if self._deaths[1] < DEATHS_MAX:
            return False
        try:
            await asyncio.to_thread(self._embedder.embed_windows, [SOUND_TEXT])
        except EmbeddingError:
            return False
        self.embedded()
        with replica.transaction() as transaction:
            row = transaction.pass_over(content)
        if row is not None:
            note_set_aside(self._device, row)
        self._deaths = b"", 0
        return True

    def due(self) -> float:
        """Seconds until texts without vectors should be embedded; infinity if there are none, or it is not allowed."""
        if not self._waiting() or not self._may():
            return inf
        return max(self._rest_until - self._clock(), 0.0)

    def _waiting(self) -> bool:
        """Whether this is the Core, and texts lack vectors that its model can make."""
        device = self._device
        if not device.member.is_core or self._for is None or isinstance(self._embedder, NoEmbedder):
            return False
        kept = (device.replica.meta_get(META_MODEL) or b"").decode()
        try:
            return kept in ("", self.model) and bool(device.replica.without_vectors(1))
        except EmbeddingError:
            return False

    def _unagreed(self) -> str:
        """The model that texts wait for until the person agrees to its cost, "" if none do."""
        return self.model if self._waiting() and not self._may() else ""

    def release(self) -> None:
        self._embedder.release()

    def close(self) -> None:
        self._embedder.close()
        if self._made is not None:
            self._made.close()
            self._made = None

    def _runs(self) -> "Runner":
        assert self.runner is not None, "rounds have a runner"
        return self.runner

    def _chosen(self) -> HeldEmbedder:
        self._settings = with_current_options(self._settings)
        kept = (self._device.replica.meta_get(META_MODEL) or b"").decode()
        path = self._device.settings.home.embedding_database
        wanted = (kept, self._settings.embedding, path.exists())
        if wanted != self._for:
            self.close()
            self._for, self._compared_with = None, ""
            self._embedder = embedder_for(self._settings, kept, worker=self._worker)
            if path.exists():
                self._made = PreparedVectors.open(path)
                self._embedder = PreparedEmbedder(self._embedder, self._made)
            self._for = wanted
        return self._embedder

    def _compare(self, model: str) -> None:
        """Compares a remote model with the vault's vectors, once for each model."""
        if model and self._compared_with != model:
            kept = (self._device.replica.meta_get(META_MODEL) or b"").decode()
            if kept == model:
                compare_with(self._embedder, self._device.replica.database)
                self._compared_with = model

    def _may(self) -> bool:
        """Whether embedding the backlog is free, cheap, or was agreed to."""
        url = self._settings.embedding.url
        if is_free(self.model) or (url and is_loopback(url)):
            return True
        if self._device.journal.meta_get(META_AGREED) == self.model.encode():
            return True
        waiting = self._device.replica.without_vectors(UNASKED_TEXTS_MAX)
        return len(waiting) < UNASKED_TEXTS_MAX and _bytes(waiting) <= UNASKED_BYTES_MAX

    def tidy(self) -> None:
        """After a round with new operations: drops prepared vectors of forgotten texts."""
        path = self._device.settings.home.embedding_database
        if path.exists():
            made = PreparedVectors.open(path)
            made.prune(self._device.replica.database)
            made.close()
        self._drop_made()

    def _drop_made(self) -> None:
        """Deletes prepared vectors once the vault has changed over and no text lacks vectors."""
        if self._made is None or self._made.anew:
            return
        replica = self._device.replica
        kept = (replica.meta_get(META_MODEL) or b"").decode()
        if kept and kept == self._made.model and not replica.without_vectors(1):
            self._made.discard()
            self.close()
            self._for = None

    def _note(self, problem: str) -> None:
        self.problem = problem
        self._keep(META_PROBLEM, problem)

    def _keep(self, name: str, words: str) -> None:
        """Keeps a note for status and doctor; "" removes it."""
        journal, wanted = self._device.journal, words.encode() or None
        if self._device.member.is_core and journal.meta_get(name) != wanted:
            with journal.transaction() as transaction:
                transaction.meta_set(name, wanted)


def is_free(model: str) -> bool:
    """Whether a model is free: on the person's own machines, or with a known price of zero."""
    identity = parse_identity(model)
    if identity is None or identity.provider in LOCAL_PROVIDERS:
        return True
    known = known_model(identity.provider, identity.model)
    return known is not None and known.price == 0.0


def _asks(embedder: HeldEmbedder) -> bool:
    """Whether the embedder has to ask a server for its identity."""
    return not getattr(embedder, "known", True)


def _bytes(waiting: Sequence[tuple[bytes, str]]) -> int:
    return sum(len(text.encode("utf-8", "replace")) for _, text in waiting)
